"""Verbs of other distributions: groups of verbs that take those of entry points, and name what has to be installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import click

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def entry_points_of(group: str) -> dict[str, EntryPoint]:
    """Return the verbs that installed distributions add to a group, by name."""
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group=group)}


class ExtensibleGroup(click.Group):
    """A group whose verbs are its own, and those that installed distributions add by entry points."""

    entry_points: ClassVar[str]
    """Name of the group of entry points."""
    packaged: ClassVar[dict[str, tuple[str, str]]] = {}
    """Distribution and one-line description of each verb that a distribution of this project adds."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the verbs that are installed."""
        found = entry_points_of(self.entry_points)
        known = [name for name in self.packaged if name in found]
        return [*super().list_commands(ctx), *known, *(name for name in found if name not in self.packaged)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a verb; UsageError for one of a distribution of this project that is not installed."""
        if (own := super().get_command(ctx, cmd_name)) is not None:
            return own
        if (entry := entry_points_of(self.entry_points).get(cmd_name)) is not None:
            command = entry.load()
            assert isinstance(command, click.Command)
            return command
        if cmd_name in self.packaged:
            distribution = self.packaged[cmd_name][0]
            raise click.UsageError(f"{cmd_name} needs another distribution: pip install {distribution}", ctx)
        return None
