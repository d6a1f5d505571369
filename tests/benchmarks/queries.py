"""Error and time of everyday questions beside OpenDP and diffprivlib, all on the same records in one run.

    make bench-queries                      in the environment of the other libraries
    python tests/benchmarks/queries.py      with whatever libraries are installed

The error is the mean absolute one against the exact answer on the clipped records, for 10**5 records at equal ε, with
its standard error. The time is that of one release from 10**7 records beside NumPy's own, unprotected reduction.
Relations: add/remove, and for the mean replace-one with public n. Aims: an error that no other library beats by more
than chance, and at most twice NumPy's time.
"""

import argparse
import importlib.metadata
import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from dpbook.histograms import private_histogram
from dpbook.quantiles import private_median
from dpbook.queries import private_count, private_mean, private_sum

RUNS = 400
UPPER = 200_000.0
BOUNDS = (0.0, UPPER)
BINS = 20
EDGES = np.linspace(0.0, UPPER, BINS + 1)
QUESTIONS = ("count", "sum", "mean", "mean, n unknown", "histogram", "median")
LIMIT = 50_000.0  # the count is of records above it
SLOWEST = 2.0

Call = Callable[[], Any]


def records(n: int) -> np.ndarray:
    """Return incomes in whole units, the same in every run."""
    return np.rint(np.random.default_rng(0).lognormal(10.0, 0.7, n))


def exact(question: str, x: np.ndarray) -> Any:
    clipped = np.clip(x, *BOUNDS)
    return {
        "count": lambda: np.count_nonzero(x > LIMIT),
        "sum": lambda: clipped.sum(),
        "mean": lambda: clipped.mean(),
        "mean, n unknown": lambda: clipped.mean(),
        "histogram": lambda: np.histogram(clipped, EDGES)[0],
        "median": lambda: np.median(clipped),
    }[question]()


def of_numpy(question: str, x: np.ndarray, epsilon: float) -> Call:
    above = x > LIMIT
    return {
        "count": lambda: np.count_nonzero(above),
        "sum": lambda: x.sum(),
        "mean": lambda: x.mean(),
        "mean, n unknown": lambda: x.mean(),
        "histogram": lambda: np.histogram(x, EDGES)[0],
        "median": lambda: np.median(x),
    }[question]


def of_dpbook(question: str, x: np.ndarray, epsilon: float) -> Call:
    above, n = x > LIMIT, len(x)
    add = {"epsilon": epsilon, "neighbors": "add_remove"}
    swap = {"epsilon": epsilon, "neighbors": "replace_one"}
    return {
        "count": lambda: private_count(x, where=above, **add).value,
        "sum": lambda: private_sum(x, bounds=BOUNDS, **add).value,
        "mean": lambda: private_mean(x, bounds=BOUNDS, n=n, **swap).value,
        "mean, n unknown": lambda: private_mean(x, bounds=BOUNDS, **add).value,
        "histogram": lambda: private_histogram(x, edges=EDGES, **add).value,
        "median": lambda: private_median(x, bounds=BOUNDS, step=1, **add).value,
    }[question]


def of_opendp(question: str, x: np.ndarray, epsilon: float) -> Call:
    import opendp.prelude as dp

    dp.enable_features("contrib", "honest-but-curious")
    atom = dp.atom_domain(T=float, nan=False)
    space = dp.vector_domain(atom), dp.symmetric_distance()
    sized = dp.vector_domain(atom, size=len(x)), dp.symmetric_distance()
    whole = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
    laplace = dp.m.then_laplace
    if question == "count":
        data = x[x > LIMIT]
        measure = space >> dp.t.then_count() >> laplace(scale=1 / epsilon)
    elif question == "sum":
        data = x
        clamped = space >> dp.t.then_clamp(BOUNDS) >> dp.t.then_sum()
        measure = dp.binary_search_chain(lambda s: clamped >> laplace(scale=s), d_in=1, d_out=epsilon)
    elif question == "mean":
        data = x
        clamped = sized >> dp.t.then_clamp(BOUNDS) >> dp.t.then_mean()
        measure = dp.binary_search_chain(lambda s: clamped >> laplace(scale=s), d_in=2, d_out=epsilon)
    elif question == "mean, n unknown":  # two releases that share ε in halves
        data = x
        clamped = space >> dp.t.then_clamp(BOUNDS) >> dp.t.then_sum()
        total = dp.binary_search_chain(lambda s: clamped >> laplace(scale=s), d_in=1, d_out=epsilon / 2)
        number = space >> dp.t.then_count() >> laplace(scale=2 / epsilon)
        return lambda: min(max(total(data) / max(number(data), 1), BOUNDS[0]), BOUNDS[1])
    elif question == "histogram":
        data = np.minimum(np.searchsorted(EDGES, np.clip(x, *BOUNDS), side="right") - 1, BINS - 1).astype(np.int32)
        by = whole >> dp.t.then_count_by_categories(categories=list(range(BINS)), null_category=False)
        measure = by >> laplace(scale=1 / epsilon)
    else:
        data = x
        candidates = np.arange(0.0, UPPER + 1).tolist()
        measure = space >> dp.m.then_private_quantile(dp.max_divergence(), candidates, 0.5, scale=1 / epsilon)
    assert measure.map(2 if question == "mean" else 1) <= epsilon * (1 + 1e-6)
    return lambda: measure(data)


def of_diffprivlib(question: str, x: np.ndarray, epsilon: float) -> Call:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from diffprivlib import BudgetAccountant, tools
    above, accountant = x > LIMIT, BudgetAccountant()
    ask = {"epsilon": epsilon, "accountant": accountant}
    if question == "mean, n unknown":
        half = {"epsilon": epsilon / 2, "accountant": accountant}
        ones = np.ones(len(x), dtype=bool)
        return lambda: tools.sum(x, bounds=BOUNDS, **half) / max(tools.count_nonzero(ones, **half), 1)
    return {
        "count": lambda: tools.count_nonzero(above, **ask),
        "sum": lambda: tools.sum(x, bounds=BOUNDS, **ask),
        "mean": lambda: tools.mean(x, bounds=BOUNDS, **ask),
        "histogram": lambda: tools.histogram(np.clip(x, *BOUNDS), bins=BINS, range=BOUNDS, **ask)[0],
        "median": lambda: tools.median(x, bounds=BOUNDS, **ask),
    }[question]


LIBRARIES: dict[str, Callable[[str, np.ndarray, float], Call]] = {
    "dpbook": of_dpbook,
    "OpenDP": of_opendp,
    "diffprivlib": of_diffprivlib,
}


def available() -> list[str]:
    found = []
    for name in LIBRARIES:
        try:
            LIBRARIES[name]("count", np.zeros(3), 1.0)()
            found.append(name)
            print(f"{name} {importlib.metadata.version(name.lower())}", end="  ")
        except ImportError as error:
            print(f"{name} is left out: {error}", end="  ")
        except importlib.metadata.PackageNotFoundError:
            print(name, end="  ")
    print()
    return found


def error(call: Call, truth: Any, runs: int) -> tuple[float, float]:
    """Return the mean absolute error and its standard error."""
    off = [float(np.mean(np.abs(np.subtract(call(), truth, dtype=np.float64)))) for _ in range(runs)]
    return float(np.mean(off)), float(np.std(off) / math.sqrt(runs))


def seconds(call: Call, rounds: int = 5) -> float:
    found = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS)
    runs = parser.parse_args().runs
    names, x, reached = available(), records(10**5), True
    print(f"\nmean absolute error ± its standard error, {len(x):,} records, {runs} runs")
    print(f"{'question':18}{'epsilon':>8}" + "".join(f"{name:>24}" for name in names))
    for question in QUESTIONS:
        truth = exact(question, x)
        for epsilon in (0.1, 1.0):
            few = min(runs, 40) if question == "median" else runs  # OpenDP scores 200,001 candidates each time
            found = {
                name: error(LIBRARIES[name](question, x, epsilon), truth, few if name == "OpenDP" else runs)
                for name in names
            }
            print(f"{question:18}{epsilon:8g}" + "".join(f"{m:15.5g} ± {s:<6.1g}" for m, s in found.values()), end="")
            ours, spread = found["dpbook"]
            worse = [n for n, (m, s) in found.items() if ours - m > 3 * math.hypot(s, spread)]
            reached &= not worse
            print(f"   worse than {', '.join(worse)}" if worse else "", flush=True)
    x = records(10**7)
    print(f"\nmilliseconds of one release, {len(x):,} records")
    print(f"{'question':18}{'NumPy':>10}{'dpbook':>10}{'ratio':>8}")
    for question in QUESTIONS:
        plain, ours = (1e3 * seconds(of(question, x, 1.0)) for of in (of_numpy, of_dpbook))
        reached &= ours <= SLOWEST * plain
        print(f"{question:18}{plain:10.1f}{ours:10.1f}{ours / plain:8.2f}", flush=True)
    print("all aims reached" if reached else "NOT all aims reached")


if __name__ == "__main__":
    main()
