"""Audits of other libraries, and the auditor's own speed and power, all in one run.

    make bench                                        everything, and book/audits.md written anew
    python tests/benchmarks/audit.py                  with whatever libraries are installed
    python tests/benchmarks/audit.py --page PAGE.md   also write the page

A library that is not installed is left out. jax-privacy brings jax with it and is not among the requirements of
`make bench`: install it into the same environment to have its auditor in the comparison.
"""

import argparse
import importlib.metadata
import math
import platform
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpbook import discrete_laplace_mechanism, gaussian_mechanism, laplace_mechanism
from dpbook.audit import audit
from dpbook.checks import lattice_test

ALPHA = 1e-6
SLOW, FAST = 20_000, 200_000


class Claim(NamedTuple):
    """A release of a library as a user would call it, on a pair of neighbours."""

    library: str
    name: str
    release: Callable[[Any], Any]
    pair: tuple[Any, Any]
    epsilon: float
    delta: float = 0.0
    digits: bool = False  # a continuous release of one number: its last digits are looked at too
    draws: int = SLOW


def of_opendp() -> Iterator[Claim]:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    real = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    whole = dp.atom_domain(T=int), dp.absolute_distance(T=int)
    yield Claim(
        "OpenDP", "make_laplace, float, scale 1", dp.m.make_laplace(*real, scale=1.0), (0.0, 1.0), 1.0, 0.0, True
    )
    yield Claim("OpenDP", "make_laplace, int, scale 1", dp.m.make_laplace(*whole, scale=1.0), (5, 6), 1.0)
    gaussian = dp.m.make_gaussian(*whole, scale=2.0)
    epsilon = dp.c.make_zCDP_to_approxDP(gaussian).map(1).epsilon(1e-2)
    yield Claim("OpenDP", "make_gaussian, int, scale 2", gaussian, (5, 6), epsilon, 1e-2)
    coin = dp.m.make_randomized_response_bool(prob=0.75)
    yield Claim("OpenDP", "make_randomized_response_bool", coin, (False, True), coin.map(1))
    space = (
        dp.map_domain(dp.atom_domain(T=str), dp.atom_domain(T=int)),
        dp.l01inf_distance(dp.absolute_distance(T=int)),
    )
    threshold = dp.m.make_laplace_threshold(*space, scale=1.0, threshold=5)
    yield Claim(
        "OpenDP", "make_laplace_threshold, int, scale 1, T = 5", threshold, ({"a": 1}, {}), *threshold.map((1, 1, 1)),
        draws=100_000,
    )  # fmt: skip


def of_python_dp() -> Iterator[Claim]:
    from pydp.algorithms import numerical_mechanisms as mechanisms

    laplace = mechanisms.LaplaceMechanism(epsilon=1.0, sensitivity=1.0)
    gaussian = mechanisms.GaussianMechanism(1.0, 1e-2, 1.0)
    yield Claim("python-dp", "LaplaceMechanism, ε = 1", laplace.add_noise, (0.0, 1.0), 1.0, 0.0, True, FAST)
    yield Claim("python-dp", "GaussianMechanism, ε = 1", gaussian.add_noise, (0.0, 1.0), 1.0, 1e-2, True, FAST)


def of_diffprivlib() -> Iterator[Claim]:
    from diffprivlib import mechanisms as m

    one: dict[str, Any] = {"epsilon": 1.0, "sensitivity": 1}
    ranged = {"lower": 0, "upper": 3}
    numbers, wholes = (0.0, 1.0), (0, 1)
    for kind, pair in ((m.Laplace, numbers), (m.Snapping, numbers), (m.LaplaceTruncated, numbers)):
        arguments = one | (ranged if kind is not m.Laplace else {})
        name = f"{kind.__name__}, ε = 1"
        yield Claim("diffprivlib", name, kind(**arguments).randomise, pair, 1.0, 0.0, kind is not m.LaplaceTruncated)
    for kind, extra in ((m.Geometric, {}), (m.GeometricTruncated, ranged), (m.GeometricFolded, ranged)):
        yield Claim("diffprivlib", f"{kind.__name__}, ε = 1", kind(**one, **extra).randomise, wholes, 1.0)
    yield Claim(
        "diffprivlib",
        "GaussianAnalytic, ε = 1",
        m.GaussianAnalytic(**one, delta=1e-2).randomise,
        numbers,
        1.0,
        1e-2,
        True,
    )
    coin = m.Binary(epsilon=1.0, value0="no", value1="yes")
    yield Claim("diffprivlib", "Binary, ε = 1", coin.randomise, ("no", "yes"), 1.0, draws=FAST)


def of_dpbook() -> Iterator[Claim]:
    yield Claim(
        "dpbook", "laplace_mechanism, ε = 1", lambda x: laplace_mechanism(x, 1.0, 1.0), (0.0, 1.0), 1.0, 0.0, True
    )
    yield Claim(
        "dpbook", "gaussian_mechanism, ε = 1", lambda x: gaussian_mechanism(x, 1.0, 1e-2, 1.0), (0.0, 1.0), 1.0, 1e-2,
        True,
    )  # fmt: skip
    yield Claim(
        "dpbook",
        "discrete_laplace_mechanism, ε = 1",
        lambda x: discrete_laplace_mechanism(x, epsilon=1.0, sensitivity=1),
        (5, 6),
        1.0,
    )


def of_numpy() -> Iterator[Claim]:
    yield Claim("NumPy", "value + Generator.laplace", lambda x: x + RNG.laplace(), (0.0, 1.0), 1.0, 0.0, True)


RNG = np.random.default_rng()
LIBRARIES = {
    "OpenDP": ("opendp", of_opendp),
    "python-dp": ("python-dp", of_python_dp),
    "diffprivlib": ("diffprivlib", of_diffprivlib),
    "dpbook": ("dpbook", of_dpbook),
    "NumPy": ("numpy", of_numpy),
}


def audited() -> Iterator[list[str]]:
    for name, (_, claims) in LIBRARIES.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                cases = list(claims())
        except ImportError as error:
            print(f"{name} is left out: {error}")
            continue
        for case in cases:
            claim = {"epsilon": case.epsilon, "delta": case.delta, "alpha": ALPHA}
            found = audit(case.release, *case.pair, **claim, draws=case.draws)
            digits = lattice_test(case.release, *case.pair, **claim, draws=2_000).verdict if case.digits else ""
            shown = f"{case.epsilon:.3g}" + (f", δ = {case.delta:.2g}" if case.delta else "")
            shares = f"{found.hits / found.tested:.4f} / {found.other_hits / found.tested:.4f}"
            row = [
                case.library,
                case.name,
                shown,
                f"{found.draws:,}",
                f"{found.lower_bound:.2f}",
                shares,
                found.verdict,
            ]
            print(*row, digits, sep=" | ", flush=True)
            yield [*row, digits]


# --- speed and power -------------------------------------------------------------------------------------------------


def laplace(scale: float) -> Callable[[Any, int], Any]:
    return lambda x, n: laplace_mechanism(np.full(n, x), 1 / scale, 1.0)


def speed() -> Iterator[list[str]]:
    vector = np.zeros(5), np.array([0.0, 1.0, 0.0, 0.0, 0.0])
    for name, release, pair in (
        ("Laplace, one number", laplace(1.0), (0.0, 1.0)),
        (
            "discrete Laplace",
            lambda x, n: discrete_laplace_mechanism(np.full(n, x), epsilon=1.0, sensitivity=1),
            (5, 6),
        ),
        ("randomised response", lambda x, n: RNG.random(n) < (0.7 if x else 0.3), (0, 1)),
        ("Laplace, five numbers", lambda x, n: laplace_mechanism(np.tile(x, (n, 1)), 1.0, 1.0), vector),
    ):
        start = time.perf_counter()
        found = audit(release, *pair, epsilon=1.0, alpha=ALPHA, draws=10**6, vectorized=True)
        seconds = time.perf_counter() - start
        start = time.perf_counter()
        for x in pair:
            release(x, 10**6)
        drawing = time.perf_counter() - start
        yield [name, f"{seconds:.2f}", f"{drawing:.2f}", f"{found.lower_bound:.3f}", found.verdict]


FAULTS: dict[str, tuple[Callable[[Any, int], Any], tuple[Any, Any]]] = {
    "none (ε = 1 is true)": (laplace(1.0), (0.0, 1.0)),
    "Laplace noise × 0.5": (laplace(0.5), (0.0, 1.0)),
    "Laplace noise × 0.8": (laplace(0.8), (0.0, 1.0)),
    "Laplace noise × 0.8, lower for the second input": (laplace(0.8), (1.0, 0.0)),
    "one draw for three numbers": (
        lambda x, n: np.asarray(x) + laplace_mechanism(np.zeros((n, 1)), 1.0, 1.0),
        ([0.0, 0.0, 0.0], [0.0, 1.0, 0.0]),
    ),
    "another spread only (scale 1 and 3)": (lambda s, n: s * RNG.laplace(size=n), (1.0, 3.0)),
    "NaN in 2 % of the draws": (lambda x, n: np.where(RNG.random(n) < 0.02 * x, np.nan, RNG.normal(size=n)), (0, 1)),
}


def of_jax_privacy(draws: int) -> Callable[[Any, Any], float] | None:
    """Return its bound for scores of both inputs: the sum of the entries, higher for the second input."""
    try:
        from jax_privacy import auditing
    except ImportError as error:
        print(f"jax-privacy is left out: {error}")
        return None

    def bound(first: Any, second: Any) -> float:
        scores = [np.asarray(x, dtype=float).reshape(draws, -1).sum(axis=1) for x in (second, first)]
        auditor = auditing.CanaryScoreAuditor(*scores)
        return float(auditor.epsilon_clopper_pearson(0.05, threshold_strategy=auditing.Bonferroni()))

    return bound


def power(draws: int, seeds: int = 50) -> Iterator[list[str]]:
    """Yield for each fault how often it is caught at alpha = 0.05 by both auditors, from equally many draws."""
    theirs = of_jax_privacy(draws)
    for name, (release, pair) in FAULTS.items():
        caught, seconds, failed = [0, 0], [0.0, 0.0], ""
        for _ in range(seeds):
            start = time.perf_counter()
            caught[0] += audit(release, *pair, epsilon=1.0, alpha=0.05, draws=draws, vectorized=True).violated
            seconds[0] += time.perf_counter() - start
            if theirs is not None:
                start = time.perf_counter()
                try:
                    caught[1] += theirs(release(pair[0], draws), release(pair[1], draws)) > 1.0
                except (ValueError, FloatingPointError) as error:
                    failed = type(error).__name__
                seconds[1] += time.perf_counter() - start
        other = [failed or f"{caught[1]} of {seeds}", f"{1000 * seconds[1] / seeds:.0f}"] if theirs is not None else []
        yield [name, f"{draws:,}", f"{caught[0]} of {seeds}", f"{1000 * seconds[0] / seeds:.0f}", *other]


# --- the page --------------------------------------------------------------------------------------------------------

PAGE = """(audits)=
# Audits of other libraries

This page is written by `make bench`; no number on it is typed. One run measured all of it, on one machine:
Python {python}, {system}; {versions}.

Every release is called on two neighbours and audited ({{doc}}`audit`) at α = {alpha:g}. "Shares" are those of the event
that was chosen, among the counted draws of the one and the other input. "Not refuted" proves nothing. The last column
says which doubles came out of continuous releases: "leak" means that the last digits alone refute the claim
(2,000 draws, true values 0 and 1); "no grid seen" is no finding.

{audits}

OpenDP's `make_laplace_threshold` shows a key when its noisy count is *at least* the threshold, and reports the δ of
*above* the threshold. For a count of 1, scale 1 and threshold 5, the exact probability of showing the key is
{exact:.5f}. The fault is known to the library's authors (their issue 2922).

## Speed of an audit

Seconds for 10⁶ draws of each of two inputs with the verdict, and of drawing alone.

{speed}

## Power beside another auditor

How often a fault is caught at α = 0.05 when ε = 1 is claimed, with equally many draws, and milliseconds for one audit
with its draws. jax-privacy's `CanaryScoreAuditor` (Clopper–Pearson, Bonferroni over all thresholds) is made for scores
of attacks: it takes one number for each draw, here the sum of the entries, and looks in one direction, for higher
scores of the second input. It counts on all draws. `audit` looks in both directions and chooses the score itself, and
pays for it with half of the draws: where the score is known beforehand, it needs more of them.

{power}
"""


def markdown(heads: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, help="write the results as a page of the book")
    arguments = parser.parse_args()
    audits, speeds, powers = list(audited()), list(speed()), [row for n in (1_000, 8_000) for row in power(n)]
    packages = [("SciPy", "scipy"), *((name, package) for name, (package, _) in LIBRARIES.items())]
    found = []
    for name, package in (*packages, ("jax-privacy", "jax-privacy")):
        try:
            found.append(f"{name} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    heads = ["fault", "draws", "audit caught", "ms", *(["jax-privacy caught", "ms"] if len(powers[0]) > 4 else [])]
    tables = {
        "audits": markdown(
            ["library", "release", "claimed ε", "draws", "ε at least", "shares", "verdict", "last digits"], audits
        ),
        "speed": markdown(["release", "with verdict", "drawing alone", "ε at least", "verdict"], speeds),
        "power": markdown(heads, powers),
    }
    print(tables["speed"], tables["power"], sep="\n\n")
    if arguments.page:
        text = PAGE.format(
            python=platform.python_version(),
            system=f"{platform.system()} {platform.machine()}",
            versions=", ".join(found),
            alpha=ALPHA,
            exact=math.exp(-4) / (1 + math.exp(-1)),
            **tables,
        )
        arguments.page.write_text(text, encoding="utf8")


if __name__ == "__main__":
    main()
