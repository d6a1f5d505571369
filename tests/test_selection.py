"""Choosing one of many: the probabilities are those of the papers, and neighbours differ by the ε that was paid.

Privacy is checked exactly where it can be, from the utilities and scales that the code hands to the (tested) exact
draws; what is drawn is then compared with those probabilities. Seeds are fixed; a statistical test rejects below 1e-6.
"""

import copy
import datetime
import itertools
import math
import os
import pickle
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from fractions import Fraction

import mpmath
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from dpbook import _validate, noise, selection
from dpbook.laplace import discrete_laplace_pmf
from dpbook.selection import (
    SparseVector,
    exponential_mechanism,
    exponential_quantile,
    keep_probabilities,
    noisy_max,
    permute_and_flip,
    private_keys,
    quantile_points,
    quantile_sensitivity,
    randomized_response,
    response_probabilities,
    top_k,
)

AR, RO = "add_remove", "replace_one"
REJECT, Z_LIMIT = 1e-6, 5.0
CHOOSERS = [exponential_mechanism, permute_and_flip, noisy_max]


def seeded(seed=0):
    return np.random.default_rng(seed)  # seeded: not private


def chi_square_p(observed, expected):
    keep = expected > 5
    o = np.append(observed[keep], observed[~keep].sum())
    e = np.append(expected[keep], expected[~keep].sum())
    o, e = o[e > 0], e[e > 0]
    return float(special.gammaincc((len(e) - 1) / 2, ((o - e) ** 2 / e).sum() / 2))


def frequencies(draw, size, times=10_000, seed=1):
    rng = seeded(seed)
    return np.bincount([draw(rng) for _ in range(times)], minlength=size)


# 1. The choosers.


def exponential_probabilities(utilities, rate):
    w = np.exp(rate * (np.asarray(utilities) - max(utilities)))
    return w / w.sum()


def flip_probabilities(utilities, rate):
    """Permute-and-flip from its definition: all orders, all coins."""
    p = np.exp(rate * (np.asarray(utilities) - max(utilities)))
    orders = list(itertools.permutations(range(len(p))))
    result = np.zeros(len(p))
    for order in orders:
        left = 1.0
        for i in order:
            result[i] += left * p[i] / len(orders)
            left *= 1 - p[i]
    return result


def noisy_max_probabilities(utilities, scale, reach=400):
    """Report-noisy-max on whole numbers with discrete Laplace noise, the first of equals winning: by summation."""
    z = np.arange(-reach, reach + 1)
    pmf = discrete_laplace_pmf(z, scale=scale)
    below = np.concatenate([[0.0], np.cumsum(pmf)])  # P(Z < z)
    result = []
    for i, u in enumerate(utilities):
        product = pmf.copy()
        for j, v in enumerate(utilities):
            if j != i:
                at = np.clip(z + u - v + reach + (1 if j > i else 0), 0, len(pmf))
                product = product * below[at]
        result.append(product.sum())
    return np.array(result)


UTILITIES = [3.0, 5.0, 4.5, 0.0]


@pytest.mark.parametrize(("monotonic", "factor"), [(False, 2), (True, 1)])
def test_each_chooser_has_the_distribution_of_its_paper(monotonic, factor):
    arguments = {"epsilon": 0.8, "sensitivity": 1.5, "neighbors": AR, "monotonic": monotonic}
    rate = 0.8 / (factor * 1.5)
    cases = {exponential_mechanism: exponential_probabilities, permute_and_flip: flip_probabilities}
    for chooser, law in cases.items():
        found = frequencies(lambda rng, c=chooser: c(UTILITIES, **arguments, rng=rng), 4)
        assert chi_square_p(found, 10_000 * law(UTILITIES, rate)) > REJECT
        assert chi_square_p(found, 10_000 * law(UTILITIES, rate / 0.8)) < REJECT
    found = frequencies(lambda rng: noisy_max(UTILITIES, **arguments, rng=rng), 4)
    coarse = [round(u * 20) for u in UTILITIES]  # steps of 1/20 are fine enough for this many draws
    assert chi_square_p(found, 10_000 * noisy_max_probabilities(coarse, 20 / rate, 4_000)) > REJECT
    assert chi_square_p(found, 10_000 * noisy_max_probabilities(coarse, 16 / rate, 4_000)) < REJECT


@pytest.mark.parametrize("law", [exponential_probabilities, flip_probabilities])
def test_the_laws_are_private_and_no_better(law):
    """Over all neighbours on a grid: at most exp(ε), and attained to a good part."""
    eps, worst = 1.0, 0.0
    for u in itertools.product(range(3), repeat=3):
        for change in itertools.product((-1, 0, 1), repeat=3):
            p, q = law(u, eps / 2), law(np.add(u, change), eps / 2)
            worst = max(worst, np.log(p / q).max())
    assert 0.7 * eps < worst <= eps + 1e-12


def test_monotonic_laws_are_private_at_half_the_noise_and_others_are_not():
    def worst(law, changes):
        pairs = itertools.product(itertools.product(range(3), repeat=3), changes)
        return max(np.abs(np.log(law(u, 1.0) / law(np.add(u, c), 1.0))).max() for u, c in pairs)

    for law in (exponential_probabilities, flip_probabilities):
        assert worst(law, itertools.product((0, 1), repeat=3)) <= 1.0 + 1e-12
        assert worst(law, list(itertools.product((-1, 0, 1), repeat=3))) > 1.2


@pytest.mark.parametrize(("changes", "factor"), [((-1, 0, 1), 2), ((0, 1), 1)])
def test_noisy_max_on_whole_numbers_is_private(changes, factor):
    eps, worst = 1.0, 0.0
    for u in itertools.product(range(2), repeat=3):
        for change in itertools.product(changes, repeat=3):
            p, q = (noisy_max_probabilities(x, factor / eps, 200) for x in (u, np.add(u, change)))
            worst = max(worst, np.abs(np.log(p / q)).max())
    assert 0.4 * eps < worst <= eps + 1e-9


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.floats(-1e12, 1e12), st.floats(-1, 1), st.floats(1e-6, 1e9))
def test_rounding_to_the_lattice_is_inside_its_sensitivity(value, part, sensitivity):
    step, whole = selection._lattice(sensitivity)
    assert 2**20 <= sensitivity / step < 2**21
    other = value + part * sensitivity
    if abs(Fraction(other) - Fraction(value)) <= Fraction(sensitivity):
        a, b = selection._on_lattice(np.array([value, other]), step).tolist()
        assert abs(a - b) <= whole


def test_noisy_max_pays_for_the_rounding(monkeypatch):
    seen = []
    monkeypatch.setattr(noise, "add_discrete_laplace", lambda x, *, scale, rng: seen.append(scale) or x)
    for monotonic, factor in ((False, 2), (True, 1)):
        for size in (1.0, 3.0, 0.1):
            noisy_max([1.0, 2.0], epsilon=0.7, sensitivity=size, neighbors=AR, monotonic=monotonic)
            step, whole = selection._lattice(size)
            assert Fraction(seen[-1]) * Fraction(0.7) >= factor * whole
            assert seen[-1] * step < factor * size / 0.7 * (1 + 3e-6)


def test_permute_and_flip_is_never_worse():
    for u in ([0, 1, 2], [5, 5, 0], [0, 0, 0], [9, 0, 0]):
        best = [max(u) - law(u, 0.5) @ u for law in (flip_probabilities, exponential_probabilities)]
        assert best[0] <= best[1] + 1e-12


@pytest.mark.parametrize("chooser", CHOOSERS)
def test_awkward_utilities(chooser):
    rng, arguments = seeded(), {"epsilon": 1.0, "sensitivity": 1.0, "neighbors": RO}
    assert chooser([7.0], **arguments, rng=rng) == 0
    assert chooser([-1e300, 1e300, 0.0], **arguments, rng=rng) == 1
    assert chooser([1e308, -1e308], **arguments, rng=rng) == 0
    assert chooser([0.0, -1e6] + [-1e5] * 50, **arguments, rng=rng) == 0
    assert chooser(pd.Series([0, 10_000]), **arguments, rng=rng) == 1
    assert {chooser(np.zeros(3), **arguments, rng=rng) for _ in range(60)} == {0, 1, 2}  # ties are not the first's
    many = chooser(np.arange(100_000.0), **{**arguments, "epsilon": 50.0}, rng=rng)
    assert many > 99_990
    with pytest.raises(ValueError, match="monotonic must be False under 'replace_one'"):
        chooser([1.0], **arguments, monotonic=True)
    with pytest.raises(ValueError, match="utilities must"):
        chooser([], **arguments)


def test_noisy_max_refuses_what_its_noise_cannot_carry():
    with pytest.raises(ValueError, match="epsilon must be larger"):
        noisy_max([1.0], epsilon=1e-9, sensitivity=1.0, neighbors=AR)


def test_top_k_is_peeling_with_a_share_of_epsilon(monkeypatch):
    seen, real = [], noise.choose_index
    monkeypatch.setattr(
        noise, "choose_index", lambda u, *, scale, rng: seen.append(scale) or real(u, scale=scale, rng=rng)
    )
    arguments = {"epsilon": 0.9, "sensitivity": 1.5, "neighbors": RO}
    found = top_k(UTILITIES, k=3, **arguments, rng=seeded())
    assert len(set(found.tolist())) == 3
    for scale in seen:
        assert Fraction(scale) * Fraction(0.9) >= 3 * 2 * Fraction(1.5)
        assert scale == pytest.approx(3 * 2 * 1.5 / 0.9)
    assert sorted(top_k(UTILITIES, k=4, **arguments).tolist()) == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="k must be at most"):
        top_k(UTILITIES, k=5, **arguments)
    rate = 2.0 / 2 / 2
    found = frequencies(
        lambda rng: int(top_k([0, 1, 2], k=2, epsilon=2, sensitivity=1, neighbors=RO, rng=rng) @ [3, 1]), 9, 8_000
    )
    p = exponential_probabilities([0, 1, 2], rate)
    expected = np.zeros(9)
    for i, j in itertools.permutations(range(3), 2):
        expected[3 * i + j] = 8_000 * p[i] * p[j] / (1 - p[i])
    assert chi_square_p(found, expected) > REJECT


# 2. The sparse vector technique.


def sparse(**changed):
    arguments = {"threshold": 10, "epsilon": 1.0, "sensitivity": 1.0, "neighbors": AR, "max_positives": 2}
    return SparseVector(**{**arguments, **changed})


def laplace_cdf(x, scale):
    return np.where(x < 0, 0.5 * np.exp(np.minimum(x, 0) / scale), 1 - 0.5 * np.exp(-np.maximum(x, 0) / scale))


def pattern_probability(queries, pattern, threshold_scale, query_scale):
    """Probability of a pattern of answers: integrated over the noise of the threshold, which is 0 here."""
    z = np.linspace(-60 * threshold_scale, 60 * threshold_scale, 20_001)
    density = np.exp(-np.abs(z) / threshold_scale) / (2 * threshold_scale) * (z[1] - z[0])
    for query, answer in zip(queries, pattern, strict=True):
        below = laplace_cdf(z - query, query_scale)
        density = density * (1 - below if answer else below)
    return density.sum()


@pytest.mark.parametrize(("monotonic", "shifts"), [(False, (-1, 1)), (True, (0, 1))])
@pytest.mark.parametrize("positives", [1, 3])
def test_sparse_vector_likelihood_ratio(positives, monotonic, shifts):
    """50 queries, equal on D and moved on D' so as to tell most: with the scales of the object, at most exp(ε)."""
    scales = sparse(max_positives=positives, monotonic=monotonic, epsilon=1.0).scales
    worst = 0.0
    for queries in (np.zeros(50), np.full(50, -2.0), np.linspace(-5, 5, 50)):
        for places in (range(positives), range(50 - positives, 50)):
            pattern = [i in places for i in range(50)]
            for sign in (-1, 1):
                moved = [shifts[1] if answer == (sign > 0) else shifts[0] for answer in pattern]
                p = pattern_probability(queries, pattern, *scales)
                q = pattern_probability(queries + np.array(moved), pattern, *scales)
                worst = max(worst, abs(math.log(p / q)))
    assert worst <= 1.0 + 1e-6
    assert worst > 0.3


def test_wrong_variants_fail_the_same_check():
    """Without noise on the threshold, and with noise that does not grow with the positives (Lyu, Su, Li 2017)."""
    threshold, query = sparse(max_positives=1).scales
    for positives, scales in ((1, (1e-3, query)), (10, (threshold, query))):
        pattern = [False] * 40 + [True] * positives
        moved = np.array([-1.0] * 40 + [1.0] * positives)
        zero = np.zeros(len(pattern))
        ratio = pattern_probability(moved, pattern, *scales) / pattern_probability(zero, pattern, *scales)
        assert math.log(ratio) > 1.05


@pytest.mark.parametrize("positives", [1, 2, 7])
@pytest.mark.parametrize("monotonic", [False, True])
def test_sparse_vector_budget(positives, monotonic):
    s = sparse(max_positives=positives, monotonic=monotonic, epsilon=0.3)
    threshold, query = map(Fraction, s.scales)
    factor = 1 if monotonic else 2
    assert 1 / threshold + factor * positives / query <= Fraction(0.3)
    assert float(1 / threshold + factor * positives / query) > 0.3 * (1 - 3e-6)
    best = (factor * positives) ** (2 / 3)
    assert float(threshold / query) == pytest.approx(best / (factor * positives), rel=1e-5)


def test_sparse_vector_answers_and_stops():
    s = sparse(epsilon=50.0, rng=seeded())
    assert [s.above(x) for x in (0, 5, 30, 0, 9)] == [False, False, True, False, False]
    assert s.positives_left == 1
    assert s.epsilon == 50.0
    assert s.above(40.5)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="used up"):
            s.above(0.0)
    assert "0 of 2 positives left" in repr(s)


def test_threads_share_the_positive_answers(monkeypatch):
    real = noise.add_discrete_laplace
    s = sparse(epsilon=50.0, max_positives=2)
    monkeypatch.setattr(noise, "add_discrete_laplace", lambda *a, **k: time.sleep(0.01) or real(*a, **k))

    def asked(_):
        try:
            return s.above(1e6)
        except RuntimeError:
            return None

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(asked, range(16)))
    assert answers.count(True) == 2
    assert answers.count(None) == 14
    assert s.positives_left == 0


FORKED = """
import os
from dpbook.selection import SparseVector
s = SparseVector(threshold=0, epsilon=1.0, sensitivity=1, neighbors="add_remove")
s._lock.acquire()  # as if another thread were answering
if os.fork() == 0:
    try:
        s.above(0.0)
    except RuntimeError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
s._lock.release()
print(type(s.above(0.0)).__name__)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_gets_no_answer():
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=60, check=True)
    assert "only in the process that made it" in done.stdout
    assert done.stdout.endswith("bool\n")


def test_sparse_vector_frequencies():
    scales, rng, runs = sparse(threshold=0, max_positives=1).scales, seeded(3), 6_000
    found = sum(sparse(threshold=0, max_positives=1, rng=rng).above(1.0) for _ in range(runs))
    p = pattern_probability([1.0], [True], *scales)
    assert abs(found - runs * p) < Z_LIMIT * math.sqrt(runs * p * (1 - p))
    wrong = pattern_probability([1.0], [True], scales[0] / 2, scales[1] / 2)
    assert abs(found - runs * wrong) > Z_LIMIT * math.sqrt(runs * p * (1 - p))


@pytest.mark.parametrize(("positives", "monotonic"), [(1, False), (3, False), (3, True)])
def test_sparse_vector_draws_with_the_scales_it_states(positives, monotonic, monkeypatch):
    drawn = []
    monkeypatch.setattr(noise, "add_discrete_laplace", lambda value, *, scale, rng: drawn.append(scale) or value)
    s = sparse(max_positives=positives, monotonic=monotonic, epsilon=0.5, threshold=10)
    for value in (3, 11, 5):
        s.above(value) if s.positives_left else None
    step = s._step
    assert drawn[0] * step == s.scales[0]
    assert {scale * step for scale in drawn[1:]} == {s.scales[1]}
    size = selection._lattice(1.0)[1]  # the sensitivity in steps, rounding included
    factor = (1 if monotonic else 2) * positives
    spent = Fraction(size) / Fraction(drawn[0]) + factor * Fraction(size) / Fraction(drawn[1])
    assert 0.5 * (1 - 1e-9) < spent <= Fraction(1, 2)


def test_a_sparse_vector_is_one_of_its_kind():
    s = sparse()
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied"):
            attempt(s)
    for bad in ([1.0, 2.0], None, math.nan, "1", True, 1j):
        with pytest.raises((TypeError, ValueError), match="value must"):
            s.above(bad)
    assert s.positives_left == 2
    for name, bad in (("threshold", math.inf), ("max_positives", 0), ("epsilon", 0), ("sensitivity", -1)):
        with pytest.raises(ValueError, match=f"{name} must"):
            sparse(**{name: bad})
    with pytest.raises(ValueError, match="monotonic must be False"):
        sparse(monotonic=True, neighbors=RO)
    with pytest.raises(TypeError, match="positional"):
        SparseVector(1.0, 1.0, 1.0, AR)


# 3. Quantiles.


def miss(data, point, q):
    """The definition: how far q n is from the ranks that the point has; negative where it is among them."""
    target = Fraction(round(q * 2**24), 2**24) * len(data)
    return max(sum(x < point for x in data) - target, target - sum(x <= point for x in data))


@pytest.mark.parametrize("q", [0.0, 0.25, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("relation", [AR, RO])
@pytest.mark.parametrize("rows", [None, 2])
def test_quantile_sensitivity_equals_enumeration(q, relation, rows):
    domain = range(3)
    others = [d for k in range(3) for d in itertools.combinations_with_replacement(domain, k)]
    own = [(x,) for x in domain]
    if rows:
        own = [t for k in range(rows + 1) for t in itertools.combinations_with_replacement(domain, k)]
    alone = [()] if relation == AR else own
    worst = max(
        abs(miss(rest + a, x, q) - miss(rest + b, x, q))
        for rest in others
        for a in own
        for b in alone
        for x in (-1, 0, 1, 2, 3)
    )
    assert worst <= Fraction(quantile_sensitivity(q=q, neighbors=relation, max_rows=rows))
    assert float(worst) >= quantile_sensitivity(q=q, neighbors=relation, max_rows=rows) * 0.45


def law_of(monkeypatch, data, q, size, window, scale=2.0**24):
    """The probability of every point, from what the code hands to the draw."""
    seen = {}

    def pick(utilities, weights, scale, uniform, unlisted=0.0):
        seen.update(utilities=utilities, weights=weights, unlisted=unlisted)
        return 0

    with monkeypatch.context() as patch:
        patch.setattr(noise, "_pick", pick)
        part, places = round(q * 2**24), np.array(data, dtype=np.float64)
        if window:
            patch.setattr(noise, "FAINT", 3.0)  # so that a small example has a window
            run = selection._window_run(places, part, scale, size, None)
        else:
            run = selection._run(places, part, scale, size, None)
    return run, seen


@pytest.mark.parametrize("q", [0.0, 0.1, 0.5, 0.75, 1.0])
def test_runs_cover_every_point_with_its_utility(monkeypatch, q):
    rng = seeded(1)
    for n in (0, 1, 2, 5, 12):
        for size in (1, 2, 7, 30):
            data = rng.integers(0, size, n)
            _, seen = law_of(monkeypatch, data, q, size, window=False)
            points = np.repeat(-seen["utilities"], seen["weights"].astype(int)) / 2.0**24
            few = selection._misses(data.astype(float), round(q * 2**24), size) / 2.0**24
            assert few.tolist() == points.tolist()
            assert points.tolist() == [float(miss(data.tolist(), x, q)) for x in range(size)]


@pytest.mark.parametrize("q", [0.0, 0.1, 0.5, 0.75, 1.0])
def test_a_window_lists_the_same_utilities_and_bounds_the_rest(monkeypatch, q):
    rng, size = seeded(2), 40
    for n, values in itertools.product((60, 300), (size, 3, 1)):
        data = np.minimum(rng.integers(0, values, n) * (size // values), size - 1)
        _, seen = law_of(monkeypatch, data, q, size, window=True, scale=2.0**22)
        if not seen:
            continue
        exact = [-float(miss(data.tolist(), x, q)) * 2.0**24 for x in range(size)]
        listed = np.repeat(seen["utilities"], seen["weights"].astype(int)).tolist()
        starts = [i for i in range(size - len(listed) + 1) if exact[i : i + len(listed)] == listed]
        assert starts
        before = min(sum(math.exp(x / 2.0**22) for x in exact[:i]) for i in starts)
        behind = min(sum(math.exp(x / 2.0**22) for x in exact[i + len(listed) :]) for i in starts)
        assert max(before, behind) <= seen["unlisted"] * (1 + 1e-9)
        assert max(listed) >= 0.0


@pytest.mark.parametrize("kind", ["uniform", "ties", "lognormal"])
def test_the_window_changes_nothing(monkeypatch, kind):
    rng = seeded(4)
    data = {
        "uniform": rng.uniform(0, 1, 5_000),
        "ties": rng.integers(0, 3, 5_000) / 2,
        "lognormal": rng.lognormal(size=5_000),
    }
    arguments = {"q": 0.4, "bounds": (0, 2), "epsilon": 1.0, "neighbors": AR}
    fast = [exponential_quantile(data[kind], **arguments, rng=seeded(i)) for i in range(40)]
    monkeypatch.setattr(selection, "_window_run", lambda *_: None)
    assert fast == [exponential_quantile(data[kind], **arguments, rng=seeded(i)) for i in range(40)]


@pytest.mark.parametrize("relation", [AR, RO])
def test_the_quantile_law_is_private_and_drawn(relation):
    """On a small grid: the ratio over all neighbours by definition, and the draws against that law."""
    eps, q, points = 1.0, 0.5, range(5)

    def law(data):
        rate = eps / (2 * quantile_sensitivity(q=q, neighbors=relation))
        w = np.array([math.exp(-rate * float(miss(data, x, q))) for x in points])
        return w / w.sum()

    worst = 0.0
    for n in range(4):
        for data in itertools.combinations_with_replacement(points, n):
            if relation == AR:
                others = [(*data, x) for x in points]
            else:
                others = [(*data[:i], x, *data[i + 1 :]) for i in range(n) for x in points]
            worst = max([worst, *(np.abs(np.log(law(data) / law(o))).max() for o in others)])
    assert 0.4 < worst <= eps + 1e-12
    data = (0, 1, 1, 4)
    arguments = {"q": q, "bounds": (0, 4), "step": 1, "epsilon": eps, "neighbors": relation}
    found = frequencies(lambda rng: int(exponential_quantile(data, **arguments, rng=rng)), 5, 10_000)
    rate = eps / (2 * quantile_sensitivity(q=q, neighbors=relation))
    flips = flip_probabilities([-float(miss(data, x, q)) for x in points], rate)
    assert chi_square_p(found, 10_000 * flips) > REJECT
    assert chi_square_p(found, 10_000 * law(data)) < REJECT
    with pytest.MonkeyPatch.context() as patch:  # with more points it is the exponential mechanism
        patch.setattr(selection, "FEW_POINTS", 0)
        found = frequencies(lambda rng: int(exponential_quantile(data, **arguments, rng=rng)), 5, 10_000)
    assert chi_square_p(found, 10_000 * law(data)) > REJECT
    assert chi_square_p(found, 10_000 * flips) < REJECT


@pytest.mark.parametrize(("eps", "least"), [(0.3, 0.99897), (0.5, 0.99999), (1.0, 1.0)])
def test_heavy_ties(eps, least):
    """Where all weights underflow in a careless formula (diffprivlib issue 107); here the tie itself can be drawn."""
    rng = seeded(5)
    data = np.concatenate([np.full(80_000, 65_000.0), rng.uniform(0, 5e5, 20_000)])
    draws = [exponential_quantile(data, q=0.5, bounds=(0, 5e5), epsilon=eps, neighbors=RO, rng=rng) for _ in range(100)]
    assert np.mean([64_000 <= x <= 66_000 for x in draws]) >= least - 0.03
    assert np.mean(np.array(draws) == 65_000.0) > 0.9


@pytest.mark.parametrize("kind", ["uniform", "sorted", "periodic", "ties", "constant", "two"])
@pytest.mark.parametrize("part", [0.0, 0.001, 0.3, 0.5, 0.999])
def test_ranked_records_are_those_of_a_sort(kind, part):
    """Whatever the order of the records does to the sample."""
    rng, n = seeded(6), 60_000
    data = {
        "uniform": rng.uniform(size=n),
        "sorted": np.arange(float(n)),
        "periodic": np.tile(np.r_[1e6, np.arange(2.0)], n // 3),  # the sample sees one value of the three only
        "ties": rng.integers(0, 9, n).astype(float),
        "constant": np.full(n, 3.0),
        "two": rng.integers(0, 2, n).astype(float),
    }[kind]
    low = int(part * (n - 300))
    high = low + 250
    assert np.array_equal(selection._ranked(data, low, high), np.sort(data)[low : high + 1])


EDGE = {
    "empty": [],
    "one": [3.0],
    "all lower": [0.0] * 50,
    "all upper": [10.0] * 50,
    "all inside": [4.0] * 50,
    "outside": [-1e300, 1e300, math.inf, -math.inf],
    "no numbers": [None, math.nan, "x", 3.0],
    "many equal": [7.0] * 20_000,
}


@pytest.mark.parametrize("data", EDGE)
@pytest.mark.parametrize("q", [0, 0.5, 1])
@pytest.mark.parametrize("bounds", [(0, 10), (5, 5), (-1e-300, 1e270), (0, 5e-324), (1e15, 1e15 + 1)])
def test_quantiles_never_fail_and_stay_inside(data, q, bounds):
    for eps in (1e-3, 1.0, 500.0):
        value = exponential_quantile(EDGE[data], q=q, bounds=bounds, epsilon=eps, neighbors=AR, rng=seeded())
        assert type(value) is float
        assert bounds[0] <= value <= bounds[1]


def test_quantile_points():
    assert quantile_points(bounds=(0, 120), step=1) == (1.0, 0, 120)
    assert quantile_points(bounds=(5, 5))[1] * quantile_points(bounds=(5, 5))[0] == 5
    step, first, last = quantile_points(bounds=(-1, 3))
    assert (first * step, last * step) == (-1, 3)
    assert 2**47 <= last - first <= 2**49
    for bounds, step, message in (
        ((0.1, 0.2), 1, "multiple"),
        ((0, 1e6), 1e-12, "step must"),
        ((0, 1), 1e-17, "step must"),
    ):
        with pytest.raises(ValueError, match=message):
            quantile_points(bounds=bounds, step=step)


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(st.floats(-1e9, 1e9), st.floats(0, 1e9))
def test_every_point_is_a_float_inside_the_bounds(lower, width):
    step, first, last = quantile_points(bounds=(lower, lower + width))
    assert first <= last
    for j in (first, last, (first + last) // 2):
        assert Fraction(j * step) == j * Fraction(step)
        assert lower <= j * step <= lower + width


@pytest.mark.parametrize("step", [1, None])
@pytest.mark.parametrize(("relation", "ranks"), [(AR, 0.75), (RO, 1.0)])
def test_the_scale_of_a_quantile_grows_with_the_rows_of_a_person(relation, ranks, step, monkeypatch):
    """Few points are drawn with coins, many in one go: both with 2 m Δ / ε, in units of 2**-24 of a rank."""
    scales = []

    def flip(utilities, *, scale, rng):
        scales.append(scale)
        return np.ones(len(utilities), dtype=bool)

    def pick(utilities, lengths, scale, *_):
        scales.append(scale)
        return 0

    monkeypatch.setattr(noise, "flip_coins", flip)
    if step is None:
        monkeypatch.setattr(noise, "_pick", pick)
    arguments = {"q": 0.25, "bounds": (0, 10), "step": step, "epsilon": 0.5, "neighbors": relation}
    for rows in (None, 1, 7):
        exponential_quantile([1, 2, 3] * 9, **arguments, max_rows=rows)
    expected = [2 * m * ranks / 0.5 * 2**24 for m in (1, 1, 7)]
    assert scales == pytest.approx(expected, rel=1e-12)
    assert all(Fraction(a) >= Fraction(b) for a, b in zip(scales, expected, strict=True))


@pytest.mark.parametrize("step", [0.1, 0.01, 0.05, 0.3, 1e-3, 1 / 3, 1.1, 7e-5])
def test_a_bound_that_is_meant_to_be_a_multiple_is_one(step):
    for k in range(1, 600):
        assert quantile_points(bounds=(0, k * step), step=step)[1:] == (0, k)
        assert quantile_points(bounds=(-k * step, step), step=step)[1:] == (-k, 1)
        decimal = float(Decimal(k) * Decimal(str(step)))
        assert quantile_points(bounds=(0, decimal), step=step)[1:] == (0, k)
        assert quantile_points(bounds=(0, (k + 0.99) * step), step=step)[1:] == (0, k)
    for top in (0.3, 0.7, 1.9):
        answer = exponential_quantile([top] * 99, q=1.0, bounds=(0, top), step=0.1, epsilon=1e3, neighbors=AR)
        assert answer == top  # and never beyond it, as 3 * 0.1 would be


# 4. Randomised response.


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(st.floats(1e-6, 60.0), st.integers(2, 1000))
def test_response_words_are_private_exactly(eps, k):
    true, other = selection._response_words(eps, k)
    assert true + (k - 1) * other == 2**64
    assert other >= 1
    mp = mpmath.mp.clone()
    mp.prec = 300
    assert true <= mp.exp(eps) * other
    if eps < 40:  # and no more is given away than the rounding
        assert true / 2**64 == pytest.approx(math.exp(eps) / (math.exp(eps) + k - 1), abs=1e-12)


@pytest.mark.parametrize(("eps", "k"), [(1e-9, 10**6 + 1), (1e-6, 10**7 + 1), (0.1, 3 * 2**30)])
def test_answers_that_words_cannot_make_private_are_refused(eps, k):
    """What is left over when 2**64 words are divided by k goes to the truth, and may be more than exp(ε) allows."""
    with pytest.raises(ValueError, match=f"epsilon must be larger for {k} categories"):
        response_probabilities(epsilon=eps, categories=k)
    true, other = selection._response_words(10.0, k)
    assert Fraction(true, other) <= Fraction(math.exp(10.0)) * (1 + Fraction(1, 2**50))
    assert response_probabilities(epsilon=1e-30, categories=2**32)[0] == 2.0**-32  # nothing is left over


def test_response_probabilities_known():
    assert response_probabilities(epsilon=0.5, categories=2)[0] == pytest.approx(0.6224593312018545, abs=1e-15)
    assert response_probabilities(epsilon=math.log(3), categories=2)[0] == pytest.approx(0.75, abs=1e-15)
    with pytest.raises(ValueError, match="categories must"):
        response_probabilities(epsilon=1.0, categories=2**33)


@pytest.mark.parametrize("k", [2, 3, 7])
def test_answers_have_their_probabilities(k):
    keys, eps, n = [f"k{i}" for i in range(k)], 1.0, 30_000
    answers = randomized_response(["k1"] * n, categories=keys, epsilon=eps, rng=seeded())
    found = np.array([answers.count(key) for key in keys])
    true, other = response_probabilities(epsilon=eps, categories=k)
    expected = np.array([n * (true if i == 1 else other) for i in range(k)])
    assert chi_square_p(found, expected) > REJECT
    wrong = response_probabilities(epsilon=1.2, categories=k)
    assert chi_square_p(found, np.array([n * wrong[0 if i == 1 else 1] for i in range(k)])) < REJECT


def test_the_ends_of_the_words(monkeypatch):
    true, other = selection._response_words(1.0, 3)
    words = np.array([0, true - 1, true, true + other - 1, true + other, 2**64 - 1], dtype=np.uint64)
    monkeypatch.setattr(noise, "uniform_words", lambda count, *, rng: words[:count])
    assert randomized_response([2] * 6, categories=[0, 1, 2], epsilon=1.0) == [2, 2, 0, 0, 1, 1]


class Recording(np.random.Generator):
    def bytes(self, length):
        self.__dict__.setdefault("reads", []).append(length)
        return super().bytes(length)


def test_whatever_is_answered_the_same_bytes_are_read():
    reads = []
    for column in (["a", "b", "a"], ["b", None, "z"], [[], {}, math.nan]):
        rng = Recording(np.random.PCG64(1))
        answers = randomized_response(column, categories=["a", "b"], epsilon=1.0, rng=rng)
        reads.append(rng.reads)
        assert set(answers) <= {"a", "b"}
        assert len(answers) == 3
    assert reads[0] == reads[1] == reads[2] == [24]


# 5. Keys that are not public.


@pytest.mark.parametrize(
    ("eps", "delta", "known", "tolerance"),
    [
        (math.log(2), 0.1, {1: 0.1, 2: 0.3, 3: 0.7, 4: 0.9, 5: 1.0}, 1e-6),
        (math.log(1.5), 0.1, {2: 0.25, 3: 0.475, 4: 0.716666666667, 5: 0.877777777778, 6: 0.985185185185, 7: 1}, 1e-9),
        (0.5, 0.02, {6: 0.58840484458, 8: 0.86807080625, 15: 1}, 1e-10),
        (1e-20, 0.02, {6: 0.12, 40: 0.8}, 1e-12),
        (1.0, 1e-5, {10: 0.12818308050524607}, 1e-12),
    ],
)
def test_keep_probabilities_known(eps, delta, known, tolerance):
    """Google's tests of partition selection, re-derived from the recurrence with 40 digits."""
    p = keep_probabilities(count=max(known), epsilon=eps, delta=delta)
    for n, value in known.items():
        assert p[n] == pytest.approx(value, abs=tolerance)


def test_keys_split_epsilon_and_delta(monkeypatch):
    """Ten keys a person: each gets ε/10 and 1 - (1 - δ)**(1/10); 700 people, known to be 0.5800625857189882."""
    seen, real = [], selection._keep_words
    monkeypatch.setattr(selection, "_keep_words", lambda *a: seen.append(real(*a)) or seen[-1])
    people = list(range(700))
    private_keys(["k"] * 700, epsilon=0.2, delta=1e-7, neighbors=AR, person=people, max_groups=10)
    assert seen[0][700] / 2**64 == pytest.approx(0.5800625857189882, abs=1e-10)


@pytest.mark.parametrize(("eps", "groups"), [(1.0, 1), (3.0, 1), (2.0, 4), (1e-3, 2)])
def test_keys_under_replace_one_have_half_of_epsilon_and_the_share_of_delta(eps, groups, monkeypatch):
    """Replacing is removing and adding: (2 ε', δ' (1 + exp(ε'))), whatever each of the two steps costs."""
    asked, real = [], selection._keep_words
    monkeypatch.setattr(selection, "_keep_words", lambda *a: asked.append(a) or real(*a))
    arguments = {"epsilon": eps, "delta": 1e-4, "neighbors": RO}
    private_keys(["k"] * 5, **arguments, person=range(5), max_groups=groups)
    ((each, delta, _),) = asked
    step_eps, step_delta = groups * each, 1 - (1 - delta) ** groups
    assert Fraction(2 * groups) * Fraction(each) <= Fraction(eps)
    assert 2 * step_eps == pytest.approx(eps, rel=1e-12)
    assert float(step_delta) * (1 + math.exp(step_eps)) == pytest.approx(1e-4, rel=1e-9)
    mp = mpmath.mp.clone()
    mp.prec = 200
    exact = mp.mpf(step_delta.numerator) / step_delta.denominator
    assert exact * (1 + mp.exp(mp.mpf(eps) / 2)) <= mp.mpf(1e-4)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(st.floats(1e-3, 50.0), st.floats(1e-9, 0.9))
def test_keep_words_are_private_exactly(eps, delta):
    words = selection._keep_words(eps, Fraction(delta), 400)
    mp = mpmath.mp.clone()
    mp.prec = 400
    top, step, grow = mp.mpf(2**64), mp.mpf(delta) * 2**64, mp.exp(mp.mpf(eps))
    for p, q in itertools.pairwise(words):
        assert q >= p
        assert q <= grow * p + step
        assert top - p <= grow * (top - q) + step
    assert words[0] == 0


def test_rare_keys_are_rarely_shown():
    n, delta = 20_000, 0.01
    shown = private_keys(range(n), epsilon=1.0, delta=delta, neighbors=AR, rng=seeded())
    assert abs(len(shown) - n * delta) < Z_LIMIT * math.sqrt(n * delta)
    half = private_keys(range(n), epsilon=1.0, delta=delta, neighbors=RO, rng=seeded())
    expected = n * delta / (1 + math.exp(0.5))
    assert abs(len(half) - expected) < Z_LIMIT * math.sqrt(expected)


def test_keys_do_not_depend_on_the_order_of_rows_or_on_repetition():
    rows = ["b"] * 500 + ["a"] * 400 + [3] * 300 + [None, math.nan, [], "z"]
    arguments = {"epsilon": 1.0, "delta": 1e-6, "neighbors": AR}
    for seed in range(3):
        order = seeded(seed).permutation(len(rows))
        assert private_keys([rows[i] for i in order], **arguments, rng=seeded(9)) == [3, "a", "b"]
    assert private_keys([], **arguments) == []
    same = private_keys(["a"] * 500, **arguments, person=["ann"] * 500, max_groups=1, rng=seeded())
    assert same == []  # 500 rows of one person are one person
    _, counts = selection._people(["a", "b", "c", "a"], ["ann", "ann", "ann", "bo"], 2)
    assert {key: count for (_, _, key), count in counts.items()} == {"'a'": 2, "'b'": 1}
    with pytest.raises(ValueError, match="keys and person must"):
        private_keys(["a"], **arguments, person=[1, 2], max_groups=1)
    with pytest.raises(ValueError, match="max_groups and person"):
        private_keys(["a"], **arguments, max_groups=1)


ZONE = datetime.timezone(datetime.timedelta(hours=1))
EQUAL = [
    (1, 1.0, True),
    (0.0, -0.0),
    (Decimal("1.0"), Decimal("1.00")),
    (
        datetime.datetime(2020, 1, 1, 12, tzinfo=datetime.timezone.utc),
        datetime.datetime(2020, 1, 1, 13, tzinfo=ZONE),
    ),
    ((1, 2), (True, 2), (1.0, 2)),
]


@pytest.mark.parametrize("same", EQUAL)
def test_one_row_does_not_decide_how_a_key_looks(same):
    """Equal keys that look different: the first of them must not be what is shown of all."""
    arguments = {"epsilon": 1.0, "delta": 1e-6, "neighbors": AR}
    for first in same:
        for many in same:
            shown = private_keys([first] + [many] * 500, **arguments, rng=seeded())
            assert [repr(key) for key in shown] == [repr(many)]
    _, counts = selection._people(list(same), None, 1)
    assert len(counts) == len(same)
    _, counts = selection._people(list(same), ["ann"] * len(same), 1)
    assert len(counts) == 1  # of one person only so many keys as declared, however they look


def test_keys_of_numpy_are_those_of_python():
    keys, _ = selection._people([np.int64(1), 1, np.float64(2.5), np.str_("a"), (np.int64(1),), (1,)], None, 1)
    assert [repr(key) for key in keys.values()] == ["1", "2.5", "'a'", "(1,)"]
    assert [type(key) for key in keys.values()] == [int, float, str, tuple]


def test_keys_come_in_an_order_that_depends_on_them_alone():
    keys = ["b", 10, 9, -1.5, True, 10**400, -(10**400), 0.0, -0.0, "a", (2, 1), Decimal(3)]
    expected = [Decimal(3), True, -1.5, -0.0, 0.0, -(10**400), 9, 10, 10**400, "a", "b", (2, 1)]
    arguments = {"epsilon": 30.0, "delta": 0.999, "neighbors": AR}
    for seed in range(3):
        rows = [keys[i] for i in seeded(seed).permutation(len(keys)) for _ in range(20)]
        assert list(map(repr, private_keys(rows, **arguments))) == list(map(repr, expected))


class Rude:
    """A record that does all that it can to stop an analysis."""

    def __init__(self, what):
        self.what = what

    def __hash__(self):
        if self.what == "hash":
            raise KeyError("hash")
        return 1

    def __eq__(self, other):
        if self.what == "eq":
            raise ZeroDivisionError("eq")
        return self is other

    def __repr__(self):
        if self.what == "repr":
            raise OSError("repr")
        return "Rude()"


def nested(depth):
    key = ()
    for _ in range(depth):
        key = (key, 1)
    return key


@pytest.mark.parametrize(
    "record",
    [(10**5000,), 10**5000, nested(500), nested(100_000), Rude("hash"), Rude("eq"), Rude("repr")],
    ids=["digits in a tuple", "digits", "nested", "deeply nested", "hash", "eq", "repr"],
)
def test_no_key_and_no_identifier_raises(record):
    arguments = {"epsilon": 1.0, "delta": 1e-6, "neighbors": AR}
    assert private_keys(["a"] * 500 + [record], **arguments) == ["a"]
    people = [*range(500), record]
    assert private_keys(["a"] * 501, **arguments, person=people, max_groups=1) == ["a"]
    assert randomized_response([record], categories=["a", "b"], epsilon=1.0)[0] in ("a", "b")


def test_rows_without_an_identifier_show_no_key():
    """As one person's they would make room for each other's keys."""
    for missing in (None, math.nan, (1, None)):
        _, counts = selection._people(["a", "b", "a"], [missing, missing, "ann"], 1)
        assert [(name[2], count) for name, count in counts.items()] == [("'a'", 1)]


def test_a_large_epsilon_under_replace_one_still_shows_keys():
    for eps in (40.0, 100.0, 1e6):
        assert private_keys(["k"] * 100, epsilon=eps, delta=1e-6, neighbors=RO) == ["k"]


def test_a_tuple_is_an_identifier_down_to_a_fixed_depth():
    """And not down to where the interpreter happens to give up."""
    for depth in range(1, 40):
        (key,) = _validate.identifiers(person=[nested(depth)])
        assert _validate.is_missing(key) == (depth >= _validate.DEEPEST)
