"""The sliders' formulas (book/_static/widgets.js), run by node, against dpbook; and the tables beside them."""

import functools
import html
import json
import math
import re
import shutil
import subprocess
from fractions import Fraction
from pathlib import Path

import mpmath
import nbformat
import numpy as np
import pytest
from scipy import stats

from dpbook.gaussian import gaussian_delta, gaussian_error, gaussian_sigma
from dpbook.laplace import laplace_error, laplace_scale
from dpbook.sensitivity import mean_sensitivity, vector_sensitivity
from dpbook.tuning import error_curve

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "book" / "_static" / "widgets.js"
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed: the sliders' numbers were not compared")


def javascript(expression, data=None, source=None):
    """Evaluate an expression of F, the formulas, and `data`."""
    text = SCRIPT.read_text(encoding="utf8") if source is None else source
    program = (
        f"{text}\nconst F = DPBOOK_WIDGETS, data = {json.dumps(data)};\nconsole.log(JSON.stringify({expression}));"
    )
    done = subprocess.run([NODE, "-"], input=program, capture_output=True, text=True, encoding="utf8", timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@functools.cache
def sliders(name):
    found = javascript(f"F.WIDGETS.{name}.sliders.map((s) => [s.name, s.values])")
    return dict(found)


@functools.cache
def sigma_one(epsilon, delta):
    return gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=1.0)


def relative(found, true):
    found, true = np.asarray(found), np.asarray(true)
    return float(np.max(np.abs(found / true - 1)))


def number(text):
    return float(text.replace(",", ""))


def rounded_up(text, true, digits):
    """Whether the shown number is not below the true one, and less than one unit of its last digit above."""
    shown, true = Fraction(text.replace(",", "")), Fraction(true)
    unit = Fraction(10) ** (math.floor(math.log10(true)) - digits + 1)
    return true * (1 - Fraction(1, 10**11)) <= shown <= true * (1 + Fraction(1, 10**8)) + unit


def sigma_error(source=None):
    """Return the largest relative error of σ over all values of the sliders for ε and δ."""
    pairs = [(e, d) for e in sliders("sigma")["epsilon"] for d in sliders("sigma")["delta"]]
    found = javascript("data.map(([e, d]) => F.gaussianSigma(e, d, 1))", pairs, source)
    return relative(found, [sigma_one(*pair) for pair in pairs])


@needs_node
def test_normal_tail_and_its_inverse():
    x = np.linspace(-8, 36, 221).tolist()  # far out, the rounding of x² is what is seen
    assert relative(javascript("data.map(F.normalTail)", x), [float(mpmath.ncdf(-v)) for v in x]) < 1e-12
    x = np.linspace(0, 60, 241).tolist()
    mp = mpmath.MPContext()
    mp.dps = 40
    true = [float(mp.exp(mp.mpf(v) ** 2) * mp.erfc(v)) for v in x]
    assert relative(javascript("data.map(F.erfcx)", x), true) < 5e-15
    p = [*np.geomspace(1e-30, 0.5, 100).tolist(), 0.9, 0.99]
    found = np.array(javascript("data.map(F.normalTailQuantile)", p))
    assert np.max(np.abs(found - stats.norm.isf(p))) < 1e-11


@needs_node
def test_sigma_over_the_whole_range():
    assert sigma_error() < 1e-9  # asked for: 1e-6


@needs_node
def test_a_fault_would_be_noticed():
    source = SCRIPT.read_text(encoding="utf8")
    for right, wrong in (
        ("return 1 / (Math.sqrt(Math.PI) * (x + tail));", "return 1.00001 / (Math.sqrt(Math.PI) * (x + tail));"),
        ("(epsilon / mu - mu / 2)", "(epsilon / mu - mu / 2.001)"),
    ):
        assert source.count(right) == 1
        assert sigma_error(source.replace(right, wrong)) > 1e-6


@needs_node
def test_shown_sigma_is_rounded_up():
    grid = sliders("sigma")
    cases = [(e, d, s) for e in grid["epsilon"] for d in grid["delta"] for s in grid["sensitivity"]]
    shown = javascript("data.map(([e, d, s]) => F.up(F.gaussianSigma(e, d, s), 4, 1e-9))", cases)
    for (e, d, s), text in zip(cases, shown, strict=True):
        true = sigma_one(e, d) * s
        assert true <= number(text) <= true * (1 + 1.001e-3), (e, d, s, text, true)


@needs_node
def test_classic_sigma_and_its_true_delta():
    grid = sliders("sigma")
    cases = [(e, d) for e in grid["epsilon"][::3] for d in grid["delta"][::3]]
    found = javascript(
        "data.map(([epsilon, delta]) => F.WIDGETS.sigma.numbers({epsilon, delta, sensitivity: 1}))", cases
    )
    for (e, d), values in zip(cases, found, strict=True):
        classic = math.sqrt(2 * math.log(1.25 / d)) / e
        if e < 1:
            assert relative(gaussian_sigma(epsilon=e, delta=d, sensitivity=1.0, calibration="classic"), classic) < 1e-14
        assert relative(values["classic"], classic) < 1e-14
        true = gaussian_delta(sigma=classic, sensitivity=1.0, epsilon=e)
        assert relative(values["classicDelta"], true) < 1e-9, (e, d)


@needs_node
def test_laplace_over_the_whole_range():
    grid = sliders("laplace")
    cases = [(e, s) for e in grid["epsilon"] for s in grid["sensitivity"]]
    found = javascript(
        "data.map(([epsilon, sensitivity]) => { const n = F.WIDGETS.laplace.numbers({epsilon, sensitivity});"
        " return [n.scale, n.error, n.ratio, F.up(n.scale, 2), F.up(n.error, 2, 1e-9), F.up(n.ratio, 3, 1e-9)]; })",
        cases,
    )
    for (e, s), (scale, error, ratio, *shown) in zip(cases, found, strict=True):
        true = laplace_scale(epsilon=e, sensitivity=s)
        within = laplace_error(scale=true, alpha=0.05)
        assert relative([scale, error, ratio], [true, within, math.exp(e)]) < 1e-14
        for text, value, digits in zip(shown, (true, within, math.exp(e)), (2, 2, 3), strict=True):
            assert rounded_up(text, value, digits), (e, s, text, value)
    x = np.linspace(-20, 20, 81).tolist()
    assert relative(javascript("data.map((x) => F.laplaceDensity(x, 2.5))", x), stats.laplace.pdf(x, scale=2.5)) < 1e-13
    ratio = javascript("data.map((x) => F.laplaceLogRatio(x, 1, 4, 2.5))", x)
    true = stats.laplace.logpdf(x, loc=1, scale=2.5) - stats.laplace.logpdf(x, loc=4, scale=2.5)
    assert np.max(np.abs(np.array(ratio) - true)) < 1e-13


@needs_node
def test_errors_of_means_over_the_whole_range():
    grid = sliders("error")
    cases = [
        {"epsilon": e, "n": n, "k": k, "delta": d}
        for e in grid["epsilon"] for n in grid["n"][::10] for k in grid["k"][::3] for d in grid["delta"][::6]
    ]  # fmt: skip
    found = javascript("data.map((at) => { const m = F.meanErrors(at); return [m.laplace, m.gaussian]; })", cases)
    quantile = gaussian_error(sigma=1.0, alpha=0.05)
    laplace, gaussian = [], []
    for at in cases:
        one = mean_sensitivity(bounds=(0, 100), n=at["n"], neighbors="replace_one")
        laplace.append(at["k"] * one / at["epsilon"] * math.log(20))
        sigma = sigma_one(at["epsilon"], at["delta"]) * math.sqrt(at["k"]) * one
        gaussian.append(sigma * quantile)
    assert relative(found, np.transpose([laplace, gaussian])) < 1e-9


@needs_node
@pytest.mark.parametrize("k", [1, 50, 1000])
def test_errors_of_means_by_the_packages_own_functions(k):
    # k means over the same n people are a vector: one person moves each entry by at most 100 / n
    one = mean_sensitivity(bounds=(0, 100), n=250, neighbors="replace_one")
    l1, l2 = (vector_sensitivity(per_coordinate=one, dimension=k, norm=norm) for norm in ("l1", "l2"))
    at = {"epsilon": 0.5, "n": 250, "k": k, "delta": 1e-6}
    found = javascript("F.meanErrors(data)", at)
    laplace = error_curve(epsilon=0.5, sensitivity=l1, alpha=0.05)
    gaussian = error_curve(epsilon=0.5, sensitivity=l2, alpha=0.05, mechanism="gaussian", delta=1e-6)
    assert relative([found["laplace"], found["gaussian"]], [float(laplace), float(gaussian)]) < 1e-9


@needs_node
def test_tradeoff_curves():
    grid = sliders("tradeoff")
    cases = [(e, d, a) for e in grid["epsilon"] for d in grid["delta"][::3] for a in grid["alarms"][::4]]
    found = javascript(
        "data.map(([epsilon, delta, alarms]) => { const n = F.WIDGETS.tradeoff.numbers({epsilon, delta, alarms});"
        " return [n.any, n.gaussian, F.percentDown(n.any), F.percentDown(n.gaussian - 1e-9)]; })",
        cases,
    )
    for (e, d, a), (any_, gaussian, any_text, gaussian_text) in zip(cases, found, strict=True):
        # (ε, δ)-DP for the set "the attacker says yes" and for its complement, in both directions
        least = max(0.0, 1 - d - math.exp(e) * a, math.exp(-e) * (1 - d - a))
        assert abs(any_ - least) < 1e-12
        true = stats.norm.cdf(stats.norm.isf(a) - 1 / sigma_one(e, d))
        assert abs(gaussian - true) < 1e-9, (e, d, a)
        assert gaussian >= any_ - 1e-9
        for text, value in ((any_text, any_), (gaussian_text, true)):
            assert -1e-12 <= value - float(text.removesuffix(" %")) / 100 < 1.1e-3, (text, value)


@needs_node
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (1.0, 1e-5), (3.0, 1e-2)])
def test_gaussian_curve_touches_the_bound(epsilon, delta):
    # the pair (ε, δ) is exact for this noise, so the curves must meet: an error of σ would part them
    a = np.linspace(0, 1, 2001)[1:-1].tolist() + np.geomspace(1e-9, 1e-3, 2000).tolist()
    gap = javascript(
        "(() => { const [e, d, a] = data, mu = F.largestMu(e, d);"
        " return a.map((x) => F.gaussianTradeoff(x, mu) - F.tradeoff(x, e, d)); })()",
        [epsilon, delta, a],
    )
    assert -1e-12 < min(gap) < 1e-6


@needs_node
def test_messages():
    say = javascript(
        "Object.fromEntries(Object.entries(F.WIDGETS).map(([name, w]) =>"
        " [name, w.say(Object.fromEntries(w.sliders.map((s) => [s.name, s.start])))]))"
    )
    assert "ε = 0.5, Δ = 1: scale 2.0, 95 % of releases within ±6.0" in say["laplace"]
    assert "Laplace noise stays within ±0.30, Gaussian noise (δ = 1e-6) within ±0.83" in say["error"]
    assert "exact σ = 7.032 (rounded up)" in say["sigma"]
    assert "at least 86.4 %" in say["tradeoff"]
    every = javascript(
        "Object.values(F.WIDGETS).flatMap((w) => {"
        " const at = Object.fromEntries(w.sliders.map((s) => [s.name, s.start]));"
        " return w.sliders.flatMap((s) => s.values.map((v) => w.say({...at, [s.name]: v}))); })"
    )
    for text in every:
        assert not re.search(r"NaN|Infinity|undefined|\d{8}", text), text


@needs_node
def test_every_slider_starts_on_one_of_its_values():
    assert javascript("Object.values(F.WIDGETS).every((w) => w.sliders.every((s) => s.values.includes(s.start)))")


def tables():
    """Return the tables inside the sliders of all notebooks: name and rows of texts."""
    found = {}
    for path in sorted((ROOT / "book").glob("*.ipynb")):
        for cell in nbformat.read(path, as_version=4).cells:
            for name, body in re.findall(r'<div class="dp-slider" data-fn="(\w+)">(.*?)</div>', cell.source, re.DOTALL):
                rows = re.findall(r"<tr>(.*?)</tr>", body)
                found[name] = [
                    [html.unescape(c) for c in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", r)] for r in rows[1:]
                ]
    return found


def test_every_slider_has_a_table_for_readers_without_javascript():
    found = tables()
    assert set(found) == {"laplace", "error", "sigma", "tradeoff"}
    for e, scale, error, ratio in found["laplace"]:
        true = laplace_scale(epsilon=float(e), sensitivity=1.0)
        assert rounded_up(scale, true, 3)
        assert rounded_up(error, laplace_error(scale=true, alpha=0.05), 3)
        assert rounded_up(ratio, math.exp(float(e)), 3)
    for e, *row in found["error"]:
        for text, (k, kind) in zip(row, [(1, "l"), (1, "g"), (100, "l"), (100, "g")], strict=True):
            size = (k if kind == "l" else math.sqrt(k)) * 0.1
            noise = {} if kind == "l" else {"mechanism": "gaussian", "delta": 1e-6}
            assert rounded_up(text, float(error_curve(epsilon=float(e), sensitivity=size, alpha=0.05, **noise)), 3)
    for e, sigma, classic in found["sigma"]:
        assert rounded_up(sigma, sigma_one(float(e), 1e-5), 4)
        assert rounded_up(classic, math.sqrt(2 * math.log(1.25e5)) / float(e), 4)
    for e, any_, gaussian in found["tradeoff"]:
        least = max(0.0, 1 - 1e-5 - math.exp(float(e)) * 0.05, math.exp(-float(e)) * (0.95 - 1e-5))
        best = stats.norm.cdf(stats.norm.isf(0.05) - 1 / sigma_one(float(e), 1e-5))
        for text, value in ((any_, least), (gaussian, best)):
            assert 0 <= value - float(text.removesuffix(" %")) / 100 < 1e-3
