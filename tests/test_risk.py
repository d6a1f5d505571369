"""What ε means: published values, the closed forms against each other, and attackers that enumerate."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpbook.risk import TradeOff, approximate_trade_off, gaussian_trade_off, posterior_bounds

SET = settings(derandomize=True, database=None, deadline=None, max_examples=100)


def test_gaussian_values():
    """riskcal 1.5.1 for μ = 1; the same closed forms by hand."""
    curve = gaussian_trade_off(mu=1.0)
    assert curve.advantage == pytest.approx(0.38292492254802624, rel=1e-12)
    assert float(curve.false_negative_rate(0.05)) == pytest.approx(0.740488977158556, rel=1e-12)
    assert curve.bayes_error(prior=0.5) == pytest.approx(0.3085375387259869, rel=1e-12)
    assert 1 - float(curve.false_negative_rate(0.1)) == pytest.approx(0.38914, abs=1e-5)  # dp_accounting's test


def test_approximate_values():
    curve = approximate_trade_off(epsilon=1.0, delta=1e-5)
    assert curve.advantage == pytest.approx(0.4621225360884371, rel=1e-12)
    assert float(curve.false_negative_rate(0.05)) == pytest.approx(0.8640759085770477, rel=1e-12)
    pure = approximate_trade_off(epsilon=3.0)
    assert 1 - float(pure.false_negative_rate(0.1)) == pytest.approx(1 - math.exp(-3) * 0.9, rel=1e-9)


def test_posterior():
    low, high = posterior_bounds(prior=0.5, epsilon=math.log(3))
    assert (low, high) == (pytest.approx(0.25), pytest.approx(0.75))
    assert high >= 0.75 >= 0.25 >= low
    low, high = posterior_bounds(prior=0.01, epsilon=1.0)
    assert high == pytest.approx(math.e * 0.01 / (0.99 + math.e * 0.01))
    assert posterior_bounds(prior=0.3, epsilon=0.0) == (pytest.approx(0.3), pytest.approx(0.3))
    assert posterior_bounds(prior=0.3, epsilon=1e6) == (0.0, 1.0)


@SET
@given(st.floats(0, 20), st.floats(0, 0.9), st.floats(0, 1))
def test_curve_is_a_trade_off(epsilon, delta, x):
    curve = approximate_trade_off(epsilon=epsilon, delta=delta)
    y = float(curve.false_negative_rate(x))
    assert 0 <= y <= 1 - x + 1e-12
    assert x + math.exp(epsilon) * (y + 1e-12) >= 1 - delta - 1e-9
    assert math.exp(epsilon) * x + y >= 1 - delta - 1e-9


@SET
@given(st.floats(0.01, 8), st.floats(0.001, 0.999))
def test_bayes_error_is_the_least_over_tests(mu, prior):
    x = np.concatenate([[0.0], np.geomspace(1e-12, 0.5, 4000), 1 - np.geomspace(1e-12, 0.5, 4000), [1.0]])
    curve = gaussian_trade_off(mu=mu)
    by_hand = float(np.min(prior * curve.false_negative_rate(x) + (1 - prior) * x))
    assert curve.bayes_error(prior=prior) <= by_hand + 1e-12
    assert curve.bayes_error(prior=prior) == pytest.approx(by_hand, rel=1e-2, abs=1e-9)
    eps = approximate_trade_off(epsilon=mu, delta=0.01)
    by_hand = float(np.min(prior * eps.false_negative_rate(x) + (1 - prior) * x))
    assert eps.bayes_error(prior=prior) <= by_hand + 1e-9
    assert eps.bayes_error(prior=prior) == pytest.approx(by_hand, rel=2e-2, abs=1e-6)


def test_an_attack_on_gaussian_noise_reaches_the_bound_and_never_passes_it():
    rng = np.random.default_rng(1)
    n, mu = 200_000, 1.0
    without, with_person = rng.normal(0, 1, n), rng.normal(mu, 1, n)
    cut = stats.norm.ppf(0.95)
    fpr, fnr = np.mean(without > cut), np.mean(with_person <= cut)
    error = 5 * math.sqrt(0.25 / n)
    assert abs(fnr - float(gaussian_trade_off(mu=mu).false_negative_rate(fpr))) < 3 * error
    precision = np.sum(with_person > cut) / (np.sum(with_person > cut) + np.sum(without > cut))
    bound = gaussian_trade_off(mu=mu).attack_precision(prior=0.5, false_positive_rate=0.05)
    assert precision == pytest.approx(bound, abs=0.01)
    weaker = float(gaussian_trade_off(mu=0.9 * mu).false_negative_rate(fpr))  # a wrong μ would be seen
    assert abs(fnr - weaker) > 3 * error


def test_edges():
    assert gaussian_trade_off(mu=0.0).bayes_error(prior=0.3) == 0.3
    assert gaussian_trade_off(mu=0.0).advantage == 0.0
    assert gaussian_trade_off(mu=1e9).advantage == 1.0
    assert float(gaussian_trade_off(mu=1e9).false_negative_rate(0.5)) == 0.0
    assert approximate_trade_off(epsilon=0.0).advantage == 0.0
    assert approximate_trade_off(epsilon=1e4).advantage == 1.0
    assert approximate_trade_off(epsilon=1e4).bayes_error(prior=0.4) < 1e-12
    assert repr(approximate_trade_off(epsilon=1.0)) == "TradeOff(1 pairs of epsilon and delta)"
    with pytest.raises(ValueError, match="false_positive_rate"):
        gaussian_trade_off(mu=1.0).false_negative_rate(1.5)
    with pytest.raises(ValueError, match="epsilons"):
        TradeOff()


def test_precision_of_an_attack_that_names_almost_nobody():
    """The power at a tiny false positive rate in 50 digits: as 1 - FNR it would be rounding alone."""
    with mpmath.workdps(50):
        for mu, x in ((0.0, 1e-14), (0.1, 1e-12), (1.0, 1e-30), (3.0, 1e-200)):
            level = mpmath.mpf(float(stats.norm.ppf(x)))
            power = x * mpmath.ncdf(level + mu) / mpmath.ncdf(level)
            exact = float(power / (power + x))
            found = gaussian_trade_off(mu=mu).attack_precision(prior=0.5, false_positive_rate=x)
            assert exact * (1 - 1e-12) <= found <= exact * (1 + 1e-9)
    found = approximate_trade_off(epsilon=1.0).attack_precision(prior=0.5, false_positive_rate=1e-12)
    assert found == pytest.approx(math.e / (1 + math.e), rel=1e-11)
    assert found >= math.e / (1 + math.e)
