"""Everyday questions, answered with differential privacy: count, sum, mean, variance, covariance.

Each function takes a column (list, tuple, NumPy array or pandas Series), public bounds and the neighbour relation, and
returns a `dpbook.release.Release`: the value with the interval that the noise leaves open, and what it cost. The way of
a release:

    clean every record by one rule  →  add whole numbers  →  noise of the scale that the sensitivity asks for  →  clamp

* The rule is that of `dpbook.sensitivity.clip`: a record outside the bounds counts as the nearer bound, and one that is
  no number as the middle. It looks at one record at a time.
* Sums are exact sums of whole numbers of a public step, so neighbours differ by no more than the sensitivity.
* Clamping (a count is not negative, a mean lies within the bounds) is post-processing and costs nothing.
* Intervals speak of the noise alone. The target is the answer on the *cleaned* records: how far clipping has moved it
  is not in the interval. For sums (unless n is public), variances and covariances it is the answer on the cleaned and
  *rounded* records: rounding moves a sum by at most half a step, 2**-24 of the larger bound, a record, and a variance
  by about 2**-21 of its largest range. That is seen beside the noise only from n ε of about 10**7 and 10**6 on.

A person with several rows is declared with `person` (an id for each row) and `max_contributions`: the first so many
rows of each person are kept, and the noise grows with it. Rows without an id are dropped.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from dpbook import _ask, _validate
from dpbook._ask import Ask
from dpbook._exact import sqrt_up
from dpbook._validate import ADD_REMOVE, REPLACE_ONE, FloatArray
from dpbook.release import Release
from dpbook.sensitivity import _float_chunks, _whole_sum, clipped_sum, count_sensitivity, sum_sensitivity

LEVELS = 2**24  # of a mean: a record is a whole number of 2**-24 of the width of the bounds
HALF_LEVEL = 0.5 + 2.0**-20  # by which rounding to a level moves a record at most, with room for float64's own
SQUARE_LEVELS = 2**20  # of a variance
SQUARE_CHUNK = 2**13  # so that a chunk's sum of squares is at most 2**53
PRODUCT_BITS = 24  # sums of products are cut to whole numbers with a sensitivity of about 2**24

# --- count, sum -------------------------------------------------------------------------------------------------------


def private_count(
    values: Any,
    *,
    epsilon: float,
    neighbors: str,
    where: Any = None,
    delta: float | None = None,
    person: Any = None,
    max_contributions: int | None = None,
    alpha: float = 0.05,
    rng: np.random.Generator | None = None,
) -> Release:
    """Return a private number of records, with ε-DP (or (ε, δ)-DP) under the stated relation.

    Parameters
    ----------
    values : array_like
        One-dimensional records; every one counts, missing ones too. Left untouched.
    epsilon : float
        Privacy parameter ε > 0 of this release.
    neighbors : {"add_remove", "replace_one"}
        The neighbour relation of the guarantee. Under "replace_one" the number of *all* records is public, and only
        that of the records that meet a condition is asked.
    where : array_like, optional
        The condition: one True or False for each record. A missing one counts as False.
    delta : float, optional
        Given: Gaussian noise with this δ in (0, 1). None: discrete Laplace noise, pure ε-DP.
    person, max_contributions : array_like and int, optional
        Who each row is from, and the most rows to keep of one person.
    alpha : float, optional
        Significance level of the interval.
    rng : numpy.random.Generator, optional
        None (the default) draws from the operating system's entropy. A seeded release is NOT private.

    Returns
    -------
    Release
        A whole number ≥ 0; a float with Gaussian noise.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, before data is touched; or the values are no one-dimensional column.

    References
    ----------
    Ghosh, Roughgarden, Sundararajan (2009): discrete Laplace noise is the best for one count.

    Examples
    --------
    >>> import numpy as np
    >>> ages = np.array([23, 35, 67, 41, 70, 19] * 100)
    >>> rng = np.random.default_rng(0)  # seeded: not private
    >>> private_count(ages, where=ages >= 65, epsilon=1.0, neighbors="add_remove", rng=rng)
    count = 199, 95 % noise interval 196 to 202
      epsilon=1, neighbors='add_remove', discrete_laplace
    """
    ask = _ask.checked(epsilon, delta, neighbors, alpha, person, max_contributions, rng)
    size = count_sensitivity(neighbors=ask.neighbors, max_rows=ask.max_rows or 1)
    scale = ask.size(float(size), whole=True)
    column = _ask.entries(values)
    mask = None
    if where is not None:
        mask = _condition(where, len(column))
    if person is not None:
        kept = _ask.kept_rows(person, len(column), ask)
        mask = kept if mask is None else mask & kept
    number = len(column) if mask is None else int(np.count_nonzero(mask))
    value, interval, kind = _ask.noisy_counts(np.array([number]), ask, scale)
    return ask.release("count", value[0].item(), (interval[0][0].item(), interval[1][0].item()), scale, mechanism=kind)


def _condition(where: Any, length: int) -> npt.NDArray[np.bool_]:
    kind = getattr(getattr(where, "dtype", None), "type", None)  # pandas' text columns give an array of objects
    if isinstance(kind, type) and issubclass(kind, (str, bytes)):
        raise TypeError("where must be one True or False for each record, got a column of text")
    column = _validate.column(where=where)
    if len(column) != length:
        raise ValueError("values and where must have the same length")
    if column.dtype.kind == "b":
        return column
    with np.errstate(all="ignore"):  # a long double may be beyond float64
        return np.asarray(np.nan_to_num(column.astype(np.float64), nan=0.0) != 0)


def private_sum(
    values: Any,
    *,
    bounds: tuple[float, float],
    epsilon: float,
    neighbors: str,
    delta: float | None = None,
    person: Any = None,
    max_contributions: int | None = None,
    alpha: float = 0.05,
    rng: np.random.Generator | None = None,
) -> Release:
    """Return a private sum of the clipped records, with ε-DP (or (ε, δ)-DP) under the stated relation.

    Parameters
    ----------
    values : array_like
        One-dimensional records; one that is no number counts as the middle of the bounds. Left untouched.
    bounds : tuple of float
        Public bounds (L, U), never the minimum and maximum of the data.
    epsilon : float
        Privacy parameter ε > 0 of this release.
    neighbors : {"add_remove", "replace_one"}
        The neighbour relation of the guarantee. Under "replace_one" without `person` the number of records is public.
    delta : float, optional
        Given: Gaussian noise with this δ in (0, 1). None: Laplace noise, pure ε-DP.
    person, max_contributions : array_like and int, optional
        Who each row is from, and the most rows to keep of one person.
    alpha : float, optional
        Significance level of the interval.
    rng : numpy.random.Generator, optional
        None (the default) draws from the operating system's entropy. A seeded release is NOT private.

    Returns
    -------
    Release
        In the unit of the records. Not below 0 where no record can be, nor above 0 likewise.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, before data is touched; or the values are no one-dimensional numeric column.

    References
    ----------
    Dwork, McSherry, Nissim, Smith (2006), Prop. 1; for the exact sum Casacuberta, Shoemate, Vadhan, Wagaman (2022).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)  # seeded: not private
    >>> private_sum([12.5, 900.0, 31.0] * 100, bounds=(0, 50), epsilon=1.0, neighbors="add_remove", rng=rng)
    sum = 9,289.59, 95 % noise interval 9,139.81 to 9,439.38
      epsilon=1, neighbors='add_remove', laplace
    """
    ask = _ask.checked(epsilon, delta, neighbors, alpha, person, max_contributions, rng)
    lower, upper = _sum_bounds(bounds=bounds)
    least, most = (0.0 if lower >= 0 else -math.inf), (0.0 if upper <= 0 else math.inf)
    if ask.neighbors == REPLACE_ONE and ask.max_rows is None:
        return _sum_of_public_n(_ask.column(values, person, ask), lower, upper, least, most, ask)
    scale = ask.size(sum_sensitivity(bounds=bounds, neighbors=ask.neighbors, max_rows=ask.max_rows))
    exact = clipped_sum(_ask.column(values, person, ask), bounds=bounds)
    noisy, t = ask.add(exact, scale), ask.error(scale)
    return ask.release("sum", min(max(noisy, least), most), _ask.between(noisy - t, noisy + t, least, most), scale)


def _sum_of_public_n(
    column: npt.NDArray[Any], lower: float, upper: float, least: float, most: float, ask: Ask
) -> Release:
    """Return n L plus a noisy sum of the places between the bounds.

    The noise, of scale (U - L) / ε, may be far smaller than the bounds, and so than the steps of `clipped_sum`.
    """
    scale, n = ask.size(float(LEVELS)), len(column)
    noisy = ask.add(float(_level_sum(column, lower, upper)), scale)
    t = ask.error(scale) + n * HALF_LEVEL
    unit, start = (Fraction(upper) - Fraction(lower)) / LEVELS, n * Fraction(lower)
    value, low, high = (float(start + unit * Fraction(end)) for end in (noisy, noisy - t, noisy + t))
    ends = math.nextafter(low, -math.inf), math.nextafter(high, math.inf)  # the value may be far larger than the noise
    return ask.release("sum", min(max(value, least), most), _ask.between(*ends, least, most), scale * float(unit))


def _sum_bounds(**parameter: Any) -> tuple[float, float]:
    """Return bounds whose products stay inside float64."""
    ((name, _),) = parameter.items()
    lower, upper = _validate.bounds(**parameter)
    if max(-lower, upper) > 2.0**400 or 0.0 < max(-lower, upper) < 2.0**-400:
        raise ValueError(f"{name} must lie within ±2**400 and not within ±2**-400, got ({lower}, {upper})")
    return lower, upper


# --- mean -------------------------------------------------------------------------------------------------------------


def private_mean(
    values: Any,
    *,
    bounds: tuple[float, float],
    epsilon: float,
    neighbors: str,
    n: int | None = None,
    delta: float | None = None,
    person: Any = None,
    max_contributions: int | None = None,
    alpha: float = 0.05,
    rng: np.random.Generator | None = None,
) -> Release:
    """Return a private mean of the clipped records, with ε-DP (or (ε, δ)-DP) in all under the stated relation.

    With a public `n` ("replace_one" only), noise of scale ``(U - L) / (n ε)`` is added to the mean. Without it the
    number of records is private too: two noisy numbers are released together, and `parts` holds the sum and the count
    that follow from them.

    Parameters
    ----------
    values : array_like
        One-dimensional records; one that is no number counts as the middle of the bounds. Left untouched.
    bounds : tuple of float
        Public bounds (L, U), never the minimum and maximum of the data.
    epsilon : float
        Privacy parameter ε > 0 of this release, of everything in it.
    neighbors : {"add_remove", "replace_one"}
        The neighbour relation of the guarantee.
    n : int, optional
        The public number of people, one record each; "replace_one" only. None: it is private.
    delta : float, optional
        Given: Gaussian noise with this δ in (0, 1). None: Laplace noise, pure ε-DP.
    person, max_contributions : array_like and int, optional
        Who each row is from, and the most rows to keep of one person; without `n` only.
    alpha : float, optional
        Significance level of the interval.
    rng : numpy.random.Generator, optional
        None (the default) draws from the operating system's entropy. A seeded release is NOT private.

    Returns
    -------
    Release
        Within the bounds. Without `n`, `parts["sum"]` and `parts["count"]` are releases with their own intervals; each
        of the three intervals holds with probability ``1 - alpha`` by itself. Their ε is the same ε, paid once.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, before data is touched; or the values are no one-dimensional numeric column.

    Notes
    -----
    For private n let ``A = Σ (x - L)`` and ``B = Σ (U - x)``. A person adds ``x - L`` to one and ``U - x`` to the
    other: together always U - L, which is thus the L1 sensitivity of the pair under add/remove. So both get Laplace
    noise of scale ``(U - L) / ε``, where a sum and a count, released apart, would have to share ε. Then
    ``mean = L + (U - L) A / (A + B)``, ``count = (A + B) / (U - L)`` and ``sum = (U A + L B) / (U - L)``. The interval
    holds all m for which ``(1 - m) A - m B``, which is noise alone at the true m, lies within that noise's quantile
    (Fieller). So it is exact before it is clamped and widened by the rounding of a record, and safe after.

    To first order the error has the standard deviation ``sqrt(2) w sqrt((1 - μ)² + μ²) / (n ε)`` with w = U - L and μ
    the place of the mean between the bounds. A sum of centred records and a count that share ε in the best proportion
    for the true mean have ``sqrt(2) w (0.5**(2/3) + abs(μ - 0.5)**(2/3))**1.5 / (n ε)``. That is more, unless the mean
    is known beforehand to lie within about 7 % of the width from the middle.

    References
    ----------
    Dwork, McSherry, Nissim, Smith (2006), Prop. 1, for the pair; Fieller (1954), Some problems in interval estimation;
    Bobkov (2010), for the quantile of a sum of two Laplace variables being a convex function of their weights.

    Examples
    --------
    >>> import numpy as np
    >>> income = np.linspace(18_000, 70_000, 5_000)
    >>> rng = np.random.default_rng(0)  # seeded: not private
    >>> mean = private_mean(income, bounds=(0, 100_000), epsilon=0.5, neighbors="add_remove", rng=rng)
    >>> mean
    mean = 43,978.6, 95 % noise interval 43,895.6 to 44,061.5
      epsilon=0.5, neighbors='add_remove', laplace
    >>> mean.parts["count"]
    count = 4,996.94, 95 % noise interval 4,988.72 to 5,005.17
      epsilon=0.5, neighbors='add_remove', laplace
    """
    ask = _ask.checked(epsilon, delta, neighbors, alpha, person, max_contributions, rng)
    lower, upper = _sum_bounds(bounds=bounds)
    width = upper - lower
    people = _public_n(n, ask, "mean")
    rows = ask.max_rows or 1
    changes = 1 if people is not None or ask.neighbors == ADD_REMOVE else 2
    scale = ask.size(_pair_sensitivity(rows, changes, ask.norm))
    column = _ask.column(values, person, ask)
    if people is not None:
        _of_length(column, people, "values")
    total = _level_sum(column, lower, upper)
    if people is not None:
        noisy, t = ask.add(float(total), scale), ask.error(scale) + people * HALF_LEVEL
        unit = width / LEVELS / people
        value, low, high = (min(max(lower + unit * end, lower), upper) for end in (noisy, noisy - t, noisy + t))
        return ask.release("mean", value, (low, high), scale * unit)
    pair = ask.add(np.array([total, len(column) * LEVELS - total], dtype=np.float64), scale)
    unit = width / LEVELS
    a, b = (float(x) for x in np.maximum(pair, 0.0))
    share = a / (a + b) if a + b > 0 else 0.5
    low, high = _share_interval(float(pair[0]), float(pair[1]), scale, ask)
    low, high = low - HALF_LEVEL / LEVELS, high + HALF_LEVEL / LEVELS
    parts = {
        "sum": _combined("sum", pair, (upper / LEVELS, lower / LEVELS), scale, ask, lower, upper),
        "count": _combined("count", pair, (1 / LEVELS, 1 / LEVELS), scale, ask, 0.0, math.inf),
    }
    ends = tuple(min(max(lower + width * end, lower), upper) for end in (share, low, high))
    return ask.release("mean", ends[0], ends[1:], scale * unit, parts=parts)


def _pair_sensitivity(rows: int, changes: int, norm: str) -> float:
    """Return the sensitivity of the pair (Σ a, Σ LEVELS - a), in levels; with a public n of the first alone."""
    # One row adds a vector of norm at most LEVELS in either norm; exchanging rows removes one set and adds another.
    # In L2 the two are at most sqrt(2) apart, as both lie on the segment between (0, LEVELS) and (LEVELS, 0), or at 0.
    if norm == "l1" or changes == 1:
        return float(rows * changes * LEVELS)
    return sqrt_up(Fraction(2 * (rows * LEVELS) ** 2))


def _public_n(n: Any, ask: Ask, query: str) -> int | None:
    if n is None:
        return None
    people = _validate.integer(n=n)
    if ask.neighbors == ADD_REMOVE:
        raise ValueError(
            f"n must be left out under 'add_remove', where the number of people is private, got {n!r}; for a public n "
            "use neighbors='replace_one'"
        )
    if ask.max_rows is not None:
        raise ValueError(
            f"n must be left out for several rows a person, got {n!r}: it counts people with one record each"
        )
    return people


def _level_sum(column: npt.NDArray[Any], lower: float, upper: float) -> int:
    """Return the sum of the records' places between the bounds, in whole numbers from 0 to LEVELS, exactly."""
    total = 0
    with np.errstate(all="ignore"):
        for x in _levels(column, lower, upper, LEVELS):
            total += _whole_sum(x, 0, LEVELS, LEVELS // 2)
    return total


def _levels(
    column: npt.NDArray[Any], lower: float, upper: float, levels: int, chunk: int | None = None
) -> Iterator[FloatArray]:
    per = levels / (upper - lower) if upper > lower else 0.0
    return _float_chunks(column, minus=lower, times=per, chunk=chunk)


def _combined(
    query: str, pair: FloatArray, weights: tuple[float, float], scale: float, ask: Ask, lower: float, upper: float
) -> Release:
    """Return a weighted sum of the pair as a release of its own."""
    value = float(pair @ np.array(weights))
    t = _two_noises(abs(weights[0]), abs(weights[1]), scale, ask)
    least, most = (0.0 if lower >= 0 else -math.inf), (0.0 if upper <= 0 else math.inf)
    size = scale * (math.hypot(*weights) if ask.delta is not None else max(map(abs, weights)))
    return ask.release(query, min(max(value, least), most), _ask.between(value - t, value + t, least, most), size)


def _two_noises(a: float, b: float, scale: float, ask: Ask) -> float:
    """Return the t that ``|a X + b Y|`` passes with probability alpha, for independent noises of this scale.

    For Laplace noises of scale 1 the tail is ``(a² exp(-t/a) - b² exp(-t/b)) / (a² - b²)``.
    """
    a, b = max(a, b), min(a, b)
    if a == 0.0 or scale == 0.0:
        return 0.0
    if ask.delta is not None:
        return ask.error(scale * math.hypot(a, b))
    ratio = b / a
    low, high = -math.log(ask.alpha), 2.0 * (1 - math.log(ask.alpha)) + 2.0  # (1 + t/2) exp(-t) is the largest tail
    for _ in range(60):
        t = (low + high) / 2
        low, high = (t, high) if _tail(t, ratio) > ask.alpha else (low, t)
    return scale * a * (high + 2.0**-19)  # with room for the rounding of both to the grid


def _passes(x: float, a: float, b: float, scale: float, ask: Ask) -> bool:
    """Return whether x is above `_two_noises` of the same arguments, without solving for that."""
    if ask.delta is not None:
        return x > ask.error(scale * math.hypot(a, b))
    a, b = max(a, b), min(a, b)
    t = x / (scale * a) - 2.0**-19
    return t > 0.0 and _tail(t, b / a) < ask.alpha


def _tail(t: float, ratio: float) -> float:
    """Return ``P(|X + ratio Y| > t)`` for independent Laplace variables of scale 1 and a ratio from 0 to 1."""
    if ratio < 1e-3:
        return math.exp(-t) / (1 - ratio * ratio)  # leaves out a term that is subtracted: an upper bound
    gap = 1 / ratio - 1  # exp(-t / ratio) = exp(-t) exp(-t gap)
    if gap * max(t, 1.0) < 1e-5:
        return math.exp(-t) * (1 + t / 2) * (1 + 1e-4)  # at ratio 1, an upper bound
    return math.exp(-t) * (1 - ratio * ratio * math.exp(-t * gap)) / (1 - ratio * ratio)


def _share_interval(a: float, b: float, scale: float, ask: Ask) -> tuple[float, float]:
    """Return the smallest interval of all m in [0, 1] with ``|(1 - m) a - m b| <= quantile of that noise``.

    The left side is linear in m and the quantile convex, so what lies below the interval is one piece, found by
    bisection; and what lies above is the same with a and b exchanged.
    """

    def lowest(a: float, b: float) -> float:
        def below(m: float) -> bool:
            return _passes((1 - m) * a - m * b, 1 - m, m, scale, ask)

        if not below(0.0):
            return 0.0
        low, high = 0.0, 1.0
        for _ in range(60):
            m = (low + high) / 2
            low, high = (m, high) if below(m) else (low, m)
        return low

    if _passes(-min(a, b), 0.0, 1.0, scale, ask):
        return 0.0, 1.0  # one of them is impossibly negative: no m fits, so none is ruled out
    low, high = lowest(a, b), 1.0 - lowest(b, a)
    return (low, high) if low <= high else (0.0, 1.0)


# --- variance, covariance ---------------------------------------------------------------------------------------------


def private_variance(
    values: Any,
    *,
    bounds: tuple[float, float],
    epsilon: float,
    neighbors: str,
    n: int | None = None,
    ddof: int = 0,
    delta: float | None = None,
    person: Any = None,
    max_contributions: int | None = None,
    alpha: float = 0.05,
    rng: np.random.Generator | None = None,
) -> Release:
    """Return a private variance of the clipped records, with ε-DP (or (ε, δ)-DP) in all under the stated relation.

    With a public `n` ("replace_one" only), noise of scale ``(U - L)² / (n ε)`` is added to the variance. Without it,
    three noisy numbers are released together, of which the variance follows.

    Parameters
    ----------
    values : array_like
        One-dimensional records; one that is no number counts as the middle of the bounds. Left untouched.
    bounds : tuple of float
        Public bounds (L, U), never the minimum and maximum of the data.
    epsilon : float
        Privacy parameter ε > 0 of this release, of everything in it.
    neighbors : {"add_remove", "replace_one"}
        The neighbour relation of the guarantee.
    n : int, optional
        The public number of people, one record each; "replace_one" only. None: it is private.
    ddof : {0, 1}, optional
        As in `numpy.var`; 1 needs a public n.
    delta : float, optional
        Given: Gaussian noise with this δ in (0, 1). None: Laplace noise, pure ε-DP.
    person, max_contributions : array_like and int, optional
        Who each row is from, and the most rows to keep of one person; without `n` only.
    alpha : float, optional
        Significance level of the interval.
    rng : numpy.random.Generator, optional
        None (the default) draws from the operating system's entropy. A seeded release is NOT private.

    Returns
    -------
    Release
        Between 0 and the largest variance that the bounds allow. Without `n` the interval is wider than needed: it
        covers all variances of a box that holds the three numbers. `parts["count"]` is the noisy count.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, before data is touched; or the values are no one-dimensional numeric column.

    Notes
    -----
    With x scaled to [0, 1], the three numbers are the sums of ``(1 - x)²``, ``2 x (1 - x)`` and ``x²``. They add up to
    1 for every record, which is thus their joint L1 sensitivity under add/remove, and
    ``variance = (B0 B2 - B1² / 4) / (B0 + B1 + B2)²``.

    References
    ----------
    `dpbook.sensitivity.variance_sensitivity` for public n; the Bernstein polynomials of degree 2 for private n.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)  # seeded: not private
    >>> ages = np.arange(100).repeat(50)
    >>> private_variance(ages, bounds=(0, 100), n=5000, epsilon=0.5, neighbors="replace_one", rng=rng)
    variance = 828.418, 95 % noise interval 816.438 to 840.399
      epsilon=0.5, neighbors='replace_one', laplace
    """
    ask = _ask.checked(epsilon, delta, neighbors, alpha, person, max_contributions, rng)
    lower, upper = _sum_bounds(bounds=bounds)
    people = _public_n(n, ask, "variance")
    degrees = _degrees(ddof, people)
    unit = ((upper - lower) / SQUARE_LEVELS) ** 2
    if people is not None:
        shift, scale, factor = _product_plan(people, degrees, ask)
        column = _of_length(_ask.column(values, person, ask), people, "values")
        first, second = _moments(column, lower, upper)
        noisy = ask.add(float((people * second - first**2) >> shift), scale)
        return _product_release(
            "variance", noisy, scale, unit * factor, 0.0, (upper - lower) ** 2, people, degrees, ask
        )
    shift, scale = _joint_plan(3, ask)
    column = _ask.column(values, person, ask)
    first, second = _moments(column, lower, upper)
    sums = (
        len(column) * SQUARE_LEVELS**2 - 2 * SQUARE_LEVELS * first + second,
        2 * (SQUARE_LEVELS * first - second),
        second,
    )
    noisy = ask.add(np.array([float(x >> shift) for x in sums]), scale)
    t = ask.error(scale, ask.alpha / 3) + 1.0
    b = np.maximum(noisy, 0.0).tolist()
    most = (upper - lower) ** 2
    share = min(max(_variance_share(*b), 0.0), 0.25)
    low, high = _variance_box([max(x - t, 0.0) for x in noisy.tolist()], [max(x + t, 0.0) for x in noisy.tolist()])
    one = 2.0**PRODUCT_BITS
    total = float(noisy.sum()) / one
    count = ask.release(
        "count", max(total, 0.0), _ask.between(total - 3 * t / one, total + 3 * t / one, 0.0, math.inf), scale / one
    )
    parts = {"count": count}
    return ask.release("variance", share * most, (low * most, high * most), scale / one, parts=parts)


def _degrees(ddof: Any, people: int | None) -> int:
    degrees = _validate.integer(0, ddof=ddof)
    if degrees > (1 if people is not None else 0):
        raise ValueError(f"ddof must be 0 or, with a public n, 1, got {ddof!r}")
    if degrees == 1 and people == 1:
        raise ValueError("n must be at least 2 for ddof=1, got 1")
    return degrees


def _product_plan(people: int, degrees: int, ask: Ask) -> tuple[int, float, float]:
    """Return how many binary digits of ``n Σxy - Σx Σy`` to cut off, the scale of the noise, and the unit.

    ``n Σxy - Σx Σy`` is a sum over the pairs of people, of which n - 1 change, each by at most SQUARE_LEVELS². Cutting
    off digits keeps it exact in float64 and adds at most 1 to the sensitivity.
    """
    change = (people - 1) * SQUARE_LEVELS**2
    shift = max(change.bit_length() - 1 - PRODUCT_BITS, 0)
    scale = ask.size(float((change >> shift) + 1)) if change else 0.0
    return shift, scale, 2.0**shift / people / (people - degrees)


def _of_length(column: npt.NDArray[Any], people: int, name: str) -> npt.NDArray[Any]:
    if len(column) != people:
        raise ValueError(f"{name} must have n records, as n is public under 'replace_one'; got n={people!r}")
    return column


def _product_release(
    query: str, noisy: float, scale: float, unit: float, least: float, most: float, people: int, degrees: int, ask: Ask
) -> Release:
    largest = most / 4 * (people / (people - degrees))
    smallest = least / 4 * (people / (people - degrees))
    t = ask.error(scale) + (1.0 if scale else 0.0)  # 1: the digits that were cut off
    value, low, high = (min(max(end * unit, smallest), largest) for end in (noisy, noisy - t, noisy + t))
    return ask.release(query, value, (low, high), scale * unit)


def _moments(column: npt.NDArray[Any], lower: float, upper: float) -> tuple[int, int]:
    """Return the sums of the levels (0 to SQUARE_LEVELS) and of their squares, exactly."""
    first = second = 0
    with np.errstate(all="ignore"):
        for x in _levels(column, lower, upper, SQUARE_LEVELS, SQUARE_CHUNK):
            first += _whole_sum(x, 0, SQUARE_LEVELS, SQUARE_LEVELS // 2)
            second += int(np.dot(x, x))
    return first, second


def _variance_share(b0: float, b1: float, b2: float) -> float:
    total = b0 + b1 + b2
    return (b0 / total) * (b2 / total) - (b1 / total) ** 2 / 4 if total > 0 else 0.0


def _variance_box(low: list[float], high: list[float]) -> tuple[float, float]:
    """Return bounds on ``(b0 b2 - b1² / 4) / (b0 + b1 + b2)²`` over a box of three numbers ≥ 0.

    It falls in b1 where it is positive, and first rises and then falls in each of b0 and b2, with the top at
    ``b2 + b1 + b1² / (2 b2)`` and the same exchanged. So the least is at a corner, and the largest on the edge b1 = low
    with b0 or b2 at an end; unless b1 can be 0 and b0 equal to b2, where it is 1/4.
    """
    if sum(low) == 0.0:
        return 0.0, 0.25

    least = min(_variance_share(b0, high[1], b2) for b0 in (low[0], high[0]) for b2 in (low[2], high[2]))
    b1 = low[1]
    if b1 == 0.0 and max(low[0], low[2]) <= min(high[0], high[2]):
        return max(least, 0.0), 0.25
    most = 0.0
    for i, j in ((0, 2), (2, 0)):
        for fixed in (low[i], high[i]):
            top = fixed + b1 + b1 * b1 / (2 * fixed) if fixed > 0 else math.inf
            for free in (low[j], high[j], min(max(top, low[j]), high[j])):
                most = max(most, _variance_share(fixed, b1, free))
    return min(max(least, 0.0), 0.25), min(most, 0.25)


def private_std(
    values: Any,
    *,
    bounds: tuple[float, float],
    epsilon: float,
    neighbors: str,
    n: int | None = None,
    ddof: int = 0,
    delta: float | None = None,
    person: Any = None,
    max_contributions: int | None = None,
    alpha: float = 0.05,
    rng: np.random.Generator | None = None,
) -> Release:
    """Return a private standard deviation: the root of `private_variance`, with its guarantee and cost.

    Parameters
    ----------
    values : array_like
        One-dimensional records; one that is no number counts as the middle of the bounds. Left untouched.
    bounds : tuple of float
        Public bounds (L, U), never the minimum and maximum of the data.
    epsilon : float
        Privacy parameter ε > 0 of this release, of everything in it.
    neighbors : {"add_remove", "replace_one"}
        The neighbour relation of the guarantee.
    n : int, optional
        The public number of people, one record each; "replace_one" only. None: it is private.
    ddof : {0, 1}, optional
        As in `numpy.std`; 1 needs a public n.
    delta : float, optional
        Given: Gaussian noise with this δ in (0, 1). None: Laplace noise, pure ε-DP.
    person, max_contributions : array_like and int, optional
        Who each row is from, and the most rows to keep of one person; without `n` only.
    alpha : float, optional
        Significance level of the interval.
    rng : numpy.random.Generator, optional
        None (the default) draws from the operating system's entropy. A seeded release is NOT private.

    Returns
    -------
    Release
        At least 0. `parts["variance"]` is the variance, which is what the noise was added to; `scale` is its.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, before data is touched; or the values are no one-dimensional numeric column.

    References
    ----------
    Post-processing of `private_variance`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)  # seeded: not private
    >>> ages = np.arange(100).repeat(50)
    >>> private_std(ages, bounds=(0, 100), n=5000, epsilon=0.5, neighbors="replace_one", rng=rng)
    std = 28.7823, 95 % noise interval 28.5734 to 28.9896
      epsilon=0.5, neighbors='replace_one', laplace
    """
    of = private_variance(
        values,
        bounds=bounds,
        epsilon=epsilon,
        neighbors=neighbors,
        n=n,
        ddof=ddof,
        delta=delta,
        person=person,
        max_contributions=max_contributions,
        alpha=alpha,
        rng=rng,
    )
    assert of.interval is not None
    ends = (math.sqrt(of.interval[0]), math.sqrt(of.interval[1]))
    parts = {"variance": of, **of.parts}
    return replace(of, query="std", value=math.sqrt(of.value), interval=ends, parts=parts)


def private_covariance(
    first: Any,
    second: Any,
    *,
    first_bounds: tuple[float, float],
    second_bounds: tuple[float, float],
    epsilon: float,
    neighbors: str,
    n: int | None = None,
    ddof: int = 0,
    delta: float | None = None,
    person: Any = None,
    max_contributions: int | None = None,
    alpha: float = 0.05,
    rng: np.random.Generator | None = None,
) -> Release:
    """Return a private covariance of two clipped columns, with ε-DP (or (ε, δ)-DP) in all under the stated relation.

    With a public `n` ("replace_one" only), noise of scale ``(U1 - L1) (U2 - L2) / (n ε)`` is added to the covariance.
    Without it, four noisy numbers are released together, of which the covariance follows.

    Parameters
    ----------
    first, second : array_like
        One-dimensional records, one of each a row, in the same order; one that is no number counts as the middle of
        its bounds. Left untouched.
    first_bounds, second_bounds : tuple of float
        Public bounds (L1, U1) and (L2, U2).
    epsilon : float
        Privacy parameter ε > 0 of this release, of everything in it.
    neighbors : {"add_remove", "replace_one"}
        The neighbour relation of the guarantee.
    n : int, optional
        The public number of people, one row each; "replace_one" only. None: it is private.
    ddof : {0, 1}, optional
        As in `numpy.cov`, whose default is 1; 1 needs a public n.
    delta : float, optional
        Given: Gaussian noise with this δ in (0, 1). None: Laplace noise, pure ε-DP.
    person, max_contributions : array_like and int, optional
        Who each row is from, and the most rows to keep of one person; without `n` only.
    alpha : float, optional
        Significance level of the interval.
    rng : numpy.random.Generator, optional
        None (the default) draws from the operating system's entropy. A seeded release is NOT private.

    Returns
    -------
    Release
        Within what the bounds allow. Without `n` the interval is wider than needed: it covers all covariances of a box
        that holds the four numbers. `parts` holds the "count", the "first_sum", the "second_sum" and the "product_sum"
        that follow from them. Each interval holds with probability ``1 - alpha`` by itself; their ε is the same ε, paid
        once.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, before data is touched; or a column is no one-dimensional numeric one, or the
        two have different lengths.

    Notes
    -----
    For public n: the covariance is the sum of ``(x_i - x_j) (y_i - y_j)`` over the pairs of people, over n². With all
    scaled to [0, 1] and the other person at (a, b), such a product is largest and least at a corner, and the two differ
    by at most 1; so each of the n - 1 pairs that change does so by at most ``(U1 - L1) (U2 - L2)``.

    For private n, with all scaled to [0, 1], the four numbers are the sums of ``(1 - x) (1 - y)``, ``x (1 - y)``,
    ``(1 - x) y`` and ``x y``. They add up to 1 for every row, which is thus their joint L1 sensitivity under
    add/remove, and ``covariance = (B11 B00 - B10 B01) / (B00 + B10 + B01 + B11)²``. The sums of x, y and their product
    weigh the four with the values at the corners, as these are linear in x and in y.

    References
    ----------
    The pair formula in the notes; the tests confirm it by enumeration. For private n the product of Bernstein
    polynomials of degree 1, as `private_variance` has those of degree 2.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)  # seeded: not private
    >>> x = np.linspace(0, 1, 1000)
    >>> ask = {"first_bounds": (0, 1), "second_bounds": (0, 2), "epsilon": 1.0, "rng": rng}
    >>> private_covariance(x, 2 * x, n=1000, neighbors="replace_one", **ask)
    covariance = 0.164586, 95 % noise interval 0.158601 to 0.170572
      epsilon=1, neighbors='replace_one', laplace
    >>> private_covariance(x, 2 * x, neighbors="add_remove", **ask)
    covariance = 0.166659, 95 % noise interval 0.157901 to 0.175416
      epsilon=1, neighbors='add_remove', laplace
    """
    ask = _ask.checked(epsilon, delta, neighbors, alpha, person, max_contributions, rng)
    bounds = _sum_bounds(first_bounds=first_bounds), _sum_bounds(second_bounds=second_bounds)
    people = _public_n(n, ask, "covariance")
    degrees = _degrees(ddof, people)
    widths = [upper - lower for lower, upper in bounds]
    if people is not None:
        shift, scale, factor = _product_plan(people, degrees, ask)
    else:
        shift, scale = _joint_plan(4, ask)
    x, y = _validate.column(first=first), _validate.column(second=second)
    if people is not None:
        x, y = _of_length(x, people, "first"), _of_length(y, people, "second")
    elif len(x) != len(y):
        raise ValueError("first and second must have the same length")
    if person is not None:
        kept = _ask.kept_rows(person, len(x), ask)
        x, y = x[kept], y[kept]
    if len(x) > _ask.LARGEST_COUNT:
        raise ValueError("first must have at most 2**29 records")
    sums = _product_moments(x, y, bounds)
    if people is not None:
        noisy = ask.add(float((people * sums[2] - sums[0] * sums[1]) >> shift), scale)
        unit, most = widths[0] / SQUARE_LEVELS * (widths[1] / SQUARE_LEVELS), widths[0] * widths[1]
        return _product_release("covariance", noisy, scale, unit * factor, -most, most, people, degrees, ask)
    one, (in_first, in_second, both) = SQUARE_LEVELS, sums
    corners = (
        (len(x) * one - in_first - in_second) * one + both,
        in_first * one - both,
        in_second * one - both,
        both,
    )
    return _joint_covariance(ask.add(np.array([float(s >> shift) for s in corners]), scale), scale, bounds, ask)


def _product_moments(
    x: npt.NDArray[Any], y: npt.NDArray[Any], bounds: tuple[tuple[float, float], tuple[float, float]]
) -> tuple[int, int, int]:
    """Return the sums of the levels (0 to SQUARE_LEVELS) of x, of y, and of their products, exactly."""
    first = second = both = 0
    with np.errstate(all="ignore"):
        of_x, of_y = (
            _levels(column, *limits, SQUARE_LEVELS, SQUARE_CHUNK) for column, limits in zip((x, y), bounds, strict=True)
        )
        for a, b in zip(of_x, of_y, strict=True):
            first += _whole_sum(a, 0, SQUARE_LEVELS, SQUARE_LEVELS // 2)
            second += _whole_sum(b, 0, SQUARE_LEVELS, SQUARE_LEVELS // 2)
            both += int(np.dot(a, b))
    return first, second, both


def _joint_plan(numbers: int, ask: Ask) -> tuple[int, float]:
    """Return how many binary digits to cut off joint sums that add up to SQUARE_LEVELS² a record, and the scale.

    Cutting off the last digits adds less than 1 to the change of each number: in L2 less than 2, for up to four.
    """
    each = (ask.max_rows or 1) << PRODUCT_BITS
    changes = 1 if ask.neighbors == ADD_REMOVE else 2
    size = float(each * changes + numbers) if ask.norm == "l1" else sqrt_up(Fraction(changes * each**2)) + 2
    return 2 * (SQUARE_LEVELS.bit_length() - 1) - PRODUCT_BITS, ask.size(size)


def _joint_covariance(
    noisy: FloatArray, scale: float, bounds: tuple[tuple[float, float], tuple[float, float]], ask: Ask
) -> Release:
    """Return the covariance and its parts from four noisy numbers: at (L1, L2), (U1, L2), (L1, U2) and (U1, U2)."""
    one, t = 2.0**PRODUCT_BITS, ask.error(scale, ask.alpha / 4) + 1.0  # 1: the digits that were cut off
    (lower, upper), (lower2, upper2) = bounds
    most = (upper - lower) * (upper2 - lower2)
    share = min(max(_covariance_share(*np.maximum(noisy, 0.0).tolist()), -0.25), 0.25)
    ends = ([max(x - t, 0.0) for x in noisy.tolist()], [max(x + t, 0.0) for x in noisy.tolist()])
    low, high = _covariance_box(*ends)
    corners = [(lower, lower2), (upper, lower2), (lower, upper2), (upper, upper2)]
    parts = {
        name: _weighted(name, noisy / one, [of(*corner) for corner in corners], scale / one, t / one, ask)
        for name, of in (
            ("count", lambda x, y: 1.0),
            ("first_sum", lambda x, y: x),
            ("second_sum", lambda x, y: y),
            ("product_sum", lambda x, y: x * y),
        )
    }
    return ask.release("covariance", share * most, (low * most, high * most), scale / one, parts=parts)


def _weighted(query: str, noisy: FloatArray, weights: list[float], scale: float, t: float, ask: Ask) -> Release:
    """Return a weighted sum of the numbers as a release of its own, given the t that holds for all of them at once."""
    value, size = float(noisy @ np.array(weights)), math.fsum(map(abs, weights))
    if ask.delta is not None:  # exact, and the digits that were cut off
        t = min(ask.error(scale * math.hypot(*weights)) + size * 2.0**-PRODUCT_BITS, size * t)
    else:
        t *= size
    least, most = (0.0 if min(weights) >= 0 else -math.inf), (0.0 if max(weights) <= 0 else math.inf)
    noise_size = scale * (math.hypot(*weights) if ask.delta is not None else max(map(abs, weights)))
    ends = _ask.between(value - t, value + t, least, most)
    return ask.release(query, min(max(value, least), most), ends, noise_size)


def _covariance_share(b00: float, b10: float, b01: float, b11: float) -> float:
    total = b00 + b10 + b01 + b11
    return (b11 / total) * (b00 / total) - (b10 / total) * (b01 / total) if total > 0 else 0.0


def _covariance_box(low: list[float], high: list[float]) -> tuple[float, float]:
    """Return bounds on ``(b11 b00 - b10 b01) / (b00 + b10 + b01 + b11)²`` over a box of four numbers ≥ 0.

    In b10 and in b01 it first falls and then rises, so the largest value has both at an end. In b00 it first rises and
    then falls, with the top at ``b11 + b10 + b01 + 2 b10 b01 / b11``, and in b11 likewise. Both can be at their tops
    only for b10 = b01 = 0 and b00 = b11, where it is 1/4; otherwise one of them is at an end. The least value is that
    of the two pairs exchanged, with the other sign.
    """
    if sum(low) == 0.0:
        return -0.25, 0.25

    def largest(i: int, j: int, k: int, m: int) -> float:  # of (b_i b_j - b_k b_m) / total²
        if low[k] == low[m] == 0.0 and max(low[i], low[j]) <= min(high[i], high[j]):
            return 0.25
        most = -0.25
        for p, q in itertools.product((low[k], high[k]), (low[m], high[m])):
            for one, other in ((i, j), (j, i)):
                for fixed in (low[one], high[one]):
                    top = fixed + p + q + 2 * p * q / fixed if fixed > 0 else math.inf
                    for free in (low[other], high[other], min(max(top, low[other]), high[other])):
                        most = max(most, _covariance_share(fixed, p, q, free))
        return min(most, 0.25)

    return -largest(1, 2, 0, 3), largest(0, 3, 1, 2)
