"""ρ-zCDP as (ε, δ) and back, from exact numbers and rounded to the safe side: what `rdp` and `budget` share.

At the Rényi order 1 + t, ρ-zCDP is (ε, δ)-DP with ``ε = ρ (1 + t) + (ln(1/δ) - ln(1 + t)) / t - ln(1 + 1/t)`` (Canonne,
Kamath and Steinke, 2020, Prop. 12). Every t > 0 gives a valid ε, so the best one is sought in float64, and only the
result is computed precisely. Its derivative ``ρ - (ln(1/δ) - ln(1 + t)) / t²`` changes its sign once.

A float stands for two numbers: itself, and the decimal that it prints as, which a ledger counts. What is returned is
safe as both.
"""

import math
from collections.abc import Callable
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Any

from dpbook._amounts import exact
from dpbook._exact import precise, round_up, up

DIGITS = 15  # so many survive the way through a float64 and back
MARGIN = 1e-14  # relative: more than the float64 nearest to such a decimal can be above it
TINY = 1e-300  # where float64 ends, a nearly best order will do


def epsilon(rho: Fraction, delta: Fraction) -> float:
    """Return an ε, not below the least over all orders, at which ρ-zCDP is (ε, δ)-DP; δ in (0, 1)."""
    if rho == 0:
        return 0.0
    mp, r, log = _inputs(rho, delta)
    size, near = max(float(r), TINY), max(float(log), TINY)
    half = math.log(near / 2)  # at the root one of the two terms is at least half of the sum

    def slope(v: float) -> float:
        return size * math.exp(2 * v) + _log1p_exp(v) - near

    ends = (half - math.log(size)) / 2
    t = mp.exp(_root(slope, min(half, ends) - 1, ends + 1))
    terms = r * (1 + t), (log - mp.log1p(t)) / t, -mp.log1p(1 / t)
    return max(0.0, up(sum(terms) + max(map(abs, terms)) * mp.mpf(10) ** -50))


def rho(target_epsilon: Fraction, delta: Fraction) -> Decimal:
    """Return a ρ of 15 digits, nearly the largest, for which ρ-zCDP is (ε, δ)-DP; ε ≥ 0, δ in (0, 1).

    As the nearest float64, too, it is not above the largest. It is 0 where that is beyond all floats.
    """
    mp, eps, log = _inputs(target_epsilon, delta)
    target, near = float(eps), max(float(log), TINY)

    def excess(v: float) -> float:  # of the target over the least ε of that ρ for which this order is the best
        inverse = math.exp(-v)
        return target + _log1p_exp(-v) - (near - _log1p_exp(v)) * inverse * (2 + inverse)

    t = mp.exp(_root(excess, -700.0, min(near, 700.0)))
    best = (eps - (log - mp.log1p(t)) / t + mp.log1p(1 / t)) / (1 + t)
    if best <= 0:
        return Decimal(0)
    below = best * (1 - mp.mpf(MARGIN))
    return exact().normalize(Context(prec=DIGITS, rounding=ROUND_FLOOR).create_decimal(mp.nstr(below, 40)))


def spendable(cost: Fraction) -> float:
    """Return the least float64 for which neither it nor the decimal that it prints as is below the exact cost."""
    found = round_up(cost)
    return found if math.isinf(found) or Fraction(repr(found)) >= cost else math.nextafter(found, math.inf)


def _inputs(number: Fraction, delta: Fraction) -> tuple[Any, Any, Any]:
    mp = precise()
    mp.dps = 60
    return mp, mp.mpf(number.numerator) / number.denominator, -mp.log(mp.mpf(delta.numerator) / delta.denominator)


def _log1p_exp(v: float) -> float:
    return max(v, 0.0) + math.log1p(math.exp(-abs(v)))


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Return nearly where a function turns from negative to positive."""
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) < 0 else (low, middle)
    return (low + high) / 2
