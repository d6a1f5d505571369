"""dpbook: differential privacy whose every line is explained in the book.

Exact noise (`dpbook.noise`), sensitivity and clipping (`dpbook.sensitivity`), the Laplace and Gaussian mechanisms
(`dpbook.laplace`, `dpbook.gaussian`), choosing parameters (`dpbook.tuning`), audits and checks of any release
(`dpbook.audit`, `dpbook.checks`), synthetic data (`dpbook.datasets`) and pictures (`dpbook.plots`, which needs
matplotlib and is imported only when asked for).
"""

from dpbook import audit, checks, datasets, gaussian, laplace, noise, sensitivity, tuning
from dpbook.gaussian import gaussian_mechanism
from dpbook.laplace import discrete_laplace_mechanism, laplace_mechanism

__version__ = "0.1.0"

__all__ = [
    "audit",
    "checks",
    "datasets",
    "discrete_laplace_mechanism",
    "gaussian",
    "gaussian_mechanism",
    "laplace",
    "laplace_mechanism",
    "noise",
    "sensitivity",
    "tuning",
]
