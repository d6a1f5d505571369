"""Private training beside Opacus and diffprivlib: accuracy with the same settings, and time, all in one run.

    make bench-training                                  everything, and book/trainingspeed.md written anew
    python tests/benchmarks/training.py                  with whatever libraries are installed
    python tests/benchmarks/training.py --page PAGE.md   also write the page

A library that is not installed is left out. For times on one thread set OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1,
as make does.
"""

import argparse
import importlib.metadata
import itertools
import math
import platform
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits

from dpbook import gradients, perturbation, training
from dpbook.accounting import Accountant, SubsampledGaussian, calibrate_noise_multiplier
from dpbook.sensitivity import clip_norm

DELTA, SEEDS = 1e-5, 20
EPSILONS = (1.0, 3.0, 8.0)
NORM, STEPS, RATE = 1.0, 100, 2.0  # clipping norm, steps, learning rate: the same for all
# A record is in a batch with probability 1 / parts, for which Opacus' data loader needs a whole number.
PARTS = {"digits": 8, "tumours": 7}
# Largest values of the thirty columns, round numbers by hand: public.
LARGEST = [30, 40, 200, 2500, 0.2, 0.4, 0.5, 0.25, 0.4, 0.1]
LARGEST += [3, 5, 25, 550, 0.04, 0.15, 0.4, 0.06, 0.08, 0.03]
LARGEST += [40, 50, 260, 4300, 0.25, 1.1, 1.3, 0.3, 0.7, 0.21]
HIDDEN = 32
STRENGTHS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)  # of the regularisation
Split = tuple[Any, Any, Any, Any]


def data(name: str) -> tuple[Any, Any]:
    """Return records scaled by public bounds, and classes."""
    if name == "digits":
        x, y = load_digits(return_X_y=True)
        return x / 16, y
    x, y = load_breast_cancer(return_X_y=True)
    return 2 * np.clip(x / np.array(LARGEST), 0, 1) - 1, y


def split(name: str, seed: int) -> Split:
    """Return four fifths of the records with their classes, and the rest."""
    x, y = data(name)
    order = np.random.default_rng(seed).permutation(len(x))
    at = round(0.8 * len(x))
    return x[order[:at]], y[order[:at]], x[order[at:]], y[order[at:]]


# --- DP-SGD: the same settings in both libraries ---------------------------------------------------------------------

Predict = Callable[[Any], Any]


def network(features: int, classes: int, hidden: bool) -> gradients.Model:
    if not hidden:
        return gradients.Model(features=features, outputs=classes, loss="softmax")
    return gradients.Model(
        features=features, outputs=classes, hidden=(HIDDEN,), activation="relu", loss="softmax"
    )  # fmt: skip


def dpbook_sgd(
    x: Any, y: Any, *, parts: int, steps: int, rate: float, multiplier: float, seed: int, hidden: bool = False
) -> Predict:
    """Train with `dp_sgd`."""
    model = network(x.shape[1], int(y.max()) + 1, hidden)
    plan = training.plan_training(
        neighbors="add_remove", delta=DELTA, clipping_norm=NORM, noise_multiplier=multiplier, n=len(x),
        sampling_prob=1 / parts, steps=steps,
    )  # fmt: skip
    start = gradients.starting_parameters(model, seed=seed)
    found = training.dp_sgd(model, x, y, plan=plan, learning_rate=rate, start=start)
    return lambda new: gradients.outputs(model, found, new).argmax(axis=1)


def opacus_sgd(
    x: Any, y: Any, *, parts: int, steps: int, rate: float, multiplier: float, seed: int, hidden: bool = False,
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
    ours = network(features, classes, hidden)
    dense = [part for part in model.modules() if isinstance(part, nn.Linear)]
    with torch.no_grad():  # the same first weights
        start = gradients.starting_parameters(ours, seed=seed)
        for part, matrix in zip(dense, ours.layers(start), strict=True):
            part.weight.copy_(torch.tensor(matrix[:-1].T))
            part.bias.copy_(torch.tensor(matrix[-1]))
    records, labels = torch.tensor(x, dtype=torch.float32), torch.tensor(y)
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=rate)
    loss = nn.CrossEntropyLoss()
    noise = {"noise_multiplier": multiplier, "max_grad_norm": NORM}
    if loader:
        batches: Any = DataLoader(TensorDataset(records, labels), batch_size=math.ceil(n / parts))
        model, optimizer, batches = PrivacyEngine().make_private(
            module=model, optimizer=optimizer, data_loader=batches, poisson_sampling=True, **noise
        )
        drawn = itertools.islice(itertools.chain.from_iterable(batches for _ in itertools.count()), steps)
    else:
        model = GradSampleModule(model)
        optimizer = DPOptimizer(optimizer, expected_batch_size=n / parts, **noise)
        masks = (torch.rand(n) < 1 / parts for _ in range(steps))
        drawn = ((records[mask], labels[mask]) for mask in masks)
    for some, target in drawn:
        optimizer.zero_grad()
        loss(model(some), target).backward()
        optimizer.step()
    return lambda new: model(torch.tensor(new, dtype=torch.float32)).argmax(dim=1).numpy()


TRAINERS: dict[str, tuple[str, Callable[..., Predict]]] = {
    "dpbook": ("dpbook", dpbook_sgd),
    "Opacus": ("opacus", opacus_sgd),
}


def installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        print(f"{package} is left out: it is not installed")
        return False
    return True


def gap(ours: Any, theirs: Any) -> tuple[str, bool]:
    """Return the mean difference of paired runs with its standard error, and whether ours are no worse than by two."""
    difference = np.asarray(ours) - np.asarray(theirs)
    error = difference.std(ddof=1) / math.sqrt(len(difference))
    return f"{100 * difference.mean():+.1f} ± {100 * error:.1f}", bool(difference.mean() > -2 * error)


def per_cent(values: Any) -> str:
    return f"{100 * np.mean(values):.1f} ± {100 * np.std(values, ddof=1):.1f}"


def accuracy() -> Iterator[tuple[list[str], bool]]:
    """Yield a row for each table, network and ε: per cent right on the rest, over the seeds."""
    peers = {name: train for name, (package, train) in TRAINERS.items() if installed(package)}
    for table, hidden in (("digits", False), ("digits", True), ("tumours", False)):
        for epsilon in EPSILONS:
            multiplier = calibrate_noise_multiplier(
                target_epsilon=epsilon, delta=DELTA, sampling_prob=1 / PARTS[table], steps=STEPS,
                neighbors="add_remove",
            )  # fmt: skip
            settings = {"parts": PARTS[table], "steps": STEPS, "rate": RATE, "multiplier": multiplier, "hidden": hidden}
            right: dict[str, list[float]] = {name: [] for name in peers}
            for seed in range(SEEDS):
                x, y, new, truth = split(table, seed)
                for name, train in peers.items():
                    right[name].append(float(np.mean(train(x, y, seed=seed, **settings)(new) == truth)))
            kind = "64-32-10" if hidden else "logistic"
            row = [table, kind, f"{epsilon:g}", f"{multiplier:.2f}", *map(per_cent, right.values())]
            difference, fine = gap(*right.values()) if len(right) == 2 else ("-", True)
            print(*row, difference, sep=" | ", flush=True)
            yield [*row, difference], fine


# --- one release: objective perturbation under replace-one -----------------------------------------------------------


def of_diffprivlib(parts: Split, epsilon: float, strength: float, seed: int) -> float:
    """Share right of its LogisticRegression, which is ε-DP with δ = 0: the stronger promise of the two."""
    from diffprivlib.models import LogisticRegression

    x, y, new, truth = parts
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LogisticRegression(
            epsilon=epsilon, data_norm=1.0, C=1 / strength, max_iter=500, random_state=seed
        ).fit(clip_norm(x, max_norm=1.0), y)  # fmt: skip
        return float(model.score(clip_norm(new, max_norm=1.0), truth))


def of_dpbook(parts: Split, epsilon: float, strength: float, seed: int) -> float:
    x, y, new, truth = parts
    try:
        fit = perturbation.objective_perturbation(
            x, y, classes=[0, 1], l2=strength, epsilon=epsilon, delta=DELTA, neighbors="replace_one",
            rng=np.random.default_rng(seed),
        )  # fmt: skip
    except ValueError:  # so little regularisation has no guarantee at this ε
        return 0.0
    return fit.score(new, truth)


def sgd_replaced(parts: Split, epsilon: float, strength: float, seed: int) -> float:
    multiplier = calibrate_noise_multiplier(
        target_epsilon=epsilon, delta=DELTA, sampling_prob=1 / 7, steps=STEPS, neighbors="replace_one"
    )
    x, y, new, truth = parts
    train = dpbook_sgd(x, y, parts=7, steps=STEPS, rate=RATE, multiplier=multiplier, seed=seed)
    return float(np.mean(train(new) == truth))


def single() -> Iterator[tuple[list[str], bool]]:
    """Yield a row for each ε: the tumours, under replace-one, each method with the strength that is best for it."""
    methods: dict[str, tuple[Any, tuple[float, ...]]] = {
        "DP-SGD": (sgd_replaced, (0.0,)),
        "objective": (of_dpbook, STRENGTHS),
    }
    if installed("diffprivlib"):
        methods["diffprivlib"] = (of_diffprivlib, STRENGTHS)
    for epsilon in EPSILONS:
        best: dict[str, Any] = {}
        for name, (method, strengths) in methods.items():
            runs = [[method(split("tumours", seed), epsilon, k, seed) for seed in range(SEEDS)] for k in strengths]
            best[name] = max(runs, key=np.mean)
        row = [f"{epsilon:g}", *map(per_cent, best.values())]
        gaps = [gap(best[name], best["diffprivlib"]) for name in ("DP-SGD", "objective")] if len(best) == 3 else []
        print(*row, *(text for text, _ in gaps), sep=" | ", flush=True)
        yield [*row, *(text for text, _ in gaps)], all(fine for _, fine in gaps)


# --- ε of the same run -----------------------------------------------------------------------------------------------


def accounts() -> Iterator[list[str]]:
    """Yield ε of the same training by the account's two bounds and by Opacus' accountants."""
    for multiplier, q, steps in ((1.0, 0.01, 1000), (4.86, 1 / 8, 100), (0.8, 64 / 50_000, 15_625)):
        run = Accountant(neighbors="add_remove").add(
            SubsampledGaussian(noise_multiplier=multiplier, sampling_prob=q), steps=steps
        )
        low, high = run.epsilon_bounds(delta=DELTA)
        row = [
            f"{multiplier:g}",
            f"{q:.4g}",
            f"{steps:,}",
            f"{low:.4f}",
            f"{high:.4f}",
            f"{run.rdp_epsilon(delta=DELTA):.4f}",
        ]
        if installed("opacus"):
            from opacus.accountants import PRVAccountant, RDPAccountant

            for kind in (PRVAccountant, RDPAccountant):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    theirs = kind()
                    theirs.history = [(multiplier, q, steps)]
                    row.append(f"{theirs.get_epsilon(delta=DELTA):.4f}")
        print(*row, sep=" | ", flush=True)
        yield row


# --- time ------------------------------------------------------------------------------------------------------------


def speed(rounds: int = 7) -> Iterator[tuple[list[str], float]]:
    """Yield milliseconds of one pass over 19,968 records, expected batch 256, and the factor to Opacus with loader."""
    x, y = data("digits")
    many = np.random.default_rng(0).integers(0, len(x), 78 * 256)
    x, y = x[many], y[many]
    ways: dict[str, Callable[..., Predict]] = {"dpbook": dpbook_sgd}
    if installed("opacus"):
        ways |= {"Opacus": opacus_sgd, "without its loader": lambda *a, **k: opacus_sgd(*a, loader=False, **k)}
    for hidden in (False, True):
        took = dict.fromkeys(ways, math.inf)
        for _ in range(rounds):
            for name, train in ways.items():
                start = time.process_time()
                train(x, y, parts=78, steps=78, rate=RATE, multiplier=1.0, seed=0, hidden=hidden)
                took[name] = min(took[name], time.process_time() - start)
        kind = "64-32-10" if hidden else "logistic, 64-10"
        ratios = [took[name] / took["dpbook"] for name in ways if name != "dpbook"]
        row = [kind, *(f"{1000 * seconds:.0f}" for seconds in took.values()), *(f"{r:.1f}" for r in ratios)]
        print(*row, sep=" | ", flush=True)
        yield row, ratios[0] if ratios else math.inf


# --- the page --------------------------------------------------------------------------------------------------------

PAGE = """(trainingspeed)=
# Training beside other libraries

This page is written by `make bench-training`; no number on it is typed. One run measured all of it, on one machine, on
one thread: Python {python}, {system}; {versions}.

## Accuracy with the same settings

DP-SGD with Poisson batches in both libraries, under add/remove, δ = {delta:g}: clipping norm {norm:g}, {steps} steps,
learning rate {rate:g}, the same first weights, a record is in a batch with probability 1/8 (digits) or 1/7 (tumours),
and the same noise multiplier σ, from `calibrate_noise_multiplier`. Per cent of right predictions on the fifth of the
records that was left out: mean and standard deviation over {seeds} splits, each with noise of its own. The last
column is the mean difference of the same splits, with its standard error: it speaks of these two tables alone.

{accuracy}

Both programs run the same algorithm, so no difference is expected but chance. What differs is how: dpbook's sums of
clipped gradients are exact, its samples and its noise come from the system's secure source, and its noise is the
ideal one, rounded. Opacus draws 32-bit floats from PyTorch's generator here; its `secure_mode` needs a package that
is not in this comparison. Opacus computes sampling probability and expected batch from the number of records, which
add/remove treats as private; dpbook takes a public number, for which the true one stands here, as the tables are
public. Learning rate, clipping norm and steps were found on these tables too.

## Objective perturbation, and diffprivlib

Logistic regression of the tumours under *replace-one*. The two methods that perturb the objective need rows in the
unit ball and get them clipped to it; DP-SGD needs no bound on a row and gets the scaled columns as they are.
diffprivlib's `LogisticRegression` perturbs the objective and promises δ = 0, the two methods of dpbook δ = {delta:g}:
diffprivlib promises more, and the columns are comparable at the same ε only in this sense. It takes the classes from
the labels; dpbook is told them. For both methods that perturb the objective the strength of the regularisation is
the best of {strengths}, chosen by looking at the results, which a real release could not.
DP-SGD has the settings of above. The last two columns are mean differences of the same splits, with their standard
errors; a minus says that dpbook is worse.

{single}

## ε of the same training

dpbook's account has a lower and an upper bound; Opacus' accountants return one number. δ = {delta:g}, add/remove.

{accounts}

## Milliseconds for one pass

19,968 images, expected batch 256, 78 steps; processor time with preparation, best of several rounds. "Without its
loader" uses Opacus' optimizer and per-record gradients alone, with batches cut out of a tensor in memory by a random
mask, which is the fastest way that we know.

{speed}

## What was aimed at

"Nowhere worse by more than two standard errors" is not "as good": it says that this many splits do not show more.

| aim | reached |
| --- | --- |
| accuracy at equal settings: nowhere worse than Opacus by more than two standard errors | {equal} |
| accuracy at equal ε: nowhere worse than diffprivlib by more than two standard errors | {better} |
| one pass: at least 3 times faster than Opacus with its loader | {faster} |
"""


def markdown(heads: list[str], rows: list[list[str]]) -> str:
    ends = ["---", *["--:"] * (len(heads) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, ends, *rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, help="write the results as a page of the book")
    arguments = parser.parse_args()
    speeds, right, one, same = list(speed()), list(accuracy()), list(single()), list(accounts())
    found = []
    for package in ("dpbook", "numpy", "opacus", "torch", "diffprivlib", "scikit-learn"):
        if installed(package):
            found.append(f"{package} {importlib.metadata.version(package)}")
    if not arguments.page:
        return
    heads = {
        "accuracy": ["table", "model", "ε", "σ", "dpbook", "Opacus", "difference"],
        "single": ["ε", "DP-SGD", "objective", "diffprivlib", "DP-SGD less diffprivlib", "objective less diffprivlib"],
        "accounts": ["σ", "q", "steps", "ε at least", "ε at most", "by RDP", "Opacus PRV", "Opacus RDP"],
        "speed": ["model", "dpbook", "Opacus", "without its loader", "Opacus / dpbook", "without its loader / dpbook"],
    }
    rows = {"accuracy": [r for r, _ in right], "single": [r for r, _ in one], "accounts": same}
    rows["speed"] = [r for r, _ in speeds]
    text = PAGE.format(
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        versions=", ".join(found),
        delta=DELTA, norm=NORM, steps=STEPS, rate=RATE, seeds=SEEDS,
        strengths=", ".join(f"{k:g}" for k in STRENGTHS),
        equal="yes" if all(fine for _, fine in right) else "no",
        better="yes" if all(fine for _, fine in one) else "no",
        faster="yes" if min(factor for _, factor in speeds) >= 3 else "no",
        **{name: markdown(heads[name], rows[name]) for name in heads},
    )  # fmt: skip
    arguments.page.write_text(text, encoding="utf8")
    print(f"{arguments.page} written")


if __name__ == "__main__":
    main()
