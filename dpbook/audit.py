"""Audits: a lower bound on ε from running any release on two neighbours, with a stated confidence.

(ε, δ)-DP says that for neighbours D, D' and every set S of outputs ``P(M(D) in S) <= e^ε P(M(D') in S) + δ``. An audit
runs M often on both, chooses a set S on one half of the draws, counts it on the other half, and computes from the two
counts the smallest ε that can still be true (Clopper and Pearson, 1934). When that is above the claimed ε, the claim
is refuted under the relation of the two neighbours, with confidence ``1 - alpha``. When it is not, *nothing* is
proven: another pair, another set, or more draws might refute the claim.

Nothing here makes anything private; an audit of real data is a computation on that data, and its result is not a
release.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from dpbook import _events, _sampling, _validate
from dpbook._events import Batch, Draws, Partition
from dpbook._validate import FloatArray, IntArray

LOOKS = (64, 16, 4, 1)  # the draws are looked at when this part of them is there
EARLY_SHARE = 0.125  # of alpha, for every look but the last
FEWEST_TO_LOOK = 400  # draws of each side
FEWEST_DRAWS = 16
MOST_TO_ORDER = 2**17  # draws of each input that place the cuts and order the cells
SCREEN, FINALISTS = 2**14, 4  # with more draws than this, only the most promising scores see all of them
BISECTIONS = 90
MARGIN = 1e-9  # relative: how far a bound is moved to the safe side of what was computed

VIOLATED, NOT_REFUTED, NO_POWER = "violated", "not refuted", "too few draws to refute"


@functools.lru_cache(maxsize=4096)
def _bounds(hits: int, draws: int, level: float) -> tuple[float, float]:
    """Return the p with ``P(X >= hits) = level`` and the p with ``P(X <= hits) = level``, for X binomial.

    By bisection on the distribution itself, keeping the safe end: the inverse of older SciPy releases is unreliable.
    """
    if draws < 2**31:
        at_least, at_most = special.bdtrc, special.bdtr
    else:  # those two take no larger number of draws
        at_least = lambda k, n, p: special.betainc(k + 1, n - k, p)  # noqa: E731
        at_most = lambda k, n, p: special.betainc(n - k, k + 1, 1.0 - p)  # noqa: E731
    margin = MARGIN + draws * 2.0**-50  # 1 - p is rounded
    low, high = 0.0, 1.0
    if hits > 0:
        above = hits / draws
        for _ in range(BISECTIONS):
            middle = (low + above) / 2
            if at_least(hits - 1, draws, middle) <= level:
                low = middle
            else:
                above = middle
    if hits < draws:
        below = hits / draws
        for _ in range(BISECTIONS):
            middle = (below + high) / 2
            if at_most(hits, draws, middle) <= level:
                high = middle
            else:
                below = middle
    return low * max(0.0, 1.0 - margin), min(1.0, high * (1.0 + margin))


def _rough_bounds(hits: IntArray, other_hits: IntArray, draws: int, level: float) -> tuple[FloatArray, FloatArray]:
    """Return about the lower bounds of the one and the upper bounds of the other: good enough to choose an event.

    Gamma quantiles by Wilson and Hilferty, and from Poisson to binomial by a shift of the denominator; a hundred times
    faster than the exact inverse; off by a few per cent from ten hits on, and too low for fewer.
    """
    z = -float(special.ndtri(level))
    k = np.maximum(hits, 1).astype(np.float64)
    rate = k * np.maximum(0.0, 1 - 1 / (9 * k) - z / (3 * np.sqrt(k))) ** 3
    low = np.where(hits == 0, 0.0, 2 * rate / (2 * draws - k + 1 + rate))
    k = (other_hits + 1).astype(np.float64)
    rate = k * (1 - 1 / (9 * k) + z / (3 * np.sqrt(k))) ** 3
    return low, np.minimum(1.0, 2 * rate / (2 * draws - k + 1 + rate))


def clopper_pearson(*, hits: int, draws: int, alpha: float) -> tuple[float, float]:
    """Return an interval that holds the probability of an event with confidence ``1 - alpha``, for any number of draws.

    Each of the two bounds is wrong with probability at most ``alpha / 2``. Independent of any neighbour relation.

    Parameters
    ----------
    hits : int
        How often the event happened.
    draws : int
        In how many independent draws.
    alpha : float
        Significance level in (0, 1).

    Returns
    -------
    tuple of float
        Lower and upper bound.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, or there are more hits than draws.

    References
    ----------
    Clopper, Pearson (1934).

    Examples
    --------
    >>> tuple(round(p, 4) for p in clopper_pearson(hits=0, draws=100, alpha=0.05))
    (0.0, 0.0362)
    """
    k, n, level = _validate.integer(0, hits=hits), _validate.integer(draws=draws), _validate.open_unit(alpha=alpha)
    if k > n:
        raise ValueError(f"hits must be at most draws={n}, got {k}")
    return _bounds(k, n, level / 2)


def epsilon_bound(*, hits: int, other_hits: int, draws: int, delta: float = 0.0, alpha: float) -> float:
    """Return an ε that the mechanism exceeds or equals, with confidence ``1 - alpha``, from the counts of one event.

    ``log((p - δ) / q)`` with p the lower bound of the event's probability on one neighbour, q the upper bound on the
    other, each at ``alpha / 2``; at least 0. The event must not have been chosen on the draws that are counted. It
    holds for the relation in which the two inputs are neighbours.

    Parameters
    ----------
    hits : int
        How often the event happened on the one neighbour.
    other_hits : int
        How often it happened on the other.
    draws : int
        Independent draws on each.
    delta : float, optional
        δ in [0, 1) of the claim.
    alpha : float
        Significance level in (0, 1).

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, or there are more hits than draws.

    References
    ----------
    Kairouz, Oh, Viswanath (2015), for privacy as a hypothesis test; Jagielski, Ullman, Oprea (2020), for this bound.

    Examples
    --------
    >>> round(epsilon_bound(hits=1000, other_hits=0, draws=1000, alpha=0.05), 4)
    5.6006
    """
    k, other = _validate.integer(0, hits=hits), _validate.integer(0, other_hits=other_hits)
    n, d, level = (
        _validate.integer(draws=draws),
        _validate.half_open_unit(delta=delta),
        _validate.open_unit(alpha=alpha),
    )
    for name, count in (("hits", k), ("other_hits", other)):
        if count > n:
            raise ValueError(f"{name} must be at most draws={n}, got {count}")
    low, high = _bounds(k, n, level / 2)[0], _bounds(other, n, level / 2)[1]
    return math.log((low - d) / high) * (1.0 - MARGIN) if low - d > high else 0.0


def epsilon_ceiling(*, draws: int, delta: float = 0.0, alpha: float) -> float:
    """Return the largest ε that so many draws of each side can show: that of an event which always, and never, happens.

    A claim at or above it cannot be refuted, however broken the mechanism is; under any neighbour relation.

    Parameters
    ----------
    draws : int
        Independent draws of each side that are counted (half of those that are made).
    delta : float, optional
        δ in [0, 1) of the claim.
    alpha : float
        Significance level in (0, 1).

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    `epsilon_bound` with ``hits=draws, other_hits=0``.

    Examples
    --------
    >>> [round(epsilon_ceiling(draws=n, alpha=0.05), 4) for n in (100, 1000, 10_000)]
    [3.2813, 5.6006, 7.9048]
    """
    n = _validate.integer(draws=draws)
    return epsilon_bound(hits=n, other_hits=0, draws=n, delta=delta, alpha=alpha)


@dataclass(frozen=True, eq=False)
class Audit:
    """What an audit found: `lower_bound` is at most the true ε with confidence ``1 - alpha``.

    `verdict` is "violated" (the bound is above the claimed ε), "not refuted" (which proves nothing), or "too few draws
    to refute" (the ceiling is not above the claim). `hits` counts the event on the input on which it was expected to
    be likelier, `other_hits` on the other; `likelier` names that input: 1 for the first, 2 for the second. All counts
    are of the `tested` draws of each input, which had no say in the choice of the event.
    """

    epsilon: float
    delta: float
    alpha: float
    lower_bound: float
    ceiling: float
    event: str
    likelier: int
    hits: int
    other_hits: int
    tested: int
    draws: int
    looks: int
    score: str
    cuts: FloatArray
    histogram: FloatArray  # (2, bins): shares of the tested draws of both inputs between the cuts
    labels: tuple[str, ...]  # of the bins, when they are not ranges of numbers
    roc: FloatArray  # (2, m): false alarms and misses of the tests "the output is in the m-th event"

    @property
    def violated(self) -> bool:
        """Whether the claim is refuted."""
        return self.lower_bound > self.epsilon

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        if self.violated:
            return VIOLATED
        return NO_POWER if self.ceiling <= self.epsilon else NOT_REFUTED

    @property
    def share(self) -> float:
        """Share of the event where it is likelier."""
        return self.hits / self.tested

    @property
    def other_share(self) -> float:
        """Share of the event where it is less likely."""
        return self.other_hits / self.tested

    def __repr__(self) -> str:
        claim = f"ε = {self.epsilon:g}" + (f", δ = {self.delta:g}" if self.delta else "")
        side = ("first", "second")[self.likelier - 1]
        return (
            f"{self.verdict}: claimed {claim}; at least ε = {self.lower_bound:.3f} with confidence "
            f"{100 * (1 - self.alpha):g} %\n"
            f"  event: {self.event}\n"
            f"  {self.hits} of {self.tested} draws of the {side} input, {self.other_hits} of the other; "
            f"ceiling ε = {self.ceiling:.2f}"
        )


def audit(
    release: Callable[..., Any],
    first: Any,
    second: Any,
    *,
    epsilon: float,
    delta: float = 0.0,
    alpha: float = 0.001,
    draws: int = 100_000,
    vectorized: bool = False,
    workers: int = 1,
    progress: bool | None = None,
) -> Audit:
    """Try to refute that a release is (ε, δ)-DP, from its outputs on two inputs that are neighbours.

    If the claim is true under a neighbour relation in which the inputs are neighbours, the verdict is "violated" with
    probability at most `alpha`. If it is false, the audit may still miss it: "not refuted" proves nothing.

    Parameters
    ----------
    release : callable
        ``release(data)`` returns one output: a number, an array, text, a tuple, a dict, None, … An exception is an
        output too. With ``vectorized=True``, ``release(data, count)`` returns an array of `count` independent outputs
        along its first axis.
    first, second : object
        The two inputs. The audit looks at nothing but the outputs.
    epsilon : float
        Claimed ε ≥ 0.
    delta : float, optional
        Claimed δ in [0, 1).
    alpha : float, optional
        The probability of a false alarm, over all looks and both directions together.
    draws : int, optional
        The most draws of each input, at least 16. Half of them choose the event, the other half are counted. Looks at
        a 64th, a 16th and a quarter of the draws end the audit early when the claim is refuted.
    vectorized : bool, optional
        See `release`.
    workers : int, optional
        Number of processes. NumPy's and Python's global generators are seeded anew in each; a generator that `release`
        keeps would be copied, which is noticed and refused.
    progress : bool, optional
        A line of progress on stderr; by default only when that is a terminal.

    Returns
    -------
    Audit
        Lower bound, verdict, event, counts, ceiling; ``plots.audit_picture`` draws it.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, when a vectorized release returns something else than `count` outputs, when
        every draw raises, or when the draws are seen to repeat each other.

    References
    ----------
    Ding, Wang, Wang, Zhang, Kifer (2018); Bichsel, Steffen, Bogunovic, Vechev (2021); Jagielski, Ullman, Oprea (2020).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)  # seeded: not private
    >>> half_the_noise = lambda count: count + rng.laplace(0, 0.5)
    >>> audit(half_the_noise, 10, 11, epsilon=1.0, draws=20_000).violated
    True
    """
    if not callable(release):
        raise TypeError(f"release must be callable, got {type(release).__name__}")
    eps, d = _validate.non_negative(epsilon=epsilon), _validate.half_open_unit(delta=delta)
    level, most = _validate.open_unit(alpha=alpha), _validate.integer(FEWEST_DRAWS, draws=draws)
    many, show = _validate.flag(vectorized=vectorized), _sampling.progress_stream(progress)
    sizes = [most // part for part in LOOKS if part == 1 or most // part >= FEWEST_TO_LOOK]
    levels = [level * EARLY_SHARE] * (len(sizes) - 1) + [level * (1 - EARLY_SHARE * (len(sizes) - 1))]
    sides: tuple[list[Batch], list[Batch]] = ([], [])
    have, result = 0, None
    with _sampling.Source(release, (first, second), many, _validate.integer(workers=workers), show, most) as source:
        for look, (size, share) in enumerate(zip(sizes, levels, strict=True), start=1):
            for side, batch in source.more(size - have):
                sides[side].append(batch)
            have = size
            found = _look(sides, d, share)
            ceiling = epsilon_ceiling(draws=found.tested, delta=d, alpha=levels[-1])
            result = Audit(
                eps, d, level, found.bound, ceiling, found.event, found.likelier, found.hits, found.other_hits,
                found.tested, have, look, *found.picture,
            )  # fmt: skip
            if result.violated:
                break
    assert result is not None
    return result


@dataclass(frozen=True)
class _Found:
    bound: float
    event: str
    likelier: int
    hits: int
    other_hits: int
    tested: int
    picture: tuple[Any, ...]


class _Choice(NamedTuple):
    value: float  # the bound that is hoped for
    partition: Partition
    mask: npt.NDArray[np.bool_]  # the event: the cells that belong to it
    likelier: int
    order: IntArray
    weight: FloatArray


def _choose(
    partition: Partition, ordering: list[Draws], choosing: list[Draws], delta: float, level: float, factor: int = 1
) -> _Choice:
    """Return the event of this partition that promises the largest bound, from two parts of the draws.

    Thresholds are judged on both parts, as they need no order that was learned. An order by ratio is judged on the
    second alone, or it would be praised for what made it. With ``factor=2``, and for forms of the output, its counts
    are doubled, to the number of draws that will be counted: that finds rare events, but lets chance choose more often.
    """
    size, best = partition.count, None
    ordered = [np.bincount(partition.cells(d), minlength=size) for d in ordering]
    chosen = [np.bincount(partition.cells(d), minlength=size) for d in choosing]
    both = [ordered[side] + chosen[side] for side in (0, 1)]
    seen = both[0] + both[1] > 0
    for likelier in (0, 1):
        for i, (order, handicap) in enumerate(partition.orders(ordered[likelier], ordered[1 - likelier])):
            counts, times = (chosen, factor if partition.view.name else 2) if i == 0 else (both, 1)
            n = times * min(int(c.sum()) for c in counts)
            hits, other_hits = (times * np.cumsum(counts[side][order]) for side in (likelier, 1 - likelier))
            p, q = _rough_bounds(hits, other_hits, n, level / 2)
            value = np.log(np.maximum(p - delta, 1e-300) / q) - handicap
            at = int(np.argmax(value))
            if best is None or value[at] > best.value:
                mask = np.zeros(size, dtype=np.bool_)
                mask[order[: at + 1]] = True
                known = seen.copy()
                if i > 0:  # a threshold takes what lies beyond the largest value seen, too
                    known[: partition.numeric] = True
                weight = (both[0] + both[1]).astype(np.float64)
                best = _Choice(float(value[at]), partition, mask & known, likelier, order, weight)
    assert best is not None
    return best


def _look(sides: tuple[list[Batch], list[Batch]], delta: float, level: float) -> _Found:
    """Choose the best event on a half of the draws, and count it on the other half.

    Of every four draws the first places the cuts and orders the cells, the second chooses among the events, and the
    last two are counted. So nothing that is counted had a say in the choice.
    """
    draws, forms = _events.joined(sides)
    parts = [[Draws(d.codes[i::4], d.values[i::4]) for d in draws] for i in range(4)]
    ordering, choosing = [_first(d, MOST_TO_ORDER) for d in parts[0]], parts[1]
    tested = [
        Draws(np.concatenate([a.codes, b.codes]), np.concatenate([a.values, b.values]))
        for a, b in zip(*parts[2:], strict=True)
    ]
    views = _events.views(ordering, forms)
    if len(views) > FINALISTS and len(choosing[0].codes) > SCREEN:
        a, b = ([_first(d, SCREEN) for d in part] for part in (ordering, choosing))
        promise = [_choose(Partition(view, a, forms), a, b, delta, level).value for view in views]
        views = [views[i] for i in sorted(sorted(range(len(views)), key=lambda i: -promise[i])[:FINALISTS])]
    partitions = [Partition(view, ordering, forms) for view in views]
    for factor in (1, 2):
        choices = [_choose(x, ordering, choosing, delta, level, factor) for x in partitions]
        best = max(choices, key=lambda choice: choice.value)
        if best.value > 0:
            break
    n = min(len(d.codes) for d in tested)
    cells = [best.partition.cells(d)[:n] for d in tested]
    hits, other_hits = (int(best.mask[cells[side]].sum()) for side in (best.likelier, 1 - best.likelier))
    bound = epsilon_bound(hits=hits, other_hits=other_hits, draws=n, delta=delta, alpha=level)
    event = best.partition.describe(best.mask, best.weight)
    picture = _picture(best.partition, cells, best.likelier, best.order)
    return _Found(bound, event, best.likelier + 1, hits, other_hits, n, picture)


def _first(draws: Draws, count: int) -> Draws:
    return Draws(draws.codes[:count], draws.values[:count])


def _picture(partition: Partition, cells: list[IntArray], likelier: int, order: IntArray) -> tuple[Any, ...]:
    """Return what a picture needs: the name of the score, bins and shares of both inputs, and the ROC points."""
    counts = np.array([np.bincount(c, minlength=partition.count) for c in cells], dtype=np.float64)
    shares = counts / counts.sum(axis=1, keepdims=True)
    total = np.cumsum(shares[:, order], axis=1)
    roc = np.array([total[1 - likelier], 1.0 - total[likelier]])
    roc = np.concatenate([[[0.0], [1.0]], roc], axis=1)
    roc = np.clip(roc[:, np.unique(np.linspace(0, roc.shape[1] - 1, 200).astype(np.int64))], 0.0, 1.0)
    used = np.flatnonzero(counts.sum(axis=0))
    if len(used) <= 24 or partition.numeric < 40:
        masks = (np.arange(partition.count) == i for i in used)
        labels = tuple(partition.short(mask, counts.sum(axis=0)) for mask in masks)
        return partition.view.name, np.empty(0), shares[:, used], labels, roc
    cuts = partition.cuts
    low, high = (float(np.interp(level, np.linspace(0, 1, len(cuts)), cuts)) for level in (0.02, 0.98))
    # The cells are finer than the bins: each goes where its middle lies.
    edges = np.linspace(low, high, 41)
    ends = np.concatenate([[cuts[0]], cuts, [cuts[-1]]])
    middle = np.empty(partition.numeric)
    middle[1::2], middle[::2] = cuts, (ends[:-1] + ends[1:]) / 2
    at = np.searchsorted(edges, middle, "right")  # 0 and 41 are outside
    histogram = np.array([np.bincount(at, weights=s[: partition.numeric], minlength=42)[1:41] for s in shares])
    return partition.view.name, edges, histogram, (), roc
