"""Every validator: what it takes, what it refuses, and what it says. `tests/test_bad_input.py` has the odd types."""

import math
import sys
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dpbook import _validate as v

NAN, INF, LARGEST, SMALLEST = math.nan, math.inf, sys.float_info.max, math.ulp(0.0)
DAYS = np.timedelta64(3, "D")
Case = tuple[Callable[..., Any], Any, Any]


def from_0(**parameter: Any) -> int:
    return v.integer(0, **parameter)


def from_1(**parameter: Any) -> int:
    return v.integer(1, **parameter)


TAKEN: list[Case] = [
    (v.real, 1, 1.0),
    (v.real, -INF, -INF),
    (v.real, np.float32(0.5), 0.5),
    (v.real, np.array(2), 2.0),
    (v.real, 2**53 + 1, 2.0**53),
    (v.positive, SMALLEST, SMALLEST),
    (v.positive, LARGEST, LARGEST),
    (v.positive, 1, 1.0),
    (v.positive, np.float16(0.5), 0.5),
    (v.positive, np.uint64(2**63), 2.0**63),
    (v.positive, np.array(1.5, dtype=np.float32), 1.5),
    (v.non_negative, 0, 0.0),
    (v.non_negative, -0.0, 0.0),
    (v.non_negative, SMALLEST, SMALLEST),
    (v.non_negative, LARGEST, LARGEST),
    (v.open_unit, SMALLEST, SMALLEST),
    (v.open_unit, 1 - 2.0**-53, 1 - 2.0**-53),
    (v.half_open_unit, 0, 0.0),
    (v.half_open_unit, -0.0, 0.0),
    (v.half_open_unit, 1 - 2.0**-53, 1 - 2.0**-53),
    (from_1, 1, 1),
    (from_1, 3.0, 3),
    (from_1, 2**53, 2**53),
    (from_1, 2.0**53, 2**53),
    (from_1, np.uint64(2**53), 2**53),
    (from_1, np.int8(3), 3),
    (from_1, np.array(3), 3),
    (from_1, np.array(3.0), 3),
    (from_0, 0, 0),
    (from_0, -0.0, 0),
    (v.bounds, (0, 1), (0.0, 1.0)),
    (v.bounds, [-1.5, -1.5], (-1.5, -1.5)),
    (v.bounds, np.array([1, 2], dtype=np.int8), (1.0, 2.0)),
    (v.bounds, (-0.0, 0), (0.0, 0.0)),
    (v.bounds, (-LARGEST / 2, LARGEST / 2), (-LARGEST / 2, LARGEST / 2)),
    (v.bounds, (np.float32(0), np.array(1)), (0.0, 1.0)),
]

REFUSED: list[tuple[Callable[..., Any], Any, type[Exception], str]] = [
    (v.real, NAN, ValueError, "epsilon must be a real number, got nan"),
    (v.real, True, TypeError, "epsilon must be a real number, got True of type bool"),
    (v.real, "1", TypeError, "epsilon must be a real number, got '1' of type str"),
    (v.real, 1j, TypeError, "epsilon must be a real number, got 1j of type complex"),
    (v.real, None, TypeError, "epsilon must be a real number, got None of type NoneType"),
    (v.real, [1.0], TypeError, "epsilon must be a real number, got [1.0] of type list"),
    (v.real, Decimal(1), TypeError, "epsilon must be a real number, got Decimal('1') of type Decimal"),
    (v.real, np.array([1.0]), TypeError, "epsilon must be a real number, got array([1.]) of type ndarray"),
    (v.real, 10**400, ValueError, "epsilon must be a real number that float64 can hold, got 1000"),
    (v.positive, 0, ValueError, "epsilon must be positive and finite, got 0"),
    (v.positive, -0.0, ValueError, "epsilon must be positive and finite, got -0.0"),
    (v.positive, -1, ValueError, "epsilon must be positive and finite, got -1"),
    (v.positive, INF, ValueError, "epsilon must be positive and finite, got inf"),
    (v.positive, NAN, ValueError, "epsilon must be a positive, finite number, got nan"),
    (v.positive, False, TypeError, "epsilon must be a positive, finite number, got False of type bool"),
    (v.positive, np.float16(0), ValueError, f"epsilon must be positive and finite, got {np.float16(0)!r}"),
    (v.non_negative, -SMALLEST, ValueError, "epsilon must be non-negative and finite, got -5e-324"),
    (v.non_negative, INF, ValueError, "epsilon must be non-negative and finite, got inf"),
    (v.non_negative, NAN, ValueError, "epsilon must be a non-negative, finite number, got nan"),
    (v.open_unit, 0.0, ValueError, "epsilon must be strictly between 0 and 1, got 0.0"),
    (v.open_unit, 1, ValueError, "epsilon must be strictly between 0 and 1, got 1"),
    (v.open_unit, NAN, ValueError, "epsilon must be a number strictly between 0 and 1, got nan"),
    (v.half_open_unit, 1.0, ValueError, "epsilon must be at least 0 and below 1, got 1.0"),
    (v.half_open_unit, -SMALLEST, ValueError, "epsilon must be at least 0 and below 1, got -5e-324"),
    (from_1, 0, ValueError, "epsilon must be at least 1, got 0"),
    (from_1, 1.5, ValueError, "epsilon must be a whole number, got 1.5"),
    (from_1, INF, ValueError, "epsilon must be a whole number, got inf"),
    (from_1, NAN, ValueError, "epsilon must be a whole number, got nan"),
    (from_1, True, TypeError, "epsilon must be a whole number, got True of type bool"),
    (from_1, np.bool_(True), TypeError, f"epsilon must be a whole number, got {np.bool_(True)!r} of type bool"),
    (from_1, "3", TypeError, "epsilon must be a whole number, got '3' of type str"),
    (from_1, DAYS, TypeError, f"epsilon must be a whole number, got {DAYS!r} of type timedelta64"),
    (from_1, 2**53 + 1, ValueError, "epsilon must be at most 2**53, got 9007199254740993"),
    (from_1, np.uint64(2**63), ValueError, f"epsilon must be at most 2**53, got {np.uint64(2**63)!r}"),
    (from_1, 1e300, ValueError, "epsilon must be at most 2**53, got 1e+300"),
    (from_1, 10**400, ValueError, "epsilon must be at most 2**53, got 1000"),
    (from_1, 10**5000, ValueError, "epsilon must be at most 2**53, got "),
    (from_0, -1, ValueError, "epsilon must be at least 0, got -1"),
    (from_0, -(10**5000), ValueError, "epsilon must be at least 0, got "),
    (v.positive, 10**5000, ValueError, "epsilon must be a positive, finite number that float64 can hold, got "),
    (v.bounds, 1, TypeError, "epsilon must be a pair (lower, upper) of finite numbers, got 1"),
    (v.bounds, (1,), ValueError, "epsilon must be a pair (lower, upper) of finite numbers, got 1 values"),
    (v.bounds, (2, 1), ValueError, "epsilon must have lower <= upper, got (2.0, 1.0)"),
    (v.bounds, (0, INF), ValueError, "epsilon must be finite, got (0.0, inf)"),
    (v.bounds, (0, NAN), ValueError, "epsilon[1] must be finite, got nan"),
    (v.bounds, ("0", 1), TypeError, "epsilon[0] must be finite, got '0' of type str"),
    (v.bounds, (-LARGEST, LARGEST), ValueError, "epsilon must have a finite width, got (-1.79"),
]


@pytest.mark.parametrize(("check", "given", "expected"), TAKEN, ids=range(len(TAKEN)))
def test_taken(check: Callable[..., Any], given: Any, expected: Any) -> None:
    result = check(epsilon=given)
    assert result == expected
    assert type(result) is type(expected)
    parts, wanted = (result, expected) if isinstance(result, tuple) else ((result,), (expected,))
    assert "-0.0" not in map(repr, parts)
    assert {type(x) for x in parts} == {type(x) for x in wanted}  # a Python number, not NumPy's


# pytest makes a test's name from the value, and Python refuses to print 10**5000.
@pytest.mark.parametrize(("check", "given", "error", "message"), REFUSED, ids=range(len(REFUSED)))
def test_refused(check: Callable[..., Any], given: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        check(epsilon=given)
    assert type(caught.value) is error
    assert str(caught.value).startswith(message)
    assert len(str(caught.value)) < 200  # a long value is cut


def test_a_long_value_is_cut() -> None:
    with pytest.raises(TypeError, match=r"^n must be a whole number, got 'x{56}\.\.\. of type str$"):
        v.integer(n="x" * 1000)


def test_choice_and_neighbors() -> None:
    assert v.choice(("l1", "l2"), norm="l2") == "l2"
    assert [v.neighbors(name) for name in (v.ADD_REMOVE, v.REPLACE_ONE)] == ["add_remove", "replace_one"]
    assert v.choice(("l1",), norm=np.str_("l1")) == "l1"
    with pytest.raises(ValueError, match=r"^norm must be one of \('l1', 'l2'\), got 'L1'$"):
        v.choice(("l1", "l2"), norm="L1")
    with pytest.raises(TypeError, match=r"^norm must be one of \('l1', 'l2'\), got 1$"):
        v.choice(("l1", "l2"), norm=1)
    with pytest.raises(ValueError, match=r"^neighbors must be one of .*'add-remove'$"):
        v.neighbors("add-remove")
    with pytest.raises(TypeError, match=r"^neighbors must be one of "):
        v.neighbors(None)


def test_generator() -> None:
    v.generator(None)
    v.generator(np.random.default_rng(0))
    v.generator(np.random.Generator(np.random.MT19937(0)))
    with pytest.raises(TypeError, match=r"^rng must be None \(.*\) or a numpy\.random\.Generator .* got int$"):
        v.generator(0)


# --- data ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (3, 3.0),
        (2**53 + 1, 2.0**53),
        (-(10**400), -(2.0**53)),
        (np.int64(-(2**63)), -(2.0**53)),
        (np.uint64(2**64 - 1), 2.0**53),
        (np.uint64(2**53 - 1), 2.0**53 - 1),
        ([2**53 + 1, -(2**53) - 1], [2.0**53, -(2.0**53)]),
        (np.array([2**63], dtype=np.uint64), [2.0**53]),
        (1e300, 1e300),
        ([], []),
        ((), []),
        (np.empty((0, 3)), np.empty((0, 3))),
        (np.array([1, 2], dtype=">i8"), [1.0, 2.0]),
        (np.array([0.1], dtype=np.float32), [float(np.float32(0.1))]),
        (range(3), [0.0, 1.0, 2.0]),
        (pd.Series([1, 2], dtype="int64"), [1.0, 2.0]),
    ],
)
def test_finite_values(given: Any, expected: Any) -> None:
    result = v.finite_values(true_value=given)
    assert result.dtype == np.float64
    np.testing.assert_array_equal(result, np.asarray(expected, dtype=np.float64), strict=True)


def test_clamping_never_moves_two_integers_apart() -> None:
    """Rounding does: 2**53 + 1 and 2**53 + 2 are 1 apart, their float64s 2."""
    near = [2**53 + d for d in range(-3, 4)] + [2**60, 2**60 + 1]
    for a in near:
        for b in near:
            floats = v.finite_values(true_value=[a, b])
            assert abs(floats[0] - floats[1]) <= abs(a - b)
            assert v.finite_values(true_value=a) == floats[0]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (3, 3),
        (np.uint8(3), 3),
        ([], []),
        (np.array([2**64 - 1], dtype=np.uint64), [2**63 - 1]),
        (np.array([-(2**63), 2**63 - 1]), [-(2**63), 2**63 - 1]),
        (np.array([[1, 2]], dtype=np.int8), [[1, 2]]),
        (range(2), [0, 1]),
    ],
)
def test_integer_values(given: Any, expected: Any) -> None:
    result = v.integer_values(k=given)
    assert result.dtype == np.int64
    np.testing.assert_array_equal(result, np.asarray(expected, dtype=np.int64), strict=True)
    assert not np.shares_memory(result, np.asarray(given))


RULE = "x must be a real number or an array of real numbers"
WHOLE = "x must be an integer or an array of integers"


@pytest.mark.parametrize(
    ("check", "given", "error", "message"),
    [
        (v.finite_values, NAN, ValueError, "x must be finite: a value of bounded sensitivity is never NaN or infinite"),
        (v.finite_values, [1.0, INF], ValueError, "x must be finite"),
        (v.finite_values, True, TypeError, f"{RULE}, got bool"),
        (v.finite_values, None, TypeError, f"{RULE}, got NoneType"),
        (v.finite_values, "1", TypeError, f"{RULE}, got str"),
        (v.finite_values, np.array(["1"]), TypeError, f"{RULE}, got dtype <U1"),
        (v.finite_values, [True, False], TypeError, f"{RULE}, got dtype bool"),
        (v.finite_values, [1j], TypeError, f"{RULE}, got dtype complex128"),
        (v.finite_values, [[1], [1, 2]], ValueError, f"{RULE} of a regular shape"),
        (v.finite_values, np.ma.array([1.0]), TypeError, f"{RULE}, got a masked array; fill it first"),
        (v.finite_values, [10**400], TypeError, f"{RULE}, got dtype object"),
        (v.finite_values, [10**400, 1.0], (TypeError, ValueError), RULE),
        (v.integer_values, 1.0, TypeError, f"{WHOLE}, got dtype float64"),
        (v.integer_values, [1.0], TypeError, f"{WHOLE}, got dtype float64"),
        (v.integer_values, [2**64], TypeError, f"{WHOLE}, got dtype object"),
        (v.integer_values, np.array([]), TypeError, f"{WHOLE}, got dtype float64"),
        (v.integer_values, {1}, TypeError, f"{WHOLE}, got set"),
        (v.records, 1.0, TypeError, "x must be one-dimensional data: a list, tuple, range, NumPy array or pandas"),
        (v.records, {1.0}, TypeError, "x must be one-dimensional data"),
        (v.records, "12", TypeError, "x must be one-dimensional data"),
        (v.records, np.array(1.0), ValueError, "x must be one-dimensional data"),
        (v.records, np.ones((2, 2)), ValueError, "x must be one-dimensional data"),
        (v.records, np.array(["1"]), TypeError, "x must be one-dimensional data"),
        (v.records, np.array([1j]), TypeError, "x must be one-dimensional data"),
        (v.records, np.ma.array([1j, 1j], mask=[0, 1]), TypeError, "x must be one-dimensional data"),
        (v.records, np.ma.array([["1"]]), (TypeError, ValueError), "x must be one-dimensional data"),
        (v.rows, [1.0], ValueError, "x must be a two-dimensional array of numbers, one row for each person, got 1 dim"),
        (v.rows, np.ones((1, 1, 1)), ValueError, "x must be a two-dimensional array of numbers"),
        (v.rows, np.array([["1"]]), TypeError, "x must be a two-dimensional array of numbers"),
        (
            v.rows,
            [[1], [1, 2]],
            ValueError,
            "x must be a two-dimensional array of numbers, one row for each person, all",
        ),
        (v.rows, {1.0}, (TypeError, ValueError), "x must be a two-dimensional array of numbers"),
        (v.rows, np.ma.array([[1j]], mask=[[True]]), TypeError, "x must be a two-dimensional array of numbers"),
        (v.identifiers, "abc", TypeError, "x must be one-dimensional: a list, tuple, range, NumPy array or pandas"),
        (v.identifiers, {1: 2}, TypeError, "x must be one-dimensional"),
        (v.identifiers, np.ma.array([1]), TypeError, "x must be one-dimensional"),
        (v.identifiers, np.ones((2, 2)), ValueError, "x must be one-dimensional"),
        (v.identifiers, np.array(1), ValueError, "x must be one-dimensional"),
    ],
)
def test_refused_data(check: Callable[..., Any], given: Any, error: Any, message: str) -> None:
    with pytest.raises(error) as caught:
        check(x=given)
    assert str(caught.value).startswith(message)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None  # which could show a record


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], []),
        ([1, 2.5, True, None, "3", [4.0], 1j], [1, 2.5, 1, NAN, NAN, NAN, NAN]),
        ((Fraction(1, 2), np.float32(0.5), np.int8(3), np.bool_(True), "x"), [0.5, 0.5, 3, 1, NAN]),
        ([10**400, -(10**400)], [INF, -INF]),
        ([[1.0], [2.0]], [NAN, NAN]),
        ([[1.0], [2.0, 3.0]], [NAN, NAN]),
        (["1", "2"], [NAN, NAN]),
        (range(3), [0, 1, 2]),
        (np.array([1, 0], dtype=bool), [1, 0]),
        (np.array([1, None, "a"], dtype=object), [1, NAN, NAN]),
        (np.ma.array([1.0, 2.0], mask=[True, False]), [NAN, 2]),
        (np.ma.array([1, 2], mask=[True, False]), [NAN, 2]),
        (np.ma.array([1.0, 2.0]), [1, 2]),
        (np.ma.array([1, "a", None, 2], mask=[1, 0, 0, 0], dtype=object), [NAN, NAN, NAN, 2]),
        (pd.Series([1, None, 3], dtype="Int64"), [1, NAN, 3]),
        (pd.Series([1.0, None]), [1, NAN]),
        (pd.Series([True, None], dtype="boolean"), [1, NAN]),
        (pd.Series(["1", None]), [NAN, NAN]),
        (np.array([1, np.longdouble("1e4000")], dtype=np.longdouble), [1, INF]),
        (np.ma.array([1, np.longdouble("1e4000")], dtype=np.longdouble), [1, INF]),
        (np.array([1, 2], dtype=">f4"), [1, 2]),
    ],
)
def test_records(given: Any, expected: list[float]) -> None:
    result = v.records(values=given)
    assert result.dtype == np.float64
    np.testing.assert_array_equal(result, np.asarray(expected, dtype=np.float64), strict=True)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([[1, 2], [3, 4]], [[1, 2], [3, 4]]),
        (np.ones((0, 3)), np.ones((0, 3))),
        (np.ones((2, 0)), np.ones((2, 0))),
        (np.array([[True, False]]), [[1, 0]]),
        (np.ma.array([[1, 2]], mask=[[True, False]]), [[NAN, 2]]),
        (np.ma.array([[1.0, 2.0]]), [[1, 2]]),
        (pd.DataFrame({"a": [1, 2], "b": [0.5, None]}), [[1, 0.5], [2, NAN]]),
        (np.array([[np.longdouble("1e4000")]]), [[INF]]),
        ([[1.0, None], ["x", 2.0]], [[1, NAN], [NAN, 2]]),
        ([["1", 1j], [10**400, np.ma.masked]], [[NAN, NAN], [INF, NAN]]),
        (np.array([[1.0, "x"]], dtype=object), [[1, NAN]]),
    ],
)
def test_rows(given: Any, expected: Any) -> None:
    result = v.rows(vectors=given)
    assert result.dtype == np.float64
    np.testing.assert_array_equal(result, np.asarray(expected, dtype=np.float64), strict=True)
    assert not isinstance(result, np.ma.MaskedArray)
    assert not np.shares_memory(result, np.asarray(given))  # a copy: the caller of `rows` writes on it


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], []),
        (["a", b"a", 1, 2.5, None, NAN, pd.NA], ["a", b"a", 1, 2.5, None, None, None]),
        ([(1, 2), 1j, frozenset({1}), Fraction(1, 2)], [(1, 2), 1j, frozenset({1}), Fraction(1, 2)]),
        ([[1], {1}, {1: 2}, np.array([1]), np.float64(NAN), pd.NaT], [None] * 6),
        (range(2), [0, 1]),
        (np.array([1.0, NAN]), [1.0, None]),
        (np.array([1, "NaT"], dtype="m8[ns]"), [1, None]),
        (pd.Series([pd.Timestamp(5), pd.NaT]).astype("M8[ns]"), [5, None]),
        ([frozenset({1, NAN}), frozenset({(1, None)}), (1, NAN)], [None, None, (1, None)]),
        (np.array(["a", "b"]), ["a", "b"]),
        (np.array([1, "a", None], dtype=object), [1, "a", None]),
        (pd.Series([1, None], dtype="Int64"), [1, None]),
        (pd.Series(["a", None]), ["a", None]),
        (pd.Series(["a", "b"], dtype="category"), ["a", "b"]),
        ([np.int64(1), np.int64(2)], [1, 2]),
        ((np.float32(0.5), np.uint8(3)), [0.5, 3]),
        (np.array([np.int64(1), np.int32(2)], dtype=object), [1, 2]),
    ],
)
def test_identifiers(given: Any, expected: list[Any]) -> None:
    assert v.identifiers(person=given) == expected


# --- columns, flags, keys --------------------------------------------------------------------------------------------


def test_a_plain_column_is_not_copied_and_others_are_read_as_records() -> None:
    for array in (np.arange(3.0), np.arange(3, dtype=np.int8), np.array([True, False])):
        assert v.column(x=array) is array
    series = pd.Series([1.0, 2.0])
    assert np.shares_memory(v.column(x=series), series.to_numpy())
    for odd in ([1, None], pd.Series([1, None], dtype="Int64"), np.array([1, None], dtype=object)):
        np.testing.assert_array_equal(v.column(x=odd), [1.0, NAN])
    np.testing.assert_array_equal(v.column(x=np.ma.array([1.0, 2.0], mask=[False, True])), [1.0, NAN])
    for bad in (np.ones((2, 2)), np.array(["a"]), 3, {1}):
        with pytest.raises((TypeError, ValueError), match="x must"):
            v.column(x=bad)


def test_flag() -> None:
    assert v.flag(x=True) is True
    assert v.flag(x=np.bool_(False)) is False
    for bad in (1, 0, None, "True", np.array(True), 1.0):
        with pytest.raises(TypeError, match="x must be True or False, got"):
            v.flag(x=bad)


@pytest.mark.parametrize(
    ("keys", "column", "places"),
    [
        (["a", "b"], ["b", "a", "c", None, NAN, [1], pd.NA], [1, 0, -1, -1, -1, -1, -1]),
        (["a", None], ["b", "a", None, NAN, [1]], [-1, 0, 1, 1, 1]),
        ([3, -1, 7], np.array([7, 3, 0, -1, 100], dtype=np.int64), [2, 0, -1, 1, -1]),
        ([3, -1, 7], [7, 3.0, np.int8(-1), True], [2, 0, 1, -1]),
        ([-1, 2], np.array([2**64 - 1, 2], dtype=np.uint64), [-1, 1]),
        ([2**62, 5], np.array([2**62, 2**62 + 1], dtype=np.int64), [0, -1]),
        ([0.5, (1, "x")], [(1, "x"), 0.5, (1, NAN)], [1, 0, -1]),
        ([1], np.array([], dtype=np.int64), []),
    ],
)
def test_codes(keys: Any, column: Any, places: list[int]) -> None:
    assert v.codes(v.categories(x=keys), y=column).tolist() == places


def test_categories() -> None:
    assert v.categories(x=("b", "a")) == {"b": 0, "a": 1}
    assert v.categories(x=np.array([2, 1])) == {2: 0, 1: 1}
    for bad in ("ab", {1, 2}, {1: 2}, 3, None, [], [1, 1], [1, 1.0], [[1]], [NAN], iter([1])):
        with pytest.raises((TypeError, ValueError), match="x must be a list or tuple of distinct keys"):
            v.categories(x=bad)
    with pytest.raises(ValueError, match="at least 2, got 1"):
        v.categories(2, x=[1])
