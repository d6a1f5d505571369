"""Counts for many bins, categories or keys at once, with differential privacy.

The bins and categories are public, and all of them are in the answer (`private_histogram`); or the keys are not public,
and which of them are shown is a private answer too (`private_keys`).
"""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from dpbook import _ask, _validate, noise
from dpbook._exact import precise
from dpbook._validate import REPLACE_ONE, FloatArray, IntArray
from dpbook.release import Release, _Bin
from dpbook.sensitivity import _float_chunks, histogram_sensitivity

WORD = 2**64

# --- bins and categories ----------------------------------------------------------------------------------------------


def private_histogram(
    values: Any,
    *,
    epsilon: float,
    neighbors: str,
    edges: Any = None,
    categories: Any = None,
    delta: float | None = None,
    person: Any = None,
    max_contributions: int | None = None,
    alpha: float = 0.05,
    rng: np.random.Generator | None = None,
) -> Release:
    """Return private counts for all public bins or categories, with ε-DP (or (ε, δ)-DP) in all under the relation.

    One record is in one bin, so the whole histogram costs what one count does under add/remove, with noise of scale
    1/ε; under replace-one a record can leave one bin and enter another, and the scale is 2/ε.

    Parameters
    ----------
    values : array_like
        One-dimensional records. Left untouched.
    epsilon : float
        Privacy parameter ε > 0 of the whole histogram.
    neighbors : {"add_remove", "replace_one"}
        The neighbour relation of the guarantee.
    edges : array_like, optional
        Public, increasing edges. A bin holds its left edge and not its right one, except the last, which holds both. A
        record outside is in the first or last bin, and one that is no number in that of the middle of the edges.
    categories : list or tuple, optional
        Public, distinct keys, in the order of the answer. A record that is none of them is left out; None as a key
        counts the missing ones. Equal is equal: True is counted as 1, but the 0.1 of a float32 column is not 0.1.
        Exactly one of `edges` and `categories` must be given.
    delta : float, optional
        Given: Gaussian noise with this δ in (0, 1). None: discrete Laplace noise, pure ε-DP.
    person, max_contributions : array_like and int, optional
        Who each row is from, and the most rows to keep of one person, over all bins together.
    alpha : float, optional
        Significance level of the interval of each entry.
    rng : numpy.random.Generator, optional
        None (the default) draws from the operating system's entropy. A seeded release is NOT private.

    Returns
    -------
    Release
        An array of counts ≥ 0, one for each of `keys`, whatever the data holds.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, before data is touched; or the values are no one-dimensional column.

    References
    ----------
    Dwork, McSherry, Nissim, Smith (2006), Sec. 2; Ghosh, Roughgarden, Sundararajan (2009), for the noise.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)  # seeded: not private
    >>> ways = ["bus", "car", "car", "foot"] * 50
    >>> private_histogram(ways, categories=["bus", "car", "tram"], epsilon=1, neighbors="add_remove", rng=rng)
    histogram, each with its 95 % noise interval
      'bus': 49  (46 to 52)
      'car': 100  (97 to 103)
      'tram': 0  (0 to 3)
      epsilon=1, neighbors='add_remove', discrete_laplace
    """
    ask = _ask.checked(epsilon, delta, neighbors, alpha, person, max_contributions, rng)
    if (edges is None) == (categories is None):
        raise ValueError("edges or categories must be given, and only one of them")
    keys: tuple[Any, ...]
    if edges is not None:
        limits = _edges(edges)
        keys = tuple(_Bin(pair) for pair in zip(limits[:-1].tolist(), limits[1:].tolist(), strict=True))
    else:
        table = _validate.categories(categories=categories)
        keys = tuple(table)
    size = histogram_sensitivity(neighbors=ask.neighbors, norm=ask.norm, max_rows_per_group=ask.max_rows or 1)
    scale = ask.size(size, whole=True)
    if edges is not None:
        counts = _bin_counts(_ask.column(values, person, ask), limits)
    else:
        column = _ask.entries(values)
        if person is not None:
            kept = _ask.kept_rows(person, len(column), ask)
            plain = not isinstance(column, np.ndarray)
            column = [x for x, keep in zip(column, kept, strict=True) if keep] if plain else column[kept]
        counts = _category_counts(column, table)
    value, interval, kind = _ask.noisy_counts(counts, ask, scale)
    return ask.release("histogram", value, interval, scale, mechanism=kind, keys=keys)


def _category_counts(column: Any, table: dict[Any, int]) -> IntArray:
    whole = isinstance(column, np.ndarray) and column.dtype.kind in "iu"
    if whole and all(type(key) is int and abs(key) < 2**31 for key in table) and max(table) - min(table) < 2**16:
        least, most = min(table), max(table)
        counts = np.zeros(most - least + 3, dtype=np.int64)
        for start in range(0, len(column), 2**15):  # what lies beyond is counted at both ends, and left out
            near = np.clip(column[start : start + 2**15].astype(np.float64), least - 1, most + 1)
            counts += np.bincount((near - (least - 1)).astype(np.intp), minlength=len(counts))
        return np.asarray(counts[np.array(list(table)) - (least - 1)])
    places = _validate.codes(table, values=column)
    return np.bincount((places + 1).astype(np.intp), minlength=len(table) + 1)[1:].astype(np.int64)


def _edges(edges: Any) -> FloatArray:
    limits = _validate.finite_array(edges=edges)
    if limits.ndim != 1 or len(limits) < 2:
        raise ValueError(f"edges must be a list of at least two numbers, got {_validate.shown(edges)}")
    if not (np.diff(limits) > 0).all():
        raise ValueError(f"edges must increase, got {_validate.shown(edges)}")
    return limits + 0.0


def _bin_counts(column: npt.NDArray[Any], edges: FloatArray) -> IntArray:
    last = len(edges) - 2
    middle = edges[0] / 2 + edges[-1] / 2
    counts = np.zeros(last + 1, dtype=np.int64)
    with np.errstate(all="ignore"):
        for x in _float_chunks(column):
            np.clip(x, edges[0], edges[-1], out=x)
            if math.isnan(float(np.add.reduce(x))):
                x[np.isnan(x)] = middle
            x.sort()  # so that a few edges are looked up among many records, and not the other way round
            passed = np.searchsorted(x, edges[1:-1], side="left")
            counts += np.diff(passed, prepend=0, append=len(x))
    return counts


# --- keys that are not public -----------------------------------------------------------------------------------------


def keep_probabilities(*, count: int, epsilon: float, delta: float) -> list[float]:
    """Return the probabilities with which `private_keys` shows a key that 0, 1, …, `count` people have.

    They are the largest that (ε, δ)-DP allows when one person adds one key, rounded down to whole numbers of 2**-64.

    Parameters
    ----------
    count : int
        The largest number of people to answer for, up to 10**7.
    epsilon : float
        Privacy parameter ε > 0, of one key of one person.
    delta : float
        Privacy parameter δ from 2**-60 to below 1, of one key of one person.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    Desfontaines, Voss, Gipson, Mandayam (2022), Differentially private partition selection, Thm. 1.

    Examples
    --------
    >>> import math
    >>> [round(p, 6) for p in keep_probabilities(count=5, epsilon=math.log(2), delta=0.1)]
    [0.0, 0.1, 0.3, 0.7, 0.9, 1.0]
    """
    most = _validate.integer(0, count=count)
    if most > 10**7:
        raise ValueError(f"count must be at most 10**7, got {count!r}")
    eps, d = _validate.positive(epsilon=epsilon), _key_delta(delta)
    words = _keep_words(eps, Fraction(d), most)
    return [word / WORD for word in words] + [1.0] * (most + 1 - len(words))


def _key_delta(delta: Any) -> float:
    d = _validate.open_unit(delta=delta)
    if d < 2.0**-60:
        raise ValueError(f"delta must be at least 2**-60, got {delta!r}")
    return d


def _keep_words(epsilon: float, delta: Fraction, most: int) -> list[int]:
    """Return p(0), p(1), … in units of 2**-64, up to p = 1 or to `most`: the recurrence with all rounding downwards.

    Both conditions of (ε, δ)-DP hold for the rounded numbers themselves:
    ``p(n+1) <= exp(ε) p(n) + δ`` and ``1 - p(n) <= exp(ε) (1 - p(n+1)) + δ``.
    """
    mp = precise()
    mp.prec = 512
    grow = int(mp.floor(mp.exp(min(epsilon, 100.0)) * 2**128 * (1 - mp.mpf(2) ** -300)))
    shrink = int(mp.ceil(mp.exp(-min(epsilon, 100.0)) * 2**128 * (1 + mp.mpf(2) ** -300)))
    step = math.floor(delta * WORD)
    words = [0]
    while len(words) <= most and words[-1] < WORD:
        p = words[-1]
        rest = -(-shrink * max(WORD - p - step, 0) >> 128)  # rounded up
        words.append(max(min((grow * p >> 128) + step, WORD - rest, WORD), p))
    return words


def private_keys(
    keys: Any,
    *,
    epsilon: float,
    delta: float,
    neighbors: str,
    person: Any = None,
    max_groups: int | None = None,
    rng: np.random.Generator | None = None,
) -> list[Any]:
    """Return which keys occur, with (ε, δ)-DP under the stated relation: rare ones are left out at random.

    For keys that are not public: search terms, place names. A key is shown with the largest probability that its number
    of people allows (`keep_probabilities`), and one that nobody has is never shown.

    Parameters
    ----------
    keys : array_like
        One-dimensional: a key for each row. Rows without a key (None, NaN, or one that cannot be printed) are left out.
        Keys are told apart by type and `repr`, by all that is seen of them: 1, 1.0 and True are three keys. Left
        untouched.
    epsilon, delta : float
        Privacy parameters of the whole list: ε > 0, and δ in (0, 1).
    neighbors : {"add_remove", "replace_one"}
        The neighbour relation of the guarantee. Replacing is removing and adding: each is given ``ε' = ε/2``, at most
        20, and ``δ / (1 + exp(ε'))``. Where that is below 2**-64 for each of a person's keys, nothing is shown.
    person, max_groups : array_like and int, optional
        Who each row is from, and the most different keys to keep of one person: the first in that person's own order.
        A row without an id (None, NaN) is left out. None: every row is another person.
    rng : numpy.random.Generator, optional
        None (the default) draws from the operating system's entropy. A seeded list is NOT private.

    Returns
    -------
    list
        The keys, NumPy's scalars as Python's, sorted by what is seen of them, so that their order tells nothing.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, before data is touched; or `keys` is no one-dimensional column.

    References
    ----------
    Desfontaines, Voss, Gipson, Mandayam (2022), Differentially private partition selection, Thm. 1; for k keys a person
    each gets ε/k and ``1 - (1 - δ)**(1/k)``, by basic composition and independence.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)  # seeded: not private
    >>> words = ["flu"] * 500 + ["a name"] + ["cold"] * 300
    >>> private_keys(words, epsilon=1.0, delta=1e-6, neighbors="add_remove", rng=rng)
    ['cold', 'flu']
    """
    eps, d = _validate.positive(epsilon=epsilon), _key_delta(delta)
    relation = _validate.neighbors(neighbors)
    most = None if max_groups is None else _validate.integer(max_groups=max_groups)
    if (most is None) != (person is None):
        raise ValueError(
            "max_groups and person must be given together: the most keys of one person, and who each row is from; got "
            f"max_groups={_validate.shown(max_groups)}"
        )
    _validate.generator(rng)
    mp = precise()
    mp.prec = 200
    exact = mp.mpf(d)
    if relation == REPLACE_ONE:  # group privacy for two steps: 2 ε', δ' (1 + exp(ε'))
        eps = min(eps / 2, 20.0)  # with more, no key would have a chance to begin with
        exact = exact / (1 + mp.exp(eps))
    groups = most or 1
    each = math.nextafter(eps / groups, 0.0) if groups > 1 else eps
    part = -mp.expm1(mp.log1p(-exact) / groups) * (1 - mp.mpf(2) ** -100)
    keys_of, counts = _people(keys, person, groups)
    table = _keep_words(each, Fraction(int(mp.floor(part * WORD)), WORD), max(counts.values(), default=0))
    ordered = sorted(counts)
    words = noise.uniform_words(len(ordered), rng=rng)
    shown = [int(word) < table[min(counts[name], len(table) - 1)] for name, word in zip(ordered, words, strict=True)]
    return [keys_of[name] for name, is_shown in zip(ordered, shown, strict=True) if is_shown]


_Name = tuple[str, float, str]


def _people(keys: Any, person: Any, groups: int) -> tuple[dict[_Name, Any], dict[_Name, int]]:
    """Return the keys by name, and how many people have each when only the first `groups` of a person count."""
    column = _validate.identifiers(keys=keys)
    people = range(len(column)) if person is None else _validate.identifiers(person=person)
    if len(people) != len(column):
        raise ValueError("keys and person must have the same length")
    seen: dict[Any, set[_Name]] = {}
    keys_of: dict[_Name, Any] = {}
    counts: dict[_Name, int] = {}
    for who, given in zip(people, column, strict=True):
        key = _plain(given)
        name = _name(key)
        if name is None or _validate.is_missing(who):  # rows of nobody are not rows of one person
            continue
        own = seen.setdefault(who, set())
        if name not in own and len(own) < groups:
            own.add(name)
            counts[name] = counts.get(name, 0) + 1
            keys_of[name] = key
    return keys_of, counts


def _plain(key: Any) -> Any:
    """Return a key without NumPy's scalars, which look different from one version to the next."""
    if isinstance(key, tuple):
        return tuple(map(_plain, key))
    return key.item() if isinstance(key, np.generic) and key.dtype.kind not in "mM" else key


def _name(key: Any) -> _Name | None:
    """Return all that is seen of a key, None of one that is missing or cannot be printed.

    Equal keys may look different: 1, 1.0 and True; 0.0 and -0.0. Counted as one, the first row would decide which of
    them is shown, and would thereby be seen itself. The number in the middle puts numbers in their order.
    """
    try:
        place = float(min(max(key, -1e300), 1e300)) if type(key) in (int, float) else 0.0
        return None if key is None else (type(key).__name__, place, repr(key))
    except Exception:  # such as a number with more digits than Python prints
        return None
