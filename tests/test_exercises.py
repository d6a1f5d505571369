"""The self-checks of the exercises: right answers, computed here anew, are taken, others not, and none is shown."""

import itertools
import json
import math
import re
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, optimize, special, stats

from dpbook import datasets, exercises, noise
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


def discrete_std(b):
    r = math.exp(-1 / b)
    return math.sqrt(2 * r) / (1 - r)


def best_rows():
    """Return the number of rows a person with the least error: visits that are left out, and noise of scale m/0.5."""
    rows = datasets.clinic_rows()
    exact, found = np.bincount(rows["clinic"], minlength=6), {}
    for most in (1, 2, 3, 4, 6, 10):
        seen, kept = {}, []
        for who, where in zip(rows["person"].tolist(), rows["clinic"].tolist(), strict=True):
            seen[who] = seen.get(who, 0) + 1
            if seen[who] <= most:
                kept.append(where)
        z = np.arange(-400, 401)
        pmf = np.exp(-np.abs(z) * 0.5 / most)
        counts = np.maximum(np.bincount(kept, minlength=6)[:, None] + z, 0)
        found[most] = (np.abs(counts - exact[:, None]) @ (pmf / pmf.sum())).mean()
    return min(found, key=found.get)


def shown_from(delta, limit):
    """Return the least number of people whose key is shown with this probability at ε = 1."""
    people, p = 0, 0.0
    while p < limit:
        people, p = people + 1, min(math.e * p + delta, 1 - (1 - p - delta) / math.e, 1.0)
    return people


def likeliest_bound(epsilon):
    """Return the likeliest upper bound of the incomes: the end of the highest power of two that passes the limit."""
    income, powers = datasets.residents()["income"], 2 ** np.arange(31)
    counts = np.histogram(income, np.append(powers, powers[-1] * 2))[0][:30]
    bins = 2 * 30 + 1
    limit = next(t for t in range(10_000) if discrete_tail(t, 1 / epsilon) <= 2 * 0.01 / bins)

    def passes(count):  # P(count + Z > limit)
        above = discrete_tail(abs(limit - count), 1 / epsilon) / 2
        return above if count <= limit else 1 - discrete_tail(count - limit - 1, 1 / epsilon) / 2

    none_above, law = 1.0, {}
    for power, count in zip(powers[:30][::-1].tolist(), counts[::-1].tolist(), strict=True):
        law[2 * power] = none_above * passes(count)
        none_above *= 1 - passes(count)
    return max(law, key=law.get)


def rank_people(step):
    points = 150_000 // step + 1
    return 2 * 0.5 / 0.1 * (math.log(points) + math.log(1 / 0.05)) / 0.01


def people_for_share():
    """Return the least thousands of people whose 95 % interval of a share of 40 % is ±0.02 at most."""
    p = math.e / (math.e + 1)
    for n in range(1_000, 50_000, 1_000):
        exact = stats.binomtest(int(0.4 * n), n).proportion_ci(0.95, method="exact")
        if (exact.high - exact.low) / 2 / (2 * p - 1) <= 0.02:
            return n
    raise AssertionError


def first_sparse_epsilon():
    """Return the first ε with which 49 queries at -30 stay below the threshold and one at 30 does not, in 95 %."""
    for epsilon in (0.1, 0.2, 0.5, 1.0):
        noise = stats.laplace(scale=2 / epsilon)
        z = np.linspace(-60 / epsilon, 60 / epsilon, 40_001)
        right = integrate.trapezoid(noise.pdf(z) * noise.cdf(z + 30) ** 49 * noise.sf(z - 30), z)
        if right >= 0.95:
            return epsilon
    raise AssertionError


def two_valued_delta(epsilon, k, total):
    """Return the smallest δ of k randomised responses at a total ε, by the binomial distribution."""
    ones = np.arange(k + 1)
    excess = -np.expm1(np.minimum(0.0, total - epsilon * (2 * ones - k)))
    return float(stats.binom.pmf(ones, k, 1 / (1 + math.exp(-epsilon))) @ excess)


def best_each(k, decimals=4):
    """Return the largest ε of each of k releases that cost ε = 1 together at δ = 1e-6."""
    root = optimize.brentq(lambda e: two_valued_delta(e, k, 1.0) - 1e-6, 1e-3, 0.2, xtol=1e-12)
    return math.floor(root * 10**decimals) / 10**decimals


def laplace_losses(k, h, up, b=10.0, mu=0.0, size=2**20):
    """Return losses and masses of k Laplace counts and a Gaussian release, rounded up or down to multiples of h.

    A count with ε = 1/b has the loss 1/b with probability 1/2, -1/b with exp(-1/b)/2, and a density between.
    """
    a, to = 1 / b, math.ceil if up else math.floor
    at = np.arange(-round(a / h), round(a / h) + 1)
    inside = np.exp((at * h - a) / 2) / 2  # distribution function of the loss
    masses = np.concatenate([[0.0], np.diff(inside)]) if up else np.concatenate([np.diff(inside), [0.0]])
    masses[0] += math.exp(-a) / 2
    masses[-1] += 1 / 2
    one = np.zeros(size)
    one[at % size] = masses
    total = np.fft.rfft(one) ** k
    if mu:
        z = np.linspace(-9, 9, 18_001)
        normal = np.zeros(size)
        on_grid = [to((mu**2 / 2 + mu * x) / h) % size for x in (z[1:] if up else z[:-1])]
        np.add.at(normal, on_grid, np.diff(stats.norm.cdf(z)))
        total *= np.fft.rfft(normal)
    return h * size * np.fft.fftfreq(size), np.maximum(np.fft.irfft(total, size), 0.0)


def delta_at(epsilon, losses):
    return float(losses[1] @ -np.expm1(np.minimum(0.0, epsilon - losses[0])))


def epsilon_between(k, delta=1e-6, h=1e-5):
    """Return ε of k Laplace counts with ε = 0.1 each from two sides."""
    sides = (laplace_losses(k, h, up) for up in (False, True))
    return [optimize.brentq(lambda e, s=side: delta_at(e, s) - delta, 0.0, 10.0, xtol=1e-9) for side in sides]


def middle(pair, rtol=1e-3):
    """Return the middle of two bounds that are close enough for three digits."""
    assert pair[0] <= pair[1] <= pair[0] * (1 + rtol)
    return sum(pair) / 2


def counts_within(limit):
    """Return how many counts fit; both sides must say so."""
    fits = [next(k for k in range(109, 114) if epsilon_between(k + 1, h=4e-5)[side] > limit) for side in (0, 1)]
    assert fits[0] == fits[1]
    return fits[0]


def noise_of_eight():
    """Return δ(3) of eight counts that move by 2 with discrete Laplace noise of scale 2: losses -1, 0 and 1."""
    q = math.exp(-1 / 2)
    one = [q**2 / (1 + q), (1 - q) / (1 + q) * q, 1 / (1 + q)]
    total = [(sum(x), math.prod(one[y + 1] for y in x)) for x in itertools.product((-1, 0, 1), repeat=8)]
    return sum(p * max(0.0, 1 - math.exp(3 - loss)) for loss, p in total)


def laplace_rdp(order, b=10.0):
    """Return the closed form of the Rényi divergence (Mironov 2017, Table II)."""
    first = order / (2 * order - 1) * math.exp((order - 1) / b)
    return math.log(first + (order - 1) / (2 * order - 1) * math.exp(-order / b)) / (order - 1)


def rdp_cost(order, k=30, delta=1e-6):
    return k * laplace_rdp(order) + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)


def best_order():
    found = optimize.minimize_scalar(rdp_cost, bounds=(2, 40), method="bounded", options={"xatol": 1e-9})
    return found.x, found.fun


def advantage(k):
    return middle([delta_at(0.0, laplace_losses(k, 1e-5, up)) for up in (False, True)])


def best_attack(fpr, prior, h=1e-5):
    """Return true positive rate and precision of the best attack on the town at a false positive rate."""
    at, p = laplace_losses(30, h, up=True, mu=1 / 5)
    order = np.argsort(-at)
    q = np.cumsum(p[order] * np.exp(-at[order]))
    true = np.interp(fpr, q, np.cumsum(p[order]))
    return [true, prior * true / (prior * true + (1 - prior) * fpr)]


def weeks(limit="2", each="0.15"):
    number = int(Decimal(limit) / Decimal(each))
    return [number, float(Decimal(limit) - number * Decimal(each))]


def largest_rho(epsilon=1.0, delta=1e-6):
    """Return the largest ρ whose (ε, δ) is allowed, by the bound of Canonne, Kamath and Steinke."""
    a = 1 + np.geomspace(1e-2, 1e4, 400_001)
    return np.max((epsilon - np.log(1 / (a * delta)) / (a - 1) - np.log1p(-1 / a)) / a)


def gaussian_basic(k, sigma=50.0, delta=1e-6):
    return k * optimize.brentq(lambda e: gaussian_delta(sigma, e) - delta / k, 1e-6, 5, xtol=1e-12)


def planned_sigma():
    inverse = 1 / gaussian_sigma(1.0, 1e-6) ** 2  # sum of 1/σ² that is allowed
    return math.ceil(10 * math.sqrt(30 / (inverse - 4 / 25**2))) / 10


def rho_sigma():
    return math.ceil(10 * math.sqrt(30 / (2 * largest_rho() - 4 / 25**2))) / 10


def draws_to_refute(alpha=1e-6):
    """Return from which number of counted draws on the expected counts refute ε = 1."""
    n = np.arange(10_000, 30_000)
    hits, other = np.rint(n / 2), np.rint(n * math.exp(-1 / 0.9) / 2)
    low = stats.beta.ppf(alpha / 2, hits, n - hits + 1)
    high = stats.beta.isf(alpha / 2, other + 1, n - other)
    return int(n[np.argmax(np.log(low / high) > 1)])


LAPLACE_EX3 = all_bins(0.05), all_bins(1 - 0.95 ** (1 / 6))
ANSWERS = {
    "concepts-ex1": [math.log(9), math.sqrt(0.9 * 0.1 / 1000) / 0.8],
    "concepts-ex2": [math.e / (math.e + 99), math.log(99)],
    "concepts-ex3": [0.5, 0.5, 0.5],
    "concepts-ex4": 1 / (1 + math.exp(-0.5)) - math.exp(0.2) * math.exp(-0.5) / (1 + math.exp(-0.5)),
    "concepts-ex5": [12, 1.2],
    "sensitivity-ex1": [12, 20],
    "sensitivity-ex2": 2,
    "sensitivity-ex3": [100, 100, 50],
    "sensitivity-ex4": [6, math.sqrt(12), 12, math.sqrt(24), "laplace"],
    "sensitivity-ex5": 5**2 * 9 / 100,
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
    "noise-ex4": [False, False],
    "noise-ex5": noise.add_gaussian(0.3, sigma=2.0, rng=np.random.default_rng(1000)),
    "gaussian-ex1": [
        20 / 0.5 * math.sqrt(2),
        math.sqrt(20) * gaussian_sigma(0.5, 1e-8),
        first_better(gaussian_sigma(0.5, 1e-8), math.sqrt(2) / 0.5),
    ],
    "gaussian-ex2": first_better(gaussian_sigma(1, 1e-5) * stats.norm.isf(0.025), math.log(20)),
    "gaussian-ex3": [sigma_by_tail(), True],
    "gaussian-ex4": [true_epsilon(e) for e in (0.5, 2.0, 8.0, 20.0)],
    "gaussian-ex5": [1e-5, 1e-5, 1e-5],
    "gaussian-ex6": [4, 2],
    "composition-ex1": [1 / 12, best_each(12), 1 / 365, best_each(365)],
    "composition-ex2": [
        next(k for k in range(1, 99) if math.sqrt(2 * k * math.log(1e6)) < k * (2 - math.exp(0.1))),
        2 * math.log(1e6) / (2 - math.exp(0.1)) ** 2,
    ],
    "composition-ex3": [1.0, 2.0],
    "composition-ex4": [noise_of_eight(), two_valued_delta(1.0, 8, 3.0)],
    "accounting-ex1": [
        50,
        next(k for k in range(50, 150) if two_valued_delta(0.1, k + 1, 5.0) > 1e-6),
        counts_within(5.0),
    ],
    "accounting-ex2": [
        "larger",
        optimize.brentq(lambda e: two_valued_delta(0.1, 30, e) - 1e-6, 0.1, 3.0, xtol=1e-12),
        middle(epsilon_between(30)),
    ],
    "accounting-ex3": [1 / 2, 1 / 4],  # errors of first and of second order
    "accounting-ex4": [laplace_rdp(2.0), laplace_rdp(8.0), laplace_rdp(32.0), *best_order()],
    "accounting-ex5": [6 * 30 * laplace_rdp(7.0) + 6 * 7 / 2 / 5**2, True],
    "risk-ex1": math.floor(100 * math.log((0.05 / 0.95) / (0.02 / 0.98))) / 100,
    "risk-ex2": [optimize.brentq(lambda m: 2 * stats.norm.cdf(m / 2) - 1 - math.tanh(0.5), 0.1, 9, xtol=1e-12), "pure"],
    "risk-ex3": [1 - math.exp(-1 / 20), advantage(30)],
    "risk-ex4": best_attack(0.001, 0.01),
    "budget-ex1": weeks(),
    "budget-ex2": [math.exp(-0.1) / (1 + math.exp(-0.1)), math.exp(-0.2) / (1 + math.exp(-0.1)), False],
    "budget-ex3": [int(largest_rho() * 2 * 50**2), max(k for k in range(1, 99) if gaussian_basic(k) <= 1)],
    "budget-ex4": [planned_sigma(), rho_sigma()],
    "audit-ex1": 18 + 3 * (40 - 18),
    "audit-ex2": [False, 9, 10],
    "audit-ex3": [False, 1 + math.log((1 - math.exp(-1) / 2) / (1 / 2))],
    "audit-ex4": [2, 0],
    "audit-ex5": draws_to_refute(),
    "tuning-ex1": 60 / 5000 * math.log(100) / 0.1,
    "tuning-ex2": math.ceil(60 / 0.01 * math.log(100)),
    "tuning-ex3": [best_bound(100), best_bound(100_000)],
    "tuning-ex4": False,
    "tuning-ex5": wrong_guess(20) / wrong_guess(40),
    "queries-ex1": 0.5 + 0.5 + 0.2,
    "queries-ex2": [0.5, 1 / math.hypot(0.5, 0.5)],
    "queries-ex3": [2 * math.sqrt(2) / math.sqrt(2), discrete_std(1.0)],
    "histograms-ex1": [2 / 0.5, 0.5 + 0.5],
    "histograms-ex2": best_rows(),
    "histograms-ex3": [shown_from(1e-5, 0.5), shown_from(1e-5, 1.0), shown_from(1e-10, 1.0)],
    "quantiles-ex1": [0.9, 1, 1],
    "quantiles-ex2": [likeliest_bound(e) for e in (0.05, 0.5, 2.0)],
    "quantiles-ex3": [rank_people(100), rank_people(1)],
    "local-ex1": math.log((1 / 2 + 1 / 4) / (1 / 4)),
    "local-ex2": [people_for_share(), next(t for t in range(9) if discrete_tail(t, 1.0) <= 0.05) / 0.02],
    "selection-ex1": [10, True],
    "selection-ex2": first_sparse_epsilon(),
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
