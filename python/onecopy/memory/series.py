"""What looks add up to over time: curves of a group and of each process in it, and their peaks.

Memory is bounded, however long one looks and however many processes come and go: when there are too many points, every
other one goes, the lower of two; and of processes that have ended those that held least. Peaks are kept apart, and are
exact: the highest of all looks.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace
from heapq import nlargest
from typing import TYPE_CHECKING, Any, NamedTuple

from onecopy.memory.samples import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from onecopy.memory.samples import FileSample, ProcessSample, Row, Sample
    from onecopy.memory.snapshots import Key

__all__ = ["Curve", "FilePeak", "Height", "Holder", "Peaks", "ProcessSeries", "Series"]

MOST_POINTS = 10_000
"""Of one curve; the curves of all processes together have ten times as many at most."""
MOST_PROCESSES = 1_000
MOST_FILES = 1_000
_NAMED = 3
"""Processes and files that are named for a peak."""
_SAME_PEAK = 0.95
"""Of a peak: who holds so much later on is who held it at the peak."""
_REAL = COLUMNS.index("real")
_RSS = COLUMNS.index("sum_of_rss")


class Curve:
    """Bytes over time: a column for each of `onecopy.memory.COLUMNS`, as numpy arrays when they are asked for.

    Examples
    --------
    >>> from onecopy.memory import Curve
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
        """Return a copy of one column, int64, in bytes; KeyError: there is none of this name."""
        return self._copy(self._column(column), "int64")

    @property
    def times(self) -> NDArray[np.float64]:
        """A copy of the moments, float64, in seconds since the first look at the group."""
        return self._copy(self._times, "float64")

    def numbers(self, column: str) -> list[float]:
        """Return a column, or "times", as plain numbers, without numpy; KeyError: there is none of this name."""
        return list(self._times if column == "times" else self._column(column))

    def add(self, at: float, row: Row) -> None:
        """Add a point."""
        self._times.append(at)
        for values, number in zip(self._values, row, strict=True):
            values.append(number)

    def thin(self) -> None:
        """Keep the first point and the last one, and of each two between them the one that is higher."""
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
            raise KeyError(f"{name!r} is none of {', '.join(COLUMNS)}") from None

    @staticmethod
    def _copy(values: array[Any], dtype: str) -> NDArray[Any]:
        import numpy as np

        return np.array(values, dtype)


class Holder(NamedTuple):
    """Who held how much when it was most: a process, or a file where `pid` is 0."""

    pid: int
    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Height:
    """The highest that a column was."""

    bytes: int
    at: float
    """Seconds since the first look."""
    grown: int
    """Bytes above the first look."""
    processes: tuple[Holder, ...]
    """Those that held most of it, three at most."""
    files: tuple[Holder, ...]
    """The same of files; none for anonymous memory."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """The highest of each column of a group's total; each had its own moment."""

    anonymous: Height
    file_clean: Height
    file_dirty: Height
    shmem: Height
    page_tables: Height
    swap: Height
    real: Height
    sum_of_rss: Height
    high_water: int
    """The kernel's own peak of RSS of the process that had most (VmHWM), in bytes: since that process began, and no
    poll can miss it. 0: not told."""
    unseen: int
    """Bytes of RSS that a process had, between looks, above what any look saw; at least, and of one process."""


class ProcessSeries:
    """One process over time.

    Attributes
    ----------
    pid, started, parent, name
        As in `onecopy.memory.ProcessReading`; the name is the last one.
    curve : Curve
        Its memory.
    first, last : float
        When it was seen, in seconds since the first look at the group.
    peak_rss : int or None
        VmHWM in bytes.
    minor_faults, major_faults, cpu_s
        Since the first look at the group, or since it began where that was later; as last told.
    """

    def __init__(self, look: ProcessSample, at: float, *, was_there: bool) -> None:
        self.pid, self.started = look.pid, look.started
        self.curve = Curve()
        self.first = at
        self._first_peak = look.peak_rss or 0
        self.peak_rss = look.peak_rss
        self._seen = 0
        self.highest = 0
        self._before = (look.minor_faults, look.major_faults, look.cpu_s) if was_there else (0, 0, 0.0)
        self.add(look, at)

    def add(self, look: ProcessSample, at: float) -> None:
        """Add what a look saw of it."""
        self.parent, self.name, self.last = look.parent, look.name, at
        self.peak_rss = look.peak_rss or self.peak_rss
        minor, major, cpu_s = self._before
        self.minor_faults, self.major_faults = max(look.minor_faults - minor, 0), max(look.major_faults - major, 0)
        self.cpu_s = max(look.cpu_s - cpu_s, 0.0)
        self._seen = max(self._seen, look.row[_RSS])
        self.highest = max(self.highest, look.row[_REAL])
        self.curve.add(at, look.row)

    @property
    def unseen(self) -> int:
        """Bytes of RSS that it had between looks above what they saw, as far as its peak grew meanwhile."""
        peak = self.peak_rss or 0
        return max(peak - self._seen, 0) if peak > self._first_peak else 0


@dataclass(slots=True)
class FilePeak:
    """A big file, and the most that was seen of it, in bytes."""

    path: str
    kind: str
    size: int | None
    once: int
    dirty: int | None
    saves: int
    sharers: int


class Series:
    """A group of processes over time; `total` counts everything once.

    Examples
    --------
    >>> import os
    >>> from onecopy.memory import Sampler, Series, sample_of
    >>> series = Series()
    >>> with Sampler([os.getpid()]) as sampler:
    ...     series.add(sample_of(sampler.sample()))
    >>> len(series.total), series.processes[0].pid == os.getpid()
    (1, True)
    """

    def __init__(self, most_points: int = MOST_POINTS) -> None:
        self.total = Curve()
        self.looks = 0
        self.dropped = 0
        """Processes that have ended, and whose curves are no longer kept."""
        self._most = most_points
        self._processes: dict[tuple[int, float], ProcessSeries] = {}
        self._points = 0
        self._files: dict[Key, FilePeak] = {}
        self._first: Row | None = None
        self._highest: list[_Highest] = []
        self._last_files: tuple[FileSample, ...] | None = None
        self._high_water = self._unseen = 0

    @property
    def processes(self) -> tuple[ProcessSeries, ...]:
        """Processes, those that came first at first."""
        return tuple(self._processes.values())

    @property
    def files(self) -> tuple[FilePeak, ...]:
        """Big files, those that held most at first."""
        return tuple(sorted(self._files.values(), key=lambda one: (-one.once, one.path)))

    @property
    def seconds(self) -> float:
        """When the last look was, after the first one."""
        return self.total.numbers("times")[-1] if len(self.total) else 0.0

    @property
    def peak(self) -> Peaks:
        """The highest of each column. ValueError: nobody has looked yet."""
        if not self._highest:
            raise ValueError("there is no peak: nobody has looked yet")
        everyone = self._processes.values()
        high = max([self._high_water, *(one.peak_rss or 0 for one in everyone)])
        unseen = max([self._unseen, *(one.unseen for one in everyone)])
        heights = {name: self._highest[at].height(at) for at, name in enumerate(COLUMNS)}
        return Peaks(**heights, high_water=high, unseen=unseen)

    def add(self, look: Sample) -> None:
        """Add a look."""
        self.looks += 1
        self._first = self._first or look.total
        self.total.add(look.at, look.total)
        if len(self.total) > self._most:
            self.total.thin()
        for one in look.processes:
            self._add_process(one, look.at)
        if look.files is not self._last_files:  # most looks of a recording see what the look before saw
            self._last_files = look.files
            for file in look.files:
                self._add_file(file)
        self._raise(look, self._first)
        self._bound(look.at)

    def _add_process(self, look: ProcessSample, at: float) -> None:
        key = look.pid, look.started
        known = self._processes.get(key)
        self._points += 1
        if known is None:
            self._processes[key] = ProcessSeries(look, at, was_there=self.looks == 1)
            return
        known.add(look, at)
        if len(known.curve) > self._most:
            self._points -= len(known.curve)
            known.curve.thin()
            self._points += len(known.curve)

    def _add_file(self, look: FileSample) -> None:
        known = self._files.get(look.key)
        if known is None:
            if len(self._files) < MOST_FILES:
                facts = look.path, look.kind, look.size, look.once, look.dirty, look.saves, look.sharers
                self._files[look.key] = FilePeak(*facts)
            return
        known.path, known.size = look.path, look.size
        known.once, known.saves = max(known.once, look.once), max(known.saves, look.saves)
        known.sharers = max(known.sharers, look.sharers)
        if look.dirty is not None:
            known.dirty = max(known.dirty or 0, look.dirty)

    def _raise(self, look: Sample, first: Row) -> None:
        if not self._highest:
            self._highest = [_Highest(look, 0, look) for _ in COLUMNS]
        for at, number in enumerate(look.total):
            highest = self._highest[at].look.total[at]
            if number > highest:
                self._highest[at] = _Highest(look, number - first[at], look)
            elif number >= highest * _SAME_PEAK:
                self._highest[at] = self._highest[at]._replace(holders=look)

    def _bound(self, at: float) -> None:
        """Thin curves, and let those of processes go that have ended and held least, where there are too many."""
        if self._points > 10 * self._most:
            for one in self._processes.values():
                one.curve.thin()
            self._points = sum(len(one.curve) for one in self._processes.values())
        if len(self._processes) <= MOST_PROCESSES and self._points <= 10 * self._most:
            return
        ended = [(one.highest, key) for key, one in self._processes.items() if one.last < at]
        for _, key in sorted(ended)[: max(len(ended) // 2, 1)]:
            gone = self._processes.pop(key)
            self.dropped += 1
            self._points -= len(gone.curve)
            self._high_water = max(self._high_water, gone.peak_rss or 0)
            self._unseen = max(self._unseen, gone.unseen)


class _Highest(NamedTuple):
    """When a column was highest; who held it is found when somebody asks: a look may have thousands of files."""

    look: Sample
    grown: int
    holders: Sample
    """Files are known up to a second after they were mapped."""

    def height(self, at: int) -> Height:
        now = _height(self.holders, at, 0)
        return replace(_height(self.look, at, self.grown), processes=now.processes, files=now.files)


def _height(look: Sample, at: int, grown: int) -> Height:
    name = COLUMNS[at]
    processes = [Holder(one.pid, one.name, one.row[at]) for one in look.processes]
    of_file: dict[str, Callable[[FileSample], int]] = {
        "file_clean": lambda one: max(one.once - (one.dirty or 0), 0) if one.kind == "file" else 0,
        "file_dirty": lambda one: min(one.dirty or 0, one.once) if one.kind == "file" else 0,
        "shmem": lambda one: one.once if one.kind == "shmem" else 0,
        "real": lambda one: one.once,
        "sum_of_rss": lambda one: one.once + one.saves,
    }
    count = of_file.get(name)
    files = [Holder(0, one.path, count(one)) for one in look.files] if count else []
    return Height(look.total[at], look.at, grown, _most(processes), _most(files))


def _most(holders: list[Holder]) -> tuple[Holder, ...]:
    return tuple(one for one in nlargest(_NAMED, holders, key=lambda one: one.bytes) if one.bytes > 0)
