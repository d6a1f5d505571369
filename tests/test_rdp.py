"""Rényi and concentrated privacy: published values, edges, and the exact Gaussian value as a floor."""

import math
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbook import gaussian
from dpbook.rdp import (
    conversion_epsilon,
    gaussian_zcdp,
    least_epsilon,
    pure_zcdp,
    zcdp_delta,
    zcdp_epsilon,
    zcdp_rho,
)

SET = settings(derandomize=True, database=None, deadline=None, max_examples=100)
MP = mpmath.MPContext()
MP.dps = 60

EPSILONS = [  # OpenDP's tests of its zCDP conversion, and minima in 40 digits
    (1 / 32, 1e-3, 0.6880024554878085),
    (1 / 200, 1e-6, 0.42994146883694934),
    (0.5, 1e-5, 4.728387),
    (0.1, 1e-6, 2.141939),
    (1.0, 1e-6, 7.766217),
]
DELTAS = [  # OpenDP's and the reference script of Canonne, Kamath and Steinke
    (1 / 32, 0.0, 0.1508457845622862),
    (0.5, 0.0, 0.5588356393474351),
    (0.05, 0.25, 8.17727531036956e-2),
    (0.025, 1.0, 1.33613190640e-6),
    (5e-30, 1e-13, 2.61967632972971e-234),
]


@pytest.mark.parametrize(("rho", "delta", "epsilon"), EPSILONS)
def test_zcdp_epsilon(rho, delta, epsilon):
    assert zcdp_epsilon(rho=rho, delta=delta) == pytest.approx(epsilon, rel=3e-7)


@pytest.mark.parametrize(("rho", "epsilon", "delta"), DELTAS)
def test_zcdp_delta(rho, epsilon, delta):
    found = zcdp_delta(rho=rho, epsilon=epsilon)
    assert found == pytest.approx(delta, rel=1e-10)
    assert found >= delta * (1 - 1e-11)


def exact_delta(rho, epsilon):
    """The minimum over the order, by bisection of the derivative in 60 digits."""
    rho, epsilon = MP.mpf(rho), MP.mpf(epsilon)
    low, high = MP.mpf(1), 2 + (epsilon + 1) / rho
    for _ in range(400):
        a = (low + high) / 2
        low, high = (a, high) if (2 * a - 1) * rho - epsilon + MP.log(1 - 1 / a) < 0 else (low, a)
    return MP.exp((a - 1) * (a * rho - epsilon) + a * MP.log(1 - 1 / a)) / (a - 1)


@SET
@given(st.floats(1e-6, 50), st.floats(0, 100))
def test_zcdp_delta_is_the_minimum_rounded_up(rho, epsilon):
    exact = min(1, exact_delta(rho, epsilon))
    if exact < 1e-300:
        return
    assert exact * (1 - MP.mpf(10) ** -20) <= zcdp_delta(rho=rho, epsilon=epsilon) <= exact * (1 + MP.mpf(10) ** -9)


@SET
@given(st.floats(1e-6, 50), st.floats(1e-200, 0.99))
def test_epsilon_and_delta_are_inverse_and_never_below_the_exact_gaussian(rho, delta):
    epsilon = zcdp_epsilon(rho=rho, delta=delta)
    assert epsilon >= 0
    assert zcdp_delta(rho=rho, epsilon=epsilon) <= delta * (1 + 1e-6)
    sigma = 1 / math.sqrt(2 * rho)
    assert epsilon >= gaussian.gaussian_epsilon(sigma=sigma, sensitivity=1.0, delta=delta) * (1 - 1e-12)
    assert epsilon <= rho + 2 * math.sqrt(rho * -math.log(delta)) + 1e-12


def test_edges():
    assert zcdp_epsilon(rho=0.0, delta=0.0) == 0.0
    assert zcdp_epsilon(rho=0.1, delta=0.0) == math.inf
    assert zcdp_epsilon(rho=0.1, delta=0.9) == 0.0  # -2.19 before it is cut off
    assert zcdp_epsilon(rho=0.005, delta=0.5) == 0.0
    assert zcdp_delta(rho=0.0, epsilon=0.0) == 0.0
    assert zcdp_delta(rho=1e300, epsilon=1.0) == 1.0
    assert 0 < zcdp_delta(rho=1e-300, epsilon=1e300) <= 1.0


def test_rho_of_mechanisms_adds_up():
    """OpenDP: Laplace of scale 10 with Gaussian of σ = 10 at Δ = 1 is 0.01-zCDP."""
    assert pure_zcdp(epsilon=0.1) + gaussian_zcdp(sigma=10.0, sensitivity=1.0) == pytest.approx(0.01, rel=1e-12)
    assert gaussian_zcdp(sigma=1.0, sensitivity=2.0) == pytest.approx(2.0)
    assert gaussian_zcdp(sigma=1.0, sensitivity=0.0) == 0.0


def test_rho_for_a_target():
    for target, delta in ((1.0, 1e-6), (0.01, 1e-9), (20.0, 1e-5)):
        rho = zcdp_rho(target_epsilon=target, delta=delta)
        assert zcdp_epsilon(rho=rho, delta=delta) <= target
        assert zcdp_epsilon(rho=rho * 1.0001, delta=delta) > target


def test_conversion_of_a_constant_divergence():
    """dp_accounting: r = 1.1 at the orders 2 to 32 and δ = 1e-5 gives 1.32783806176, at order 32."""
    values = [conversion_epsilon(order=a, divergence=1.1, delta=1e-5) for a in range(2, 33)]
    assert min(values) == values[-1] == pytest.approx(1.327838061755436, rel=1e-12)
    assert conversion_epsilon(order=2.0, divergence=0.0, delta=0.9) == 0.0
    with pytest.raises(ValueError, match="order must be above 1"):
        conversion_epsilon(order=1.0, divergence=1.0, delta=0.1)


def test_least_epsilon_uses_all_real_orders():
    sigma = 4.530877117
    assert least_epsilon(lambda a: a / (2 * sigma**2), delta=1e-6) == pytest.approx(1.0, abs=1e-8)
    grid = min(conversion_epsilon(order=a, divergence=a / 2, delta=1e-5) for a in range(2, 257))
    found = least_epsilon(lambda a: a / 2, delta=1e-5)
    assert found < grid
    assert found == pytest.approx(zcdp_epsilon(rho=0.5, delta=1e-5), rel=1e-9)
    assert least_epsilon(lambda a: math.inf, delta=1e-5) == math.inf


def test_rho_is_never_rounded_down():
    assert pure_zcdp(epsilon=1e155) == math.inf
    for epsilon in (0.0, 1e-200, 3e-160, 1e-5, 0.1, 7.3, 1e150):
        exact = Fraction(epsilon) ** 2 / 2
        for rho in (pure_zcdp(epsilon=epsilon), gaussian_zcdp(sigma=1.0, sensitivity=min(epsilon, 1e149))):
            assert Fraction(rho) >= min(exact, Fraction(1e149) ** 2 / 2)
            assert epsilon < 1e-150 or rho <= exact * (1 + Fraction(1, 2**52))
    assert pure_zcdp(epsilon=0.0) == 0.0
