"""The privacy-loss distribution: certified bounds, from above and from below, on what many releases cost together.

What is proven, and what is only measured:

1. *Curves compose in order.* If one pair of measures has a hockey-stick curve that is nowhere below another's, so have
   their compositions with any third pair: the curve of a product is an average of the first curve at changed z, with
   weights ≥ 0. Total mass 1 is not needed. So the measures of `dpbook.loss_grid` bound the composition on both sides.
2. *Composition* is one FFT power of the measure tilted by ``exp(t · loss)``, so that small δ keep their relative
   accuracy. What wraps around the window is bounded by Chernoff's inequality, evaluated on the measure itself.
3. *Rounding* is bounded and moved to the safe side; the sums over the composed measure by their worst case. Not proven
   but measured, or taken from elsewhere, are: the constant of SciPy's FFT (Higham, 2002, Thm. 24.2, proves it for the
   radix-2 algorithm), `exp`, `log` and their like in NumPy (a few units of the last place), and `ndtr` as in
   `dpbook.loss_grid`. The quadrature of Rényi divergences is measured as well; it chooses the tilt, for which any value
   is valid, and it bounds δ only below exp(-650).
"""

import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from scipy import fft, signal

from dpbook._exact import precise, round_up, up
from dpbook.loss_grid import EPS, LARGEST_GRID, Atoms, Grid, Mixture, Pair

LARGEST_FFT = 2**21
SMALL = 0.01  # an ε below is resolved as well as this one, no better
ROUNDS = 4
LOG_OUTSIDE = math.log(1e-9)  # tilted mass that may wrap around


class Composed:
    """The composition of tilted measures, one certified bound of δ(ε) on either side."""

    def __init__(self, grids: list[Grid], steps: list[int], tilt: float, *, above: bool) -> None:
        self.tilt, self.above = tilt, above
        h = self.step = grids[0].step
        self.shift = sum(n * g.shift for g, n in zip(grids, steps, strict=True))
        runs = [(g.upper_infinite if above else g.lower_infinite, n) for g, n in zip(grids, steps, strict=True)]
        self.infinite = _lost_mass(runs)[1 if above else 0]
        tilted, log_mass, wrong, base, mean, var, excess = [], 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for g, n in zip(grids, steps, strict=True):
            p, at = (g.upper if above else g.lower), g.losses
            (used,) = np.nonzero(p > 0)
            logs = np.log(p[used]) + tilt * at[used]
            top = float(logs.max())
            x = np.exp(logs - top)
            norm = float(x.sum())
            x /= norm
            log_norm = top + math.log(norm)
            log_mass += n * log_norm
            # A curve that is off by c at a point is within the curve of a mass c (1 + t) (1 + 1/t)^t or less, tilted.
            spread = math.e * (1 + tilt) * math.exp(min(4 * h * (1 + tilt), 700.0))
            unsure = g.error + spread * g.curve_error
            with np.errstate(over="ignore", divide="ignore"):
                off = float(np.sum(np.exp(np.log(unsure) + tilt * (at + h) - log_norm)))
            if g.curve_error.any() and 4 * h * (1 + tilt) > 700:
                off = math.inf
            if not above:  # the error counts against the true measure, which the upper one bounds
                logs_up = np.log(g.upper[g.upper > 0]) + tilt * at[g.upper > 0]
                peak = float(logs_up.max())
                excess += n * max(0.0, peak + math.log(float(np.sum(np.exp(logs_up - peak)))) - log_norm)
            wrong += n * (off + float(x @ (EPS * (8 + 4 * np.abs(logs)))))
            base += n * g.offset
            m = float(x @ at[used])
            mean += n * m
            var += n * float(x @ (at[used] - m) ** 2)
            tilted.append((used, x, at[used] - m, n, logs - log_norm))
        self.center = mean
        widest = [sum(n * float(abs(far[end])) for _, _, far, n, _ in tilted) + h for end in (0, -1)]
        tails = [self._tail(tilted, sign, max(var, h * h)) for sign in (-1.0, 1.0)]
        below, beyond = (min((m - LOG_OUTSIDE) / s, wide) for (s, m), wide in zip(tails, widest, strict=True))
        self.needed = (below + beyond) / h  # beyond the largest transform the window is cut, and `outside` grows
        size = fft.next_fast_len(int(min((below + beyond) / h, LARGEST_FFT)) + 8, real=True)
        start = math.floor((mean - below - base) / h) - 1
        self.losses = base + h * (start + np.arange(size))
        ends = (mean - self.losses[0], self.losses[-1] - mean)
        outside = sum(
            math.exp(min(0.0, m - s * far))
            for (s, m), far, wide in zip(tails, ends, widest, strict=True)
            if far < wide  # beyond the end of the support there is nothing
        )
        spectrum: Any = None
        norms = 0.0
        for used, x, _, n, _ in tilted:
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
        rounding = math.expm1(wrong) * math.exp(excess) if wrong + excess < 600 else math.inf
        self._noise = self._kernel * (outside + rounding) + l2_kernel * l2
        # Sums of composed * exp(-t (loss - own loss)), and with t + 1: no term overflows, wherever the mean may be. A
        # term k cells away went through k products and sums, which the third sum counts.
        self._a = np.append(_discounted(composed, t * h), 0.0)
        self._b = np.append(_discounted(composed, (t + 1) * h), 0.0)
        passes = _discounted(_discounted(np.abs(composed), t * h), t * h)
        self._rounding = np.append(passes, 0.0) * (EPS * (16 + 2 * (t + 1) * h))
        self._relative = EPS * (16 + 2 * abs(log_mass) + 2 * abs(t * mean))  # of the scale

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

    def _bound(self, epsilon: Any, at: Any) -> Any:
        """Return the certified δ at losses ε, given the index of the first grid loss above."""
        u = np.asarray(epsilon - self.center, dtype=np.float64)
        sign = 1.0 if self.above else -1.0
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            first = self.losses[np.minimum(at, len(self.losses) - 1)]  # the first loss above ε
            gap = np.maximum(first - epsilon, 0.0)
            near, nearer = np.exp(-self.tilt * gap), np.exp(-(self.tilt + 1) * gap)
            a, b = near * self._a[at], nearer * self._b[at]
            noise = self._noise + near * self._rounding[at] + 8 * EPS * (1 + self.tilt * gap) * (np.abs(a) + np.abs(b))
            value = (a - b) + sign * noise
            value = value + sign * np.abs(value) * (self._relative + 4 * EPS * np.abs(self.tilt * u))
            delta = (self.infinite + np.exp(self._scale - self.tilt * u) * value) * (1 + sign * 4 * EPS)
        delta = np.where(np.isnan(delta), 1.0 if self.above else self.infinite, delta)  # no bound
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
            if not self.above or float(self.delta(0.0)) <= delta:
                return 0.0
            return max(0.0, float(self.losses[0]) + self.shift)
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


def _discounted(values: Any, rate: float) -> Any:
    """Return ``sum over k >= 0 of values[i + k] exp(-rate k)`` for every i."""
    return signal.lfilter([1.0], [1.0, -math.exp(-rate)], values[::-1])[::-1]


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

    def _grids(self, step: float, tail: float, left: float) -> list[Grid]:
        fits = [pair.lattice * 16 >= step for pair in self.pairs]  # atoms much closer than a cell cannot be hit
        order = sorted(range(len(self.pairs)), key=lambda i: -self.steps[i] * fits[i])
        grids: dict[int, Grid] = {}
        for i in order:  # the one with most atoms chooses the step
            grids[i] = self.pairs[i].grid(step, tail, left, fixed=bool(grids) or not fits[i])
            step = grids[i].step
        return [grids[i] for i in range(len(self.pairs))]

    def _widest(self, tail: float, left: float) -> float:
        ends = [p.reach(tail, left) if isinstance(p, Mixture) else p.range for p in self.pairs]
        return max(max(high - low for low, high in ends), 1e-12)

    def _solve(self, cost: Any, scale: Any, tail: float, gap: float, answer: Any, lower: bool, most: float) -> Bounds:
        best, least = self._tilt(cost)
        tilt = best
        while tilt > 0.1 and scale(tilt / 1.3) * (cost(tilt / 1.3) - least) < 3.0:
            tilt /= 1.3  # as good for the answer, and the tilted sum is narrower
        total = sum(self.steps)
        left = min(1e-9, 1e-10 / total)
        step = math.sqrt(5 * gap / ((best + 1) * total))
        widest = self._widest(tail, left)
        step = max(min(step, widest / 64), widest / LARGEST_GRID)
        best_low, best_high = 0.0, most
        smallest = widest / LARGEST_GRID
        for _ in range(ROUNDS):
            for _ in range(4):
                grids = self._grids(step, tail, left)
                above = Composed(grids, list(self.steps), tilt, above=True)
                if above.needed < LARGEST_FFT:
                    break
                smallest = step = max(step, grids[0].step) * 1.1 * above.needed / LARGEST_FFT
            high, wish = answer(above)
            best_high = min(best_high, high)
            if not lower:
                return Bounds(0.0, float(best_high))
            if all((g.lower > 0).any() for g in grids):
                low, _ = answer(Composed(grids, list(self.steps), tilt, above=False))
                best_low = max(best_low, low)
            missing = best_high - best_low
            if missing <= wish or grids[0].step <= smallest * 1.01:
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
        estimate = max(self._tilt(cost)[1], SMALL)

        def answer(composed: Composed) -> tuple[float, float]:
            value = composed.epsilon(delta)
            return value, gap * max(value, SMALL)

        low, high = self._solve(cost, lambda t: t, tail, gap * estimate, answer, lower, math.inf)
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
        tilt, _ = self._tilt(cost)

        def answer(composed: Composed) -> tuple[float, float]:
            value = float(composed.delta(epsilon))
            return value, gap * max(value, 1e-300)

        return self._solve(cost, lambda t: 1.0, tail, gap / (tilt + 1), answer, lower, 1.0)

    def curve(self, epsilons: Any) -> Any:
        """Return upper bounds of δ at an array of ε, from one composition."""
        rest = self._without_infinite()
        strong, _ = self._tilt(lambda t: (rest.log_moment(t) + math.log(100) + _log_c(t)) / t)
        total = sum(self.steps)
        widest = self._widest(1e-14 / total, 1e-14)
        bounds = []
        for tilt in sorted({min(strong, 1.0), strong}):  # strong alone is blind near ε = 0, weak at the end
            step = max(min(math.sqrt(1e-3 / ((tilt + 1) * total)), widest / 64), widest / LARGEST_GRID)
            grids = self._grids(step, 1e-14 / total, 1e-14)
            bounds.append(Composed(grids, list(self.steps), tilt, above=True).delta(epsilons))
        return np.minimum.reduce(bounds)
