"""Output and objective perturbation: the sensitivity, the proof's formula, the solver's error, and audits."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats

from dpbook import audit, gaussian, noise, perturbation

RELATIONS = pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
BASIS = {"classes": [0, 1], "l2": 2.0, "epsilon": 1.0, "delta": 1e-5, "neighbors": "add_remove"}


def seeded(seed=0):
    return np.random.default_rng(seed)  # seeded: for tests, not private


def people(n=200, columns=3, seed=1):
    X = seeded(seed).uniform(-1, 1, (n, columns)) / math.sqrt(columns)
    return X, (X[:, 0] > 0.1).astype(int)


def gradient_with_50_digits(X, signs, w, l2, b):
    with mpmath.workdps(50):
        total = [mpmath.mpf(l2) * mpmath.mpf(x) + mpmath.mpf(c) for x, c in zip(w, b, strict=True)]
        for row, sign in zip(X.tolist(), signs.tolist(), strict=True):
            margin = sign * mpmath.fsum(mpmath.mpf(x) * mpmath.mpf(v) for x, v in zip(row, w, strict=True))
            for j, x in enumerate(row):
                total[j] -= sign * mpmath.mpf(x) / (1 + mpmath.exp(margin))
        return float(mpmath.sqrt(mpmath.fsum(x * x for x in total)))


@pytest.mark.parametrize("l2", [1e-3, 0.1, 1.0, 100.0])
@pytest.mark.parametrize("noisy", [0.0, 5.0])
def test_the_solver_stops_where_the_true_gradient_is_small(l2, noisy):
    """Computed anew with 50 digits; the distance to the minimiser is then at most the tolerance over l2."""
    X, y = people(300)
    rows, signs = perturbation._signed(X, y, {0: 0, 1: 1}, True)
    b = noisy * seeded(2).standard_normal(4)
    for tolerance in (1e-3, 1e-6):
        w = perturbation._minimiser(rows * signs[:, None], l2, b, tolerance, True)
        assert gradient_with_50_digits(rows, signs, w, l2, b) <= tolerance
        best = perturbation._minimiser(rows * signs[:, None], l2, b, 1e-7, True)
        assert np.linalg.norm(w - best) <= (tolerance + 1e-7) / l2


def test_the_solver_ends_where_a_loss_is_almost_all_corners(monkeypatch):
    """With hardly any regularisation the minimum is a million away: halved Newton steps alone never got there."""
    calls, gradient = [], perturbation._gradient

    def counted(*given):
        calls.append(1)
        assert len(calls) < 1000
        return gradient(*given)

    monkeypatch.setattr(perturbation, "_gradient", counted)
    X, y = people(300, 5)
    rows, signs = perturbation._signed(X, y, {0: 0, 1: 1}, True)
    for seed in (9, 15, 26, 40, 83, 100, 122):
        b = 2.0 * seeded(seed).standard_normal(6)
        for l2 in (1e-6, 1e-5, 1e-3):
            calls.clear()
            w = perturbation._minimiser(rows * signs[:, None], l2, b, 2.0**-16, True)
            assert np.linalg.norm(gradient(rows * signs[:, None], w, l2, b)[0]) <= 2.0**-16


def test_the_bound_on_rounding_holds_with_room():
    X, y = people(2000, 20)
    rows, signs = perturbation._signed(X, y, {0: 0, 1: 1}, True)
    for size in (0.1, 3.0, 30.0):
        w, b = size * seeded(3).standard_normal(21), seeded(4).standard_normal(21)
        computed = perturbation._gradient(rows * signs[:, None], w, 0.5, b)[0]
        with mpmath.workdps(40):
            off = abs(float(np.linalg.norm(computed)) - gradient_with_50_digits(rows, signs, w, 0.5, b))
        bound = perturbation._rounding(2000, 21, math.sqrt(2), 0.5, float(np.linalg.norm(w)), float(np.linalg.norm(b)))
        assert off <= bound / 4


@RELATIONS
@pytest.mark.parametrize("intercept", [True, False])
def test_neighbours_move_the_solution_by_the_sensitivity_at_most(relation, intercept):
    """And the bound is nearly reached, by a record far on the wrong side of strongly regularised data."""
    X, y = people(40)
    table, l2 = {0: 0, 1: 1}, 30.0
    bound = perturbation.output_sensitivity(l2=l2, neighbors=relation, fit_intercept=intercept)
    radius, m = math.sqrt(2 if intercept else 1), 1 if relation == "add_remove" else 2
    assert m * radius / l2 < bound < m * radius / l2 * 1.003
    tolerance = perturbation.TOLERANCE["output"] * radius * 0.999999
    found = []

    def solve(X, y):
        rows, signs = perturbation._signed(X, y, table, intercept)
        return perturbation._minimiser(rows * signs[:, None], l2, np.zeros(rows.shape[1]), tolerance, intercept)

    for seed in range(30):
        rng = seeded(seed)
        extra = rng.standard_normal((2, 3)) * 10
        first = np.r_[X, extra[:1]], np.r_[y, rng.integers(2)]
        second = (X, y) if relation == "add_remove" else (np.r_[X, extra[1:]], np.r_[y, rng.integers(2)])
        found.append(np.linalg.norm(solve(*first) - solve(*second)))
    assert max(found) <= bound
    assert max(found) > bound / 5


def test_sensitivity_is_reached_in_the_limit():
    """A single record against none, with strong regularisation: |w*| = R s(w)/l2, and s(0) = 1/2; with z'w -> -∞, 1."""
    l2 = 1000.0
    rows, signs = perturbation._signed([[1.0]], [1], {0: 0, 1: 1}, False)
    w = perturbation._minimiser(rows * signs[:, None], l2, np.zeros(1), 1e-9, False)
    assert w[0] == pytest.approx(0.5 / l2, rel=1e-3)


@RELATIONS
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-5), (8.0, 1e-9), (1.0, 0.3)])
def test_the_sigma_of_the_objective_meets_its_condition_and_no_more(relation, intercept, epsilon, delta):
    l2 = 20.0
    sigma = perturbation.objective_sigma(
        l2=l2, epsilon=epsilon, delta=delta, neighbors=relation, fit_intercept=intercept
    )
    m, square = (1 if relation == "add_remove" else 2), (2 if intercept else 1)
    with mpmath.workdps(60):

        def failure(s):
            c = m * mpmath.sqrt(square) / mpmath.mpf(s)
            t = (epsilon - mpmath.log(1 + mpmath.mpf(square) / (4 * l2)) - c * c / 2) / c
            return 2 * m * mpmath.ncdf(-t)

        assert failure(sigma) <= delta
        assert failure(sigma * (1 - 1e-9)) > delta
    # Not below the noise that the gradient of one record alone would need.
    assert sigma > gaussian.gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=m * math.sqrt(square)) * 0.99


def test_the_privacy_loss_of_the_objective_is_bounded_in_one_dimension():
    """Exact densities of the minimiser, integrated: δ(ε) is at most the promised δ, for many pairs of neighbours."""
    l2, epsilon, delta = 5.0, 1.0, 0.01
    sigma = perturbation.objective_sigma(
        l2=l2, epsilon=epsilon, delta=delta, neighbors="add_remove", fit_intercept=False
    )
    w = np.linspace(-30, 30, 600_001)

    def density(z):
        s = 1 / (1 + np.exp(np.outer(z, w)))
        b = (np.asarray(z)[:, None] * s).sum(axis=0) - l2 * w
        curvature = (np.asarray(z)[:, None] ** 2 * s * (1 - s)).sum(axis=0) + l2
        return stats.norm.pdf(b, 0, sigma) * curvature

    seen = []
    for others in ([], [1.0], [1.0, -1.0, 0.3], [-1.0] * 10, [1.0] * 30):
        for record in (1.0, -1.0, 0.4):
            p, q = density([*others, record]), density([*others, 0.0])
            assert p.sum() * (w[1] - w[0]) == pytest.approx(1.0, abs=1e-6)
            for a, b in ((p, q), (q, p)):
                seen.append(float(np.maximum(a - math.exp(epsilon) * b, 0).sum() * (w[1] - w[0])))
    assert max(seen) <= delta
    assert max(seen) > delta / 100  # it is not vacuous


def test_too_little_regularisation_is_refused():
    for epsilon, l2 in ((0.1, 2.0), (1.0, 0.1)):
        with pytest.raises(ValueError, match="l2 must be large enough"):
            perturbation.objective_sigma(l2=l2, epsilon=epsilon, delta=1e-5, neighbors="add_remove")
    with pytest.raises(ValueError, match="l2 must be between"):
        perturbation.output_perturbation([[1.0]], [1], **{**BASIS, "l2": 1e-9})
    with pytest.raises(ValueError, match="l2 must be larger, or most_rows smaller"):
        perturbation.objective_perturbation(*people(50_000), **{**BASIS, "l2": 1e-6, "epsilon": 20.0})


def test_a_refusal_does_not_depend_on_the_number_of_rows_unless_that_is_public():
    """Under add/remove, an error that comes with one row more would tell that the row is there."""
    terms, seen = {**BASIS, "epsilon": 20.0}, {}
    for relation in ("add_remove", "replace_one"):
        for n in (0, 1, 300, 20_000):
            for l2 in (1e-6, 1e-4, 1.0, 1e12):
                try:
                    perturbation.objective_perturbation(
                        *people(n, 5), **{**terms, "l2": l2, "neighbors": relation}, rng=seeded()
                    )
                    seen.setdefault((relation, l2), set()).add("")
                except ValueError as error:
                    seen.setdefault((relation, l2), set()).add(str(error))
    assert all(len(messages) == 1 for (relation, _), messages in seen.items() if relation == "add_remove")
    assert len(seen["replace_one", 1e-6]) == 2  # there n is public
    assert seen["add_remove", 1e12] == seen["add_remove", 1.0] == {""}
    few = perturbation.objective_perturbation(*people(100, 5), **{**terms, "l2": 1e-4, "most_rows": 100}, rng=seeded())
    assert np.isfinite(few.coef).all()
    with pytest.raises(ValueError, match="X must have at most most_rows=100 rows"):
        perturbation.output_perturbation(*people(101), **BASIS, most_rows=100)
    with pytest.raises(ValueError, match=r"most_rows must be at most 2\*\*20"):
        perturbation.output_perturbation(*people(1), **BASIS, most_rows=2**20 + 1)


def test_the_solvers_error_is_paid_for():
    fit = perturbation.objective_perturbation(*people(), **BASIS, rng=seeded())
    whole = perturbation.objective_sigma(l2=2.0, epsilon=1.0, delta=1e-5, neighbors="add_remove")
    assert fit.sigma > whole  # from a smaller share of ε and δ
    share = perturbation.objective_sigma(l2=2.0, epsilon=0.95, delta=0.95e-5, neighbors="add_remove")
    assert share * (1 - 1e-12) <= fit.sigma <= share * (1 + 1e-12)
    off = perturbation.TOLERANCE["objective"] * math.sqrt(2) * (1 - 1e-6)
    off += math.sqrt(4) * noise.grid_step(scale=fit.sigma) / 2
    least = gaussian.gaussian_sigma(epsilon=0.05, delta=5e-7, sensitivity=2 * off / 2.0)
    assert fit.last_sigma >= least * (1 - 1e-9)
    assert fit.last_sigma < fit.sigma / 100


@pytest.mark.parametrize("intercept", [True, False])
def test_what_is_released_is_noise_on_every_entry(monkeypatch, intercept):
    """The minimiser itself never leaves: the last noise is drawn for it, and its grid shows in what is released."""
    calls, add = [], noise.add_gaussian

    def recorded(x, *, sigma, rng):
        calls.append((len(x), sigma))
        return add(x, sigma=sigma, rng=rng)

    monkeypatch.setattr(noise, "add_gaussian", recorded)
    terms = {**BASIS, "fit_intercept": intercept}
    for method in (perturbation.output_perturbation, perturbation.objective_perturbation):
        calls.clear()
        fit = method(*people(), **terms, rng=seeded())
        last = fit.last_sigma or fit.sigma
        assert calls == [(3 + intercept, fit.sigma), (3 + intercept, last)][-2 if fit.last_sigma else -1 :]
        for value in [*fit.coef.tolist(), fit.intercept]:
            assert (Fraction(value) / Fraction(noise.grid_step(scale=last))).denominator == 1


def test_the_noise_is_that_of_the_sensitivity():
    """Strong regularisation and no data: what is left is noise, Gaussian or Laplace."""
    X = np.zeros((0, 500))
    size = perturbation.output_sensitivity(l2=1000.0, neighbors="add_remove")
    coefs, wide = [], []
    for seed in range(20):
        fit = perturbation.output_perturbation(X, [], **{**BASIS, "l2": 1000.0}, rng=seeded(seed))
        coefs.append(fit.coef)
        pure = perturbation.output_perturbation(X, [], **{**BASIS, "l2": 1000.0, "delta": None}, rng=seeded(seed))
        wide.append(pure.coef)
    sigma = gaussian.gaussian_sigma(epsilon=1.0, delta=1e-5, sensitivity=size)
    assert stats.kstest(np.ravel(coefs), stats.norm(scale=sigma).cdf).pvalue > 1e-6
    assert stats.kstest(np.ravel(coefs), stats.norm(scale=sigma * 0.9).cdf).pvalue < 1e-6
    scale = math.sqrt(501) * size
    assert stats.kstest(np.ravel(wide), stats.laplace(scale=scale).cdf).pvalue > 1e-6
    assert stats.kstest(np.ravel(wide), stats.laplace(scale=scale * 0.9).cdf).pvalue < 1e-6


def test_without_noise_it_is_scikit_learns_solution():
    linear_model = pytest.importorskip("sklearn.linear_model")
    X, y = people(500)
    rows, signs = perturbation._signed(X, y, {0: 0, 1: 1}, False)
    for l2 in (0.1, 1.0, 10.0):
        w = perturbation._minimiser(rows * signs[:, None], l2, np.zeros(3), 1e-9, False)
        reference = linear_model.LogisticRegression(C=1 / l2, fit_intercept=False, tol=1e-12, max_iter=10_000)
        assert w == pytest.approx(reference.fit(rows, y).coef_[0], abs=1e-5)


def test_both_methods_learn_and_the_objective_is_better():
    X, y = people(4000, 2)
    errors = {"output": [], "objective": []}
    for seed in range(5):
        for name in errors:
            method = getattr(perturbation, f"{name}_perturbation")
            fit = method(X, y, **{**BASIS, "l2": 2.0}, rng=seeded(seed))
            errors[name].append(1 - fit.score(X, y))
            assert fit.predict_proba(X).sum(axis=1) == pytest.approx(np.ones(4000))
            assert (fit.predict(X) == (fit.predict_proba(X)[:, 1] > 0.5)).all()
    assert np.mean(errors["objective"]) < 0.06
    assert np.mean(errors["objective"]) <= np.mean(errors["output"])


def test_bad_records_count_as_nothing():
    X, y = people(50)
    for method in (perturbation.output_perturbation, perturbation.objective_perturbation):
        without = method(X, y, **BASIS, rng=seeded())
        for row, label in (([np.nan, 0, 0], 1), ([np.inf, 0, 0], 0), ([1.0, 0, 0], 7), ([1.0, 0, 0], None)):
            spoilt = method(np.r_[X, [row]], [*y.tolist(), label], **BASIS, rng=seeded())
            assert spoilt.coef == pytest.approx(without.coef, abs=1e-2 / 2.0)
            assert np.isfinite(spoilt.coef).all()
    assert np.isfinite(perturbation.objective_perturbation(np.zeros((0, 2)), [], **BASIS).coef).all()


FAULTS = {"": 1.0, "a tenth of the noise": 0.1}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("method", ["output", "objective"])
def test_an_audit_catches_too_little_noise(monkeypatch, method, fault):
    """One record against none, in one dimension, without an intercept, at a large δ so that few draws tell."""
    terms = {**BASIS, "l2": 4.0, "epsilon": 0.5, "delta": 0.05, "fit_intercept": False}
    add = noise.add_gaussian
    monkeypatch.setattr(noise, "add_gaussian", lambda x, *, sigma, rng: add(x, sigma=sigma * FAULTS[fault], rng=rng))
    rng = seeded(8)
    run = getattr(perturbation, f"{method}_perturbation")
    one, other = ([[1.0]], [1]), ([[1.0]], [0])

    def release(data, count):
        return np.array([run(*data, **terms, rng=rng).coef[0] for _ in range(count)])

    terms["neighbors"] = "replace_one"
    found = audit.audit(release, one, other, epsilon=0.5, delta=0.05, draws=1200, vectorized=True, alpha=0.001)
    assert found.violated == bool(fault), found


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="X and y must be of one length"):
        perturbation.output_perturbation([[1.0]], [0, 1], **BASIS)
    with pytest.raises(ValueError, match="classes must be two"):
        perturbation.output_perturbation([[1.0]], [0], **{**BASIS, "classes": [0, 1, 2]})


def test_sensitivities_are_rounded_up():
    for l2 in (0.3, 7.0, 1e5):
        found = perturbation.output_sensitivity(l2=l2, neighbors="replace_one", fit_intercept=False)
        assert Fraction(found) >= (2 + 2 * Fraction(1, 1024)) / Fraction(l2)
