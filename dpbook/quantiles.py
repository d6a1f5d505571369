"""Quantiles, medians and bounds with differential privacy: one of many public points is chosen.

Noise would drown a median, whose sensitivity is that of the bounds. But how many records a point's rank misses the
wanted one by moves by one record at most. So a quantile is drawn with `dpbook.noise`'s exact choices among public
points, better ones being likelier. `private_quantiles` shares ε among several, and `private_bounds` finds bounds for
data that has none.
"""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from dpbook import _ask, _validate, noise
from dpbook._validate import ADD_REMOVE, FloatArray, IntArray
from dpbook.histograms import _bin_counts
from dpbook.laplace import discrete_laplace_error, laplace_scale
from dpbook.release import Release
from dpbook.sensitivity import _float_chunks, histogram_sensitivity

RANK_BITS = 24  # a quantile counts as a multiple of 2**-24, so that ranks are whole numbers
POINTS_BITS = 48  # a quantile is one of about 2**48 points between the bounds
FEW_POINTS = 2**18  # with no more points than this, each has a coin of its own

# --- points -----------------------------------------------------------------------------------------------------------


def quantile_points(*, bounds: tuple[float, float], step: float | None = None) -> tuple[float, int, int]:
    """Return the public points that a private quantile can be: ``j * step`` for whole j from `first` to `last`.

    With a `step`, a bound that misses a multiple by its rounding only counts as that multiple: 0.3 is no multiple of
    0.1 in float64, but is meant to be one. Such a point is then the bound itself.

    Parameters
    ----------
    bounds : tuple of float
        Public bounds (L, U).
    step : float, optional
        Distance of the points. None: a power of two, about 2**-48 of the width, that float64 resolves at the bounds.

    Returns
    -------
    tuple of (float, int, int)
        The step, first and last.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, or no multiple of the step lies within the bounds.

    References
    ----------
    The construction of `exponential_quantile`.

    Examples
    --------
    >>> quantile_points(bounds=(0, 120), step=1)
    (1.0, 0, 120)
    """
    lower, upper = _validate.bounds(bounds=bounds)
    if max(-lower, upper) > 2.0**900:
        raise ValueError(f"bounds must lie within ±2**900 for a quantile, got ({lower}, {upper})")
    slack = 0.0
    if step is None:
        finest = math.ulp(max(-lower, upper))
        wanted = math.ldexp(1.0, max(math.frexp(upper - lower)[1] - POINTS_BITS, -1074))
        size = max(wanted, finest) if upper > lower else finest
    else:
        size = _validate.positive(step=step)
        slack = min(2.0**-50 * (max(-lower, upper) / size), 2.0**-10)
    if max(-lower, upper) / size > 2.0**53:
        raise ValueError(f"step must be at least 2**-53 of the bounds, got {step!r}")
    first, last = math.ceil(lower / size - slack), math.floor(upper / size + slack)
    if first > last:
        raise ValueError(f"step must have a multiple within the bounds ({lower}, {upper}), got {step!r}")
    if last - first > 2**50:
        raise ValueError(f"step must be at least 2**-50 of the width of the bounds, got {step!r}")
    return size, first, last


def quantile_sensitivity(*, q: float, neighbors: str, max_rows: int | None = None) -> float:
    """Return the sensitivity of the distance between a point's rank and q n, the (negative) utility of a quantile.

    ``max(q, 1 - q)`` under add/remove, 1 under replace-one, times the rows of a person.

    Parameters
    ----------
    q : float
        Which quantile, from 0 to 1; it counts as the nearest multiple of 2**-24.
    neighbors : {"add_remove", "replace_one"}
        The neighbour relation of the claim.
    max_rows : int, optional
        The most rows that one person holds. None: exactly one row each.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    Notes
    -----
    A record moves ``rank - q n`` by ``1 - q`` or by ``-q``. So adding one moves it by at most ``max(q, 1 - q)``, and
    exchanging up to m rows for up to m others moves it by at most ``m (1 - q) + m q = m``.

    References
    ----------
    Smith (2011), Privacy-preserving statistical estimation with optimal convergence rates, for the utility.

    Examples
    --------
    >>> quantile_sensitivity(q=0.5, neighbors="add_remove")
    0.5
    """
    part = _quantile(q)
    rows = 1 if max_rows is None else _validate.integer(max_rows=max_rows)
    each = max(part, 2**RANK_BITS - part) if _validate.neighbors(neighbors) == ADD_REMOVE else 2**RANK_BITS
    return math.ldexp(rows * each, -RANK_BITS)


def _quantile_scale(epsilon: float, ranks: float, given: Any) -> float:
    """Return ``2 * ranks / epsilon`` in units of 2**-24, for a part of the ε that was given."""
    sensitivity = math.ldexp(ranks, RANK_BITS + 1)
    exact = Fraction(sensitivity) / (Fraction(epsilon) or Fraction(1, 2**1100))  # 0: a share that float64 cannot hold
    if not 2.0**-900 <= exact <= 2.0**900:
        change = "larger" if exact > 1 else "smaller"
        raise ValueError(f"epsilon must be {change} for a choice that can be drawn, got {given!r}")
    return laplace_scale(epsilon=epsilon, sensitivity=sensitivity)


def _quantile(q: Any) -> int:
    value = _validate.real("a number from 0 to 1", q=q)
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"q must be a number from 0 to 1, got {_validate.shown(q)}")
    part: int = round(value * 2**RANK_BITS)
    return part


def exponential_quantile(
    values: Any,
    *,
    q: float,
    bounds: tuple[float, float],
    epsilon: float,
    neighbors: str,
    step: float | None = None,
    max_rows: int | None = None,
    rng: np.random.Generator | None = None,
) -> float:
    """Return a private quantile, with ε-DP under the stated relation: one of many public points is chosen.

    The candidates are all multiples of `step` within the bounds. The utility of a point is minus the number of records
    by which its rank misses q n. A point that many records share has all their ranks, and where q n is among them the
    utility is positive: the distance to the nearer end. The
    choice is by permute-and-flip where there are at most 2**18 points. With more it is by the exponential mechanism, in
    which the points between two records, of the same utility, are drawn as one; the two then hardly differ. The
    probabilities are exact; with ties, with no data, and where every weight but a few underflows.

    Parameters
    ----------
    values : array_like
        One-dimensional records, at most 2**29; each is rounded to the nearest point, and one that is no number counts
        as the middle of the bounds. Left untouched.
    q : float
        Which quantile, from 0 to 1: 0.5 is the median. It counts as the nearest multiple of 2**-24.
    bounds : tuple of float
        Public bounds (L, U).
    epsilon : float
        Privacy parameter ε > 0.
    neighbors : {"add_remove", "replace_one"}
        The neighbour relation of the claim.
    step : float, optional
        Public distance of the points; None: about 2**-48 of the width. Fewer points give less error: for whole numbers
        such as ages, 1.
    max_rows : int, optional
        The most rows that one person holds. None: exactly one row each.
    rng : numpy.random.Generator, optional
        None (the default) draws from the operating system's entropy. A seeded release is NOT private.

    Returns
    -------
    float
        A point within the bounds.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, or the values are no one-dimensional numeric column.

    Notes
    -----
    Another common utility is minus the distance of the *middle* of a point's ranks from q n. It has the same
    sensitivity, and can put a point beside a tie above the tie that is the quantile. Here that cannot happen: the
    utility is 0 or more where q n is among the ranks of a point, and negative elsewhere. With 0 or more there, no
    utility of this sensitivity puts the other points lower: adding or removing records brings q n among the ranks of a
    point that misses it by d in as few as d divided by the sensitivity, and each raises the utility by that at most.

    References
    ----------
    Smith (2011), Alg. 2, for the exponential mechanism on the real line; McKenna, Sheldon (2020), for the other.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)  # seeded: not private
    >>> ages = np.arange(18, 91).repeat(20)
    >>> exponential_quantile(ages, q=0.5, bounds=(0, 120), step=1, epsilon=0.5, neighbors="add_remove", rng=rng)
    54.0
    """
    size, first, last = quantile_points(bounds=bounds, step=step)
    lower, upper = _validate.bounds(bounds=bounds)
    part = _quantile(q)
    ranks = quantile_sensitivity(q=q, neighbors=neighbors, max_rows=max_rows)
    eps = _validate.positive(epsilon=epsilon)
    scale = _quantile_scale(eps, ranks, epsilon)
    _validate.generator(rng)
    column = _validate.column(values=values)
    if len(column) > _ask.LARGEST_COUNT:
        raise ValueError("values must have at most 2**29 records")
    places, points = _places(column, size, first, last, (lower, upper)), last - first + 1
    if points <= FEW_POINTS:
        heads = np.flatnonzero(noise.flip_coins(-_misses(places, part, points), scale=scale, rng=rng))
        place = int(heads[noise.choose_index(np.zeros(len(heads)), scale=1.0, rng=rng)])
        return float(min(max((first + place) * size, lower), upper))
    read = noise._reader(rng)
    uniform = noise._Uniform(read)
    run = _window_run(places, part, scale, points, uniform) or _run(places, part, scale, points, uniform)
    place = run[0] + noise._uniform_below(run[1], read)
    return float(min(max((first + place) * size, lower), upper))


def _places(column: npt.NDArray[Any], step: float, first: int, last: int, bounds: tuple[float, float]) -> FloatArray:
    """Return the place of each record among the points: a whole number from 0 to ``last - first``, as float64."""
    places = np.empty(len(column))
    middle = min(max(round((bounds[0] + (bounds[1] - bounds[0]) / 2) / step), first), last)
    start = 0
    with np.errstate(all="ignore"):
        for x in _float_chunks(column):
            out = places[start : start + len(x)]
            np.divide(x, step, out=x)
            np.rint(x, out=x)
            np.clip(x, first, last, out=x)
            if math.isnan(float(np.add.reduce(x))):
                x[np.isnan(x)] = middle
            np.subtract(x, first, out=out)
            start += len(x)
    return places


def _misses(places: FloatArray, part: int, points: int) -> FloatArray:
    """Return by how much the ranks of each point miss q n, in units of 2**-24: whole numbers, and so exact."""
    counts = np.zeros(points, dtype=np.int64)
    for start in range(0, len(places), 2**18):
        counts += np.bincount(places[start : start + 2**18].astype(np.intp), minlength=points)
    upto = np.cumsum(counts)
    target = part * len(places)
    miss = np.maximum(((upto - counts) << RANK_BITS) - target, target - (upto << RANK_BITS))
    return np.asarray(miss, dtype=np.float64)


Run = tuple[int, int]  # the first place and the number of places of neighbouring points with the same utility


def _run(places: FloatArray, part: int, scale: float, points: int, uniform: noise._Uniform) -> Run:
    """Draw a run with the probabilities of the mechanism, from all records."""
    distinct, counts = np.unique(places, return_counts=True)
    upto = np.cumsum(counts)
    run = _draw_run(distinct, upto - counts, upto, True, True, len(places), part, scale, points, uniform, 0.0)
    assert run is not None  # only what is not listed leaves it open
    return run


def _window_run(places: FloatArray, part: int, scale: float, points: int, uniform: noise._Uniform) -> Run | None:
    """Draw the run from the records whose rank is near q n, or return None when the others matter."""
    n = len(places)
    centre = (part * n) >> RANK_BITS
    reach = (noise.FAINT + math.log(points)) * scale * 2.0**-RANK_BITS + 2
    if not 4 * reach < n:
        return None
    low, high = max(centre - int(reach) - 1, 0), min(centre + int(reach) + 2, n - 1)
    near = _ranked(places, low, high)
    distinct, counts = np.unique(near, return_counts=True)
    upto = low + np.cumsum(counts)
    less = upto - counts
    if low > 0:  # the first place may have more records before the window, and the last behind it
        less[0] = np.count_nonzero(places < distinct[0])
    if high < n - 1:
        upto[-1] = np.count_nonzero(places <= distinct[-1])
    # What is not listed misses by more than the reach, and some listed point has a utility of 0 or more.
    unlisted = points * math.exp(-(reach - 2) * 2.0**RANK_BITS / scale) * 1.01
    return _draw_run(distinct, less, upto, low == 0, high == n - 1, n, part, scale, points, uniform, unlisted)


def _ranked(places: FloatArray, low: int, high: int) -> FloatArray:
    """Return the records of the ranks `low` to `high`, in order: ``np.sort(places)[low : high + 1]``.

    A sample tells between which values they lie; where it is wrong, or little is gained, NumPy selects them.
    """
    n = len(places)
    sample = np.sort(places[:: max(n >> 14, 1)])
    margin = 5 * math.isqrt(len(sample))
    start, end = low * len(sample) // n - margin, high * len(sample) // n + margin
    if start >= 0 and end < len(sample) and sample[start] < sample[end]:
        below = int(np.count_nonzero(places < sample[start]))
        middle: FloatArray = places[(places >= sample[start]) & (places <= sample[end])]
        if below <= low and high < below + len(middle) and 4 * len(middle) < n:
            middle.sort()
            return middle[low - below : high - below + 1]
    return np.sort(np.partition(places, (low, high))[low : high + 1])


def _draw_run(
    distinct: FloatArray,
    less: IntArray,
    upto: IntArray,
    from_the_start: bool,
    to_the_end: bool,
    n: int,
    part: int,
    scale: float,
    points: int,
    uniform: noise._Uniform,
    unlisted: float,
) -> Run | None:
    k = len(distinct)
    starts: FloatArray = np.empty(2 * k + 1)  # gap, point, gap, …, point, gap
    ends: FloatArray = np.empty(2 * k + 1)
    starts[1::2], ends[1::2] = distinct, distinct + 1
    starts[2::2], ends[:-1:2] = distinct + 1, distinct
    starts[0], ends[-1] = 0, points
    before, behind = np.empty(2 * k + 1), np.empty(2 * k + 1)
    before[1::2], behind[1::2] = less, upto
    before[2::2] = behind[2::2] = upto
    before[0] = behind[0] = 0
    target = float(part * n)  # all of this is whole numbers below 2**53, and so exact
    miss = np.maximum(before * 2.0**RANK_BITS - target, target - behind * 2.0**RANK_BITS)
    listed = ends > starts
    listed[0] &= from_the_start
    listed[-1] &= to_the_end
    starts, lengths = starts[listed], (ends - starts)[listed]
    i = noise._pick(-miss[listed], lengths, scale, uniform, unlisted)
    return None if i is None else (int(starts[i]), int(lengths[i]))


# --- quantiles, median, bounds ----------------------------------------------------------------------------------------


def private_quantiles(
    values: Any,
    *,
    q: Any,
    bounds: tuple[float, float],
    epsilon: float,
    neighbors: str,
    step: float | None = None,
    person: Any = None,
    max_contributions: int | None = None,
    alpha: float = 0.05,
    rng: np.random.Generator | None = None,
) -> Release:
    """Return private quantiles, with ε-DP in all under the stated relation.

    Each of k quantiles is drawn by `dpbook.exponential_quantile` with ε/k; then they are put in order.

    Parameters
    ----------
    values : array_like
        One-dimensional records, each rounded to the nearest point; one that is no number counts as the middle of the
        bounds. Left untouched.
    q : float or list of float
        Which quantiles, from 0 to 1.
    bounds : tuple of float
        Public bounds (L, U).
    epsilon : float
        Privacy parameter ε > 0 of all quantiles together.
    neighbors : {"add_remove", "replace_one"}
        The neighbour relation of the guarantee.
    step : float, optional
        Public distance of the points that a quantile can be, for whole numbers 1; None: about 2**-48 of the width.
    person, max_contributions : array_like and int, optional
        Who each row is from, and the most rows to keep of one person.
    alpha : float, optional
        Significance level of `rank_error`, for all quantiles together.
    rng : numpy.random.Generator, optional
        None (the default) draws from the operating system's entropy. A seeded release is NOT private.

    Returns
    -------
    Release
        A float, or an array where `q` is a list. No interval follows from public numbers: how far a rank moves a value
        depends on the data. `rank_error` bounds the miss in records, and is larger than what is seen in practice.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, before data is touched; or the values are no one-dimensional numeric column.

    References
    ----------
    Smith (2011), Alg. 2; McSherry, Talwar (2007), Thm. 8, for the bound on the rank.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)  # seeded: not private
    >>> ages = np.arange(18, 91).repeat(20)
    >>> ask = {"bounds": (0, 120), "step": 1, "epsilon": 1, "neighbors": "add_remove"}
    >>> private_quantiles(ages, q=[0.25, 0.75], **ask, rng=rng).value
    array([36., 72.])
    """
    ask = _ask.checked(epsilon, None, neighbors, alpha, person, max_contributions, rng)
    parts = _validate.finite_array(q=q)
    if parts.ndim > 1 or not parts.size:
        raise ValueError(f"q must be a number or a list of numbers from 0 to 1, got {_validate.shown(q)}")
    wanted = np.atleast_1d(parts).tolist()
    if not all(0.0 <= part <= 1.0 for part in wanted):
        raise ValueError(f"q must be from 0 to 1, got {_validate.shown(q)}")
    each = ask.epsilon / len(wanted)
    while Fraction(each) * len(wanted) > Fraction(ask.epsilon):
        each = math.nextafter(each, 0.0)
    _, first, last = quantile_points(bounds=bounds, step=step)
    ranks = max(quantile_sensitivity(q=part, neighbors=ask.neighbors, max_rows=ask.max_rows) for part in wanted)
    scale = math.ldexp(_quantile_scale(each, ranks, epsilon), -RANK_BITS)
    column = _ask.column(values, person, ask)
    found = [
        exponential_quantile(
            column,
            q=part,
            bounds=bounds,
            epsilon=each,
            neighbors=ask.neighbors,
            step=step,
            max_rows=ask.max_rows,
            rng=ask.rng,
        )
        for part in wanted
    ]
    value = np.empty(len(found))
    value[np.argsort(wanted, kind="stable")] = np.sort(found)
    miss = scale * (math.log(last - first + 1) - math.log(ask.alpha / len(wanted)))
    given = float(value[0]) if parts.ndim == 0 else value
    kind = "permute_and_flip" if last - first < FEW_POINTS else "exponential"
    return ask.release("quantile", given, None, scale, mechanism=kind, rank_error=miss)


def private_median(
    values: Any,
    *,
    bounds: tuple[float, float],
    epsilon: float,
    neighbors: str,
    step: float | None = None,
    person: Any = None,
    max_contributions: int | None = None,
    alpha: float = 0.05,
    rng: np.random.Generator | None = None,
) -> Release:
    """Return a private median, with ε-DP under the stated relation: `private_quantiles` with ``q=0.5``.

    Parameters
    ----------
    values : array_like
        One-dimensional records, each rounded to the nearest point; one that is no number counts as the middle of the
        bounds. Left untouched.
    bounds : tuple of float
        Public bounds (L, U).
    epsilon : float
        Privacy parameter ε > 0.
    neighbors : {"add_remove", "replace_one"}
        The neighbour relation of the guarantee.
    step : float, optional
        Public distance of the points that the median can be, for whole numbers 1; None: about 2**-48 of the width.
    person, max_contributions : array_like and int, optional
        Who each row is from, and the most rows to keep of one person.
    alpha : float, optional
        Significance level of `rank_error`.
    rng : numpy.random.Generator, optional
        None (the default) draws from the operating system's entropy. A seeded release is NOT private.

    Returns
    -------
    Release
        See `private_quantiles`.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, before data is touched; or the values are no one-dimensional numeric column.

    References
    ----------
    See `private_quantiles`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)  # seeded: not private
    >>> ages = np.arange(18, 91).repeat(20)
    >>> private_median(ages, bounds=(0, 120), step=1, epsilon=0.5, neighbors="add_remove", rng=rng).value
    54.0
    """
    of = private_quantiles(
        values,
        q=0.5,
        bounds=bounds,
        epsilon=epsilon,
        neighbors=neighbors,
        step=step,
        person=person,
        max_contributions=max_contributions,
        alpha=alpha,
        rng=rng,
    )
    return replace(of, query="median")


def private_bounds(
    values: Any,
    *,
    epsilon: float,
    neighbors: str,
    magnitudes: tuple[float, float],
    failure_prob: float = 0.01,
    person: Any = None,
    max_contributions: int | None = None,
    rng: np.random.Generator | None = None,
) -> Release:
    """Return private bounds for later queries, with ε-DP under the stated relation, from a histogram of powers of two.

    The records are counted by sign and by power of two, with noise, and the bounds are the ends of the outermost bins
    that hold more than noise would. Use them as `bounds` of what follows: that costs an ε of its own.

    Parameters
    ----------
    values : array_like
        One-dimensional records; one that is no number counts as 0. Left untouched.
    epsilon : float
        Privacy parameter ε > 0 of choosing the bounds.
    neighbors : {"add_remove", "replace_one"}
        The neighbour relation of the guarantee.
    magnitudes : tuple of float
        Public: the smallest size that is told from 0, and the largest that is possible: (1, 1e9) for money.
    failure_prob : float, optional
        With this probability at most, noise alone makes some empty bin count.
    person, max_contributions : array_like and int, optional
        Who each row is from, and the most rows to keep of one person.
    rng : numpy.random.Generator, optional
        None (the default) draws from the operating system's entropy. A seeded release is NOT private.

    Returns
    -------
    Release
        `value` is the pair (lower, upper): each 0 or a power of two, with its sign. Records in bins with few others are
        clipped by these bounds; that is the point. With little data or ε, the bin with the largest noisy count is
        taken.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, before data is touched; or the values are no one-dimensional numeric column.

    References
    ----------
    Wilson et al. (2020), Differentially private SQL with bounded user contribution, Sec. 5.1.1.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)  # seeded: not private
    >>> income = np.linspace(18_000, 70_000, 5_000)
    >>> private_bounds(income, epsilon=0.1, neighbors="add_remove", magnitudes=(1, 1e9), rng=rng).value
    (16384.0, 131072.0)
    """
    level = _validate.open_unit(failure_prob=failure_prob)
    ask = _ask.checked(epsilon, None, neighbors, level, person, max_contributions, rng)
    smallest, largest = _validate.bounds(magnitudes=magnitudes)
    if not 2.0**-500 <= smallest <= largest <= 2.0**500:
        raise ValueError(f"magnitudes must lie between 2**-500 and 2**500, got ({smallest}, {largest})")
    least, most = math.frexp(smallest)[1] - 1, math.frexp(largest)[1] - 1
    powers = [math.ldexp(1.0, e) for e in range(least, most + 2)]
    ends = np.array([*(-x for x in reversed(powers)), *powers])  # negative bins, the bin of 0, positive bins
    edges = ends.copy()  # a bin holds its left edge: for negative records it must be the right one, the nearer to 0
    edges[1 : len(powers)] = np.nextafter(ends[1 : len(powers)], math.inf)
    size = histogram_sensitivity(neighbors=ask.neighbors, norm="l1", max_rows_per_group=ask.max_rows or 1)
    scale = ask.size(size, whole=True)
    counts = noise.add_discrete_laplace(_bin_counts(_ask.column(values, person, ask), edges), scale=scale, rng=ask.rng)
    limit = discrete_laplace_error(scale=scale, alpha=min(2 * ask.alpha / len(counts), 0.5))
    full = np.flatnonzero(counts > limit)
    if not len(full):
        full = np.array([int(np.argmax(counts))])
    zero = len(powers) - 1
    low, high = float(ends[full[0]]), float(ends[full[-1] + 1])
    low, high = (0.0 if full[0] == zero else low), (0.0 if full[-1] == zero else high)
    return ask.release("bounds", (low, high), None, scale, mechanism="discrete_laplace")
