"""Histograms and keys: neighbours differ by what is paid for, and a rare key is shown no more often than δ allows.

The privacy test of the counts takes the noise away (`replay`). Seeds are fixed; a statistical test rejects below 1e-6.
"""

import datetime
import itertools
import math
from decimal import Decimal
from fractions import Fraction

import mpmath
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay import (
    AR,
    DELTA,
    EDGES,
    EPS,
    KEYS,
    RO,
    B,
    Silence,
    assert_epsilon_is_named,
    assert_neighbours_look_the_same,
    assert_scale_is_public,
    seeded,
    worst_loss,
    worst_loss_with_rows,
)

from dpbook import _validate, histograms
from dpbook.histograms import keep_probabilities, private_histogram, private_keys
from dpbook.laplace import discrete_laplace_error

Z_LIMIT = 5.0
ASK = {"epsilon": EPS, "neighbors": RO}
WAYS = {
    "edges": lambda d, **k: private_histogram(d, edges=EDGES, **k),
    "categories": lambda d, **k: private_histogram(d, categories=KEYS, **k),
}


@pytest.fixture
def silence(monkeypatch):
    return Silence(monkeypatch)


# --- bins and categories ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("relation", [AR, RO])
@pytest.mark.parametrize("delta", [None, DELTA])
def test_neighbours_differ_by_what_is_paid_for(name, relation, delta, silence):
    assert 0.9 < worst_loss(WAYS[name], relation, silence, delta, 1 if relation == RO else 0) <= 1
    assert 0.4 < worst_loss_with_rows(WAYS[name], relation, silence, delta) <= 1


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("relation", [AR, RO])
def test_neighbours_look_the_same(name, relation):
    assert_neighbours_look_the_same(WAYS[name], relation)
    assert_scale_is_public(WAYS[name], relation)
    assert_epsilon_is_named(lambda **k: WAYS[name]([1], **k), relation)


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


def test_entries_have_noise_of_their_own():
    values = private_histogram([], edges=np.arange(65), epsilon=0.01, neighbors=AR, rng=seeded()).value
    assert len(set(values.tolist())) > 20


def test_keys_of_a_histogram_are_the_public_ones():
    """True and 1 are one category, and what is shown is what was declared, not what is in the data."""
    for rows in ([True, 1.0], [1.0, True], [1]):
        assert private_histogram(rows, categories=[1, 2], epsilon=1.0, neighbors=AR).keys == (1, 2)
        assert type(private_histogram(rows, categories=[1, 2], epsilon=1.0, neighbors=AR).keys[0]) is int


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int64", "uint64", "float16", "float32", "bool", "longdouble"])
def test_small_types_do_not_wrap(dtype, silence):
    x = np.array([0, 1, 100, 127] * 30, dtype=dtype)
    found = [private_histogram(d, edges=[0, 1, 100, 300], **ASK).value.tolist() for d in (x, x.astype(np.float64))]
    assert found[0] == found[1]


def test_many_records_cross_the_chunks(silence):
    x = seeded(3).uniform(-5, 12, 150_001)
    assert private_histogram(x, edges=EDGES, **ASK).value.tolist() == np.histogram(np.clip(x, *B), EDGES)[0].tolist()


@pytest.mark.parametrize("offset", [-1e12, -1.0, 1e12])
def test_counts_are_not_negative_whatever_the_noise(offset, monkeypatch):
    Silence(monkeypatch, offset)
    for data in ([], [10.0], [3.0] * 5):
        release = private_histogram(data, edges=EDGES, epsilon=EPS, neighbors=AR)
        assert (release.value >= 0).all()
        assert (release.interval[0] >= 0).all()


@pytest.mark.parametrize("scale", [0.4, 1.0, 7.3])
def test_intervals_use_the_discrete_quantile(scale):
    release = private_histogram([1] * 500, edges=[0, 2], epsilon=1 / scale, neighbors=AR, alpha=0.1)
    assert release.interval[1][0] - release.interval[0][0] == 2 * discrete_laplace_error(scale=scale, alpha=0.1)


# --- keys that are not public -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("eps", "delta", "known", "tolerance"),
    [
        (math.log(2), 0.1, {1: 0.1, 2: 0.3, 3: 0.7, 4: 0.9, 5: 1.0}, 1e-6),
        (math.log(1.5), 0.1, {2: 0.25, 3: 0.475, 4: 0.716666666667, 5: 0.877777777778, 6: 0.985185185185, 7: 1}, 1e-9),
        (0.5, 0.02, {6: 0.58840484458, 8: 0.86807080625, 15: 1}, 1e-10),
        (1e-20, 0.02, {6: 0.12, 40: 0.8}, 1e-12),
        (1.0, 1e-5, {10: 0.12818308050524607}, 1e-12),
    ],
)
def test_keep_probabilities_known(eps, delta, known, tolerance):
    """Google's tests of partition selection, re-derived from the recurrence with 40 digits."""
    p = keep_probabilities(count=max(known), epsilon=eps, delta=delta)
    for n, value in known.items():
        assert p[n] == pytest.approx(value, abs=tolerance)


def test_keys_split_epsilon_and_delta(monkeypatch):
    """Ten keys a person: each gets ε/10 and 1 - (1 - δ)**(1/10); 700 people, known to be 0.5800625857189882."""
    seen, real = [], histograms._keep_words
    monkeypatch.setattr(histograms, "_keep_words", lambda *a: seen.append(real(*a)) or seen[-1])
    people = list(range(700))
    private_keys(["k"] * 700, epsilon=0.2, delta=1e-7, neighbors=AR, person=people, max_groups=10)
    assert seen[0][700] / 2**64 == pytest.approx(0.5800625857189882, abs=1e-10)


@pytest.mark.parametrize(("eps", "groups"), [(1.0, 1), (3.0, 1), (2.0, 4), (1e-3, 2)])
def test_keys_under_replace_one_have_half_of_epsilon_and_the_share_of_delta(eps, groups, monkeypatch):
    """Replacing is removing and adding: (2 ε', δ' (1 + exp(ε'))), whatever each of the two steps costs."""
    asked, real = [], histograms._keep_words
    monkeypatch.setattr(histograms, "_keep_words", lambda *a: asked.append(a) or real(*a))
    arguments = {"epsilon": eps, "delta": 1e-4, "neighbors": RO}
    private_keys(["k"] * 5, **arguments, person=range(5), max_groups=groups)
    ((each, delta, _),) = asked
    step_eps, step_delta = groups * each, 1 - (1 - delta) ** groups
    assert Fraction(2 * groups) * Fraction(each) <= Fraction(eps)
    assert 2 * step_eps == pytest.approx(eps, rel=1e-12)
    assert float(step_delta) * (1 + math.exp(step_eps)) == pytest.approx(1e-4, rel=1e-9)
    mp = mpmath.mp.clone()
    mp.prec = 200
    exact = mp.mpf(step_delta.numerator) / step_delta.denominator
    assert exact * (1 + mp.exp(mp.mpf(eps) / 2)) <= mp.mpf(1e-4)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(st.floats(1e-3, 50.0), st.floats(1e-9, 0.9))
def test_keep_words_are_private_exactly(eps, delta):
    words = histograms._keep_words(eps, Fraction(delta), 400)
    mp = mpmath.mp.clone()
    mp.prec = 400
    top, step, grow = mp.mpf(2**64), mp.mpf(delta) * 2**64, mp.exp(mp.mpf(eps))
    for p, q in itertools.pairwise(words):
        assert q >= p
        assert q <= grow * p + step
        assert top - p <= grow * (top - q) + step
    assert words[0] == 0


def test_rare_keys_are_rarely_shown():
    n, delta = 20_000, 0.01
    shown = private_keys(range(n), epsilon=1.0, delta=delta, neighbors=AR, rng=seeded())
    assert abs(len(shown) - n * delta) < Z_LIMIT * math.sqrt(n * delta)
    half = private_keys(range(n), epsilon=1.0, delta=delta, neighbors=RO, rng=seeded())
    expected = n * delta / (1 + math.exp(0.5))
    assert abs(len(half) - expected) < Z_LIMIT * math.sqrt(expected)


def test_keys_do_not_depend_on_the_order_of_rows_or_on_repetition():
    rows = ["b"] * 500 + ["a"] * 400 + [3] * 300 + [None, math.nan, [], "z"]
    arguments = {"epsilon": 1.0, "delta": 1e-6, "neighbors": AR}
    for seed in range(3):
        order = seeded(seed).permutation(len(rows))
        assert private_keys([rows[i] for i in order], **arguments, rng=seeded(9)) == [3, "a", "b"]
    assert private_keys([], **arguments) == []
    same = private_keys(["a"] * 500, **arguments, person=["ann"] * 500, max_groups=1, rng=seeded())
    assert same == []  # 500 rows of one person are one person
    _, counts = histograms._people(["a", "b", "c", "a"], ["ann", "ann", "ann", "bo"], 2)
    assert {key: count for (_, _, key), count in counts.items()} == {"'a'": 2, "'b'": 1}
    with pytest.raises(ValueError, match="keys and person must"):
        private_keys(["a"], **arguments, person=[1, 2], max_groups=1)
    with pytest.raises(ValueError, match="max_groups and person"):
        private_keys(["a"], **arguments, max_groups=1)


ZONE = datetime.timezone(datetime.timedelta(hours=1))
EQUAL = [
    (1, 1.0, True),
    (0.0, -0.0),
    (Decimal("1.0"), Decimal("1.00")),
    (
        datetime.datetime(2020, 1, 1, 12, tzinfo=datetime.timezone.utc),
        datetime.datetime(2020, 1, 1, 13, tzinfo=ZONE),
    ),
    ((1, 2), (True, 2), (1.0, 2)),
]


@pytest.mark.parametrize("same", EQUAL)
def test_one_row_does_not_decide_how_a_key_looks(same):
    """Equal keys that look different: the first of them must not be what is shown of all."""
    arguments = {"epsilon": 1.0, "delta": 1e-6, "neighbors": AR}
    for first in same:
        for many in same:
            shown = private_keys([first] + [many] * 500, **arguments, rng=seeded())
            assert [repr(key) for key in shown] == [repr(many)]
    _, counts = histograms._people(list(same), None, 1)
    assert len(counts) == len(same)
    _, counts = histograms._people(list(same), ["ann"] * len(same), 1)
    assert len(counts) == 1  # of one person only so many keys as declared, however they look


def test_keys_of_numpy_are_those_of_python():
    keys, _ = histograms._people([np.int64(1), 1, np.float64(2.5), np.str_("a"), (np.int64(1),), (1,)], None, 1)
    assert [repr(key) for key in keys.values()] == ["1", "2.5", "'a'", "(1,)"]
    assert [type(key) for key in keys.values()] == [int, float, str, tuple]


def test_keys_come_in_an_order_that_depends_on_them_alone():
    keys = ["b", 10, 9, -1.5, True, 10**400, -(10**400), 0.0, -0.0, "a", (2, 1), Decimal(3)]
    expected = [Decimal(3), True, -1.5, -0.0, 0.0, -(10**400), 9, 10, 10**400, "a", "b", (2, 1)]
    arguments = {"epsilon": 30.0, "delta": 0.999, "neighbors": AR}
    for seed in range(3):
        rows = [keys[i] for i in seeded(seed).permutation(len(keys)) for _ in range(20)]
        assert list(map(repr, private_keys(rows, **arguments))) == list(map(repr, expected))


class Rude:
    """A record that does all that it can to stop an analysis."""

    def __init__(self, what):
        self.what = what

    def __hash__(self):
        if self.what == "hash":
            raise KeyError("hash")
        return 1

    def __eq__(self, other):
        if self.what == "eq":
            raise ZeroDivisionError("eq")
        return self is other

    def __repr__(self):
        if self.what == "repr":
            raise OSError("repr")
        return "Rude()"


def nested(depth):
    key = ()
    for _ in range(depth):
        key = (key, 1)
    return key


@pytest.mark.parametrize(
    "record",
    [(10**5000,), 10**5000, nested(500), nested(100_000), Rude("hash"), Rude("eq"), Rude("repr")],
    ids=["digits in a tuple", "digits", "nested", "deeply nested", "hash", "eq", "repr"],
)
def test_no_key_and_no_identifier_raises(record):
    arguments = {"epsilon": 1.0, "delta": 1e-6, "neighbors": AR}
    assert private_keys(["a"] * 500 + [record], **arguments) == ["a"]
    people = [*range(500), record]
    assert private_keys(["a"] * 501, **arguments, person=people, max_groups=1) == ["a"]


def test_rows_without_an_identifier_show_no_key():
    """As one person's they would make room for each other's keys."""
    for missing in (None, math.nan, (1, None)):
        _, counts = histograms._people(["a", "b", "a"], [missing, missing, "ann"], 1)
        assert [(name[2], count) for name, count in counts.items()] == [("'a'", 1)]


def test_a_large_epsilon_under_replace_one_still_shows_keys():
    for eps in (40.0, 100.0, 1e6):
        assert private_keys(["k"] * 100, epsilon=eps, delta=1e-6, neighbors=RO) == ["k"]


def test_a_tuple_is_an_identifier_down_to_a_fixed_depth():
    """And not down to where the interpreter happens to give up."""
    for depth in range(1, 40):
        (key,) = _validate.identifiers(person=[nested(depth)])
        assert _validate.is_missing(key) == (depth >= _validate.DEEPEST)
