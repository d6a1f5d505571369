"""The privacy-loss distribution: certified bounds, from above and from below, on what many releases cost together.

What is proven, and what is only measured:

1. *Curves compose in order.* If one pair of measures has a hockey-stick curve that is nowhere below another's, so have
   their compositions with any third pair: the curve of a product is an average of the first curve at changed z, with
   weights ≥ 0. Total mass 1 is not needed. So the measures of `dpbook.loss_grid` bound the composition on both sides.
2. *Composition* is one FFT power of the measure tilted by ``exp(t · loss)``, so that small δ keep their relative
   accuracy. What wraps around the window is bounded by Chernoff's inequality, evaluated on the measure itself. After
   many steps few frequencies are left: δ is a sum over these, with the transform of its kernel in closed form.
3. *Rounding* is bounded and moved to the safe side, sums by their worst case. Not proven but measured, or taken from
   elsewhere, are: the constant of SciPy's FFT (Higham, 2002, Thm. 24.2, proves it for the radix-2 algorithm), `exp`,
   `log` and their like in NumPy (a few units of the last place), and `ndtr` as in `dpbook.loss_grid`. The quadrature of
   Rényi divergences is measured as well; it chooses the tilt, for which any value is valid, and it bounds δ only below
   exp(-650).

Losses above 600 in one step are infinite for the upper bound, and 600 for the lower one. So where one step costs more,
as with σ ≤ 0.02 at q = 0.5, the upper bound of ε is that of Rényi DP and the lower one no more than 600 for each step.
"""

import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from scipy import fft

from dpbook._exact import precise, round_up, up
from dpbook.loss_grid import EPS, LARGEST_GRID, Atoms, Grid, Mixture, Pair

LARGEST_FFT = 2**21
SMALL = 0.01  # an ε below is resolved as well as this one, no better
ROUNDS = 5
LOG_OUTSIDE = math.log(1e-9)  # tilted mass that may wrap around
LOG_DROPPED = -42.0  # part of the spectrum that is left out


class Composed:
    """The composition of tilted measures, one certified bound of δ(ε) on either side."""

    def __init__(self, grids: list[Grid], steps: list[int], tilt: float, *, above: bool) -> None:
        self.tilt, self.above = tilt, above
        h = self.step = grids[0].step
        self.shift = sum(n * g.shift for g, n in zip(grids, steps, strict=True))
        runs = [(g.upper_infinite if above else g.lower_infinite, n) for g, n in zip(grids, steps, strict=True)]
        self.infinite = _lost_mass(runs)[1 if above else 0]
        tilted, log_mass, wrong, base, mean, var, excess = [], 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        log_error = 0.0
        for g, n in zip(grids, steps, strict=True):
            p, at = (g.upper if above else g.lower), g.losses
            (used,) = np.nonzero(p > 0)
            log_p = np.log(p[used])
            logs = log_p + tilt * at[used]
            top = float(logs.max())
            x = np.exp(logs - top)
            norm = float(x.sum())
            x /= norm
            log_norm = top + math.log(norm)
            log_mass += n * log_norm
            log_error += n * EPS * (16 + 2 * abs(top) + 6 * abs(log_norm))
            # A curve that is off by c at a point is within the curve of a mass c (1 + t) (1 + 1/t)^t or less, tilted.
            beside = g.beside
            spread = np.minimum(4 * beside * (1 + tilt), 700.0)
            unsure = g.error + math.e * (1 + tilt) * np.exp(spread) * g.curve_error
            with np.errstate(over="ignore", divide="ignore"):
                off = float(np.sum(np.exp(np.log(unsure) + tilt * (at + beside) - log_norm)))
            if np.any(g.curve_error[spread >= 700.0]):
                off = math.inf
            if not above:  # the error counts against the true measure, which the upper one bounds
                logs_up = np.log(g.upper[g.upper > 0]) + tilt * at[g.upper > 0]
                peak = float(logs_up.max())
                excess += n * max(0.0, peak + math.log(float(np.sum(np.exp(logs_up - peak)))) - log_norm)
            far = np.abs(log_p) + np.abs(tilt * at[used]) + np.abs(logs - top)
            wrong += n * (off + float(x @ (EPS * (8 + 2 * far))))
            base += n * g.offset
            m = float(x @ at[used])
            mean += n * m
            var += n * float(x @ (at[used] - m) ** 2)
            tilted.append((g.places[used], x, at[used] - m, n, logs - log_norm))
        self._log_mass, self._log_error = log_mass, log_error
        widest = [sum(n * float(abs(far[end])) for _, _, far, n, _ in tilted) + h for end in (0, -1)]
        tails = [self._tail(tilted, sign, max(var, h * h)) for sign in (-1.0, 1.0)]
        below, beyond = (min((m - LOG_OUTSIDE) / s, wide) for (s, m), wide in zip(tails, widest, strict=True))
        self.needed = (below + beyond) / h  # beyond the largest transform the window is cut, and `outside` grows
        size = self.size = fft.next_fast_len(int(min((below + beyond) / h, LARGEST_FFT)) + 8, real=True)
        start = math.floor((mean - below - base) / h) - 1
        self.first = base + h * start
        ends = (mean - self.first, self.loss(size - 1) - mean)
        outside = sum(
            math.exp(min(0.0, m - s * far))
            for (s, m), far, wide in zip(tails, ends, widest, strict=True)
            if far < wide  # beyond the end of the support there is nothing
        )
        # The spectrum; what is below exp(-42) of the whole is left out, and with many steps that is nearly all.
        parts, norms, kept = [], 0.0, np.ones(size // 2 + 1, dtype=bool)
        for places, x, _, n, _ in tilted:
            folded = np.bincount((places % size).astype(np.intp), weights=x, minlength=size)
            norms += n * float(np.sqrt(folded @ folded))
            part = fft.rfft(folded)
            pairs = part.view(np.float64).reshape(-1, 2)
            kept &= np.einsum("ij,ij->i", pairs, pairs) >= math.exp(2 * LOG_DROPPED / n)
            parts.append(part)
        (j,) = np.nonzero(kept)
        spectrum = np.exp(2j * math.pi / size * (j * (start % size) % size))  # losses count from the window's start
        for part, (_, _, _, n, _) in zip(parts, tilted, strict=True):
            spectrum *= part[j] if n == 1 else np.exp(n * np.log(part[j]))
        self._j, self._spectrum = j, np.where((j == 0) | (2 * j == size), 1.0, 2.0) * spectrum / size
        # Errors of the FFT, of the powers, of what is left out: all of them at most so much, as a mean square, of the
        # tilted masses of one step, n times. (Composing makes their sum of squares smaller.)
        total = sum(steps)
        accuracy = EPS * (8 * math.log2(size) + 24 + 96 / total)
        growth = math.exp(min(700.0, total * accuracy * math.sqrt(size)))
        l2 = growth * accuracy * norms
        t = tilt
        kernel = math.exp(t * math.log(t / (1 + t))) / (1 + t)  # the largest value of exp(-tu) (1 - exp(-u))
        l2_kernel = math.sqrt(1 / (2 * t * (2 * t + 1) * (t + 1) * h) + kernel**2)
        l2_kernel = min(l2_kernel, kernel * math.sqrt(size))
        rounding = math.expm1(wrong) * math.exp(excess) if wrong + excess < 600 else math.inf
        self._noise = kernel * (outside + rounding) + l2_kernel * l2
        self._transform_kernel()

    def loss(self, i: Any) -> Any:
        """Return the i-th loss of the window."""
        return self.first + self.step * i

    def _transform_kernel(self) -> None:
        """Prepare the sums of composed masses times ``exp(-tu) (1 - exp(-u))``, u the loss less ε, as sums over few j.

        A geometric series with the ratio ``r = exp(-th + iθ)``, from ε to the window's end, is
        ``(exp(iθk) - exp(-t (N - k) h)) / (1 - r)``. The kernel is the difference of two such series.
        """
        h, t = self.step, self.tilt
        angle = 2 * math.pi / self.size * self._j[self._j > 0]
        half = 2 * np.sin(angle / 2) ** 2
        one, two = (  # 1 - r, without cancelling
            -math.expm1(-s * h) + math.exp(-s * h) * half - 1j * math.exp(-s * h) * np.sin(angle) for s in (t, t + 1)
        )
        rest = self._spectrum[self._j > 0]
        wave = np.exp(1j * angle)
        self._both = rest * (math.exp(-t * h) * -math.expm1(-h)) * wave / (one * two)
        self._end_both = float(np.sum(self._both.real))
        self._end_two = float(np.sum((rest / two).real))
        size_both, size_two = float(np.sum(np.abs(self._both))), float(np.sum(np.abs(rest / two)))
        self._sum_error = 64 * EPS * size_both
        self._end_error = 64 * EPS * (size_both + size_two)
        self._average = float(self._spectrum[0].real) if len(self._j) and self._j[0] == 0 else 0.0

    @functools.cached_property
    def _all(self) -> Any:
        full = np.zeros(self.size // 2 + 1, dtype=np.complex128)
        full[self._j[self._j > 0]] = self._both * (self.size / 2)
        if self.size % 2 == 0:
            full[-1] *= 2
        return fft.irfft(full, self.size)

    def _sums(self, k: Any) -> Any:
        """Return the sums for ε at the k-th losses, and how far rounding may have moved them."""
        h, t, size = self.step, self.tilt, self.size
        j = self._j[self._j > 0]
        if 12 * len(j) * len(k) <= size:  # else one FFT is faster
            waves = np.exp(2j * math.pi / size * (np.outer(k, j) % size))
            circle, error = (waves @ self._both).real, self._sum_error * (1 + len(j) / 16)
        else:
            circle = self._all[k % size]
            error = self._sum_error + 16 * EPS * (math.log2(size) + 1) * float(np.sqrt(self._all @ self._all))
        left = (size - k) * h
        ends = np.exp(-t * left)
        one, two = (np.expm1(-s * left) / math.expm1(-s * h) * self._average for s in (t, t + 1))
        total = circle - ends * (self._end_both - np.expm1(-left) * self._end_two) + (one - two)
        return total, error + ends * self._end_error + 32 * EPS * (np.abs(one) + np.abs(two))

    @staticmethod
    def _tail(tilted: list[Any], sign: float, var: float) -> tuple[float, float]:
        """Return s and ``log E exp(s |sum - mean|)`` on one side, for the s at which Chernoff's bound is about best."""

        def at(s: float) -> tuple[float, float, float]:
            m = Composed._log_mgf(tilted, sign * s)
            return (m - LOG_OUTSIDE) / s, s, m

        best = at(math.sqrt(-2 * LOG_OUTSIDE / var))
        for factor in (0.6, 1.6):
            while 1e-6 < best[1] < 1e6 and (other := at(best[1] * factor))[0] < best[0] * 0.98:
                best = other
        return best[1], best[2]

    @staticmethod
    def _log_mgf(tilted: list[Any], s: float) -> float:
        total = 0.0
        for _, _, far, n, logs in tilted:
            terms = logs + s * far
            top = float(terms.max())
            total += n * (top + math.log(float(np.sum(np.exp(terms - top)))))
        return total

    def bounds(self, k: Any) -> Any:
        """Return the certified δ with ε at the k-th losses, an array of whole numbers."""
        sign = 1.0 if self.above else -1.0
        at = self.loss(k)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            total, error = self._sums(k)
            value = total + sign * (self._noise + error)
            power = self._log_mass - self.tilt * at
            unsure = self._log_error + EPS * (32 + 4 * np.abs(self.tilt * at))
            value = value + sign * np.abs(value) * np.expm1(unsure)
            delta = (self.infinite + np.exp(power) * value) * (1 + sign * 4 * EPS)
        delta = np.where(np.isnan(delta), 1.0 if self.above else self.infinite, delta)  # no bound
        return np.clip(delta, self.infinite, 1.0)

    def delta(self, epsilon: Any) -> Any:
        """Return the bound of δ at one ε or an array."""
        eps = np.atleast_1d(np.asarray(epsilon, dtype=np.float64)) + (-self.shift if self.above else self.shift)
        k = np.clip(np.floor((eps - self.first) / self.step), 0, self.size - 1).astype(np.int64)
        k = k - ((self.loss(k) > eps) & (k > 0))
        left, right = self.bounds(k), self.bounds(k + 1)
        # Between losses the curve is linear in exp(ε). Before the first it is below the line from 1 at exp(ε) = 0.
        with np.errstate(over="ignore"):
            share = np.clip(np.expm1(eps - self.loss(k)) / math.expm1(self.step), 0.0, 1.0)
            before = np.clip(-np.expm1(eps - self.first), 0.0, 1.0)
        value = left + share * (right - left)
        if self.above:
            value = np.where(eps < self.first, left + before * (1 - left), value) + 16 * EPS * left
        else:
            value = np.where(eps > self.loss(self.size), 0.0, value) - 16 * EPS * left
        return np.clip(value, self.infinite, 1.0).reshape(np.shape(epsilon))

    def epsilon(self, delta: float) -> float:
        """Return the bound of ε at this δ."""
        if self.above and delta <= self.infinite:
            return math.inf
        low, high, at_low, at_high = 0, self.size, 0.0, math.nan
        while high - low > 1:  # the bound is above δ at the one and not at the other: whatever is between
            k = np.unique(np.linspace(low, high, 34).astype(np.int64))
            values = self.bounds(k)
            if at_low > delta:
                values[0], values[-1] = at_low, at_high
            elif values[-1] > delta:
                return math.inf if self.above else max(0.0, float(self.loss(high)) - self.shift)
            elif not self.above and not np.any(values > delta):  # few losses, if any
                k = np.arange(self.size + 1)
                values = self.bounds(k)
            (over,) = np.nonzero(values[:-1] > delta)
            if not len(over):
                break
            last = int(over[-1])
            low, high = int(k[last]), int(k[last + 1])
            at_low, at_high = float(values[last]), float(values[last + 1])
        if at_low <= delta:
            if not self.above or float(self.delta(0.0)) <= delta:
                return 0.0
            return max(0.0, float(self.loss(0)) + self.shift)
        # Between losses the curve is linear in exp(ε).
        share = (at_low - delta) / (at_low - at_high)
        epsilon = float(self.loss(low)) + math.log1p(share * math.expm1(self.step))
        slack = self.shift + 8 * EPS * (abs(epsilon) + self.step)
        return max(0.0, epsilon + slack) if self.above else max(0.0, epsilon - slack)


def _lost_mass(runs: list[tuple[float, int]]) -> tuple[float, float]:
    """Return ``1 - Π (1 - δ)^n`` as the float64 below and the one above, which are the same where it is a float64."""
    runs = [(d, n) for d, n in runs if d > 0]
    if not runs:
        return 0.0, 0.0
    if max(d for d, _ in runs) >= 1.0:
        return 1.0, 1.0
    if sum(n for _, n in runs) <= 200:
        keep = Fraction(1)
        for d, n in runs:
            keep *= (1 - Fraction(d)) ** n
        high = round_up(1 - keep)
        return (high if Fraction(high) == 1 - keep else math.nextafter(high, 0.0)), high
    mp = precise()
    mp.dps = 60
    value = -mp.expm1(mp.fsum(n * mp.log1p(-mp.mpf(d)) for d, n in runs))
    return math.nextafter(float(value), 0.0), min(1.0, up(value))


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

    @functools.cached_property
    def _infinite(self) -> tuple[float, float]:
        """What P has where Q has nothing, after all steps: the float64 below and above."""
        runs = zip(self.pairs, self.steps, strict=True)
        return _lost_mass([(p.infinite, n) for p, n in runs if isinstance(p, Atoms)])

    def log_moment(self, t: float, tail: float = 0.0) -> float:
        return sum(n * t * pair.renyi(1 + t, tail) for pair, n in zip(self.pairs, self.steps, strict=True))

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
            if points[v] < points[best] < points[v] + 0.01 * abs(points[v]):  # hardly better
                break
        for width in (0.5, 0.25):
            for v in (best - width, best + width):
                points[v] = cost(2.0**v)
            best = min(points, key=lambda v: points[v])
        return 2.0**best, points[best]

    def _grids(self, step: float, tail: float, left: float, tilt: float) -> list[Grid]:
        fits = [pair.lattice * 16 >= step for pair in self.pairs]  # atoms much closer than a cell cannot be hit
        order = sorted(range(len(self.pairs)), key=lambda i: -self.steps[i] * fits[i])
        grids: dict[int, Grid] = {}
        for i in order:  # the one with most atoms chooses the step
            grids[i] = self.pairs[i].grid(step, tail, left, bool(grids) or not fits[i], tilt)
            step = grids[i].step
        return [grids[i] for i in range(len(self.pairs))]

    def _widest(self, tail: float, left: float) -> float:
        ends = [p.reach(tail, left) if isinstance(p, Mixture) else p.range for p in self.pairs]
        return max(max(high - low for low, high in ends), 1e-12)

    def _solve(
        self,
        cost: Any,
        scale: Any,
        found: tuple[float, float],
        tail: float,
        gap: float,
        answer: Any,
        lower: bool,
        most: float,
    ) -> Bounds:
        best, least = found
        tilt = best
        while tilt > 0.1 and scale(tilt / 1.3) * (cost(tilt / 1.3) - least) < 3.0:
            tilt /= 1.3  # as good for the answer, and the tilted sum is narrower
        total = sum(self.steps)
        left = min(1e-9, 1e-10 / total)
        between = max((p.between for p in self.pairs), default=1.0)  # an atom on the grid has no error
        step = math.sqrt(1.6 * gap / ((best + 1) * total * between))
        widest = self._widest(tail, left)
        step = max(min(step, widest / 64, 0.5 / (best + 1)), widest / LARGEST_GRID)
        best_low, best_high = 0.0, most
        smallest = widest / LARGEST_GRID
        for _ in range(ROUNDS):
            for _ in range(4):
                grids = self._grids(step, tail, left, best)
                above = Composed(grids, list(self.steps), tilt, above=True)
                if above.needed < LARGEST_FFT:
                    break
                smallest = step = max(step, grids[0].step) * 1.1 * above.needed / LARGEST_FFT
            high, wish = answer(above)
            best_high = min(best_high, high)
            if not lower:
                return Bounds(0.0, float(best_high))
            coarse = grids  # for continuous noise the upper bound, the one to use, has a finer grid than the lower
            if grids[0].step > 2 * smallest and all(isinstance(pair, Mixture) for pair in self.pairs):
                coarse = self._grids(2 * grids[0].step, tail, left, best)
            if all((g.lower > 0).any() for g in coarse):
                low, _ = answer(Composed(coarse, list(self.steps), tilt, above=False))
                best_low = max(best_low, low)
            missing = best_high - best_low
            if missing <= wish < math.inf or grids[0].step <= smallest * 1.01:
                break
            ratio = wish / missing if math.isfinite(missing) else 0.0
            step = max(grids[0].step * min(0.7, max(0.1, 0.9 * math.sqrt(ratio))), smallest)
        return Bounds(float(min(best_low, best_high)), float(best_high))

    def epsilon(self, delta: float, gap: float = 1e-3, *, lower: bool = True) -> Bounds:
        """Return certified bounds of ε at δ, apart by at most `gap` times the upper one where the limits allow it."""
        least, infinite = self._infinite
        if delta < least or (delta == 0.0 and self.largest == math.inf):
            return Bounds(math.inf, math.inf)
        if delta <= infinite:  # at the infinite mass exactly, or too close to say
            exact = self.largest
            return Bounds(exact * (1 - 1e-12) if delta == least else 0.0,
                          exact * (1 + 1e-12) if delta == infinite else math.inf)  # fmt: skip
        rest = self._without_infinite()
        log_delta = math.log(delta - infinite)

        def cost(t: float) -> float:
            return (rest.log_moment(t, tail) - log_delta + _log_c(t)) / t

        tail = min(1e-10, max(1e-300, 1e-7 * (delta - infinite) / sum(self.steps)))
        found = self._tilt(cost)
        estimate = max(found[1], SMALL)

        def answer(composed: Composed) -> tuple[float, float]:
            value = composed.epsilon(delta)
            return value, gap * max(value, SMALL)

        low, high = self._solve(cost, lambda t: t, found, tail, gap * estimate, answer, lower, math.inf)
        return Bounds(min(low, self.largest), min(high, self.largest * (1 + 1e-12) if self.largest > 0 else 0.0))

    def delta(self, epsilon: float, gap: float = 1e-3, *, lower: bool = True) -> Bounds:
        """Return certified bounds of δ at ε, apart by at most `gap` times the upper one where the limits allow it."""
        rest = self._without_infinite()
        least, infinite = self._infinite
        if epsilon >= self.largest * (1 + 1e-12):
            return Bounds(least, infinite)

        def cost(t: float) -> float:
            return rest.log_moment(t, tail) - t * epsilon + _log_c(t)

        tail = 0.0
        _, log_estimate = self._tilt(cost)
        if log_estimate < -650:
            return Bounds(least, math.nextafter(infinite + math.exp(max(log_estimate + 1, -744.0)), 1.0))
        tail = min(1e-10, max(1e-300, 1e-9 * math.exp(min(0.0, log_estimate)) / sum(self.steps)))
        found = self._tilt(cost)

        def answer(composed: Composed) -> tuple[float, float]:
            value = float(composed.delta(epsilon))
            return value, gap * max(value, 1e-300)

        return self._solve(cost, lambda t: 1.0, found, tail, gap / (found[0] + 1), answer, lower, 1.0)

    def curve(self, epsilons: Any) -> Any:
        """Return upper bounds of δ at an array of ε, from one composition."""
        rest = self._without_infinite()
        strong, _ = self._tilt(lambda t: (rest.log_moment(t) + math.log(100) + _log_c(t)) / t)
        total = sum(self.steps)
        widest = self._widest(1e-14 / total, 1e-14)
        bounds = []
        for tilt in sorted({min(strong, 1.0), strong}):  # strong alone is blind near ε = 0, weak at the end
            step = max(min(math.sqrt(1e-3 / ((tilt + 1) * total)), widest / 64), widest / LARGEST_GRID)
            grids = self._grids(step, 1e-14 / total, 1e-14, tilt)
            bounds.append(Composed(grids, list(self.steps), tilt, above=True).delta(epsilons))
        return np.minimum.reduce(bounds)
