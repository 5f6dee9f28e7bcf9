"""Comparison of two recordings as a Markdown table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onecopy.text import escape, significant, size
from onecopy_monitor.samples import COLUMNS
from onecopy_monitor.table import ROWS

if TYPE_CHECKING:
    from collections.abc import Callable

    from onecopy_monitor.recording.reading import Recording

__all__ = ["Fact", "compare", "facts_of"]

_LONG = 120
"""Maximum characters of a command."""
Fact = tuple[float | None, str]
"""A number, None if unknown, and its text."""


def facts_of(recording: Recording) -> dict[str, Fact]:
    """Return the peaks of a recording and the resources that the command used, by the labels of `compare`.

    ValueError if the recording has no samples.
    """
    series, end = recording.series, recording.end
    peak = series.peak
    facts = {f"{ROWS[name]}, peak": _fact(getattr(peak, name).bytes, size) for name in ROWS if name in COLUMNS}
    one = max(peak.high_water, (end.max_rss if end else None) or 0)
    facts["largest process, peak of RSS"] = _fact(one or None, size)
    processes = series.processes
    minor = sum(process.minor_faults for process in processes)
    major = sum(process.major_faults for process in processes)
    cpu = sum(process.cpu_s for process in processes)
    if end is not None and end.user_s is not None and end.system_s is not None:
        minor, major = max(minor, end.minor_faults or 0), max(major, end.major_faults or 0)
        cpu = max(cpu, end.user_s + end.system_s)
    facts["page faults"] = _fact(minor + major, str)
    facts["major page faults (disk)"] = _fact(major, str)
    facts["processes"] = _fact(len(processes) + series.dropped, str)
    facts["seconds"] = _fact(end.seconds if end else series.seconds, significant)
    facts["CPU seconds"] = _fact(cpu, significant)
    return facts


def compare(before: Recording, after: Recording) -> str:
    """Return the comparison of two recordings as a Markdown table, with the two commands above it.

    Each peak has its own time. A ratio below 1 means that `after` needs less; it is empty if `before` is 0 or a number
    is unknown. Control characters and markup in commands are escaped.

    Raises
    ------
    ValueError
        One of the recordings has no samples.
    """
    first, second = facts_of(before), facts_of(after)
    lines = [f"* {name}: {_code(run)}{_ended(run)}" for name, run in (("before", before), ("after", after))]
    lines += ["", "| | before | after | ratio |", "|---|---:|---:|---:|"]
    lines += [
        f"| {name} | {first[name][1]} | {second[name][1]} | {_ratio(first[name], second[name])} |" for name in first
    ]
    return "\n".join(lines)


def _fact(number: float | None, words: Callable[[int], str] | Callable[[float], str]) -> Fact:
    return (None, "?") if number is None else (number, words(number))  # type: ignore[arg-type]


def _ratio(before: Fact, after: Fact) -> str:
    return "" if not before[0] or after[0] is None else f"{significant(after[0] / before[0])}"


def _code(run: Recording) -> str:
    shown = escape(run.title)
    shown = shown if len(shown) <= _LONG else f"{shown[: _LONG - 1]}…"
    return f"`{shown.replace('`', chr(39))}`"


def _ended(run: Recording) -> str:
    if run.end is None:
        return " (the recorder was killed)"
    if run.end.exit is None or run.end.exit == 0:
        return ""
    return f" (signal {-run.end.exit})" if run.end.exit < 0 else f" (exit status {run.end.exit})"
