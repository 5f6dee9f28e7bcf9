"""Numbers as text, consoles for stdout and stderr, tables that never cut numbers, and progress bars.

Results go to stdout, progress and notes to stderr. Without a terminal there are no colours and no bars, and the width
is 80 columns (COLUMNS changes it). A table whose numbers need more is printed wider than the terminal: a line that a
terminal folds can be read, a number that was cut cannot. No text is parsed for markup or emoji.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from time import monotonic
from typing import TYPE_CHECKING, Any

import click
from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from onecopy.text import escape, significant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GAP = 2
"""Spaces between two columns."""
FOLDED = 16
"""Minimum width of a column that may fold, if its text is that long."""
SECONDS_BETWEEN_LINES = 30.0
"""Seconds between two lines of progress without a terminal."""
MAX_CELL, MAX_COLUMN = 500, 20_000_000
"""Maximum characters of a cell and of a column: a name may have a mebibyte, and pads all rows to its width."""


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


def out() -> Console:
    """Return the console of results."""
    return Console(markup=False, emoji=False, highlight=False)


def err() -> Console:
    """Return the console of progress and notes."""
    return Console(stderr=True, markup=False, emoji=False, highlight=False)


class Group(click.Group):
    """A group whose help has the full first sentence of each command."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names and descriptions of the commands."""
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [(name, command.get_short_help_str(1000)) for name, command in found if command is not None]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    title: str
    right: bool = False
    """Whether cells are aligned to the right."""
    folds: bool = False
    """Whether cells may be folded into several lines; columns of numbers may not."""


@dataclass(slots=True)
class Grid:
    """A table of plain text; a line feed in a title or cell starts a new line in it."""

    columns: tuple[Column, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)

    @classmethod
    def of(cls, titles: str) -> Grid:
        """Return a table with these titles: ">" before one aligns its cells to the right, "~" behind one folds them.

        "_" is a space in a title.
        """
        words = titles.split()
        return cls(
            tuple(
                Column(word.strip(">~").replace("_", " "), word.startswith(">"), word.endswith("~")) for word in words
            )
        )

    def add(self, *cells: str) -> None:
        """Add a row of untrusted text."""
        self.rows.append(tuple(map(escape, cells)))

    def needed(self) -> int:
        """Return the minimum width in characters."""
        return self._across(self._least())

    def show(self, console: Console) -> None:
        """Print the table at the width of the console, or at its minimum width if that is larger."""
        console.print(self.text(console.width), soft_wrap=True)

    def text(self, width: int) -> Text:
        """Return the table at this width, or at its minimum width if that is larger; titles are bold."""
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
        limit = min(MAX_CELL, MAX_COLUMN // max(len(self.rows), 1))
        return [tuple(titles), *(tuple(_shortened(cell, limit) for cell in row) for row in self.rows)]

    def _natural(self) -> list[int]:
        cells = zip(*self._every(), strict=True)
        return [max(cell_len(line) for cell in column for line in cell.split("\n")) for column in cells]

    def _least(self) -> list[int]:
        pairs = zip(self.columns, self._natural(), strict=True)
        return [min(width, FOLDED) if column.folds else width for column, width in pairs]

    def _across(self, widths: list[int]) -> int:
        return sum(widths) + GAP * (len(widths) - 1)

    def _fitted(self, width: int) -> list[int]:
        """Return the widths of the columns; if they exceed `width`, columns that fold shrink, the widest first."""
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


def _shortened(cell: str, limit: int) -> str:
    return cell if len(cell) <= limit else cell[: limit - 1] + "…"


def show_line(console: Console, text: str, style: str = "") -> None:
    """Print a paragraph of plain text: folded at words on a terminal, else as one line."""
    console.print(Text(escape(text), style=style), soft_wrap=not console.is_terminal)


def show_heading(console: Console, text: str) -> None:
    """Print a bold line above a table, without folding."""
    console.print(Text(escape(text), style="bold"), soft_wrap=True)


class RateColumn(ProgressColumn):
    """The mean rate in GiB/s."""

    def render(self, task: Task) -> Text:
        """Return the cell."""
        return Text("" if task.speed is None else f"{significant(task.speed / 2**30)} GiB/s")


class LogProgress(Progress):
    """Progress for a log file: one line every 30 s, so that shorter tasks print none."""

    _next: float | None = None

    def update(self, task_id: TaskID, **fields: Any) -> None:
        """Update a task, and print a line if 30 s have passed since the last one."""
        super().update(task_id, **fields)
        now = monotonic()
        if self._next is None:
            self._next = now + SECONDS_BETWEEN_LINES
        elif now >= self._next:
            self._next = now + SECONDS_BETWEEN_LINES
            task = self.tasks[task_id]
            done = "" if task.total is None else f": {task.percentage:.0f} %"
            self.console.print(Text(escape(f"onecopy: {task.description}{done}")), soft_wrap=True)


def progress_bar(console: Console, *columns: ProgressColumn) -> Progress:
    """Return a progress bar that disappears at the end; without a terminal it prints a line every 30 s."""
    kind = Progress if console.is_terminal else LogProgress
    return kind(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        *(columns or (MofNCompleteColumn(),)),
        TimeRemainingColumn(compact=True),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


@contextmanager
def progress(what: str, *columns: ProgressColumn) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on stderr inside the block; yield the function to call with what is done, and the total.

    Default columns: bytes and rate.
    """
    with progress_bar(err(), *(columns or (DownloadColumn(), RateColumn()))) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
