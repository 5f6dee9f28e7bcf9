"""The screen of `onecopy top`: formats a snapshot as lines of text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from onecopy.base.text import counted, escape, significant, size
from onecopy.cli import screen
from onecopy.cli.screen import share
from onecopy.memory.proc import label_of
from onecopy_monitor.history import History, trend

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onecopy_monitor import FileReading, ProcessReading, Snapshot

WIDE = 110
"""Minimum terminal width in characters for which all columns are shown."""
BAR = 10
"""Width of a bar in characters."""
NAME = 26
"""Maximum length of a name or path on a narrow screen, in characters; on a wide screen, it is doubled."""

ORDERS: dict[str, Callable[[View, ProcessReading], float]] = {
    "share": lambda _, one: -one.share,
    "anonymous": lambda _, one: -one.anonymous,
    "file": lambda _, one: -one.file,
    "rss": lambda _, one: -one.rss,
    "swap": lambda _, one: -(one.swap or 0),
    "faults": lambda view, one: -view.faults(one),
    "cpu": lambda view, one: -view.cpu(one),
    "pid": lambda _, one: one.pid,
}
"""Sort keys of processes, by the names that --sort accepts."""
SORT_KEYS = {
    "s": "share",
    "a": "anonymous",
    "f": "file",
    "r": "rss",
    "w": "swap",
    "m": "faults",
    "c": "cpu",
    "p": "pid",
}


@dataclass
class View:
    """Display settings, and the history for rates and trends."""

    sort: str = "share"
    tree: bool = False
    limit: int | None = None
    """Maximum number of processes, and of files, to show; None: all."""
    cost: float | None = None
    """CPU time of sampling and display as a fraction of one CPU; None: show only the cost of sampling."""
    copies: dict[int, int] = field(default_factory=dict)
    """Bytes of private memory that duplicate other pages, by PID, for processes that were compared."""
    history: History = field(default_factory=History)
    _labels: dict[tuple[int, float], str] = field(default_factory=dict)

    def faults(self, process: ProcessReading) -> float:
        """Return page faults per second, or 0 for the first sample."""
        rates = self.history.rates(process)
        return 0.0 if rates is None else rates.minor_faults + rates.major_faults

    def cpu(self, process: ProcessReading) -> float:
        """Return CPU time as a fraction of one CPU, or 0 for the first sample."""
        rates = self.history.rates(process)
        return 0.0 if rates is None else rates.cpu

    def label(self, process: ProcessReading) -> str:
        """Return the name to show, with escaped control characters."""
        known = self._labels.get(process.key)
        if known is None:
            known = self._labels[process.key] = escape(label_of(process.pid, process.name))
        return known

    def ordered(self, processes: Sequence[ProcessReading]) -> list[tuple[int, ProcessReading]]:
        """Return processes in display order, each with its depth in the tree."""
        wanted = sorted(processes, key=lambda one: (ORDERS[self.sort](self, one), one.pid))
        if not self.tree:
            return [(0, one) for one in wanted]
        pids = {one.pid for one in wanted}
        below: dict[int, list[ProcessReading]] = {}
        for one in wanted:
            below.setdefault(one.parent if one.parent in pids and one.parent != one.pid else 0, []).append(one)
        found: list[tuple[int, ProcessReading]] = []
        waiting = [(0, one) for one in reversed(below.get(0, []))]
        while waiting:
            depth, one = waiting.pop()
            found.append((depth, one))
            waiting += [(depth + 1, child) for child in reversed(below.pop(one.pid, []))]
        return found


def lines_of(snapshot: Snapshot, view: View, width: int, interval: float | None) -> list[Text]:
    """Return the lines of the screen. `interval` is the time between samples in seconds; None: a single sample."""
    text = Text("\n").join(
        [
            *_heading(snapshot, width, interval, view.cost),
            Text(""),
            _processes(snapshot, view, width),
            *([Text(""), _files(snapshot, view, width)] if snapshot.files else []),
            *_notes(snapshot, view),
        ]
    )
    return list(text.split("\n", allow_blank=True))


def _heading(snapshot: Snapshot, width: int, interval: float | None, own: float | None) -> list[Text]:
    total, cost = snapshot.totals, snapshot.cost
    right = f"own cost {significant(100 * (cost.share if own is None else own))} % of a CPU"
    if interval is not None:
        right = f"every {significant(interval)} s   {right}"
    left = counted(len(snapshot.processes), "process", "processes")
    space = " " * max(width - cell_len(left) - cell_len(right), 3)
    kinds = {
        "anonymous": total.anonymous,
        "file clean": total.file_clean,
        "file dirty": total.file_dirty,
        "shmem": total.shmem,
    }
    extra = {"page tables": total.page_tables, "swap": total.swap}
    return [
        Text(f"{left}{space}{right}"),
        Text.assemble(
            ("REAL ", "bold"),
            (size(total.real), "bold"),
            f"   (sum of RSS: {size(total.sum_of_rss)}){_basis(snapshot)}",
        ),
        Text("  = " + "  + ".join(f"{name} {size(value)}" for name, value in kinds.items())),
        Text("  not included: " + ", ".join(f"{name} {size(value)}" for name, value in extra.items())),
    ]


def _basis(snapshot: Snapshot) -> str:
    total = snapshot.totals
    if total.basis == "exact":
        return "   exact"
    if total.basis == "walks" and total.walked_s is not None:
        return f"   forked memory measured {total.walked_s:.0f} s ago"
    return ""


def _processes(snapshot: Snapshot, view: View, width: int) -> Text:
    wide = width >= WIDE
    more, last = (">SHMEM >SWAP", ">CPU") if wide else ("", "")
    grid = screen.Grid(f">PID NAME >SHARE >ANON >COPIES >FILE {more} >RSS >MIN/s >MAJ/s {last} TREND")
    for depth, one in view.ordered(snapshot.processes)[: view.limit]:
        rates = view.history.rates(one)
        label = view.label(one) + (" (zombie)" if one.state == "Z" else "")
        cells = [
            str(one.pid),
            _cut("  " * depth + label, NAME * (2 if wide else 1) - 6),
            size(one.share),
            size(one.anonymous),
            size(view.copies[one.pid]) if one.pid in view.copies else "?",
            size(one.file),
            *((size(one.shmem), "?" if one.swap is None else size(one.swap)) if wide else ()),
            size(one.rss),
            "" if rates is None else significant(rates.minor_faults),
            "" if rates is None else significant(rates.major_faults),
            *(("" if rates is None else f"{100 * rates.cpu:.0f} %",) if wide else ()),
            trend(view.history.shares(one)),
        ]
        grid.rows.append(tuple(cells))
    return grid.text(width)


def _files(snapshot: Snapshot, view: View, width: int) -> Text:
    wide = width >= WIDE
    huge, dropped = (">HUGE", ">DROPPED") if wide else ("", "")
    grid = screen.Grid(f"BIG_FILES >SIZE RESIDENT {huge} >DIRTY {dropped} SHARED_BY")
    for one in snapshot.files[: view.limit]:
        saves = f", saves {size(one.saves)}" if one.saves >= 1 << 20 else ""
        cells = [
            _cut_start(
                escape(one.path) + (" (deleted)" if one.deleted and one.kind == "file" else ""),
                NAME * (2 if wide else 1),
            ),
            "?" if one.size is None else size(one.size),
            resident(one),
            *(("?" if one.huge is None else f"{100 * one.huge:.0f} %",) if wide else ()),
            "?" if one.dirty is None else "memory" if one.kind == "shmem" else size(one.dirty),
            *(("?" if one.recently_evicted is None else size(one.recently_evicted),) if wide else ()),
            f"{len(one.pids)}{saves}",
        ]
        grid.rows.append(tuple(cells))
    return grid.text(width)


def resident(file: FileReading) -> str:
    """Return a bar and the resident percentage of a file's mapped part, which is never rounded to 0 % or 100 %."""
    if file.cached is None or file.mapped <= 0:
        return f"{'?':{BAR}} unknown"
    part = min(file.cached / file.mapped, 1.0)
    full = BAR if part == 1 else min(round(BAR * part), BAR - 1) if part > 0 else 0
    percent = share(min(file.cached, file.mapped), file.mapped)
    return "█" * full + "░" * (BAR - full) + f" {percent:>5}"


def _notes(snapshot: Snapshot, view: View) -> list[Text]:
    notes = list(snapshot.totals.notes)
    notes += dict.fromkeys(f"unknown: {one.unknown}" for one in snapshot.files if one.unknown)
    if snapshot.cost.deferred:
        notes.append(f"{snapshot.cost.deferred} page-table walks are deferred, because they would exceed the budget")
    if view.limit is not None and len(snapshot.processes) > view.limit:
        rest = sum(one.share for _, one in view.ordered(snapshot.processes)[view.limit :])
        notes.append(f"and {len(snapshot.processes) - view.limit} more processes with {size(rest)}")
    if view.limit is not None and len(snapshot.files) > view.limit:
        notes.append(f"and {len(snapshot.files) - view.limit} more files")
    return [Text(""), *(Text(escape(note), style="dim") for note in notes)] if notes else []


def _cut(text: str, width: int) -> str:
    """Cut a text to at most `width` columns by removing its end; an ellipsis marks the cut."""
    while cell_len(text) > width:
        text = text[: width - 1] + "…" if cell_len(text[: width - 1]) < width else text[:-2] + "…"
    return text


def _cut_start(text: str, width: int) -> str:
    """Cut a path to at most `width` columns by removing its beginning; an ellipsis marks the cut."""
    while cell_len(text) > width:
        text = "…" + text[2:]
    return text
