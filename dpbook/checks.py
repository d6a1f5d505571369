"""Checks that need few runs: which doubles come out, how far a neighbour moves a query, how a ledger adds up.

None of them proves privacy. Each looks for one kind of fault that an audit of probabilities (`dpbook.audit`) would
miss or find late, and says what it has tried.
"""

import contextlib
import math
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from dpbook import _events, _validate
from dpbook._validate import ADD_REMOVE, FloatArray, IntArray
from dpbook.audit import Audit, audit

HOSTILE = (0.0, -0.0, 1.0, -1.0, 1e9, -1e9, 5e-324, 1.7e308, -1.7e308, math.inf, -math.inf, math.nan)
RELATIVE_SLACK = 2.0**-40  # of the declared sensitivity: rounding in the query is no finding
MOST_FAULTS = 5  # of each kind


# --- which doubles come out ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LatticeTest:
    """Which doubles came out: the steps (powers of two) of both sides, and the audit of the last digits.

    `verdict` is "leak" (the audit refutes the claim by digits alone), "public grid" (all outputs of both sides are
    multiples of one step, which no output is too large to show), or "no grid seen".
    """

    steps: tuple[float, float]
    on_grid: bool
    audit: Audit

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        return "leak" if self.audit.violated else "public grid" if self.on_grid else "no grid seen"

    def __repr__(self) -> str:
        steps = " and ".join("0" if s == 0 else f"2**{math.frexp(s)[1] - 1}" for s in self.steps)
        return f"{self.verdict}: outputs are multiples of {steps}\n{self.audit!r}"


def _lowest_bit(y: FloatArray) -> FloatArray:
    """Return the exponent of the last binary digit of each number that is not 0; 2000 for zero, infinities and NaN."""
    mantissa, exponent = np.frexp(np.where(np.isfinite(y), y, 0.0))
    whole: IntArray = np.abs(np.ldexp(mantissa, 53)).astype(np.int64)
    last = np.frexp((whole & -whole).astype(np.float64))[1] - 1
    result: FloatArray = np.where(whole == 0, 2000.0, exponent - 53.0 + last)
    return result


def _reachable(y: FloatArray, value: float) -> npt.NDArray[np.bool_]:
    """Say whether some double, added to the value in floating point, gives y."""
    with np.errstate(all="ignore"):
        z = y - value
        near = (z, np.nextafter(z, -np.inf), np.nextafter(z, np.inf))
        return np.asarray(np.any([value + noise == y for noise in near], axis=0))


def lattice_test(
    release: Callable[..., Any],
    first: float,
    second: float,
    *,
    epsilon: float,
    delta: float = 0.0,
    alpha: float = 0.001,
    draws: int = 20_000,
    vectorized: bool = False,
) -> LatticeTest:
    """Try to refute (ε, δ)-DP by the last digits alone: which doubles come out for two true values that are neighbours.

    What is audited of each output: the place of its last binary digit, and whether a float64 addition to the one or the
    other value can give it at all. Holes of one particular sampler are not looked for.

    Parameters
    ----------
    release : callable
        ``release(value)`` returns one number, or with ``vectorized=True`` ``release(value, count)`` an array of them.
    first, second : float
        True values of two neighbours.
    epsilon, delta : float, optional
        The claim.
    alpha : float, optional
        Probability of a false "leak".
    draws : int, optional
        Draws of each value.
    vectorized : bool, optional
        See `release`.

    Returns
    -------
    LatticeTest
        Verdict, steps, and the audit of the digits.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, or the outputs are no numbers.

    References
    ----------
    Mironov (2012); Haney, Desfontaines, Hartman, Shrestha, Hay (2022); Jin, McMurtry, Rubinstein, Ohrimenko (2022).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)  # seeded: not private
    >>> lattice_test(lambda x: x + rng.laplace(), 0.0, 1.0, epsilon=1.0, draws=1000).verdict
    'leak'
    """
    if not callable(release):
        raise TypeError(f"release must be callable, got {type(release).__name__}")
    values = _validate.finite(first=first), _validate.finite(second=second)
    many = _validate.flag(vectorized=vectorized)
    finest, largest = [math.inf, math.inf], [0.0, 0.0]

    reach = np.array(["neither value", "the first value only", "the second value only", "both values"])

    def digits(side: int, count: int) -> npt.NDArray[Any]:
        value = values[side]
        raw = release(value, count) if many else [release(value) for _ in range(count)]
        y = np.asarray(raw)
        if y.dtype.kind not in "biuf" or y.shape != (count,):
            raise ValueError("release must return one number in each draw for a lattice test")
        y = y.astype(np.float64)
        bits = _lowest_bit(y)
        finest[side] = min(finest[side], float(bits.min()))
        largest[side] = max(largest[side], float(np.abs(y[np.isfinite(y)]).max(initial=0.0)))
        code = _reachable(y, values[0]) + 2 * _reachable(y, values[1])
        return np.array([f"last digit 2**{b:.0f}, possible for {r}" for b, r in zip(bits, reach[code], strict=True)])

    found = audit(digits, 0, 1, epsilon=epsilon, delta=delta, alpha=alpha, draws=draws, vectorized=True)
    steps = [0.0 if f >= 2000.0 else math.ldexp(1.0, int(f)) for f in finest]
    on_grid = steps[0] == steps[1] > 0.0 and steps[0] >= math.ulp(max(largest))
    return LatticeTest((steps[0], steps[1]), on_grid, found)


# --- how far a neighbour moves a query -------------------------------------------------------------------------------


@dataclass(frozen=True)
class SensitivityCheck:
    """What the replay found: the largest change of all pairs tried, beside the declared sensitivity, and the faults."""

    declared: float
    largest: float
    pairs: int
    faults: tuple[str, ...]
    worst: tuple[Any, Any] | None = field(repr=False)  # the two datasets of the largest change

    @property
    def passed(self) -> bool:
        """Whether no fault was seen."""
        return not self.faults


@dataclass(frozen=True)
class _Outcome:
    form: Any
    numbers: FloatArray
    warned: tuple[str, ...]


def _run(query: Callable[[Any], Any], records: Any) -> _Outcome:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            form, numbers = _events.form_and_numbers(query(records))
        except Exception as error:
            form, numbers = _events.Raised(type(error).__name__), ()
    return _Outcome(form, np.array(numbers, dtype=np.float64), tuple(w.category.__name__ for w in caught))


def _neighbors_of(
    base: list[Any], entries: list[Any], relation: str, rng: np.random.Generator, count: int
) -> Iterator[tuple[str, list[Any]]]:
    """Yield descriptions and neighbours of a dataset: first one for every entry, then random ones."""
    n = len(base)
    for k in range(count):
        entry = entries[k] if k < len(entries) else entries[rng.integers(len(entries))]
        at = int(rng.integers(n)) if n else 0
        if relation == ADD_REMOVE:
            if n and k >= len(entries) and k % 2:
                yield f"removing entry {at} of {n}", base[:at] + base[at + 1 :]
            else:
                yield f"adding {_validate.shown(entry)} to {n} entries", [*base[:at], entry, *base[at:]]
        elif n:
            yield f"replacing entry {at} of {n} by {_validate.shown(entry)}", [*base[:at], entry, *base[at + 1 :]]


def check_sensitivity(
    query: Callable[[Any], Any],
    data: Any,
    *,
    sensitivity: float,
    neighbors: str,
    norm: str = "l1",
    entries: Sequence[Any] = (),
    tries: int = 1000,
    slack: float = 0.0,
    seed: int = 0,
) -> SensitivityCheck:
    """Run a query on pairs of neighbours and compare the change with the sensitivity that is declared for the relation.

    The pairs start from `data`, from datasets of one repeated entry, from random mixtures, and under add/remove from
    the empty one. Besides the change, the form of the output, exceptions and warnings must not depend on one person.
    A pass proves nothing: it is a search.

    Parameters
    ----------
    query : callable
        Takes a dataset like `data` and returns numbers, without noise. For a whole release, let it make a new generator
        from a fixed seed in every call: the noise then cancels, up to its grid (`slack`).
    data : sequence
        One entry a person: a list (of any records) or a one-dimensional array of numbers. Under replace-one its length
        is the public n.
    sensitivity : float
        Declared Δ ≥ 0.
    neighbors : {"add_remove", "replace_one"}
        The relation of the declaration.
    norm : {"l1", "l2"}, optional
        How a change of several numbers is measured.
    entries : sequence, optional
        What one person's entry may be, besides the entries of `data`: the extreme ones. When all entries are numbers,
        NaN, infinities, zeros and huge numbers are tried too.
    tries : int, optional
        Number of pairs.
    slack : float, optional
        A change is a fault when it exceeds the sensitivity by more than this and one part in 2**40.
    seed : int, optional
        Which random pairs are tried.

    Returns
    -------
    SensitivityCheck
        Largest change, faults (at most 5 of each kind), and the worst pair.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, or the query raises on `data` itself.

    References
    ----------
    The definition of sensitivity: Dwork, McSherry, Nissim, Smith (2006), Def. 2; replaying neighbours: Cebere, Erb,
    Desfontaines, Bellet, Fitzsimons (2026).

    Examples
    --------
    >>> check_sensitivity(len, [1, 2, 3], sensitivity=1, neighbors="add_remove").passed
    True
    >>> found = check_sensitivity(sum, [1.0, 2.0], sensitivity=10, neighbors="add_remove")  # forgot to clip
    >>> found.passed, found.largest
    (False, inf)
    """
    if not callable(query):
        raise TypeError(f"query must be callable, got {type(query).__name__}")
    declared, relation = _validate.non_negative(sensitivity=sensitivity), _validate.neighbors(neighbors)
    kind, most = _validate.choice(("l1", "l2"), norm=norm), _validate.integer(tries=tries)
    extra, rng = _validate.non_negative(slack=slack), np.random.default_rng(_validate.integer(0, seed=seed))
    base = _listed("data", data)
    pool = [*_listed("entries", entries), *base]
    numeric = all(isinstance(x, (int, float, np.integer, np.floating)) and not isinstance(x, bool) for x in pool)
    special = [*pool[: len(pool) - len(base)], *(HOSTILE if numeric else ())]
    pool = pool + [x for x in special if not numeric or math.isfinite(x)]
    if relation != ADD_REMOVE and not base:
        raise ValueError("data must have at least one entry under 'replace_one', where the number of people is public")

    def dataset(records: list[Any]) -> Any:
        if isinstance(data, np.ndarray):
            return np.array(records, dtype=np.float64 if numeric else object)
        return list(records)

    size = len(base)
    starts = [base, *([x] * size for x in pool[-12:])]
    starts += [[pool[i] for i in rng.integers(len(pool), size=size)] for _ in range(4)]
    starts += [[], base[:1]] if relation == ADD_REMOVE else []
    if _events.is_raised((first := _run(query, dataset(base))).form):
        raise ValueError(f"query must work on data, got {first.form.exception}")
    limit = declared * (1.0 + RELATIVE_SLACK) + extra
    faults: dict[str, dict[str, None]] = {}
    largest, worst, pairs = 0.0, None, 0
    for start in starts:
        here = _run(query, dataset(start))
        for what, there_records in _neighbors_of(start, special or pool, relation, rng, -(-most // len(starts))):
            there, pairs = _run(query, dataset(there_records)), pairs + 1
            fault, change = _compare(here, there, kind)
            if change > largest or worst is None:
                largest, worst = max(change, largest), (dataset(start), dataset(there_records))
            kind_of_fault, text = fault, f"{what} {fault}"
            if change > limit and not fault:
                kind_of_fault, text = "moved", f"{what} moves the result by {change:g}, more than {declared:g}"
            if kind_of_fault and len(faults.setdefault(kind_of_fault, {})) < MOST_FAULTS:
                faults[kind_of_fault][text] = None
    texts = tuple(text for found in faults.values() for text in found)
    return SensitivityCheck(declared, largest, pairs, texts, worst)


def _listed(name: str, value: Any) -> list[Any]:
    if isinstance(value, (list, tuple, range)) or (isinstance(value, np.ndarray) and value.ndim == 1):
        return value.tolist() if isinstance(value, np.ndarray) else list(value)
    raise TypeError(f"{name} must be a list, tuple, range or one-dimensional array, got {type(value).__name__}")


def _compare(here: _Outcome, there: _Outcome, norm: str) -> tuple[str, float]:
    if here.form != there.form:
        if _events.is_raised(here.form) or _events.is_raised(there.form):
            return "makes or mends an exception", 0.0
        return "changes the form of the output", 0.0
    if here.warned != there.warned:
        return "changes the warnings", 0.0
    with np.errstate(all="ignore"):
        gap = np.abs(here.numbers - there.numbers)
        change = float(gap.sum() if norm == "l1" else np.sqrt((gap**2).sum()))
    if not (np.isfinite(here.numbers).all() and np.isfinite(there.numbers).all()):
        return "leads to a number that is not finite", math.inf if math.isnan(change) else change
    return "", change


# --- how a ledger adds up --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LedgerCheck:
    """What the arithmetic checks of a budget found."""

    checks: int
    faults: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether no fault was seen."""
        return not self.faults


SHOULD_FIT: tuple[tuple[float, tuple[float, ...]], ...] = (
    (1.0, (0.1,) * 10),
    (0.3, (0.1,) * 3),
    (1.0, (0.1, 0.9)),
    (1.0, (0.7, 0.2, 0.1)),
    (0.7, (0.1,) * 7),
    (3.0, (0.1, 0.2) * 10),
    (1.0, (1.0,)),
    (1.0, (0.01,) * 100),
)
BAD_SPENDS: tuple[Any, ...] = (math.nan, -1.0, -1e-300, math.inf, -math.inf, True, "0.1", None, 1j, [0.1])


def check_ledger(
    make: Callable[[float], Any], *, spend: Callable[[Any, Any], Any] | None = None, threads: int = 50
) -> LedgerCheck:
    """Check the arithmetic of a budget: what fits is granted, what does not is refused, and a refusal changes nothing.

    When a spend is granted with something for a ``with`` statement, it must be charged before the block, in which the
    data is read, and must stay charged after it, whether the block raises an exception or not. The neighbour relation
    plays no part: the ledger adds what its caller declares.

    Parameters
    ----------
    make : callable
        ``make(total)`` returns a new ledger with this total ε.
    spend : callable, optional
        ``spend(ledger, epsilon)`` asks for ε; an exception or a returned False is a refusal. By default
        ``ledger.spend(epsilon=epsilon)``.
    threads : int, optional
        How many threads ask at the same time in the last check.

    Returns
    -------
    LedgerCheck
        Number of checks, and the faults in words.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    Basic composition: Dwork, McSherry, Nissim, Smith (2006); decimal ε are meant as decimals: 10 times 0.1 is 1.

    Examples
    --------
    >>> class Naive:
    ...     def __init__(self, total):
    ...         self.left = total
    ...     def spend(self, epsilon):
    ...         if self.left - epsilon < 0:
    ...             raise ValueError("over budget")
    ...         self.left -= epsilon
    >>> check_ledger(Naive).faults[0]
    'refuses spend 3 of 0.1, 0.1, 0.1 out of 0.3'
    """
    if not callable(make):
        raise TypeError(f"make must be callable, got {type(make).__name__}")
    if spend is not None and not callable(spend):
        raise TypeError(f"spend must be callable or None, got {type(spend).__name__}")
    workers = _validate.integer(threads=threads)
    ask = spend if spend is not None else lambda ledger, epsilon: ledger.spend(epsilon=epsilon)

    def granted(ledger: Any, epsilon: Any) -> bool:
        try:
            return ask(ledger, epsilon) is not False
        except Exception:
            return False

    faults: list[str] = []
    checks = 0
    for total, parts in SHOULD_FIT:
        ledger, shown = make(total), ", ".join(map(str, parts[:3])) + (", …" if len(parts) > 3 else "")
        for i, part in enumerate(parts, start=1):
            if not granted(ledger, part):
                faults.append(f"refuses spend {i} of {shown} out of {total}")
                break
        else:
            slivers = sum(granted(ledger, sliver) for sliver in (1e-9, 1e-12, *([1e-15] * 1000), total))
            if slivers:
                faults.append(f"grants {slivers} more spends after {shown} have used up {total}")
        checks += 1
    for bad in BAD_SPENDS:
        ledger = make(1.0)
        if granted(ledger, bad):
            faults.append(f"grants a spend of {bad!r}")
        elif not granted(ledger, 1.0) or granted(ledger, 0.5):
            faults.append(f"is changed by the refused spend of {bad!r}")
        checks += 1
    ledger = make(1.0)
    if granted(ledger, 1.5) or not granted(ledger, 1.0):
        faults.append("grants 1.5 out of 1.0, or is changed by refusing it")
    try:
        empty = make(0.0)
    except (TypeError, ValueError):
        empty = None  # a total of 0 may be refused
    if empty is not None and any(granted(empty, epsilon) for epsilon in (1e-9, 1.0)):
        faults.append("grants spends out of a total of 0")
    if (count := _race(make(1.0), granted, workers)) > 10:
        faults.append(f"grants {count} of {workers} spends of 0.1 out of 1.0, asked for at the same time")
    faults += _blocks(make, ask, granted)
    return LedgerCheck(checks + 4, tuple(faults))


class _Interrupted(Exception):
    """What the block of a release raises here."""


def _blocks(
    make: Callable[[float], Any], ask: Callable[[Any, Any], Any], granted: Callable[[Any, Any], bool]
) -> Iterator[str]:
    for error in (None, _Interrupted()):
        ledger = make(1.0)
        try:
            paid = ask(ledger, 1.0)
        except Exception:
            return  # has been reported: all of the total should fit
        if not (hasattr(paid, "__enter__") and hasattr(paid, "__exit__")):
            return
        early = False
        with contextlib.suppress(_Interrupted), paid:
            early = granted(ledger, 1.0)  # the data is being read
            if error:
                raise error
        if early:
            yield "charges for a release only after its block, when the data has been read"
            return
        if granted(ledger, 1.0):
            yield "gives back what a release cost" + (" when its block raises an exception" if error else "")
            return


def _race(ledger: Any, granted: Callable[[Any, Any], bool], workers: int) -> int:
    start, results = threading.Barrier(workers), [False] * workers

    def one(i: int) -> None:
        start.wait()
        results[i] = granted(ledger, 0.1)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(workers)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    return sum(results)
