"""What processes and disks have used, as the kernel counts it; and fresh memory, taken before it is needed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from onecopy.files import page_cache
from onecopy.memory import proc
from onecopy_bench.engine.crew import SampleError
from onecopy_bench.engine.machine import disk_counters
from onecopy_bench.engine.raw import STRIDE, fresh_memory

BACKED_MORE = 256 << 20
"""Bytes that a sample takes beside its data: page tables, interpreters, what the kernel reads ahead."""

MEMORY_SHARE = 0.8
"""A sample may take this share of the available memory; beyond it, it is skipped."""


def memory_of(pid: int) -> proc.Rollup:
    """Return the memory of a child; raises SampleError where it has just died."""
    try:
        return proc.rollup(pid)
    except ProcessLookupError as error:
        raise SampleError("crashed", "died while it was to hold still") from error


def anonymous_of(pids: Iterable[int]) -> int:
    """Return the anonymous bytes of some processes; cheap enough to poll."""
    found = 0
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            found += proc.status(pid).rss_anon or 0
    return found


def family_of(pids: Iterable[int]) -> list[int]:
    """Return some processes and all their descendants."""
    found = list(pids)
    for pid in found:  # which grows
        found += proc.children_of(pid)
    return found


def totals_of(pids: Iterable[int]) -> dict[str, Any]:
    """Return what some processes hold together, in bytes, and their faults; None where the kernel is silent.

    `pss` splits into `anonymous_pss`, `file` and `shmem`: each page divided by the number of its mappers, so copies
    add up. `private` is what only one process maps now: a lone mapper's clean file pages are in it. `anonymous` is
    memory without a file. Faults and `read_bytes` (from a disk) are those of the processes that live.
    """
    names = ("processes", "pss", "anonymous", "private", "swap", "page_tables", "minor_faults", "major_faults")
    sums: dict[str, Any] = dict.fromkeys((*names, "anonymous_pss", "file", "shmem", "read_bytes"), 0)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it has ended, and counts nothing
            one = _one(pid)
            sums = {name: None if None in (each, one[name]) else each + one[name] for name, each in sums.items()}
    return sums


def _one(pid: int) -> dict[str, int | None]:
    memory, status, stat = proc.rollup(pid), proc.status(pid), proc.stat(pid)
    read = None
    with contextlib.suppress(PermissionError, FileNotFoundError):
        read = proc.io(pid).read_bytes
    return {
        "processes": 1,
        "pss": memory.pss,
        "anonymous": memory.anonymous,
        "private": memory.uss,
        "swap": memory.swap if memory.swap_pss is None else memory.swap_pss,
        "page_tables": status.vm_pte or 0,
        "minor_faults": stat.minflt,
        "major_faults": stat.majflt,
        "anonymous_pss": memory.pss_anon,
        "file": memory.pss_file,
        "shmem": memory.pss_shmem,
        "read_bytes": read,
    }


class Peak:
    """The highest sum of RssAnon over some processes so far, in bytes; `family`: and over their descendants."""

    def __init__(self, pids: Sequence[int], *, family: bool = False) -> None:
        self._pids, self._family = pids, family
        self.bytes = 0

    def poll(self) -> None:
        """Measure once; a process that is gone counts nothing, its end is noticed elsewhere."""
        self.bytes = max(self.bytes, anonymous_of(family_of(self._pids) if self._family else self._pids))


def disk_bytes(path: str | os.PathLike[str], *, written: bool = False) -> int | None:
    """Return the bytes that the disk of a file has read (or written) since boot, for any process; None: unknown."""
    disk = disk_counters(Path(path).stat().st_dev)
    return None if disk is None else disk[written]


def difference(after: int | None, before: int | None) -> int | None:
    """Return after - before, or None where either is unknown."""
    return None if after is None or before is None else after - before


def refuse_too_much(wanted: float) -> None:
    """Raise SampleError where the private memory of a sample would exhaust the machine."""
    available = page_cache.available_memory()
    if available is not None and wanted > MEMORY_SHARE * available:
        raise SampleError(
            "skipped", f"needs {wanted / 1e6:.0f} MB of private memory, {available / 1e6:.0f} MB are available"
        )


def back(size: int) -> None:
    """Touch and free as much memory as a sample is going to take, so that it is there when the sample needs it.

    The host of a virtual machine may take free memory back and give it again on first access, a page at a time and at
    less than 1 GB/s. What was used a moment ago is still backed, as all memory of a physical machine is.
    """
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            memory, data = fresh_memory(size + BACKED_MORE, huge=True)
            data[::STRIDE] = 1
            del memory
        os._exit(0)
    os.waitpid(pid, 0)
