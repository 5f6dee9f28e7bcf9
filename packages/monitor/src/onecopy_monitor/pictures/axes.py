"""Axes with round numbers."""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = ["Axis", "of_bytes", "of_seconds"]

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")


class Axis(NamedTuple):
    """An axis from 0 to `top`, with marks."""

    top: float
    """The end of the axis in bytes or seconds."""
    unit: str
    """The unit of the labels."""
    marks: tuple[tuple[float, str], ...]
    """Position of each mark in bytes or seconds, and its label in `unit`."""


def of_bytes(highest: float, count: int = 4) -> Axis:
    """Return an axis for numbers up to `highest` bytes, with about `count` marks and a decimal unit.

    >>> of_bytes(1_300_000_000).marks
    ((0.0, '0'), (500000000.0, '0.5'), (1000000000.0, '1'), (1500000000.0, '1.5'))
    """
    step = _round(max(highest, 4) / count)
    top = step * math.ceil(max(highest, 4) / step)
    power = min(int(math.log10(max(top, 1)) // 3), len(_UNITS) - 1)
    return Axis(top, _UNITS[power], _marks(top, step, 1000.0**power))


def of_seconds(longest: float, count: int = 8) -> Axis:
    """Return an axis that ends at `longest` seconds, with about `count` marks.

    >>> of_seconds(7.5).marks[-1], of_seconds(7200).unit
    ((7.0, '7'), 'minutes')
    """
    longest = max(longest, 0.01)
    unit, length = next(
        (unit, length)
        for unit, length in (("seconds", 1), ("minutes", 60), ("hours", 3600))
        if longest < 180 * length or unit == "hours"
    )
    return Axis(longest, unit, _marks(longest, _round(longest / length / count) * length, length))


def _round(number: float) -> float:
    """Return the next of 1, 2, 5, 10, 20 ..."""
    power = 10.0 ** math.floor(math.log10(number))
    return power * next(factor for factor in (1, 2, 5, 10) if factor * power >= number * 0.999999)


def _marks(top: float, step: float, unit: float) -> tuple[tuple[float, str], ...]:
    return tuple((step * at, f"{step * at / unit:.6g}") for at in range(int(top / step * 1.000001) + 1))
