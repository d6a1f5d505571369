"""Arithmetic that errs on the safe side: exact fractions and high precision, rounded up to float64 at the end."""

import math
import threading
from fractions import Fraction
from typing import Any

import mpmath

_THREAD = threading.local()


def precise() -> Any:
    """Return this thread's own mpmath context, so that no caller's precision is changed and none changes ours."""
    if not hasattr(_THREAD, "mp"):
        _THREAD.mp = mpmath.MPContext()
    return _THREAD.mp


def round_up(exact: Fraction) -> float:
    """Return the smallest float64 that is not below the exact number.

    Examples
    --------
    >>> round_up(Fraction(1, 2)), Fraction(round_up(Fraction(1, 3))) > Fraction(1, 3)
    (0.5, True)
    """
    try:
        nearest = float(exact)
    except OverflowError:
        return math.inf
    return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)


def ratio_up(numerator: float, denominator: float) -> float:
    """Return the smallest float64 that is not below ``numerator / denominator``."""
    return round_up(Fraction(numerator) / Fraction(denominator))


def sqrt_up(square: Fraction) -> float:
    """Return the smallest float64 whose square is not below the exact number."""
    mp = precise()
    mp.prec = 200
    try:
        root = float(mp.sqrt(mp.mpf(square.numerator) / square.denominator))
    except OverflowError:
        return math.inf
    if math.isinf(root):
        return root
    while root < math.inf and Fraction(root) ** 2 < square:
        root = math.nextafter(root, math.inf)
    while root > 0.0 and Fraction(math.nextafter(root, 0.0)) ** 2 >= square:
        root = math.nextafter(root, 0.0)
    return root


def up(exact: Any) -> float:
    """Return a high-precision number of `precise` as float64, rounded up, past what its last digits may be off by."""
    exact = exact * (1 + precise().mpf(2) ** -80)
    try:
        nearest = float(exact)
    except OverflowError:
        return math.inf if exact > 1 else math.ulp(0.0)
    return nearest if nearest >= exact else math.nextafter(nearest, math.inf)
