"""Choosing one of many with differential privacy: which candidate, which queries are large, which keys to show.

A utility is a number that says how good a candidate is, computed from the data. Its sensitivity Δ is the most by which
one person can move the utility of *any* candidate, under the relation named. Only the choice is released, never a
utility. All draws are exact (`dpbook.noise`), and every scale is rounded up.

Monotonic utilities all move the same way, or stay, when a person is added: counts do. They need half the noise. It is a
statement about ``"add_remove"`` only: replacing a person can raise one utility and lower another.
"""

import math
import os
import threading
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from dpbook import _validate, noise
from dpbook._exact import precise, round_up
from dpbook._validate import ADD_REMOVE, REPLACE_ONE, FloatArray, IntArray
from dpbook.laplace import laplace_scale
from dpbook.sensitivity import _float_chunks

LATTICE_BITS = 20  # noisy comparisons are made in steps of 2**-21 to 2**-20 of the sensitivity
LARGEST_LATTICE = 2**61
RANK_BITS = 24  # a quantile counts as a multiple of 2**-24, so that ranks are whole numbers
POINTS_BITS = 48  # a quantile is one of about 2**48 points between the bounds
FEW_POINTS = 2**18  # with no more points than this, each has a coin of its own
LARGEST_COUNT = 2**29  # records of a quantile
WORD = 2**64


def _monotonic(monotonic: Any, neighbors: Any) -> bool:
    relation, is_monotonic = _validate.neighbors(neighbors), _validate.flag(monotonic=monotonic)
    if is_monotonic and relation == REPLACE_ONE:
        raise ValueError(
            f"monotonic must be False under 'replace_one', got {monotonic!r}: replacing a person can raise one utility "
            "and lower another"
        )
    return is_monotonic


def _scale(epsilon: Any, sensitivity: Any, neighbors: Any, monotonic: Any, rounds: int = 1) -> float:
    """Return the scale ``2 * rounds * sensitivity / epsilon``, half of it for monotonic utilities, rounded up."""
    eps, size = _validate.positive(epsilon=epsilon), _validate.positive(sensitivity=sensitivity)
    factor = rounds * (1 if _monotonic(monotonic, neighbors) else 2)
    exact = factor * Fraction(size)
    if not 2.0**-900 <= exact / Fraction(eps) <= 2.0**900:
        raise ValueError(f"sensitivity / epsilon must lie between 2**-899 and 2**899, got {size!r} / {eps!r}")
    return laplace_scale(epsilon=eps, sensitivity=round_up(exact))


def _utilities(utilities: Any) -> FloatArray:
    values = _validate.finite_values(utilities=utilities)
    if values.ndim != 1 or not len(values):
        raise ValueError("utilities must be one-dimensional, with one number for each candidate and at least one")
    return values


def exponential_mechanism(
    utilities: Any,
    *,
    epsilon: float,
    sensitivity: float,
    neighbors: str,
    monotonic: bool = False,
    rng: np.random.Generator | None = None,
) -> int:
    """Return the index of a candidate, with ε-DP under the stated relation; better ones are likelier.

    P(i) is proportional to ``exp(epsilon * utilities[i] / (2 * sensitivity))``, exactly; without the 2 for monotonic
    utilities.

    Parameters
    ----------
    utilities : array_like
        One-dimensional, finite, one number for each candidate of a public list. Left untouched.
    epsilon : float
        Privacy parameter ε > 0 of this choice.
    sensitivity : float
        The most by which one person can move any of the utilities, > 0.
    neighbors : {"add_remove", "replace_one"}
        The neighbour relation that the sensitivity is for.
    monotonic : bool, optional
        Whether adding a person never raises one utility and lowers another; "add_remove" only.
    rng : numpy.random.Generator, optional
        None (the default) draws from the operating system's entropy. A seeded choice is NOT private.

    Returns
    -------
    int
        The index of the chosen candidate.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, before the utilities are looked at; or when they are not finite.

    Notes
    -----
    Nearly every choice is made in float64. Where the random number is too close to a boundary for that, in fewer than n
    of 2**40 choices among n candidates, all weights are computed with more digits: about 10 µs a candidate, a second
    for 100,000.

    References
    ----------
    McSherry, Talwar (2007), Mechanism design via differential privacy; Dwork, Roth (2014), Thm. 3.10.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(1)  # seeded: not private
    >>> exponential_mechanism([310, 200, 12], epsilon=1, sensitivity=1, neighbors="add_remove", monotonic=True, rng=rng)
    0
    """
    scale = _scale(epsilon, sensitivity, neighbors, monotonic)
    _validate.generator(rng)
    return noise.choose_index(_utilities(utilities), scale=scale, rng=rng)


def permute_and_flip(
    utilities: Any,
    *,
    epsilon: float,
    sensitivity: float,
    neighbors: str,
    monotonic: bool = False,
    rng: np.random.Generator | None = None,
) -> int:
    """Return the index of a candidate, with ε-DP under the stated relation; never worse than the exponential mechanism.

    The candidates are looked at in random order, and each is taken with probability
    ``exp(epsilon * (utility - best) / (2 * sensitivity))``; without the 2 for monotonic utilities. The expected
    shortfall of utility is at most that of `exponential_mechanism`, and up to half of it.

    Parameters
    ----------
    utilities : array_like
        One-dimensional, finite, one number for each candidate of a public list. Left untouched.
    epsilon : float
        Privacy parameter ε > 0 of this choice.
    sensitivity : float
        The most by which one person can move any of the utilities, > 0.
    neighbors : {"add_remove", "replace_one"}
        The neighbour relation that the sensitivity is for.
    monotonic : bool, optional
        Whether adding a person never raises one utility and lowers another; "add_remove" only.
    rng : numpy.random.Generator, optional
        None (the default) draws from the operating system's entropy. A seeded choice is NOT private.

    Returns
    -------
    int
        The index of the chosen candidate.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, before the utilities are looked at; or when they are not finite.

    Notes
    -----
    The first candidate of a random order whose coin shows heads is a uniform choice among all that show heads, so all
    coins are flipped at once and one of the heads is drawn.

    References
    ----------
    McKenna, Sheldon (2020), Permute-and-flip, Thm. 1 to 3; for the monotonic case Ding, Kifer, Steinke, Wang, Xiao,
    Zhang (2021), who show that it is report-noisy-max with exponential noise.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(1)  # seeded: not private
    >>> permute_and_flip([310, 200, 12], epsilon=1.0, sensitivity=1, neighbors="replace_one", rng=rng)
    0
    """
    scale = _scale(epsilon, sensitivity, neighbors, monotonic)
    _validate.generator(rng)
    heads = np.flatnonzero(noise.flip_coins(_utilities(utilities), scale=scale, rng=rng))
    return int(heads[noise.choose_index(np.zeros(len(heads)), scale=1.0, rng=rng)])


def top_k(
    utilities: Any,
    *,
    k: int,
    epsilon: float,
    sensitivity: float,
    neighbors: str,
    monotonic: bool = False,
    rng: np.random.Generator | None = None,
) -> IntArray:
    """Return the indices of k different candidates, best first, with ε-DP in all under the stated relation.

    The exponential mechanism is used k times with ε/k, each time on the candidates that are left.

    Parameters
    ----------
    utilities : array_like
        One-dimensional, finite, one number for each candidate of a public list. Left untouched.
    k : int
        How many to choose, at most the number of candidates.
    epsilon : float
        Privacy parameter ε > 0 of all k choices together.
    sensitivity : float
        The most by which one person can move any of the utilities, > 0.
    neighbors : {"add_remove", "replace_one"}
        The neighbour relation that the sensitivity is for.
    monotonic : bool, optional
        Whether adding a person never raises one utility and lowers another; "add_remove" only.
    rng : numpy.random.Generator, optional
        None (the default) draws from the operating system's entropy. A seeded choice is NOT private.

    Returns
    -------
    numpy.ndarray of int64
        k indices, in the order in which they were chosen.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, before the utilities are looked at; or when they are not finite.

    References
    ----------
    Basic composition of the exponential mechanism; Durfee, Rogers (2019), for the equivalent one-shot form.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(1)  # seeded: not private
    >>> top_k([310, 200, 12, 0], k=2, epsilon=2, sensitivity=1, neighbors="add_remove", monotonic=True, rng=rng)
    array([0, 1])
    """
    rounds = _validate.integer(k=k)
    scale = _scale(epsilon, sensitivity, neighbors, monotonic, rounds)
    _validate.generator(rng)
    values = _utilities(utilities)
    if rounds > len(values):
        raise ValueError(f"k must be at most the number of candidates, got {k!r}")
    left = np.arange(len(values))
    chosen = np.empty(rounds, dtype=np.int64)
    for i in range(rounds):
        at = noise.choose_index(values[left], scale=scale, rng=rng)
        chosen[i] = left[at]
        left = np.delete(left, at)
    return chosen


def _lattice(sensitivity: float) -> tuple[float, int]:
    """Return a public step and the sensitivity, in steps, of values rounded to it.

    Two numbers at most Δ apart are at most floor(Δ/step) + 1 apart when both are rounded.
    """
    step = math.ldexp(1.0, math.frexp(sensitivity)[1] - 1 - LATTICE_BITS)
    return step, math.floor(Fraction(sensitivity) / Fraction(step)) + 1


def _on_lattice(values: FloatArray, step: float) -> IntArray:
    with np.errstate(over="ignore", under="ignore"):
        return np.clip(np.rint(values / step), -LARGEST_LATTICE, LARGEST_LATTICE).astype(np.int64)


def _size(sensitivity: Any) -> float:
    size = _validate.positive(sensitivity=sensitivity)
    if not 2.0**-900 <= size <= 2.0**900:
        raise ValueError(f"sensitivity must lie between 2**-900 and 2**900, got {sensitivity!r}")
    return size


def _lattice_scale(epsilon: float, size: int, given: Any) -> float:
    """Return ``size / epsilon``, a part of the ε that was given."""
    if size > Fraction(noise.LARGEST_INTEGER_SCALE) * Fraction(epsilon):
        raise ValueError(f"epsilon must be larger for noise that can be drawn, got {given!r}")
    return laplace_scale(epsilon=epsilon, sensitivity=float(size))


def noisy_max(
    utilities: Any,
    *,
    epsilon: float,
    sensitivity: float,
    neighbors: str,
    monotonic: bool = False,
    rng: np.random.Generator | None = None,
) -> int:
    """Return the index of the largest utility after noise, with ε-DP under the stated relation.

    The utilities are rounded to a public step of at most 2**-20 Δ, and discrete Laplace noise of scale 2Δ/ε (Δ/ε for
    monotonic utilities) is added, where Δ counts the rounding: the scale is larger by at most two millionths for that.
    Only the index may leave: the noisy utilities are not private at this ε.

    Parameters
    ----------
    utilities : array_like
        One-dimensional, finite, one number for each candidate of a public list. Left untouched.
    epsilon : float
        Privacy parameter ε > 0 of this choice.
    sensitivity : float
        The most by which one person can move any of the utilities, from 2**-900 to 2**900.
    neighbors : {"add_remove", "replace_one"}
        The neighbour relation that the sensitivity is for.
    monotonic : bool, optional
        Whether adding a person never raises one utility and lowers another; "add_remove" only.
    rng : numpy.random.Generator, optional
        None (the default) draws from the operating system's entropy. A seeded choice is NOT private.

    Returns
    -------
    int
        The index; the first one where noisy utilities are equal.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, before the utilities are looked at; or when they are not finite.

    References
    ----------
    Dwork, Roth (2014), Claim 3.9, for counting queries, which are monotonic: scale Δ/ε. The factor 2 covers utilities
    that are not: the chosen one may fall by Δ while its rivals rise by Δ. On whole numbers: the proof shifts one noise
    by a whole number, so it holds for the discrete Laplace distribution as it stands.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(1)  # seeded: not private
    >>> noisy_max([310, 200, 12], epsilon=1.0, sensitivity=1, neighbors="add_remove", monotonic=True, rng=rng)
    0
    """
    eps = _validate.positive(epsilon=epsilon)
    size = _size(sensitivity)
    step, whole = _lattice(size)
    scale = _lattice_scale(eps, whole * (1 if _monotonic(monotonic, neighbors) else 2), epsilon)
    _validate.generator(rng)
    values = _on_lattice(_utilities(utilities), step)
    return int(np.argmax(noise.add_discrete_laplace(values, scale=scale, rng=rng)))


class SparseVector:
    """Ask many queries, learn which are above a public threshold, and pay ε once, under the stated relation.

    It answers True or False, to any number of queries, until `max_positives` of them were True; then it refuses. The
    queries may depend on earlier answers. The whole object is ε-DP, whatever is asked. No noisy value is ever shown,
    the noise of the threshold is drawn once, and that of the queries grows with `max_positives`: the ways in which
    published variants of this algorithm fail are not open. Threads may share one object. It cannot be copied or
    pickled, and a forked process cannot use it: two copies would give more positive answers than ε pays for.

    Parameters
    ----------
    threshold : float
        Public threshold, in the unit of the queries.
    epsilon : float
        Privacy parameter ε > 0 of all answers together.
    sensitivity : float
        The most by which one person can move any one query, from 2**-900 to 2**900.
    neighbors : {"add_remove", "replace_one"}
        The neighbour relation that the sensitivity is for.
    max_positives : int, optional
        How many answers may be True.
    monotonic : bool, optional
        Whether adding a person moves all queries the same way, or not at all; "add_remove" only. Half the noise.
    rng : numpy.random.Generator, optional
        None (the default) draws from the operating system's entropy. Seeded answers are NOT private.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    Lyu, Su, Li (2017), Understanding the sparse vector technique for differential privacy, Alg. 7 without numeric
    answers, Thm. 4 and 5, and Sec. 4.2 for the division of ε; on whole numbers, as in `noisy_max`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)  # seeded: not private
    >>> ask = SparseVector(threshold=100, epsilon=1.0, sensitivity=1, neighbors="add_remove", rng=rng)
    >>> [ask.above(count) for count in (3, 8, 5, 400)], ask.positives_left
    ([False, False, False, True], 0)
    """

    def __init__(
        self,
        *,
        threshold: float,
        epsilon: float,
        sensitivity: float,
        neighbors: str,
        max_positives: int = 1,
        monotonic: bool = False,
        rng: np.random.Generator | None = None,
    ) -> None:
        limit, eps = _validate.finite(threshold=threshold), _validate.positive(epsilon=epsilon)
        size = _size(sensitivity)
        most = _validate.integer(max_positives=max_positives)
        factor = 1 if _monotonic(monotonic, neighbors) else 2
        _validate.generator(rng)
        self._step, whole = _lattice(size)
        # The noise of a comparison has the variance 2 (D / eps_1)² + 2 (factor c D / eps_2)²: least at this ratio.
        for_queries = eps * (1 - 1 / (1 + (factor * most) ** (2 / 3)))
        for_threshold = eps - for_queries
        while Fraction(for_threshold) + Fraction(for_queries) > Fraction(eps):
            for_threshold = math.nextafter(for_threshold, 0.0)
        scale = _lattice_scale(for_threshold, whole, epsilon)
        self._scale = _lattice_scale(for_queries, factor * most * whole, epsilon)
        self._rng, self._left = rng, most
        self._lock, self._process = threading.Lock(), os.getpid()
        self._threshold = noise.add_discrete_laplace(self._place(limit), scale=scale, rng=rng)
        self._parameters = (limit, eps, size, neighbors, most)
        self._scales = (scale, self._scale)

    def _place(self, value: float) -> int:
        return int(_on_lattice(np.array([value]), self._step)[0])

    @property
    def positives_left(self) -> int:
        """How many more answers may be True; it follows from the answers, so it is no secret."""
        return self._left

    @property
    def epsilon(self) -> float:
        """ε of all answers together."""
        return self._parameters[1]

    @property
    def scales(self) -> tuple[float, float]:
        """The scales of the noise of the threshold and of a query, in the unit of the queries; public."""
        return self._scales[0] * self._step, self._scales[1] * self._step

    def above(self, value: float) -> bool:
        """Return whether the query is above the threshold, both with noise.

        Parameters
        ----------
        value : float
            The exact answer of one query, finite, which one person can move by at most the sensitivity.

        Raises
        ------
        RuntimeError
            When `max_positives` answers were True already; or in another process than the one that made the object.
        TypeError, ValueError
            When the value is not one finite number.
        """
        if os.getpid() != self._process:  # before the lock, which a fork may have copied while it was held
            raise RuntimeError("a SparseVector answers only in the process that made it: a fork is a second copy")
        one = _validate.finite_values(value=value)
        if one.ndim:
            raise TypeError("value must be one number: ask one query at a time")
        place = self._place(float(one))
        with self._lock:  # otherwise two threads could both pass the check, and both answer True
            if self._left <= 0:
                raise RuntimeError(
                    f"all {self._parameters[4]} positive answers are used up: the budget allows no more queries"
                )
            noisy = noise.add_discrete_laplace(place, scale=self._scale, rng=self._rng)
            is_above = bool(noisy >= self._threshold)
            self._left -= is_above
        return is_above

    def _refuse(self, *_: Any) -> NoReturn:
        raise TypeError("a SparseVector cannot be copied: two copies would answer more than epsilon pays for")

    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = _refuse

    def __repr__(self) -> str:
        threshold, epsilon, _, neighbors, most = self._parameters
        return (
            f"SparseVector(threshold={threshold:g}, epsilon={_validate.all_digits(epsilon)}, neighbors={neighbors!r}, "
            f"{self._left} of {most} positives left)"
        )


# --- quantiles -------------------------------------------------------------------------------------------------------


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
    if len(column) > LARGEST_COUNT:
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
        counts += np.bincount(places[start : start + 2**18].astype(np.int64), minlength=points)
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
        middle = places[(places >= sample[start]) & (places <= sample[end])]
        if below <= low and high < below + len(middle) and 4 * len(middle) < n:
            return np.sort(middle)[low - below : high - below + 1]
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
    starts, ends = np.empty(2 * k + 1), np.empty(2 * k + 1)  # gap, point, gap, …, point, gap
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


# --- answers and keys ------------------------------------------------------------------------------------------------


def _response_words(epsilon: float, k: int) -> tuple[int, int]:
    """Return t and u with ``t + (k - 1) u = 2**64`` and ``t <= exp(ε) u``: of 2**64 words, t tell the truth."""
    mp = precise()
    mp.prec = 256
    bound = mp.mpf(WORD) / (mp.exp(min(epsilon, 100.0)) + k - 1)
    other = min(int(mp.ceil(bound * (1 + mp.mpf(2) ** -200))), WORD // k)
    # With u = WORD // k the truth gets what is left over as well, which may be more than exp(ε) allows.
    if WORD - (k - 1) * other > mp.exp(min(epsilon, 100.0)) * (1 - mp.mpf(2) ** -200) * other:
        raise ValueError(f"epsilon must be larger for {k} categories, got {epsilon!r}")
    return WORD - (k - 1) * other, other


def response_probabilities(*, epsilon: float, categories: int) -> tuple[float, float]:
    """Return the probabilities of the true answer and of each other one in `randomized_response`.

    They are whole numbers of 2**-64 with a ratio of at most exp(ε), the best such:
    ``exp(ε) / (exp(ε) + k - 1)`` and ``1 / (exp(ε) + k - 1)`` but for the rounding. Beyond ε = 44 they stay as they are
    there.

    Parameters
    ----------
    epsilon : float
        Privacy parameter ε > 0 of one answer.
    categories : int
        How many answers there are, k ≥ 2.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule; or ε is below about ``k**2 / 2**64``, where no multiples of
        2**-64 are so nearly equal.

    References
    ----------
    Warner (1965); Kairouz, Bonawitz, Ramage (2016), Sec. 3.

    Examples
    --------
    >>> tuple(round(p, 6) for p in response_probabilities(epsilon=0.5, categories=2))
    (0.622459, 0.377541)
    """
    eps, k = _validate.positive(epsilon=epsilon), _validate.integer(2, categories=categories)
    if k > 2**32:
        raise ValueError(f"categories must be at most 2**32, got {categories!r}")
    true, other = _response_words(eps, k)
    return true / WORD, other / WORD


def randomized_response(
    values: Any, *, categories: Any, epsilon: float, rng: np.random.Generator | None = None
) -> list[Any]:
    """Return each record, or another category instead, drawn so that one answer is ε-DP for its person (local DP).

    Nobody has to be trusted with the true answers: each person's device can do this before it sends. Whatever the two
    true answers that are compared, the probability of an answer differs by at most the factor exp(ε), exactly.
    `queries.response_shares` estimates the shares.

    Parameters
    ----------
    values : array_like
        One-dimensional, one true answer a person. One that is none of the categories counts as the first of them, so
        that everybody answers. Left untouched.
    categories : list or tuple
        The public, distinct answers, at least two.
    epsilon : float
        Privacy parameter ε > 0 of each answer. A person who answers m questions, or the same one anew, has spent m ε.
    rng : numpy.random.Generator, optional
        None (the default) draws from the operating system's entropy. Seeded answers are NOT private.

    Returns
    -------
    list
        One of the categories for each record.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, before data is touched; or the values are no one-dimensional column.

    Notes
    -----
    One 64-bit word decides an answer: below t it is the truth, and above it the word's quotient by u names the other
    answer, with ``t + (k - 1) u = 2**64``. So the probabilities are exactly those of `response_probabilities`.

    References
    ----------
    Warner (1965), Randomized response; Kairouz, Oh, Viswanath (2016), Extremal mechanisms for local differential
    privacy, for k answers.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)  # seeded: not private
    >>> randomized_response(["yes", "no", "no"], categories=["yes", "no"], epsilon=1.0, rng=rng)
    ['yes', 'no', 'no']
    """
    eps = _validate.positive(epsilon=epsilon)
    table = _validate.categories(2, categories=categories)
    _validate.generator(rng)
    true, other = _response_words(eps, len(table))
    own = np.maximum(_validate.codes(table, values=values), 0)
    words = noise.uniform_words(len(own), rng=rng)
    with np.errstate(over="ignore"):  # where the word is below t, what follows is not used
        skip = ((words - np.uint64(true)) // np.uint64(other)).astype(np.int64) + 1
    answer = np.where(words < np.uint64(true), own, (own + skip) % len(table))
    keys = list(table)
    return [keys[i] for i in answer.tolist()]


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
