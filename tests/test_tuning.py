"""Choosing parameters: inverses, minima, and simulation at fixed seeds."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbook import gaussian, laplace, tuning

DELTA = 1e-6


def achieved(kind, epsilon, sensitivity, alpha):
    if kind == "gaussian":
        sigma = gaussian.gaussian_sigma(epsilon=epsilon, delta=DELTA, sensitivity=sensitivity)
        return gaussian.gaussian_error(sigma=sigma, alpha=alpha)
    scale = laplace.laplace_scale(epsilon=epsilon, sensitivity=sensitivity)
    return (laplace.laplace_error if kind == "laplace" else laplace.discrete_laplace_error)(scale=scale, alpha=alpha)


@pytest.mark.parametrize("kind", tuning.MECHANISMS)
@pytest.mark.parametrize("error", [1, 3.5, 10, 200])
@pytest.mark.parametrize("alpha", [0.5, 0.05, 1e-6])
@pytest.mark.parametrize("sensitivity", [1, 7])
def test_epsilon_for_error(kind, error, alpha, sensitivity):
    delta = DELTA if kind == "gaussian" else None
    eps = tuning.epsilon_for_error(error=error, alpha=alpha, sensitivity=sensitivity, mechanism=kind, delta=delta)
    assert achieved(kind, eps, sensitivity, alpha) <= error * (1 + 1e-14)  # two roundings of the quantile
    assert achieved(kind, eps * 0.99, sensitivity, alpha) > error


@pytest.mark.parametrize("kind", tuning.MECHANISMS)
def test_error_curve(kind):
    delta = DELTA if kind == "gaussian" else None
    eps, size = np.array([[0.1], [0.5], [2.0]]), np.array([8.0, 4.0, 2.0, 1.0])
    curve = tuning.error_curve(epsilon=eps, sensitivity=size, alpha=0.05, mechanism=kind, delta=delta)
    assert curve.shape == (3, 4)
    assert curve.tolist() == [[achieved(kind, float(e), float(k), 0.05) for k in size] for e in eps[:, 0]]
    strict = np.less if kind != "discrete_laplace" else np.less_equal
    assert strict(curve[1:], curve[:-1]).all()
    assert strict(curve[:, 1:], curve[:, :-1]).all()
    assert tuning.error_curve(epsilon=1, sensitivity=1, alpha=0.05, mechanism=kind, delta=delta).shape == ()


def test_error_curve_of_discrete_noise_is_float():
    curve = tuning.error_curve(epsilon=[1.0, 2.0], sensitivity=1, alpha=0.05, mechanism="discrete_laplace")
    assert curve.dtype == np.float64


@pytest.mark.parametrize("kind", tuning.MECHANISMS)
@pytest.mark.parametrize("sensitivity", [0, 0.0, -1.0, [1.0, 0.0], np.array([[2, 0]])])
def test_error_curve_refuses_sensitivity_zero(kind, sensitivity):
    delta = DELTA if kind == "gaussian" else None
    with pytest.raises(ValueError, match=r"^sensitivity must"):
        tuning.error_curve(epsilon=1.0, sensitivity=sensitivity, alpha=0.05, mechanism=kind, delta=delta)


@pytest.mark.parametrize("sensitivity", [0.5, [1, 1.5], 2.0**53 + 2])
def test_error_curve_of_discrete_noise_takes_whole_sensitivities(sensitivity):
    with pytest.raises(ValueError, match=r"^sensitivity must be (a whole number|at most)"):
        tuning.error_curve(epsilon=1.0, sensitivity=sensitivity, alpha=0.05, mechanism="discrete_laplace")


def test_error_curve_over_people():
    n = np.array([10, 100, 1000])
    curve = tuning.error_curve(epsilon=0.5, sensitivity=80 / n, alpha=0.1)
    assert np.allclose(curve, 80 / n / 0.5 * math.log(10), rtol=1e-12)


def test_clipping_bound_is_the_minimum():
    sample = np.random.default_rng(1).lognormal(3, 1, 2000)
    before = sample.copy()
    sample.flags.writeable = False
    choice = tuning.clipping_bound(sample, n=400, epsilon=0.5)
    assert (sample == before).all()
    assert choice.error == choice.total.min() == choice.total[choice.candidates == choice.bound]
    expected = [sample.mean() - np.minimum(sample, u).mean() for u in choice.candidates]
    assert np.allclose(choice.bias, expected)
    assert np.allclose(choice.noise, math.sqrt(2) * choice.candidates / (400 * 0.5))
    assert len(repr(choice)) < 120
    assert "bound=" in repr(choice)
    with pytest.raises(dataclasses.FrozenInstanceError):
        choice.bound = 3.0


def test_clipping_error_in_simulation():
    rng = np.random.default_rng(5)
    sample = rng.lognormal(3, 1, 500)
    choice = tuning.clipping_bound(sample, n=500, epsilon=0.3)
    noise = rng.laplace(0, choice.bound / (500 * 0.3), 200_000)
    square = (np.minimum(sample, choice.bound).mean() + noise - sample.mean()) ** 2
    assert abs(square.mean() - choice.error**2) < 5 * square.std() / math.sqrt(len(square))


def test_clipping_bound_candidates():
    choice = tuning.clipping_bound([1, 2, 3, math.nan, None, 50], n=100, epsilon=1, candidates=[40, 2, 2, 10], lower=1)
    assert choice.candidates.tolist() == [2, 10, 40]
    for bad in ([1, 5], [], [math.nan]):
        with pytest.raises(ValueError, match="candidates"):
            tuning.clipping_bound([1, 2], n=10, epsilon=1, lower=1, candidates=bad)
    with pytest.raises(ValueError, match="public_sample"):
        tuning.clipping_bound([-1, 0], n=10, epsilon=1)


@given(st.floats(1e-6, 100), st.floats(1e-3, 1e6), st.floats(-1e6, 1e6))
def test_split_never_exceeds_the_budget(epsilon, size, mean):
    parts = tuning.split_budget(epsilon=epsilon, sum_sensitivity=size, expected_mean=mean)
    assert min(parts) > 0
    assert sum(map(Fraction, parts)) <= Fraction(epsilon)
    assert sum(parts) == pytest.approx(epsilon, rel=1e-12)


@pytest.mark.parametrize(("size", "mean"), [(100, 40), (1, 1), (10, -30)])
def test_split_is_the_minimum(size, mean):
    eps = tuning.split_budget(epsilon=2.0, sum_sensitivity=size, expected_mean=mean)

    def variance(first, second):
        return (size / first) ** 2 + (mean / second) ** 2

    grid = np.linspace(0.02, 1.98, 2001)
    assert variance(*eps) <= variance(grid, 2.0 - grid).min() * (1 + 1e-12)
    # A large N, so that the first-order variance of the ratio is the whole of it.
    rng, people, draws = np.random.default_rng(9), 100_000, 200_000
    ratio = (people * mean + rng.laplace(0, size / eps[0], draws)) / (people + rng.laplace(0, 1 / eps[1], draws))
    square = (ratio - mean) ** 2
    expected = 2 * variance(*eps) / people**2
    assert abs(square.mean() - expected) < 5 * square.std() / math.sqrt(draws) + 1e-6 * expected


def test_split_for_mean_zero():
    first, second = tuning.split_budget(epsilon=1.0, sum_sensitivity=5, expected_mean=0)
    assert (first, second) == (0.99, 0.01)


CALLS = {
    "epsilon_for_error": (tuning.epsilon_for_error, {"error": 1.0, "alpha": 0.05, "sensitivity": 1}),
    "error_curve": (tuning.error_curve, {"epsilon": 1.0, "sensitivity": 1.0, "alpha": 0.05}),
    "clipping_bound": (lambda **k: tuning.clipping_bound([1, 2], **k), {"n": 10, "epsilon": 1.0}),
    "split_budget": (tuning.split_budget, {"epsilon": 1.0, "sum_sensitivity": 1.0}),
}
CALLS["split_budget"][1]["expected_mean"] = 1.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0, -1, True, "1", None, 1j], ids=repr)
@pytest.mark.parametrize(
    ("name", "parameter"), [(c, p) for c, (_, kw) in CALLS.items() for p in kw if p != "expected_mean"]
)
def test_wrong_parameter(name, parameter, bad):
    function, good = CALLS[name]
    with pytest.raises((TypeError, ValueError), match=parameter):
        function(**good | {parameter: bad})


@pytest.mark.parametrize("bad", [math.nan, math.inf, "1", None])
@pytest.mark.parametrize("name", ["expected_mean", "lower"])
def test_wrong_scalar_is_named(name, bad):
    function, good = CALLS["split_budget" if name == "expected_mean" else "clipping_bound"]
    with pytest.raises((TypeError, ValueError), match=name):
        function(**good | {name: bad})


@pytest.mark.parametrize("name", ["epsilon_for_error", "error_curve"])
def test_delta_belongs_to_gaussian(name):
    function, good = CALLS[name]
    for kind in ("laplace", "discrete_laplace"):
        with pytest.raises(ValueError, match="delta"):
            function(**good, mechanism=kind, delta=DELTA)
    for bad in (None, 0, 1, math.nan, "1"):
        with pytest.raises((TypeError, ValueError), match="delta"):
            function(**good, mechanism="gaussian", delta=bad)
    with pytest.raises(ValueError, match="mechanism"):
        function(**good, mechanism="cauchy")
