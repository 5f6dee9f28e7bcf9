"""A process that is looked at again and again, through a file that stays open.

What is open belongs to that process and to no other: when it has ended, reading fails, even where another one has got
its number since. It saves two of three system calls too: a look costs 8 us.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from functools import cache
from typing import NamedTuple

from onecopy.memory import proc

__all__ = ["Counters", "Observed", "Times", "children_of", "everyone", "kernel_lists_children"]

_COUNTERS = re.compile(
    rb"\nState:\t(\S).*?\nPPid:\t(\d+)\n(?:.*?\nVmHWM:\s+(\d+) kB\nVmRSS:\s+(\d+) kB\n"
    rb"RssAnon:\s+(\d+) kB\nRssFile:\s+(\d+) kB\nRssShmem:\s+(\d+) kB\n.*?\nVmPTE:\s+(\d+) kB\n"
    rb"(?:VmPMD:.*?\n)?(?:VmSwap:\s+(\d+) kB)?)?",
    re.DOTALL,
)
_ENOUGH = 1 << 14


class Counters(NamedTuple):
    """Of status, in bytes."""

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
    """Of stat."""

    minor_faults: int
    major_faults: int
    cpu_s: float


class Observed:
    """A process; to be closed. ProcessLookupError: there is none, or it has ended. Everybody's may be looked at.

    Attributes
    ----------
    pid, name, started
        As in `onecopy.memory.ProcessReading`.
    """

    def __init__(self, pid: int) -> None:
        try:
            self._status = os.open(f"/proc/{pid}/status", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise ProcessLookupError(f"there is no process {pid}") from None
        try:
            first = proc.stat(pid)
            self.pid, self.name, self.started = pid, first.comm, first.starttime
            self.counters()  # of the process that stat was of: its number cannot be another's while this can be read
        except BaseException:
            self.close()
            raise

    def counters(self) -> Counters:
        """Read what it holds; zombies hold nothing."""
        text = os.pread(self._status, _ENOUGH, 0)
        found = _COUNTERS.search(text)
        if found is None:
            raise ValueError(f"/proc/{self.pid}/status: cannot read {text[:80]!r}")
        state, parent, *numbers = found.groups()
        peak, *sizes = [None if number is None else int(number) << 10 for number in numbers]
        rss, anonymous, file, shmem, page_tables, swap = sizes
        return Counters(
            state.decode(), int(parent), peak, rss or 0, anonymous or 0, file or 0, shmem or 0, page_tables, swap
        )

    def times(self) -> Times:
        """Read faults and processor time."""
        stat = proc.stat(self.pid)
        if stat.starttime != self.started:
            raise ProcessLookupError(f"process {self.pid} has ended, and another one has its number")
        self.name = stat.comm  # exec, or a worker that names itself
        return Times(stat.minflt, stat.majflt, stat.utime + stat.stime)

    def close(self) -> None:
        """Release the file."""
        if self._status >= 0:
            os.close(self._status)
            self._status = -1


def children_of(pid: int) -> list[int]:
    """List the children of a process, of all its threads; none when it has ended, or where the kernel keeps no list.

    >>> os.getpid() in children_of(os.getppid())
    True
    """
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - text
            with (
                suppress(FileNotFoundError, ProcessLookupError),  # the thread has ended
                open(f"/proc/{pid}/task/{thread}/children", "rb") as file,  # noqa: PTH123 - text
            ):
                found += map(int, file.read().split())
    return found


@cache
def kernel_lists_children() -> bool:
    """Return whether `children_of` works here: it needs CONFIG_PROC_CHILDREN.

    >>> kernel_lists_children() in (True, False)
    True
    """
    return os.path.exists(f"/proc/self/task/{os.getpid()}/children")  # noqa: PTH110


def everyone() -> list[int]:
    """List all processes of this machine, or of this container.

    >>> os.getpid() in everyone()
    True
    """
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208
