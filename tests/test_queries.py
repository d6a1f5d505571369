"""Everyday questions: neighbours differ by no more than the noise pays for, and the intervals hold.

The privacy test takes the noise away and looks at what it was about to be added to: the exact value and the scale. For
random and adversarial neighbours, the change divided by the scale is the privacy loss, and it is compared with ε in
exact arithmetic. Seeds are fixed; a statistical test rejects below 1e-6.
"""

import copy
import dataclasses
import itertools
import math
import pickle
import re
import tracemalloc
import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dpbook import _validate, noise, queries, selection
from dpbook.gaussian import gaussian_sigma
from dpbook.laplace import discrete_laplace_error, discrete_laplace_pmf, laplace_error
from dpbook.queries import (
    private_bounds,
    private_count,
    private_covariance,
    private_histogram,
    private_mean,
    private_median,
    private_quantiles,
    private_std,
    private_sum,
    private_variance,
    response_shares,
)

AR, RO = "add_remove", "replace_one"
REJECT = 1e-6
EPS, DELTA = 0.7, 1e-5


def seeded(seed=0):
    return np.random.default_rng(seed)  # seeded: not private


class Silence:
    """Noise that is not added, and a record of what it would have been added to, with which scale."""

    def __init__(self, monkeypatch, offset=0.0):
        self.seen = []
        for name, argument in (("add_laplace", "scale"), ("add_gaussian", "sigma"), ("add_discrete_laplace", "scale")):
            monkeypatch.setattr(noise, name, self.keep(name, argument, offset))

    def keep(self, name, argument, offset):
        def add(value, *, rng, **scale):
            self.seen.append((name, np.atleast_1d(np.array(value)), scale[argument]))
            return value + (int(offset) if name == "add_discrete_laplace" else offset)

        return add

    def take(self):
        seen, self.seen = self.seen, []
        return seen


@pytest.fixture
def silence(monkeypatch):
    return Silence(monkeypatch)


# --- neighbours ------------------------------------------------------------------------------------------------------

B = (-3.0, 10.0)
RECORDS = [-3.0, 10.0, 0.0, 3.5, 1e300, -1e300, math.nan, math.inf, -math.inf, None, "text", 2.0**53, 0.1, 5e-324]
EDGES = [-3, 0, 3.5, 10]
KEYS = [0.0, 10.0, 3.5, "text", None]


def with_ids(query):
    return lambda rows, **k: query([x for x, _ in rows], person=[i for _, i in rows], max_contributions=2, **k)


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
    "histogram": (lambda d, **k: private_histogram(d, edges=EDGES, **k), (AR, RO), True),
    "categories": (lambda d, **k: private_histogram(d, categories=KEYS, **k), (AR, RO), True),
    "bounds": (lambda d, **k: private_bounds(d, magnitudes=(0.5, 1e9), **k), (AR, RO), False),
}


def neighbours(relation, rng, least=0):
    """Pairs of datasets: adversarial ones at the ends of the bounds, and random ones."""
    bases = [[], [10.0] * 4, [-3.0] * 4, [3.5, None, 10.0], RECORDS, [math.nan] * 3, [0.1] * 40]
    bases += [[RECORDS[i] for i in rng.integers(0, len(RECORDS), n)] for n in (1, 2, 6, 30)]
    for base, record in itertools.product(bases, RECORDS):
        if len(base) < least:
            continue
        if relation == AR:
            yield base, [*base, record]
            yield base, [record, *base]
        elif base:
            at = int(rng.integers(0, len(base)))
            yield base, [*base[:at], record, *base[at + 1 :]]


def loss(first, second, epsilon, delta):
    """The privacy loss of one release, as a share of what was paid: at most 1."""
    (kind, a, scale), (kind_b, b, scale_b) = first, second
    assert (kind, scale, a.shape, a.dtype) == (kind_b, scale_b, b.shape, b.dtype)  # nothing but the value may differ
    change = [abs(Fraction(x) - Fraction(y)) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    if kind != "add_gaussian":
        return sum(change) / Fraction(scale) / Fraction(epsilon)
    size = math.sqrt(float(sum(c**2 for c in change)))
    return gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=size) / scale if size else 0.0


CASES = [(name, relation) for name, (_, relations, _) in PLAIN.items() for relation in relations]


@pytest.mark.parametrize(("name", "relation"), CASES)
def test_neighbours_differ_by_what_is_paid_for(name, relation, silence):
    query, _, gaussian = PLAIN[name]
    least = {"variance ddof": 2}.get(name, 1 if relation == RO else 0)
    for delta in (None, DELTA) if gaussian else (None,):
        more = {"delta": delta} if gaussian else {}
        worst = 0.0
        for d, e in neighbours(relation, seeded(1), least):
            sides = []
            for data in (d, e):
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    query(data, epsilon=EPS, neighbors=relation, **more)
                (one,) = silence.take() or [("add_laplace", np.zeros(1), 1.0)]  # one person alone: variance 0, no noise
                sides.append(one)
            worst = max(worst, loss(*sides, EPS, DELTA))
        assert worst <= 1
        tight = {"covariance": 0.4, "sum": 0.99, "variance ddof": 0.9}.get(name, 0.9)
        if not (delta and name in ("mean", "variance") and relation == RO):
            assert worst > tight  # and no noise is wasted


@pytest.mark.parametrize("relation", [AR, RO])
@pytest.mark.parametrize("delta", [None, DELTA])
def test_neighbours_with_several_rows(relation, delta, silence):
    """A person's rows are added, removed or replaced; rows of others lie between them."""
    ways = {
        "count": with_ids(private_count),
        "sum": with_ids(lambda d, **k: private_sum(d, bounds=B, **k)),
        "mean": with_ids(lambda d, **k: private_mean(d, bounds=B, **k)),
        "variance": with_ids(lambda d, **k: private_variance(d, bounds=B, **k)),
        "histogram": with_ids(lambda d, **k: private_histogram(d, edges=EDGES, **k)),
        "categories": with_ids(lambda d, **k: private_histogram(d, categories=KEYS, **k)),
    }
    others = [(3.5, "ann"), (10.0, "bo"), (0.1, "ann"), (math.nan, "cy"), (1.0, None), (2.0, "ann")]
    own = [t for k in range(4) for t in itertools.product([-3.0, 10.0, math.nan, 0.0], repeat=k)]
    for name, query in ways.items():
        worst = 0.0

        def seen(rows, query=query):
            query([*rows[:1], *others[:3], *rows[1:], *others[3:]], epsilon=EPS, neighbors=relation, delta=delta)
            return silence.take()[0]

        plain = seen([])
        all_seen = [seen([(x, "zoe") for x in values]) for values in own]
        for one in all_seen:
            worst = max(worst, loss(plain, one, EPS, DELTA))
        if relation == RO:
            worst = max(worst, *(loss(a, b, EPS, DELTA) for a, b in itertools.combinations(all_seen[::3], 2)))
        assert worst <= 1, name
        assert worst > 0.4, name


class Recording(np.random.Generator):
    """Random bytes that settle every draw at once, and a record of how many were asked for."""

    def bytes(self, length):
        self.__dict__.setdefault("reads", []).append(length)
        return (b"\x35\x7a\x11\x4c\x59\x2e\x63\x21" * (length // 8 + 1))[:length]


@pytest.mark.parametrize(("name", "relation"), CASES)
def test_neighbours_read_the_same_bytes_and_look_the_same(name, relation):
    query, _, _ = PLAIN[name]
    for d, e in itertools.islice(neighbours(relation, seeded(2), 2), 0, None, 7):
        reads, shapes = [], []
        for data in (d, e):
            rng = Recording(np.random.PCG64(0))
            release = query(data, epsilon=EPS, neighbors=relation, rng=rng)
            reads.append(rng.reads)
            shapes.append((np.shape(release.value), type(release.value), release.keys, release.scale))
        assert reads[0] == reads[1]
        assert shapes[0] == shapes[1]


def test_quantiles_of_neighbours_look_the_same():
    for d, e in neighbours(AR, seeded(3)):
        values = [private_quantiles(x, q=[0.2, 0.5], bounds=B, epsilon=EPS, neighbors=AR, rng=seeded()) for x in (d, e)]
        assert values[0].value.shape == values[1].value.shape == (2,)
        assert values[0].scale == values[1].scale
        assert values[0].rank_error == values[1].rank_error


def test_scales_do_not_depend_on_the_data():
    for name, (query, relations, _) in PLAIN.items():
        data = ([1.0] * 5, [10.0] * 5, [math.nan] * 5, [0, 1, 2, 3, 4], np.zeros(5))
        scales = {query(list(d), epsilon=EPS, neighbors=relations[-1], rng=seeded()).scale for d in data}
        assert len(scales) == 1, name


# --- values without noise --------------------------------------------------------------------------------------------

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
    edges = {"edges": [0, 1, 100, 300]}
    assert private_histogram(x, **edges, **ASK).value.tolist() == private_histogram(wide, **edges, **ASK).value.tolist()


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
    counts = np.histogram(clean, EDGES)[0]
    assert private_histogram(x, edges=EDGES, **ASK).value.tolist() == counts.tolist()
    x[[5, 40_000, 149_999]] = math.nan
    assert private_sum(x, bounds=B, **ASK).value == pytest.approx(
        np.clip(np.nan_to_num(x, nan=3.5), *B).sum(), rel=1e-6
    )


def test_histogram_edges():
    """Every record is in exactly one bin: NumPy's rule, and those outside in the first or last."""
    with pytest.MonkeyPatch.context() as patch:
        Silence(patch)
        found = private_histogram([-1, 0, 1, 2, 3, math.nan], edges=[0, 1, 2], **ASK)
        assert found.value.tolist() == [2, 4]
        assert found.keys == ((0.0, 1.0), (1.0, 2.0))
        assert private_histogram([-0.0, 0.0], edges=[-1, 0, 1], **ASK).value.tolist() == [0, 2]
        assert private_histogram([], edges=[0, 1], **ASK).value.tolist() == [0]
    for bad in ([0, 1, 1], [1, 0], [0, math.nan], [0], [], [[0, 1]], "01", None, [0, math.inf]):
        with pytest.raises((TypeError, ValueError), match="edges"):
            private_histogram([1.0], edges=bad, **ASK)
    with pytest.raises(ValueError, match="only one"):
        private_histogram([1.0], edges=[0, 1], categories=[1], **ASK)


def test_the_keys_are_the_declared_ones(silence):
    declared = ["b", "a", "zzz", None]
    for data in ([], ["a"], ["q", "r"], ["a", "b", "a", None, math.nan, [1], 7]):
        found = private_histogram(data, categories=declared, **ASK)
        assert found.keys == tuple(declared)
        assert found.value.shape == (4,)
    assert found.value.tolist() == [1, 2, 0, 3]
    assert private_histogram(["a", "b"], categories=("a",), **ASK).value.tolist() == [1]
    whole = np.array([1, 5, -7, 2**62, 5, 3], dtype=np.int64)
    for values in (whole, whole.tolist(), pd.Series(whole)):
        assert private_histogram(values, categories=[5, -7, 0], **ASK).value.tolist() == [2, 1, 0]
    unsigned = np.array([2**64 - 1, 1], dtype=np.uint64)
    assert private_histogram(unsigned, categories=[-1, 1], **ASK).value.tolist() == [0, 1]
    assert private_histogram(whole, categories=[2**62, 1], **ASK).value.tolist() == [1, 1]
    for bad in ([], ["a", "a"], [1, True], [[1]], "ab", {"a"}, None):
        with pytest.raises((TypeError, ValueError), match="categories"):
            private_histogram(["a"], categories=bad, **ASK)


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
    with pytest.raises(ValueError, match="n must be left out under"):
        private_covariance([1.0], [1.0], first_bounds=B, second_bounds=B, n=1, epsilon=1.0, neighbors=AR)
    for n, ddof in ((None, 1), (1, 1), (4, 2)):
        with pytest.raises(ValueError, match=r"ddof must|n must be at least 2"):
            private_variance([1.0] * (n or 3), bounds=B, n=n, ddof=ddof, **ASK)


def test_bounds_are_required():
    for query in (private_sum, private_mean, private_variance, private_std, private_median):
        with pytest.raises(TypeError, match="bounds"):
            query([1.0], **ASK)
    with pytest.raises(TypeError, match="neighbors"):
        private_count([1.0], epsilon=1.0)
    with pytest.raises(ValueError, match="bounds must"):
        private_sum([1.0], bounds=(0, 1e200), **ASK)


# --- clamping --------------------------------------------------------------------------------------------------------


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
            assert (private_histogram(d, edges=EDGES, epsilon=EPS, neighbors=AR).value >= 0).all()
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


# --- intervals -------------------------------------------------------------------------------------------------------

SKEWED = seeded(5).lognormal(0.5, 0.8, 40)
LEVEL, RUNS = 0.1, 1_200
TRUTH = np.clip(SKEWED, 0, 8)
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
    for release in (
        private_count([1] * 500, epsilon=eps, neighbors=AR, alpha=LEVEL),
        private_histogram([1] * 500, edges=[0, 2], epsilon=eps, neighbors=AR, alpha=LEVEL),
    ):
        low, high = (int(np.atleast_1d(end)[0]) for end in release.interval)
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


def test_clipping_bias_is_outside_the_interval():
    """What the docs say: the target is the answer on the cleaned records."""
    release = private_mean([100.0] * 1000, bounds=(0, 10), epsilon=1.0, neighbors=AR, rng=seeded())
    assert release.interval[0] <= 10.0 <= release.interval[1]
    assert release.interval[1] < 100


# --- accuracy --------------------------------------------------------------------------------------------------------


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


# --- quantiles, bounds, shares ---------------------------------------------------------------------------------------


def test_quantiles_share_epsilon_and_are_in_order(monkeypatch):
    seen, real = [], selection.exponential_quantile

    def one(values, **k):
        seen.append(k["epsilon"])
        return real(values, **k)

    monkeypatch.setattr(selection, "exponential_quantile", one)
    data = np.arange(1000.0)
    release = private_quantiles(data, q=[0.9, 0.1, 0.5], bounds=(0, 999), epsilon=0.3, neighbors=AR, rng=seeded())
    assert sum(map(Fraction, seen)) <= Fraction(0.3)
    assert len(seen) == 3
    assert release.value[1] <= release.value[2] <= release.value[0]
    assert release.value == pytest.approx([900, 100, 500], abs=150)
    assert release.epsilon == 0.3
    assert release.interval is None
    assert type(private_quantiles(data, q=0.5, bounds=(0, 999), epsilon=1, neighbors=AR).value) is float
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


@pytest.mark.parametrize("keys", [[False, True], ["a", "b", "c", "d"]])
def test_shares_are_unbiased_and_their_intervals_hold(keys):
    truth = [keys[0]] * 60 + [keys[-1]] * 140
    exact = np.array([truth.count(key) / 200 for key in keys])
    rng, misses, found = seeded(5), np.zeros(len(keys)), []
    for _ in range(600):
        answers = selection.randomized_response(truth, categories=keys, epsilon=1.5, rng=rng)
        release = response_shares(answers, categories=keys, epsilon=1.5, alpha=LEVEL)
        assert release.value.sum() == pytest.approx(1.0)
        misses += ~((release.interval[0] <= exact) & (exact <= release.interval[1]))
        found.append(release.value)
    assert (np.abs(np.mean(found, axis=0) - exact) < 5 * np.std(found, axis=0) / math.sqrt(600)).all()
    assert (stats.binom.sf(misses - 1, 600, LEVEL) > REJECT).all()
    assert release.neighbors == RO
    empty = response_shares([], categories=keys, epsilon=1.0)
    assert empty.value.tolist() == [1 / len(keys)] * len(keys)


# --- releases --------------------------------------------------------------------------------------------------------


def test_releases_are_frozen_readable_and_complete():
    release = private_mean([5.0] * 100, bounds=(0, 10), epsilon=0.5, delta=1e-6, neighbors=AR, rng=seeded())
    with pytest.raises(dataclasses.FrozenInstanceError):
        release.value = 1.0
    again = pickle.loads(pickle.dumps(copy.deepcopy(release)))
    assert repr(again) == repr(release)
    assert repr(again.parts) == repr(release.parts)
    text = repr(release)
    for part in ("mean = ", "95 % noise interval", "epsilon=0.5", "delta=1e-06", "neighbors='add_remove'", "gaussian"):
        assert part in text
    assert (release.epsilon, release.delta, release.alpha, release.mechanism) == (0.5, 1e-6, 0.05, "gaussian")
    many = private_histogram(range(100), edges=range(60), epsilon=1.0, neighbors=AR)
    assert "… 39 more" in repr(many)
    assert "0 to 1: " in repr(many)
    assert " to " in repr(private_bounds([1.0], epsilon=1.0, neighbors=AR, magnitudes=(1, 2)))


def test_entries_have_noise_of_their_own():
    values = private_histogram([], edges=np.arange(65), epsilon=0.01, neighbors=AR, rng=seeded()).value
    assert len(set(values.tolist())) > 20


@pytest.mark.parametrize("make", [list, tuple, np.array, pd.Series, lambda x: pd.DataFrame({"x": x})["x"]])
def test_containers_give_the_same(make):
    data = [1.0, 2.5, 3.0, 8.0]
    for query in (private_sum, private_mean, private_variance, private_median):
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


def test_keys_of_a_histogram_are_the_public_ones():
    """True and 1 are one category, and what is shown is what was declared, not what is in the data."""
    for rows in ([True, 1.0], [1.0, True], [1]):
        assert queries.private_histogram(rows, categories=[1, 2], epsilon=1.0, neighbors=AR).keys == (1, 2)
        assert type(queries.private_histogram(rows, categories=[1, 2], epsilon=1.0, neighbors=AR).keys[0]) is int


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


IDS = ["ann"] * 5 + ["bo", "cy", "ann"]
TWO = {"person": IDS, "max_contributions": 2}  # keeps the rows 0, 1, 5 and 6


def test_a_count_keeps_what_meets_the_condition_and_the_limit(silence):
    where = [True, False, True, True, True, True, False, True]
    for delta in (None, DELTA):
        private_count(IDS, where=where, epsilon=EPS, neighbors=AR, delta=delta, **TWO)
        ((_, value, scale),) = silence.take()
        assert value.tolist() == [2]  # rows 0 and 5
        private_count(IDS, where=where, epsilon=EPS, neighbors=AR, delta=delta)
        assert scale == pytest.approx(2 * silence.take()[0][2])


@pytest.mark.parametrize("relation", [AR, RO])
def test_quantiles_keep_the_limit_and_pay_for_it(relation, monkeypatch):
    asked = []

    def draw(column, **arguments):
        asked.append((column.tolist(), arguments["max_rows"], arguments["epsilon"], arguments["neighbors"]))
        return 1.0

    monkeypatch.setattr(selection, "exponential_quantile", draw)
    ask = {"q": [0.2, 0.5], "bounds": (0, 10), "step": 1, "epsilon": 1.0, "neighbors": relation}
    several = private_quantiles(list(range(8)), **ask, **TWO)
    assert asked == [([0, 1, 5, 6], 2, 0.5, relation)] * 2
    one = private_quantiles(list(range(8)), **ask)
    assert asked[2:] == [(list(range(8)), None, 0.5, relation)] * 2
    assert several.scale == pytest.approx(2 * one.scale)
    assert one.scale == pytest.approx(2 * (0.8 if relation == AR else 1.0) / 0.5)
    assert several.rank_error == pytest.approx(2 * one.rank_error)


@pytest.mark.parametrize(("relation", "changes"), [(AR, 1), (RO, 2)])
def test_bounds_keep_the_limit_and_pay_for_it(relation, changes, silence):
    private_bounds([1.0] * 5 + [2.0, 4.0, 1.0], epsilon=0.5, neighbors=relation, magnitudes=(1, 5), **TWO)
    ((kind, counts, scale),) = silence.take()
    assert kind == "add_discrete_laplace"
    assert counts.tolist() == [0, 0, 0, 0, 2, 1, 1]
    assert scale == pytest.approx(2 * changes / 0.5)
    assert scale >= 2 * changes / 0.5


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


@pytest.mark.parametrize("level", [0.05, 0.2])
def test_the_intervals_of_shares_have_half_of_alpha_at_each_end(level):
    """Everybody's truth is the first category: the number of such answers is binomial, and the misses are summed."""
    n, eps = 60, 1.0
    truth, other = selection.response_probabilities(epsilon=eps, categories=2)
    for c in range(n + 1):
        answer = response_shares(["a"] * c + ["b"] * (n - c), categories=["a", "b"], epsilon=eps, alpha=level)
        exact = stats.binomtest(c, n).proportion_ci(1 - level, method="exact")
        for end, expected in zip(answer.interval, exact, strict=True):
            share = min(max((expected - other) / (truth - other), 0.0), 1.0)
            assert end[0] == pytest.approx(share, abs=1e-9)
        wrong = stats.binomtest(c, n).proportion_ci(1 - 2 * level, method="exact")
        if other < wrong.low < truth:
            assert answer.interval[0][0] < (wrong.low - other) / (truth - other) - 1e-3
        if other < wrong.high < truth:
            assert answer.interval[1][0] > (wrong.high - other) / (truth - other) + 1e-3


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


@pytest.mark.parametrize(
    ("epsilon", "text"), [(1, "1"), (0.1, "0.1"), (0.12345678, "0.12345678"), (1 / 3, repr(1 / 3))]
)
def test_a_release_never_shows_less_than_its_price(epsilon, text):
    release = private_count([1], epsilon=epsilon, neighbors=AR)
    assert f"epsilon={text}, " in repr(release)
    vector = selection.SparseVector(threshold=1, epsilon=epsilon, sensitivity=1, neighbors=AR)
    assert f"epsilon={text}, " in repr(vector)
    assert f"delta={0.5 * 1e-7 + 1e-13!r}" in repr(
        private_count([1], epsilon=1, delta=0.5 * 1e-7 + 1e-13, neighbors=AR)
    )


WITH_EPSILON = {
    "count": lambda **k: private_count([1], **k),
    "sum": lambda **k: private_sum([1], bounds=B, **k),
    "mean": lambda **k: private_mean([1], bounds=B, **k),
    "variance": lambda **k: private_variance([1], bounds=B, **k),
    "histogram": lambda **k: private_histogram([1], edges=EDGES, **k),
    "quantiles": lambda **k: private_quantiles([1], q=[0.2, 0.5], bounds=B, **k),
    "bounds": lambda **k: private_bounds([1], magnitudes=(1, 9), **k),
    "quantile": lambda **k: selection.exponential_quantile([1], q=0.5, bounds=B, **k),
    "noisy max": lambda **k: selection.noisy_max([1], sensitivity=1, **k),
    "sparse vector": lambda **k: selection.SparseVector(threshold=1, sensitivity=1, **k),
}


@pytest.mark.parametrize("relation", [AR, RO])
@pytest.mark.parametrize("query", WITH_EPSILON)
def test_an_epsilon_that_no_noise_fits_is_named(query, relation):
    """And not an inner scale or sensitivity that the caller has never seen."""
    for epsilon in (5e-324, 1e-308, 1e-290, 1e-30, 1e300, 1.7e308):
        message = None
        try:
            WITH_EPSILON[query](epsilon=epsilon, neighbors=relation)
        except ValueError as error:
            message = str(error)
        assert message is None or re.fullmatch(
            f"epsilon must be (larger|smaller) for .*, got {re.escape(repr(epsilon))}", message
        )
    with pytest.raises(ValueError, match="epsilon must be larger"):
        WITH_EPSILON[query](epsilon=5e-324, neighbors=relation)
