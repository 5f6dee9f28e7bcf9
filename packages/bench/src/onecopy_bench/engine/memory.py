"""What processes and disks have used, as the kernel counts it; and fresh memory, taken before it is needed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from onecopy import page_cache
from onecopy.memory import proc
from onecopy_bench.engine.crew import SampleError
from onecopy_bench.engine.machine.kernel import disk_counters
from onecopy_bench.engine.raw import STRIDE, fresh_memory

BACKED_MORE = 256 << 20
"""Bytes that a sample takes beside its data: page tables, interpreters, what the kernel reads ahead."""

MEMORY_SHARE = 0.8
"""A sample may take this share of the available memory; beyond it, it is skipped."""


class Memory(NamedTuple):
    """The memory of one process at one moment, in bytes, from smaps_rollup."""

    pss: int
    anonymous: int
    private: int
    file_pmd_mapped: int
    anon_huge: int


def memory_of(pid: int) -> Memory:
    """Return the memory of a child; raises SampleError where it has just died."""
    try:
        rollup = proc.rollup(pid)
    except ProcessLookupError as error:
        raise SampleError("crashed", "died while it was to hold still") from error
    return Memory(rollup.pss, rollup.anonymous, rollup.uss, rollup.file_pmd_mapped, rollup.anon_huge_pages)


def resident(pids: Iterable[int]) -> tuple[int, int]:
    """Return (resident, anonymous) bytes of some processes; cheap enough to poll."""
    whole = anonymous = 0
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            status = proc.status(pid)
            whole += status.vm_rss or 0
            anonymous += status.rss_anon or 0
    return whole, anonymous


def children_of(pid: int) -> list[int]:
    """Return the children that the main thread of a process has; none where the kernel does not list them."""
    with contextlib.suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


class Peak:
    """The highest sum of RssAnon over some processes so far, in bytes; `family`: and over their children."""

    def __init__(self, pids: Sequence[int], *, family: bool = False) -> None:
        self._pids, self._family = pids, family
        self.bytes = 0

    def poll(self) -> None:
        """Measure once; a process that is gone counts nothing, its end is noticed elsewhere."""
        more = [child for pid in self._pids for child in children_of(pid)] if self._family else []
        self.bytes = max(self.bytes, resident([*self._pids, *more])[1])


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
