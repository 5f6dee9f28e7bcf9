"""Options that several verbs have, each with one name and one meaning; their types: sizes and durations.

Sizes are decimal (1 MB = 10**6 bytes) unless their unit is binary (1 MiB = 2**20 bytes).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

import click

from onecopy.base.text import parse_quantity, parse_size

if TYPE_CHECKING:
    from collections.abc import Callable

_SECONDS = {"": 1, "ms": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_Command = TypeVar("_Command", bound="Callable[..., Any]")


def parse_duration(text: str) -> float:
    """Return the seconds of a duration given as text: "30d", "100ms", "90"; a number without a unit is seconds.

    Raises
    ------
    ValueError
        The text is not a number followed by a unit.

    Examples
    --------
    >>> parse_duration("30d"), parse_duration("1.5 h"), parse_duration("100ms"), parse_duration("7")
    (2592000.0, 5400.0, 0.1, 7.0)
    """
    return parse_quantity(text, _SECONDS, "a duration such as 30d, 12h, 90s or 100ms")


if TYPE_CHECKING:
    _Number = click.ParamType[float]
else:
    _Number = click.ParamType  # generic since click 8.4


class Quantity(_Number):
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


class Pid(click.IntRange):
    """The type of PIDs: errors name it, and not an integer range."""

    name = "PID"

    def __init__(self) -> None:
        super().__init__(min=1)


PID = Pid()
"""A PID."""
SIZE = Quantity("size", parse_size)
"""A size in bytes."""
TIME = Quantity("time", parse_duration)
"""A duration in seconds."""
_MAX_INTERVAL = 366 * 86_400.0
FILES = click.argument("files", nargs=-1, required=True, type=click.Path(), metavar="FILE...")
"""The argument of verbs for one or several files."""

HUGE = click.option(
    "--huge/--no-huge",
    default=None,
    help="Use huge pages, or not; default: if a file is at most half of the available memory.",
)
"""The option of verbs that bring files into memory."""


def names(help_text: str, **settings: Any) -> Callable[[_Command], _Command]:
    """Return the option `--names`, a pattern of the shell that names must match, as the argument `pattern`."""
    return click.option("--names", "pattern", metavar="GLOB", help=help_text, **settings)


def interval(default: str, help_text: str, least: str = "1ms") -> Callable[[_Command], _Command]:
    """Return the option `--interval`: the seconds between two of something, from `least` to a year."""
    shortest = parse_duration(least)
    kind = Quantity("time", parse_duration, lambda time: shortest <= time <= _MAX_INTERVAL, f"from {least} to a year")
    return click.option("--interval", default=default, show_default=True, type=kind, help=help_text)


def threads(help_text: str) -> Callable[[_Command], _Command]:
    """Return the option `--threads`."""
    return click.option("--threads", type=click.IntRange(min=1), help=help_text)


def folder(help_text: str) -> Callable[[_Command], _Command]:
    """Return the option `--folder`: the folder of a store."""
    return click.option("--folder", type=click.Path(), metavar="FOLDER", help=help_text)


def as_json(help_text: str = "JSON on stdout.") -> Callable[[_Command], _Command]:
    """Return the option `--json`, as the argument `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help=help_text)


def show_json(value: object) -> None:
    """Print a value on stdout as JSON."""
    click.echo(json.dumps(value, indent=1))
