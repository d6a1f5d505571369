"""dpbook: differential privacy whose every line is explained in the book.

Exact noise (`dpbook.noise`), sensitivity and clipping (`dpbook.sensitivity`), the Laplace and Gaussian mechanisms
(`dpbook.laplace`, `dpbook.gaussian`), what many releases cost together (`dpbook.composition` and `dpbook.accounting`,
which rests on `dpbook.rdp`, `dpbook.privacy_loss` and `dpbook.loss_grid`), what ε means (`dpbook.risk`), choosing
parameters (`dpbook.tuning`), synthetic data (`dpbook.datasets`) and pictures (`dpbook.plots`, which needs matplotlib
and is imported only when asked for).
"""

from dpbook import (
    accounting,
    composition,
    datasets,
    gaussian,
    laplace,
    loss_grid,
    noise,
    privacy_loss,
    rdp,
    risk,
    sensitivity,
    tuning,
)
from dpbook.gaussian import gaussian_mechanism
from dpbook.laplace import discrete_laplace_mechanism, laplace_mechanism

__version__ = "0.1.0"

__all__ = [
    "accounting",
    "composition",
    "datasets",
    "discrete_laplace_mechanism",
    "gaussian",
    "gaussian_mechanism",
    "laplace",
    "laplace_mechanism",
    "loss_grid",
    "noise",
    "privacy_loss",
    "rdp",
    "risk",
    "sensitivity",
    "tuning",
]
