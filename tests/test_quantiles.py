"""Quantiles and bounds: the probabilities are those of the mechanism, and neighbours differ by the ε that was paid.

Privacy is checked from the utilities and scales that the code hands to the (tested) exact draws; what is drawn is then
compared with those probabilities. Seeds are fixed; a statistical test rejects below 1e-6.
"""

import itertools
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay import (
    AR,
    EPS,
    REJECT,
    RO,
    TWO,
    B,
    Silence,
    assert_epsilon_is_named,
    assert_neighbours_look_the_same,
    assert_scale_is_public,
    chi_square_p,
    flip_probabilities,
    frequencies,
    neighbours,
    seeded,
    worst_loss,
)
from scipy import stats

from dpbook import noise, quantiles
from dpbook.quantiles import (
    exponential_quantile,
    private_bounds,
    private_median,
    private_quantiles,
    quantile_points,
    quantile_sensitivity,
)


@pytest.fixture
def silence(monkeypatch):
    return Silence(monkeypatch)


# --- one quantile -----------------------------------------------------------------------------------------------------


def miss(data, point, q):
    """The definition: how far q n is from the ranks that the point has; negative where it is among them."""
    target = Fraction(round(q * 2**24), 2**24) * len(data)
    return max(sum(x < point for x in data) - target, target - sum(x <= point for x in data))


@pytest.mark.parametrize("q", [0.0, 0.25, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("relation", [AR, RO])
@pytest.mark.parametrize("rows", [None, 2])
def test_quantile_sensitivity_equals_enumeration(q, relation, rows):
    domain = range(3)
    others = [d for k in range(3) for d in itertools.combinations_with_replacement(domain, k)]
    own = [(x,) for x in domain]
    if rows:
        own = [t for k in range(rows + 1) for t in itertools.combinations_with_replacement(domain, k)]
    alone = [()] if relation == AR else own
    worst = max(
        abs(miss(rest + a, x, q) - miss(rest + b, x, q))
        for rest in others
        for a in own
        for b in alone
        for x in (-1, 0, 1, 2, 3)
    )
    assert worst <= Fraction(quantile_sensitivity(q=q, neighbors=relation, max_rows=rows))
    assert float(worst) >= quantile_sensitivity(q=q, neighbors=relation, max_rows=rows) * 0.45


def law_of(monkeypatch, data, q, size, window, scale=2.0**24):
    """The probability of every point, from what the code hands to the draw."""
    seen = {}

    def pick(utilities, weights, scale, uniform, unlisted=0.0):
        seen.update(utilities=utilities, weights=weights, unlisted=unlisted)
        return 0

    with monkeypatch.context() as patch:
        patch.setattr(noise, "_pick", pick)
        part, places = round(q * 2**24), np.array(data, dtype=np.float64)
        if window:
            patch.setattr(noise, "FAINT", 3.0)  # so that a small example has a window
            run = quantiles._window_run(places, part, scale, size, None)
        else:
            run = quantiles._run(places, part, scale, size, None)
    return run, seen


@pytest.mark.parametrize("q", [0.0, 0.1, 0.5, 0.75, 1.0])
def test_runs_cover_every_point_with_its_utility(monkeypatch, q):
    rng = seeded(1)
    for n in (0, 1, 2, 5, 12):
        for size in (1, 2, 7, 30):
            data = rng.integers(0, size, n)
            _, seen = law_of(monkeypatch, data, q, size, window=False)
            points = np.repeat(-seen["utilities"], seen["weights"].astype(int)) / 2.0**24
            few = quantiles._misses(data.astype(float), round(q * 2**24), size) / 2.0**24
            assert few.tolist() == points.tolist()
            assert points.tolist() == [float(miss(data.tolist(), x, q)) for x in range(size)]


@pytest.mark.parametrize("q", [0.0, 0.1, 0.5, 0.75, 1.0])
def test_a_window_lists_the_same_utilities_and_bounds_the_rest(monkeypatch, q):
    rng, size = seeded(2), 40
    for n, values in itertools.product((60, 300), (size, 3, 1)):
        data = np.minimum(rng.integers(0, values, n) * (size // values), size - 1)
        _, seen = law_of(monkeypatch, data, q, size, window=True, scale=2.0**22)
        if not seen:
            continue
        exact = [-float(miss(data.tolist(), x, q)) * 2.0**24 for x in range(size)]
        listed = np.repeat(seen["utilities"], seen["weights"].astype(int)).tolist()
        starts = [i for i in range(size - len(listed) + 1) if exact[i : i + len(listed)] == listed]
        assert starts
        before = min(sum(math.exp(x / 2.0**22) for x in exact[:i]) for i in starts)
        behind = min(sum(math.exp(x / 2.0**22) for x in exact[i + len(listed) :]) for i in starts)
        assert max(before, behind) <= seen["unlisted"] * (1 + 1e-9)
        assert max(listed) >= 0.0


@pytest.mark.parametrize("kind", ["uniform", "ties", "lognormal"])
def test_the_window_changes_nothing(monkeypatch, kind):
    rng = seeded(4)
    data = {
        "uniform": rng.uniform(0, 1, 5_000),
        "ties": rng.integers(0, 3, 5_000) / 2,
        "lognormal": rng.lognormal(size=5_000),
    }
    arguments = {"q": 0.4, "bounds": (0, 2), "epsilon": 1.0, "neighbors": AR}
    fast = [exponential_quantile(data[kind], **arguments, rng=seeded(i)) for i in range(40)]
    monkeypatch.setattr(quantiles, "_window_run", lambda *_: None)
    assert fast == [exponential_quantile(data[kind], **arguments, rng=seeded(i)) for i in range(40)]


@pytest.mark.parametrize("relation", [AR, RO])
def test_the_quantile_law_is_private_and_drawn(relation):
    """On a small grid: the ratio over all neighbours by definition, and the draws against that law."""
    eps, q, points = 1.0, 0.5, range(5)

    def law(data):
        rate = eps / (2 * quantile_sensitivity(q=q, neighbors=relation))
        w = np.array([math.exp(-rate * float(miss(data, x, q))) for x in points])
        return w / w.sum()

    worst = 0.0
    for n in range(4):
        for data in itertools.combinations_with_replacement(points, n):
            if relation == AR:
                others = [(*data, x) for x in points]
            else:
                others = [(*data[:i], x, *data[i + 1 :]) for i in range(n) for x in points]
            worst = max([worst, *(np.abs(np.log(law(data) / law(o))).max() for o in others)])
    assert 0.4 < worst <= eps + 1e-12
    data = (0, 1, 1, 4)
    arguments = {"q": q, "bounds": (0, 4), "step": 1, "epsilon": eps, "neighbors": relation}
    found = frequencies(lambda rng: int(exponential_quantile(data, **arguments, rng=rng)), 5, 10_000)
    rate = eps / (2 * quantile_sensitivity(q=q, neighbors=relation))
    flips = flip_probabilities([-float(miss(data, x, q)) for x in points], rate)
    assert chi_square_p(found, 10_000 * flips) > REJECT
    assert chi_square_p(found, 10_000 * law(data)) < REJECT
    with pytest.MonkeyPatch.context() as patch:  # with more points it is the exponential mechanism
        patch.setattr(quantiles, "FEW_POINTS", 0)
        found = frequencies(lambda rng: int(exponential_quantile(data, **arguments, rng=rng)), 5, 10_000)
    assert chi_square_p(found, 10_000 * law(data)) > REJECT
    assert chi_square_p(found, 10_000 * flips) < REJECT


def utilities(data, points):
    """Those of the package, and those of the middle of a point's ranks."""
    x, n = np.sort(data), len(data)
    below, upto = np.searchsorted(x, points, "left"), np.searchsorted(x, points, "right")
    return -np.maximum(below - n / 2, n / 2 - upto), -np.abs(below + upto - n) / 2


def test_no_point_outranks_a_median():
    """And the middle of a point's ranks, which other libraries go by, lets others outrank it."""
    rng, outranked = seeded(7), 0
    for _ in range(200):
        data = np.minimum(rng.integers(0, 12, rng.integers(1, 40)), rng.integers(3, 12))
        points = np.arange(12)
        own = -quantiles._misses(data.astype(float), 2**23, 12) / 2.0**24
        ours, middle = utilities(data, points)
        assert own.tolist() == ours.tolist()
        median = (np.searchsorted(np.sort(data), points, "left") <= len(data) / 2) & (
            np.searchsorted(np.sort(data), points, "right") >= len(data) / 2
        )
        assert (own[median] >= 0).all()
        assert (own[~median] < 0).all()
        outranked += middle[~median].max(initial=-99) > middle[median].max()
    assert outranked > 20


@pytest.mark.parametrize("eps", [0.1, 1.0])
def test_the_error_of_a_median_is_less_than_with_middle_ranks(eps):
    """Of permute-and-flip, from its exact law, in the mean over tables of incomes: one table says little.

    P(i) is ``p_i`` times the integral over t in [0, 1] of the product of all other ``1 - t p_j``.
    """
    nodes, parts = np.polynomial.legendre.leggauss(60)
    t, off = (nodes + 1)[:, None] / 2, []
    for seed in range(40):
        x = np.rint(seeded(seed).lognormal(10.0, 0.7, 10**5))
        points = np.arange(int(np.median(x)) - int(12 / eps), int(np.median(x)) + int(12 / eps) + 1)
        for u in utilities(x, points):
            p = np.exp((u - u.max()) * eps)  # the scale is 2 Δ / ε with Δ = 1/2
            logs = np.log1p(-t * p)
            law = p * (parts / 2 @ np.exp(logs.sum(axis=1, keepdims=True) - logs))
            assert law.sum() == pytest.approx(1.0, abs=1e-6)
            off.append(law @ np.abs(points - np.median(x)))
    ours, middle = np.array(off).reshape(-1, 2).mean(axis=0)
    assert ours < (0.995 if eps < 1 else 0.9) * middle


@pytest.mark.parametrize(("eps", "least"), [(0.3, 0.99897), (0.5, 0.99999), (1.0, 1.0)])
def test_heavy_ties(eps, least):
    """Where all weights underflow in a careless formula (diffprivlib issue 107); here the tie itself can be drawn."""
    rng = seeded(5)
    data = np.concatenate([np.full(80_000, 65_000.0), rng.uniform(0, 5e5, 20_000)])
    draws = [exponential_quantile(data, q=0.5, bounds=(0, 5e5), epsilon=eps, neighbors=RO, rng=rng) for _ in range(100)]
    assert np.mean([64_000 <= x <= 66_000 for x in draws]) >= least - 0.03
    assert np.mean(np.array(draws) == 65_000.0) > 0.9


@pytest.mark.parametrize("kind", ["uniform", "sorted", "periodic", "ties", "constant", "two"])
@pytest.mark.parametrize("part", [0.0, 0.001, 0.3, 0.5, 0.999])
def test_ranked_records_are_those_of_a_sort(kind, part):
    """Whatever the order of the records does to the sample."""
    rng, n = seeded(6), 60_000
    data = {
        "uniform": rng.uniform(size=n),
        "sorted": np.arange(float(n)),
        "periodic": np.tile(np.r_[1e6, np.arange(2.0)], n // 3),  # the sample sees one value of the three only
        "ties": rng.integers(0, 9, n).astype(float),
        "constant": np.full(n, 3.0),
        "two": rng.integers(0, 2, n).astype(float),
    }[kind]
    low = int(part * (n - 300))
    high = low + 250
    assert np.array_equal(quantiles._ranked(data, low, high), np.sort(data)[low : high + 1])


EDGE = {
    "empty": [],
    "one": [3.0],
    "all lower": [0.0] * 50,
    "all upper": [10.0] * 50,
    "all inside": [4.0] * 50,
    "outside": [-1e300, 1e300, math.inf, -math.inf],
    "no numbers": [None, math.nan, "x", 3.0],
    "many equal": [7.0] * 20_000,
}


@pytest.mark.parametrize("data", EDGE)
@pytest.mark.parametrize("q", [0, 0.5, 1])
@pytest.mark.parametrize("bounds", [(0, 10), (5, 5), (-1e-300, 1e270), (0, 5e-324), (1e15, 1e15 + 1)])
def test_quantiles_never_fail_and_stay_inside(data, q, bounds):
    for eps in (1e-3, 1.0, 500.0):
        value = exponential_quantile(EDGE[data], q=q, bounds=bounds, epsilon=eps, neighbors=AR, rng=seeded())
        assert type(value) is float
        assert bounds[0] <= value <= bounds[1]


def test_quantile_points():
    assert quantile_points(bounds=(0, 120), step=1) == (1.0, 0, 120)
    assert quantile_points(bounds=(5, 5))[1] * quantile_points(bounds=(5, 5))[0] == 5
    step, first, last = quantile_points(bounds=(-1, 3))
    assert (first * step, last * step) == (-1, 3)
    assert 2**47 <= last - first <= 2**49
    for bounds, step, message in (
        ((0.1, 0.2), 1, "multiple"),
        ((0, 1e6), 1e-12, "step must"),
        ((0, 1), 1e-17, "step must"),
    ):
        with pytest.raises(ValueError, match=message):
            quantile_points(bounds=bounds, step=step)


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(st.floats(-1e9, 1e9), st.floats(0, 1e9))
def test_every_point_is_a_float_inside_the_bounds(lower, width):
    step, first, last = quantile_points(bounds=(lower, lower + width))
    assert first <= last
    for j in (first, last, (first + last) // 2):
        assert Fraction(j * step) == j * Fraction(step)
        assert lower <= j * step <= lower + width


@pytest.mark.parametrize("step", [1, None])
@pytest.mark.parametrize(("relation", "ranks"), [(AR, 0.75), (RO, 1.0)])
def test_the_scale_of_a_quantile_grows_with_the_rows_of_a_person(relation, ranks, step, monkeypatch):
    """Few points are drawn with coins, many in one go: both with 2 m Δ / ε, in units of 2**-24 of a rank."""
    scales = []

    def flip(utilities, *, scale, rng):
        scales.append(scale)
        return np.ones(len(utilities), dtype=bool)

    def pick(utilities, lengths, scale, *_):
        scales.append(scale)
        return 0

    monkeypatch.setattr(noise, "flip_coins", flip)
    if step is None:
        monkeypatch.setattr(noise, "_pick", pick)
    arguments = {"q": 0.25, "bounds": (0, 10), "step": step, "epsilon": 0.5, "neighbors": relation}
    for rows in (None, 1, 7):
        exponential_quantile([1, 2, 3] * 9, **arguments, max_rows=rows)
    expected = [2 * m * ranks / 0.5 * 2**24 for m in (1, 1, 7)]
    assert scales == pytest.approx(expected, rel=1e-12)
    assert all(Fraction(a) >= Fraction(b) for a, b in zip(scales, expected, strict=True))


@pytest.mark.parametrize("step", [0.1, 0.01, 0.05, 0.3, 1e-3, 1 / 3, 1.1, 7e-5])
def test_a_bound_that_is_meant_to_be_a_multiple_is_one(step):
    for k in range(1, 600):
        assert quantile_points(bounds=(0, k * step), step=step)[1:] == (0, k)
        assert quantile_points(bounds=(-k * step, step), step=step)[1:] == (-k, 1)
        decimal = float(Decimal(k) * Decimal(str(step)))
        assert quantile_points(bounds=(0, decimal), step=step)[1:] == (0, k)
        assert quantile_points(bounds=(0, (k + 0.99) * step), step=step)[1:] == (0, k)
    for top in (0.3, 0.7, 1.9):
        answer = exponential_quantile([top] * 99, q=1.0, bounds=(0, top), step=0.1, epsilon=1e3, neighbors=AR)
        assert answer == top  # and never beyond it, as 3 * 0.1 would be


# --- several quantiles ------------------------------------------------------------------------------------------------


def test_quantiles_of_neighbours_look_the_same():
    for d, e in neighbours(AR, seeded(3)):
        values = [private_quantiles(x, q=[0.2, 0.5], bounds=B, epsilon=EPS, neighbors=AR, rng=seeded()) for x in (d, e)]
        assert values[0].value.shape == values[1].value.shape == (2,)
        assert values[0].scale == values[1].scale
        assert values[0].rank_error == values[1].rank_error


def test_quantiles_share_epsilon_and_are_in_order(monkeypatch):
    seen, real = [], quantiles.exponential_quantile

    def one(values, **k):
        seen.append(k["epsilon"])
        return real(values, **k)

    monkeypatch.setattr(quantiles, "exponential_quantile", one)
    data = np.arange(1000.0)
    release = private_quantiles(data, q=[0.9, 0.1, 0.5], bounds=(0, 999), epsilon=0.3, neighbors=AR, rng=seeded())
    assert sum(map(Fraction, seen)) <= Fraction(0.3)
    assert len(seen) == 3
    assert release.value[1] <= release.value[2] <= release.value[0]
    assert release.value == pytest.approx([900, 100, 500], abs=150)
    assert release.epsilon == 0.3
    assert release.interval is None
    assert type(private_quantiles(data, q=0.5, bounds=(0, 999), epsilon=1, neighbors=AR).value) is float
    with pytest.raises(TypeError, match="bounds"):
        private_median(data, epsilon=0.3, neighbors=AR)
    for make in (list, tuple, pd.Series):
        ask = {"bounds": (0, 999), "epsilon": 1.0, "neighbors": AR}
        assert private_median(make(data), **ask, rng=seeded()).value == private_median(data, **ask, rng=seeded()).value
    for bad in ([], [[0.5]], 1.5, [-0.1], [math.nan]):
        with pytest.raises(ValueError, match="q must"):
            private_quantiles(data, q=bad, bounds=(0, 999), epsilon=0.3, neighbors=AR)


@pytest.mark.parametrize("rows", [None, 3])
def test_the_rank_error_holds(rows):
    data, rng, misses = np.sort(seeded(1).uniform(0, 100, 400)), seeded(2), 0
    more = {"person": range(400), "max_contributions": rows} if rows else {}
    ask = {"bounds": (0, 100), "step": 1, "epsilon": 0.5, "neighbors": AR, "alpha": 0.05, **more}
    for _ in range(300):
        release = private_median(data, **ask, rng=rng)
        grid = np.rint(data)
        away = max((grid < release.value).sum() - 200, 200 - (grid <= release.value).sum(), 0)
        misses += away > release.rank_error
    assert stats.binom.sf(misses - 1, 300, 0.05) > REJECT
    assert release.rank_error < 400
    assert (release.query, release.mechanism) == ("median", "permute_and_flip")
    fine = private_median(data, bounds=(0, 100), epsilon=0.5, neighbors=AR)
    assert fine.mechanism == "exponential"
    assert "rank by at most" in repr(release)


@pytest.mark.parametrize("relation", [AR, RO])
def test_quantiles_keep_the_limit_and_pay_for_it(relation, monkeypatch):
    asked = []

    def draw(column, **arguments):
        asked.append((column.tolist(), arguments["max_rows"], arguments["epsilon"], arguments["neighbors"]))
        return 1.0

    monkeypatch.setattr(quantiles, "exponential_quantile", draw)
    ask = {"q": [0.2, 0.5], "bounds": (0, 10), "step": 1, "epsilon": 1.0, "neighbors": relation}
    several = private_quantiles(list(range(8)), **ask, **TWO)
    assert asked == [([0, 1, 5, 6], 2, 0.5, relation)] * 2
    one = private_quantiles(list(range(8)), **ask)
    assert asked[2:] == [(list(range(8)), None, 0.5, relation)] * 2
    assert several.scale == pytest.approx(2 * one.scale)
    assert one.scale == pytest.approx(2 * (0.8 if relation == AR else 1.0) / 0.5)
    assert several.rank_error == pytest.approx(2 * one.rank_error)


# --- bounds -----------------------------------------------------------------------------------------------------------


def powers(data, **more):
    return private_bounds(data, magnitudes=(0.5, 1e9), **more)


@pytest.mark.parametrize("relation", [AR, RO])
def test_neighbours_differ_by_what_is_paid_for(relation, silence):
    assert 0.9 < worst_loss(powers, relation, silence, least=1 if relation == RO else 0) <= 1


@pytest.mark.parametrize("relation", [AR, RO])
def test_neighbours_look_the_same(relation):
    assert_neighbours_look_the_same(powers, relation)
    assert_scale_is_public(powers, relation)


def test_bounds_from_a_histogram_of_powers():
    rng = seeded(3)
    ask = {"epsilon": 0.5, "neighbors": AR, "magnitudes": (1, 2**40)}
    income = rng.lognormal(10, 0.5, 20_000)
    low, high = private_bounds(income, **ask, rng=rng).value
    assert 0 < low <= np.quantile(income, 0.02)
    assert np.quantile(income, 0.98) <= high < 8 * income.max()
    both = np.concatenate([income, -income / 8, np.zeros(500)])
    low, high = private_bounds(both, **ask, rng=rng).value
    assert -income.max() <= low < -1000
    assert private_bounds(np.full(5_000, 0.25), **ask, rng=rng).value == (0.0, 0.0)
    for data in ([], [math.nan], [1e300, -1e300]):
        low, high = private_bounds(data, **ask, rng=rng).value
        assert low <= high
    for bad in ((0, 1), (-1, 1), (2, 1), (1e-200, 1)):
        with pytest.raises(ValueError, match="magnitudes must"):
            private_bounds([1.0], epsilon=1.0, neighbors=AR, magnitudes=bad)


def test_bounds_of_noise_alone_rarely_go_astray():
    """5,000 records in one bin: with probability 0.99 no empty bin is taken for full."""
    data, rng = np.full(5_000, 5.0), seeded(4)
    wrong = sum(
        private_bounds(data, epsilon=0.1, neighbors=AR, magnitudes=(1, 1e9), rng=rng).value != (4.0, 8.0)
        for _ in range(400)
    )
    assert stats.binom.sf(wrong - 1, 400, 0.01) > REJECT


def test_bounds_of_negative_records_mirror_those_of_positive_ones():
    for size in (1.0, 1.5, 2.0, 700.0, 1024.0, 5e3):
        arguments = {"epsilon": 10.0, "neighbors": AR, "magnitudes": (1, 1e3)}
        low, high = private_bounds([size] * 1000, **arguments, rng=seeded()).value
        assert private_bounds([-size] * 1000, **arguments, rng=seeded()).value == (-high, -low)
        assert low <= min(size, 1024) <= high
    assert private_bounds([-1.0] * 1000, **arguments).value == (-2.0, -1.0)
    assert private_bounds([-0.5] * 500 + [0.5] * 500, **arguments).value == (0.0, 0.0)
    wide = {"epsilon": 10.0, "neighbors": AR, "magnitudes": (1e-100, 1e100)}
    assert private_bounds([math.nan] * 1000, **wide).value == (0.0, 0.0)


@pytest.mark.parametrize(("relation", "changes"), [(AR, 1), (RO, 2)])
def test_bounds_keep_the_limit_and_pay_for_it(relation, changes, silence):
    private_bounds([1.0] * 5 + [2.0, 4.0, 1.0], epsilon=0.5, neighbors=relation, magnitudes=(1, 5), **TWO)
    ((kind, counts, scale),) = silence.take()
    assert kind == "add_discrete_laplace"
    assert counts.tolist() == [0, 0, 0, 0, 2, 1, 1]
    assert scale == pytest.approx(2 * changes / 0.5)
    assert scale >= 2 * changes / 0.5


WITH_EPSILON = {
    "quantile": lambda **k: exponential_quantile([1], q=0.5, bounds=B, **k),
    "quantiles": lambda **k: private_quantiles([1], q=[0.2, 0.5], bounds=B, **k),
    "bounds": lambda **k: private_bounds([1], magnitudes=(1, 9), **k),
}


@pytest.mark.parametrize("relation", [AR, RO])
@pytest.mark.parametrize("query", WITH_EPSILON)
def test_an_epsilon_that_no_noise_fits_is_named(query, relation):
    assert_epsilon_is_named(WITH_EPSILON[query], relation)
