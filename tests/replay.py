"""Queries replayed on neighbours: what the tests of queries, histograms and quantiles share.

The noise is taken away, and what it was about to be added to is kept: the exact value and the scale. The change between
neighbours divided by the scale is the privacy loss, which is compared with ε in exact arithmetic.
"""

import itertools
import math
import re
import warnings
from fractions import Fraction

import numpy as np
import pytest
from scipy import special

from dpbook import noise
from dpbook.gaussian import gaussian_sigma

AR, RO = "add_remove", "replace_one"
REJECT = 1e-6
EPS, DELTA = 0.7, 1e-5
B = (-3.0, 10.0)
RECORDS = [-3.0, 10.0, 0.0, 3.5, 1e300, -1e300, math.nan, math.inf, -math.inf, None, "text", 2.0**53, 0.1, 5e-324]
EDGES = [-3, 0, 3.5, 10]
KEYS = [0.0, 10.0, 3.5, "text", None]
IDS = ["ann"] * 5 + ["bo", "cy", "ann"]
TWO = {"person": IDS, "max_contributions": 2}  # keeps the rows 0, 1, 5 and 6


def seeded(seed=0):
    return np.random.default_rng(seed)  # seeded: not private


class Silence:
    """Noise that is not added, and a record of what it would have been added to, with which scale."""

    def __init__(self, monkeypatch, offset=0.0):
        self.seen = []
        for name, argument in (("add_laplace", "scale"), ("add_gaussian", "sigma"), ("add_discrete_laplace", "scale")):
            monkeypatch.setattr(noise, name, self.keep(name, argument, offset))

    def keep(self, name, argument, offset):
        def add(value, *, rng, **scale):
            self.seen.append((name, np.atleast_1d(np.array(value)), scale[argument]))
            return value + (int(offset) if name == "add_discrete_laplace" else offset)

        return add

    def take(self):
        seen, self.seen = self.seen, []
        return seen


def neighbours(relation, rng, least=0):
    """Pairs of datasets: adversarial ones at the ends of the bounds, and random ones."""
    bases = [[], [10.0] * 4, [-3.0] * 4, [3.5, None, 10.0], RECORDS, [math.nan] * 3, [0.1] * 40]
    bases += [[RECORDS[i] for i in rng.integers(0, len(RECORDS), n)] for n in (1, 2, 6, 30)]
    for base, record in itertools.product(bases, RECORDS):
        if len(base) < least:
            continue
        if relation == AR:
            yield base, [*base, record]
            yield base, [record, *base]
        elif base:
            at = int(rng.integers(0, len(base)))
            yield base, [*base[:at], record, *base[at + 1 :]]


def loss(first, second, epsilon, delta):
    """The privacy loss of one release, as a share of what was paid: at most 1."""
    (kind, a, scale), (kind_b, b, scale_b) = first, second
    assert (kind, scale, a.shape, a.dtype) == (kind_b, scale_b, b.shape, b.dtype)  # nothing but the value may differ
    change = [abs(Fraction(x) - Fraction(y)) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    if kind != "add_gaussian":
        return sum(change) / Fraction(scale) / Fraction(epsilon)
    size = math.sqrt(float(sum(c**2 for c in change)))
    return gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=size) / scale if size else 0.0


def worst_loss(query, relation, silence, delta=None, least=0):
    """Return the largest share of ε that a pair of neighbours uses up."""
    worst = 0.0
    for d, e in neighbours(relation, seeded(1), least):
        sides = []
        for data in (d, e):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                query(data, epsilon=EPS, neighbors=relation, **({"delta": delta} if delta else {}))
            (one,) = silence.take() or [("add_laplace", np.zeros(1), 1.0)]  # one person alone: variance 0, no noise
            sides.append(one)
        worst = max(worst, loss(*sides, EPS, DELTA))
    return worst


def worst_loss_with_rows(query, relation, silence, delta=None):
    """Return the same when a person's rows are added, removed or replaced; rows of others lie between them."""
    others = [(3.5, "ann"), (10.0, "bo"), (0.1, "ann"), (math.nan, "cy"), (1.0, None), (2.0, "ann")]
    own = [t for k in range(4) for t in itertools.product([-3.0, 10.0, math.nan, 0.0], repeat=k)]

    def seen(rows):
        rows = [*rows[:1], *others[:3], *rows[1:], *others[3:]]
        values, people = [x for x, _ in rows], [i for _, i in rows]
        query(values, person=people, max_contributions=2, epsilon=EPS, neighbors=relation, delta=delta)
        return silence.take()[0]

    plain = seen([])
    all_seen = [seen([(x, "zoe") for x in values]) for values in own]
    pairs = [(plain, one) for one in all_seen]
    if relation == RO:
        pairs += itertools.combinations(all_seen[::3], 2)
    return max(loss(a, b, EPS, DELTA) for a, b in pairs)


class Recording(np.random.Generator):
    """Random bytes that settle every draw at once, and a record of how many were asked for."""

    def bytes(self, length):
        self.__dict__.setdefault("reads", []).append(length)
        return (b"\x35\x7a\x11\x4c\x59\x2e\x63\x21" * (length // 8 + 1))[:length]


def assert_neighbours_look_the_same(query, relation):
    """The same bytes are read, and the answers have the same shape, type, keys and scale."""
    for d, e in itertools.islice(neighbours(relation, seeded(2), 2), 0, None, 7):
        reads, shapes = [], []
        for data in (d, e):
            rng = Recording(np.random.PCG64(0))
            release = query(data, epsilon=EPS, neighbors=relation, rng=rng)
            reads.append(rng.reads)
            shapes.append((np.shape(release.value), type(release.value), release.keys, release.scale))
        assert reads[0] == reads[1]
        assert shapes[0] == shapes[1]


def assert_scale_is_public(query, relation):
    data = ([1.0] * 5, [10.0] * 5, [math.nan] * 5, [0, 1, 2, 3, 4], np.zeros(5))
    scales = {query(list(d), epsilon=EPS, neighbors=relation, rng=seeded()).scale for d in data}
    assert len(scales) == 1


def assert_epsilon_is_named(query, relation):
    """And not an inner scale or sensitivity that the caller has never seen."""
    for epsilon in (5e-324, 1e-308, 1e-290, 1e-30, 1e300, 1.7e308):
        message = None
        try:
            query(epsilon=epsilon, neighbors=relation)
        except ValueError as error:
            message = str(error)
        assert message is None or re.fullmatch(
            f"epsilon must be (larger|smaller) for .*, got {re.escape(repr(epsilon))}", message
        )
    with pytest.raises(ValueError, match="epsilon must be larger"):
        query(epsilon=5e-324, neighbors=relation)


# --- draws against their probabilities -------------------------------------------------------------------------------


def chi_square_p(observed, expected):
    keep = expected > 5
    o = np.append(observed[keep], observed[~keep].sum())
    e = np.append(expected[keep], expected[~keep].sum())
    o, e = o[e > 0], e[e > 0]
    return float(special.gammaincc((len(e) - 1) / 2, ((o - e) ** 2 / e).sum() / 2))


def frequencies(draw, size, times=10_000, seed=1):
    rng = seeded(seed)
    return np.bincount([draw(rng) for _ in range(times)], minlength=size)


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
