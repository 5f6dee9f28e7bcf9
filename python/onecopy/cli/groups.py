"""`Group`: a group of verbs, each of whose modules is imported only when the verb runs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


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
            raise click.UsageError(f"{cmd_name} needs another distribution: pip install {distribution}", ctx)
        assert isinstance(command, click.Command | None)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names and descriptions of the verbs."""
        help_of = {name: one.dist.metadata["Summary"] if one.dist else "" for name, one in self._installed().items()}
        help_of |= {name: text for name, (_, text) in (self._packaged | self._modules).items()}
        help_of |= {name: command.get_short_help_str(1000) for name, command in self.commands.items()}
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_of[name]) for name in self.list_commands(ctx)])
