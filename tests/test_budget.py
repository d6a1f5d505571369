"""The ledger: exact sums, refusals, races, filters under adaptive choice (enumerated), and the zCDP conversion."""

import contextlib
import copy
import itertools
import math
import os
import pickle
import threading
import time
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbook import budget, gaussian
from dpbook.budget import BudgetExceededError, Ledger

ONE = {"neighbors": "add_remove"}
quick = settings(derandomize=True, database=None, deadline=None, max_examples=200)


def decimal_of(x):
    """Read a float as the shortest decimal, independently of the code under test."""
    return Fraction(repr(float(x)))


@pytest.fixture(params=["memory", "file"])
def make(request, tmp_path):
    numbers = itertools.count()

    def ledger(limit):
        if request.param == "memory":
            return Ledger(limit)
        return Ledger.create(tmp_path / f"ledger{next(numbers)}.db", limit)

    return ledger


# --- exact decimals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "spends"),
    [(1.0, [0.1] * 10), (0.3, [0.1] * 3), (1.0, [0.1, 0.9]), (1, [1 / 3, 1 / 3, 1 / 3]), (0.7, [0.7])],
)
def test_what_fits_on_paper_fits(make, limit, spends):
    ledger = make(budget.basic(epsilon=limit, **ONE))
    for x in spends:
        ledger.spend(epsilon=x, label="query")
    assert ledger.spent["epsilon"] == sum(Decimal(repr(x)) for x in spends)
    assert ledger.spent_epsilon() == (limit if len(spends) != 3 or limit != 1 else math.nextafter(1.0, 0))
    for sliver in (0.1, 1e-9):
        with pytest.raises(BudgetExceededError):
            ledger.spend(epsilon=sliver, label="one more")
    assert len(ledger.history) == len(spends)


def test_slivers_add_up(make):
    ledger = make(budget.basic(epsilon=1.0, **ONE))
    ledger.spend(epsilon=0.9999999999999999, label="nearly all")
    for _ in range(10):
        ledger.spend(epsilon=1e-17, label="sliver")  # lost in float64: 0.9999999999999999 + 1e-17 is the same float
    assert ledger.remaining["epsilon"] == 0
    for sliver in (1e-17, 5e-324):
        with pytest.raises(BudgetExceededError):
            ledger.spend(epsilon=sliver, label="sliver")


def test_what_remains_can_be_spent(make):
    ledger = make(budget.basic(epsilon=1.0, delta=1e-6, **ONE))
    ledger.spend(epsilon=1e-300, delta=1e-20, label="tiny")
    left = ledger.remaining
    assert left["epsilon"] == Decimal("0." + "9" * 300)
    ledger.spend(epsilon=left["epsilon"], delta=left["delta"], label="the rest")
    assert ledger.remaining == {"epsilon": 0, "delta": 0}


floats = st.floats(min_value=0, max_value=2, allow_subnormal=True)


@quick
@given(st.floats(min_value=0, max_value=4), st.floats(min_value=0, max_value=0.5), st.lists(st.tuples(floats, floats)))
def test_accepts_exactly_what_fits(limit, delta, pairs):
    ledger = Ledger(budget.basic(epsilon=limit, delta=delta, **ONE))
    total = [Fraction(0), Fraction(0)]
    for epsilon, small in pairs:
        small = min(small, 0.99)
        if epsilon == small == 0:
            continue
        fits = [total[0] + decimal_of(epsilon), total[1] + decimal_of(small)]
        if fits[0] <= decimal_of(limit) and fits[1] <= decimal_of(delta):
            ledger.spend(epsilon=epsilon, delta=small, label="query")
            total = fits
        else:
            with pytest.raises(BudgetExceededError) as refused:
                ledger.spend(epsilon=epsilon, delta=small, label="query")
            assert refused.value.remaining == ledger.remaining
    assert [Fraction(x) for x in ledger.spent.values()] == total
    assert [Fraction(x) for x in ledger.remaining.values()] == [
        decimal_of(limit) - total[0],
        decimal_of(delta) - total[1],
    ]


@quick
@given(st.floats(min_value=5e-324, max_value=1e308))
def test_receipts_are_rounded_down(x):
    paid = Ledger(budget.basic(epsilon=1.7e308, **ONE)).spend(epsilon=x, label="query")
    recorded = Fraction(paid.amount["epsilon"])
    assert Fraction(paid.epsilon) <= recorded
    assert Fraction(math.nextafter(paid.epsilon, math.inf)) > recorded
    if x >= 2.0**-1022:  # what is stated for callers who pass their own float on
        assert Fraction(x) <= recorded * (1 + Fraction(1, 2**53))


def test_a_float_may_lie_above_what_it_prints_as():
    """The twin of the test above: without rounding down, one tenth would be exceeded."""
    paid = Ledger(budget.basic(epsilon=1.0, delta=0.1, **ONE)).spend(epsilon=0.1, delta=0.1, label="query")
    assert Fraction(0.1) > Fraction(1, 10) >= Fraction(paid.epsilon)
    assert paid.epsilon == paid.delta == math.nextafter(0.1, 0)


@quick
@given(st.floats(min_value=1e-12, max_value=100), st.floats(min_value=1e-6, max_value=1e6))
def test_sigma_is_rounded_up(rho, size):
    paid = Ledger(budget.zcdp(rho=200, **ONE)).spend(rho=rho, label="query")
    sigma = paid.sigma(sensitivity=size)

    def cost(s):
        return Fraction(size) ** 2 / (2 * Fraction(s) ** 2)

    assert cost(sigma) <= decimal_of(rho) < cost(math.nextafter(sigma, 0))
    assert paid.sigma(sensitivity=4 * size) == 4 * sigma  # C-16: only sigma / sensitivity counts
    assert paid.sigma(sensitivity=0) == 0


# --- refusals ---------------------------------------------------------------------------------------------------------

BAD = [
    *(math.nan, -1, -1e-300, math.inf, -math.inf, True, "0.1", b"1", 1j, [0.1], {0.1}, Fraction(1, 10), 10**400),
    *(
        np.array([0.1, 0.1]),
        np.bool_(True),
        np.float32("nan"),
        np.timedelta64(1, "D"),
        np.longdouble(0.1),
        np.array("1"),
    ),
    *map(Decimal, ("NaN", "-1", "Infinity", "sNaN", "1e400", "1e-2000")),
]


@pytest.mark.parametrize("bad", BAD, ids=range(len(BAD)))
@pytest.mark.parametrize("name", ["epsilon", "delta", "rho"])
def test_bad_amounts_change_nothing(make, name, bad):
    limit = budget.zcdp(rho=1, **ONE) if name == "rho" else budget.basic(epsilon=1, delta=0.5, **ONE)
    ledger = make(limit)
    with pytest.raises((TypeError, ValueError), match=f"{name} must"):
        ledger.spend(label="query", **{name: bad})
    assert ledger.history == ()
    assert set(ledger.spent.values()) == {0}


@pytest.mark.parametrize("bad", BAD, ids=range(len(BAD)))
def test_bad_limits(bad):
    for call in (
        lambda: budget.basic(epsilon=bad, **ONE),
        lambda: budget.basic(epsilon=1, delta=bad, **ONE),
        lambda: budget.zcdp(rho=bad, **ONE),
        lambda: budget.zcdp(epsilon=1, delta=bad, **ONE),
    ):
        with pytest.raises((TypeError, ValueError), match=r"(epsilon|delta|rho) must"):
            call()


@pytest.mark.parametrize(
    ("limit", "spends"),
    [
        (budget.basic(epsilon=1, delta=0.5, **ONE), [{}, {"epsilon": 0}, {"epsilon": 0, "delta": -0.0}, {"rho": 0.1}]),
        (budget.basic(epsilon=1, **ONE), [{"release": "count"}, {"epsilon": 0.1, "rho": 0.1}, {"delta": 1.0}]),
        (budget.zcdp(rho=1, **ONE), [{}, {"rho": 0}, {"rho": 0.1, "epsilon": 0.1}, {"epsilon": 0.1, "delta": 1e-9}]),
    ],
    ids=str,
)
def test_spends_in_the_wrong_currency(limit, spends):
    ledger = Ledger(limit)
    for spend in spends:
        with pytest.raises((TypeError, ValueError), match="must"):
            ledger.spend(label="query", **spend)
    good = {next(iter(limit.limits)): 0.1}
    for text in ("", "  ", None, 3, b"x", "two\nlines", "\ud800", "\0"):
        with pytest.raises((TypeError, ValueError), match="label must"):
            ledger.spend(label=text, **good)
        if text not in ("", "  "):
            with pytest.raises((TypeError, ValueError), match="who must"):
                ledger.spend(label="query", who=text, **good)
    assert ledger.history == ()


@pytest.mark.parametrize("amount", [5e-324, 1e-17, 0.1, 1.0])
def test_a_zero_budget_refuses_everything(make, amount):
    for limit, currency in ((budget.basic(epsilon=0, delta=0, **ONE), "epsilon"), (budget.zcdp(rho=0, **ONE), "rho")):
        ledger = make(limit)
        with pytest.raises(BudgetExceededError):
            ledger.spend(label="query", **{currency: amount})
        assert ledger.spent_epsilon() == 0
        assert limit.epsilon(delta=0) == 0


def test_every_amount_has_its_own_limit(make):
    assert (0.5, 0.9) <= (1.0, 1e-6)  # Python's tuples are compared by the first entry
    ledger = make(budget.basic(epsilon=1.0, delta=1e-6, **ONE))
    for spend in ({"epsilon": 0.5, "delta": 0.9}, {"epsilon": 1.5}, {"delta": 1.0000001e-6}):
        with pytest.raises(BudgetExceededError) as refused:
            ledger.spend(label="query", **spend)
        assert refused.value.remaining == {"epsilon": 1, "delta": Decimal("0.000001")}
        assert refused.value.requested == {n: Decimal(repr(spend.get(n, 0))) for n in ("epsilon", "delta")}
    ledger.spend(delta=1e-6, label="delta alone")
    ledger.spend(epsilon=1, label="epsilon alone")


def test_nothing_is_given_back(make):
    ledger = make(budget.basic(epsilon=1.0, **ONE))

    def fail(error):
        with ledger.spend(epsilon=0.2, label="fails") as paid:
            assert ledger.history[-1].number == paid.number  # recorded before the block begins
            raise error

    for error in (ValueError, KeyboardInterrupt, SystemExit):
        with pytest.raises(error):
            fail(error)
    ledger.spend(epsilon=0.2, label="never used")
    assert ledger.spent["epsilon"] == Decimal("0.8")
    with pytest.raises(BudgetExceededError), ledger.spend(epsilon=0.3, label="too much"):
        pytest.fail("the block must not run")


def test_a_receipt_pays_once():
    paid = Ledger(budget.basic(epsilon=1.0, **ONE)).spend(epsilon=0.5, label="mean")
    with paid:
        pass
    with pytest.raises(RuntimeError, match="paid for one release"), paid:
        pytest.fail("the block must not run")
    with pytest.raises(AttributeError, match="not rho"):
        _ = paid.rho
    with pytest.raises(AttributeError):
        paid.sigma(sensitivity=1)


def test_history_and_text(make):
    limit = budget.basic(epsilon=1.0, delta=1e-6, neighbors="replace_one", name="residents")
    ledger = make(limit)
    ledger.spend(epsilon=0.25, label="mean age", who="Ada")
    ledger.spend(epsilon=0.5, delta=1e-9, label="histogram")
    first, second = ledger.history
    assert (first.number, first.label, first.who, first.amount["epsilon"]) == (1, "mean age", "Ada", Decimal("0.25"))
    assert second.remaining == {"epsilon": Decimal("0.25"), "delta": Decimal("9.99e-7")}
    assert first.time <= second.time
    assert first.time.endswith("+00:00")
    assert str(ledger).splitlines() == [
        "residents: basic budget of epsilon 1, delta 1e-6 under replace_one",
        "1. mean age (Ada): epsilon 0.25; left: epsilon 0.75, delta 1e-6",
        "2. histogram: epsilon 0.5, delta 1e-9; left: epsilon 0.25, delta 9.99e-7",
    ]
    assert "left: epsilon 0.25, delta 9.99e-7" in repr(ledger)
    assert ledger.budget == limit
    with pytest.raises(TypeError):
        first.amount["epsilon"] = Decimal(0)  # type: ignore[index]
    ledger.remaining["epsilon"] = Decimal(9)  # a copy
    assert ledger.remaining["epsilon"] == Decimal("0.25")


def test_the_statement_says_what_was_promised(make):
    ledger = make(budget.basic(epsilon=1.0, delta=1e-6, neighbors="replace_one", name="residents"))
    ledger.spend(epsilon=0.25, label="mean age", who="Ada")
    ledger.spend(epsilon=0.5, delta=1e-9, label="histogram")
    with pytest.raises(BudgetExceededError):
        ledger.spend(epsilon=0.5, label="refused")  # was not released, and is not in the statement
    text = ledger.statement(
        unit="one resident.", details={"histogram": "Gaussian noise"}, not_covered=["families", "sampling error"]
    )
    assert text.splitlines() == [
        "Unit of privacy: one resident.",
        "Neighbour relation: replace_one (all rows of one unit are replaced by those of",
        "  another).",
        "Guarantee: all releases under this budget together are (ε, δ)-differentially",
        "  private with ε = 1 and δ = 1e-6.",
        "Releases (basic accounting):",
        "  1. mean age: epsilon 0.25",
        "  2. histogram: epsilon 0.5, delta 1e-9. Gaussian noise",
        "Not covered:",
        "  - families",
        "  - sampling error",
    ]
    assert "Ada" not in text
    assert ledger.history[0].time[:10] not in text


def test_the_statement_names_the_limit_not_the_sum(make):
    ledger = make(budget.zcdp(rho=0.5, neighbors="add_remove"))
    ledger.spend(rho=0.125, label="a")
    assert "are ρ-zCDP with ρ = 0.5." in ledger.statement(unit="one person")
    text = " ".join(ledger.statement(unit="one person", delta=1e-5).split())
    stated = float(text.split("ε = ")[1].split()[0])
    exact = ledger.budget.epsilon(delta=1e-5)
    assert exact <= stated < exact * (1 + 1e-5)  # rounded up, and nearly nothing is added
    both = make(budget.zcdp(epsilon=1.0, delta=1e-6, neighbors="add_remove"))
    assert "ε = 1 and δ = 1e-6" in " ".join(both.statement(unit="one person").split())
    assert make(budget.basic(epsilon=0.0, **ONE)).statement(unit="x").splitlines()[2:] == [
        "Guarantee: all releases under this budget together are ε-differentially private",
        "  with ε = 0.",
        "Releases (basic accounting):",
    ]


def test_the_statement_of_a_plan_covers_what_was_left_out(make):
    plan = {"daily count": (0.125, 4), "histogram": (0.5, 1)}
    ledger = make(budget.planned(plan, accountant=PureSum(), epsilon=1, delta=0.0, **ONE))
    ledger.spend(release="daily count", label="Monday")
    assert ledger.statement(unit="one person").splitlines()[2:] == [
        "Guarantee: all releases under this budget together are ε-differentially private",
        "  with ε = 1.",
        "Releases (planned accounting):",
        "  1. Monday: planned as daily count, at most 4 of these",
    ]


def test_no_amount_of_the_statement_is_too_low(make):
    third = Decimal(1) / 3  # 28 digits
    ledger = make(budget.basic(epsilon=third, **ONE))
    ledger.spend(epsilon=third, label="all")
    text = " ".join(ledger.statement(unit="one person").split())
    for stated in (text.split("ε = ")[1].split()[0].rstrip("."), text.split("all: epsilon ")[1]):
        assert third < Decimal(stated) < third + Decimal("1e-19")


def test_long_texts_are_folded_and_words_are_kept(make):
    ledger = make(budget.basic(epsilon=1.0, **ONE))
    ledger.spend(epsilon=1.0, label="visits")
    words = "noise of a known size " * 9
    place = "https://example.org/" + "x" * 90
    rows = ledger.statement(unit="one person", details={"visits": words.strip()}, not_covered=[place]).splitlines()
    assert all(len(row) <= 80 for row in rows if place not in row)
    assert sum(place in row for row in rows) == 1
    assert words.strip() in " ".join(" ".join(rows).split())


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"unit": 3}, TypeError),
        ({"unit": " "}, ValueError),
        ({"unit": "two\nlines"}, ValueError),
        ({"details": ["visits"]}, TypeError),
        ({"details": {"visit": "a label that nothing was spent on"}}, ValueError),
        ({"details": {"visits": 1}}, TypeError),
        ({"details": {1: "visits"}}, TypeError),
        ({"not_covered": "one text"}, TypeError),
        ({"not_covered": {"a set"}}, TypeError),
        ({"not_covered": [None]}, TypeError),
        ({"delta": 0.0}, ValueError),
        ({"delta": 1.0}, ValueError),
        ({"delta": "1e-6"}, TypeError),
        ({"delta": math.nan}, ValueError),
    ],
)
def test_bad_statements(make, arguments, error):
    ledger = make(budget.zcdp(rho=0.5, **ONE))
    ledger.spend(rho=0.1, label="visits")
    with pytest.raises(error, match=next(iter(arguments))):
        ledger.statement(**{"unit": "one person", **arguments})
    with pytest.raises(TypeError, match="delta must be left out"):
        make(budget.basic(epsilon=1.0, **ONE)).statement(unit="one person", delta=1e-6)


# --- races and copies -------------------------------------------------------------------------------------------------


class NaiveLedger:
    """Checks, and then spends: the mistake that the race test must find."""

    def __init__(self):
        self.spent = 0.0

    def spend(self, epsilon, label):
        if self.spent + epsilon > 1.0:
            raise BudgetExceededError("refused")
        time.sleep(0.005)
        self.spent += epsilon


def race(ledger, threads=50):
    barrier, granted = threading.Barrier(threads), []

    def query():
        barrier.wait()
        with contextlib.suppress(BudgetExceededError):
            granted.append(ledger.spend(epsilon=0.1, label="query"))

    workers = [threading.Thread(target=query) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return len(granted)


def test_no_race_between_check_and_write(make, monkeypatch):
    within = budget._within

    def slow(*arguments):
        total = within(*arguments)
        time.sleep(0.005)
        return total

    monkeypatch.setattr(budget, "_within", slow)
    ledger = make(budget.basic(epsilon=1.0, **ONE))
    assert race(ledger) == len(ledger.history) == 10
    assert ledger.remaining["epsilon"] == 0
    assert race(NaiveLedger()) > 10


def test_a_ledger_cannot_be_copied(make, monkeypatch):
    ledger = make(budget.basic(epsilon=1.0, **ONE))
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="spend the budget twice"):
            duplicate(ledger)
    here = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: here + 1)  # as after a fork
    if "MemoryStore" in type(ledger._store).__name__:
        with pytest.raises(budget.LedgerError, match="another process"):
            ledger.spend(epsilon=0.1, label="query")
    else:
        ledger.spend(epsilon=0.1, label="query")


def test_budgets_and_spends_can_be_sent_to_another_process():
    limit = budget.zcdp(epsilon=1, delta=1e-6, **ONE)
    assert pickle.loads(pickle.dumps(limit)) == limit
    ledger = Ledger(limit)
    ledger.spend(rho=0.001, label="query")
    assert pickle.loads(pickle.dumps(ledger.history)) == ledger.history


# --- what the totals mean ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rho", "delta", "expected"),  # computed to many digits with another minimiser
    [(0.5, 1e-5, 4.728387), (0.1, 1e-6, 2.141939), (1, 1e-6, 7.766217), (0.1, 0.9, 0), (0.005, 0.5, 0), (0, 1e-6, 0)],
)
def test_zcdp_reference_values(rho, delta, expected):
    limit = budget.zcdp(rho=rho, **ONE)
    assert limit.epsilon(delta=delta) == pytest.approx(expected, rel=1e-6)
    assert limit.epsilon(delta=0) == (math.inf if rho else 0)
    if rho:
        exact = gaussian.gaussian_epsilon(sigma=1 / math.sqrt(2 * rho), sensitivity=1.0, delta=delta)
        assert limit.epsilon(delta=delta) >= exact * (1 - 1e-9)  # no conversion of ρ can be below the Gaussian itself
        simple = rho + 2 * math.sqrt(rho * math.log(1 / delta))  # Bun and Steinke
        assert limit.epsilon(delta=delta) <= simple


@settings(quick, max_examples=50)
@given(st.floats(min_value=1e-8, max_value=100), st.floats(min_value=1e-12, max_value=0.1))
def test_zcdp_target_is_kept_and_not_wasted(epsilon, delta):
    limit = budget.zcdp(epsilon=epsilon, delta=delta, **ONE)
    rho = limit.limits["rho"]
    assert limit.epsilon(delta=delta) <= epsilon
    assert budget.zcdp(rho=rho * Decimal("1.001"), **ONE).epsilon(delta=delta) > epsilon


@settings(quick, max_examples=50)
@given(st.floats(min_value=1e-6, max_value=10), st.floats(min_value=1e-12, max_value=0.5))
def test_zcdp_grows_with_rho_and_falls_with_delta(rho, delta):
    at = budget.zcdp(rho=rho, **ONE).epsilon
    assert at(delta=delta) <= budget.zcdp(rho=1.01 * rho, **ONE).epsilon(delta=delta)
    assert at(delta=delta) >= at(delta=min(1.5 * delta, 0.99))


@pytest.mark.parametrize(("epsilon", "delta"), [(0, 1e-6), (1e-9, 1e-300), (700, 1e-5), (1e300, 0.5)])
def test_zcdp_extremes(epsilon, delta):
    limit = budget.zcdp(epsilon=epsilon, delta=delta, **ONE)
    assert limit.limits["rho"] > 0
    assert limit.epsilon(delta=delta) <= epsilon


def test_zcdp_counts_pure_releases():
    ledger = Ledger(budget.zcdp(rho=1, **ONE))
    paid = ledger.spend(epsilon=0.1, label="pure")
    assert paid.amount == {"rho": Decimal("0.005")}
    assert paid.epsilon == math.nextafter(0.1, 0)
    ledger.spend(rho=0.495, label="Gaussian")
    assert ledger.spent == {"rho": Decimal("0.5")}
    assert ledger.spent_epsilon(delta=1e-5) == budget.zcdp(rho=0.5, **ONE).epsilon(delta=1e-5)
    ledger.spend(epsilon=1, label="pure")
    with pytest.raises(BudgetExceededError):
        ledger.spend(epsilon=5e-324, label="its square is no float")


def test_no_finite_epsilon_is_infinite():
    limit = budget.basic(epsilon=1, delta=1e-6, **ONE)
    assert (limit.epsilon(delta=1e-6), limit.epsilon(delta=0.1), limit.epsilon(delta=1e-7)) == (1, 1, math.inf)
    ledger = Ledger(limit)
    assert ledger.spent_epsilon() == 0
    ledger.spend(epsilon=0.1, delta=1e-7, label="one")
    assert (ledger.spent_epsilon(delta=1e-7), ledger.spent_epsilon(delta=9e-8)) == (0.1, math.inf)
    for bad in (math.nan, -1, 1, True, "0", None):
        with pytest.raises((TypeError, ValueError), match="delta must"):
            limit.epsilon(delta=bad)
        with pytest.raises((TypeError, ValueError), match="delta must"):
            ledger.spent_epsilon(delta=bad)


def test_order_does_not_matter():
    spends = [0.1, 0.25, 1e-17, 0.3]
    for order in itertools.permutations(spends):
        ledger = Ledger(budget.zcdp(rho=1, **ONE))
        for rho in order:
            ledger.spend(rho=rho, label="query")
        assert ledger.spent["rho"] == Decimal("0.65000000000000001")


# --- a plan -----------------------------------------------------------------------------------------------------------


class PureSum:
    """An accountant for the tests: a mechanism is its ε."""

    def __init__(self):
        self.total = Fraction(0)

    def add(self, mechanism, *, steps):
        self.total += Fraction(mechanism) * steps

    def epsilon(self, *, delta):
        return float(self.total)


class Immutable:
    def __init__(self, total=0.0):
        self.total = total

    def add(self, mechanism, *, steps):
        return Immutable(self.total + mechanism * steps)

    def epsilon(self, *, delta):
        return self.total


@pytest.mark.parametrize("accountant", [PureSum, Immutable])
def test_a_plan_is_kept(make, accountant):
    plan = {"daily count": (0.125, 4), "histogram": (0.25, 1)}
    limit = budget.planned(plan, accountant=accountant(), epsilon=1, delta=1e-6, **ONE)
    assert (limit.epsilon(delta=1e-6), limit.epsilon(delta=1e-7)) == (0.75, math.inf)
    ledger = make(limit)
    ledger.spend(release="histogram", label="ages")
    for day in range(4):
        ledger.spend(release="daily count", label=f"day {day}")
    for name in plan:
        with pytest.raises(BudgetExceededError):
            ledger.spend(release=name, label="one more")
    with pytest.raises(ValueError, match="release must be one of"):
        ledger.spend(release="mean", label="not planned")
    for wrong in ({}, {"release": 3}, {"epsilon": 0.1}, {"release": "histogram", "epsilon": 0.1}):
        with pytest.raises(TypeError, match="must"):
            ledger.spend(label="wrong", **wrong)
    with pytest.raises(ValueError, match="spent_epsilon must"):
        ledger.spent_epsilon(delta=1e-6)
    assert str(ledger.history[0]) == "1. ages: histogram 1; left: daily count 4, histogram 0"


def test_a_plan_must_fit():
    def plan(times=1, cost=0.5, **changed):
        good = {"accountant": PureSum(), "epsilon": 1, "delta": 1e-6, **ONE}
        return budget.planned({"count": (cost, times)}, **{**good, **changed})

    plan(times=2)
    with pytest.raises(ValueError, match=r"epsilon must cover the plan, which costs 1\.5"):
        plan(times=3)
    for cost in (math.inf, math.nan, -1):
        answer = type("Odd", (PureSum,), {"epsilon": lambda self, *, delta, cost=cost: cost})()
        with pytest.raises(ValueError, match="epsilon must"):
            plan(accountant=answer)
    for bad in (-1, 1.5, True, "2", None):
        with pytest.raises((TypeError, ValueError), match="releases"):
            plan(times=bad)
    for bad in (None, 3, object()):
        with pytest.raises(TypeError, match="accountant must"):
            plan(accountant=bad)
    wrong = PureSum()
    wrong.neighbors = "replace_one"
    with pytest.raises(ValueError, match="accountant must be for"):
        plan(accountant=wrong)
    for bad in ([], {"count": 2}, {"count": (0.5,)}, {3: (0.5, 1)}, {"epsilon": (0.5, 1)}):
        with pytest.raises((TypeError, ValueError), match="releases must"):
            budget.planned(bad, accountant=PureSum(), epsilon=1, delta=0.0, **ONE)


def test_a_plan_with_the_accountant_of_this_package():
    accounting = pytest.importorskip("dpbook.accounting")
    plan = {"daily count": (accounting.Gaussian(sigma=40.0), 30), "weekly count": (accounting.Gaussian(sigma=25.0), 4)}
    account = accounting.Accountant(neighbors="add_remove")
    limit = budget.planned(plan, accountant=account, epsilon=1, delta=1e-6, **ONE)
    exact = gaussian.gaussian_epsilon(sigma=(30 / 40**2 + 4 / 25**2) ** -0.5, sensitivity=1.0, delta=1e-6)
    assert exact * (1 - 1e-9) <= limit.epsilon(delta=1e-6) <= exact + 1e-3
    with pytest.raises(ValueError, match="accountant must be for"):
        budget.planned(plan, accountant=account, epsilon=1, delta=1e-6, neighbors="replace_one")


# --- adaptive choice, enumerated exactly ------------------------------------------------------------------------------


def leaky(epsilon, delta):
    """The worst (ε, δ)-DP mechanism: the pair (P, Q) of its four outputs (Kairouz, Oh and Viswanath, 2015)."""
    yes, no = math.exp(epsilon) / (1 + math.exp(epsilon)), 1 / (1 + math.exp(epsilon))
    return [(delta, 0.0), ((1 - delta) * yes, (1 - delta) * no), ((1 - delta) * no, (1 - delta) * yes), (0.0, delta)]


def leaves(choose, history=(), p=1.0, q=1.0):
    """Return (P, Q) of every transcript: `choose` looks at the history, and says what is run next, or stops."""
    mechanism = choose(history)
    if mechanism is None:
        return [(p, q)]
    return [
        leaf
        for output, (a, b) in enumerate(mechanism)
        if a or b
        for leaf in leaves(choose, (*history, output), p * a, q * b)
    ]


def delta_at(pairs, epsilon):
    return sum(max(0.0, p - math.exp(epsilon) * q) for p, q in pairs)


def adversary(ledger_of, costs, run, depth=4):
    """Choose every next spend by the answers, until the ledger refuses."""

    def choose(history):
        ledger = ledger_of()
        for length in range(len(history) + 1):
            spend = costs[hash(history[:length]) % len(costs)]
            if length == depth:
                return None
            try:
                ledger.spend(label="query", **spend)
            except BudgetExceededError:
                return None
        return run(**spend)

    return choose


amounts = st.sampled_from([0.05, 0.1, 0.3, 0.5, 0.7])


@settings(quick, max_examples=40)
@given(st.lists(st.tuples(amounts, st.sampled_from([0.0, 0.01, 0.02, 0.05])), min_size=2, max_size=6))
def test_the_basic_filter_holds_for_an_adaptive_analyst(pairs):
    limit = budget.basic(epsilon=1.0, delta=0.06, **ONE)
    costs = [{"epsilon": e, "delta": d} for e, d in pairs]
    found = leaves(adversary(lambda: Ledger(limit), costs, leaky))
    assert sum(p for p, _ in found) == pytest.approx(1)
    assert delta_at(found, 1.0) <= 0.06 + 1e-12
    assert delta_at([(q, p) for p, q in found], 1.0) <= 0.06 + 1e-12


@settings(quick, max_examples=40)
@given(st.lists(amounts, min_size=2, max_size=6))
def test_the_pure_filter_holds_for_an_adaptive_analyst(epsilons):
    limit = budget.basic(epsilon=1.0, **ONE)
    costs = [{"epsilon": e} for e in epsilons]
    found = leaves(adversary(lambda: Ledger(limit), costs, lambda epsilon: leaky(epsilon, 0)))
    assert max(abs(math.log(p / q)) for p, q in found) <= 1.0 + 1e-12


def test_the_filters_are_needed():
    """The twin of these tests: an analyst whom nobody refuses exceeds all three limits."""
    wide = budget.basic(epsilon=1e6, delta=0.9, **ONE)
    pure = leaves(adversary(lambda: Ledger(wide), [{"epsilon": 0.7}], lambda epsilon: leaky(epsilon, 0)))
    assert max(abs(math.log(p / q)) for p, q in pure) > 1.5
    assert math.log(sum(p**2 / q for p, q in pure)) > 2 * 0.3
    both = leaves(adversary(lambda: Ledger(wide), [{"epsilon": 0.7, "delta": 0.05}], leaky))
    assert delta_at(both, 1.0) > 0.06


@settings(quick, max_examples=40)
@given(st.lists(amounts, min_size=2, max_size=6), st.integers(0, 5))
def test_the_pure_odometer_holds_at_every_moment(epsilons, stop):
    """The analyst chooses by the answers, and stops by them too; the running total bounds each transcript."""
    ledgers = {}

    def choose(history):
        ledger = ledgers[history] = Ledger(budget.basic(epsilon=100, **ONE))
        for length in range(len(history)):
            ledger.spend(epsilon=epsilons[hash(history[:length]) % len(epsilons)], label="query")
        if len(history) == 5 or (len(history) > 1 and hash(history) % 6 == stop):
            return None
        return leaky(epsilons[hash(history) % len(epsilons)], 0)

    def walk(history, p, q):
        mechanism = choose(history)
        assert abs(math.log(p / q)) <= ledgers[history].spent_epsilon() + 1e-12
        for output, (a, b) in enumerate(mechanism or []):
            if a:
                walk((*history, output), p * a, q * b)

    walk((), 1.0, 1.0)


@settings(quick, max_examples=40)
@given(st.lists(amounts, min_size=2, max_size=6))
def test_the_zcdp_filter_holds_for_an_adaptive_analyst(epsilons):
    limit = budget.zcdp(rho=0.3, **ONE)
    found = leaves(
        adversary(lambda: Ledger(limit), [{"epsilon": e} for e in epsilons], lambda epsilon: leaky(epsilon, 0))
    )
    for order in (1.01, 1.5, 2, 8, 64):
        divergence = math.log(sum(p**order * q ** (1 - order) for p, q in found)) / (order - 1)
        assert divergence <= 0.3 * order + 1e-9


def test_stopping_by_the_best_composition_of_the_path_is_not_private():
    """Why a plan is needed: each path alone is (1.2, δ)-DP, but the analyst who chooses by the answers is not."""
    start, follow = leaky(1.0, 0.0), leaky(0.9, 0.0)
    allowed = delta_at(leaves(lambda h: (start, follow)[len(h)] if len(h) < 2 else None), 1.2)
    leak = leaky(0.0, allowed)
    assert delta_at(leaves(lambda h: (start, leak)[len(h)] if len(h) < 2 else None), 1.2) <= allowed + 1e-12

    def choose(history):
        return start if not history else (follow if history[0] == 1 else leak) if len(history) == 1 else None

    assert delta_at(leaves(choose), 1.2) > 1.2 * allowed


def test_the_order_of_a_plan_may_be_chosen_by_the_answers():
    plan = {"a": leaky(1.0, 0.0), "b": leaky(0.3, 0.02), "c": leaky(0.6, 0.0)}
    product = leaves(lambda h: list(plan.values())[len(h)] if len(h) < 3 else None)
    for second, third, stop in itertools.product((0, 1), (0, 1), (0, 1, 2, 3)):

        def choose(history, second=second, third=third, stop=stop):
            if not history:
                return plan["a"]
            if len(history) == 1:
                return plan["b" if history[0] % 2 == second else "c"]
            first_was_b = history[0] % 2 == second
            if len(history) == 2 and history[1] != stop + third:
                return plan["c" if first_was_b else "b"]
            return None

        found = leaves(choose)
        for epsilon in (0.0, 0.2, 0.7, 1.0, 1.5, 1.9):
            assert delta_at(found, epsilon) <= delta_at(product, epsilon) + 1e-12
