"""Sizes and times as options take them: "500MB", "12h". What is none is a wrong command line, and says what one is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from onecopy.cli.words import parse_duration, parse_size

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SIZE", "SIZE_OF_SOMETHING", "TIME", "Quantity"]


class Quantity(click.ParamType[float]):
    """A number with a unit; `fits` refuses some, and `otherwise` says which are taken."""

    def __init__(
        self,
        name: str,
        parse: Callable[[str], float],
        fits: Callable[[float], bool] = lambda _: True,
        otherwise: str = "",
    ) -> None:
        self.name = name  # help shows it in capitals
        self._parse, self._fits, self._otherwise = parse, fits, otherwise

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return bytes or seconds."""
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
"""Bytes."""
SIZE_OF_SOMETHING = Quantity("size", parse_size, lambda nbytes: nbytes >= 1, "at least one byte")
TIME = Quantity("time", parse_duration)
"""Seconds."""
