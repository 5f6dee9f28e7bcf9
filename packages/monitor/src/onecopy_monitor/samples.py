"""The parts of a snapshot that are kept over time: a row of numbers for the group and each process, and the files."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from onecopy.memory.proc import Key
    from onecopy_monitor.snapshots import FileReading, ProcessReading, Snapshot

__all__ = ["COLUMNS", "LABELS", "FileSample", "ProcessSample", "Row", "Sample", "sample_of"]

COLUMNS = ("anonymous", "file_clean", "file_dirty", "shmem", "page_tables", "swap", "real", "sum_of_rss")
"""Names of the numbers of a `Row`, all in bytes. For a process, `real` is its share of the group's real memory,
`sum_of_rss` is its RSS, and files and shared memory are those that it has mapped."""
LABELS = {
    "anonymous": "anonymous",
    "file_clean": "files, clean",
    "file_dirty": "files, dirty",
    "shmem": "shared memory",
    "real": "deduplicated total",
    "sum_of_rss": "sum of RSS",
    "page_tables": "page tables",
    "swap": "swap",
}
"""Labels of the columns, in the order used in tables."""

Row: TypeAlias = tuple[int, int, int, int, int, int, int, int]


class ProcessSample(NamedTuple):
    """A process in one sample."""

    pid: int
    started: float
    """Start time in seconds after boot; together with `pid` it identifies a process uniquely."""
    parent: int
    """Process id of the parent."""
    name: str
    """Name of the process as recorded by the kernel."""
    row: Row
    """The memory of the process; see `COLUMNS`."""
    peak_rss: int | None
    """Maximum of RSS since the process began (VmHWM), in bytes, or None if unknown."""
    minor_faults: int
    """Page faults that did not wait for a disk, since the process began."""
    major_faults: int
    """Page faults that waited for a disk, since the process began."""
    cpu_s: float
    """CPU seconds since the process began."""


class FileSample(NamedTuple):
    """A big file that processes in the group map, in one sample."""

    key: Key
    """Device and inode of the file."""
    path: str
    """Path of the file when it was mapped."""
    kind: str
    """"file" or "shmem"."""
    size: int | None
    """Size of the file in bytes, or None if unknown."""
    dirty: int | None
    """Bytes in memory that are not yet written back to disk, or None if unknown."""
    once: int
    """Bytes of the file in the deduplicated total of the group."""
    saves: int
    """Extra bytes that would be needed if each process had its own copy."""
    sharers: int
    """Number of processes in the group that map the file."""


class Sample(NamedTuple):
    """A group of processes at one moment."""

    at: float
    """Seconds since the first sample."""
    total: Row
    """The group's deduplicated memory; see `COLUMNS`."""
    processes: tuple[ProcessSample, ...]
    """The processes of the group."""
    files: tuple[FileSample, ...]
    """The big files that the processes map."""


def sample_of(snapshot: Snapshot) -> Sample:
    """Convert a snapshot to a sample.

    >>> import os
    >>> from onecopy_monitor import Sampler
    >>> with Sampler([os.getpid()]) as sampler:
    ...     sample = sample_of(sampler.sample())
    >>> sample.processes[0].pid == os.getpid(), sample.total[0] > 0
    (True, True)
    """
    totals = snapshot.totals
    total = (
        totals.anonymous,
        totals.file_clean,
        totals.file_dirty,
        totals.shmem,
        totals.page_tables,
        totals.swap,
        totals.real,
        totals.sum_of_rss,
    )
    dirty = {one.key: min(one.dirty or 0, one.once) for one in snapshot.files if one.kind == "file"}
    processes = tuple(_process(one, dirty) for one in snapshot.processes)
    return Sample(snapshot.elapsed, total, processes, tuple(map(_file, snapshot.files)))


def _process(one: ProcessReading, dirty_of: dict[Key, int]) -> ProcessSample:
    dirty = min(one.file, sum(dirty_of.get(key, 0) for key in one.files))
    row = (
        one.anonymous,
        one.file - dirty,
        dirty,
        one.shmem,
        one.page_tables or 0,
        one.swap or 0,
        one.share,
        one.rss,
    )
    faults = one.minor_faults, one.major_faults
    return ProcessSample(one.pid, one.started, one.parent, one.name, row, one.peak_rss, *faults, one.cpu_s)


def _file(one: FileReading) -> FileSample:
    return FileSample(one.key, one.path, one.kind, one.size, one.dirty, one.once, one.saves, len(one.pids))
