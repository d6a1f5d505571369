"""What many releases cost together: add what was run, ask for ε, δ or the trade-off curve.

An `Accountant` answers by the tightest of: closed forms (Gaussian noise alone), the privacy-loss distribution with
certified bounds on both sides (`dpbook.privacy_loss`), and Rényi DP (`dpbook.rdp`). `epsilon` and `delta` are upper
bounds; `epsilon_bounds` and `delta_bounds` give the lower one as well, so the answer says how good it is.

Two conventions. The sensitivity of an unsampled mechanism is the one under the account's neighbour relation. The
`noise_multiplier` of a sampled one is the noise over the *clipping norm*, the most that one record adds to a batch:
under replace-one a person then moves a batch by twice the norm, and that is counted here.

Each step must draw a fresh sample and fresh noise. Several queries on one sample are composed first and amplified then
(`dpbook.composition.amplify`).
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dpbook import _validate, rdp
from dpbook._exact import ratio_up, round_up, sqrt_up
from dpbook.gaussian import LARGEST_MU, gaussian_delta, gaussian_epsilon, gaussian_sigma
from dpbook.loss_grid import Atoms, Mixture, Pair
from dpbook.privacy_loss import Bounds, PrivacyLoss
from dpbook.risk import TradeOff

GAP = 1e-4  # wished distance of the two bounds, relative
SAMPLING = ("poisson", "fixed_size", "shuffle")
REFUSED = {
    "fixed_size": "batches of a fixed size are not Poisson samples: when one person leaves, another takes the place, "
    "and the cost can be 15 times the Poisson value; draw each record on its own with probability sampling_prob",
    "shuffle": "shuffled batches are not Poisson samples, and cost more: when one person leaves, others move into "
    "other batches; there is no account of them here; draw each record on its own with probability sampling_prob",
}


QUADRATURE = 5e-11  # relative error of the Rényi divergence, measured
LEAST, MOST = 0.01, 1e6  # noise over sensitivity that the numerical path takes


def _ratio_down(noise: float, size: float) -> float:
    """Return noise over sensitivity, rounded down: less noise than there is."""
    if not LEAST * size <= noise <= MOST * size:
        raise ValueError(f"noise must be between {LEAST} and {MOST:g} sensitivities, got {noise} for {size}")
    return math.nextafter(1 / ratio_up(size, noise), 0.0)


@dataclass(frozen=True, kw_only=True)
class Gaussian:
    """Gaussian noise of standard deviation `sigma` on a query of this L2 sensitivity, under the account's relation."""

    sigma: float
    sensitivity: float = 1.0

    def __post_init__(self) -> None:
        _set(self, sigma=_validate.positive(sigma=self.sigma))
        _set(self, sensitivity=_validate.positive(sensitivity=self.sensitivity))

    def pairs(self, neighbors: str) -> tuple[Pair, ...]:
        """Return the dominating pairs, one or one for each direction."""
        return (Mixture("gaussian", _ratio_down(self.sigma, self.sensitivity), 1.0, "remove"),)

    def square(self, neighbors: str) -> Fraction | None:
        """Return μ² = (Δ/σ)², which adds up, for noise that is Gaussian and not sampled."""
        return (Fraction(self.sensitivity) / Fraction(self.sigma)) ** 2


@dataclass(frozen=True, kw_only=True)
class Laplace:
    """Laplace noise of this scale on one number of this L1 sensitivity, under the account's relation."""

    scale: float
    sensitivity: float = 1.0

    def __post_init__(self) -> None:
        _set(self, scale=_validate.positive(scale=self.scale))
        _set(self, sensitivity=_validate.positive(sensitivity=self.sensitivity))

    def pairs(self, neighbors: str) -> tuple[Pair, ...]:
        """Return the dominating pairs, one or one for each direction."""
        return (Mixture("laplace", _ratio_down(self.scale, self.sensitivity), 1.0, "remove"),)


@dataclass(frozen=True, kw_only=True)
class DiscreteLaplace:
    """Discrete Laplace noise of this scale on an integer of this sensitivity, under the account's relation."""

    scale: float
    sensitivity: int = 1

    def __post_init__(self) -> None:
        _set(self, scale=_validate.positive(scale=self.scale))
        _set(self, sensitivity=_validate.integer(sensitivity=self.sensitivity))
        if self.sensitivity > 10**6:
            raise ValueError(f"sensitivity must be at most 10**6 for discrete noise, got {self.sensitivity}")

    def pairs(self, neighbors: str) -> tuple[Pair, ...]:
        """Return the dominating pairs, one or one for each direction."""
        _ratio_down(self.scale, self.sensitivity)
        a, size = 1 / self.scale, self.sensitivity
        x = np.arange(size + 1)
        mass = math.tanh(a / 2) * np.exp(-a * x)
        mass[0] = 1 / (1 + math.exp(-a))
        mass[-1] = math.exp(-a * size) / (1 + math.exp(-a))
        return (Atoms(tuple((a * (size - 2 * x)).tolist()), tuple(mass.tolist()), 0.0, 2 * a),)


@dataclass(frozen=True, kw_only=True)
class RandomizedResponse:
    """One answer of `categories`, the true one with probability `truth_prob`, else another; under replace-one only."""

    truth_prob: float
    categories: int = 2

    def __post_init__(self) -> None:
        _set(self, truth_prob=_validate.open_unit(truth_prob=self.truth_prob))
        _set(self, categories=_validate.integer(2, categories=self.categories))
        if self.truth_prob < 1 / self.categories:
            raise ValueError(f"truth_prob must be at least 1 / categories, got {self.truth_prob}")

    def pairs(self, neighbors: str) -> tuple[Pair, ...]:
        """Return the dominating pairs, one or one for each direction."""
        if neighbors != _validate.REPLACE_ONE:
            raise ValueError('neighbors must be "replace_one" for randomised response: a person less is an answer less')
        p, k = self.truth_prob, self.categories
        other = (1 - p) / (k - 1)
        loss = math.log1p(float(Fraction(p) * (k - 1) / (1 - Fraction(p)) - 1))  # all digits, for any p
        rest = ((0.0,), ((k - 2) * other,)) if k > 2 else ((), ())
        lattice = loss if k > 2 else 2 * loss
        return (Atoms((loss, *rest[0], -loss), (p, *rest[1], other), 0.0, lattice),)


@dataclass(frozen=True, kw_only=True)
class ApproximateDP:
    """Any mechanism of which only (ε, δ)-DP is known, under the account's relation."""

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        _set(self, epsilon=_validate.non_negative(epsilon=self.epsilon))
        _set(self, delta=_validate.half_open_unit(delta=self.delta))
        if self.epsilon > 500:
            raise ValueError(f"epsilon must be at most 500 in an account, got {self.epsilon}")

    def pairs(self, neighbors: str) -> tuple[Pair, ...]:
        """Return the dominating pairs, one or one for each direction."""
        e, d = self.epsilon, self.delta
        high = 1 / (1 + math.exp(-e))
        return (Atoms((e, -e), ((1 - d) * high, (1 - d) * high * math.exp(-e)), d, 2 * e),)


@dataclass(frozen=True, kw_only=True)
class _Subsampled:
    noise_multiplier: float
    sampling_prob: float
    sampling: str = "poisson"

    _noise = ""

    def __post_init__(self) -> None:
        _set(self, noise_multiplier=_multiplier(self.noise_multiplier))
        _set(self, sampling_prob=_validate.closed_unit(sampling_prob=self.sampling_prob))
        if _validate.choice(SAMPLING, sampling=self.sampling) != "poisson":
            raise ValueError(f'sampling must be "poisson": {REFUSED[self.sampling]}')

    def pairs(self, neighbors: str) -> tuple[Pair, ...]:
        """Return the dominating pairs, one or one for each direction."""
        s, q = self.noise_multiplier, self.sampling_prob
        if q == 0:
            return ()
        if neighbors == _validate.REPLACE_ONE:
            return (Mixture(self._noise, s, q, "replace") if q < 1 else Mixture(self._noise, s / 2, 1.0, "remove"),)
        pairs = Mixture(self._noise, s, q, "remove"), Mixture(self._noise, s, q, "add")
        return pairs if q < 1 else pairs[:1]


class SubsampledGaussian(_Subsampled):
    """One DP-SGD step: a Poisson sample, records clipped to a norm C, Gaussian noise of ``noise_multiplier * C``."""

    _noise = "gaussian"

    def square(self, neighbors: str) -> Fraction | None:
        """Return μ², which adds up, when every record is in every batch."""
        if self.sampling_prob < 1:
            return Fraction(0) if self.sampling_prob == 0 else None
        return (Fraction(2 if neighbors == _validate.REPLACE_ONE else 1) / Fraction(self.noise_multiplier)) ** 2


class SubsampledLaplace(_Subsampled):
    """A Poisson sample, one number each clipped to a size C, Laplace noise of scale ``noise_multiplier * C``."""

    _noise = "laplace"


def _multiplier(noise_multiplier: Any) -> float:
    value = _validate.positive(noise_multiplier=noise_multiplier)
    if not LEAST <= value <= MOST:
        shown = _validate.shown(noise_multiplier)
        raise ValueError(f"noise_multiplier must be between {LEAST} and {MOST:g}, got {shown}")
    return value


def _set(item: Any, **fields: Any) -> None:
    for name, value in fields.items():
        object.__setattr__(item, name, value)


Mechanism = (
    Gaussian | Laplace | DiscreteLaplace | RandomizedResponse | ApproximateDP | SubsampledGaussian | SubsampledLaplace
)
KINDS = (Gaussian, Laplace, DiscreteLaplace, RandomizedResponse, ApproximateDP, SubsampledGaussian, SubsampledLaplace)


@dataclass(frozen=True)
class Accountant:
    """What was run, and what it costs under one neighbour relation. Immutable: `add` returns a new account.

    Examples
    --------
    >>> account = Accountant(neighbors="add_remove").add(Gaussian(sigma=10.0), steps=100)
    >>> account
    Accountant(neighbors='add_remove', 100 × Gaussian(sigma=10.0, sensitivity=1.0))
    >>> round(account.epsilon(delta=1e-5), 9)
    4.377178096
    """

    neighbors: str
    entries: tuple[tuple[Any, int], ...] = ()

    def __post_init__(self) -> None:
        _validate.neighbors(self.neighbors)
        if not isinstance(self.entries, tuple):
            raise TypeError(f"entries must be a tuple, as add makes it, got {type(self.entries).__name__}")
        for mechanism, steps in self.entries:
            _checked(mechanism, self.neighbors)
            _validate.integer(0, steps=steps)

    def add(self, mechanism: Any, *, steps: int = 1) -> "Accountant":
        """Return the account with this mechanism run `steps` more times, each on fresh randomness."""
        _checked(mechanism, self.neighbors)
        number = _validate.integer(0, steps=steps)
        entries = dict(self.entries)
        entries[mechanism] = entries.get(mechanism, 0) + number
        return Accountant(self.neighbors, tuple(entries.items()))

    def __repr__(self) -> str:
        parts = [f"{n} × {m!r}" for m, n in self.entries]
        return f"Accountant(neighbors={self.neighbors!r}{''.join(', ' + part for part in parts)})"

    def epsilon(self, *, delta: float) -> float:
        """Return an ε for which all that was run is (ε, δ)-DP: an upper bound, `inf` where there is none."""
        return self.epsilon_bounds(delta=delta)[1]

    def delta(self, *, epsilon: float) -> float:
        """Return a δ for which all that was run is (ε, δ)-DP: an upper bound."""
        return self.delta_bounds(epsilon=epsilon)[1]

    def epsilon_bounds(self, *, delta: float, gap: float = GAP) -> tuple[float, float]:
        """Return a certified lower and upper bound of ε, at most `gap` times the upper one apart where limits allow."""
        d, wish = _validate.half_open_unit(delta=delta), _validate.open_unit(gap=gap)
        return tuple(_epsilon_bounds(self, d, wish))  # type: ignore[return-value]

    def delta_bounds(self, *, epsilon: float, gap: float = GAP) -> tuple[float, float]:
        """Return a certified lower and upper bound of δ, at most `gap` times the upper one apart where limits allow."""
        eps, wish = _validate.non_negative(epsilon=epsilon), _validate.open_unit(gap=gap)
        return tuple(_delta_bounds(self, eps, wish))  # type: ignore[return-value]

    def rdp(self, *, order: float) -> float:
        """Return the RDP of this real order above 1, rounded up.

        Exact for Gaussian noise without sampling; else by quadrature, whose error is below 5e-11, relative, wherever
        it was measured; that is added. Where it would need too many points, an upper bound.
        """
        a = _validate.positive(order=order)
        if a <= 1:
            raise ValueError(f"order must be above 1, got {_validate.shown(order)}")
        return self._rdp(a)

    def _rdp(self, order: float) -> float:
        square = self._square()
        if square is not None:
            return round_up(Fraction(order) * square / 2)
        largest = max((loss.log_moment(order - 1) / (order - 1) for loss in self.losses), default=0.0)
        return largest * (1 + QUADRATURE)

    def rdp_epsilon(self, *, delta: float) -> float:
        """Return the ε of RDP at the best real order: looser than `epsilon`, and for comparison."""
        return rdp.least_epsilon(self._rdp, delta=delta)

    def trade_off(self) -> TradeOff:
        """Return the curve that no test between neighbours can beat: false negatives against false positives."""
        if (square := self._square()) is not None:
            return TradeOff(mu=sqrt_up(square))
        top = max(self.epsilon_bounds(delta=1e-7, gap=0.05)[1], 1e-3) if self.losses else 0.0
        top = top if math.isfinite(top) else 50.0
        epsilons = np.linspace(0.0, top, 241)
        deltas = np.max([loss.curve(epsilons) for loss in self.losses], axis=0) if self.losses else 0 * epsilons
        return TradeOff(epsilons=tuple(epsilons.tolist()), deltas=tuple(deltas.tolist()))

    def _square(self) -> Fraction | None:
        """Return the sum of μ² when all noise is Gaussian and unsampled."""
        total = Fraction(0)
        for mechanism, steps in self.entries:
            square = mechanism.square(self.neighbors) if hasattr(mechanism, "square") else None
            if square is None and steps:
                return None
            total += (square or 0) * steps
        return total

    @functools.cached_property
    def losses(self) -> tuple[PrivacyLoss, ...]:
        """The privacy loss in each direction that matters."""
        runs = [(m.pairs(self.neighbors), n) for m, n in self.entries if n]
        runs = [(pairs, n) for pairs, n in runs if pairs]
        if not runs:
            return ()
        ways = max(len(pairs) for pairs, _ in runs)
        return tuple(
            PrivacyLoss(tuple(pairs[min(way, len(pairs) - 1)] for pairs, _ in runs), tuple(n for _, n in runs))
            for way in range(ways)
        )


def _checked(mechanism: Any, neighbors: str) -> None:
    if not isinstance(mechanism, KINDS):
        names = ", ".join(kind.__name__ for kind in KINDS)
        raise TypeError(f"mechanism must be one of {names}, got {type(mechanism).__name__}")
    if isinstance(mechanism, RandomizedResponse):
        mechanism.pairs(neighbors)


def _down(value: float, times: int) -> float:
    """Return the float64 that is so many places below, at least 0."""
    for _ in range(times):
        value = math.nextafter(value, 0.0)
    return value


@functools.lru_cache(maxsize=256)
def _epsilon_bounds(account: Accountant, delta: float, gap: float) -> Bounds:
    square = account._square()
    if square is not None:
        if square == 0:
            return Bounds(0.0, 0.0)
        if delta == 0:
            return Bounds(math.inf, math.inf)
        mu = sqrt_up(square)
        value = gaussian_epsilon(sigma=1.0, sensitivity=mu, delta=delta)
        if mu > LARGEST_MU:  # an upper bound; δ is above 0.49 at ε = μ² / 2
            return Bounds(_down(mu * mu / 2, 8) if delta < 0.49 and math.isfinite(value) else 0.0, value)
        lower = gaussian_epsilon(sigma=1.0, sensitivity=_down(mu, 1), delta=delta)
        return Bounds(min(value, _down(lower, 2)), value)
    answers: list[Bounds] = []
    for loss in account.losses:  # the second direction is refined only where it may decide
        if answers:
            rough = loss.epsilon(delta, 10 * gap, lower=False)
            if rough.upper <= answers[0].lower:
                continue
        answers.append(loss.epsilon(delta, gap))
    lower, upper = max(b.lower for b in answers), max(b.upper for b in answers)
    if math.isinf(upper) and not math.isinf(lower) and delta > 0:
        upper = rdp.least_epsilon(account._rdp, delta=delta)
    return Bounds(min(lower, upper), upper)


@functools.lru_cache(maxsize=256)
def _delta_bounds(account: Accountant, epsilon: float, gap: float) -> Bounds:
    square = account._square()
    if square is not None:
        if square == 0:
            return Bounds(0.0, 0.0)
        mu = sqrt_up(square)
        value = gaussian_delta(sigma=1.0, sensitivity=mu, epsilon=epsilon)
        if mu > LARGEST_MU:  # an upper bound
            return Bounds(0.0, value)
        lower = gaussian_delta(sigma=1.0, sensitivity=_down(mu, 1), epsilon=epsilon)
        return Bounds(min(value, _down(lower, 2)), value)  # also 0 for the smallest float64, which stands for less
    answers = [loss.delta(epsilon, gap) for loss in account.losses]
    return Bounds(max(b.lower for b in answers), max(b.upper for b in answers))


def _search(
    cost: Callable[[float], float], target: float, *, rising: bool, ends: tuple[float, float], name: str
) -> float:
    """Return the extreme value between the ends whose cost is at most the target: within 1e-4, and never past it."""

    def over(v: float) -> float:
        value = cost(math.exp(v))
        return max(-30.0, min(30.0, math.log(max(value, 1e-13) / target))) if value <= 1e300 else 30.0

    first, last = (math.log(end) for end in (ends if rising else ends[::-1]))  # from cheap to costly
    sign = math.copysign(1.0, last - first)

    def toward(v: float, step: float) -> float:
        return max(min(first, last), min(max(first, last), v + sign * step))

    safe = bad = toward(0.0, 0.0)
    f_safe = f_bad = over(safe)
    step = 0.7
    if f_safe <= 0:
        while f_bad <= 0:
            if bad == last:
                return ends[1] if rising else ends[0]
            safe, f_safe = bad, f_bad
            bad = toward(bad, step)
            f_bad, step = over(bad), step * 1.6
    else:
        while f_safe > 0:
            if safe == first:
                raise ValueError(f"target_epsilon must be one that some {name} reaches, got {target}")
            bad, f_bad = safe, f_safe
            safe = toward(safe, -step)
            f_safe, step = over(safe), step * 1.6
    side = 0
    while abs(safe - bad) > 5e-5 and f_safe < -5e-5:
        share = f_safe / (f_safe - f_bad) if f_bad < 29 else 0.5
        middle = safe + (bad - safe) * min(max(share, 0.02), 0.98)
        value = over(middle)
        if value <= 0:
            safe, f_safe = middle, value
            f_bad, side = (f_bad / 2 if side == 1 else f_bad), 1
        else:
            bad, f_bad = middle, value
            f_safe, side = (f_safe / 2 if side == -1 else f_safe), -1
    return math.exp(safe)


ENDS = {"noise_multiplier": (LEAST, MOST), "sampling_prob": (1e-9, 1.0), "steps": (1.0, 1e9)}


class _Training:
    """DP-SGD with Poisson batches, all but one of its parameters given, and what it may cost."""

    def __init__(self, *, target_epsilon: Any, delta: Any, neighbors: str, **given: Any) -> None:
        self.target = _validate.positive(target_epsilon=target_epsilon)
        if not 1e-3 <= self.target <= 200:
            raise ValueError(f"target_epsilon must be between 0.001 and 200, got {_validate.shown(target_epsilon)}")
        self.delta = _validate.open_unit(delta=delta)
        self.given = {name: _CHECKS[name](value) for name, value in given.items()}
        self.neighbors = _validate.neighbors(neighbors)
        (self.sought,) = set(ENDS) - set(given)

    def epsilon(self, value: float) -> float:
        """Return the upper bound of ε with this value of the parameter that is sought."""
        values = {**self.given, self.sought: value}
        step = SubsampledGaussian(noise_multiplier=values["noise_multiplier"], sampling_prob=values["sampling_prob"])
        account = Accountant(neighbors=self.neighbors).add(step, steps=max(1, round(values["steps"])))
        return account.epsilon_bounds(delta=self.delta, gap=3e-4)[1]

    def costliest(self) -> float:
        """Return the costliest value of the parameter that keeps to the target."""
        rising = self.sought != "noise_multiplier"
        return _search(self.epsilon, self.target, rising=rising, ends=ENDS[self.sought], name=self.sought)


def _probability(sampling_prob: Any) -> float:
    q = _validate.closed_unit(sampling_prob=sampling_prob)
    if q == 0:
        raise ValueError(f"sampling_prob must be positive, got {_validate.shown(sampling_prob)}")
    return q


_CHECKS: dict[str, Callable[[Any], float]] = {
    "noise_multiplier": _multiplier,
    "sampling_prob": _probability,
    "steps": lambda steps: _validate.integer(steps=steps),
}


def calibrate_noise_multiplier(
    *, target_epsilon: float, delta: float, sampling_prob: float, steps: int, neighbors: str
) -> float:
    """Return the least noise multiplier at which DP-SGD with Poisson batches is (ε, δ)-DP, rounded up.

    Parameters
    ----------
    target_epsilon : float
        ε, 0.001 to 200, that must not be passed.
    delta : float
        δ in (0, 1).
    sampling_prob : float
        Probability in (0, 1] that a record is in a batch.
    steps : int
        Number of steps, at least 1.
    neighbors : {"add_remove", "replace_one"}
        Neighbour relation.

    Returns
    -------
    float
        Standard deviation of the noise over the clipping norm; at most about 1e-4 above the least that is certified.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, or no noise multiplier reaches the target.

    References
    ----------
    `Accountant.epsilon`, inverted.

    Examples
    --------
    >>> s = calibrate_noise_multiplier(
    ...     target_epsilon=8.0, delta=1e-5, sampling_prob=0.04, steps=2000, neighbors="add_remove")
    >>> 1.28 < s < 1.295
    True
    """
    return _Training(
        target_epsilon=target_epsilon, delta=delta, sampling_prob=sampling_prob, steps=steps, neighbors=neighbors
    ).costliest()


def calibrate_steps(
    *, target_epsilon: float, delta: float, noise_multiplier: float, sampling_prob: float, neighbors: str
) -> int:
    """Return how many steps of DP-SGD with Poisson batches stay (ε, δ)-DP, rounded down.

    Parameters
    ----------
    target_epsilon : float
        ε, 0.001 to 200, that must not be passed.
    delta : float
        δ in (0, 1).
    noise_multiplier : float
        Standard deviation of the noise over the clipping norm.
    sampling_prob : float
        Probability in (0, 1] that a record is in a batch.
    neighbors : {"add_remove", "replace_one"}
        Neighbour relation.

    Returns
    -------
    int
        Number of steps, 0 where not one fits, at most 10**9.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    `Accountant.epsilon`, inverted.

    Examples
    --------
    >>> steps = calibrate_steps(
    ...     target_epsilon=8.0, delta=1e-5, noise_multiplier=1.3, sampling_prob=0.04, neighbors="add_remove")
    >>> 2000 < steps < 2100
    True
    """
    training = _Training(
        target_epsilon=target_epsilon, delta=delta, noise_multiplier=noise_multiplier, sampling_prob=sampling_prob,
        neighbors=neighbors,
    )  # fmt: skip
    if training.epsilon(1) > training.target:
        return 0
    number = max(1, round(training.costliest()))
    while number > 1 and training.epsilon(number) > training.target:
        number -= 1
    return number


def calibrate_sampling_prob(
    *, target_epsilon: float, delta: float, noise_multiplier: float, steps: int, neighbors: str
) -> float:
    """Return the largest sampling probability at which DP-SGD with Poisson batches is (ε, δ)-DP, rounded down.

    Parameters
    ----------
    target_epsilon : float
        ε, 0.001 to 200, that must not be passed.
    delta : float
        δ in (0, 1).
    noise_multiplier : float
        Standard deviation of the noise over the clipping norm.
    steps : int
        Number of steps, at least 1.
    neighbors : {"add_remove", "replace_one"}
        Neighbour relation.

    Returns
    -------
    float
        Probability in (0, 1].

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, or no probability of 1e-9 or more reaches the target.

    References
    ----------
    `Accountant.epsilon`, inverted.

    Examples
    --------
    >>> q = calibrate_sampling_prob(
    ...     target_epsilon=8.0, delta=1e-5, noise_multiplier=1.3, steps=2000, neighbors="add_remove")
    >>> 0.04 < q < 0.042
    True
    """
    return _Training(
        target_epsilon=target_epsilon, delta=delta, noise_multiplier=noise_multiplier, steps=steps, neighbors=neighbors
    ).costliest()


def calibrate_sigma(*, target_epsilon: float, delta: float, sensitivity: float, steps: int) -> float:
    """Return the least σ at which `steps` releases with Gaussian noise are (ε, δ)-DP together: exact, rounded up.

    Parameters
    ----------
    target_epsilon : float
        ε > 0 that must not be passed.
    delta : float
        δ in (0, 1).
    sensitivity : float
        L2 sensitivity > 0 of each release, under the neighbour relation of the claim.
    steps : int
        Number of releases, at least 1.

    Returns
    -------
    float
        Standard deviation, in the unit of the sensitivity.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    Balle, Wang (2018), Thm. 8; n releases at σ are one at ``σ / sqrt(n)``: Dong, Roth, Su (2022), Cor. 3.3.

    Examples
    --------
    >>> round(calibrate_sigma(target_epsilon=1.0, delta=1e-5, sensitivity=1.0, steps=100), 9)
    37.306316348
    """
    target, d = _validate.positive(target_epsilon=target_epsilon), _validate.open_unit(delta=delta)
    size, n = _validate.positive(sensitivity=sensitivity), _validate.integer(steps=steps)
    one = gaussian_sigma(epsilon=target, delta=d, sensitivity=size)
    sigma = round_up(Fraction(one) * Fraction(sqrt_up(Fraction(n))))
    if not math.isfinite(sigma):
        raise ValueError(f"sensitivity must be smaller for a sigma that float64 can hold, got {sensitivity}")
    return sigma


def calibrate_scale(*, target_epsilon: float, delta: float, sensitivity: float, steps: int) -> float:
    """Return the least scale at which `steps` releases with Laplace noise are (ε, δ)-DP together, rounded up.

    Parameters
    ----------
    target_epsilon : float
        ε > 0 that must not be passed.
    delta : float
        δ in [0, 1); 0 gives basic composition.
    sensitivity : float
        L1 sensitivity > 0 of each release, under the neighbour relation of the claim.
    steps : int
        Number of releases, at least 1.

    Returns
    -------
    float
        Scale of the noise, in the unit of the sensitivity; at most about 1e-4 above the least that is certified.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, or the scale leaves float64.

    References
    ----------
    `Accountant.epsilon`, inverted.

    Examples
    --------
    >>> round(calibrate_scale(target_epsilon=1.0, delta=1e-4, sensitivity=1.0, steps=20), 1)
    13.5
    """
    target, d = _validate.positive(target_epsilon=target_epsilon), _validate.half_open_unit(delta=delta)
    size, n = _validate.positive(sensitivity=sensitivity), _validate.integer(steps=steps)
    basic = round_up(Fraction(n) / Fraction(target))
    unit = basic
    if d > 0 and n > 1 and 0.1 < basic < MOST / 2:

        def cost(scale: float) -> float:
            return Accountant(neighbors=_validate.ADD_REMOVE).add(Laplace(scale=scale), steps=n).epsilon_bounds(
                delta=d, gap=3e-4)[1]  # fmt: skip

        unit = min(basic, _search(cost, target, rising=False, ends=(0.02, MOST), name="scale"))
    scale = round_up(Fraction(unit) * Fraction(size)) if math.isfinite(unit) else math.inf
    if not 0 < scale < math.inf:
        raise ValueError(f"sensitivity / target_epsilon must be a scale that float64 can hold, got {sensitivity}")
    return scale
