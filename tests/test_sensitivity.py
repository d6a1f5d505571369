"""Sensitivity formulas against enumeration, and clipping on exact arithmetic."""

import itertools
import math
import warnings
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbook import sensitivity as s

RELATIONS = ("add_remove", "replace_one")
PAIRS = [(0, 100), (-3, 2), (1, 3), (-5, -2), (0, 0), (5, 5), (-4, 0), (-2, 2)]
small = st.integers(-9, 9)
bounds_of_ints = st.tuples(small, small).map(lambda p: tuple(sorted(p)))


def grid(low, high):
    """Both extremes, and zero where it lies between: a square is least there."""
    return sorted({low, high, *([0] if low <= 0 <= high else [])})


def row_tuples(low, high, most):
    return [t for k in range(most + 1) for t in itertools.combinations_with_replacement(grid(low, high), k)]


def squares(records):
    return sum(x * x for x in records)


@pytest.mark.parametrize(
    ("bounds", "total", "square"),
    [((0, 100), (100, 100), (1e4, 1e4)), ((-3, 2), (3, 5), (9, 9)), ((1, 3), (3, 2), (9, 8)),
     ((-5, -2), (5, 3), (25, 21)),
     ((0, 0), (0, 0), (0, 0)), ((5, 5), (5, 0), (25, 0))],
)  # fmt: skip
def test_known_table(bounds, total, square):
    for i, relation in enumerate(RELATIONS):
        assert s.sum_sensitivity(bounds=bounds, neighbors=relation) == total[i]
        assert s.sum_of_squares_sensitivity(bounds=bounds, neighbors=relation) == square[i]


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("bounds", PAIRS)
@pytest.mark.parametrize(
    ("formula", "query"), [(s.sum_sensitivity, sum), (s.sum_of_squares_sensitivity, squares)], ids=["sum", "squares"]
)
@pytest.mark.parametrize("rows", [None, 1, 2, 3])
def test_sums_equal_enumeration(formula, query, bounds, relation, rows):
    domain = grid(*bounds) if rows is None else row_tuples(*bounds, rows)
    flat = query if rows is None else lambda people: query([x for rows in people for x in rows])
    worst = s.brute_force_sensitivity(flat, domain=domain, n=2, neighbors=relation)
    assert formula(bounds=bounds, neighbors=relation, max_rows=rows) == worst


@settings(max_examples=60, deadline=None)
@given(bounds_of_ints, st.lists(st.floats(0, 1), min_size=1, max_size=3), st.sampled_from(RELATIONS))
def test_sums_never_below_enumeration(bounds, places, relation):
    low, high = bounds
    domain = [Fraction(low) + Fraction(p) * (high - low) for p in places]
    for formula, query in ((s.sum_sensitivity, sum), (s.sum_of_squares_sensitivity, squares)):
        worst = s.brute_force_sensitivity(query, domain=domain, n=2, neighbors=relation)
        assert formula(bounds=bounds, neighbors=relation) * (1 + 1e-12) >= worst


@settings(max_examples=60, deadline=None)
@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9), st.integers(1, 7))
def test_rounded_up(a, b, n):
    low, high = sorted((a, b))
    width = Fraction(high) - Fraction(low)
    assert Fraction(s.sum_sensitivity(bounds=(low, high), neighbors="replace_one")) >= width
    assert Fraction(s.mean_sensitivity(bounds=(low, high), n=n, neighbors="replace_one")) * n >= width
    got = Fraction(s.variance_sensitivity(bounds=(low, high), n=n, neighbors="replace_one"))
    assert got >= width**2 * (n - 1) / n**2


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("most", [1, 2, 4])
def test_count(relation, most):
    worst = s.brute_force_sensitivity(sum, domain=range(most + 1), n=3, neighbors=relation)
    assert s.count_sensitivity(neighbors=relation, max_rows=most) == worst


@pytest.mark.parametrize("bounds", PAIRS)
@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_mean_and_variance(bounds, n):
    domain, one = grid(*bounds), "replace_one"
    worst = s.brute_force_sensitivity(lambda d: sum(d) / n, domain=domain, n=n, neighbors=one)
    assert s.mean_sensitivity(bounds=bounds, n=n, neighbors=one) == pytest.approx(worst, rel=1e-12)
    for ddof in (0, 1):
        worst = s.brute_force_sensitivity(lambda d, k=ddof: np.var(d, ddof=k), domain=domain, n=n, neighbors=one)
        formula = s.variance_sensitivity(bounds=bounds, n=n, neighbors=one, ddof=ddof)
        assert formula == pytest.approx(worst, rel=1e-12)


@pytest.mark.parametrize("formula", [s.mean_sensitivity, s.variance_sensitivity])
def test_private_n_refused(formula):
    with pytest.raises(ValueError, match=r"neighbors.*number of people is private"):
        formula(bounds=(0, 1), n=10, neighbors="add_remove")
    with pytest.raises((TypeError, ValueError), match="n must"):
        formula(bounds=(0, 1), n=None, neighbors="replace_one")


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize(("groups", "rows", "bins"), [(1, 1, 3), (1, 3, 2), (2, 1, 4), (2, 2, 4)])
def test_histogram(relation, norm, groups, rows, bins):
    places = [p for p in itertools.product(range(rows + 1), repeat=bins) if sum(map(bool, p)) <= groups]
    worst = s.brute_force_sensitivity(
        lambda d: np.sum(d, axis=0) if d else np.zeros(bins), domain=places, n=1, neighbors=relation, norm=norm
    )
    got = s.histogram_sensitivity(neighbors=relation, norm=norm, max_groups=groups, max_rows_per_group=rows)
    assert got == pytest.approx(worst, rel=1e-15)
    assert got >= worst


def test_l1_and_l2_of_many_groups():
    got = [s.histogram_sensitivity(neighbors="add_remove", norm=k, max_groups=9, max_rows_per_group=2) for k in s.NORMS]
    assert got == [18, 6]


@pytest.mark.parametrize(("norm", "dimension"), itertools.product(s.NORMS, (1, 2, 3)))
def test_vector(norm, dimension):
    domain = list(itertools.product((-1.5, 0, 1.5), repeat=dimension))
    worst = s.brute_force_sensitivity(
        lambda d: np.sum(d, axis=0) if d else np.zeros(dimension), domain=domain, n=1, neighbors="add_remove", norm=norm
    )
    got = s.vector_sensitivity(per_coordinate=1.5, dimension=dimension, norm=norm)
    assert worst <= got == pytest.approx(worst, rel=1e-15)


@pytest.mark.parametrize("each", [5e-324, 1e-300, 1e-160, 1e160, 1e200, 1e307])
def test_vector_of_extreme_coordinates(each):
    # The squares may leave float64, the root need not.
    assert s.vector_sensitivity(per_coordinate=each, dimension=4, norm="l2") == 2 * each


@pytest.mark.parametrize(("norm", "order"), [("l1", 1), ("l2", 2)])
def test_norm_sum(norm, order):
    vectors = s.clip_norm(np.random.default_rng(3).normal(0, 3, (12, 3)), max_norm=1.5, norm=norm)
    domain = [*vectors, -vectors[0]]  # a vector and its opposite are the worst replacement
    for relation in RELATIONS:
        worst = s.brute_force_sensitivity(
            lambda d: np.sum(d, axis=0) if d else np.zeros(3), domain=domain, n=2, neighbors=relation, norm=norm
        )
        assert worst <= s.norm_sum_sensitivity(max_norm=1.5, neighbors=relation) * (1 + 1e-12)
    assert worst == pytest.approx(3.0, rel=1e-9)
    assert np.linalg.norm(vectors, order, axis=1).max() <= 1.5


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("norm", "order"), [("l1", 1), ("l2", 2)])
def test_enumeration_against_double_loop(relation, norm, order):
    domain, n = [-2, 0.5, 3], 3
    worst = 0.0
    sizes = range(n + 1) if relation == "add_remove" else [n]
    query = lambda d: np.array([sum(d), squares(d), max(d, default=0)])  # noqa: E731
    for size in sizes:
        for data in itertools.product(domain, repeat=size):
            for i in range(size):
                rest = [*data[:i], *data[i + 1 :]]
                others = [rest] if relation == "add_remove" else [[*rest, x] for x in domain]
                worst = max([worst, *(np.linalg.norm(query(list(data)) - query(o), order) for o in others)])
    got = s.brute_force_sensitivity(query, domain=domain, n=n, neighbors=relation, norm=norm)
    assert got == pytest.approx(worst, rel=1e-12)


@pytest.mark.parametrize("result", [math.nan, math.inf, -math.inf, [1.0, math.nan]])
@pytest.mark.parametrize("relation", RELATIONS)
def test_enumeration_refuses_a_query_that_is_not_finite(result, relation):
    def query(records):  # undefined for one dataset only
        return result if sorted(records) == [1, 1] else np.zeros(np.shape(result))

    with pytest.raises(ValueError, match="query must return finite numbers"):
        s.brute_force_sensitivity(query, domain=[0, 1], n=2, neighbors=relation)


@pytest.mark.parametrize("domain", [[0, 2], (0, 2), range(0, 3, 2), np.array([0, 2]), np.array([0, 2], dtype=object)])
def test_enumeration_takes_a_sequence_or_an_array(domain):
    assert s.brute_force_sensitivity(sum, domain=domain, n=2, neighbors="add_remove") == 2


@pytest.mark.parametrize(
    "domain", [{0, 2}, frozenset({0}), (x for x in [0, 2]), iter([0]), {0: 1}, "02", b"02", None, 2, np.array(2)],
    ids=lambda d: type(d).__name__,
)  # fmt: skip
def test_enumeration_refuses_other_domains(domain):
    with pytest.raises(TypeError, match=r"^domain must be a sequence"):
        s.brute_force_sensitivity(sum, domain=domain, n=2, neighbors="add_remove")
    with pytest.raises(ValueError, match=r"^domain must have at least one entry"):
        s.brute_force_sensitivity(sum, domain=[], n=2, neighbors="add_remove")


EDGES = [(0.1, 0.1), (-0.1, -0.1), (0.1, 0.3), (0, 5e-324), (0, 1.0), (-3, 2), (0, 0), (0, 2.0**60), (-(2.0**900), 7.5)]
records = st.one_of(
    st.sampled_from([1e300, math.nan, -math.inf, math.inf, 2.0**53, 0.1, 0.3, -0.0, 5e-324, None, "x"]),
    st.floats(-10, 10),
)


def gap(a, b):
    return abs(Fraction(a) - Fraction(b))


@settings(max_examples=300, deadline=None)
@given(st.lists(records, max_size=8), records, records, st.sampled_from(EDGES))
def test_sum_moves_by_at_most_its_sensitivity(rest, old, new, bounds):
    before, after, without = (s.clipped_sum(d, bounds=bounds) for d in ([*rest, old], [*rest, new], rest))
    assert gap(before, without) <= Fraction(s.sum_sensitivity(bounds=bounds, neighbors="add_remove"))
    assert gap(before, after) <= Fraction(s.sum_sensitivity(bounds=bounds, neighbors="replace_one"))
    assert s.clipped_sum([old, *rest[::-1]], bounds=bounds) == before


def test_sum_takes_bounds_within_2_to_the_900():
    limit = 2.0**900
    assert s.clipped_sum([1e308] * 1000, bounds=(-limit, limit)) == 1000 * limit  # far from the largest float64
    for bounds in ((-1, math.nextafter(limit, math.inf)), (-1e308, 0), (0, 8e307)):
        for data in ([], [987654.25]):
            with pytest.raises(ValueError, match=r"^bounds must lie within ±2\*\*900") as caught:
                s.clipped_sum(data, bounds=bounds)
            assert "987654" not in str(caught.value)


@given(st.lists(st.integers(-1000, 1000)))
def test_sum_of_integers_is_exact(data):
    assert s.clipped_sum(data, bounds=(-1000, 1000)) == sum(map(Fraction, data))


def test_naive_float_sum_moves_too_far():
    data = [2.0**53] + [1.0] * 1000
    # Python's own sum() compensates since 3.12, hence the written-out accumulation.
    forward, backward = (list(itertools.accumulate(d))[-1] for d in (data, data[::-1]))
    assert backward - forward == 1000
    assert s.clipped_sum(data, bounds=(0, 1)) == s.clipped_sum(data[::-1], bounds=(0, 1)) == 1001


def test_outlier_is_clipped():
    assert s.clipped_sum([1e9], bounds=(0, 1)) == 1
    assert s.clipped_sum([], bounds=(2, 3)) == 0


BAD = [math.nan, None, pd.NA, "text", [1, 2], 1 + 2j, object(), pd.NaT]


@pytest.mark.parametrize("bad", BAD, ids=lambda b: type(b).__name__)
def test_bad_record_becomes_the_middle(bad):
    # The neighbour's records must come out the same: one person's text may not change how another's number is read.
    assert s.clip([1, 2.5, bad, 99], bounds=(0, 10)).tolist() == [1, 2.5, 5, 10]
    assert s.clip([1, 2.5, 99], bounds=(0, 10)).tolist() == [1, 2.5, 10]
    column = np.empty(2, dtype=object)
    column[:] = [3, bad]
    assert s.clip(column, bounds=(0, 10)).tolist() == [3, 5]


def test_huge_and_masked_records():
    assert s.clip([10**400, -(10**400), 2**64, math.inf, -math.inf], bounds=(0, 10)).tolist() == [10, 0, 10, 10, 0]
    assert s.clip(np.ma.array([1.0, 2.0], mask=[0, 1]), bounds=(0, 10)).tolist() == [1, 5]
    assert s.clip(pd.Series([1, None], dtype="Int64"), bounds=(0, 10)).tolist() == [1, 5]


def signalling_nan():
    return np.array([0x7FA00000], dtype=np.uint32).view(np.float32)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: [Fraction(10**400)], id="huge Fraction"),
        pytest.param(lambda: [np.ma.masked, 1.0], id="masked in list"),
        pytest.param(lambda: np.ma.array(["x", 1], dtype=object), id="masked text"),
        pytest.param(signalling_nan, id="signalling nan"),
    ],
)  # fmt: skip
def test_rare_bad_record_is_silent(make):
    assert np.isfinite(s.clip(make(), bounds=(0, 10))).all()


def test_record_is_read_without_regard_to_others():
    alone, beside_text = (s.clip(d, bounds=(0, 10)) for d in ([np.array(7.0), 2.0], [np.array(7.0), 2.0, "x"]))
    assert alone[0] == beside_text[0]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "float16", "bool"])
@pytest.mark.parametrize("bounds", [(-1, 300), (0, 1), (-200, 50)])
def test_small_dtypes(dtype, bounds):
    data = np.array([0, 1, 100, 120]).astype(dtype)
    data.flags.writeable = False
    before, wide = data.copy(), data.astype(float)
    assert s.clip(data, bounds=bounds).tolist() == s.clip(wide, bounds=bounds).tolist()
    assert s.clipped_sum(data, bounds=bounds) == s.clipped_sum(wide, bounds=bounds)
    assert (data == before).all()


def test_float16_sum_does_not_overflow():
    assert s.clipped_sum(np.ones(70000, dtype=np.float16), bounds=(0, 1)) == 70000


@pytest.mark.parametrize(
    "values",
    [np.array(["a"]), np.zeros((2, 2)), np.array(3.0), (x for x in [1]), {1, 2}, {1: 2}, 3.0, None, "12", b"12"],
    ids=lambda v: type(v).__name__,
)
@pytest.mark.parametrize("function", [s.clip, s.clipped_sum])
def test_wrong_schema(function, values):
    with pytest.raises((TypeError, ValueError), match="values"):
        function(values, bounds=(0, 1))


@pytest.mark.parametrize(
    "bounds",
    [(0, math.nan), (math.nan, 1), (-math.inf, 1), (0, math.inf), (5, 2), ("0", 1), (0, 1, 2), None,
     (-1.7e308, 1.7e308)],
)  # fmt: skip
def test_wrong_bounds(bounds):
    for data in ([], [987654.25]):
        for function in (s.clip, s.clipped_sum):
            with pytest.raises((TypeError, ValueError), match="bounds") as caught:
                function(data, bounds=bounds)
            assert "987654" not in str(caught.value)
    with pytest.raises((TypeError, ValueError), match="bounds"):
        s.sum_sensitivity(bounds=bounds, neighbors="add_remove")


def test_bounds_and_neighbors_have_no_default():
    with pytest.raises(TypeError):
        s.clip([1])
    with pytest.raises(TypeError):
        s.sum_sensitivity(bounds=(0, 1))


entries = st.one_of(
    st.sampled_from([0.0, 1e-200, 1e200, 1e308, -1.7e308, math.nan, math.inf, -math.inf]), st.floats(-4, 4)
)


def within(row, c, norm):
    exact = [abs(Fraction(x)) for x in row]
    return sum(exact) <= Fraction(c) if norm == "l1" else sum(x * x for x in exact) <= Fraction(c) ** 2


@pytest.mark.parametrize("norm", s.NORMS)
@settings(max_examples=150, deadline=None)
@given(rows=st.lists(st.lists(entries, min_size=3, max_size=3), min_size=1, max_size=4), c=st.floats(1e-3, 1e3))
def test_norm_is_kept_exactly(norm, rows, c):
    result = s.clip_norm(rows, max_norm=c, norm=norm)
    for row, got in zip(rows, result.tolist(), strict=True):
        assert within(got, c, norm)
        if not np.isfinite(row).all():
            assert got == [0, 0, 0]
        elif within(row, c * (1 - 1e-12), norm):
            assert got == row
        else:
            scale = max(map(abs, row))
            expected = np.array(row) / scale
            assert np.allclose(np.array(got) / max(map(abs, got)), expected, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("norm", s.NORMS)
@pytest.mark.parametrize("c", [2.0**-900, 1e-200, 1e200, 2.0**900])
@pytest.mark.parametrize("row", [[1.0, 1.0, 1.0], [1.7e308, -1.7e308, 1.0], [5e-324, 5e-324, 0.0], [1e-270, 2e-270, 0]])
def test_norm_at_extreme_bounds(norm, c, row):
    got = s.clip_norm([row], max_norm=c, norm=norm)[0].tolist()
    assert within(got, c, norm)
    if within(row, c * (1 - 1e-12), norm):
        assert got == row
    else:
        assert not within([x * (1 + 1e-11) for x in got], c, norm)  # just below C


@pytest.mark.parametrize("c", [5e-324, 1e-308, math.nextafter(2.0**-900, 0), math.nextafter(2.0**900, math.inf), 1e308])
def test_max_norm_beyond_2_to_the_900_is_refused(c):
    with pytest.raises(ValueError, match=r"^max_norm must lie between 2\*\*-900 and 2\*\*900"):
        s.clip_norm([[1.0]], max_norm=c)


@pytest.mark.parametrize(("row", "c"), [([1e-320, 0.0], 1.0), ([1e-10, 0.0], 1e270)])
def test_small_rows_are_silent(row, c):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        s.clip_norm([row], max_norm=c)


@pytest.mark.parametrize("norm", s.NORMS)
def test_row_on_the_border(norm):
    # Only a norm below C by more than 1e-12 of it promises an unchanged row; at C it may be scaled to just below.
    below = 1 - 1.01e-12
    assert s.clip_norm([[below, 0.0]], max_norm=1.0, norm=norm).tolist() == [[below, 0]]
    ((x, y),) = s.clip_norm([[1.0, 0.0]], max_norm=1.0, norm=norm).tolist()
    assert below <= x <= 1
    assert y == 0


def test_norm_does_not_depend_on_memory_order():
    rows = np.full((2, 2**15 + 1), 2.0**-54)
    rows[:, 0] = 1
    assert within(s.clip_norm(np.asfortranarray(rows), max_norm=1.0, norm="l1")[0].tolist(), 1.0, "l1")


def test_rows_untouched_and_masked():
    rows = np.array([[3.0, 4.0], [0.0, 0.0]])
    rows.flags.writeable = False
    assert s.clip_norm(rows, max_norm=10).tolist() == rows.tolist()
    assert s.clip_norm(np.ma.array(rows, mask=[[1, 0], [0, 0]]), max_norm=10).tolist() == [[0, 0], [0, 0]]
    assert s.clip_norm(np.empty((0, 3)), max_norm=1).shape == (0, 3)


@pytest.mark.parametrize("vectors", [[1.0], 3.0, "a", [[1], [1, 2]], np.array([["a"]]), [[[1.0]]], None])
def test_wrong_rows(vectors):
    with pytest.raises((TypeError, ValueError), match="vectors"):
        s.clip_norm(vectors, max_norm=1)


@pytest.mark.parametrize(
    "bad", [*BAD, b"1", np.ma.masked, 10**400, Fraction(10**400), np.timedelta64(1, "D")], ids=repr
)
def test_bad_entry_in_a_regular_row_makes_a_zero_row(bad):
    got = s.clip_norm([[0.25, 0.5], [0.25, bad]], max_norm=1)
    assert got.tolist() == [[0.25, 0.5], [0, 0]]


# Sums of clipped vectors.


@pytest.mark.parametrize("norm", s.NORMS)
@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(row=st.lists(entries, min_size=3, max_size=3), c=st.one_of(st.floats(1e-3, 1e3), st.just(2.0**-900)))
def test_one_vector_of_a_sum_is_a_short_vector_of_whole_steps(norm, row, c):
    step = math.ldexp(1.0, math.frexp(c)[1] - s.RECORD_BITS)
    (clipped,) = s.clip_norm([row], max_norm=c, norm=norm).tolist()
    got = s.norm_clipped_sum([row], max_norm=c, norm=norm).tolist()
    assert within(got, c, norm)
    for x, y in zip(got, clipped, strict=True):
        assert x / step == int(x / step)
        assert 0 <= (y - x) * math.copysign(1, y) < step


@pytest.mark.parametrize("norm", s.NORMS)
def test_sum_of_vectors_keeps_the_claimed_sensitivity_exactly(norm):
    # Vectors whose float sums depend on the order, and of which one moves a running float sum by more than it may.
    rows = np.random.default_rng(5).normal(0, 1, (200, 3)) * 10.0 ** np.random.default_rng(6).integers(-12, 3, (200, 1))
    total = s.norm_clipped_sum(rows, max_norm=1.1, norm=norm)
    assert (s.norm_clipped_sum(rows[::-1], max_norm=1.1, norm=norm) == total).all()
    clipped = s.clip_norm(rows, max_norm=1.1, norm=norm)
    assert np.abs(total - clipped.sum(axis=0)).max() < 200 * 1.1 * 2.0**-23
    bound = {relation: s.norm_sum_sensitivity(max_norm=1.1, neighbors=relation) for relation in RELATIONS}
    for i, other in enumerate(-rows[::-1]):
        kept = np.delete(rows, i, axis=0)
        for relation, neighbor in (("add_remove", kept), ("replace_one", np.vstack([kept, other]))):
            moved = s.norm_clipped_sum(neighbor, max_norm=1.1, norm=norm)
            assert within([Fraction(a) - Fraction(b) for a, b in zip(total, moved, strict=True)], bound[relation], norm)


def test_sum_of_no_vectors_and_of_bad_ones():
    many = s.norm_clipped_sum(np.full((1000, 2), 9.0), max_norm=1.0, norm="l1")  # beyond 32 bits
    assert many.tolist() == pytest.approx([500, 500], rel=1e-6)
    assert s.norm_clipped_sum(np.empty((0, 3)), max_norm=1).tolist() == [0, 0, 0]
    assert s.norm_clipped_sum([[math.nan, 1.0], [None, 1.0], [0.25, 0.5]], max_norm=1).tolist() == [0.25, 0.5]
    assert s.norm_clipped_sum(np.full((4, 2), 7, dtype=np.uint8), max_norm=100).tolist() == [28, 28]
    for largest in (2.0**900, 2.0**-900):
        got = s.norm_clipped_sum([[1.7e308, 0.0]] * 3, max_norm=largest)
        assert got.tolist() == [pytest.approx(3 * largest, rel=1e-6), 0]


ids = st.lists(st.sampled_from([1, 2, 3, "a", "b", math.nan, None, 2.5]), max_size=12)


def person(key):
    return None if key is None or key != key else key


@given(ids, st.integers(1, 3))
def test_keep_rows(keys, most):
    mask = s.keep_rows(keys, max_rows=most)
    people = [person(k) for k in keys]
    for v in set(people):
        kept = [bool(m) for m, p in zip(mask, people, strict=True) if p == v]
        assert kept == [v is not None and i < most for i in range(len(kept))]
        rest = s.keep_rows([k for k in keys if person(k) != v], max_rows=most)
        assert rest.tolist() == [bool(m) for m, p in zip(mask, people, strict=True) if p != v]


@pytest.mark.parametrize(
    "keys",
    [[7, 7, 8], ["x", "x", "y"], [2, math.nan, 1.0], pd.Series([4, 4, 5]), np.array([1, 1, 2]),
     pd.Series(["x", None, "y"]), pd.Series([1, None, 3], dtype="Int64"), np.array([1.0, math.nan, 2.0])],
)  # fmt: skip
def test_keep_rows_containers(keys):
    assert s.keep_rows(keys, max_rows=1).tolist() == [True, False, True]


@pytest.mark.parametrize("keys", [list(np.array([1, 2])), [b"a", b"b"], [(1, 2), (1, 3)], [frozenset(), 1j]])
def test_any_hashable_value_is_an_identifier(keys):
    assert s.keep_rows([*keys, *keys], max_rows=1).tolist() == [True, True, False, False]


def test_rows_without_a_usable_identifier_are_dropped():
    keys = [None, math.nan, np.float64(math.nan), pd.NA, pd.NaT, [1], {1}, {1: 2}, np.array([1, 2]), (1, None)]
    assert not s.keep_rows(keys, max_rows=2).any()
    assert s.keep_rows([*keys, "ann"], max_rows=2).tolist() == [False] * 10 + [True]
    assert s.keep_rows(np.array([math.nan, 1.0, math.nan]), max_rows=1).tolist() == [False, True, False]


def test_a_row_without_an_identifier_changes_nothing_for_others():
    # As one person, the second of two rows without an id would be kept or not, as the first person is there or not.
    for missing in (None, math.nan, ("ann", None)):
        for ids in itertools.product([missing, "bo"], repeat=4):
            kept = s.keep_rows(list(ids), max_rows=2)
            for i in range(4):
                if ids[i] is missing:
                    others = s.keep_rows([*ids[:i], *ids[i + 1 :]], max_rows=2)
                    assert others.tolist() == np.delete(kept, i).tolist()


def test_bounding_before_merging_groups_does_not_bound():
    # One row in each of 100 groups is within one row per group; merged into one group the same person has 100 rows.
    pairs = [f"ann|{g}" for g in range(100)]
    assert s.keep_rows(pairs, max_rows=1).sum() == 100
    assert s.keep_rows(["ann"] * 100, max_rows=1).sum() == 1


def test_sensitivity_does_not_look_at_data():
    # The largest change on [0]*99 is 0: measured on the data, the noise would vanish.
    assert max(abs(sum([0] * 99) - sum([0] * 98)), 0) == 0
    assert s.sum_sensitivity(bounds=(0, 1), neighbors="add_remove") == 1


def test_keep_rows_of_tuples_with_missing_parts():
    ids = [(float("nan"), 1), (float("nan"), 1), (None, 1), ((1, None), 2), (1, 2), (1, 2)]
    assert s.keep_rows(ids, max_rows=1).tolist() == [False] * 4 + [True, False]


def plain_clipped_sum(values, bounds):
    """The definition of `clipped_sum`, with whole arrays and no short cuts."""
    lower, upper = bounds
    largest = max(abs(lower), abs(upper))
    step = math.ldexp(1.0, math.frexp(largest)[1] - s.RECORD_BITS)
    low, high = math.ceil(lower / step), math.floor(upper / step)
    whole = np.clip(np.rint(s.clip(values, bounds=bounds) / step), low, high)
    return int(whole.astype(np.int64).sum()) * step


@pytest.mark.parametrize("bounds", [(0.0, 100.0), (-3.0, 7.1), (5.0, 5.0), (-1e-30, 2e-30), (-1e200, 3.0)])
@pytest.mark.parametrize("dtype", ["float64", ">f8", "float32", "int32", "uint8", "object"])
def test_clipped_sum_in_chunks_is_the_definition(bounds, dtype):
    x = np.random.default_rng(1).uniform(-20, 130, 3 * s.CHUNK + 17)  # seeded: not private
    if dtype not in ("int32", "uint8"):
        x[[0, 7, s.CHUNK, -1]] = [math.nan, math.inf, -math.inf, math.nan]
    else:
        x = np.abs(x)
    column = x.astype(dtype)
    assert s.clipped_sum(column, bounds=bounds) == plain_clipped_sum(column, bounds)
    assert s.clipped_sum(column[::-2], bounds=bounds) == plain_clipped_sum(column[::-2], bounds)


@pytest.mark.parametrize("dtype", ["int64", "uint8", "int32", "uint64"])
@pytest.mark.parametrize("most", [1, 2, 5])
def test_keep_rows_of_whole_numbers_is_the_general_way(dtype, most):
    ids = np.random.default_rng(2).integers(0, 40, 500).astype(dtype)  # seeded: not private
    expected = s.keep_rows(ids.tolist(), max_rows=most)
    for column in (ids, pd.Series(ids), ids[::-1][::-1]):
        assert np.array_equal(s.keep_rows(column, max_rows=most), expected)
    assert s.keep_rows(ids[:0], max_rows=most).tolist() == []
