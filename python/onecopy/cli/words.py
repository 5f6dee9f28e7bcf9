"""Text of the command line: sizes, shares, durations and untrusted names.

Sizes are decimal (1 MB = 10**6 bytes), as on disks and model cards; rates are in GiB/s. Numbers have three significant
digits. Names in files may contain terminal escape sequences: `escape` makes them visible. No text is parsed as markup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from onecopy.text import escape, parse_quantity, parse_size, significant, size

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "SIZE",
    "SIZE_OF_SOMETHING",
    "TIME",
    "Quantity",
    "counted",
    "duration",
    "escape",
    "parse_duration",
    "parse_size",
    "share",
    "significant",
    "size",
]

_SECONDS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}


def share(part: int | None, whole: int) -> str:
    """Return a share in percent; "?" for an unknown part; never 0 % or 100 % by rounding.

    Examples
    --------
    >>> share(None, 5), share(0, 5), share(1, 1000), share(999, 1000), share(5, 5)
    ('?', '0 %', '<1 %', '>99 %', '100 %')
    """
    if part is None:
        return "?"
    if part >= whole:
        return "100 %"
    percent = 100 * part / whole
    if part > 0 and percent < 1:
        return "<1 %"
    return ">99 %" if percent > 99 else f"{percent:.0f} %"


def counted(number: int, one: str) -> str:
    """Return a count with its noun.

    Examples
    --------
    >>> counted(1, "array"), counted(20_000, "array")
    ('1 array', '20000 arrays')
    """
    return f"{number} {one}{'' if number == 1 else 's'}"


def parse_duration(text: str) -> float:
    """Return the seconds of a duration given as text: "30d", "12 h", "90"; a number without a unit is seconds.

    Raises
    ------
    ValueError
        The text is not a number followed by a unit.

    Examples
    --------
    >>> parse_duration("30d"), parse_duration("1.5 h"), parse_duration("7")
    (2592000.0, 5400.0, 7.0)
    """
    return parse_quantity(text, _SECONDS, "a duration such as 30d, 12h or 90s")


def duration(seconds: float) -> str:
    """Return a duration in the largest unit in which it is at least 2.

    Examples
    --------
    >>> [duration(seconds) for seconds in (0.4, 90, 150, 40 * 3600, 30 * 86400)]
    ['0 s', '90 s', '2 min', '40 h', '4 w']
    """
    for unit, length in (("w", 604_800), ("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)} {unit}"
    return f"{max(int(seconds), 0)} s"


class Quantity(click.ParamType[float]):
    """A number with a unit. Values that `fits` refuses are usage errors with `otherwise`, the allowed range."""

    def __init__(
        self,
        name: str,
        parse: Callable[[str], float],
        fits: Callable[[float], bool] = lambda _: True,
        otherwise: str = "",
    ) -> None:
        self.name = name  # click shows it in capitals
        self._parse, self._fits, self._otherwise = parse, fits, otherwise

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the value in bytes or seconds; click.BadParameter for other text."""
        if not isinstance(value, str):  # click converts its own defaults again
            return value
        try:
            found = self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not self._fits(found):
            self.fail(f"{value!r} is not {self._otherwise}", param, ctx)
        return found


SIZE = Quantity("size", parse_size)
"""A size in bytes."""
SIZE_OF_SOMETHING = Quantity("size", parse_size, lambda nbytes: nbytes >= 1, "at least one byte")
"""A size in bytes, not 0."""
TIME = Quantity("time", parse_duration)
"""A duration in seconds."""
