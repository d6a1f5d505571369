"""Grids: both measures against the curve itself in 40 digits, and the errors they declare against the true ones."""

import math

import mpmath
import numpy as np
import pytest
from scipy import special

from dpbook.loss_grid import EPS, EVEN_GRID, Atoms, Mixture

MP = mpmath.MPContext()
MP.dps = 40


def exact_curve(noise, s, q, direction, epsilon):
    """δ of one step in 40 digits, by integrating where P exceeds exp(ε) Q."""

    def density(x, c):
        if noise == "laplace":
            return MP.exp(-abs(x - c) / s) / (2 * s)
        return MP.npdf(x, c, s)

    zero, one, minus = (lambda x: density(x, 0)), (lambda x: density(x, 1)), (lambda x: density(x, -1))
    p = zero if direction == "add" else lambda x: (1 - q) * zero(x) + q * one(x)
    r = zero if direction == "remove" else lambda x: (1 - q) * zero(x) + q * minus(x)
    z = MP.exp(epsilon)
    low, high = MP.mpf(-30), MP.mpf(30)
    for _ in range(120):
        middle = (low + high) / 2
        low, high = (middle, high) if p(middle) <= z * r(middle) * (1 + MP.mpf(10) ** -30) else (low, middle)
    knots = [*sorted({high, *(MP.mpf(v) for v in (-1, 0, 1, 3, 8) if v > high)}), MP.inf]
    return MP.quad(lambda x: p(x) - z * r(x), knots)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("direction", ["remove", "add", "replace"])
@pytest.mark.parametrize(("s", "q"), [(0.7, 0.1), (1.5, 0.01), (3.0, 0.5), (1.3, 1.0)])
@pytest.mark.parametrize("step", [0.02, 0.002])
def test_the_grids_enclose_the_curve(noise, direction, s, q, step):
    """Point by point, between the grid points too: this is what everything else rests on."""
    pair = Mixture(noise, s, q, direction)
    grid = pair.grid(step, 1e-14, 1e-12, False, 1.0)
    low, high = pair.range
    for share in (0.03, 0.2, 0.41, 0.5, 0.777, 0.95):
        epsilon = max(low, -1.0) + share * (min(high, 2.0) - max(low, -1.0))
        if share in (0.2, 0.5):  # in the middle of a cell, where the curve below touches
            epsilon = grid.offset + grid.step * (math.floor((epsilon - grid.offset) / grid.step) + 0.5)
        with np.errstate(over="ignore"):
            kernel = np.maximum(0.0, -np.expm1(epsilon - grid.losses))
        upper = float(grid.upper @ kernel) + grid.upper_infinite
        lower = float(grid.lower @ kernel) + grid.lower_infinite
        exact = float(exact_curve(noise, s, q, direction, MP.mpf(epsilon)))
        slack = float(grid.error.sum() + grid.curve_error.sum()) + 1e-15
        assert lower <= exact + slack
        assert exact <= upper + slack
        assert upper - lower < 0.4 * step  # and they are close, else the above says little
    assert (grid.upper >= 0).all()
    assert (grid.lower >= 0).all()


def test_the_normal_tail_of_scipy_is_as_good_as_assumed():
    y = np.concatenate([np.linspace(0.0, 8.0, 800), np.linspace(8.0, 37.0, 200)])
    tail = special.ndtr(-y)
    for at, value in zip(y.tolist(), tail.tolist(), strict=True):
        exact = MP.ncdf(-MP.mpf(at))
        assert abs(MP.mpf(value) - exact) <= EPS * (4 + 3 * at**2) / 1.5 * exact


@pytest.mark.parametrize(("direction", "s", "q"), [("remove", 1.5, 0.01), ("add", 0.7, 0.1), ("replace", 1.5, 0.05)])
def test_cells_of_several_widths_enclose_the_curve(direction, s, q):
    pair, tilt = Mixture("gaussian", s, q, direction), 4.0
    grid = pair.grid(3e-4, 1e-14, 1e-12, False, tilt)
    widths = np.diff(grid.places)
    assert len(grid.upper) < 0.5 * grid.places[-1]
    assert len(grid.places) == len(set(grid.places.tolist())) == len(grid.upper)
    assert widths.min() == 1
    assert widths.max() >= 8
    low, high = pair.range
    for share in (0.03, 0.3, 0.5, 0.9):
        epsilon = max(low, -1.0) + share * (min(high, 2.5) - max(low, -1.0))
        for at in (epsilon, float(grid.losses[np.searchsorted(grid.losses, epsilon) - 1])):
            with np.errstate(over="ignore"):
                kernel = np.maximum(0.0, -np.expm1(at - grid.losses))
            upper = float(grid.upper @ kernel) + grid.upper_infinite
            lower = float(grid.lower @ kernel) + grid.lower_infinite
            exact = float(exact_curve("gaussian", s, q, direction, MP.mpf(at)))
            slack = float(grid.error.sum() + grid.curve_error.sum()) + 1e-15
            assert lower - slack <= exact <= upper + slack
            assert upper - lower < 1e-4
    # What wide cells add is little, where the masses are tilted.
    mass = grid.upper * np.exp(tilt * (grid.losses - grid.losses[-1]))
    square = float(mass[:-1] @ widths**2.0) / float(mass[:-1].sum())
    assert square < 1.6


def test_grids_of_few_cells_are_even():
    grid = Mixture("gaussian", 1.0, 0.3, "remove").grid(0.01, 1e-14, 1e-12, False, 1.0)
    assert len(grid.places) <= EVEN_GRID + 1
    assert grid.places.tolist() == list(range(len(grid.places)))
    assert (grid.beside == grid.step).all()


def test_the_wider_cell_beside_a_point():
    grid = Mixture("gaussian", 1.0, 0.01, "remove").grid(1e-3, 1e-14, 1e-12, False, 1.0)
    wide = np.diff(grid.losses)
    assert grid.beside[5:-5] == pytest.approx(np.maximum(wide[4:-5], wide[5:-4]))
    assert grid.beside.max() > grid.beside.min()


def test_what_lies_beyond_the_last_loss():
    """The upper measure counts it as infinite, the lower one as the last loss."""
    pair = Mixture("gaussian", 1.0, 0.3, "remove")
    grid = pair.grid(0.05, 1e-2, 1e-9, False, 1.0)
    assert grid.upper_infinite > 1e-4
    assert grid.lower_infinite == 0.0
    for epsilon in grid.losses[[-2, -6, -30]].tolist():
        exact = float(exact_curve("gaussian", 1.0, 0.3, "remove", MP.mpf(epsilon)))
        kernel = np.maximum(0.0, -np.expm1(epsilon - grid.losses))
        finite = float(grid.upper @ kernel)
        assert finite < exact <= finite + grid.upper_infinite
        without = grid.lower.copy()
        without[-1] = 0.0
        assert float(without @ kernel) < float(grid.lower @ kernel) <= exact


def test_masses_of_laplace_noise_have_all_their_digits():
    """In the closed form nothing cancels; the exact measure of a chord, in 40 digits, is as near as `error` says."""
    s, step = 20.0, 1e-3
    grid = Mixture("laplace", s, 1.0, "remove").grid(step, 0.0, 0.0, False, 1.0)
    h = MP.mpf(grid.step)
    top = MP.exp(-1 / (2 * MP.mpf(s))) / 4

    def mass(i):  # P - z Q of the cell below, z' Q - P of the cell above, each integrated
        loss = MP.mpf(grid.offset) + i * h
        parts = MP.exp((loss - h) / 2) / -MP.expm1(-h) + MP.exp((loss + h) / 2) / MP.expm1(h)
        return 8 * top * MP.sinh(h / 4) ** 2 * parts

    for i in (1, 17, 50, len(grid.upper) - 2):
        assert abs(MP.mpf(float(grid.upper[i])) - mass(i)) <= float(grid.error[i])
        assert float(grid.error[i]) < 1e-12 * float(grid.upper[i])


EXACT_MASSES = [
    *[("pure", e) for e in (0.3, 1.0, 37.3, 200.1, 499.7)],
    *[("response", p) for p in (0.51, 0.9, 1 - 1e-6)],
]


@pytest.mark.parametrize("case", range(len(EXACT_MASSES)))
def test_masses_of_atoms_are_as_near_as_their_error_says(case):
    kind, value = EXACT_MASSES[case]
    if kind == "pure":
        e = value
        exact = [1 / (1 + MP.exp(-MP.mpf(e))), MP.exp(-MP.mpf(e)) / (1 + MP.exp(-MP.mpf(e)))]
        high = 1 / (1 + math.exp(-e))
        masses = (high, high * math.exp(-e))
    else:
        exact = [MP.mpf(value), 1 - MP.mpf(value)]
        masses = (value, 1 - value)
        e = math.log(value / (1 - value))
    grid = Atoms((e, -e), masses, 0.0, 2 * e).grid(0.1, 0.0, 0.0, False, 1.0)
    found, allowed = (grid.upper[[-1, 0]], grid.error[[-1, 0]])
    for mass, error, true in zip(found.tolist(), allowed.tolist(), exact, strict=True):
        assert abs(MP.mpf(mass) - true) <= MP.mpf(error) <= 1e-11 * true


def test_the_error_of_a_mass_grows_with_its_exponent():
    """exp(-x), of an x that is off by half a unit of its last place, is off by x/2 units: no constant is enough."""
    worst = 0.0
    for e in np.linspace(400.0, 499.0, 60).tolist():
        high = 1 / (1 + math.exp(-e))
        exact = MP.exp(-(1 / MP.mpf(1 / e))) / (1 + MP.exp(-(1 / MP.mpf(1 / e))))  # of the scale 1 / e
        mass = high * math.exp(-e)
        grid = Atoms((e, -e), (high, mass), 0.0, 2 * e).grid(0.1, 0.0, 0.0, False, 1.0)
        assert abs(MP.mpf(mass) - exact) <= MP.mpf(float(grid.error[0]))
        worst = max(worst, float(abs(MP.mpf(mass) - exact) / exact) / EPS)
    assert worst > 50


@pytest.mark.parametrize("direction", ["remove", "add", "replace"])
@pytest.mark.parametrize("step", [2.7e-14, 2.7e-15, 2.7e-16])
def test_cells_of_rounding_alone_say_so(direction, step):
    """A cell's mass below 0 by rounding is cut at 0: that adds up over the cells, and belongs to their error."""
    s, q = 33312.47465346838, 2.9298110044657264e-07
    grid = Mixture("laplace", s, q, direction).grid(step, 1e-16, 1e-10, False, 1.0)
    exact = q * -math.expm1(-1 / (2 * s)) if direction != "replace" else q * -math.expm1(-1 / s)
    for side, measure in ((-1.0, grid.upper), (1.0, grid.lower)):
        j = grid.losses > 0
        value = float(measure[j] @ -np.expm1(-grid.losses[j]))
        slack = float((grid.error + grid.curve_error)[j] @ -np.expm1(-grid.losses[j]))
        slack += float(grid.curve_error.max()) + grid.shift + 1e-12 * exact
        assert side * (value - exact) <= slack


@pytest.mark.parametrize("q", [1.0, 1 - 1e-15, 1 - 1e-12, 1 - 1e-6])
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_the_output_of_a_loss_has_its_digits_for_q_near_one(noise, q):
    pair = Mixture(noise, 0.1, q, "add")
    for loss in (5.0, 9.0, 13.0, 29.0, 33.0, 400.0):
        if loss < pair.range[1] * 0.98:
            rest = MP.log((MP.exp(-MP.mpf(loss)) - (1 - MP.mpf(q))) / MP.mpf(q))
            s = MP.mpf(0.1)
            exact = -((1 + s * rest) / 2 if noise == "laplace" else s * s * rest + MP.mpf(0.5))
            assert abs(float(pair._output(np.array([loss]))[0]) - exact) < 1e-14 * max(1, loss)


def test_weights_less_those_of_the_other_have_all_their_digits():
    """``1 - (1 - q)`` is off by 1e-7 of q = 1e-9, and so would be the curve."""
    q = 1e-9 / 3
    for direction, exact in (("remove", [-q, q]), ("add", [q, -q]), ("replace", [0.0, q, -q])):
        assert Mixture("gaussian", 1.0, q, direction).excess.tolist() == exact
    for direction in ("remove", "add"):
        grid = Mixture("gaussian", 1.0, q, direction).grid(1e-11, 1e-14, 1e-12, False, 1.0)
        j = grid.losses > 0
        exact = q * math.erf(0.5 / math.sqrt(2))
        assert abs(float(grid.upper[j] @ -np.expm1(-grid.losses[j])) + grid.upper_infinite - exact) < 1e-3 * exact


def test_a_tail_that_underflows_is_within_its_error():
    """The tail is 0 there; times exp(ε) it would not be."""
    points = np.array([37.6, 38.4, 39.0, 60.0])
    tail, error, _ = Mixture("gaussian", 1.0, 1.0, "remove")._tails(points, 0.0)
    for x, value, off in zip(points, tail, error, strict=True):
        assert abs(MP.ncdf(-MP.mpf(float(x))) - MP.mpf(float(value))) <= MP.mpf(float(off))
