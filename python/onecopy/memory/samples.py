"""What of a look is kept over time: a row of numbers for the group, one for each process, and the files."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from onecopy.memory.snapshots import FileReading, Key, ProcessReading, Snapshot

__all__ = ["COLUMNS", "FileSample", "ProcessSample", "Row", "Sample", "sample_of"]

COLUMNS = ("anonymous", "file_clean", "file_dirty", "shmem", "page_tables", "swap", "real", "sum_of_rss")
"""Of a `Row`, all in bytes. Of one process, `real` is its share of the group's, `sum_of_rss` its RSS, and the files and
the shared memory are what it has mapped in, in full."""

Row: TypeAlias = tuple[int, int, int, int, int, int, int, int]


class ProcessSample(NamedTuple):
    """A process at one look."""

    pid: int
    started: float
    """Seconds after boot; with `pid` it is never used again."""
    parent: int
    name: str
    row: Row
    peak_rss: int | None
    """VmHWM: bytes, since the process began."""
    minor_faults: int
    major_faults: int
    cpu_s: float


class FileSample(NamedTuple):
    """A big file that processes of the group map, at one look."""

    key: Key
    path: str
    kind: str
    """"file" or "shmem"."""
    size: int | None
    dirty: int | None
    once: int
    """Bytes of it that the group's total counts."""
    saves: int
    """Bytes that would be needed besides if each of its processes had its own copy."""
    sharers: int


class Sample(NamedTuple):
    """A group at one moment."""

    at: float
    """Seconds since the first look."""
    total: Row
    processes: tuple[ProcessSample, ...]
    files: tuple[FileSample, ...]


def sample_of(snapshot: Snapshot) -> Sample:
    """Pick what is kept of a snapshot.

    >>> import os
    >>> from onecopy.memory import Sampler
    >>> with Sampler([os.getpid()]) as sampler:
    ...     look = sample_of(sampler.sample())
    >>> look.processes[0].pid == os.getpid(), look.total[0] > 0
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
