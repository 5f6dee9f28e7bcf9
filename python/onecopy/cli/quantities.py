"""Option types for sizes ("500MB") and times ("12h"); other text is a usage error with an example."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from onecopy.cli.words import parse_duration, parse_size

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SIZE", "SIZE_OF_SOMETHING", "TIME", "Quantity"]


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
