"""Audits: bounds against exact probabilities, false alarms over 500 seeds, and faults that must be found."""

import importlib
import inspect
import io
import itertools
import math
import pkgutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

import mpmath
import numpy as np
import pytest
from scipy import stats

import dpbook
from dpbook import audit as module
from dpbook import noise, sensitivity
from dpbook._events import form_and_numbers
from dpbook.accounting import Accountant, Gaussian
from dpbook.audit import audit, clopper_pearson, epsilon_bound, epsilon_ceiling
from dpbook.budget import BudgetExceededError, Ledger, basic
from dpbook.gaussian import gaussian_mechanism, gaussian_sigma
from dpbook.histograms import private_histogram, private_keys
from dpbook.laplace import discrete_laplace_mechanism, laplace_mechanism
from dpbook.local import randomized_response, response_shares
from dpbook.quantiles import exponential_quantile, private_bounds, private_median, private_quantiles
from dpbook.queries import (
    private_count,
    private_covariance,
    private_mean,
    private_std,
    private_sum,
    private_variance,
)
from dpbook.selection import SparseVector, exponential_mechanism, noisy_max, permute_and_flip, top_k
from dpbook.sensitivity import clip_norm, clipped_sum, norm_clipped_sum
from dpbook.trials import best_of_trials, trials_epsilon

ALPHA = 1e-6
E = math.e

# --- bounds ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("draws", "ceiling"), [(100, 3.2813), (1000, 5.6006), (10_000, 7.9048)])
def test_the_ceiling_is_the_published_one(draws, ceiling):
    """95 %, two-sided: the value of a perfect attack."""
    assert epsilon_ceiling(draws=draws, alpha=0.05) == pytest.approx(ceiling, abs=5e-5)
    assert epsilon_bound(hits=draws, other_hits=0, draws=draws, alpha=0.05) == epsilon_ceiling(draws=draws, alpha=0.05)


def at_most(hits, draws, p):
    """P(X <= hits) for X binomial, summed term by term on the short side."""
    if hits > draws - hits:
        return 1 - at_most(draws - hits - 1, draws, 1 - p) if hits < draws else mpmath.mpf(1)
    term = total = (1 - p) ** draws if hits >= 0 else mpmath.mpf(0)
    for i in range(1, hits + 1):
        term *= (draws - i + 1) * p / (i * (1 - p))
        total += term
    return total


@pytest.mark.parametrize("alpha", [0.05, 1e-6, 1e-12])
@pytest.mark.parametrize("draws", [1, 7, 1000, 10**6])
def test_bounds_are_on_the_safe_side_of_the_exact_ones(draws, alpha):
    """At the lower bound P(X >= hits), and at the upper one P(X <= hits), are at most alpha / 2, and hardly less."""
    mpmath.mp.prec = 200
    level = mpmath.mpf(alpha) / 2
    for hits in sorted({0, 1, 2, 3, 300, draws // 2 if draws < 10**6 else 5, draws - 1, draws} & set(range(draws + 1))):
        low, high = clopper_pearson(hits=hits, draws=draws, alpha=alpha)
        tail = 1 - at_most(hits - 1, draws, mpmath.mpf(low))
        assert 0.9 * level < tail <= level * (1 + mpmath.mpf(2) ** -40) if hits else low == 0.0
        tail = at_most(hits, draws, mpmath.mpf(high))
        assert tail <= level * (1 + mpmath.mpf(2) ** -40) if hits < draws else high == 1.0
        assert tail > 0.9 * level or high > 1 - 1e-4  # so near to 1 the margin of one part in 10**9 shows


@pytest.mark.parametrize("draws", [5, 40])
def test_coverage_by_enumeration(draws):
    """Each bound is wrong with probability at most alpha / 2, for every p; computed, not simulated."""
    alpha = 0.1
    bounds = [clopper_pearson(hits=k, draws=draws, alpha=alpha) for k in range(draws + 1)]
    for p in np.linspace(0.001, 0.999, 97):
        weight = stats.binom.pmf(np.arange(draws + 1), draws, p)
        assert sum(w for w, (low, _) in zip(weight, bounds, strict=True) if low > p) <= alpha / 2
        assert sum(w for w, (_, high) in zip(weight, bounds, strict=True) if high < p) <= alpha / 2


def test_delta_is_taken_off_the_larger_probability():
    low, high = clopper_pearson(hits=700, draws=1000, alpha=0.05)[0], clopper_pearson(hits=9, draws=1000, alpha=0.05)[1]
    for delta in (0.0, 0.1, 0.5):
        expected = math.log((low - delta) / high)
        found = epsilon_bound(hits=700, other_hits=9, draws=1000, delta=delta, alpha=0.05)
        assert expected * (1 - 1e-8) <= found <= expected
    assert epsilon_bound(hits=700, other_hits=9, draws=1000, delta=0.7, alpha=0.05) == 0.0
    assert epsilon_bound(hits=9, other_hits=700, draws=1000, alpha=0.05) == 0.0


def test_more_hits_than_draws_are_refused():
    for call in (
        lambda: clopper_pearson(hits=11, draws=10, alpha=0.1),
        lambda: epsilon_bound(hits=11, other_hits=0, draws=10, alpha=0.1),
    ):
        with pytest.raises(ValueError, match="hits must be at most draws=10, got 11"):
            call()
    with pytest.raises(ValueError, match="other_hits must be at most"):
        epsilon_bound(hits=1, other_hits=11, draws=10, alpha=0.1)


# --- false alarms ----------------------------------------------------------------------------------------------------


def coin(data, count, rng):
    """Randomised response, exactly ε = 1: every other output is at the limit of the claim."""
    return (rng.random(count) < (E if data else 1.0) / (1 + E)).astype(float)


class Null(NamedTuple):
    release: Any
    pair: tuple[Any, Any]
    epsilon: float
    delta: float = 0.0


SIGMA = gaussian_sigma(epsilon=1.0, delta=0.05, sensitivity=1.0)
NULLS = {
    "randomised response": Null(coin, (0, 1), 1.0),
    "Laplace": Null(lambda x, n, rng: laplace_mechanism(np.full(n, x), 1.0, 1.0, rng=rng), (0.0, 1.0), 1.0),
    "discrete Laplace": Null(
        lambda x, n, rng: discrete_laplace_mechanism(np.full(n, x), epsilon=1.0, sensitivity=1, rng=rng), (5, 6), 1.0
    ),
    "Gaussian": Null(
        lambda x, n, rng: gaussian_mechanism(np.full(n, x), 1.0, 0.05, 1.0, rng=rng), (0.0, 1.0), 1.0, 0.05
    ),
    "Laplace vector": Null(
        lambda x, n, rng: laplace_mechanism(np.tile(x, (n, 1)), 1.0, 1.0, rng=rng),
        (np.zeros(2), np.array([0.5, 0.5])),
        1.0,
    ),
    "no difference": Null(lambda x, n, rng: rng.normal(size=n), (0, 1), 0.0),
}


@pytest.mark.parametrize("name", NULLS)
def test_false_alarms_over_500_seeds(name):
    """At most alpha of true claims are called violated; 3 standard deviations are for the luck of 500 audits."""
    null, alpha, seeds = NULLS[name], 0.05, 500
    alarms = 0
    for seed in range(seeds):
        rng = np.random.default_rng([seed, 1])
        found = audit(
            lambda x, n, rng=rng: null.release(x, n, rng), *null.pair, epsilon=null.epsilon, delta=null.delta,
            alpha=alpha, draws=1600, vectorized=True,
        )  # fmt: skip
        alarms += found.violated
    assert alarms <= alpha * seeds + 3 * math.sqrt(alpha * (1 - alpha) * seeds)


def test_choosing_on_the_counted_draws_would_give_false_alarms():
    """The twin: with the best of many thresholds chosen on the same draws, alarms are several times the level."""
    thresholds = np.linspace(-3, 3, 49)
    fair, chosen = 0, 0
    for seed in range(500):
        rng = np.random.default_rng([seed, 2])
        a, b = ((rng.normal(size=(200, 1)) > thresholds).sum(axis=0) for _ in range(2))
        bounds = [
            epsilon_bound(hits=int(h), other_hits=int(o), draws=200, alpha=0.05)
            for x, y in ((a, b), (b, a), (200 - a, 200 - b), (200 - b, 200 - a))
            for h, o in zip(x, y, strict=True)
        ]
        chosen += max(bounds) > 0
        fair += bounds[24] > 0
    assert fair <= 25 + 15
    assert chosen > 3 * max(fair, 1)


# --- mechanisms of the package, and their broken twins ---------------------------------------------------------------


class Case(NamedTuple):
    """``release(data, count, rng)`` on a pair of neighbours, with the claim and the number of draws."""

    release: Any
    pair: tuple[Any, Any]
    epsilon: float
    draws: int
    delta: float = 0.0


def each(function):
    """Make a release of many draws out of one of a single draw."""
    return lambda data, count, rng: np.array([function(data, rng) for _ in range(count)])


def lap(x, count, rng, *, epsilon=1.0, sensitivity=1.0):
    return laplace_mechanism(
        np.tile(np.asarray(x, dtype=float), (count,) + (1,) * np.ndim(x)), epsilon, sensitivity, rng=rng
    )


def gauss(x, count, rng, **claim):
    arguments = {"epsilon": 1.0, "delta": 1e-2, "sensitivity": 1.0} | claim
    return gaussian_mechanism(np.tile(np.asarray(x, dtype=float), (count,) + (1,) * np.ndim(x)), rng=rng, **arguments)


def whole(x, count, rng, *, epsilon=1.0, sensitivity=1):
    tiled = np.tile(np.asarray(x), (count,) + (1,) * np.ndim(x))
    return discrete_laplace_mechanism(tiled, epsilon=epsilon, sensitivity=sensitivity, rng=rng)


AGES = [30.0, 41.0, 55.0, 62.0]
BINS = ([3, 1, 4], [2, 2, 4])  # neighbours by replace-one: two bins change by 1
SPREAD = (np.zeros(8), np.full(8, 1.0))  # one person in 8 cells: L1 8, L2 2.83
RIGHT = {
    "laplace.laplace_mechanism": Case(lap, (0.0, 1.0), 1.0, 100_000),
    "laplace.laplace_mechanism, vector": Case(lambda x, n, rng: lap(x, n, rng, sensitivity=8), SPREAD, 1.0, 20_000),
    "laplace.discrete_laplace_mechanism": Case(whole, (3, 4), 1.0, 100_000),
    "laplace.discrete_laplace_mechanism, histogram": Case(
        lambda x, n, rng: whole(x, n, rng, sensitivity=2), BINS, 1.0, 100_000
    ),
    "gaussian.gaussian_mechanism": Case(gauss, (0.0, 1.0), 1.0, 100_000, 1e-2),
    "gaussian.gaussian_mechanism, vector": Case(
        lambda x, n, rng: gauss(x, n, rng, sensitivity=math.sqrt(8)), SPREAD, 1.0, 20_000, 1e-2
    ),
    "noise.add_laplace": Case(
        lambda x, n, rng: noise.add_laplace(np.full(n, x), scale=2.0, rng=rng), (0.0, 1.0), 0.5, 100_000
    ),
    "noise.add_gaussian": Case(
        lambda x, n, rng: noise.add_gaussian(np.full(n, x), sigma=SIGMA, rng=rng), (0.0, 1.0), 1.0, 100_000, 0.05
    ),
    "noise.add_discrete_laplace": Case(
        lambda x, n, rng: noise.add_discrete_laplace(np.full(n, x), scale=2.0, rng=rng), (0, 1), 0.5, 100_000
    ),
    "a clipped sum": Case(
        lambda d, n, rng: lap(clipped_sum(d, bounds=(0, 100)), n, rng, sensitivity=100),
        (AGES, [*AGES, 1e9]),
        1.0,
        100_000,
    ),
    "a sum of clipped vectors": Case(
        lambda d, n, rng: gauss(norm_clipped_sum(d, max_norm=1.0), n, rng),
        (np.ones((3, 4)), np.ones((4, 4)) * 1e6),
        1.0,
        50_000,
        1e-2,
    ),
    "randomised response": Case(coin, (0, 1), 1.0, 100_000),
}


def own_n(d, count, rng):
    """A mean whose noise is scaled with the number of records: under add/remove that number is private."""
    return lap(np.mean(np.clip(d, 0, 100)), count, rng, sensitivity=100 / len(d))


def own_bins(d, rng):
    counts, edges = np.histogram(d, bins=3)
    return np.concatenate([discrete_laplace_mechanism(counts, epsilon=1.0, sensitivity=1, rng=rng), edges])


def half_true(answer, count, rng):
    """Truth with probability 3/4, else a fair coin, which may be the truth: claimed as if it were a lie."""
    return np.where(rng.random(count) < 0.75, answer, rng.integers(0, 2, count)).astype(float)


def rare_key(count_of_people, count, rng):
    """Show a key when its noisy count reaches 5: the reported δ is that of a count above 5."""
    return whole(count_of_people, count, rng) >= 5 if count_of_people else np.zeros(count, dtype=bool)


DELTA_ABOVE_5 = math.exp(-5) / (1 + math.exp(-1))  # P(Z >= 5), Z discrete Laplace of scale 1: count 1 is above 5


def one_seed(x, count, rng):
    del rng
    return np.array([laplace_mechanism(x, 1.0, 1.0, rng=np.random.default_rng(7)) for _ in range(count)])


def one_draw(x, count, rng):
    return np.asarray(x, dtype=float) + laplace_mechanism(np.zeros((count, 1)), 1.0, 1.0, rng=rng)


BROKEN = {
    "half the noise, Laplace": Case(lambda x, n, rng: lap(x, n, rng, epsilon=2.0), (0.0, 1.0), 1.0, 4_000),
    "noise times 0.9, Laplace": Case(lambda x, n, rng: lap(x, n, rng, epsilon=1 / 0.9), (0.0, 1.0), 1.0, 200_000),
    "half the noise, discrete": Case(lambda x, n, rng: whole(x, n, rng, epsilon=2.0), (3, 4), 1.0, 4_000),
    "half the noise, Gaussian": Case(lambda x, n, rng: gauss(x, n, rng) / 2 + x / 2, (0.0, 1.0), 1.0, 20_000, 1e-2),
    "half the noise, add_laplace": Case(
        lambda x, n, rng: noise.add_laplace(np.full(n, x), scale=1.0, rng=rng), (0.0, 1.0), 0.5, 20_000
    ),
    "half the noise, add_gaussian": Case(
        lambda x, n, rng: noise.add_gaussian(np.full(n, x), sigma=SIGMA / 2, rng=rng), (0.0, 1.0), 1.0, 20_000, 0.05
    ),
    "half the noise, add_discrete_laplace": Case(
        lambda x, n, rng: noise.add_discrete_laplace(np.full(n, x), scale=1.0, rng=rng), (0, 1), 0.5, 20_000
    ),
    "wrong sensitivity: width under add/remove": Case(
        lambda d, n, rng: lap(clipped_sum(d, bounds=(50, 100)), n, rng, sensitivity=50),
        (AGES, [*AGES, 100.0]),
        1.0,
        4_000,
    ),
    "L2 sensitivity for Laplace noise": Case(
        lambda x, n, rng: lap(x, n, rng, sensitivity=math.sqrt(8)), SPREAD, 1.0, 20_000
    ),
    "replace-one data under add/remove noise": Case(whole, BINS, 1.0, 20_000),
    "one draw for a vector": Case(one_draw, ([0.0, 0.0, 0.0], [0.0, 1.0, 0.0]), 1.0, 1_000),
    "one seed": Case(one_seed, (0.0, 1.0), 1.0, 400),
    "no clipping": Case(lambda d, n, rng: lap(np.sum(d), n, rng, sensitivity=100), (AGES, [*AGES, 1e4]), 1.0, 400),
    "clipped, but the raw data used": Case(
        lambda d, n, rng: (np.clip(d, 0, 100), lap(np.sum(d), n, rng, sensitivity=100))[1],
        (AGES, [*AGES, 500.0]),
        1.0,
        1_000,
    ),
    "vectors not clipped": Case(
        lambda d, n, rng: gauss(np.sum(d, axis=0), n, rng),
        (np.ones((3, 4)), np.vstack([np.ones((3, 4)), np.full((1, 4), 9.0)])),
        1.0,
        1_000,
        1e-2,
    ),
    "n from the data": Case(own_n, ([100.0], [100.0, 0.0]), 1.0, 10_000),
    "bins from the data": Case(each(own_bins), (AGES, [*AGES, 99.0]), 1.0, 400),
    "threshold off by one": Case(rare_key, (1, 0), 1.0, 50_000, DELTA_ABOVE_5),
    "randomised response that may lie truthfully": Case(half_true, (0, 1), math.log(3), 4_000),
    "classic Gaussian at ε = 9": Case(
        lambda x, n, rng: x + math.sqrt(2 * math.log(1.25 / 0.1)) / 9 * rng.normal(size=n),
        (0.0, 1.0),
        9.0,
        4_000_000,
        0.1,
    ),
}


# --- queries, selection, budget: every public function, and its twins -------------------------------------------------

N = 4_000  # draws where nothing else is said: of a true ε = 1, 0.6 to 0.8 are shown, and a true ε = 2 is always caught


def shown(release):
    """Return all numbers that a release holds: value, interval, and those of its parts."""
    numbers = [*np.ravel(release.value), *(() if release.interval is None else np.ravel(release.interval))]
    for part in release.parts.values():
        numbers += shown(part)
    return numbers


def asked(function, *, epsilon=1.0, **terms):
    """Make a release of many draws out of a query; pairs of columns are tuples."""

    def release(data, count, rng):
        columns = data if isinstance(data, tuple) else (data,)
        return np.array([shown(function(*columns, epsilon=epsilon, rng=rng, **terms)) for _ in range(count)])

    return release


def chosen(function, *, epsilon=1.0, neighbors="add_remove", **terms):
    """The same for a choice among utilities that one person moves by at most 1."""
    terms = {"sensitivity": 1, "neighbors": neighbors, "epsilon": epsilon} | terms
    return each(lambda data, rng: function(data, rng=rng, **terms))


def of_rows(data, rng, function=private_histogram, **terms):
    """A query on rows (who, what)."""
    who, what = [list(column) for column in zip(*data, strict=True)] or ([], [])
    return shown(function(what, person=who, epsilon=1.0, rng=rng, **terms))


def keys_of(data, rng, *, epsilon=1.0, delta=0.05, neighbors="add_remove", **terms):
    return ",".join(private_keys(data, epsilon=epsilon, delta=delta, neighbors=neighbors, rng=rng, **terms))


def keys_of_rows(data, rng, **terms):
    who, what = [list(column) for column in zip(*data, strict=True)] or ([], [])
    return keys_of(what, rng, person=who, max_groups=1, **terms)


def answers_of(data, rng, *, epsilon=1.0, lie=randomized_response, **terms):
    return ",".join(lie(data, categories=["a", "b", "c"], epsilon=epsilon, rng=rng, **terms))


def shares_of(data, rng, *, epsilon=1.0, lie=randomized_response):
    answers = lie(data, categories=["a", "b", "c"], epsilon=epsilon, rng=rng)
    return response_shares(answers, categories=["a", "b", "c"], epsilon=1.0).value


def lie_that_may_be_true(data, *, categories, epsilon, rng):
    """A lie is drawn from all answers, the true one too, at the probability that is meant for real lies."""
    lies = randomized_response([None] * len(data), categories=categories, epsilon=1e-9, rng=rng)
    truth = math.exp(epsilon) / (math.exp(epsilon) + len(categories) - 1)
    return [x if rng.random() < truth else y for x, y in zip(data, lies, strict=True)]


def above(values, rng, *, spoil=lambda ask: None, after=lambda ask: None, **terms):
    """Ask whether each value is above 0.5, until the object refuses; 9 stands for that."""
    ask = SparseVector(threshold=0.5, sensitivity=1, neighbors="add_remove", epsilon=3.0, rng=rng, **terms)
    spoil(ask)
    answers = [9.0] * len(values)
    for i, value in enumerate(values):
        if ask.positives_left == 0:
            break
        answers[i] = float(ask.above(value))
        after(ask)
    return answers


def no_threshold_noise(ask):
    ask._threshold = ask._place(0.5)


def no_stop(ask):
    ask._left = 1


def refund(ledger):
    """Take the last spend back, as a ledger would that gives back what a failed block cost."""
    ledger._store._records.pop()


def best_count(people, rng, *, spread=2.0):
    """The best of some noisy counts; what each trial costs is stated for a standard deviation of 2."""
    once = Accountant(neighbors="add_remove").add(Gaussian(sigma=2.0))

    def trial(setting):
        count = float(noise.add_gaussian(float(len(people)), sigma=spread, rng=rng))
        return count, count

    return best_of_trials(trial, ["a", "b"], account=once, expected_trials=4, delta=0.05, rng=rng).result


TRIALS = trials_epsilon(
    account=Accountant(neighbors="add_remove").add(Gaussian(sigma=2.0)), expected_trials=4, delta=0.05
)


def until_it_works(people, rng, *, after_failure=lambda ledger: None):
    """Count with all of a budget, and again when the count is negative; return how often, and the count."""
    ledger, tries = Ledger(basic(epsilon=0.5, neighbors="add_remove")), 0
    while True:
        try:
            with ledger.spend(epsilon=0.5, label="count") as paid:
                tries += 1
                noisy = discrete_laplace_mechanism(people, epsilon=paid.epsilon, sensitivity=1, rng=rng)
                if noisy < 0:
                    raise ValueError("clearly wrong")
                return [tries, noisy]
        except ValueError:
            after_failure(ledger)
        except BudgetExceededError:
            return [tries, -1]


def sabotaged(home, name, replacement, release):
    """Let all modules of the package use another function in place of one, while a release draws."""

    def run(data, count, rng):
        original = getattr(home, name)
        places = [m for key, m in sys.modules.items() if key.startswith("dpbook.") and vars(m).get(name) is original]
        for place in places:
            setattr(place, name, replacement)
        try:
            return release(data, count, rng)
        finally:
            for place in places:
                setattr(place, name, original)

    return run


def home(function):
    return sys.modules[function.__module__]


def half_noise(name, release):
    """Halve the scale of the noise, or of the choice, wherever `dpbook.noise` is asked for it."""
    original = getattr(noise, name)

    def halved(values, *, rng=None, **size):
        return original(values, rng=rng, **{key: value / 2 for key, value in size.items()})

    return sabotaged(noise, name, halved, release)


def one_noise_for_all(values, *, scale, rng=None):
    return np.asarray(values) + add_discrete_laplace(0, scale=scale, rng=rng)


def with_one_seed(release):
    return lambda data, count, rng: np.concatenate([release(data, 1, np.random.default_rng(7)) for _ in range(count)])


add_discrete_laplace, keep_words = noise.add_discrete_laplace, home(private_keys)._keep_words
pair_sensitivity, people_of = home(private_mean)._pair_sensitivity, home(private_keys)._people

BOTH, SWAP = {"neighbors": "add_remove"}, {"neighbors": "replace_one"}
WIDE, UPPER_HALF = {"bounds": (0.0, 100.0)}, {"bounds": (50.0, 100.0)}
EDGES = {"edges": [0, 40, 60, 101]}
XY = {"first_bounds": (0.0, 100.0), "second_bounds": (0.0, 100.0), "n": 4} | SWAP
FEW = {"bounds": (0.0, 8.0), "step": 1.0}  # nine points
JOINED = (AGES, [*AGES, 100.0])
SWAPPED = ([0.0, 100.0, 0.0, 100.0], [0.0, 100.0, 0.0, 0.0])
ALIKE = ([100.0] * 4, [100.0] * 3 + [0.0])
ALIKE_TWICE = (([100.0] * 4, [100.0] * 4), ([100.0] * 3 + [0.0], [100.0] * 3 + [0.0]))
FIRST = ([], [100.0])
FIRST_OF_FEW = ([], [8.0])
MOVED = ([30.0, 41.0, 55.0], [70.0, 41.0, 55.0])  # one person in another bin
ONE_WINS = ([0] + [1] * 9, [1] + [0] * 9)
HALF_WIN = ([1] * 6 + [0] * 6, [0] * 6 + [1] * 6)
ALL_RISE = ([0] * 4, [1] * 4)
CROSSED = ([0, 1] * 6, [1, 0] * 6)
VISITS = ([], [("p", 30.0), ("p", 50.0), ("p", 70.0), ("p", 80.0)])  # four rows of one person
FEW_KEYS = ([], ["a"])
NAMES = (["a", "b", "c"], ["b", "b", "c"])
MANY_KEYS = ([], [("p", key) for key in "abcdef"])
GAUSS = {"delta": 1e-2}

SIMPLE = set(BROKEN)
RIGHT |= {
    "queries.private_count": Case(asked(private_count, **BOTH), JOINED, 1.0, N),
    "queries.private_count, Gaussian": Case(asked(private_count, **GAUSS, **BOTH), JOINED, 1.0, N, 1e-2),
    "queries.private_sum": Case(asked(private_sum, **WIDE, **BOTH), JOINED, 1.0, N),
    "queries.private_sum, replace-one": Case(asked(private_sum, **WIDE, **SWAP), SWAPPED, 1.0, N),
    "queries.private_sum, Gaussian": Case(asked(private_sum, **GAUSS, **WIDE, **BOTH), JOINED, 1.0, N, 1e-2),
    "queries.private_mean": Case(asked(private_mean, **WIDE, **BOTH), JOINED, 1.0, N),
    "queries.private_mean, public n": Case(asked(private_mean, n=4, **WIDE, **SWAP), SWAPPED, 1.0, N),
    "queries.private_variance": Case(asked(private_variance, **WIDE, **BOTH), FIRST, 1.0, N),
    "queries.private_variance, public n": Case(asked(private_variance, n=4, **WIDE, **SWAP), ALIKE, 1.0, N),
    "queries.private_std": Case(asked(private_std, **WIDE, **BOTH), FIRST, 1.0, N),
    "queries.private_std, public n": Case(asked(private_std, n=4, **WIDE, **SWAP), ALIKE, 1.0, N),
    "queries.private_covariance": Case(asked(private_covariance, **XY), ALIKE_TWICE, 1.0, N),
    "histograms.private_histogram": Case(asked(private_histogram, **EDGES, **BOTH), JOINED, 1.0, N),
    "histograms.private_histogram, replace-one": Case(asked(private_histogram, **EDGES, **SWAP), MOVED, 1.0, N),
    "histograms.private_histogram, rows of one person": Case(
        each(lambda d, rng: of_rows(d, rng, max_contributions=4, **EDGES, **BOTH)), VISITS, 1.0, N
    ),
    "quantiles.private_quantiles": Case(
        asked(private_quantiles, q=[0.45, 0.5, 0.55], **FEW, **BOTH), FIRST_OF_FEW, 1.0, N
    ),
    "quantiles.private_median": Case(asked(private_median, **FEW, **BOTH), FIRST_OF_FEW, 1.0, N),
    "quantiles.private_median, no step": Case(asked(private_median, **WIDE, **BOTH), JOINED, 1.0, N),
    "quantiles.private_bounds": Case(asked(private_bounds, magnitudes=(1.0, 4.0), **BOTH), ([], [3.0]), 1.0, N),
    "local.response_shares": Case(each(shares_of), NAMES, 1.0, N),
    "trials.best_of_trials": Case(each(best_count), ([1.0] * 4, [1.0] * 5), TRIALS, N, 0.05),
    "selection.exponential_mechanism": Case(chosen(exponential_mechanism), ONE_WINS, 1.0, N),
    "selection.permute_and_flip": Case(chosen(permute_and_flip), ONE_WINS, 1.0, N),
    "selection.top_k": Case(chosen(top_k, k=4), HALF_WIN, 1.0, N),
    "selection.noisy_max": Case(chosen(noisy_max), ONE_WINS, 1.0, N),
    "selection.SparseVector": Case(each(lambda d, rng: above(d, rng, monotonic=True)), ALL_RISE, 3.0, 2 * N),
    "selection.SparseVector, three positives": Case(
        each(lambda d, rng: above(d, rng, max_positives=3)), CROSSED, 3.0, N
    ),
    "quantiles.exponential_quantile": Case(
        each(lambda d, rng: exponential_quantile(d, q=0.5, epsilon=1.0, rng=rng, **FEW, **BOTH)), FIRST_OF_FEW, 1.0, N
    ),
    "local.randomized_response": Case(each(answers_of), NAMES, 1.0, N),
    "histograms.private_keys": Case(each(keys_of), FEW_KEYS, 1.0, N, 0.05),
    "histograms.private_keys, many people": Case(
        each(lambda d, rng: keys_of(d, rng, delta=1e-3)), (["a"] * 6, ["a"] * 7), 1.0, N, 1e-3
    ),
    "histograms.private_keys, rows of one person": Case(each(keys_of_rows), MANY_KEYS, 1.0, N, 0.05),
    "budget.Ledger": Case(each(until_it_works), (0, 1), 0.5, N),
}

BROKEN |= {
    "a fifth of the noise, best_of_trials": Case(
        each(lambda d, rng: best_count(d, rng, spread=0.4)), ([1.0] * 4, [1.0] * 5), TRIALS, 2 * N, 0.05
    ),
    "half the noise, private_count": Case(
        half_noise("add_discrete_laplace", asked(private_count, **BOTH)), JOINED, 1.0, N
    ),
    "half the noise, private_count, Gaussian": Case(
        half_noise("add_gaussian", asked(private_count, **GAUSS, **BOTH)), JOINED, 1.0, 4 * N, 1e-2
    ),
    "half the noise, private_sum": Case(half_noise("add_laplace", asked(private_sum, **WIDE, **BOTH)), JOINED, 1.0, N),
    "half the noise, private_mean": Case(
        half_noise("add_laplace", asked(private_mean, **WIDE, **BOTH)), JOINED, 1.0, N
    ),
    "half the noise, private_mean with public n": Case(
        half_noise("add_laplace", asked(private_mean, n=4, **WIDE, **SWAP)), SWAPPED, 1.0, N
    ),
    "a quarter of the noise, private_variance": Case(
        half_noise("add_laplace", asked(private_variance, epsilon=2.0, **WIDE, **BOTH)), FIRST, 1.0, N
    ),
    "half the noise, private_variance with public n": Case(
        half_noise("add_laplace", asked(private_variance, n=4, **WIDE, **SWAP)), ALIKE, 1.0, N
    ),
    "a quarter of the noise, private_std": Case(
        half_noise("add_laplace", asked(private_std, epsilon=2.0, **WIDE, **BOTH)), FIRST, 1.0, N
    ),
    "half the noise, private_std with public n": Case(
        half_noise("add_laplace", asked(private_std, n=4, **WIDE, **SWAP)), ALIKE, 1.0, N
    ),
    "half the noise, private_covariance": Case(
        half_noise("add_laplace", asked(private_covariance, **XY)), ALIKE_TWICE, 1.0, N
    ),
    "half the noise, private_histogram": Case(
        half_noise("add_discrete_laplace", asked(private_histogram, **EDGES, **BOTH)), JOINED, 1.0, N
    ),
    "half the noise, private_quantiles": Case(
        half_noise("flip_coins", asked(private_quantiles, q=0.5, **FEW, **BOTH)),
        FIRST_OF_FEW,
        1.0,
        N,
    ),
    "half the noise, private_median": Case(
        half_noise("flip_coins", asked(private_median, **FEW, **BOTH)), FIRST_OF_FEW, 1.0, N
    ),
    "half the noise, private_bounds": Case(
        half_noise("add_discrete_laplace", asked(private_bounds, magnitudes=(1.0, 4.0), **BOTH)), ([], [3.0]), 1.0, N
    ),
    "half the noise, response_shares": Case(each(lambda d, rng: shares_of(d, rng, epsilon=2.0)), NAMES, 1.0, N),
    "half the noise, exponential_mechanism": Case(
        half_noise("choose_index", chosen(exponential_mechanism)), ONE_WINS, 1.0, 2 * N
    ),
    "half the noise, permute_and_flip": Case(half_noise("flip_coins", chosen(permute_and_flip)), ONE_WINS, 1.0, N),
    "half the noise, noisy_max": Case(half_noise("add_discrete_laplace", chosen(noisy_max)), ONE_WINS, 1.0, N),
    "half the noise, exponential_quantile": Case(
        half_noise(
            "flip_coins", each(lambda d, rng: exponential_quantile(d, q=0.5, epsilon=1.0, rng=rng, **FEW, **BOTH))
        ),
        FIRST_OF_FEW,
        1.0,
        N,
    ),
    "half the noise, randomized_response": Case(each(lambda d, rng: answers_of(d, rng, epsilon=2.0)), NAMES, 1.0, N),
    "half the noise, private_keys": Case(
        each(lambda d, rng: keys_of(d, rng, epsilon=2.0, delta=1e-3)), (["a"] * 3, ["a"] * 4), 1.0, N, 1e-3
    ),
    "wrong sensitivity, private_sum: width under add/remove": Case(
        sabotaged(sensitivity, "sum_sensitivity", lambda **_: 50.0, asked(private_sum, **UPPER_HALF, **BOTH)),
        JOINED,
        1.0,
        N,
    ),
    "wrong sensitivity, private_mean": Case(
        sabotaged(
            home(private_mean),
            "_pair_sensitivity",
            lambda *a: pair_sensitivity(*a) / 2,
            asked(private_mean, **WIDE, **BOTH),
        ),
        JOINED,
        1.0,
        N,
    ),
    "wrong sensitivity, exponential_mechanism": Case(
        chosen(exponential_mechanism), ([0] + [2] * 9, [2] + [0] * 9), 1.0, 2 * N
    ),
    "utilities that are not monotonic, permute_and_flip": Case(
        chosen(permute_and_flip, monotonic=True), ONE_WINS, 1.0, N
    ),
    "utilities that are not monotonic, noisy_max": Case(chosen(noisy_max, monotonic=True), ONE_WINS, 1.0, N),
    "the whole ε in each round, top_k": Case(chosen(top_k, k=4, epsilon=4.0), HALF_WIN, 1.0, 3 * N),
    "the whole ε for each quantile, private_quantiles": Case(
        asked(private_quantiles, epsilon=6.0, q=[0.35, 0.4, 0.45, 0.5, 0.55, 0.6], **FEW, **BOTH),
        FIRST_OF_FEW,
        1.0,
        2 * N,
    ),
    "the sensitivity of the other norm, private_histogram": Case(
        sabotaged(
            sensitivity,
            "histogram_sensitivity",
            lambda **_: 2.0,
            each(lambda d, rng: of_rows(d, rng, max_contributions=4, **EDGES, **BOTH)),
        ),
        VISITS,
        1.0,
        N,
    ),
    "replace-one data under add/remove noise, private_histogram": Case(
        asked(private_histogram, **EDGES, **BOTH), MOVED, 1.0, N
    ),
    "replace-one data under add/remove noise, private_mean": Case(
        asked(private_mean, **WIDE, **BOTH), SWAPPED, 1.0, 2 * N
    ),
    "replace-one data under add/remove noise, private_variance": Case(
        asked(private_variance, **WIDE, **BOTH), ALIKE, 1.0, 4 * N
    ),
    "replace-one data under add/remove noise, private_keys": Case(
        each(lambda d, rng: keys_of(d, rng, delta=1e-3)), (["a"] * 7 + ["b"] * 6, ["a"] * 6 + ["b"] * 7), 1.0, N, 1e-3
    ),
    "one draw for a vector, private_histogram": Case(
        sabotaged(noise, "add_discrete_laplace", one_noise_for_all, asked(private_histogram, **EDGES, **BOTH)),
        ([30.0] * 30 + [50.0] * 30 + [70.0] * 30, [30.0] * 31 + [50.0] * 30 + [70.0] * 30),
        1.0,
        N,
    ),
    "one seed, private_sum": Case(with_one_seed(asked(private_sum, **WIDE, **BOTH)), JOINED, 1.0, 400),
    "one seed, private_median": Case(with_one_seed(asked(private_median, **WIDE, **BOTH)), JOINED, 1.0, 400),
    "one seed, randomized_response": Case(with_one_seed(each(answers_of)), NAMES, 1.0, 400),
    "no clipping, private_sum": Case(
        sabotaged(
            sensitivity,
            "clipped_sum",
            lambda values, *, bounds: float(np.sum(values)),
            asked(private_sum, **WIDE, **BOTH),
        ),
        (AGES, [*AGES, 500.0]),
        1.0,
        400,
    ),
    "n from the data, private_mean": Case(
        each(lambda d, rng: shown(private_mean(d, n=len(d), epsilon=1.0, rng=rng, **WIDE, **SWAP))),
        ([100.0], [100.0, 0.0]),
        1.0,
        5 * N,
    ),
    "n from the data, private_variance": Case(
        each(lambda d, rng: shown(private_variance(d, n=len(d), epsilon=1.0, rng=rng, **WIDE, **SWAP))),
        ([0.0], [0.0, 100.0]),
        1.0,
        N,
    ),
    "n from the data, private_covariance": Case(
        each(lambda d, rng: shown(private_covariance(d, d, epsilon=1.0, rng=rng, **XY | {"n": len(d)}))),
        ([0.0], [0.0, 100.0]),
        1.0,
        N,
    ),
    "bins from the data, private_histogram": Case(
        each(
            lambda d, rng: [private_histogram(d, edges=np.histogram_bin_edges(d, 3), epsilon=1.0, rng=rng, **BOTH).keys]
        ),
        (AGES, [*AGES, 99.0]),
        1.0,
        400,
    ),
    "bounds from the data, private_median": Case(
        asked(lambda d, **terms: private_median(d, bounds=(min(d), max(d)), **terms), **BOTH), JOINED, 1.0, N
    ),
    "threshold off by one, private_keys": Case(
        sabotaged(home(private_keys), "_keep_words", lambda *a: keep_words(*a[:-1], a[-1] + 1)[1:], each(keys_of)),
        FEW_KEYS,
        1.0,
        N,
        0.05,
    ),
    "all keys of a person, private_keys": Case(
        sabotaged(
            home(private_keys), "_people", lambda keys, person, _: people_of(keys, person, 100), each(keys_of_rows)
        ),
        MANY_KEYS,
        1.0,
        N,
        0.05,
    ),
    "a lie that may be true, randomized_response": Case(
        each(lambda d, rng: answers_of(d, rng, lie=lie_that_may_be_true)), NAMES, 1.0, 10 * N
    ),
    "a lie that may be true, response_shares": Case(
        each(lambda d, rng: shares_of(d, rng, lie=lie_that_may_be_true)), NAMES, 1.0, 10 * N
    ),
    "no noise on the threshold, SparseVector": Case(
        each(lambda d, rng: above(d, rng, monotonic=True, spoil=no_threshold_noise)), ALL_RISE, 3.0, 2 * N
    ),
    "no stop, SparseVector": Case(each(lambda d, rng: above(d, rng, after=no_stop)), CROSSED, 3.0, 3 * N),
    "a refund after a failure, Ledger": Case(
        each(lambda d, rng: until_it_works(d, rng, after_failure=refund)), (0, 1), 0.5, 5 * N
    ),
}


def run(case, seed, alpha=ALPHA):
    rng = np.random.default_rng(seed)
    return audit(
        lambda data, count: case.release(data, count, rng), *case.pair, epsilon=case.epsilon, delta=case.delta,
        alpha=alpha, draws=case.draws, vectorized=True,
    )  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_mechanisms_that_keep_their_claim_are_not_refuted(name):
    found = run(RIGHT[name], 1)
    assert found.verdict == "not refuted"
    assert found.lower_bound <= found.epsilon < found.ceiling


@pytest.mark.parametrize("name", BROKEN)
def test_broken_twins_are_caught(name):
    """Power: with the draws of the case, each of the seeds is caught at alpha = 1e-6."""
    case = BROKEN[name]
    few = 2 if case.draws <= N else 1
    for seed in range(1 if case.draws > 10**5 else 5 if name in SIMPLE else few):
        found = run(case, seed)
        assert found.verdict == "violated", found


# Private only inside a mechanism that is audited.
PARTS = {"choose_index", "flip_coins", "uniform_words", "poisson_sample"}
# Audited with twins of their own kinds in the tests of their modules. The estimators call `dp_sgd`.
ELSEWHERE = {
    "test_training": {"dp_sgd", "noisy_gradient", "DPLinearRegression", "DPLogisticRegression", "DPNeuralClassifier"},
    "test_perturbation": {"output_perturbation", "objective_perturbation"},
}


def test_every_release_of_the_package_is_audited_and_so_are_its_twins():
    """A release is what takes a random generator. That of `response_shares` is behind it."""
    found = {"response_shares"}
    for info in pkgutil.iter_modules(dpbook.__path__):
        if info.name.startswith("_") or info.name == "plots":
            continue
        home = importlib.import_module(f"dpbook.{info.name}")
        for name, value in vars(home).items():
            own = callable(value) and getattr(value, "__module__", "") == home.__name__
            if own and not name.startswith(("_", "naive_")) and "rng" in inspect.signature(value).parameters:
                found.add(name)
    for name, functions in ELSEWHERE.items():
        text = Path(__file__).with_name(f"{name}.py").read_text(encoding="utf8")
        assert "audit.audit(" in text
        found -= functions
    audited = {name.split(",")[0].split(".")[-1] for name in RIGHT}
    assert found - PARTS <= audited
    simple = {name for name in found if name.endswith("_mechanism") or name.startswith("add_")} - {
        "exponential_mechanism"
    }
    twins = {name.split(", ")[1].split(":")[0].split(" ")[0] for name in BROKEN if ", " in name}
    assert found - PARTS - simple <= twins  # those of the simple ones have names of their own


def test_the_true_epsilon_is_approached():
    """The bound is not only safe but useful: within 5 % of the true ε = 1 at 10**6 draws."""
    case = RIGHT["laplace.laplace_mechanism"]._replace(draws=10**6, epsilon=3.0)
    assert 0.95 < run(case, 3).lower_bound <= 1.0
    assert 0.97 < run(RIGHT["randomised response"]._replace(draws=10**6, epsilon=3.0), 3).lower_bound <= 1.0


def test_a_ceiling_below_the_claim_is_reported():
    found = audit(lambda x: x, 0.0, 1.0, epsilon=20.0, draws=2000)
    assert found.verdict == "too few draws to refute"
    assert "too few draws" in repr(found)
    assert found.lower_bound == pytest.approx(found.ceiling)


# --- what a release may return ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("release", "first", "second", "event"),
    [
        (lambda x: "yes" if x else "no", 0, 1, "the output is '"),
        (lambda x: None if x else 0.0, 0, 1, "the output is "),
        (lambda x: math.nan if x else 0.0, 0, 1, "the released value "),
        (lambda x: [0.0] * x, 1, 2, "the output is "),
        (lambda x: dict.fromkeys(x, 1.0), ["a", "b"], ["a"], "the output is ("),
        (lambda x: 1 / x, 0, 1, "the output is "),
        (lambda x: np.zeros((2, x)), 1, 2, "the output is an array of shape (2, "),
        (lambda x: (1, {"a": x}), 1.0, 2.0, "entry 1 "),
        (lambda x: {x}, "u", "v", "the output is "),
        (lambda x: x + 1j, 1.0, 2.0, "entry 0"),
        (lambda x: 10**400 * x, 1, -1, "the released value "),
    ],
)
def test_outputs_of_any_kind(release, first, second, event):
    found = audit(release, first, second, epsilon=1.0, draws=400)
    assert found.violated
    assert found.lower_bound == pytest.approx(found.ceiling)
    assert event.split(" ")[0] in found.event


def test_forms():
    class Series:
        index = ("a", "b")

        def __array__(self, dtype=None, copy=None):
            return np.array([1.0, 2.0])

    assert form_and_numbers(Series()) == (("array", (2,), ("a", "b")), (1.0, 2.0))
    assert form_and_numbers(np.str_("x")) == form_and_numbers("x") == (("value", "'x'"), ())
    assert form_and_numbers(np.int8(3)) == form_and_numbers(True + 2) == ("number", (3.0,))
    assert form_and_numbers({"b": 1, "a": [2, "t"]})[1] == (1.0, 2.0)
    assert form_and_numbers({"b": 1, "a": 2})[0] != form_and_numbers({"a": 1, "b": 2})[0]  # the order is seen too


def test_rare_forms_among_numbers():
    """NaN or an exception in 2 of 100 draws, and only for one neighbour, is found beside the numbers."""

    rng = np.random.default_rng(3)

    def sometimes(x, odd):
        if x and rng.random() < 0.02:
            if odd is ValueError:
                raise ValueError
            return odd
        return rng.normal()

    for odd in (math.nan, None, ValueError, "text", [1.0, 2.0]):
        found = audit(lambda x, odd=odd: sometimes(x, odd), 0, 1, epsilon=1.0, draws=20_000)
        assert found.violated
        assert found.likelier == 2


def test_supports_that_differ_are_found():
    """A toy sampler with words of 6 binary digits: the outputs of 0 and 1 share nothing. Rounded to a grid they still
    differ at the ends; rounded and cut to a range, nothing is found but what ε allows."""
    z = np.log(np.arange(1, 65) / 64)
    z = np.concatenate([z, -z])
    rng = np.random.default_rng(5)
    assert audit(lambda x, n: x + rng.choice(z, n), 0, 1, epsilon=1.5, draws=20_000, vectorized=True).violated

    def rounded(x, n):
        return np.rint((x + rng.choice(z, n)) * 2) / 2

    found = audit(rounded, 0, 1, epsilon=1.5, draws=20_000, vectorized=True)
    assert "the released value" in found.event
    assert found.violated
    found = audit(lambda x, n: rounded(x, n).clip(-2, 3), 0, 1, epsilon=1.5, draws=20_000, vectorized=True)
    assert found.lower_bound < 1.3


def test_two_sided_events_are_found():
    """One input avoids the middle. No threshold shows more than ln(0.45 / 0.25), the middle shows ln(0.5 / 0.1)."""
    rng = np.random.default_rng(6)

    def release(avoid, n):
        middle = rng.random(n) < (0.1 if avoid else 0.5)
        side = np.where(rng.random(n) < 0.5, -1, 1)
        return side * np.where(middle, rng.uniform(0, 0.5, n), rng.uniform(0.5, 1, n))

    found = audit(release, 0, 1, epsilon=1.0, draws=40_000, vectorized=True)
    assert found.violated
    assert found.likelier == 1
    found = audit(release, 0, 1, epsilon=5.0, draws=40_000, vectorized=True)
    assert math.log(0.45 / 0.25) < 1.4 < found.lower_bound < math.log(0.5 / 0.1)


# --- how it runs -----------------------------------------------------------------------------------------------------


def test_a_clear_case_stops_early_and_a_true_claim_does_not():
    rng = np.random.default_rng(7)
    found = audit(lambda x, n: lap(x, n, rng, epsilon=9.0), 0.0, 1.0, epsilon=1.0, draws=64_000, vectorized=True)
    assert (found.looks, found.draws) == (1, 1000)
    found = audit(lambda x, n: lap(x, n, rng), 0.0, 1.0, epsilon=1.0, draws=64_000, vectorized=True)
    assert (found.looks, found.draws, found.tested) == (4, 64_000, 32_000)


def test_the_levels_of_all_looks_add_up_to_alpha():
    for looks in range(1, len(module.LOOKS) + 1):
        assert module.EARLY_SHARE * (looks - 1) + (1 - module.EARLY_SHARE * (looks - 1)) == 1.0
    assert module.EARLY_SHARE * (len(module.LOOKS) - 1) < 0.5


def test_the_two_directions_give_the_same_verdict():
    for pair in ((0.0, 1.0), (1.0, 0.0)):
        rng = np.random.default_rng(8)
        found = audit(
            lambda x, n, rng=rng: lap(x, n, rng, epsilon=2.0), *pair, epsilon=1.0, draws=8000, vectorized=True
        )
        assert found.violated
    # an event that only one direction shows: a rare output of the second input alone
    for pair, side in (((0, 1), 2), ((1, 0), 1)):
        rng = np.random.default_rng(9)
        found = audit(
            lambda x, n, rng=rng: x * (rng.random(n) < 0.02), *pair, epsilon=1.0, draws=20_000, vectorized=True
        )
        assert found.violated
        assert found.likelier == side


def noisy(x):
    return laplace_mechanism(x, 2.0, 1.0)


def test_processes():
    for release in (noisy, lambda x: x + np.random.laplace(0, 0.5)):  # noqa: NPY002
        if release is not noisy and not sys.platform.startswith("linux"):
            continue  # a lambda needs fork
        found = audit(release, 0.0, 1.0, epsilon=1.0, draws=8000, workers=2)
        assert found.violated
        assert found.lower_bound < 2.0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs fork")
def test_a_generator_copied_into_processes_is_refused():
    rng = np.random.default_rng(1)
    with pytest.raises(ValueError, match="must not keep a random generator"):
        audit(lambda x: x + rng.laplace(), 0.0, 1.0, epsilon=1.0, draws=4000, workers=2)


def test_draws_that_repeat_each_other_are_refused():
    rng = np.random.default_rng(1)
    with pytest.raises(ValueError, match="got one for all"):
        audit(lambda x, n: np.full(n, x + rng.laplace()), 0.0, 1.0, epsilon=1.0, draws=100, vectorized=True)


@pytest.mark.parametrize("bad", [lambda x, n: 0.0, lambda x, n: np.zeros(n + 1), lambda x, n: None])
def test_a_vectorized_release_returns_as_many_as_asked(bad):
    with pytest.raises(ValueError, match="release must return one output for each of count="):
        audit(bad, 0, 1, epsilon=1.0, draws=100, vectorized=True)


def test_a_release_that_never_returns_is_an_error_of_the_caller():
    with pytest.raises(ValueError, match="got ZeroDivisionError in every draw") as caught:
        audit(lambda x: x / 0, 0, 1, epsilon=1.0, draws=100)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_progress_goes_to_stderr_and_only_to_a_terminal(monkeypatch):
    for terminal, progress, shown in itertools.product((False, True), (None, False, True), (None,)):
        stream = io.StringIO()
        stream.isatty = lambda terminal=terminal: terminal  # type: ignore[method-assign]
        monkeypatch.setattr(sys, "stderr", stream)
        audit(coin_of_the_system, 0, 1, epsilon=2.0, draws=500, progress=progress)
        shown = terminal if progress is None else progress
        assert ("audit: 1,000 of at most 1,000 draws\n" in stream.getvalue()) == shown


def coin_of_the_system(x):
    return float(np.random.default_rng().random() < (0.5 + 0.1 * x))


def test_the_picture_numbers_are_shares():
    rng = np.random.default_rng(4)
    found = audit(lambda x, n: lap(x, n, rng), 0.0, 1.0, epsilon=1.0, draws=8000, vectorized=True)
    assert found.histogram.shape == (2, len(found.cuts) - 1)
    assert ((found.histogram.sum(axis=1) > 0.9) & (found.histogram.sum(axis=1) <= 1 + 1e-12)).all()
    assert found.roc[:, 0].tolist() == [0.0, 1.0]
    assert (np.diff(found.roc[0]) >= -1e-12).all()
    assert (np.diff(found.roc[1]) <= 1e-12).all()
    words = audit(lambda x: "ab"[x], 0, 1, epsilon=1.0, draws=100)
    assert set(words.labels) == {"a", "b"}
    assert words.histogram.sum(axis=1).tolist() == [1.0, 1.0]


def test_the_number_of_different_clipped_vectors_is_what_it_says():
    """The helper of the vector cases: the pair is a pair of neighbours, and its clipped sums differ by the norm."""
    first, second = RIGHT["a sum of clipped vectors"].pair
    assert len(second) == len(first) + 1
    assert np.linalg.norm(clip_norm(second, max_norm=1.0), axis=1).max() <= 1.0
