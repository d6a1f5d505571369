"""Choosing among settings on private data, paid for: a random number of trials, of which only the best is released.

To train with ten settings and keep the best costs ten trainings, if nothing cleverer is done; and to look at their
scores on private data without counting it is a leak. Here the number of trials is random, K = 1, 2, … with probability
``γ (1 - γ)**(K-1)``, each trial takes a setting at random, and only the best trial's output is released. Whether the
best one stands out is then hidden by not knowing how many were tried. The price (Papernot and Steinke, 2022, Thm. 2,
with η = 1): if one trial has Rényi DP r(α), then for every α' ≥ 1 all together has

    r(α) + 2 (1 - 1/α') r(α') + 2 log(1/γ) / α' + log(1/γ) / (α - 1).

So about three times one trial, almost however many are tried. If one trial is ε-DP, all together is 3ε-DP (Liu and
Talwar, 2019).

The output of a trial is its score *and* what was trained: the score must be computed from public data, or its noise and
its cost must be in the account of a trial. K itself is not released, and must not show otherwise: not by a progress
line or a log of each trial, nor by the clock. An error in a trial shows more than the winner too.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize

from dpbook import _validate, noise, rdp

SLACK = 1 + 1e-12  # pays for the rounding of a few operations
LARGEST_SCORE = 2**1000
FEWEST, MOST = 1, 2**11  # expected trials: γ is then a multiple of 2**-64


@dataclass(frozen=True, eq=False)
class Winner:
    """The best trial, and what all trials together cost under the neighbour relation of the account."""

    setting: Any
    score: float
    result: Any
    epsilon: float
    delta: float
    neighbors: str


def _expected(expected_trials: Any) -> float:
    value = _validate.positive(expected_trials=expected_trials)
    if not FEWEST < value <= MOST:
        raise ValueError(f"expected_trials must be above 1 and at most 2**11, got {_validate.shown(expected_trials)}")
    return 1 / value


def trials_epsilon(*, account: Any, expected_trials: float, delta: float) -> float:
    """Return the ε of the best of a random number of trials, under the account's neighbour relation: an upper bound.

    Parameters
    ----------
    account : dpbook.accounting.Accountant
        What any one trial costs, whatever its setting, its score included.
    expected_trials : float
        1/γ, above 1 and at most 2**11: how many trials there are on average.
    delta : float
        δ in (0, 1).

    Returns
    -------
    float
        ε ≥ 0.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    Papernot, Steinke (2022), Hyperparameter tuning with Rényi differential privacy, Thm. 2 (η = 1); Canonne, Kamath,
    Steinke (2020), Prop. 12, for the conversion.

    Examples
    --------
    >>> from dpbook.accounting import Accountant, Gaussian
    >>> one = Accountant(neighbors="add_remove").add(Gaussian(sigma=10.0))
    >>> round(one.epsilon(delta=1e-5), 2), round(trials_epsilon(account=one, expected_trials=10, delta=1e-5), 2)
    (0.34, 0.85)
    """
    if not hasattr(account, "rdp") or not hasattr(account, "neighbors"):
        raise TypeError(f"account must be an Accountant, got {_validate.shown(account)}")
    gamma, at = _expected(expected_trials), _validate.open_unit(delta=delta)
    once = functools.lru_cache(maxsize=None)(lambda order: account.rdp(order=order))
    more = -math.log(gamma)

    def rest(v: float) -> float:
        order = 1 + math.exp(v)
        value = once(order)
        return 2 * ((1 - 1 / order) * value + more / order) if math.isfinite(value) else math.inf

    grid = np.arange(-6.0, 12.1, 1.0).tolist()
    best = min(grid, key=rest)
    found = optimize.minimize_scalar(rest, bounds=(best - 1, best + 1), method="bounded")
    fixed = min(rest(best), rest(float(found.x)), 2 * more)  # any order is valid; the last is order 1
    return rdp.least_epsilon(lambda order: (once(order) + fixed + more / (order - 1)) * SLACK, delta=at)


def best_of_trials(
    trial: Callable[[Any], tuple[float, Any]],
    settings: Any,
    *,
    account: Any,
    expected_trials: float,
    delta: float,
    ledger: Any = None,
    label: str = "trials",
    rng: np.random.Generator | None = None,
) -> Winner:
    """Return the best of a random number of private trials, each with a setting at random: (ε, δ)-DP, all together.

    Under the neighbour relation of the account. Only the winner is private to release; whoever sees other trials, or
    their number, sees more.

    Parameters
    ----------
    trial : callable
        ``trial(setting)`` returns ``(score, result)``, a number and anything: larger is better, NaN is worst. Both
        together must cost no more than `account` says, for every setting. It must draw fresh randomness in each call.
    settings : list or tuple
        Public settings to choose from; not from the data.
    account : dpbook.accounting.Accountant
        What one trial costs, its score included.
    expected_trials : float
        How many trials there are on average, above 1 and at most 2**11; two or three times the number of settings
        makes it likely that most are tried.
    delta : float
        δ in (0, 1).
    ledger : Ledger, optional
        A `dpbook.budget.Ledger` with a basic budget, which is charged before the first trial, or refuses.
    label : str, optional
        What the ledger writes down.
    rng : numpy.random.Generator, optional
        None reads the operating system's entropy. A seeded choice is reproducible and therefore NOT private.

    Returns
    -------
    Winner
        Setting, score and result of the best trial, and the ε of it all.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, or `trial` returns no score.
    BudgetExceededError
        When the ledger refuses.

    References
    ----------
    Papernot, Steinke (2022), Hyperparameter tuning with Rényi differential privacy, Thm. 2 (η = 1).

    Examples
    --------
    >>> from dpbook.accounting import Accountant, Laplace
    >>> from dpbook.noise import add_laplace
    >>> one = Accountant(neighbors="add_remove").add(Laplace(scale=10.0))
    >>> winner = best_of_trials(lambda s: (add_laplace(100.0 * s, scale=10.0), None), [1, 2, 3], account=one,
    ...                         expected_trials=10, delta=1e-5, rng=np.random.default_rng(0))  # seeded: not private
    >>> winner.setting
    3
    """
    if not callable(trial):
        raise TypeError(f"trial must be callable, got {type(trial).__name__}")
    if not isinstance(settings, (list, tuple)) or not settings:
        raise TypeError(f"settings must be a list or tuple of at least one setting, got {_validate.shown(settings)}")
    at = math.nextafter(_validate.open_unit(delta=delta), 0.0)  # a ledger reads decimals, half a last digit away
    epsilon = trials_epsilon(account=account, expected_trials=expected_trials, delta=at)
    if not isinstance(label, str):
        raise TypeError(f"label must be a text, got {_validate.shown(label)}")
    _validate.generator(rng)
    if ledger is not None:
        terms = getattr(ledger, "budget", None)
        if terms is None or not hasattr(ledger, "spend"):
            raise TypeError(f"ledger must be a Ledger or None, got {_validate.shown(ledger)}")
        if terms.accounting != "basic" or terms.neighbors != account.neighbors:
            raise ValueError(f"ledger must have a basic budget for neighbors={account.neighbors!r}, got {terms}")
        ledger.spend(label=label, epsilon=math.nextafter(epsilon, math.inf), delta=delta)
    stop, equal = _expected(expected_trials), np.zeros(len(settings))
    best: tuple[float, Any, Any] | None = None
    while True:
        setting = settings[noise.choose_index(equal, scale=1.0, rng=rng)]
        score, result = _scored(trial(setting))
        if best is None or score > best[0]:
            best = score, setting, result
        if len(noise.poisson_sample(1, sampling_prob=stop, rng=rng)):
            break
    score, setting, result = best
    return Winner(setting, score, result, epsilon, float(delta), account.neighbors)


def _scored(given: Any) -> tuple[float, Any]:
    if not isinstance(given, tuple) or len(given) != 2:
        raise TypeError(f"trial must return (score, result), got {type(given).__name__}")
    score, result = given
    if type(score) is int:  # a Python int has no largest value
        score = min(max(score, -LARGEST_SCORE), LARGEST_SCORE)
    if not isinstance(score, (int, float, np.integer, np.floating)) or isinstance(score, bool):
        raise TypeError(f"trial must return a number as score, got {type(score).__name__}")
    return (-math.inf if math.isnan(score) else float(score)), result
