"""Choosing parameters: from a wanted accuracy to ε, and from an ε to the least error.

All of it is arithmetic on public numbers. Nothing here may be given the private data: a parameter tuned on the data
is itself a release.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dpbook import _validate
from dpbook._exact import ratio_up
from dpbook._validate import FloatArray
from dpbook.gaussian import gaussian_epsilon, gaussian_error, gaussian_sigma, gaussian_sigma_for_error
from dpbook.laplace import (
    discrete_laplace_error,
    laplace_epsilon,
    laplace_error,
    laplace_scale,
    laplace_scale_for_error,
)

MECHANISMS = ("laplace", "discrete_laplace", "gaussian")


def _mechanism(mechanism: Any, delta: Any) -> str:
    kind = _validate.choice(MECHANISMS, mechanism=mechanism)
    if kind == "gaussian":
        if delta is None:
            raise TypeError("delta must be given for the gaussian mechanism, got None")
        _validate.open_unit(delta=delta)
    elif delta is not None:
        raise ValueError(f"delta must be left out for {kind}, which is pure epsilon-DP, got {_validate.shown(delta)}")
    return kind


def epsilon_for_error(
    *, error: float, alpha: float, sensitivity: float, mechanism: str = "laplace", delta: float | None = None
) -> float:
    """Return the smallest ε whose noise stays within `error` with probability ``1 - alpha``, for one entry.

    The release at that ε is ε-DP (Laplace) or (ε, δ)-DP (Gaussian) under the relation of the sensitivity.

    Parameters
    ----------
    error : float
        Wanted bound on the noise, in the unit of the value.
    alpha : float
        Significance level in (0, 1).
    sensitivity : float
        L1 sensitivity (Laplace) or L2 sensitivity (Gaussian), > 0; a whole number for "discrete_laplace".
    mechanism : {"laplace", "discrete_laplace", "gaussian"}, optional
        Which noise is added.
    delta : float, optional
        δ in (0, 1), for "gaussian" only.

    Returns
    -------
    float
        ε > 0, or 0.0 where for Gaussian noise δ alone is enough: then every ε > 0 does.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    The noise quantiles of `dpbook.laplace` and `dpbook.gaussian`, inverted.

    Examples
    --------
    >>> round(epsilon_for_error(error=10, alpha=0.05, sensitivity=1), 6)
    0.299573
    """
    kind = _mechanism(mechanism, delta)
    wanted, level = _validate.positive(error=error), _validate.open_unit(alpha=alpha)
    if kind == "laplace":
        scale = laplace_scale_for_error(error=wanted, alpha=level)
        return laplace_epsilon(scale=scale, sensitivity=_validate.positive(sensitivity=sensitivity))
    if kind == "gaussian":
        size = _validate.positive(sensitivity=sensitivity)
        sigma = gaussian_sigma_for_error(error=wanted, alpha=level)
        return gaussian_epsilon(sigma=sigma, sensitivity=size, delta=delta if delta is not None else math.nan)
    whole = _validate.integer(sensitivity=sensitivity)
    low, high = 2.0**-40, 2.0**40  # scales; the error grows with the scale
    for _ in range(100):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if discrete_laplace_error(scale=middle, alpha=level) <= wanted else (low, middle)
    return ratio_up(float(whole), low)


def error_curve(
    *, epsilon: Any, sensitivity: Any, alpha: float, mechanism: str = "laplace", delta: float | None = None
) -> FloatArray:
    """Return the error that noise stays within with probability ``1 - alpha``, over arrays of ε and of sensitivity.

    For a mean over n people under replace-one, ``sensitivity = (upper - lower) / n`` gives the curve over n.

    Parameters
    ----------
    epsilon, sensitivity : float or array_like
        Broadcast against each other; every entry > 0.
    alpha : float
        Significance level in (0, 1).
    mechanism : {"laplace", "discrete_laplace", "gaussian"}, optional
        Which noise is added.
    delta : float, optional
        δ in (0, 1), for "gaussian" only.

    Returns
    -------
    numpy.ndarray of float64
        In the broadcast shape, in the unit of the value.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    The noise quantiles of `dpbook.laplace` and `dpbook.gaussian`.

    Examples
    --------
    >>> error_curve(epsilon=[0.1, 1.0], sensitivity=1.0, alpha=0.05).round(3)
    array([29.957,  2.996])
    """
    kind = _mechanism(mechanism, delta)
    level = _validate.open_unit(alpha=alpha)
    try:
        grid = np.broadcast(_validate.finite_array(epsilon=epsilon), _validate.finite_array(sensitivity=sensitivity))
    except ValueError as error:
        if "broadcast" in str(error):
            shapes = f"{np.shape(epsilon)} and {np.shape(sensitivity)}"
            raise ValueError(f"epsilon and sensitivity must have shapes that broadcast, got {shapes}") from None
        raise

    def one(eps: float, size: float) -> float:
        _validate.integer(sensitivity=size) if kind == "discrete_laplace" else _validate.positive(sensitivity=size)
        if kind == "gaussian":
            sigma = gaussian_sigma(epsilon=eps, delta=delta if delta is not None else math.nan, sensitivity=size)
            return gaussian_error(sigma=sigma, alpha=level)
        scale = laplace_scale(epsilon=eps, sensitivity=size)
        return (discrete_laplace_error if kind == "discrete_laplace" else laplace_error)(scale=scale, alpha=level)

    return np.array([one(float(e), float(s)) for e, s in grid], dtype=np.float64).reshape(grid.shape)


@dataclass(frozen=True, eq=False)
class ClippingChoice:
    """The upper clipping bound of least error, and the error over all candidates (root mean squares, of a mean)."""

    bound: float
    error: float
    candidates: FloatArray
    bias: FloatArray
    noise: FloatArray

    @property
    def total(self) -> FloatArray:
        """Root mean squared error for each candidate, from bias and noise together."""
        return np.hypot(self.bias, self.noise)

    def __repr__(self) -> str:
        return f"ClippingChoice(bound={self.bound:g}, error={self.error:.4g}, {len(self.candidates)} candidates)"


def clipping_bound(
    public_sample: Any, *, n: int, epsilon: float, lower: float = 0.0, candidates: Any = None
) -> ClippingChoice:
    """Return the upper bound that balances clipping bias against Laplace noise, for a mean under replace-one.

    A low bound cuts off the tail (bias); a high one needs more noise. The balance is computed on a *public* sample:
    last year's published table, a census, a guess. On the private data it would be an unpaid release.

    Parameters
    ----------
    public_sample : array_like
        One-dimensional public values that resemble the private ones. NaN and values that are no numbers are left out.
    n : int
        Public number of people in the private data.
    epsilon : float
        ε of the planned release.
    lower : float, optional
        The lower clipping bound.
    candidates : array_like, optional
        Upper bounds to try, all above `lower`; by default 200 quantiles of the sample and 200
        points in geometric steps up to its maximum.

    Returns
    -------
    ClippingChoice
        The best bound with its error, and the two parts of the error for every candidate.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, or the sample has no value above `lower`.

    References
    ----------
    Amin, Kulesza, Munoz, Vassilvitskii (2019), Bounding user contributions: a bias-variance trade-off in differential
    privacy.

    Examples
    --------
    >>> import numpy as np
    >>> choice = clipping_bound(np.arange(101), n=1000, epsilon=1.0)
    >>> 90 < choice.bound <= 100
    True
    """
    size, eps = _validate.integer(n=n), _validate.positive(epsilon=epsilon)
    low = _validate.finite(lower=lower)
    sample = _validate.records(public_sample=public_sample)
    sample = np.maximum(sample[np.isfinite(sample)], low)
    if not (sample > low).any():
        raise ValueError(f"public_sample must have a value above lower={low}")
    if candidates is None:
        quantiles = np.quantile(sample, np.linspace(0.0, 1.0, 200))
        gaps = low + np.geomspace(2.0**-10, 1.0, 200) * (np.max(sample) - low)  # a long tail has few quantiles
        tries = np.unique(np.concatenate([quantiles, gaps]))
        tries = tries[tries > low]
    else:
        tries = np.unique(_validate.finite_array(candidates=candidates))
        if not len(tries) or tries[0] <= low:
            raise ValueError(f"candidates must all lie above lower={low}")
    bias = np.array([sample.mean() - np.minimum(sample, upper).mean() for upper in tries])
    noise = np.array([math.sqrt(2) * laplace_scale(epsilon=eps, sensitivity=(upper - low) / size) for upper in tries])
    best = int(np.argmin(np.hypot(bias, noise)))
    return ClippingChoice(float(tries[best]), float(np.hypot(bias, noise)[best]), tries, bias, noise)


def split_budget(*, epsilon: float, sum_sensitivity: float, expected_mean: float) -> tuple[float, float]:
    """Return ``(epsilon_sum, epsilon_count)`` that minimise the error of a mean released as noisy sum / noisy count.

    Both releases together are ε-DP by basic composition, under the relation of their sensitivities: the two parts add
    up to no more than `epsilon`, in exact arithmetic. The expected mean is a public guess: it moves the error, never
    the guarantee.

    Parameters
    ----------
    epsilon : float
        ε > 0 for both releases together.
    sum_sensitivity : float
        Sensitivity > 0 of the clipped sum; the count has 1.
    expected_mean : float
        A public guess of the mean, in the unit of the records.

    Returns
    -------
    tuple of float
        ε for the sum and ε for the count.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    Notes
    -----
    To first order the variance of ``(S + X) / (N + Y)`` is ``(Var X + mean² Var Y) / N²``, with ``Var X = 2 (Δ/ε_S)²``
    and ``Var Y = 2 / ε_N²``. Its minimum has ``ε_S : ε_N = Δ^(2/3) : |mean|^(2/3)``. Each part
    gets at least 1 % of the budget, whatever the guess.
    `dpbook.queries.private_mean` releases two other numbers, which need no division of ε: it has less error unless the
    mean is known beforehand to lie near the middle of the bounds.

    References
    ----------
    The delta method, and a Lagrange multiplier for ``ε_S + ε_N = ε``.

    Examples
    --------
    >>> tuple(round(part, 3) for part in split_budget(epsilon=1.0, sum_sensitivity=100, expected_mean=40))
    (0.648, 0.352)
    """
    total, size = _validate.positive(epsilon=epsilon), _validate.positive(sum_sensitivity=sum_sensitivity)
    mean = abs(_validate.finite(expected_mean=expected_mean))
    share = max(0.01, 1 / (1 + (size / mean) ** (2 / 3)) if mean else 0.0)
    count = total * min(share, 0.99)
    rest = total - count
    while Fraction(rest) + Fraction(count) > Fraction(total):
        rest = math.nextafter(rest, 0.0)
    return rest, count
