"""What a container has left before something in it is killed, and why other tools show another number.

A control group is charged for page cache too, of whoever touched a file first; most of that can be dropped at once.
What counts is what cannot: anonymous memory, shared memory, and the kernel's own. Kubernetes and ``docker stats`` show
the *working set*, usage less inactive file pages, and so count files that are read again and again as use.
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
    """The memory of a control group, in bytes; None: unlimited, or not told. Printed, it is sentences."""

    version: int
    """Of control groups: 1 or 2."""
    directory: str
    limit: int | None
    """The tightest one, of the group or of one above it."""
    limited_by: str | None
    """The group that has this limit."""
    held: int
    """Bytes charged to that group, other groups in it included, that cannot be dropped: usage minus page cache."""
    usage: int | None
    peak: int | None
    anonymous: int
    kernel: int | None
    """All that the kernel holds for it: page tables, stacks, slab."""
    kernel_reclaimable: int
    """Of it, caches that can be dropped (v2; v1 does not tell: 0)."""
    shmem: int
    """tmpfs, /dev/shm, memory files: memory without another place, but swap."""
    file_clean: int
    """Page cache that can be dropped without writing anything."""
    file_dirty: int
    """Page cache that must be written first."""
    working_set: int | None
    """What Kubernetes, cAdvisor and ``docker stats`` show: `usage` less inactive file pages."""
    active_file: int | None
    """What of page cache the working set counts, though it can be dropped."""
    refaults: int | None
    """Bytes that were read again after they had been dropped, so far: the sign that memory is short."""
    kills: int | None
    """Processes killed for want of memory."""
    pressure: Pressure | None
    pressure_of: str
    """"group", or "machine" where groups do not tell theirs (v1)."""

    @property
    def unreclaimable(self) -> int:
        """What cannot be dropped: anonymous and shared memory (but by swapping), and the kernel's own."""
        return self.anonymous + self.shmem + max((self.kernel or 0) - self.kernel_reclaimable, 0)

    @property
    def left(self) -> int | None:
        """Bytes that can still be allocated before the OOM killer acts: `limit` minus `held`; None without a limit."""
        return None if self.limit is None else max(self.limit - self.held, 0)

    def __str__(self) -> str:
        return "\n".join(self.sentences())

    def sentences(self) -> Iterator[str]:
        """Yield what there is to say, the most important first."""
        held = f"{size(self.anonymous)} anonymous, {size(self.shmem)} shmem"
        held += "" if self.kernel is None else f", {size(self.kernel)} kernel"
        cannot = f"{size(self.unreclaimable)} cannot be dropped ({held})"
        yield f"{cannot}; there is no limit" if self.limit is None else cannot
        if self.limit is not None and self.left is not None:
            where = "" if self.limited_by in (None, self.directory) else f" of {self.limited_by}"
            share = f"{100 * self.held / self.limit:.0f} % of it is taken" if self.limit else "all of it is taken"
            yield f"limit{where}: {size(self.limit)}, {share}: {size(self.left)} are left before the OOM killer comes"
        if self.kills:
            yield f"it has come before: {self.kills} processes of this group were killed"
        yield (
            f"page cache: {size(self.file_clean)} clean, which the kernel drops when it needs to; "
            f"{size(self.file_dirty)} to be written first. It is charged to whoever touched a file first"
        )
        if self.working_set is not None and self.usage is not None:
            yield (
                f"Kubernetes and docker stats show {size(self.working_set)}: all that is charged ({size(self.usage)}) "
                f"less inactive file pages; {size(self.active_file or 0)} of it are active file pages, which can be "
                "dropped too"
            )
        if self.refaults:
            yield f"{size(self.refaults)} were read again after having been dropped, so far"
        if self.pressure is not None and self.pressure.some.avg60 > 0:
            some, full = (significant(100 * stall.avg60) for stall in (self.pressure.some, self.pressure.full))
            yield (
                f"in the last minute, tasks of this {self.pressure_of} waited for memory {some} % of the time, and all "
                f"at once {full} %"
            )


def container(pid: int | None = None, *, root: Path = cgroup.ROOT) -> Container | None:
    """Measure the control group that a process is charged to.

    Parameters
    ----------
    pid
        The process; None: this one.
    root
        Where the file system begins: ``/``, or a recorded copy.

    Returns
    -------
    Container or None
        None where there are no memory groups, or none that can be seen from here.

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
    told = pressure.pressure(directory, root=root) if group.version == 2 else None
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
        pressure=told or pressure.pressure(root=root),
        pressure_of="group" if told else "machine",
    )


def _kernel(stat: MemoryStat) -> int | None:
    """Return what the kernel holds; before Linux 5.18 v2 tells only the parts."""
    if stat.kernel is not None:
        return stat.kernel
    parts = (stat.slab_reclaimable, stat.slab_unreclaimable, stat.kernel_stack, stat.pagetables, stat.percpu, stat.sock)
    known = [part for part in parts if part is not None]
    return sum(known) if known else None
