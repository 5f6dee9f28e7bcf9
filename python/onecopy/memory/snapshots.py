"""What one look found: processes, the big files that they map, and the group as one.

Everything is in bytes and seconds, and None is what the kernel did not tell: never zero. All of it is plain data that
can be compared, pickled, and written to JSON with `Snapshot.as_dict`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Cost", "FileReading", "Key", "ProcessReading", "Snapshot", "Totals", "Walk", "WatchCost"]

Key: TypeAlias = tuple[int, int]
"""Device and inode of a file: what stays when its name goes."""


@dataclass(frozen=True, slots=True)
class Walk:
    """What a walk through the page tables of a process found (smaps_rollup): exact, and dear."""

    at: float
    """When, in seconds since 1970."""
    rss: int
    pss: int
    uss: int
    """Private now, clean file pages of a lone mapper included: see "Why RSS lies" in the documentation."""
    shared: int
    """`rss` that others map as well."""
    pss_anonymous: int | None
    """The parts of `pss`: None before Linux 5.9."""
    pss_file: int | None
    pss_shmem: int | None
    seconds: float
    """Of processor time, which the observed process may have had to wait for."""


@dataclass(frozen=True, slots=True)
class ProcessReading:
    """A process: what its counters say, which costs 8 us, and what a walk through its page tables found, if any."""

    pid: int
    parent: int
    name: str
    """As the kernel has it, at most 15 bytes; any character."""
    state: str
    """A letter: R, S, D, T, Z ..."""
    started: float
    """Seconds after boot; with `pid` it is never used again."""
    rss: int
    anonymous: int
    """Memory of no file: heap, stacks, and private copies of what was written to."""
    file: int
    """Pages of files that are mapped in."""
    shmem: int
    """Shared memory that is mapped in: /dev/shm, memory files, tmpfs."""
    swap: int | None
    page_tables: int | None
    peak_rss: int | None
    """VmHWM: the kernel's own, no poll can miss it."""
    minor_faults: int
    major_faults: int
    """Those that waited for a disk."""
    cpu_s: float
    share: int
    """What of the group's real total is this process's: what it maps with n processes counts 1/n."""
    files: tuple[Key, ...]
    """The big files that it maps."""
    walk: Walk | None
    unknown: str
    """Why its files and walks are not known; empty: they are."""

    @property
    def key(self) -> tuple[int, float]:
        """What tells this process from another one that gets its number."""
        return self.pid, self.started


@dataclass(frozen=True, slots=True)
class FileReading:
    """A big file that processes of the group map."""

    key: Key
    path: str
    """As it was mapped; of a memory file its name."""
    deleted: bool
    kind: Literal["file", "shmem"]
    """"shmem" is memory: tmpfs, /dev/shm, memory files. It has no other place, and cannot be dropped."""
    size: int | None
    mapped: int
    """Bytes of the file in which at least one process has addresses."""
    cached: int | None
    """Of these, in memory, whoever brought them there. None: the kernel does not tell us; see `unknown`."""
    dirty: int | None
    recently_evicted: int | None
    """Fell out of memory so lately that reading it again shows that memory is short."""
    huge: float | None
    """Of the pages that one of its processes has mapped in, the share in 2 MiB entries, 0 to 1; looked at now and then,
    for `Sampler` with ``huge=True``. None: not looked at, or the kernel does not tell (Linux 6.7)."""
    pids: tuple[int, ...]
    """Who maps it, of the group."""
    once: int
    """What of it the group's total counts: `cached`, but no more than its processes can have mapped in."""
    rss: int
    """What a sum of RSS counts for it, estimated: no more than each process has mapped in of files."""
    unknown: str

    @property
    def saves(self) -> int:
        """Bytes that would be needed besides if each of its processes had its own copy."""
        return max(self.rss - self.once, 0)


@dataclass(frozen=True, slots=True)
class Totals:
    """A group as one: everything once.

    `real` is `anonymous` + `file_clean` + `file_dirty` + `shmem`. Page tables and swap are beside it.
    """

    real: int
    anonymous: int
    file_clean: int
    """The kernel can drop it without writing anything."""
    file_dirty: int
    shmem: int
    page_tables: int
    swap: int
    sum_of_rss: int
    """What adding up RSS says: shared pages once per process."""
    basis: Literal["files", "walks", "exact"]
    """"files": big files once, by the page cache, and what is small by walks. "walks": anonymous memory is shared by a
    fork, and what is saved is what walks found, `walked_s` ago. "exact": PSS of now."""
    walked_s: float | None
    """Seconds since the oldest walk that this rests on; None: none was needed."""
    notes: tuple[str, ...]
    """What is not known, or only estimated, in sentences."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What looking costs."""

    look_s: float
    """Processor seconds of this look."""
    share: float
    """Of one processor, since the first look or over the last half minute."""
    put_off: int
    """Walks that were too dear for now."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look at a group of processes."""

    time: float
    """Seconds since 1970."""
    elapsed: float
    """Seconds since the first look."""
    processes: tuple[ProcessReading, ...]
    """In the order of their numbers, parents or not."""
    files: tuple[FileReading, ...]
    """The largest in memory first."""
    totals: Totals
    ended: tuple[int, ...]
    """Processes that were there at the look before."""
    cost: Cost

    def process(self, pid: int) -> ProcessReading:
        """Return a process; KeyError: it is not, or no longer, in the group."""
        for one in self.processes:
            if one.pid == pid:
                return one
        raise KeyError(pid)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return asdict(self)


def largest_first(files: Iterable[FileReading]) -> tuple[FileReading, ...]:
    """Sort files by what they hold in memory, then by name."""
    return tuple(sorted(files, key=lambda one: (-one.once, one.path, one.key)))


@dataclass(frozen=True, slots=True)
class WatchCost:
    """What watching took."""

    looks: int
    seconds: float
    """From the first look to the last one."""
    cpu_s: float
    """Processor seconds of all looks."""
    failed: int
    """Looks that failed; `reason` is of the first."""
    reason: str

    @property
    def share(self) -> float:
        """Of one processor; of at least one second."""
        return self.cpu_s / max(self.seconds, 1.0)
