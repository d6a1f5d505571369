"""What ε means: how well an attacker can do, whatever else the attacker knows.

An attacker who tests whether a person is in the data errs in two ways. The trade-off curve is the least rate of false
negatives at each rate of false positives (Wasserman and Zhou, 2010; Dong, Roth and Su, 2022). Everything here follows
from it by arithmetic, under the neighbour relation of the guarantee. The bounds hold for the best of all attackers; a
given attack may stay far below.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from dpbook import _validate
from dpbook._validate import FloatArray

SLACK = 1e-13  # float64 error of the formulas below, moved to the safe side


@dataclass(frozen=True, kw_only=True)
class TradeOff:
    """Least false negatives at given false positives: for μ-Gaussian DP, or for pairs of ε and δ that all hold.

    `approximate_trade_off`, `gaussian_trade_off` and `Accountant.trade_off` make one.

    Examples
    --------
    >>> curve = gaussian_trade_off(mu=1.0)
    >>> round(float(curve.false_negative_rate(0.05)), 6), round(curve.advantage, 6)
    (0.740489, 0.382925)
    """

    mu: float | None = None
    epsilons: tuple[float, ...] = ()
    deltas: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.mu is not None:
            object.__setattr__(self, "mu", _validate.non_negative(mu=self.mu))
        elif not self.epsilons or len(self.epsilons) != len(self.deltas):
            raise ValueError("epsilons must be as many as deltas, and at least one")

    def __repr__(self) -> str:
        what = f"mu={self.mu:.6g}" if self.mu is not None else f"{len(self.epsilons)} pairs of epsilon and delta"
        return f"TradeOff({what})"

    def false_negative_rate(self, false_positive_rate: Any) -> FloatArray:
        """Return the least false negative rate at these false positive rates, in [0, 1], rounded down."""
        x = _validate.finite_array(false_positive_rate=false_positive_rate)
        if ((x < 0) | (x > 1)).any():
            raise ValueError("false_positive_rate must be between 0 and 1")
        if self.mu is not None:
            result = special.ndtr(-special.ndtri(x) - self.mu)
            return np.asarray(np.maximum(0.0, result * (1 - SLACK * (1 + self.mu**2)) if self.mu < 1e6 else 0 * result))
        best = np.zeros(x.shape)
        for eps, d in zip(self.epsilons, self.deltas, strict=True):
            with np.errstate(over="ignore", invalid="ignore"):
                line = np.where(x > 0, 1 - d - np.exp(eps) * x, 1 - d)
                other = np.exp(-eps) * (1 - d - x)
            best = np.maximum(best, np.maximum(line, other) - SLACK)
        return np.maximum(best, 0.0)

    @property
    def advantage(self) -> float:
        """Return the largest true positive rate minus false positive rate (which is δ at ε = 0), rounded up."""
        if self.mu is not None:
            return min(1.0, float(special.erf(self.mu / math.sqrt(8))) * (1 + SLACK))
        best = min(
            (d * 2 + math.expm1(eps)) / (math.exp(eps) + 1) if eps < 700 else 1.0
            for eps, d in zip(self.epsilons, self.deltas, strict=True)
        )
        return min(1.0, best * (1 + SLACK))

    def attack_precision(self, *, prior: float, false_positive_rate: float) -> float:
        """Return the largest share of right guesses among the people whom an attack names, members a priori `prior`."""
        p = _validate.open_unit(prior=prior)
        x = _validate.open_unit(false_positive_rate=false_positive_rate)
        power = self._power(x)
        return min(1.0, p * power / (p * power + (1 - p) * x) * (1 + SLACK))

    def _power(self, x: float) -> float:
        """Return the largest true positive rate at this false positive rate: not as 1 - FNR, which loses small ones."""
        if self.mu is not None:
            power = float(special.ndtr(special.ndtri(x) + self.mu)) if self.mu < 1e6 else 1.0
            return min(1.0, power * (1 + SLACK * (1 + self.mu**2 + abs(float(special.ndtri(x))) ** 2)))
        lines = (
            min(d + math.exp(eps) * x, 1 - math.exp(-eps) * (1 - d - x)) if eps < 700 else 1.0
            for eps, d in zip(self.epsilons, self.deltas, strict=True)
        )
        return min(1.0, min(lines) * (1 + SLACK))

    def bayes_error(self, *, prior: float) -> float:
        """Return the least probability of a wrong guess when the person is in the data with probability `prior`."""
        p = _validate.open_unit(prior=prior)
        if self.mu is not None:
            if self.mu == 0:
                return min(p, 1 - p)
            cut = self.mu / 2 + math.log((1 - p) / p) / self.mu
            value = p * special.ndtr(cut - self.mu) + (1 - p) * special.ndtr(-cut)
            return float(value) * (1 - SLACK * (1 + self.mu**2)) if self.mu < 1e6 else 0.0
        # p FNR + (1-p) FPR is least at a corner of the curve: where two of its lines meet.
        fpr = np.array([0.0, 1.0, *self._corners()])
        return max(0.0, float(np.min(p * self.false_negative_rate(fpr) + (1 - p) * fpr)) - SLACK)

    def _corners(self) -> list[float]:
        lines = []
        for eps, d in zip(self.epsilons, self.deltas, strict=True):
            steep = math.exp(min(eps, 700.0))
            lines += [(1 - d, -steep), ((1 - d) / steep, -1 / steep)]
        lines = sorted(set(lines), key=lambda line: line[1])
        found = [-a / b for a, b in lines]
        rows = np.array(lines).reshape(-1, 2)
        a, b = rows[:, 0], rows[:, 1]
        with np.errstate(divide="ignore", invalid="ignore"):
            cross = (a[None, :] - a[:, None]) / (b[:, None] - b[None, :])
        found += cross[np.isfinite(cross)].tolist()
        return [x for x in found if 0 <= x <= 1]


def approximate_trade_off(*, epsilon: float, delta: float = 0.0) -> TradeOff:
    """Return the trade-off curve of an (ε, δ)-DP release, under the neighbour relation of the guarantee.

    Parameters
    ----------
    epsilon : float
        ε ≥ 0.
    delta : float, optional
        δ in [0, 1).

    Returns
    -------
    TradeOff
        ``max(0, 1 - δ - exp(ε) x, exp(-ε) (1 - δ - x))`` at false positive rate x.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    Wasserman, Zhou (2010), Thm. 2.4; Kairouz, Oh, Viswanath (2015), Thm. 2.1.

    Examples
    --------
    >>> curve = approximate_trade_off(epsilon=1.0, delta=1e-5)
    >>> round(float(curve.false_negative_rate(0.05)), 6), round(curve.advantage, 6)
    (0.864076, 0.462123)
    """
    eps, d = _validate.non_negative(epsilon=epsilon), _validate.half_open_unit(delta=delta)
    return TradeOff(epsilons=(eps,), deltas=(d,))


def gaussian_trade_off(*, mu: float) -> TradeOff:
    """Return the trade-off curve of μ-Gaussian DP, under the neighbour relation of the guarantee.

    Parameters
    ----------
    mu : float
        μ ≥ 0: sensitivity over σ, the size of a person in units of the noise. It is not σ.

    Returns
    -------
    TradeOff
        ``Φ(Φ⁻¹(1 - x) - μ)`` at false positive rate x.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    Dong, Roth, Su (2022), Gaussian differential privacy, Def. 2.6.

    Examples
    --------
    >>> round(gaussian_trade_off(mu=1.0).bayes_error(prior=0.5), 6)
    0.308538
    """
    return TradeOff(mu=_validate.non_negative(mu=mu))


def posterior_bounds(*, prior: float, epsilon: float) -> tuple[float, float]:
    """Return what an attacker's belief can become after a pure ε-DP release, as lower and upper bound.

    The belief is that the data is one of two neighbours and not the other. With δ > 0 no such bound holds for every
    output; `TradeOff.attack_precision` bounds the average then.

    Parameters
    ----------
    prior : float
        Probability in (0, 1) before the release.
    epsilon : float
        ε ≥ 0 of a pure guarantee, of everything that was released.

    Returns
    -------
    tuple of float
        Least and largest posterior probability.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    Kasiviswanathan, Smith (2014); the rule of Bayes, since the odds change by at most exp(ε).

    Examples
    --------
    >>> low, high = posterior_bounds(prior=0.5, epsilon=1.0)
    >>> round(low, 6), round(high, 6)
    (0.268941, 0.731059)
    """
    p, eps = _validate.open_unit(prior=prior), _validate.non_negative(epsilon=epsilon)
    shrink = math.exp(-eps)
    low = p * shrink / (1 - p + p * shrink)
    high = p / (p + (1 - p) * shrink)
    return max(0.0, low * (1 - SLACK)), min(1.0, high * (1 + SLACK))
