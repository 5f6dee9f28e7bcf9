"""`Member`: a process in a group, with its state between samples; `Observed` reads its counters.

A process is sampled through an open file in ``/proc``, which refers to only that process: after the process has ended,
reading fails, even if its PID was reused. The open file also saves two of three system calls, so reading the counters
takes 8 us.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from onecopy.memory import proc

if TYPE_CHECKING:
    from onecopy.memory.proc import Key
    from onecopy_monitor.sampling.mapped_files import MappedFile
    from onecopy_monitor.sampling.shares_and_totals import Found
    from onecopy_monitor.snapshots import Walk

__all__ = ["Counters", "Member", "Observed", "Times"]

_COUNTERS = re.compile(
    rb"\nState:\t(\S).*?\nPPid:\t(\d+)\n(?:.*?\nVmHWM:\s+(\d+) kB\nVmRSS:\s+(\d+) kB\n"
    rb"RssAnon:\s+(\d+) kB\nRssFile:\s+(\d+) kB\nRssShmem:\s+(\d+) kB\n.*?\nVmPTE:\s+(\d+) kB\n"
    rb"(?:VmPMD:.*?\n)?(?:VmSwap:\s+(\d+) kB)?)?",
    re.DOTALL,
)
_ENOUGH = 1 << 14
_READING_S = 0.0004
"""Estimated CPU seconds for reading a process's mappings for the first time."""
_STALE_S = 60.0
"""Seconds after which a page-table walk is repeated."""
_MOVED_S, _MOVED = 1.0, 8 << 20
"""Seconds after which a walk is repeated if the group has changed, if the process shares anonymous memory (only walks
detect copying), or if its resident files changed by an eighth or by this number of bytes, whichever is more."""


class Counters(NamedTuple):
    """The memory counters of ``/proc/PID/status``, in bytes."""

    state: str
    parent: int
    peak_rss: int | None
    rss: int
    anonymous: int
    file: int
    shmem: int
    page_tables: int | None
    swap: int | None


class Times(NamedTuple):
    """Page faults and CPU seconds of ``/proc/PID/stat``."""

    minor_faults: int
    major_faults: int
    cpu_s: float


class Observed:
    """A process of any user; call `close` after use. Raise ProcessLookupError if it does not exist or has ended.

    Attributes
    ----------
    pid, name, started
        As in `onecopy_monitor.ProcessReading`.
    """

    def __init__(self, pid: int) -> None:
        try:
            self._status = os.open(f"/proc/{pid}/status", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise ProcessLookupError(f"there is no process {pid}") from None
        try:
            first = proc.stat(pid)
            self.pid, self.name, self.started = pid, first.comm, first.starttime
            self.counters()  # fails if the process has ended: so `stat` was of the same process
        except BaseException:
            self.close()
            raise

    def counters(self) -> Counters:
        """Read the memory counters. They are 0 for zombies."""
        text = os.pread(self._status, _ENOUGH, 0)
        found = _COUNTERS.search(text)
        if found is None:
            raise ValueError(f"/proc/{self.pid}/status: cannot parse {text[:80]!r}")
        state, parent, *numbers = found.groups()
        peak, *sizes = [None if number is None else int(number) << 10 for number in numbers]
        rss, anonymous, file, shmem, page_tables, swap = sizes
        return Counters(
            state.decode(), int(parent), peak, rss or 0, anonymous or 0, file or 0, shmem or 0, page_tables, swap
        )

    def times(self) -> Times:
        """Read the page faults and the CPU time."""
        stat = proc.stat(self.pid)
        if stat.starttime != self.started:
            raise ProcessLookupError(f"process {self.pid} has ended, and its PID was reused")
        self.name = stat.comm  # changed by exec, or by the process itself
        return Times(stat.minflt, stat.majflt, stat.utime + stat.stime)

    def close(self) -> None:
        """Close the file."""
        if self._status >= 0:
            os.close(self._status)
            self._status = -1


@dataclass
class Member:
    """A process in the group, with its state between samples."""

    observed: Observed
    counters: Counters
    times: Times
    files: dict[Key, MappedFile] = field(default_factory=dict)
    files_at: float = -1e9
    reading_s: float = _READING_S
    """CPU seconds used by the last reading of its mappings."""
    files_of: tuple[int, int] = (-1, -1)
    """Resident bytes of files and of shared memory at the time when its mappings were read."""
    times_at: float = 0.0
    walk: Walk | None = None
    found: Found | None = None
    outdated: bool = False
    """Whether the group has changed since the last walk."""
    unknown: str = ""

    @property
    def pid(self) -> int:
        """Process id."""
        return self.observed.pid

    @property
    def name(self) -> str:
        """Name of the process as recorded by the kernel."""
        return self.observed.name

    def due(self, now: float) -> bool:
        """Return whether a page-table walk is due."""
        if self.unknown or self.counters.rss == 0:
            return False
        if self.walk is None:
            return True
        moved = self.found is not None and (
            self.found.forked > 0
            or any(
                abs(getattr(self.counters, kind) - then.rss) > max(then.rss // 8, _MOVED)
                for kind, then in self.found.then.items()
            )
        )
        age = now - self.walk.at
        return age > _STALE_S or (age > _MOVED_S and (moved or self.outdated))
