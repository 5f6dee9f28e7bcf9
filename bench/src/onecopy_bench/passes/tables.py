"""A table of texts that the command line and a page of the documentation show alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onecopy_bench.report.summary import Spread

MISSING = "-"


@dataclass(frozen=True, slots=True)
class Table:
    """A title, a header, and rows; a line feed in a cell parts what may stand below or beside each other."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """Return the table as Markdown, its title above it."""
        return "\n".join(
            [
                f"**{self.title}**",
                "",
                _line(self.header),
                _line("---" for _ in self.header),
                *(_line(row) for row in self.rows),
            ]
        )


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("\n", "<br>").replace("|", "\\|") for cell in cells) + " |"


def number(value: float) -> str:
    """Return a number with three significant digits, at most three behind the point and all before it.

    Examples
    --------
    >>> [number(value) for value in (0, 0.01234, 0.5, 1.234, 12.34, 1234.5)]
    ['0', '0.012', '0.5', '1.23', '12.3', '1234']
    """
    return f"{value:.0f}" if abs(value) >= 99.95 else f"{round(value, 3):.3g}"


def with_extremes(spread: Spread | None) -> str:
    """Return a median and, on a line of its own, the extremes."""
    if spread is None:
        return MISSING
    return f"{number(spread.median)}\n({number(spread.low)}-{number(spread.high)})"
