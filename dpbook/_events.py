"""Outputs of any kind as cells, and the best event of cells: what `dpbook.audit` looks for in draws.

An output is split into a *key* (its form: type, shape, names, text) and a row of numbers. A *view* turns the row into
one score: a coordinate, a difference, a direction. A *partition* cuts the scores into cells, with single values that
come often as cells of their own. An *event* is a set of cells.
"""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dpbook._validate import FloatArray, IntArray

MOST_VALUES = 2**14  # single values that get a cell of their own
MOST_COORDINATES, MOST_PAIRED = 16, 6  # coordinates that get a view, and those whose differences do


class Batch(NamedTuple):
    """Draws in order: their form, and their numbers."""

    form: Any  # the form of all of them, or None when `forms` has one for each
    forms: list[Any] | None
    rows: Any  # array (draws, numbers), or a list of tuples when there are several forms


class Draws(NamedTuple):
    """All draws of one side: the code of each form, and the numbers of those with the most frequent form (code 0)."""

    codes: IntArray
    values: FloatArray


class Raised(NamedTuple):
    """Stands for a draw that ended in an exception of this type."""

    exception: str


def is_raised(form: Any) -> bool:
    return isinstance(form, Raised)


def form_and_numbers(output: Any) -> tuple[Any, tuple[float, ...]]:
    """Return the form of an output, hashable, and the numbers in it."""
    if isinstance(output, (bool, int, float, np.bool_, np.integer, np.floating)):
        try:
            return "number", (float(output),)
        except OverflowError:
            return "number", (np.inf if output > 0 else -np.inf,)
    if isinstance(output, Raised):
        return output, ()
    if isinstance(output, np.generic) and output.dtype.kind not in "c":
        output = output.item()  # text, bytes, dates
    if isinstance(output, (complex, np.complexfloating)):
        return "complex", (float(output.real), float(output.imag))
    if isinstance(output, Mapping):
        parts = [form_and_numbers(part) for part in output.values()]
        names: tuple[Any, ...] = tuple(repr(name) for name in output)
    elif dataclasses.is_dataclass(output) and not isinstance(output, type):
        fields = [f.name for f in dataclasses.fields(output)]
        parts = [form_and_numbers(getattr(output, name)) for name in fields]
        names = (type(output).__name__, *fields)
    elif isinstance(output, (list, tuple)):
        parts, names = [form_and_numbers(part) for part in output], (type(output).__name__,)
    elif hasattr(output, "__array__") and np.asarray(output).dtype.kind in "biuf":
        array, index = np.asarray(output), getattr(output, "index", None)
        labels = () if index is None or callable(index) else tuple(map(str, index))
        return ("array", array.shape, labels), tuple(array.astype(np.float64).reshape(-1).tolist())
    elif hasattr(output, "__array__"):
        return ("array", repr(np.asarray(output).tolist())), ()
    else:
        return ("value", repr(sorted(output, key=repr) if isinstance(output, (set, frozenset)) else output)), ()
    return ("entries", names, tuple(form for form, _ in parts)), tuple(x for _, numbers in parts for x in numbers)


def batch_of_array(array: npt.NDArray[Any]) -> Batch:
    """Return the draws of one vectorised call, one to each entry of the first axis."""
    if array.dtype.kind not in "biuf":
        return batch_of_list(list(array))
    form = "number" if array.ndim == 1 else ("array", array.shape[1:], ())
    return Batch(form, None, array.astype(np.float64).reshape(len(array), -1))


def batch_of_list(outputs: Sequence[Any]) -> Batch:
    pairs = [form_and_numbers(output) for output in outputs]
    forms, rows = [form for form, _ in pairs], [numbers for _, numbers in pairs]
    if all(form == forms[0] for form in forms):
        return Batch(forms[0], None, np.array(rows, dtype=np.float64).reshape(len(rows), -1))
    return Batch(None, forms, rows)


def joined(sides: Sequence[Sequence[Batch]]) -> tuple[list[Draws], list[Any]]:
    """Return the draws of both sides, with one coding of the forms, and the forms in the order of their codes."""
    batches = [batch for side in sides for batch in side]
    form = batches[0].form
    if form is not None and all(batch.forms is None and batch.form == form for batch in batches):
        arrays = [np.concatenate([batch.rows for batch in side]) for side in sides]
        return [Draws(np.zeros(len(rows), dtype=np.int64), rows) for rows in arrays], [form]
    all_forms = [[f for b in side for f in (b.forms or [b.form] * len(b.rows))] for side in sides]
    all_rows = [[tuple(row) for b in side for row in b.rows] for side in sides]
    known = [f for f, _ in Counter(f for forms in all_forms for f in forms).most_common(MOST_VALUES)]
    code = {f: i for i, f in enumerate(known)}
    result = []
    for forms, rows in zip(all_forms, all_rows, strict=True):
        codes = np.array([code.get(f, len(known)) for f in forms], dtype=np.int64)
        usual = [row for row, c in zip(rows, codes, strict=True) if c == 0]
        values = np.full((len(rows), max(map(len, usual), default=0)), np.nan)
        if usual and values.shape[1]:
            values[codes == 0] = np.array(usual, dtype=np.float64)
        result.append(Draws(codes, values))
    width = max(d.values.shape[1] for d in result)
    result = [Draws(d.codes, d.values if d.values.shape[1] else np.full((len(d.codes), width), np.nan)) for d in result]
    return result, [*known, "another form"]


class View(NamedTuple):
    """One number for each output; the view without a name sees the form alone."""

    name: str
    score: Callable[[FloatArray], FloatArray]


def views(sides: Sequence[Draws], forms: Sequence[Any]) -> list[View]:
    """Return the scores to try. Directions are fitted to these draws alone."""
    first, second = (d.values[d.codes == 0] for d in sides)
    result = [View("", lambda x: np.full(len(x), np.nan))] if len(forms) > 1 or not first.shape[1] else []
    return [*result, *(_numeric_views(first, second) if first.shape[1] else [])]


def _numeric_views(first: FloatArray, second: FloatArray) -> list[View]:
    width = first.shape[1]
    if width == 1:
        return [View("the released value", lambda x: x[:, 0])]
    good = [x[np.isfinite(x).all(axis=1)] for x in (first, second)]
    order: npt.NDArray[np.intp] = np.arange(width)
    fitted: list[View] = []
    if min(map(len, good)) >= 2:
        mean, spread = [x.mean(axis=0) for x in good], [x.std(axis=0) for x in good]
        gap, scale = mean[0] - mean[1], np.hypot(*spread) + 1e-300
        order = np.argsort(-(np.abs(gap) + np.abs(spread[0] - spread[1])) / scale, kind="stable")
        fitted = _fitted_views(good, gap)
    # Where two views do equally well the first one names the event: simple ones come first.
    result = [View(f"entry {i}", lambda x, i=i: x[:, i]) for i in sorted(order[:MOST_COORDINATES].tolist())]  # type: ignore[misc]
    for i, j in itertools.combinations(sorted(order[:MOST_PAIRED].tolist()), 2):
        result.append(View(f"entry {j} minus entry {i}", lambda x, i=i, j=j: x[:, j] - x[:, i]))  # type: ignore[misc]
    result += [
        View("the sum of the entries", lambda x: x.sum(axis=1)),
        View("the largest entry", lambda x: x.max(axis=1)),
        View("the smallest entry", lambda x: x.min(axis=1)),
    ]
    if width <= 64:
        result.append(
            View("the number of different entries", lambda x: 1.0 + (np.diff(np.sort(x, axis=1)) != 0).sum(axis=1))
        )
    return result + fitted


def _fitted_views(good: Sequence[FloatArray], gap: FloatArray) -> list[View]:
    """Return the likelihood ratio of Laplace noise, and the best linear score, with constants from these draws."""
    middle = [np.median(x, axis=0) for x in good]
    sizes = np.maximum(np.abs(good[0] - middle[0]).mean(axis=0), 1e-300)
    result = [
        View(
            "the L1 distance to the second middle minus that to the first",
            lambda x: ((np.abs(x - middle[1]) - np.abs(x - middle[0])) / sizes).sum(axis=1),
        )
    ]
    width = len(gap)
    if width <= 200:
        with np.errstate(all="ignore"):
            cov = sum(np.atleast_2d(np.cov(x, rowvar=False)) for x in good)
            cov = cov + np.eye(width) * (1e-9 * np.trace(cov) / width + 1e-300)  # finds directions without any noise
        if np.isfinite(cov).all() and np.isfinite(gap).all():
            try:
                direction = np.linalg.solve(cov, gap)
            except np.linalg.LinAlgError:
                return result
            size = np.abs(direction).max()
            if np.isfinite(size) and size > 0:
                result.append(View("the best linear score", lambda x: np.asarray(x @ (direction / size))))
    return result


class Partition:
    """Cells of a view: single values, the gaps between them, NaN, and every form that is not the usual one."""

    def __init__(self, view: View, sides: Sequence[Draws], forms: Sequence[Any]) -> None:
        self.view, self.forms = view, forms
        scores = [self._scores(d) for d in sides]
        known = [s[~np.isnan(s)] for s in scores]
        values, count = np.unique(np.concatenate(known), return_counts=True)
        total = int(count.sum())
        if total >= 4 * len(values):
            cuts = values if len(values) <= MOST_VALUES else np.sort(values[np.argsort(-count)[:MOST_VALUES]])
        else:
            often = values[count >= max(8, total // 1000)]
            cuts = np.unique(np.concatenate([often, *(self._quantiles(np.sort(s)) for s in known)]))
        self.cuts = cuts
        self.numeric = 2 * len(cuts) + 1
        self.count = self.numeric + 1 + len(forms)

    @staticmethod
    def _quantiles(ordered: FloatArray) -> FloatArray:
        if not len(ordered):
            return ordered
        tail = 2.0 ** -np.arange(6, 40)
        tail = tail[tail * len(ordered) >= 1]
        levels = np.concatenate([np.linspace(0, 1, 97), tail, 1 - tail])
        chosen: FloatArray = ordered[np.rint(levels * (len(ordered) - 1)).astype(np.int64)]
        return chosen

    def _scores(self, draws: Draws) -> FloatArray:
        with np.errstate(all="ignore"):
            scores = np.array(self.view.score(draws.values), dtype=np.float64)
        result: FloatArray = np.where(draws.codes == 0, scores, np.nan)
        return result

    def cells(self, draws: Draws) -> Any:
        scores = self._scores(draws)
        below = np.searchsorted(self.cuts, scores, "left")
        result = 2 * below
        if len(self.cuts):
            result += self.cuts[np.minimum(below, len(self.cuts) - 1)] == scores
        odd = np.isnan(scores)
        if odd.any():
            is_nan = (draws.codes[odd] == 0) & bool(self.view.name)
            result[odd] = np.where(is_nan, self.numeric, self.numeric + 1 + draws.codes[odd])
        return np.asarray(result.astype(np.intp))  # what bincount takes on 32 bits too

    def short(self, mask: npt.NDArray[np.bool_], weight: FloatArray) -> str:
        """Return a label for a picture, without the name of the score."""
        text = self.describe(mask, weight).replace("the output is ", "").strip("'")
        return text.replace(f"{self.view.name} = ", "").replace(self.view.name, "·") if self.view.name else text

    def describe(self, mask: npt.NDArray[np.bool_], weight: FloatArray) -> str:
        """Say what the event is, in the fewest words; of many parts, the one with the most weight is named."""
        numeric = mask[: self.numeric]
        edges = np.flatnonzero(np.diff(np.concatenate([[0], numeric.astype(np.int8), [0]])))
        parts = [(self._range(a, b), float(weight[a:b].sum())) for a, b in edges.reshape(-1, 2)]
        if mask[self.numeric]:
            parts.append((f"{self.view.name} is NaN", float(weight[self.numeric])))
        for i in np.flatnonzero(mask[self.numeric + 1 :]):
            parts.append((f"the output is {self._form(int(i))}", float(weight[self.numeric + 1 + i])))
        parts.sort(key=lambda part: -part[1])
        more = f" (and {len(parts) - 1} more parts)" if len(parts) > 1 else ""
        return (parts[0][0] if parts else "nothing") + more

    def _form(self, i: int) -> str:
        form = self.forms[i] if i < len(self.forms) else "of another form"
        if isinstance(form, Raised):
            return f"an exception ({form.exception})"
        if not isinstance(form, tuple):
            text = f"a {form}" if form in ("number", "complex") else str(form)
        else:
            text = str(form[1]) if form[0] == "value" else f"an array of shape {form[1]}"
            text = f"({', '.join(form[1])})" if form[0] == "entries" else text
        return text if len(text) <= 60 else text[:57] + "..."

    def _range(self, start: int, stop: int) -> str:
        """Name cells ``start`` to ``stop - 1``: even cells are gaps between cuts, odd ones are the cuts themselves."""
        name = self.view.name
        low = None if start == 0 else self.cuts[(start - 1) // 2]
        high = None if stop >= self.numeric else self.cuts[stop // 2 - (1 if stop % 2 == 0 else 0)]
        left, right = "<=" if start % 2 else "<", "<=" if stop % 2 == 0 else "<"
        if low is not None and stop - start == 1 and start % 2:
            return f"{name} = {low:g}"
        if low is None and high is None:
            return f"{name} is a number"
        if low is None:
            return f"{name} {right} {high:g}"
        if high is None:
            return f"{name} {'>=' if left == '<=' else '>'} {low:g}"
        return f"{low:g} {left} {name} {right} {high:g}"

    def orders(self, first: IntArray, second: IntArray) -> list[tuple[IntArray, float]]:
        """Return orders of the cells, each with a handicap; the events tried are their beginnings.

        `first` are the counts of the side that is to be likelier. A threshold is the simpler event: the order by ratio
        has to be better than that by more than its handicap.
        """
        a, b = first + 0.5, second + 0.5
        evidence = np.log(a / b) - np.sqrt(1 / a + 1 / b)
        rest = np.arange(self.numeric, self.count)
        rising = np.concatenate([np.arange(self.numeric), rest])
        falling = np.concatenate([np.arange(self.numeric)[::-1], rest])
        by_ratio = np.argsort(-evidence, kind="stable")
        return [(by_ratio, 0.02), (rising, 0.0), (falling, 0.0)] if self.view.name else [(by_ratio, -0.02)]
