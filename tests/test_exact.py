"""Rounding up: against exact fractions, at both ends of float64 too; and the precision, which is each thread's own."""

import itertools
import math
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import mpmath
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from dpbook._exact import precise, ratio_up, round_up, sqrt_up

LARGEST, SMALLEST = sys.float_info.max, math.ulp(0.0)
POSITIVE = st.floats(min_value=SMALLEST, allow_infinity=False)
NON_NEGATIVE = st.floats(min_value=0.0, allow_infinity=False)
# Numerator, denominator and a power of two: most hypothesis fractions are too tame to leave float64.
FRACTIONS = st.builds(
    lambda n, d, e: Fraction(n, d) * Fraction(2) ** e,
    st.integers(0, 2**70),
    st.integers(1, 2**70),
    st.integers(-1200, 1200),
)


def is_smallest_not_below(result: float, exact: Fraction) -> bool:
    if result == math.inf:
        return exact > Fraction(LARGEST)
    below = math.nextafter(result, -math.inf)
    return Fraction(result) >= exact and (below == -math.inf or Fraction(below) < exact)


@given(FRACTIONS)
@example(Fraction(0))
@example(Fraction(1, 3))
@example(Fraction(SMALLEST))
@example(Fraction(SMALLEST) / 3)
@example(Fraction(SMALLEST) / 2)
@example(Fraction(SMALLEST) * 3 / 2)
@example(Fraction(sys.float_info.min) - Fraction(SMALLEST) / 7)
@example(Fraction(2**53 + 1))
@example(Fraction(LARGEST))
@example(Fraction(LARGEST) + 1)  # rounds to the nearest float, LARGEST, which is below it
@example(Fraction(2) ** 1024)
@example(Fraction(10) ** 400)
@settings(max_examples=300, deadline=None)
def test_round_up_is_the_smallest_float_not_below(exact: Fraction) -> None:
    assert is_smallest_not_below(round_up(exact), exact)
    # negative numbers are rounded up too, towards zero
    assert is_smallest_not_below(round_up(-exact), -exact) or -exact < -Fraction(LARGEST)


@given(POSITIVE)
@example(SMALLEST)
@example(LARGEST)
@settings(deadline=None)
def test_a_float_is_its_own_round_up(value: float) -> None:
    assert round_up(Fraction(value)) == value
    assert round_up(Fraction(value) - Fraction(1, 10**2000)) == value
    assert round_up(Fraction(value) + Fraction(1, 10**2000)) == math.nextafter(value, math.inf)


@given(NON_NEGATIVE, POSITIVE)
@example(0.0, SMALLEST)
@example(LARGEST, SMALLEST)
@example(SMALLEST, LARGEST)
@example(1.0, 3.0)
@example(LARGEST, 1.0)
@settings(max_examples=300, deadline=None)
def test_ratio_up(numerator: float, denominator: float) -> None:
    result = ratio_up(numerator, denominator)
    assert is_smallest_not_below(result, Fraction(numerator) / Fraction(denominator))
    if result < math.inf:  # what it is for: noise of this scale gives no more than the epsilon asked for
        assert Fraction(numerator) <= Fraction(result) * Fraction(denominator)


def root_is_right(root: float, square: Fraction) -> bool:
    if root == math.inf:
        return square > Fraction(LARGEST) ** 2
    return Fraction(root) ** 2 >= square and (root == 0 or Fraction(math.nextafter(root, 0.0)) ** 2 < square)


@given(st.fractions(min_value=0, max_value=10**30), st.integers(-480, 400))
@example(Fraction(0), 0)
@example(Fraction(2), 0)
@example(Fraction(9), 0)
@example(Fraction(9) + Fraction(1, 10**60), 0)
@example(Fraction(9) - Fraction(1, 10**60), 0)
@settings(max_examples=300, deadline=None)
def test_sqrt_up_in_the_middle_of_float64(number: Fraction, exponent: int) -> None:
    square = number * Fraction(2) ** exponent
    assume(square == 0 or square > Fraction(2) ** -1000)
    assert root_is_right(sqrt_up(square), square)


@given(st.floats(min_value=1e-140, max_value=1e140))
@settings(deadline=None)
def test_sqrt_up_of_a_square_is_the_root(root: float) -> None:
    assert sqrt_up(Fraction(root) ** 2) == root
    assert sqrt_up(Fraction(root) ** 2 + Fraction(1, 10**2000)) == math.nextafter(root, math.inf)


ENDS = {
    "square of the largest float": Fraction(LARGEST) ** 2,
    "just above it": Fraction(LARGEST) ** 2 + 1,
    "root is a float, square is not": 2 * Fraction(1e200) ** 2,
    "square is just too large": Fraction(2) ** 1024,
    "square is largest float": Fraction(LARGEST),
    "root is none either": Fraction(10) ** 700,
    "square is smallest float": Fraction(SMALLEST),
    "square is subnormal": Fraction(1e-310),
    "square is zero in float64": 2 * Fraction(1e-300) ** 2,
    "square far below": Fraction(1e-200) ** 2,
    "square of the smallest float": Fraction(SMALLEST) ** 2,
    "below that": Fraction(SMALLEST) ** 2 / 3,
}


@pytest.mark.parametrize("case", ENDS)
def test_sqrt_up_at_the_ends_of_float64(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    step, steps = math.nextafter, itertools.count()

    def few_steps(x: float, towards: float) -> float:
        if next(steps) > 1000:  # a walk over all floats would go on for ever: fail instead
            raise AssertionError("sqrt_up walks")
        return step(x, towards)

    with monkeypatch.context() as patch:
        patch.setattr(math, "nextafter", few_steps)
        root = sqrt_up(ENDS[case])
    assert root_is_right(root, ENDS[case])


def test_precise_is_one_context_for_each_thread() -> None:
    assert precise() is precise()
    assert precise() is not mpmath.mp
    both = threading.Barrier(2)  # so that one thread does not do the work of both

    def other(dps: int) -> tuple[int, int]:
        mp = precise()
        both.wait(10)
        mp.dps = dps
        both.wait(10)
        return id(mp), precise().dps

    with ThreadPoolExecutor(2) as pool:
        (first, dps_first), (second, dps_second) = pool.map(other, (20, 200))
    assert first != second
    assert id(precise()) not in {first, second}
    assert (dps_first, dps_second) == (20, 200)


def test_precise_and_mpmaths_own_context_leave_each_other_alone() -> None:
    mp = precise()
    before = mp.prec, mpmath.mp.prec
    try:
        mpmath.mp.prec = 20
        mp.prec = 300
        assert mpmath.mp.prec == 20
        third = mp.mpf(1) / 3
        assert abs(Fraction(int(mp.nint(third * 2**290)), 2**290) - Fraction(1, 3)) < Fraction(1, 2**285)
        with mpmath.mp.workdps(5):
            assert precise().prec == 300
        assert mp.mpf(1) / 3 == third
    finally:
        mp.prec, mpmath.mp.prec = before


def test_results_do_not_depend_on_mpmaths_precision() -> None:
    from dpbook import gaussian

    def results() -> list[float]:
        for cached in (gaussian._sigma, gaussian._delta, gaussian._epsilon):
            cached.cache_clear()  # a remembered answer would hide the difference
        return [
            gaussian.gaussian_sigma(epsilon=0.7, delta=1e-6, sensitivity=1.0),
            gaussian.gaussian_delta(sigma=3.0, sensitivity=1.0, epsilon=0.7),
            gaussian.gaussian_epsilon(sigma=3.0, sensitivity=1.0, delta=1e-6),
        ]

    expected, before, own = results(), mpmath.mp.prec, precise().prec
    try:
        for prec in (10, 2000):
            mpmath.mp.prec = prec
            assert results() == expected
            assert mpmath.mp.prec == prec
            precise().prec = prec  # whatever the last caller of this thread left behind
            assert results() == expected
    finally:
        mpmath.mp.prec, precise().prec = before, own
