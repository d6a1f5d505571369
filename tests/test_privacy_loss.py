"""Composition: bounds against closed forms, and each term for errors against an error of the size that it allows."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import fft

from dpbook import gaussian, privacy_loss
from dpbook.privacy_loss import EPS, Atoms, Composed, Grid, Mixture, PrivacyLoss

SET = settings(derandomize=True, database=None, deadline=None, max_examples=25)
MP = mpmath.MPContext()
MP.dps = 40


def direct(noise, sigma, q, direction, steps=1):
    return PrivacyLoss((Mixture(noise, sigma, q, direction),), (steps,))


def by_hand(losses, masses, step, **fields):
    """A grid without errors, but for those that are given."""
    places = np.round((np.array(losses) - losses[0]) / step).astype(np.int64)
    mass, nothing = np.array(masses), np.zeros(len(masses))
    errors = {"upper": mass, "lower": mass, "error": nothing, "curve_error": nothing, "shift": 0.0}
    return Grid(losses[0], step, places, upper_infinite=0.0, lower_infinite=0.0, **(errors | fields))


# --- closed forms ----------------------------------------------------------------------------------------------------


# dp_accounting's tests of its privacy-loss mechanisms (7 digits); the further digits from mpmath.
ONE_STEP = [
    ("gaussian", 1.0, 0.8, "remove", 1.0, 0.0816951786585355),
    ("gaussian", 1.0, 0.8, "add", 1.0, 0.0231362104090899),
    ("gaussian", 1.0, 0.3, "remove", 2.0, 0.0003341102928869332),
    ("gaussian", 2.0, 0.8, "replace", 1.0, 0.05808665654484252),
    ("laplace", 0.5, 1.0, "remove", 0.5, 0.52763345),
    ("laplace", 1.0, 1.0, "remove", 0.0, 0.39346934),
    ("laplace", 1.0, 0.6, "add", 0.2, 0.1401134521354217),
    ("laplace", 1.0, 0.6, "remove", 0.2, 0.1741992102060086),
]


@pytest.mark.parametrize(("noise", "sigma", "q", "direction", "epsilon", "delta"), ONE_STEP)
def test_one_step(noise, sigma, q, direction, epsilon, delta):
    lower, upper = direct(noise, sigma, q, direction).delta(epsilon, 1e-6)
    assert lower - 6e-9 <= delta <= upper + 6e-9  # half a unit of the last digit that is published
    assert upper - lower <= 2e-6 * delta


# Parameters at which a bound was once on the wrong side; δ from the formulas of `exact_curve` with 60 digits.
AT_THE_LIMITS = [
    # Cells so narrow that their mass, less z times that of Q, is all rounding: what is cut at 0 adds up.
    ("laplace", 33312.47465346838, 2.9298110044657264e-07, "add", 3.433072875810572e-23, 4.39743526666806e-12),
    ("laplace", 33312.47465346838, 2.9298110044657264e-07, "remove", 3.433072875810572e-23, 4.39743526666806e-12),
    # For q near 1 the terms of the Rényi divergence lie far to the right of P.
    ("gaussian", 1.0, 0.999999999999999, "add", 20.0, 2.6646800954996191e-86),
    ("gaussian", 1.0, 0.9999999999999, "add", 28.0, 3.4926615042460535e-170),
    # The mass of Q underflows, its product with exp(ε) does not.
    ("gaussian", 0.35830840672130454, 0.999991478110928, "remove", 107.0886849792606625, 1e-300),
    ("gaussian", 0.35830840672130454, 0.999991478110928, "remove", 103.5573468319027863, 1e-280),
]


@pytest.mark.parametrize(("noise", "sigma", "q", "direction", "epsilon", "delta"), AT_THE_LIMITS)
def test_bounds_at_the_limits_of_float64(noise, sigma, q, direction, epsilon, delta):
    loss = direct(noise, sigma, q, direction)
    lower, upper = loss.delta(epsilon, 1e-4)
    assert lower <= delta * (1 + 1e-12)
    assert upper >= delta * (1 - 1e-12)
    low, high = loss.epsilon(delta, 1e-4)
    assert low <= epsilon + 1e-9
    assert high >= epsilon * (1 - 1e-12)


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_losses_that_all_are_above_the_largest_one(direction):
    """At σ = 0.02 the loss is 1250, give or take 50: the upper bound knows nothing, and nothing warns."""
    loss = direct("gaussian", 0.02, 1.0, direction, 9)
    lower, upper = loss.delta(3.0)
    assert 0.9 < lower <= 1.0 == upper
    low, high = loss.epsilon(1e-6)
    assert 9 * 590 < low <= 9 * 601
    assert high == math.inf


def test_no_loss_beyond_the_largest_one():
    lower, upper = direct("gaussian", 1.0, 0.3, "add").delta(2.0)
    assert (lower, upper) == (0.0, 0.0)


@pytest.mark.parametrize("delta", [0.3, 1e-2, 1e-8, 1e-20, 1e-100, 1e-250])
def test_gaussian_steps_at_any_delta(delta):
    exact = gaussian.gaussian_epsilon(sigma=1.0, sensitivity=1.0, delta=delta)
    lower, upper = direct("gaussian", 5.0, 1.0, "remove", 25).epsilon(delta)
    assert lower <= exact <= upper
    assert upper - lower <= 2e-3 * exact


@SET
@given(st.floats(0.5, 20), st.integers(1, 200), st.floats(0.0, 6.0))
def test_gaussian_delta_random(sigma, steps, epsilon):
    exact = gaussian.gaussian_delta(sigma=sigma, sensitivity=1.0, epsilon=0.0)
    exact = float(gaussian.gaussian_delta(sigma=sigma / math.sqrt(steps), sensitivity=1.0, epsilon=epsilon))
    if exact < 1e-280:
        return
    lower, upper = direct("gaussian", sigma, 1.0, "remove", steps).delta(epsilon, 1e-2)
    assert lower <= exact * (1 + 1e-12)
    assert exact <= upper * (1 + 1e-12)


def test_replace_one_pair_dominates_every_two_records():
    """Records v and v' anywhere in the unit disc: 2-dimensional integration never passes the antipodal pair."""
    sigma, q = 1.0, 0.3
    side = np.linspace(-8, 8, 641)
    x, y = np.meshgrid(side, side)
    area = (side[1] - side[0]) ** 2

    def noise(a, b):
        return np.exp(-((x - a) ** 2 + (y - b) ** 2) / (2 * sigma**2)) / (2 * math.pi * sigma**2)

    base = noise(0, 0)
    for epsilon in (0.0, 0.2, 0.7):
        bound = direct("gaussian", sigma, q, "replace").delta(epsilon, 1e-4).upper
        reached = 0.0
        for angle in (0.4, 1.0, 2.0, 2.6, math.pi):
            for size in (0.5, 1.0):
                p = (1 - q) * base + q * noise(1, 0)
                r = (1 - q) * base + q * noise(size * math.cos(angle), size * math.sin(angle))
                reached = max(reached, area * np.maximum(p - math.exp(epsilon) * r, 0).sum())
        assert reached <= bound + 1e-6
        assert reached > 0.999 * bound  # the antipodal pair is among them


def test_atoms_off_the_grid_are_bounded_too():
    pair = Atoms((0.3, -0.1, 0.05), (0.5, 0.2, 0.3 - 1e-3), 0.001, 0.0)
    loss = PrivacyLoss((pair,), (3,))
    exact = 0.0
    items = list(zip(pair.losses, pair.masses, strict=True))
    for a, pa in items:
        for b, pb in items:
            for c, pc in items:
                exact += pa * pb * pc * max(0.0, -math.expm1(0.2 - a - b - c))
    exact += 1 - 0.999**3
    lower, upper = loss.delta(0.2, 1e-4)
    assert lower <= exact <= upper
    assert upper - lower < 2e-3


def test_a_sum_of_masses_does_not_depend_on_where_they_lie():
    """Shifted by any number of mean losses, the composed measure gives the shifted curve."""
    pair = Atoms((400.0, 399.0, 398.0), (0.5, 0.25, 0.25), 0.0, 1.0)
    lower, upper = PrivacyLoss((pair,), (3,)).delta(1195.5, 1e-4)
    masses = {400: 0.5, 399: 0.25, 398: 0.25}
    exact = sum(
        masses[a] * masses[b] * masses[c] * max(0.0, -math.expm1(1195.5 - a - b - c))
        for a in masses
        for b in masses
        for c in masses
    )
    assert lower <= exact <= upper <= exact * (1 + 1e-3)


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("above", [True, False])
def test_an_error_of_the_grid_moves_the_bound_at_least_as_far(above, steps):
    """Losses that are off by `shift` and masses off by `error` are as bad as a grid that really is like that."""
    grid = Mixture("gaussian", 1.0, 0.3, "remove").grid(0.02, 1e-14, 1e-14, False, 2.0)
    nothing = 0 * grid.error
    grid = grid._replace(error=nothing, curve_error=nothing, shift=0.0)

    def delta(changed, at):
        return float(Composed([changed], [steps], 2.0, above=above).delta(at))

    for epsilon in (0.3, 1.0, 2.5):
        moved = delta(grid._replace(shift=0.01), epsilon)
        at = epsilon - 0.01 * steps if above else epsilon + 0.01 * steps
        assert moved == pytest.approx(delta(grid, at), rel=1e-9)
        back = Composed([grid._replace(shift=0.01)], [steps], 2.0, above=above).epsilon(moved)
        assert back == pytest.approx(epsilon, rel=1e-9)
        unsure = delta(grid._replace(error=1e-3 * grid.upper), epsilon)
        if above:
            assert unsure >= delta(grid._replace(upper=grid.upper * 1.001), epsilon) * (1 - 1e-12)
        else:
            assert unsure <= delta(grid._replace(lower=grid.lower - 1e-3 * grid.upper), epsilon) * (1 + 1e-12)
        # A curve that is off by c at one point: two chords end c higher there.
        peak = int(np.searchsorted(grid.losses, epsilon))
        hat = np.zeros_like(grid.upper)
        h, c = grid.step, 1e-8
        hat[peak] = -(1 / math.expm1(h) + 1 / -math.expm1(-h)) * c
        hat[peak - 1], hat[peak + 1] = c / math.expm1(h), c / -math.expm1(-h)
        wrong = nothing.copy()
        wrong[peak] = c
        unsure = delta(grid._replace(curve_error=wrong), epsilon)
        if above:
            assert unsure >= delta(grid._replace(upper=grid.upper + hat), epsilon) * (1 - 1e-12)
        assert (unsure > delta(grid, epsilon)) == above
        assert (unsure < delta(grid, epsilon)) != above


def test_infinite_mass_of_a_composition_is_rounded_to_the_safe_side():
    rng = np.random.default_rng(8)
    for _ in range(40):
        delta, steps = float(rng.random() / 7), int(rng.integers(1, 9))
        grid = Atoms((1.0, -1.0), (0.7 * (1 - delta), 0.3 * (1 - delta)), delta).grid(0.1, 0.0, 0.0, False, 1.0)
        exact = 1 - (1 - Fraction(delta)) ** steps
        upper, lower = (Composed([grid], [steps], 1.0, above=above).infinite for above in (True, False))
        assert Fraction(lower) <= exact <= Fraction(upper)


# --- each term for errors --------------------------------------------------------------------------------------------


def test_mass_beyond_the_grid_counts_as_infinite():
    """A short grid: what lies beyond its end is lost, and without it the bound would be below the curve."""
    grid = Mixture("gaussian", 1.0, 1.0, "remove").grid(0.05, 1e-2, 1e-9, False, 1.0)
    composed = Composed([grid], [1], 2.0, above=True)
    assert composed.infinite >= grid.upper_infinite > 1e-4
    for epsilon in (float(grid.losses[-2]), 6.0):
        assert float(composed.delta(epsilon)) >= gaussian.gaussian_delta(sigma=1.0, sensitivity=1.0, epsilon=epsilon)


@pytest.mark.parametrize("above", [True, False])
@pytest.mark.parametrize("steps", [1, 2])
def test_an_fft_as_wrong_as_it_may_be(above, steps, monkeypatch):
    """The masses are changed before the transform, against the kernel, by as much as its error may be."""
    step, tilt = 1e-4, 0.5
    grid = by_hand([-2.0, 0.0, 2.0], [0.3, 0.3, 0.4], step)
    clean = Composed([grid], [steps], tilt, above=above)
    k = np.array([int(np.round((-0.5 - clean.first) / step))])
    exact = math.exp(float(clean._log_mass - tilt * clean.loss(k)[0])) * float(clean._sums(k)[0][0])
    transform = fft.rfft

    def wrong(values, *rest):
        size = len(values)
        u = step * np.arange(size) - 2.0 - (float(clean.loss(k)[0]) if steps == 1 else 0.0)
        against = np.where(u > 0, np.exp(-tilt * np.maximum(u, 0.0)) * -np.expm1(-np.maximum(u, 0.0)), 0.0)
        against /= math.sqrt(float(against @ against))
        allowed = 8 * EPS * (math.log2(size) + 1) * math.sqrt(float(values @ values))
        return transform(values - (1 if above else -1) * allowed * against, *rest)

    monkeypatch.setattr(fft, "rfft", wrong)
    composed = Composed([grid], [steps], tilt, above=above)
    bare = math.exp(float(composed._log_mass - tilt * composed.loss(k)[0])) * float(composed._sums(k)[0][0])
    bound = float(composed.bounds(k)[0])
    assert (bound >= exact) if above else (bound <= exact)
    moved = (exact - bare) if above else (bare - exact)
    assert moved > 100 * EPS * exact  # so far beyond what the other terms allow for


def spectrum_only(parts, size=4096, step=1e-3, tilt=0.05):
    """A composition whose spectrum is given, a dict: what it is a spectrum of does not matter for the sums."""
    composed = Composed([by_hand([-1.0, 0.0, 1.0], [0.3, 0.3, 0.4], step)], [1], tilt, above=True)
    composed.size = size
    composed._j = np.array(sorted(parts))
    composed._spectrum = np.array([parts[j] for j in sorted(parts)], dtype=np.complex128)
    composed._transform_kernel()
    return composed


def exact_sum(composed, k):
    """The sum that `_sums` stands for, term by term and frequency by frequency, in 40 digits."""
    h, t, total = MP.mpf(composed.step), MP.mpf(composed.tilt), MP.mpf(0)
    for j, part in zip(composed._j.tolist(), composed._spectrum.tolist(), strict=True):
        wave = MP.expjpi(MP.mpf(2 * j) / composed.size)
        for s, sign in ((t, 1), (t + 1, -1)):
            ratio, number = MP.exp(-s * h) * wave, composed.size - k
            total += sign * (MP.mpc(part) * wave**k * (1 - ratio**number) / (1 - ratio)).real
    return total


SPECTRA = {
    "low": {0: 1.0, 1: 3e7 - 2e7j, 2: 1e7j, 3: -2e7},  # the sum of waves decides
    "many": {j: 1e5 * np.exp(1j * j * j) for j in range(1, 300)},
    "high": {1001: 3e7, 1500: 2e7j},  # the end of the window decides
    "mean": {0: 1.0},
}


@pytest.mark.parametrize("which", SPECTRA)
@pytest.mark.parametrize("all_at_once", [False, True])
def test_rounding_of_the_sums_is_within_its_bound(which, all_at_once):
    composed = spectrum_only(SPECTRA[which], tilt=0.05 if which in ("high", "mean") else 3.0)
    some = [0, 1, 77, 1000, 2222, 4000, 4090]
    if all_at_once:
        total, error = (np.broadcast_to(v, composed.size)[some] for v in composed._sums(np.arange(composed.size)))
    else:
        total, error = (np.concatenate(v) for v in zip(*(composed._sums(np.array([k])) for k in some), strict=True))
    off = [abs(MP.mpf(value) - exact_sum(composed, k)) for k, value in zip(some, total.tolist(), strict=True)]
    assert all(wrong <= allowed for wrong, allowed in zip(off, error.tolist(), strict=True))
    assert any(off)


@pytest.mark.parametrize(("which", "term"), [("low", "_sum_error"), ("high", "_end_error"), ("mean", "_average")])
def test_each_term_of_the_sums_is_needed(which, term):
    composed = spectrum_only(SPECTRA[which], tilt=3.0 if which == "low" else 0.05)
    some = [0, 1, 77, 1000, 2222] + ([] if which == "low" else [4000, 4090])
    total = [float(composed._sums(np.array([k]))[0][0]) for k in some]
    setattr(composed, term, 0.0)
    rest = [float(composed._sums(np.array([k]))[1][0]) for k in some]
    assert any(abs(value - exact_sum(spectrum_only(SPECTRA[which], tilt=composed.tilt), k)) > error
               for k, value, error in zip(some, total, rest, strict=True))  # fmt: skip


def test_a_sum_of_many_waves_allows_for_its_length():
    few, many = (spectrum_only(dict.fromkeys(range(1, n + 1), 1.0 / n), size=2**17, tilt=3.0) for n in (3, 3000))
    for composed, n in ((few, 3), (many, 3000)):
        worst = n * EPS * float(np.abs(composed._both).sum())  # Higham (2002), Sec. 3.1
        assert float(composed._sums(np.array([5]))[1][0]) > worst


def test_an_inverse_fft_as_wrong_as_it_may_be(monkeypatch):
    composed, at = spectrum_only(SPECTRA["low"], tilt=3.0), 1000
    transform = fft.irfft

    def wrong(values, size):
        result = transform(values, size)
        result[at] += 8 * EPS * (math.log2(size) + 1) * math.sqrt(float(result @ result))
        return result

    monkeypatch.setattr(fft, "irfft", wrong)
    total, error = composed._sums(np.arange(composed.size))
    off = abs(MP.mpf(float(total[at])) - exact_sum(composed, at))
    assert 3 * composed._sum_error < off <= float(np.broadcast_to(error, total.shape)[at])


@pytest.mark.parametrize("above", [True, False])
@pytest.mark.parametrize(
    ("first", "masses", "steps", "least"),
    [(300.0, (0.3, 0.7), 1001, 1e-12), (-0.1, (1.7e-51, 7.7e-51), 5, 1e-13)],  # the mean decides, and the masses
)
def test_rounding_of_the_scale_is_within_its_bound(first, masses, steps, least, above, monkeypatch):
    """The scale is exp(log mass - tilt · ε), a difference of large numbers. Exact: all outcomes in 40 digits."""
    monkeypatch.setattr(privacy_loss, "LOG_OUTSIDE", -80.0)
    tilt = 1.1
    grid = by_hand([first, first + 0.1], masses, 0.1)
    composed = Composed([grid], [steps], tilt, above=above)
    composed._noise = composed._sum_error = composed._end_error = 0.0
    law = [MP.binomial(steps, i) * MP.mpf(masses[0]) ** (steps - i) * MP.mpf(masses[1]) ** i for i in range(steps + 1)]
    start = int(np.rint((first * steps - composed.loss(0)) / 0.1))
    off = []
    for i in sorted({int(share * steps) for share in (0.45, 0.65, 0.7, 0.72, 0.74) if share > 0.5 or steps < 10}):
        k = np.array([start + i])
        exact = MP.fsum(law[m] * -MP.expm1((i - m) * MP.mpf(0.1)) for m in range(i + 1, steps + 1))
        found = float(composed.bounds(k)[0])
        assert (found >= exact) if above else (found <= exact)
        bare = math.exp(composed._log_mass - tilt * composed.loss(k)[0]) * float(composed._sums(k)[0][0])
        off.append(abs(bare / exact - 1))
    assert max(off) > least


@pytest.mark.parametrize("above", [True, False])
def test_rounding_of_tilt_times_loss_is_within_its_bound(above):
    composed = Composed([by_hand([300.0, 300.1], (0.3, 0.7), 0.1)], [1001], 1.1, above=above)
    composed._noise = composed._log_error = 0.0
    off = []
    for k in range(composed.size // 2, composed.size // 2 + 20):
        (total,), (error,) = (np.atleast_1d(v) for v in composed._sums(np.array([k])))
        if total > 2 * error:
            exact = MP.exp(MP.mpf(composed._log_mass) - MP.mpf(1.1) * MP.mpf(float(composed.loss(k)))) * MP.mpf(
                float(total)
            )
            found = float(composed.bounds(np.array([k]))[0])
            assert (found >= exact) if above else (found <= exact)
            off.append(abs(math.exp(composed._log_mass - 1.1 * composed.loss(k)) * float(total) / exact - 1))
    assert max(off) > 1e-12


def test_rounding_of_the_masses_counts_in_every_step():
    """The log of a mass, and tilt times loss, are off by half a unit of their last place: so is the exponent."""
    for mass, loss, tilt in ((1e-200, 2.0, 1.0), (0.5, 400.0, 1.5)):
        for steps in (1, 50):
            composed = Composed([by_hand([0.0, loss], [1e-300, mass], loss)], [steps], tilt, above=True)
            kernel = tilt**tilt / (1 + tilt) ** (1 + tilt)
            wrong = steps * EPS * max(abs(math.log(mass)), tilt * loss)
            assert composed._noise > kernel * wrong


def test_an_error_counts_against_the_upper_measure():
    """If L ≤ μ + E as curves, then L^n - ((U + E)^n - U^n) ≤ μ^n, with the tilted masses of the measures, U that of one
    above μ. Not with L instead of U: the error of one step meets what μ has in the others."""
    steps, tilt, step = 6, 1.0, 0.5
    lower = np.array([0.05, 0.2, 0.1])
    grid = by_hand([-0.5, 0.0, 0.5], lower, step, upper=4 * lower)
    error = np.array([0.0, 0.0, 1e-6])
    clean, unsure = (Composed([g], [steps], tilt, above=False) for g in (grid, grid._replace(error=error)))
    k = np.array([int(np.rint((-1.0 - clean.first) / step))])
    tilted = float(np.sum(lower * np.exp(tilt * grid.losses)))
    off = float(np.sum(error * np.exp(tilt * grid.losses)))
    kernel = tilt**tilt / (1 + tilt) ** (1 + tilt)
    missing = kernel * ((4 * tilted + off) ** steps - (4 * tilted) ** steps) * math.exp(-tilt * float(clean.loss(k)[0]))
    before, after = float(clean.bounds(k)[0]), float(unsure.bounds(k)[0])
    assert before > missing > 0
    assert 0 < after <= before - 0.999999 * missing


@pytest.mark.parametrize("above", [True, False])
def test_what_wraps_around_is_allowed_for(above, monkeypatch):
    """A window that is far too short: mass comes back at its other end."""
    steps, sigma = 100, 10.0
    grid = Mixture("gaussian", sigma, 1.0, "remove").grid(2e-3, 1e-18, 1e-18, False, 1.0)
    monkeypatch.setattr(privacy_loss, "LARGEST_FFT", 800)
    composed = Composed([grid], [steps], 1.0, above=above)
    exact = [gaussian.gaussian_delta(sigma=1.0, sensitivity=1.0, epsilon=e) for e in (0.9, 1.2, 1.5, 1.8)]
    found = composed.delta(np.array([0.9, 1.2, 1.5, 1.8]))
    assert all(value >= true if above else value <= true for value, true in zip(found.tolist(), exact, strict=True))
    composed._noise = 0.0
    bare = composed.delta(np.array([0.9, 1.2, 1.5, 1.8]))
    wrong = [value < true if above else value > true for value, true in zip(bare.tolist(), exact, strict=True)]
    assert any(wrong) or not above


@pytest.mark.parametrize("steps", [200, 1000])
def test_tilts_far_from_the_best_one(steps):
    """There rounding shows: without its terms the same computation falls below the closed form, with them never."""
    sigma = math.sqrt(steps)
    below = 0
    for tilt in (0.05, 0.2, 1.0):
        grid = Mixture("gaussian", sigma, 1.0, "remove").grid(2e-4, 1e-18, 1e-18, False, tilt)
        composed = Composed([grid], [steps], tilt, above=True)
        epsilons = np.linspace(0.0, 9.0, 40)
        safe = composed.delta(epsilons)
        composed._noise, composed.infinite = 0.0, 0.0
        bare = composed.delta(epsilons)
        for epsilon, with_terms, without in zip(epsilons.tolist(), safe.tolist(), bare.tolist(), strict=True):
            exact = gaussian.gaussian_delta(sigma=1.0, sensitivity=1.0, epsilon=epsilon) * (1 - 1e-15)
            assert with_terms >= exact
            below += without < exact
    assert below > 0


def test_a_curve_takes_the_better_of_two_tilts():
    """One is blind near ε = 0, the other one weak at the end."""
    loss = direct("gaussian", 1.0, 0.01, "remove", 1000)
    epsilons = np.array([0.0, 0.5, 2.0, 3.5, 5.0])
    for epsilon, found in zip(epsilons.tolist(), loss.curve(epsilons).tolist(), strict=True):
        lower, upper = loss.delta(epsilon, 1e-3)
        assert lower <= found <= 1.1 * upper
    rare = direct("gaussian", 0.3, 1e-6, "add", 200)
    assert rare.delta(0.0, 1e-3).lower <= float(rare.curve(np.array([0.0]))[0]) <= 1.2 * rare.delta(0.0, 1e-3).upper


@pytest.mark.parametrize("delta", [0.2, 1e-3, 1e-9])
def test_between_losses_the_curve_is_linear(delta):
    """On a coarse lattice: ε at δ, and δ at that ε, by the same line in exp(ε)."""
    pair = Atoms((1.0, 0.0, -1.0), (0.5, 0.3, 0.2), 0.0, 1.0)
    lower, upper = PrivacyLoss((pair,), (12,)).epsilon(delta, 1e-6)
    law = np.array([1.0])
    for _ in range(12):
        law = np.convolve(law, [0.2, 0.3, 0.5])
    losses = np.arange(-12, 13)
    for end, sign in ((lower, -1), (upper, 1)):
        exact = float(np.sum(law * np.maximum(0.0, -np.expm1(end - losses))))
        assert exact == pytest.approx(delta, rel=1e-6)
        assert sign * (delta - exact) >= -1e-13 * delta


def test_laplace_noise_as_tight_as_elsewhere():
    """dp-accounting 0.6 at its grid of 1e-4: an upper value, without its rounding."""
    lower, upper = direct("laplace", 20.0, 1.0, "remove", 1000).epsilon(1e-5, 3e-8)
    assert lower <= 7.421272949564229
    assert upper - lower <= 3e-8 * upper
