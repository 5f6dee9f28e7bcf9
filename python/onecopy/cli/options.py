"""Options that several verbs share, always with the same name and meaning, and the types of their values."""

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
    """Convert a duration such as "30d", "100ms" or "90" (seconds) to seconds. Raise ValueError for other text."""
    return parse_quantity(text, _SECONDS, "a duration such as 30d, 12h, 90s or 100ms")


if TYPE_CHECKING:
    _Number = click.ParamType[float]
else:
    _Number = click.ParamType  # generic since click 8.4


class Quantity(_Number):
    """A number that has a unit. Any other value raises a usage error; its message contains the allowed `values`."""

    def __init__(
        self,
        name: str,
        parse: Callable[[str], float],
        fits: Callable[[float], bool] = lambda _: True,
        values: str = "",
    ) -> None:
        self.name = name  # click shows it in capitals
        self._parse, self._fits, self._values = parse, fits, values

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the value in bytes or seconds."""
        try:
            found = self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not self._fits(found):
            self.fail(f"{value!r} is not {self._values}", param, ctx)
        return found


class Pid(click.IntRange):
    """A process ID. Error messages call its type a PID instead of an integer range."""

    name = "PID"


PID = Pid(min=1)
SIZE = Quantity("size", parse_size)
"""A size in bytes."""
TIME = Quantity("time", parse_duration)
"""A duration in seconds."""
_MAX_INTERVAL = 366 * 86_400.0
FILES = click.argument("files", nargs=-1, required=True, type=click.Path(), metavar="FILE...")
HUGE = click.option(
    "--huge/--no-huge",
    default=None,
    help="Use huge pages; default: yes, if the file takes at most half of the available memory.",
)


def names(help_text: str, **settings: Any) -> Callable[[_Command], _Command]:
    """Return the option `--names`, a shell pattern for names, which is passed as the argument `pattern`."""
    return click.option("--names", "pattern", metavar="GLOB", help=help_text, **settings)


def interval(default: str, help_text: str, least: str = "1ms") -> Callable[[_Command], _Command]:
    """Return the option `--interval`, a duration from `least` to one year."""
    shortest = parse_duration(least)
    kind = Quantity(
        "time", parse_duration, lambda time: shortest <= time <= _MAX_INTERVAL, f"between {least} and a year"
    )
    return click.option("--interval", default=default, show_default=True, type=kind, help=help_text)


def threads(help_text: str) -> Callable[[_Command], _Command]:
    """Return the option `--threads`."""
    return click.option("--threads", type=click.IntRange(min=1), help=help_text)


def folder(help_text: str) -> Callable[[_Command], _Command]:
    """Return the option `--folder`, the folder of a store."""
    return click.option("--folder", type=click.Path(), metavar="FOLDER", help=help_text)


def as_json(help_text: str = "JSON on stdout.") -> Callable[[_Command], _Command]:
    """Return the option `--json`, which is passed as the argument `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help=help_text)


def show_json(value: object) -> None:
    """Print a value on stdout as JSON."""
    click.echo(json.dumps(value, indent=1))
