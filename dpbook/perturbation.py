"""Private logistic regression in one release: noise on the minimiser, or in the function that is minimised.

The function is ``J(w) = sum of log(1 + exp(-y x·w)) + l2/2 |w|²``, y = ±1, for rows x clipped to a norm R of 1 (with
an intercept, which is a constant column of 1: of the root of 2). scikit-learn's ``C`` is ``1 / l2``. It is l2-strongly
convex; a record's gradient has at most the norm R, its second derivative at most R²/4.

**Output perturbation.** Between neighbours the gradient at any w changes by at most m R, with m = 1 when a record is
added or removed and 2 when one is replaced, so the minimiser w* by at most ``m R / l2`` (Chaudhuri, Monteleoni and
Sarwate, 2011, Cor. 8, with their nλ = l2). Add noise for that.

**Objective perturbation.** Minimise ``J(w) + b·w`` with one Gaussian vector b, and release the minimiser. Proof, for a
record x that is added to D': w determines b, as ``b = -J'(w)``, so w has the density ``φ(b) det J''(w)``. The ratio of
the determinants is between 1 and ``1 + R² / (4 l2)``. The two values of b differ by ``g = ±s x`` with 0 < s < 1, so
that ``| |b ± g|² - |b|² | <= 2 |b·x| + R²``, and b·x is Gaussian with at most the deviation R sigma. So outside of an
event of probability ``2 Φ(-t)`` the privacy loss is at most ``log(1 + R²/(4 l2)) + R²/(2 sigma²) + t R/sigma``. For a
record that is replaced, both records have such an event, and the last two terms are ``(2R)²/(2 sigma²) + 2 t R/sigma``.
That is (ε, δ)-DP as in Kifer, Smith and Thakurta (2012), with the exact tail. It needs ``log(1 + R²/(4 l2)) < ε``.

**No solver finds the minimiser.** Here the point that was found counts, w~, with a gradient of at most `TOLERANCE` in
norm, rounding included. By strong convexity ``|w~ - w*| <= tolerance / l2``. Output perturbation adds twice that to the
sensitivity. Objective perturbation pays for it with a second release (Iyengar et al., 2019): given w*, what is released
is w* plus a difference that is determined by the data, of at most that size, hidden by a little Gaussian noise. That
difference holds the rounding of b to its grid too. A share `SOLVER_SHARE` of ε and δ goes there.

The bounds on rounding take for granted that NumPy's ``exp`` errs by at most 64 units in the last place. How long the
solver takes depends on the data.
"""

import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from dpbook import _validate, gaussian, laplace, noise, sensitivity
from dpbook._exact import precise, round_up, sqrt_up, up
from dpbook._validate import FloatArray

SOLVER_SHARE = 0.05
TOLERANCE = {"output": 2.0**-10, "objective": 2.0**-16}  # of the gradient's norm, in units of R
PART = 1024  # rows of a partial sum
MOST_ROWS = 2**20
SMALLEST_L2, LARGEST_L2 = 1e-6, 1e12


@dataclass(frozen=True, eq=False)
class PrivateLine:
    """A private logistic regression: coefficients, what they cost, and how much noise went where."""

    coef: FloatArray
    intercept: float
    classes: tuple[Any, Any]
    method: str
    neighbors: str
    epsilon: float
    delta: float
    sigma: float  # deviation (or Laplace scale) of the noise on the minimiser, or of b
    last_sigma: float  # of the noise that hides the solver's error, for the objective

    def decision_function(self, X: Any) -> FloatArray:
        """Return ``x·w`` and the intercept for each row, clipped to the unit ball as in the fit; post-processing."""
        rows = sensitivity.clip_norm(_validate.rows(X=X), max_norm=1.0)
        return np.asarray(rows @ self.coef + self.intercept)

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probability of both classes for each row."""
        e = np.exp(-np.clip(np.abs(z := self.decision_function(X)), 0.0, 700.0))
        p = np.where(z >= 0, 1.0, e) / (1.0 + e)
        return np.stack([1.0 - p, p], axis=1)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the class of each row."""
        table: npt.NDArray[Any] = np.empty(2, dtype=object)
        table[:] = self.classes
        if type(self.classes[0]) is type(self.classes[1]):
            table = np.array(self.classes)
        return np.asarray(table[(self.decision_function(X) > 0).astype(np.int64)])

    def score(self, X: Any, y: Any) -> float:
        """Return the share of right predictions: a number about the data given, which is not private."""
        codes = _validate.codes({key: i for i, key in enumerate(self.classes)}, y=y)
        return float(((self.decision_function(X) > 0) == codes).mean())


def _radius_squared(intercept: bool) -> int:
    return 2 if intercept else 1


def output_sensitivity(*, l2: float, neighbors: str, fit_intercept: bool = True) -> float:
    """Return the L2 sensitivity of what the solver returns: ``m (R + 2 tolerance) / l2`` at most, rounded up.

    m is 1 under add/remove and 2 under replace-one; the distance to the true minimiser is in it.

    Parameters
    ----------
    l2 : float
        Strength of the regularisation, 1e-6 to 1e12; scikit-learn's ``1 / C``.
    neighbors : {"add_remove", "replace_one"}
        Neighbour relation.
    fit_intercept : bool, optional
        Whether there is a constant column.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    Chaudhuri, Monteleoni, Sarwate (2011), Differentially private empirical risk minimization, Cor. 8.

    Examples
    --------
    >>> 1.0 < output_sensitivity(l2=1.0, neighbors="add_remove", fit_intercept=False) < 1.003
    True
    """
    strength = Fraction(_strength(l2))
    m = 2 if _validate.neighbors(neighbors) == _validate.REPLACE_ONE else 1
    radius = Fraction(sqrt_up(Fraction(_radius_squared(_validate.flag(fit_intercept=fit_intercept)))))
    return round_up((m * radius + 2 * radius * Fraction(TOLERANCE["output"])) / strength)


def _strength(l2: Any) -> float:
    value = _validate.positive(l2=l2)
    if not SMALLEST_L2 <= value <= LARGEST_L2:
        raise ValueError(f"l2 must be between {SMALLEST_L2:g} and {LARGEST_L2:g}, got {_validate.shown(l2)}")
    return value


def objective_sigma(*, l2: float, epsilon: float, delta: float, neighbors: str, fit_intercept: bool = True) -> float:
    """Return the standard deviation of b for which the exact minimiser is (ε, δ)-DP, rounded up.

    With ``e = ε - log(1 + R²/(4 l2))``, t the normal quantile of ``1 - δ/(2m)``: ``m R (t + sqrt(t² + 2e)) / (2e)``.

    Parameters
    ----------
    l2 : float
        Strength of the regularisation, 1e-6 to 1e12, large enough for e to be positive.
    epsilon : float
        ε > 0.
    delta : float
        δ in (0, 1).
    neighbors : {"add_remove", "replace_one"}
        Neighbour relation; m is 1 or 2.
    fit_intercept : bool, optional
        Whether there is a constant column: R² is 2 with it, else 1.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    Kifer, Smith, Thakurta (2012), Private convex empirical risk minimization and high-dimensional regression, for the
    mechanism; the proof is at the top of this module.

    Examples
    --------
    >>> round(objective_sigma(l2=10.0, epsilon=1.0, delta=1e-5, neighbors="add_remove", fit_intercept=False), 3)
    4.64
    """
    strength, eps = _strength(l2), _validate.positive(epsilon=epsilon)
    d, relation = _validate.open_unit(delta=delta), _validate.neighbors(neighbors)
    square = _radius_squared(_validate.flag(fit_intercept=fit_intercept))
    return _objective_sigma(strength, eps, d, 2 if relation == _validate.REPLACE_ONE else 1, square)


@functools.lru_cache(maxsize=256)
def _objective_sigma(l2: float, epsilon: float, delta: float, m: int, square: int) -> float:
    mp = precise()
    mp.prec = 1200  # so that 1 - δ has all digits of δ
    left = mp.mpf(epsilon) - mp.log1p(mp.mpf(square) / (4 * mp.mpf(l2)))
    if left <= 0:
        raise ValueError(f"l2 must be large enough that log(1 + {square} / (4 l2)) < epsilon={epsilon}, got {l2}")
    t = mp.sqrt(2) * mp.erfinv(1 - mp.mpf(delta) / m)
    sigma = up(m * mp.sqrt(square) * (t + mp.sqrt(t * t + 2 * left)) / (2 * left))
    if not sigma <= 2.0**500:
        raise ValueError(f"epsilon must be larger for a sigma below 2**500, got {epsilon}")
    return sigma


def output_perturbation(
    X: Any,
    y: Any,
    *,
    classes: Any,
    l2: float,
    epsilon: float,
    delta: float | None = None,
    neighbors: str,
    fit_intercept: bool = True,
    most_rows: int = MOST_ROWS,
    rng: np.random.Generator | None = None,
) -> PrivateLine:
    """Return a logistic regression with noise on its coefficients: ε-DP, or (ε, δ)-DP, under the relation named.

    With a δ the noise is Gaussian, for the L2 sensitivity. Without one it is Laplace noise, for the L1 sensitivity,
    which is the root of the number of coefficients times larger.

    Parameters
    ----------
    X : array_like
        Two-dimensional, one row a person; rows are clipped to the L2 norm 1. A row with an entry that is no finite
        number counts as zeros.
    y : array_like
        One label for each row; the row of a label that is not one of the classes counts as zeros.
    classes : list or tuple
        The two classes, public.
    l2 : float
        Strength of the regularisation, 1e-6 to 1e12, of the intercept too.
    epsilon : float
        ε > 0.
    delta : float, optional
        δ in (0, 1).
    neighbors : {"add_remove", "replace_one"}
        Neighbour relation.
    fit_intercept : bool, optional
        Whether there is an intercept.
    most_rows : int, optional
        A public number that no data set passes, at most 2**20; more rows are refused. Under add/remove the solver's
        rounding is bounded for so many, and not for the number of rows, which is private.
    rng : numpy.random.Generator, optional
        None reads the operating system's entropy. A seeded release is reproducible and therefore NOT private.

    Returns
    -------
    PrivateLine
        With `coef`, `intercept`, `predict`, `predict_proba` and `score`.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, or the shapes do not fit.

    References
    ----------
    Chaudhuri, Monteleoni, Sarwate (2011), Differentially private empirical risk minimization, Alg. 1.

    Examples
    --------
    >>> rng = np.random.default_rng(0)  # seeded: not private
    >>> X = rng.uniform(-0.7, 0.7, (4000, 2))
    >>> fit = output_perturbation(X, X[:, 0] > 0, classes=[False, True], l2=10.0, epsilon=1.0, delta=1e-5,
    ...                           neighbors="add_remove", rng=rng)
    >>> fit.score(X, X[:, 0] > 0) > 0.9
    True
    """
    table, strength = _two(classes), _strength(l2)
    size = output_sensitivity(l2=l2, neighbors=neighbors, fit_intercept=fit_intercept)
    if delta is not None:
        scale = gaussian.gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=size)
    else:
        _validate.positive(epsilon=epsilon)
    most = _most(most_rows)
    _validate.generator(rng)
    rows, signs = _signed(X, y, table, fit_intercept, most)
    public = len(rows) if neighbors == _validate.REPLACE_ONE else most
    tolerance = TOLERANCE["output"] * math.sqrt(_radius_squared(fit_intercept)) * (1 - 2.0**-30)
    found = _minimiser(rows * signs[:, None], strength, np.zeros(rows.shape[1]), tolerance, fit_intercept, public)
    if delta is None:
        wide = sensitivity.vector_sensitivity(per_coordinate=size, dimension=len(found), norm="l2")
        scale = laplace.laplace_scale(epsilon=epsilon, sensitivity=wide)
        noisy = noise.add_laplace(found, scale=scale, rng=rng)
    else:
        noisy = noise.add_gaussian(found, sigma=scale, rng=rng)
    return _line(noisy, table, "output", neighbors, epsilon, delta or 0.0, scale, 0.0, fit_intercept)


def objective_perturbation(
    X: Any,
    y: Any,
    *,
    classes: Any,
    l2: float,
    epsilon: float,
    delta: float,
    neighbors: str,
    fit_intercept: bool = True,
    most_rows: int = MOST_ROWS,
    rng: np.random.Generator | None = None,
) -> PrivateLine:
    """Return a logistic regression that minimises a function with noise in it: (ε, δ)-DP under the relation named.

    Usually much closer to the best line than `output_perturbation`, because the data curves the function more than the
    regularisation alone.

    Parameters
    ----------
    X : array_like
        Two-dimensional, one row a person; rows are clipped to the L2 norm 1. A row with an entry that is no finite
        number counts as zeros.
    y : array_like
        One label for each row; the row of a label that is not one of the classes counts as zeros.
    classes : list or tuple
        The two classes, public.
    l2 : float
        Strength of the regularisation, 1e-6 to 1e12, of the intercept too; large enough for `objective_sigma`.
    epsilon : float
        ε > 0.
    delta : float
        δ in (0, 1).
    neighbors : {"add_remove", "replace_one"}
        Neighbour relation.
    fit_intercept : bool, optional
        Whether there is an intercept.
    most_rows : int, optional
        A public number that no data set passes, at most 2**20; more rows are refused. Under add/remove the solver's
        rounding is bounded for so many, and not for the number of rows, which is private.
    rng : numpy.random.Generator, optional
        None reads the operating system's entropy. A seeded release is reproducible and therefore NOT private.

    Returns
    -------
    PrivateLine
        With `coef`, `intercept`, `predict`, `predict_proba` and `score`.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, or the shapes do not fit.

    References
    ----------
    Kifer, Smith, Thakurta (2012); Iyengar et al. (2019), Towards practical differentially private convex optimization,
    for minimisers that are not exact; the proof is at the top of this module.

    Examples
    --------
    >>> rng = np.random.default_rng(0)  # seeded: not private
    >>> X = rng.uniform(-0.7, 0.7, (4000, 2))
    >>> fit = objective_perturbation(X, X[:, 0] > 0, classes=[False, True], l2=1.0, epsilon=1.0, delta=1e-5,
    ...                              neighbors="add_remove", rng=rng)
    >>> fit.score(X, X[:, 0] > 0) > 0.95
    True
    """
    table, strength = _two(classes), _strength(l2)
    eps, d = Fraction(_validate.positive(epsilon=epsilon)), Fraction(_validate.open_unit(delta=delta))
    share = Fraction(SOLVER_SHARE)
    sigma = objective_sigma(
        l2=l2,
        epsilon=_down(eps * (1 - share)),
        delta=_down(d * (1 - share)),
        neighbors=neighbors,
        fit_intercept=fit_intercept,
    )
    most = _most(most_rows)
    _validate.generator(rng)
    rows, signs = _signed(X, y, table, fit_intercept, most)
    public = len(rows) if neighbors == _validate.REPLACE_ONE else most
    columns = rows.shape[1]
    tolerance = TOLERANCE["objective"] * math.sqrt(_radius_squared(fit_intercept)) * (1 - 2.0**-30)
    off = Fraction(tolerance) + Fraction(sqrt_up(Fraction(columns))) * Fraction(noise.grid_step(scale=sigma)) / 2
    last_sigma = gaussian.gaussian_sigma(
        epsilon=_down(eps * share), delta=_down(d * share), sensitivity=round_up(2 * off / Fraction(strength))
    )
    b = np.asarray(noise.add_gaussian(np.zeros(columns), sigma=sigma, rng=rng))
    found = _minimiser(rows * signs[:, None], strength, b, tolerance, fit_intercept, public)
    noisy = noise.add_gaussian(found, sigma=last_sigma, rng=rng)
    return _line(noisy, table, "objective", neighbors, epsilon, delta, sigma, last_sigma, fit_intercept)


def _down(exact: Fraction) -> float:
    return math.nextafter(round_up(exact), 0.0)


def _most(most_rows: Any) -> int:
    most = _validate.integer(most_rows=most_rows)
    if most > MOST_ROWS:
        raise ValueError(f"most_rows must be at most 2**20, got {_validate.shown(most_rows)}")
    return most


def _two(classes: Any) -> dict[Any, int]:
    table = _validate.categories(2, classes=classes)
    if len(table) != 2:
        raise ValueError(f"classes must be two, got {len(table)}")
    return table


def _signed(
    X: Any, y: Any, table: dict[Any, int], intercept: bool, most: int = MOST_ROWS
) -> tuple[FloatArray, FloatArray]:
    """Return the rows, in the unit ball and with the constant column, and ±1 for each; 0 for a record that is bad."""
    codes = _validate.codes(table, y=y)
    given = _validate.rows(X=X)
    rows = sensitivity.clip_norm(given, max_norm=1.0)
    if len(codes) != len(rows):
        raise ValueError("X and y must be of one length, with one row and one label for each person")
    if len(rows) > most:
        raise ValueError(f"X must have at most most_rows={most} rows")
    with np.errstate(all="ignore"):
        good = (codes >= 0) & np.isfinite(given).all(axis=1)
    if intercept:
        rows = np.concatenate([rows, np.ones((len(rows), 1))], axis=1)
    return rows, np.where(good, 2.0 * codes - 1.0, 0.0)


def _line(
    noisy: Any, table: dict[Any, int], method: str, neighbors: str, epsilon: float, delta: float, sigma: float,
    last_sigma: float, intercept: bool,
) -> PrivateLine:  # fmt: skip
    coef, constant = (noisy[:-1], float(noisy[-1])) if intercept else (noisy, 0.0)
    first, second = table
    return PrivateLine(
        np.array(coef), constant, (first, second), method, neighbors, float(epsilon), float(delta), sigma, last_sigma
    )


# --- the solver ------------------------------------------------------------------------------------------------------


def _gradient(z: FloatArray, w: FloatArray, l2: float, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the gradient, and the probabilities of a wrong answer; sums of `PART` rows first, for a small error."""
    margin = z @ w
    e = np.exp(-np.abs(margin))
    wrong = np.where(margin >= 0, e, 1.0) / (1.0 + e)
    total = np.zeros(len(w))
    for at in range(0, len(z), PART):
        total += wrong[at : at + PART] @ z[at : at + PART]
    return l2 * w + b - total, wrong


def _rounding(n: int, columns: int, radius: float, l2: float, size: float, b: float) -> float:
    """Bound the error of `_gradient` at a w of this size, in norm, and of its computed norm; with a factor 2 to spare.

    A margin is off by ``(columns + 2) u R |w|``, its probability by a quarter of that and by what NumPy's exp errs (64
    units in the last place are allowed); a sum of PART and of ``n / PART`` terms by as many u times ``n R``.
    """
    each = (columns + 2) * radius * size / 4 + 64 + PART + n / PART + 8
    return 2 * 2.0**-53 * (n * radius * each + (8 + columns) * (b + l2 * size))


def _minimiser(
    z: FloatArray, l2: float, b: FloatArray, tolerance: float, intercept: bool, most: int | None = None
) -> FloatArray:
    """Return a point at which the true gradient of ``J(w) + b·w`` has at most the norm `tolerance`.

    Newton's method, with a search on the line where a whole step is too long or too short; should it stall, gradient
    descent, which contracts. It ends when the condition
    is met, and not before: how long that takes depends on the data. Whether it can be met is decided first, for `most`
    rows, a public number, so that a refusal tells nothing.
    """
    n, columns = z.shape
    radius, size_b = math.sqrt(_radius_squared(intercept)) * (1 + 2.0**-50), float(np.linalg.norm(b))
    public = n if most is None else most
    # J is below J(0) at the minimum, and what is returned is near it.
    largest = 2 * size_b / l2 + math.sqrt(1.4 * public / l2) + tolerance / l2
    if _rounding(public, columns, radius, l2, largest, size_b) > tolerance / 2:
        raise ValueError(f"l2 must be larger, or most_rows smaller, for so many columns, got {l2}")
    w: FloatArray = np.zeros(columns)
    gradient, wrong = _gradient(z, w, l2, b)
    steps = 0
    while True:
        size = float(np.linalg.norm(gradient))
        if size + _rounding(n, columns, radius, l2, float(np.linalg.norm(w)), size_b) <= tolerance:
            return w
        steps += 1
        if steps <= 10_000:
            curvature = (z * (wrong * (1.0 - wrong))[:, None]).T @ z
            curvature[np.diag_indices(columns)] += l2
            direction = np.linalg.solve(curvature, gradient)
            trial = w - direction
            after, wrong_after = _gradient(z, trial, l2, b)
            if np.linalg.norm(after) > size / 2:  # far away: take the least value on the line, where the slope is zero
                low, length = 0.0, 1.0
                high = math.inf
                for _ in range(60):
                    slope = after @ direction
                    if slope > 0:
                        low = length
                    else:
                        high = length
                    if abs(slope) <= 0.1 * (gradient @ direction) or high - low <= 1e-12 * high:
                        break
                    length = 2 * length if high == math.inf else (low + high) / 2
                    trial = w - length * direction
                    after, wrong_after = _gradient(z, trial, l2, b)
            w, gradient, wrong = trial, after, wrong_after
        else:
            w = w - gradient / (n * radius**2 / 4 + l2)
            gradient, wrong = _gradient(z, w, l2, b)
