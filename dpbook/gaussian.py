"""The Gaussian mechanism: (ε, δ)-differential privacy, calibrated exactly.

Gaussian noise of standard deviation σ on a query with L2 sensitivity Δ is (ε, δ)-DP exactly when δ is at least

    δ(ε) = Φ(μ/2 - ε/μ) - exp(ε) Φ(-μ/2 - ε/μ),      μ = Δ/σ

(Balle and Wang, 2018, Thm. 8). The functions here evaluate and invert this formula in as many digits as it takes
(`mpmath`) and round to the safe side, so they hold where float64 overflows or cancels.
"""

import functools
import math
from typing import Any

import numpy as np
from scipy import special

from dpbook import _validate, noise
from dpbook._exact import precise, up

LARGEST_EPSILON = 1e10  # beyond, σ comes from a bound that is at most 1e-4 larger
LARGEST_MU = 1e6  # beyond, the formula is replaced by an upper bound that is as good as equal
CALIBRATIONS = ("analytic", "classic")


def naive_gaussian_mechanism(
    true_value: Any, epsilon: float, delta: float, sensitivity: float, rng: np.random.Generator
) -> Any:
    """Add floating-point Gaussian noise with the classic σ: the five-line version, for teaching only; NOT private.

    The doubles that can come out of the sum depend on the true value, and nothing stops an ε at which the formula
    does not hold. Use `gaussian_mechanism` on real data.

    Examples
    --------
    >>> import numpy as np
    >>> naive_gaussian_mechanism(np.zeros(2), 0.5, 1e-5, 1.0, np.random.default_rng(0)).shape
    (2,)
    """
    sigma = np.sqrt(2 * np.log(1.25 / delta)) * sensitivity / epsilon
    return true_value + rng.normal(0.0, sigma, size=np.shape(true_value))


def gaussian_mechanism(
    true_value: Any,
    epsilon: float,
    delta: float,
    sensitivity: float,
    *,
    calibration: str = "analytic",
    rng: np.random.Generator | None = None,
) -> Any:
    """Release a number or an array with (ε, δ)-DP, under the neighbour relation that the sensitivity was computed for.

    Independent Gaussian noise of standard deviation ``gaussian_sigma(...)`` is added to every entry, and the result
    is rounded to the public grid of that σ. For an array, `sensitivity` is the L2 sensitivity of the *whole* array.

    Parameters
    ----------
    true_value : float or array_like
        The exact answer, finite, of any shape, clipped beforehand so that the sensitivity holds. Left untouched.
    epsilon : float
        Privacy parameter ε > 0 of this release.
    delta : float
        Privacy parameter δ in (0, 1); it should be far below one over the number of people.
    sensitivity : float
        L2 sensitivity Δ₂ ≥ 0 in the unit of the value: the largest Euclidean distance that one person can move it.
        With 0 the value depends on nobody's data, and it is returned as it is.
    calibration : {"analytic", "classic"}, optional
        See `gaussian_sigma`. "classic" is there for teaching: it refuses ε ≥ 1 and adds more noise than needed.
    rng : numpy.random.Generator, optional
        None (the default) draws from the operating system's entropy. A seeded release is NOT private.

    Returns
    -------
    float or numpy.ndarray
        Same shape as `true_value`, float64; a Python float for a scalar.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, before the value is looked at; or when the value is not finite.

    References
    ----------
    Balle, Wang (2018), Improving the Gaussian mechanism for differential privacy, Thm. 8 and Alg. 1.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(7)  # seeded: not private
    >>> gaussian_mechanism(np.zeros(4), epsilon=1.0, delta=1e-6, sensitivity=1.0, rng=rng).shape
    (4,)
    """
    sigma = gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=sensitivity, calibration=calibration)
    if sigma == 0.0:
        _validate.generator(rng)
        return _validate.as_given(true_value, _validate.finite_values(true_value=true_value).copy())
    return noise.add_gaussian(true_value, sigma=sigma, rng=rng)


def gaussian_sigma(*, epsilon: float, delta: float, sensitivity: float, calibration: str = "analytic") -> float:
    """Return the standard deviation that gives (ε, δ)-DP: the smallest one, rounded up to float64.

    Parameters
    ----------
    epsilon : float
        Privacy parameter ε > 0.
    delta : float
        Privacy parameter δ in (0, 1).
    sensitivity : float
        L2 sensitivity ≥ 0, under the neighbour relation of the claim.
    calibration : {"analytic", "classic"}, optional
        "analytic" inverts the exact formula and holds for every ε (beyond 1e10 with a bound, 1e-4 larger at most).
        "classic" is ``sqrt(2 ln(1.25/δ)) Δ / ε``, proven for ε < 1 only, wasteful there, and too small for large ε; it
        refuses ε ≥ 1.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    Balle, Wang (2018), Thm. 8; classic: Dwork, Roth (2014), Thm. A.1.

    Examples
    --------
    >>> round(gaussian_sigma(epsilon=1.0, delta=1e-5, sensitivity=1.0), 12)
    3.730631634816
    """
    if not (type(epsilon) is type(delta) is type(sensitivity) is float and type(calibration) is str):
        epsilon, delta = _validate.positive(epsilon=epsilon), _validate.open_unit(delta=delta)
        sensitivity = _validate.non_negative(sensitivity=sensitivity)
        calibration = _validate.choice(CALIBRATIONS, calibration=calibration)
    return _sigma(epsilon, delta, sensitivity, calibration)


@functools.lru_cache(maxsize=1024)
def _sigma(epsilon: float, delta: float, sensitivity: float, calibration: str) -> float:
    eps, d = _validate.positive(epsilon=epsilon), _validate.open_unit(delta=delta)
    size = _validate.non_negative(sensitivity=sensitivity)
    _validate.choice(CALIBRATIONS, calibration=calibration)
    if calibration == "classic" and eps >= 1.0:
        raise ValueError(
            f"epsilon must be below 1 for the classic formula, got {epsilon!r}: its proof needs that, and for large "
            'epsilon the sigma it gives is too small; use calibration="analytic"'
        )
    if size == 0:
        return 0.0
    mp = precise()
    if calibration == "classic":
        mp.dps = 40
        exact = mp.sqrt(2 * mp.log(mp.mpf(1.25) / d)) * size / eps
    else:
        exact = size / _largest_mu(eps, d)
    sigma = up(exact)
    if not 0 < sigma < math.inf:
        raise ValueError(f"sigma must be a float64, which fails for {epsilon=}, {delta=}, {sensitivity=}")
    return sigma


def _profile(mp: Any, mu: Any, epsilon: Any) -> Any:
    """Return δ(ε) of Gaussian noise at μ = Δ/σ to at least 25 digits; `mp` keeps the precision it took."""
    while True:
        first = mp.erfc((epsilon / mu - mu / 2) / mp.sqrt(2))
        second = mp.exp(epsilon) * mp.erfc((epsilon / mu + mu / 2) / mp.sqrt(2))
        if first - second > first * mp.mpf(10) ** (25 - mp.dps):
            return (first - second) / 2
        mp.dps *= 2  # the two terms cancel: use more digits


def _largest_mu(epsilon: float, delta: float) -> Any:
    """Return the μ with δ(ε) = δ, to at least 25 digits. δ grows with μ, with derivative φ(μ/2 - ε/μ)."""
    mp = precise()
    mp.dps = 50
    eps, target = mp.mpf(epsilon), mp.mpf(delta)
    # μ²/2-zCDP implies (μ²/2 + μ sqrt(2 ln(1/δ)), δ)-DP, and δ(ε) <= δ(0) <= μ / sqrt(2π): two μ that are surely safe.
    log = -mp.log(target)
    low = max(mp.sqrt(2) * (mp.sqrt(log + eps) - mp.sqrt(log)), target * mp.sqrt(2 * mp.pi))
    if eps > LARGEST_EPSILON:
        return low
    high = 2 * low
    while _profile(mp, high, eps) < target:
        low, high = high, 2 * high
    mu = mp.sqrt(low * high)
    while True:  # Newton on ln δ, inside a bracket
        value = _profile(mp, mu, eps)
        low, high = (mu, high) if value < target else (low, mu)
        step = mp.log(target / value) * value / mp.npdf(mu / 2 - eps / mu)
        if abs(step) < mu * mp.mpf(10) ** -35:
            return mu
        mu = mu + step if low < mu + step < high else (low + high) / 2
        if high - low < high * mp.mpf(10) ** -40:
            return low


def gaussian_delta(*, sigma: float, sensitivity: float, epsilon: float) -> float:
    """Return the smallest δ for which Gaussian noise is (ε, δ)-DP, rounded up to float64.

    Parameters
    ----------
    sigma : float
        Standard deviation > 0 of the noise, the same for every entry.
    sensitivity : float
        L2 sensitivity ≥ 0, under the neighbour relation of the claim.
    epsilon : float
        ε ≥ 0 at which δ is asked.

    Returns
    -------
    float
        δ in [0, 1]. Beyond ``sensitivity / sigma = 1e6`` an upper bound; where the true δ is below the smallest
        float64, that smallest one.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    Balle, Wang (2018), Thm. 8.

    Examples
    --------
    >>> round(gaussian_delta(sigma=1.0, sensitivity=1.0, epsilon=1.0), 12)
    0.126936737507
    """
    s, eps = _validate.positive(sigma=sigma), _validate.non_negative(epsilon=epsilon)
    size = _validate.non_negative(sensitivity=sensitivity)
    return _delta(s, size, eps) if size else 0.0


@functools.lru_cache(maxsize=4096)
def _delta(sigma: float, sensitivity: float, epsilon: float) -> float:
    mp = precise()
    mp.dps = 50
    mu, eps = mp.mpf(sensitivity) / sigma, mp.mpf(epsilon)
    # log δ < -(ε/μ - μ/2)²/2: below the smallest float64, which is then the safe answer.
    if eps > mu * mu / 2 and (eps / mu - mu / 2) ** 2 / 2 > 750:
        return math.ulp(0.0)
    if mu > LARGEST_MU:  # leave out the term that is subtracted
        return min(1.0, up(mp.erfc((eps / mu - mu / 2) / mp.sqrt(2)) / 2))
    return min(1.0, up(_profile(mp, mu, eps)))


def gaussian_epsilon(*, sigma: float, sensitivity: float, delta: float) -> float:
    """Return the smallest ε for which Gaussian noise is (ε, δ)-DP, rounded up to float64.

    Parameters
    ----------
    sigma : float
        Standard deviation > 0 of the noise, the same for every entry.
    sensitivity : float
        L2 sensitivity ≥ 0, under the neighbour relation of the claim.
    delta : float
        δ in (0, 1). With δ = 0 no ε is finite.

    Returns
    -------
    float
        ε ≥ 0; beyond ``sensitivity / sigma = 1e6`` the upper bound ``ρ + 2 sqrt(ρ ln(1/δ))`` with ``ρ = Δ²/2σ²``, and
        ``inf`` where that leaves float64.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    Balle, Wang (2018), Thm. 8; the bound: Bun, Steinke (2016), Prop. 1.3.

    Examples
    --------
    >>> round(gaussian_epsilon(sigma=1.0, sensitivity=1.0, delta=1e-5), 12)
    4.377178095681
    """
    s, d = _validate.positive(sigma=sigma), _validate.open_unit(delta=delta)
    size = _validate.non_negative(sensitivity=sensitivity)
    return _epsilon(s, size, d) if size else 0.0


@functools.lru_cache(maxsize=4096)
def _epsilon(sigma: float, sensitivity: float, delta: float) -> float:
    mp = precise()
    mp.dps = 50
    mu, target = mp.mpf(sensitivity) / sigma, mp.mpf(delta)
    rho = mu * mu / 2
    high = rho + 2 * mp.sqrt(rho * -mp.log(target))
    if mu > LARGEST_MU:
        return up(high)
    low = mp.mpf(0)
    if _profile(mp, mu, low) <= target:
        return 0.0
    eps = (low + high) / 2
    while True:  # Newton on ln δ, inside a bracket; dδ/dε = -exp(ε) Φ(-ε/μ - μ/2)
        value = _profile(mp, mu, eps)
        low, high = (eps, high) if value > target else (low, eps)
        slope = mp.exp(eps) * mp.erfc((eps / mu + mu / 2) / mp.sqrt(2)) / 2
        step = mp.log(value / target) * value / slope
        if abs(step) < eps * mp.mpf(10) ** -30 or high - low < high * mp.mpf(10) ** -35:
            return up(max(eps, eps + step))
        eps = eps + step if low < eps + step < high else (low + high) / 2


def gaussian_error(*, sigma: float, alpha: float) -> float:
    """Return the t with ``P(|noise| > t) = alpha``.

    Parameters
    ----------
    sigma : float
        Standard deviation > 0 of the noise, in the unit of the value.
    alpha : float
        Significance level in (0, 1): 0.05 for a 95 % statement about one entry.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    Notes
    -----
    This is the quantile of the ideal noise. Rounding to the grid moves a release by at most ``sigma * 2**-21``.

    References
    ----------
    The normal tail, ``P(|noise| > t) = 2 Φ(-t / sigma)``.

    Examples
    --------
    >>> round(gaussian_error(sigma=1.0, alpha=0.05), 12)
    1.95996398454
    """
    level = _validate.open_unit(alpha=alpha)
    quantile = special.ndtri(level / 2) if level > 1e-300 else special.ndtri_exp(math.log(level) - math.log(2))
    return _validate.positive(sigma=sigma) * -float(quantile)


def gaussian_sigma_for_error(*, error: float, alpha: float) -> float:
    """Return the σ at which ``P(|noise| > error) = alpha``: the inverse of `gaussian_error`.

    Parameters
    ----------
    error : float
        Wanted bound on the error, in the unit of the value.
    alpha : float
        Significance level in (0, 1).

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    The normal tail, ``P(|noise| > t) = 2 Φ(-t / sigma)``.

    Examples
    --------
    >>> round(gaussian_sigma_for_error(error=1.96, alpha=0.05), 4)
    1.0
    """
    return _validate.positive(error=error) / gaussian_error(sigma=1.0, alpha=alpha)


def gaussian_interval(release: Any, *, sigma: float, alpha: float) -> tuple[Any, Any]:
    """Return the interval ``release ± gaussian_error``, which holds the exact answer with probability ``1 - alpha``.

    It speaks of the noise alone, entry by entry: bias from clipping and sampling error are not in it. As it is
    computed from a release and public numbers, it costs no privacy (post-processing).

    Parameters
    ----------
    release : float or array_like
        What `gaussian_mechanism` returned.
    sigma : float
        The standard deviation it used, from `gaussian_sigma`.
    alpha : float
        Significance level in (0, 1), for each entry.

    Returns
    -------
    tuple of (float or numpy.ndarray)
        Lower and upper ends, in the shape of `release`.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    The normal tail, ``P(|noise| > t) = 2 Φ(-t / sigma)``.

    Examples
    --------
    >>> low, high = gaussian_interval(21.0, sigma=1.0, alpha=0.05)
    >>> round(low, 6), round(high, 6)
    (19.040036, 22.959964)
    """
    t = gaussian_error(sigma=sigma, alpha=alpha)
    values = _validate.as_given(release, _validate.finite_values(release=release))
    return values - t, values + t
