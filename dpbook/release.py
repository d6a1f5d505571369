"""What every everyday question returns: the private answer, what it cost, and how far noise may have moved it."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpbook import _validate


@dataclass(frozen=True, eq=False)
class Release:
    """A private answer with what it cost and how far the noise may have moved it.

    Attributes
    ----------
    query
        What was asked: "count", "mean", …
    value
        The private answer.
    interval
        Lower and upper end, in the shape of `value`: the answer on the cleaned records lies between them with
        probability at least ``1 - alpha`` over the noise, entry by entry. Bias from clipping, and sampling error, are
        not in it; nor, for a sum with private n, a variance or a covariance, is the rounding of the records to public
        steps, which matters only where n ε is in the millions (see the module). None where no interval follows from
        public numbers (quantiles: see `rank_error`).
    alpha
        Significance level of the interval.
    scale
        Scale b of the Laplace noise or standard deviation σ of the Gaussian noise, in the unit of `value` where one
        noise is added to it, else in that of the parts; for a quantile in ranks.
    epsilon, delta
        What the release cost; δ is 0 for pure ε-DP.
    neighbors
        The neighbour relation of the guarantee.
    mechanism
        "laplace", "discrete_laplace", "gaussian", "exponential", "permute_and_flip" or "randomized_response".
    keys
        For one value for each bin or category: its edges or key.
    parts
        For an answer that is computed from several private numbers: those numbers. Their cost is *inside* `epsilon`.
    rank_error
        For a quantile: the value's rank misses the exact one by at most this many records, with probability at least
        ``1 - alpha``.
    """

    query: str
    value: Any
    interval: tuple[Any, Any] | None
    alpha: float
    scale: float
    epsilon: float
    delta: float
    neighbors: str
    mechanism: str
    keys: tuple[Any, ...] = ()
    parts: dict[str, "Release"] = field(default_factory=dict)
    rank_error: float | None = None

    def __repr__(self) -> str:
        delta = f", delta={_validate.all_digits(self.delta)}" if self.delta else ""
        cost = f"epsilon={_validate.all_digits(self.epsilon)}{delta}, neighbors={self.neighbors!r}, {self.mechanism}"
        sure = f"{100 * (1 - self.alpha):g} %"
        if self.keys and self.interval is not None:
            low, high = self.interval
            lines = [
                f"  {_bin(key)}: {_number(v)}  ({_number(a)} to {_number(b)})"
                for key, v, a, b in list(zip(self.keys, self.value, low, high, strict=True))[:20]
            ]
            more = [f"  … {len(self.keys) - 20} more"] if len(self.keys) > 20 else []
            return "\n".join([f"{self.query}, each with its {sure} noise interval", *lines, *more, f"  {cost}"])
        if isinstance(self.value, tuple):
            text = " to ".join(map(_number, self.value))
        else:
            text = ", ".join(map(_number, np.atleast_1d(self.value)))
        if self.interval is not None:
            low, high = (", ".join(map(_number, np.atleast_1d(end))) for end in self.interval)
            text += f", {sure} noise interval {low} to {high}"
        if self.rank_error is not None:
            text += f", {sure} sure to miss the exact rank by at most {self.rank_error:,.1f} records"
        return f"{self.query} = {text}\n  {cost}"


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, (int, np.integer)) else f"{float(value):,.6g}"


def _bin(key: Any) -> str:
    return f"{_number(key[0])} to {_number(key[1])}" if isinstance(key, _Bin) else repr(key)


class _Bin(tuple):  # type: ignore[type-arg]
    """A pair of edges, told apart from a key that is a tuple."""
