"""Composition in closed form: published values, the optimal curve against enumeration, and the order of the bounds."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbook import composition
from dpbook.composition import (
    advanced_composition,
    amplify,
    basic_composition,
    drv_epsilon,
    group_privacy,
    heterogeneous_composition,
    optimal_composition,
    optimal_delta,
    parallel_composition,
)

SET = settings(derandomize=True, database=None, deadline=None, max_examples=100)

# epsilon, steps, delta, optimal, Dwork-Rothblum-Vadhan: sums and formula in 50 digits, to the digits shown. A published
# text has 214.60 for the first row, which is below the optimum and so no bound at all.
VALUES = [
    (1.0, 500, 1e-5, 311.7676, 966.4392),
    (0.1, 500, 1e-5, 11.40891, 15.98838),
    (0.1, 100, 1e-6, 4.774568, 6.308231),
    (0.1, 10, 1e-6, 0.999371, 1.767429),
    (1.0, 2, 1e-6, 1.999998, 10.870408),
]


@pytest.mark.parametrize(("epsilon", "steps", "delta", "optimal", "drv"), VALUES)
def test_published_values(epsilon, steps, delta, optimal, drv):
    exact = optimal_composition(epsilon=epsilon, steps=steps, total_delta=delta)
    assert exact == pytest.approx(optimal, rel=1e-6)
    assert drv_epsilon(epsilon=epsilon, steps=steps, slack=delta) == pytest.approx(drv, rel=1e-6)
    best = advanced_composition(epsilon=epsilon, steps=steps, slack=delta)
    assert best.epsilon == pytest.approx(min(drv, epsilon * steps), rel=1e-6)
    assert exact <= best.epsilon
    assert exact <= heterogeneous_composition(epsilons=[epsilon] * steps, slack=delta).epsilon


def test_tanh_form_is_the_heterogeneous_bound_of_equal_parts():
    """k ε tanh(ε/2) + ε sqrt(2k ln(1/δ')) = 338.3569 at k = 500, ε = 1, δ' = 1e-5."""
    found = heterogeneous_composition(epsilons=[1.0] * 500, slack=1e-5)
    assert found.epsilon == pytest.approx(338.3569, abs=1e-4)


def enumerated(epsilon, steps, total):
    """δ of `steps` randomised responses, by summing over all 2**steps outcomes."""
    with mpmath.workdps(50):
        p = 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon)))
        value = mpmath.mpf(0)
        for outcome in itertools.product((0, 1), repeat=steps):
            heads = sum(outcome)
            one = p**heads * (1 - p) ** (steps - heads)
            other = (1 - p) ** heads * p ** (steps - heads)
            value += max(one - mpmath.exp(total) * other, 0)
        return value


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("steps", [1, 2, 5, 8])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.77, 1.0, 1.2])
def test_optimal_delta_is_that_of_randomised_response(epsilon, steps, share):
    total = share * epsilon * steps
    exact = enumerated(epsilon, steps, total)
    found = optimal_delta(epsilon=epsilon, steps=steps, total_epsilon=total)
    assert exact - mpmath.mpf(10) ** -45 <= found <= exact * (1 + mpmath.mpf(10) ** -15) + mpmath.mpf(10) ** -40


@SET
@given(st.floats(0.01, 5), st.integers(1, 60), st.floats(1e-12, 0.3), st.sampled_from([0.0, 1e-6, 1e-3]))
def test_optimal_is_inverse_and_least(epsilon, steps, total, delta):
    found = optimal_composition(epsilon=epsilon, steps=steps, total_delta=total, delta=delta)
    if math.isinf(found):
        assert 1 - (1 - delta) ** steps > total
        return
    assert optimal_delta(epsilon=epsilon, steps=steps, total_epsilon=found, delta=delta) <= total * (1 + 1e-12)
    if found > 1e-6:
        lower = optimal_delta(epsilon=epsilon, steps=steps, total_epsilon=found * (1 - 1e-6), delta=delta)
        assert lower > total * (1 - 1e-12)
    assert found <= epsilon * steps * (1 + 1e-15)


def test_optimal_composition_of_approximate_releases():
    """Python tests of dp_accounting: (1, 1e-3) thirty times, of which only the whole multiples of ε are looked at."""
    for total, multiple in ((0.06, 22), (0.1, 20)):
        assert multiple - 2 < optimal_composition(epsilon=1, steps=30, total_delta=total, delta=1e-3) <= multiple
        assert optimal_delta(epsilon=1, steps=30, total_epsilon=multiple, delta=1e-3) <= total
        assert optimal_delta(epsilon=1, steps=30, total_epsilon=multiple - 2, delta=1e-3) > total
    assert optimal_composition(epsilon=1, steps=30, total_delta=0) == 30
    assert optimal_composition(epsilon=1, steps=1, total_delta=0.1, delta=0.2) == math.inf  # not -1, None or nan
    assert optimal_composition(epsilon=0.25, steps=50, total_delta=0.01) <= 5.0
    assert optimal_composition(epsilon=0.7, steps=1, total_delta=0.0) == 0.7
    assert optimal_composition(epsilon=0, steps=5, total_delta=0.0) == 0.0


def test_heterogeneous_value():
    """diffprivlib's test of its budget accountant: 700 releases of ε = 2**-9, slack 2**-25."""
    found = heterogeneous_composition(epsilons=[2**-9] * 700, slack=2**-25)
    assert found.epsilon == pytest.approx(0.27832280615743646366, rel=1e-14)
    assert found.delta == 2**-25
    alone = heterogeneous_composition(epsilons=[3.0], slack=1e-6)
    assert alone == (3.0, 0.0)  # the sum is least, so no slack is spent
    one = heterogeneous_composition(epsilons=[0.01] * 400, slack=1e-6, deltas=1e-9)
    assert one.delta == pytest.approx(1e-6 + 4e-7, rel=1e-5)


@SET
@given(st.integers(1, 300), st.floats(1e-3, 10), st.floats(1e-12, 0.4), st.floats(0, 0.1))
def test_no_bound_is_worse_than_basic_nor_better_than_optimal(steps, epsilon, slack, delta):
    basic = basic_composition(epsilons=[epsilon] * steps, deltas=delta)
    found = advanced_composition(epsilon=epsilon, steps=steps, slack=slack, delta=delta)
    assert found.epsilon <= basic.epsilon
    assert found.delta >= basic.delta if found.epsilon < basic.epsilon else found.delta == basic.delta
    mixed = heterogeneous_composition(epsilons=[epsilon] * steps, slack=slack)
    assert mixed.epsilon <= basic.epsilon
    if epsilon * steps < 300:
        for bound in (advanced_composition(epsilon=epsilon, steps=steps, slack=slack), mixed):
            assert optimal_delta(epsilon=epsilon, steps=steps, total_epsilon=bound.epsilon) <= bound.delta * (1 + 1e-12)


def test_basic_sums_are_exact():
    assert basic_composition(epsilons=[0.1] * 10).epsilon >= 1.0
    assert basic_composition(epsilons=[]) == (0.0, 0.0)
    assert basic_composition(epsilons=[1.0, 2.0], deltas=[0.9, 0.9]).delta == 1.0
    with pytest.raises(ValueError, match="as many as epsilons"):
        basic_composition(epsilons=[1, 2, 3], deltas=[0.1, 0.1])


def test_group_privacy():
    assert group_privacy(epsilon=0.1, group_size=3).epsilon >= 0.3
    found = group_privacy(epsilon=1.0, group_size=2, delta=1e-6)
    assert found == (2.0, pytest.approx(1e-6 * (1 + math.e), rel=1e-14))
    assert group_privacy(epsilon=0.0, group_size=5, delta=0.01).delta == pytest.approx(0.05, rel=1e-14)
    assert group_privacy(epsilon=500.0, group_size=5, delta=0.01).delta == 1.0


def test_parallel_composition_depends_on_the_relation():
    same = [0.5] * 4
    assert parallel_composition(epsilons=same, neighbors="add_remove") == (0.5, 0.0)
    assert parallel_composition(epsilons=same, neighbors="replace_one") == (1.0, 0.0)  # two groups change
    assert parallel_composition(epsilons=[1, 2, 5], neighbors="add_remove", deltas=[0.1, 0, 0]) == (5.0, 0.1)
    found = parallel_composition(epsilons=[1, 2, 5], neighbors="replace_one")
    assert found.epsilon == 10.0  # both records may fall into the costly group
    with pytest.raises(TypeError, match="neighbors"):
        parallel_composition(epsilons=same)


def test_a_sample_used_twice_costs_more_than_two_samples():
    """Two randomised responses of ε = 2 at q = 0.1: 0.9880574 on fresh samples, 1.8499993 on one (enumerated)."""
    fresh = 2 * amplify(epsilon=2.0, sampling_prob=0.1, neighbors="add_remove").epsilon
    same = amplify(epsilon=4.0, sampling_prob=0.1, neighbors="add_remove").epsilon
    assert fresh == pytest.approx(0.9880574, abs=1e-7)
    assert same == pytest.approx(1.8499993, abs=1e-7)
    p = 1 / (1 + math.exp(-2))
    worst = 0.0
    for a, b in itertools.product((p, 1 - p), repeat=2):  # the record's answers, or the other value's
        with_record = 0.1 * a * b + 0.9 * (1 - a) * (1 - b)
        worst = max(worst, abs(math.log(with_record / ((1 - a) * (1 - b)))))
    assert same == pytest.approx(worst, rel=1e-12)


def test_amplification_by_kind_of_sample():
    assert amplify(epsilon=1.0, sampling_prob=1.0, neighbors="add_remove", delta=1e-6) == (1.0, 1e-6)
    assert amplify(epsilon=1.0, sampling_prob=0.0, neighbors="add_remove") == (0.0, 0.0)
    assert amplify(epsilon=1e6, sampling_prob=0.5, neighbors="add_remove").epsilon == 1e6
    one = amplify(epsilon=1.0, sampling_prob=0.1, neighbors="add_remove", delta=1e-6)
    both = amplify(epsilon=1.0, sampling_prob=0.1, neighbors="replace_one", delta=1e-6)
    assert both.epsilon == pytest.approx(2 * one.epsilon)
    assert both.delta > 2 * one.delta
    fixed = amplify(epsilon=1.0, sampling_prob=0.1, neighbors="replace_one", sampling="fixed_size")
    assert fixed.epsilon == one.epsilon
    with pytest.raises(ValueError, match=r"neighbors must be .*replace_one"):
        amplify(epsilon=1.0, sampling_prob=0.1, neighbors="add_remove", sampling="fixed_size")


def test_steps_are_limited():
    with pytest.raises(ValueError, match="steps must be at most"):
        optimal_composition(epsilon=0.1, steps=composition.LARGEST_STEPS + 1, total_delta=0.1)
    with pytest.raises(ValueError, match="epsilon must be at most"):
        optimal_delta(epsilon=701.0, steps=2, total_epsilon=1.0)
    assert drv_epsilon(epsilon=701.0, steps=2, slack=0.1) == math.inf


def test_a_tiny_delta_is_not_lost():
    """1 - (1 - δ)^k below the last digit of 60: it counts all the same, and is not rounded to something larger."""
    for d, k in ((1e-80, 1), (1e-65, 10), (1e-300, 3), (1e-46, 7), (1e-3, 5)):
        exact = 1 - (1 - Fraction(d)) ** k
        found = optimal_delta(epsilon=1.0, steps=k, total_epsilon=float(k), delta=d)
        assert exact <= Fraction(found) <= exact * (1 + Fraction(1, 10**15))
        below = math.nextafter(found, 0.0)
        while Fraction(below) >= exact:
            below = math.nextafter(below, 0.0)
        assert optimal_composition(epsilon=1.0, steps=k, total_delta=below, delta=d) == math.inf
        assert optimal_composition(epsilon=1.0, steps=k, total_delta=found, delta=d) <= k
    assert optimal_composition(epsilon=1, steps=1, total_delta=1e-80, delta=1e-70) == math.inf
    assert optimal_composition(epsilon=1, steps=1, total_delta=1e-80, delta=1e-80) == 1.0
    end = optimal_delta(epsilon=1.0, steps=300, total_epsilon=299.99)  # the pure part keeps its digits as well
    assert end == pytest.approx(float((1 + math.exp(-1)) ** -300 * -math.expm1(-0.01)), rel=1e-9)


def test_numpy_numbers_are_taken():
    found = advanced_composition(epsilon=np.float32(0.01), steps=np.int64(500), slack=np.float32(1e-5))
    assert found == advanced_composition(epsilon=float(np.float32(0.01)), steps=500, slack=float(np.float32(1e-5)))
