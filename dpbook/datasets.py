"""Synthetic data for the chapters: people who do not exist, generated from a fixed seed, so nothing is downloaded."""

import numpy as np
import numpy.typing as npt

from dpbook import _validate

Columns = dict[str, npt.NDArray[np.int64]]


def residents(n: int = 1000, *, seed: int = 2026) -> Columns:
    """Return a table of synthetic residents, one row each: no guarantee is needed, as nobody is described.

    Parameters
    ----------
    n : int, optional
        Number of residents.
    seed : int, optional
        Another seed gives another town.

    Returns
    -------
    dict of numpy.ndarray of int64
        ``age`` in years (0 to 100), ``income`` in currency units a year (0 upwards, long right tail, children 0) and
        ``visits`` to a doctor in a year (0 upwards). ``pandas.DataFrame(residents())`` makes a table of it.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    Examples
    --------
    >>> town = residents(n=3)
    >>> sorted(town), town["age"].shape
    (['age', 'income', 'visits'], (3,))
    """
    size, rng = _validate.integer(n=n), np.random.default_rng(_validate.integer(0, seed=seed))
    age = np.clip(np.rint(100 * rng.beta(2.0, 2.9, size)), 0, 100)
    salary = np.exp(rng.normal(10.3, 0.6, size)) * np.where(rng.random(size) < 0.02, 6.0, 1.0)
    income = np.where(age < 18, 0.0, np.rint(salary / 100) * 100)
    visits = rng.poisson(0.8 + age / 25)
    return {name: np.asarray(column, dtype=np.int64) for name, column in
            (("age", age), ("income", income), ("visits", visits))}  # fmt: skip


def clinic_rows(n: int = 1000, *, clinics: int = 6, seed: int = 2026) -> Columns:
    """Return one row for each visit of `residents`: who came, and to which of the clinics. A person has many rows.

    Parameters
    ----------
    n : int, optional
        Number of residents.
    clinics : int, optional
        Number of clinics, numbered from 0.
    seed : int, optional
        The seed of `residents`.

    Returns
    -------
    dict of numpy.ndarray of int64
        ``person`` (row number in `residents`) and ``clinic``, in the order in which the rows came in.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    Examples
    --------
    >>> rows = clinic_rows(n=50)
    >>> len(rows["person"]) == len(rows["clinic"]) == int(residents(n=50)["visits"].sum())
    True
    """
    count = _validate.integer(clinics=clinics)
    visits = residents(n, seed=seed)["visits"]
    rng = np.random.default_rng([_validate.integer(0, seed=seed), 1])
    person = rng.permutation(np.repeat(np.arange(len(visits)), visits.astype(np.intp)))  # intp: also on 32 bits
    usual = rng.integers(0, count, len(visits))
    elsewhere = rng.random(len(person)) < 0.3
    clinic = np.where(elsewhere, rng.integers(0, count, len(person)), usual[person])
    return {"person": person.astype(np.int64), "clinic": clinic.astype(np.int64)}
