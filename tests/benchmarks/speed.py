"""Time of a draw beside NumPy's unprotected noise and other DP libraries, all in one run.

    make bench                                        the table, and book/speed.md written anew
    python tests/benchmarks/speed.py                  with whatever libraries are installed
    python tests/benchmarks/speed.py --page PAGE.md   also write the page

A library that is not installed is left out. Every entry is the best of several rounds, which other work on the machine
disturbs least; the slow entries are run once.
"""

import argparse
import importlib.metadata
import os
import platform
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import dpbook
from dpbook import gaussian

EPSILON, DELTA = 1.0, 1e-6
SIGMA = gaussian.gaussian_sigma(epsilon=EPSILON, delta=DELTA, sensitivity=1.0)
SIZES = (1, 10**3, 10**6)
NOISES = ("Laplace", "Gaussian", "discrete Laplace")
PEERS = {"OpenDP": "opendp", "python-dp": "python-dp", "diffprivlib": "diffprivlib"}
AIMS = {  # (noise, size): at most this many times NumPy's time
    ("Laplace", 10**6): 1.5,
    ("Gaussian", 10**6): 2.5,
}
FASTER_THAN_PEERS = 50.0
SECONDS = 1.0  # spent on an entry

Call = Callable[[], Any]


def best(call: Call) -> float:
    """Return the seconds of one call."""
    start = time.perf_counter()
    call()
    once = time.perf_counter() - start
    number = max(1, int(SECONDS / 10 / max(once, 1e-9)))
    rounds = min(10, max(1, int(SECONDS / max(once * number, 1e-9))))
    found = [once] if number == 1 else []
    for _ in range(rounds if once < SECONDS else 0):
        start = time.perf_counter()
        for _ in range(number):
            call()
        found.append((time.perf_counter() - start) / number)
    return min(found)


def of_numpy(noise: str, size: int) -> Call:
    rng = np.random.default_rng()
    draw = rng.normal if noise == "Gaussian" else rng.laplace  # NumPy has no discrete Laplace
    scale = SIGMA if noise == "Gaussian" else 1.0
    if size == 1:
        return lambda: 3.0 + draw(0.0, scale)
    x = np.full(size, 3.0)
    return lambda: x + draw(0.0, scale, size)


def of_dpbook(noise: str, size: int) -> Call:
    if noise == "discrete Laplace":
        whole: Any = 3 if size == 1 else np.full(size, 3)
        return lambda: dpbook.discrete_laplace_mechanism(whole, epsilon=EPSILON, sensitivity=1)
    x: Any = 3.0 if size == 1 else np.full(size, 3.0)
    if noise == "Laplace":
        return lambda: dpbook.laplace_mechanism(x, EPSILON, 1.0)
    return lambda: dpbook.gaussian_mechanism(x, EPSILON, DELTA, 1.0)


def of_opendp(noise: str, size: int) -> Call:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    kind = int if noise == "discrete Laplace" else float
    atom = dp.atom_domain(T=kind) if kind is int else dp.atom_domain(T=kind, nan=False)
    if size == 1:
        space = atom, dp.absolute_distance(T=kind)
    else:
        distance = dp.l2_distance if noise == "Gaussian" else dp.l1_distance
        space = dp.vector_domain(atom), distance(T=kind)
    make = dp.m.make_gaussian if noise == "Gaussian" else dp.m.make_laplace
    measurement = make(*space, scale=SIGMA if noise == "Gaussian" else 1.0)
    x = kind(3) if size == 1 else [kind(3)] * size
    return lambda: measurement(x)


def of_python_dp(noise: str, size: int) -> Call:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pydp.algorithms import numerical_mechanisms
    if noise == "Gaussian":
        mechanism = numerical_mechanisms.GaussianMechanism(EPSILON, DELTA, 1.0)
    else:
        mechanism = numerical_mechanisms.LaplaceMechanism(epsilon=EPSILON, sensitivity=1.0)
    x = 3 if noise == "discrete Laplace" else 3.0
    add = mechanism.add_noise
    return (lambda: add(x)) if size == 1 else (lambda: [add(x) for _ in range(size)])


def of_diffprivlib(noise: str, size: int) -> Call:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from diffprivlib import mechanisms
    if noise == "Gaussian":
        mechanism = mechanisms.GaussianAnalytic(epsilon=EPSILON, delta=DELTA, sensitivity=1.0)
    else:
        kind = mechanisms.Laplace if noise == "Laplace" else mechanisms.Geometric
        mechanism = kind(epsilon=EPSILON, sensitivity=1)
    x = 3 if noise == "discrete Laplace" else 3.0
    randomise = mechanism.randomise
    return (lambda: randomise(x)) if size == 1 else (lambda: [randomise(x) for _ in range(size)])


LIBRARIES: dict[str, Callable[[str, int], Call]] = {
    "NumPy": of_numpy,
    "dpbook": of_dpbook,
    "OpenDP": of_opendp,
    "python-dp": of_python_dp,
    "diffprivlib": of_diffprivlib,
}


def versions() -> dict[str, str]:
    """Return the libraries that are here, with their versions."""
    found = {"NumPy": np.__version__, "dpbook": importlib.metadata.version("dpbook")}
    for name, package in PEERS.items():
        try:
            LIBRARIES[name]("Laplace", 1)()
            found[name] = importlib.metadata.version(package)
        except ImportError as error:
            print(f"{name} is left out: {error}")
    return found


Row = tuple[str, int, dict[str, float]]


def table(names: list[str]) -> Iterator[Row]:
    """Yield (noise, size, seconds a draw by library)."""
    for noise in NOISES:
        for size in SIZES:
            yield noise, size, {name: best(LIBRARIES[name](noise, size)) / size for name in names}


def aims(rows: list[Row]) -> Iterator[tuple[str, str, bool]]:
    """Yield (aim, figure reached, whether that is enough)."""
    seconds = {(noise, size): found for noise, size, found in rows}
    for (noise, size), most in AIMS.items():
        ratio = seconds[noise, size]["dpbook"] / seconds[noise, size]["NumPy"]
        yield f"{size:,} {noise} draws: at most {most} times NumPy's own", f"{ratio:.2f}", ratio <= most
    for noise in ("Laplace", "Gaussian"):
        found = seconds[noise, 10**6]
        peers = [found[name] for name in PEERS if name in found]
        if peers:
            factor = min(peers) / found["dpbook"]
            text = f"{10**6:,} {noise} draws: at least {FASTER_THAN_PEERS:g} times faster than the fastest peer"
            yield text, f"{factor:.0f}", factor >= FASTER_THAN_PEERS
        one = seconds[noise, 1]
        if "python-dp" in one:
            ratio = one["dpbook"] / one["python-dp"]
            yield f"one {noise} release: no slower than python-dp", f"{ratio:.2f} of its time", ratio <= 1


def in_words(seconds: float) -> str:
    nanoseconds = seconds * 1e9
    return f"{nanoseconds:,.1f}" if nanoseconds < 100 else f"{nanoseconds:,.0f}"


def page(rows: list[Row], found: dict[str, str]) -> str:
    """Return the page of the book."""
    where = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    names = list(found)
    lines = [
        "(speed)=",
        "# Speed beside other libraries",
        "",
        "This page is written by `make bench`; no number on it is typed. One run measured all of it, on one machine:",
        f"{where}; " + ", ".join(f"{name} {version}" for name, version in found.items()) + ".",
        "",
        f"The noise has scale 1 (Laplace, discrete Laplace) or standard deviation {SIGMA:.3f}, which is the Gaussian",
        f"mechanism for ε = {EPSILON:g}, δ = {DELTA:g} and sensitivity 1. NumPy's noise is *not* protected against the",
        "attacks of {doc}`noise`; it is the measure. NumPy has no discrete Laplace noise: its Laplace noise stands",
        "there. The other libraries protect their noise in ways of their own and promise different things; this table",
        "compares time only. OpenDP takes a whole list in one call; python-dp (Google's C++ library) and diffprivlib",
        "take one value a call, so a list is a loop in Python.",
        "",
        "## Nanoseconds for each draw",
        "",
        "| noise | draws | " + " | ".join(names) + " |",
        "|---|--:|" + "--:|" * len(names),
    ]
    ratios = ["", "## Ratios", "", "| noise | draws | dpbook / NumPy | fastest other / dpbook |", "|---|--:|--:|--:|"]
    for noise, size, seconds in rows:
        peers = [seconds[name] for name in PEERS if name in seconds]
        faster = f"{min(peers) / seconds['dpbook']:,.1f}" if peers else "-"
        lines.append(f"| {noise} | {size:,} | " + " | ".join(in_words(seconds[name]) for name in names) + " |")
        ratios.append(f"| {noise} | {size:,} | {seconds['dpbook'] / seconds['NumPy']:.2f} | {faster} |")
    lines += ratios
    lines += ["", "## What was aimed at", "", "| aim | measured | reached |", "|---|--:|---|"]
    lines += [f"| {aim} | {figure} | {'yes' if reached else 'no'} |" for aim, figure, reached in aims(rows)]
    lines += [
        "",
        "The ratios depend on the processor: NumPy and SciPy use its vector instructions, and they share the time",
        "differently between the random bits, the logarithm and the normal quantile. Run `make bench` on yours.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, help="write the page of the book to this file")
    arguments = parser.parse_args()
    found = versions()
    print(", ".join(f"{name} {version}" for name, version in found.items()), "- nanoseconds for each draw")
    print(f"{'noise':18}{'draws':>10}" + "".join(f"{name:>14}" for name in found))
    rows = []
    for noise, size, seconds in table(list(found)):
        rows.append((noise, size, seconds))
        cells = "".join(f"{in_words(seconds[name]):>14}" for name in found)
        print(f"{noise:18}{size:10,}{cells}", flush=True)
    for aim, figure, reached in aims(rows):
        print(f"{'reached    ' if reached else 'NOT reached'} {figure:>20}  {aim}")
    if arguments.page:
        arguments.page.write_text(page(rows, found), encoding="utf8")
        print(f"{arguments.page} written")


if __name__ == "__main__":
    main()
