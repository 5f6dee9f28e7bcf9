"""Memory over time: curves for a group of processes and for each process in it, and their peaks.

The memory of a series is bounded: if a curve has too many points, the lower point of each pair is dropped, and if there
are too many processes, ended processes that used the least memory are dropped. Peaks are kept separately, and are the
exact maxima of all samples.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace
from heapq import nlargest
from typing import TYPE_CHECKING, Any, NamedTuple

from onecopy_monitor.samples import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from onecopy.memory.proc import Key
    from onecopy_monitor.samples import FileSample, ProcessSample, Row, Sample

__all__ = ["Curve", "FilePeak", "Height", "Holder", "Peaks", "ProcessSeries", "Series"]

MAX_POINTS = 10_000
"""Maximum number of points per curve. The curves of all processes together have at most ten times as many."""
MAX_PROCESSES = 1_000
MAX_FILES = 1_000
_NAMED = 3
"""Maximum number of processes, and of files, listed for a peak."""
_SAME_PEAK = 0.95
"""A later sample above this share of a peak determines the holders, because files are found up to a second late."""
_REAL = COLUMNS.index("real")
_RSS = COLUMNS.index("sum_of_rss")


class Curve:
    """Bytes over time, with one column for each of `onecopy_monitor.COLUMNS`. Columns are returned as NumPy arrays.

    Examples
    --------
    >>> from onecopy_monitor import Curve
    >>> curve = Curve()
    >>> curve.add(0.5, (1, 2, 3, 4, 5, 6, 10, 12))
    >>> curve.times, curve["real"]
    (array([0.5]), array([10]))
    """

    __slots__ = ("_times", "_values")

    def __init__(self) -> None:
        self._times = array("d")
        self._values = tuple(array("q") for _ in COLUMNS)

    def __len__(self) -> int:
        return len(self._times)

    def __getitem__(self, column: str) -> NDArray[np.int64]:
        """Return a copy of one column in bytes, as int64. Raise KeyError if there is no column with this name."""
        return self._copy(self._column(column), "int64")

    @property
    def times(self) -> NDArray[np.float64]:
        """A copy of the times of the points, as float64, in seconds since the first sample of the group."""
        return self._copy(self._times, "float64")

    def numbers(self, column: str) -> list[float]:
        """Return a column, or "times", as a list, without NumPy. Raise KeyError if there is no such column."""
        return list(self._times if column == "times" else self._column(column))

    def add(self, at: float, row: Row) -> None:
        """Add a point."""
        self._times.append(at)
        for values, number in zip(self._values, row, strict=True):
            values.append(number)

    def thin(self) -> None:
        """Keep the first and the last point, and the higher one of each pair between them."""
        count = len(self)
        if count < 4:
            return
        real = self._values[_REAL]
        pairs = (i if i + 1 == count - 1 or real[i] >= real[i + 1] else i + 1 for i in range(1, count - 1, 2))
        kept = [0, *pairs, count - 1]
        self._times = array("d", (self._times[i] for i in kept))
        self._values = tuple(array("q", (values[i] for i in kept)) for values in self._values)

    def _column(self, name: str) -> array[int]:
        try:
            return self._values[COLUMNS.index(name)]
        except ValueError:
            raise KeyError(f"{name!r} is not one of {', '.join(COLUMNS)}") from None

    @staticmethod
    def _copy(values: array[Any], dtype: str) -> NDArray[Any]:
        import numpy as np

        return np.array(values, dtype)


class Holder(NamedTuple):
    """A process, or a file if `pid` is 0, and its memory at a peak."""

    pid: int
    """Process id, or 0 for a file."""
    name: str
    """Name of the process, or path of the file."""
    bytes: int
    """Bytes of memory."""


@dataclass(frozen=True, slots=True)
class Height:
    """The maximum of a column."""

    bytes: int
    """The maximum in bytes."""
    at: float
    """Time of the maximum in seconds since the first sample."""
    grown: int
    """Bytes above the value of the first sample."""
    processes: tuple[Holder, ...]
    """The processes with the most memory, at most three."""
    files: tuple[Holder, ...]
    """The files with the most memory, at most three. Empty for anonymous memory."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """The maximum of each column of a group's total. Each maximum has its own time."""

    anonymous: Height
    file_clean: Height
    file_dirty: Height
    shmem: Height
    page_tables: Height
    swap: Height
    real: Height
    sum_of_rss: Height
    high_water: int
    """Largest peak RSS of a process, as recorded by the kernel (VmHWM), in bytes, or 0 if unknown. Exact."""
    unseen: int
    """Lower bound, in bytes, on how far a process's RSS exceeded the maximum of its samples between two samples."""


class ProcessSeries:
    """One process over time.

    Attributes
    ----------
    pid, started, parent, name
        As in `onecopy_monitor.ProcessReading`; the name is that of the last sample.
    curve : Curve
        The process's memory over time.
    first, last : float
        Time of the first and the last sample of the process, in seconds since the first sample of the group.
    peak_rss : int or None
        Maximum of RSS since the process began (VmHWM), in bytes.
    minor_faults, major_faults, cpu_s
        Page faults and CPU seconds since the first sample of the group, or since the process began if that was later.
    """

    def __init__(self, sample: ProcessSample, at: float, *, was_there: bool) -> None:
        self.pid, self.started = sample.pid, sample.started
        self.curve = Curve()
        self.first = at
        self._first_peak = sample.peak_rss or 0
        self.peak_rss = sample.peak_rss
        self._seen = 0
        self.highest = 0
        self._before = (sample.minor_faults, sample.major_faults, sample.cpu_s) if was_there else (0, 0, 0.0)
        self.add(sample, at)

    def add(self, sample: ProcessSample, at: float) -> None:
        """Add a sample of the process."""
        self.parent, self.name, self.last = sample.parent, sample.name, at
        self.peak_rss = sample.peak_rss or self.peak_rss
        minor, major, cpu_s = self._before
        self.minor_faults, self.major_faults = max(sample.minor_faults - minor, 0), max(sample.major_faults - major, 0)
        self.cpu_s = max(sample.cpu_s - cpu_s, 0.0)
        self._seen = max(self._seen, sample.row[_RSS])
        self.highest = max(self.highest, sample.row[_REAL])
        self.curve.add(at, sample.row)

    @property
    def unseen(self) -> int:
        """Bytes by which RSS exceeded all samples; known only if the kernel's peak has grown since the first sample."""
        peak = self.peak_rss or 0
        return max(peak - self._seen, 0) if peak > self._first_peak else 0


@dataclass(slots=True)
class FilePeak:
    """A big file, and the maximum of each of its numbers; see `FileSample`."""

    path: str
    """Path of the file."""
    kind: str
    """"file" or "shmem"."""
    size: int | None
    """Size of the file in the last sample, or None if unknown."""
    once: int
    """Maximum bytes of the file in the deduplicated total."""
    dirty: int | None
    """Maximum bytes not yet written back to disk, or None if unknown."""
    saves: int
    """Maximum of the additional bytes that separate copies would need."""
    sharers: int
    """Maximum number of processes that mapped the file."""


class Series:
    """A group of processes over time. `total` is the curve of the group's deduplicated total.

    Examples
    --------
    >>> import os
    >>> from onecopy_monitor import Sampler, Series, sample_of
    >>> series = Series()
    >>> with Sampler([os.getpid()]) as sampler:
    ...     series.add(sample_of(sampler.sample()))
    >>> len(series.total), series.processes[0].pid == os.getpid()
    (1, True)
    """

    def __init__(self, max_points: int = MAX_POINTS) -> None:
        self.total = Curve()
        self.samples = 0
        """Number of samples that were added."""
        self.dropped = 0
        """Number of ended processes whose curves are no longer kept."""
        self._max_points = max_points
        self._processes: dict[tuple[int, float], ProcessSeries] = {}
        self._points = 0
        self._files: dict[Key, FilePeak] = {}
        self._first: Row | None = None
        self._highest: list[_Highest] = []
        self._last_files: tuple[FileSample, ...] | None = None
        self._high_water = self._unseen = 0

    @property
    def processes(self) -> tuple[ProcessSeries, ...]:
        """The processes, in the order of their first sample."""
        return tuple(self._processes.values())

    @property
    def files(self) -> tuple[FilePeak, ...]:
        """The big files, starting with those that use the most memory."""
        return tuple(sorted(self._files.values(), key=lambda one: (-one.once, one.path)))

    @property
    def seconds(self) -> float:
        """Seconds from the first to the last sample."""
        return self.total.numbers("times")[-1] if len(self.total) else 0.0

    @property
    def peak(self) -> Peaks:
        """The maximum of each column. Raise ValueError if there are no samples."""
        if not self._highest:
            raise ValueError("there is no peak, because no sample has been taken yet")
        processes = self._processes.values()
        high = max([self._high_water, *(one.peak_rss or 0 for one in processes)])
        unseen = max([self._unseen, *(one.unseen for one in processes)])
        heights = {name: self._highest[at].height(at) for at, name in enumerate(COLUMNS)}
        return Peaks(**heights, high_water=high, unseen=unseen)

    def add(self, sample: Sample) -> None:
        """Add a sample."""
        self.samples += 1
        self._first = self._first or sample.total
        self.total.add(sample.at, sample.total)
        if len(self.total) > self._max_points:
            self.total.thin()
        for one in sample.processes:
            self._add_process(one, sample.at)
        if sample.files is not self._last_files:  # in a recording, most samples have the same files as the last one
            self._last_files = sample.files
            for file in sample.files:
                self._add_file(file)
        self._raise(sample, self._first)
        self._bound(sample.at)

    def _add_process(self, sample: ProcessSample, at: float) -> None:
        key = sample.pid, sample.started
        known = self._processes.get(key)
        self._points += 1
        if known is None:
            self._processes[key] = ProcessSeries(sample, at, was_there=self.samples == 1)
            return
        known.add(sample, at)
        if len(known.curve) > self._max_points:
            self._points -= len(known.curve)
            known.curve.thin()
            self._points += len(known.curve)

    def _add_file(self, sample: FileSample) -> None:
        known = self._files.get(sample.key)
        if known is None:
            if len(self._files) < MAX_FILES:
                fields = sample.path, sample.kind, sample.size, sample.once, sample.dirty, sample.saves, sample.sharers
                self._files[sample.key] = FilePeak(*fields)
            return
        known.path, known.size = sample.path, sample.size
        known.once, known.saves = max(known.once, sample.once), max(known.saves, sample.saves)
        known.sharers = max(known.sharers, sample.sharers)
        if sample.dirty is not None:
            known.dirty = max(known.dirty or 0, sample.dirty)

    def _raise(self, sample: Sample, first: Row) -> None:
        if not self._highest:
            self._highest = [_Highest(sample, 0, sample) for _ in COLUMNS]
        for at, number in enumerate(sample.total):
            highest = self._highest[at].sample.total[at]
            if number > highest:
                self._highest[at] = _Highest(sample, number - first[at], sample)
            elif number >= highest * _SAME_PEAK:
                self._highest[at] = self._highest[at]._replace(holders=sample)

    def _bound(self, at: float) -> None:
        """Thin the curves if they have too many points, then drop ended processes that used the least memory."""
        if self._points > 10 * self._max_points:
            for one in self._processes.values():
                one.curve.thin()
            self._points = sum(len(one.curve) for one in self._processes.values())
        if len(self._processes) <= MAX_PROCESSES and self._points <= 10 * self._max_points:
            return
        ended = [(one.highest, key) for key, one in self._processes.items() if one.last < at]
        for _, key in sorted(ended)[: max(len(ended) // 2, 1)]:
            gone = self._processes.pop(key)
            self.dropped += 1
            self._points -= len(gone.curve)
            self._high_water = max(self._high_water, gone.peak_rss or 0)
            self._unseen = max(self._unseen, gone.unseen)


class _Highest(NamedTuple):
    """The sample with the maximum of a column. Its holders, perhaps thousands, are computed on demand."""

    sample: Sample
    grown: int
    holders: Sample
    """The sample that determines the holders: a later one near the peak, because files are found up to 1 s late."""

    def height(self, at: int) -> Height:
        now = _height(self.holders, at, 0)
        return replace(_height(self.sample, at, self.grown), processes=now.processes, files=now.files)


def _height(sample: Sample, at: int, grown: int) -> Height:
    name = COLUMNS[at]
    processes = [Holder(one.pid, one.name, one.row[at]) for one in sample.processes]
    of_file: dict[str, Callable[[FileSample], int]] = {
        "file_clean": lambda one: max(one.once - (one.dirty or 0), 0) if one.kind == "file" else 0,
        "file_dirty": lambda one: min(one.dirty or 0, one.once) if one.kind == "file" else 0,
        "shmem": lambda one: one.once if one.kind == "shmem" else 0,
        "real": lambda one: one.once,
        "sum_of_rss": lambda one: one.once + one.saves,
    }
    count = of_file.get(name)
    files = [Holder(0, one.path, count(one)) for one in sample.files] if count else []
    return Height(sample.total[at], sample.at, grown, _most(processes), _most(files))


def _most(holders: list[Holder]) -> tuple[Holder, ...]:
    return tuple(one for one in nlargest(_NAMED, holders, key=lambda one: one.bytes) if one.bytes > 0)
