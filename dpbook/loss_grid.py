"""Pairs of distributions that dominate a mechanism, and measures on a grid that bound them from above and from below.

For two neighbours a mechanism is a pair: P with the person, Q without. What the pair tells apart is its hockey-stick
curve ``δ(z) = sup over sets S of P(S) - z Q(S)``, with ``z = exp(ε)``, convex and falling. Two measures on a grid of
losses have curves that enclose it:

- *above*, the chords of the curve between grid points (Doroshenko, Ghazi, Kamath, Kumar and Manurangsi, 2022);
- *below*, in every cell a line ``P(S) - z Q(S)`` of one set S. At a grid point the lower value of two lines is taken.

Both differ from the curve by O(h²) in a cell of width h. Cells are narrow where the mass is and wider elsewhere; all
ends lie on one lattice, so that losses can be added by an FFT. The masses come from differences of tails, each taken
on the side where it is small, and carry a bound on their rounding. That bound rests on SciPy's `ndtr` being right to
``2**-52 (4 + 3 y²)``, relative, which is measured against mpmath and not proven.

Dominating pairs of Poisson sampling under add/remove: Zhu, Dong and Wang (2022), Thm. 11. Under replace-one: let a test
have power a at N(v). By Neyman and Pearson it has at least the level of a half-line of power a at N(0), as
``|v| ≤ 1``, and at N(v'), as ``|v - v'| ≤ 2``. So ``P(S) - z Q(S)`` is largest for v = 1, v' = -1 when z ≥ 1, and for
z < 1 by exchanging P and Q. For Laplace noise the same holds for one number; a vector needs the trade-off curve of its
own.
"""

import functools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpbook._validate import FloatArray

EPS = 2.0**-52
TINY = 2.0**-1022  # what is below has lost digits, or all of them
LARGEST_LOSS = 600.0  # beyond, mass counts as infinite loss (above) or is left out (below)
LARGEST_GRID = 2**19
EVEN_GRID = 1024  # up to so many cells all have one width


class Grid(NamedTuple):
    """Measures on the losses ``offset + step * places`` that bound a pair from above and from below."""

    offset: float
    step: float
    places: NDArray[np.int64]
    upper: FloatArray
    lower: FloatArray
    upper_infinite: float
    lower_infinite: float
    error: FloatArray  # how far an entry may be off by rounding
    curve_error: FloatArray  # how far the curve may be off at a grid point, by rounding of the tails
    shift: float  # how far a loss may be off by rounding

    @property
    def losses(self) -> FloatArray:
        return np.asarray(self.offset + self.step * self.places, dtype=np.float64)

    @property
    def beside(self) -> FloatArray:
        """Width of the wider cell beside each grid point."""
        wide = self.step * np.diff(self.places)
        return np.asarray(np.maximum(np.append(wide, self.step), np.append(self.step, wide)))


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
    def excess(self) -> FloatArray:
        """Weights of P less those of Q, with all digits, which ``1 - q`` has not."""
        q = self.sampling_prob
        return np.array({"remove": [-q, q], "add": [q, -q], "replace": [0.0, q, -q]}[self.direction])

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

    @property
    def between(self) -> float:
        """Mass of P, roughly, that is not in atoms."""
        return -math.expm1(-(self.centers.max() - self.centers.min()) / self.multiplier) if self.lattice else 1.0

    def loss(self, x: FloatArray) -> FloatArray:
        """Log of the ratio of the densities at x."""
        with np.errstate(over="ignore"):
            result = np.zeros_like(x)
            for c, wp, wq in zip(self.centers[1:], self.weights[0][1:], self.weights[1][1:], strict=True):
                ratio = np.abs(x) - np.abs(x - c) if self.noise == "laplace" else c * (x - c / 2) / self.multiplier
                part = _log_mixed(self.sampling_prob, ratio / self.multiplier)  # with all digits, as for a small q
                result = result + part if wp > 0 else result - part if wq > 0 else result
            return result

    def _output(self, losses: FloatArray) -> FloatArray:
        """Return the x below which the loss is at most the given one (ends included); inverse of `loss`."""
        q, s = self.sampling_prob, self.multiplier
        with np.errstate(all="ignore"):
            if self.direction == "replace":
                if self.noise == "laplace":
                    size = np.abs(losses)
                    away = _log_mix(q, -1 / s)
                    ratio = np.expm1(size) * math.exp(away) / q + math.expm1(-1 / s)
                    far = np.logaddexp(size + np.log(-np.expm1(-size)) + away - math.log(q), -1 / s)
                    return np.sign(losses) * (1 + s * np.where(np.abs(ratio) < 0.5, np.log1p(ratio), far)) / 2
                wide = np.abs(losses) / 2
                log_g = np.log(np.sinh(wide)) + (math.log1p(-q) if q < 1 else -math.inf) + 1 / (2 * s * s) - math.log(q)
                inverse: FloatArray = np.where(
                    log_g > 300, log_g + math.log(2), np.arcsinh(np.exp(np.minimum(log_g, 300)))
                )
                return np.sign(losses) * s * s * (wide + inverse)
            sign = 1.0 if self.direction == "remove" else -1.0
            ratio = np.expm1(sign * losses) / q
            rest = (np.exp(sign * losses) - (1 - q)) / q  # ratio + 1, with its digits for q near 1
            base = np.where((ratio > -0.5) | (q < 0.5), np.log1p(np.maximum(ratio, -1)), np.log(np.maximum(rest, 0)))
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
            error = EPS * (4 + 3 * np.minimum(size, 50.0) ** 2) * tail
            error = np.where(np.isfinite(size), error + TINY, 0.0)
        return tail, error, y

    def _masses(self, x: FloatArray, center: float) -> tuple[FloatArray, FloatArray]:
        """Return the noise's mass between successive x, taken on the tail side, and its rounding error."""
        tail, error, y = self._tails(x, center)
        left, right = tail[:-1], tail[1:]
        mass = np.where(y[:-1] >= 0, left - right, np.where(y[1:] <= 0, right - left, (0.5 - left) + (0.5 - right)))
        return np.maximum(mass, 0.0), error

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
        return max(min(float(first), LARGEST_LOSS - 1), low, -LARGEST_LOSS), min(float(last), high, LARGEST_LOSS)

    def grid(self, step: float, tail: float, left: float, fixed: bool, tilt: float = 1.0) -> Grid:
        """Return the measures on a grid of about this step; `fixed` for exactly this one.

        The step is that of the narrowest cells. Others are wider, as far as masses times ``exp(tilt · loss)`` allow.
        """
        first, last = self.reach(tail, left)
        cells = max(2, math.ceil((last - first) / step))
        if self.noise == "laplace":
            if not fixed:
                step = (last - first) / cells
            elif (last - first) / step % 1.0 != 0.0:
                first = last - cells * step
        return self._grid(first, step, self._places(first, step, cells, tilt))

    def _places(self, first: float, step: float, cells: int, tilt: float) -> NDArray[np.int64]:
        """Return the ends of the cells, in steps: ``Σ mass · width²`` stays within 1.25 times that of even cells."""
        widest = 2 ** max(0, math.floor(math.log2(min(cells / 256, 0.25 / (step * (1 + tilt))))))
        if cells <= EVEN_GRID or self.noise == "laplace" or widest == 1:
            return np.arange(cells + 1)
        starts = np.arange(0, cells, widest)
        losses = first + step * np.append(starts, starts[-1] + widest)
        x = self._outputs(losses)
        mass = sum(w * self._masses(x, float(c))[0] for c, w in zip(self.centers, self.weights[0], strict=True))
        mass = mass * np.exp(tilt * (losses[1:] - losses[-1])) + 1e-300
        mass /= mass.sum()
        wish = np.log2(mass.max() / mass) / 3  # least cost for a number of cells: width as density^(-1/3)
        for k in range(60):
            width = 2 ** np.clip(np.floor(wish - k / 2), 0, math.log2(widest)).astype(np.int64)
            if float(mass @ (width**2 - 1.0)) <= 0.25:
                break
        number = widest // width
        times = number.astype(np.intp)  # intp: also on 32 bits, as in a browser
        inside = np.arange(number.sum()) - np.repeat(np.cumsum(number) - number, times)
        return np.append(np.repeat(starts, times) + inside * np.repeat(width, times), starts[-1] + widest)

    def _grid(self, first: float, step: float, places: NDArray[np.int64]) -> Grid:
        cells = len(places) - 1
        h = step * np.diff(places)
        edges = np.empty(2 * cells + 1)
        edges[::2] = first + step * places
        edges[1::2] = edges[:-1:2] + h / 2
        around = np.empty(2 * cells + 1)  # the wider cell beside an edge
        around[1::2], around[0], around[-1] = h, h[0], h[-1]
        around[2:-1:2] = np.maximum(h[1:], h[:-1])
        x = self._outputs(edges)
        p, q = self.weights
        up, down, own = np.zeros((3, 2 * cells))  # P - z Q and z' Q - P of half a cell, and z Q
        error: FloatArray = np.zeros(2 * cells)
        wrong_tail = np.zeros(2 * cells + 1)
        grow, z = np.expm1(edges), np.exp(edges)
        for c, more, wq in zip(self.centers, self.excess, q, strict=True):
            mass, off = self._masses(x, float(c))
            rise, fall = more - grow[:-1] * wq, grow[1:] * wq - more
            up += rise * mass
            down += fall * mass
            own += wq * z[:-1] * mass
            wrong_tail += (np.abs(more - grow * wq) + wq * z * around) * off
            size = abs(more) + wq * np.maximum(np.abs(grow[:-1]), np.abs(grow[1:]))
            error += EPS * (size + wq * z[1:] * np.repeat(h, 2)) * mass * 4
        if self.noise == "laplace" and self.sampling_prob == 1 and self.direction != "replace":
            # The density of the losses is exp(±l/2 - 1/2s) / 4: nothing cancels.
            low, high = self.range
            inside = (edges[:-1] > low - 1e-9 * (high - low)) & (edges[1:] < high + 1e-9 * (high - low))
            top, wide = math.exp(-1 / (2 * self.multiplier)) / 4, np.repeat(h, 2) / 2
            bend = 8 * top * np.sinh(wide / 4) ** 2
            up = np.where(inside, bend * np.exp(edges[:-1] / 2), up)
            down = np.where(inside, bend * np.exp(edges[1:] / 2), down)
            own = np.where(inside, -2 * top * np.expm1(-wide / 2) * np.exp(edges[:-1] / 2), own)
            small = EPS * (32 * np.maximum(up, down) + 8 * own * np.repeat(h, 2))
            error = np.where(inside, small, error)
            wrong_tail[1:-1][inside[1:] & inside[:-1]] = 0.0
        error += np.maximum(-up, 0.0) + np.maximum(-down, 0.0)  # no longer between two cells only: it adds up
        up, down = np.maximum(up, 0.0), np.maximum(down, 0.0)
        low_up, high_up, low_down, high_down = up[::2], up[1::2], down[::2], down[1::2]
        half, whole, back = np.expm1(h / 2), np.expm1(h), -np.expm1(-h)
        full_up = low_up + high_up + half * np.exp(-h / 2) * own[1::2]  # z_mid Q -> z_i (z_mid/z_i - 1) Q
        full_down = low_down + high_down + half * np.exp(h / 2) * own[::2]
        tops, bottoms = full_up / back, full_down / whole

        tail_p = tail_q = below_p = below_q = least_p = 0.0
        for c, wp, wq in zip(self.centers, p, q, strict=True):
            tail, off, y = self._tails(x[[0, -1]], float(c))
            above = tail[1] + off[1] if y[1] >= 0 else 1 - tail[1]
            below = tail[0] + off[0] if y[0] <= 0 else 1 - tail[0]
            tail_p, tail_q = tail_p + wp * above, tail_q + wq * above
            least_p += wp * max(0.0, above - 2 * off[1] - 4 * EPS)
            below_p, below_q = below_p + wp * below, below_q + wq * below
        ended = edges[-1] >= self.range[1] * (1 - 1e-9) if math.isfinite(self.range[1]) else False
        infinite = 0.0 if ended else max(0.0, tail_p - z[-1] * tail_q) + float(wrong_tail[-1])

        chords = np.concatenate([bottoms, [0.0]]) + np.concatenate([[0.0], tops])
        # Below: the line of the half-line that starts in the middle of the cell.
        lift, sink = low_up.copy(), high_down.copy()
        q_above = tail_q + np.concatenate([np.cumsum((own / z[:-1])[::-1])[::-1], [0.0]])[2::2]
        curve = infinite + np.cumsum((full_up + z[:-1:2] * whole * q_above)[::-1])[::-1]  # at the cells' left ends
        q_below = below_q + np.concatenate([[0.0], np.cumsum(own / z[:-1])])[:-1:2]
        excess = max(0.0, z[0] * below_q - below_p) + np.concatenate(
            [[0.0], np.cumsum(full_down + z[:-1:2] * whole * q_below)[:-1]]
        )  # of the curve over the line 1 - z, which bounds every curve from below
        late = lift >= 0.999999 * excess
        lift[late], sink[late] = 0.0, full_down[late]
        early = sink >= 0.999999 * np.append(curve[1:], 0.0)  # its line would end below 0, or below the tail's
        lift[early], sink[early] = full_up[early], 0.0
        drop = np.concatenate([[lift[0]], np.maximum(lift[1:], sink[:-1]), [sink[-1]]])
        lower = chords.copy()
        lower[:-1] -= np.diff(drop) / whole
        lower[1:] += np.diff(drop) / back
        lower[-1] += min(tail_p, z[-1] * tail_q) if ended else least_p  # all beyond has this loss, or a larger one
        upper = chords.copy()
        upper[-1] += tail_p if ended else min(tail_p, z[-1] * tail_q)
        upper[0] += below_p
        if self.noise == "laplace" and abs(first - self.range[0]) <= 1e-9 * self.lattice:
            lower[0] += below_p  # all below has exactly this loss
        share = 3.01 * (error[::2] + error[1::2]) / back
        wrong = np.append(share, 0.0) + np.append(0.0, share)
        biggest = max(abs(first), abs(edges[-1])) + 1 - math.log(self.sampling_prob)
        # A wrong tail moves mass between two cells, and so the curve at one point. (A wrong place of an edge moves it
        # by the square of that only, as the set beyond the right edge is the best one.)
        curve_error = wrong_tail[::2].copy()
        curve_error[:-1] += wrong_tail[1::2]
        curve_error[1:] += wrong_tail[1::2]
        wrong += (upper + np.maximum(lower, 0.0)) * (256 * EPS)
        lower = _convex(lower, edges[::2])
        return Grid(first, step, places, upper, lower, infinite, 0.0, wrong, curve_error, 8 * EPS * biggest)

    def renyi(self, order: float, tail: float = 0.0) -> float:
        """Return ``log E_Q[(P/Q)^order] / (order - 1)`` by quadrature that converges exponentially.

        With `tail`, the integral stops where P has less than that beyond: no divergence, but what tilting needs. Where
        the quadrature would need too many points, the bound by joint convexity: that of the noise, mixed with 0.
        """
        s, a = self.multiplier, order
        square = (4 if self.direction == "replace" else 1) / (2 * s * s)
        if self.noise == "gaussian" and self.sampling_prob == 1 and not tail:
            return a * square
        if self.noise == "laplace" and self.sampling_prob == 1 and self.direction != "replace" and a / s > 0.1:
            grow, fall = math.log(a / (2 * a - 1)) + (a - 1) / s, math.log((a - 1) / (2 * a - 1)) - a / s
            if grow > 1.0:
                return float(np.logaddexp(grow, fall)) / (a - 1)
            return math.log1p((a * math.expm1((a - 1) / s) + (a - 1) * math.expm1(-a / s)) / (2 * a - 1)) / (a - 1)
        if self.noise == "gaussian":
            width = 0.2 * min(s, s * s) if self.sampling_prob < 1 else 0.2 * s
            reach = 12.0 * s + 1.0
            first, last = -1 - reach, a + reach  # "add" with q near 1, too, has its largest terms up to a - 1
            if self.direction == "replace":
                first, last = -2 * a - reach, 2 * a + reach  # for q near 1 the largest terms are about 2a - 1
            if tail:
                last = min(last, float(self.centers[self.weights[0] > 0].max()) - s * float(special.ndtri(tail)))
            if (last - first) / width > LARGEST_GRID:
                return _log_mix(self.sampling_prob, (a - 1) * a * square) / (a - 1)
            x: FloatArray = np.arange(first, last + width, width, dtype=np.float64)
            logs = [-(((x - c) / s) ** 2) / 2 for c in self.centers]
            logs = [v - math.log(s * math.sqrt(2 * math.pi)) for v in logs]
            measure = np.full(len(x), math.log(x[1] - x[0]))
            atoms: list[tuple[float, float]] = []
        else:
            left, right = sorted((float(self.centers.min()), float(self.centers.max())))
            nodes, w = np.polynomial.legendre.leggauss(24)
            ends = self._pieces(a, left, right)
            wide = np.diff(ends)[:, None] / 2
            x = (ends[:-1, None] + wide * (1 + nodes)).ravel()
            measure = np.log(w * wide).ravel()
            logs = [-np.abs(x - c) / s - math.log(2 * s) for c in self.centers]
            atoms = []
            q_w = self.weights[1]
            for end, value in zip((left, right), self.range, strict=True):
                beyond = float(np.sum(q_w * np.exp(-np.abs(end - self.centers) / s) / 2))
                atoms.append((value, math.log(beyond)))
        loss = self.loss(x)
        log_q = _log_mixture(logs, self.weights[1])
        log_mass = np.concatenate([log_q + measure, [m for _, m in atoms]])
        losses = np.concatenate([loss, [v for v, _ in atoms]])
        return float(np.logaddexp(0.0, _log_sum(_log_excess(a, losses) + log_mass))) / (a - 1)

    def _pieces(self, a: float, left: float, right: float) -> FloatArray:
        """Return the ends of pieces on which the integrand changes little, or is below exp(-50) of the whole."""
        ends: FloatArray = np.linspace(left, right, 64 * int(right - left) + 1, dtype=np.float64)
        for _ in range(40):
            middle = (ends[:-1] + ends[1:]) / 2
            values = []
            for x in (ends, middle):
                q = -np.abs(x[:, None] - self.centers) / self.multiplier + np.log(np.maximum(self.weights[1], 1e-300))
                values.append(np.logaddexp.reduce(q, axis=1) + np.maximum(a * self.loss(x), 0.0))
            at, mid = values
            one, two = mid - at[:-1], at[1:] - mid
            change = np.maximum(np.abs(one), np.abs(two))
            most = np.maximum(np.maximum(at[:-1], at[1:]), mid) + change
            split = (change > 4.0) & (most > max(at.max(), mid.max()) - 50.0)
            if not split.any() or len(ends) > 2**14:
                break
            ends = np.sort(np.concatenate([ends, middle[split]]))
        return ends


@dataclass(frozen=True)
class Atoms:
    """A pair on finitely many losses: masses of P, and what P has where Q has nothing."""

    losses: tuple[float, ...]
    masses: tuple[float, ...]
    infinite: float = 0.0
    lattice: float = 0.0
    between = 1.0

    @property
    def range(self) -> tuple[float, float]:
        return min(self.losses), max(self.losses)

    def grid(self, step: float, tail: float, left: float, fixed: bool, tilt: float = 1.0) -> Grid:
        """Return the measures on a grid of about this step, on which the atoms lie where that is possible."""
        del tail, left, tilt
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
        to_top = np.clip(np.expm1(-part) / math.expm1(-step), 0.0, 1.0)
        upper, lower = np.zeros(cells + 1), np.zeros(cells + 1)
        np.add.at(upper, floor, mass * (1 - to_top))
        np.add.at(upper, floor + 1, mass * to_top)
        full = part >= step * (1 - 1e-9)
        np.add.at(lower, floor + full, mass * np.exp(-np.where(full, 0.0, part)))
        shift = 1e-9 * step if np.any(near != (np.array(self.losses) - first) / step) else 0.0
        biggest = max(abs(low), abs(high)) + 1
        exact = np.abs((np.array(self.losses) - first) / step - near) < 1e-9
        shift = float(np.max(np.where(exact, np.abs(np.array(self.losses) - first - near * step), 0.0)))
        error = upper * (EPS * (16 + 4 * biggest))  # masses that were made as exp(-loss) are off by so much
        return Grid(first, step, np.arange(cells + 1), upper, lower, self.infinite, self.infinite, error, 0 * upper,
                    shift + 8 * EPS * biggest)  # fmt: skip

    def renyi(self, order: float, tail: float = 0.0) -> float:
        """Return ``log E_Q[(P/Q)^order] / (order - 1)``; no tail is left out."""
        if self.infinite:
            return math.inf
        p, losses = np.array(self.masses), np.array(self.losses)
        with np.errstate(divide="ignore"):
            logs = np.log(p) + losses * (order - 1)
        total = _log_sum(logs)
        if total < 0.1 and abs(math.fsum(p) - 1) < 1e-12 and abs(math.fsum(p * np.exp(-losses)) - 1) < 1e-12:
            with np.errstate(divide="ignore"):  # small: the sum minus 1, without its cancelling
                total = float(np.log1p(np.exp(_log_sum(_log_excess(order, losses) + np.log(p) - losses))))
        return max(0.0, total / (order - 1))


Pair = Mixture | Atoms


def _log_mix(q: float, u: float) -> float:
    """Return ``log(1 - q + q exp(u))``."""
    if q == 1.0:
        return u
    if -1e-3 < u < 1.0 or (q < 0.5 and u < 30):
        return math.log1p(q * math.expm1(u))
    return float(np.logaddexp(math.log1p(-q), math.log(q) + u))


def _log_mixed(q: float, u: FloatArray) -> FloatArray:
    """Return ``log(1 - q + q exp(u))`` of an array."""
    if q == 1.0:
        return u
    near = ((u > -1e-3) & (u < 1.0)) | ((q < 0.5) & (u < 30))
    far = np.logaddexp(math.log1p(-q), math.log(q) + u)
    return np.where(near, np.log1p(q * np.expm1(np.where(near, u, 0.0))), far)


def _log_excess(a: float, losses: FloatArray) -> FloatArray:
    """Return ``log(r^a - 1 - a (r - 1))`` for r = exp(loss): never negative inside, and nothing cancels.

    With ``E_Q[r] = 1`` its mean is ``E_Q[r^a] - 1``.
    """
    power = a * losses
    small = np.where(np.abs(power) < 0.02, losses, 0.0)
    # a (a - 1) l^2 / 2 (1 + (a + 1) l / 3 + (a^2 + a + 1) l^2 / 12 + ...)
    series, term, poly = np.ones_like(losses), np.ones_like(losses), 1.0
    for k in range(3, 9):
        term = term * small / k
        poly = poly * a + 1.0
        series = series + term * poly
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        cut = np.minimum(losses, 600.0)
        near = np.exp(cut) * np.expm1(np.minimum((a - 1) * cut, 650.0)) - (a - 1) * np.expm1(cut)
        logs = np.where(power < 600.0, np.log(np.maximum(near, 0.0)), power)
        by_series = np.log(a * (a - 1) / 2) + 2 * np.log(np.abs(losses)) + np.log(series)
    return np.where(np.abs(power) < 0.02, by_series, logs)


def _log_sum(logs: FloatArray) -> float:
    top = float(np.max(logs))
    return top + math.log(float(np.sum(np.exp(logs - top)))) if math.isfinite(top) else top


def _log_mixture(logs: list[FloatArray], weights: FloatArray) -> FloatArray:
    """Return the log of a mixture, one of small weight with all its digits."""
    used = [(v, w) for v, w in zip(logs, weights, strict=True) if w > 0]
    top = functools.reduce(np.maximum, [v for v, _ in used])
    return np.asarray(top + np.log(sum(w * np.exp(v - top) for v, w in used)))


def _convex(masses: FloatArray, losses: FloatArray) -> FloatArray:
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
        up = math.expm1(losses[left] - losses[i]) / math.expm1(losses[left] - losses[right]) if left >= 0 else 1.0
        masses[right] += mass * up
        if masses[right] < 0:
            todo.append(right)
        if left >= 0:
            masses[left] += mass * (1 - up)
            if masses[left] < 0:
                todo.append(left)
    return masses
