"""Tables of memory as text: the peaks of a series, and the current memory of processes.

Control characters in names of processes and files are escaped.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from onecopy.base.text import escape, size
from onecopy.memory import proc
from onecopy.memory.cgroup import kind_of
from onecopy_monitor.samples import COLUMNS, LABELS
from onecopy_monitor.sampling.sampler import Sampler
from onecopy_monitor.sampling.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onecopy_monitor.series import Series
    from onecopy_monitor.snapshots import WatchCost

__all__ = ["ProcessMemory", "memory_of", "memory_table", "series_table", "watch_table"]

_SHOWN = 20
"""Maximum number of processes, and of files, in a table."""
_NAME = 40


class ProcessMemory(NamedTuple):
    """A process's memory in bytes, from a page-table walk, with the names that MemoryMonitor and psutil use."""

    pid: int
    name: str
    """Name of the process as recorded by the kernel."""
    rss: int
    """Resident bytes."""
    pss: int
    """Resident bytes, with each page divided by the number of processes that map it."""
    uss: int
    """Resident bytes that only this process currently maps, including clean pages of files."""
    shared: int
    """Resident bytes that other processes map as well."""
    shared_file: int
    """The part of `shared` in files on disk, excluding memfd, /dev/shm and tmpfs, which MemoryMonitor includes."""


def memory_of(pid: int) -> ProcessMemory:
    """Measure a process with a page-table walk: 6 ms per GiB of files, 22 ms per GiB of anonymous memory.

    Raise ProcessLookupError if the process has ended, PermissionError if it belongs to another user.

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

    The columns are those of ``MemoryMonitor.table()``, except that `shared_file` does not include memfd files. The last
    row contains sums; the sum of rss counts shared pages once per process and is marked. Lines below the table show the
    deduplicated total from `Sampler`, and the processes that have ended or belong to another user.

    Parameters
    ----------
    pids
        Ids of the processes.
    children
        Whether to include their descendants.

    Examples
    --------
    >>> import os
    >>> print(memory_table([os.getpid()]).splitlines()[0].split()[:4])
    ['time', 'PID', 'rss', 'pss']
    """
    all_pids = Selection(tuple(pids), children=children).with_descendants(pids)
    rows, troubles = [], []
    for pid in all_pids:
        try:
            rows.append(memory_of(pid))
        except PermissionError:
            troubles.append(f"{pid}: belongs to another user")
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
        text.append("* counts shared pages once per process")
    real = _real([row.pid for row in rows])
    if real is not None:
        text.append(f"deduplicated total: {_mega(real)} MB")
    return "\n".join([*text, *troubles])


def _real(pids: list[int]) -> int | None:
    with suppress(ProcessLookupError), Sampler(pids) as sampler:
        return sampler.sample().totals.real
    return None


def watch_table(series: Series, cost: WatchCost) -> str:
    """Return the table of a series, and a line with the cost of the watch."""
    words = f"{cost.samples} samples in {cost.seconds:.1f} s, {100 * cost.share:.2g} % of a CPU"
    if cost.failed:
        words += f"; {cost.failed} samples failed: {escape(cost.reason)}"
    return f"{series_table(series)}\n{words}"


def series_table(series: Series) -> str:
    """Return the peaks of a group, its processes, and the files that they map, as text.

    >>> import os
    >>> from onecopy_monitor import Sampler, Series, sample_of
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
        for name, words in LABELS.items()
    ]
    text = [_grid(lines, left={0}), "", _processes(series)]
    text += ["", _files(series)] if series.files else []
    if peak.unseen > 1 << 20:
        text += ["", f"Between two samples, a process had {size(peak.unseen)} more RSS than in any sample (VmHWM)."]
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
        lines.append((*numbers, escape(one.path)))
    return _grid(lines, left={5}) + (f"\nand {len(files) - _SHOWN} more files" if len(files) > _SHOWN else "")


def _size(number: int | None) -> str:
    return "?" if number is None else size(number)


def _mega(number: int) -> str:
    return f"{number / 1e6:.1f}"


def _cut(name: str) -> str:
    """Escape a process's name and shorten it for a table."""
    return escape(name)[:_NAME]


def _grid(lines: Sequence[tuple[str, ...]], left: Iterable[int]) -> str:
    """Align columns to the right, or to the left if they are in `left`, and return the lines."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    left = set(left)
    return "\n".join(
        "  ".join(
            cell.ljust(width) if at in left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
