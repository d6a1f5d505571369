"""Rényi and concentrated differential privacy: how their costs add up, and what they are as (ε, δ).

A mechanism is (α, r)-RDP when the Rényi divergence of order α > 1 between neighbours is at most r (Mironov, 2017), and
ρ-zCDP when that holds with ``r = ρ α`` for every α (Bun and Steinke, 2016). Both add up under composition. Every order
gives a valid (ε, δ), so the orders here are searched among all real numbers above 1.
"""

import math
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from dpbook import _validate, _zcdp

SAFE = 1 + 1e-13  # covers the last digits of the few float64 operations below


def conversion_epsilon(*, order: float, divergence: float, delta: float) -> float:
    """Return the ε that RDP of one order gives: the form of Canonne, Kamath and Steinke, and Balle et al., 2020.

    Parameters
    ----------
    order : float
        Order α > 1.
    divergence : float
        RDP r ≥ 0 at this order.
    delta : float
        δ in (0, 1).

    Returns
    -------
    float
        ``r + log(1 - 1/α) - log(δ α) / (α - 1)``, at least 0, rounded up.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    Canonne, Kamath, Steinke (2020), Prop. 12; Balle, Barthe, Gaboardi, Hsu, Sato (2020), Thm. 21.

    Examples
    --------
    >>> round(conversion_epsilon(order=32.0, divergence=1.1, delta=1e-5), 10)
    1.3278380618
    """
    a, r, d = _order(order), _validate.non_negative(divergence=divergence), _validate.open_unit(delta=delta)
    return _epsilon(a, r, d)


def _order(value: Any) -> float:
    a = _validate.positive(order=value)
    if a <= 1.0:
        raise ValueError(f"order must be above 1, got {_validate.shown(value)}")
    return a


def _epsilon(a: float, r: float, d: float) -> float:
    if not math.isfinite(r):
        return math.inf
    rest = math.log1p(-1 / a) - (math.log(d) + math.log(a)) / (a - 1)
    return max(0.0, r + rest + (r + abs(rest) + 1) * (SAFE - 1))


def least_epsilon(divergence: Callable[[float], float], *, delta: float) -> float:
    """Return the least ε over all real orders, given the RDP as a function of the order.

    Parameters
    ----------
    divergence : callable
        Maps an order α > 1 to the RDP r of everything that was run.
    delta : float
        δ in (0, 1).

    Returns
    -------
    float
        ε ≥ 0. The search may miss the best order, and the result is valid all the same.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    Canonne, Kamath, Steinke (2020), Prop. 12.

    Examples
    --------
    >>> round(least_epsilon(lambda order: order / 2, delta=1e-5), 4)  # the Gaussian mechanism at σ = Δ
    4.7284
    """
    from scipy import optimize  # here, as nothing else in the package needs it, and it takes a third of a second

    if not callable(divergence):
        raise TypeError(f"divergence must be a function of the order, got {type(divergence).__name__}")
    d = _validate.open_unit(delta=delta)

    def cost(v: float) -> float:
        a = 1 + math.exp(v)
        return _epsilon(a, float(divergence(a)), d)

    grid = {v: cost(v) for v in np.arange(-4.0, 12.1, 1.0).tolist()}
    best = min(grid, key=lambda v: grid[v])
    if not math.isfinite(grid[best]):
        return math.inf
    found = optimize.minimize_scalar(cost, bounds=(best - 1, best + 1), method="bounded", options={"xatol": 1e-7})
    return min(grid[best], cost(float(found.x)))


def zcdp_delta(*, rho: float, epsilon: float) -> float:
    """Return a δ for which ρ-zCDP implies (ε, δ)-DP: the least over all real orders, rounded up.

    Parameters
    ----------
    rho : float
        ρ ≥ 0, under the neighbour relation of the claim.
    epsilon : float
        ε ≥ 0.

    Returns
    -------
    float
        δ in [0, 1].

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    Canonne, Kamath, Steinke (2020), Cor. 13.

    Examples
    --------
    >>> round(zcdp_delta(rho=0.5, epsilon=0.0), 6)
    0.558836
    """
    r, eps = _validate.non_negative(rho=rho), _validate.non_negative(epsilon=epsilon)
    if r == 0:
        return 0.0
    low, high = -40.0, min(700.0, 40.0 + math.log1p(min((eps + 1) / r, 1e300)))

    def slope(v: float) -> float:
        a = 1 + math.exp(v)
        return (a + math.exp(v)) * r - eps - math.log1p(math.exp(-v))

    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    t = math.exp(high)
    a = 1 + t
    if not math.isfinite(t * max(a * r, eps)):  # far beyond: the smallest float64 is safe
        return 1.0 if a * r > eps else math.ulp(0.0)
    log_delta = t * (a * r - eps) - t * math.log1p(1 / t) - math.log(a)
    log_delta += (t * (a * r + eps) + math.log(a) + 2) * 2.0**-50
    return min(1.0, max(math.exp(log_delta) * SAFE, math.ulp(0.0))) if log_delta < 0 else 1.0


def zcdp_epsilon(*, rho: float, delta: float) -> float:
    """Return an ε for which ρ-zCDP implies (ε, δ)-DP: the least over all real orders, rounded up.

    Parameters
    ----------
    rho : float
        ρ ≥ 0, under the neighbour relation of the claim.
    delta : float
        δ in [0, 1); with δ = 0 no ε is finite unless ρ = 0.

    Returns
    -------
    float
        ε ≥ 0, or `inf`.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    Canonne, Kamath, Steinke (2020), Cor. 13.

    Examples
    --------
    >>> round(zcdp_epsilon(rho=0.5, delta=1e-5), 6)
    4.728387
    """
    r, d = _validate.non_negative(rho=rho), _validate.half_open_unit(delta=delta)
    if d == 0:
        return 0.0 if r == 0 else math.inf
    return _zcdp.epsilon(Fraction(r), Fraction(d))


def zcdp_rho(*, target_epsilon: float, delta: float) -> float:
    """Return the largest ρ for which ρ-zCDP implies (ε, δ)-DP by `zcdp_epsilon`, rounded down.

    Parameters
    ----------
    target_epsilon : float
        ε > 0 that must not be exceeded.
    delta : float
        δ in (0, 1).

    Returns
    -------
    float
        ρ > 0, to share out among releases: their ρ add up. It has 15 digits, and is not above the largest ρ either as
        a float or as the decimal that it prints as, which `dpbook.budget` takes for a limit.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    Canonne, Kamath, Steinke (2020), Cor. 13; composition: Bun, Steinke (2016), Lemma 1.7.

    Examples
    --------
    >>> rho = zcdp_rho(target_epsilon=1.0, delta=1e-6)
    >>> zcdp_epsilon(rho=rho, delta=1e-6) <= 1.0 < zcdp_epsilon(rho=rho * 1.001, delta=1e-6)
    True
    """
    target, d = _validate.positive(target_epsilon=target_epsilon), _validate.open_unit(delta=delta)
    found = float(_zcdp.rho(Fraction(target), Fraction(d)))
    if found < sys.float_info.min:
        raise ValueError(f"target_epsilon must be large enough for a rho that float64 can hold, got {target_epsilon}")
    return found


def pure_zcdp(*, epsilon: float) -> float:
    """Return a ρ such that every ε-DP mechanism is ρ-zCDP: ``ε² / 2``, under the same neighbour relation.

    Parameters
    ----------
    epsilon : float
        ε ≥ 0 of a pure guarantee.

    Returns
    -------
    float
        ρ, rounded up; `inf` where it leaves float64. The decimal that it prints as is not below ρ either, so a ledger
        that is given the float records enough.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    Bun, Steinke (2016), Prop. 1.4.

    Examples
    --------
    >>> round(pure_zcdp(epsilon=0.1), 12)
    0.005
    """
    eps = _validate.non_negative(epsilon=epsilon)
    return _zcdp.spendable(Fraction(eps) ** 2 / 2)


def gaussian_zcdp(*, sigma: float, sensitivity: float) -> float:
    """Return the ρ of Gaussian noise, ``Δ² / (2 σ²)``, under the neighbour relation of the sensitivity.

    Parameters
    ----------
    sigma : float
        Standard deviation > 0.
    sensitivity : float
        L2 sensitivity ≥ 0.

    Returns
    -------
    float
        ρ, rounded up as a float and as the decimal that it prints as.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, or ρ leaves float64.

    References
    ----------
    Bun, Steinke (2016), Prop. 1.6.

    Examples
    --------
    >>> round(gaussian_zcdp(sigma=10.0, sensitivity=1.0), 12)
    0.005
    """
    s, size = _validate.positive(sigma=sigma), _validate.non_negative(sensitivity=sensitivity)
    ratio = size / s
    if ratio > 1e150:
        raise ValueError(f"sigma must be above sensitivity / 1e150, got {sigma} for {sensitivity=}")
    return _zcdp.spendable((Fraction(size) / Fraction(s)) ** 2 / 2)
