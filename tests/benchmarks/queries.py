"""Error and time of everyday questions beside OpenDP and diffprivlib, all on the same records in one run.

    make bench-queries                                  in the environment of the other libraries, and the page
    python tests/benchmarks/queries.py                  with whatever libraries are installed
    python tests/benchmarks/queries.py --page PAGE.md   also write the page

The error is the mean absolute one against the exact answer on the clipped records, for 10**5 records at equal ε, with
its standard error. That of a median is the mean over several tables: in one table the middle may lie between two
points, or within many equal records, and that decides more than the mechanism does. The time is the processor's for one
release from 10**7 records, beside NumPy's own, unprotected reduction. Relations: add/remove, and for the mean
replace-one with public n. Aims: an error that no other library beats by more than chance, and at most twice NumPy's
time.
"""

import argparse
import importlib.metadata
import math
import os
import platform
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpbook.histograms import private_histogram
from dpbook.quantiles import private_median
from dpbook.queries import private_count, private_mean, private_sum

RUNS = 400
ROUNDS = 30
TABLES = 40  # for the median
SIZE, LARGE = 10**5, 10**7
EPSILONS = (0.1, 1.0)
UPPER = 200_000.0
BOUNDS = (0.0, UPPER)
BINS = 20
EDGES = np.linspace(0.0, UPPER, BINS + 1)
QUESTIONS = ("count", "sum", "mean", "mean, n unknown", "histogram", "median")
LIMIT = 50_000.0  # the count is of records above it
SLOWEST = 2.0

Call = Callable[[], Any]


def records(n: int, seed: int = 0) -> np.ndarray:
    """Return incomes in whole units, the same in every run."""
    return np.rint(np.random.default_rng(seed).lognormal(10.0, 0.7, n))


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


class Error(NamedTuple):
    """The mean absolute error of each library, with its standard error."""

    question: str
    epsilon: float
    found: dict[str, tuple[float, float]]

    @property
    def better(self) -> list[str]:
        """Which other libraries have a smaller error than chance explains."""
        ours, spread = self.found["dpbook"]
        return [name for name, (mean, s) in self.found.items() if ours - mean > 3 * math.hypot(s, spread)]


class Time(NamedTuple):
    """Seconds of one release, and of NumPy's own reduction."""

    question: str
    plain: float
    ours: float


def versions() -> dict[str, str]:
    """Return the libraries that can be called, with their versions."""
    found = {}
    for name, library in LIBRARIES.items():
        try:
            library("count", np.zeros(3), 1.0)()
            found[name] = importlib.metadata.version(name.lower())
        except ImportError as error:
            print(f"{name} is left out: {error}")
    return found


def error(name: str, question: str, epsilon: float, tables: list[np.ndarray], runs: int) -> tuple[float, float]:
    off = []
    for x in tables:
        call, truth = LIBRARIES[name](question, x, epsilon), exact(question, x)
        each = max(runs // len(tables), 1)
        off += [float(np.mean(np.abs(np.subtract(call(), truth, dtype=np.float64)))) for _ in range(each)]
    return float(np.mean(off)), float(np.std(off) / math.sqrt(len(off)))


def errors(names: list[str], runs: int) -> list[Error]:
    rows = []
    print(f"{'question':18}{'epsilon':>8}" + "".join(f"{name:>24}" for name in names))
    for question in QUESTIONS:
        tables = [records(SIZE, seed) for seed in range(TABLES if question == "median" else 1)]
        for epsilon in EPSILONS:
            found = {}
            for name in names:  # OpenDP scores 200,001 candidates for each median
                few = question == "median" and name == "OpenDP"
                found[name] = error(name, question, epsilon, tables, runs // 2 if few else runs)
            rows.append(Error(question, epsilon, found))
            cells = "".join(f"{mean:15.5g} ± {s:<6.1g}" for mean, s in found.values())
            print(f"{question:18}{epsilon:8g}{cells}   {'better: ' * bool(rows[-1].better)}{rows[-1].better or ''}")
    return rows


def seconds(calls: list[Call], rounds: int = ROUNDS) -> list[float]:
    """Return the least processor time of each, called in turn, so that a busy machine slows all of them."""
    found = [[math.inf] for _ in calls]
    for _ in range(rounds):
        for call, each in zip(calls, found, strict=True):
            start = time.process_time()
            call()
            each.append(time.process_time() - start)
    return [min(each) for each in found]


def times() -> list[Time]:
    x = records(LARGE)
    rows = []
    print(f"{'question':18}{'NumPy':>10}{'dpbook':>10}{'ratio':>8}")
    for question in QUESTIONS:
        plain, ours = seconds([of(question, x, 1.0) for of in (of_numpy, of_dpbook)])
        rows.append(Time(question, plain, ours))
        print(f"{question:18}{1e3 * plain:10.1f}{1e3 * ours:10.1f}{ours / plain:8.2f}", flush=True)
    return rows


PAGE = """(errors)=
# Error and time of everyday questions

This page is written by `make bench`; no number on it is typed. One run measured all of it, on one machine:
{where}; {versions}.

The records are made-up incomes in whole units, clipped to 0 to {upper:,.0f}. The question "count" is how many are above
{limit:,.0f}; the histogram has {bins} bins; the median is one of the whole numbers. All releases about one question
cost the same ε: under add/remove, and for the mean with public n under replace-one. With private n the other libraries
release a sum and a count that share ε in halves.

## Error

The mean absolute error against the exact answer on the clipped records, with its standard error, for {size:,} records
and {runs} runs. For the median these are divided among {tables} tables (OpenDP: half of the runs): its error depends on
where the middle lies among equal records, and a single table says little about the mechanism. The last column names
the libraries whose error is smaller than dpbook's by more than three standard errors.

{errors}

## Time

Milliseconds of the processor's time for one release from {large:,} records at ε = 1, and for NumPy's own reduction,
which cleans nothing, bounds nothing and adds no noise. The least of {rounds} calls, taken in turn.

{times}

## What was aimed at

{aims}
"""


def table(heads: list[str], rows: list[list[str]]) -> str:
    rule = ["---", *["--:"] * (len(heads) - 2), "---"]
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, rule, *rows))


def page(off: list[Error], spent: list[Time], found: dict[str, str], runs: int) -> str:
    """Return the page of the book."""
    slowest = max(row.ours / row.plain for row in spent)
    beaten = sum(bool(row.better) for row in off)
    error_rows = [
        [
            row.question,
            f"{row.epsilon:g}",
            *(f"{m:,.4g} ± {s:.1g}" for m, s in row.found.values()),
            ", ".join(row.better),
        ]
        for row in off
    ]
    time_rows = [
        [row.question, f"{1e3 * row.plain:,.1f}", f"{1e3 * row.ours:,.1f}", f"{row.ours / row.plain:.2f}"]
        for row in spent
    ]
    aim_rows = [
        [
            "no error of another library is smaller by more than three standard errors",
            f"{beaten} of {len(off)} lines",
            "no" if beaten else "yes",
        ],
        [f"at most {SLOWEST:g} times NumPy's time", f"{slowest:.2f}", "yes" if slowest <= SLOWEST else "no"],
    ]
    return PAGE.format(
        where=f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        versions=", ".join(f"{name} {version}" for name, version in found.items()),
        upper=UPPER,
        limit=LIMIT,
        bins=BINS,
        size=SIZE,
        runs=runs,
        tables=TABLES,
        large=LARGE,
        rounds=ROUNDS,
        errors=table(["question", "ε", *off[0].found, "smaller error"], error_rows),
        times=table(["question", "NumPy", "dpbook", "ratio"], time_rows),
        aims=table(["aim", "measured", "reached"], aim_rows),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--page", type=Path, help="write the page of the book to this file")
    arguments = parser.parse_args()
    found = versions()
    print(", ".join(f"{name} {version}" for name, version in found.items()))
    spent = times()
    off = errors(list(found), arguments.runs)
    if arguments.page:
        text = page(off, spent, {**found, "NumPy": importlib.metadata.version("numpy")}, arguments.runs)
        arguments.page.write_text(text, encoding="utf8")
        print(f"{arguments.page} written")


if __name__ == "__main__":
    main()
