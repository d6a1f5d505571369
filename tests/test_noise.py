"""The noise is what its docstring promises: the ideal noise, rounded to a public grid, and nothing else.

Every seed is fixed, and a statistical test rejects only below p = 1e-6. Each has a power twin: the same statistic must
reject the same noise times 0.9 (or another fault of that size), so that passing means something.
"""

import copy
import functools
import hashlib
import io
import itertools
import math
import multiprocessing
import pickle
import sys
import threading
import tracemalloc
import warnings
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from dpbook import noise
from dpbook.noise import (
    BLOCK,
    CHUNK,
    KERNEL_ERROR,
    LARGEST,
    add_discrete_laplace,
    add_gaussian,
    add_laplace,
    grid_step,
)

LAPLACE, GAUSSIAN = noise._LAPLACE, noise._GAUSSIAN
FAMILIES = [pytest.param(LAPLACE, id="laplace"), pytest.param(GAUSSIAN, id="gaussian")]
FOLD_SCALES = [0.01, 0.1, 0.3, 1.0, 10.0, 1e6]  # at 0.1 a word without digits would look decided
DRAWS = 200_000
REJECT = 1e-6
Z_LIMIT = 5.0  # two-sided p = 5.7e-7

# One signature for all three: add(x, scale, rng).
ADD = {
    "laplace": lambda x, scale, rng=None: add_laplace(x, scale=scale, rng=rng),
    "gaussian": lambda x, scale, rng=None: add_gaussian(x, sigma=scale, rng=rng),
    "discrete": lambda x, scale, rng=None: add_discrete_laplace(x, scale=scale, rng=rng),
}
CONTINUOUS = ["laplace", "gaussian"]
FAMILY = {"laplace": LAPLACE, "gaussian": GAUSSIAN}

MP = mpmath.MPContext()
MP.prec = 220


def seeded(seed=0):
    return np.random.default_rng(seed)


def in_hundredths_of_kernel(error, z):
    return float(100 * error / (KERNEL_ERROR * (1 + z)))


def exact_z(family, a, steps=1):
    """z(a) to some 40 digits for each step, from the tail alone: the float64 kernel is only the starting point."""
    if family is LAPLACE:
        return -MP.log(a)
    z = MP.mpf(-float(special.ndtri(0.5 * float(a))))
    for _ in range(steps):  # Halley: the error is cubed
        d = (MP.erfc(z / MP.sqrt(2)) - a) / (MP.sqrt(2 / MP.pi) * MP.exp(-z * z / 2))
        z += d + z * d * d / 2
    return z


def spread_digits(bits, count, seed, edges=101):
    """Digits j over the whole range: both edges, log-spaced towards a = 0 and a = 1, and uniform."""
    top = 2 ** (bits - 1) - 1
    rng = seeded(seed)
    small = [int(2.0 ** (u * (bits - 1))) for u in rng.uniform(0, 1, count)]
    uniform = [min(int(u * 2.0 ** (bits - 1)), top) for u in rng.uniform(0, 1, count)]
    edge = list(range(edges))
    digits = edge + [top - j for j in edge] + small + [top - j for j in small] + uniform
    return [min(max(j, 0), top) for j in digits]


def as_words(digits, bits):
    return np.array(digits, dtype=np.int32 if bits == 32 else np.int64)


def middles(words, bits):
    """The arguments of the kernel, in float64, exactly as `attempt` makes them."""
    return np.abs(np.add(words, 0.5) * 2.0 ** (1 - bits))


def kernel(family, a):
    z = np.empty_like(a)
    family.magnitude(a, z)
    return np.abs(z)


# 1. The error of the float64 evaluation, with the rounding of a 63-digit argument included.


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("family", FAMILIES)
def test_kernel_error_against_mpmath(family, bits):
    digits = spread_digits(bits, 1_500, seed=1)
    a = middles(as_words(digits, bits), bits)
    computed = kernel(family, a)
    worst = 0.0
    for j, a_float, z in zip(digits, a.tolist(), computed.tolist(), strict=True):
        exact = exact_z(family, MP.mpf(2 * j + 1) / 2**bits)
        scalar = family.magnitude_at(a_float)
        for value in (z, scalar):
            worst = max(worst, in_hundredths_of_kernel(abs(value - exact), exact))
    assert worst * 4 <= 100


def many_words(bits, seed):
    rng = seeded(seed)
    integer = np.int32 if bits == 32 else np.int64
    random = rng.integers(0, 2 ** (bits - 1) - 1, 1_000_000, dtype=integer, endpoint=True)
    tail = (random[:500_000] >> rng.integers(0, bits - 1, 500_000).astype(integer)).astype(integer)
    top = np.iinfo(integer).max - tail
    return np.concatenate([random, tail, top])


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="no extended precision here")
@pytest.mark.parametrize("bits", [32, 64])
def test_laplace_kernel_error_in_extended_precision(bits):
    words = many_words(bits, seed=2)
    exact = -np.log((words.astype(np.longdouble) + np.longdouble(0.5)) * np.longdouble(2.0) ** (1 - bits))
    error = np.abs(kernel(LAPLACE, middles(words, bits)) - exact) / (KERNEL_ERROR * (1 + exact))
    assert float(error.max()) * 4 <= 1


@pytest.mark.parametrize("bits", [32, 64])
def test_gaussian_kernel_error_by_its_residual(bits):
    # The tail falls, so |z - z(a)| <= d if and only if tail(z + d) <= a <= tail(z - d). With d a quarter of
    # KERNEL_ERROR, the tail moves by more than ten times the rounding error of `special.erfc` (another algorithm),
    # including that of its argument, which is magnified by z**2.
    a = middles(many_words(bits, seed=3), bits)
    z = kernel(GAUSSIAN, a)
    d = KERNEL_ERROR / 4 * (1 + z)
    assert (special.erfc((z + d) / math.sqrt(2)) <= a).all()
    assert (special.erfc((z - d) / math.sqrt(2)) >= a).all()
    # Power: an error of half of KERNEL_ERROR is seen everywhere.
    wrong = z + 2 * d
    assert (special.erfc((wrong - d) / math.sqrt(2)) < a).all()


@pytest.mark.parametrize("bits", [32, 64])
def test_gaussian_kernel_error_against_erfinv(bits):
    a = middles(many_words(bits, seed=4), bits)
    a = a[a >= 0.5]  # here 1 - a is exact
    other = math.sqrt(2) * special.erfinv(1 - a)
    assert float((np.abs(kernel(GAUSSIAN, a) - other) / (KERNEL_ERROR * (1 + other))).max()) * 4 <= 1


@pytest.mark.parametrize("family", FAMILIES)
def test_scalar_kernel_equals_the_vector_kernel(family):
    a = middles(many_words(32, seed=5)[::50], 32)
    scalar = np.array([family.magnitude_at(one) for one in a.tolist()])
    assert float((np.abs(scalar - kernel(family, a)) / (KERNEL_ERROR * (1 + scalar))).max()) * 4 <= 1


# 2. The bound on the interval.


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("family", FAMILIES)
def test_interval_lies_within_its_slope_bound(family, bits):
    digits = [j for j in spread_digits(bits, 150, seed=6) if j >= 1]
    assert min(digits) == 1
    assert max(digits) == 2 ** (bits - 1) - 1
    h = MP.ldexp(1, -bits)
    for j in digits:
        a = (2 * j + 1) * h
        z = exact_z(family, a)
        worst = max(abs(exact_z(family, a - h) - z), abs(exact_z(family, a + h) - z))
        assert worst <= family.slope * h / a
    a = 3 * h  # j = 1 is where the bound is nearly reached: half of the slope would not do
    assert exact_z(family, a - h) - exact_z(family, a) > family.slope / 2 * h / a or family is GAUSSIAN


# 3. Fast and slow path agree.


class Case:
    """A draw with one value: what `attempt`, `one` and `certify` need to be called directly."""

    def __init__(self, family, scale, x=0.0, *, fold=False):
        if fold:
            self.draw, self.shift = noise._integer_plan(scale)
        else:
            self.draw, _, to_grid = noise._plan(family, scale)
            t = x * to_grid
            self.shift = t - round(t)
        self.family, self.x = family, x

    def attempt(self, words, bits, draw=None):
        rounded, unsettled = (draw or self.draw).attempt(words, self.shift, bits, np.empty((4, len(words))))
        settled = np.ones(len(words), dtype=bool)
        settled[unsettled] = False
        return rounded.copy(), settled

    def near_ties(self, bits, seed, count):
        """Words whose interval is near the boundary between two integers, where a mistake would be made."""
        rng = seeded(seed)
        top = 2 ** (bits - 1) - 1
        exact, scale = self.draw.exact(MP, self.x), MP.mpf(self.draw.scale)
        words = []
        for a in 2.0 ** -rng.uniform(0, 10, count):
            negative = bool(rng.integers(2))
            shift = -exact if negative and not self.draw.fold else exact
            k = MP.nint(scale * exact_z(self.family, MP.mpf(float(a))) + shift)
            z = (k + MP.mpf("0.5") - shift) / scale
            if z <= 0:
                continue
            tie = int(MP.floor(self.draw.family.tail(MP, z) * 2 ** (bits - 1)))
            for offset in (-(2**14), -(2**10), -(2**6), -5, -1, 0, 1, 5, 2**6, 2**10, 2**14):
                j = tie + offset
                if 0 <= j <= top:
                    words.append(~j if negative else j)
        return words


def cases():
    for name, family in FAMILY.items():
        for scale, x in ((1.0, 0.0), (1.0, 1 / 3), (1.9999, -7.3e-7), (1e-5, 2**30 + 0.1), (1e7, -1e-300)):
            yield pytest.param(functools.partial(Case, family, scale, x), id=f"{name}-{scale}-{x}")
    for scale in [*FOLD_SCALES, 2.0**36]:
        yield pytest.param(functools.partial(Case, LAPLACE, scale, 0, fold=True), id=f"integer-{scale}")


CASES = list(cases())


def sample_words(case, bits, count, seed):
    digits = spread_digits(bits, count, seed, edges=31)
    words = digits + [~j for j in digits] + case.near_ties(bits, seed, count // 3)
    return as_words(words, bits)


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("make", CASES)
def test_decided_words_are_what_the_slow_path_certifies(make, bits):
    case = make()
    words = sample_words(case, bits, 60, seed=7)
    rounded, settled = case.attempt(words, bits)
    read = seeded(8).bytes  # whatever digits follow
    wrong = [
        int(word)
        for word, value in zip(words[settled], rounded[settled], strict=True)
        if case.draw.certify(int(word), bits, case.x, read) != int(value)
    ]
    assert not wrong
    if bits == 64 or case.draw.scale < 1e9:  # else 31 digits never do
        assert settled.mean() > 0.25
    assert bits == 64 or not settled.all()


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("make", CASES)
def test_no_digits_yet_means_undecided_or_right(make, bits):
    case = make()
    words = as_words([0, -1, 1, -2], bits)
    rounded, settled = case.attempt(words, bits)
    assert not settled[:2].any()  # the interval reaches to a = 0, so z has no bound
    for follow in (b"\x00" * 8, b"\xff" * 8, seeded(9).bytes(8)):
        for word, value, known in zip(words.tolist(), rounded, settled, strict=True):
            chunks = itertools.chain([follow], iter(lambda: seeded(9).bytes(8), None))
            got = case.draw.certify(word, bits, case.x, lambda count, chunks=chunks: next(chunks))
            assert not known or got == int(value)


@pytest.mark.parametrize("make", CASES)
def test_scalar_decides_like_the_slow_path(make):
    case = make()
    more = [seeded(11).bytes(8) for _ in range(4)]
    for word in sample_words(case, 32, 6, seed=10).tolist():
        for follow in (b"\x00" * 4, b"\xff" * 4, word.to_bytes(4, "big", signed=True)):
            full = (word << 32) | int.from_bytes(follow, "little")
            chunks = iter([word.to_bytes(4, "little", signed=True), follow, *more])
            later = iter(more)
            got = case.draw.one(case.x, case.shift, lambda count, chunks=chunks: next(chunks))
            assert got == case.draw.certify(full, 64, case.x, lambda count, later=later: next(later))


@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize(("x", "scale"), [(0.0, 1.0), (1 / 3, 0.37), (-7.3, 1e-5), (2.0**40 + 0.1, 1e7), (5e-324, 3.0)])
def test_scalar_equals_array_of_one(name, x, scale):
    for seed in range(400):
        assert ADD[name](x, scale, seeded(seed)) == ADD[name](np.array([x]), scale, seeded(seed))[0]


@pytest.mark.parametrize("scale", [*FOLD_SCALES, 1e9, 2.0**40])
def test_integer_scalar_equals_array_of_one(scale):
    for seed in range(200):
        assert ADD["discrete"](5, scale, seeded(seed)) == ADD["discrete"]([5], scale, seeded(seed))[0]


@pytest.mark.parametrize("limit", [0.25, -1.0])
@pytest.mark.parametrize("make", CASES)
def test_a_wider_bound_asks_for_more_digits_and_changes_nothing(make, limit):
    case = make()
    draw = case.draw
    wide = noise._Draw(draw.family, draw.scale, draw.exact, fold=draw.fold)
    wide.limit = {bits: min(limit, bound) for bits, bound in draw.limit.items()}
    words = as_words(seeded(12).integers(-(2**31), 2**31, 1000).tolist(), 32)
    rounded, settled = case.attempt(words, 32)
    again, fewer = case.attempt(words, 32, draw=wide)
    assert not (fewer & ~settled).any()
    assert fewer.sum() < settled.sum() or not settled.any()
    assert (again == rounded).all()
    for seed in range(100):
        assert draw.one(case.x, case.shift, seeded(seed).bytes) == wide.one(case.x, case.shift, seeded(seed).bytes)


class OneFiller(np.random.Generator):
    """Fresh words for whole blocks, and the same digits for whatever is read to continue a word."""

    def bytes(self, length):
        if length == 4 * BLOCK:
            return super().bytes(length)
        continued.append(length)
        return b"\x5a\xc3\x17\x9e" * (length // 4)


continued = []


@pytest.mark.parametrize("name", ADD)
def test_a_million_draws_of_which_many_are_forced_through_the_slow_path(name, monkeypatch):
    scale = 1e6 if name == "discrete" else 1.3
    x = np.full(4 * BLOCK, 7) if name == "discrete" else np.full(4 * BLOCK, 1 / 3)
    draw = noise._integer_plan(scale)[0] if name == "discrete" else noise._plan(FAMILY[name], scale)[0]
    continued.clear()
    plain = ADD[name](x, scale, OneFiller(np.random.PCG64(60)))
    usual = [length for length in continued if length != 8], continued.count(8)
    monkeypatch.setattr(draw, "limit", {32: 0.45, 64: 0.4995})
    continued.clear()
    forced = ADD[name](x, scale, OneFiller(np.random.PCG64(60)))
    assert sum(length for length in continued if length != 8) / 4 > 90_000  # by far more second words,
    assert sum(usual[0]) / 4 < 20_000
    slow = []
    real = noise._Draw.certify

    def counted(self, *arguments):
        slow.append(1)
        return real(self, *arguments)

    monkeypatch.setattr(noise._Draw, "certify", counted)
    again = ADD[name](x, scale, OneFiller(np.random.PCG64(60)))
    assert len(slow) > 500  # and many through the slow path
    assert (forced == plain).all()
    assert (again == plain).all()


# 4. The slow path against brute force: both ends of the final interval, to 60 digits.


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(
    make=st.sampled_from([case.values[0] for case in CASES]),
    word=st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-1000, 1000)),
    follow=st.binary(min_size=8, max_size=8),
)
def test_slow_path_against_both_ends_of_the_interval(make, word, follow):
    check_against_brute_force(make(), word, 64, itertools.chain([follow], iter(lambda: seeded(13).bytes(8), None)))


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("make", CASES)
def test_slow_path_near_ties_against_both_ends_of_the_interval(make, bits):
    case = make()
    for word in case.near_ties(bits, 14, 8):
        rng = seeded(abs(word) % 2**32)
        check_against_brute_force(case, word, bits, iter(lambda rng=rng: rng.bytes(8), None))


def check_against_brute_force(case, word, bits, source):
    used = []

    def read(count):
        assert count == 8
        used.append(next(source))
        return used[-1]

    draw = case.draw
    got = draw.certify(word, bits, case.x, read)
    for more in used:
        word, bits = (word << 64) | int.from_bytes(more, "little"), bits + 64
    negative, digits = word < 0, word if word >= 0 else -word - 1
    if draw.fold:  # the discrete Laplace variable by its definition: |Z| = floor(-b ln(a) - b ln((1 + q) / 2))
        b = MP.mpf(draw.scale)
        offset = -b * MP.log((1 + MP.exp(-1 / b)) / 2)
        ends = {int(MP.floor(b * -MP.log(MP.ldexp(j, 1 - bits)) + offset)) for j in (digits, digits + 1) if j}
        ends = {-k for k in ends} if negative else ends
    else:  # the whole release, in grid units, by its definition: the rounded sum
        t = MP.mpf(case.x) * noise._plan(case.family, SCALE_OF[draw])[2]
        whole = int(MP.nint(t))
        z = [exact_z(case.family, MP.ldexp(j, 1 - bits), steps=2) for j in (digits, digits + 1) if j]
        ends = {int(MP.nint(t + (-draw.scale if negative else draw.scale) * one)) - whole for one in z}
    assert ends == {got}


SCALE_OF = {noise._plan(family, scale)[0]: scale for family in FAMILY.values() for scale in (1.0, 1.9999, 1e-5, 1e7)}


# 5. The support.


@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize("scale", [1.0, 0.37, 1e-5, 1e7])
@pytest.mark.parametrize("x", [0.0, 1.0, 1 / 3, -7.3, 1e6, 2.0**40 + 0.1])
def test_every_release_is_on_the_public_grid(name, scale, x):
    step = grid_step(scale=scale)
    assert math.frexp(step)[0] == 0.5
    assert 2.0**20 <= scale / step < 2.0**21
    out = np.append(ADD[name](np.full(2000, x), scale, seeded(15)), [ADD[name](x, scale, seeded(i)) for i in range(50)])
    if abs(x) < 2**52 * step:
        multiples = out / step
        assert (multiples == np.rint(multiples)).all()
        assert 0.4 < (multiples % 2).mean() < 0.6  # the finest grid that is promised, for every value
    assert (np.abs(out - x) < 40 * scale + step + abs(x) * 2.0**-50).all()


def share_on_attack_grid(out):
    near = out[(out > 0) & (out < 0.5)] * 2.0**53
    return (near == np.rint(near)).mean()


@pytest.mark.parametrize("name", CONTINUOUS)
def test_mantissa_bits_tell_nothing(name):
    ours = [ADD[name](np.full(DRAWS, x), 1.0, seeded(16)) for x in (0.0, 1.0)]
    assert share_on_attack_grid(ours[0]) == share_on_attack_grid(ours[1]) == 1.0
    rng = seeded(17)
    naive = {
        "laplace": [rng.laplace(size=DRAWS)],
        "gaussian": [rng.normal(size=DRAWS), rng.normal(size=(4, DRAWS)).sum(axis=0) / 2],
    }[name]
    for plain in naive:  # the attack works on plain noise, also on a sum of four
        assert share_on_attack_grid(1.0 + plain) == 1.0
        assert share_on_attack_grid(0.0 + plain) < 0.7


def could_be_numpys(out, value, scale):
    """Whether one of the 53-bit uniform numbers makes NumPy's Laplace sampler end in `out` (Mironov 2012)."""
    z = (out - value) / scale
    u = np.where(z < 0, np.exp(z) / 2, 1 - np.exp(-z) / 2)
    log = np.vectorize(math.log, otypes=[float])
    found = np.zeros(len(out), dtype=bool)
    for step in range(-4, 5):
        v = np.clip(np.rint(u * 2.0**53) + step, 1, 2.0**53 - 1) * 2.0**-53
        found |= value + np.where(v < 0.5, scale * log(v + v), -scale * log(2 - v - v)) == out
    return found


def right_guesses(release, scale, pair, count=10_000):
    rng = seeded(61)
    truth = rng.integers(0, 2, count)
    out = release(np.where(truth == 1, pair[1], pair[0]).astype(float), rng)
    first, second = (could_be_numpys(out, value, scale) for value in pair)
    return (np.where(first == second, rng.integers(0, 2, count), second) == truth).mean()


@pytest.mark.parametrize("pair", [(0.0, 1.0), (12.0, 13.0), (-3.0, -2.0)])
def test_the_attack_on_the_sampler_is_a_coin_here(pair):
    scale, count = 100.0, 10_000
    allowed = special.expit(1 / scale) + Z_LIMIT * 0.5 / math.sqrt(count)
    assert right_guesses(lambda x, rng: add_laplace(x, scale=scale, rng=rng), scale, pair) < allowed
    assert right_guesses(lambda x, rng: x + rng.laplace(0.0, scale, len(x)), scale, pair) > 0.8


def test_naive_noise_has_a_porous_support():
    u = np.arange(1, 2**12 + 1) / 2**12
    plain = np.concatenate([np.log(u), -np.log(u)])
    supports = [{y for y in (x + plain).tolist() if 0.25 < y < 0.75} for x in (0.0, 1.0)]
    assert min(map(len, supports)) > 500
    assert len(supports[0] & supports[1]) < 0.1 * min(map(len, supports))  # an output nearly always tells the value


@pytest.mark.parametrize("scale", [2.0**-900, 2.0**-1, 1.0, math.nextafter(2.0, 1), 2.0, 2.0**900])
def test_grid_is_a_power_of_two_for_every_scale(scale):
    assert math.frexp(grid_step(scale=scale))[0] == 0.5
    assert 2.0**20 <= scale / grid_step(scale=scale) < 2.0**21


# 6. The distribution.


def chi2_p(counts, expected):
    return special.chdtrc(len(counts) - 1, ((counts - expected) ** 2 / expected).sum())


def laplace_cdf(z):
    return np.where(z < 0, 0.5 * np.exp(-np.abs(z)), 1 - 0.5 * np.exp(-np.abs(z)))


CDF = {"laplace": laplace_cdf, "gaussian": special.ndtr}


def bins_p(uniform):
    """Chi-square on 64 bins of equal probability."""
    counts = np.bincount((uniform * 64).astype(int).clip(0, 63), minlength=64)
    return chi2_p(counts, np.full(64, len(uniform) / 64))


def ks_p(uniform):
    u, n = np.sort(uniform), len(uniform)
    rank = np.arange(n)
    return special.kolmogorov(math.sqrt(n) * max((u - rank / n).max(), ((rank + 1) / n - u).max()))


@pytest.mark.parametrize("p_value", [bins_p, ks_p])
@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize(("x", "scale"), [(0.0, 1.0), (1 / 3, 3.0), (-7.3, 0.37)])
def test_distribution_of_continuous_noise(name, x, scale, p_value):
    z = (ADD[name](np.full(DRAWS, x), scale, seeded(18)) - x) / scale
    assert p_value(CDF[name](z)) > REJECT
    assert p_value(CDF[name](0.9 * z)) < REJECT
    assert p_value(CDF[name](z + 0.05)) < REJECT


@pytest.mark.parametrize("name", CONTINUOUS)
def test_distribution_of_scalar_noise(name):
    rng = seeded(19)
    z = np.array([ADD[name](0.25, 2.0, rng) for _ in range(20_000)]) / 2.0 - 0.125
    assert bins_p(CDF[name](z)) > REJECT
    assert bins_p(CDF[name](0.9 * z)) < REJECT


def discrete_p(out, scale):
    """Chi-square on every integer that is expected ten times, and the two tails."""
    q, n = math.exp(-1 / scale), len(out)
    pmf = (1 - q) / (1 + q)
    last = int(scale * math.log(n * pmf / 20))
    k = np.arange(-last, last + 1)
    tail = n * q ** (last + 1) / (1 + q)
    expected = np.concatenate([[tail], n * pmf * q ** np.abs(k), [tail]])
    counts = np.bincount(np.clip(out, -last - 1, last + 1) + last + 1, minlength=2 * last + 3)
    return chi2_p(counts, expected)


def test_discrete_laplace_at_scale_one():
    out = add_discrete_laplace(np.zeros(DRAWS, dtype=int), scale=1.0, rng=seeded(20))
    at_zero = (1 - math.exp(-1)) / (1 + math.exp(-1))
    assert at_zero == pytest.approx(0.462117, abs=1e-6)
    error = math.sqrt(at_zero * (1 - at_zero) / DRAWS)
    assert abs((out == 0).mean() - at_zero) < Z_LIMIT * error
    rounded = np.rint(seeded(21).laplace(size=DRAWS)).astype(int)
    assert abs((rounded == 0).mean() - (1 - math.exp(-0.5))) < Z_LIMIT * error  # 0.393469: not the same thing
    assert abs((rounded == 0).mean() - at_zero) > Z_LIMIT * error
    assert discrete_p(rounded, 1.0) < REJECT


@pytest.mark.parametrize("scale", [0.3, 1.0, 1.7, 10.0])
def test_distribution_of_discrete_laplace(scale):
    out = add_discrete_laplace(np.full(DRAWS, -3), scale=scale, rng=seeded(22)) + 3
    assert discrete_p(out, scale) > REJECT
    assert discrete_p(add_discrete_laplace(np.zeros(DRAWS, int), scale=0.9 * scale, rng=seeded(23)), scale) < REJECT


def test_distribution_of_scalar_discrete_laplace():
    rng = seeded(24)
    assert discrete_p(np.array([add_discrete_laplace(7, scale=2.0, rng=rng) - 7 for _ in range(20_000)]), 2.0) > REJECT
    assert discrete_p(np.array([add_discrete_laplace(7, scale=1.8, rng=rng) - 7 for _ in range(20_000)]), 2.0) < REJECT


def test_tiny_scale_is_nearly_always_zero():
    assert not add_discrete_laplace(np.zeros(1000, int), scale=0.01, rng=seeded(25)).any()


@pytest.mark.parametrize(
    ("name", "scale", "std", "kurtosis"),
    [
        ("laplace", 1.0, math.sqrt(2), 6.0),
        ("laplace", 5e-3, 5e-3 * math.sqrt(2), 6.0),
        ("gaussian", 3.0, 3.0, 3.0),
        ("gaussian", 1e6, 1e6, 3.0),
        ("discrete", 20.0, math.sqrt(2 * math.exp(-0.05)) / -math.expm1(-0.05), 6.0),
    ],
)
def test_moments(name, scale, std, kurtosis):
    out = ADD[name](np.zeros(DRAWS, dtype=int), scale, seeded(26))
    error = std * math.sqrt((kurtosis - 1) / (4 * DRAWS))
    assert abs(out.mean()) < Z_LIMIT * std / math.sqrt(DRAWS)
    assert abs(out.std() - std) < Z_LIMIT * error
    assert abs((0.9 * out).std() - std) > Z_LIMIT * error


def correlation_z(columns):
    """The largest correlation of two columns, also of their sizes, in standard errors."""
    pairs = itertools.combinations(range(columns.shape[1]), 2)
    both = (columns, np.abs(columns))
    found = [abs(np.corrcoef(of[:, i], of[:, j])[0, 1]) for i, j in pairs for of in both]
    return math.sqrt(len(columns)) * max(found)


@pytest.mark.parametrize("name", ADD)
def test_entries_are_independent(name):
    out = ADD[name](np.zeros((40_000, 5), dtype=int), 1e4, seeded(27))
    assert out.shape == (40_000, 5)
    assert len(set(out[0].tolist())) == 5
    assert correlation_z(out) < Z_LIMIT
    assert correlation_z(out + 0.1 * np.roll(out, 1, axis=1)) > Z_LIMIT
    assert correlation_z(np.stack([out[:-1, 0], out[1:, 0]], axis=1)) < Z_LIMIT  # from one row to the next
    assert np.unique(out[0:2]).size == 10


@pytest.mark.parametrize("name", CONTINUOUS)
def test_second_digits_do_not_bias(name):
    # Only words that 31 digits leave open, each with one boundary between two integers inside its interval. The next
    # 32 digits must pick the outer integer with the share of the interval that lies beyond the boundary.
    case = Case(FAMILY[name], 1.5, 0.3)
    words = as_words(seeded(28).integers(-(2**31), 2**31, 3_000_000), 32)
    open_words = words[~case.attempt(words, 32)[1]]
    open_words = open_words[middles(open_words, 32) > 0.05]
    low = np.floor(middles(open_words, 32) * 2.0**31) * 2.0**-31
    sign = np.where(open_words < 0, -1.0, 1.0)
    z = -np.log(low) if name == "laplace" else -special.ndtri(low / 2)
    # the boundary below the outermost point, in units of a
    inner = np.rint(case.draw.scale * z + sign * case.shift) - 0.5
    boundary = (inner - sign * case.shift) / case.draw.scale
    at = np.exp(-boundary) if name == "laplace" else 2 * special.ndtr(-boundary)
    share = (at - low) * 2.0**31
    inside = (share > 0.001) & (share < 0.999)
    assert inside.sum() > 3000
    share, open_words, inner, sign = share[inside], open_words[inside], inner[inside], sign[inside]

    def p_value(second):
        digits = np.where(open_words < 0, ~open_words, open_words).astype(np.int64) << np.int64(32) | second
        full = np.where(open_words < 0, ~digits, digits)
        rounded, settled = case.attempt(full, 64)
        assert settled.mean() > 0.99
        outer = sign * rounded > inner
        part = (share * 10).astype(int)
        expected = np.bincount(part, share, 10)
        variance = np.bincount(part, share * (1 - share), 10)
        excess = np.bincount(part, outer, 10) - expected
        overall = excess.sum() ** 2 / variance.sum()
        return min(special.chdtrc(10, (excess**2 / variance).sum()), special.chdtrc(1, overall))

    second = seeded(29).integers(0, 2**32, len(share))
    assert p_value(second) > REJECT
    assert p_value((second * 0.9).astype(np.int64)) < REJECT
    assert p_value(np.full(len(share), 2**31)) < REJECT  # 31 digits and the middle: what the certificate prevents


def test_integer_noise_that_always_needs_second_digits():
    scale = 1e10
    case = Case(LAPLACE, scale, 0, fold=True)
    words = as_words(seeded(30).integers(-(2**31), 2**31, 1000), 32)
    assert not case.attempt(words, 32)[1].any()
    out = add_discrete_laplace(np.zeros(100_000, int), scale=scale, rng=seeded(31))
    assert bins_p(laplace_cdf(out / scale)) > REJECT
    assert bins_p(laplace_cdf(0.9 * out / scale)) < REJECT
    assert bins_p((out % 64 + 0.5) / 64) > REJECT  # the last digits are fair
    assert bins_p((0.9 * (out % 64) + 0.5) / 64) < REJECT


# 7. Edges.


@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize("x", [0.0, -0.0, -5e-324, 5e-324, 1e-9, -1e-9])
def test_no_negative_zero(name, x, monkeypatch):
    scale = 1.0
    # so many words whose noise is a zero of either sign
    top = np.arange(2**31 - 40, 2**31, dtype=np.int64)
    words = np.concatenate([top, ~top]).astype("<i4")
    monkeypatch.setattr(
        noise, "_system_bytes", lambda count: words.tobytes() if count == words.nbytes else b"\7" * count
    )
    out = ADD[name](np.full(len(words), x), scale)
    assert (out == 0).any()
    assert not np.signbit(out[out == 0]).any()
    for word in words[[0, 39, 40, 79]].tolist():
        pieces = iter([word.to_bytes(4, "little", signed=True)])
        monkeypatch.setattr(noise, "_system_bytes", lambda count, pieces=pieces: next(pieces, b"\7" * count))
        assert str(ADD[name](x, scale)) != "-0.0"


@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize("scale", [1.0, 1e300 / 2**100, 2.0**-900, 2.0**900])
@pytest.mark.parametrize("x", [1.7e308, -1.7e308, LARGEST, -LARGEST, 5e-324, -5e-324, 2.2e-308, 1e-200, 0.0])
def test_extreme_values_stay_finite(name, scale, x):
    out = np.append(ADD[name](np.full(500, x), scale, seeded(32)), ADD[name](x, scale, seeded(33)))
    assert np.isfinite(out).all()
    assert (np.abs(out - x) / 2 <= 20 * scale + 2.0**-53 * abs(x)).all()
    mixed = ADD[name](np.array([x, 0.0, 1.0, -x]), scale, seeded(34))
    assert np.isfinite(mixed).all()


def test_scales_near_the_ends_have_the_right_size():
    for name, scale in itertools.product(CONTINUOUS, (2.0**-900, 2.0**900)):
        z = ADD[name](np.zeros(40_000), scale, seeded(35)) / scale
        assert bins_p(CDF[name](z)) > REJECT
        assert bins_p(CDF[name](0.9 * z)) < REJECT
        for bad in (math.nextafter(2.0**-900, 0), math.nextafter(2.0**900, math.inf), 1e300, 0.0, -1.0, math.nan):
            with pytest.raises(ValueError, match=r"scale|sigma"):
                ADD[name](0.0, bad)


@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize("big", [2**53 + 1, 2**60, 10**400, np.int64(2**62), np.uint64(2**64 - 1)])
def test_large_integers_are_clamped(name, big):
    assert ADD[name](big, 4.0, seeded(36)) == ADD[name](2.0**53, 4.0, seeded(36))
    if not isinstance(big, np.uint64):
        assert ADD[name](-big, 4.0, seeded(36)) == ADD[name](-(2.0**53), 4.0, seeded(36))


@pytest.mark.parametrize("name", ADD)
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
def test_integer_types_give_the_same(name, dtype):
    x = np.arange(100).astype(dtype)
    plain = x.astype(np.int64 if name == "discrete" else np.float64)
    assert (ADD[name](x, 2.0, seeded(37)) == ADD[name](plain, 2.0, seeded(37))).all()


@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, ">f8"])
def test_float_types_give_the_same(name, dtype):
    x = np.linspace(-3, 3, 100).astype(dtype)
    out = ADD[name](x, 2.0, seeded(38))
    assert out.dtype == np.float64
    assert (out == ADD[name](x.astype(np.float64), 2.0, seeded(38))).all()


@pytest.mark.parametrize("name", ADD)
def test_input_is_left_alone(name):
    x = np.arange(12).reshape(3, 4).astype(int if name == "discrete" else float)
    x.flags.writeable = False
    out = ADD[name](x, 2.0, seeded(39))
    assert (x == np.arange(12).reshape(3, 4)).all()
    assert not np.shares_memory(x, out)
    assert out.flags.writeable
    # the order of the entries is that of the values, whatever the memory layout
    assert (ADD[name](np.asfortranarray(x), 2.0, seeded(39)) == out).all()
    assert (ADD[name](x[:, ::-1], 2.0, seeded(39)).shape) == (3, 4)


@pytest.mark.parametrize("name", ADD)
def test_shapes_and_types_of_results(name):
    kind, dtype = (int, np.int64) if name == "discrete" else (float, np.float64)
    for scalar in (3, np.int32(3), kind(3), dtype(3)):
        assert type(ADD[name](scalar, 2.0)) is kind
    for shape in ((0,), (0, 3), (), (1,), (2, 3), (2, 0, 4), (1, 1, 1)):
        out = ADD[name](np.zeros(shape, dtype), 2.0)
        assert isinstance(out, np.ndarray)
        assert (out.shape, out.dtype) == (shape, dtype)
    for listed in ([], [1, 2], ((1, 2), (3, 4))):
        out = ADD[name](listed, 2.0)
        assert (type(out), out.shape, out.dtype) == (np.ndarray, np.shape(listed), dtype)


@pytest.mark.parametrize("x", [2**63 - 1, -(2**63), 2**200, np.int64(2**63 - 1), np.uint64(2**64 - 1)])
def test_python_integers_never_wrap(x):
    noises = []
    for seed in range(100):
        out = add_discrete_laplace(x, scale=50.0, rng=seeded(seed))
        assert type(out) is int
        noises.append(out - int(x))
        assert noises[-1] == add_discrete_laplace(0, scale=50.0, rng=seeded(seed))
    assert min(noises) < 0 < max(noises)


def test_integer_arrays_saturate():
    ends = np.iinfo(np.int64)
    noise_only = add_discrete_laplace(np.zeros(2000, int), scale=1e10, rng=seeded(40))
    for x in (ends.min, ends.min + 10**10, -1, 0, 1, ends.max - 10**10, ends.max):
        out = add_discrete_laplace(np.full(2000, x), scale=1e10, rng=seeded(40))
        exact = [min(max(x + z, ends.min), ends.max) for z in noise_only.tolist()]
        assert out.tolist() == exact
    unsigned = np.full(50, 2**64 - 1, dtype=np.uint64)
    assert (add_discrete_laplace(unsigned, scale=3.0, rng=seeded(41)) > ends.max - 1000).all()


@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1e-9, math.nextafter(2.0**-10, 0.0)])
def test_a_smaller_integer_scale_is_raised_to_2_to_the_minus_10(scale):
    x = np.array([-(2**63), -1, 0, 5, 2**63 - 1])
    assert add_discrete_laplace(x, scale=scale, rng=seeded(42)).tolist() == x.tolist()
    assert add_discrete_laplace(7, scale=scale, rng=seeded(42)) == 7
    rng, other = seeded(42), seeded(42)
    smallest, own = add_discrete_laplace(x, scale=2.0**-10, rng=rng), add_discrete_laplace(x, scale=scale, rng=other)
    assert smallest.tolist() == own.tolist()
    assert rng.bit_generator.state == other.bit_generator.state


SIGNALLING = np.array([0x7FA00000], dtype=np.uint32).view(np.float32)  # a NaN that raises a flag when it is converted
EXTREME_VALUES = [0.0, -0.0, 5e-324, -5e-324, 1e-310, 2.3e-308, 1e-300, 0.1, 2.0**53, 1e300, -1e300, LARGEST, -LARGEST]


@pytest.mark.parametrize("scale", [2.0**-900, 1e-100, 1e-5, 1.0, 1e5, 1e100, 2.0**900])
@pytest.mark.parametrize("name", CONTINUOUS)
def test_the_callers_error_state_does_not_matter(name, scale):
    x = np.array(EXTREME_VALUES)
    expected = ADD[name](x, scale, seeded(48)).tolist()
    scalars = [ADD[name](value, scale, seeded(49)) for value in EXTREME_VALUES]
    with np.errstate(all="raise"):
        assert ADD[name](x, scale, seeded(48)).tolist() == expected
        assert [ADD[name](value, scale, seeded(49)) for value in EXTREME_VALUES] == scalars
        for dtype in (np.float16, np.float32):
            ends = np.finfo(dtype)
            ADD[name](np.array([ends.tiny, ends.smallest_subnormal, ends.max, ends.min]), scale, seeded(50))
        ADD[name]([2**62, -(2**63)], scale, seeded(50))
        for bad in (math.nan, math.inf, [math.nan, 1.0], np.array([-math.inf]), np.float32(math.nan), SIGNALLING):
            with pytest.raises(ValueError, match=r"^true_value must be finite"):
                ADD[name](bad, scale, seeded(50))


@pytest.mark.parametrize("scale", [5e-324, 0.01, 0.3, 1.0, 1e6, 2.0**40])
def test_the_callers_error_state_does_not_matter_for_integers(scale):
    for dtype in (np.int8, np.int64, np.uint64):
        ends = np.iinfo(dtype)
        x = np.array([ends.min, 0, 1, ends.max], dtype=dtype)
        expected = add_discrete_laplace(x, scale=scale, rng=seeded(51)).tolist()
        with np.errstate(all="raise"):
            assert add_discrete_laplace(x, scale=scale, rng=seeded(51)).tolist() == expected
            for value in (*x, 10**400, -(10**400)):
                assert type(add_discrete_laplace(value, scale=scale, rng=seeded(51))) is int


@pytest.mark.parametrize("name", ADD)
@pytest.mark.parametrize("bad", [None, "1", True, 1j, {1}, np.array(["a"]), np.array([True]), np.ma.array([1, 2])])
def test_values_of_the_wrong_type_are_refused(name, bad):
    with pytest.raises(TypeError, match="true_value"):
        ADD[name](bad, 1.0)


# 8. Randomness.


def fingerprint():
    """Scalars and arrays of all three; two equal ones would be a repeated source (chance far below 1e-15)."""
    parts = []
    for name, scale in (("laplace", 1.0), ("gaussian", 1.0), ("discrete", 1e9)):
        parts.append((name, tuple(ADD[name](0 if name == "discrete" else 0.0, scale) for _ in range(3))))
        for size in (3, 1000):  # below and above 1 KB of random bytes
            parts.append((name, size, tuple(ADD[name](np.zeros(size, int), scale).tolist())))
    return parts


def assert_all_distinct(prints):
    for same_kind in zip(*prints, strict=True):
        assert len(set(same_kind)) == len(prints)


def test_every_call_is_fresh():
    assert_all_distinct([fingerprint() for _ in range(5)])


def _send_fingerprint(pipe):
    pipe.send(fingerprint())
    pipe.close()


@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods() or sys.platform == "win32", reason="no fork on this platform"
)
def test_forked_workers_share_nothing():
    fingerprint()  # whatever could be cached is cached before the fork
    context = multiprocessing.get_context("fork")
    workers = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks when there are threads
        for _ in range(4):
            here, there = context.Pipe(duplex=False)
            worker = context.Process(target=_send_fingerprint, args=(there,))
            worker.start()
            there.close()
            workers.append((worker, here))
    prints = [here.recv() for _, here in workers]
    for worker, here in workers:
        worker.join()
        here.close()
    assert_all_distinct([*prints, fingerprint()])


@pytest.mark.parametrize("name", ADD)
def test_copies_share_nothing(name):
    # What a pool pickles, or a service saves and restores, is a function: it holds no state that draws could repeat.
    release = functools.partial(noise.__dict__["add_discrete_laplace" if name == "discrete" else f"add_{name}"], 0)
    release = functools.partial(release, **{"sigma" if name == "gaussian" else "scale": 1e9})
    copies = [pickle.loads(pickle.dumps(release)) for _ in range(3)] + [copy.deepcopy(release) for _ in range(3)]
    assert len({release(), *(one() for one in copies)}) == 7


def test_a_copied_generator_repeats_its_draws_and_that_is_why_it_is_for_tests_only():
    rng = seeded(62)
    twin = pickle.loads(pickle.dumps(rng))
    assert add_laplace(0.0, scale=1e9, rng=rng) == add_laplace(0.0, scale=1e9, rng=twin)
    assert add_laplace(0.0, scale=1e9) != add_laplace(0.0, scale=1e9)
    for function in (add_laplace, add_gaussian, add_discrete_laplace):
        assert "NOT private" in function.__doc__


def test_what_is_not_promised_is_said():
    assert "no promise is made about timing" in " ".join(noise.__doc__.split())
    assert "SHAKE128" in noise.__doc__


def test_threads_share_nothing():
    start = threading.Barrier(4)

    def work():
        start.wait()
        return fingerprint()

    with ThreadPoolExecutor(4) as pool:
        assert_all_distinct([job.result() for job in [pool.submit(work) for _ in range(4)]])


def test_threads_do_not_disturb_certified_draws():
    # each thread has its own mpmath context: the precision of one is not that of another
    def work(seed):
        return add_discrete_laplace(np.zeros(200, int), scale=2.0**40, rng=seeded(seed)).tolist()

    alone = [work(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == alone


def test_mpmath_precision_of_the_caller_does_not_matter():
    plain = add_discrete_laplace(np.zeros(50, int), scale=2.0**40, rng=seeded(42)).tolist()
    with mpmath.workprec(10):
        assert add_discrete_laplace(np.zeros(50, int), scale=2.0**40, rng=seeded(42)).tolist() == plain
        assert mpmath.mp.prec == 10


def test_global_random_state_is_neither_read_nor_changed():
    def state():
        return [part.tobytes() if isinstance(part, np.ndarray) else part for part in np.random.get_state()]  # noqa: NPY002

    saved = np.random.get_state()  # noqa: NPY002
    try:
        prints = []
        for _ in range(2):
            np.random.seed(0)  # noqa: NPY002
            before = state()
            prints.append(fingerprint())
            assert state() == before
        assert_all_distinct(prints)
    finally:
        np.random.set_state(saved)  # noqa: NPY002


@pytest.mark.parametrize("name", ADD)
@pytest.mark.parametrize("x", [0, np.zeros(3, int), np.zeros(50_000, int)], ids=["scalar", "small", "large"])
def test_the_same_generator_state_gives_the_same_result(name, x):
    rng = seeded(43)
    first, second = ADD[name](x, 1e5, rng), ADD[name](x, 1e5, rng)
    assert np.array_equal(first, ADD[name](x, 1e5, seeded(43)))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("name", ADD)
@pytest.mark.parametrize("seed", [0, 1, True, np.random, np.random.RandomState(0), np.random.PCG64(0)])
@pytest.mark.parametrize("x", [0, 0.0, [1, 2]], ids=["int", "float", "list"])
def test_a_bare_seed_is_refused(name, seed, x):
    with pytest.raises(TypeError, match="rng"):
        ADD[name](x, 1.0, seed)


@pytest.mark.parametrize("name", ADD)
@pytest.mark.parametrize(
    ("x", "scale"),
    [(0, 0.0), (0, -1.0), (0, math.nan), (0, math.inf), (0, "1"), (0, None), (math.nan, 1.0), ([1, math.inf], 1.0),
     ("a", 1.0), (None, 1.0), ([[1], [1, 2]], 1.0), (np.array([1 + 2j]), 1.0)],
)  # fmt: skip
def test_a_refusal_leaves_the_generator_alone(name, x, scale):
    rng = seeded(44)
    before = rng.bit_generator.state
    with pytest.raises((TypeError, ValueError)):
        ADD[name](x, scale, rng)
    assert rng.bit_generator.state == before


@pytest.mark.parametrize("count", [32, 1024, 1025, 5000, 2**20])
def test_system_bytes_are_fresh(count):
    drawn = [noise._system_bytes(count) for _ in range(5)]
    assert {len(one) for one in drawn} == {count}
    assert len({one[:32] for one in drawn}) == len({one[-32:] for one in drawn}) == 5


def test_a_large_request_is_a_fresh_256_bit_seed_through_shake128(monkeypatch):
    asked = []
    monkeypatch.setattr(noise.os, "urandom", lambda count: asked.append(count) or bytes([len(asked)]) * count)
    for i in (1, 2):
        assert noise._system_bytes(5000) == hashlib.shake_128(bytes([i]) * 32).digest(5000)
    assert asked == [32, 32]


def test_expanded_bytes_are_uniform():
    # The only unseeded test of a distribution: it fails by chance once in a million runs.
    counts = np.bincount(np.frombuffer(noise._system_bytes(2**20), dtype=np.uint8), minlength=256)
    assert chi2_p(counts, np.full(256, 2**20 / 256)) > REJECT


# 9. Memory.


@pytest.mark.parametrize("name", ADD)
@pytest.mark.parametrize("rng", [None, 45])
def test_peak_memory(name, rng):
    x = np.zeros(10**6, dtype=np.int64 if name == "discrete" else np.float64)
    rng = rng if rng is None else seeded(rng)
    tracemalloc.start()
    try:
        ADD[name](x, 1.0, rng)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= 4 * x.nbytes


# 10. Seams between chunks and blocks.


def replay(case, n, rng):
    """The noise as integers, from the words alone, with no chunks: what `_release` must give."""
    noises = []
    for start in range(0, n, BLOCK):
        size = min(BLOCK, n - start)
        words = np.frombuffer(rng.bytes(4 * size), dtype="<i4")
        rounded, settled = case.attempt(words, 32)
        at = np.flatnonzero(~settled)
        second = np.frombuffer(rng.bytes(4 * len(at)), dtype="<u4") if len(at) else np.empty(0, np.uint32)
        full = [(int(word) << 32) | int(more) for word, more in zip(words[at], second, strict=True)]
        again, sure = case.attempt(as_words(full, 64), 64)
        for i in np.flatnonzero(~sure):
            again[i] = case.draw.certify(full[i], 64, case.x, rng.bytes)
        rounded[at] = again
        noises.append(rounded)
    return np.concatenate(noises) if noises else np.empty(0)


@pytest.mark.parametrize("n", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 1, BLOCK, BLOCK + 3])
@pytest.mark.parametrize("name", ADD)
def test_seams(name, n):
    if name == "discrete":
        x, scale, step = 7, 1e5, 1
        case = Case(LAPLACE, scale, 0, fold=True)
    else:
        x, scale = 0.3, 1.3
        case, step = Case(FAMILY[name], scale, x), grid_step(scale=scale)
    out = ADD[name](np.full(n, x), scale, seeded(46))
    assert out.shape == (n,)
    assert np.isfinite(out).all()
    units = out / step
    assert (units == np.rint(units)).all()
    assert (units == replay(case, n, seeded(46)) + round(x / step)).all()
    assert n < 2 or np.unique(out).size > 0.5 * min(n, 10**5)
    for seam in range(CHUNK, n, CHUNK):  # no words are used twice
        assert (out[seam - CHUNK : n - CHUNK] != out[seam:n]).mean() > 0.99


@pytest.mark.parametrize("name", CONTINUOUS)
def test_values_stay_with_their_noise_across_seams(name):
    # every entry has its own size, some beyond the grid: an entry given another's noise or value would be far off
    x = np.arange(BLOCK + 3) * 1e3
    x[::1000] = 1e300
    out = ADD[name](x, 1.0, seeded(47))
    assert (np.abs(out - x) < 50).all()
    assert (out[::1000] == 1e300).all()


# 11. One of many: the index, the coins and the words.


def test_the_error_of_a_weight():
    """exp((u - max) / scale) in float64 against mpmath: at most half of what is allowed for."""
    rng, worst = seeded(1), 0.0
    for scale in (1.0, 0.3, 7e5, 2.0**-700, 1e250):
        utilities = (rng.uniform(-noise.FAINT, 0, 400) + rng.choice([0.0, 3.7, 1e6])) * scale
        top = utilities.max()
        computed = np.exp((utilities - top) / scale)
        for u, w in zip(utilities.tolist(), computed.tolist(), strict=True):
            exact = MP.exp((MP.mpf(u) - MP.mpf(float(top))) / MP.mpf(scale))
            worst = max(worst, abs(float((MP.mpf(w) - exact) / exact)))
    assert 0 < worst <= noise.WEIGHT_ERROR / 2


class Digits:
    """A source of bytes that spells the binary digits of a given number in (0, 1), and counts what is read."""

    def __init__(self, number, bits=1200):
        self.digits, self.left, self.bits = int(MP.floor(number * MP.mpf(2) ** bits)), bits, bits
        self.reads = []

    def __call__(self, count):
        self.reads.append(count)
        self.left -= 8 * count
        return ((self.digits >> self.left) & ((1 << 8 * count) - 1)).to_bytes(count, "little")


LISTS = {
    "spread": ([0.0, 1.0, -3.5, 2.25, 2.25], None, 1.0),
    "equal": ([7.0] * 6, None, 0.3),
    "far": ([0.0, -50.0, -120.0, -127.999, -128.001, -400.0, -1e300], None, 1.0),
    "weighed": ([0.0, -3.0, -60.0], [1.0, 2.0**40, 2.0**52], 1.3),
    "huge": ([1e308, -1e308, 9.9e307], None, 1e305),
    "close": ([1.0, 1.0 + 2.0**-52], None, 2.0**-52),
    "faint ends": ([-400.0, 0.0, -300.0], None, 1.0),
}


def weights_of(name):
    utilities, weights, scale = LISTS[name]
    top = max(utilities)
    w = [MP.exp((MP.mpf(u) - MP.mpf(top)) / MP.mpf(scale)) for u in utilities]
    return [x * MP.mpf(b) for x, b in zip(w, weights, strict=True)] if weights else w


def pick(name, source, unlisted=0.0):
    utilities, weights, scale = LISTS[name]
    uniform = noise._Uniform(source)
    return noise._pick(np.array(utilities), None if weights is None else np.array(weights), scale, uniform, unlisted)


@pytest.mark.parametrize("distance", [2.0**-30, 2.0**-50, 2.0**-100, 2.0**-300, 2.0**-700])
@pytest.mark.parametrize("name", LISTS)
def test_an_index_changes_exactly_at_the_running_sums(name, distance):
    """Close to a boundary float64 cannot tell, and the digits that can must be read and used."""
    MP.prec = 1400
    try:
        w = weights_of(name)
        total, ends = sum(w), list(itertools.accumulate(w))
        for i, end in enumerate(ends[:-1]):
            boundary = end / total
            step = MP.mpf(distance)
            if not step < boundary < 1 - step:
                continue
            for number in (boundary - step, boundary + step):
                source = Digits(number)
                right = next(j for j, e in enumerate(ends) if number * total < e)
                assert pick(name, source) == right, (i, source.reads)
                if distance < 2.0**-80 and w[i] / total > 2.0**-20:
                    assert len(source.reads) > 1  # float64 did not pretend to know
    finally:
        MP.prec = 220


@pytest.mark.parametrize("name", LISTS)
def test_float64_and_the_slow_path_choose_the_same(name):
    utilities, weights, scale = LISTS[name]
    weights = None if weights is None else np.array(weights)
    rng = seeded(1)
    for _ in range(300):
        word = rng.bytes(200)
        fast, slow = (noise._Uniform(io.BytesIO(word).read) for _ in range(2))
        index = noise._pick(np.array(utilities), weights, scale, fast)
        assert index == noise._pick_precisely(np.array(utilities), weights, scale, slow)


def test_what_is_not_listed_leaves_the_index_open_or_changes_nothing():
    """With the ends of the list left out and their sum bounded, an answer is the answer of the whole list."""
    utilities = -np.abs(np.arange(-60.0, 61.0))
    rng, told = seeded(2), 0
    unlisted = 2 * math.exp(-31.0)
    for _ in range(400):
        word = rng.bytes(64)
        part = noise._pick(utilities[30:-30], None, 1.0, noise._Uniform(io.BytesIO(word).read), unlisted)
        if part is not None:
            told += 1
            assert part + 30 == noise._pick(utilities, None, 1.0, noise._Uniform(io.BytesIO(word).read))
        assert noise._pick(utilities[60:61], None, 1.0, noise._Uniform(io.BytesIO(word).read), 1e9) is None
    assert told > 390


def chi_square_p(observed, expected):
    keep = expected > 5
    other = (observed[~keep].sum(), expected[~keep].sum())
    o, e = np.append(observed[keep], other[0]), np.append(expected[keep], other[1])
    o, e = o[e > 0], e[e > 0]
    return float(special.gammaincc((len(e) - 1) / 2, ((o - e) ** 2 / e).sum() / 2))


def test_indices_have_their_probabilities():
    rng, utilities = seeded(3), np.array([0.0, 1.0, 1.5, 3.0, 2.5])
    found = np.bincount([noise.choose_index(utilities, scale=1.5, rng=rng) for _ in range(20_000)], minlength=5)

    def expected(scale):
        w = np.exp(utilities / scale)
        return 20_000 * w / w.sum()

    assert chi_square_p(found, expected(1.5)) > REJECT
    assert chi_square_p(found, expected(1.5 * 0.9)) < REJECT


def test_coins_have_their_probabilities():
    rng, utilities = seeded(4), np.array([0.0, -0.1, -1.0, -5.0])
    heads = sum(noise.flip_coins(utilities, scale=2.0, rng=rng) for _ in range(20_000))
    p = np.exp(utilities / 2.0)
    assert heads[0] == 20_000
    z = (heads[1:] - 20_000 * p[1:]) / np.sqrt(20_000 * p[1:] * (1 - p[1:]))
    assert np.abs(z).max() < Z_LIMIT
    wrong = np.exp(utilities[1:] / 1.8)
    assert np.abs((heads[1:] - 20_000 * wrong) / np.sqrt(20_000 * wrong * (1 - wrong))).max() > Z_LIMIT


@pytest.mark.parametrize("gap", [0.25, 3.0, 60.0, 300.0])
def test_a_coin_turns_exactly_at_its_probability(gap):
    MP.prec = 1400
    try:
        p = MP.exp(-MP.mpf(gap))
        for bits in (40, 70, 200, 600):
            for sign in (-1, 1):
                number = p * (1 + sign * MP.mpf(2) ** -bits)
                word = Digits(number)
                digits = int.from_bytes(word(8), "little")
                assert noise._flip_precisely(-gap, 0.0, 1.0, digits, word) == (sign < 0)
    finally:
        MP.prec = 220


def test_near_coins_are_settled_by_more_digits():
    class Near(np.random.Generator):
        def bytes(self, length):
            return self.source(length)

    rng = Near(np.random.PCG64(0))
    MP.prec = 1400
    try:
        for sign in (-1, 1):
            number = MP.exp(-1) * (1 + sign * MP.mpf(2) ** -90)
            digits = Digits(number)
            rng.source = lambda length, d=digits: b"\0" * 8 + d(8) if length == 16 else d(length)
            assert noise.flip_coins([0.0, -1.0], scale=1.0, rng=rng).tolist() == [True, sign < 0]
            assert len(digits.reads) > 1
    finally:
        MP.prec = 220


def test_words_are_uniform_and_fresh():
    words = noise.uniform_words(50_000, rng=seeded(5))
    assert words.dtype == np.uint64
    bits = np.unpackbits(words.view(np.uint8)).mean()
    assert abs(bits - 0.5) < Z_LIMIT * 0.5 / math.sqrt(64 * 50_000)
    assert not np.array_equal(noise.uniform_words(4), noise.uniform_words(4))


def test_whole_numbers_below_are_uniform_and_rejection_works():
    read = seeded(6).bytes
    found = np.bincount([noise._uniform_below(3, read) for _ in range(9_000)], minlength=3)
    assert chi_square_p(found, np.full(3, 3_000.0)) > REJECT
    source = io.BytesIO(b"\xff" * 8 + (7).to_bytes(8, "little"))
    assert noise._uniform_below(3, source.read) == 1  # 2**64 - 1 is a multiple of 3: the first word is rejected
    assert noise._uniform_below(1, read) == 0


@pytest.mark.parametrize("q", [0.0, 1e-5, 0.25, 0.3, 1 - 1e-6, 1.0])
def test_every_record_is_drawn_with_the_probability(q):
    n = 400_000
    drawn = noise.poisson_sample(n, sampling_prob=q, rng=seeded(7))
    assert (np.diff(drawn) > 0).all()
    assert drawn.size == 0 or (drawn[0] >= 0 and drawn[-1] < n)
    assert abs(len(drawn) - n * q) <= Z_LIMIT * math.sqrt(n * q * (1 - q)) + 3
    assert np.array_equal(drawn, noise.poisson_sample(n, sampling_prob=q, rng=seeded(7)))


@pytest.mark.parametrize("q", [2.0**-64, 2.0**-20, 0.3, 0.5, 1 - 2.0**-53])
def test_the_probability_is_the_stated_one_in_all_64_digits(q):
    """The words just below and at the limit: the first is drawn, the second is not."""

    class Word(np.random.Generator):
        word = 0

        def bytes(self, length):  # of one record: one byte, and seven when it ties, of eight that are read
            later = (self.word % 2**56 << 8).to_bytes(8, "little")
            return {0: b"", 1: bytes([self.word >> 56]), 8: later}[length]

    rng, limit = Word(np.random.PCG64(0)), int(Fraction(q) * 2**64)
    for word, expected in ((limit - 1, [0]), (limit, []), (limit + 1, []), (0, [0])):
        rng.word = word
        assert noise.poisson_sample(1, sampling_prob=q, rng=rng).tolist() == expected


def pair_statistic(sampler):
    """Return how far the rate of two given records being drawn together is from q², in standard deviations."""
    together = np.array([{0, 1} <= set(sampler()) for _ in range(20_000)]).mean()
    return (together - 0.09) / math.sqrt(0.09 * 0.91 / 20_000)


def test_records_are_drawn_independently():
    """A binomial number of records, then those drawn at random, is the same thing; a fixed number is not."""
    rng = seeded(8)
    poisson = pair_statistic(lambda: noise.poisson_sample(20, sampling_prob=0.3, rng=rng).tolist())
    binomial = pair_statistic(lambda: rng.choice(20, rng.binomial(20, 0.3), replace=False).tolist())
    fixed = pair_statistic(lambda: rng.choice(20, 6, replace=False).tolist())
    assert abs(poisson) < Z_LIMIT
    assert abs(binomial) < Z_LIMIT
    assert fixed < -Z_LIMIT


def test_samples_are_fresh_without_a_seed():
    samples = {tuple(noise.poisson_sample(200, sampling_prob=0.5).tolist()) for _ in range(5)}
    assert len(samples) == 5
    assert noise.poisson_sample(0, sampling_prob=0.5).tolist() == []
