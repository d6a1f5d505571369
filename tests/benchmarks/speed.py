"""Speed as ratios to NumPy's own unprotected noise, measured in the same run. `make bench` prints the table."""

import platform
import timeit

import numpy as np
import scipy

import dpbook
from dpbook import noise

ENTRIES = 1_000_000
LIMITS = {"laplace, 10^6": 2.0, "gaussian, 10^6": 3.0, "laplace, scalar": 5.0, "gaussian, scalar": 5.0}


def best(function, number, repeat=7):
    """Return the seconds of one call: the best of several rounds, which other work on the machine disturbs least."""
    return min(timeit.repeat(function, number=number, repeat=repeat)) / number


def table():
    """Yield (what, seconds with dpbook, seconds with NumPy)."""
    rng = np.random.default_rng()
    zeros = np.zeros(ENTRIES)
    whole = np.zeros(ENTRIES, dtype=np.int64)
    laplace, normal = (lambda: rng.laplace(0.0, 1.0, ENTRIES)), (lambda: rng.normal(0.0, 1.0, ENTRIES))
    one_laplace, one_normal = (lambda: 3.0 + rng.laplace(0.0, 1.0)), (lambda: 3.0 + rng.normal(0.0, 1.0))
    rows = [
        ("laplace, 10^6", lambda: noise.add_laplace(zeros, scale=1.0), laplace, 1),
        ("gaussian, 10^6", lambda: noise.add_gaussian(zeros, sigma=1.0), normal, 1),
        ("discrete laplace, 10^6", lambda: noise.add_discrete_laplace(whole, scale=1.0), laplace, 1),
        ("laplace, scalar", lambda: dpbook.laplace_mechanism(3.0, 1.0, 1.0), one_laplace, 20_000),
        ("gaussian, scalar", lambda: dpbook.gaussian_mechanism(3.0, 1.0, 1e-6, 1.0), one_normal, 20_000),
        (
            "discrete laplace, scalar",
            lambda: dpbook.discrete_laplace_mechanism(3, epsilon=1.0, sensitivity=1),
            one_laplace,
            20_000,
        ),
    ]
    for name, ours, theirs, number in rows:
        yield name, best(ours, number), best(theirs, number)


def main():
    print(
        f"Python {platform.python_version()}, NumPy {np.__version__}, SciPy {scipy.__version__}, {platform.machine()}"
    )
    print(f"{'what':26}{'dpbook':>12}{'NumPy':>12}{'ratio':>8}{'aim':>8}")
    for name, ours, theirs in table():
        per = ENTRIES if "10^6" in name else 1
        aim = f"{LIMITS[name]:.1f}" if name in LIMITS else "-"
        print(f"{name:26}{ours / per * 1e9:9.0f} ns{theirs / per * 1e9:9.0f} ns{ours / theirs:8.2f}{aim:>8}")


if __name__ == "__main__":
    main()
