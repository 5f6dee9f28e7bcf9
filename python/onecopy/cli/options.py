"""Options with the same meaning in several verbs, and command groups that import a verb only when it runs."""

from __future__ import annotations

import importlib
import json
from typing import TYPE_CHECKING, Any, TypeVar

import click

from onecopy.base.text import parse_quantity, parse_size

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.metadata import EntryPoint

_SECONDS = {"": 1, "ms": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_Command = TypeVar("_Command", bound="Callable[..., Any]")


def parse_duration(text: str) -> float:
    """Convert a duration such as "30d", "100ms" or "90" (seconds) to seconds. Raise ValueError for any other text."""
    return parse_quantity(text, _SECONDS, "a duration such as 30d, 12h, 90s or 100ms")


if TYPE_CHECKING:
    _Number = click.ParamType[float]
else:
    _Number = click.ParamType  # generic since click 8.4


class Quantity(_Number):
    """A number with a unit. Any other value raises a usage error, whose message contains the allowed `values`."""

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


PID = click.IntRange(min=1)
PID.name = "PID"  # in error messages, instead of "integer range"
SIZE = Quantity("size", parse_size)
"""A size in bytes."""
TIME = Quantity("time", parse_duration)
"""A duration in seconds."""
_MAX_INTERVAL = 366 * 86_400.0
FILES = click.argument("files", nargs=-1, required=True, type=click.Path(), metavar="FILE...")
HUGE = click.option(
    "--huge/--no-huge",
    default=None,
    help="Use huge pages; default: only if the file needs at most half of the available memory.",
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


class Group(click.Group):
    """A group whose help text shows complete descriptions without importing the verbs.

    `modules` maps each verb to the module that defines its `command`, and to a description. Distributions add verbs as
    entry points in the group `entry_points`; `packaged` maps the verbs of this project's other distributions to the
    distribution and a description.
    """

    def __init__(
        self,
        *args: Any,
        modules: dict[str, tuple[str, str]] | None = None,
        entry_points: str = "",
        packaged: dict[str, tuple[str, str]] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(*args, **settings)
        self._modules, self._entry_points, self._packaged = modules or {}, entry_points, packaged or {}

    def _installed(self) -> dict[str, EntryPoint]:
        """Return the entry points of verbs that installed distributions add."""
        from importlib.metadata import entry_points

        return {one.name: one for one in entry_points(group=self._entry_points)} if self._entry_points else {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the installed verbs."""
        found = self._installed()
        known = [name for name in self._packaged if name in found]
        return [*self._modules, *super().list_commands(ctx), *known, *(name for name in found if name not in known)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a verb. Raise click.UsageError if its distribution is not installed."""
        if (command := super().get_command(ctx, cmd_name)) is not None:
            return command
        if cmd_name in self._modules:
            command = importlib.import_module(self._modules[cmd_name][0]).command
        elif (entry := self._installed().get(cmd_name)) is not None:
            command = entry.load()
        elif cmd_name in self._packaged:
            distribution = self._packaged[cmd_name][0]
            raise click.UsageError(f"{cmd_name} needs another package: pip install {distribution}", ctx)
        assert isinstance(command, click.Command | None)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names and descriptions of the verbs."""
        help_of = {name: one.dist.metadata["Summary"] if one.dist else "" for name, one in self._installed().items()}
        help_of |= {name: text for name, (_, text) in (self._packaged | self._modules).items()}
        help_of |= {name: command.get_short_help_str(1000) for name, command in self.commands.items()}
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_of[name]) for name in self.list_commands(ctx)])
