"""Everyday questions: neighbours differ by no more than the noise pays for, and the intervals hold.

The privacy test takes the noise away (`replay`). Seeds are fixed; a statistical test rejects below 1e-6.
"""

import itertools
import math
import tracemalloc
import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from replay import (
    AR,
    DELTA,
    EPS,
    IDS,
    RECORDS,
    REJECT,
    RO,
    TWO,
    B,
    Silence,
    assert_epsilon_is_named,
    assert_neighbours_look_the_same,
    assert_scale_is_public,
    seeded,
    worst_loss,
    worst_loss_with_rows,
)
from scipy import stats

from dpbook import _validate, noise, queries
from dpbook.gaussian import gaussian_error
from dpbook.laplace import discrete_laplace_error, discrete_laplace_pmf, laplace_error
from dpbook.queries import (
    private_count,
    private_covariance,
    private_mean,
    private_std,
    private_sum,
    private_variance,
)


@pytest.fixture
def silence(monkeypatch):
    return Silence(monkeypatch)


# --- neighbours -------------------------------------------------------------------------------------------------------

PARTNER = {repr(x): RECORDS[-1 - i] for i, x in enumerate(RECORDS)}


def joint_covariance(data, **more):
    """Of each record and a partner that depends on that record alone."""
    other = [PARTNER.get(repr(x), 1.0) for x in data]
    return private_covariance(data, other, first_bounds=B, second_bounds=(0, 4), **more)


# name: (query of a list of records, relations, gaussian too)
PLAIN = {
    "count": (lambda d, **k: private_count(d, **k), (AR,), True),
    "count where": (lambda d, **k: private_count(d, where=[x == 10.0 for x in d], **k), (AR, RO), True),
    "sum": (lambda d, **k: private_sum(d, bounds=B, **k), (AR, RO), True),
    "sum of one sign": (lambda d, **k: private_sum(d, bounds=(2, 9), **k), (AR, RO), True),
    "mean": (lambda d, **k: private_mean(d, bounds=B, **k), (AR, RO), True),
    "mean n": (lambda d, **k: private_mean(d, bounds=B, n=len(d), **k), (RO,), True),
    "variance": (lambda d, **k: private_variance(d, bounds=B, **k), (AR, RO), True),
    "variance n": (lambda d, **k: private_variance(d, bounds=B, n=len(d), **k), (RO,), True),
    "variance ddof": (lambda d, **k: private_variance(d, bounds=B, n=len(d), ddof=1, **k), (RO,), True),
    "std n": (lambda d, **k: private_std(d, bounds=B, n=len(d), **k), (RO,), True),
    "covariance": (
        lambda d, **k: private_covariance(
            d, d[::-1] if len(d) < 3 else d, first_bounds=B, second_bounds=(0, 4), n=len(d), **k
        ),
        (RO,),
        True,
    ),
    "joint covariance": (lambda d, **k: joint_covariance(d, **k), (AR, RO), True),
}

CASES = [(name, relation) for name, (_, relations, _) in PLAIN.items() for relation in relations]
LEAST = {"variance ddof": 2}
TIGHT = {"covariance": 0.4, "sum": 0.99}


@pytest.mark.parametrize(("name", "relation"), CASES)
def test_neighbours_differ_by_what_is_paid_for(name, relation, silence):
    query, _, gaussian = PLAIN[name]
    for delta in (None, DELTA) if gaussian else (None,):
        worst = worst_loss(query, relation, silence, delta, LEAST.get(name, 1 if relation == RO else 0))
        assert worst <= 1
        if not (delta and name in ("mean", "variance", "joint covariance") and relation == RO):
            assert worst > TIGHT.get(name, 0.9)  # and no noise is wasted


@pytest.mark.parametrize("relation", [AR, RO])
@pytest.mark.parametrize("delta", [None, DELTA])
def test_neighbours_with_several_rows(relation, delta, silence):
    ways = {
        "count": private_count,
        "sum": lambda d, **k: private_sum(d, bounds=B, **k),
        "mean": lambda d, **k: private_mean(d, bounds=B, **k),
        "variance": lambda d, **k: private_variance(d, bounds=B, **k),
        "covariance": joint_covariance,
    }
    for name, query in ways.items():
        worst = worst_loss_with_rows(query, relation, silence, delta)
        assert 0.4 < worst <= 1, name


@pytest.mark.parametrize(("name", "relation"), CASES)
def test_neighbours_read_the_same_bytes_and_look_the_same(name, relation):
    assert_neighbours_look_the_same(PLAIN[name][0], relation)


@pytest.mark.parametrize("name", PLAIN)
def test_scales_do_not_depend_on_the_data(name):
    query, relations, _ = PLAIN[name]
    assert_scale_is_public(query, relations[-1])


# --- values without noise ---------------------------------------------------------------------------------------------

DATA = [2.0, 3.0, 7.5, 1e9, math.nan, -50.0]
CLEAN = np.array([2.0, 3.0, 7.5, 10.0, 3.5, -3.0])
ASK = {"epsilon": EPS, "neighbors": RO}


def test_the_values_are_those_of_numpy_on_clean_records(silence):
    """Clipped and completed, then used everywhere: one outlier and one missing value in each."""
    n = len(DATA)
    near = {"rel": 1e-5, "abs": 1e-5}
    assert private_count(DATA, **ASK).value == 6
    assert private_sum(DATA, bounds=B, **ASK).value == pytest.approx(CLEAN.sum(), **near)
    for more in ({}, {"n": n}):
        assert private_mean(DATA, bounds=B, **ASK, **more).value == pytest.approx(CLEAN.mean(), **near)
        assert private_variance(DATA, bounds=B, **ASK, **more).value == pytest.approx(CLEAN.var(), **near)
        assert private_std(DATA, bounds=B, **ASK, **more).value == pytest.approx(CLEAN.std(), **near)
    assert private_variance(DATA, bounds=B, **ASK, n=n, ddof=1).value == pytest.approx(CLEAN.var(ddof=1), **near)
    other = [1.0, 0.0, 4.0, 2.0, 9.0, -1.0]
    for ddof in (0, 1):
        found = private_covariance(DATA, other, first_bounds=B, second_bounds=(0, 4), **ASK, n=n, ddof=ddof)
        assert found.value == pytest.approx(np.cov(CLEAN, np.clip(other, 0, 4), ddof=ddof)[0, 1], **near)
    joint = private_covariance(DATA, other, first_bounds=B, second_bounds=(0, 4), **ASK)
    assert joint.value == pytest.approx(np.cov(CLEAN, np.clip(other, 0, 4), ddof=0)[0, 1], **near)
    exact = [n, CLEAN.sum(), np.clip(other, 0, 4).sum(), (CLEAN * np.clip(other, 0, 4)).sum()]
    assert list(joint.parts) == ["count", "first_sum", "second_sum", "product_sum"]
    assert [part.value for part in joint.parts.values()] == pytest.approx(exact, **near)
    parts = private_mean(DATA, bounds=B, **ASK).parts
    assert parts["sum"].value == pytest.approx(CLEAN.sum(), **near)
    assert parts["count"].value == pytest.approx(n)
    assert private_variance(DATA, bounds=B, **ASK).parts["count"].value == pytest.approx(n, abs=1e-5)


@pytest.mark.parametrize(
    "dtype", ["uint8", "int8", "int16", "int64", "uint64", "float16", "float32", "bool", "longdouble"]
)
def test_small_types_do_not_wrap(dtype, silence):
    x = np.array([0, 1, 100, 127] * 30, dtype=dtype)
    wide = x.astype(np.float64)
    for query in (private_sum, private_mean, private_variance):
        small, large = (query(d, bounds=(-1, 300), **ASK) for d in (x, wide))
        assert small.value == large.value


def test_the_order_of_records_does_not_matter(silence):
    data = [2.0**53, *[1.0] * 1000, 0.1, 0.7]
    for query in (private_sum, private_mean, private_variance):
        forward, back = (query(d, bounds=(0, 2.0**20), **ASK).value for d in (data, data[::-1]))
        assert forward == back


def test_many_records_cross_the_chunks(silence):
    x = seeded(3).uniform(-5, 12, 150_001)
    clean = np.clip(x, *B)
    assert private_sum(x, bounds=B, **ASK).value == pytest.approx(clean.sum(), rel=1e-6)
    assert private_mean(x, bounds=B, **ASK).value == pytest.approx(clean.mean(), rel=1e-6)
    assert private_variance(x, bounds=B, n=len(x), **ASK).value == pytest.approx(clean.var(), rel=1e-6)
    x[[5, 40_000, 149_999]] = math.nan
    assert private_sum(x, bounds=B, **ASK).value == pytest.approx(
        np.clip(np.nan_to_num(x, nan=3.5), *B).sum(), rel=1e-6
    )


def test_conditions(silence):
    ages = np.array([10, 70, 80])
    for where in (ages > 65, (ages > 65).tolist(), pd.Series(ages > 65), [0, 1, 1], [None, True, 1.0]):
        assert private_count(ages, where=where, **ASK).value == 2
    assert private_count(["a", None, {}], **ASK).value == 3
    assert private_count(ages, where=[True, math.nan, None], **ASK).value == 1
    with pytest.raises(ValueError, match="values and where must have the same length"):
        private_count(ages, where=[True], **ASK)


def test_person_and_max_contributions_come_together():
    for query in (private_count, lambda d, **k: private_sum(d, bounds=B, **k)):
        for more in ({"person": [1]}, {"max_contributions": 1}):
            with pytest.raises(ValueError, match="max_contributions and person must be given together"):
                query([1.0], **ASK, **more)
        with pytest.raises(ValueError, match="values and person must have the same length"):
            query([1.0], person=[1, 2], max_contributions=1, **ASK)
    for n in (3, 5):
        with pytest.raises(ValueError, match="values must have n records"):
            private_mean([1.0] * 4, bounds=B, n=n, **ASK)
    with pytest.raises(ValueError, match=r"n must be left out under 'add_remove'"):
        private_mean([1.0], bounds=B, n=1, epsilon=1.0, neighbors=AR)
    with pytest.raises(ValueError, match="n must be left out for several rows"):
        private_mean([1.0], bounds=B, n=1, person=[1], max_contributions=1, **ASK)
    with pytest.raises(ValueError, match="first and second must have the same length"):
        private_covariance([1.0], [1.0, 2.0], first_bounds=B, second_bounds=B, **ASK)
    with pytest.raises(ValueError, match="n must be left out under"):
        private_covariance([1.0], [1.0], first_bounds=B, second_bounds=B, n=1, epsilon=1.0, neighbors=AR)
    for n, ddof in ((None, 1), (1, 1), (4, 2)):
        with pytest.raises(ValueError, match=r"ddof must|n must be at least 2"):
            private_variance([1.0] * (n or 3), bounds=B, n=n, ddof=ddof, **ASK)


def test_bounds_are_required():
    for query in (private_sum, private_mean, private_variance, private_std):
        with pytest.raises(TypeError, match="bounds"):
            query([1.0], **ASK)
    with pytest.raises(TypeError, match="neighbors"):
        private_count([1.0], epsilon=1.0)
    with pytest.raises(ValueError, match="bounds must"):
        private_sum([1.0], bounds=(0, 1e200), **ASK)


# --- clamping ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [-1e12, -3.0, -1.0, 0.0, 1e-9, 1.0, 1e12])
def test_releases_stay_in_range_whatever_the_noise(offset, monkeypatch):
    Silence(monkeypatch, offset)
    data = ([], [10.0], [3.0] * 5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for d in data:
            for neighbors, more in ((AR, {}), (RO, {"n": len(d)})):
                if more and not d:
                    continue
                arguments = {"bounds": B, "epsilon": EPS, "neighbors": neighbors, **more}
                mean, var, std = (q(d, **arguments) for q in (private_mean, private_variance, private_std))
                assert B[0] <= mean.interval[0] <= mean.interval[1] <= B[1]
                assert B[0] <= mean.value <= B[1]
                for one, most in ((var, 42.25), (std, 6.5)):
                    assert 0 <= one.value <= most + 1e-9
                    assert 0 <= one.interval[0] <= one.interval[1] <= most + 1e-9
            count = private_count(d, epsilon=EPS, neighbors=AR)
            assert count.value >= 0
            assert count.interval[0] >= 0
            assert private_sum(d, bounds=(2, 9), epsilon=EPS, neighbors=AR).value >= 0
            assert private_sum(d, bounds=(-9, -2), epsilon=EPS, neighbors=AR).value <= 0


@pytest.mark.parametrize("data", [[], [5.0], [5.0] * 3])
@pytest.mark.parametrize("bounds", [(0, 0), (5, 5), (-5, -5)])
def test_bounds_without_width(data, bounds):
    """Under add/remove the sum still tells the count; a mean is the bound itself."""
    for delta in (None, DELTA):
        for eps in (0.01, 1.0):
            ask = {"bounds": bounds, "epsilon": eps, "delta": delta, "neighbors": AR, "rng": seeded()}
            release = private_sum(data, **ask)
            assert math.isfinite(release.value)
            assert (release.scale > 0) == (bounds[0] != 0)
            assert private_mean(data, **ask).value == bounds[0]
            assert private_variance(data, **ask).value == 0.0
            if data:
                public = {**ask, "neighbors": RO, "n": len(data)}
                assert private_mean(data, **public).interval == (bounds[0], bounds[0])
                assert private_std(data, **public).value == 0.0


@pytest.mark.parametrize("seed", range(3))
def test_every_mean_of_few_people_is_within_the_bounds(seed):
    rng = seeded(seed)
    for _ in range(700):
        for more in ({"neighbors": AR}, {"neighbors": RO, "n": 1}):
            release = private_mean([7.0], bounds=(0, 100), epsilon=0.01, **more, rng=rng)
            assert 0 <= release.value <= 100


# --- intervals --------------------------------------------------------------------------------------------------------

SKEWED = seeded(5).lognormal(0.5, 0.8, 40)
LEVEL, RUNS = 0.1, 1_200
TRUTH = np.clip(SKEWED, 0, 8)
OTHER = np.clip(4 - SKEWED / 2 + seeded(6).normal(size=40), -2, 4)


def covary(**more):
    return private_covariance(SKEWED, OTHER, first_bounds=(0, 8), second_bounds=(-2, 4), **more)


COVERED = {
    "sum": (lambda **k: private_sum(SKEWED, bounds=(0, 8), **k), TRUTH.sum(), (AR, RO), True),
    "mean": (lambda **k: private_mean(SKEWED, bounds=(0, 8), **k), TRUTH.mean(), (AR,), True),
    "mean n": (lambda **k: private_mean(SKEWED, bounds=(0, 8), n=40, **k), TRUTH.mean(), (RO,), True),
    "mean's sum": (lambda **k: private_mean(SKEWED, bounds=(-1, 8), **k).parts["sum"], TRUTH.sum(), (AR,), True),
    "mean's count": (lambda **k: private_mean(SKEWED, bounds=(0, 8), **k).parts["count"], 40, (AR,), True),
    "variance": (lambda **k: private_variance(SKEWED, bounds=(0, 8), **k), TRUTH.var(), (AR,), False),
    "variance's count": (lambda **k: private_variance(SKEWED, bounds=(0, 8), **k).parts["count"], 40, (AR,), False),
    "variance n": (
        lambda **k: private_variance(SKEWED, bounds=(0, 8), n=40, ddof=1, **k),
        TRUTH.var(ddof=1),
        (RO,),
        True,
    ),
    "covariance n": (lambda **k: covary(n=40, **k), np.cov(TRUTH, OTHER, ddof=0)[0, 1], (RO,), True),
    "covariance": (lambda **k: covary(**k), np.cov(TRUTH, OTHER, ddof=0)[0, 1], (AR, RO), False),
    "its count": (lambda **k: covary(**k).parts["count"], 40, (AR,), False),
    "its first sum": (lambda **k: covary(**k).parts["first_sum"], TRUTH.sum(), (AR,), False),
    "its second sum": (lambda **k: covary(**k).parts["second_sum"], OTHER.sum(), (AR,), False),
    "its product sum": (lambda **k: covary(**k).parts["product_sum"], (TRUTH * OTHER).sum(), (AR,), False),
    "std n": (lambda **k: private_std(SKEWED, bounds=(0, 8), n=40, **k), TRUTH.std(), (RO,), True),
}


@pytest.mark.parametrize("delta", [None, DELTA])
@pytest.mark.parametrize(("name", "relation"), [(n, r) for n, v in COVERED.items() for r in v[2]])
def test_intervals_hold_with_their_probability(name, relation, delta):
    query, truth, _, exact = COVERED[name]
    rng, misses = seeded(7), 0
    for _ in range(RUNS):
        low, high = query(epsilon=3.0, neighbors=relation, delta=delta, alpha=LEVEL, rng=rng).interval
        misses += not low - 1e-5 <= truth <= high + 1e-5
    assert stats.binom.sf(misses - 1, RUNS, LEVEL) > REJECT
    if exact:  # and they are not wider than that
        assert stats.binom.cdf(misses, RUNS, LEVEL) > REJECT
        assert misses > 0


@pytest.mark.parametrize("scale", [0.4, 1.0, 7.3])
def test_counts_use_the_discrete_quantile(scale):
    """The exact coverage of the interval of a count, by summation: at least 1 - alpha, and no shorter one would do."""
    t = discrete_laplace_error(scale=scale, alpha=LEVEL)
    inside = discrete_laplace_pmf(np.arange(-t, t + 1), scale=scale).sum()
    assert inside >= 1 - LEVEL
    assert inside - 2 * float(discrete_laplace_pmf(t, scale=scale)) < 1 - LEVEL
    eps = 1 / scale
    low, high = private_count([1] * 500, epsilon=eps, neighbors=AR, alpha=LEVEL).interval
    assert high - low == 2 * t
    rng, misses = seeded(8), 0
    for _ in range(RUNS):
        low, high = private_count([1] * 500, epsilon=eps, neighbors=AR, alpha=LEVEL, rng=rng).interval
        misses += not low <= 500 <= high
    assert stats.binom.sf(misses - 1, RUNS, 1 - inside) > REJECT
    assert stats.binom.cdf(misses, RUNS, 1 - inside) > REJECT


def test_noise_of_another_size_would_be_seen(monkeypatch):
    """The power twin of the coverage tests: noise 1.25 times too large misses too often."""
    real, rng, misses = noise.add_laplace, seeded(7), 0
    monkeypatch.setattr(noise, "add_laplace", lambda x, *, scale, rng: real(x, scale=1.25 * scale, rng=rng))
    for _ in range(RUNS):
        low, high = private_mean(SKEWED, bounds=(0, 8), epsilon=3.0, neighbors=AR, alpha=LEVEL, rng=rng).interval
        misses += not low <= TRUTH.mean() <= high
    assert stats.binom.sf(misses - 1, RUNS, LEVEL) < REJECT


@pytest.mark.parametrize("ratio", [0.0, 1e-4, 0.3, 0.9, 1 - 1e-7, 1.0])
def test_the_tail_of_two_laplace_noises(ratio):
    x, y = seeded(9).laplace(size=(2, 400_000))
    for t in (0.5, 2.0, 4.0):
        p = queries._tail(t, ratio)
        found = np.mean(np.abs(x + ratio * y) > t)
        assert abs(found - p) < 5 * math.sqrt(p / 400_000) + 2e-4 * p


def test_the_box_of_a_variance_holds_every_variance_in_it():
    rng = seeded(10)
    for _ in range(300):
        low = rng.uniform(0, 3, 3) * rng.integers(0, 2, 3)
        high = low + rng.uniform(0, 4, 3) * rng.integers(0, 2, 3)
        least, most = queries._variance_box(low.tolist(), high.tolist())
        points = low + rng.uniform(0, 1, (400, 3)) * (high - low)
        corners = np.array(list(itertools.product(*zip(low, high, strict=True))))
        found = [queries._variance_share(*p) for p in np.concatenate([points, corners]).tolist()]
        inside = [x for x in found if 0 <= x <= 0.25]
        assert all(least - 1e-12 <= x <= most + 1e-12 for x in inside)


def test_the_box_of_a_covariance_holds_every_covariance_in_it():
    rng, widest = seeded(12), 0.0
    for _ in range(300):
        low = rng.uniform(0, 3, 4) * rng.integers(0, 2, 4)
        high = low + rng.uniform(0, 4, 4) * rng.integers(0, 2, 4)
        least, most = queries._covariance_box(low.tolist(), high.tolist())
        points = low + rng.beta(0.4, 0.4, (2_000, 4)) * (high - low)
        corners = np.array(list(itertools.product(*zip(low, high, strict=True))))
        found = [queries._covariance_share(*p) for p in np.concatenate([points, corners]).tolist()]
        assert least - 1e-12 <= min(found) <= max(found) <= most + 1e-12
        if low.sum():
            widest = max(widest, min(found) - least, most - max(found))
    assert widest < 0.08  # the bounds are reached, or nearly: a sample comes close


def test_the_interval_of_a_covariance_shares_alpha_among_its_four_numbers(silence):
    answer = covary(epsilon=3.0, neighbors=AR, alpha=0.08)
    ((_, sums, scale),) = silence.take()

    def ends(alpha):
        t = laplace_error(scale=scale, alpha=alpha)
        return np.array(queries._covariance_box((sums - t).tolist(), (sums + t).tolist())) * 8 * 6

    assert answer.interval == pytest.approx(ends(0.02), rel=1e-4)
    assert answer.interval != pytest.approx(ends(0.08), rel=1e-2)
    (low, high), t = answer.parts["first_sum"].interval, laplace_error(scale=scale, alpha=0.02) / 2**24
    assert high - low == pytest.approx(2 * t * (0 + 8 + 0 + 8), rel=1e-4)


def test_a_joint_covariance_is_that_of_its_parts():
    """And with Gaussian noise the interval of a part is the exact one."""
    for delta in (None, DELTA):
        found = covary(epsilon=1e4, neighbors=AR, delta=delta, rng=seeded())
        n, x, y, both = (part.value for part in found.parts.values())
        assert found.value == pytest.approx(both / n - x / n * y / n, rel=1e-9)
    low, high = found.parts["count"].interval
    assert high - low == pytest.approx(2 * gaussian_error(sigma=2 * found.scale, alpha=0.05), rel=1e-4)


@pytest.mark.parametrize("offset", [-1e12, -1.0, 0.0, 1.0, 1e12])
def test_a_joint_covariance_stays_in_range_whatever_the_noise(offset, monkeypatch):
    Silence(monkeypatch, offset)
    for data in ([], [10.0], [3.0] * 5):
        found = private_covariance(data, data, first_bounds=B, second_bounds=(2, 6), epsilon=EPS, neighbors=AR)
        assert -13 <= found.interval[0] <= found.interval[1] <= 13
        assert -13 <= found.value <= 13
        assert found.parts["count"].value >= 0
        assert found.parts["second_sum"].value >= 0
        assert found.parts["second_sum"].interval[0] >= 0


def test_clipping_bias_is_outside_the_interval():
    """What the docs say: the target is the answer on the cleaned records."""
    release = private_mean([100.0] * 1000, bounds=(0, 10), epsilon=1.0, neighbors=AR, rng=seeded())
    assert release.interval[0] <= 10.0 <= release.interval[1]
    assert release.interval[1] < 100


def test_the_interval_of_a_variance_shares_alpha_among_its_three_numbers(silence):
    """The box holds the three numbers together only if each of its sides fails with alpha / 3."""
    records = [0.0, 1.0, 0.5, 0.25] * 100
    answer = private_variance(records, bounds=(0, 1), epsilon=1.0, neighbors=AR, alpha=0.06)
    ((_, sums, scale),) = silence.take()

    def least(alpha):
        t = laplace_error(scale=scale, alpha=alpha)
        corners = [sums + t * np.array(signs) for signs in itertools.product((-1, 1), repeat=3)]
        return min(queries._variance_share(*corner) for corner in corners)

    assert answer.interval[0] == pytest.approx(least(0.02), rel=1e-4)
    for wrong in (0.06, 0.03, 0.01):
        assert answer.interval[0] != pytest.approx(least(wrong), rel=1e-4)


@pytest.mark.parametrize("delta", [None, 1e-6])
@pytest.mark.parametrize(("record", "bounds"), [(1_000_000.03, (1e6, 1e6 + 1)), (-5e5 + 0.2, (-5e5, -5e5 + 0.5))])
def test_sums_with_narrow_bounds_far_from_zero_are_covered(record, bounds, delta):
    """The noise is that of the width; steps that follow the larger bound moved every sum by more."""
    rng, runs, exact = seeded(1), 400, 1000 * Fraction(record)
    missed = 0
    for _ in range(runs):
        answer = private_sum([record] * 1000, bounds=bounds, epsilon=1.0, neighbors=RO, delta=delta, alpha=0.1, rng=rng)
        low, high = answer.interval
        assert answer.scale < 8 * (bounds[1] - bounds[0])
        assert low <= answer.value <= high
        missed += not Fraction(low) <= exact <= Fraction(high)
    assert stats.binomtest(missed, runs, 0.1, alternative="greater").pvalue > REJECT
    assert stats.binomtest(missed, runs, 0.2, alternative="less").pvalue < 1e-3  # and not for being wide


def test_a_narrow_sum_is_within_its_interval_when_float64_is_coarse(silence):
    """Bounds 2**-30 apart, a sum of 2**50: the ends are rounded outwards."""
    x = 2.0**20 + 2.0**-31
    answer = private_sum([x] * 2**10, bounds=(2.0**20, 2.0**20 + 2.0**-30), epsilon=2.0**40, neighbors=RO)
    assert Fraction(answer.interval[0]) <= 2**10 * Fraction(x) <= Fraction(answer.interval[1])
    x = 2.0**20 + 2.0**-32  # five of them lie between two floats, nearer to the lower, and seven nearer to the upper
    for n in (5, 7):
        answer = private_sum([x] * n, bounds=(2.0**20, 2.0**20 + 2.0**-30), epsilon=2.0**80, neighbors=RO)
        assert Fraction(answer.interval[0]) < n * Fraction(x) < Fraction(answer.interval[1])
    same = private_sum([3.0] * 7, bounds=(3, 3), epsilon=1.0, neighbors=RO)
    assert (same.value, same.scale) == (21.0, 0.0)


@pytest.mark.parametrize("neighbors", [AR, RO])
def test_the_mean_of_very_many_is_covered_although_records_are_rounded(neighbors, silence):
    """Half a level a record is more than the noise from n ε of about 10**7 on; here the noise is nothing."""
    x = (0.5 - 2.0**-10) / queries.LEVELS  # rounded down to 0
    public = {"n": 1000} if neighbors == RO else {}
    for place in (x, 1 - x, 0.25 + x):
        answer = private_mean([place] * 1000, bounds=(0, 1), epsilon=1e9, neighbors=neighbors, **public)
        assert answer.interval[0] <= place <= answer.interval[1]
        assert answer.interval[1] - answer.interval[0] < 4 / queries.LEVELS
    total = private_sum([x] * 1000, bounds=(0, 1), epsilon=1e9, neighbors=RO)
    assert total.interval[0] <= 1000 * x <= total.interval[1]


# --- accuracy ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [0.0, 0.2, 0.45, 0.5, 1.0])
def test_the_joint_release_has_the_error_that_its_notes_give(place):
    n, eps = 2_000, 0.5
    data, rng = np.full(n, 100 * place), seeded(11)
    theory = math.sqrt(2) * math.hypot(1 - place, place) * 100 / (eps * n)
    if 0 < place < 1:  # at the ends half of the noise is clamped away
        runs = [private_mean(data, bounds=(0, 100), epsilon=eps, neighbors=AR, rng=rng).value for _ in range(600)]
        assert np.std(runs) == pytest.approx(theory, rel=0.12)

    def divided(share):  # of ε for the sum of centred records
        return math.sqrt(2) * 100 * math.hypot(0.5 / share, (place - 0.5) / (1 - share)) / (eps * n)

    best = min(divided(i / 1000) for i in range(1, 1000))
    formula = math.sqrt(2) * 100 * (0.5 ** (2 / 3) + abs(place - 0.5) ** (2 / 3)) ** 1.5 / (eps * n)
    assert best == pytest.approx(formula, rel=2e-3)
    assert (theory < best) == (abs(place - 0.5) > 0.07)
    assert theory < divided(0.5)


# --- columns ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [list, tuple, np.array, pd.Series, lambda x: pd.DataFrame({"x": x})["x"]])
def test_containers_give_the_same(make):
    data = [1.0, 2.5, 3.0, 8.0]
    for query in (private_sum, private_mean, private_variance):
        found = query(make(data), bounds=B, epsilon=1.0, neighbors=AR, rng=seeded())
        assert found.value == query(data, bounds=B, epsilon=1.0, neighbors=AR, rng=seeded()).value
    for bad in (3.0, np.array(3.0), {1, 2}, (x for x in data), None, "text", np.ones((2, 2))):
        with pytest.raises((TypeError, ValueError), match="values must"):
            private_sum(bad, bounds=B, epsilon=1.0, neighbors=AR)
        with pytest.raises((TypeError, ValueError), match="values must"):
            private_count(bad, epsilon=1.0, neighbors=AR)


def test_a_column_is_not_copied():
    """10 million records would need 80 MB more."""
    import tracemalloc

    frame = pd.DataFrame({"x": np.ones(2_000_000)})
    for query in (private_sum, private_mean, private_variance):
        tracemalloc.start()
        query(frame["x"], bounds=(0, 2), epsilon=1.0, neighbors=AR)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2_000_000


def test_rows_without_an_identifier_are_not_one_person(monkeypatch):
    """Two people without an id: taking one away must not let the other in."""
    seen = []
    monkeypatch.setattr(noise, "add_laplace", lambda value, *, scale, rng: seen.append(value) or value)
    for missing in (None, math.nan, (1, math.nan)):
        for values, ids in (([-1, 1], [missing, missing]), ([1], [missing]), ([-1], [missing])):
            queries.private_sum(
                values, bounds=(-1, 1), epsilon=1.0, neighbors=AR, person=list(ids), max_contributions=1
            )
    assert seen == [0.0] * 9


def test_a_long_text_is_one_record():
    """NumPy would make a text of that length of every record: here 4 GB a column."""
    text, n = "x" * 1_000_000, 1_000
    for values in ([1.0] * n + [text], [1.0] * n + [text.encode()], [1.0] * n + [[text]], [1.0] * n + [np.str_(text)]):
        assert _validate.records(values=values)[-1] != 1.0
        assert queries.private_count(values, where=values, epsilon=1.0, neighbors=AR, rng=seeded()).value > 0
    tracemalloc.start()
    for values in ([1.0] * n + [text], [[1.0]] * n + [[text]]):
        _validate.records(values=values)
        _validate.identifiers(person=values)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000


def test_a_condition_beyond_float64_warns_of_nothing():
    where = np.array([1, 0, np.finfo(np.longdouble).max], dtype=np.longdouble)
    answer = queries.private_count([1, 2, 3], where=where, epsilon=1e9, neighbors=AR)
    assert answer.value == 2


def test_a_count_keeps_what_meets_the_condition_and_the_limit(silence):
    where = [True, False, True, True, True, True, False, True]
    for delta in (None, DELTA):
        private_count(IDS, where=where, epsilon=EPS, neighbors=AR, delta=delta, **TWO)
        ((_, value, scale),) = silence.take()
        assert value.tolist() == [2]  # rows 0 and 5
        private_count(IDS, where=where, epsilon=EPS, neighbors=AR, delta=delta)
        assert scale == pytest.approx(2 * silence.take()[0][2])


def test_decimals_are_numbers():
    column = [Decimal("1.5"), Decimal("sNaN"), Decimal("NaN"), Decimal("1e400"), Decimal("-Infinity"), 2]
    for data in (column, np.array(column, dtype=object), pd.Series(column, dtype=object)):
        expected = [1.5, math.nan, math.nan, math.inf, -math.inf, 2.0]
        assert np.array_equal(_validate.records(values=data), expected, equal_nan=True)
    where = [Decimal(1), Decimal(0), Decimal("sNaN")]
    assert private_count([1, 2, 3], where=where, epsilon=1e9, neighbors=AR).value == 1


@pytest.mark.parametrize(
    "where", [np.array(["yes", "no"]), np.array([b"a", b"b"]), pd.Series(["yes", "no"], dtype="string")]
)
def test_a_condition_of_text_is_refused_by_its_type(where):
    with pytest.raises(TypeError, match="where must be"):
        private_count([1, 2], where=where, epsilon=1.0, neighbors=AR)


WITH_EPSILON = {
    "count": lambda **k: private_count([1], **k),
    "sum": lambda **k: private_sum([1], bounds=B, **k),
    "mean": lambda **k: private_mean([1], bounds=B, **k),
    "variance": lambda **k: private_variance([1], bounds=B, **k),
    "covariance": lambda **k: private_covariance([1], [1], first_bounds=B, second_bounds=B, **k),
}


@pytest.mark.parametrize("relation", [AR, RO])
@pytest.mark.parametrize("query", WITH_EPSILON)
def test_an_epsilon_that_no_noise_fits_is_named(query, relation):
    assert_epsilon_is_named(WITH_EPSILON[query], relation)
