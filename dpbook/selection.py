"""Choosing one of many with differential privacy: which candidate, and which queries are large.

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

from dpbook import _validate, noise
from dpbook._exact import round_up
from dpbook._validate import REPLACE_ONE, FloatArray, IntArray
from dpbook.laplace import laplace_scale

LATTICE_BITS = 20  # noisy comparisons are made in steps of 2**-21 to 2**-20 of the sensitivity
LARGEST_LATTICE = 2**61


def _monotonic(monotonic: Any, neighbors: Any) -> bool:
    relation, is_monotonic = _validate.neighbors(neighbors), _validate.flag(monotonic=monotonic)
    if is_monotonic and relation == REPLACE_ONE:
        raise ValueError(
            f"monotonic must be False under 'replace_one', got {monotonic!r}: replacing a person can raise one utility "
            "and lower another; leave monotonic out, or use neighbors='add_remove'"
        )
    return is_monotonic


def _scale(epsilon: Any, sensitivity: Any, neighbors: Any, monotonic: Any, rounds: int = 1) -> float:
    """Return the scale ``2 * rounds * sensitivity / epsilon``, half of it for monotonic utilities, rounded up."""
    eps, size = _validate.positive(epsilon=epsilon), _validate.positive(sensitivity=sensitivity)
    factor = rounds * (1 if _monotonic(monotonic, neighbors) else 2)
    exact = factor * Fraction(size)
    if not 2.0**-900 <= exact / Fraction(eps) <= 2.0**900:
        change = "larger" if exact > eps else "smaller"
        raise ValueError(
            f"epsilon must be {change} for a choice that can be drawn with sensitivity={size!r}, got {eps!r}"
        )
    return laplace_scale(epsilon=eps, sensitivity=round_up(exact))


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
    return noise.choose_index(_validate.utilities(utilities=utilities), scale=scale, rng=rng)


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
    heads = np.flatnonzero(noise.flip_coins(_validate.utilities(utilities=utilities), scale=scale, rng=rng))
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
    values = _validate.utilities(utilities=utilities)
    if rounds > len(values):
        raise ValueError(f"k must be at most the number of candidates, which is {len(values)}, got {k!r}")
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
    values = _on_lattice(_validate.utilities(utilities=utilities), step)
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
