"""Tables of memory as text: what a watch saw, and what a list of processes has mapped in now.

Names of processes and files came from elsewhere: control characters in them are shown as escapes.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from onecopy.memory import proc
from onecopy.memory.samples import COLUMNS
from onecopy.memory.sampling.mapped import kind_of
from onecopy.memory.sampling.sampler import Sampler
from onecopy.memory.sampling.selection import Selection
from onecopy.text import plain, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onecopy.memory.series import Series
    from onecopy.memory.snapshots import WatchCost

__all__ = ["ROWS", "ProcessMemory", "memory_of", "memory_table", "series_table", "watch_table"]

ROWS = {
    "anonymous": "anonymous",
    "file_clean": "files, clean",
    "file_dirty": "files, dirty",
    "shmem": "shared memory",
    "real": "together, everything once",
    "sum_of_rss": "sum of RSS would say",
    "page_tables": "page tables",
    "swap": "swap",
}
"""Columns of a series in the order of tables, and what they are called there."""
_SHOWN = 20
"""Processes, and files."""
_NAME = 40


class ProcessMemory(NamedTuple):
    """What a process has mapped in, in bytes, as MemoryMonitor and psutil call it; walked, so exact and dear."""

    pid: int
    name: str
    rss: int
    pss: int
    uss: int
    """Private now, clean file pages of a lone mapper included."""
    shared: int
    """Mapped by others too."""
    shared_file: int
    """The part of `shared` that is of real files: no memory files, /dev/shm or tmpfs, which MemoryMonitor counts."""


def memory_of(pid: int) -> ProcessMemory:
    """Walk through the page tables of a process: 6 ms per GiB of files, 22 ms per GiB of anonymous memory.

    ProcessLookupError: it has ended; PermissionError: it is somebody else's.

    >>> import os
    >>> mine = memory_of(os.getpid())
    >>> mine.rss >= mine.pss >= mine.uss > 0
    True
    """
    regions = proc.smaps(pid)
    shared = [one.memory.shared_clean + one.memory.shared_dirty for one in regions]
    of_files = [
        number
        for number, one in zip(shared, regions, strict=True)
        if one.inode and one.path.startswith("/") and kind_of((one.dev, one.inode), one.path) == "file"
    ]
    return ProcessMemory(
        pid,
        proc.stat(pid).comm,
        rss=sum(one.memory.rss for one in regions),
        pss=sum(one.memory.pss for one in regions),
        uss=sum(one.memory.uss for one in regions),
        shared=sum(shared),
        shared_file=sum(of_files),
    )


def memory_table(pids: Sequence[int], *, children: bool = False) -> str:
    """Return the memory of processes as a table: time, PID, rss, pss, uss, shared, shared_file, in megabytes (10**6).

    The columns are those of ``MemoryMonitor.table()``, but that `shared_file` has no memory files in it. In the last
    row `pss` adds up, and so does `real`, of `Sampler`; rss, which counts shared pages once per process, is marked.
    Processes that have ended, or that we may not look at, are named below.

    Parameters
    ----------
    pids
        Numbers of processes.
    children
        Their descendants too.

    Examples
    --------
    >>> import os
    >>> print(memory_table([os.getpid()]).splitlines()[0].split()[:4])
    ['time', 'PID', 'rss', 'pss']
    """
    everyone = Selection(tuple(pids), children=children).with_descendants(pids)
    rows, troubles = [], []
    for pid in everyone:
        try:
            rows.append(memory_of(pid))
        except PermissionError:
            troubles.append(f"{pid}: somebody else's process")
        except (ProcessLookupError, FileNotFoundError):
            troubles.append(f"{pid}: has ended")
    if not rows:
        return "\n".join(troubles)
    now = time.strftime("%H:%M:%S")
    lines: list[tuple[str, ...]] = [("time", "PID", "rss", "pss", "uss", "shared", "shared_file", "name")]
    lines += [(now, str(row.pid), *map(_mega, row[2:]), _cut(row.name)) for row in rows]
    rss, pss, uss = (_mega(sum(column)) for column in zip(*((row.rss, row.pss, row.uss) for row in rows), strict=True))
    lines.append((now, "all", rss + "*" if len(rows) > 1 else rss, pss, uss, "", "", ""))
    text = [_grid(lines, left={7})]
    if len(rows) > 1:
        text.append("* counts what is shared once per process")
    real = _real([row.pid for row in rows])
    if real is not None:
        text.append(f"real, everything once: {_mega(real)} MB")
    return "\n".join([*text, *troubles])


def _real(pids: list[int]) -> int | None:
    with suppress(ProcessLookupError), Sampler(pids) as sampler:
        return sampler.sample().totals.real
    return None


def watch_table(series: Series, cost: WatchCost) -> str:
    """Return what a watch saw, and what it cost."""
    words = f"{cost.looks} looks in {cost.seconds:.1f} s, {100 * cost.share:.2g} % of a processor"
    if cost.failed:
        words += f"; {cost.failed} looks failed: {plain(cost.reason)}"
    return f"{series_table(series)}\n{words}"


def series_table(series: Series) -> str:
    """Return the peaks of a group, of its processes, and of the files that they map.

    >>> import os
    >>> from onecopy.memory import Sampler, Series, sample_of
    >>> series = Series()
    >>> with Sampler([os.getpid()]) as sampler:
    ...     series.add(sample_of(sampler.sample()))
    >>> series_table(series).splitlines()[0].split()
    ['peak', 'grown', 'at']
    """
    peak = series.peak
    heights = {name: getattr(peak, name) for name in COLUMNS}
    lines = [("", "peak", "grown", "at")]
    lines += [
        (words, size(heights[name].bytes), size(heights[name].grown), f"{heights[name].at:.1f} s")
        for name, words in ROWS.items()
    ]
    text = [_grid(lines, left={0}), "", _processes(series)]
    text += ["", _files(series)] if series.files else []
    if peak.unseen > 1 << 20:
        text += ["", f"Between two looks a process had {size(peak.unseen)} more RSS than any look saw (VmHWM)."]
    return "\n".join(text)


def _processes(series: Series) -> str:
    ordered = sorted(series.processes, key=lambda one: -one.highest)
    lines = [("PID", "anonymous", "share", "peak RSS", "major faults", "CPU", "name")]
    for one in ordered[:_SHOWN]:
        anonymous = max(one.curve.numbers("anonymous"), default=0)
        high = "?" if one.peak_rss is None else size(one.peak_rss)
        sizes = size(int(anonymous)), size(one.highest), high
        lines.append((str(one.pid), *sizes, str(one.major_faults), f"{one.cpu_s:.1f} s", _cut(one.name)))
    more = len(ordered) - _SHOWN + series.dropped
    return _grid(lines, left={6}) + (f"\nand {more} more processes" if more > 0 else "")


def _files(series: Series) -> str:
    files = series.files
    lines = [("in memory", "size", "dirty", "mapped by", "saves", "file")]
    for one in files[:_SHOWN]:
        numbers = size(one.once), _size(one.size), _size(one.dirty), str(one.sharers), size(one.saves)
        lines.append((*numbers, plain(one.path)))
    return _grid(lines, left={5}) + (f"\nand {len(files) - _SHOWN} more files" if len(files) > _SHOWN else "")


def _size(number: int | None) -> str:
    return "?" if number is None else size(number)


def _mega(number: int) -> str:
    return f"{number / 1e6:.1f}"


def _cut(name: str) -> str:
    """Return a process's name so that it cannot break a table."""
    return plain(name)[:_NAME]


def _grid(lines: Sequence[tuple[str, ...]], left: Iterable[int]) -> str:
    """Set columns below one another; numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    left = set(left)
    return "\n".join(
        "  ".join(
            cell.ljust(width) if at in left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
