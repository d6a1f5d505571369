"""Pictures: axes with labels, no display, no warning."""

import itertools
import subprocess
import sys

import matplotlib as mpl
import pytest

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.colors import to_rgb

from dpbook import plots
from dpbook.risk import approximate_trade_off, gaussian_trade_off


@pytest.fixture(autouse=True)
def _closed():
    with mpl.rc_context():
        yield
    plt.close("all")


def drawn(ax):
    ax.figure.canvas.draw()  # warnings of the layout come only now
    return ax


@pytest.mark.parametrize("log", ["", "x", "y", "xy"])
@pytest.mark.parametrize("marker", [False, True])
def test_curves(log, marker):
    series = {f"s{i}": [i + 1, i + 2] for i in range(8)}
    ax = drawn(plots.curves([1, 2], series, xlabel="x", ylabel="y", log=log, marker=marker))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x", "y")
    assert (ax.get_xscale() == "log", ax.get_yscale() == "log") == ("x" in log, "y" in log)
    assert [t.get_text() for t in ax.get_legend().get_texts()] == list(series)


def test_laplace_neighbors():
    axes = plots.laplace_neighbors(values=(10, 11), scale=2.0)
    assert len(axes) == 2
    drawn(axes[0])
    assert axes[0].get_ylabel() == "density"
    assert axes[1].get_xlabel() == "released value"
    ratio = axes[1].lines[0].get_ydata()
    assert max(abs(ratio)) == pytest.approx(0.5)  # the drawn bound is attained, and never passed


def test_releases_and_histogram():
    ax = drawn(plots.releases(["a", "b"], [3, 4], [2.5, 5], [1, 1], ylabel="people"))
    assert ax.get_ylabel() == "people"
    assert [t.get_text() for t in ax.get_xticklabels()] == ["a", "b"]
    ax = drawn(plots.histogram({"one": [1, 2, 3], "two": [2, 3, 4]}, xlabel="release", truth=2.0))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("release", "density")


@pytest.mark.parametrize("log", [False, True])
def test_trade_off(log):
    curves = {"μ = 1": gaussian_trade_off(mu=1.0), "ε = 1": approximate_trade_off(epsilon=1.0, delta=1e-5)}
    ax = drawn(plots.trade_off(curves, log=log))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("false positive rate", "least false negative rate")
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["random guess", *curves]
    assert (ax.get_xscale() == "log") == log
    assert plots.trade_off(curves, ax=ax) is ax


def test_given_axes_are_used():
    _, ax = plt.subplots()
    assert plots.curves([1, 2], {"a": [1, 2]}, xlabel="x", ylabel="y", ax=ax) is ax
    assert plots.histogram({"a": [1, 2]}, xlabel="x", ax=ax) is ax
    assert plots.releases(["a"], [1], [1], [1], ylabel="y", ax=ax) is ax
    _, pair = plt.subplots(2)
    assert plots.laplace_neighbors(values=(0, 1), scale=1.0, axes=pair) is pair


def test_style():
    plots.use_style()
    assert all(mpl.rcParams[k] is not None for k in plots.STYLE)
    looks = [(p["color"], str(p["linestyle"]), p["marker"]) for p in (plots.look(i, marker=True) for i in range(6))]
    assert all(len(set(column)) == 6 for column in zip(*looks, strict=True))


def test_neighbouring_colours_differ_in_greyscale():
    grey = [sum(w * v for w, v in zip((0.299, 0.587, 0.114), to_rgb(c), strict=True)) for c in plots.COLORS]
    assert min(abs(b - a) for a, b in itertools.pairwise(grey)) >= 0.08


@pytest.mark.parametrize(("module", "loaded"), [("dpbook", False), ("dpbook.plots", True)])
def test_matplotlib_only_when_asked_for(module, loaded):
    code = f"import sys, {module}; print('matplotlib' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == str(loaded)
