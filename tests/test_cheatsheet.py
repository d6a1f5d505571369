"""The cheat sheet: every call on it runs, and gives the result that it states."""

import re
from pathlib import Path

import numpy as np
import pytest

from dpbook import accounting, gaussian, laplace, sensitivity, tuning

TEXT = (Path(__file__).parent.parent / "book" / "cheatsheet.md").read_text(encoding="utf8")
NAMES = {**vars(sensitivity), **vars(laplace), **vars(gaussian), **vars(tuning), **vars(accounting)}
NAMES |= {"count": 41, "counts": np.array([5, 0, 17]), "x": [31.0, 12.0, 55.0], "n": 3}
CALLS = re.findall(r"`(\w+\(.+?\)(?: / n)?)` \| ([^|]+) \|", TEXT)


def test_the_sheet_has_calls():
    assert len(CALLS) >= 15


@pytest.mark.parametrize(("call", "stated"), CALLS, ids=[call[:40] for call, _ in CALLS])
def test_call(call, stated):
    result = eval(call, dict(NAMES))
    if re.fullmatch(r"[\d.]+", stated.strip()):
        digits = len(stated.strip().partition(".")[2])
        assert round(float(result), digits) == float(stated)
    else:
        assert np.all(np.isfinite(result))
        assert np.shape(result) in ((), (3,))
