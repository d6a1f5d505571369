"""Local differential privacy: every answer has its probability exactly, and the shares are estimated without bias.

Seeds are fixed; a statistical test rejects below 1e-6.
"""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay import REJECT, RO, chi_square_p, seeded
from scipy import stats

from dpbook import local, noise
from dpbook.local import randomized_response, response_probabilities, response_shares

LEVEL = 0.1


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(st.floats(1e-6, 60.0), st.integers(2, 1000))
def test_response_words_are_private_exactly(eps, k):
    true, other = local._response_words(eps, k)
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
    true, other = local._response_words(10.0, k)
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
    true, other = local._response_words(1.0, 3)
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


def test_everybody_answers():
    for record in ((10**5000,), 10**5000, [[1]], object(), math.nan, None):
        assert randomized_response([record], categories=["a", "b"], epsilon=1.0)[0] in ("a", "b")


@pytest.mark.parametrize("keys", [[False, True], ["a", "b", "c", "d"]])
def test_shares_are_unbiased_and_their_intervals_hold(keys):
    truth = [keys[0]] * 60 + [keys[-1]] * 140
    exact = np.array([truth.count(key) / 200 for key in keys])
    rng, misses, found = seeded(5), np.zeros(len(keys)), []
    for _ in range(600):
        answers = randomized_response(truth, categories=keys, epsilon=1.5, rng=rng)
        release = response_shares(answers, categories=keys, epsilon=1.5, alpha=LEVEL)
        assert release.value.sum() == pytest.approx(1.0)
        misses += ~((release.interval[0] <= exact) & (exact <= release.interval[1]))
        found.append(release.value)
    assert (np.abs(np.mean(found, axis=0) - exact) < 5 * np.std(found, axis=0) / math.sqrt(600)).all()
    assert (stats.binom.sf(misses - 1, 600, LEVEL) > REJECT).all()
    assert release.neighbors == RO
    empty = response_shares([], categories=keys, epsilon=1.0)
    assert empty.value.tolist() == [1 / len(keys)] * len(keys)


@pytest.mark.parametrize("level", [0.05, 0.2])
def test_the_intervals_of_shares_have_half_of_alpha_at_each_end(level):
    """Everybody's truth is the first category: the number of such answers is binomial, and the misses are summed."""
    n, eps = 60, 1.0
    truth, other = response_probabilities(epsilon=eps, categories=2)
    for c in range(n + 1):
        answer = response_shares(["a"] * c + ["b"] * (n - c), categories=["a", "b"], epsilon=eps, alpha=level)
        exact = stats.binomtest(c, n).proportion_ci(1 - level, method="exact")
        for end, expected in zip(answer.interval, exact, strict=True):
            share = min(max((expected - other) / (truth - other), 0.0), 1.0)
            assert end[0] == pytest.approx(share, abs=1e-9)
        wrong = stats.binomtest(c, n).proportion_ci(1 - 2 * level, method="exact")
        if other < wrong.low < truth:
            assert answer.interval[0][0] < (wrong.low - other) / (truth - other) - 1e-3
        if other < wrong.high < truth:
            assert answer.interval[1][0] > (wrong.high - other) / (truth - other) + 1e-3
