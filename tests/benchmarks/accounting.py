"""Accounting beside dp-accounting 0.6, in one run: tightness and speed.

make bench                                              also writes book/tightness.md
python tests/benchmarks/accounting.py --page PAGE.md    in an environment that has both packages
"""

import argparse
import importlib.metadata
import os
import platform
import time
from pathlib import Path

import numpy as np
import scipy
from dp_accounting import dp_event
from dp_accounting.pld import pld_privacy_accountant, privacy_loss_distribution

from dpbook import accounting
from dpbook.accounting import Accountant, Laplace, SubsampledGaussian

CASES = [  # sampling_prob, noise_multiplier, steps, delta
    (0.01, 1.1, 10_000, 1e-5),
    (256 / 60_000, 1.3, 3510, 1e-5),
    (0.001, 0.8, 100_000, 1e-6),
]
LEAST, SECONDS = 3, 2.5  # at least so often, and for so long: others may use the machine


def best(function):
    """Return the result and the least of several times, each without what earlier calls left behind."""
    times, begin = [], time.perf_counter()
    while len(times) < LEAST or time.perf_counter() - begin < SECONDS:
        accounting._epsilon_bounds.cache_clear()
        accounting._delta_bounds.cache_clear()
        start = time.perf_counter()
        result = function()
        times.append(time.perf_counter() - start)
    return result, min(times)


def theirs(q, sigma, steps, delta, interval):
    event = dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(q, dp_event.GaussianDpEvent(sigma)), steps)
    accountant = pld_privacy_accountant.PLDAccountant(value_discretization_interval=interval)
    return accountant.compose(event).get_epsilon(delta)


def ours(q, sigma, steps, delta, gap):
    step = SubsampledGaussian(noise_multiplier=sigma, sampling_prob=q)
    return Accountant(neighbors="add_remove").add(step, steps=steps).epsilon_bounds(delta=delta, gap=gap)


def laplace_theirs(scale, steps, delta, interval):
    one = privacy_loss_distribution.from_laplace_mechanism(scale, value_discretization_interval=interval)
    return one.self_compose(steps).get_epsilon_for_delta(delta)


def laplace_ours(scale, steps, delta, gap):
    account = Accountant(neighbors="add_remove").add(Laplace(scale=scale), steps=steps)
    return account.epsilon_bounds(delta=delta, gap=gap)


def calibrate_theirs(q, steps, delta, target):
    import dp_accounting

    def event(sigma):
        one = dp_event.PoissonSampledDpEvent(q, dp_event.GaussianDpEvent(sigma))
        return dp_event.SelfComposedDpEvent(one, steps)

    bracket = dp_accounting.LowerEndpointAndGuess(0.3, 2.0)
    make = pld_privacy_accountant.PLDAccountant
    return dp_accounting.calibrate_dp_mechanism(make, event, target, delta, bracket, tol=1e-4)


def rows_of(case):
    """Yield (what, lower, upper, seconds) for one training run."""
    yield "dp-accounting, grid 1e-4 (default)", None, *best(lambda: theirs(*case, 1e-4))
    yield "dp-accounting, grid 1e-3", None, *best(lambda: theirs(*case, 1e-3))
    for gap in (1e-3, 1e-4, 3e-5, 1e-5):
        (low, high), seconds = best(lambda gap=gap: ours(*case, gap))
        yield f"dpbook, gap {gap:g}", low, high, seconds


def rows_of_laplace():
    yield "dp-accounting, grid 1e-4 (default)", None, *best(lambda: laplace_theirs(20.0, 1000, 1e-5, 1e-4))
    for gap in (1e-3, 1e-5, 8e-8):
        (low, high), seconds = best(lambda gap=gap: laplace_ours(20.0, 1000, 1e-5, gap))
        yield f"dpbook, gap {gap:g}", low, high, seconds


def rows_of_calibration():
    yield "dp-accounting, tolerance 1e-4", None, *best(lambda: calibrate_theirs(0.01, 10_000, 1e-5, 1.0))
    wish = {"target_epsilon": 1.0, "delta": 1e-5, "sampling_prob": 0.01, "steps": 10_000, "neighbors": "add_remove"}
    yield "dpbook", None, *best(lambda: accounting.calibrate_noise_multiplier(**wish))


def tables():
    """Yield (title, rows)."""
    for case in CASES:
        q, sigma, steps, delta = case
        title = f"ε of {steps:,} steps, sampling probability {q:.4g}, noise multiplier {sigma}, δ = {delta:g}"
        yield title, list(rows_of(case))
    yield "ε of 1,000 releases with Laplace noise of scale 20, δ = 1e-05", list(rows_of_laplace())
    title = "Noise multiplier for ε = 1, δ = 1e-05, sampling probability 0.01, 10,000 steps"
    yield title, list(rows_of_calibration())


HEAD = """(tightness)=
# Accounting beside dp-accounting

This page is written by `make bench`; no number on it is typed. One run measured all of it, on one machine: {where}.

`dpbook` gives a lower and an upper bound, both certified ({{doc}}`accounting`); `gap` is the relative distance that was
asked for. dp-accounting gives one pessimistic value; its grid is the width of the cells. A smaller upper value is
better. Times are the least of several. The last column is the time of dp-accounting's first row over the time of the
row; it is bold in the first row of `dpbook` whose upper value is not above that of dp-accounting's first row.
"""


def as_tight(rows):
    """Return the first of our rows whose upper value is at most that of the first row."""
    return next((i for i, row in enumerate(rows) if row[0].startswith("dpbook") and row[2] <= rows[0][2]), None)


def page(found, where):
    lines = [HEAD.format(where=where)]
    for title, rows in found:
        reference = rows[0][3]
        lines += [f"## {title}", "", "| method | lower | upper | milliseconds | speed |", "|---|--:|--:|--:|--:|"]
        for i, (what, low, high, seconds) in enumerate(rows):
            lower = f"{low:.7f}" if low is not None else "-"
            speed = f"{reference / seconds:.1f}"
            speed = f"**{speed}**" if i == as_tight(rows) else speed
            lines.append(f"| {what} | {lower} | {high:.7f} | {seconds * 1e3:.1f} | {speed} |")
        lines.append("")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, help="write the page of the book to this file")
    arguments = parser.parse_args()
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("dpbook", "dp-accounting"))
    where = (
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores; "
        f"NumPy {np.__version__}, SciPy {scipy.__version__}, {versions}"
    )
    print(where)
    found = []
    for title, rows in tables():
        print(title)
        for i, (what, low, high, seconds) in enumerate(rows):
            lower = f"{low:12.7f}" if low is not None else " " * 12
            note = "  not looser" if i == as_tight(rows) else ""
            speed = rows[0][3] / seconds
            print(f"  {what:36}{lower}{high:12.7f}{seconds * 1e3:11.2f} ms{speed:9.1f} x{note}", flush=True)
        found.append((title, rows))
    if arguments.page:
        arguments.page.write_text(page(found, where), encoding="utf8")
        print(f"{arguments.page} written")


if __name__ == "__main__":
    main()
