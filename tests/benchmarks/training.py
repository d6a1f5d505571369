"""Private training beside Opacus and diffprivlib: accuracy with the same settings, and time, all in one run.

    make bench-training                                  everything, and book/trainingspeed.md written anew
    python tests/benchmarks/training.py                  with whatever libraries are installed
    python tests/benchmarks/training.py --page PAGE.md   also write the page

A library that is not installed is left out. Everything runs on one thread.
"""

import argparse
import importlib.metadata
import itertools
import math
import os
import platform
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[threads] = "1"

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits

from dpbook.accounting import Accountant, SubsampledGaussian, calibrate_noise_multiplier

DELTA, SEEDS, SHARE = 1e-5, 20, 0.8
EPSILONS = (1.0, 3.0, 8.0)
NORM = 1.0  # clipping norm
# Expected batch, steps, learning rate: by hand, the same for both libraries and every ε.
SETTINGS = {"digits": (200, 100, 4.0), "breast cancer": (64, 100, 4.0)}
# Largest values of the thirty columns, round numbers by hand: public.
LARGEST = (
    (30, 40, 200, 2500, 0.2, 0.4, 0.5, 0.25, 0.4, 0.1)
    + (3, 5, 25, 550, 0.04, 0.15, 0.4, 0.06, 0.08, 0.03)
    + (40, 50, 260, 4300, 0.25, 1.1, 1.3, 0.3, 0.7, 0.21)
)
HIDDEN = 32


def data(name: str) -> tuple[Any, Any]:
    """Return records scaled by public bounds, and classes."""
    if name == "digits":
        x, y = load_digits(return_X_y=True)
        return x / 16, y
    x, y = load_breast_cancer(return_X_y=True)
    return 2 * np.clip(x / np.array(LARGEST), 0, 1) - 1, y


def split(name: str, seed: int) -> tuple[Any, Any, Any, Any]:
    x, y = data(name)
    order = np.random.default_rng(seed).permutation(len(x))
    at = round(SHARE * len(x))
    return x[order[:at]], y[order[:at]], x[order[at:]], y[order[at:]]


# --- the libraries ---------------------------------------------------------------------------------------------------
# Each trains with the same settings and returns what predicts: records to classes.

Predict = Callable[[Any], Any]


def opacus_sgd(
    x: Any, y: Any, *, batch: int, steps: int, rate: float, multiplier: float, seed: int, hidden: bool = False,
    loader: bool = True,
) -> Predict:  # fmt: skip
    """Train with `PrivacyEngine.make_private`, or without its data loader: batches drawn from a tensor in memory."""
    import torch
    from opacus import GradSampleModule, PrivacyEngine
    from opacus.optimizers import DPOptimizer
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    features, classes, n = x.shape[1], int(y.max()) + 1, len(x)
    model: Any = nn.Linear(features, classes)
    if hidden:
        model = nn.Sequential(nn.Linear(features, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, classes))
    else:
        nn.init.zeros_(model.weight)
        nn.init.zeros_(model.bias)
    records, labels = torch.tensor(x, dtype=torch.float32), torch.tensor(y)
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=rate)
    loss = nn.CrossEntropyLoss()
    noise = {"noise_multiplier": multiplier, "max_grad_norm": NORM}
    if loader:
        batches: Any = DataLoader(TensorDataset(records, labels), batch_size=batch)
        model, optimizer, batches = PrivacyEngine().make_private(
            module=model, optimizer=optimizer, data_loader=batches, poisson_sampling=True, **noise
        )
        drawn = itertools.islice(itertools.chain.from_iterable(batches for _ in itertools.count()), steps)
    else:
        model = GradSampleModule(model)
        optimizer = DPOptimizer(optimizer, expected_batch_size=batch, **noise)
        masks = (torch.rand(n) < batch / n for _ in range(steps))
        drawn = ((records[mask], labels[mask]) for mask in masks)
    for some, target in drawn:
        optimizer.zero_grad()
        loss(model(some), target).backward()
        optimizer.step()
    return lambda new: model(torch.tensor(new, dtype=torch.float32)).argmax(dim=1).numpy()
