"""The record of a run: JSON lines, a header and then one line per sample, written during the run.

Names contain the units: `_ns` for nanoseconds, `_ms` for milliseconds, `_s` for seconds; sizes are in bytes. A record
contains no host name, user name or folder. The last line states the duration of the run in seconds; if it is missing,
the run ended early and can be resumed. A file may contain records of several scenarios, each with a header.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import statistics
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from onecopy_bench import system

FORMAT = "onecopy-bench 3"
LARGEST = 1e30
"""The largest number that a record may contain; pictures cannot show larger ones."""

Case = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, minimum and maximum of one column's samples."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Spread | None:
        """Return the spread of the known values, or None if there are none."""
        numbers = [value for value in values if value is not None]
        return cls(statistics.median(numbers), min(numbers), max(numbers)) if numbers else None


@dataclass(frozen=True, slots=True)
class Absent:
    """A row, location or published measurement that cannot be measured on this machine, and the reason."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the comparison.

    `role` is "row", "ceiling" or "control". `uses_cache` is False if the row bypasses the page cache. `size` is the
    size of the file that the row loads, if it is not the file under test.
    """

    name: str
    detail: str = ""
    ours: bool = False
    role: str = "row"
    uses_cache: bool = True
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """The measurements of a row in one case and round: numbers by name, repeated readings, and numbers per process.

    `state` is "ok" or the kind of failure. `started` is the time at which the processes were released (ISO 8601, UTC),
    and `idle_share` the idle share of the machine's CPU time just before that.
    """

    row: str
    case: Case
    round: int
    state: str = "ok"
    reason: str = ""
    started: str = ""
    idle_share: float | None = None
    numbers: dict[str, float] = field(default_factory=dict)
    points: tuple[tuple[float, ...], ...] = ()
    processes: tuple[dict[str, Any], ...] = ()


_DEFAULTS = asdict(Sample("", (), -1))


@dataclass(frozen=True, slots=True)
class Record:
    """One run of a scenario: `data` describes the measured data, and `absent` lists what could not be measured."""

    scenario: str
    created: str
    commit: str
    machine: dict[str, Any]
    options: dict[str, Any]
    data: dict[str, Any]
    rows: tuple[Row, ...]
    absent: tuple[Absent, ...] = ()
    samples: tuple[Sample, ...] = ()
    seconds: float | None = None

    def cases(self) -> tuple[Case, ...]:
        """Return the cases that were measured, sorted."""
        return tuple(sorted({sample.case for sample in self.samples if sample.case}))

    def names(self, role: str = "row") -> list[str]:
        """Return the names of the rows with a role."""
        return [row.name for row in self.rows if row.role == role]

    def of(self, row: str, case: Case) -> list[Sample]:
        """Return a row's successful samples in a case, in round order."""
        found = [s for s in self.samples if (s.row, s.case, s.state) == (row, case, "ok")]
        return sorted(found, key=lambda sample: sample.round)

    @property
    def rounds(self) -> int:
        """The number of completed rounds or, if none is complete, of requested rounds."""
        return 1 + max((sample.round for sample in self.samples), default=int(self.options["rounds"]) - 1)

    def absence(self, row: str, case: Case) -> str | None:
        """Return why a row has no result in a case (it is absent, or its samples failed), or None if unknown."""
        reasons = [each.reason for each in self.absent if each.name == row]
        states = [s.state for s in self.samples if (s.row, s.case) == (row, case) and s.state != "ok"]
        return next(iter((*reasons, *states)), None)

    @property
    def where(self) -> str:
        """The machine and the date, in one sentence."""
        return f"{', '.join(system.known_facts(self.machine))}. Measured {self.created}."


@functools.cache
def commit() -> str:
    """Return the commit of the checkout that contains this package, or "" outside a checkout."""
    command = ("git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=7", "--exclude=*")
    with contextlib.suppress(OSError):
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return ""


def heading(
    scenario: str,
    place: str | os.PathLike[str],
    options: Any,
    rows: Iterable[Any],
    data: dict[str, Any] | None = None,
    absent: Iterable[Absent] = (),
) -> Record:
    """Return a record without samples: time, machine, disk, options, rows and data.

    Options that are paths are recorded as file names, without folders.
    """
    chosen = asdict(options)
    for each in fields(options):
        if each.metadata.get("is_path") and (value := chosen[each.name]):
            chosen[each.name] = Path(value).name if isinstance(value, str) else [Path(one).name for one in value]
    now = datetime.now(UTC).isoformat(timespec="seconds")
    kept = tuple(row if isinstance(row, Row) else Row(row.name, row.detail, row.ours) for row in rows)
    facts = system.facts(place)
    return Record(scenario, now, commit(), facts, as_json(chosen), as_json(data or {}), kept, tuple(absent))


def as_json(value: Any) -> Any:
    """Return a value as it appears after a round trip through JSON."""
    return json.loads(json.dumps(value))


def lines(record: Record) -> Iterator[str]:
    """Yield the lines of a record: the header, the samples, and the duration."""
    header = asdict(replace(record, samples=()))
    yield json.dumps({"format": FORMAT, **{k: v for k, v in header.items() if k not in {"samples", "seconds"}}}) + "\n"
    yield from map(_line_of, record.samples)
    if record.seconds is not None:
        yield json.dumps({"seconds": record.seconds}) + "\n"


def _line_of(sample: Sample) -> str:
    plain = asdict(sample)
    return (
        json.dumps({name: value for name, value in plain.items() if name == "case" or value != _DEFAULTS[name]}) + "\n"
    )


def parse(text: str) -> list[Record]:
    """Return the records in a text. Raise ValueError with the number of the first line that is not part of a record."""
    found: dict[str, Record] = {}
    samples: dict[str, list[Sample]] = {}
    current = ""
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            plain = json.loads(line)
            if number == 1 or "format" in plain:
                record = _parse_header(plain)
                current = record.scenario
                found.setdefault(current, record)
                samples.setdefault(current, [])
            elif "row" in plain:
                samples[current].append(_parse_sample(plain))
            else:
                found[current] = replace(found[current], seconds=float(plain["seconds"]))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            words = f"{error} is missing" if isinstance(error, KeyError) else str(error)[:300]
            raise ValueError(f"line {number} is not part of a record in format {FORMAT!r}: {words}") from None
    if not found:
        raise ValueError(f"not a record in format {FORMAT!r}: the file is empty")
    return [replace(record, samples=tuple(samples[name])) for name, record in found.items()]


def read(path: str | os.PathLike[str]) -> list[Record]:
    """Return the records in a file. Raise OSError, or ValueError with the file's path."""
    try:
        return parse(Path(path).read_text())
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from None


def _parse_header(plain: dict[str, Any]) -> Record:
    if (named := plain.pop("format", None)) != FORMAT:
        raise ValueError(f"unknown format {str(named)[:100]!r}")
    rows = tuple(Row(**row) for row in plain.pop("rows"))
    return Record(**plain | {"rows": rows, "absent": tuple(Absent(**each) for each in plain.get("absent", ()))})


def _parse_sample(plain: dict[str, Any]) -> Sample:
    points = tuple(map(tuple, plain.get("points", ())))
    tuples = {name: tuple(plain.get(name, ())) for name in ("case", "processes")}
    sample = Sample(**{**plain, **tuples, "points": points})
    for value in (*sample.numbers.values(), *(value for point in points for value in point)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < LARGEST:
            raise ValueError(f"expected a number in a sample, found {str(value)[:40]!r}")
    return sample


class Log:
    """The log of a run, in the file `path` (None: not written). Each sample is written as soon as it is taken.

    With `resume`, the run in the file is continued; otherwise the file is replaced.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, resume: bool = False) -> None:
        self.path = None if path is None else Path(path)
        self.records: list[Record] = []
        self._last = ""
        self._begun = bool(resume and self.path is not None and self.path.exists())
        if self._begun and self.path is not None:
            text = self.path.read_text()
            whole = text[: text.rfind("\n") + 1]  # a killed write leaves the beginning of a line
            try:
                self.records = parse(whole)
            except ValueError as error:
                raise ValueError(f"{self.path}: {error}") from None
            os.truncate(self.path, len(whole.encode()))
            self._last = [plain["scenario"] for plain in map(json.loads, whole.splitlines()) if "format" in plain][-1]

    def begin(self, heading: Record) -> Record:
        """Return the record to continue: the file's record of the scenario with its samples, or else the given one.

        Raise ValueError with the first difference if the file contains a different run of the scenario.
        """
        known = next((record for record in self.records if record.scenario == heading.scenario), None)
        if known is not None:
            self._refuse_another_run(known, heading)
        if self._last != heading.scenario:
            self._write(next(lines(known or heading)))
        self._last = heading.scenario
        return known or heading

    def add(self, sample: Sample) -> None:
        """Append one sample to the file."""
        self._write(_line_of(sample))

    def end(self, seconds: float) -> None:
        """Append the line that marks the run as complete."""
        self._write(json.dumps({"seconds": round(seconds, 1)}) + "\n")

    def _write(self, line: str) -> None:
        if self.path is None:
            return
        try:
            with self.path.open("a" if self._begun else "w") as file:
                file.write(line)
        except OSError as error:  # the error for a full disk does not name the file
            raise OSError(error.errno, error.strerror, str(self.path)) from None
        self._begun = True

    def _refuse_another_run(self, then: Record, now: Record) -> None:
        for name in ("commit", "machine", "options", "data", "rows", "absent"):
            was, is_now = getattr(then, name), getattr(now, name)
            if name == "options":  # the limit of waiting affects no measurement
                was, is_now = ({**each, "idle_wait": None} for each in (was, is_now))
            if was != is_now:
                facts = f"{name} was {str(was)[:200]} and is now {str(is_now)[:200]}"
                raise ValueError(f"{self.path} belongs to another run: {facts}")
