"""`Snapshot`: the result of one sample of a group, with its processes, the big files that they map, and its totals.

Sizes are in bytes and times in seconds. A number that the kernel does not report is None, never zero. Snapshots can be
compared, pickled, and converted to JSON with `Snapshot.as_dict`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onecopy.memory.proc import Key

__all__ = ["Cost", "FileReading", "ProcessReading", "Snapshot", "Totals", "Walk", "WatchCost"]


@dataclass(frozen=True, slots=True)
class Walk:
    """The result of walking a process's page tables (smaps_rollup), which is exact but expensive."""

    at: float
    """Time of the walk in seconds since 1970."""
    rss: int
    """Resident bytes."""
    pss: int
    """Resident bytes, with each page divided by the number of processes that map it."""
    uss: int
    """Resident bytes that only this process currently maps, including clean pages of files."""
    shared: int
    """Resident bytes that other processes map as well."""
    pss_anonymous: int | None
    """The part of `pss` in anonymous memory; None before Linux 5.9."""
    pss_file: int | None
    """The part of `pss` in files; None before Linux 5.9."""
    pss_shmem: int | None
    """The part of `pss` in shared memory; None before Linux 5.9."""
    seconds: float
    """CPU seconds of the walk, during which the observed process may have waited."""


@dataclass(frozen=True, slots=True)
class ProcessReading:
    """A process with its counters, which take 8 us to read, and the result of its last page-table walk, if any."""

    pid: int
    parent: int
    """Process id of the parent."""
    name: str
    """Name of the process as recorded by the kernel, at most 15 bytes. It may contain any character."""
    state: str
    """The state as one letter: R, S, D, T, Z ..."""
    started: float
    """Start time in seconds after boot; together with `pid` it identifies a process uniquely."""
    rss: int
    """Resident bytes."""
    anonymous: int
    """Resident bytes of anonymous memory: heap, stacks, and private copies of written pages."""
    file: int
    """Resident bytes of mapped files."""
    shmem: int
    """Resident bytes of mapped shared memory: /dev/shm, memfd, tmpfs."""
    swap: int | None
    """Bytes swapped out, or None if unknown."""
    page_tables: int | None
    """Bytes of page tables, or None if unknown."""
    peak_rss: int | None
    """Peak RSS as recorded by the kernel (VmHWM), in bytes, which sampling cannot miss. None if unknown."""
    minor_faults: int
    """Page faults that did not wait for a disk, since the process began."""
    major_faults: int
    """Page faults that waited for a disk, since the process began."""
    cpu_s: float
    """CPU seconds since the process began."""
    share: int
    """Share of the group's real total, in bytes: each of n processes that map the same memory counts 1/n of it."""
    files: tuple[Key, ...]
    """The big files that the process maps."""
    walk: Walk | None
    """The last page-table walk, or None if there was none."""
    unknown: str
    """Why files and walks of the process are unknown, or "" if they are known."""

    @property
    def key(self) -> tuple[int, float]:
        """The process id and start time, which identify a process uniquely."""
        return self.pid, self.started


@dataclass(frozen=True, slots=True)
class FileReading:
    """A big file that processes in the group map."""

    key: Key
    path: str
    """Path of the file when it was mapped, or the name of a memfd."""
    deleted: bool
    """Whether the file was removed, or is a memfd."""
    kind: Literal["file", "shmem"]
    """"shmem" for tmpfs, /dev/shm and memfd, whose pages are not on disk and cannot be dropped; otherwise "file"."""
    size: int | None
    """Size of the file in bytes, or None if unknown."""
    mapped: int
    """Bytes of the file that at least one process maps."""
    cached: int | None
    """Mapped bytes in memory, whichever process read them, or None if unknown; `unknown` states the reason."""
    dirty: int | None
    """Mapped bytes that are not yet written back to disk, or None if unknown."""
    recently_evicted: int | None
    """Mapped bytes evicted so recently that reading them again indicates memory shortage, or None if unknown."""
    huge: float | None
    """Share (0 to 1) of huge pages (2 MiB) among the pages that one process maps, measured every few seconds by
    `Sampler` with ``huge=True``, or None if not measured or not reported (before Linux 6.7)."""
    pids: tuple[int, ...]
    """The processes of the group that map the file."""
    once: int
    """Bytes of the file in the group total: `cached`, but at most the resident file pages of its processes."""
    rss: int
    """Estimated bytes of the file in the sum of RSS, limited to the resident file pages of each process."""
    unknown: str
    """Why `cached` is unknown, or "" if it is known."""

    @property
    def saves(self) -> int:
        """Additional bytes that would be needed if each process had its own copy."""
        return max(self.rss - self.once, 0)


@dataclass(frozen=True, slots=True)
class Totals:
    """A group's memory in bytes, with each shared page counted once.

    `real` is `anonymous` + `file_clean` + `file_dirty` + `shmem`. Page tables and swap are not part of it.
    """

    real: int
    """Deduplicated total."""
    anonymous: int
    """Anonymous memory."""
    file_clean: int
    """Pages of files that the kernel can drop without writing."""
    file_dirty: int
    """Pages of files that are not yet written back to disk."""
    shmem: int
    """Shared memory."""
    page_tables: int
    """Page tables."""
    swap: int
    """Swapped-out memory."""
    sum_of_rss: int
    """Sum of RSS, which counts shared pages once per process."""
    basis: Literal["files", "walks", "exact"]
    """"files": big files are measured in the page cache, small ones with page-table walks. "walks": anonymous
    memory shared since a fork is also known from walks. "exact": all numbers are PSS from walks in this sample."""
    walked_s: float | None
    """Age in seconds of the oldest walk on which the totals are based, or None without walks."""
    notes: tuple[str, ...]
    """Numbers that are unknown or estimated, as sentences."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of sampling."""

    sample_s: float
    """CPU seconds of this sample."""
    share: float
    """Share of one CPU that was used, since the first sample or during the last 30 seconds."""
    deferred: int
    """Number of page-table walks and readings of mappings that were deferred because of the budget."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A sample of a group of processes."""

    time: float
    """Time of the sample in seconds since 1970."""
    elapsed: float
    """Seconds since the first sample."""
    processes: tuple[ProcessReading, ...]
    """The processes, sorted by process id."""
    files: tuple[FileReading, ...]
    """The big files, starting with those that have the most bytes in memory."""
    totals: Totals
    """The memory of the group."""
    ended: tuple[int, ...]
    """Ids of processes in the previous sample that have ended."""
    cost: Cost
    """The cost of sampling."""

    def process(self, pid: int) -> ProcessReading:
        """Return the process with this id. Raise KeyError if it is not in the group."""
        for one in self.processes:
            if one.pid == pid:
                return one
        raise KeyError(pid)

    def as_dict(self) -> dict[str, Any]:
        """Return the snapshot as a dict that can be converted to JSON."""
        return asdict(self)


def largest_first(files: Iterable[FileReading]) -> tuple[FileReading, ...]:
    """Sort files by decreasing bytes in memory, then by path."""
    return tuple(sorted(files, key=lambda one: (-one.once, one.path, one.key)))


@dataclass(frozen=True, slots=True)
class WatchCost:
    """The cost of a `Watch`."""

    samples: int
    """Number of samples."""
    seconds: float
    """Seconds from the first to the last sample."""
    cpu_s: float
    """CPU seconds of all samples."""
    failed: int
    """Number of samples that failed."""
    reason: str
    """The error of the first sample that failed, or "" if none failed."""

    @property
    def share(self) -> float:
        """CPU seconds per second of watching; watching counts as lasting at least one second."""
        return self.cpu_s / max(self.seconds, 1.0)
