"""Pictures: axes with labels, no display, no warning."""

import itertools
import math
import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pytest

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.colors import to_rgb

from dpbook import plots
from dpbook.audit import audit
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


@pytest.mark.parametrize("words", [False, True])
def test_audit_picture(words):
    rng = np.random.default_rng(1)
    release = (lambda x: "abc"[int(rng.integers(2)) + x]) if words else (lambda x: x + rng.laplace())
    found = audit(release, 0, 1, epsilon=1.0, draws=400)
    left, right = drawn(plots.audit_picture(found, labels=("with", "without"))[0]), plots.audit_picture(found)[1]
    assert [t.get_text() for t in left.get_legend().get_texts()] == ["with", "without"]
    assert left.get_ylabel() == "share of the draws"
    assert (right.get_xlabel(), right.get_ylabel()) == ("false alarms", "misses")
    x, allowed = right.lines[0].get_data()
    expected = np.maximum(1 - math.e * x, (1 - x) / math.e)  # the trade-off curve of ε = 1
    assert np.allclose(allowed, np.maximum(expected, 0))
    point = right.lines[2].get_xydata()[0]
    assert point.tolist() == [found.other_share, 1 - found.share]
    _, pair = plt.subplots(1, 2)
    assert plots.audit_picture(found, axes=pair) is pair


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


# What the site does to figures in the dark theme, as in book/_static/custom.css: invert(1) hue-rotate(180deg)
# brightness(.92), then screen with the page. The matrix of hue-rotate is that of the CSS Filter Effects module.
C, S = -1.0, 0.0
HUE = np.array([
    [0.213 + C * 0.787 - S * 0.213, 0.715 - C * 0.715 - S * 0.715, 0.072 - C * 0.072 + S * 0.928],
    [0.213 - C * 0.213 + S * 0.143, 0.715 + C * 0.285 + S * 0.140, 0.072 - C * 0.072 - S * 0.283],
    [0.213 - C * 0.213 - S * 0.787, 0.715 - C * 0.715 + S * 0.715, 0.072 + C * 0.928 + S * 0.072],
])  # fmt: skip
DARK_PAGE = np.array(to_rgb("#121212"))
# Machado, Oliveira and Fernandes (2009), severity 1, for linear RGB.
BLINDNESS = {
    "none": np.eye(3),
    "protan": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
    "deutan": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
    "tritan": np.array([[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]]),
}


def in_the_dark(color):
    shown = np.clip(HUE @ (1 - np.array(to_rgb(color))), 0, 1) * 0.92
    return 1 - (1 - shown) * (1 - DARK_PAGE)


def linear(rgb):
    rgb = np.asarray(rgb)
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def contrast(one, two):
    low, high = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (one, two))
    return (high + 0.05) / (low + 0.05)


def lab(rgb, blindness):
    seen = np.clip(BLINDNESS[blindness] @ linear(rgb), 0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ seen
    f = np.cbrt(xyz / [0.9505, 1, 1.089])
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_figures_are_legible_on_both_pages():
    for color in plots.COLORS:
        assert contrast(to_rgb(color), (1, 1, 1)) >= 3, color
        assert contrast(in_the_dark(color), DARK_PAGE) >= 3, color
    assert contrast(in_the_dark("black"), in_the_dark("white")) >= 12  # letters and axes
    assert np.allclose(in_the_dark("white"), DARK_PAGE)  # the white ground vanishes


@pytest.mark.parametrize("blindness", BLINDNESS)
def test_colours_differ_for_colour_blind_eyes(blindness):
    for view in (to_rgb, in_the_dark):
        seen = [lab(view(color), blindness) for color in plots.COLORS]
        apart = min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2))
        assert apart >= (8 if blindness == "tritan" else 14), (view, apart)


@pytest.mark.parametrize(("module", "loaded"), [("dpbook", False), ("dpbook.plots", True)])
def test_matplotlib_only_when_asked_for(module, loaded):
    code = f"import sys, {module}; print('matplotlib' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == str(loaded)
