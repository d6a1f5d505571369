"""Exact decimal amounts: what is read from a float, what is handed back as one, and sums without rounding."""

import math
from collections.abc import Iterator, Mapping
from decimal import ROUND_FLOOR, Context, Decimal, Inexact, InvalidOperation, Overflow
from fractions import Fraction
from typing import Any

from dpbook import _validate

Amounts = Mapping[str, Decimal]
_DIGITS = 1000  # of an amount: more than a float64 can have


def exact() -> Context:
    """Return a decimal context in which a result that would have to be rounded raises."""
    return Context(prec=5000, traps=[Inexact, InvalidOperation, Overflow])


def add(spent: Amounts, amount: Amounts) -> dict[str, Decimal]:
    """Return the exact sum, in lowest terms."""
    context = exact()
    return {name: context.normalize(context.add(spent.get(name, Decimal(0)), x)) for name, x in amount.items()}


def amount(**parameter: Any) -> Decimal:
    """Return a non-negative number as the exact decimal that it prints as."""
    ((name, value),) = parameter.items()
    if isinstance(value, Decimal):
        if not value.is_finite() or value < 0:
            raise ValueError(f"{name} must be non-negative and finite, got {_validate.shown(value)}")
        digits, exponent = value.as_tuple()[1:]
        if len(digits) > _DIGITS or not -_DIGITS <= int(exponent) <= 300 or value.adjusted() > 300:
            raise ValueError(f"{name} must be a decimal of at most {_DIGITS} digits, got {_validate.shown(value)}")
        return exact().normalize(value.copy_abs())
    number = _validate.non_negative(**parameter)
    return exact().normalize(Decimal(int(value)) if _validate.is_integer(value) else Decimal(repr(number)))


def small_amount(**parameter: Any) -> Decimal:
    """Return a number in [0, 1) in the same way."""
    ((name, value),) = parameter.items()
    result = amount(**parameter)
    if result >= 1:
        raise ValueError(f"{name} must be at least 0 and below 1, got {_validate.shown(value)}")
    return result


def shown(value: Decimal) -> str:
    """Write a decimal as people do: 0.1, 1000, 1e-17; a long one is cut off."""
    if len(value.as_tuple().digits) > 20:
        return f"{Context(prec=12, rounding=ROUND_FLOOR).plus(value)}..."
    return f"{value:f}" if value == 0 or -4 <= value.adjusted() <= 15 else f"{value:e}"


def listed(amounts: Amounts) -> str:
    """Write amounts with their names."""
    return ", ".join(f"{name} {shown(value)}" for name, value in amounts.items())


def down(amount: Decimal) -> float:
    """Return the largest float64 that is not above the exact decimal."""
    nearest = float(amount)
    return nearest if Fraction(nearest) <= Fraction(amount) else math.nextafter(nearest, 0.0)


def up(amount: Decimal) -> float:
    """Return the smallest float64 that prints as a decimal which is not below the amount."""
    nearest = float(amount)
    return nearest if Decimal(repr(nearest)) >= amount else math.nextafter(nearest, math.inf)


class Frozen(Mapping[str, Decimal]):
    """Amounts that cannot be changed; unlike a mapping proxy they can be sent to another process."""

    def __init__(self, amounts: Amounts) -> None:
        self._amounts = dict(amounts)

    def __getitem__(self, name: str) -> Decimal:
        return self._amounts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._amounts)

    def __len__(self) -> int:
        return len(self._amounts)

    def __repr__(self) -> str:
        return repr(self._amounts)
