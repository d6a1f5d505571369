"""One place that refuses bad input.

Every check takes its argument by keyword, so that the message names the parameter: ``positive(epsilon=-1)`` raises
``ValueError: epsilon must be positive and finite, got -1``. A wrong type raises
`TypeError`, a wrong value `ValueError`.

Parameters (ε, bounds, n, …) are public, so their value is shown. Data never is: a message about `true_value` or about
records states the rule and nothing else.
"""

import math
import numbers
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
ADD_REMOVE = "add_remove"
REPLACE_ONE = "replace_one"
LARGEST_EXACT_INT = 2**53  # every integer up to here is a float64
DEEPEST = 10  # a key may be a tuple of tuples, so many times


def _one(pairs: dict[str, Any]) -> tuple[str, Any]:
    ((name, value),) = pairs.items()
    return name, value


def shown(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer with more digits than Python prints
        return f"a number of {value.bit_length()} bits" if isinstance(value, int) else f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def all_digits(value: float) -> str:
    """Return a number in short where that is the same number, else with all digits: a price is never shown too low."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def is_integer(value: Any) -> bool:
    """Say whether this is one integer: a Python or NumPy one, and neither a bool nor a length of time."""
    return type(value) is int or (
        isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.timedelta64))
    )


def real(rule: str = "a real number", /, **parameter: Any) -> float:
    """Return the parameter as a float; refuse what is not one real number (bool, complex, str, None, arrays, NaN)."""
    name, value = _one(parameter)
    if type(value) is not float:
        if isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "iuf":
            value = value[()]
        known = isinstance(value, (int, float, np.integer, np.floating))
        if not known or isinstance(value, (bool, np.longdouble, np.timedelta64)):
            raise TypeError(f"{name} must be {rule}, got {shown(value)} of type {type(value).__name__}")
        try:
            value = float(value)
        except OverflowError:
            raise ValueError(f"{name} must be {rule} that float64 can hold, got {shown(value)}") from None
    if math.isnan(value):
        raise ValueError(f"{name} must be {rule}, got nan")
    return float(value)


def positive(**parameter: Any) -> float:
    """Return a float in (0, ∞)."""
    (given,) = parameter.values()
    if type(given) is float and 0.0 < given < math.inf:  # the usual case, fast
        return given
    name, given = _one(parameter)
    value = real("a positive, finite number", **parameter)
    if not 0.0 < value < math.inf:
        raise ValueError(f"{name} must be positive and finite, got {shown(given)}")
    return value


def non_negative(**parameter: Any) -> float:
    """Return a float in [0, ∞)."""
    (given,) = parameter.values()
    if type(given) is float and 0.0 < given < math.inf:
        return given
    name, given = _one(parameter)
    value = real("a non-negative, finite number", **parameter)
    if not 0.0 <= value < math.inf:
        raise ValueError(f"{name} must be non-negative and finite, got {shown(given)}")
    return value + 0.0  # -0.0 becomes 0.0


def open_unit(**parameter: Any) -> float:
    """Return a float strictly between 0 and 1."""
    (given,) = parameter.values()
    if type(given) is float and 0.0 < given < 1.0:
        return given
    name, given = _one(parameter)
    value = real("a number strictly between 0 and 1", **parameter)
    if not 0.0 < value < 1.0:
        raise ValueError(f"{name} must be strictly between 0 and 1, got {shown(given)}")
    return value


def half_open_unit(**parameter: Any) -> float:
    """Return a float in [0, 1)."""
    name, given = _one(parameter)
    value = real("a number in [0, 1)", **parameter)
    if not 0.0 <= value < 1.0:
        raise ValueError(f"{name} must be at least 0 and below 1, got {shown(given)}")
    return value + 0.0


def closed_unit(**parameter: Any) -> float:
    """Return a float in [0, 1]."""
    name, given = _one(parameter)
    value = real("a number in [0, 1]", **parameter)
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} must be at least 0 and at most 1, got {shown(given)}")
    return value + 0.0


def finite(**parameter: Any) -> float:
    """Return a finite float."""
    name, given = _one(parameter)
    value = real("a finite number", **parameter)
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {shown(given)}")
    return value + 0.0


def integer(at_least: int = 1, /, **parameter: Any) -> int:
    """Return an int from `at_least` to 2**53; a float is taken when it is a whole number."""
    (given,) = parameter.values()
    if type(given) is int and at_least <= given <= LARGEST_EXACT_INT:
        return given
    name, given = _one(parameter)
    if is_integer(given):
        value = int(given)
    else:
        number = real("a whole number", **parameter)
        if not math.isfinite(number) or number != math.floor(number):
            raise ValueError(f"{name} must be a whole number, got {shown(given)}")
        value = int(number)
    if not at_least <= value <= LARGEST_EXACT_INT:
        limit = f"at least {at_least}" if value < at_least else "at most 2**53"
        raise ValueError(f"{name} must be {limit}, got {shown(given)}")
    return value


def bounds(**parameter: Any) -> tuple[float, float]:
    """Return ``(lower, upper)`` as finite floats with lower ≤ upper."""
    name, given = _one(parameter)
    rule = "a pair (lower, upper) of finite numbers"
    if not isinstance(given, (tuple, list)) and not (isinstance(given, np.ndarray) and given.ndim == 1):
        raise TypeError(f"{name} must be {rule}, got {shown(given)}")
    if len(given) != 2:
        raise ValueError(f"{name} must be {rule}, got {len(given)} values")
    lower, upper = (real("finite", **{f"{name}[{i}]": given[i]}) for i in (0, 1))
    if not (math.isfinite(lower) and math.isfinite(upper)):
        raise ValueError(f"{name} must be finite, got ({lower}, {upper})")
    if lower > upper:
        raise ValueError(f"{name} must have lower <= upper, got ({lower}, {upper})")
    if not math.isfinite(upper - lower):
        raise ValueError(f"{name} must have a finite width, got ({lower}, {upper})")
    return lower + 0.0, upper + 0.0


def choice(options: tuple[str, ...], /, **parameter: Any) -> str:
    """Return the parameter when it is one of the options."""
    (value,) = parameter.values()
    if type(value) is str and value in options:
        return value
    name, value = _one(parameter)
    if not isinstance(value, str):
        raise TypeError(f"{name} must be one of {options}, got {shown(value)}")
    if value not in options:
        raise ValueError(f"{name} must be one of {options}, got {shown(value)}")
    return value


def flag(**parameter: Any) -> bool:
    """Return a bool: True or False, and nothing that merely counts as one."""
    name, value = _one(parameter)
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {shown(value)}")
    return bool(value)


def neighbors(value: Any) -> str:
    """Return the neighbour relation: ``"add_remove"`` or ``"replace_one"``."""
    return choice((ADD_REMOVE, REPLACE_ONE), neighbors=value)


def generator(rng: Any) -> None:
    """Refuse an `rng` that is neither None nor a NumPy Generator (a bare seed would be silently ignored elsewhere)."""
    if rng is not None and not isinstance(rng, np.random.Generator):
        raise TypeError(
            "rng must be None (operating-system entropy) or a numpy.random.Generator such as "
            f"numpy.random.default_rng(0), got {type(rng).__name__}"
        )


def _numeric(name: str, value: Any, kinds: str, rule: str) -> npt.NDArray[Any]:
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name} must be {rule}, got a masked array; fill it first")
    if isinstance(value, (str, bytes, bool, np.bool_, set, frozenset, dict)) or value is None:
        raise TypeError(f"{name} must be {rule}, got {type(value).__name__}")
    try:
        array = np.asarray(value)
    except ValueError:
        raise ValueError(f"{name} must be {rule} of a regular shape") from None
    if array.dtype.kind not in kinds or array.dtype.itemsize > 8:
        raise TypeError(f"{name} must be {rule}, got dtype {array.dtype}")
    return array


def finite_values(rule: str = "a real number or an array of real numbers", /, **parameter: Any) -> FloatArray:
    """Return a float64 array of any shape; refuse non-finite entries without showing them.

    Integers are clamped to ±2**53, where float64 is exact: clamping never moves two values apart, whereas rounding
    2**53 + 1 would move it by a whole unit.
    """
    name, value = _one(parameter)
    if type(value) is int:  # a Python int has no largest value
        value = min(max(value, -LARGEST_EXACT_INT), LARGEST_EXACT_INT)
    elif isinstance(value, (list, tuple)) and len(value) == 0:
        return np.empty(0)
    array = _numeric(name, value, "iuf", rule)
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8:
        limit = array.dtype.type(LARGEST_EXACT_INT)
        array = np.minimum(array, limit)
        if array.dtype.kind == "i":
            array = np.maximum(array, -limit)
    with np.errstate(invalid="ignore"):  # a signalling NaN raises a flag when it is converted
        result = np.asarray(array, dtype=np.float64)
    if not np.isfinite(result).all():
        raise ValueError(f"{name} must be finite: a value of bounded sensitivity is never NaN or infinite")
    return result


def utilities(**parameter: Any) -> FloatArray:
    """Return the utilities of candidates, one finite number each; how many there are is public."""
    name, given = _one(parameter)
    rule = "a list or one-dimensional array with one real number for each candidate"
    if isinstance(given, dict):
        raise TypeError(f"{name} must be {rule}, got dict: pass list(d.values()), and find the chosen key in list(d)")
    values = finite_values(rule, **parameter)
    if values.ndim != 1:
        raise ValueError(f"{name} must be {rule}, got {values.ndim} dimensions")
    if not len(values):
        raise ValueError(f"{name} must have at least one candidate to choose from, got none")
    return values


def as_given(given: Any, values: FloatArray) -> Any:
    """Return a Python float where one number was given, an array where an array was."""
    return float(values) if values.ndim == 0 and not isinstance(given, np.ndarray) else values


def finite_array(**parameter: Any) -> FloatArray:
    """Return a public parameter as a float64 array of any shape; unlike a value, it is never clamped."""
    name, given = _one(parameter)
    result = _numeric(name, given, "iuf", "a finite number or an array of finite numbers").astype(np.float64)
    if not np.isfinite(result).all():
        raise ValueError(f"{name} must be finite, got {shown(given)}")
    return result


def integer_values(**parameter: Any) -> IntArray:
    """Return an int64 array of any shape; unsigned values beyond int64 are clamped to its largest."""
    name, value = _one(parameter)
    if isinstance(value, (list, tuple)) and len(value) == 0:
        return np.empty(0, dtype=np.int64)
    array = _numeric(name, value, "iu", "an integer or an array of integers")
    if array.dtype == np.uint64:
        array = np.minimum(array, np.uint64(np.iinfo(np.int64).max))
    return array.astype(np.int64)


def _as_float(record: Any) -> float:
    """Return one record as a float, NaN for all that is not a real number. A Decimal is one."""
    if isinstance(record, np.ndarray) and record.ndim == 0 and not isinstance(record, np.ma.MaskedArray):
        record = record[()]
    if isinstance(record, (numbers.Real, np.bool_, Decimal)) and not isinstance(record, np.timedelta64):
        try:
            return float(record)
        except ValueError:  # a signalling NaN of Decimal
            return math.nan
        except OverflowError:
            return math.inf if bool(record > 0) else -math.inf  # type: ignore[operator]
    return math.nan


def _floats(array: npt.NDArray[Any]) -> FloatArray:
    """Return a numeric or object array as a new float64 array, NaN for what is not a number, without a warning."""
    if array.dtype.kind == "O":
        return np.fromiter(map(_as_float, array.flat), dtype=np.float64, count=array.size).reshape(array.shape)
    with np.errstate(all="ignore"):
        return array.astype(np.float64)


def records(**parameter: Any) -> FloatArray:
    """Return one-dimensional data as a float64 copy, NaN wherever a record is not a real number.

    A column's type is part of the public schema, so an array of strings or a scalar raises. A single bad record in a
    list or an object column (None, NA, text, a nested list) becomes NaN and never raises: an error that depends on one
    record would tell that the record is there.
    """
    name, value = _one(parameter)
    rule = "one-dimensional data: a list, tuple, range, NumPy array or pandas Series"
    mask = None
    if isinstance(value, np.ma.MaskedArray):
        value, mask = value.data, np.ma.getmaskarray(value)
    if isinstance(value, (list, tuple, range)):
        try:
            # NumPy sees numbers only: of one long text it would make as long a text of every record.
            plain = all(issubclass(kind, (int, float, np.number, np.bool_)) for kind in set(map(type, value)))
            array = np.asarray(value) if plain else np.empty(0, dtype=object)
        except (ValueError, OverflowError, TypeError):
            array = np.empty(0, dtype=object)
        if array.ndim != 1 or array.dtype.kind not in "biuf":
            return np.fromiter(map(_as_float, value), dtype=np.float64, count=len(value))
    elif hasattr(value, "__array__"):
        array = np.asarray(value)
    else:
        raise TypeError(f"{name} must be {rule}, got {type(value).__name__}")
    if array.ndim != 1:
        raise ValueError(f"{name} must be {rule}, got {array.ndim} dimensions")
    if array.dtype.kind not in "biufO":
        raise TypeError(f"{name} must be {rule} of numbers, got dtype {array.dtype}")
    result = _floats(array)
    if mask is not None:
        result[mask] = np.nan
    return result


def column(**parameter: Any) -> npt.NDArray[Any]:
    """Return one-dimensional data as `records` does, but a plain numeric array as it is: no copy, of any real dtype."""
    (value,) = parameter.values()
    if hasattr(value, "__array__") and not isinstance(value, np.ma.MaskedArray):
        array = np.asarray(value)
        if array.ndim == 1 and array.dtype.kind in "biuf":
            return array
    return records(**parameter)


def rows(**parameter: Any) -> FloatArray:
    """Return a float64 copy of two-dimensional data, one row a person; an entry that is no number becomes NaN."""
    name, value = _one(parameter)
    rule = "a two-dimensional array of numbers, one row for each person"
    mask = None
    if isinstance(value, np.ma.MaskedArray):
        value, mask = value.data, np.ma.getmaskarray(value)
    try:
        array = np.asarray(value, dtype=object) if isinstance(value, (list, tuple)) else np.asarray(value)
    except ValueError:
        raise ValueError(f"{name} must be {rule}, all of one length") from None
    if array.dtype.kind not in "biufO":
        raise TypeError(f"{name} must be {rule}, got dtype {array.dtype}")
    if array.ndim == 1 and isinstance(value, (list, tuple)) and any(isinstance(row, (list, tuple)) for row in value):
        raise ValueError(f"{name} must be {rule}, all of one length")
    if array.ndim != 2:
        found = f"{array.ndim} dimensions" if array.ndim else type(value).__name__  # a sparse matrix, for one
        raise ValueError(f"{name} must be {rule}, got {found}")
    result = np.ascontiguousarray(_floats(array))
    if mask is not None:
        result[mask] = np.nan
    return result


def _identifier(key: Any, depth: int = 0) -> Any:
    """Return a hashable id, None for one that is missing (None, NaN, NA) or cannot be an id."""
    try:
        if isinstance(key, tuple):  # a NaN inside is never equal to another NaN
            return tuple(_identifier(part, depth + 1) for part in key) if depth < DEEPEST else None
        if isinstance(key, frozenset) and any(is_missing(_identifier(part, depth + 1)) for part in key):
            return None
        hash(key)
        return key if bool(key == key) else None
    except Exception:  # whatever a record does when it is asked, it is no id
        return None


def is_missing(key: Any) -> bool:
    """Say whether something that `identifiers` returned names nobody: None, or a tuple with such a part."""
    return key is None or (isinstance(key, tuple) and any(map(is_missing, key)))


def identifiers(**parameter: Any) -> list[Any]:
    """Return one hashable id for each row, None for a missing or unusable one; see `is_missing` for tuples."""
    name, value = _one(parameter)
    rule = "one-dimensional: a list, tuple, range, NumPy array or pandas Series"
    if isinstance(value, (list, tuple, range)):
        ids = list(value)
    elif isinstance(value, np.ma.MaskedArray) or not hasattr(value, "__array__"):
        raise TypeError(f"{name} must be {rule}, got {type(value).__name__}")
    else:
        array = np.asarray(value)
        if array.ndim != 1:
            raise ValueError(f"{name} must be {rule}, got {array.ndim} dimensions")
        ids = array.tolist()
    return [_identifier(key) for key in ids]


def categories(at_least: int = 1, /, **parameter: Any) -> dict[Any, int]:
    """Return a public list of distinct keys as a table from key to place."""
    name, value = _one(parameter)
    rule = "a list or tuple of distinct keys"
    if isinstance(value, np.ndarray) and value.ndim == 1 and not isinstance(value, np.ma.MaskedArray):
        value = value.tolist()
    if not isinstance(value, (list, tuple, range)):
        raise TypeError(f"{name} must be {rule}, got {shown(value)}")
    if len(value) < at_least:
        raise ValueError(f"{name} must be {rule}, at least {at_least}, got {len(value)}")
    table: dict[Any, int] = {}
    for key in value:
        if key is not None and _identifier(key) is None:
            raise TypeError(f"{name} must be {rule} that can be looked up, got {shown(key)}")
        if key in table:
            raise ValueError(f"{name} must be {rule}, got {shown(key)} twice")
        table[key] = len(table)
    return table


def codes(table: dict[Any, int], /, **parameter: Any) -> IntArray:
    """Return the place of each record in the table of keys, -1 where it is none of them; it never raises on a record.

    None is the key of every record that is missing (None, NaN, NA) or cannot be a key.
    """
    (value,) = parameter.values()
    plain = isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "iu"
    if plain and all(type(key) is int and abs(key) < 2**63 for key in table):
        if value.dtype == np.uint64:  # compared with int64 it would be rounded to float64
            value = np.minimum(value, np.uint64(2**63 - 1)).astype(np.int64)
        keys = np.array(sorted(table), dtype=np.int64)
        places = np.array([table[key] for key in sorted(table)] + [-1], dtype=np.int64)
        at = np.minimum(np.searchsorted(keys, value), len(keys) - 1)
        found: IntArray = places[np.where(keys[at] == value, at, len(keys))]
        return found
    get = table.get
    return np.array([get(key, -1) for key in identifiers(**parameter)], dtype=np.int64)
