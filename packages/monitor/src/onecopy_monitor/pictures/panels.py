"""The contents of a picture, independent of its format: panels of curves with a limited number of points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onecopy.base.text import escape, size
from onecopy_monitor.samples import LABELS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onecopy_monitor.series import Curve, ProcessSeries, Series

__all__ = ["BANDS", "Panel", "Picture", "picture_of"]

BANDS = {name: LABELS[name] for name in ("anonymous", "file_clean", "file_dirty", "shmem")}
"""Stacked columns with their labels, from bottom to top."""
_POINTS = 600
"""Maximum number of points in a panel, about one per pixel."""
_LONG = 100


@dataclass(frozen=True, slots=True)
class Panel:
    """Curves with a common time axis."""

    title: str
    times: list[float]
    """Times of the points in seconds."""
    columns: dict[str, list[float]]
    """Values in bytes for the columns of `BANDS`, "real", "sum_of_rss", "page_tables" and "swap"."""
    line: str
    """The column that is drawn as a line."""
    line_words: str
    """Label of the line."""
    peak: tuple[float, int] | None = None
    """Time and size in bytes of the stacked bands' maximum, computed from all samples, or None if it is not drawn."""

    @property
    def top(self) -> float:
        """The largest drawn value in bytes."""
        stacked = [sum(values) for values in zip(*(self.columns[name] for name in BANDS), strict=True)]
        return max([*stacked, *self.columns[self.line], self.peak[1] if self.peak else 0], default=0)


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture with a column of panels for each run: the group, followed by its processes."""

    title: str
    runs: list[list[Panel]]
    seconds: float
    notes: list[str]
    """Lines of text below the panels."""


def picture_of(runs: Sequence[tuple[str, Series]], title: str, processes: int) -> Picture:
    """Return a picture of `runs`. Raise ValueError if one of them has no samples."""
    if any(len(series.total) == 0 for _, series in runs):
        raise ValueError("cannot draw a run without samples")
    columns, notes = [], []
    for name, series in runs:
        shown = sorted(series.processes, key=lambda one: -one.highest)[:processes]
        if len(series.processes) + series.dropped == 1:
            shown = []  # the group is that process
        columns.append([_group(name, series), *(_process(one) for one in shown)])
        if shown and (more := len(series.processes) + series.dropped - len(shown)) > 0:
            notes.append(f"{escape(name)}: " * (len(runs) > 1) + f"and {more} more processes, which used less memory")
    if any(len(column) > 1 for column in columns):
        notes.append(
            "Panels of processes show all resident memory. If n processes map some memory, the share of each is 1/n."
        )
    seconds = max(series.seconds for _, series in runs)
    return Picture(_cut(title or (runs[0][0] if len(runs) == 1 else "")), columns, seconds, notes)


def _group(name: str, series: Series) -> Panel:
    peak = series.peak.real
    times, columns = _drawn(series.total)
    count = len(series.processes) + series.dropped
    words = f"{count} processes, deduplicated total" if count > 1 else "one process"
    title = f"{_cut(name)}: {words}" if name else words
    return Panel(title, times, columns, "sum_of_rss", "sum of RSS", (peak.at, peak.bytes))


def _process(one: ProcessSeries) -> Panel:
    times, columns = _drawn(one.curve)
    title = f"{_cut(one.name)} ({one.pid}), share of at most {size(one.highest)}"
    return Panel(title, times, columns, "real", "share of a process")


def _cut(text: str) -> str:
    shown = escape(text)
    return shown if len(shown) <= _LONG else f"{shown[: _LONG - 1]}…"


def _drawn(curve: Curve) -> tuple[list[float], dict[str, list[float]]]:
    """Return the points to draw: the first, the last and the highest point of each time interval."""
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
