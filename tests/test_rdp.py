"""Rényi and concentrated privacy: published values, edges, and the exact Gaussian value as a floor."""

import decimal
import math
from decimal import Decimal
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbook import _exact, _zcdp, budget, gaussian
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


# --- rounding: to the safe side, as a float and as the decimal that it prints as --------------------------------------


def exact_epsilon(rho, delta):
    """The minimum over the order, by bisection of the derivative in 60 digits."""
    rho, log = MP.mpf(rho.numerator) / rho.denominator, -MP.log(MP.mpf(delta.numerator) / delta.denominator)
    low, high = MP.mpf(10) ** -30, MP.sqrt(log / rho) + 1
    for _ in range(170):
        t = (low + high) / 2 if high < 4 * low else MP.sqrt(low * high)
        low, high = (t, high) if rho * t**2 + MP.log1p(t) < log else (low, t)
    return max(0, rho * (1 + t) + (log - MP.log1p(t)) / t - MP.log1p(1 / t))


TARGETS = [(e, d) for e in (1e-9, 0.01, 0.1, 0.3, 1.0, 3.7, 20.0, 700.0) for d in (1e-300, 1e-9, 1e-5, 0.3, 0.999)]
CLAIMS = [(r, d) for r in (1e-12, 0.001, 0.1, 1 / 3, 1.0, 7.3, 400.0) for d in (1e-300, 1e-9, 1e-5, 0.1)]


@pytest.mark.parametrize(("rho", "delta"), CLAIMS)
def test_epsilon_is_rounded_up_by_less_than_one_float(rho, delta):
    exact = exact_epsilon(Fraction(rho), Fraction(delta))
    found = zcdp_epsilon(rho=rho, delta=delta)
    assert MP.mpf(found) >= exact
    assert MP.mpf(math.nextafter(found, 0.0)) <= exact


@pytest.mark.parametrize(("epsilon", "delta"), TARGETS)
def test_rho_for_a_target_is_rounded_down_as_a_float_and_as_a_decimal(epsilon, delta):
    """The largest ρ lies between what is returned and one part in 10**13 more."""
    rho = zcdp_rho(target_epsilon=epsilon, delta=delta)
    for read in (Fraction(rho), Fraction(repr(rho))):
        assert exact_epsilon(read, Fraction(delta)) <= epsilon
        assert exact_epsilon(read * (1 + Fraction(1, 10**13)), Fraction(delta)) > epsilon
    assert len(Decimal(repr(rho)).normalize().as_tuple().digits) <= _zcdp.DIGITS
    for limit in (budget.zcdp(rho=rho, neighbors="add_remove"), limit_of(epsilon, delta)):  # the two ways to a budget
        assert limit.epsilon(delta=delta) <= epsilon
        assert abs(Fraction(limit.limits["rho"]) / Fraction(repr(rho)) - 1) < Fraction(1, 10**13)


def limit_of(epsilon, delta):
    return budget.zcdp(epsilon=epsilon, delta=delta, neighbors="add_remove")


def test_an_optimistic_rounding_of_rho_would_be_seen(monkeypatch):
    """The twin: rounded to the nearest 15 digits, some ρ cost more than their target."""
    monkeypatch.setattr(_zcdp, "MARGIN", 0.0)
    monkeypatch.setattr(_zcdp, "ROUND_FLOOR", decimal.ROUND_HALF_EVEN)
    over = [exact_epsilon(Fraction(repr(zcdp_rho(target_epsilon=e, delta=d))), Fraction(d)) > e for e, d in TARGETS]
    assert 5 < sum(over) < len(over)


def test_the_callers_decimal_context_plays_no_part():
    expected = limit_of(1.0, 1e-6)
    with decimal.localcontext() as context:
        context.prec, context.rounding = 3, decimal.ROUND_UP
        assert limit_of(1.0, 1e-6).limits == expected.limits
        assert zcdp_rho(target_epsilon=1.0, delta=1e-6) == float(expected.limits["rho"])


SIGMAS = [0.1 * k for k in range(1, 400)]


def test_what_is_spent_is_rounded_up_as_a_float_and_as_a_decimal():
    ledger = budget.Ledger(budget.zcdp(rho=1e6, neighbors="add_remove"))
    plain = 0
    for sigma in SIGMAS:
        cost = 1 / (2 * Fraction(sigma) ** 2)
        for exact, rho in (
            (cost, gaussian_zcdp(sigma=sigma, sensitivity=1.0)),
            (Fraction(sigma) ** 2 / 2, pure_zcdp(epsilon=sigma)),
        ):
            recorded = Fraction(ledger.spend(rho=rho, label="query").amount["rho"])
            assert exact <= Fraction(rho) <= exact * (1 + Fraction(1, 2**51))
            assert exact <= recorded <= exact * (1 + Fraction(1, 2**51))
        plain += Fraction(repr(_exact.round_up(cost))) < cost
    assert plain > 20  # the twin: the float next above often prints as a decimal below the cost


def test_rho_is_never_rounded_down():
    assert pure_zcdp(epsilon=1e155) == math.inf
    for epsilon in (0.0, 1e-200, 3e-160, 1e-5, 0.1, 7.3, 1e150):
        exact = Fraction(epsilon) ** 2 / 2
        for rho in (pure_zcdp(epsilon=epsilon), gaussian_zcdp(sigma=1.0, sensitivity=min(epsilon, 1e149))):
            assert Fraction(rho) >= min(exact, Fraction(1e149) ** 2 / 2)
            assert epsilon < 1e-150 or rho <= exact * (1 + Fraction(1, 2**51))
    assert pure_zcdp(epsilon=0.0) == 0.0
