"""Self-checks for the exercises: whether an answer is right, without showing the right one. Teaching code only.

`check` rounds the reader's answer as the exercise asks and compares its hash with the stored one. The hash hides the
answer from a glance and not from a search: rounded numbers are few, and the solution stands below the exercise anyway.

A new exercise needs one line in `KEYS`, made with `seal`. Exercises that ask for a proof or a plot have no check.
"""

import hashlib
import math
from typing import Any

import numpy as np

DIGITS = 3  # significant digits that are compared, unless the exercise says otherwise

# Exercise: the hash of its answer, and the number of digits.
KEYS: dict[str, tuple[str, int]] = {
    "concepts-ex1": ("81db3bf2bdac2a50", 3),
    "concepts-ex2": ("401625d876f4c5ab", 2),
    "concepts-ex3": ("f7a6a201cfbbe3fe", 3),
    "concepts-ex4": ("41fface84c8ce1d4", 3),
    "concepts-ex5": ("2b613480ee0d0657", 3),
    "sensitivity-ex1": ("e245e55efd18fc87", 3),
    "sensitivity-ex2": ("ac470ed96a3cf423", 3),
    "sensitivity-ex3": ("0779d151b9df5c57", 3),
    "sensitivity-ex4": ("d8922de486493623", 3),
    "sensitivity-ex5": ("a5caf6e5a73a2378", 3),
    "laplace-ex1": ("c4edc7cd1aaa4570", 3),
    "laplace-ex2": ("2cba2b5caaa8c7a1", 3),
    "laplace-ex3": ("939cb88db743cc0f", 3),
    "laplace-ex4": ("e7cd5658faec12fa", 3),
    "noise-ex1": ("11459de2c6d5539d", 2),
    "noise-ex2": ("f2151c3ae5d3cba2", 3),
    "noise-ex3": ("2e5048e371a908ed", 3),
    "gaussian-ex1": ("e2d99512a1f3cd51", 3),
    "gaussian-ex2": ("badb2168f69569a4", 3),
    "gaussian-ex3": ("35108a8e80219e82", 3),
    "gaussian-ex4": ("06066afe55b673d2", 3),
    "gaussian-ex5": ("2c0f108eddfa26c7", 3),
    "gaussian-ex6": ("ab4219ec431e345c", 3),
    "tuning-ex1": ("71b543839783abb6", 3),
    "tuning-ex2": ("abbb37d1e483ac92", 5),
    "tuning-ex3": ("f4177bc9aa3d4a33", 3),
    "tuning-ex4": ("b43a1362ec2d7028", 3),
    "tuning-ex5": ("730fb213e4c38a5e", 3),
    "training-ex1": ("08f02ce889edc0dc", 2),
    "training-ex2": ("1153370013b7a554", 2),
    "training-ex3": ("1301439e96a956f7", 2),
    "trainingattacks-ex1": ("790fc4322423f914", 3),
    "trainingattacks-ex2": ("d21a22f64ecf3eae", 2),
    "trainingattacks-ex3": ("245bf3c17a759fbe", 2),
    "trainingattacks-ex4": ("2facd49fc1369ade", 2),
}


def _canonical(answer: Any, digits: int) -> str:
    """Return an answer as text, so that 2, 2.0 and ``numpy.float64(2)`` are the same."""
    if isinstance(answer, (bool, np.bool_)):
        return "yes" if answer else "no"
    if isinstance(answer, str):
        return " ".join(answer.casefold().split())
    if isinstance(answer, (int, float, np.integer, np.floating)) or (
        isinstance(answer, np.ndarray) and answer.ndim == 0 and answer.dtype.kind in "iuf"
    ):
        number = float(answer)
        return f"{number:.{digits - 1}e}" if math.isfinite(number) and number != 0.0 else str(abs(number))
    if isinstance(answer, (list, tuple, np.ndarray)):
        return "; ".join(_canonical(part, digits) for part in answer)
    raise TypeError(f"answer must be a number, a text, True or False, or a list of these, got {type(answer).__name__}")


def seal(label: str, answer: Any, *, digits: int = DIGITS) -> str:
    """Return the key of an answer, for `KEYS`.

    Parameters
    ----------
    label : str
        Label of the exercise, such as "laplace-ex1". It salts the hash, so equal answers have different keys.
    answer : float, str, bool, or a list of these
        The right answer. The order of a list counts.
    digits : int, optional
        Significant digits to which numbers are rounded before the comparison.

    Returns
    -------
    str
        Sixteen hexadecimal digits.

    Raises
    ------
    TypeError
        When the answer is none of these types.

    Examples
    --------
    >>> seal("a-ex1", 0.12345) == seal("a-ex1", 0.123), seal("a-ex1", 2) == seal("a-ex1", 2.0)
    (True, True)
    >>> seal("a-ex1", 2) == seal("a-ex2", 2)
    False
    """
    return hashlib.sha256(f"{label}: {_canonical(answer, digits)}".encode()).hexdigest()[:16]


def check(label: str, answer: Any) -> None:
    """Print whether an answer to an exercise is right, without showing the right one.

    Numbers are compared after rounding to three significant digits, or to as many as the printed line says.

    Parameters
    ----------
    label : str
        Label of the exercise, such as "laplace-ex1".
    answer : float, str, bool, list of these, or None
        The answer to check; the order of a list counts. None prints how to use the cell.

    Raises
    ------
    ValueError
        When no exercise with this label has a check.
    TypeError
        When the answer is none of these types.

    Examples
    --------
    >>> check("laplace-ex4", answer=None)
    Put your answer in place of None. Numbers are compared to 3 significant digits.
    >>> check("laplace-ex4", answer=1)
    Not right yet, or not given to 3 significant digits.
    """
    if label not in KEYS:
        raise ValueError(f"label must be an exercise that has a check, got {label!r}")
    key, digits = KEYS[label]
    if answer is None:
        print(f"Put your answer in place of None. Numbers are compared to {digits} significant digits.")
    elif seal(label, answer, digits=digits) == key:
        print("Right.")
    else:
        print(f"Not right yet, or not given to {digits} significant digits.")
