"""The self-checks of the exercises: right answers, computed here anew, are taken, others not, and none is shown."""

import itertools
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize, special, stats

from dpbook import datasets, exercises
from dpbook.accounting import Accountant, SubsampledGaussian
from dpbook.exercises import DIGITS, KEYS, check, seal

BOOK = Path(__file__).parent.parent / "book"
ASKED = "Put your answer in place of None"


def discrete_tail(t, b):
    """Return P(|Z| > t) for discrete Laplace noise."""
    q = math.exp(-1 / b)
    return 2 * q ** (t + 1) / (1 + q)


def first_epsilon(probability):
    return next(i / 100 for i in range(1, 200) if probability(i / 100) <= 0.05)


def gaussian_delta(sigma, epsilon):
    mu = 1 / sigma
    first = special.ndtr(mu / 2 - epsilon / mu)
    return first - math.exp(epsilon + special.log_ndtr(-mu / 2 - epsilon / mu))


def gaussian_sigma(epsilon, delta):
    return optimize.brentq(lambda s: gaussian_delta(s, epsilon) - delta, 0.05, 1e4, xtol=1e-12)


def classic(epsilon, delta):
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def first_better(gaussian_one, laplace_one):
    """Return from which k on ``sqrt(k) * gaussian_one`` is below ``k * laplace_one``."""
    return math.floor((gaussian_one / laplace_one) ** 2) + 1


def all_bins(alpha):
    bins = 6  # of the histogram in the chapter
    t = next(t for t in range(1, 100) if discrete_tail(t, 2.0) <= alpha)
    return t, (1 - discrete_tail(t, 2.0)) ** bins


def sigma_by_tail():
    return optimize.brentq(lambda s: stats.norm.sf(1, 1 / (2 * s**2), 1 / s) - 1e-5, 1, 20, xtol=1e-12)


def true_epsilon(stated):
    sigma = classic(stated, 1e-5)
    return optimize.brentq(lambda e: gaussian_delta(sigma, e) - 1e-5, 1e-6, 60, xtol=1e-12)


def wrong_guess(guess, mean=40.0):
    """Return the predicted error for a guess: each half gets a share of ε by the two-thirds power rule."""
    share = (100 ** (2 / 3)) / (100 ** (2 / 3) + guess ** (2 / 3))
    return math.hypot(100 / share, mean / (1 - share))


def best_bound(n):
    """Return the upper bound of least error at ε = 1, among the chapter's candidates."""
    public = datasets.residents(2_000, seed=7)["income"]
    tries = np.geomspace(10_000, public.max(), 200)
    bias = np.maximum(public - tries[:, None], 0).mean(axis=1)
    return tries[np.argmin(bias**2 + 2 * (tries / n) ** 2)]


def one_among(sigma, m):
    """Return the least exp(ε)/m + δ(ε) of a Gaussian release: the bound on finding one among m."""
    return optimize.minimize_scalar(
        lambda e: math.exp(e) / m + gaussian_delta(sigma, e), bounds=(0, 10), method="bounded", options={"xatol": 1e-9}
    ).fun


def rebuilt(batch):
    """Return the share of records, of ten classes, that are alone in their class while another class is absent."""
    empty = sum((-1) ** (j + 1) * math.comb(9, j) * (1 - j / 9) ** (batch - 1) for j in range(1, 10))
    return 0.9 ** (batch - 1) * min(1.0, empty)


def strongest(epsilon, delta, rate):
    """Return the true positive rate of the best test of a Gaussian release that has this ε and δ."""
    sigma = optimize.brentq(lambda s: gaussian_delta(s, epsilon) - delta, 0.05, 50, xtol=1e-12)
    return stats.norm.sf(stats.norm.isf(rate) - 1 / sigma)


def trained_epsilon(multiplier, q, steps, delta, neighbors="add_remove"):
    step = SubsampledGaussian(noise_multiplier=multiplier, sampling_prob=q)
    return Accountant(neighbors=neighbors).add(step, steps=steps).epsilon(delta=delta)


def trained_multiplier(epsilon, neighbors):
    """Return the noise multiplier of 100 steps with sampling probability 1/8, at δ = 1e-5."""
    return optimize.brentq(lambda s: trained_epsilon(s, 1 / 8, 100, 1e-5, neighbors) - epsilon, 0.8, 20, xtol=1e-4)


LAPLACE_EX3 = all_bins(0.05), all_bins(1 - 0.95 ** (1 / 6))
ANSWERS = {
    "concepts-ex1": [math.log(9), math.sqrt(0.9 * 0.1 / 1000) / 0.8],
    "concepts-ex2": [math.e / (math.e + 99), math.log(99)],
    "concepts-ex3": [0.5, 0.5, 0.5],
    "concepts-ex4": 1 / (1 + math.exp(-0.5)) - math.exp(0.2) * math.exp(-0.5) / (1 + math.exp(-0.5)),
    "concepts-ex5": [12, 1.2],
    "sensitivity-ex1": 5**2 * 9 / 100,
    "sensitivity-ex2": [100, 100, 50],
    "sensitivity-ex3": [6, math.sqrt(12), 12, math.sqrt(24), "laplace"],
    "sensitivity-ex4": [12, 20],
    "sensitivity-ex5": 2,
    "laplace-ex1": [
        first_epsilon(lambda e: discrete_tail(10, 1 / e)),
        first_epsilon(lambda e: math.exp(-10 * e)),
    ],
    "laplace-ex2": [2, 4],
    "laplace-ex3": [LAPLACE_EX3[0][1], LAPLACE_EX3[1][0]],
    "laplace-ex4": 3,
    "noise-ex1": 32 + 32 * 0.005,  # 32 digits always, and 32 more for about one draw in 200
    "noise-ex2": 0,  # the shared outputs would make e algebraic
    "noise-ex3": [0, True],
    "gaussian-ex1": [
        20 / 0.5 * math.sqrt(2),
        math.sqrt(20) * gaussian_sigma(0.5, 1e-8),
        first_better(gaussian_sigma(0.5, 1e-8), math.sqrt(2) / 0.5),
    ],
    "gaussian-ex2": first_better(gaussian_sigma(1, 1e-5) * stats.norm.isf(0.025), math.log(20)),
    "gaussian-ex3": [sigma_by_tail(), True],
    "gaussian-ex4": [true_epsilon(e) for e in (0.5, 2.0, 8.0, 20.0)],
    "gaussian-ex5": [4, 2],
    "gaussian-ex6": [1e-5, 1e-5, 1e-5],
    "tuning-ex1": 60 / 5000 * math.log(100) / 0.1,
    "tuning-ex2": math.ceil(60 / 0.01 * math.log(100)),
    "tuning-ex3": [best_bound(100), best_bound(100_000)],
    "tuning-ex4": False,
    "tuning-ex5": wrong_guess(20) / wrong_guess(40),
    "training-ex1": [0.8, trained_epsilon(0.8, 64 / 50_000, 15_625, 1e-6)],
    "training-ex2": [trained_multiplier(3.0, "add_remove"), trained_multiplier(3.0, "replace_one")],
    "training-ex3": trained_epsilon(trained_multiplier(1.0, "add_remove") / 4, 1 / 8, 100, 1e-5),
    "trainingattacks-ex1": 1.0,  # each row is a multiple of the record
    "trainingattacks-ex2": 100 * one_among(2.0, 100),
    "trainingattacks-ex3": [100 * rebuilt(8), 100 * rebuilt(32)],
    "trainingattacks-ex4": 100 * strongest(8.0, 1e-3, 0.05),
}


def said(capsys, label, answer):
    check(label, answer)
    return capsys.readouterr().out.strip()


def numbers(answer):
    parts = answer if isinstance(answer, list) else [answer]
    return [part for part in parts if not isinstance(part, (str, bool))]


def test_every_check_has_an_answer_here():
    assert set(KEYS) == set(ANSWERS)


@pytest.mark.parametrize("label", ANSWERS)
def test_the_right_answer_is_taken_and_a_wrong_one_is_not(label, capsys):
    answer, digits = ANSWERS[label], KEYS[label][1]
    assert said(capsys, label, answer) == "Right."
    if isinstance(answer, list):
        assert said(capsys, label, tuple(answer)) == "Right."
        assert said(capsys, label, answer[:-1]).startswith("Not right")
        wrong = [*answer[:-1], not answer[-1] if isinstance(answer[-1], bool) else "wrong"]
    else:
        wrong = not answer if isinstance(answer, bool) else answer * 1.05 + 0.01
    assert said(capsys, label, wrong).startswith("Not right")
    rounded = [float(f"{part:.{digits - 1}e}") for part in numbers(answer)]
    if len(numbers(answer)) == len(answer if isinstance(answer, list) else [answer]):
        assert said(capsys, label, rounded if isinstance(answer, list) else rounded[0]) == "Right."


@pytest.mark.parametrize("label", ANSWERS)
def test_the_rounding_does_not_cut_close(label):
    """An answer that is off in the fourth digit or so must not be called wrong."""
    for number in numbers(ANSWERS[label]):
        if number:
            mantissa = abs(number) / 10 ** math.floor(math.log10(abs(number))) * 10 ** (KEYS[label][1] - 1)
            assert abs(mantissa - math.floor(mantissa) - 0.5) > 0.05, number


def test_nothing_is_told(capsys):
    for label, answer in ANSWERS.items():
        for shown in (said(capsys, label, None), said(capsys, label, "no idea")):
            assert all(f"{part:.3g}" not in shown for part in numbers(answer) if part not in (3, 5))
        assert said(capsys, label, None).startswith(ASKED)
    source = Path(exercises.__file__).read_text(encoding="utf8")
    assert "0.29," not in source
    assert "27632" not in source


def test_equal_numbers_of_other_types_are_equal():
    kinds = (2, 2.0, np.float64(2), np.int8(2), np.array(2.0))
    assert len({seal("x-ex1", kind) for kind in kinds}) == 1
    assert seal("x-ex1", [1, 2]) == seal("x-ex1", (1.0, 2.0)) == seal("x-ex1", np.array([1, 2]))
    assert seal("x-ex1", [1, 2]) != seal("x-ex1", [2, 1])
    assert seal("x-ex1", 0.0) == seal("x-ex1", -0.0)
    assert seal("x-ex1", True) == seal("x-ex1", np.bool_(True)) != seal("x-ex1", 1)
    assert seal("x-ex1", " Laplace ") == seal("x-ex1", "laplace")
    assert seal("x-ex1", 1.0) != seal("x-ex2", 1.0)
    for odd in (math.nan, math.inf, -math.inf):
        assert seal("x-ex1", odd) != seal("x-ex1", 0.0)


@pytest.mark.parametrize("answer", [{1}, {1: 2}, 1j, object(), b"1", (i for i in (1,)), [None]])
def test_other_types_are_refused(answer):
    with pytest.raises(TypeError, match="answer must be"):
        check("laplace-ex4", answer)


@pytest.mark.parametrize("label", ["laplace-ex0", "", None, 3])
def test_unknown_exercises_are_refused(label):
    with pytest.raises(ValueError, match="label must be"):
        check(label, None)


def test_notebooks_and_keys_agree():
    """Every check of a notebook has a key, stands right after its exercise, and was run without an answer."""
    found = {}
    for path in sorted(BOOK.glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf8"))["cells"]
        for before, cell in itertools.pairwise(cells):
            source = "".join(cell["source"])
            for label in re.findall(r'^check\("([\w-]+)", answer=None\)', source, re.M):
                labels = re.findall(r":label: (\S+)", "".join(before["source"]))
                assert labels[-1:] == [label], label
                assert ASKED in "".join(cell["outputs"][0]["text"])
                found[label] = path.stem
    assert set(found) == set(KEYS)
    assert all(label.startswith(chapter) for label, chapter in found.items())


def test_digits_are_named():
    assert DIGITS == 3
    assert all(re.fullmatch(r"[0-9a-f]{16}", key) and 1 <= digits <= 6 for key, digits in KEYS.values())
