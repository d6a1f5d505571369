"""What a few releases cost together, in closed form.

Composition theorems need only the (ε, δ) of every release. They hold for releases chosen one after the other, each with
fresh randomness, all under one neighbour relation. Where the noise is known, `dpbook.accounting` is tighter.
Every result is rounded up.
"""

import functools
import math
from fractions import Fraction
from typing import Any, NamedTuple

from dpbook import _validate
from dpbook._exact import precise, round_up, up

LARGEST_STEPS = 10**4  # for the exact sum, which has that many terms
SAMPLING = ("poisson", "fixed_size")


class Guarantee(NamedTuple):
    """An (ε, δ) pair."""

    epsilon: float
    delta: float


def _many(epsilons: Any, deltas: Any) -> tuple[list[float], list[float]]:
    eps = _validate.finite_array(epsilons=epsilons).ravel()
    given = _validate.finite_array(deltas=deltas).ravel()
    if (eps < 0).any():
        raise ValueError("epsilons must be non-negative, every one")
    if ((given < 0) | (given >= 1)).any():
        raise ValueError("deltas must be at least 0 and below 1, every one")
    if len(given) not in (1, len(eps)):
        raise ValueError(f"deltas must be one or as many as epsilons, got {len(given)} for {len(eps)}")
    return eps.tolist(), (given.tolist() if len(given) == len(eps) else given.tolist() * len(eps))


def _total_delta(deltas: list[float], slack: float = 0.0) -> float:
    """Return ``1 - (1 - slack) Π (1 - δ)``, in exact arithmetic for a few, else as the sum, which is no smaller."""
    if len(deltas) > 200:
        return min(1.0, round_up(sum((Fraction(d) for d in deltas), Fraction(slack))))
    keep = 1 - Fraction(slack)
    for d in deltas:
        keep *= 1 - Fraction(d)
    return round_up(1 - keep)


def basic_composition(*, epsilons: Any, deltas: Any = 0.0) -> Guarantee:
    """Return the sum of the costs: releases that are each (εᵢ, δᵢ)-DP are (Σεᵢ, Σδᵢ)-DP together.

    Parameters
    ----------
    epsilons : array_like
        ε ≥ 0 of every release, under one neighbour relation.
    deltas : array_like, optional
        δ in [0, 1) of every release, or one for all.

    Returns
    -------
    Guarantee
        ``(epsilon, delta)``; the sums are exact and rounded up. A δ of 1 or more is returned as 1: no guarantee.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    Dwork, Roth (2014), Thm. 3.16.

    Examples
    --------
    >>> basic_composition(epsilons=[0.5, 0.25], deltas=2**-20)
    Guarantee(epsilon=0.75, delta=1.9073486328125e-06)
    """
    eps, d = _many(epsilons, deltas)
    return Guarantee(_sum(eps), min(1.0, _sum(d)))


def _sum(values: list[float]) -> float:
    return round_up(sum((Fraction(v) for v in values), Fraction(0)))


def advanced_composition(*, epsilon: float, steps: int, slack: float, delta: float = 0.0) -> Guarantee:
    """Return the cost of `steps` (ε, δ)-DP releases by the advanced theorem, or by the basic one where that is less.

    Parameters
    ----------
    epsilon : float
        ε ≥ 0 of every release, under one neighbour relation.
    steps : int
        Number k ≥ 1 of releases.
    slack : float
        δ' in (0, 1), added to δ in exchange for a smaller ε.
    delta : float, optional
        δ in [0, 1) of every release.

    Returns
    -------
    Guarantee
        ``(ε sqrt(2k ln(1/δ')) + k ε (exp(ε) - 1), kδ + δ')``, or ``(kε, kδ)`` when its ε is not larger.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    Dwork, Rothblum, Vadhan (2010), Thm. III.3; as in Dwork, Roth (2014), Thm. 3.20.

    Examples
    --------
    >>> advanced_composition(epsilon=1.0, steps=2, slack=1e-6)  # the formula says 10.87 here
    Guarantee(epsilon=2.0, delta=0.0)
    >>> round(advanced_composition(epsilon=0.1, steps=500, slack=1e-5).epsilon, 4)
    15.9884
    """
    d = _validate.half_open_unit(delta=delta)
    eps, k = _validate.non_negative(epsilon=epsilon), _validate.integer(steps=steps)
    s = _validate.open_unit(slack=slack)
    formula = drv_epsilon(epsilon=eps, steps=k, slack=s)
    basic = round_up(Fraction(eps) * k)
    if basic <= formula:
        return Guarantee(basic, min(1.0, round_up(Fraction(d) * k)))
    return Guarantee(formula, min(1.0, round_up(Fraction(d) * k + Fraction(s))))


def drv_epsilon(*, epsilon: float, steps: int, slack: float) -> float:
    """Return the ε of the advanced composition formula alone, also where it is worse than kε: to show what it does.

    The guarantee is (this ε, kδ + slack)-DP, under the neighbour relation of the releases.

    Parameters
    ----------
    epsilon : float
        ε ≥ 0 of every release.
    steps : int
        Number k ≥ 1 of releases.
    slack : float
        δ' in (0, 1).

    Returns
    -------
    float
        ``ε sqrt(2k ln(1/δ')) + k ε (exp(ε) - 1)``, rounded up.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    Dwork, Rothblum, Vadhan (2010), Thm. III.3; as in Dwork, Roth (2014), Thm. 3.20.

    Examples
    --------
    >>> round(drv_epsilon(epsilon=1.0, steps=500, slack=1e-5), 4)
    966.4392
    """
    eps, k = _validate.non_negative(epsilon=epsilon), _validate.integer(steps=steps)
    s = _validate.open_unit(slack=slack)
    if eps > 700:
        return math.inf
    mp = precise()
    mp.dps = 40
    e = mp.mpf(eps)
    return up(e * mp.sqrt(-2 * k * mp.log(mp.mpf(s))) + k * e * mp.expm1(e))


def optimal_delta(*, epsilon: float, steps: int, total_epsilon: float, delta: float = 0.0) -> float:
    """Return the least δ that holds at `total_epsilon` for every way of composing `steps` (ε, δ)-DP releases.

    Parameters
    ----------
    epsilon : float
        ε in [0, 700] of every release, under one neighbour relation.
    steps : int
        Number k of releases, 1 to 10**4.
    total_epsilon : float
        ε ≥ 0 of all together.
    delta : float, optional
        δ in [0, 1) of every release.

    Returns
    -------
    float
        δ in [0, 1], exact and rounded up.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    Kairouz, Oh, Viswanath (2015), Thm. 3.3; between its points, the curve of the pair in its proof.

    Examples
    --------
    >>> round(optimal_delta(epsilon=1.0, steps=30, total_epsilon=22.0, delta=1e-3), 6) <= 0.06
    True
    """
    eps, k = _step(epsilon), _steps(steps)
    total, d = _validate.non_negative(total_epsilon=total_epsilon), _validate.half_open_unit(delta=delta)
    return _optimal_delta(eps, k, d, total)


def _step(epsilon: Any) -> float:
    eps = _validate.non_negative(epsilon=epsilon)
    if eps > 700:
        raise ValueError(f"epsilon must be at most 700, got {_validate.shown(epsilon)}")
    return eps


def _steps(steps: Any) -> int:
    k = _validate.integer(steps=steps)
    if k > LARGEST_STEPS:
        raise ValueError(f"steps must be at most {LARGEST_STEPS}, got {k}; dpbook.accounting takes more")
    return k


@functools.lru_cache(maxsize=64)
def _points(eps: float, k: int) -> tuple[Any, Any]:
    """Return, for i = 0 … k, the masses of P and of Q where the loss is at least (k - 2i) ε, in 60 digits."""
    mp = precise()
    mp.dps = 60
    ratio = mp.exp(-mp.mpf(eps))
    term = (1 / (1 + ratio)) ** k
    back = ratio**k
    p, q = [term], [term * back]
    for i in range(1, k + 1):
        term = term * ratio * (k - i + 1) / i
        back = back / ratio**2
        p.append(p[-1] + term)
        q.append(q[-1] + term * back)
    return p, q


def _curve(eps: float, k: int, total: Any) -> Any:
    """Return δ at ε = total for k pure steps, in high precision; its last digits are rounded up, relative to P."""
    p, q = _points(eps, k)
    mp = precise()
    mp.dps = 60
    last = math.floor((k - total / eps) / 2) if eps > 0 else -1
    if last < 0:
        return mp.mpf(0)
    i = min(last, k)
    return max(p[i] * (1 + mp.mpf(10) ** -50) - mp.exp(total) * q[i], mp.mpf(0))


def _optimal_delta(eps: float, k: int, d: float, total: float) -> float:
    mp = precise()
    mp.dps = 60
    pure = mp.mpf(0)
    if Fraction(total) < Fraction(eps) * k:
        pure = _curve(eps, k, mp.mpf(total))
    lost = _lost(mp, d, k)
    return min(1.0, up(pure * (1 - lost) + lost))


def _lost(mp: Any, d: float, k: int) -> Any:
    """Return ``1 - (1 - d)**k`` with all digits, for a tiny d too."""
    return -mp.expm1(k * mp.log1p(-mp.mpf(d)))


def optimal_composition(*, epsilon: float, steps: int, total_delta: float, delta: float = 0.0) -> float:
    """Return the least ε that holds at `total_delta` for every way of composing `steps` (ε, δ)-DP releases.

    Parameters
    ----------
    epsilon : float
        ε in [0, 700] of every release, under one neighbour relation.
    steps : int
        Number k of releases, 1 to 10**4.
    total_delta : float
        δ in [0, 1) of all together.
    delta : float, optional
        δ in [0, 1) of every release.

    Returns
    -------
    float
        ε ≥ 0, exact and rounded up; `inf` where `total_delta` is below ``1 - (1 - δ)**k``.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    Kairouz, Oh, Viswanath (2015), Thm. 3.3; between its points, the curve of the pair in its proof.

    Examples
    --------
    >>> round(optimal_composition(epsilon=0.1, steps=500, total_delta=1e-5), 4)
    11.4089
    """
    eps, k = _step(epsilon), _steps(steps)
    wish, d = _validate.half_open_unit(total_delta=total_delta), _validate.half_open_unit(delta=delta)
    mp = precise()
    mp.dps = 120
    lost = _lost(mp, d, k)
    if abs(wish - lost) <= lost * mp.mpf(10) ** -40:  # too close for digits: exact, and nothing is left if not below
        return math.inf if Fraction(wish) < 1 - (1 - Fraction(d)) ** k else round_up(Fraction(eps) * k)
    if wish < lost:
        return math.inf
    target = (wish - lost) / (1 - lost)  # what is left for the pure part
    p, q = _points(eps, k)
    mp.dps = 60
    # On the i-th piece, between losses (k - 2i - 2) ε and (k - 2i) ε, the curve is p_i - exp(ε) q_i.
    low, high = 0, k
    while low < high:  # the first i whose value at the left end of its piece passes the target
        i = (low + high) // 2
        if p[i] - mp.exp(eps * max(k - 2 * i - 2, 0)) * q[i] > target or 2 * i + 2 > k:
            high = i
        else:
            low = i + 1
    if p[low] <= target:
        return 0.0
    found = up(mp.log((p[low] - target) / q[low]) * (1 + mp.mpf(10) ** -40))
    return max(0.0, min(found, round_up(Fraction(eps) * k)))


def heterogeneous_composition(*, epsilons: Any, slack: float, deltas: Any = 0.0) -> Guarantee:
    """Return the cost of releases of different (εᵢ, δᵢ): the least of three bounds, one of which is the sum.

    Parameters
    ----------
    epsilons : array_like
        ε ≥ 0 of every release, under one neighbour relation.
    slack : float
        δ' in (0, 1), used when it makes ε smaller than the sum.
    deltas : array_like, optional
        δ in [0, 1) of every release, or one for all.

    Returns
    -------
    Guarantee
        ε, and ``1 - (1 - δ') Π (1 - δᵢ)``, without δ' where the sum is least.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    Kairouz, Oh, Viswanath (2015), Thm. 3.5.

    Examples
    --------
    >>> round(heterogeneous_composition(epsilons=[2**-9] * 700, slack=2**-25).epsilon, 12)
    0.278322806157
    """
    eps, d = _many(epsilons, deltas)
    s = _validate.open_unit(slack=slack)
    basic = _sum(eps)
    if max(eps, default=0.0) > 700:
        return Guarantee(basic, _total_delta(d))
    mp = precise()
    mp.dps = 40
    e = [mp.mpf(v) for v in eps]
    drift = mp.fsum(v * mp.tanh(v / 2) for v in e)
    squares = mp.fsum(v * v for v in e)
    log = mp.log(1 / mp.mpf(s))
    other = mp.log(mp.e + mp.sqrt(squares) / s)
    best = up(drift + mp.sqrt(2 * squares * min(log, other)))
    return Guarantee(basic, _total_delta(d)) if basic <= best else Guarantee(best, _total_delta(d, s))


def group_privacy(*, epsilon: float, group_size: int, delta: float = 0.0) -> Guarantee:
    """Return what an (ε, δ)-DP release guarantees to `group_size` people together.

    Parameters
    ----------
    epsilon : float
        ε ≥ 0 for one person, under any neighbour relation.
    group_size : int
        Number k ≥ 1 of people who differ.
    delta : float, optional
        δ in [0, 1) for one person.

    Returns
    -------
    Guarantee
        ``(kε, δ (1 + exp(ε) + … + exp((k-1)ε)))``, δ at most 1.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    Dwork, Roth (2014), Thm. 2.2; with δ: Vadhan (2017), Lemma 2.2.

    Examples
    --------
    >>> group_privacy(epsilon=0.5, group_size=3)
    Guarantee(epsilon=1.5, delta=0.0)
    """
    eps, k = _validate.non_negative(epsilon=epsilon), _validate.integer(group_size=group_size)
    d = _validate.half_open_unit(delta=delta)
    total = round_up(Fraction(eps) * k)
    if d == 0:
        return Guarantee(total, 0.0)
    mp = precise()
    mp.dps = 40
    e = mp.mpf(eps)
    growth = mp.expm1(k * e) / mp.expm1(e) if 0 < k * eps < 5000 else mp.mpf(k) if eps == 0 else mp.inf
    return Guarantee(total, 1.0 if growth * d >= 1 else up(growth * d))


def parallel_composition(*, epsilons: Any, neighbors: str, deltas: Any = 0.0) -> Guarantee:
    """Return the cost of releases on disjoint groups of people, each group's release (εᵢ, δᵢ)-DP under `neighbors`.

    The split must not depend on the data but for each person's own record. Under add/remove a person is in one group,
    and the largest cost is the cost. Under replace-one the new record may fall into another group, and the people in
    both groups change by one; the releases must be private under add/remove, and the two largest costs add up.

    Parameters
    ----------
    epsilons : array_like
        ε ≥ 0 of every group's release.
    neighbors : {"add_remove", "replace_one"}
        Neighbour relation of the claim. For both, the groups' releases have their ε under add/remove.
    deltas : array_like, optional
        δ in [0, 1) of every release, or one for all.

    Returns
    -------
    Guarantee
        ``(epsilon, delta)``; with equal costs ε under add/remove and 2ε under replace-one.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    McSherry (2009), Thm. 4, for add/remove; under replace-one, the composition of one removal and one addition.

    Examples
    --------
    >>> parallel_composition(epsilons=[0.5, 0.5, 0.5], neighbors="add_remove").epsilon
    0.5
    >>> parallel_composition(epsilons=[0.5, 0.5, 0.5], neighbors="replace_one").epsilon
    1.0
    """
    relation = _validate.neighbors(neighbors)
    eps, d = _many(epsilons, deltas)
    if not eps:
        return Guarantee(0.0, 0.0)
    if relation == _validate.ADD_REMOVE:
        return Guarantee(max(eps), max(d))
    if len(eps) == 1:  # removed and added in one group: group privacy for two
        return group_privacy(epsilon=eps[0], group_size=2, delta=d[0])
    pair = Guarantee(_sum(sorted(eps)[-2:]), _sum(sorted(d)[-2:]))
    inside = [group_privacy(epsilon=e, group_size=2, delta=v) for e, v in zip(eps, d, strict=True)]
    return Guarantee(max([pair.epsilon, *(g.epsilon for g in inside)]), max([pair.delta, *(g.delta for g in inside)]))


def amplify(
    *, epsilon: float, sampling_prob: float, neighbors: str, delta: float = 0.0, sampling: str = "poisson"
) -> Guarantee:
    """Return the cost of an (ε, δ)-DP computation that is run on one random sample, all of its queries together.

    Parameters
    ----------
    epsilon : float
        ε ≥ 0 of everything that is computed on this one sample, under the same relation; but for Poisson samples under
        replace-one it is the ε under add/remove.
    sampling_prob : float
        Probability in [0, 1] that a record is in the sample; for "fixed_size" the sample's share of the public n.
    neighbors : {"add_remove", "replace_one"}
        Neighbour relation.
    delta : float, optional
        δ in [0, 1), under the relation of that ε.
    sampling : {"poisson", "fixed_size"}, optional
        "poisson" draws every record on its own; under replace-one it is counted as one removal and one addition, for
        which ε and δ are those under add/remove. "fixed_size" draws without replacement, and only under replace-one:
        under add/remove the size of the data would show. Shuffled batches are no sample; they have no bound here.

    Returns
    -------
    Guarantee
        ``(log(1 + q (exp(ε) - 1)), q δ)``; for Poisson samples under replace-one twice that, as for a group of two.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, or for "fixed_size" under add/remove.

    References
    ----------
    Balle, Barthe, Gaboardi (2018), Thm. 8 (Poisson, add/remove) and Thm. 9 (without replacement, replace-one).

    Examples
    --------
    >>> round(amplify(epsilon=4.0, sampling_prob=0.1, neighbors="add_remove").epsilon, 6)
    1.849999
    """
    eps, d = _validate.non_negative(epsilon=epsilon), _validate.half_open_unit(delta=delta)
    q = _validate.closed_unit(sampling_prob=sampling_prob)
    relation = _validate.neighbors(neighbors)
    kind = _validate.choice(SAMPLING, sampling=sampling)
    if kind == "fixed_size" and relation == _validate.ADD_REMOVE:
        raise ValueError('neighbors must be "replace_one" for samples of a fixed size: the size of the data is public')
    mp = precise()
    mp.dps = 40
    log = mp.log1p(q * mp.expm1(mp.mpf(eps))) if eps < 1e5 else mp.mpf(eps)
    one = min(up(log), eps) if q > 0 and eps > 0 else 0.0
    less = round_up(Fraction(q) * Fraction(d))
    if kind == "poisson" and relation == _validate.REPLACE_ONE:
        return group_privacy(epsilon=one, group_size=2, delta=less)
    return Guarantee(one, less)
