"""The cheat sheet: every call on it runs, and gives the result that it states."""

import re
from pathlib import Path

import numpy as np
import pytest

from dpbook import (
    accounting,
    audit,
    budget,
    composition,
    discrete_laplace_mechanism,
    gaussian,
    histograms,
    laplace,
    local,
    quantiles,
    queries,
    risk,
    selection,
    sensitivity,
    tuning,
)

TEXT = (Path(__file__).parent.parent / "book" / "cheatsheet.md").read_text(encoding="utf8")
MODULES = (sensitivity, laplace, gaussian, tuning, queries, histograms, quantiles, selection, local)
MODULES += (composition, risk, budget, audit, accounting)
RNG = np.random.default_rng(1)


def release(people):
    """What the sheet's audit looks at: a count of people with ε = 1 under add/remove."""
    return discrete_laplace_mechanism(len(people), epsilon=1.0, sensitivity=1, rng=RNG)


NAMES = {name: thing for module in MODULES for name, thing in vars(module).items() if not name.startswith("_")}
NAMES |= {"count": 41, "counts": np.array([5, 0, 17]), "x": [31.0, 12.0, 55.0], "n": 3, "release": release}
CALLS = re.findall(r"`(\w+\(.+?\)(?: / n|\.\w+|\[\d\])?)` \| ([^|]+) \|", TEXT)


def test_every_row_of_a_table_is_called_here():
    lines = [line for line in TEXT.splitlines() if line.startswith("|")]
    tables = sum(line.startswith("| ---") for line in lines)
    assert len(CALLS) == len(lines) - 2 * tables >= 30


@pytest.mark.parametrize(("call", "stated"), CALLS, ids=[call[:40] for call, _ in CALLS])
def test_call(call, stated):
    result = eval(call, dict(NAMES))
    if re.fullmatch(r"[\d.]+", stated.strip()):
        digits = len(stated.strip().partition(".")[2])
        assert round(float(result), digits) == float(stated)
    elif stated.strip() in ("True", "False"):
        assert str(result) == stated.strip()
    elif isinstance(result, list):
        assert len(result) == 3
        assert set(result) <= {"yes", "no"}
    else:
        assert np.all(np.isfinite(result))
        assert np.shape(result) in ((), (3,))
