"""Numbers as text, consoles for stdout and stderr, tables that never cut numbers, and progress bars.

Results go to stdout, progress and notes to stderr. Without a terminal there are no colours and no bars, and the width
is 80 columns (COLUMNS changes it). A table whose numbers need more is printed wider than the terminal: a line that a
terminal folds can be read, a number that was cut cannot. No text is parsed for markup or emoji.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import zip_longest
from time import monotonic
from typing import TYPE_CHECKING, Any

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
from rich.segment import Segment, Segments
from rich.text import Text

from onecopy.base.text import escape, significant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

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


class Grid:
    """A table of plain text; a line feed in a title or cell starts a new line in it.

    Titles are a list, or words, in which "_" is a space. ">" before a title aligns its cells to the right; "~" behind
    it lets them fold into several lines: not for numbers.
    """

    def __init__(self, titles: str | Sequence[str], rows: Iterable[tuple[str, ...]] = ()) -> None:
        words = [word.replace("_", " ") for word in titles.split()] if isinstance(titles, str) else titles
        self._right, self._folds = ([word.startswith(">") for word in words], [word.endswith("~") for word in words])
        self._titles = tuple(word.removeprefix(">").removesuffix("~") for word in words)
        self.rows = list(rows)

    def add(self, *cells: str) -> None:
        """Add a row of untrusted text."""
        self.rows.append(tuple(map(escape, cells)))

    def needed(self) -> int:
        """Return the minimum width in characters."""
        widths = self._widths(self._every(), 0)
        return sum(widths) + GAP * (len(widths) - 1)

    def show(self, console: Console) -> None:
        """Print the table at the width of the console, or at its minimum width if that is larger."""
        title, body = self._texts(console.width)
        console.print(title, soft_wrap=True)
        if self.rows:
            console.print(Segments([Segment(body), Segment.line()]), soft_wrap=True)  # a Text is wrapped by the letter

    def text(self, width: int) -> Text:
        """Return the table at this width, or at its minimum width if that is larger; titles are bold."""
        title, body = self._texts(width)
        return Text.assemble(title, f"\n{body}") if self.rows else title

    def _texts(self, width: int) -> tuple[Text, str]:
        rows = self._every()
        widths = self._widths(rows, width)
        lines = [line for row in rows for line in self._lines(row, widths)]
        height = 1 + rows[0][0].count("\n")
        return Text("\n".join(lines[:height]), style="bold"), "\n".join(lines[height:])

    def _every(self) -> list[tuple[str, ...]]:
        height = max(title.count("\n") for title in self._titles)
        titles = tuple("\n" * (height - title.count("\n")) + title for title in self._titles)
        limit = min(MAX_CELL, MAX_COLUMN // max(len(self.rows), 1))
        cut = (tuple(c if len(c) <= limit else c[: limit - 1] + "…" for c in row) for row in self.rows)
        return [titles, *cut]

    def _widths(self, rows: list[tuple[str, ...]], width: int) -> list[int]:
        """Return the widths of the columns; if they exceed `width`, columns that fold shrink, the widest first."""
        columns = zip(*rows, strict=True)
        widths = [max(_length(line) for cell in column for line in cell.split("\n")) for column in columns]
        least = [min(own, FOLDED) if folds else own for own, folds in zip(widths, self._folds, strict=True)]
        while (excess := sum(widths) + GAP * (len(widths) - 1) - width) > 0 and widths != least:
            at = max(range(len(widths)), key=lambda i: (widths[i] > least[i], widths[i]))
            widths[at] = max(least[at], widths[at] - excess)
        return widths

    def _lines(self, row: tuple[str, ...], widths: list[int]) -> Iterator[str]:
        """Yield the lines of one row, each cell folded into its width and padded to it."""
        folded = [
            [cell]
            if len(cell) <= width and cell.isascii() and "\n" not in cell
            else [piece for line in cell.split("\n") for piece in (chop_cells(line, width) or [""])]
            for cell, width in zip(row, widths, strict=True)
        ]
        for pieces in zip_longest(*folded, fillvalue=""):
            spaces = [" " * (width - _length(piece)) for piece, width in zip(pieces, widths, strict=True)]
            cells = zip(pieces, spaces, self._right, strict=True)
            yield (" " * GAP).join(space + piece if right else piece + space for piece, space, right in cells).rstrip()


def _length(text: str) -> int:
    """Return the columns of a terminal that text has; rich looks up each character."""
    return len(text) if text.isascii() else cell_len(text)


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
