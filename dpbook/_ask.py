"""What the everyday questions share: their checked parameters, the rows that count, and the noise of counts."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from dpbook import _validate, noise
from dpbook._validate import IntArray
from dpbook.gaussian import gaussian_error, gaussian_sigma
from dpbook.laplace import discrete_laplace_error, laplace_error, laplace_scale
from dpbook.release import Release
from dpbook.sensitivity import keep_rows

LARGEST_COUNT = 2**29  # records: beyond, a sum of levels would leave the exact part of float64


@dataclass(frozen=True)
class Ask:
    """The checked parameters that all queries share."""

    epsilon: float
    delta: float | None
    neighbors: str
    alpha: float
    max_rows: int | None
    rng: np.random.Generator | None

    @property
    def kind(self) -> str:
        return "laplace" if self.delta is None else "gaussian"

    @property
    def norm(self) -> str:
        return "l1" if self.delta is None else "l2"

    def size(self, sensitivity: float, whole: bool = False) -> float:
        """Return the scale of the noise; refuse an ε for which no noise of that size can be drawn."""
        if self.delta is None:
            exact = Fraction(sensitivity) / Fraction(self.epsilon)
            least, most = (0.0, noise.LARGEST_INTEGER_SCALE) if whole else (2.0**-900, 2.0**900)
            if exact and not least <= exact <= most:
                change = "larger" if exact > most else "smaller"
                raise ValueError(f"epsilon must be {change} for noise that can be drawn, got {self.epsilon!r}")
            return laplace_scale(epsilon=self.epsilon, sensitivity=sensitivity)
        return gaussian_sigma(epsilon=self.epsilon, delta=self.delta, sensitivity=sensitivity)

    def add(self, value: Any, scale: float) -> Any:
        if scale == 0.0:
            return value
        if self.delta is None:
            return noise.add_laplace(value, scale=scale, rng=self.rng)
        return noise.add_gaussian(value, sigma=scale, rng=self.rng)

    def error(self, scale: float, alpha: float | None = None) -> float:
        """Return the t that the noise passes with probability alpha, with room for the rounding to the grid."""
        level = self.alpha if alpha is None else alpha
        if scale == 0.0:
            return 0.0
        if self.delta is None:
            return laplace_error(scale=scale, alpha=level) + scale * 2.0**-20
        return gaussian_error(sigma=scale, alpha=level) + scale * 2.0**-20

    def release(self, query: str, value: Any, interval: Any, scale: float, **more: Any) -> Release:
        return Release(
            query,
            value,
            interval,
            self.alpha,
            scale,
            self.epsilon,
            0.0 if self.delta is None else self.delta,
            self.neighbors,
            more.pop("mechanism", self.kind),
            **more,
        )


def checked(epsilon: Any, delta: Any, neighbors: Any, alpha: Any, person: Any, max_contributions: Any, rng: Any) -> Ask:
    eps = _validate.positive(epsilon=epsilon)
    d = None if delta is None else _validate.open_unit(delta=delta)
    relation, level = _validate.neighbors(neighbors), _validate.open_unit(alpha=alpha)
    rows = None if max_contributions is None else _validate.integer(max_contributions=max_contributions)
    if (rows is None) != (person is None):
        raise ValueError(
            "max_contributions and person must be given together: the most rows of one person, and who each row is "
            f"from; got max_contributions={_validate.shown(max_contributions)}"
        )
    _validate.generator(rng)
    return Ask(eps, d, relation, level, rows, rng)


def column(values: Any, person: Any, ask: Ask) -> npt.NDArray[Any]:
    """Return the records, only the first `max_contributions` of each person."""
    column = _validate.column(values=values)
    if person is not None:
        column = column[kept_rows(person, len(column), ask)]
    if len(column) > LARGEST_COUNT:
        raise ValueError("values must have at most 2**29 records")
    return column


def kept_rows(person: Any, length: int, ask: Ask) -> npt.NDArray[np.bool_]:
    assert ask.max_rows is not None
    mask = keep_rows(person, max_rows=ask.max_rows)
    if len(mask) != length:
        raise ValueError("values and person must have the same length")
    return mask


def entries(values: Any) -> Any:
    """Return a column of anything: only its length matters."""
    if isinstance(values, (list, tuple, range)):
        return values
    if isinstance(values, np.ma.MaskedArray) or not hasattr(values, "__array__"):
        return _validate.column(values=values)
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"values must be one-dimensional data, got {array.ndim} dimensions")
    return array


def between(low: Any, high: Any, least: float, most: float) -> tuple[Any, Any]:
    return min(max(low, least), most), min(max(high, least), most)


def noisy_counts(counts: IntArray, ask: Ask, scale: float) -> tuple[Any, tuple[Any, Any], str]:
    """Return counts with noise, clamped at 0, with their intervals, and the mechanism."""
    if ask.delta is None:
        noisy: Any = noise.add_discrete_laplace(counts, scale=scale, rng=ask.rng)
        error: Any = min(discrete_laplace_error(scale=scale, alpha=ask.alpha), 2**62)
        kind = "discrete_laplace"
    else:
        noisy = ask.add(counts, scale)
        error, kind = ask.error(scale), "gaussian"
    return np.maximum(noisy, 0), (np.maximum(noisy - error, 0), np.maximum(noisy + error, 0)), kind
