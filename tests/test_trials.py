"""The best of a random number of trials costs what the theorem says, and the theorem is checked against exact sums."""

import math

import numpy as np
import pytest
from scipy import special, stats

from dpbook import accounting, budget, rdp, trials

ONE = accounting.Accountant(neighbors="add_remove").add(accounting.Gaussian(sigma=10.0))


def seeded(seed=0):
    return np.random.default_rng(seed)  # seeded: for tests, not private


def best_of(p, gamma):
    """Return the distribution of the best of K trials with outcomes in rising order of score, K geometric."""

    def generating(x):  # E x**K
        return gamma * x / (1 - (1 - gamma) * x)

    return np.diff(generating(np.concatenate([[0.0], np.cumsum(p)])))


def divergence(p, q, order):
    return float(special.logsumexp(order * np.log(p) + (1 - order) * np.log(q))) / (order - 1)


def test_the_distribution_of_the_best_by_simulation():
    p, rng = np.array([0.5, 0.3, 0.2]), seeded(1)
    counts = rng.geometric(0.2, 100_000)
    draws = [rng.choice(3, k, p=p).max() for k in counts[:20_000]]
    assert stats.chisquare(np.bincount(draws, minlength=3), 20_000 * best_of(p, 0.2)).pvalue > 1e-6


@pytest.mark.parametrize("expected", [1.5, 3.0, 10.0, 100.0])
def test_the_theorem_holds_for_exact_distributions(expected):
    """Random pairs of outcomes, and the worst one: a rare best outcome that a neighbour makes likelier."""
    rng, gamma = seeded(2), 1 / expected
    pairs = [(rng.dirichlet(np.ones(6)), rng.dirichlet(np.ones(6))) for _ in range(20)]
    for rare in (1e-3, 1e-2, 0.1):
        for loss in (0.1, 0.5, 1.0, 2.0):
            q = rare * math.exp(loss)
            if q < 1:
                pairs.append((np.array([1 - rare, rare]), np.array([1 - q, q])))
    tight = 0.0
    for a, b in pairs:
        for p, q in ((a, b), (b, a)):
            for order in (1.5, 2.0, 5.0, 20.0):
                got = divergence(best_of(p, gamma), best_of(q, gamma), order)
                hats = np.exp(np.linspace(-4, 6, 40)) + 1
                both = [max(divergence(p, q, h), divergence(q, p, h)) for h in hats]
                rest = [2 * (1 - 1 / h) * r + 2 * math.log(1 / gamma) / h for h, r in zip(hats, both, strict=True)]
                bound = divergence(p, q, order) + min(rest) + math.log(1 / gamma) / (order - 1)
                assert got <= bound + 1e-9
                tight = max(tight, got / bound)
    assert tight > 0.2  # it is no idle bound


def test_the_price_is_the_theorem_at_its_best_orders():
    found = trials.trials_epsilon(account=ONE, expected_trials=10.0, delta=1e-5)
    log = math.log(10)
    grid = np.exp(np.linspace(-6, 12, 4000)) + 1
    rest = min(float((2 * ((1 - 1 / grid) * grid / 200 + log / grid)).min()), 2 * log)
    expected = rdp.least_epsilon(lambda a: a / 200 + rest + log / (a - 1), delta=1e-5)
    assert found == pytest.approx(expected, rel=1e-5)
    assert found >= expected * (1 - 1e-6)


def test_more_trials_cost_more_and_less_than_all_of_them():
    one = accounting.Accountant(neighbors="add_remove").add(
        accounting.SubsampledGaussian(noise_multiplier=2.0, sampling_prob=0.05), steps=200
    )
    prices = [trials.trials_epsilon(account=one, expected_trials=k, delta=1e-5) for k in (1.01, 2, 5, 20, 100)]
    assert prices == sorted(prices)
    assert prices[0] > one.epsilon(delta=1e-5)
    hundred = accounting.Accountant(neighbors="add_remove").add(one.entries[0][0], steps=200 * 100)
    assert prices[-1] < hundred.epsilon(delta=1e-5)


def test_a_pure_trial_costs_about_three_of_it():
    pure = accounting.Accountant(neighbors="add_remove").add(accounting.Laplace(scale=10.0))
    for delta in (1e-9, 1e-5):
        assert trials.trials_epsilon(account=pure, expected_trials=5, delta=delta) <= 0.3 + 1e-3 + 2 * math.log(5) / 1e3
    nothing = accounting.Accountant(neighbors="add_remove")
    assert trials.trials_epsilon(account=nothing, expected_trials=5, delta=1e-5) < 1e-2


def counted(expected, rng, settings=(1, 2, 3)):
    seen = []

    def trial(setting):
        seen.append(setting)
        return float(setting), len(seen)

    winner = trials.best_of_trials(trial, list(settings), account=ONE, expected_trials=expected, delta=1e-5, rng=rng)
    return winner, seen


def test_the_number_of_trials_is_geometric_and_the_settings_uniform():
    rng = seeded(3)
    runs = [counted(4.0, rng)[1] for _ in range(2000)]
    counts = np.minimum([len(seen) for seen in runs], 20)
    law = stats.geom(0.25)
    expected = 2000 * np.array([*law.pmf(np.arange(1, 20)), law.sf(19)])
    assert stats.chisquare(np.bincount(counts, minlength=21)[1:], expected).pvalue > 1e-6
    share = np.bincount(np.concatenate(runs), minlength=4)[1:]
    assert stats.chisquare(share).pvalue > 1e-6
    fixed = np.bincount(np.full(2000, 4), minlength=21)[1:]  # a fixed number of trials is told apart
    assert stats.chisquare(fixed, expected).pvalue < 1e-6


def test_the_best_wins_and_the_first_of_equals():
    winner, seen = counted(30.0, seeded(5))
    assert seen.count(winner.setting) > 1
    assert winner.setting == max(seen) == winner.score
    assert winner.result == 1 + seen.index(winner.setting)
    assert (winner.delta, winner.neighbors) == (1e-5, "add_remove")
    assert winner.epsilon >= trials.trials_epsilon(account=ONE, expected_trials=30.0, delta=1e-5)
    assert not hasattr(winner, "trials")  # how many there were is not released


def test_scores_that_are_no_numbers_lose():
    for bad in (math.nan, -math.inf, -(10**400)):
        scores = iter([bad, 1.0, bad] + [0.0] * 500)
        winner = trials.best_of_trials(
            lambda s, scores=scores: (next(scores), None), [1], account=ONE, expected_trials=20, delta=1e-5,
            rng=seeded(5),
        )  # fmt: skip
        assert winner.score in (1.0, -math.inf, -(2.0**1000))
    for given in (1.0, (1, 2, 3), ("a", 1), (True, 1), None):
        with pytest.raises(TypeError, match="trial must return"):
            trials.best_of_trials(
                lambda s, given=given: given, [1], account=ONE, expected_trials=2, delta=1e-5, rng=seeded()
            )


def test_a_ledger_is_charged_before_the_first_trial():
    ledger = budget.Ledger(budget.basic(epsilon=1.0, delta=2e-5, neighbors="add_remove"))
    calls = []

    def trial(setting):
        assert ledger.history
        calls.append(setting)
        return 0.0, None

    terms = {"account": ONE, "expected_trials": 10.0, "delta": 1e-5, "ledger": ledger, "label": "rates"}
    winner = trials.best_of_trials(trial, [1, 2], **terms)
    assert float(ledger.spent["epsilon"]) >= winner.epsilon
    before = len(calls)
    with pytest.raises(budget.BudgetExceededError):
        trials.best_of_trials(trial, [1, 2], **terms)
    assert len(calls) == before
    other = budget.Ledger(budget.basic(epsilon=1.0, delta=2e-5, neighbors="replace_one"))
    with pytest.raises(ValueError, match="ledger must have a basic budget for neighbors='add_remove'"):
        trials.best_of_trials(trial, [1, 2], **{**terms, "ledger": other})


@pytest.mark.parametrize("expected", [1.0, 0.5, 2**11 + 1, math.nan, 0])
def test_expected_trials_have_a_rule(expected):
    with pytest.raises(ValueError, match="expected_trials must be"):
        trials.trials_epsilon(account=ONE, expected_trials=expected, delta=1e-5)
