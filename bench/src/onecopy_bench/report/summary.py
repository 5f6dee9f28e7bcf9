"""From samples to rows: medians with their extremes, and each row relative to the first.

Pure functions over a record of one case (see `Record.cases`). Of N processes the slowest counts for times and the
sum for memory. GiB/s is the file's data divided by the time of the slowest process, so that 4 processes that share one
reading and one process that reads alone are comparable. Times are in ms, memory in MB (10**6 bytes), raw: the
interpreters are in it, and `above_empty` says what is left without them.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from onecopy_bench.record import Entry, Record, Sample

MB = 1e6
GIB = 2**30

OURS = ("map", "map+warm")
"""The rows in which onecopy does what it is for; the faster of them stands against the peers."""

COPY = "copy"
"""The row in which it does what loaders without a mapping do."""

OF_ONECOPY = (*OURS, "map+verify", COPY)
"""All rows that are not peers."""

MARGIN = 0.05
"""A row is ahead of another where its median time is shorter by more than this share."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, smallest and largest of the samples of one column."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread | None:
        """Return the spread of some values, or None of none."""
        numbers = list(values)
        return cls(statistics.median(numbers), min(numbers), max(numbers)) if numbers else None

    def divided_by(self, count: int) -> Spread:
        """Return the spread of one of `count` equal parts."""
        return Spread(self.median / count, self.low / count, self.high / count)


@dataclass(frozen=True, slots=True)
class Failure:
    """Samples of a row that went wrong in the same way: the state, the reason of the first, and how many."""

    state: str
    reason: str
    times: int


@dataclass(frozen=True, slots=True)
class Row:
    """One configuration over all rounds.

    `values` has a spread for each column that was measured; `relative` the medians divided by those of the
    first row. A row without a good sample has neither, and at least one failure.
    """

    entry: Entry
    processes: int
    good: int
    values: dict[str, Spread]
    relative: dict[str, float]
    failures: tuple[Failure, ...]

    def median(self, column: str) -> float | None:
        """Return the median of a column, or None where it was not measured."""
        return self.values[column].median if column in self.values else None


def open_ms(sample: Sample) -> float:
    """Return the time of the slowest process until it could ask for an array."""
    return max(reading.open_ns for reading in sample.readings) / 1e6


def resident_ms(sample: Sample) -> float:
    """Return the time of the slowest process until every page had been touched."""
    return max(reading.resident_ns for reading in sample.readings) / 1e6


def warm_ms(sample: Sample) -> float:
    """Return the time of the slowest process until its warming call returned, or until all was touched."""
    return max(reading.resident_ns if reading.warm_ns is None else reading.warm_ns for reading in sample.readings) / 1e6


def touch_gb_per_s(sample: Sample) -> float:
    """Return the rate of a first-touch control in 10**9 bytes per second."""
    (reading,) = sample.readings
    return float(reading.notes["bytes"]) / max(reading.resident_ns - reading.open_ns, 1)


def columns_of(data_bytes: int) -> dict[str, Callable[[Sample], float]]:
    """Return what is computed from each sample of a row, by column."""
    return {
        "open_ms": open_ms,
        "warm_ms": warm_ms,
        "resident_ms": resident_ms,
        "gib_per_s": lambda s: data_bytes / GIB / max(resident_ms(s) / 1e3, 1e-9),
        "anonymous_mb": lambda s: sum(r.held.anonymous for r in s.readings) / MB,
        "pss_mb": lambda s: sum(r.held.pss for r in s.readings) / MB,
        "peak_anonymous_mb": lambda s: s.peak_anonymous / MB,
        "pss_above_empty_mb": lambda s: sum(r.held.pss - r.empty.pss for r in s.readings) / MB,
        "anonymous_above_empty_mb": lambda s: _above_empty_anonymous(s) / MB,
        "huge_mb": lambda s: sum(r.held.file_pmd_mapped + r.held.anon_huge for r in s.readings) / MB,
        "major_faults": lambda s: sum(r.major_faults for r in s.readings),
        "minor_faults": lambda s: sum(r.minor_faults for r in s.readings),
        "read_mb": lambda s: sum(r.read_bytes or 0 for r in s.readings) / MB,
        "peak_above_empty_mb": lambda s: (s.peak_anonymous - sum(r.empty.anonymous for r in s.readings)) / MB,
    }


def _above_empty_anonymous(sample: Sample) -> int:
    return sum(reading.held.anonymous - reading.empty.anonymous for reading in sample.readings)


def good_samples(record: Record, name: str) -> list[Sample]:
    """Return the samples of one configuration that can be used, in the order of the rounds."""
    return [sample for sample in record.samples if sample.configuration == name and sample.state == "ok"]


def rows_of(record: Record, role: str = "row") -> list[Row]:
    """Return the rows of one role in the order of the table, of a record of one case; relative to the first."""
    rows = [_row(record, entry) for entry in record.entries if entry.role == role]
    return [_relative(row, rows[0]) for row in rows]


def _row(record: Record, entry: Entry) -> Row:
    samples = [sample for sample in record.samples if sample.configuration == entry.name]
    good = [sample for sample in samples if sample.state == "ok"]
    columns = columns_of(record.file.data_bytes)
    spreads = {n: Spread.of(map(column, good)) for n, column in columns.items() if _applies(entry, n)}
    spreads["disk_mb"] = Spread.of(s.disk_bytes / MB for s in good if s.disk_bytes is not None)
    return Row(
        entry=entry,
        processes=samples[0].processes if samples else 0,
        good=len(good),
        values={name: spread for name, spread in spreads.items() if spread is not None},
        relative={},
        failures=_failures(samples),
    )


def _applies(entry: Entry, column: str) -> bool:
    """Return whether a column means anything: what loads nothing has no time and no rate."""
    return entry.name != "empty" or column not in {"open_ms", "warm_ms", "resident_ms", "gib_per_s"}


def _failures(samples: list[Sample]) -> tuple[Failure, ...]:
    first: dict[str, Sample] = {}
    times: dict[str, int] = {}
    for sample in samples:
        if sample.state != "ok":
            first.setdefault(sample.state, sample)
            times[sample.state] = times.get(sample.state, 0) + 1
    return tuple(Failure(state, sample.reason, times[state]) for state, sample in first.items())


def _relative(row: Row, first: Row) -> Row:
    relative = {
        name: spread.median / first.values[name].median
        for name, spread in row.values.items()
        if name in first.values and first.values[name].median > 0
    }
    return Row(row.entry, row.processes, row.good, row.values, relative, row.failures)


def best_of_ours(record: Record) -> Row | None:
    """Return the faster of our mapped rows by the median time until all was touched, or None without any."""
    ours = [row for row in rows_of(record) if row.entry.name in OURS and "resident_ms" in row.values]
    return min(ours, key=lambda row: row.values["resident_ms"].median, default=None)


def ahead_of_ours(record: Record) -> list[tuple[Row, float]]:
    """Return the rows of others that are ahead of our best one, each with its share of our time, the best first."""
    ours = best_of_ours(record)
    if ours is None:
        return []
    time = ours.values["resident_ms"].median
    others = [row for row in rows_of(record) if row.entry.name not in OF_ONECOPY and "resident_ms" in row.values]
    ratios = [(row, row.values["resident_ms"].median / max(time, 1e-9)) for row in others]
    return sorted((pair for pair in ratios if pair[1] < 1 - MARGIN), key=lambda pair: pair[1])


def copies(record: Record, row: Row) -> bool:
    """Return whether a row was seen to hold a copy per process: anonymous memory of at least half the data each."""
    private = row.median("anonymous_above_empty_mb")
    return private is not None and private >= 0.5 * record.file.data_bytes / MB * row.processes


def touch_rates(record: Record) -> dict[str, Spread]:
    """Return the rates of the first-touch controls in GB/s, by configuration."""
    found = {}
    for entry in record.entries:
        if entry.role == "control":
            spread = Spread.of(touch_gb_per_s(sample) for sample in good_samples(record, entry.name))
            if spread is not None:
                found[entry.name] = spread
    return found


def paired_ratio(
    record: Record, name: str, other: str, time: Callable[[Sample], float] = resident_ms
) -> tuple[Spread, int] | None:
    """Return the time of one configuration divided by that of another, by round, and how many pairs."""
    below = {sample.round: time(sample) for sample in good_samples(record, other)}
    ratios = [
        time(sample) / below[sample.round] for sample in good_samples(record, name) if below.get(sample.round, 0) > 0
    ]
    spread = Spread.of(ratios)
    return (spread, len(ratios)) if spread is not None else None


def best_ceiling(record: Record, kind: str) -> str | None:
    """Return the O_DIRECT configuration of a kind ("fresh" or "reused") with the shortest median time."""
    medians = {
        row.entry.name: row.values["resident_ms"].median
        for row in rows_of(record, "ceiling")
        if row.entry.name.startswith(f"o_direct-{kind}-") and "resident_ms" in row.values
    }
    return min(medians, key=medians.__getitem__) if medians else None
