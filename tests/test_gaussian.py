"""The Gaussian mechanism: the calibration against an independent one, releases against the exact law."""

import inspect
import math
import time
from decimal import Decimal

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import dpbook
from dpbook import gaussian, noise
from dpbook.gaussian import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_error,
    gaussian_interval,
    gaussian_mechanism,
    gaussian_sigma,
    gaussian_sigma_for_error,
    naive_gaussian_mechanism,
)

N = 100_000
SURELY_WRONG = 1e-6  # p value below which a test at a fixed seed fails
MP = mpmath.MPContext()
MP.dps = 60

# (epsilon, delta, sigma at sensitivity 1): bisections in 50 to 60 digits, to the digits shown
SIGMAS = [
    (1.0, 1e-5, "3.730631634815942"),
    (0.1, 1e-5, "30.74956613197745"),
    (0.5, 1e-5, "7.031826675582491"),
    (2.0, 1e-5, "1.993812445643537"),
    (10.0, 1e-5, "0.4998886197090085"),
    (1.0, 1e-6, "4.224678889326835"),
    (0.1, 1e-6, "36.3046904261958"),
    (1.0, 1e-9, "5.495266157238296"),
    (0.01, 1e-9, "458.508497497253"),
    (1.0, 1e-12, "6.55782206745885"),
    (1.0, 1e-15, "7.487009467986595"),
    (1.0, 1e-17, "8.052478272048293"),
    (1.0, 1e-300, "36.8654978941111"),
    (50.0, 1e-5, "0.149760607560836"),
    (50.0, 1e-10, "0.180294222942414"),
    (700.0, 1e-5, "0.029923150744917"),
    (800.0, 1e-5, "0.02778911408225079"),
    (1e3, 1e-6, "0.0248503666869"),
    (1e3, 1e-300, "0.0475376601322"),
    (1e5, 1e-5, "0.00225748276990"),
    (1e-6, 1e-6, "276029.903999"),
    (1e-6, 1e-300, "36475988.48095"),
    (1e-8, 1e-5, "39874.29426284783"),
    (1e-8, 1e-12, "306222667.98428"),
    (0.5, 0.5, "0.590917599259"),
    (1.0, 0.9, "0.268172459893"),
    (0.693147180559945, 1e-5, "5.213205399524919"),
]

# (sigma, sensitivity, epsilon, delta, relative tolerance): the tests of Google's library and of PipelineDP agree
DELTAS = [
    (1.0, 1.0, 1.0, 0.126936737506644, 1e-14),
    (1.0, 3.0, 1.0, 0.787600741360385, 1e-14),
    (1.0, 1.0, 2.0, 0.0209236358211137, 1e-14),
    (10.0, 1.0, 0.1, 0.00875176814580959, 1e-14),
    (20.0, 2.0, 0.1, 0.00875176814580959, 1e-14),
    (10.0, 5.0, math.log(3), 0.004159742234000802, 1e-12),
    (0.5, 1.0, 0.0, 0.6826894921370859, 1e-14),  # the total variation distance
    (1.0, 1.0, 0.0, 0.38292492254802624, 1e-14),
    (5.0, 1.0, 1.0, 1.75463333189623e-8, 1e-13),
    (3.42, 1.0, 1.1, 1.00362244313093e-5, 1e-13),
    (1.0, 1.0, math.log(3), 0.10985556344445052, 1e-13),
    (1.0, math.sqrt(2), math.log(3), 0.26546844106038714, 1e-13),
]

quick = settings(max_examples=40, deadline=None)
epsilons = st.floats(-8, 4).map(lambda power: 10.0**power)
deltas = st.one_of(st.floats(-300, -1).map(lambda power: 10.0**power), st.floats(0.1, 0.9))


def seeded(seed=0):
    return np.random.default_rng(seed)


class Untouchable:
    """Data that must not be looked at."""

    def _touched(self, *args, **kwargs):
        raise AssertionError("the value was looked at before the parameters were checked")

    __array__ = __float__ = __int__ = __index__ = __len__ = __iter__ = __getitem__ = _touched


# --- two independent ways to the true delta --------------------------------------------------------------------------


def delta_by_ncdf(sensitivity, sigma, epsilon, digits=120):
    """Evaluate the formula of Balle and Wang with so many digits that its cancellation does not matter."""
    with MP.workdps(digits):
        mu, eps = MP.mpf(sensitivity) / MP.mpf(sigma), MP.mpf(epsilon)
        return MP.ncdf(mu / 2 - eps / mu) - MP.exp(eps) * MP.ncdf(-mu / 2 - eps / mu)


def delta_by_integral(sensitivity, sigma, epsilon):
    """Integrate E[max(0, 1 - exp(epsilon - loss))] over the loss, which is N(mu**2 / 2, mu**2): nothing cancels."""
    with MP.workdps(30):
        mu, eps = MP.mpf(sensitivity) / MP.mpf(sigma), MP.mpf(epsilon)
        x = eps / mu - mu / 2
        step, end, cuts, size = 1 / (1 + mu + abs(x)), max(0, -x) + 16, [MP.mpf(0)], min(mu, 1)
        while cuts[-1] < end:
            cuts.append(min(end, 2 * cuts[-1] + step))
        peak = MP.npdf(max(0, x)) * size  # taken out, as the quadrature looks at absolute errors

        def excess(u):
            return MP.npdf(x + u) * -MP.expm1(-mu * u) / peak

        return peak * MP.quad(excess, cuts, method="gauss-legendre")


@pytest.mark.parametrize(
    ("mu", "epsilon"), [(1, 1), (1e-4, 1e-6), (0.027, 1), (0.2, 8), (3, 0), (3, 40), (20, 50), (50, 1e3), (440, 1e5)]
)
def test_the_two_references_agree(mu, epsilon):
    one, two = delta_by_ncdf(mu, 1, epsilon), delta_by_integral(mu, 1, epsilon)
    assert abs(one / two - 1) < MP.mpf(10) ** -20


# --- sigma -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "delta", "reference"), SIGMAS)
def test_sigma_golden(epsilon, delta, reference):
    sigma = gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=1.0)
    exact = Decimal(reference)
    last_digit = Decimal(1).scaleb(exact.as_tuple().exponent)
    error = Decimal(sigma) - exact
    assert abs(error) <= max(exact * Decimal("1e-9"), last_digit)
    assert error >= -max(exact * Decimal("1e-12"), last_digit)


def test_sigma_golden_of_replace_one():
    # the tests of Google's dp-accounting, where replacing a record of size 2 moves the sum by 4
    assert gaussian_sigma(epsilon=1.0, delta=0.12693674, sensitivity=4.0) == pytest.approx(4.0, abs=1e-6)
    assert gaussian_sigma(epsilon=16.0, delta=1.016e-05, sensitivity=1.0) == pytest.approx(0.344, abs=5e-4)


@pytest.mark.parametrize("epsilon", [1e-8, 1e-4, 0.03, 0.5, 1.0, 3.0, 20.0, 300.0, 1e3, 1e5])
@pytest.mark.parametrize("delta", [1e-300, 1e-100, 1e-20, 1e-10, 1e-5, 0.01, 0.3, 0.9])
def test_sigma_is_safe_and_tight(epsilon, delta):
    sigma = gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=1.0)
    assert delta_by_ncdf(1, sigma, epsilon) <= delta
    assert delta_by_ncdf(1, MP.mpf(sigma) * (1 - MP.mpf(10) ** -9), epsilon) > delta
    assert delta_by_ncdf(1, math.nextafter(math.nextafter(sigma, 0.0), 0.0), epsilon) > delta  # the last digit counts


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-8, 1e-300), (1e-4, 0.9), (1.0, 1e-5), (20.0, 1e-20), (1e4, 0.3)])
def test_sigma_is_safe_and_tight_for_the_integral_too(epsilon, delta):
    sigma = gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=1.0)
    with MP.workdps(30):
        assert delta_by_integral(1, sigma, epsilon) <= MP.mpf(delta) * (1 + MP.mpf(10) ** -20)
        assert delta_by_integral(1, MP.mpf(sigma) * (1 - MP.mpf(10) ** -9), epsilon) > delta


@quick
@given(epsilons, deltas, st.floats(1.01, 100), st.floats(0.01, 0.99))
def test_sigma_falls_in_epsilon_and_in_delta(epsilon, delta, factor, part):
    sigma = gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=1.0)
    assert sigma >= gaussian_sigma(epsilon=factor * epsilon, delta=delta, sensitivity=1.0) > 0
    assert sigma <= gaussian_sigma(epsilon=epsilon, delta=part * delta, sensitivity=1.0) < math.inf


@quick
@given(epsilons, deltas, st.floats(1e-100, 1e100))
def test_sigma_is_linear_in_the_sensitivity(epsilon, delta, sensitivity):
    unit = gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=1.0)
    sigma = gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=sensitivity)
    assert sigma == pytest.approx(unit * sensitivity, rel=2.0**-50)
    assert gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=8.0) == 8 * unit  # a power of two: exactly
    assert gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=0.0) == 0.0


@quick
@given(epsilons, deltas, st.floats(1e-3, 1e3))
def test_round_trips_end_on_the_safe_side(epsilon, delta, sensitivity):
    sigma = gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=sensitivity)
    assert gaussian_delta(sigma=sigma, sensitivity=sensitivity, epsilon=epsilon) <= delta
    assert gaussian_epsilon(sigma=sigma, sensitivity=sensitivity, delta=delta) <= epsilon
    # and hardly beyond it; for tiny epsilon the last digit of sigma decides the first of epsilon
    assert gaussian_delta(sigma=sigma * (1 - 1e-9), sensitivity=sensitivity, epsilon=epsilon) > delta
    assert gaussian_epsilon(sigma=sigma * (1 - 1e-9), sensitivity=sensitivity, delta=delta) > epsilon


# The bound is good as long as delta is not within about 4e-6 of 1, where nobody's delta is.
@pytest.mark.parametrize("delta", [5e-324, 1e-300, 1e-100, 1e-10, 1e-5, 0.3, 0.9, 0.99])
@pytest.mark.parametrize("epsilon", [math.nextafter(1e10, 2e10), 1.1e10, 1e11, 1e12, 1e20, 1e100, 1e308])
def test_sigma_of_a_huge_epsilon_is_safe_and_at_most_a_little_larger(epsilon, delta):
    assert epsilon > gaussian.LARGEST_EPSILON
    gaussian._sigma.cache_clear()
    start = time.process_time()
    sigma = gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=1.0)
    assert time.process_time() - start < 1.0
    digits = 60 + 2 * math.ceil(math.log10(epsilon))
    assert delta_by_ncdf(1, sigma, epsilon, digits) <= delta
    assert delta_by_ncdf(1, MP.mpf(sigma) / (1 + MP.mpf(10) ** -4), epsilon, digits) > delta


@pytest.mark.parametrize("delta", [1e-300, 1e-5, 0.9])
def test_sigma_falls_where_the_bound_takes_over(delta):
    steps = [1e9, 9.9e9, 1e10, 1.001e10, 1.01e10, 1e11, 1e100, 1e308]
    sigmas = [gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=1.0) for epsilon in steps]
    assert sigmas == sorted(sigmas, reverse=True)


@pytest.mark.parametrize(
    ("epsilon", "delta", "sensitivity"),
    [
        (1e-300, 1e-5, 1.0),
        (1e-300, 5e-324, 1.0),
        (5e-324, 1e-5, 1.0),
        (5e-324, 5e-324, 1.0),
        (1.0, 5e-324, 1.0),
        (1.0, 1 - 2.0**-53, 1.0),
        (1e-300, 1 - 2.0**-53, 1.0),
        (1e100, 5e-324, 1.0),
        (1e100, 1 - 2.0**-53, 1.0),
        (1e300, 1e-5, 1.0),
        (1.0, 1e-5, 5e-324),
        (50.0, 1e-5, 5e-324),
        (1.0, 1e-5, 1e308),
        (0.01, 0.5, 1.7e308),
    ],
)
def test_extreme_parameters_give_a_finite_sigma_or_an_error_that_names_them(epsilon, delta, sensitivity):
    try:
        sigma = gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=sensitivity)
    except ValueError as refused:
        assert all(name in str(refused) for name in ("sigma", "epsilon", "delta", "sensitivity"))  # noqa: PT017
        assert sensitivity > 1 or epsilon == 5e-324
        return
    assert 0 < sigma < math.inf
    if 5e-324 < sensitivity <= 1 and 1e-5 < epsilon < 1e50:
        assert delta_by_ncdf(sensitivity, sigma, epsilon) <= delta
    if epsilon >= 1e100:  # then mu**2 / 2 is epsilon, whatever delta is
        assert sigma == pytest.approx(sensitivity / math.sqrt(2) / math.sqrt(epsilon), rel=1e-14)
    if epsilon <= 1e-300 and delta > 1e-10:  # then delta is the total variation distance
        assert sigma == pytest.approx(sensitivity / float(2 * stats.norm.isf((1 - delta) / 2)), rel=1e-6)


# --- delta and epsilon -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sigma", "sensitivity", "epsilon", "delta", "tolerance"), DELTAS)
def test_delta_golden(sigma, sensitivity, epsilon, delta, tolerance):
    found = gaussian_delta(sigma=sigma, sensitivity=sensitivity, epsilon=epsilon)
    assert found == pytest.approx(delta, rel=tolerance)
    assert found >= delta_by_ncdf(sensitivity, sigma, epsilon)


@pytest.mark.parametrize(
    ("sigma", "delta", "epsilon"),
    [
        (5.0, 1.75463e-8, 1.00000007214),
        (3.42, 1.00362244e-5, 1.1000000002386),
        (1.0, 1e-5, 4.377178095681),  # three libraries agree
    ],
)
def test_epsilon_golden(sigma, delta, epsilon):
    assert gaussian_epsilon(sigma=sigma, sensitivity=1.0, delta=delta) == pytest.approx(epsilon, abs=1e-10)


@quick
@given(st.floats(-3, 3).map(lambda power: 10.0**power), st.floats(0, 1))
def test_delta_is_rounded_up_once(mu, part):
    epsilon = part * (mu * mu / 2 + 30 * mu)  # from the total variation distance down to 1e-195
    delta = gaussian_delta(sigma=1.0, sensitivity=mu, epsilon=epsilon)
    true = delta_by_ncdf(mu, 1, epsilon)
    assert true <= delta <= min(1, max(true * (1 + MP.mpf(2) ** -51), 5e-324))


@quick
@given(st.floats(-3, 3).map(lambda power: 10.0**power), deltas)
def test_epsilon_is_safe_and_tight(mu, delta):
    epsilon = gaussian_epsilon(sigma=1.0, sensitivity=mu, delta=delta)
    assert delta_by_ncdf(mu, 1, epsilon) <= delta
    assert epsilon == 0 or delta_by_ncdf(mu, 1, MP.mpf(epsilon) * (1 - MP.mpf(2) ** -51)) > delta


@quick
@given(st.floats(0.01, 100), st.floats(0, 100), st.floats(1e-12, 0.4), st.floats(1.001, 3))
def test_delta_and_epsilon_are_monotone(mu, epsilon, delta, factor):
    def delta_of(mu, epsilon):
        return gaussian_delta(sigma=1.0, sensitivity=mu, epsilon=epsilon)

    def epsilon_of(mu, delta):
        return gaussian_epsilon(sigma=1.0, sensitivity=mu, delta=delta)

    assert delta_of(mu, factor * epsilon) <= delta_of(mu, epsilon) <= delta_of(factor * mu, epsilon) <= 1
    assert epsilon_of(mu, min(0.99, factor * delta)) <= epsilon_of(mu, delta) <= epsilon_of(factor * mu, delta)


@pytest.mark.parametrize("sigma", [1e-5, 1e-2, 1.0, 10.0, 1e5])
def test_epsilon_and_delta_undo_each_other(sigma):
    for delta in (1e-10, 1e-5, 0.1):
        epsilon = gaussian_epsilon(sigma=sigma, sensitivity=1.0, delta=delta)
        back = gaussian_delta(sigma=sigma, sensitivity=1.0, epsilon=epsilon)
        assert back <= delta
        if epsilon > 0:  # the derivative is large where epsilon is: one last digit is 1e-6 of delta at sigma = 1e-5
            assert back == pytest.approx(delta, rel=1e-13 + 1e-15 * epsilon * sigma)


def test_edges():
    assert gaussian_delta(sigma=1.0, sensitivity=0.0, epsilon=0.0) == 0.0
    assert gaussian_epsilon(sigma=1.0, sensitivity=0.0, delta=1e-5) == 0.0
    assert gaussian_epsilon(sigma=1.0, sensitivity=1.0, delta=0.5) == 0.0  # more than the total variation distance
    for mu in (0.01, 1.0, 5.0):  # epsilon 0 is the total variation distance
        total_variation = MP.erf(MP.mpf(mu) / MP.sqrt(8))
        assert gaussian_delta(sigma=1.0, sensitivity=mu, epsilon=0.0) == pytest.approx(
            float(total_variation), rel=1e-15
        )
    assert gaussian_delta(sigma=1.0, sensitivity=1.0, epsilon=1e308) <= 5e-324
    assert gaussian_delta(sigma=1.0, sensitivity=5e-324, epsilon=0.5) <= 5e-324


@pytest.mark.parametrize("mu", [1e3, 1e6, 1.1e6, 1e20, 1e200, 1e308])
def test_huge_mu(mu):
    assert gaussian_delta(sigma=1.0, sensitivity=mu, epsilon=1.0) == 1.0
    epsilons = [gaussian_epsilon(sigma=1.0, sensitivity=mu, delta=delta) for delta in (1e-300, 1e-5, 0.4)]
    assert epsilons == sorted(epsilons, reverse=True)
    assert epsilons[-1] >= 0.49 * mu * mu  # inf where it leaves float64
    if mu < 1e20:
        middle = gaussian_delta(sigma=1.0, sensitivity=mu, epsilon=mu * mu / 2)
        assert middle == pytest.approx(0.5, rel=1 / mu)


@pytest.mark.parametrize("mu", [0.9e6, 1e6, math.nextafter(1e6, 2e6), 2e6, 1e9])
@pytest.mark.parametrize("shift", [-5, 0, 1, 20])
def test_the_bound_for_huge_mu_is_on_the_safe_side(mu, shift):
    epsilon = mu * mu / 2 + shift * mu
    delta = gaussian_delta(sigma=1.0, sensitivity=mu, epsilon=epsilon)
    # exp(epsilon) has 1e11 digits before the point or more, but mpmath keeps exponents apart
    true = delta_by_ncdf(mu, 1, epsilon, 60)
    assert true <= delta <= float(true) * (1 + 25 / mu)
    if shift > 0:
        assert gaussian_epsilon(sigma=1.0, sensitivity=mu, delta=delta) >= epsilon * (1 - 2.0**-50)


@pytest.mark.parametrize(("mu", "epsilon"), [(2e6, 1e170), (1e7, 1e308)])
def test_delta_far_out_for_huge_mu(mu, epsilon):
    assert gaussian_delta(sigma=1.0, sensitivity=mu, epsilon=epsilon) <= 5e-324


# --- the classic formula ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [1.0, 1, 5.0, 100.0])
def test_classic_refuses_large_epsilon_with_a_reason(epsilon):
    for refuse in (
        lambda **p: gaussian_sigma(**p),
        lambda **p: gaussian_mechanism(Untouchable(), **p),
    ):
        with pytest.raises(ValueError, match=r"^epsilon must be below 1 .*proof.*analytic"):
            refuse(epsilon=epsilon, delta=1e-5, sensitivity=1.0, calibration="classic")


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 0.5, 0.9, math.nextafter(1.0, 0.0)])
@pytest.mark.parametrize("delta", [1e-300, 1e-10, 1e-5, 0.1, 0.9])
def test_classic_holds_where_it_is_allowed(epsilon, delta):
    sigma = gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=3.0, calibration="classic")
    formula = MP.sqrt(2 * MP.log(MP.mpf(1.25) / MP.mpf(delta))) * 3 / MP.mpf(epsilon)
    assert formula <= sigma <= formula * (1 + MP.mpf(2) ** -51)
    assert gaussian_delta(sigma=sigma, sensitivity=3.0, epsilon=epsilon) < delta
    assert sigma > gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=3.0)  # it wastes accuracy


@pytest.mark.parametrize(
    ("epsilon", "true"),
    [(1.0, 4.11e-8), (5.0, 1.35e-6), (8.0, 7.97e-6), (9.0, 1.359e-5), (10.0, 2.265e-5), (20.0, 1.527e-3)],
)
def test_classic_breaks_its_promise_for_large_epsilon(epsilon, true):
    sigma = math.sqrt(2 * math.log(1.25 / 1e-5)) / epsilon
    delta = gaussian_delta(sigma=sigma, sensitivity=1.0, epsilon=epsilon)
    assert delta == pytest.approx(true, rel=5e-3)
    assert (delta > 1e-5) == (epsilon >= 9)


def test_the_cache_keeps_calibrations_apart():
    parameters = {"epsilon": 0.5, "delta": 1e-5, "sensitivity": 1.0}
    assert gaussian_sigma(**parameters) == gaussian_sigma(**parameters, calibration="analytic")
    assert gaussian_sigma(**parameters) < gaussian_sigma(**parameters, calibration="classic")
    for bad, error in (("Analytic", ValueError), ("", ValueError), (None, TypeError), (1, TypeError), ([], TypeError)):
        with pytest.raises(error, match=r"^calibration must"):
            gaussian_mechanism(Untouchable(), **parameters, calibration=bad)


# --- parameters ------------------------------------------------------------------------------------------------------

CALLS = {
    "gaussian_mechanism": {"epsilon": 1.0, "delta": 0.125, "sensitivity": 2.0},
    "gaussian_sigma": {"epsilon": 1.0, "delta": 0.125, "sensitivity": 2.0},
    "gaussian_delta": {"sigma": 1.0, "sensitivity": 2.0, "epsilon": 3.0},
    "gaussian_epsilon": {"sigma": 1.0, "sensitivity": 2.0, "delta": 0.125},
    "gaussian_error": {"sigma": 2.0, "alpha": 0.125},
    "gaussian_sigma_for_error": {"error": 2.0, "alpha": 0.125},
    "gaussian_interval": {"sigma": 2.0, "alpha": 0.125},
}
NEVER = [-1, -1.0, math.nan, math.inf, -math.inf, "1", True, False, np.True_, None, 1 + 0j, np.array([1, 2]), [1.0]]
ALSO_BAD = {
    "sigma": [0, 0.0],
    "error": [0, 0.0],
    "alpha": [0, 0.0, 1, 1.0, 1.5],
    "delta": [0, 0.0, 1, 1.0, 1.5, -1e-9],
}


def call(name, value, **parameters):
    """Call a function by name, with a value first if it is one of those that take one."""
    takes_value = name.endswith(("_mechanism", "_interval"))
    return getattr(gaussian, name)(*([value] if takes_value else []), **parameters)


def refusals():
    for function, good in CALLS.items():
        for name in good:
            bad = NEVER + ALSO_BAD.get(name, [])
            if name == "epsilon" and "sigma" not in good:  # a mechanism's; delta may be asked for at epsilon 0
                bad = [*bad, 0, 0.0, -0.0]
            for value in bad:
                yield pytest.param(function, name, value, id=f"{function}-{name}-{value!r}")


@pytest.mark.parametrize(("function", "name", "bad"), list(refusals()))
def test_bad_parameters_are_refused_by_name_before_the_value_is_touched(function, name, bad):
    with pytest.raises((TypeError, ValueError), match=rf"^{name} must"):
        call(function, Untouchable(), **{**CALLS[function], name: bad})


@pytest.mark.parametrize(
    "bad", [{"epsilon": 0}, {"epsilon": math.nan}, {"delta": 0.0}, {"delta": 1.0}, {"sensitivity": None}]
)
def test_a_refusal_draws_nothing(bad):
    rng = seeded()
    before = rng.bit_generator.state
    with pytest.raises((TypeError, ValueError)):
        gaussian_mechanism(3, **{"epsilon": 1.0, "delta": 1e-5, "sensitivity": 1, **bad}, rng=rng)
    for value in (math.nan, "3", None, True):
        with pytest.raises((TypeError, ValueError), match=r"^true_value must"):
            gaussian_mechanism(value, 1.0, 1e-5, 1.0, rng=rng)
    assert rng.bit_generator.state == before


@pytest.mark.parametrize("sensitivity", [0, 1])
@pytest.mark.parametrize("rng", [0, 1234, "seed", np.random.RandomState(0), np.random])
def test_a_bare_seed_is_refused_before_the_value_is_touched(sensitivity, rng):
    with pytest.raises(TypeError, match=r"^rng must"):
        gaussian_mechanism(Untouchable(), 1.0, 1e-5, sensitivity, rng=rng)


@pytest.mark.parametrize("function", list(CALLS))
def test_numpy_scalars_are_parameters_like_any_other(function):
    def result(**changed):
        rng = {"rng": seeded(1)} if function.endswith("mechanism") else {}
        return call(function, 4, **{**CALLS[function], **changed}, **rng)

    for name, plain in CALLS[function].items():
        forms = [np.float64(plain), np.float32(plain), np.array(plain)]  # all the parameters above are float32 numbers
        if plain == int(plain):
            forms += [int(plain), np.int64(plain), np.uint8(plain), np.array(int(plain))]
        for form in forms:
            assert np.array_equal(result(**{name: form}), result())


def test_the_cache_does_not_let_true_pass_as_one():
    good = {"epsilon": 1.0, "delta": 0.5, "sensitivity": 1.0}
    gaussian_sigma(**good)
    gaussian_epsilon(sigma=1.0, sensitivity=1.0, delta=0.1)
    gaussian_delta(sigma=1.0, sensitivity=1.0, epsilon=1.0)
    for name in ("epsilon", "sensitivity"):
        with pytest.raises(TypeError, match=rf"^{name} must"):
            gaussian_sigma(**{**good, name: True})
        with pytest.raises(TypeError, match=rf"^{name} must"):
            gaussian_mechanism(0.0, **{**good, name: True})
    for name in ("sigma", "sensitivity"):
        with pytest.raises(TypeError, match=rf"^{name} must"):
            gaussian_epsilon(**{"sigma": 1.0, "sensitivity": 1.0, name: True}, delta=0.1)
        with pytest.raises(TypeError, match=rf"^{name} must"):
            gaussian_delta(**{"sigma": 1.0, "sensitivity": 1.0, name: True}, epsilon=1.0)
    for _ in range(2):  # nor does it remember a refusal as a success
        with pytest.raises(ValueError, match=r"^epsilon must"):
            gaussian_sigma(**{**good, "epsilon": -1.0})


def test_the_mechanism_is_called_like_the_articles():
    by_position = gaussian_mechanism(1.0, 1.0, 1e-5, 2.0, rng=seeded())
    assert by_position == gaussian_mechanism(true_value=1.0, epsilon=1.0, delta=1e-5, sensitivity=2.0, rng=seeded())
    with pytest.raises(TypeError, match="positional"):
        gaussian_mechanism(1.0, 1.0, 1e-5, 2.0, "analytic")


@pytest.mark.parametrize("function", [name for name in CALLS if name != "gaussian_mechanism"])
def test_everything_else_is_keyword_only(function):
    parameters = inspect.signature(getattr(gaussian, function)).parameters.values()
    by_position = [parameter.name for parameter in parameters if parameter.kind is not parameter.KEYWORD_ONLY]
    assert by_position in ([], ["release"])
    with pytest.raises(TypeError, match="positional"):
        getattr(gaussian, function)(*[1] * len(by_position), *CALLS[function].values())


# --- errors and intervals --------------------------------------------------------------------------------------------


def test_error_golden():
    assert gaussian_error(sigma=1.0, alpha=0.05) == pytest.approx(1.9599639845400545, rel=1e-15)
    assert gaussian_error(sigma=3.0, alpha=0.05) == pytest.approx(3 * 1.9599639845400545, rel=1e-15)


@pytest.mark.parametrize("alpha", [1e-300, 1e-10, 0.05, 0.5, 0.999, 1 - 2.0**-53])
def test_error_is_the_quantile(alpha):
    error = gaussian_error(sigma=2.0, alpha=alpha)
    assert float(MP.erfc(MP.mpf(error) / (2 * MP.sqrt(2)))) == pytest.approx(alpha, rel=1e-11)
    assert gaussian_sigma_for_error(error=error, alpha=alpha) == pytest.approx(2.0, rel=1e-15)


@pytest.mark.parametrize(
    ("release", "sigma", "alpha", "low", "high"),
    [  # the Go tests of Google's library agree
        (21.0, 1.0, 0.05, 19.0400360155, 22.9599639845),
        (100.0, 10.0, 1e-10, 35.3304891275948, 164.669510872405),
    ],
)
def test_interval_golden(release, sigma, alpha, low, high):
    assert gaussian_interval(release, sigma=sigma, alpha=alpha) == pytest.approx((low, high), rel=1e-11)
    lows, highs = gaussian_interval(np.full((2, 3), release), sigma=sigma, alpha=alpha)
    assert lows.shape == highs.shape == (2, 3)
    assert np.allclose(lows, low)
    assert np.allclose(highs, high)


@pytest.mark.parametrize("bad", ["13", None, True, math.nan, [math.inf]])
def test_interval_names_the_release(bad):
    with pytest.raises((TypeError, ValueError), match=r"^release must"):
        gaussian_interval(bad, sigma=1.0, alpha=0.1)


# --- releases --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "kind", "shape"),
    [
        (3.5, float, ()),
        (3, float, ()),
        (np.float64(3.5), float, ()),
        (np.array(3.5), np.ndarray, ()),
        ([1.0, 2.0], np.ndarray, (2,)),
        ((1, 2, 3), np.ndarray, (3,)),
        ([], np.ndarray, (0,)),
        (np.zeros((2, 3, 4), dtype=np.float32), np.ndarray, (2, 3, 4)),
        (np.zeros((4, 6)).T[::2], np.ndarray, (3, 4)),
    ],
)
@pytest.mark.parametrize("sensitivity", [0.0, 1.0])
def test_shape_and_type_in_are_shape_and_type_out(value, kind, shape, sensitivity):
    out = gaussian_mechanism(value, 1.0, 1e-5, sensitivity, rng=seeded())
    assert type(out) is kind
    assert np.shape(out) == shape
    assert np.asarray(out).dtype == np.float64
    assert np.array_equal(out, value) == (sensitivity == 0.0 or shape == (0,))


@pytest.mark.parametrize("sensitivity", [0, 1])
def test_the_input_is_untouched(sensitivity):
    value = np.arange(6.0).reshape(2, 3)
    out = gaussian_mechanism(value, 1.0, 1e-5, sensitivity, rng=seeded())
    out += 100  # the result is a copy even when nothing is added
    assert np.array_equal(value, np.arange(6.0).reshape(2, 3))


@pytest.mark.parametrize("sensitivity", [0.0, 1.0])
@pytest.mark.parametrize("kind", [float, list, np.array])
def test_a_message_does_not_show_the_data(sensitivity, kind):
    messages = set()
    for bad in (math.nan, math.inf, -math.inf):
        value = bad if kind is float else kind([123456.789, bad])
        with pytest.raises(ValueError) as refused:
            gaussian_mechanism(value, 1.0, 1e-5, sensitivity)
        messages.add(str(refused.value))
    assert len(messages) == 1  # the same whatever the value
    assert "123456" not in messages.pop()
    with pytest.raises(TypeError) as refused:
        gaussian_mechanism("secret", 1.0, 1e-5, sensitivity)
    assert "secret" not in str(refused.value)


def test_without_a_generator_each_release_is_fresh():
    assert len({gaussian_mechanism(0.0, 1.0, 1e-5, 1.0) for _ in range(20)}) > 15
    assert gaussian_mechanism(1.5, 1.0, 1e-5, 1.0, rng=seeded(5)) == gaussian_mechanism(
        1.5, 1.0, 1e-5, 1.0, rng=seeded(5)
    )


@pytest.mark.parametrize("shape", [(5,), (2, 3), (500,)])
def test_every_entry_gets_its_own_draw(shape):
    out = gaussian_mechanism(np.zeros(shape), 1.0, 1e-5, 1.0, rng=seeded())
    assert len(set(out.ravel().tolist())) > 0.99 * out.size
    pairs = gaussian_mechanism(np.zeros((N, 2)), 1.0, 1e-5, 1.0, rng=seeded(1))
    assert abs(np.corrcoef(pairs.T)[0, 1]) < 5 / math.sqrt(N)
    assert abs(np.corrcoef(pairs[:-1, 0], pairs[1:, 0])[0, 1]) < 5 / math.sqrt(N)


@pytest.mark.parametrize("calibration", ["analytic", "classic"])
def test_the_release_is_the_exact_noise_at_the_exact_sigma(calibration):
    value = np.linspace(-5, 5, 100)
    sigma = gaussian_sigma(epsilon=0.3, delta=1e-5, sensitivity=0.7, calibration=calibration)
    release = gaussian_mechanism(value, 0.3, 1e-5, 0.7, calibration=calibration, rng=seeded(3))
    assert np.array_equal(release, noise.add_gaussian(value, sigma=sigma, rng=seeded(3)))


@pytest.mark.parametrize(
    ("epsilon", "sensitivity", "sigma"), [(1.0, 1.0, 3.730631634815942), (10.0, 6.0, 2.99933171825)]
)
def test_the_noise_has_the_right_size(epsilon, sensitivity, sigma):
    sample = gaussian_mechanism(np.full(N, 20.25), epsilon, 1e-5, sensitivity, rng=seeded(11)) - 20.25
    # a sample variance of Gaussian noise has relative standard error sqrt(2 / n)
    assert abs(np.mean(sample**2) / sigma**2 - 1) < 5 * math.sqrt(2 / N)
    assert abs(np.mean(sample)) < 5 * sigma / math.sqrt(N)
    assert stats.kstest(sample, stats.norm(scale=sigma).cdf).pvalue > SURELY_WRONG
    for wrong in (0.9 * sigma, 1.1 * sigma, math.sqrt(sigma), sigma**2):  # the test has the power to see a wrong sigma
        assert stats.kstest(sample, stats.norm(scale=wrong).cdf).pvalue < SURELY_WRONG


def test_single_releases_have_the_same_law_as_arrays():
    rng, sigma = seeded(12), 3.730631634815942
    sample = [gaussian_mechanism(0.3, 1.0, 1e-5, 1.0, rng=rng) - 0.3 for _ in range(10_000)]
    assert stats.kstest(sample, stats.norm(scale=sigma).cdf).pvalue > SURELY_WRONG
    assert stats.kstest(sample, stats.norm(scale=0.85 * sigma).cdf).pvalue < SURELY_WRONG


def test_releases_on_neighbours_keep_the_promise():
    # delta = P(A | 0) - exp(epsilon) P(A | 1) at the worst event A, which is a half-line
    epsilon, delta = 0.5, 0.05
    zero, one = (
        gaussian_mechanism(np.full(4 * N, v), epsilon, delta, 1.0, rng=seeded(30 + int(v))) for v in (0.0, 1.0)
    )
    sigma = gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=1.0)
    edge = 0.5 - epsilon * sigma**2
    found = np.mean(zero < edge) - math.exp(epsilon) * np.mean(one < edge)
    assert found == pytest.approx(delta, abs=5 * (1 + math.exp(epsilon)) * math.sqrt(0.25 / (4 * N)))
    assert found > 0.8 * delta


@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_intervals_cover_as_often_as_they_say(alpha):
    sigma = gaussian_sigma(epsilon=0.5, delta=1e-5, sensitivity=2.0)
    release = gaussian_mechanism(np.full(N, 20.25), 0.5, 1e-5, 2.0, rng=seeded(50))
    low, high = gaussian_interval(release, sigma=sigma, alpha=alpha)
    inside = int(np.sum((low <= 20.25) & (high >= 20.25)))
    assert stats.binomtest(inside, N, 1 - alpha).pvalue > SURELY_WRONG
    assert stats.binomtest(inside, N, 1 - 1.1 * alpha).pvalue < SURELY_WRONG


def test_the_naive_version_says_that_it_is_not_private():
    assert "NOT private" in naive_gaussian_mechanism.__doc__
    assert not any(name.startswith("naive") for name in dpbook.__all__)
    sample = naive_gaussian_mechanism(np.zeros(N), 0.5, 1e-5, 1.0, seeded())
    sigma = gaussian_sigma(epsilon=0.5, delta=1e-5, sensitivity=1.0, calibration="classic")
    assert stats.kstest(sample, stats.norm(scale=sigma).cdf).pvalue > SURELY_WRONG
    assert np.shape(naive_gaussian_mechanism(1.0, 0.5, 1e-5, 1.0, seeded())) == ()
