"""The checks that need few runs: last digits, replayed neighbours, ledgers. Each with what it must find."""

import itertools
import math
import sqlite3
import threading
import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from dpbook import budget, checks, noise
from dpbook.checks import HOSTILE, _lowest_bit, check_ledger, check_sensitivity, lattice_test
from dpbook.laplace import discrete_laplace_mechanism, laplace_mechanism
from dpbook.sensitivity import (
    clip,
    clipped_sum,
    keep_rows,
    norm_clipped_sum,
    sum_of_squares_sensitivity,
    sum_sensitivity,
)

# --- last digits -----------------------------------------------------------------------------------------------------

RNG = np.random.default_rng(11)
LEAKS = {
    "Laplace": lambda x, n: x + RNG.laplace(size=n),
    "Gaussian": lambda x, n: x + RNG.normal(size=n),
    "sum of four Gaussians": lambda x, n: x + RNG.normal(size=(4, n)).sum(axis=0) / 2,
    "float32 noise, added in float64": lambda x, n: x + RNG.laplace(size=n).astype(np.float32),
}
GRIDS = {
    "laplace_mechanism": lambda x, n: laplace_mechanism(np.full(n, x), 1.0, 1.0, rng=RNG),
    "laplace_mechanism off the grid": lambda x, n: laplace_mechanism(np.full(n, x + 0.1), 1.0, 1.0, rng=RNG),
    "add_gaussian": lambda x, n: noise.add_gaussian(np.full(n, x), sigma=4.0, rng=RNG),
    "add_discrete_laplace": lambda x, n: noise.add_discrete_laplace(np.full(n, int(x)), scale=1.0, rng=RNG),
}


@pytest.mark.parametrize("name", LEAKS)
def test_floating_point_noise_is_found(name):
    """n = 20 000, alpha = 1e-6; the first look at 312 draws is enough."""
    found = lattice_test(LEAKS[name], 0.0, 1.0, epsilon=1.0, delta=1e-6, alpha=1e-6, vectorized=True)
    assert found.verdict == "leak"
    assert not found.on_grid
    assert "digit" in found.audit.event
    assert repr(found).startswith("leak: outputs are multiples of 2**-")


@pytest.mark.parametrize("name", GRIDS)
def test_exact_noise_passes(name):
    found = lattice_test(GRIDS[name], 0.0, 1.0, epsilon=1.0, delta=1e-6, alpha=1e-6, vectorized=True)
    assert found.verdict == "public grid"
    assert found.steps[0] == found.steps[1]
    assert not found.audit.violated


def test_a_rounded_sum_of_floats_is_not_called_a_grid():
    found = lattice_test(lambda x: round(x + RNG.laplace(), 1), 0.0, 1.0, epsilon=1.0, draws=2000)
    assert found.verdict == "no grid seen"  # tenths are no multiples of one power of two
    found = lattice_test(lambda x: 0.0 * x, 0.0, 1.0, epsilon=1.0, draws=100)
    assert found.steps == (0.0, 0.0)
    assert repr(found).startswith("no grid seen: outputs are multiples of 0 and 0")


def test_lowest_bit():
    y = np.array([1.0, 3.0, 0.75, -6.0, 5e-324, 1.5e308, 0.0, math.inf, math.nan])
    assert _lowest_bit(y)[:5].tolist() == [0.0, 0.0, -2.0, 1.0, -1074.0]
    assert _lowest_bit(y)[6:].tolist() == [2000.0] * 3
    assert Fraction(1.5e308) % Fraction(2) ** int(_lowest_bit(y)[5]) == 0


def test_a_lattice_test_needs_numbers():
    with pytest.raises(ValueError, match="release must return one number"):
        lattice_test(lambda x: "a", 0.0, 1.0, epsilon=1.0, draws=100)
    with pytest.raises(ValueError, match="release must return one number"):
        lattice_test(lambda x, n: np.zeros((n, 2)), 0.0, 1.0, epsilon=1.0, draws=100, vectorized=True)


# --- neighbours ------------------------------------------------------------------------------------------------------

BOUNDS = (5.0, 10.0)
DATA = [3.0, 7.0, 12.0, 8.0]


@pytest.mark.parametrize("neighbors", ["add_remove", "replace_one"])
@pytest.mark.parametrize("bounds", [(0, 100), (-3, 2), (1, 3), (-5, -2), (5, 10)])
def test_right_sensitivities_pass_and_are_attained(bounds, neighbors):
    delta = sum_sensitivity(bounds=bounds, neighbors=neighbors)
    found = check_sensitivity(
        lambda d: clipped_sum(d, bounds=bounds), DATA, sensitivity=delta, neighbors=neighbors, entries=bounds
    )
    assert found.passed
    assert found.largest == pytest.approx(delta)
    assert found.pairs >= 900
    # and the twin: one per cent less is refuted
    found = check_sensitivity(
        lambda d: clipped_sum(d, bounds=bounds), DATA, sensitivity=0.99 * delta, neighbors=neighbors, entries=bounds
    )
    assert not found.passed
    first, second = found.worst
    assert abs(len(first) - len(second)) == (neighbors == "add_remove")


def test_vectors_and_norms():
    rows = [(1.0, 0.0), (0.6, 0.8), (3.0, 4.0)]

    def total(d):
        return norm_clipped_sum(np.array(d, dtype=float).reshape(-1, 2), max_norm=1.0)

    arguments = {"neighbors": "replace_one", "entries": [(-9.0, -9.0), (9.0, 9.0), (math.nan, 1.0)], "tries": 500}
    assert check_sensitivity(total, rows, sensitivity=2.0, norm="l2", **arguments).passed
    found = check_sensitivity(total, rows, sensitivity=2.0, norm="l1", **arguments)
    assert found.largest == pytest.approx(2 * math.sqrt(2))
    assert not found.passed
    assert not check_sensitivity(total, rows, sensitivity=1.0, norm="l2", **arguments).passed


def warns_of_zeros(d):
    if 0 in d:
        warnings.warn("zero", UserWarning, stacklevel=1)
    return float(len(d))


@pytest.mark.parametrize(
    ("query", "neighbors", "fault"),
    [
        (lambda d: float(np.clip(d, *BOUNDS).sum()), "replace_one", "not finite"),  # NaN goes through np.clip
        (lambda d: clipped_sum(d, bounds=BOUNDS), "add_remove", "moves the result by 10"),  # the width is 5
        (lambda d: (clip(d, bounds=BOUNDS), sum(x for x in d if x == x))[1], "replace_one", "more than 5"),
        (lambda d: len(d), "add_remove", None),
        (lambda d: [0.0] * len(d), "add_remove", "form of the output"),
        (lambda d: np.unique(d).astype(float), "replace_one", "form of the output"),
        (lambda d: float(np.histogram(d, bins=3)[0].max()), "replace_one", "exception"),  # infinite entries
        (lambda d: 5.0 / len(d), "add_remove", "exception"),  # an empty dataset
        (warns_of_zeros, "replace_one", "warnings"),
        (lambda d: 1 if len(d) > 4 else 1.0, "add_remove", None),  # an int among floats is the same number
    ],
)
def test_faults_that_a_neighbour_shows(query, neighbors, fault):
    found = check_sensitivity(query, DATA, sensitivity=5.0, neighbors=neighbors)
    assert found.passed == (fault is None), found.faults
    assert fault is None or any(fault in text for text in found.faults)
    assert len(found.faults) <= 20


def test_a_whole_release_can_be_replayed_with_its_noise():
    def release(d, delta):
        rng = np.random.default_rng(3)
        return laplace_mechanism(clipped_sum(d, bounds=BOUNDS), 1.0, delta, rng=rng)

    arguments = {"sensitivity": 10.0, "neighbors": "add_remove"}
    assert check_sensitivity(lambda d: release(d, 10.0), DATA, slack=noise.grid_step(scale=10.0), **arguments).passed
    # a scale that depends on the number of records shows
    found = check_sensitivity(lambda d: release(d, 1000 / (1 + len(d))), DATA, **arguments)
    assert not found.passed


def test_arrays_rows_of_persons_and_other_entries():
    found = check_sensitivity(
        lambda d: clipped_sum(d, bounds=BOUNDS), np.array(DATA), sensitivity=10, neighbors="add_remove"
    )
    assert found.passed
    assert isinstance(found.worst[0], np.ndarray)
    visits = ["ann", "bob", "ann", "eve"]
    found = check_sensitivity(
        lambda d: int(keep_rows(d, max_rows=1).sum()),
        visits,
        sensitivity=1,
        neighbors="add_remove",
        entries=["zoe", None],
    )
    assert found.passed
    words = check_sensitivity(
        lambda d: sum(map(len, d)), visits, sensitivity=3, neighbors="add_remove", entries=["anna"]
    )
    assert words.largest == 4.0


def test_the_same_seed_tries_the_same_pairs():
    arguments = {"sensitivity": 9, "neighbors": "replace_one", "entries": range(40), "tries": 200}
    runs = [check_sensitivity(lambda d: float(np.sum(np.sin(d))), [0.1, 0.2], seed=s, **arguments) for s in (1, 1)]
    assert runs[0].largest == runs[1].largest
    assert all(math.isnan(x) or math.isinf(x) or abs(x) < 2e308 for x in HOSTILE)


def test_a_query_that_fails_on_its_own_data_is_an_error_of_the_caller():
    with pytest.raises(ValueError, match="query must work on data, got ZeroDivisionError"):
        check_sensitivity(lambda d: 1 / 0, [1.0], sensitivity=1, neighbors="replace_one")
    with pytest.raises(ValueError, match="data must have at least one entry under"):
        check_sensitivity(len, [], sensitivity=1, neighbors="replace_one")
    assert check_sensitivity(len, [], sensitivity=1, neighbors="add_remove", entries=[1]).passed


def test_sum_of_squares():
    delta = sum_of_squares_sensitivity(bounds=(-3, 2), neighbors="replace_one")
    found = check_sensitivity(
        lambda d: float((clip(d, bounds=(-3, 2)) ** 2).sum()), [0.0, 1.0], sensitivity=delta, neighbors="replace_one"
    )
    assert found.passed
    assert found.largest == 9.0


# --- ledgers ---------------------------------------------------------------------------------------------------------


class Good:
    """Exact decimal arithmetic, validated, under a lock."""

    def __init__(self, total):
        self.left, self.lock = Fraction(str(total)), threading.Lock()

    def spend(self, *, epsilon):
        if isinstance(epsilon, bool) or not isinstance(epsilon, (int, float)) or not 0 <= epsilon < math.inf:
            raise ValueError("epsilon")
        with self.lock:
            if Fraction(str(epsilon)) > self.left:
                raise RuntimeError("over")
            self.left -= Fraction(str(epsilon))


class Floats(Good):
    def __init__(self, total):
        self.left, self.lock = total, threading.Lock()

    def spend(self, *, epsilon):
        if isinstance(epsilon, bool) or not isinstance(epsilon, (int, float)) or not 0 <= epsilon < math.inf:
            raise ValueError("epsilon")
        with self.lock:
            if epsilon > self.left:
                raise RuntimeError("over")
            self.left -= epsilon


class Tolerant(Floats):
    def spend(self, *, epsilon):
        if epsilon > self.left + 1e-8:
            raise RuntimeError("over")
        self.left -= epsilon


class Unchecked(Good):
    """NaN compares false, a negative spend refunds."""

    def spend(self, *, epsilon):
        if self.left - epsilon < 0:
            raise RuntimeError("over")
        self.left -= Fraction(str(epsilon)) if epsilon == epsilon and abs(epsilon) < math.inf else epsilon


class SpendsFirst(Good):
    def spend(self, *, epsilon):
        self.left -= Fraction(str(epsilon))
        if self.left < 0:
            raise RuntimeError("over")


class ZeroIsUnlimited(Good):
    def __init__(self, total):
        super().__init__(total or 1e9)


class Race(Good):
    def spend(self, *, epsilon):
        if isinstance(epsilon, bool) or not isinstance(epsilon, (int, float)) or not 0 <= epsilon < math.inf:
            raise ValueError("epsilon")
        left = self.left
        threading.Event().wait(0.001 if threading.active_count() > 10 else 0)  # a slow disk
        if Fraction(str(epsilon)) > left:
            raise RuntimeError("over")
        self.left = left - Fraction(str(epsilon))


def test_a_good_ledger_passes():
    found = check_ledger(Good)
    assert found.passed, found.faults
    assert found.checks >= 15

    class Says:
        """The same with another name and a returned False."""

        def __init__(self, total):
            self.ledger = Good(total)

        def ask(self, amount):
            try:
                self.ledger.spend(epsilon=amount)
            except (ValueError, RuntimeError):
                return False
            return True

    assert check_ledger(Says, spend=lambda ledger, epsilon: ledger.ask(epsilon)).passed


@pytest.mark.parametrize(
    ("ledger", "fault"),
    [
        (Floats, "refuses spend 3 of 0.1, 0.1, 0.1 out of 0.3"),
        (Tolerant, "more spends after"),
        (Unchecked, "grants a spend of nan"),
        (Unchecked, "grants a spend of -1.0"),
        (SpendsFirst, "is changed by refusing it"),
        (ZeroIsUnlimited, "out of a total of 0"),
        (Race, "asked for at the same time"),
    ],
)
def test_faults_of_ledgers_are_found(ledger, fault):
    found = check_ledger(ledger)
    assert any(fault in text for text in found.faults), found.faults


# the ledger of this package, in each accounting that adds amounts up, and what would be wrong with it

WAYS = {
    "basic": (lambda total: budget.basic(epsilon=total, neighbors="add_remove"), "epsilon"),
    "basic, with a delta": (lambda total: budget.basic(epsilon=total, delta=1e-6, neighbors="add_remove"), "epsilon"),
    "zcdp": (lambda total: budget.zcdp(rho=total, neighbors="replace_one"), "rho"),
}


def check_own(way="basic", path=None, threads=50):
    limit, currency = WAYS[way]
    numbers = itertools.count()

    def make(total):
        if path is None:
            return budget.Ledger(limit(total))
        return budget.Ledger.create(path / f"{next(numbers)}.db", limit(total), timeout=60)

    return check_ledger(
        make, spend=lambda ledger, amount: ledger.spend(label="check", **{currency: amount}), threads=threads
    )


@pytest.mark.parametrize("way", WAYS)
def test_the_ledger_of_this_package(way):
    found = check_own(way)
    assert found.passed, found.faults


@pytest.mark.parametrize("way", ["basic", "zcdp"])
def test_the_ledger_of_this_package_in_a_file(way, tmp_path, monkeypatch):
    """Nothing here waits for a disk: what a crash leaves is for test_store."""
    connect = sqlite3.connect

    class Hurried(sqlite3.Connection):
        def execute(self, statement, *rest):
            return super().execute(statement.replace("synchronous=FULL", "synchronous=OFF"), *rest)

    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: connect(*a, factory=Hurried, **k))
    found = check_own(way, tmp_path)
    assert found.passed, found.faults


def test_a_plan_is_not_overspent_by_threads():
    """In a plan, amounts are whole numbers of releases: here 10, which 50 threads ask for."""

    class Free:
        def add(self, mechanism, *, steps):
            return None

        def epsilon(self, *, delta):
            return 0.5

    plan = budget.planned({"count": (None, 10)}, accountant=Free(), epsilon=1, delta=0.0, neighbors="add_remove")
    ledger = budget.Ledger(plan)
    assert checks._race(ledger, lambda ledger, _: may(lambda: ledger.spend(label="race", release="count")), 50) == 10
    assert ledger.remaining["count"] == 0


def may(spend):
    try:
        spend()
    except budget.BudgetExceededError:
        return False
    return True


def refund(monkeypatch):
    def leave(self, kind, *_):
        if kind:
            self.ledger._store._records.pop()

    take_back(monkeypatch, leave)


def refund_always(monkeypatch):
    take_back(monkeypatch, lambda self, *_: self.ledger._store._records.pop())


def take_back(monkeypatch, leave):
    """Let receipts know their ledger, and do something when their block ends."""
    spend = budget.Ledger.spend

    def remembering(self, **amounts):
        receipt = spend(self, **amounts)
        object.__setattr__(receipt, "ledger", self)
        return receipt

    monkeypatch.setattr(budget.Ledger, "spend", remembering)
    monkeypatch.setattr(budget.Receipt, "__exit__", lambda self, *error: leave(self, *error) and None)


def charge_after(monkeypatch):
    """Look whether it fits, hand out the receipt, and write the spend when its block ends."""
    append, waiting = budget.MemoryStore.append, []

    def later(self, **record):
        total = record["decide"](self.spent())
        waiting.append(lambda: append(self, **record))
        return budget.Record(0, "", record["who"], record["label"], record["amount"], total)

    monkeypatch.setattr(budget.MemoryStore, "append", later)
    monkeypatch.setattr(budget.Receipt, "__exit__", lambda *_: waiting.pop()() and None)


def float_sums(monkeypatch):
    """As the naive ledger of the chapter: three tenths do not fit."""

    def add(spent, amount):
        return {n: Decimal(repr(float(spent.get(n, 0)) + float(x))) for n, x in amount.items()}

    monkeypatch.setattr(budget, "add", add)


def float_sums_with_a_tolerance(monkeypatch):
    float_sums(monkeypatch)
    within = budget._within
    monkeypatch.setattr(
        budget,
        "_within",
        lambda limits, *rest: within({n: x * (1 + Decimal("1e-9")) for n, x in limits.items()}, *rest),
    )


def negative_spend(monkeypatch):
    monkeypatch.setattr(budget._amounts, "amount", lambda **given: Decimal(repr(float(next(iter(given.values()))))))


def race(monkeypatch):
    """Check, and then write, with no lock around the two."""

    class NoLock:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

    within, memory = budget._within, budget.MemoryStore.__init__

    def slow(*arguments):
        total = within(*arguments)
        threading.Event().wait(0.001 if threading.active_count() > 10 else 0)
        return total

    def unlocked(self):
        memory(self)
        self._lock = NoLock()

    monkeypatch.setattr(budget, "_within", slow)
    monkeypatch.setattr(budget.MemoryStore, "__init__", unlocked)


@pytest.mark.parametrize(
    ("sabotage", "fault"),
    [
        (refund, "gives back what a release cost when its block raises"),
        (refund_always, "gives back what a release cost"),
        (charge_after, "charges for a release only after its block"),
        (float_sums, "refuses spend 3 of 0.1, 0.1, 0.1 out of 0.3"),
        (float_sums_with_a_tolerance, "more spends after"),
        (negative_spend, "grants a spend of -1.0"),
        (race, "asked for at the same time"),
    ],
)
def test_a_sabotaged_ledger_of_this_package_is_caught(sabotage, fault, monkeypatch):
    sabotage(monkeypatch)
    found = check_own()
    assert any(fault in text for text in found.faults), found.faults


def test_a_ledger_may_refuse_a_total_of_zero():
    class Strict(Good):
        def __init__(self, total):
            if not total:
                raise ValueError("total")
            super().__init__(total)

    assert check_ledger(Strict).passed


def test_discrete_noise_is_on_the_integers():
    found = lattice_test(
        lambda x, n: discrete_laplace_mechanism(np.full(n, int(x)), epsilon=1.0, sensitivity=1, rng=RNG), 3, 4,
        epsilon=1.0, vectorized=True,
    )  # fmt: skip
    assert found.steps == (1.0, 1.0)
