"""Consoles, tables and progress bars.

Results go to stdout, progress and notes to stderr. Without a terminal, there are no colours or progress bars, and the
width is COLUMNS, or 80 if that is not set. Numbers in a table are never cut: if they need more space, the table is
wider than the terminal. Text is never parsed for markup or emoji.
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
MIN_FOLDED = 16
"""Minimum width of a column that can fold, unless its text is shorter."""
SECONDS_BETWEEN_LINES = 30.0
"""Seconds between two progress lines if there is no terminal."""
MAX_CELL, MAX_COLUMN = 500, 20_000_000
"""Maximum characters in a cell and in a column. A name may be a mebibyte long, and would widen all rows."""


def share(part: int | None, whole: int) -> str:
    """Return a share in percent, or "?" if it is unknown. The results 0 % and 100 % are exact."""
    if part is None:
        return "?"
    if part >= whole:
        return "100 %"
    percent = 100 * part / whole
    if part > 0 and percent < 1:
        return "<1 %"
    return ">99 %" if percent > 99 else f"{percent:.0f} %"


def duration(seconds: float) -> str:
    """Return a duration in the largest unit in which it is at least 2, such as 90 s or 2 min."""
    for unit, length in (("w", 604_800), ("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)} {unit}"
    return f"{max(int(seconds), 0)} s"


def out() -> Console:
    """Return the console for results."""
    return Console(markup=False, emoji=False, highlight=False)


def err() -> Console:
    """Return the console for progress and notes."""
    return Console(stderr=True, markup=False, emoji=False, highlight=False)


class Grid:
    """A table of plain text whose cells may have several lines.

    Titles are given as a list, or as words in which "_" stands for a space. ">" before a title aligns its column to the
    right; "~" after it lets the column fold (do not use it for numbers).
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
        """Return the minimum width."""
        widths = self._widths(self._every(), 0)
        return sum(widths) + GAP * (len(widths) - 1)

    def show(self, console: Console) -> None:
        """Print the table with the width of the console, or wider if the numbers need more space."""
        title, body = self._texts(console.width)
        console.print(title, soft_wrap=True)
        if self.rows:
            console.print(Segments([Segment(body), Segment.line()]), soft_wrap=True)  # not a Text: wrapping is slow

    def text(self, width: int) -> Text:
        """Return the table with this width, or wider if the numbers need more space."""
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
        """Return the column widths. To fit into `width`, columns that can fold shrink, starting with the widest."""
        columns = zip(*rows, strict=True)
        widths = [max(_length(line) for cell in column for line in cell.split("\n")) for column in columns]
        least = [min(own, MIN_FOLDED) if folds else own for own, folds in zip(widths, self._folds, strict=True)]
        while (excess := sum(widths) + GAP * (len(widths) - 1) - width) > 0 and widths != least:
            at = max(range(len(widths)), key=lambda i: (widths[i] > least[i], widths[i]))
            widths[at] = max(least[at], widths[at] - excess)
        return widths

    def _lines(self, row: tuple[str, ...], widths: list[int]) -> Iterator[str]:
        """Yield the lines of one row, with each cell folded and padded to its width."""
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
    return len(text) if text.isascii() else cell_len(text)  # rich looks up each character


def show_line(console: Console, text: str, style: str = "") -> None:
    """Print a paragraph of untrusted text, wrapped on a terminal, and otherwise as one line."""
    console.print(Text(escape(text), style=style), soft_wrap=not console.is_terminal)


class RateColumn(ProgressColumn):
    """A column that shows the mean rate in GiB/s."""

    def render(self, task: Task) -> Text:
        """Return the text of the cell."""
        return Text("" if task.speed is None else f"{significant(task.speed / 2**30)} GiB/s")


class LogProgress(Progress):
    """Progress for a log file: one line every 30 s, and no lines for shorter tasks."""

    _next: float | None = None

    def update(self, task_id: TaskID, **fields: Any) -> None:
        """Update a task, and print a line if the last one was printed at least 30 s ago."""
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
    """Return a transient progress bar. Without a terminal, it prints a line every 30 s."""
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
    """Show progress on stderr, by default as a byte count and a rate.

    Yield a function that sets the amount done and the total.
    """
    with progress_bar(err(), *(columns or (DownloadColumn(), RateColumn()))) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
