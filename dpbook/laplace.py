"""The Laplace mechanism: pure ε-differential privacy for numbers, and its discrete twin for counts.

A query with L1 sensitivity Δ, released with Laplace noise of scale Δ/ε, is ε-DP (Dwork, McSherry, Nissim and Smith,
2006, Prop. 1), under the neighbour relation for which Δ was computed (`dpbook.sensitivity`). The noise is exact
(`dpbook.noise`), and the scale is rounded up.
"""

import functools
import math
from fractions import Fraction
from typing import Any

import numpy as np

from dpbook import _validate, noise
from dpbook._exact import precise, ratio_up, up
from dpbook._validate import FloatArray


def naive_laplace_mechanism(true_value: Any, epsilon: float, sensitivity: float, rng: np.random.Generator) -> Any:
    """Add floating-point Laplace noise: the textbook version, for teaching only; NOT private.

    It is the mechanism on paper, but the doubles that can come out of the sum depend on the true value, and one
    release can tell neighbouring datasets apart. Use `laplace_mechanism` on real data.

    Examples
    --------
    >>> import numpy as np
    >>> naive_laplace_mechanism(np.zeros(2), 1.0, 1.0, np.random.default_rng(0)).shape
    (2,)
    """
    scale = sensitivity / epsilon
    return true_value + rng.laplace(0.0, scale, size=np.shape(true_value))


def laplace_mechanism(
    true_value: Any, epsilon: float, sensitivity: float, *, rng: np.random.Generator | None = None
) -> Any:
    """Release a number or an array with ε-differential privacy, under the relation that the sensitivity is for.

    Independent Laplace noise of scale ``sensitivity / epsilon`` is added to every entry, and the result is rounded to
    the public grid of that scale. For an array, `sensitivity` is the L1 sensitivity of the *whole* array.

    Parameters
    ----------
    true_value : float or array_like
        The exact answer, finite, of any shape, clipped beforehand so that the sensitivity holds. Left untouched.
    epsilon : float
        Privacy parameter ε > 0 of this release.
    sensitivity : float
        L1 sensitivity Δ₁ ≥ 0 in the unit of the value: the most by which one person can change it, summed over entries.
        With 0 the value depends on nobody's data, and it is returned as it is.
    rng : numpy.random.Generator, optional
        None (the default) draws from the operating system's entropy. A seeded release is NOT private.

    Returns
    -------
    float or numpy.ndarray
        Same shape as `true_value`, float64; a Python float for a scalar.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, before the value is looked at; when ``sensitivity / epsilon``, the scale, is
        outside 2**-900 to 2**900; or when the value is not finite.

    See Also
    --------
    discrete_laplace_mechanism : for counts.
    laplace_error : how far the release may be off.

    References
    ----------
    Dwork, McSherry, Nissim, Smith (2006), Calibrating noise to sensitivity in private data analysis, Prop. 1.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(7)  # seeded: not private
    >>> isinstance(laplace_mechanism(36.2, epsilon=0.5, sensitivity=1.0, rng=rng), float)
    True
    """
    scale = laplace_scale(epsilon=epsilon, sensitivity=sensitivity)
    if scale == 0.0:
        _validate.generator(rng)
        return _unchanged(true_value=true_value)
    return noise.add_laplace(true_value, scale=scale, rng=rng)


def _unchanged(**parameter: Any) -> Any:
    (given,) = parameter.values()
    values = _validate.finite_values(**parameter)
    return _validate.as_given(given, values.copy())


def discrete_laplace_mechanism(
    true_value: Any, *, epsilon: float, sensitivity: int, rng: np.random.Generator | None = None
) -> Any:
    """Release an integer or integers with ε-DP, under the neighbour relation that the sensitivity was computed for.

    The noise Z is an integer with ``P(Z = z)`` proportional to ``exp(-|z| * epsilon / sensitivity)``: the geometric
    mechanism, not a rounded Laplace. It is the right choice for counts and histograms.

    Parameters
    ----------
    true_value : int or array_like of int
        The exact count or counts, of any shape. Left untouched.
    epsilon : float
        Privacy parameter ε > 0 of this release.
    sensitivity : int
        L1 sensitivity of the whole array, a whole number ≥ 0; with 0 the value is returned as it is.
    rng : numpy.random.Generator, optional
        None (the default) draws from the operating system's entropy. A seeded release is NOT private.

    Returns
    -------
    int or numpy.ndarray of int64
        Same shape as `true_value`. A scalar gives a Python int; an array saturates at the ends of int64.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, before the value is looked at; when ``sensitivity / epsilon``, the scale, is
        above 2**40; or when the value is not an integer.

    References
    ----------
    Ghosh, Roughgarden, Sundararajan (2009), Universally utility-maximizing privacy mechanisms, Sec. 2.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)  # seeded: not private
    >>> discrete_laplace_mechanism(np.array([120, 45, 3]), epsilon=1.0, sensitivity=1, rng=rng).dtype
    dtype('int64')
    """
    scale = laplace_scale(epsilon=epsilon, sensitivity=float(_validate.integer(0, sensitivity=sensitivity)))
    if scale == 0.0:
        _validate.generator(rng)
        if _validate.is_integer(true_value):
            return int(true_value)
        return _validate.integer_values(true_value=true_value)
    return noise.add_discrete_laplace(true_value, scale=scale, rng=rng)


def laplace_scale(*, epsilon: float, sensitivity: float) -> float:
    """Return the scale ``sensitivity / epsilon`` that gives ε-DP, rounded up to float64.

    Parameters
    ----------
    epsilon : float
        Privacy parameter ε > 0.
    sensitivity : float
        L1 sensitivity ≥ 0, under the neighbour relation of the claim.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, or the scale leaves float64.

    References
    ----------
    Dwork, McSherry, Nissim, Smith (2006), Prop. 1.

    Examples
    --------
    >>> laplace_scale(epsilon=0.5, sensitivity=1.0)
    2.0
    """
    if not type(epsilon) is type(sensitivity) is float:  # to a cache, True and 1.0 are one key
        epsilon, sensitivity = _validate.positive(epsilon=epsilon), _validate.non_negative(sensitivity=sensitivity)
    return _scale(epsilon, sensitivity)


@functools.lru_cache(maxsize=1024)
def _scale(epsilon: float, sensitivity: float) -> float:
    scale = ratio_up(_validate.non_negative(sensitivity=sensitivity), _validate.positive(epsilon=epsilon))
    if scale == math.inf:
        raise ValueError(f"sensitivity / epsilon must be a float64, got {sensitivity} / {epsilon}")
    return scale


def laplace_delta(*, scale: float, sensitivity: float, epsilon: float) -> float:
    """Return the smallest δ for which one number with Laplace noise is (ε, δ)-DP: zero from ε = Δ/b on.

    ``1 - exp((epsilon - sensitivity / scale) / 2)`` below. Exact for a scalar query;
    for a vector it would be too small.

    Parameters
    ----------
    scale : float
        Scale b > 0 of the noise.
    sensitivity : float
        Sensitivity Δ ≥ 0 of the scalar query, under the neighbour relation of the claim.
    epsilon : float
        ε ≥ 0 at which δ is asked.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    Balle, Barthe, Gaboardi (2018), Privacy amplification by subsampling, Thm. 3.

    Examples
    --------
    >>> round(laplace_delta(scale=1.0, sensitivity=1.0, epsilon=0.0), 8)
    0.39346934
    """
    b = _validate.positive(scale=scale)
    loss = ratio_up(_validate.non_negative(sensitivity=sensitivity), b)
    gap = loss - _validate.non_negative(epsilon=epsilon)
    return min(1.0, max(-math.expm1(-gap / 2) * (1 + 2.0**-50), math.ulp(0.0))) if gap > 0 else 0.0


def laplace_epsilon(*, scale: float, sensitivity: float, delta: float = 0.0) -> float:
    """Return the smallest ε for which one number with Laplace noise is (ε, δ)-DP; never too small.

    ``sensitivity / scale + 2 * log(1 - delta)``, at least 0. With ``delta=0`` it holds for vectors too, with the L1
    sensitivity; with ``delta > 0`` for a scalar query only.

    Parameters
    ----------
    scale : float
        Scale b > 0 of the noise.
    sensitivity : float
        Sensitivity ≥ 0, under the neighbour relation of the claim.
    delta : float, optional
        δ in [0, 1).

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    The inverse of `laplace_delta`; Balle, Barthe, Gaboardi (2018), Thm. 3.

    Examples
    --------
    >>> laplace_epsilon(scale=2.0, sensitivity=1.0)
    0.5
    """
    b = _validate.positive(scale=scale)
    loss = ratio_up(_validate.non_negative(sensitivity=sensitivity), b)
    d = _validate.half_open_unit(delta=delta)
    return loss if d == 0 else max(0.0, loss + 2 * math.log1p(-d) * (1 - 2.0**-50) + loss * 2.0**-52)


def laplace_error(*, scale: float, alpha: float) -> float:
    """Return the t with ``P(|noise| > t) = alpha``: ``scale * log(1 / alpha)``.

    Parameters
    ----------
    scale : float
        Scale b > 0 of the noise, in the unit of the value.
    alpha : float
        Significance level in (0, 1): 0.05 for a 95 % statement about one entry.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    Notes
    -----
    This is the quantile of the ideal noise. Rounding to the grid moves a release by at most ``scale * 2**-21``.

    References
    ----------
    The Laplace tail, ``P(|noise| > t) = exp(-t / scale)``.

    Examples
    --------
    >>> round(laplace_error(scale=1.0, alpha=0.05), 12)
    2.995732273554
    """
    return _validate.positive(scale=scale) * -math.log(_validate.open_unit(alpha=alpha))


def laplace_scale_for_error(*, error: float, alpha: float) -> float:
    """Return the scale at which ``P(|noise| > error) = alpha``: the inverse of `laplace_error`.

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
    The Laplace tail, ``P(|noise| > t) = exp(-t / scale)``.

    Examples
    --------
    >>> round(laplace_scale_for_error(error=3.0, alpha=0.05), 4)
    1.0014
    """
    return _validate.positive(error=error) / -math.log(_validate.open_unit(alpha=alpha))


def laplace_interval(release: Any, *, scale: float, alpha: float) -> tuple[Any, Any]:
    """Return the interval ``release ± laplace_error``, which holds the exact answer with probability ``1 - alpha``.

    It speaks of the noise alone, entry by entry: bias from clipping and sampling error are not in it. As it is
    computed from a release and public numbers, it costs no privacy (post-processing).

    Parameters
    ----------
    release : float or array_like
        What `laplace_mechanism` returned.
    scale : float
        The scale it used, from `laplace_scale`.
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
    The Laplace tail, ``P(|noise| > t) = exp(-t / scale)``.

    Examples
    --------
    >>> low, high = laplace_interval(13.0, scale=82 / 3, alpha=0.05)
    >>> round(low, 6), round(high, 6)
    (-68.883349, 94.883349)
    """
    t = laplace_error(scale=scale, alpha=alpha)
    values = _unchanged(release=release)
    return values - t, values + t


def discrete_laplace_pmf(k: Any, *, scale: float) -> FloatArray:
    """Return ``P(Z = k) = (1 - q) / (1 + q) * q**|k|`` with ``q = exp(-1 / scale)``.

    Parameters
    ----------
    k : int or array_like of int
        Where to evaluate.
    scale : float
        Scale b > 0.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    Ghosh, Roughgarden, Sundararajan (2009), Sec. 2.

    Examples
    --------
    >>> round(float(discrete_laplace_pmf(0, scale=1.0)), 6)
    0.462117
    """
    b = _validate.positive(scale=scale)
    z = np.abs(_validate.integer_values(k=k).astype(np.float64))
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(math.tanh(0.5 / b) * np.exp(-(z / b)))


def discrete_laplace_error(*, scale: float, alpha: float) -> int:
    """Return the smallest whole t with ``P(|Z| > t) <= alpha`` for discrete Laplace noise.

    Parameters
    ----------
    scale : float
        Scale b > 0 of the noise.
    alpha : float
        Significance level in (0, 1).

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    ``P(|Z| > t) = 2 q**(t + 1) / (1 + q)`` with ``q = exp(-1 / scale)``.

    Examples
    --------
    >>> discrete_laplace_error(scale=1.0, alpha=0.05)
    3
    """
    b = _validate.positive(scale=scale)
    level = _validate.open_unit(alpha=alpha)
    edge = b * (math.log(2) - math.log(level) - math.log1p(math.exp(-1.0 / b)))
    if math.isinf(edge):
        raise ValueError(f"scale must be smaller for the error to be a float64, got {b!r}")
    return max(0, math.ceil(edge * (1 + 2.0**-48) - 1))  # the margin covers the rounding of edge


def discrete_laplace_interval(release: Any, *, scale: float, alpha: float) -> tuple[Any, Any]:
    """Return ``release ± discrete_laplace_error``, which holds the exact count with probability at least ``1 - alpha``.

    It speaks of the noise alone, entry by entry, and costs no privacy (post-processing).

    Parameters
    ----------
    release : int or array_like of int
        What `discrete_laplace_mechanism` returned.
    scale : float
        The scale it used, from `laplace_scale`.
    alpha : float
        Significance level in (0, 1), for each entry.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    See `discrete_laplace_error`.

    Examples
    --------
    >>> discrete_laplace_interval(41, scale=1.0, alpha=0.05)
    (38, 44)
    """
    t = discrete_laplace_error(scale=scale, alpha=alpha)
    if _validate.is_integer(release):
        return int(release) - t, int(release) + t
    values = _validate.integer_values(release=release)
    ends = np.iinfo(np.int64)
    t = min(t, ends.max)
    return np.maximum(values, ends.min + t) - t, np.minimum(values, ends.max - t) + t


def discrete_laplace_delta(*, scale: float, sensitivity: int, epsilon: float) -> float:
    """Return the smallest δ for which one count with discrete Laplace noise is (ε, δ)-DP: zero from ε = Δ/b on.

    Exact for a scalar query; for a vector it would be too small.

    Parameters
    ----------
    scale : float
        Scale b > 0 of the noise.
    sensitivity : int
        Sensitivity Δ ≥ 0 of the count, under the neighbour relation of the claim.
    epsilon : float
        ε ≥ 0 at which δ is asked.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    Notes
    -----
    Let P be centred at 0 and Q at Δ. The loss exceeds ε exactly at k <= m, the largest whole number below
    ``(sensitivity - epsilon * scale) / 2``, so ``delta = P(Z <= m) - exp(epsilon) * P(Z <= m - sensitivity)``.

    References
    ----------
    The hockey-stick divergence, e.g. Balle, Barthe, Gaboardi (2018), Thm. 1.

    Examples
    --------
    >>> round(discrete_laplace_delta(scale=2.0, sensitivity=4, epsilon=0.5), 8)
    0.54202002
    """
    b = _validate.positive(scale=scale)
    whole = _validate.integer(0, sensitivity=sensitivity)
    eps = _validate.non_negative(epsilon=epsilon)
    gap = whole - Fraction(eps) * Fraction(b)
    if gap <= 0:
        return 0.0
    m = math.ceil(gap / 2) - 1
    mp = precise()
    mp.dps = 50
    while True:
        q = mp.exp(-1 / mp.mpf(b))
        at_most_m = 1 - mp.exp(-(m + 1) / mp.mpf(b)) / (1 + q)  # m >= 0
        shifted = mp.exp(eps - (whole - m) / mp.mpf(b)) / (1 + q)
        if at_most_m - shifted > at_most_m * mp.mpf(10) ** (25 - mp.dps):
            return min(1.0, up(at_most_m - shifted))
        mp.dps *= 2  # the two terms cancel: use more digits
