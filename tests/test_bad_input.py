"""Bad input: one generated matrix over every public function, and what is safe for all of them.

`TABLE` says for every function what a good call is and of what kind each argument is; `ACCEPTED` says for every kind
which of the odd `INPUTS` are taken. All the others must be refused. A new public function fails the tests until it has
an entry.
"""

import copy
import inspect
import math
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

import dpbook
from dpbook import gradients, sensitivity, training, tuning

MODULES = tuple(
    value
    for name in dpbook.__all__
    if inspect.ismodule(value := getattr(dpbook, name)) and name != "exercises"  # teaching code, with a test of its own
)
SECRET = 123454321.5  # a value that no message about data may repeat


def public_functions() -> dict[str, Callable[..., Any]]:
    return {
        f"{module.__name__.split('.')[-1]}.{name}": function
        for module in MODULES
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }


FUNCTIONS = public_functions()


def read_only(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array


# Each input is made anew, so that no call can change what the next one gets.
INPUTS: dict[str, Callable[[], Any]] = {
    "nan": lambda: math.nan,
    "inf": lambda: math.inf,
    "minus_inf": lambda: -math.inf,
    "zero": lambda: 0,
    "minus_zero": lambda: -0.0,
    "negative": lambda: -1,
    "true": lambda: True,
    "false": lambda: False,
    "numpy_bool": lambda: np.bool_(True),
    "complex": lambda: 1 + 0j,
    "numpy_complex": lambda: np.complex128(1),
    "str": lambda: "1",
    "bytes": lambda: b"1",
    "none": lambda: None,
    "0d_int": lambda: np.array(1),
    "0d_one": lambda: np.array(1.0),
    "0d_half": lambda: np.array(0.5),
    "0d_nan": lambda: np.array(math.nan),
    "0d_bool": lambda: np.array(True),
    "0d_masked": lambda: np.ma.array(1.0, mask=True),
    "masked_constant": lambda: np.ma.masked,
    "list12": lambda: [1, 2],
    "ints12": lambda: np.array([1, 2]),
    "floats12": lambda: np.array([1.0, 2.0]),
    "read_only": lambda: read_only(np.array([1, 2])),
    "empty_array": lambda: np.array([]),
    "empty_list": lambda: [],
    "2d": lambda: np.ones((2, 2), dtype=np.int64),
    "bool_array": lambda: np.array([False, True]),
    "complex_array": lambda: np.array([0j, 1 + 0j]),
    "text_array": lambda: np.array(["1", "2"]),
    "object_array": lambda: np.array([1, 2], dtype=object),
    "ragged": lambda: [[1], [1, 2]],
    "float16_one": lambda: np.float16(1),
    "float16_half": lambda: np.float16(0.5),
    "uint8_one": lambda: np.uint8(1),
    "longdouble": lambda: np.longdouble(0.5),
    "longdouble_array": lambda: np.array([1, 2], dtype=np.longdouble),
    "timedelta": lambda: np.timedelta64(1, "D"),  # NumPy counts it among its integers
    "timedelta_ns": lambda: np.timedelta64(1, "ns"),  # this one converts to float
    "pandas_na": lambda: pd.NA,
    "series_with_na": lambda: pd.Series([1, pd.NA], dtype="Int64"),
    "masked": lambda: np.ma.array([1.0, 2.0], mask=[False, True]),
    "decimal": lambda: Decimal("0.5"),
    "fraction": lambda: Fraction(1, 2),
    "set": lambda: {1},
    "generator": lambda: (i for i in (1, 2)),
    "dict": lambda: {1: 2},
    "huge": lambda: 10**400,
    "huger": lambda: 10**5000,  # Python refuses to print it
}

ZERO = {"zero", "minus_zero"}
ONE = {"0d_int", "0d_one", "float16_one", "uint8_one"}
HALF = {"0d_half", "float16_half"}
HUGE = {"huge", "huger"}
COLUMNS = {"list12", "ints12", "floats12", "read_only", "empty_array", "empty_list", "bool_array", "object_array"}
COLUMNS |= {"series_with_na"}
TWO = (COLUMNS - {"empty_array", "empty_list"}) | {"longdouble_array", "ragged"}  # columns with two entries

ACCEPTED: dict[str, set[str]] = {
    # parameters: public, checked first, shown in the message
    "positive": ONE | HALF,
    "non_negative": ONE | HALF | ZERO,
    "finite": ONE | HALF | ZERO | {"negative"},
    "open_unit": HALF,
    "half_open_unit": HALF | ZERO,
    "closed_unit": HALF | ZERO | ONE,
    "sampling_prob": HALF | ONE,
    "order": set(),
    "whole": ONE,
    "whole_or_none": ONE | {"none"},
    "whole_from_0": ONE | ZERO,
    "bounds": {"list12", "ints12", "floats12", "read_only", "object_array"},
    "amount": ONE | HALF | ZERO | {"decimal"},
    "small_amount": HALF | ZERO | {"decimal"},
    "positive_small_amount": HALF | {"decimal"},
    "text": {"str"},
    "mapping": set(),
    "accountant": set(),
    "choice": set(),
    "absent": {"none"},
    "rng": {"none"},
    "callable": set(),
    "positive_or_none": ONE | HALF | {"none"},
    "open_unit_or_none": HALF | {"none"},
    "unit": ONE | HALF | ZERO,
    "flag": {"true", "false", "numpy_bool"},
    "n": {"none"},
    "zero": ZERO,
    "whole_from_2": set(),
    "most_rows": set(),
    "magnitudes": {"list12", "ints12", "floats12", "read_only", "object_array"},
    "callable_or_none": {"none"},
    "draws": set(),  # whole numbers from 16 on
    "flag_or_none": {"true", "false", "numpy_bool", "none"},
    "anything": set(INPUTS),
    "sequence": {"list12", "ints12", "floats12", "read_only", "bool_array", "object_array", "ragged"}
    | {"complex_array", "text_array", "longdouble_array", "empty_array", "empty_list", "masked"},
    "dataset": {"list12", "ints12", "floats12", "read_only", "bool_array", "object_array", "ragged"}
    | {"complex_array", "text_array", "longdouble_array", "empty_array", "empty_list", "masked"},
    "made": set(),  # an object that another function of the module has made
    "above_1": set(),
    "vector": {"list12", "ints12", "floats12", "read_only"},
    "vector_or_none": {"list12", "ints12", "floats12", "read_only", "none"},
    "matrix": {"2d"},
    "nonempty_list": {"list12", "ragged"},
    "classes": {"list12", "ints12", "floats12", "read_only", "bool_array", "object_array", "complex_array"}
    | {"text_array", "longdouble_array"},
    # public arrays and sequences
    "units": ONE | HALF | ZERO,
    "edges": {"list12", "ints12", "floats12", "read_only"},
    "keys": (TWO - {"series_with_na", "ragged"}) | {"complex_array", "text_array"},
    "unused": {"none"},
    "positives": ONE | HALF | {"list12", "ints12", "floats12", "read_only", "2d", "empty_array", "empty_list"},
    "costs": ONE | HALF | ZERO | {"list12", "ints12", "floats12", "read_only", "2d", "empty_array", "empty_list"},
    "deltas": HALF | ZERO,
    "candidates": ONE | HALF | {"none", "list12", "ints12", "floats12", "read_only"},
    "domain": (COLUMNS - {"empty_array", "empty_list", "series_with_na"})
    | {"2d", "complex_array", "text_array", "longdouble_array", "ragged", "masked"},
    # data: never shown
    "true_float": ONE
    | HALF
    | ZERO
    | HUGE
    | {"negative", "list12", "ints12", "floats12", "read_only", "empty_array", "empty_list", "2d"},
    "true_int": {"zero", "negative", "0d_int", "uint8_one", "list12", "ints12", "read_only", "empty_list", "2d"} | HUGE,
    "where_int": {"zero", "negative", "0d_int", "uint8_one", "list12", "ints12", "read_only", "empty_list", "2d"},
    "records": COLUMNS | {"longdouble_array", "masked", "ragged"},  # to records, a nested list is one bad record
    "public_records": {"list12", "ints12", "floats12", "read_only", "bool_array", "object_array", "series_with_na"}
    | {"longdouble_array", "masked"},
    "utilities": {"list12", "ints12", "floats12", "read_only"},
    "records_of_two": TWO | {"masked"},
    "targets_of_two": TWO | {"masked"},
    "labels_of_two": TWO | {"complex_array", "text_array"},
    "entries": COLUMNS | {"longdouble_array", "masked", "ragged", "complex_array", "text_array"},
    "condition": TWO | {"none", "masked"},
    "rows": {"2d"},
    "identifiers": COLUMNS | {"complex_array", "text_array", "longdouble_array", "ragged"},
    "identifiers_of_two": TWO | {"complex_array", "text_array"},
}
# Where it depends on the data whether the parameter is right, so that data is looked at.
DEPENDS = {"n": ONE}
NOBODY_AT_ALL = {"empty_array", "empty_list"}
DEPENDS = {"n": ONE, "n_given": ONE, "most_rows": ONE, "targets_of_two": NOBODY_AT_ALL, "labels_of_two": NOBODY_AT_ALL}
# Where refusing, with a message as for all others, is as good as accepting.
EITHER = {
    "positives": HUGE,
    "costs": HUGE,
    "candidates": HUGE | {"2d"},
    "rows": {"longdouble_array"},
}
DATA = {"true_float", "true_int", "where_int", "records", "rows", "identifiers"}
TYPE_SHOWN = {
    "accountant",
    "bounds",
    "callable",
    "candidates",
    "condition",
    "costs",
    "deltas",
    "domain",
    "edges",
    "entries",
    "identifiers_of_two",
    "keys",
    "magnitudes",
    "mapping",
    "positives",
    "public_records",
    "records_of_two",
    "rng",
    "units",
    "unused",
    "utilities",
    "callable_or_none",
    "classes",
    "labels_of_two",
    "made",
    "matrix",
    "nonempty_list",
    "targets_of_two",
    "vector",
    "vector_or_none",
    "sequence",
    "dataset",
}


class Entry(NamedTuple):
    function: str
    good: dict[str, Any]
    kinds: dict[str, str]


def entry(function: str, **arguments: tuple[Any, str]) -> Entry:
    return Entry(function, {k: v[0] for k, v in arguments.items()}, {k: v[1] for k, v in arguments.items()})


UNCHECKED = {"laplace.naive_laplace_mechanism", "gaussian.naive_gaussian_mechanism"}  # they teach what goes wrong
LEVEL, SCALE, RNG = (0.05, "open_unit"), (2.0, "positive"), (None, "rng")
FLOAT, INT, COLUMN = (1.0, "true_float"), (3, "true_int"), ([1.0, 2.0], "records")
LIMITS, RELATION, L1, L2 = ((0, 2), "bounds"), ("replace_one", "choice"), ("l1", "choice"), ("l2", "choice")
EPS, DELTA, SENS = (1.0, "positive"), (1e-5, "open_unit"), (1.0, "non_negative")
ROWS, ONE_ROW = (None, "whole_or_none"), (1, "whole")
ANALYTIC, CLASSIC, NO_DELTA = ("analytic", "choice"), ("classic", "choice"), (None, "absent")
WHOLE = (1, "whole_from_0")
NON, FROM_0, STEPS = (1.0, "non_negative"), (1e-5, "half_open_unit"), (3, "whole")
AMOUNT, SMALL, TITLE = (1.0, "amount"), (1e-6, "small_amount"), ("residents", "text")


class Free:
    """An accountant to whom all is free."""

    def add(self, mechanism: Any, *, steps: int) -> None:
        return None

    def epsilon(self, *, delta: float) -> float:
        return 0.0


UTILITIES, KEYS, STEP = ([1.0, 2.0], "utilities"), ([1, 2], "keys"), (None, "positive_or_none")
NOBODY, NO_ROWS, PERSON = (None, "unused"), (None, "absent"), ([1, 2], "identifiers_of_two")
TWO_RECORDS, DELTA_OR_NONE, NO_N = ([1.0, 2.0], "records_of_two"), (None, "open_unit_or_none"), (None, "absent")
CHOOSERS = ("exponential_mechanism", "permute_and_flip", "noisy_max")
CHOICE = {"epsilon": EPS, "sensitivity": (1.0, "positive"), "neighbors": RELATION, "monotonic": (False, "flag")}
CHOICE = {**CHOICE, "neighbors": ("add_remove", "choice"), "rng": RNG}
SHARED = {"person": NOBODY, "max_contributions": NO_ROWS, "alpha": LEVEL, "rng": RNG}
MOMENT = {"bounds": LIMITS, "epsilon": EPS, "neighbors": RELATION, "n": (None, "n"), "delta": DELTA_OR_NONE, **SHARED}
SPREAD = {"bounds": LIMITS, "epsilon": EPS, "neighbors": RELATION, "n": (None, "n"), "ddof": (0, "zero")}
SPREAD = {**SPREAD, "delta": DELTA_OR_NONE, **SHARED}
PAIRED = {"first_bounds": LIMITS, "second_bounds": LIMITS, **{k: v for k, v in SPREAD.items() if k != "bounds"}}
COUNTS = {
    "epsilon": EPS,
    "neighbors": RELATION,
    "edges": NOBODY,
    "categories": NOBODY,
    "delta": DELTA_OR_NONE,
    **SHARED,
}
RANKS = {"bounds": LIMITS, "epsilon": EPS, "neighbors": RELATION, "step": STEP, **SHARED}
CLAIM = {"epsilon": (1.0, "non_negative"), "delta": (0.1, "half_open_unit")}
NETWORK = {"features": 2, "loss": "squared", "intercept": False}
MODEL, WEIGHTS = (gradients.Model(**NETWORK), "made"), ([1.0, 2.0], "vector")
PEOPLE = {"rows": ([[3.0, 4.0], [1.0, 2.0]], "rows"), "targets": ([1.0, 2.0], "targets_of_two")}
BATCHES = {"sampling_prob": (0.5, "sampling_prob"), "expected_batch_size": (2.0, "positive"), "n": NO_N}
SCHEDULE = {
    "neighbors": RELATION,
    "delta": DELTA,
    "clipping_norm": (1.0, "positive"),
    "target_epsilon": NO_DELTA,
    "noise_multiplier": (1.0, "positive"),
    **BATCHES,
    "steps": (2, "whole"),
    "epochs": NO_N,
}
PLAN = training.plan_training(**{name: value for name, (value, _) in SCHEDULE.items()})
RATE, START, OPTIMIZER = (0.1, "positive"), (None, "vector_or_none"), ("sgd", "choice")
PAID, TOLD, SHOW, LABEL = (None, "unused"), (None, "callable_or_none"), (False, "flag_or_none"), ("a model", "text")
LINES = {
    "X": ([[0.3, 0.4], [0.1, 0.2]], "rows"),
    "y": ([1, 2], "labels_of_two"),
    "classes": ([1, 2], "classes"),
    "l2": (10.0, "positive"),
    "epsilon": EPS,
    "delta": DELTA,
    "neighbors": RELATION,
    "fit_intercept": (True, "flag"),
    "most_rows": (1000, "most_rows"),
    "rng": RNG,
}


class FreeTrials:
    """An account in which all is free."""

    neighbors = "add_remove"

    def rdp(self, *, order: float) -> float:
        return 0.0


RUN = {"alpha": LEVEL, "draws": (64, "draws"), "vectorized": (False, "flag")}
TABLE = [
    entry("audit.clopper_pearson", hits=WHOLE, draws=(10, "whole"), alpha=LEVEL),
    entry(
        "audit.epsilon_bound",
        hits=WHOLE,
        other_hits=WHOLE,
        draws=(10, "whole"),
        delta=(0.0, "half_open_unit"),
        alpha=LEVEL,
    ),
    entry("audit.epsilon_ceiling", draws=(10, "whole"), delta=(0.0, "half_open_unit"), alpha=LEVEL),
    entry(
        "audit.audit",
        release=(lambda data, count=None: 0.0 if count is None else np.zeros(count), "callable"),
        first=(0, "anything"),
        second=(1, "anything"),
        **CLAIM,
        **RUN,
        workers=ONE_ROW,
        progress=(False, "flag_or_none"),
    ),
    entry(
        "checks.lattice_test",
        release=(lambda value, count=None: 1.0 if count is None else np.ones(count), "callable"),
        first=(0.0, "finite"),
        second=(1.0, "finite"),
        **CLAIM,
        **RUN,
    ),
    entry(
        "checks.check_sensitivity",
        query=(lambda data: 0.0, "callable"),
        data=([1.0, 2.0], "dataset"),
        sensitivity=SENS,
        neighbors=("add_remove", "choice"),
        norm=L1,
        entries=([0.0], "sequence"),
        tries=(20, "whole"),
        slack=(0.0, "non_negative"),
        seed=(1, "whole_from_0"),
    ),
    entry(
        "checks.check_ledger",
        make=(lambda total: None, "callable"),
        spend=(None, "callable_or_none"),
        threads=(2, "whole"),
    ),
    entry("laplace.laplace_mechanism", true_value=FLOAT, epsilon=EPS, sensitivity=SENS, rng=RNG),
    entry("laplace.laplace_mechanism", true_value=FLOAT, epsilon=EPS, sensitivity=(0.0, "non_negative"), rng=RNG),
    entry("laplace.discrete_laplace_mechanism", true_value=INT, epsilon=EPS, sensitivity=WHOLE, rng=RNG),
    entry(
        "laplace.discrete_laplace_mechanism",
        true_value=INT,
        epsilon=EPS,
        sensitivity=(0, "whole_from_0"),
        rng=RNG,
    ),
    entry("laplace.laplace_scale", epsilon=EPS, sensitivity=SENS),
    entry("laplace.laplace_delta", scale=SCALE, sensitivity=SENS, epsilon=(0.1, "non_negative")),
    entry("laplace.laplace_epsilon", scale=SCALE, sensitivity=SENS, delta=(0.1, "half_open_unit")),
    entry("laplace.laplace_error", scale=SCALE, alpha=LEVEL),
    entry("laplace.laplace_scale_for_error", error=(3.0, "positive"), alpha=LEVEL),
    entry("laplace.laplace_interval", release=FLOAT, scale=SCALE, alpha=LEVEL),
    entry("laplace.discrete_laplace_pmf", k=(0, "where_int"), scale=SCALE),
    entry("laplace.discrete_laplace_error", scale=SCALE, alpha=LEVEL),
    entry("laplace.discrete_laplace_interval", release=INT, scale=SCALE, alpha=LEVEL),
    entry("laplace.discrete_laplace_delta", scale=SCALE, sensitivity=WHOLE, epsilon=(0.1, "non_negative")),
    entry(
        "gaussian.gaussian_mechanism",
        true_value=FLOAT,
        epsilon=EPS,
        delta=DELTA,
        sensitivity=SENS,
        calibration=ANALYTIC,
        rng=RNG,
    ),
    entry(
        "gaussian.gaussian_mechanism",
        true_value=FLOAT,
        epsilon=EPS,
        delta=DELTA,
        sensitivity=(0.0, "non_negative"),
        calibration=ANALYTIC,
        rng=RNG,
    ),
    entry("gaussian.gaussian_sigma", epsilon=EPS, delta=DELTA, sensitivity=SENS, calibration=ANALYTIC),
    entry("gaussian.gaussian_delta", sigma=SCALE, sensitivity=SENS, epsilon=(0.5, "non_negative")),
    entry("gaussian.gaussian_epsilon", sigma=SCALE, sensitivity=SENS, delta=DELTA),
    entry("gaussian.gaussian_error", sigma=SCALE, alpha=LEVEL),
    entry("gaussian.gaussian_sigma_for_error", error=(3.0, "positive"), alpha=LEVEL),
    entry("gaussian.gaussian_interval", release=FLOAT, sigma=SCALE, alpha=LEVEL),
    entry("noise.grid_step", scale=SCALE),
    entry("noise.add_laplace", true_value=FLOAT, scale=SCALE, rng=RNG),
    entry("noise.add_gaussian", true_value=FLOAT, sigma=SCALE, rng=RNG),
    entry("noise.add_discrete_laplace", true_value=INT, scale=SCALE, rng=RNG),
    entry("noise.choose_index", utilities=UTILITIES, scale=SCALE, rng=RNG),
    entry("noise.flip_coins", utilities=UTILITIES, scale=SCALE, rng=RNG),
    entry("noise.uniform_words", count=(3, "whole_from_0"), rng=RNG),
    *(entry(f"selection.{name}", utilities=UTILITIES, **CHOICE) for name in CHOOSERS),
    entry("selection.top_k", utilities=UTILITIES, k=(1, "whole"), **CHOICE),
    entry("quantiles.quantile_points", bounds=LIMITS, step=STEP),
    entry("quantiles.quantile_sensitivity", q=(0.5, "unit"), neighbors=RELATION, max_rows=ROWS),
    entry(
        "quantiles.exponential_quantile",
        values=COLUMN,
        q=(0.5, "unit"),
        bounds=LIMITS,
        epsilon=EPS,
        neighbors=RELATION,
        step=STEP,
        max_rows=ROWS,
        rng=RNG,
    ),
    entry("local.response_probabilities", epsilon=EPS, categories=(3, "whole_from_2")),
    entry("local.randomized_response", values=([1, 2], "identifiers"), categories=KEYS, epsilon=EPS, rng=RNG),
    entry("histograms.keep_probabilities", count=(3, "whole_from_0"), epsilon=EPS, delta=DELTA),
    entry(
        "histograms.private_keys",
        keys=([1, 2], "identifiers"),
        epsilon=EPS,
        delta=DELTA,
        neighbors=RELATION,
        person=NOBODY,
        max_groups=NO_ROWS,
        rng=RNG,
    ),
    entry(
        "histograms.private_keys",
        keys=([1, 2], "identifiers_of_two"),
        epsilon=EPS,
        delta=DELTA,
        neighbors=RELATION,
        person=PERSON,
        max_groups=ONE_ROW,
        rng=RNG,
    ),
    entry(
        "queries.private_count",
        values=([1.0, 2.0], "entries"),
        epsilon=EPS,
        neighbors=RELATION,
        where=(None, "condition"),
        delta=DELTA_OR_NONE,
        person=NOBODY,
        max_contributions=NO_ROWS,
        alpha=LEVEL,
        rng=RNG,
    ),
    entry(
        "queries.private_sum",
        values=COLUMN,
        bounds=LIMITS,
        epsilon=EPS,
        neighbors=RELATION,
        delta=DELTA_OR_NONE,
        person=NOBODY,
        max_contributions=NO_ROWS,
        alpha=LEVEL,
        rng=RNG,
    ),
    entry(
        "queries.private_sum",
        values=TWO_RECORDS,
        bounds=LIMITS,
        epsilon=EPS,
        neighbors=RELATION,
        delta=DELTA_OR_NONE,
        person=PERSON,
        max_contributions=ONE_ROW,
        alpha=LEVEL,
        rng=RNG,
    ),
    entry("queries.private_mean", values=COLUMN, **MOMENT),
    entry("queries.private_mean", values=TWO_RECORDS, **{**MOMENT, "n": (2, "n")}),
    *(entry(f"queries.private_{name}", values=COLUMN, **SPREAD) for name in ("variance", "std")),
    entry("queries.private_variance", values=TWO_RECORDS, **{**SPREAD, "n": (2, "n"), "ddof": (0, "whole_from_0")}),
    entry("queries.private_covariance", first=TWO_RECORDS, second=TWO_RECORDS, **PAIRED),
    entry(
        "queries.private_covariance",
        first=TWO_RECORDS,
        second=TWO_RECORDS,
        **{**PAIRED, "n": (2, "n"), "ddof": (0, "whole_from_0")},
    ),
    entry("histograms.private_histogram", values=COLUMN, **{**COUNTS, "edges": ([0, 1, 2], "edges")}),
    entry("histograms.private_histogram", values=([1, 2], "entries"), **{**COUNTS, "categories": KEYS}),
    entry("quantiles.private_quantiles", values=COLUMN, q=([0.5], "units"), **RANKS),
    entry("quantiles.private_median", values=COLUMN, **RANKS),
    entry(
        "quantiles.private_bounds",
        values=COLUMN,
        epsilon=EPS,
        neighbors=RELATION,
        magnitudes=((1, 8), "magnitudes"),
        failure_prob=LEVEL,
        person=NOBODY,
        max_contributions=NO_ROWS,
        rng=RNG,
    ),
    entry("local.response_shares", answers=([1, 2], "identifiers"), categories=KEYS, epsilon=EPS, alpha=LEVEL),
    entry("sensitivity.count_sensitivity", neighbors=RELATION, max_rows=ONE_ROW),
    entry("sensitivity.sum_sensitivity", bounds=LIMITS, neighbors=RELATION, max_rows=ROWS),
    entry("sensitivity.sum_of_squares_sensitivity", bounds=LIMITS, neighbors=RELATION, max_rows=ROWS),
    entry("sensitivity.mean_sensitivity", bounds=LIMITS, n=(10, "whole"), neighbors=RELATION),
    entry(
        "sensitivity.variance_sensitivity",
        bounds=LIMITS,
        n=(10, "whole"),
        neighbors=RELATION,
        ddof=(0, "whole_from_0"),
    ),
    entry(
        "sensitivity.histogram_sensitivity",
        neighbors=RELATION,
        norm=L1,
        max_groups=ONE_ROW,
        max_rows_per_group=ONE_ROW,
    ),
    entry(
        "sensitivity.histogram_sensitivity",
        neighbors=RELATION,
        norm=L2,
        max_groups=ONE_ROW,
        max_rows_per_group=ONE_ROW,
    ),
    entry("sensitivity.vector_sensitivity", per_coordinate=SENS, dimension=(3, "whole"), norm=L1),
    entry("sensitivity.vector_sensitivity", per_coordinate=SENS, dimension=(3, "whole"), norm=L2),
    entry("sensitivity.norm_sum_sensitivity", max_norm=EPS, neighbors=RELATION),
    entry("sensitivity.clip", values=COLUMN, bounds=LIMITS),
    entry("sensitivity.clipped_sum", values=COLUMN, bounds=LIMITS),
    entry("sensitivity.clip_norm", vectors=([[3.0, 4.0]], "rows"), max_norm=EPS, norm=L2),
    entry("sensitivity.norm_clipped_sum", vectors=([[3.0, 4.0]], "rows"), max_norm=EPS, norm=L2),
    entry("sensitivity.keep_rows", person=([1, 2, 1], "identifiers"), max_rows=ONE_ROW),
    entry(
        "sensitivity.brute_force_sensitivity",
        query=(len, "callable"),
        domain=([0, 1], "domain"),
        n=(2, "whole"),
        neighbors=RELATION,
        norm=L1,
    ),
    entry(
        "tuning.epsilon_for_error",
        error=(3.0, "positive"),
        alpha=LEVEL,
        sensitivity=(1.0, "positive"),
        mechanism=("laplace", "choice"),
        delta=NO_DELTA,
    ),
    entry(
        "tuning.epsilon_for_error",
        error=(3.0, "positive"),
        alpha=LEVEL,
        sensitivity=(1, "whole"),
        mechanism=("discrete_laplace", "choice"),
        delta=NO_DELTA,
    ),
    entry(
        "tuning.epsilon_for_error",
        error=(3.0, "positive"),
        alpha=LEVEL,
        sensitivity=(1.0, "positive"),
        mechanism=("gaussian", "choice"),
        delta=DELTA,
    ),
    entry(
        "tuning.error_curve",
        epsilon=(1.0, "positives"),
        sensitivity=(1.0, "positives"),
        alpha=LEVEL,
        mechanism=("laplace", "choice"),
        delta=NO_DELTA,
    ),
    entry(
        "tuning.error_curve",
        epsilon=(1.0, "positives"),
        sensitivity=(1.0, "positives"),
        alpha=LEVEL,
        mechanism=("gaussian", "choice"),
        delta=DELTA,
    ),
    entry(
        "tuning.clipping_bound",
        public_sample=([1.0, 2.0, 3.0], "public_records"),
        n=(10, "whole"),
        epsilon=EPS,
        lower=(0.0, "finite"),
        candidates=(None, "candidates"),
    ),
    entry("tuning.split_budget", epsilon=EPS, sum_sensitivity=(2.0, "positive"), expected_mean=(1.0, "finite")),
    entry("composition.basic_composition", epsilons=([1.0], "costs"), deltas=(0.0, "deltas")),
    entry("composition.advanced_composition", epsilon=NON, steps=STEPS, slack=DELTA, delta=FROM_0),
    entry("composition.drv_epsilon", epsilon=NON, steps=STEPS, slack=DELTA),
    entry("composition.optimal_delta", epsilon=NON, steps=STEPS, total_epsilon=NON, delta=FROM_0),
    entry("composition.optimal_composition", epsilon=NON, steps=STEPS, total_delta=FROM_0, delta=FROM_0),
    entry("composition.heterogeneous_composition", epsilons=([1.0], "costs"), slack=DELTA, deltas=(0.0, "deltas")),
    entry("composition.group_privacy", epsilon=NON, group_size=STEPS, delta=FROM_0),
    entry(
        "composition.parallel_composition",
        epsilons=([1.0], "costs"),
        neighbors=RELATION,
        deltas=(0.0, "deltas"),
    ),
    entry(
        "composition.amplify",
        epsilon=NON,
        sampling_prob=(0.1, "closed_unit"),
        neighbors=RELATION,
        delta=FROM_0,
        sampling=("poisson", "choice"),
    ),
    entry("rdp.conversion_epsilon", order=(2.0, "order"), divergence=NON, delta=DELTA),
    entry("rdp.least_epsilon", divergence=(float, "callable"), delta=DELTA),
    entry("rdp.zcdp_delta", rho=NON, epsilon=NON),
    entry("rdp.zcdp_epsilon", rho=NON, delta=FROM_0),
    entry("rdp.zcdp_rho", target_epsilon=EPS, delta=DELTA),
    entry("rdp.pure_zcdp", epsilon=NON),
    entry("rdp.gaussian_zcdp", sigma=SCALE, sensitivity=SENS),
    entry("risk.approximate_trade_off", epsilon=NON, delta=FROM_0),
    entry("risk.gaussian_trade_off", mu=NON),
    entry("risk.posterior_bounds", prior=(0.3, "open_unit"), epsilon=NON),
    entry(
        "accounting.calibrate_noise_multiplier",
        target_epsilon=EPS,
        delta=DELTA,
        sampling_prob=(0.1, "sampling_prob"),
        steps=STEPS,
        neighbors=RELATION,
    ),
    entry(
        "accounting.calibrate_steps",
        target_epsilon=EPS,
        delta=DELTA,
        noise_multiplier=SCALE,
        sampling_prob=(0.1, "sampling_prob"),
        neighbors=RELATION,
    ),
    entry(
        "accounting.calibrate_sampling_prob",
        target_epsilon=EPS,
        delta=DELTA,
        noise_multiplier=SCALE,
        steps=STEPS,
        neighbors=RELATION,
    ),
    entry("accounting.calibrate_sigma", target_epsilon=EPS, delta=DELTA, sensitivity=EPS, steps=STEPS),
    entry("accounting.calibrate_scale", target_epsilon=EPS, delta=FROM_0, sensitivity=EPS, steps=STEPS),
    entry("budget.basic", epsilon=AMOUNT, delta=SMALL, neighbors=RELATION, name=TITLE),
    entry("budget.zcdp", rho=AMOUNT, epsilon=NO_DELTA, delta=NO_DELTA, neighbors=RELATION, name=TITLE),
    entry(
        "budget.zcdp",
        rho=NO_DELTA,
        epsilon=AMOUNT,
        delta=(1e-6, "positive_small_amount"),
        neighbors=RELATION,
        name=TITLE,
    ),
    entry(
        "budget.planned",
        releases=({"count": (None, 2)}, "mapping"),
        accountant=(Free(), "accountant"),
        epsilon=AMOUNT,
        delta=SMALL,
        neighbors=RELATION,
        name=TITLE,
    ),
    entry("noise.poisson_sample", n=(3, "whole_from_0"), sampling_prob=(0.5, "closed_unit"), rng=RNG),
    entry("gradients.starting_parameters", model=MODEL, seed=(0, "whole_from_0")),
    entry("gradients.clipped_gradient_sum", model=MODEL, parameters=WEIGHTS, **PEOPLE, clipping_norm=EPS),
    entry("gradients.per_example_gradients", model=MODEL, parameters=WEIGHTS, **PEOPLE),
    entry("gradients.per_example_losses", model=MODEL, parameters=WEIGHTS, **PEOPLE),
    entry("gradients.outputs", model=MODEL, parameters=WEIGHTS, rows=PEOPLE["rows"]),
    entry(
        "gradients.probabilities",
        model=(gradients.Model(features=2, outputs=2, loss="softmax"), "made"),
        scores=([[0.0, 1.0]], "matrix"),
    ),
    entry("training.plan_training", **SCHEDULE),
    entry(
        "training.plan_training",
        **{
            **SCHEDULE,
            "target_epsilon": EPS,
            "noise_multiplier": NO_DELTA,
            "expected_batch_size": NO_N,
            "n": (4, "whole"),
            "steps": NO_N,
            "epochs": (1.0, "positive"),
        },
    ),
    entry(
        "training.noisy_gradient",
        records=(training.Records(training.Model(**NETWORK), [[3.0, 4.0]], [1.0]), "made"),
        parameters=WEIGHTS,
        plan=(PLAN, "made"),
        rng=RNG,
    ),
    entry(
        "training.dp_sgd",
        model=(training.Model(**NETWORK), "made"),
        **PEOPLE,
        plan=(PLAN, "made"),
        learning_rate=RATE,
        start=START,
        optimizer=OPTIMIZER,
        momentum=FROM_0,
        l2=NON,
        ledger=PAID,
        label=LABEL,
        callback=TOLD,
        progress=SHOW,
        rng=RNG,
    ),
    entry("training.charge", plan=(PLAN, "made"), ledger=PAID, label=LABEL, epsilon=(None, "positive_or_none")),
    entry("perturbation.output_sensitivity", l2=EPS, neighbors=RELATION, fit_intercept=(True, "flag")),
    entry(
        "perturbation.objective_sigma",
        l2=(10.0, "positive"),
        epsilon=EPS,
        delta=DELTA,
        neighbors=RELATION,
        fit_intercept=(True, "flag"),
    ),
    entry("perturbation.output_perturbation", **{**LINES, "delta": DELTA_OR_NONE}),
    entry("perturbation.objective_perturbation", **LINES),
    entry("trials.trials_epsilon", account=(FreeTrials(), "accountant"), expected_trials=(3.0, "above_1"), delta=DELTA),
    entry(
        "trials.best_of_trials",
        trial=(lambda setting: (1.0, None), "callable"),
        settings=([1, 2], "nonempty_list"),
        account=(FreeTrials(), "accountant"),
        expected_trials=(3.0, "above_1"),
        delta=DELTA,
        ledger=PAID,
        label=LABEL,
        rng=RNG,
    ),
    entry("datasets.residents", n=(5, "whole"), seed=(1, "whole_from_0")),
    entry("datasets.clinic_rows", n=(5, "whole"), clinics=(2, "whole"), seed=(1, "whole_from_0")),
]
CASES = [pytest.param(row, name, id=f"{i}-{row.function}-{name}") for i, row in enumerate(TABLE) for name in row.kinds]
ROWS_OF_TABLE = [pytest.param(row, id=f"{i}-{row.function}") for i, row in enumerate(TABLE)]
DATA_CASES = [
    pytest.param(row, name, id=f"{i}-{row.function}-{name}")
    for i, row in enumerate(TABLE)
    for name, kind in row.kinds.items()
    if kind in DATA | {"public_records"}
]


class Touchy:
    """Data that must not be looked at."""

    def _touched(self, *args: Any, **keywords: Any) -> Any:
        raise AssertionError("touched")

    __array__ = __len__ = __iter__ = __getitem__ = __float__ = __int__ = __index__ = __eq__ = __lt__ = _touched
    __repr__ = __str__ = __bool__ = _touched
    __hash__ = None  # type: ignore[assignment]


def call(row: Entry, seeded: np.random.Generator | None = None, **changed: Any) -> Any:
    """Call with the good arguments, some of them changed; a release is seeded unless the test is about `rng`."""
    arguments = {name: copy.deepcopy(value) for name, value in row.good.items()}
    if "rng" in arguments:
        arguments["rng"] = np.random.default_rng(1) if seeded is None else seeded
    arguments.update(changed)
    positional = [p.name for p in parameters(row.function) if p.kind is p.POSITIONAL_OR_KEYWORD]
    first = [arguments.pop(name) for name in positional]
    return FUNCTIONS[row.function](*first, **arguments)


def parameters(function: str) -> list[inspect.Parameter]:
    return list(inspect.signature(FUNCTIONS[function]).parameters.values())


def shown(value: Any) -> str:
    try:
        return repr(value)[:57]
    except ValueError:  # an int that Python refuses to print
        return "got"


def is_shown(value: Any, message: str) -> bool:
    if shown(value) in message:
        return True
    if not isinstance(value, np.ndarray) or value.ndim:
        return False
    return any(f"got {text}" in message for text in (repr(value[()]), str(value[()])))  # without "array()"


def refusal(row: Entry, **changed: Any) -> str:
    """Return the message of the refusal; what is wrong with it starts with '!'."""
    rng = np.random.default_rng(5)
    before = rng.bit_generator.state
    try:
        result = call(row, rng, **changed)
    except (TypeError, ValueError) as error:
        chained = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        message = str(error) + (f" (from {chained})" if chained else "")
    except Exception as error:
        return f"! {type(error).__name__}: {str(error)[:80]}"
    else:
        return f"! accepted, returned {shown(result)}"
    return message if rng.bit_generator.state == before else f"! drew before refusing: {message}"


def test_the_table_is_complete() -> None:
    assert {row.function for row in TABLE} | UNCHECKED == set(FUNCTIONS)


@pytest.mark.parametrize("row", ROWS_OF_TABLE)
def test_the_table_names_every_argument(row: Entry) -> None:
    assert list(row.kinds) == [p.name for p in parameters(row.function)]
    assert set(row.kinds.values()) <= set(ACCEPTED)


@pytest.mark.parametrize("row", ROWS_OF_TABLE)
def test_a_good_call_works(row: Entry) -> None:
    call(row)


@pytest.mark.parametrize(("row", "name"), CASES)
def test_accepted_inputs(row: Entry, name: str) -> None:
    problems = {}
    for label in sorted(ACCEPTED[row.kinds[name]]):
        try:
            call(row, **{name: INPUTS[label]()})
        except Exception as error:  # a warning too, as they are errors here
            problems[label] = f"{type(error).__name__}: {str(error)[:100]}"
    assert not problems


@pytest.mark.parametrize(("row", "name"), CASES)
def test_refused_inputs(row: Entry, name: str) -> None:
    kind, problems = row.kinds[name], {}
    hidden = {} if kind in DATA else {k: Touchy() for k, other in row.kinds.items() if other in DATA}
    for label in sorted(set(INPUTS) - ACCEPTED[kind] - DEPENDS.get(kind, set())):
        value = INPUTS[label]()
        message = refusal(row, **{**hidden, name: value})
        if message.startswith("! accepted") and label in EITHER.get(kind, set()):
            continue
        if message.startswith("!"):
            problems[label] = message
        elif not re.search(rf"\b{name}\b.* must ", message):
            problems[label] = f"does not name {name} and its rule: {message[:100]}"
        elif kind not in DATA | TYPE_SHOWN and label not in EITHER.get(kind, set()) and not is_shown(value, message):
            problems[label] = f"does not show the value: {message[:100]}"
    assert not problems


BAD_BOUNDS: list[Any] = [
    (math.nan, 1.0),
    (0.0, math.nan),
    (-math.inf, 1.0),
    (0, math.inf),
    (2, 1),
    (),
    (1,),
    (1, 2, 3),
    ("0", "1"),
    "01",
    b"01",
    (None, 1),
    (0, None),
    (True, 2),
    (0, np.bool_(True)),
    (0, 1j),
    (0, pd.NA),
    (0, np.ma.masked),
    (0, [1]),
    (0, np.array([1.0])),
    (Decimal(0), 1),
    (0, Fraction(1, 2)),
    (0, np.longdouble(1)),
    (0, 10**400),
    (0, 10**5000),
    (-1.7e308, 1.7e308),
    (np.timedelta64(0, "D"), 1),
    [[0, 1], [0, 1]],
    np.array([[0, 1]]),
    np.array(["0", "1"]),
    np.array([0, math.nan]),
    pd.Series([0, 1]),
    range(2),
    {0, 1},
    {0: 1, 1: 2},
]


@pytest.mark.parametrize("row", [p for p in ROWS_OF_TABLE if "bounds" in p.values[0].kinds])
def test_bad_bounds(row: Entry) -> None:
    hidden = {k: Touchy() for k, kind in row.kinds.items() if kind in DATA}
    problems = {}
    for number, value in enumerate(BAD_BOUNDS):
        message = refusal(row, **hidden, bounds=value)
        if not re.match(r"bounds(\[[01]\])? must ", message) or "got" not in message:
            problems[f"{number}: {shown(value)}"] = message[:100]
    assert not problems


@pytest.mark.parametrize("row", [p for p in ROWS_OF_TABLE if "rng" in p.values[0].kinds])
@pytest.mark.parametrize("bad", [0, 7, np.random.RandomState(0), np.random, np.random.default_rng, np.random.PCG64(0)])
def test_only_a_generator_is_an_rng(row: Entry, bad: Any) -> None:
    hidden = {k: Touchy() for k, kind in row.kinds.items() if kind in DATA}
    assert refusal(row, **hidden, rng=bad).startswith("rng must be None ")


# --- data ------------------------------------------------------------------------------------------------------------


def secret_data() -> Iterator[Any]:
    """Data of a wrong type or value; each holds a recognisable number."""
    text = str(SECRET)
    yield from (text, text.encode(), complex(SECRET), Decimal(text), Fraction(SECRET), np.longdouble(SECRET))
    yield from ({SECRET}, {SECRET: 1}, (x for x in [SECRET]), np.datetime64(int(SECRET), "s"), object())
    yield from ([SECRET, math.nan], [SECRET, None], [SECRET, text], [[SECRET], [1.0, 2.0]], [SECRET, 1j], [SECRET, []])
    yield np.array([SECRET, math.inf])
    yield np.array([SECRET, None], dtype=object)
    yield np.array([text, "x"])
    yield np.array([SECRET, 1j])
    yield np.array([[SECRET, math.nan]])
    yield np.array([[text, "1"]])
    yield np.array([[[SECRET]]])
    yield np.array([SECRET], dtype=np.longdouble)
    yield np.ma.array([SECRET, 1.0], mask=[False, True])
    yield np.ma.array([text, 1.0], mask=[False, True], dtype=object)
    yield np.ma.array([[SECRET, text]], mask=[[False, True]], dtype=object)
    yield pd.Series([SECRET, None])
    yield pd.Series([SECRET, pd.NA], dtype="Float64")
    yield pd.Series([text, text])
    yield pd.Series([text, text], dtype="category")
    yield pd.DataFrame({"a": [SECRET, SECRET], "b": [text, text]})


@pytest.mark.parametrize(("row", "name"), DATA_CASES)
def test_messages_keep_the_data_secret(row: Entry, name: str) -> None:
    problems = {}
    for number, value in enumerate(secret_data()):
        rng = np.random.default_rng(5)
        before = rng.bit_generator.state
        try:
            call(row, rng, **{name: value})
        except (TypeError, ValueError) as error:
            chained = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
            message = f"{error} {chained}"
            if str(int(SECRET)) in message or not re.match(rf"({name}|\w+ and {name}|{name} and \w+) must ", message):
                problems[f"{number}: {type(value).__name__}"] = message[:100]
            elif rng.bit_generator.state != before:
                problems[f"{number}: {type(value).__name__}"] = "drew before refusing"
        except Exception as error:
            problems[f"{number}: {type(value).__name__}"] = f"{type(error).__name__}: {str(error)[:80]}"
    assert not problems


class Odd:
    """A record that is no number at all."""


# What a record may be, and the float that it counts as.
BAD_RECORDS: dict[str, tuple[Any, float]] = {
    "nan": (math.nan, math.nan),
    "inf": (math.inf, math.inf),
    "minus_inf": (-math.inf, -math.inf),
    "none": (None, math.nan),
    "pandas_na": (pd.NA, math.nan),
    "nat": (pd.NaT, math.nan),
    "masked": (np.ma.masked, math.nan),
    "text": ("text", math.nan),
    "digits": ("7", math.nan),
    "bytes": (b"7", math.nan),
    "empty_list": ([], math.nan),
    "nested_list": ([1.0, 2.0], math.nan),
    "nested_array": (np.array([1.0, 2.0]), math.nan),
    "dict": ({"a": 1}, math.nan),
    "complex": (1j, math.nan),
    "numpy_complex": (np.complex128(1j), math.nan),
    "object": (Odd(), math.nan),
    "decimal": (Decimal("sNaN"), math.nan),
    "timedelta": (np.timedelta64(7, "D"), math.nan),
    "timedelta_ns": (np.timedelta64(7, "ns"), math.nan),
    "huge": (10**400, math.inf),
    "huger": (10**5000, math.inf),
    "minus_huge": (-(10**400), -math.inf),
    "huge_fraction": (Fraction(10**400), math.inf),
    "minus_huge_fraction": (Fraction(-(10**400), 3), -math.inf),
    "huge_longdouble": (np.longdouble("1e4000"), math.inf),
    "beyond_int64": (2**64, 2.0**64),
}


def object_array(entries: list[Any]) -> np.ndarray:
    array = np.empty(len(entries), dtype=object)
    for i, x in enumerate(entries):
        array[i] = x
    return array


CONTAINERS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "object_array": object_array,
    "series": lambda entries: pd.Series(object_array(entries), dtype=object),
    "masked_array": lambda entries: np.ma.array(object_array(entries), mask=[False, False, True]),
}


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("record", BAD_RECORDS)
def test_a_bad_record_never_raises(record: str, container: str) -> None:
    value, number = BAD_RECORDS[record]
    column = CONTAINERS[container]([1.0, value, 4.0])
    clipped = sensitivity.clip(column, bounds=(0, 10))
    last = 5.0 if container == "masked_array" else 4.0
    middle = 5.0 if math.isnan(number) else min(max(number, 0.0), 10.0)
    assert clipped.tolist() == [1.0, middle, last]
    assert sensitivity.clipped_sum(column, bounds=(0, 10)) == 1.0 + middle + last
    if container != "masked_array":
        assert tuning.clipping_bound(column, n=10, epsilon=1.0).bound <= 4.0 or math.isfinite(number)


# Numbers that overflow, underflow or are invalid somewhere in a careless formula.
AWKWARD = [0.0, -0.0, 5e-324, -5e-324, 1e-310, 2.3e-308, 1e-160, 1e160, 1e300, -1.7e308, math.inf, -math.inf, math.nan]
AWKWARD_BOUNDS = [(0, 1), (0, 5e-324), (-1e-310, 1e-300), (1e-320, 1e-320), (-1.0, 2.0**900), (-(2.0**900), 2.0**900)]


@pytest.mark.parametrize("bounds", AWKWARD_BOUNDS)
def test_records_never_raise_whatever_the_callers_error_state(bounds: tuple[float, float]) -> None:
    narrow = [np.array(AWKWARD[:-3], dtype=np.longdouble) * np.longdouble("1e3000")]
    with np.errstate(all="ignore"):
        narrow += [np.array(AWKWARD, dtype=np.float64).astype(dtype) for dtype in (np.float16, np.float32)]
    narrow.append(np.array([0x7FA00000], dtype=np.uint32).view(np.float32))  # a NaN that raises a flag when converted
    columns = [AWKWARD, np.array(AWKWARD), object_array(AWKWARD), np.ma.array(AWKWARD, mask=[True] * len(AWKWARD))]
    columns += [[x] for x in AWKWARD] + narrow + [[1.0, record] for record, _ in BAD_RECORDS.values()]
    with np.errstate(all="raise"):
        for column in columns:
            clipped = sensitivity.clip(column, bounds=bounds)
            assert ((bounds[0] <= clipped) & (clipped <= bounds[1])).all()
            assert math.isfinite(sensitivity.clipped_sum(column, bounds=bounds))


@pytest.mark.parametrize("norm", sensitivity.NORMS)
@pytest.mark.parametrize("max_norm", [2.0**-900, 1e-100, 1.0, 1e100, 2.0**900])
def test_vectors_never_raise_whatever_the_callers_error_state(norm: str, max_norm: float) -> None:
    pairs = [[x, y] for x in AWKWARD for y in AWKWARD]
    mixed = [[1.0, record] for record, _ in BAD_RECORDS.values()]
    signalling = np.array([[0x7FA00000, 0x3F800000]], dtype=np.uint32).view(np.float32)
    with np.errstate(all="raise"):
        for vectors in (pairs, np.array(pairs), np.asfortranarray(pairs), [*pairs, *mixed], mixed, signalling):
            result = sensitivity.clip_norm(vectors, max_norm=max_norm, norm=norm)
            assert result.shape == (len(vectors), 2)
            assert np.isfinite(result).all()
            size = [math.hypot(*row) if norm == "l2" else abs(row[0]) + abs(row[1]) for row in result.tolist()]
            assert max(size) <= max_norm
        for row in pairs:  # one at a time: what one person's row does must not depend on the others
            assert np.isfinite(sensitivity.clip_norm([row], max_norm=max_norm, norm=norm)).all()


@pytest.mark.parametrize("container", ["list", "tuple", "object_array", "series"])
@pytest.mark.parametrize("record", BAD_RECORDS)
def test_a_bad_identifier_never_raises(record: str, container: str) -> None:
    person = CONTAINERS[container](["ann", BAD_RECORDS[record][0], "ann"])
    mask = sensitivity.keep_rows(person, max_rows=1).tolist()
    assert [mask[0], mask[2]] == [True, False]


@pytest.mark.parametrize("record", BAD_RECORDS)
def test_a_bad_entry_of_a_vector_never_raises(record: str) -> None:
    """In a list of lists the dtype depends on the entries; an array of objects has its own, which may be refused."""
    value, number = BAD_RECORDS[record]
    result = sensitivity.clip_norm([[3.0, 4.0], [0.1, value]], max_norm=1.0)
    assert result.shape == (2, 2)
    assert np.linalg.norm(result, axis=1).max() <= 1.0
    assert math.isfinite(number) or result[1].tolist() == [0.0, 0.0]


def test_identifiers_of_numpy_types_are_told_apart() -> None:
    for kind in (np.int64, np.uint8, np.float32, np.str_):
        assert sensitivity.keep_rows([kind(1), kind(2), kind(1)], max_rows=1).tolist() == [True, True, False]


def examples(kind: str) -> Iterator[Any]:
    """Good data in every container that a kind takes, read-only where there is such a thing."""
    shape = (2, 2) if kind == "rows" else (4,)
    whole = kind in {"true_int", "where_int"}
    for dtype in ("int8", "int64", "uint64") if whole else ("float64", "float32", "int64"):
        array = np.array([3, 1, 2, 3], dtype=dtype).reshape(shape)
        yield array
        yield read_only(array.copy())
        yield np.asfortranarray(array)
        yield np.array([3, 1, 2, 3] * 2, dtype=dtype)[::-2].reshape(shape)
    yield np.array([3, 1, 2, 3], dtype=">i4").reshape(shape)
    yield np.array([3, 1, 2, 3]).reshape(shape).tolist()
    yield pd.DataFrame({"a": [3, 1], "b": [2, 3]}) if kind == "rows" else pd.Series([3, 1, 2, 3])
    if kind in {"records", "records_of_two", "public_records", "rows"}:
        yield np.array([math.nan, math.inf, 2.0, 3.0]).reshape(shape)
        yield read_only(np.array([math.nan, 1.0, 2.0, 3.0]).reshape(shape))
        yield np.ma.array(np.array([9.0, 1.0, 2.0, 3.0]).reshape(shape), mask=np.array([1, 0, 0, 0]).reshape(shape))


def same_length(row: Entry, name: str, value: Any) -> dict[str, Any]:
    """Return the arguments for one column, and the others and n of the same length where they must be."""
    arguments = {name: value}
    for other, kind in row.kinds.items():
        columns = {"records_of_two", "condition", "identifiers_of_two", "entries", "targets_of_two", "labels_of_two"}
        if other != name and kind in columns and row.good[other]:
            arguments[other] = [1.0, 2.0] * (len(value) // 2)
        if kind == "n" and row.good[other]:
            arguments[other] = len(value)
    return arguments


@pytest.mark.parametrize(("row", "name"), DATA_CASES)
def test_inputs_are_never_changed_or_shared(row: Entry, name: str) -> None:
    for value in examples(row.kinds[name]):
        before = copy.deepcopy(value)
        result = call(row, **same_length(row, name, value))
        np.testing.assert_array_equal(np.asarray(value), np.asarray(before))
        if isinstance(value, np.ma.MaskedArray):
            np.testing.assert_array_equal(value.mask, before.mask)
        for part in result if isinstance(result, tuple) else (result,):
            if isinstance(value, np.ndarray) and isinstance(part, np.ndarray):
                assert not np.shares_memory(value, part)
                assert part.flags.writeable


# --- calls -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ROWS_OF_TABLE)
def test_keywords_are_keywords_only(row: Entry) -> None:
    function, keyword_only = FUNCTIONS[row.function], [p for p in parameters(row.function) if p.kind is p.KEYWORD_ONLY]
    if keyword_only:
        with pytest.raises(TypeError, match="positional argument"):
            function(*row.good.values())
    for p in parameters(row.function):
        if p.default is p.empty:
            with pytest.raises(TypeError, match=f"missing .*{p.name}"):
                function(**{k: v for k, v in row.good.items() if k != p.name})
    with pytest.raises(TypeError, match="unexpected keyword"):
        function(**row.good, no_such_thing=1)


@pytest.mark.parametrize("row", ROWS_OF_TABLE)
def test_numpys_global_generator_is_neither_read_nor_changed(row: Entry) -> None:
    saved = np.random.get_state()  # noqa: NPY002
    try:
        results = []
        for seed in (1, 2):
            np.random.seed(seed)  # noqa: NPY002
            before = np.random.get_state(legacy=False)  # noqa: NPY002
            results.append(repr(call(row)))
            after = np.random.get_state(legacy=False)  # noqa: NPY002
            assert repr(before) == repr(after)
            assert np.array_equal(before["state"]["key"], after["state"]["key"])
        assert results[0] == results[1]
    finally:
        np.random.set_state(saved)  # noqa: NPY002


RELEASES = [p for p in ROWS_OF_TABLE if {"rng", "true_value"} <= set(p.values[0].kinds)]
RELEASES = [p for p in RELEASES if p.values[0].good.get("sensitivity") != 0]


@pytest.mark.parametrize("row", RELEASES)
def test_without_an_rng_no_seed_matters(row: Entry) -> None:
    saved = np.random.get_state()  # noqa: NPY002
    try:
        releases = []
        for _ in range(2):
            np.random.seed(1)  # noqa: NPY002
            value = np.zeros(64, dtype=np.int64)
            releases.append(FUNCTIONS[row.function](**{**row.good, "true_value": value, "rng": None}).tolist())
        assert releases[0] != releases[1]  # 64 entries: they agree by chance less than once in 10**20 runs
    finally:
        np.random.set_state(saved)  # noqa: NPY002


def test_integers_are_not_clamped_where_they_are_parameters() -> None:
    """Only values of bounded sensitivity may be clamped to 2**53: a clamped sensitivity gives too small an error."""
    for argument in ("sensitivity", "epsilon"):
        arguments: dict[str, Any] = {"sensitivity": 1.0, "epsilon": 1.0, "alpha": 0.05}
        as_int, as_float = (
            tuning.error_curve(**{**arguments, argument: value}).item() for value in (2**60, float(2**60))
        )
        assert as_int == as_float


def test_shapes_that_do_not_broadcast_are_named() -> None:
    with pytest.raises(ValueError, match=r"epsilon.*sensitivity"):
        tuning.error_curve(epsilon=[1.0, 2.0], sensitivity=[1.0, 2.0, 3.0], alpha=0.05)


def test_a_discrete_sensitivity_is_whole() -> None:
    with pytest.raises(ValueError, match="sensitivity must be a whole number"):
        tuning.error_curve(epsilon=1.0, sensitivity=0.5, alpha=0.05, mechanism="discrete_laplace")
    with pytest.raises(ValueError, match="sensitivity must be a whole number"):
        tuning.epsilon_for_error(error=1.0, sensitivity=0.5, alpha=0.05, mechanism="discrete_laplace")


EXTREMES = (5e-324, 1e-310, 1e-300, 1e-154, 1e-9, 1.0, 1e9, 1e154, 1e300, sys.float_info.max)


@pytest.mark.parametrize(
    ("row", "name"), [p for p in CASES if p.values[0].kinds[p.values[1]] in {"positive", "non_negative"}]
)
def test_extreme_parameters_work_or_are_refused(row: Entry, name: str) -> None:
    """Nothing but a ValueError with a rule, no warning, and no NaN."""
    problems = {}
    for value in EXTREMES:
        try:
            result = call(row, **{name: value})
        except (TypeError, ValueError) as error:
            if not re.search(r"\bmust be\b|\bmust lie\b", str(error)):
                problems[value] = f"{type(error).__name__}: {str(error)[:100]}"
        except Exception as error:
            problems[value] = f"{type(error).__name__}: {str(error)[:100]}"
        else:
            if isinstance(result, (float, np.ndarray)) and np.isnan(result).any():
                problems[value] = "nan"
    assert not problems


# --- the package as a whole ------------------------------------------------------------------------------------------


def test_the_import_is_silent_and_light() -> None:
    code = "import sys, dpbook; print(*({'matplotlib', 'pandas'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")


def test_every_module_has_a_docstring() -> None:
    for module in (dpbook, dpbook._validate, dpbook._exact, *MODULES):
        assert (module.__doc__ or "").strip(), module.__name__


def test_all_names_exist() -> None:
    assert sorted(dpbook.__all__) == dpbook.__all__
    assert all(hasattr(dpbook, name) for name in dpbook.__all__)


def sections(function: str) -> set[str]:
    return set(re.findall(r"^(\w[\w ]*)\n-+$", inspect.getdoc(FUNCTIONS[function]) or "", flags=re.MULTILINE))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_docstrings_have_their_sections(function: str) -> None:
    assert (FUNCTIONS[function].__doc__ or "").strip()
    wanted = {"Examples"} if function in UNCHECKED else {"Parameters", "Raises", "References", "Examples"}
    if function.startswith("datasets."):
        wanted -= {"References"}  # made up here: there is no source
    assert wanted - sections(function) == set()


@pytest.mark.parametrize("function", sorted(set(FUNCTIONS) - UNCHECKED))
def test_docstrings_describe_every_parameter(function: str) -> None:
    text = inspect.getdoc(FUNCTIONS[function]) or ""
    part = re.search(r"^Parameters\n-+\n(.*?)(?=^\w[\w ]*\n-+$|\Z)", text, flags=re.MULTILINE | re.DOTALL)
    listed = re.findall(r"^(\w+(?:, \w+)*) : ", part.group(1) if part else "", flags=re.MULTILINE)
    assert [name for line in listed for name in line.split(", ")] == [p.name for p in parameters(function)]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_docstrings_say_what_is_private(function: str) -> None:
    text = " ".join((FUNCTIONS[function].__doc__ or "").split())
    name = function.split(".")[1]
    if name.endswith("_mechanism") or name.startswith("add_"):
        assert re.search(r"DP\b|private", text)
    if "rng" in {p.name for p in parameters(function)}:
        assert "NOT private" in text
