"""The privacy-loss distribution: certified bounds, from above and from below, on what many releases cost together.

For two neighbours a mechanism is a pair of distributions, P with the person and Q without. Its hockey-stick curve is
``δ(z) = sup over sets S of P(S) - z Q(S)`` with ``z = exp(ε)``. What is proven, and what is only measured:

1. *Curves compose in order.* If one pair has a curve that is nowhere below another's, then so have their compositions
   with any third pair: the curve of a product is an average of the curve at changed z, with weights ≥ 0. Finite
   measures need not have total mass 1 for this. (For pairs that dominate mechanisms: Zhu, Dong and Wang, 2022, Thm. 10.)
2. *Above:* the chords of the convex curve between grid points of the loss (Doroshenko, Ghazi, Kamath, Kumar and
   Manurangsi, 2022). *Below:* in every cell a line ``P(S) - z Q(S)`` of one set S, joined at the grid points at the
   lower of the two values. Both err by O(h²) per step, and both are measures on the grid.
3. *Composition* is one FFT power of the measure tilted by ``exp(t · loss)``, so that small δ keep their relative
   accuracy. What wraps around the window is bounded by Chernoff's inequality, evaluated on the measure itself.
4. *Rounding* is bounded and moved to the safe side: Higham (2002, Thm. 24.2) for the FFT, taken for NumPy's too;
   for SciPy's `ndtr` a relative error of ``2**-52 (4 + 3 y²)``, which is measured against mpmath and not proven.
5. *Dominating pairs* of Poisson sampling under add/remove: Zhu, Dong and Wang (2022), Thm. 11. Under replace-one:
   let a test have power a at N(v). By Neyman and Pearson it has at least the level of a half-line of power a at N(0),
   where |v| ≤ 1, and at N(v'), where |v - v'| ≤ 2; so ``P(S) - z Q(S)`` is largest for v = 1, v' = -1 when z ≥ 1, and
   for z < 1 by exchanging P and Q. For Laplace noise the same holds for one number.
"""

import functools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import fft, special

from dpbook._validate import FloatArray

EPS = 2.0**-52
LARGEST_LOSS = 600.0  # beyond, mass counts as infinite loss (above) or is left out (below)
LARGEST_GRID = 2**21
LARGEST_FFT = 2**22
ROUNDS = 6
LOG_OUTSIDE = math.log(1e-11)  # tilted mass that may wrap around


class Grid(NamedTuple):
    """Measures on the losses ``offset + step * i`` that bound a pair from above and from below."""

    offset: float
    step: float
    upper: FloatArray
    lower: FloatArray
    upper_infinite: float
    lower_infinite: float
    error: FloatArray  # how far an entry may be off by rounding
    shift: float  # how far a loss may be off by rounding

    @property
    def losses(self) -> FloatArray:
        return self.offset + self.step * np.arange(len(self.upper))


@dataclass(frozen=True)
class Mixture:
    """P and Q are mixtures of one noise at a few centres; the loss grows with the output.

    `multiplier` is the noise's scale or standard deviation, `sampling_prob` q the chance to be in a batch, `direction`
    "remove" (P = (1-q) N(0) + q N(1), Q = N(0)), "add" (P = N(0), Q = (1-q) N(0) + q N(-1)) or "replace"
    (P as for remove, Q as for add).
    """

    noise: str  # "gaussian" or "laplace"
    multiplier: float
    sampling_prob: float
    direction: str

    @property
    def centers(self) -> FloatArray:
        return np.array({"remove": [0.0, 1.0], "add": [0.0, -1.0], "replace": [0.0, 1.0, -1.0]}[self.direction])

    @property
    def weights(self) -> tuple[FloatArray, FloatArray]:
        q = self.sampling_prob
        if self.direction == "replace":
            return np.array([1 - q, q, 0.0]), np.array([1 - q, 0.0, q])
        mixed, single = np.array([1 - q, q]), np.array([1.0, 0.0])
        return (mixed, single) if self.direction == "remove" else (single, mixed)

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest loss; finite ends of Laplace noise are atoms."""
        q = self.sampling_prob
        if self.noise == "laplace":
            low, high = (_log_mix(q, sign / self.multiplier) for sign in (-1.0, 1.0))
            if self.direction == "replace":
                return low - high, high - low
        else:
            low, high = (math.log1p(-q) if q < 1 else -math.inf), math.inf
            if self.direction == "replace":
                return -math.inf, math.inf
        return (low, high) if self.direction == "remove" else (-high, -low)

    @property
    def lattice(self) -> float:
        """Distance of the atoms, which the grid should hit; 0 without atoms."""
        low, high = self.range
        return high - low if self.noise == "laplace" else 0.0

    def loss(self, x: FloatArray) -> FloatArray:
        """Log of the ratio of the densities at x."""
        with np.errstate(over="ignore"):
            if self.noise == "laplace":
                base = [-np.abs(x - c) / self.multiplier for c in self.centers]
            else:
                base = [c * (x - c / 2) / self.multiplier**2 for c in self.centers]
            return _log_mixture(base, self.weights[0]) - _log_mixture(base, self.weights[1])

    def _output(self, losses: FloatArray) -> FloatArray:
        """Return the x below which the loss is at most the given one (ends included); inverse of `loss`."""
        q, s = self.sampling_prob, self.multiplier
        with np.errstate(all="ignore"):
            if self.direction == "replace":
                if self.noise == "laplace":
                    size = np.abs(losses)
                    ratio = np.expm1(size) * math.exp(_log_mix(q, -1 / s)) / q + math.expm1(-1 / s)
                    return np.sign(losses) * (1 + s * np.log1p(ratio)) / 2
                wide = np.abs(losses) / 2
                log_g = np.log(np.sinh(wide)) + (math.log1p(-q) if q < 1 else -math.inf) + 1 / (2 * s * s) - math.log(q)
                inverse = np.where(log_g > 300, log_g + math.log(2), np.arcsinh(np.exp(np.minimum(log_g, 300))))
                return np.sign(losses) * s * s * (wide + inverse)
            sign = 1.0 if self.direction == "remove" else -1.0
            ratio = np.expm1(sign * losses) / q
            base = np.where(ratio > -1, np.log1p(np.maximum(ratio, -1)), -np.inf)
            return sign * ((1 + s * base) / 2 if self.noise == "laplace" else s * s * base + 0.5)

    def _outputs(self, losses: FloatArray) -> FloatArray:
        x = self._output(losses)
        low, high = self.range
        atom = 1e-9 * self.lattice  # an atom on the grid must not fall into the cell beside it
        x = np.where(losses < low - atom, -np.inf, np.where(losses > high + atom, np.inf, x))
        if self.noise == "laplace":  # beyond the centres the loss is constant
            left, right = float(self.centers.min()), float(self.centers.max())
            x = np.where(np.abs(losses - low) <= atom, left, np.where(np.abs(losses - high) <= atom, right, x))
        return np.maximum.accumulate(x)

    def _tails(self, x: FloatArray, center: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the tail beyond x on its own side, its rounding error, and the side."""
        y = (x - center) / self.multiplier
        size = np.abs(y)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            tail = special.ndtr(-size) if self.noise == "gaussian" else np.exp(-size) / 2
            error = np.where(tail > 0, EPS * (4 + 3 * np.minimum(size, 50.0) ** 2) * tail, 0.0)
        return tail, error, y

    def _masses(self, x: FloatArray, center: float) -> tuple[FloatArray, FloatArray]:
        """Return the noise's mass between successive x, taken on the tail side, and its rounding error."""
        tail, error, y = self._tails(x, center)
        left, right = tail[:-1], tail[1:]
        mass = np.where(y[:-1] >= 0, left - right, np.where(y[1:] <= 0, right - left, (0.5 - left) + (0.5 - right)))
        return np.maximum(mass, 0.0), error[:-1] + error[1:]

    def reach(self, tail: float, left: float) -> tuple[float, float]:
        """Return losses between which P has all but `tail` of its mass above and `left` below."""
        low, high = self.range
        if self.noise == "laplace":
            return low, high
        p, _ = self.weights
        used = self.centers[p > 0]
        ends = np.array([used.min() + self.multiplier * special.ndtri(left),
                         used.max() - self.multiplier * special.ndtri(tail)])  # fmt: skip
        first, last = self.loss(ends)
        return max(float(first), low, -LARGEST_LOSS), min(float(last), high, LARGEST_LOSS)

    def grid(self, step: float, tail: float, left: float, fixed: bool) -> Grid:
        """Return the measures on a grid of about this step; `fixed` for exactly this one."""
        first, last = self.reach(tail, left)
        cells = max(2, math.ceil((last - first) / step))
        if self.noise == "laplace":
            if not fixed:
                step = (last - first) / cells
            elif (last - first) / step % 1.0 != 0.0:
                first = last - cells * step
        return self._grid(first, step, cells)

    def _grid(self, first: float, h: float, cells: int) -> Grid:
        edges = first + (h / 2) * np.arange(2 * cells + 1)
        x = self._outputs(edges)
        p, q = self.weights
        up, down, own = (np.zeros(2 * cells) for _ in range(3))  # P - z Q and z' Q - P of half a cell, and z Q
        error = np.zeros(2 * cells)
        grow = np.expm1(edges)
        z = grow + 1
        for c, wp, wq in zip(self.centers, p, q, strict=True):
            mass, off = self._masses(x, float(c))
            rise, fall = (wp - wq) - grow[:-1] * wq, (wq - wp) + grow[1:] * wq
            up += rise * mass
            down += fall * mass
            own += wq * z[:-1] * mass
            error += (np.maximum(np.abs(rise), np.abs(fall)) + wq * z[1:] * h) * off
            error += EPS * (np.maximum(np.abs(rise), np.abs(fall)) + wq * z[1:] * h) * mass * 4
        up, down = np.maximum(up, 0.0), np.maximum(down, 0.0)
        low_up, high_up, low_down, high_down = up[::2], up[1::2], down[::2], down[1::2]
        half, whole = math.expm1(h / 2), math.expm1(h)
        full_up = low_up + high_up + half * np.exp(-h / 2) * own[1::2]  # z_mid Q -> z_i (z_mid/z_i - 1) Q
        full_down = low_down + high_down + half * math.exp(h / 2) * own[::2]
        tops, bottoms = full_up / -math.expm1(-h), full_down / whole

        tail_p = tail_q = below_p = 0.0
        for c, wp, wq in zip(self.centers, p, q, strict=True):
            tail, off, y = self._tails(x[[0, -1]], float(c))
            above = tail[1] + off[1] if y[1] >= 0 else 1 - tail[1]
            below = tail[0] + off[0] if y[0] <= 0 else 1 - tail[0]
            tail_p, tail_q, below_p = tail_p + wp * above, tail_q + wq * above, below_p + wp * below
        ended = edges[-1] >= self.range[1] * (1 - 1e-9) if math.isfinite(self.range[1]) else False
        infinite = 0.0 if ended else max(0.0, tail_p - z[-1] * tail_q)

        # Below, the tail is one bucket at the grid point just below its own loss, `more` cells beyond the last.
        more = 0
        if tail_q > 0 and not ended:
            more = max(0, math.floor((math.log(tail_p / tail_q) - edges[-1]) / h - 1e-9))
            more = min(more, cells)
        bucket = math.exp(edges[-1] + more * h) * tail_q

        chords = np.concatenate([bottoms, [0.0]]) + np.concatenate([[0.0], tops])
        # Below: the line of the half-line that starts in the middle of the cell.
        lift, sink = low_up.copy(), high_down.copy()
        q_above = tail_q + np.concatenate([np.cumsum((own / z[:-1])[::-1])[::-1], [0.0]])[2::2]
        curve = infinite + np.cumsum((full_up + z[:-1:2] * whole * q_above)[::-1])[::-1]  # at the cells' left ends
        early = sink >= 0.999999 * np.append(curve[1:], infinite)  # its line would end below 0, where no curve is
        lift[early], sink[early] = full_up[early], 0.0
        last = max(0.0, tail_p - bucket) if not ended else 0.0
        drop = np.concatenate([[lift[0]], np.maximum(lift[1:], sink[:-1]), [max(last, sink[-1])]])
        bucket = max(0.0, tail_p - drop[-1]) if not ended and more else min(bucket, tail_p)
        lower = np.concatenate([chords, np.zeros(more)])
        lower[:cells] -= np.diff(drop) / whole
        lower[1 : cells + 1] += np.diff(drop) / -math.expm1(-h)
        lower[0] += drop[0]  # the line from z = 0, where the curve is P's mass above the first point
        lower[cells + more] += bucket
        upper = np.concatenate([chords, np.zeros(more)])
        upper[cells] += tail_p if ended else min(tail_p, z[-1] * tail_q)
        upper[0] += below_p
        if self.noise == "laplace" and abs(first - self.range[0]) <= 1e-9 * self.lattice:
            lower[0] += below_p  # all below has exactly this loss
        wrong = np.concatenate([error[::2] + error[1::2], [0.0]])
        wrong[1:] += error[::2] + error[1::2]
        biggest = max(abs(first), abs(edges[-1])) + 1 - math.log(self.sampling_prob)
        # An edge is off by a few roundings of the loss and of x: seen from the loss, by this much.
        factor = 4.0 if self.direction != "replace" else 16 + 4 / self.multiplier**2 - 4 * math.log(self.sampling_prob)
        with np.errstate(divide="ignore", invalid="ignore"):
            steep = np.nan_to_num((np.abs(x[1:]) + 1) * (h / 2) / np.diff(x), nan=0.0, posinf=0.0)
        moved = np.abs(edges[1:]) + h + factor * steep
        moved = np.maximum(moved[::2], moved[1::2])
        wrong = 3.01 * wrong / -math.expm1(-h)
        near = chords * (16 * EPS / h)
        wrong[:-1] += near[:-1] * moved
        wrong[1:] += near[1:] * moved
        wrong = np.concatenate([wrong, np.zeros(more)]) + (upper + np.maximum(lower, 0.0)) * (256 * EPS)
        return Grid(first, h, upper, _convex(lower, h), infinite, 0.0, wrong, 8 * EPS * biggest)

    def renyi(self, order: float) -> float:
        """Return ``log E_Q[(P/Q)^order] / (order - 1)`` by quadrature that converges exponentially."""
        s, a = self.multiplier, order
        if self.noise == "gaussian":
            width = 0.2 * min(s, s * s) if self.sampling_prob < 1 else 0.2 * s
            reach = 12.0 * s + 1.0
            first, last = (-reach, a + reach) if self.direction != "add" else (-a - reach, reach)
            if self.direction == "replace":
                first, last = -a - reach, a + reach
            x = np.arange(first, last + width, max(width, (last - first) / LARGEST_GRID))
            logs = [-(((x - c) / s) ** 2) / 2 for c in self.centers]
            logs = [v - math.log(s * math.sqrt(2 * math.pi)) for v in logs]
            measure = np.full(len(x), math.log(x[1] - x[0]))
            atoms: list[tuple[float, float]] = []
        else:
            left, right = sorted((float(self.centers.min()), float(self.centers.max())))
            pieces = max(2, math.ceil((right - left) * a / (4 * s))) * int(right - left)
            nodes, w = np.polynomial.legendre.leggauss(24)
            ends = np.linspace(left, right, pieces + 1)
            wide = (right - left) / pieces / 2
            x = (ends[:-1, None] + wide * (1 + nodes)).ravel()
            measure = np.log(np.tile(w * wide, pieces))
            logs = [-np.abs(x - c) / s - math.log(2 * s) for c in self.centers]
            atoms = []
            p_w, q_w = self.weights
            for end, loss in zip((left, right), self.range, strict=True):
                tail = sum(wq * math.exp(-abs(end - c) / s) / 2 for c, wq in zip(self.centers, q_w, strict=True))
                atoms.append((loss, math.log(tail)))
        loss = self.loss(x)
        log_q = _log_mixture(logs, self.weights[1])
        log_mass = np.concatenate([log_q + measure, [m for _, m in atoms]])
        losses = np.concatenate([loss, [v for v, _ in atoms]])
        # E_Q[r^a] - 1 = E_Q[r^a - 1 - a (r - 1)], whose terms are all >= 0: nothing cancels.
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            power = a * losses
            near = np.expm1(np.minimum(power, 30.0)) - a * np.expm1(np.minimum(losses, 30.0))
            term = np.where(power < 30.0, np.log(np.maximum(near, 0.0)), power)
            total = _log_sum(term + log_mass)
        return float(np.logaddexp(0.0, total)) / (a - 1)


@dataclass(frozen=True)
class Atoms:
    """A pair on finitely many losses: masses of P, and what P has where Q has nothing."""

    losses: tuple[float, ...]
    masses: tuple[float, ...]
    infinite: float = 0.0
    lattice: float = 0.0

    @property
    def range(self) -> tuple[float, float]:
        return min(self.losses), max(self.losses)

    def grid(self, step: float, tail: float, left: float, fixed: bool) -> Grid:
        """Return the measures on a grid of about this step, on which the atoms lie where that is possible."""
        del tail, left
        if self.lattice and not fixed:
            step = self.lattice / math.ceil(self.lattice / step)
        low, high = self.range
        cells = max(1, math.ceil((high - low) / step - 1e-9))
        first = high - cells * step
        places = (np.array(self.losses) - first) / step
        near = np.round(places)
        places = np.where(np.abs(places - near) < 1e-9, near, places)
        floor = np.clip(np.floor(places), 0, cells - (1 if cells else 0)).astype(np.int64)
        part = (places - floor) * step  # how far above the grid point below
        mass = np.array(self.masses)
        to_top = np.expm1(-part) / math.expm1(-step)
        upper, lower = np.zeros(cells + 1), np.zeros(cells + 1)
        np.add.at(upper, floor, mass * (1 - to_top))
        np.add.at(upper, floor + 1, mass * to_top)
        full = part >= step * (1 - 1e-9)
        np.add.at(lower, floor + full, mass * np.exp(-np.where(full, 0.0, part)))
        shift = 1e-9 * step if np.any(near != (np.array(self.losses) - first) / step) else 0.0
        biggest = max(abs(low), abs(high)) + 1
        exact = np.abs((np.array(self.losses) - first) / step - near) < 1e-9
        shift = float(np.max(np.where(exact, np.abs(np.array(self.losses) - first - near * step), 0.0)))
        return Grid(first, step, upper, lower, self.infinite, self.infinite, upper * (16 * EPS),
                    shift + 8 * EPS * biggest)  # fmt: skip

    def renyi(self, order: float) -> float:
        """Return ``log E_Q[(P/Q)^order] / (order - 1)``."""
        if self.infinite:
            return math.inf
        with np.errstate(divide="ignore"):
            logs = np.log(np.array(self.masses)) + np.array(self.losses) * (order - 1)
        return max(0.0, _log_sum(logs) / (order - 1))


Pair = Mixture | Atoms


def _log_mix(q: float, u: float) -> float:
    """Return ``log(1 - q + q exp(u))``."""
    return math.log1p(q * math.expm1(u)) if u < 30 else u + math.log(q) + math.log1p((1 - q) / q * math.exp(-u))


def _log_sum(logs: FloatArray) -> float:
    top = float(np.max(logs))
    return top + math.log(float(np.sum(np.exp(logs - top)))) if math.isfinite(top) else top


def _log_mixture(logs: list[FloatArray], weights: FloatArray) -> FloatArray:
    """Return the log of a mixture, one of small weight with all its digits."""
    used = [(v, w) for v, w in zip(logs, weights, strict=True) if w > 0]
    top = functools.reduce(np.maximum, [v for v, _ in used])
    return np.asarray(top + np.log(sum(w * np.exp(v - top) for v, w in used)))


def _convex(masses: FloatArray, h: float) -> FloatArray:
    """Return the measure of the greatest convex curve below: kinks that bend the wrong way are given up.

    A point that lies above the line through two others is no corner of the convex curve, so it may be left out, and
    its mass (negative) goes to the points beside it, as the chord between them asks.
    """
    masses = masses.copy()
    before: dict[int, int] = {}
    after: dict[int, int] = {}
    last = len(masses) - 1
    todo = [int(i) for i in np.nonzero(masses < 0)[0]]
    while todo:
        i = todo.pop()
        mass = float(masses[i])
        if mass >= 0:
            continue
        masses[i] = 0.0
        left, right = before.get(i, i - 1), after.get(i, i + 1)
        before[right], after[left] = left, right
        if right > last:  # negative by rounding only
            continue
        up = math.expm1((left - i) * h) / math.expm1((left - right) * h) if left >= 0 else 1.0
        masses[right] += mass * up
        if masses[right] < 0:
            todo.append(right)
        if left >= 0:
            masses[left] += mass * (1 - up)
            if masses[left] < 0:
                todo.append(left)
    return masses


class Composed:
    """The composition of tilted measures, one certified bound of δ(ε) on either side."""

    def __init__(self, grids: list[Grid], steps: list[int], tilt: float, *, above: bool) -> None:
        self.tilt, self.above = tilt, above
        h = self.step = grids[0].step
        self.shift = sum(n * g.shift for g, n in zip(grids, steps, strict=True))
        log_finite = sum(
            n * math.log1p(-(g.upper_infinite if above else g.lower_infinite))
            for g, n in zip(grids, steps, strict=True)
        )
        self.infinite = -math.expm1(log_finite)
        tilted, log_mass, wrong, base, mean, var = [], 0.0, 0.0, 0.0, 0.0, 0.0
        for g, n in zip(grids, steps, strict=True):
            p, l = (g.upper if above else g.lower), g.losses
            (used,) = np.nonzero(p > 0)
            logs = np.log(p[used]) + tilt * l[used]
            top = float(logs.max())
            x = np.exp(logs - top)
            norm = float(x.sum())
            x /= norm
            log_norm = top + math.log(norm)
            log_mass += n * log_norm
            with np.errstate(over="ignore", divide="ignore"):
                off = float(np.sum(np.exp(np.log(g.error) + tilt * (l + h) - log_norm)))
            wrong += n * (off + float(x @ (EPS * (8 + 4 * np.abs(logs)))))
            base += n * g.offset
            m = float(x @ l[used])
            mean += n * m
            var += n * float(x @ (l[used] - m) ** 2)
            tilted.append((used, x, l[used] - m, n))
        self.center = mean
        below, beyond = self._window(tilted, max(var, h * h))
        size = min(fft.next_fast_len(int((below + beyond) / h) + 4, real=True), LARGEST_FFT)
        start = math.floor((mean - below - base) / h)
        self.losses = base + h * (start + np.arange(size))
        outside = self._outside(tilted, mean - self.losses[0], self.losses[-1] - mean, max(var, h * h))
        spectrum: Any = None
        norms = 0.0
        for used, x, _, n in tilted:
            folded = np.bincount(used % size, weights=x, minlength=size)
            norms += n * float(np.sqrt(folded @ folded))
            part = fft.rfft(folded)
            part = _power(part, n)
            spectrum = part if spectrum is None else spectrum * part
        composed = np.roll(fft.irfft(spectrum, size), -(start % size))
        accuracy = 8 * EPS * (math.log2(size) + 1)
        total = sum(steps)
        growth = math.exp(min(700.0, total * accuracy * math.sqrt(size)))
        l2 = growth * accuracy * (norms + 2 * float(np.sqrt(composed @ composed)))
        l2 += (8 * total + 64) * EPS * float(np.sqrt(composed @ composed)) + 1e-16
        self._scale = log_mass - tilt * mean  # δ(ε) is exp(scale) times a sum of tilted masses times a kernel
        t = tilt
        self._kernel = math.exp(t * math.log(t / (1 + t))) / (1 + t)  # the largest value of exp(-tu) (1 - exp(-u))
        l2_kernel = math.sqrt(1 / (2 * t * (2 * t + 1) * (t + 1) * h) + self._kernel**2)
        l2_kernel = min(l2_kernel, self._kernel * math.sqrt(size))
        self.parts = (self._kernel * outside, self._kernel * wrong, l2_kernel * l2)
        self._noise = self._kernel * (outside + math.expm1(min(wrong, 700.0))) + l2_kernel * l2
        far = self.losses - mean
        with np.errstate(over="ignore", under="ignore"):
            weight = composed * np.exp(np.clip(-t * far, -700, 700))
            self._a = np.append(np.cumsum(weight[::-1])[::-1], 0.0)
            self._b = np.append(np.cumsum((weight * np.exp(-far))[::-1])[::-1], 0.0)
        self._rounding = 4 * EPS * math.sqrt(size) * 8

    @staticmethod
    def _window(tilted: list[Any], var: float) -> tuple[float, float]:
        """Return how far below and above its mean the sum has all but a negligible part of its tilted mass."""
        best = [math.inf, math.inf]
        typical = math.sqrt(-2 * LOG_OUTSIDE / var)
        for factor in (1.0, 0.6, 0.3, 1.6):
            s = typical * factor
            for i, sign in enumerate((-1.0, 1.0)):
                best[i] = min(best[i], (Composed._log_mgf(tilted, sign * s) - LOG_OUTSIDE) / s)
        return best[0], best[1]

    @staticmethod
    def _log_mgf(tilted: list[Any], s: float) -> float:
        total = 0.0
        for _, x, far, n in tilted:
            with np.errstate(over="ignore"):
                total += n * math.log(float(x @ np.exp(s * far)))
        return total

    @staticmethod
    def _outside(tilted: list[Any], below: float, beyond: float, var: float) -> float:
        total = 0.0
        for sign, far in ((-1.0, below), (1.0, beyond)):
            logs = [0.0]
            for factor in (1.0, 0.6, 0.3, 1.6):
                s = math.sqrt(-2 * LOG_OUTSIDE / var) * factor
                logs.append(Composed._log_mgf(tilted, sign * s) - s * far)
            total += math.exp(min(logs))
        return total

    def _bound(self, epsilon: Any, at: Any) -> Any:
        """Return the certified δ at losses ε, given the index of the first grid loss above."""
        u = np.asarray(epsilon - self.center, dtype=np.float64)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            a, b = self._a[at], np.exp(u) * self._b[at]
            noise = self._noise * np.exp(np.clip(-self.tilt * u, -700, 700)) + self._rounding * (np.abs(a) + np.abs(b))
            value = (a - b) + (noise if self.above else -noise)
            delta = self.infinite + np.exp(min(self._scale, 700.0)) * value
        return np.clip(delta, self.infinite, 1.0)

    def delta(self, epsilon: Any) -> Any:
        """Return the bound of δ at one ε or an array."""
        eps = np.asarray(epsilon, dtype=np.float64) + (-self.shift if self.above else self.shift)
        at = np.clip(np.floor((eps - self.losses[0]) / self.step) + 1, 0, len(self.losses)).astype(np.int64)
        below = at > 0
        at = np.where(below & (self.losses[np.maximum(at - 1, 0)] > eps), at - 1, at)
        return self._bound(eps, at)

    def epsilon(self, delta: float) -> float:
        """Return the bound of ε at this δ."""
        if self.above and delta <= self.infinite:
            return math.inf
        values = self._bound(self.losses, np.arange(1, len(self.losses) + 1))
        over = np.nonzero(values > delta)[0]
        if not len(over):
            return max(0.0, float(self.losses[0]) + self.shift) if self.above else 0.0
        i = int(over[-1])
        if i + 1 == len(self.losses):
            return math.inf if self.above else max(0.0, float(self.losses[i]) - self.shift)
        low, high = float(self.losses[i]), float(self.losses[i + 1])
        # δ is linear in exp(ε) between grid points, and the rounding term falls: take its larger value for both ends.
        for _ in range(60):
            middle = (low + high) / 2
            at_middle = float(self._bound(np.float64(middle), i + 1))
            low, high = (middle, high) if at_middle > delta else (low, middle)
            if high - low <= 1e-14 * (1 + abs(high)):
                break
        return max(0.0, high + self.shift) if self.above else max(0.0, low - self.shift)


def _power(spectrum: Any, n: int) -> Any:
    """Return the spectrum to the n-th power; what is below exp(-42) of the whole is set to 0."""
    if n == 1:
        return spectrum
    with np.errstate(divide="ignore"):
        size = n * np.log(np.abs(spectrum))
    keep = size > -42.0
    result = np.zeros_like(spectrum)
    result[keep] = np.exp(size[keep] + 1j * (n * np.angle(spectrum[keep])))
    return result


class Bounds(NamedTuple):
    lower: float
    upper: float


def _log_c(t: float) -> float:
    return t * math.log(t / (1 + t)) - math.log1p(t)


@dataclass(frozen=True)
class PrivacyLoss:
    """Pairs and how often each is run, in one direction; answers with certified bounds."""

    pairs: tuple[Pair, ...]
    steps: tuple[int, ...]

    @functools.cached_property
    def largest(self) -> float:
        return sum(n * pair.range[1] for pair, n in zip(self.pairs, self.steps, strict=True))

    def log_moment(self, t: float) -> float:
        return sum(n * t * pair.renyi(1 + t) for pair, n in zip(self.pairs, self.steps, strict=True))

    def _without_infinite(self) -> "PrivacyLoss":
        pairs = tuple(
            Atoms(p.losses, tuple(m / (1 - p.infinite) for m in p.masses), 0.0, p.lattice)
            if isinstance(p, Atoms) and p.infinite
            else p
            for p in self.pairs
        )
        return PrivacyLoss(pairs, self.steps)

    def _tilt(self, cost: Any) -> tuple[float, float]:
        """Return the tilt of least cost, roughly: any tilt gives a valid bound."""
        points = {v: cost(2.0**v) for v in (1.0, 2.0, 3.0)}
        while (best := min(points, key=lambda v: points[v])) in (min(points), max(points)) and -6 < best < 15:
            v = best + (1.0 if best == max(points) else -1.0)
            points[v] = cost(2.0**v)
        for width in (0.5, 0.25):
            for v in (best - width, best + width):
                points[v] = cost(2.0**v)
            best = min(points, key=lambda v: points[v])
        return 2.0**best, points[best]

    def _grids(self, step: float, tail: float, left: float) -> list[Grid]:
        order = sorted(range(len(self.pairs)), key=lambda i: -self.steps[i] * (self.pairs[i].lattice > 0))
        grids: dict[int, Grid] = {}
        for i in order:  # the one with most atoms chooses the step
            grids[i] = self.pairs[i].grid(step, tail, left, fixed=bool(grids))
            step = grids[i].step
        return [grids[i] for i in range(len(self.pairs))]

    def _points(self, step: float, tail: float, left: float) -> float:
        return max((p.range[1] - p.range[0] if not isinstance(p, Mixture) else
                    (lambda r: r[1] - r[0])(p.reach(tail, left))) / step for p in self.pairs)  # fmt: skip

    def _solve(self, cost: Any, tail: float, gap: float, answer: Any, lower: bool) -> Bounds:
        tilt, _ = self._tilt(cost)
        total = sum(self.steps)
        left = min(1e-9, 1e-10 / total)
        step = math.sqrt(6 * gap / ((tilt + 1) * total))
        widest = max((r[1] - r[0] if isinstance(p, Atoms) else (lambda r: r[1] - r[0])(p.reach(tail, left)))
                     for p in self.pairs for r in [p.range])  # fmt: skip
        step = max(min(step, widest / 64), widest / LARGEST_GRID)
        best_low, best_high = 0.0, math.inf
        for _ in range(ROUNDS):
            grids = self._grids(step, tail, left)
            above = Composed(grids, list(self.steps), tilt, above=True)
            high, wish = answer(above)
            best_high = min(best_high, high)
            if not lower:
                return Bounds(0.0, best_high)
            low, _ = answer(Composed(grids, list(self.steps), tilt, above=False))
            best_low = max(best_low, low)
            missing = best_high - best_low
            smallest = widest / LARGEST_GRID
            if missing <= wish or grids[0].step <= smallest * 1.01:
                break
            ratio = wish / missing if math.isfinite(missing) else 0.0
            step = max(grids[0].step * min(0.7, max(0.1, 0.9 * math.sqrt(ratio))), smallest)
        return Bounds(min(best_low, best_high), best_high)

    def epsilon(self, delta: float, gap: float = 1e-3, *, lower: bool = True) -> Bounds:
        """Return certified bounds of ε at δ, apart by at most `gap` times the upper one where the limits allow it."""
        infinite = -math.expm1(
            sum(n * math.log1p(-p.infinite) for p, n in zip(self.pairs, self.steps, strict=True) if isinstance(p, Atoms))
        )
        if delta < infinite * (1 - 1e-13) or (delta == 0.0 and self.largest == math.inf):
            return Bounds(math.inf, math.inf)
        if delta <= infinite * (1 + 1e-13):
            exact = self.largest
            return Bounds(exact * (1 - 1e-12) if delta >= infinite or not infinite else math.inf, exact * (1 + 1e-12))
        rest = self._without_infinite()
        log_delta = math.log(delta - infinite)

        def cost(t: float) -> float:
            return (rest.log_moment(t) - log_delta + _log_c(t)) / t

        estimate = max(self._tilt(cost)[1], 1e-9)
        tail = min(1e-10, max(1e-300, 1e-7 * (delta - infinite) / sum(self.steps)))

        def answer(composed: Composed) -> tuple[float, float]:
            value = composed.epsilon(delta)
            return value, gap * max(value, 1e-9)

        low, high = self._solve(cost, tail, gap * estimate, answer, lower)
        return Bounds(min(low, self.largest), min(high, self.largest * (1 + 1e-12) if self.largest > 0 else 0.0))

    def delta(self, epsilon: float, gap: float = 1e-3, *, lower: bool = True) -> Bounds:
        """Return certified bounds of δ at ε, apart by at most `gap` times the upper one where the limits allow it."""
        rest = self._without_infinite()
        infinite = -math.expm1(
            sum(n * math.log1p(-p.infinite) for p, n in zip(self.pairs, self.steps, strict=True) if isinstance(p, Atoms))
        )
        if epsilon >= self.largest * (1 + 1e-12):
            return Bounds(infinite, infinite)

        def cost(t: float) -> float:
            return rest.log_moment(t) - t * epsilon + _log_c(t)

        tilt, log_estimate = self._tilt(cost)
        tail = min(1e-10, max(1e-300, 1e-7 * math.exp(min(0.0, log_estimate)) / sum(self.steps)))

        def answer(composed: Composed) -> tuple[float, float]:
            value = float(composed.delta(epsilon))
            return value, gap * max(value, 1e-300)

        return self._solve(cost, tail, gap / (tilt + 1), answer, lower)
