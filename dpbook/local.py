"""Local differential privacy: each person's own device changes the answer at random, and nobody needs to be trusted."""

from typing import Any

import numpy as np
from scipy import special

from dpbook import _validate, noise
from dpbook._exact import precise
from dpbook._validate import REPLACE_ONE, FloatArray
from dpbook.release import Release

WORD = 2**64


def _response_words(epsilon: float, k: int) -> tuple[int, int]:
    """Return t and u with ``t + (k - 1) u = 2**64`` and ``t <= exp(ε) u``: of 2**64 words, t tell the truth."""
    mp = precise()
    mp.prec = 256
    bound = mp.mpf(WORD) / (mp.exp(min(epsilon, 100.0)) + k - 1)
    other = min(int(mp.ceil(bound * (1 + mp.mpf(2) ** -200))), WORD // k)
    # With u = WORD // k the truth gets what is left over as well, which may be more than exp(ε) allows.
    if WORD - (k - 1) * other > mp.exp(min(epsilon, 100.0)) * (1 - mp.mpf(2) ** -200) * other:
        raise ValueError(f"epsilon must be larger for {k} categories, got {epsilon!r}")
    return WORD - (k - 1) * other, other


def response_probabilities(*, epsilon: float, categories: int) -> tuple[float, float]:
    """Return the probabilities of the true answer and of each other one in `randomized_response`.

    They are whole numbers of 2**-64 with a ratio of at most exp(ε), the best such:
    ``exp(ε) / (exp(ε) + k - 1)`` and ``1 / (exp(ε) + k - 1)`` but for the rounding. Beyond ε = 44 they stay as they are
    there.

    Parameters
    ----------
    epsilon : float
        Privacy parameter ε > 0 of one answer.
    categories : int
        How many answers there are, k ≥ 2.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule; or ε is below about ``k**2 / 2**64``, where no multiples of
        2**-64 are so nearly equal.

    References
    ----------
    Warner (1965); Kairouz, Bonawitz, Ramage (2016), Sec. 3.

    Examples
    --------
    >>> tuple(round(p, 6) for p in response_probabilities(epsilon=0.5, categories=2))
    (0.622459, 0.377541)
    """
    eps, k = _validate.positive(epsilon=epsilon), _validate.integer(2, categories=categories)
    if k > 2**32:
        raise ValueError(f"categories must be at most 2**32, got {categories!r}")
    true, other = _response_words(eps, k)
    return true / WORD, other / WORD


def randomized_response(
    values: Any, *, categories: Any, epsilon: float, rng: np.random.Generator | None = None
) -> list[Any]:
    """Return each record, or another category instead, drawn so that one answer is ε-DP for its person (local DP).

    Nobody has to be trusted with the true answers: each person's device can do this before it sends. Whatever the two
    true answers that are compared, the probability of an answer differs by at most the factor exp(ε), exactly.
    `response_shares` estimates the shares.

    Parameters
    ----------
    values : array_like
        One-dimensional, one true answer a person. One that is none of the categories counts as the first of them, so
        that everybody answers. Left untouched.
    categories : list or tuple
        The public, distinct answers, at least two.
    epsilon : float
        Privacy parameter ε > 0 of each answer. A person who answers m questions, or the same one anew, has spent m ε.
    rng : numpy.random.Generator, optional
        None (the default) draws from the operating system's entropy. Seeded answers are NOT private.

    Returns
    -------
    list
        One of the categories for each record.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, before data is touched; or the values are no one-dimensional column.

    Notes
    -----
    One 64-bit word decides an answer: below t it is the truth, and above it the word's quotient by u names the other
    answer, with ``t + (k - 1) u = 2**64``. So the probabilities are exactly those of `response_probabilities`.

    References
    ----------
    Warner (1965), Randomized response; Kairouz, Oh, Viswanath (2016), Extremal mechanisms for local differential
    privacy, for k answers.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)  # seeded: not private
    >>> randomized_response(["yes", "no", "no"], categories=["yes", "no"], epsilon=1.0, rng=rng)
    ['yes', 'no', 'no']
    """
    eps = _validate.positive(epsilon=epsilon)
    table = _validate.categories(2, categories=categories)
    _validate.generator(rng)
    true, other = _response_words(eps, len(table))
    own = np.maximum(_validate.codes(table, values=values), 0)
    words = noise.uniform_words(len(own), rng=rng)
    with np.errstate(over="ignore"):  # where the word is below t, what follows is not used
        skip = ((words - np.uint64(true)) // np.uint64(other)).astype(np.int64) + 1
    answer = np.where(words < np.uint64(true), own, (own + skip) % len(table))
    keys = list(table)
    return [keys[i] for i in answer.tolist()]


def response_shares(answers: Any, *, categories: Any, epsilon: float, alpha: float = 0.05) -> Release:
    """Return the share of each category from answers of `randomized_response`: post-processing, unbiased.

    Every answer was ε-DP for its person before it was collected: replacing what one person would truly say changes the
    probability of their answer by at most a factor exp(ε).

    Parameters
    ----------
    answers : array_like
        The randomised answers, one a person. Answers that are none of the categories are left out.
    categories : list or tuple
        The categories that the answers were drawn with, in the same order.
    epsilon : float
        The ε that the answers were drawn with.
    alpha : float, optional
        Significance level of the interval of each share.

    Returns
    -------
    Release
        Unbiased shares of the *true* answers among these people, so they can be below 0 or above 1; they add up to 1.
        The interval is within [0, 1] and speaks of the randomisation alone.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, or the answers are no one-dimensional column.

    Notes
    -----
    The number of answers of a kind is a sum of independent coins with two probabilities. By Hoeffding's theorem its
    tails are no heavier than the binomial's with the same mean, so the Clopper-Pearson interval of that mean holds.

    References
    ----------
    Warner (1965); Kairouz, Bonawitz, Ramage (2016), Discrete distribution estimation under local privacy, Sec. 3;
    Hoeffding (1956), On the distribution of the number of successes in independent trials, Thm. 4.

    Examples
    --------
    >>> response_shares(["yes"] * 40 + ["no"] * 60, categories=["yes", "no"], epsilon=1.0).value.round(3)
    array([0.284, 0.716])
    """
    eps, level = _validate.positive(epsilon=epsilon), _validate.open_unit(alpha=alpha)
    table = _validate.categories(2, categories=categories)
    truth, other = response_probabilities(epsilon=eps, categories=len(table))
    if not truth - other > 0.0:
        raise ValueError(f"epsilon must be large enough for an answer to tell anything, got {epsilon!r}")
    places = _validate.codes(table, answers=answers)
    counts = np.bincount((places + 1).astype(np.intp), minlength=len(table) + 1)[1:].astype(np.float64)
    n = max(float(counts.sum()), 1.0)
    if not counts.sum():
        value: FloatArray = np.full(len(table), 1 / len(table))
        low: FloatArray = np.zeros(len(table))
        high: FloatArray = np.ones(len(table))
    else:
        value = (counts / n - other) / (truth - other)
        least = np.where(counts > 0, special.betaincinv(np.maximum(counts, 1), n - counts + 1, level / 2), 0.0)
        most = np.where(counts < n, special.betaincinv(counts + 1, np.maximum(n - counts, 1), 1 - level / 2), 1.0)
        low, high = (np.clip((end - other) / (truth - other), 0.0, 1.0) for end in (least, most))
    return Release(
        "shares", value, (low, high), level, 1.0, eps, 0.0, REPLACE_ONE, "randomized_response", keys=tuple(table)
    )
