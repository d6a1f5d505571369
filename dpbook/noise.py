"""Exact noise: the ideal mechanism, rounded to a public grid.

Adding floating-point noise to a floating-point value leaks the value: the set of doubles that can come out depends on
it (Mironov 2012; Haney et al. 2022). Here there is one path for all noise, and it is exact:

    The released value is what the ideal, real-number mechanism would have produced, rounded to a fixed grid.

Rounding is post-processing, so the guarantee of the ideal mechanism holds as it stands, in any dimension and with no
inflated sensitivity. The grid is a power of two near ``scale * 2**-20``, chosen from public parameters alone.

How a draw is made
------------------
Let ``F`` be the ideal noise in units of its scale, ``a = P(|F| > z)`` its tail, and ``s = scale / grid``.

1. A random word gives a sign and the first 31 binary digits of a real, uniform ``a``: an interval, not a point.
2. ``z(a)`` is evaluated in float64 at the middle of the interval. With half-width ``h``, every ``z`` of the interval
   lies within ``slope * h / a`` of it (`_Family.slope`, proven), plus `KERNEL_ERROR` for the evaluation itself
   (assumed of NumPy, SciPy and the platform, and measured by the tests with a margin of at least 4).
3. If that whole range rounds to one grid point, this is the answer. It is final: more digits could not change it.
4. If not (about 1 draw in 100), the same word is continued to 63 digits and tried again; and what is still undecided
   (about 1 in 10**6) goes on with as many digits as it takes, compared with the tail itself in `mpmath`.

Steps 1 to 3 are vectorised. The number of digits used depends on the noise and on the value, so the *time* of a draw
does too: no promise is made about timing.

Randomness
----------
``rng=None`` reads the operating system's secure source anew for every call, so forks, threads and pickles share
nothing. Up to 1 KB is taken from it directly; a larger request takes a fresh 256-bit seed from it and expands that
with SHAKE128 (FIPS 202, from the standard library), which is faster. The noise is then as good as SHAKE128's output is
indistinguishable from random bits: an assumption of the same kind as the one behind the system's own generator.

Drawing one of many
-------------------
`choose_index` and `flip_coins` draw from probabilities that are exponentials, to the same standard: a uniform number
is known to as many binary digits as the decision takes, float64 settles nearly all draws with proven margins, and
`mpmath` settles the rest. `uniform_words` gives the plain random words of which exact fractions of 2**64 are made, and
`poisson_sample` draws each of n records with such a fraction as its probability.

A `numpy.random.Generator` feeds the same path with reproducible bits. Such a release is NOT private: whoever knows the
seed can subtract the noise. Seeds are for teaching and tests.
"""

import bisect
import functools
import hashlib
import math
import os
import statistics
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from dpbook import _validate
from dpbook._exact import precise
from dpbook._validate import FloatArray, IntArray

Read = Callable[[int], bytes]

GRID_BITS = 20  # the grid is the power of two with 2**20 <= scale / grid < 2**21
KERNEL_ERROR = 2.0**-47  # |computed z - z(a)| <= KERNEL_ERROR * (1 + z); tests/test_noise.py measures it
CHUNK = 2**15  # entries worked on at a time: small buffers
BLOCK = 2**18  # entries whose words are read at once: few, large reads
FAR = 2.0**52  # in grid units: every float64 beyond is a whole number
SMALLEST_SCALE, LARGEST_SCALE = 2.0**-900, 2.0**900  # so that no intermediate power of two leaves float64
LARGEST = float(np.finfo(np.float64).max)
LARGEST_INTEGER_SCALE = 2.0**40  # above 2**32 ever more draws need over 63 digits, each up to a millisecond
SMALLEST_INTEGER_SCALE = 2.0**-10  # smaller scales are raised to it: P(noise is not 0) is then below 2**-1470


class _Family(NamedTuple):
    """Ideal noise with scale 1, folded: ``a = tail(z) = P(|F| > z)``."""

    magnitude: Callable[[FloatArray, FloatArray], None]  # z(a) into the second array, of either sign
    magnitude_at: Callable[[float], float]  # the same for one number
    tail: Callable[[Any, Any], Any]  # P(|F| > z) with an mpmath context
    slope: float  # |z(a ± h) - z(a)| <= slope * h / a for h <= a / 3


def _log(a: FloatArray, out: FloatArray) -> None:
    np.log(a, out=out)


def _ndtri_half(a: FloatArray, out: FloatArray) -> None:
    np.multiply(a, 0.5, out=out)
    special.ndtri(out, out=out)


_STANDARD_NORMAL = statistics.NormalDist()  # for one number faster than SciPy's function, which is made for arrays

# Laplace: |dz/da| = 1/a, and -ln(1 - x) <= 1.217 x for x <= 1/3.
# Gaussian: |dz/da| = 1 / (2 phi(z)) <= 1.2534 / a, because the hazard rate phi/Q is at least sqrt(2/pi).
_LAPLACE = _Family(_log, lambda a: -math.log(a), lambda mp, z: mp.exp(-z), 1.25)
_GAUSSIAN = _Family(
    _ndtri_half, lambda a: -_STANDARD_NORMAL.inv_cdf(0.5 * a), lambda mp, z: mp.erfc(z / mp.sqrt(2)), 1.6
)


def grid_step(*, scale: float) -> float:
    """Return the grid of releases with this noise scale: a power of two, ``scale / grid`` in [2**20, 2**21).

    It depends on the scale alone, which is public, and never on a value.

    Parameters
    ----------
    scale : float
        Scale of Laplace noise or standard deviation of Gaussian noise, from 2**-900 to 2**900.

    Raises
    ------
    TypeError, ValueError
        When the scale breaks its rule.

    References
    ----------
    The module's own construction; Mironov (2012) rounds to such a grid too.

    Examples
    --------
    >>> grid_step(scale=1.0) == 2.0**-20
    True
    """
    return math.ldexp(1.0, math.frexp(_scale_in_range(scale=scale))[1] - 1 - GRID_BITS)


def _scale_in_range(**parameter: Any) -> float:
    value = _validate.positive(**parameter)
    if not SMALLEST_SCALE <= value <= LARGEST_SCALE:
        ((name, _),) = parameter.items()
        raise ValueError(f"{name} must lie between 2**-900 and 2**900, got {value!r}")
    return value


def _system_bytes(count: int) -> bytes:
    """Return secure random bytes: the system's own, or for many a fresh 256-bit seed of its run through SHAKE128."""
    return os.urandom(count) if count <= 1024 else hashlib.shake_128(os.urandom(32)).digest(count)


class _Draw:
    """Round ``±scale * z + shift`` to integers. With `fold` the sign is applied after the rounding (integer noise)."""

    def __init__(self, family: _Family, scale: float, exact: Callable[[Any, Any], Any], *, fold: bool = False) -> None:
        self.family, self.scale, self.exact, self.fold = family, scale, exact, fold
        self.magnitude_at = family.magnitude_at
        # By the number of digits used so far: how far the interval reaches (times 1/a), and how far from a grid point
        # is still safe. z <= ln(2**bits) for both families, so one number bounds the error of evaluation.
        self.reach = {bits: scale * family.slope * 2.0**-bits for bits in (32, 64)}
        self.limit = {
            bits: 0.5 - scale * KERNEL_ERROR * (1 + bits * math.log(2.0)) - 2.0**-40 for bits in (32, 64)
        }  # fmt: skip

    def attempt(
        self, words: npt.NDArray[Any], shift: FloatArray | float, bits: int, work: FloatArray
    ) -> tuple[FloatArray, IntArray]:
        """Return the rounded noise, a view of `work`, and the positions at which these digits do not settle it."""
        signed, a, y, rounded = work[:, : len(words)]
        np.copyto(signed, words)
        signed += 0.5
        signed *= 2.0 ** (1 - bits)
        np.abs(signed, out=a)
        self.family.magnitude(a, y)
        if self.fold:
            np.abs(y, out=y)
        else:
            np.copysign(y, signed, out=y)
        y *= self.scale
        y += shift
        np.rint(y, out=rounded)
        y -= rounded
        np.abs(y, out=y)
        np.divide(self.reach[bits], a, out=a)
        y += a
        unsettled = y >= self.limit[bits]
        if self.scale < 2.0:  # the bound on the interval needs h <= a / 3; a larger scale fails the test above anyway
            unsettled |= np.abs(signed) <= 2.0 ** (1 - bits)
        if self.fold:
            np.copysign(rounded, signed, out=rounded)
        return rounded, np.flatnonzero(unsettled)

    def one(self, x: Any, shift: float, read: Read) -> int:
        """Return one integer: the decisions of `attempt`, without arrays."""
        word, unit, bits = int.from_bytes(read(4), "little", signed=True), 2.0**-31, 32
        while True:
            a = abs(word + 0.5) * unit
            y = self.scale * self.magnitude_at(a)
            y = shift - y if word < 0 and not self.fold else shift + y
            rounded = round(y)
            if abs(y - rounded) + self.reach[bits] / a < self.limit[bits] and a > unit:
                return -rounded if word < 0 and self.fold else rounded
            if bits == 64:
                return self.certify(word, bits, x, read)
            word, unit, bits = (word << 32) | int.from_bytes(read(4), "little"), 2.0**-63, 64

    def certify(self, word: int, bits: int, x: Any, read: Read) -> int:
        """Return the one integer that a signed word and as many further digits as it takes determine."""
        mp = precise()
        while True:
            negative, digits = word < 0, ~word if word < 0 else word
            mp.prec = bits + 64
            slack = mp.ldexp(1, -(bits + 40))  # far above the rounding errors of a few operations at this precision
            low, high = mp.ldexp(digits, 1 - bits), mp.ldexp(digits + 1, 1 - bits)
            mirrored = negative and not self.fold
            shift = -self.exact(mp, x) if mirrored else self.exact(mp, x)
            middle = float((low + high) / 2)  # only a guess: the comparison below decides
            guess = int(mp.nint(self.scale * mp.mpf(self.magnitude_at(middle)) + shift))
            for candidate in (guess, guess - 1, guess + 1):
                near = (candidate - mp.mpf("0.5") - shift) / self.scale
                far = (candidate + mp.mpf("0.5") - shift) / self.scale
                above = self.family.tail(mp, near) * (1 - slack) if near > 0 else 1
                if far > 0 and high <= above and low >= self.family.tail(mp, far) * (1 + slack):
                    return -candidate if negative else candidate
            word = (word << 64) | int.from_bytes(read(8), "little")
            bits += 64


def _release(
    flat: npt.NDArray[Any],
    result: npt.NDArray[Any],
    draw: _Draw,
    split: Callable[[Any], tuple[Any, Any]],
    join: Callable[[Any, Any, FloatArray, Any], None],
    read: Read,
) -> None:
    """Fill `result` with one noisy entry for each entry of `flat`.

    ``split(x)`` gives the shift of the noise and what `join` needs; ``join(x, kept, noise, out)`` makes the release.
    """
    work = np.empty((4, min(len(flat), CHUNK)))
    for start in range(0, len(flat), BLOCK):
        block, out = flat[start : start + BLOCK], result[start : start + BLOCK]
        first = np.frombuffer(read(4 * len(block)), dtype="<u4")
        unsettled = []
        for at in range(0, len(block), CHUNK):
            x = block[at : at + CHUNK]
            shift, kept = split(x)
            noise, positions = draw.attempt(first[at : at + CHUNK].view(np.int32), shift, 32, work)
            join(x, kept, noise, out[at : at + CHUNK])
            unsettled.append(positions + at)
        positions = np.concatenate(unsettled)
        if not len(positions):
            continue
        second = np.frombuffer(read(4 * len(positions)), dtype="<u4")
        words = (first[positions].view(np.int32).astype(np.int64) << np.int64(32)) | second
        x = block[positions]
        shift, kept = split(x)
        noise, still = draw.attempt(words, shift, 64, np.empty((4, len(x))))
        for i in still:
            noise[i] = draw.certify(int(words[i]), 64, x[i], read)
        part = np.empty_like(result, shape=x.shape)
        join(x, kept, noise, part)
        out[positions] = part


@functools.lru_cache(maxsize=256)
def _plan(family: _Family, scale: float) -> tuple[_Draw, float, float]:
    """Return the draw, the grid and its inverse: what depends on the public scale alone."""
    exponent = math.frexp(scale)[1] - 1 - GRID_BITS
    to_grid = math.ldexp(1.0, -exponent)

    def exact(mp: Any, x: float) -> Any:  # the part of x that is off the grid
        t = float(x) * to_grid
        return mp.mpf(float(x)) * to_grid - round(t) if abs(t) < FAR else mp.mpf(0)

    return _Draw(family, scale * to_grid, exact), math.ldexp(1.0, exponent), to_grid


def _add_continuous(true_value: Any, family: _Family, scale: float, rng: np.random.Generator | None) -> Any:
    if rng is not None:
        _validate.generator(rng)
    draw, grid, to_grid = _plan(family, scale)
    if type(true_value) is float and abs(true_value) < FAR * grid:
        t = true_value * to_grid
        k = round(t)
        return (k + draw.one(true_value, t - k, os.urandom if rng is None else rng.bytes)) * grid
    read = _system_bytes if rng is None else rng.bytes

    def split(x: FloatArray) -> tuple[FloatArray, Any]:
        with np.errstate(over="ignore", under="ignore"):
            t = x * to_grid
        k = np.rint(t)
        far = None
        if max(-float(np.min(t)), float(np.max(t))) >= FAR:
            far = np.abs(t) >= FAR  # such a value is on the grid itself, and its product may be infinite
            t[far] = k[far] = 0.0
        t -= k
        return t, (k, far)

    def join(x: FloatArray, kept: Any, noise: FloatArray, out: FloatArray) -> None:
        k, far = kept
        noise += k
        np.multiply(noise, grid, out=out)
        if far is not None:  # the exact integer is rounded once to float64: post-processing
            with np.errstate(over="ignore"):
                out[far] += x[far]
            np.clip(out, -LARGEST, LARGEST, out=out)
        out += 0.0  # the sign of a zero would tell the sign of the value

    values = _validate.finite_values(true_value=true_value)
    result = np.empty(values.shape)
    _release(values.reshape(-1), result.reshape(-1), draw, split, join, read)
    return _validate.as_given(true_value, result)


def add_laplace(true_value: Any, *, scale: float, rng: np.random.Generator | None = None) -> Any:
    """Return each value plus independent ideal Laplace noise, rounded to ``grid_step(scale=scale)``.

    With ``scale = l1_sensitivity / epsilon`` this is the Laplace mechanism, epsilon-DP under the neighbour relation
    that the sensitivity was computed for; `dpbook.laplace.laplace_mechanism` does that division on the safe side.

    Parameters
    ----------
    true_value : float or array_like
        Finite values of any shape; integers are clamped to ±2**53. Left untouched.
    scale : float
        Scale b of the noise, with density ``exp(-|z|/b) / (2b)``, in the unit of the value; from 2**-900 to 2**900.
    rng : numpy.random.Generator, optional
        None reads the operating system's entropy. A seeded release is reproducible and therefore NOT private.

    Returns
    -------
    float or numpy.ndarray
        Same shape as `true_value`; a Python float for a scalar.

    Raises
    ------
    TypeError, ValueError
        For a scale or rng that breaks these rules, or a value that is not finite.

    References
    ----------
    Dwork, McSherry, Nissim, Smith (2006), for the mechanism; Mironov (2012), for why the rounding has to be certified.

    Examples
    --------
    >>> import numpy as np
    >>> noisy = add_laplace(np.zeros(3), scale=2.0, rng=np.random.default_rng(0))  # seeded: not private
    >>> noisy.shape
    (3,)
    >>> bool(np.all(noisy / grid_step(scale=2.0) == np.rint(noisy / grid_step(scale=2.0))))
    True
    """
    if not (type(scale) is float and SMALLEST_SCALE <= scale <= LARGEST_SCALE):
        scale = _scale_in_range(scale=scale)
    return _add_continuous(true_value, _LAPLACE, scale, rng)


def add_gaussian(true_value: Any, *, sigma: float, rng: np.random.Generator | None = None) -> Any:
    """Return each value plus independent ideal Gaussian noise, rounded to ``grid_step(scale=sigma)``.

    With sigma from `dpbook.gaussian.gaussian_sigma` this is the Gaussian mechanism, (epsilon, delta)-DP under the
    neighbour relation that the L2 sensitivity was computed for.

    Parameters
    ----------
    true_value : float or array_like
        Finite values of any shape; integers are clamped to ±2**53. Left untouched.
    sigma : float
        Standard deviation of the noise, in the unit of the value; from 2**-900 to 2**900.
    rng : numpy.random.Generator, optional
        None reads the operating system's entropy. A seeded release is reproducible and therefore NOT private.

    Returns
    -------
    float or numpy.ndarray
        Same shape as `true_value`; a Python float for a scalar.

    Raises
    ------
    TypeError, ValueError
        For a sigma or rng that breaks these rules, or a value that is not finite.

    References
    ----------
    Balle and Wang (2018), for the mechanism; Jin et al. (2022), for the attacks that certified rounding closes.

    Examples
    --------
    >>> import numpy as np
    >>> add_gaussian([1.0, 2.0], sigma=0.5, rng=np.random.default_rng(0)).shape  # seeded: not private
    (2,)
    """
    if not (type(sigma) is float and SMALLEST_SCALE <= sigma <= LARGEST_SCALE):
        sigma = _scale_in_range(sigma=sigma)
    return _add_continuous(true_value, _GAUSSIAN, sigma, rng)


@functools.lru_cache(maxsize=256)
def _integer_plan(b: float) -> tuple[_Draw, float]:
    """Return the draw of a discrete Laplace variable and its shift.

    P(Z >= k) = q**k / (1 + q) with q = exp(-1/b). The sign takes one digit, the rest is a uniform a in (0, 1), with
    ``|Z| = floor(-b * ln(a) + c)`` and ``c = -b * ln((1 + q) / 2)``. The floor is a rounding of the same minus 1/2.
    """

    b = max(b, SMALLEST_INTEGER_SCALE)

    def exact(mp: Any, _: Any) -> Any:
        return -b * mp.log((1 + mp.exp(-1 / mp.mpf(b))) / 2) - mp.mpf("0.5")

    return _Draw(_LAPLACE, b, exact, fold=True), -b * math.log1p(math.expm1(-1.0 / b) / 2) - 0.5


def add_discrete_laplace(true_value: Any, *, scale: float, rng: np.random.Generator | None = None) -> Any:
    """Return each integer plus independent discrete Laplace noise, ``P(Z = z)`` proportional to ``exp(-|z| / scale)``.

    The distribution is exact, not a rounded Laplace. With ``scale = l1_sensitivity / epsilon`` and an integer-valued
    query this is epsilon-DP under the neighbour relation that the sensitivity was computed for.

    Parameters
    ----------
    true_value : int or array_like of int
        Integers of any shape. Left untouched.
    scale : float
        Scale b, above 0 and at most 2**40. Below about 0.03 the noise is nearly always 0; a scale below 2**-10 is
        raised to that, which changes nothing that could be seen.
    rng : numpy.random.Generator, optional
        None reads the operating system's entropy. A seeded release is reproducible and therefore NOT private.

    Returns
    -------
    int or numpy.ndarray of int64
        A Python int, which cannot overflow, for a scalar; an array saturates at the ends of int64.

    Raises
    ------
    TypeError, ValueError
        For a scale or rng that breaks these rules, or a value that is not an integer.

    References
    ----------
    Ghosh, Roughgarden, Sundararajan (2009): the (two-sided) geometric mechanism.

    Examples
    --------
    >>> import numpy as np
    >>> type(add_discrete_laplace(41, scale=2.0, rng=np.random.default_rng(0)))  # seeded: not private
    <class 'int'>
    """
    b = scale if type(scale) is float and scale > 0.0 else _validate.positive(scale=scale)
    if b > LARGEST_INTEGER_SCALE:
        raise ValueError(f"scale must be at most 2**40, got {b!r}")
    if rng is not None:
        _validate.generator(rng)
    draw, shift = _integer_plan(b)
    if _validate.is_integer(true_value):
        return int(true_value) + draw.one(0, shift, os.urandom if rng is None else rng.bytes)
    read = _system_bytes if rng is None else rng.bytes
    ends = np.iinfo(np.int64)

    def join(x: IntArray, _: None, noise: FloatArray, out: IntArray) -> None:
        whole = noise.astype(np.int64)
        np.clip(whole, ends.min - np.minimum(x, 0), ends.max - np.maximum(x, 0), out=whole)
        np.add(x, whole, out=out)

    values = _validate.integer_values(true_value=true_value)
    result = np.empty(values.shape, dtype=np.int64)
    _release(values.reshape(-1), result.reshape(-1), draw, lambda _: (shift, None), join, read)
    return result


# --- one of many -----------------------------------------------------------------------------------------------------

FAINT = 128.0  # a weight below exp(-FAINT) of the largest counts as a bound only, in float64
# |computed weight - weight| <= WEIGHT_ERROR * weight for exponents down to -FAINT: the difference, the quotient and the
# base weight are each off by 2**-53 or less, so the exponent by 2 * 2**-53 * FAINT, and exp by a few units in the last
# place (KERNEL_ERROR allows 32, as for the noise). The sums are `math.fsum`'s, correctly rounded.
WEIGHT_ERROR = 2 * FAINT * 2.0**-52 + KERNEL_ERROR


class _Uniform:
    """One uniform number in (0, 1), known to 48 binary digits at first, and to 64 more with every `extend`."""

    def __init__(self, read: Read) -> None:
        self.read, self.digits, self.bits = read, int.from_bytes(read(6), "little"), 48

    def extend(self) -> None:
        self.digits = (self.digits << 64) | int.from_bytes(self.read(8), "little")
        self.bits += 64


def _reader(rng: np.random.Generator | None) -> Read:
    _validate.generator(rng)
    return _system_bytes if rng is None else rng.bytes


def _pick(
    utilities: FloatArray, weights: FloatArray | None, scale: float, uniform: _Uniform, unlisted: float = 0.0
) -> int | None:
    """Return the index at which the running sum of ``weights * exp((utilities - max) / scale)`` passes the uniform.

    `unlisted` bounds the sum of what is missing from the list, before its start and after its end each. Where it leaves
    the index open the result is None, and the caller asks again with the whole list and the same uniform.
    """
    if uniform.bits == 48:
        with np.errstate(over="ignore", under="ignore"):
            x = (utilities - utilities.max()) / scale
            kept = np.flatnonzero(x >= -FAINT)
            w = np.exp(x[kept])
            if weights is not None:
                w *= weights[kept]
        rest = unlisted
        if len(kept) < len(x):
            rest += (len(x) if weights is None else math.fsum(weights)) * math.exp(-FAINT) * 1.01
        low, high = math.ldexp(uniform.digits, -48), math.ldexp(uniform.digits + 1, -48)
        sums = np.cumsum(w)
        i = min(int(np.searchsorted(sums, (low + high) / 2 * sums[-1])), len(w) - 1)  # a guess: what follows decides
        listed = w.tolist()
        before, own, after = math.fsum(listed[:i]), listed[i], math.fsum(listed[i + 1 :])
        more, less = 1 + WEIGHT_ERROR + 2.0**-48, 1 - WEIGHT_ERROR - 2.0**-48  # 2**-48: the operations below
        starts_before = (before * more + rest) * (1 - low) <= low * (own + after) * less
        ends_behind = (after * more + rest) * high <= (1 - high) * (before + own) * less
        if starts_before and ends_behind:
            return int(kept[i])
    return None if unlisted else _pick_precisely(utilities, weights, scale, uniform)


def _pick_precisely(utilities: FloatArray, weights: FloatArray | None, scale: float, uniform: _Uniform) -> int:
    mp, top, last = precise(), float(utilities.max()), len(utilities) - 1
    while True:
        uniform.extend()
        bits = uniform.bits
        mp.prec = bits + 128 + len(utilities).bit_length()
        faint, total, rest = mp.mpf(bits + 128), mp.mpf(0), mp.mpf(0)
        sums = []
        for i, utility in enumerate(utilities.tolist()):
            x = (mp.mpf(utility) - top) / scale
            weight = mp.mpf(1 if weights is None else float(weights[i]))
            if x < -faint:
                rest += weight * mp.exp(-faint)
            else:
                total += weight * mp.exp(x)
            sums.append(total)
        slack = 2 * (total * mp.ldexp(1, -(bits + 60)) + rest)  # of a partial sum and of the total, together
        low, high = mp.ldexp(uniform.digits, -bits), mp.ldexp(uniform.digits + 1, -bits)
        i = min(bisect.bisect_left(sums, (low + high) / 2 * total), last)
        starts_before = i == 0 or sums[i - 1] + slack <= low * total
        ends_behind = i == last or sums[i] - slack >= high * total
        if starts_before and ends_behind:
            return i


def _weighed(utilities: Any, scale: Any) -> tuple[FloatArray, float]:
    size = _scale_in_range(scale=scale)
    return _validate.utilities(utilities=utilities), size


def choose_index(utilities: Any, *, scale: float, rng: np.random.Generator | None = None) -> int:
    """Return index i with probability proportional to ``exp(utilities[i] / scale)``, exactly.

    The utilities count as the real numbers that the floats are. With ``scale = 2 * sensitivity / epsilon`` this is the
    exponential mechanism, epsilon-DP under the relation that the sensitivity was computed for.

    Parameters
    ----------
    utilities : array_like
        One-dimensional, finite, one for each candidate. Left untouched.
    scale : float
        From 2**-900 to 2**900, in the unit of the utilities.
    rng : numpy.random.Generator, optional
        None reads the operating system's entropy. A seeded choice is reproducible and therefore NOT private.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, or the utilities are no list of finite numbers.

    References
    ----------
    McSherry, Talwar (2007), Mechanism design via differential privacy, for the distribution.

    Examples
    --------
    >>> import numpy as np
    >>> choose_index([0.0, 5000.0, 1.0], scale=2.0, rng=np.random.default_rng(0))  # seeded: not private
    1
    """
    _validate.generator(rng)
    values, size = _weighed(utilities, scale)
    index = _pick(values, None, size, _Uniform(_reader(rng)))
    assert index is not None  # only a rest leaves it open
    return index


def flip_coins(utilities: Any, *, scale: float, rng: np.random.Generator | None = None) -> npt.NDArray[np.bool_]:
    """Return one independent coin for each utility, True with probability ``exp((utility - max) / scale)``, exactly.

    It is a part of the permute-and-flip mechanism, and private only inside it.

    Parameters
    ----------
    utilities : array_like
        One-dimensional, finite, one for each candidate. Left untouched.
    scale : float
        From 2**-900 to 2**900, in the unit of the utilities.
    rng : numpy.random.Generator, optional
        None reads the operating system's entropy. Seeded coins are reproducible and therefore NOT private.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, or the utilities are no list of finite numbers.

    References
    ----------
    McKenna, Sheldon (2020), Permute-and-flip, Alg. 1.

    Examples
    --------
    >>> import numpy as np
    >>> flip_coins([0.0, 5000.0], scale=2.0, rng=np.random.default_rng(0)).tolist()  # seeded: not private
    [False, True]
    """
    _validate.generator(rng)
    values, size = _weighed(utilities, scale)
    read, top = _reader(rng), float(values.max())
    words = np.frombuffer(read(8 * len(values)), dtype="<u8")
    with np.errstate(over="ignore", under="ignore"):
        p = np.exp((values - top) / size)
    u = words * 2.0**-64
    coins = np.asarray(u < p)
    for i in np.flatnonzero((np.abs(u - p) <= p * WEIGHT_ERROR + 2.0**-50) & (values < top)):
        coins[i] = _flip_precisely(float(values[i]), top, size, int(words[i]), read)
    coins[values == top] = True
    return coins


def _flip_precisely(utility: float, top: float, scale: float, digits: int, read: Read) -> bool:
    mp, bits = precise(), 64
    while True:
        mp.prec = bits + 128
        x = max((mp.mpf(utility) - top) / scale, mp.mpf(-2 * bits))  # below, the answer is the same at these digits
        p = mp.exp(x)
        if mp.ldexp(digits + 1, -bits) <= p * (1 - mp.ldexp(1, -bits - 60)):
            return True
        if mp.ldexp(digits, -bits) >= p * (1 + mp.ldexp(1, -bits - 60)):
            return False
        digits = (digits << 64) | int.from_bytes(read(8), "little")
        bits += 64


def uniform_words(count: int, *, rng: np.random.Generator | None = None) -> npt.NDArray[np.uint64]:
    """Return independent, uniform 64-bit words: ``word < t`` has probability ``t / 2**64``, exactly.

    Parameters
    ----------
    count : int
        How many, from 0.
    rng : numpy.random.Generator, optional
        None reads the operating system's entropy. Seeded words are reproducible and therefore NOT private.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    The paragraph on randomness at the head of this module.

    Examples
    --------
    >>> uniform_words(3).shape
    (3,)
    """
    number = _validate.integer(0, count=count)
    return np.frombuffer(_reader(rng)(8 * number), dtype="<u8").astype(np.uint64)


def poisson_sample(n: int, *, sampling_prob: float, rng: np.random.Generator | None = None) -> IntArray:
    """Return the places of a Poisson sample of n records: each is drawn on its own, with the same probability.

    Exactly so: the probability is `sampling_prob`, rounded down to a multiple of 2**-64. The size of the sample is
    random, and may be 0; it is private under add/remove, as n is.

    Parameters
    ----------
    n : int
        Number of records, from 0.
    sampling_prob : float
        Probability q in [0, 1].
    rng : numpy.random.Generator, optional
        None reads the operating system's entropy. A seeded sample is reproducible and therefore NOT private.

    Returns
    -------
    numpy.ndarray of int64
        The places, from 0 to ``n - 1``, in order.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    Abadi et al. (2016), Deep learning with differential privacy, Alg. 1.

    Examples
    --------
    >>> poisson_sample(3, sampling_prob=1.0)
    array([0, 1, 2])
    """
    number, q = _validate.integer(0, n=n), _validate.closed_unit(sampling_prob=sampling_prob)
    read = _reader(rng)
    limit = int(Fraction(q) * 2**64)
    if limit == 2**64:
        return np.arange(number)
    first, rest = divmod(limit, 2**56)
    digits = np.frombuffer(read(number), dtype=np.uint8)  # 8 binary digits settle all but one record in 256
    chosen = digits < first
    ties = np.flatnonzero(digits == first)
    chosen[ties] = np.frombuffer(read(8 * len(ties)), dtype="<u8") >> np.uint64(8) < rest
    return np.flatnonzero(chosen)


def _uniform_below(count: int, read: Read) -> int:
    """Return a whole number from 0 to ``count - 1``, each with the same probability; `count` is at most 2**63."""
    limit = 2**64 // count * count
    while (word := int.from_bytes(read(8), "little")) >= limit:
        pass
    return word % count
