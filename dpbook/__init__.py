"""dpbook: differential privacy whose every line is explained in the book.

- `dpbook.noise`: exact noise
- `dpbook.sensitivity`: sensitivity and clipping
- `dpbook.laplace`: the Laplace mechanism
- `dpbook.gaussian`: the Gaussian mechanism
- `dpbook.release`: a private answer, with its interval and its cost
- `dpbook.queries`: counts, sums, means, variances, covariances
- `dpbook.histograms`: counts for bins, categories and keys
- `dpbook.quantiles`: quantiles, medians, bounds
- `dpbook.local`: answers without a trusted curator
- `dpbook.selection`: choosing one of many
- `dpbook.composition`: what a few releases cost together
- `dpbook.accounting`: what many cost, with certified bounds
- `dpbook.rdp`: Rényi DP
- `dpbook.privacy_loss`: the privacy-loss distribution
- `dpbook.loss_grid`: its grids
- `dpbook.risk`: what ε means
- `dpbook.tuning`: choosing parameters
- `dpbook.budget`: a ledger in front of the data
- `dpbook.gradients`: per-example gradients and their clipped sums
- `dpbook.training`: DP-SGD
- `dpbook.estimators`: models trained with it, in scikit-learn's conventions
- `dpbook.perturbation`: private logistic regression in one release
- `dpbook.trials`: choosing among settings, paid for
- `dpbook.audit`: tests of any mechanism
- `dpbook.checks`: checks of last digits, neighbours and ledgers
- `dpbook.exercises`: answers of the exercises, checked
- `dpbook.datasets`: synthetic data
- `dpbook.plots`: pictures; needs matplotlib and is imported only when asked for
"""

from dpbook import (
    accounting,
    audit,
    budget,
    checks,
    composition,
    datasets,
    estimators,
    exercises,
    gaussian,
    gradients,
    histograms,
    laplace,
    local,
    loss_grid,
    noise,
    perturbation,
    privacy_loss,
    quantiles,
    queries,
    rdp,
    release,
    risk,
    selection,
    sensitivity,
    training,
    trials,
    tuning,
)
from dpbook.gaussian import gaussian_mechanism
from dpbook.laplace import discrete_laplace_mechanism, laplace_mechanism

__version__ = "0.1.0"

__all__ = [
    "accounting",
    "audit",
    "budget",
    "checks",
    "composition",
    "datasets",
    "discrete_laplace_mechanism",
    "estimators",
    "exercises",
    "gaussian",
    "gaussian_mechanism",
    "gradients",
    "histograms",
    "laplace",
    "laplace_mechanism",
    "local",
    "loss_grid",
    "noise",
    "perturbation",
    "privacy_loss",
    "quantiles",
    "queries",
    "rdp",
    "release",
    "risk",
    "selection",
    "sensitivity",
    "training",
    "trials",
    "tuning",
]
