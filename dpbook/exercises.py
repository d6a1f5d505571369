"""Self-checks for the exercises: whether an answer is right, without showing the right one. Teaching code only.

`check` rounds the reader's answer as the exercise asks and compares its hash with the stored one. The hash hides the
answer from a glance and not from a search: rounded numbers are few, and the solution stands below the exercise anyway.

A new exercise needs one line in `KEYS`, made with `seal`. Where an exercise asks for a proof or a program, its check
asks for a number, or for a yes or no, that follows from it.
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
    "sensitivity-ex1": ("9316c0e46b1da670", 3),
    "sensitivity-ex2": ("cc34193eff4979fa", 3),
    "sensitivity-ex3": ("a939df1807c894e5", 3),
    "sensitivity-ex4": ("5e0fbb13de92d030", 3),
    "sensitivity-ex5": ("7c4e8744dbeaff18", 3),
    "laplace-ex1": ("c4edc7cd1aaa4570", 3),
    "laplace-ex2": ("2cba2b5caaa8c7a1", 3),
    "laplace-ex3": ("939cb88db743cc0f", 3),
    "laplace-ex4": ("e7cd5658faec12fa", 3),
    "noise-ex1": ("11459de2c6d5539d", 2),
    "noise-ex2": ("f2151c3ae5d3cba2", 3),
    "noise-ex3": ("2e5048e371a908ed", 3),
    "noise-ex4": ("eefddf55999632ff", 3),
    "noise-ex5": ("cb130fe5d2bfa399", 3),
    "gaussian-ex1": ("e2d99512a1f3cd51", 3),
    "gaussian-ex2": ("badb2168f69569a4", 3),
    "gaussian-ex3": ("35108a8e80219e82", 3),
    "gaussian-ex4": ("06066afe55b673d2", 3),
    "gaussian-ex5": ("197738f49ba3cf35", 3),
    "gaussian-ex6": ("88a3f30a5270c10d", 3),
    "composition-ex1": ("6276b5dbb6d4d17a", 3),
    "composition-ex2": ("b7912d1d09487ca0", 3),
    "composition-ex3": ("e1676a9895f11919", 3),
    "composition-ex4": ("c399f5d94c26509b", 3),
    "accounting-ex1": ("9714d19c19d3e571", 3),
    "accounting-ex2": ("1b95ab64a31944ff", 3),
    "accounting-ex3": ("8d324920bc310599", 2),
    "accounting-ex4": ("6a9eedc0fa09763f", 2),
    "accounting-ex5": ("dc0c97a4a82b50d3", 3),
    "risk-ex1": ("2149604c0dac5093", 3),
    "risk-ex2": ("4c2472a3d9fa704f", 3),
    "risk-ex3": ("fe1e7d6dd96fc574", 3),
    "risk-ex4": ("0da03a9889886d86", 2),
    "budget-ex1": ("1f7cf26e70e877e0", 3),
    "budget-ex2": ("2588a40a08a381ad", 3),
    "budget-ex3": ("4bb6b1b15acd0241", 3),
    "budget-ex4": ("44f8ee9950c5fa15", 3),
    "audit-ex1": ("20d45e427d290598", 3),
    "audit-ex2": ("cb90ffcc00d3b809", 3),
    "audit-ex3": ("5f7c7b6e2528fe46", 3),
    "audit-ex4": ("32a6b6bfdf168916", 3),
    "audit-ex5": ("c3e7dd8bb4c2573e", 2),
    "tuning-ex1": ("71b543839783abb6", 3),
    "tuning-ex2": ("abbb37d1e483ac92", 5),
    "tuning-ex3": ("f4177bc9aa3d4a33", 3),
    "tuning-ex4": ("b43a1362ec2d7028", 3),
    "tuning-ex5": ("730fb213e4c38a5e", 3),
    "casestudy-ex1": ("e7893ecdab40289e", 3),
    "casestudy-ex2": ("5f3a7e5f9d754bb3", 3),
    "casestudy-ex3": ("ca5953dc3af1768a", 3),
    "casestudy-ex4": ("68dc5c1e6df0aaab", 3),
    "training-ex1": ("08f02ce889edc0dc", 2),
    "training-ex2": ("1153370013b7a554", 2),
    "training-ex3": ("1301439e96a956f7", 2),
    "trainingattacks-ex1": ("790fc4322423f914", 3),
    "trainingattacks-ex2": ("d21a22f64ecf3eae", 2),
    "trainingattacks-ex3": ("245bf3c17a759fbe", 2),
    "trainingattacks-ex4": ("2facd49fc1369ade", 2),
    "queries-ex1": ("80d53e749191294e", 3),
    "queries-ex2": ("6f54dbbdf3075dca", 3),
    "queries-ex3": ("1c3e6f32d8adeff1", 3),
    "histograms-ex1": ("c341cbc0c03aa5e3", 3),
    "histograms-ex2": ("81362878e2b7f354", 3),
    "histograms-ex3": ("fd7f0e8ac8b18049", 3),
    "quantiles-ex1": ("c9802cac9e36258b", 3),
    "quantiles-ex2": ("10eecd1e0f8e4c0b", 3),
    "quantiles-ex3": ("73e3ee6033840c67", 3),
    "local-ex1": ("ab65dc0bb68a052d", 3),
    "local-ex2": ("477d951446d2be84", 3),
    "selection-ex1": ("ee2f402717fcc4da", 3),
    "selection-ex2": ("22d727718b888b1c", 3),
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
