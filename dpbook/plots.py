"""Pictures for the chapters, in one style: colour-blind safe, and readable in black and white by line style and marker.

The only module that imports matplotlib. Every function draws numbers that it is given or computes with `dpbook`, on
new axes or on `ax`, and returns the axes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

try:
    import matplotlib.pyplot as plt
    from matplotlib.axes import Axes
except ImportError as error:
    raise ImportError('dpbook.plots needs matplotlib: pip install matplotlib, or ".[plots]" in the project') from error

# After Okabe and Ito's palette, dark and light in turn, so that neighbours differ in grey too. Each has a contrast of 3
# or more with white, and with the dark page when the site turns the figure dark. The site's own colours are the same
# (book/_static/custom.css).
COLORS = ("#0b4f8a", "#d17a00", "#00664b", "#cc79a7", "#5c3200", "#3399d6")
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P")

STYLE: dict[Any, Any] = {
    "figure.figsize": (7.0, 3.8),
    "figure.dpi": 110,
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "font.size": 12,  # a phone shows a figure at half its size
    "legend.frameon": False,
    "lines.linewidth": 1.9,
    "figure.constrained_layout.use": True,
}

# Where no corner of the axes is sure to be free.
ABOVE: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "ncols": 2, "borderaxespad": 0.2}


def use_style() -> None:
    """Make every following figure of this session use the book's style."""
    plt.rcParams.update(STYLE)


def _axes(ax: Axes | None) -> Axes:
    if ax is None:
        with plt.rc_context(STYLE):
            _, ax = plt.subplots()
    return ax


def look(i: int, *, marker: bool = False) -> dict[str, Any]:
    """Return the colour, line style and marker of series number `i`."""
    style: dict[str, Any] = {"color": COLORS[i % len(COLORS)], "linestyle": LINES[i % len(LINES)]}
    return style | ({"marker": MARKERS[i % len(MARKERS)], "markersize": 5} if marker else {})


def curves(
    x: Any,
    series: Mapping[str, Any],
    *,
    xlabel: str,
    ylabel: str,
    log: str = "",
    marker: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw named curves over one x. `log` is "", "x", "y" or "xy": which axes are logarithmic."""
    ax = _axes(ax)
    for i, (name, y) in enumerate(series.items()):
        ax.plot(np.asarray(x), np.asarray(y), label=name, **look(i, marker=marker))
    if "x" in log:
        ax.set_xscale("log")
    if "y" in log:
        ax.set_yscale("log")
    ax.set(xlabel=xlabel, ylabel=ylabel)
    if len(series) > 1:
        ax.legend()
    return ax


def laplace_neighbors(
    *,
    values: tuple[float, float],
    scale: float,
    labels: tuple[str, str] = ("with the person", "without"),
    xlabel: str = "released value",
    axes: Any = None,
) -> Any:
    """Draw the Laplace densities of two neighbours' answers, and below them the log of their ratio, with ±ε."""
    if axes is None:
        with plt.rc_context(STYLE):
            _, axes = plt.subplots(2, 1, sharex=True, figsize=(7.0, 4.8))
    a, b = values
    if a == b:
        raise ValueError(f"values must differ, got {values}")
    x = np.linspace(min(values) - 6 * scale, max(values) + 6 * scale, 801)
    for i, (value, name) in enumerate(zip(values, labels, strict=True)):
        axes[0].plot(x, np.exp(-np.abs(x - value) / scale) / (2 * scale), label=f"{name}: {value:g}", **look(i))
    axes[0].set(ylabel="density")
    axes[0].legend(**ABOVE)
    epsilon = abs(a - b) / scale
    axes[1].plot(x, (np.abs(x - b) - np.abs(x - a)) / scale, color="black")
    for sign in (-1, 1):
        axes[1].axhline(sign * epsilon, color=COLORS[1], linestyle="--", linewidth=1.2)
    axes[1].text(x[0], epsilon, " ε", va="bottom")
    axes[1].text(x[0], -epsilon, " -ε", va="top")
    axes[1].set(xlabel=xlabel, ylabel="log of the ratio", ylim=(-1.5 * epsilon, 1.5 * epsilon))
    return axes


def releases(
    labels: Sequence[str],
    truth: Any,
    released: Any,
    error: Any,
    *,
    ylabel: str,
    ax: Axes | None = None,
) -> Axes:
    """Draw bars of the truth (which a real release would not show) and the released values with their error bars."""
    ax = _axes(ax)
    at = np.arange(len(labels))
    ax.bar(at, np.asarray(truth), color="#c8d6e5", edgecolor="#55606b", label="truth (never published)", width=0.7)
    ax.errorbar(
        at, np.asarray(released), yerr=np.asarray(error), fmt="o", color=COLORS[1], capsize=4, markersize=5,
        label="released, with interval",
    )  # fmt: skip
    ax.set_xticks(at, labels)
    ax.set(ylabel=ylabel)
    ax.grid(axis="x", visible=False)
    ax.legend(**ABOVE)
    return ax


def histogram(
    samples: Mapping[str, Any], *, xlabel: str, bins: Any = 60, truth: float | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the outlines of the histograms of many releases, and the truth as a line."""
    ax = _axes(ax)
    for i, (name, values) in enumerate(samples.items()):
        ax.hist(np.asarray(values), bins=bins, density=True, histtype="step", linewidth=1.8, label=name, **look(i))
    if truth is not None:
        ax.axvline(truth, color="black", linewidth=1.0)
    ax.set(xlabel=xlabel, ylabel="density")
    ax.legend()
    return ax


def trade_off(
    curves: Mapping[str, Any], *, log: bool = False, guess: str = "random guess", ax: Axes | None = None
) -> Axes:
    """Draw trade-off curves (`dpbook.risk.TradeOff`): what the best attacker misses, against false alarms."""
    ax = _axes(ax)
    x = np.concatenate([[0.0], np.geomspace(1e-6, 1.0, 400)]) if log else np.linspace(0.0, 1.0, 401)
    ax.plot(x, 1 - x, color="#888888", linewidth=1.2, label=guess)
    for i, (name, curve) in enumerate(curves.items()):
        ax.plot(x, curve.false_negative_rate(x), label=name, **look(i))
    if log:
        ax.set_xscale("log")
        ax.set_xlim(1e-6, 1.0)
    ax.set(xlabel="false positive rate", ylabel="least false negative rate", ylim=(0.0, 1.02))
    ax.legend()
    return ax


def audit_picture(found: Any, *, labels: tuple[str, str] = ("first input", "second input"), axes: Any = None) -> Any:
    """Draw an `Audit`: the outputs of both inputs, and the tests of the audit beside what the claim allows.

    On the right every test "the output is in the set" is a point: how often it is wrong on either input. Under the
    claimed (ε, δ) no test lies below the line.
    """
    if axes is None:
        with plt.rc_context(STYLE):
            _, axes = plt.subplots(1, 2, figsize=(8.4, 3.6))
    left, right = axes
    if found.labels:
        at = np.arange(len(found.labels))
        for i, (shares, name) in enumerate(zip(found.histogram, labels, strict=True)):
            left.bar(at + (i - 0.5) * 0.4, shares, 0.4, label=name, color=COLORS[i], hatch=("", "//")[i])
        left.set_xticks(at, found.labels, rotation=30 if max(map(len, found.labels)) > 3 else 0, ha="center")
        left.set(xlabel=found.score or "form of the output")
        left.grid(axis="x", visible=False)
    else:
        for i, (shares, name) in enumerate(zip(found.histogram, labels, strict=True)):
            left.stairs(shares, found.cuts, label=name, linewidth=1.8, color=COLORS[i], linestyle=LINES[i])
        left.set(xlabel=found.score)
    left.set(ylabel="share of the draws")
    left.legend(**ABOVE)
    alarm = np.linspace(0.0, 1.0, 201)
    grow = np.exp(min(found.epsilon, 700.0))
    allowed = np.maximum(0.0, np.maximum(1 - found.delta - grow * alarm, (1 - found.delta - alarm) / grow))
    right.plot(alarm, allowed, color="black", label="least error that the claim allows")
    everywhere = alarm >= 0  # Matplotlib 3.6.0 does not fill without it
    right.fill_between(alarm, 0, allowed, where=everywhere, color="#dddddd", linewidth=0)
    right.plot(*found.roc, label="tests of the audit", **look(1))
    point = (found.other_hits / found.tested, 1 - found.hits / found.tested)
    right.plot(*point, "o", color=COLORS[0], markersize=7, label="the event that was chosen")
    right.set(xlabel="false alarms", ylabel="misses", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
    right.legend(fontsize=8.5)
    return axes
