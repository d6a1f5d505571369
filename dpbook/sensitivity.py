"""Sensitivity: how far one person can move an answer, and how clipping makes that finite.

Two datasets are neighbours when they differ in one person. Which difference that is must be said every time:

* ``"add_remove"``: one has all rows of one person more. The number of people is private.
* ``"replace_one"``: the rows of one person are replaced. The number of people n is public, and the same in both.

Every function returns a bound that holds for all datasets, from public arguments alone, rounded up to float64. A
`max_rows` says that a person holds anything from no row to that many; None says exactly one row each.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from dpbook import _validate
from dpbook._exact import round_up, sqrt_up
from dpbook._validate import ADD_REMOVE, REPLACE_ONE, FloatArray

NORMS = ("l1", "l2")
RECORD_BITS = 24  # a clipped record is a whole number of steps of 2**-24 to 2**-23 of the larger bound
SMALLEST_BOUND, LARGEST_BOUND = 2.0**-900, 2.0**900  # so that sums and scaled vectors stay inside float64
CHUNK = 2**15  # records worked on at a time, so that they stay in the cache
LARGEST_SEARCH = 2_000_000  # pairs of datasets that `brute_force_sensitivity` is willing to try


def _several_rows(least: Fraction, most: Fraction, relation: str, max_rows: int | None) -> float:
    """Bound the change of a sum whose terms lie in [least, most]."""
    if max_rows is None and relation == REPLACE_ONE:
        return round_up(most - least)
    rows = 1 if max_rows is None else _validate.integer(max_rows=max_rows)
    if relation == ADD_REMOVE:
        return round_up(rows * max(abs(least), abs(most)))
    # No row at all counts as 0, so what one person contributes lies between these two.
    return round_up(rows * (max(most, Fraction(0)) - min(least, Fraction(0))))


def count_sensitivity(*, neighbors: str, max_rows: int = 1) -> int:
    """Return the sensitivity of the number of rows that meet a public condition: `max_rows` under either relation.

    Parameters
    ----------
    neighbors : {"add_remove", "replace_one"}
        The neighbour relation of the claim.
    max_rows : int, optional
        The most rows that one person holds.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    Dwork, McSherry, Nissim, Smith (2006), Sec. 2.

    Examples
    --------
    >>> count_sensitivity(neighbors="add_remove")
    1
    """
    _validate.neighbors(neighbors)
    return _validate.integer(max_rows=max_rows)


def sum_sensitivity(*, bounds: tuple[float, float], neighbors: str, max_rows: int | None = None) -> float:
    """Return the sensitivity of a sum of records clipped to `bounds`.

    With bounds (L, U): ``max(|L|, |U|)`` under add/remove, ``U - L`` under replace-one, for one row each. With up to m
    rows each: m times ``max(|L|, |U|)``, or m times ``max(U, 0) - min(L, 0)``.

    Parameters
    ----------
    bounds : tuple of float
        Public clipping bounds (L, U).
    neighbors : {"add_remove", "replace_one"}
        The neighbour relation of the claim.
    max_rows : int, optional
        The most rows that one person holds, from none to that many. None: exactly one row each.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    Dwork, Roth (2014), Def. 3.1, applied to a clipped sum.

    Examples
    --------
    >>> [sum_sensitivity(bounds=(-3, 2), neighbors=relation) for relation in ("add_remove", "replace_one")]
    [3.0, 5.0]
    """
    lower, upper = map(Fraction, _validate.bounds(bounds=bounds))
    return _several_rows(lower, upper, _validate.neighbors(neighbors), max_rows)


def sum_of_squares_sensitivity(*, bounds: tuple[float, float], neighbors: str, max_rows: int | None = None) -> float:
    """Return the sensitivity of the sum of the squares of records clipped to `bounds`.

    Parameters
    ----------
    bounds : tuple of float
        Public clipping bounds (L, U) of the records, before squaring.
    neighbors : {"add_remove", "replace_one"}
        The neighbour relation of the claim.
    max_rows : int, optional
        The most rows that one person holds, from none to that many. None: exactly one row each.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    Dwork, Roth (2014), Def. 3.1; a square lies between 0 or ``min(L², U²)`` and ``max(L², U²)``.

    Examples
    --------
    >>> sum_of_squares_sensitivity(bounds=(1, 3), neighbors="replace_one")
    8.0
    """
    lower, upper = map(Fraction, _validate.bounds(bounds=bounds))
    least = Fraction(0) if lower <= 0 <= upper else min(lower**2, upper**2)
    return _several_rows(least, max(lower**2, upper**2), _validate.neighbors(neighbors), max_rows)


def _public_n(name: str, n: Any, neighbors: str, instead: str) -> int:
    size = _validate.integer(n=n)
    if _validate.neighbors(neighbors) == ADD_REMOVE:
        raise ValueError(
            f"neighbors must be 'replace_one' for {name}: under 'add_remove' the number of people is private and "
            f"cannot be a public n; {instead}"
        )
    return size


def mean_sensitivity(*, bounds: tuple[float, float], n: int, neighbors: str) -> float:
    """Return the sensitivity ``(U - L) / n`` of the mean of n records clipped to `bounds`, under replace-one only.

    Under add/remove the number of people is itself private: release a noisy sum and a noisy count, and divide.

    Parameters
    ----------
    bounds : tuple of float
        Public clipping bounds (L, U).
    n : int
        The public number of people, one record each. Never ``len(data)`` of data whose size is private.
    neighbors : {"replace_one"}
        The neighbour relation of the claim; "add_remove" is refused with the reason.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    Notes
    -----
    It is the sensitivity of the mean of real numbers. To be exact on a computer too, release `clipped_sum` with
    `sum_sensitivity` and divide the release by n: the same noise, and division of a release costs nothing.

    References
    ----------
    Dwork, Roth (2014), Def. 3.1, applied to a clipped mean.

    Examples
    --------
    >>> mean_sensitivity(bounds=(0, 100), n=100, neighbors="replace_one")
    1.0
    """
    lower, upper = map(Fraction, _validate.bounds(bounds=bounds))
    size = _public_n("a mean", n, neighbors, "release a noisy sum and a noisy count, and divide")
    return round_up((upper - lower) / size)


def variance_sensitivity(*, bounds: tuple[float, float], n: int, neighbors: str, ddof: int = 0) -> float:
    """Return the sensitivity of the variance of n records clipped to `bounds`, under replace-one only.

    ``(U - L)**2 * (n - 1) / n**2`` for the population variance (ddof 0), ``(U - L)**2 / n`` for the sample variance.

    Parameters
    ----------
    bounds : tuple of float
        Public clipping bounds (L, U).
    n : int
        The public number of people, one record each; at least 2 for ddof 1.
    neighbors : {"replace_one"}
        The neighbour relation of the claim; "add_remove" is refused with the reason.
    ddof : {0, 1}, optional
        As in `numpy.var`.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    Notes
    -----
    The variance is the sum of ``(x_i - x_j)**2`` over all ordered pairs, over ``2 n**2``. Replacing one record changes
    n - 1 unordered pairs, each by at most ``(U - L)**2``; n - 1 records at L and one that moves from L to U attain it.

    References
    ----------
    The pair formula in the notes; `brute_force_sensitivity` confirms it on small domains.

    Examples
    --------
    >>> variance_sensitivity(bounds=(0, 10), n=100, neighbors="replace_one", ddof=1)
    1.0
    """
    lower, upper = map(Fraction, _validate.bounds(bounds=bounds))
    size = _public_n("a variance", n, neighbors, "release noisy sums of records and squares, and a noisy count")
    if _validate.integer(0, ddof=ddof) > 1:
        raise ValueError(f"ddof must be 0 or 1, got {ddof!r}")
    if ddof == 1 and size < 2:
        raise ValueError(f"n must be at least 2 for ddof=1, got {n!r}")
    width = (upper - lower) ** 2
    return round_up(width / size if ddof == 1 else width * (size - 1) / size**2)


def histogram_sensitivity(*, neighbors: str, norm: str, max_groups: int = 1, max_rows_per_group: int = 1) -> float:
    """Return the L1 or L2 sensitivity of counts over public bins or groups.

    One person with rows in up to k groups, up to m in each: L1 is ``k m`` and L2 is ``m sqrt(k)`` under add/remove;
    under replace-one the old and the new rows may lie in different groups, which doubles k
    (attained from 2k groups on).

    Parameters
    ----------
    neighbors : {"add_remove", "replace_one"}
        The neighbour relation of the claim.
    norm : {"l1", "l2"}
        "l1" for Laplace noise, "l2" for Gaussian noise.
    max_groups : int, optional
        The most groups in which one person has rows.
    max_rows_per_group : int, optional
        The most rows that one person has in a group.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    Dwork, Roth (2014), Sec. 3.3, for one row each.

    Examples
    --------
    >>> histogram_sensitivity(neighbors="replace_one", norm="l1")
    2.0
    >>> histogram_sensitivity(neighbors="add_remove", norm="l2", max_groups=9, max_rows_per_group=2)
    6.0
    """
    relation, kind = _validate.neighbors(neighbors), _validate.choice(NORMS, norm=norm)
    groups = _validate.integer(max_groups=max_groups) * (2 if relation == REPLACE_ONE else 1)
    return _vector(groups, Fraction(_validate.integer(max_rows_per_group=max_rows_per_group)), kind)


def _vector(coordinates: int, each: Fraction, norm: str) -> float:
    return round_up(coordinates * each) if norm == "l1" else sqrt_up(coordinates * each**2)


def vector_sensitivity(*, per_coordinate: float, dimension: int, norm: str) -> float:
    """Return the L1 or L2 sensitivity of a vector of which every coordinate moves by at most `per_coordinate`.

    ``dimension * per_coordinate`` for L1, ``sqrt(dimension) * per_coordinate`` for L2, under the relation for which
    `per_coordinate` was computed. It is the bound for answering many scalar queries at once.

    Parameters
    ----------
    per_coordinate : float
        Sensitivity of each coordinate, ≥ 0.
    dimension : int
        Number of coordinates.
    norm : {"l1", "l2"}
        "l1" for Laplace noise, "l2" for Gaussian noise.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    The norm inequalities ``|v|_1 <= d |v|_inf`` and ``|v|_2 <= sqrt(d) |v|_inf``.

    Examples
    --------
    >>> vector_sensitivity(per_coordinate=1.0, dimension=9, norm="l2")
    3.0
    """
    each = Fraction(_validate.non_negative(per_coordinate=per_coordinate))
    return _vector(_validate.integer(dimension=dimension), each, _validate.choice(NORMS, norm=norm))


def norm_sum_sensitivity(*, max_norm: float, neighbors: str) -> float:
    """Return the sensitivity of a sum of vectors clipped to norm `max_norm`, in that norm.

    C under add/remove and 2 C under replace-one, one vector each.

    Parameters
    ----------
    max_norm : float
        The clipping norm C > 0 of `clip_norm`.
    neighbors : {"add_remove", "replace_one"}
        The neighbour relation of the claim.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    The triangle inequality.

    Examples
    --------
    >>> norm_sum_sensitivity(max_norm=1.0, neighbors="replace_one")
    2.0
    """
    c = _validate.positive(max_norm=max_norm)
    return c if _validate.neighbors(neighbors) == ADD_REMOVE else round_up(2 * Fraction(c))


def clip(values: Any, *, bounds: tuple[float, float]) -> FloatArray:
    """Return the records clipped to `bounds`; a record that is not a number becomes the middle of the bounds.

    Parameters
    ----------
    values : array_like
        One-dimensional records: list, tuple, range, NumPy array or pandas Series. NaN, None, NA, masked and text
        entries never raise and never change the length: each becomes ``(lower + upper) / 2``. Left untouched. An
        object or pandas text column is read entry by entry, so text in it becomes the middle, and does not raise.
    bounds : tuple of float
        Public bounds, never the minimum and maximum of the data.

    Returns
    -------
    numpy.ndarray of float64
        One entry for each record, all within the bounds.

    Raises
    ------
    TypeError, ValueError
        When the bounds break their rule, or the values are no one-dimensional numeric column.

    References
    ----------
    Dwork, Roth (2014), Def. 3.1: without bounds a sum has no finite sensitivity.

    Examples
    --------
    >>> clip([10, 200, None, float("nan")], bounds=(0, 100))
    array([ 10., 100.,  50.,  50.])
    """
    lower, upper = _validate.bounds(bounds=bounds)
    data = _validate.records(values=values)
    result = np.clip(data, lower, upper)
    result[np.isnan(result)] = min(max(lower + (upper - lower) / 2, lower), upper)
    return result


def clipped_sum(values: Any, *, bounds: tuple[float, float]) -> float:
    """Return the sum of the records clipped to `bounds`, with no rounding error that could leak.

    Each clipped record is rounded to a whole number of public steps of at most ``2**-23 * max(|L|, |U|)``, inside the
    bounds, and the whole numbers are added; a record below half a step becomes 0. The result does not depend on the
    order of the records, and neighbours differ by at most `sum_sensitivity`, for up to 2**29 records.

    Parameters
    ----------
    values : array_like
        One-dimensional records, as for `clip`: one that is no number counts as the middle of the bounds. Left
        untouched.
    bounds : tuple of float
        Public bounds (L, U).

    Returns
    -------
    float
        The exact sum: add noise before it leaves your hands.

    Raises
    ------
    TypeError, ValueError
        When the bounds break their rule, or the values are no one-dimensional numeric column.

    References
    ----------
    Casacuberta, Shoemate, Vadhan, Wagaman (2022), Widespread underestimation of sensitivity in differentially private
    libraries and how to fix it.

    Examples
    --------
    >>> clipped_sum([2.0**53] + [1.0] * 1000, bounds=(0, 2**20))
    1049576.0
    """
    lower, upper = _validate.bounds(bounds=bounds)
    largest = max(abs(lower), abs(upper))
    if largest > LARGEST_BOUND:
        raise ValueError(f"bounds must lie within ±2**900 for a sum, got ({lower}, {upper})")
    column = _validate.column(values=values)
    if largest == 0.0:
        return 0.0
    step = math.ldexp(1.0, max(math.frexp(largest)[1] - RECORD_BITS, -1074))
    low, high = math.ceil(lower / step), math.floor(upper / step)
    if low > high:  # no step between the bounds: take the one nearer to zero
        low = high = min(low, high, key=abs)
    middle = min(max(round((lower + (upper - lower) / 2) / step), low), high)
    total = 0
    with np.errstate(all="ignore"):
        if step < SMALLEST_BOUND:  # its inverse may be infinite
            column = column / np.float64(step)
            step_inverse = 1.0
        else:
            step_inverse = 1.0 / step
        for x in _float_chunks(column, times=step_inverse):
            total += _whole_sum(x, low, high, middle)
    return total * step


def _float_chunks(
    column: npt.NDArray[Any], *, minus: float = 0.0, times: float = 1.0, chunk: int | None = None
) -> Iterator[FloatArray]:
    """Yield ``(column - minus) * times`` in pieces of float64, in one buffer that may be written to."""
    size = CHUNK if chunk is None else chunk
    buffer = np.empty(min(len(column), size))
    plain = column.dtype == np.float64
    for start in range(0, len(column), size):
        piece = column[start : start + size]
        x = buffer[: len(piece)]
        if not plain:
            np.copyto(x, piece, casting="unsafe")
            piece = x
        if minus:
            np.subtract(piece, minus, out=x)
            np.multiply(x, times, out=x)
        else:
            np.multiply(piece, times, out=x)
        yield x


def _whole_sum(x: FloatArray, low: int, high: int, middle: int) -> int:
    """Round a chunk to whole numbers from `low` to `high` in place, NaN to `middle`, and return the exact sum.

    Exact and independent of the order: all partial sums are whole numbers below ``CHUNK * 2**24 = 2**39``.
    """
    np.rint(x, out=x)
    np.clip(x, low, high, out=x)
    total = float(np.add.reduce(x))
    if math.isnan(total):
        x[np.isnan(x)] = middle
        total = float(np.add.reduce(x))
    return int(total)


def clip_norm(vectors: Any, *, max_norm: float, norm: str = "l2") -> FloatArray:
    """Return the rows scaled down so that each has norm at most `max_norm`; directions are kept.

    Parameters
    ----------
    vectors : array_like
        Two-dimensional, one row a person. A row with an entry that is NaN, infinite or no number becomes zero. Left
        untouched.
    max_norm : float
        The clipping norm C > 0.
    norm : {"l1", "l2"}, optional
        "l2" for Gaussian noise, "l1" for Laplace noise.

    Returns
    -------
    numpy.ndarray of float64
        Same shape. Rows with a norm below C by more than 1e-12 of it are unchanged; others are scaled to just below C.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, or the vectors are no two-dimensional numeric array.

    References
    ----------
    Abadi et al. (2016), Deep learning with differential privacy, Alg. 1.

    Examples
    --------
    >>> clip_norm([[3.0, 4.0], [0.1, 0.0]], max_norm=1.0).round(12)
    array([[0.6, 0.8],
           [0.1, 0. ]])
    """
    c = _validate.positive(max_norm=max_norm)
    if not SMALLEST_BOUND <= c <= LARGEST_BOUND:
        raise ValueError(f"max_norm must lie between 2**-900 and 2**900, got {max_norm!r}")
    kind = _validate.choice(NORMS, norm=norm)
    rows = _validate.rows(vectors=vectors)
    rows[~np.isfinite(rows).all(axis=1)] = 0.0
    with np.errstate(all="ignore"):
        return _scaled_rows(rows, c, kind)


def _scaled_rows(rows: FloatArray, c: float, kind: str) -> FloatArray:
    largest = np.abs(rows).max(axis=1, initial=0.0, keepdims=True)
    safe = np.where(largest > 0, largest, 1.0)
    unit = rows / safe  # entries in [-1, 1]: squares neither overflow nor, where it matters, underflow
    size = np.sqrt((unit**2).sum(axis=1, keepdims=True)) if kind == "l2" else np.abs(unit).sum(axis=1, keepdims=True)
    size = np.where(size > 0, size, 1.0)
    too_long = size * safe > c * (1 - 2.0**-40)  # the margin covers the rounding of all that is computed here
    scaled = unit * (c * (1 - 2.0**-40) / size)
    return np.where(too_long, scaled, rows)


def norm_clipped_sum(vectors: Any, *, max_norm: float, norm: str = "l2") -> FloatArray:
    """Return the sum of the rows clipped to norm `max_norm`, with no rounding error that could leak.

    Each clipped row is cut off, entry by entry and towards zero, to whole numbers of a public step of at most
    ``2**-23 * max_norm``, so that its norm cannot grow, and the whole numbers are added. The result does not depend on
    the order of the rows, and neighbours differ by at most `norm_sum_sensitivity` in that norm, for up to 2**29 rows.
    Every entry loses up to one step, always towards zero: with ``norm="l1"`` and d columns up to ``d * 2**-23`` of
    `max_norm`, so that nothing may be left beyond 2**23 columns.

    Parameters
    ----------
    vectors : array_like
        Two-dimensional, one row a person, as for `clip_norm`: a row with an entry that is no finite number counts as
        zero. Left untouched.
    max_norm : float
        The clipping norm C > 0.
    norm : {"l1", "l2"}, optional
        "l2" for Gaussian noise, "l1" for Laplace noise.

    Returns
    -------
    numpy.ndarray of float64
        The exact sum of the clipped and cut rows, one entry for each column: add noise before it leaves your hands.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, or the vectors are no two-dimensional numeric array.

    References
    ----------
    Casacuberta, Shoemate, Vadhan, Wagaman (2022), for why float sums do not keep their sensitivity.

    Examples
    --------
    >>> norm_clipped_sum([[3.0, 4.0], [0.5, 0.0]], max_norm=1.0).round(6)
    array([1.1, 0.8])
    """
    c = _validate.positive(max_norm=max_norm)
    rows = clip_norm(vectors, max_norm=c, norm=norm)
    step = math.ldexp(1.0, math.frexp(c)[1] - RECORD_BITS)
    with np.errstate(under="ignore"):
        whole = np.trunc(rows / step)
    return np.asarray(whole.astype(np.int64).sum(axis=0) * step, dtype=np.float64)


def keep_rows(person: Any, *, max_rows: int) -> npt.NDArray[np.bool_]:
    """Return a mask that keeps the first `max_rows` rows of every person, and no row without an id.

    Which rows of a person are kept depends on that person's rows alone, so removing somebody else changes nothing. Rows
    without an id would break that: as one person's they would make room for each other, as many people's they would
    count more than `max_rows` times.
    Bound rows on the final grouping: after groups are merged, a bound per old group no longer holds.

    Parameters
    ----------
    person : array_like
        One-dimensional: who each row belongs to; any hashable ids, also tuples such as (person, group). A row
        without an id (None, NaN, a list, or a tuple with such a part) is dropped.
    max_rows : int
        The most rows to keep of one person.

    Returns
    -------
    numpy.ndarray of bool
        True for the rows to keep, in the order given.

    Raises
    ------
    TypeError, ValueError
        When `max_rows` breaks its rule, or `person` is not one-dimensional.

    References
    ----------
    Wilson et al. (2020), Differentially private SQL with bounded user contribution, Sec. 3.

    Examples
    --------
    >>> keep_rows(["ann", "bo", "ann", "ann"], max_rows=2)
    array([ True,  True,  True, False])
    """
    most = _validate.integer(max_rows=max_rows)
    if hasattr(person, "__array__") and not isinstance(person, np.ma.MaskedArray):
        array = np.asarray(person)
        if array.ndim == 1 and array.dtype.kind in "iu":  # whole numbers are never missing: the same, faster
            return _keep_whole(array, most)
    ids = _validate.identifiers(person=person)
    seen: dict[Any, int] = {}
    mask = np.empty(len(ids), dtype=bool)
    for i, key in enumerate(ids):
        seen[key] = seen.get(key, 0) + 1
        mask[i] = seen[key] <= most and not _validate.is_missing(key)
    return mask


def _keep_whole(ids: npt.NDArray[Any], most: int) -> npt.NDArray[np.bool_]:
    order = np.argsort(ids, kind="stable")  # the rows of a person side by side, in their order
    ordered, place = ids[order], np.arange(len(ids))
    is_first = np.ones(len(ids), dtype=bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    mask = np.empty(len(ids), dtype=bool)
    mask[order] = place - np.maximum.accumulate(np.where(is_first, place, 0)) < most
    return mask


def brute_force_sensitivity(
    query: Callable[[list[Any]], Any], *, domain: Sequence[Any], n: int, neighbors: str, norm: str = "l1"
) -> float:
    """Return the largest change of a query over all pairs of neighbours with records from a small domain.

    It tries everything, so it is a lower bound on the sensitivity over larger domains, and exact on this one. Use it
    to test a formula, never to set the noise: that would be the sensitivity of the data at hand.

    Parameters
    ----------
    query : callable
        Takes a list of records (one entry a person) and returns a number or an array of fixed shape.
    domain : sequence
        What one person's entry may be.
    n : int
        The largest number of people (add/remove: all sizes up to n; replace-one: exactly n).
    neighbors : {"add_remove", "replace_one"}
        The neighbour relation.
    norm : {"l1", "l2"}, optional
        How the change of an array is measured.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, or the search would be too long.

    Notes
    -----
    Records are tried in sorted order only: the query must not depend on their order.

    References
    ----------
    Dwork, Roth (2014), Def. 3.1, by enumeration.

    Examples
    --------
    >>> brute_force_sensitivity(sum, domain=[-3, 0, 2], n=3, neighbors="add_remove")
    3.0
    """
    relation, kind = _validate.neighbors(neighbors), _validate.choice(NORMS, norm=norm)
    size = _validate.integer(n=n)
    if (
        not isinstance(domain, (Sequence, np.ndarray))
        or isinstance(domain, (str, bytes))
        or not getattr(domain, "ndim", 1)
    ):
        raise TypeError(f"domain must be a sequence of what one person's entry may be, got {type(domain).__name__}")
    options = list(domain)
    if not callable(query):
        raise TypeError(f"query must be callable, got {type(query).__name__}")
    if not options:
        raise ValueError("domain must have at least one entry")
    pairs = math.comb(size - 1 + len(options), size - 1) * len(options) ** (1 if relation == ADD_REMOVE else 2)
    if pairs > LARGEST_SEARCH:
        raise ValueError(f"n and domain must give at most {LARGEST_SEARCH} pairs, got {pairs}")

    def answer(records: list[Any]) -> FloatArray:
        result = np.atleast_1d(np.asarray(query(records), dtype=np.float64))
        if not np.isfinite(result).all():
            raise ValueError(f"query must return finite numbers, got {result} for {records}")
        return result

    def change(a: FloatArray, b: FloatArray) -> float:
        return float(np.abs(a - b).sum()) if kind == "l1" else float(np.sqrt(((a - b) ** 2).sum()))

    worst = 0.0
    for others in range(size) if relation == ADD_REMOVE else (size - 1,):
        for rest in itertools.combinations_with_replacement(options, others):
            with_one = [answer([*rest, record]) for record in options]
            if relation == ADD_REMOVE:
                without = answer(list(rest))
                worst = max([worst, *(change(a, without) for a in with_one)])
            else:
                worst = max([worst, *(change(a, b) for a, b in itertools.combinations(with_one, 2))])
    return worst
