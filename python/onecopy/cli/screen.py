"""The two consoles, and a table that never hides a digit.

Results go to stdout, progress and notes to stderr. Without a terminal there is no colour, no bar and a width
of 80 columns (COLUMNS changes it); a table that needs more than there is gets what it needs, because a line
that a terminal folds can be read and a number that was cut cannot. No text is parsed for markup or emoji.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import zip_longest
from time import monotonic
from typing import Any

import click
from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from onecopy.cli.words import plain, significant

GAP = 2
FOLDED = 16
"""A column that may fold gets this width at least, if it has so much to say."""
SECONDS_BETWEEN_LINES = 30.0
"""Of progress, where there is no terminal."""
LONGEST, MOST = 500, 20_000_000
"""Characters of a cell, and of a column: names may have a mebibyte, and every row is as wide as the widest."""


def out() -> Console:
    """Return the console of results."""
    return Console(markup=False, emoji=False, highlight=False)


def err() -> Console:
    """Return the console of progress and notes."""
    return Console(stderr=True, markup=False, emoji=False, highlight=False)


class Group(click.Group):
    """A group whose help has the whole first sentence of each command."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands and what they are for."""
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [(name, command.get_short_help_str(1000)) for name, command in found if command is not None]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its title, whether it stands right, and whether its text may be folded (numbers may not)."""

    title: str
    right: bool = False
    folds: bool = False


@dataclass(slots=True)
class Grid:
    """A table as plain text; a line feed in a title or cell begins a new line of it."""

    columns: tuple[Column, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)

    def needed(self) -> int:
        """Return the characters that a line needs so that no number is cut."""
        return self._across(self._least())

    def show(self, console: Console) -> None:
        """Print the table at the width of the console, or at its own where that is wider."""
        console.print(self.text(console.width), soft_wrap=True)

    def text(self, width: int) -> Text:
        """Return the table at a width, or at its own where that is wider; titles are bold."""
        widths = self._fitted(width)
        title, *body = (line for row in self._every() for line in self._lines(row, widths))
        titles = max(column.title.count("\n") for column in self.columns)
        text = Text("\n".join([title, *body[:titles]]), style="bold")
        if body[titles:]:
            text = Text.assemble(text, Text("\n" + "\n".join(body[titles:])))
        return text

    def _every(self) -> list[tuple[str, ...]]:
        height = max(column.title.count("\n") for column in self.columns)
        titles = ("\n" * (height - column.title.count("\n")) + column.title for column in self.columns)
        longest = min(LONGEST, MOST // max(len(self.rows), 1))
        return [tuple(titles), *(tuple(_shortened(cell, longest) for cell in row) for row in self.rows)]

    def _natural(self) -> list[int]:
        cells = zip(*self._every(), strict=True)
        return [max(cell_len(line) for cell in column for line in cell.split("\n")) for column in cells]

    def _least(self) -> list[int]:
        pairs = zip(self.columns, self._natural(), strict=True)
        return [min(width, FOLDED) if column.folds else width for column, width in pairs]

    def _across(self, widths: list[int]) -> int:
        return sum(widths) + GAP * (len(widths) - 1)

    def _fitted(self, width: int) -> list[int]:
        """Return the widths of the columns: natural, and what folds gives way, the widest first."""
        widths, least = self._natural(), self._least()
        while (excess := self._across(widths) - width) > 0 and widths != least:
            at = max(range(len(widths)), key=lambda i: (widths[i] > least[i], widths[i]))
            widths[at] = max(least[at], widths[at] - excess)
        return widths

    def _lines(self, row: tuple[str, ...], widths: list[int]) -> list[str]:
        """Return the lines of one row, each cell folded into its width and padded to it."""
        folded = [
            [piece for line in cell.split("\n") for piece in (chop_cells(line, width) or [""])]
            for cell, width in zip(row, widths, strict=True)
        ]
        return [
            (" " * GAP).join(map(self._padded, self.columns, pieces, widths)).rstrip()
            for pieces in zip_longest(*folded, fillvalue="")
        ]

    @staticmethod
    def _padded(column: Column, piece: str, width: int) -> str:
        space = " " * (width - cell_len(piece))
        return space + piece if column.right else piece + space


def _shortened(cell: str, longest: int) -> str:
    return cell if len(cell) <= longest else cell[: longest - 1] + "…"


def show_line(console: Console, text: str, style: str = "") -> None:
    """Print one line or paragraph of plain text: on a terminal folded at words, in a file or pipe one line."""
    console.print(Text(plain(text), style=style), soft_wrap=not console.is_terminal)


def show_heading(console: Console, text: str) -> None:
    """Print the line above a table; a path in it is never folded."""
    console.print(Text(plain(text), style="bold"), soft_wrap=True)


class RateColumn(ProgressColumn):
    """The rate so far, in GiB/s like all rates."""

    def render(self, task: Task) -> Text:
        """Return the cell."""
        return Text("" if task.speed is None else f"{significant(task.speed / 2**30)} GiB/s")


class SecondsLeftColumn(ProgressColumn):
    """The time left as the task itself estimates it: the field `left`, in seconds or None."""

    def render(self, task: Task) -> Text:
        """Return the cell."""
        left = task.fields.get("left")
        if left is None:
            return Text("")
        minutes, seconds = divmod(round(left), 60)
        return Text(f"about {minutes} min left" if minutes >= 2 else f"about {60 * minutes + seconds} s left")


class LogProgress(Progress):
    """Progress for a log file: a line every 30 s, so that work that is done sooner prints none."""

    _next: float | None = None

    def update(self, task_id: TaskID, **fields: Any) -> None:
        """Take over what is done, as a bar does."""
        super().update(task_id, **fields)
        now = monotonic()
        if self._next is None:
            self._next = now + SECONDS_BETWEEN_LINES
        elif now >= self._next:
            self._next = now + SECONDS_BETWEEN_LINES
            task = self.tasks[task_id]
            done = "" if task.total is None else f": {task.percentage:.0f} %"
            self.console.print(Text(plain(f"onecopy: {task.description}{done}")), soft_wrap=True)


def progress_bar(console: Console, *columns: ProgressColumn, left: ProgressColumn | None = None) -> Progress:
    """Return a progress bar that vanishes when it is done; without a terminal it prints a line every 30 s."""
    kind = Progress if console.is_terminal else LogProgress
    return kind(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        *(columns or (MofNCompleteColumn(),)),
        left or TimeRemainingColumn(compact=True),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
