"""The budget: a ledger in front of the data, which records every spend before the data is read, or refuses it.

A `Budget` says what may be spent and in which currency; a `Ledger` holds it, in memory or in a file. Each answer may
decide what is asked next, and how much is spent on it (*fully adaptive* composition; Rogers, Roth, Ullman and Vadhan,
2016). Not every rule of composition survives that, so only these are offered:

- `basic`: the ε add up, and the δ add up. Valid whatever is chosen, whenever it stops. Proof, from the last release
  to the first: after (ε₁, δ₁) is paid, let the rest satisfy P(S | o) ≤ e^(ε-ε₁) Q(S | o) + δ - δ₁ for every answer o,
  and let g(o) be the smaller of 1 and e^(ε-ε₁) Q(S | o). Then P(S) ≤ E_P g + δ - δ₁ ≤ e^ε₁ E_Q g + δ ≤ e^ε Q(S) + δ.
- `zcdp`: the ρ add up. Valid for the same choices, as Rényi divergences of a fixed order add up (Feldman and Zrnic,
  2021; Whitehouse, Ramdas, Rogers and Wu, 2023); the limit, and only the limit, is then converted to (ε, δ).
- `planned`: any accountant, privacy-loss distributions for instance, but the releases and their parameters are
  declared before the first one. Only their order may depend on the answers, and some may be left out. That is valid:
  when each release is dominated by a fixed pair of distributions, all of them can be simulated from one draw from the
  product of the pairs (Blackwell's theorem), in any order. Without a plan it is false: the rule "compose the
  distributions of the path, stop at (ε, δ)" lets more through than (ε, δ) (Tran, Koskela, Räisä and Honkela, 2026).

Amounts are exact decimals. A float stands for the shortest decimal that prints as it, so ten times 0.1 are 1.0, and a
spend of 1e-17 is not lost. But the float 0.1 itself lies above one tenth, by less than one part in 2**53. So a
`Receipt` hands back floats that are rounded down: a mechanism that gets ``receipt.epsilon`` costs no more than what was
recorded, in real numbers. Whoever passes the float 0.1 on instead may exceed each amount, and so the limit, by the
factor 1 + 2**-53 at most (for floats of at least 2**-1022). To read floats as binary numbers would be no remedy: then
ten times 0.1 would exceed 1.0, and every limit would need a tolerance, through which slivers pass.

A ledger guards against mistakes, races and crashes, not against somebody who edits its file, puts an old copy of it
back or reads the data without asking. Labels are kept as they are: write no data in them.
"""

import json
import math
import textwrap
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol

from dpbook import _amounts, _validate, _zcdp
from dpbook._amounts import Amounts, Frozen, add, down, exact, listed
from dpbook._exact import sqrt_up
from dpbook._store import FileStore, LedgerError, LedgerLockedError, MemoryStore, Record

__all__ = [
    "Accountant",
    "Budget",
    "BudgetExceededError",
    "Ledger",
    "LedgerError",
    "LedgerLockedError",
    "Receipt",
    "Spend",
    "basic",
    "planned",
    "zcdp",
]


class BudgetExceededError(RuntimeError):
    """The spend does not fit: nothing was recorded, and the data must not be read.

    ``requested`` and ``remaining`` hold the amounts, as exact decimals by name.
    """

    def __init__(self, message: str, requested: Amounts | None = None, remaining: Amounts | None = None) -> None:
        super().__init__(message)
        self.requested, self.remaining = dict(requested or {}), dict(remaining or {})


class Accountant(Protocol):
    """What `planned` needs: something that can be told of releases, and then says what all of them cost."""

    def add(self, mechanism: Any, *, steps: int) -> Any:
        """Count `mechanism` `steps` times; return the account with them, or None when it is the same object."""

    def epsilon(self, *, delta: float) -> float:
        """Return an ε, never too small, at which all that was added is (ε, δ)-DP."""


def _text(**parameter: Any) -> str:
    ((name, value),) = parameter.items()
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a text, got {_validate.shown(value)} of type {type(value).__name__}")
    if not value.isprintable():  # a line break could pass for another line of the history
        raise ValueError(f"{name} must be printable, on one line, got {_validate.shown(value)}")
    return str(value)


@dataclass(frozen=True)
class Budget:
    """What may be spent, in which currency, under which neighbour relation: made by `basic`, `zcdp` or `planned`.

    ``declared`` are the amounts as they were given, ``limits`` those that are enforced, by name.
    """

    accounting: str
    neighbors: str
    name: str
    declared: Amounts
    limits: Amounts = field(compare=False)
    certified: float | None = field(default=None, compare=False)  # ε of a plan at its declared δ

    def __str__(self) -> str:
        title = f"{self.name}: " if self.name else ""
        return f"{title}{self.accounting} budget of {listed(self.declared)} under {self.neighbors}"

    def epsilon(self, *, delta: float) -> float:
        """Return ε such that all that the ledger ever lets through is (ε, δ)-DP; infinite where nothing is known.

        The statement holds under the budget's neighbour relation, for every way to choose the releases and to stop.

        Parameters
        ----------
        delta : float
            δ in [0, 1).

        Raises
        ------
        TypeError, ValueError
            When a parameter breaks its rule.
        """
        asked = _amounts.small_amount(delta=delta)
        if self.accounting == "zcdp":
            return _zcdp_at(self.limits["rho"], asked)
        if asked < self.declared["delta"]:
            return math.inf
        return _amounts.up(self.declared["epsilon"]) if self.certified is None else self.certified

    def _dump(self) -> str:
        terms = {key: getattr(self, key) for key in ("accounting", "neighbors", "name", "certified")}
        amounts = {key: {n: str(x) for n, x in getattr(self, key).items()} for key in ("declared", "limits")}
        return json.dumps({**terms, **amounts})

    @staticmethod
    def _load(text: str) -> "Budget":
        terms = json.loads(text)
        for key in ("declared", "limits"):
            terms[key] = Frozen({name: Decimal(value) for name, value in terms[key].items()})
        return Budget(**terms)


def _zcdp_at(rho: Decimal, asked: Decimal) -> float:
    if asked == 0:
        return 0.0 if rho == 0 else math.inf
    return _zcdp.epsilon(Fraction(rho), _least(asked))


def _least(asked: Decimal) -> Fraction:
    """Return the least number that an amount may stand for: the decimal, or the float of the caller a little below."""
    return Fraction(down(asked) or asked)


def basic(*, epsilon: float, delta: float = 0.0, neighbors: str, name: str = "") -> Budget:
    """Return a budget in which the ε of all releases add up, and so do their δ: together they are (ε, δ)-DP.

    Under the neighbour relation that is named, for which every single amount must hold too. Valid for releases and
    amounts that are chosen in the light of earlier answers. With ``delta=0`` only pure ε-DP releases fit; then the
    running sum, too, is a true statement at every moment.

    Parameters
    ----------
    epsilon : float
        ε ≥ 0 for all releases together; 0 refuses everything.
    delta : float, optional
        δ in [0, 1) for all releases together.
    neighbors : {"add_remove", "replace_one"}
        The relation of all amounts.
    name : str, optional
        What is protected, for people to read.

    Returns
    -------
    Budget
        For `Ledger`.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    Rogers, Roth, Ullman, Vadhan (2016), Privacy odometers and filters; the proof is at the top of this module.

    Examples
    --------
    >>> print(basic(epsilon=1.0, neighbors="replace_one"))
    basic budget of epsilon 1, delta 0 under replace_one
    """
    limits = Frozen({"epsilon": _amounts.amount(epsilon=epsilon), "delta": _amounts.small_amount(delta=delta)})
    return Budget("basic", _validate.neighbors(neighbors), _text(name=name), limits, limits)


def zcdp(
    *,
    rho: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    neighbors: str,
    name: str = "",
) -> Budget:
    """Return a budget in which the ρ of all releases add up: together they are ρ-zCDP.

    Under the neighbour relation that is named, and for fully adaptive choices. The limit is ρ, or else the largest ρ
    that is (ε, δ)-DP. Many Gaussian releases cost far less than in a `basic` budget.

    Parameters
    ----------
    rho : float, optional
        ρ ≥ 0 for all releases together; 0 refuses everything.
    epsilon, delta : float, optional
        Instead of `rho`: ε ≥ 0 and δ in (0, 1).
    neighbors : {"add_remove", "replace_one"}
        The relation of all amounts.
    name : str, optional
        What is protected, for people to read.

    Returns
    -------
    Budget
        For `Ledger`.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    Notes
    -----
    A running sum of ρ that was spent by choice is not itself a guarantee: only the limit is (`Budget.epsilon`).

    References
    ----------
    Bun, Steinke (2016), Concentrated differential privacy; Feldman, Zrnic (2021), Individual privacy accounting via a
    Rényi filter; Whitehouse, Ramdas, Rogers, Wu (2023), Fully-adaptive composition in differential privacy; Canonne,
    Kamath, Steinke (2020), The discrete Gaussian for differential privacy, for the conversion.

    Examples
    --------
    >>> round(zcdp(rho=0.5, neighbors="add_remove").epsilon(delta=1e-5), 4)
    4.7284
    """
    if not (epsilon is None) == (delta is None) != (rho is None):
        pairs = {"rho": rho, "epsilon": epsilon, "delta": delta}
        given = ", ".join(f"{n}={_validate.shown(x)}" for n, x in pairs.items())
        raise TypeError(f"rho must be given alone, or epsilon and delta must be given without it, got {given}")
    if rho is not None:
        declared = limits = Frozen({"rho": _amounts.amount(rho=rho)})
    else:
        declared = Frozen({"epsilon": _amounts.amount(epsilon=epsilon), "delta": _amounts.small_amount(delta=delta)})
        if declared["delta"] == 0:
            raise ValueError(f"delta must be positive: no rho > 0 is pure, got {_validate.shown(delta)}")
        limits = Frozen({"rho": _zcdp.rho(_least(declared["epsilon"]), _least(declared["delta"]))})
    return Budget("zcdp", _validate.neighbors(neighbors), _text(name=name), declared, limits)


def planned(
    releases: Mapping[str, tuple[Any, int]],
    *,
    accountant: Accountant,
    epsilon: float,
    delta: float,
    neighbors: str,
    name: str = "",
) -> Budget:
    """Return a budget for releases that are all declared in advance: together they are (ε, δ)-DP by an accountant.

    Under the neighbour relation that is named, which must be that of the accountant. The answers may decide in which
    order the releases are made, what each of them asks, and which are left out, but not their parameters.

    Parameters
    ----------
    releases : mapping of str to (mechanism, steps)
        Each release by name, with the mechanism as the accountant takes it and how often it may be made.
    accountant : Accountant
        An object with ``add(mechanism, steps=...)`` and ``epsilon(delta=...)``. The plan is added to what it holds.
    epsilon, delta : float
        ε ≥ 0 and δ in [0, 1) for the whole plan, which must fit.
    neighbors : {"add_remove", "replace_one"}
        The relation of the accountant.
    name : str, optional
        What is protected, for people to read.

    Returns
    -------
    Budget
        For `Ledger`, with one count for each release.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, or the plan costs more than ε at δ.

    References
    ----------
    Blackwell (1953), Equivalent comparisons of experiments; the argument is at the top of this module. Tran, Koskela,
    Räisä, Honkela (2026), f-differential privacy filters, for why the parameters must be fixed.

    Examples
    --------
    >>> class Sum:  # pure ε, as an accountant
    ...     total = 0.0
    ...     def add(self, mechanism, *, steps):
    ...         self.total += mechanism * steps
    ...     def epsilon(self, *, delta):
    ...         return self.total
    >>> plan = {"daily count": (0.125, 4), "histogram": (0.5, 1)}
    >>> print(planned(plan, accountant=Sum(), epsilon=1.0, delta=0.0, neighbors="add_remove"))
    planned budget of epsilon 1, delta 0, daily count 4, histogram 1 under add_remove
    """
    if not isinstance(releases, Mapping):
        raise TypeError(f"releases must be a mapping of names, got {_validate.shown(releases)}")
    limit, at = _amounts.amount(epsilon=epsilon), _amounts.small_amount(delta=delta)
    relation, title = _validate.neighbors(neighbors), _text(name=name)
    if not (callable(getattr(accountant, "add", None)) and callable(getattr(accountant, "epsilon", None))):
        raise TypeError(f"accountant must have add and epsilon, got {_validate.shown(accountant)}")
    if getattr(accountant, "neighbors", relation) != relation:
        raise ValueError(f"accountant must be for neighbors={relation!r}, got {_validate.shown(accountant)}")
    counts: dict[str, Decimal] = {}
    for key, entry in releases.items():
        if not isinstance(key, str) or not key.isprintable() or key in ("epsilon", "delta"):
            raise ValueError(f"releases must have texts as names, not epsilon or delta, got {_validate.shown(key)}")
        if not isinstance(entry, tuple) or len(entry) != 2:
            raise TypeError(f"releases must map to pairs (mechanism, steps), got {_validate.shown(entry)}")
        counts[key] = Decimal(_validate.integer(**{f"releases[{key!r}]": entry[1]}))
    for key, (mechanism, _) in releases.items():
        changed = accountant.add(mechanism, steps=int(counts[key]))
        accountant = accountant if changed is None else changed
    cost = _validate.real("the cost of the plan", epsilon=accountant.epsilon(delta=down(at)))
    if not 0 <= cost < math.inf or Fraction(cost) > Fraction(limit):
        price = f"{cost} at delta={_amounts.shown(at)}"
        raise ValueError(f"epsilon must cover the plan, which costs {price}, got {_amounts.shown(limit)}")
    declared = Frozen({"epsilon": limit, "delta": at, **counts})
    return Budget("planned", relation, title, declared, Frozen(counts), certified=cost)


def _paid(amounts: Amounts) -> str:
    return listed({name: value for name, value in amounts.items() if value})


@dataclass(frozen=True)
class Spend:
    """One line of the ledger: what was spent on what by whom and when (UTC), and what was left then."""

    number: int
    time: str
    who: str
    label: str
    amount: Amounts
    remaining: Amounts

    def __str__(self) -> str:
        who = f" ({self.who})" if self.who else ""
        return f"{self.number}. {self.label}{who}: {_paid(self.amount)}; left: {listed(self.remaining)}"


@dataclass(frozen=True)
class Receipt(Spend):
    """The proof that a spend was recorded. ``with receipt:`` encloses the release that it pays for, once.

    Leaving the block, with an exception or without, gives nothing back: the data may have been read.
    """

    asked: Amounts = field(repr=False)
    _used: Any = field(default_factory=threading.Lock, repr=False, compare=False)

    def __enter__(self) -> "Receipt":
        if not self._used.acquire(blocking=False):
            raise RuntimeError(f"spend {self.number} ({self.label}) has paid for one release already")
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def _float(self, name: str) -> float:
        if name not in self.asked:
            raise AttributeError(f"spend {self.number} ({self.label}) was made in {', '.join(self.asked)}, not {name}")
        return down(self.asked[name])

    @property
    def epsilon(self) -> float:
        """Return the ε for the mechanism, the largest float64 that is not above what was recorded."""
        return self._float("epsilon")

    @property
    def delta(self) -> float:
        """Return the δ for the mechanism, rounded down in the same way."""
        return self._float("delta")

    @property
    def rho(self) -> float:
        """Return the ρ for the mechanism, rounded down in the same way."""
        return self._float("rho")

    def sigma(self, *, sensitivity: float) -> float:
        """Return the standard deviation of Gaussian noise that costs the recorded ρ: ``Δ₂ / sqrt(2 ρ)``, rounded up.

        Parameters
        ----------
        sensitivity : float
            L2 sensitivity Δ₂ ≥ 0, under the budget's neighbour relation.

        Raises
        ------
        TypeError, ValueError, AttributeError
            When a parameter breaks its rule, or the spend was not made in ρ.
        """
        size = Fraction(_validate.non_negative(sensitivity=sensitivity))
        self._float("rho")
        return sqrt_up(size**2 / (2 * Fraction(self.asked["rho"])))


class Ledger:
    """A record of what was spent of a `Budget`; whatever does not fit is refused.

    ``Ledger(budget)`` lives in the memory of one process; it is thread-safe, and refuses to be copied, pickled or used
    after a fork. `Ledger.create` and `Ledger.open` keep it in a file, for many processes and for longer.

    Parameters
    ----------
    budget : Budget
        From `basic`, `zcdp` or `planned`.

    Raises
    ------
    TypeError
        When it is no budget.

    Examples
    --------
    >>> ledger = Ledger(basic(epsilon=1.0, neighbors="replace_one"))
    >>> with ledger.spend(epsilon=0.25, label="mean age") as paid:
    ...     paid.epsilon  # for the mechanism
    0.25
    >>> print(ledger)
    basic budget of epsilon 1, delta 0 under replace_one
    1. mean age: epsilon 0.25; left: epsilon 0.75, delta 0
    """

    def __init__(self, budget: Budget) -> None:
        if not isinstance(budget, Budget):
            raise TypeError(f"budget must be a Budget, from basic, zcdp or planned, got {_validate.shown(budget)}")
        self._budget = budget
        self._store: MemoryStore | FileStore = MemoryStore()

    @classmethod
    def create(cls, path: Any, budget: Budget, *, timeout: float = 10.0) -> "Ledger":
        """Start a ledger in a new file; every spend is on the disk before it is acknowledged.

        Parameters
        ----------
        path : str or os.PathLike
            A file that does not exist yet, on a local disk (network drives often lack the locks it needs).
        budget : Budget
            From `basic`, `zcdp` or `planned`.
        timeout : float, optional
            For how many seconds to wait for another process.

        Raises
        ------
        LedgerError
            When the file exists already or cannot be made. A second `create` would start the budget afresh.
        """
        ledger = cls(budget)
        store = FileStore(Path(path).absolute(), _validate.positive(timeout=timeout))
        store.create(budget._dump())
        ledger._store = store
        return ledger

    @classmethod
    def open(cls, path: Any, budget: Budget | None = None, *, timeout: float = 10.0) -> "Ledger":
        """Continue the ledger in a file that `create` made, after a check of every line.

        Parameters
        ----------
        path : str or os.PathLike
            The file.
        budget : Budget, optional
            What the file is expected to hold; another budget is refused.
        timeout : float, optional
            For how many seconds to wait for another process.

        Raises
        ------
        LedgerError
            When the file is missing, damaged, no ledger, or of another budget.
        """
        store = FileStore(Path(path).absolute(), _validate.positive(timeout=timeout))
        text = store.open()
        try:
            found = Budget._load(text)
        except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
            raise LedgerError(f"the ledger {store.path} is damaged: its budget cannot be read ({error})") from error
        ledger = cls(found if budget is None else budget)
        if ledger._budget != found:
            raise LedgerError(f"{store.path} holds another budget: {found}, not {ledger._budget}")
        ledger._budget, ledger._store = found, store
        return ledger

    def __reduce__(self) -> Any:
        raise TypeError("a ledger must not be copied or pickled: a copy would spend the budget twice; pass its path")

    def spend(
        self,
        *,
        label: str,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        release: str | None = None,
        who: str = "",
    ) -> Receipt:
        """Record a spend, or refuse it. Call it before the data is read: there is no way to take it back.

        Parameters
        ----------
        label : str
            What is released. No data.
        epsilon, delta : float, optional
            In a `basic` budget: the release is (ε, δ)-DP; one that is left out counts as 0. In a `zcdp` budget,
            `epsilon` alone stands for a pure ε-DP release, which is ε²/2-zCDP.
        rho : float, optional
            In a `zcdp` budget: the release is ρ-zCDP. Gaussian noise has ``rho = (sensitivity / sigma)**2 / 2``;
            `dpbook.rdp.gaussian_zcdp` rounds it up such that the decimal that is recorded is not below it.
        release : str, optional
            In a `planned` budget: which of the declared releases is made.
        who : str, optional
            Who asks.

        Returns
        -------
        Receipt
            With the floats for the mechanism; usable in a ``with`` statement.

        Raises
        ------
        BudgetExceededError
            When it does not fit. Nothing is recorded.
        LedgerError
            When the ledger cannot be used. The data must not be read.
        TypeError, ValueError
            When a parameter breaks its rule, or the spend is 0.

        Notes
        -----
        The amounts may depend on earlier releases, but not on the data in any other way.
        """
        title, asker = _text(label=label), _text(who=who)
        if not title.strip():
            raise ValueError(f"label must say what is released, got {title!r}")
        asked = self._asked(epsilon=epsilon, delta=delta, rho=rho, release=release)
        amount = _in_currency(self._budget, asked)
        limits = self._budget.limits

        def decide(spent: Amounts) -> Amounts:
            return _within(limits, spent, amount)

        record = self._store.append(who=asker, label=title, amount=amount, decide=decide)
        line = self._line(record)
        return Receipt(record.number, record.time, asker, title, line.amount, line.remaining, Frozen(asked))

    def _asked(self, *, release: Any, **amounts: Any) -> dict[str, Decimal]:
        kind = self._budget.accounting
        given = {name for name, value in {**amounts, "release": release}.items() if value is not None}
        allowed = {"basic": {"epsilon", "delta"}, "zcdp": {"rho", "epsilon"}, "planned": {"release"}}[kind]
        for name in sorted(given - allowed):
            value = release if name == "release" else amounts[name]
            raise TypeError(f"{name} must be left out in a {kind} budget, got {_validate.shown(value)}")
        if kind == "planned":
            plan = self._budget.limits
            if not isinstance(release, str):
                raise TypeError(f"release must be the name of a planned release, got {_validate.shown(release)}")
            if release not in plan:
                raise ValueError(f"release must be one of {sorted(plan)}, got {_validate.shown(release)}")
            return {release: Decimal(1)}
        if kind == "zcdp" and len(given) != 1:
            raise TypeError(
                "rho must be given, or else epsilon for a pure release, got " + ("both" if given else "None")
            )
        checks: dict[str, Any] = {"epsilon": _amounts.amount, "rho": _amounts.amount, "delta": _amounts.small_amount}
        asked: dict[str, Decimal] = {n: checks[n](**{n: x}) for n, x in amounts.items() if n in given}
        if not any(asked.values()):
            names = " or ".join(sorted(allowed))
            raise ValueError(f"{names} must be positive: a release that costs nothing needs no spend, got 0")
        return asked

    def _line(self, record: Record) -> Spend:
        left = _left(self._budget.limits, record.spent)
        return Spend(record.number, record.time, record.who, record.label, Frozen(record.amount), Frozen(left))

    @property
    def budget(self) -> Budget:
        """What the ledger started with."""
        return self._budget

    @property
    def spent(self) -> dict[str, Decimal]:
        """What was spent so far, exactly, by name."""
        return dict.fromkeys(self._budget.limits, Decimal(0)) | dict(self._store.spent())

    @property
    def remaining(self) -> dict[str, Decimal]:
        """What was left at this moment; ask `spend`, not this, whether something fits."""
        return _left(self._budget.limits, self._store.spent())

    @property
    def history(self) -> tuple[Spend, ...]:
        """Every spend, in order."""
        return tuple(self._line(record) for record in self._store.records())

    def spent_epsilon(self, *, delta: float = 0.0) -> float:
        """Return the ε of what was spent so far, if amounts and stopping did not depend on the answers.

        Under the budget's neighbour relation. For pure ε in a `basic` budget it holds for adaptive choices too. In all
        other cases only the limit does: see `Budget.epsilon`. For a plan there is no such number.

        Parameters
        ----------
        delta : float, optional
            δ in [0, 1). The result is infinite where more δ was spent.

        Raises
        ------
        TypeError, ValueError
            When a parameter breaks its rule, or the budget is `planned`.
        """
        asked, spent = _amounts.small_amount(delta=delta), self.spent
        if self._budget.accounting == "planned":
            raise ValueError("spent_epsilon must be asked of a basic or zcdp budget, got planned: see Budget.epsilon")
        if self._budget.accounting == "zcdp":
            return _zcdp_at(spent["rho"], asked)
        return _amounts.up(spent["epsilon"]) if asked >= spent["delta"] else math.inf

    def statement(
        self,
        *,
        unit: str,
        details: Mapping[str, str] | None = None,
        not_covered: Sequence[str] = (),
        delta: float | None = None,
    ) -> str:
        """Return the privacy statement to publish: who is protected, by which guarantee, and what each release cost.

        The guarantee is the limit of the budget, under its neighbour relation, which holds for every way to choose the
        releases and to stop: it covers what may still be spent, and what was left out of a plan. It cannot know of a
        release without a spend, nor whether `unit`, `details` and `not_covered` are true. Who asked, and when, is left
        out.

        Parameters
        ----------
        unit : str
            Whose data the relation adds, removes or replaces: "one patient, with all visits".
        details : mapping of str to str, optional
            For the labels of `history`: mechanism, bounds, how many rows of a person count.
        not_covered : sequence of str, optional
            What readers might think is protected, or counted in the intervals, and is not.
        delta : float, optional
            In a `zcdp` budget of ρ alone: state its ε at this δ in (0, 1) too.

        Returns
        -------
        str
            Lines of at most 80 characters where words allow it; amounts are exact or rounded up. No data, if labels and
            texts hold none.

        Raises
        ------
        TypeError, ValueError
            When a parameter breaks its rule, or `details` has a label that nothing was spent on.

        Examples
        --------
        >>> ledger = Ledger(basic(epsilon=1.0, neighbors="add_remove"))
        >>> _ = ledger.spend(epsilon=0.25, label="visits")
        >>> print(ledger.statement(unit="one patient, with all visits", details={"visits": "Laplace noise"}))
        Unit of privacy: one patient, with all visits.
        Neighbour relation: add_remove (all rows of one unit are added or removed).
        Guarantee: all releases under this budget together are ε-differentially private
          with ε = 1.
        Releases (basic accounting):
          1. visits: epsilon 0.25. Laplace noise
        """
        owner, history, limit = _text(unit=unit), self.history, self._budget
        if not owner.strip():
            raise ValueError(f"unit must say whose data is protected, got {owner!r}")
        notes = _texts("details", details)
        for label in notes.keys() - {spend.label for spend in history}:
            raise ValueError(f"details must be for labels of the history, got {label!r}")
        if isinstance(not_covered, str) or not isinstance(not_covered, Sequence):
            raise TypeError(f"not_covered must be a list of texts, got {_validate.shown(not_covered)}")
        gaps = [_text(**{f"not_covered[{i}]": gap}) for i, gap in enumerate(not_covered)]
        if delta is not None and "rho" not in limit.declared:
            raise TypeError(f"delta must be left out, as the budget states its own, got {_validate.shown(delta)}")
        relation = {"add_remove": "are added or removed", "replace_one": "are replaced by those of another"}
        lines = [
            f"Unit of privacy: {owner.strip().rstrip('.')}.",
            f"Neighbour relation: {limit.neighbors} (all rows of one unit {relation[limit.neighbors]}).",
            f"Guarantee: all releases under this budget together are {_guarantee(limit, delta)}.",
            f"Releases ({limit.accounting} accounting):",
        ]
        for spend in history:
            note = f". {notes[spend.label]}" if spend.label in notes else ""
            cost = ", ".join(f"{name} {_rounded_up(x)}" for name, x in spend.amount.items() if x)
            if limit.accounting == "planned":
                (name,) = (name for name, x in spend.amount.items() if x)
                cost = f"planned as {name}, at most {_amounts.shown(limit.limits[name])} of these"
            lines.append(f"  {spend.number}. {spend.label}: {cost}{note}")
        lines += ["Not covered:", *(f"  - {gap}" for gap in gaps)] if gaps else []
        fold = textwrap.TextWrapper(80, break_long_words=False, break_on_hyphens=False)
        rows = []
        for line in lines:
            fold.subsequent_indent = "     " if line.startswith(" ") else "  "
            rows += fold.wrap(line)
        return "\n".join(rows)

    def __str__(self) -> str:
        return "\n".join([str(self._budget), *map(str, self.history)])

    def __repr__(self) -> str:
        return f"<Ledger, {self._budget}; left: {listed(self.remaining)}>"


def _texts(name: str, given: Any) -> dict[str, str]:
    if not isinstance(given, (Mapping, type(None))):
        raise TypeError(f"{name} must be a mapping of labels to texts, got {_validate.shown(given)}")
    return {_text(**{f"label in {name}": k}): _text(**{f"{name}[{k!r}]": text}) for k, text in (given or {}).items()}


def _guarantee(limit: Budget, delta: float | None) -> str:
    """Return the guarantee of all that the budget ever lets through, in words; an ε that is not exact is rounded up."""
    parts = {name: _rounded_up(x) for name, x in limit.declared.items()}
    if "rho" not in parts:
        if not limit.declared["delta"]:
            return f"ε-differentially private with ε = {parts['epsilon']}"
        return f"(ε, δ)-differentially private with ε = {parts['epsilon']} and δ = {parts['delta']}"
    text = f"ρ-zCDP with ρ = {parts['rho']}"
    if delta is None:
        return text
    at = _amounts.small_amount(delta=delta)
    if not at:
        raise ValueError(f"delta must be positive, as no rho > 0 is pure, got {_validate.shown(delta)}")
    epsilon = _rounded_up(Decimal(limit.epsilon(delta=delta)), digits=6)
    return f"{text}, so (ε, δ)-differentially private with ε = {epsilon} and δ = {_rounded_up(at)}"


def _rounded_up(value: Decimal, digits: int = 20) -> str:
    return _amounts.shown(Context(prec=digits, rounding=ROUND_CEILING).plus(value))


def _in_currency(budget: Budget, asked: Amounts) -> Amounts:
    """Return one amount for each limit; a pure ε-DP release is ε²/2-zCDP (Bun and Steinke, 2016, Prop. 1.4)."""
    if budget.accounting == "zcdp" and "epsilon" in asked:
        context = exact()
        square = context.multiply(asked["epsilon"], asked["epsilon"])
        asked = {"rho": context.normalize(context.multiply(square, Decimal("0.5")))}
    return {name: asked.get(name, Decimal(0)) for name in budget.limits}


def _left(limits: Amounts, spent: Amounts) -> dict[str, Decimal]:
    minus = exact().subtract
    return {name: exact().normalize(minus(limit, spent.get(name, Decimal(0)))) for name, limit in limits.items()}


def _within(limits: Amounts, spent: Amounts, amount: Amounts) -> dict[str, Decimal]:
    """Return what is spent after the amount, or raise: every name is held against its own limit."""
    if spent and spent.keys() != limits.keys():
        raise LedgerError(f"the ledger is damaged: it counts {list(spent)} instead of {list(limits)}")
    total = add(spent, amount)
    if any(total[name] > limits[name] for name in limits):
        left = _left(limits, spent)
        raise BudgetExceededError(
            f"refused: {_paid(amount)} asked, {listed(left)} left of {listed(limits)}; nothing was recorded",
            requested=amount,
            remaining=left,
        )
    return total
