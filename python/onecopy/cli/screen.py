"""The two consoles, and a table that never hides a digit.

Results go to stdout, progress and notes to stderr. Without a terminal there is no colour, no bar and a width
of 80 columns (COLUMNS changes it); a table that needs more than there is gets what it needs, because a line
that a terminal folds can be read and a number that was cut cannot. No text is parsed for markup or emoji.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from onecopy.cli.words import plain

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

GAP = 2
FOLDED = 16
"""A column that may fold gets this width at least, if it has so much to say."""


def out() -> Console:
    """Return the console of results."""
    return Console(markup=False, emoji=False, highlight=False)


def err() -> Console:
    """Return the console of progress and notes."""
    return Console(stderr=True, markup=False, emoji=False, highlight=False)


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
        widths = (
            min(width, FOLDED) if column.folds else width
            for column, width in zip(self.columns, self._widths(), strict=True)
        )
        return sum(widths) + GAP * (len(self.columns) - 1)

    def _widths(self) -> list[int]:
        cells = zip(*([column.title for column in self.columns], *self.rows), strict=True)
        return [max(cell_len(line) for cell in column for line in (cell.split("\n"))) for column in cells]

    def show(self, console: Console) -> None:
        """Print the table at the width of the console, or at its own where that is wider."""
        table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
        for column in self.columns:
            table.add_column(
                Text(column.title),
                justify="right" if column.right else "left",
                no_wrap=not column.folds,
                overflow="fold",
            )
        for row in self.rows:
            table.add_row(*(Text(cell) for cell in row))
        width = console.width
        try:
            console.width = max(width, self.needed())
            console.print(table)
        finally:
            console.width = width


def show_line(console: Console, text: str, style: str = "") -> None:
    """Print one line or paragraph of plain text, folded at words."""
    console.print(Text(plain(text), style=style))


def progress_bar(console: Console, *columns: ProgressColumn) -> Progress:
    """Return a progress bar that vanishes when it is done and shows nothing without a terminal."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        *(columns or (MofNCompleteColumn(),)),
        TimeRemainingColumn(compact=True),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
