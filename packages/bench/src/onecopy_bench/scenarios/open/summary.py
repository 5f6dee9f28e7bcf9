"""From samples to lines of a table: medians with their extremes, and each relative to the first.

Of N processes the slowest counts for times and the sum for memory. GiB/s is the file's data divided by the time of the
slowest process, so that 4 processes that share one reading and one process that reads alone are comparable. Times are
in ms, memory in MB (10**6 bytes), raw: the interpreters are in it, and `above_empty` is what is left without them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from onecopy_bench.engine.record import Record, Row, Sample
from onecopy_bench.engine.tables import EMPTY, MB, Spread, counted
from onecopy_bench.files.sampling import above, slowest, total

Compute = Callable[[Sample], float]

GIB = 2**30
OURS = ("map", "map+warm")
"""The rows in which onecopy does what it is for; the faster of them stands against the peers."""

OF_ONECOPY = (*OURS, "map+verify", "copy")
"""All rows that are not peers."""

MARGIN = 0.05
"""A row is ahead of another where its median time is shorter by more than this share."""

SLOW_MEMORY_GB_PER_S = 3.0
"""Below this rate of first touch, times of copying loaders say nothing about other machines."""

open_ms, resident_ms = slowest("open_ns"), slowest("resident_ns")


def warm_ms(sample: Sample) -> float:
    """Return the time of the slowest process until its warming call returned, or until all was touched."""
    return float(max(each.get("warm_ns", each["resident_ns"]) for each in sample.processes)) / 1e6


@dataclass(frozen=True, slots=True)
class Case:
    """A state of the page cache and a number of processes; ceilings and controls belong to all cases."""

    record: Record
    cache: str
    processes: int

    def __str__(self) -> str:
        return f"{self.cache}, {counted(self.processes, 'process', 'processes')}"

    @property
    def cold(self) -> bool:
        """Whether the cache was evicted."""
        return self.cache == "cold"

    @property
    def samples(self) -> list[Sample]:
        """All samples of the case."""
        return [s for s in self.record.samples if s.case in ((), (self.cache, str(self.processes)))]

    def good(self, row: str) -> list[Sample]:
        """Return the samples of one row that can be used, in the order of the rounds."""
        found = [sample for sample in self.samples if sample.row == row and sample.state == "ok"]
        return sorted(found, key=lambda sample: sample.round)

    def rows(self, role: str = "row") -> list[Row]:
        """Return the rows of a role."""
        return [row for row in self.record.rows if row.role == role]

    @property
    def size(self) -> float:
        """Of the file, in MB."""
        return float(self.record.data["size"]) / MB


def cases_of(record: Record) -> list[Case]:
    """Return the cases that a record was to have."""
    return [Case(record, cache, n) for cache in record.options["caches"] for n in record.options["processes"]]


@dataclass(frozen=True, slots=True)
class Failure:
    """Samples of a row that went wrong in the same way: the state, the reason of the first, and how many."""

    state: str
    reason: str
    times: int


@dataclass(frozen=True, slots=True)
class Line:
    """One row over all rounds.

    `values` has a spread for each column that was measured; `relative` the medians divided by those of the first line.
    A line without a good sample has neither, and at least one failure.
    """

    row: Row
    processes: int
    good: int
    values: dict[str, Spread]
    failures: tuple[Failure, ...]
    relative: dict[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the row."""
        return self.row.name

    def median(self, column: str) -> float | None:
        """Return the median of a column, or None where it was not measured."""
        return self.values[column].median if column in self.values else None


TIMES = ("open_ms", "warm_ms", "resident_ms", "gib_per_s")
"""Columns that mean nothing for what loads nothing."""


def columns_of(data_bytes: int) -> dict[str, Compute]:
    """Return what is computed from each sample, by column."""
    huge = (total("file_pmd_mapped"), total("anon_huge"))
    return {
        "open_ms": open_ms,
        "warm_ms": warm_ms,
        "resident_ms": resident_ms,
        "gib_per_s": lambda s: data_bytes / GIB / max(resident_ms(s) / 1e3, 1e-9),
        "anonymous_mb": total("anonymous"),
        "pss_mb": total("pss"),
        "peak_anonymous_mb": lambda s: s.numbers["peak_anonymous"] / MB,
        "pss_above_empty_mb": above("pss"),
        "anonymous_above_empty_mb": above("anonymous"),
        "huge_mb": lambda s: sum(each(s) for each in huge),
        "major_faults": total("major_faults", 1),
        "minor_faults": total("minor_faults", 1),
        "peak_above_empty_mb": lambda s: s.numbers["peak_anonymous"] / MB - total("empty_anonymous")(s),
    }


def lines_of(case: Case, role: str = "row") -> list[Line]:
    """Return the lines of one role in the order of the table, relative to the first."""
    lines = [_line(case, row) for row in case.rows(role)]
    return [_relative(line, lines[0]) for line in lines]


def _line(case: Case, row: Row) -> Line:
    good = case.good(row.name)
    columns = columns_of(case.record.data["data_bytes"])
    spreads = {n: Spread.of(map(c, good)) for n, c in columns.items() if row.name != EMPTY or n not in TIMES}
    spreads["disk_mb"] = Spread.of(s.numbers["disk_bytes"] / MB for s in good if "disk_bytes" in s.numbers)
    bad = [sample for sample in case.samples if sample.row == row.name and sample.state != "ok"]
    times, first = Counter(s.state for s in bad), {s.state: s.reason for s in reversed(bad)}
    failures = tuple(Failure(state, first[state], count) for state, count in times.items())
    values = {name: spread for name, spread in spreads.items() if spread is not None}
    return Line(row, case.processes if row.role == "row" else 1, len(good), values, failures)


def _relative(line: Line, first: Line) -> Line:
    relative = {
        name: spread.median / first.values[name].median
        for name, spread in line.values.items()
        if name in first.values and first.values[name].median > 0
    }
    return replace(line, relative=relative)


def best_of_ours(case: Case) -> Line | None:
    """Return the faster of our mapped rows by the median time until all was touched, or None without any."""
    ours = [line for line in lines_of(case) if line.name in OURS and "resident_ms" in line.values]
    return min(ours, key=lambda line: line.values["resident_ms"].median, default=None)


def ahead_of_ours(case: Case) -> list[tuple[Line, float]]:
    """Return the rows of others that are ahead of our best one, each with its share of our time, the best first."""
    ours = best_of_ours(case)
    if ours is None:
        return []
    time = max(ours.values["resident_ms"].median, 1e-9)
    others = [line for line in lines_of(case) if line.name not in OF_ONECOPY and "resident_ms" in line.values]
    ratios = [(line, line.values["resident_ms"].median / time) for line in others]
    return sorted((pair for pair in ratios if pair[1] < 1 - MARGIN), key=lambda pair: pair[1])


def copies(case: Case, line: Line) -> bool:
    """Return whether a row was seen to hold a copy per process: anonymous memory of at least half the data each."""
    private = line.median("anonymous_above_empty_mb")
    return private is not None and private >= 0.5 * case.record.data["data_bytes"] / MB * line.processes


def touch_rates(record: Record) -> dict[str, Spread]:
    """Return the rates of the first-touch controls in GB/s, by row."""
    found = {}
    for row in record.rows:
        good = [s for s in record.samples if s.row == row.name and s.state == "ok" and row.role == "control"]
        if (spread := Spread.of(map(_touch_gb_per_s, good))) is not None:
            found[row.name] = spread
    return found


def _touch_gb_per_s(sample: Sample) -> float:
    (each,) = sample.processes
    return float(each["notes"]["bytes"]) / max(float(each["resident_ns"] - each["open_ns"]), 1.0)


def times_transfer(record: Record) -> bool:
    """Return whether fresh memory is known to be fast enough here for times of copies to mean something."""
    rates = touch_rates(record)
    return bool(rates) and all(rate.median >= SLOW_MEMORY_GB_PER_S for rate in rates.values())


def paired_ratio(case: Case, name: str, other: str, time: Compute = resident_ms) -> tuple[Spread, int] | None:
    """Return the time of one row divided by that of another, by round, and how many pairs."""
    below = {sample.round: time(sample) for sample in case.good(other)}
    ratios: Sequence[float] = [time(s) / below[s.round] for s in case.good(name) if below.get(s.round, 0) > 0]
    spread = Spread.of(ratios)
    return (spread, len(ratios)) if spread is not None else None


def best_ceiling(case: Case, kind: str) -> str | None:
    """Return the O_DIRECT row of a kind ("fresh" or "reused") with the shortest median time."""
    medians = {
        line.name: line.values["resident_ms"].median
        for line in lines_of(case, "ceiling")
        if line.name.startswith(f"o_direct-{kind}-") and "resident_ms" in line.values
    }
    return min(medians, key=medians.__getitem__) if medians else None
