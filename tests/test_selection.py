"""Choosing one of many: the probabilities are those of the papers, and neighbours differ by the ε that was paid.

Privacy is checked exactly where it can be, from the utilities and scales that the code hands to the (tested) exact
draws; what is drawn is then compared with those probabilities. Seeds are fixed; a statistical test rejects below 1e-6.
"""

import copy
import itertools
import math
import os
import pickle
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay import AR, REJECT, RO, assert_epsilon_is_named, chi_square_p, flip_probabilities, frequencies, seeded

from dpbook import noise, selection
from dpbook.laplace import discrete_laplace_pmf
from dpbook.selection import (
    SparseVector,
    exponential_mechanism,
    noisy_max,
    permute_and_flip,
    top_k,
)

Z_LIMIT = 5.0
CHOOSERS = [exponential_mechanism, permute_and_flip, noisy_max]


# 1. The choosers.


def exponential_probabilities(utilities, rate):
    w = np.exp(rate * (np.asarray(utilities) - max(utilities)))
    return w / w.sum()


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
    with pytest.raises(ValueError, match="monotonic out, or use neighbors='add_remove'"):
        chooser([1.0], **arguments, monotonic=True)


@pytest.mark.parametrize("chooser", [*CHOOSERS, lambda u, **k: top_k(u, k=1, **k)])
def test_messages_say_what_to_do(chooser):
    arguments = {"epsilon": 1.0, "sensitivity": 1.0, "neighbors": RO}
    for bad, text in (
        ([], "utilities must have at least one candidate to choose from, got none"),
        (3.0, "one-dimensional array with one real number for each candidate, got 0 dimensions"),
        ([[1, 2]], "one-dimensional array with one real number for each candidate, got 2 dimensions"),
        ([1.0, math.nan], "utilities must be finite"),
        ({"a": 1}, r"got dict: pass list\(d.values\(\)\), and find the chosen key in list\(d\)"),
        (["a"], "utilities must be a list or one-dimensional array with one real number for each candidate, got"),
    ):
        with pytest.raises((TypeError, ValueError), match=text):
            chooser(bad, **arguments)
    for epsilon, sensitivity in ((1e-300, 1.0), (1.0, 1e300)):
        if chooser is not noisy_max:  # its noise has limits of its own
            text = (
                f"epsilon must be larger for a choice that can be drawn with sensitivity={sensitivity!r}, got {epsilon}"
            )
            with pytest.raises(ValueError, match=re.escape(text)):
                chooser([1.0], epsilon=epsilon, sensitivity=sensitivity, neighbors=AR)


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
    with pytest.raises(ValueError, match="k must be at most the number of candidates, which is 4, got 5"):
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


@pytest.mark.parametrize(("epsilon", "text"), [(1, "1"), (0.1, "0.1"), (0.12345678, "0.12345678")])
def test_a_sparse_vector_never_shows_less_than_its_price(epsilon, text):
    assert f"epsilon={text}, " in repr(SparseVector(threshold=1, epsilon=epsilon, sensitivity=1, neighbors=AR))


WITH_EPSILON = {
    "exponential": lambda **k: exponential_mechanism([1], sensitivity=1, **k),
    "flip": lambda **k: permute_and_flip([1], sensitivity=1, **k),
    "top k": lambda **k: top_k([1], k=1, sensitivity=1, **k),
    "noisy max": lambda **k: noisy_max([1], sensitivity=1, **k),
    "sparse vector": lambda **k: SparseVector(threshold=1, sensitivity=1, **k),
}


@pytest.mark.parametrize("relation", [AR, RO])
@pytest.mark.parametrize("query", WITH_EPSILON)
def test_an_epsilon_that_no_noise_fits_is_named(query, relation):
    assert_epsilon_is_named(WITH_EPSILON[query], relation)
