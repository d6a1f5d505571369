"""Synthetic data: the same on every machine, and consistent with itself."""

import math

import numpy as np
import pytest

from dpbook import datasets


def test_pinned():
    town = datasets.residents(n=5)
    assert {k: v.tolist() for k, v in town.items()} == {
        "age": [60, 56, 26, 36, 34],
        "income": [22300, 44100, 25900, 27200, 43700],
        "visits": [4, 5, 1, 2, 1],
    }


def test_summary():
    town = datasets.residents()
    assert list(town) == ["age", "income", "visits"]
    assert all(v.dtype == np.int64 and v.shape == (1000,) for v in town.values())
    assert [int(v.sum()) for v in town.values()] == [41530, 34188800, 2466]
    assert [(int(v.min()), int(v.max())) for v in town.values()] == [(1, 93), (0, 528100), (0, 11)]
    assert (town["income"][town["age"] < 18] == 0).all()
    assert town["income"].mean() > np.median(town["income"])  # the long right tail that the chapters clip


def test_seeds_and_global_state():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first, again, other = datasets.residents(50), datasets.residents(50), datasets.residents(50, seed=1)
    rows, rows_again, rows_other = datasets.clinic_rows(50), datasets.clinic_rows(50), datasets.clinic_rows(50, seed=1)
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002
    assert all((first[k] == again[k]).all() and (first[k] != other[k]).any() for k in first)
    assert all((rows[k] == rows_again[k]).all() for k in rows)
    assert rows["person"].tolist() != rows_other["person"].tolist()


@pytest.mark.parametrize(("n", "clinics"), [(1, 1), (5, 6), (300, 3)])
def test_clinic_rows_follow_residents(n, clinics):
    rows, visits = datasets.clinic_rows(n, clinics=clinics), datasets.residents(n)["visits"]
    assert list(rows) == ["person", "clinic"]
    assert all(v.dtype == np.int64 for v in rows.values())
    assert np.bincount(rows["person"], minlength=n).tolist() == visits.tolist()
    assert set(rows["clinic"].tolist()) <= set(range(clinics))


@pytest.mark.parametrize("bad", [0, -1, 2.5, math.nan, math.inf, True, "5", None])
def test_wrong_n(bad):
    for function in (datasets.residents, datasets.clinic_rows):
        with pytest.raises((TypeError, ValueError), match="n must"):
            function(bad)
    with pytest.raises((TypeError, ValueError), match="clinics must"):
        datasets.clinic_rows(5, clinics=bad)


@pytest.mark.parametrize("bad", [-1, 0.5, None, "1"])
def test_wrong_seed(bad):
    for function in (datasets.residents, datasets.clinic_rows):
        with pytest.raises((TypeError, ValueError), match="seed must"):
            function(5, seed=bad)


def test_whole_float_seed():
    assert datasets.residents(5, seed=2026.0)["age"].tolist() == datasets.residents(5)["age"].tolist()
    assert datasets.clinic_rows(5, seed=2026.0)["person"].tolist() == datasets.clinic_rows(5)["person"].tolist()
