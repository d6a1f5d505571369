"""The Laplace mechanism and its discrete twin: formulas against independent ones, releases against the exact law."""

import functools
import inspect
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import dpbook
from dpbook import laplace, noise
from dpbook.laplace import (
    discrete_laplace_delta,
    discrete_laplace_error,
    discrete_laplace_interval,
    discrete_laplace_mechanism,
    discrete_laplace_pmf,
    laplace_delta,
    laplace_epsilon,
    laplace_error,
    laplace_interval,
    laplace_mechanism,
    laplace_scale,
    laplace_scale_for_error,
    naive_laplace_mechanism,
)

N = 100_000
SURELY_WRONG = 1e-6  # p value below which a test at a fixed seed fails
MP = mpmath.MPContext()
MP.dps = 60

positive = st.floats(1e-100, 1e100)
probability = st.floats(1e-300, 1 - 2.0**-53)
quick = settings(max_examples=150, deadline=None)


def seeded(seed=0):
    return np.random.default_rng(seed)


class Untouchable:
    """Data that must not be looked at."""

    def _touched(self, *args, **kwargs):
        raise AssertionError("the value was looked at before the parameters were checked")

    __array__ = __float__ = __int__ = __index__ = __len__ = __iter__ = __getitem__ = _touched


# --- parameters ------------------------------------------------------------------------------------------------------


CALLS = {
    "laplace_mechanism": {"epsilon": 1.0, "sensitivity": 2.0},
    "discrete_laplace_mechanism": {"epsilon": 1.0, "sensitivity": 2},
    "laplace_scale": {"epsilon": 1.0, "sensitivity": 2.0},
    "laplace_delta": {"scale": 2.0, "sensitivity": 1.0, "epsilon": 0.25},
    "laplace_epsilon": {"scale": 2.0, "sensitivity": 1.0, "delta": 1e-5},
    "laplace_error": {"scale": 2.0, "alpha": 0.1},
    "laplace_scale_for_error": {"error": 3.0, "alpha": 0.1},
    "laplace_interval": {"scale": 2.0, "alpha": 0.1},
    "discrete_laplace_pmf": {"scale": 2.0},
    "discrete_laplace_error": {"scale": 2.0, "alpha": 0.1},
    "discrete_laplace_interval": {"scale": 2.0, "alpha": 0.1},
    "discrete_laplace_delta": {"scale": 2.0, "sensitivity": 3, "epsilon": 0.25},
}


def call(name, value, **parameters):
    """Call a function by name, with a value first if it is one of those that take one."""
    takes_value = name.endswith(("_mechanism", "_interval", "_pmf"))
    return getattr(laplace, name)(*([value] if takes_value else []), **parameters)


NEVER = [-1, -1.0, math.nan, math.inf, -math.inf, "1", True, False, np.True_, None, 1 + 0j, np.array([1, 2]), [1.0]]
ALSO_BAD = {"scale": [0, 0.0, -0.0], "error": [0, 0.0], "alpha": [0, 0.0, 1, 1.0, 1.5], "delta": [1, 1.0, 1.5, -1e-9]}


def refusals():
    for function, good in CALLS.items():
        for name in good:
            bad = NEVER + ALSO_BAD.get(name, [])
            if name == "epsilon" and "scale" not in good:  # a mechanism's ε; a formula may be asked for δ at ε = 0
                bad = [*bad, 0, 0.0, -0.0]
            if name == "sensitivity" and function.startswith("discrete"):
                bad = [*bad, 1.5, 2**53 + 1]
            for value in bad:
                yield pytest.param(function, name, value, id=f"{function}-{name}-{value!r}")


@pytest.mark.parametrize(("function", "name", "bad"), list(refusals()))
def test_bad_parameters_are_refused_by_name_before_the_value_is_touched(function, name, bad):
    with pytest.raises((TypeError, ValueError), match=rf"^{name} must"):
        call(function, Untouchable(), **{**CALLS[function], name: bad})


@pytest.mark.parametrize("mechanism", [laplace_mechanism, discrete_laplace_mechanism])
@pytest.mark.parametrize("bad", [{"epsilon": 0}, {"epsilon": math.nan}, {"sensitivity": -1}, {"sensitivity": None}])
def test_a_refusal_draws_nothing(mechanism, bad):
    rng = seeded()
    before = rng.bit_generator.state
    with pytest.raises((TypeError, ValueError)):
        mechanism(3, **{"epsilon": 1.0, "sensitivity": 1, **bad}, rng=rng)
    for value in (math.nan, "3", None):
        with pytest.raises((TypeError, ValueError), match="true_value"):
            mechanism(value, epsilon=1.0, sensitivity=1, rng=rng)
    assert rng.bit_generator.state == before


@pytest.mark.parametrize("mechanism", [laplace_mechanism, discrete_laplace_mechanism])
@pytest.mark.parametrize("sensitivity", [0, 1])
@pytest.mark.parametrize("rng", [0, 1234, "seed", np.random.RandomState(0), np.random])
def test_a_bare_seed_is_refused_before_the_value_is_touched(mechanism, sensitivity, rng):
    with pytest.raises(TypeError, match=r"^rng must"):
        mechanism(Untouchable(), epsilon=1.0, sensitivity=sensitivity, rng=rng)


@pytest.mark.parametrize("function", list(CALLS))
def test_numpy_scalars_are_parameters_like_any_other(function):
    def result(**changed):
        rng = {"rng": seeded(1)} if function.endswith("mechanism") else {}
        return call(function, 4, **{**CALLS[function], **changed}, **rng)

    for name, plain in CALLS[function].items():
        forms = [np.float64(plain), np.array(plain)]
        if plain == int(plain):
            forms += [int(plain), float(plain), np.int64(plain), np.uint8(plain), np.array(int(plain))]
        for form in forms:
            assert np.array_equal(result(**{name: form}), result())


def test_the_cache_does_not_let_true_pass_as_one():
    assert laplace_scale(epsilon=1.0, sensitivity=1.0) == 1.0
    for bad in ({"epsilon": True, "sensitivity": 1.0}, {"epsilon": 1.0, "sensitivity": True}):
        with pytest.raises(TypeError):
            laplace_scale(**bad)
        with pytest.raises(TypeError):
            laplace_mechanism(0.0, **bad)
        with pytest.raises(TypeError):
            discrete_laplace_mechanism(0, **bad)
    with pytest.raises(TypeError):
        laplace_scale(epsilon=1.0, sensitivity=False)
    for _ in range(2):  # nor does it remember a refusal as a success
        with pytest.raises(ValueError, match=r"^epsilon must"):
            laplace_scale(epsilon=-1.0, sensitivity=1.0)


def test_the_mechanism_is_called_like_the_articles():
    by_position = laplace_mechanism(1.0, 1.0, 2.0, rng=seeded())
    assert by_position == laplace_mechanism(true_value=1.0, epsilon=1.0, sensitivity=2.0, rng=seeded())
    with pytest.raises(TypeError, match="positional"):
        laplace_mechanism(1.0, 1.0, 2.0, seeded())


@pytest.mark.parametrize("function", [name for name in CALLS if name != "laplace_mechanism"])
def test_everything_else_is_keyword_only(function):
    parameters = inspect.signature(getattr(laplace, function)).parameters.values()
    by_position = [parameter.name for parameter in parameters if parameter.kind is not parameter.KEYWORD_ONLY]
    assert by_position in ([], ["true_value"], ["release"], ["k"])
    with pytest.raises(TypeError, match="positional"):
        getattr(laplace, function)(*[1] * len(by_position), *CALLS[function].values())


@pytest.mark.parametrize("epsilon", [5e-324, 1e-300])
def test_a_scale_beyond_float64_is_an_error(epsilon):
    with pytest.raises(ValueError, match="epsilon"):
        laplace_scale(epsilon=epsilon, sensitivity=1e300)
    with pytest.raises(ValueError):
        laplace_mechanism(Untouchable(), epsilon=epsilon, sensitivity=1.0)


# --- formulas --------------------------------------------------------------------------------------------------------


@quick
@given(epsilon=st.floats(5e-324, 1e308), sensitivity=st.floats(5e-324, 1e308))
def test_the_scale_is_the_smallest_float_that_is_large_enough(epsilon, sensitivity):
    exact = Fraction(sensitivity) / Fraction(epsilon)
    if exact > Fraction(np.finfo(float).max):
        with pytest.raises(ValueError):
            laplace_scale(epsilon=epsilon, sensitivity=sensitivity)
        return
    scale = laplace_scale(epsilon=epsilon, sensitivity=sensitivity)
    assert Fraction(scale) >= exact > Fraction(math.nextafter(scale, 0.0))


@pytest.mark.parametrize(
    ("scale", "sensitivity", "epsilon", "delta"),
    [(2.0, 4.0, 0.5, 0.52763345), (1.0, 1.0, 0.0, 0.39346934)],  # Google's dp-accounting tests agree
)
def test_delta_golden(scale, sensitivity, epsilon, delta):
    assert laplace_delta(scale=scale, sensitivity=sensitivity, epsilon=epsilon) == pytest.approx(delta, abs=1e-8)


@pytest.mark.parametrize("scale", [0.3, 1.0, 7.0])
@pytest.mark.parametrize("sensitivity", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("part", [0.0, 0.25, 0.9, 0.999])
def test_delta_is_the_integral_it_stands_for(scale, sensitivity, part):
    epsilon = part * sensitivity / scale

    def excess(x):
        b = MP.mpf(scale)
        return max(0, MP.exp(-abs(x) / b) - MP.exp(epsilon - abs(x - sensitivity) / b)) / (2 * b)

    cut = (sensitivity - epsilon * scale) / 2  # the integrand is zero from here on
    with MP.workdps(25):
        far = -80 * scale  # the rest is below 1e-34
        true = MP.quad(excess, [far, far / 3, far / 9, far / 27, 0, cut, sensitivity])
    assert laplace_delta(scale=scale, sensitivity=sensitivity, epsilon=epsilon) == pytest.approx(float(true), rel=1e-9)


def exact_delta(scale, sensitivity, epsilon):
    return max(MP.mpf(0), -MP.expm1((MP.mpf(epsilon) - MP.mpf(sensitivity) / MP.mpf(scale)) / 2))


@quick
@given(scale=positive, sensitivity=positive, part=st.floats(0, 1.5))
def test_delta_is_never_too_small_and_hardly_too_large(scale, sensitivity, part):
    epsilon = part * sensitivity / scale
    true = exact_delta(scale, sensitivity, epsilon)
    delta = laplace_delta(scale=scale, sensitivity=sensitivity, epsilon=epsilon)
    assert true <= delta <= min(MP.mpf(1), true * (1 + MP.mpf(2) ** -48) + epsilon * MP.mpf(2) ** -51)


@quick
@given(scale=positive, sensitivity=positive, delta=st.one_of(st.just(0.0), probability))
def test_epsilon_inverts_delta_on_the_safe_side(scale, sensitivity, delta):
    epsilon = laplace_epsilon(scale=scale, sensitivity=sensitivity, delta=delta)
    assert exact_delta(scale, sensitivity, epsilon) <= delta
    loss = MP.mpf(sensitivity) / MP.mpf(scale)
    true = max(MP.mpf(0), loss + 2 * MP.log1p(-MP.mpf(delta)))
    assert 0 <= epsilon - true <= MP.mpf(2) ** -47 * (loss + true)


def test_delta_edges():
    assert laplace_delta(scale=1.0, sensitivity=0.0, epsilon=0.0) == 0.0
    assert laplace_epsilon(scale=1.0, sensitivity=0.0) == 0.0
    assert laplace_delta(scale=0.5, sensitivity=1.0, epsilon=2.0) == 0.0  # pure DP from Δ/b on
    assert laplace_delta(scale=0.5, sensitivity=1.0, epsilon=math.nextafter(2.0, 0.0)) > 0.0
    assert laplace_delta(scale=1e-300, sensitivity=1e300, epsilon=1e308) == 1.0
    assert laplace_epsilon(scale=2.0, sensitivity=1.0) == 0.5
    assert laplace_epsilon(scale=1.0, sensitivity=1.0, delta=0.9) == 0.0


def test_delta_of_the_smallest_sensitivity_is_not_zero():
    assert laplace_delta(scale=1.0, sensitivity=5e-324, epsilon=0.0) > 0.0


@pytest.mark.parametrize(
    ("scale", "alpha", "error", "tolerance"),
    [
        (1.0, 0.05, 2.995732273553991, 1e-15),
        # quantiles p from the Go tests of Google's library, as two-sided levels 2 p or 2 (1 - p)
        (4.0, 2 * (1 - 0.7875404240919761168), 3.4234254367, 1e-10),
        (3.0, 2 * 1.23757362e-15, 100.897429529251, 1e-13),
        (3.0, 2 * (1 - 0.999999999876242638), 66.3586531343, 1e-7),
    ],
)
def test_error_golden(scale, alpha, error, tolerance):
    assert laplace_error(scale=scale, alpha=alpha) == pytest.approx(error, rel=tolerance)
    assert laplace_scale_for_error(error=error, alpha=alpha) == pytest.approx(scale, rel=tolerance)


@pytest.mark.parametrize(
    ("release", "scale", "alpha", "low", "high"),
    [  # the Go tests of Google's library agree
        (13.0, 27.33333333333, 0.05, -68.88334881, 94.88334881),
        (38.4234, 2 * 4.3 / 0.6, 0.2, 15.35478992, 61.49201008),
    ],
)
def test_interval_golden(release, scale, alpha, low, high):
    assert laplace_interval(release, scale=scale, alpha=alpha) == pytest.approx((low, high), abs=1e-8)
    lows, highs = laplace_interval(np.full((2, 3), release), scale=scale, alpha=alpha)
    assert lows.shape == highs.shape == (2, 3)
    assert np.allclose(lows, low)
    assert np.allclose(highs, high)


@pytest.mark.parametrize("bad", ["13", None, math.nan, [math.inf]])
def test_interval_names_the_release(bad):
    with pytest.raises((TypeError, ValueError), match=r"^release must"):
        laplace_interval(bad, scale=1.0, alpha=0.1)


# --- formulas of the discrete twin -----------------------------------------------------------------------------------


def exact_pmf(k, scale):
    q = MP.exp(-1 / MP.mpf(scale))
    return (1 - q) / (1 + q) * q ** abs(k)


@functools.lru_cache(maxsize=1)
def exact_pmfs(scale, count=4100):
    ratio, pmf = MP.exp(-1 / MP.mpf(scale)), [exact_pmf(0, scale)]
    for _ in range(count):
        pmf.append(pmf[-1] * ratio)
    return pmf


@pytest.mark.parametrize("scale", [0.02, 0.5, 1.0, 3.7, 100.0])
def test_pmf_sums_to_one(scale):
    k = np.arange(-5000, 5001)
    pmf = discrete_laplace_pmf(k, scale=scale)
    assert math.fsum(pmf) == pytest.approx(1.0, rel=1e-13)
    assert np.array_equal(pmf, pmf[::-1])
    for at in (0, 1, 7):
        assert float(discrete_laplace_pmf(at, scale=scale)) == pytest.approx(float(exact_pmf(at, scale)), rel=1e-12)


def test_pmf_golden_is_not_that_of_a_rounded_laplace():
    # (1 - 1/e) / (1 + 1/e); rounding a Laplace draw gives 1 - exp(-1/2) = 0.393469 instead
    assert float(discrete_laplace_pmf(0, scale=1.0)) == pytest.approx(0.462117157, abs=1e-9)
    assert discrete_laplace_pmf(np.zeros((2, 0, 3), dtype=int), scale=1.0).shape == (2, 0, 3)
    for bad in (0.0, 1.5, "0", None, True):
        with pytest.raises(TypeError, match=r"^k must"):
            discrete_laplace_pmf(bad, scale=1.0)


def test_pmf_of_a_tiny_scale():
    assert float(discrete_laplace_pmf(0, scale=1e-310)) == 1.0


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("sensitivity", [1, 2, 5])
def test_the_pmf_of_neighbours_differs_by_at_most_exp_epsilon(epsilon, sensitivity):
    scale = laplace_scale(epsilon=epsilon, sensitivity=float(sensitivity))
    assert Fraction(sensitivity) / Fraction(scale) <= Fraction(epsilon)  # the exact log ratio of the ideal noise
    k = np.arange(-40, 41)
    loss = np.log(discrete_laplace_pmf(k, scale=scale) / discrete_laplace_pmf(k - sensitivity, scale=scale))
    assert np.abs(loss).max() == pytest.approx(epsilon, rel=1e-12)


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(0.5, 0.54202002), (1.0, 0.39346934), (0.0, 0.63212056)],  # Google's dp-accounting tests agree
)
def test_discrete_delta_golden(epsilon, delta):
    assert discrete_laplace_delta(scale=2.0, sensitivity=4, epsilon=epsilon) == pytest.approx(delta, abs=1e-8)


@pytest.mark.parametrize("part", [0.0, 0.3, 0.77, 1.2])
@pytest.mark.parametrize("sensitivity", [1, 2, 7])
@pytest.mark.parametrize("scale", [0.4, 2.0, 11.5])
def test_discrete_delta_is_the_sum_it_stands_for(scale, sensitivity, part):
    epsilon = part * sensitivity / scale
    pmf, factor = exact_pmfs(scale), MP.exp(epsilon)
    excess = (pmf[abs(k)] - factor * pmf[abs(k - sensitivity)] for k in range(-1000, 1001))  # the rest is below 1e-36
    true = MP.fsum(term for term in excess if term > 0)
    delta = discrete_laplace_delta(scale=scale, sensitivity=sensitivity, epsilon=epsilon)
    assert delta == pytest.approx(float(true), rel=1e-10, abs=1e-15)


def exact_discrete_delta(scale, sensitivity, epsilon):
    """Sum in closed form, in other words than the package: half a geometric series, twice."""
    b, eps = MP.mpf(scale), MP.mpf(epsilon)
    if sensitivity <= eps * b:
        return MP.mpf(0)
    q, m = MP.exp(-1 / b), MP.ceil((sensitivity - eps * b) / 2) - 1
    return (1 + q - q ** (m + 1) - MP.exp(eps) * q ** (sensitivity - m)) / (1 + q)


@quick
@given(scale=st.floats(0.05, 20), sensitivity=st.integers(1, 20), part=st.floats(0, 0.95))
def test_discrete_delta_is_not_too_small(scale, sensitivity, part):
    epsilon = part * sensitivity / scale
    delta = discrete_laplace_delta(scale=scale, sensitivity=sensitivity, epsilon=epsilon)
    true = exact_discrete_delta(scale, sensitivity, epsilon)
    assert true * (1 - MP.mpf(10) ** -11) <= delta <= true * (1 + MP.mpf(10) ** -11)
    assert delta <= 1


@pytest.mark.parametrize(
    ("scale", "sensitivity", "epsilon"),
    [
        (225.5046529467029, 2, 0.008861915439667913),  # two terms near 1/2 cancel
        (1e9, 1, 0.0),
        (1e12, 1, 1e-13),
        (1e17, 1, 0.0),  # 5e-18, and not 0
        (3.0, 1, 1 / 3),  # 1.1e-17, and not 0: the float nearest to a third is below it
    ],
)
def test_discrete_delta_is_never_too_small(scale, sensitivity, epsilon):
    delta = discrete_laplace_delta(scale=scale, sensitivity=sensitivity, epsilon=epsilon)
    assert delta >= exact_discrete_delta(scale, sensitivity, epsilon)


@pytest.mark.parametrize("alpha", [1e-12, 0.01, 0.05, 0.2, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("scale", [0.03, 0.3, 1.0, 2.5, 20.0])
def test_discrete_error_is_the_smallest_whole_number_that_does(scale, alpha):
    t = discrete_laplace_error(scale=scale, alpha=alpha)
    assert type(t) is int
    terms = exact_pmfs(scale)[: t + 2000]  # the rest is below 1e-40

    def beyond(t):
        return 2 * MP.fsum(terms[t + 1 :])

    assert beyond(t) <= alpha
    assert t == 0 or beyond(t - 1) > alpha


def test_discrete_error_golden():
    # OpenDP: P(|Z| >= 3.3756...) = 0.05 at scale 1, and P(|Z| >= 1) = 0.5 at scale 0.9102392266268373
    assert discrete_laplace_error(scale=1.0, alpha=0.05) == math.ceil(3.3756177665957137 - 1) == 3
    assert discrete_laplace_error(scale=0.91023922, alpha=0.5) == 0
    assert discrete_laplace_error(scale=0.91023923, alpha=0.5) == 1
    assert discrete_laplace_interval(41, scale=1.0, alpha=0.05) == (38, 44)


def test_discrete_error_of_a_tiny_alpha():
    assert discrete_laplace_error(scale=1.0, alpha=1e-309) == math.ceil(math.log(2 / (1 + math.exp(-1))) + 711.49 - 1)


@pytest.mark.parametrize(("scale", "alpha"), [(1.7e308, 0.05), (1e308, 1e-10), (1e306, 1e-300)])
def test_discrete_error_beyond_float64_is_refused(scale, alpha):
    with pytest.raises(ValueError, match=r"^scale must be smaller for the error to be a float64"):
        discrete_laplace_error(scale=scale, alpha=alpha)


@pytest.mark.parametrize("scale", [1e-320, 1e-300, 1e-3, 1e18, 1e300, 1e307])
def test_discrete_error_at_extreme_scales(scale):
    t = discrete_laplace_error(scale=scale, alpha=0.05)
    assert type(t) is int
    assert t == 0 if scale < 1 else t == pytest.approx(laplace_error(scale=scale, alpha=0.05), rel=1e-12)


def test_discrete_interval_keeps_the_kind_of_the_release():
    low, high = discrete_laplace_interval(2**63 - 1, scale=1.0, alpha=0.05)
    assert (low, high) == (2**63 - 4, 2**63 + 2)  # Python ints do not wrap
    assert type(low) is type(high) is int
    assert discrete_laplace_interval(np.int64(41), scale=1.0, alpha=0.05) == (38, 44)
    low, high = discrete_laplace_interval(np.array([[1], [5]]), scale=1.0, alpha=0.05)
    assert low.tolist() == [[-2], [2]]
    assert high.tolist() == [[4], [8]]
    for bad in (1.5, "1", None, True):
        with pytest.raises(TypeError, match=r"^release must"):
            discrete_laplace_interval(bad, scale=1.0, alpha=0.05)


@pytest.mark.parametrize("scale", [1.0, 1e9, 2.0**40, 1e18, 1e30])
def test_discrete_interval_of_a_saturated_release_does_not_wrap(scale):
    ends = [2**63 - 1, 2**63 - 2, 0, -(2**63) + 1, -(2**63)]
    low, high = discrete_laplace_interval(np.array(ends), scale=scale, alpha=0.05)
    assert low.dtype == high.dtype == np.int64
    for release, below, above in zip(ends, low.tolist(), high.tolist(), strict=True):
        exact_low, exact_high = discrete_laplace_interval(release, scale=scale, alpha=0.05)  # Python ints: unbounded
        reach = min(exact_high - release, 2**63 - 1)
        assert exact_low < release < exact_high
        assert (below, above) == (max(release - reach, -(2**63)), min(release + reach, 2**63 - 1))
    # An unsigned release beyond int64 counts as its largest value.
    low, high = discrete_laplace_interval(np.array([2**64 - 1], dtype=np.uint64), scale=1.0, alpha=0.05)
    assert (low.tolist(), high.tolist()) == ([2**63 - 4], [2**63 - 1])


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
    out = laplace_mechanism(value, 1.0, sensitivity, rng=seeded())
    assert type(out) is kind
    assert np.shape(out) == shape
    assert np.asarray(out).dtype == np.float64
    assert np.array_equal(out, value) == (sensitivity == 0.0 or shape == (0,))


@pytest.mark.parametrize(
    ("value", "kind", "shape"),
    [
        (3, int, ()),
        (2**70, int, ()),
        (np.int64(3), int, ()),
        (np.uint8(250), int, ()),
        (np.array(3), np.ndarray, ()),
        ([1, 2], np.ndarray, (2,)),
        ([], np.ndarray, (0,)),
        (np.zeros((2, 3), dtype=np.int8), np.ndarray, (2, 3)),
    ],
)
@pytest.mark.parametrize("sensitivity", [0, 100])
def test_shape_and_type_of_the_discrete_release(value, kind, shape, sensitivity):
    out = discrete_laplace_mechanism(value, epsilon=1.0, sensitivity=sensitivity, rng=seeded())
    assert type(out) is kind
    assert np.shape(out) == shape
    if kind is np.ndarray:
        assert out.dtype == np.int64
    assert np.array_equal(out, value) == (sensitivity == 0 or shape == (0,))


@pytest.mark.parametrize("sensitivity", [0, 1])
def test_the_input_is_untouched(sensitivity):
    value = np.arange(6.0).reshape(2, 3)
    out = laplace_mechanism(value, 1.0, sensitivity, rng=seeded())
    counts = np.arange(6).reshape(2, 3)
    whole = discrete_laplace_mechanism(counts, epsilon=1.0, sensitivity=sensitivity, rng=seeded())
    out += 100
    whole += 100  # the result is a copy even when nothing is added
    assert np.array_equal(value, np.arange(6.0).reshape(2, 3))
    assert np.array_equal(counts, np.arange(6).reshape(2, 3))


@pytest.mark.parametrize("sensitivity", [0.0, 1.0])
@pytest.mark.parametrize("kind", [float, list, np.array])
def test_a_message_does_not_show_the_data(sensitivity, kind):
    messages = set()
    for bad in (math.nan, math.inf, -math.inf):
        value = bad if kind is float else kind([123456.789, bad])
        with pytest.raises(ValueError) as refused:
            laplace_mechanism(value, 1.0, sensitivity)
        messages.add(str(refused.value))
    assert len(messages) == 1  # the same whatever the value
    assert "123456" not in messages.pop()
    with pytest.raises(TypeError) as refused:
        laplace_mechanism("secret", 1.0, sensitivity)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("bad", [1.0, math.nan, "1", None, True, [1.5], np.array([1.0]), 1 + 0j])
@pytest.mark.parametrize("sensitivity", [0, 1])
def test_counts_must_be_integers(bad, sensitivity):
    with pytest.raises(TypeError, match=r"^true_value must"):
        discrete_laplace_mechanism(bad, epsilon=1.0, sensitivity=sensitivity)


def test_integer_arithmetic_does_not_wrap():
    end = 2**63 - 1
    scalars = [discrete_laplace_mechanism(end, epsilon=0.1, sensitivity=1, rng=seeded(i)) for i in range(40)]
    assert max(scalars) > end > min(scalars)
    whole = discrete_laplace_mechanism(np.full(1000, end), epsilon=0.1, sensitivity=1, rng=seeded())
    assert whole.min() > end - 1000
    assert (whole == end).mean() > 0.4  # saturated, not wrapped


def test_without_a_generator_each_release_is_fresh():
    assert len({laplace_mechanism(0.0, 1.0, 1.0) for _ in range(20)}) > 15
    assert len({discrete_laplace_mechanism(0, epsilon=0.001, sensitivity=1) for _ in range(20)}) > 10
    assert laplace_mechanism(1.5, 1.0, 1.0, rng=seeded(5)) == laplace_mechanism(1.5, 1.0, 1.0, rng=seeded(5))


@pytest.mark.parametrize("shape", [(5,), (2, 3), (500,)])
def test_every_entry_gets_its_own_draw(shape):
    out = laplace_mechanism(np.zeros(shape), 1.0, 1.0, rng=seeded())
    assert len(set(out.ravel().tolist())) > 0.99 * out.size
    pairs = laplace_mechanism(np.zeros((N, 2)), 1.0, 1.0, rng=seeded(1))
    whole = discrete_laplace_mechanism(np.zeros((N, 2), dtype=int), epsilon=0.1, sensitivity=1, rng=seeded(2))
    for draws in (pairs, whole):
        assert abs(np.corrcoef(draws.T)[0, 1]) < 5 / math.sqrt(N)
        assert abs(np.corrcoef(draws[:-1, 0], draws[1:, 0])[0, 1]) < 5 / math.sqrt(N)


def draw(epsilon, sensitivity, seed, count=N):
    return laplace_mechanism(np.full(count, 20.25), epsilon, sensitivity, rng=seeded(seed)) - 20.25


def test_the_release_is_the_exact_noise_at_the_exact_scale():
    value = np.linspace(-5, 5, 100)
    scale = laplace_scale(epsilon=0.3, sensitivity=0.7)
    expected = noise.add_laplace(value, scale=scale, rng=seeded(3))
    assert np.array_equal(laplace_mechanism(value, 0.3, 0.7, rng=seeded(3)), expected)


@pytest.mark.parametrize(("epsilon", "sensitivity"), [(1.0, 1.0), (0.1, 3.0), (7.0, 0.02)])
def test_the_noise_has_the_right_size(epsilon, sensitivity):
    sample, scale = draw(epsilon, sensitivity, 11), sensitivity / epsilon
    # the standard deviation is sqrt(2) b; a sample variance of Laplace noise has relative standard error sqrt(5 / n)
    assert abs(np.mean(sample**2) / (2 * scale**2) - 1) < 5 * math.sqrt(5 / N)
    assert abs(np.mean(sample)) < 5 * scale * math.sqrt(2 / N)
    assert stats.kstest(sample, stats.laplace(scale=scale).cdf).pvalue > SURELY_WRONG
    for wrong in (0.9 * scale, 1.1 * scale, math.sqrt(scale) * 0.8):  # the test has the power to see a wrong scale
        assert stats.kstest(sample, stats.laplace(scale=wrong).cdf).pvalue < SURELY_WRONG


def test_single_releases_have_the_same_law_as_arrays():
    rng = seeded(12)
    sample = [laplace_mechanism(0.3, 2.0, 1.0, rng=rng) - 0.3 for _ in range(10_000)]
    assert stats.kstest(sample, stats.laplace(scale=0.5).cdf).pvalue > SURELY_WRONG
    assert stats.kstest(sample, stats.laplace(scale=0.42).cdf).pvalue < SURELY_WRONG


def chi_square(sample, scale):
    edge = discrete_laplace_error(scale=scale, alpha=0.002)
    k = np.arange(-edge, edge + 1)
    counts = np.array([np.sum(sample == at) for at in k], dtype=float)
    law = discrete_laplace_pmf(k, scale=scale)
    counts, law = np.append(counts, len(sample) - counts.sum()), np.append(law, 1 - law.sum())
    return stats.chisquare(counts, law * len(sample)).pvalue


@pytest.mark.parametrize(("epsilon", "sensitivity"), [(1.0, 1), (0.5, 3), (2.0, 1)])
def test_the_discrete_noise_has_the_exact_law(epsilon, sensitivity):
    scale = sensitivity / epsilon
    sample = discrete_laplace_mechanism(np.full(N, 41), epsilon=epsilon, sensitivity=sensitivity, rng=seeded(21)) - 41
    assert chi_square(sample, scale) > SURELY_WRONG
    assert chi_square(sample, 0.9 * scale) < SURELY_WRONG
    if scale <= 1:  # a rounded Laplace draw is another distribution, as one can see while the scale is small
        assert chi_square(np.rint(seeded(22).laplace(0.0, scale, N)), scale) < SURELY_WRONG


def test_single_discrete_releases_have_the_exact_law():
    rng = seeded(23)
    sample = [discrete_laplace_mechanism(41, epsilon=1.0, sensitivity=1, rng=rng) - 41 for _ in range(10_000)]
    assert chi_square(np.array(sample), 1.0) > SURELY_WRONG
    assert chi_square(np.array(sample), 0.85) < SURELY_WRONG


def exceeds(epsilon, zero, one):
    """Say whether the histograms of releases on two neighbours show a likelihood ratio above exp(epsilon)."""
    found = False
    for k in range(-6, 8):
        a, b = np.sum(zero == k), np.sum(one == k)
        if min(a, b) >= 50:
            found |= abs(math.log(a / b)) > epsilon + 5 * math.sqrt(1 / a + 1 / b)
    return found


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_neighbours_look_alike_up_to_exp_epsilon(epsilon):
    zero, one = (
        discrete_laplace_mechanism(np.full(2 * N, v), epsilon=epsilon, sensitivity=1, rng=seeded(30 + v))
        for v in (0, 1)
    )
    assert not exceeds(epsilon, zero, one)
    assert exceeds(0.8 * epsilon, zero, one)  # and no stronger claim would survive


def test_more_epsilon_is_less_error_in_proportion():
    errors = [np.abs(draw(epsilon, 1.0, 40 + i)).mean() for i, epsilon in enumerate((1.0, 30.0))]
    assert errors[0] / errors[1] == pytest.approx(30, rel=0.1)


@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_intervals_cover_as_often_as_they_say(alpha):
    scale = laplace_scale(epsilon=0.5, sensitivity=2.0)
    release = laplace_mechanism(np.full(N, 20.25), 0.5, 2.0, rng=seeded(50))
    low, high = laplace_interval(release, scale=scale, alpha=alpha)
    inside = int(np.sum((low <= 20.25) & (high >= 20.25)))
    assert stats.binomtest(inside, N, 1 - alpha).pvalue > SURELY_WRONG
    assert stats.binomtest(inside, N, 1 - 1.1 * alpha).pvalue < SURELY_WRONG


@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_discrete_intervals_cover_at_least_as_often_as_they_say(alpha):
    scale = laplace_scale(epsilon=0.5, sensitivity=2.0)
    release = discrete_laplace_mechanism(np.full(N, 41), epsilon=0.5, sensitivity=2, rng=seeded(51))
    low, high = discrete_laplace_interval(release, scale=scale, alpha=alpha)
    inside = int(np.sum((low <= 41) & (high >= 41)))
    assert stats.binomtest(inside, N, 1 - alpha, alternative="less").pvalue > SURELY_WRONG
    assert np.mean((low + 1 <= 41) & (high - 1 >= 41)) < 1 - alpha  # one less on each side is not enough


def test_the_naive_version_says_that_it_is_not_private():
    assert "NOT private" in naive_laplace_mechanism.__doc__
    assert not any(name.startswith("naive") for name in dpbook.__all__)
    sample = naive_laplace_mechanism(np.zeros(N), 2.0, 1.0, seeded())
    assert stats.kstest(sample, stats.laplace(scale=0.5).cdf).pvalue > SURELY_WRONG
    assert np.shape(naive_laplace_mechanism(1.0, 2.0, 1.0, seeded())) == ()
