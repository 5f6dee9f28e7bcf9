"""The memory of a container: how much can be allocated before the OOM killer acts, and what other tools show.

A control group is also charged for page cache, of the files that its processes were the first to read; most of it can
be dropped at any time. Anonymous memory, shared memory and kernel memory cannot be dropped. Kubernetes and
``docker stats`` show the *working set*, usage minus inactive file pages, which includes files that are read repeatedly.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onecopy._core import held_by_group
from onecopy.memory import cgroup, pressure
from onecopy.text import significant, size

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from onecopy.memory.cgroup import MemoryStat
    from onecopy.memory.pressure import Pressure

__all__ = ["Container", "container"]

_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Container:
    """The memory of a control group in bytes; None if unlimited or not reported. Printed, it is sentences."""

    version: int
    """Version of control groups: 1 or 2."""
    directory: str
    """Directory of the group."""
    limit: int | None
    """The tightest limit of the group and of those above it."""
    limited_by: str | None
    """Directory of the group that has `limit`."""
    held: int
    """Unreclaimable bytes charged to the group in `limited_by`, including groups below it: usage minus page cache."""
    usage: int | None
    """Bytes charged to the group now, including page cache."""
    peak: int | None
    """Maximum of `usage` so far."""
    anonymous: int
    """Bytes of anonymous memory."""
    kernel: int | None
    """Bytes of kernel memory: page tables, stacks, slab."""
    kernel_reclaimable: int
    """The part of `kernel` in caches that can be dropped; 0 for v1, which does not report it."""
    shmem: int
    """Bytes of shared memory (tmpfs, /dev/shm, memfd), which can only be swapped out."""
    file_clean: int
    """Bytes of page cache that can be dropped without writing."""
    file_dirty: int
    """Bytes of page cache that must be written before they can be dropped."""
    working_set: int | None
    """The number shown by Kubernetes, cAdvisor and ``docker stats``: `usage` minus inactive file pages."""
    active_file: int | None
    """Bytes of page cache that the working set includes although they can be dropped."""
    refaults: int | None
    """Bytes read again after they had been dropped, so far: a sign of memory shortage."""
    kills: int | None
    """Number of processes of the group that the OOM killer has killed."""
    pressure: Pressure | None
    """Time lost to waiting for memory (PSI)."""
    pressure_of: str
    """"group", or "machine" if the kernel does not report the pressure of groups (v1)."""

    @property
    def unreclaimable(self) -> int:
        """Bytes that cannot be dropped: anonymous and shared memory (without swapping), and kernel memory."""
        return self.anonymous + self.shmem + max((self.kernel or 0) - self.kernel_reclaimable, 0)

    @property
    def left(self) -> int | None:
        """Bytes that can still be allocated before the OOM killer acts: `limit` minus `held`; None without a limit."""
        return None if self.limit is None else max(self.limit - self.held, 0)

    def __str__(self) -> str:
        return "\n".join(self.sentences())

    def sentences(self) -> Iterator[str]:
        """Yield the facts as sentences, the most important first."""
        held = f"{size(self.anonymous)} anonymous, {size(self.shmem)} shmem"
        held += "" if self.kernel is None else f", {size(self.kernel)} kernel"
        cannot = f"{size(self.unreclaimable)} cannot be dropped ({held})"
        yield f"{cannot}; there is no limit" if self.limit is None else cannot
        if self.limit is not None and self.left is not None:
            where = "" if self.limited_by in (None, self.directory) else f" of {self.limited_by}"
            share = f"{100 * self.held / self.limit:.0f} % of it is used" if self.limit else "all of it is used"
            left = f"{size(self.left)} are left before the OOM killer acts"
            yield f"limit{where}: {size(self.limit)}, {share}: {left}"
        if self.kills:
            yield f"the OOM killer has killed {self.kills} processes of this group so far"
        yield (
            f"page cache: {size(self.file_clean)} clean, which the kernel drops when memory is short; "
            f"{size(self.file_dirty)} dirty, which must be written first. It is charged to the group whose process "
            "read a file first"
        )
        if self.working_set is not None and self.usage is not None:
            yield (
                f"Kubernetes and docker stats show {size(self.working_set)}: the usage ({size(self.usage)}) minus "
                f"inactive file pages; {size(self.active_file or 0)} of it are active file pages, which can be dropped "
                "too"
            )
        if self.refaults:
            yield f"{size(self.refaults)} were read again after they had been dropped, so far"
        if self.pressure is not None and self.pressure.some.avg60 > 0:
            some, full = (significant(100 * stall.avg60) for stall in (self.pressure.some, self.pressure.full))
            yield (
                f"in the last minute, tasks of this {self.pressure_of} waited for memory {some} % of the time, and "
                f"all tasks at once {full} %"
            )


def container(pid: int | None = None, *, root: Path = cgroup.ROOT) -> Container | None:
    """Measure the control group that a process is charged to.

    Parameters
    ----------
    pid
        The process; None: this process.
    root
        Root of the file system: ``/``, or a recorded copy.

    Returns
    -------
    Container or None
        None if there are no memory cgroups, or the group is not visible.

    Raises
    ------
    ProcessLookupError
        There is no such process.

    Examples
    --------
    >>> from onecopy.memory import container
    >>> found = container()
    >>> found is None or found.unreclaimable >= found.anonymous
    True
    """
    group = cgroup.memory_group(os.getpid() if pid is None else pid, root=root)
    if group is None:
        return None
    stat, directory = group.stat, group.directory
    dirty = (stat.file_dirty or 0) + (stat.file_writeback or 0)
    shmem = stat.shmem or 0
    of_group = pressure.pressure(directory, root=root) if group.version == 2 else None
    usage, inactive = group.usage, stat.inactive_file
    return Container(
        version=group.version,
        directory=str(directory),
        limit=group.limit,
        limited_by=None if group.limited_by is None else str(group.limited_by),
        held=held_by_group(str(group.limited_by or directory), group.version),
        usage=usage,
        peak=group.peak,
        anonymous=stat.anon,
        kernel=_kernel(stat),
        kernel_reclaimable=stat.slab_reclaimable or 0,
        shmem=shmem,
        file_clean=max(stat.file - shmem - dirty, 0),
        file_dirty=dirty,
        working_set=None if usage is None or inactive is None else max(usage - inactive, 0),
        active_file=stat.active_file,
        refaults=None if stat.workingset_refault_file is None else stat.workingset_refault_file * _PAGE,
        kills=pressure.kills(directory),
        pressure=of_group or pressure.pressure(root=root),
        pressure_of="group" if of_group else "machine",
    )


def _kernel(stat: MemoryStat) -> int | None:
    """Return the bytes of kernel memory; the sum of its parts if the total is not reported (v2 before Linux 5.18)."""
    if stat.kernel is not None:
        return stat.kernel
    parts = (stat.slab_reclaimable, stat.slab_unreclaimable, stat.kernel_stack, stat.pagetables, stat.percpu, stat.sock)
    known = [part for part in parts if part is not None]
    return sum(known) if known else None
