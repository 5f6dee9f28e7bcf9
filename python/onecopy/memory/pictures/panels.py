"""What is drawn: panels of curves, chosen and thinned, without a word of any format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onecopy.text import plain, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onecopy.memory.series import Curve, ProcessSeries, Series

__all__ = ["BANDS", "Panel", "Picture", "picture_of"]

BANDS = {
    "anonymous": "anonymous",
    "file_clean": "files, clean",
    "file_dirty": "files, dirty",
    "shmem": "shared memory",
}
"""Columns that stand on one another, the lowest first, and what they are called."""
_POINTS = 600
"""Of a panel: about one for each pixel."""
_LONG = 100


@dataclass(frozen=True, slots=True)
class Panel:
    """Curves over the same seconds."""

    title: str
    times: list[float]
    """Seconds."""
    columns: dict[str, list[float]]
    """`BANDS`, and "real", "sum_of_rss", "page_tables", "swap"; in bytes."""
    line: str
    """The column that is drawn as a line, and what it is called."""
    line_words: str
    peak: tuple[float, int] | None = None
    """When all bands together were highest, and how high: exactly, whatever points are drawn."""

    @property
    def top(self) -> float:
        """The highest point that is drawn."""
        stacked = [sum(values) for values in zip(*(self.columns[name] for name in BANDS), strict=True)]
        return max([*stacked, *self.columns[self.line], self.peak[1] if self.peak else 0], default=0)


@dataclass(frozen=True, slots=True)
class Picture:
    """A column of panels for each run: the group first, then its processes."""

    title: str
    runs: list[list[Panel]]
    seconds: float
    notes: list[str]
    """Below all of it."""


def picture_of(runs: Sequence[tuple[str, Series]], title: str, processes: int) -> Picture:
    """Choose what to draw of some runs. ValueError: nothing was seen of one."""
    if any(len(series.total) == 0 for _, series in runs):
        raise ValueError("there is nothing to draw: nobody has looked")
    columns, notes = [], []
    for name, series in runs:
        shown = sorted(series.processes, key=lambda one: -one.highest)[:processes]
        if len(series.processes) + series.dropped == 1:
            shown = []  # the group is that process
        columns.append([_group(name, series), *(_process(one) for one in shown)])
        if shown and (more := len(series.processes) + series.dropped - len(shown)) > 0:
            notes.append(f"{plain(name)}: " * (len(runs) > 1) + f"and {more} more processes, which held less")
    if any(len(column) > 1 for column in columns):
        notes.append(
            "Panels of processes show all that each has mapped in; of what n processes map, 1/n is the share of each."
        )
    seconds = max(series.seconds for _, series in runs)
    return Picture(_cut(title or (runs[0][0] if len(runs) == 1 else "")), columns, seconds, notes)


def _group(name: str, series: Series) -> Panel:
    peak = series.peak.real
    times, columns = _drawn(series.total)
    count = len(series.processes) + series.dropped
    words = f"{count} processes, everything once" if count > 1 else "one process"
    title = f"{_cut(name)}: {words}" if name else words
    return Panel(title, times, columns, "sum_of_rss", "sum of RSS", (peak.at, peak.bytes))


def _process(one: ProcessSeries) -> Panel:
    times, columns = _drawn(one.curve)
    title = f"{_cut(one.name)} ({one.pid}), {size(one.highest)} at most are its share"
    return Panel(title, times, columns, "real", "share of a process")


def _cut(text: str) -> str:
    shown = plain(text)
    return shown if len(shown) <= _LONG else f"{shown[: _LONG - 1]}…"


def _drawn(curve: Curve) -> tuple[list[float], dict[str, list[float]]]:
    """Return the points to draw: of each stretch of time the first, the last and the highest; a line is as wide."""
    names = (*BANDS, "real", "sum_of_rss", "page_tables", "swap")
    times, real = curve.numbers("times"), curve.numbers("real")
    kept = list(range(len(times)))
    if len(times) > _POINTS:
        stretch = max(times[-1] - times[0], 1e-9) / (_POINTS // 3)
        parts: dict[int, list[int]] = {}
        for at, moment in enumerate(times):
            parts.setdefault(int((moment - times[0]) / stretch), []).append(at)
        kept = sorted({at for part in parts.values() for at in (part[0], max(part, key=real.__getitem__), part[-1])})
    return [times[at] for at in kept], {name: [curve_of[at] for at in kept] for name, curve_of in _all(curve, names)}


def _all(curve: Curve, names: Sequence[str]) -> list[tuple[str, list[float]]]:
    return [(name, curve.numbers(name)) for name in names]
