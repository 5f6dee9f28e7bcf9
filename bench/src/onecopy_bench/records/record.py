"""What a run leaves behind: flat samples of named numbers, the machine, the options; as dataclasses and as JSON.

Units are in the names as in `onecopy_bench.record`: `_ns`, `_s`; everything else that counts is bytes. Like that one, a
record holds no folder, no host and no user. Tables and sentences are written into the JSON for its readers, and
computed again from the samples when it is read back.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from onecopy_bench.journal import JournalOf
from onecopy_bench.record import Absent
from onecopy_bench.report.summary import Spread

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FORMAT = "onecopy-data 1"


@dataclass(frozen=True, slots=True)
class Measured:
    """One sample.

    Attributes
    ----------
    row, case, round
        Which row of the table, in which case, in which round.
    state, reason
        "ok", or what went wrong and the facts about it.
    started, idle_share
        When the processes were let go, ISO 8601, UTC; share of the machine's CPU time that was idle just before.
    numbers
        What was measured, by name.
    points
        What was measured again and again: lines of numbers.
    """

    row: str
    case: tuple[str, ...]
    round: int
    state: str
    reason: str = ""
    started: str = ""
    idle_share: float | None = None
    numbers: dict[str, float] = field(default_factory=dict)
    points: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """A row as the record has to know it; of onecopy or of another."""

    name: str
    detail: str
    ours: bool


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one scenario; `data` says what the rows were, `absent` which rows this machine could not have."""

    scenario: str
    created: str
    machine: dict[str, Any]
    data: dict[str, Any]
    options: dict[str, Any]
    entries: tuple[Entry, ...]
    samples: tuple[Measured, ...] = ()
    absent: tuple[Absent, ...] = ()

    def cases(self) -> tuple[tuple[str, ...], ...]:
        """Return the cases that were met, in the order of the entries where these name cases."""
        order = {entry.name.partition(": ")[0]: number for number, entry in enumerate(self.entries)}
        return tuple(sorted({sample.case for sample in self.samples}, key=lambda case: (order.get(case[0], 0), case)))

    def of(self, row: str, case: tuple[str, ...]) -> list[Measured]:
        """Return the good samples of a row in a case, in the order of the rounds."""
        found = [s for s in self.samples if (s.row, s.case, s.state) == (row, case, "ok")]
        return sorted(found, key=lambda sample: sample.round)

    def spread(self, row: str, case: tuple[str, ...], name: str) -> Spread | None:
        """Return the spread of a number over the rounds; None where it was not measured."""
        return Spread.of(s.numbers[name] for s in self.of(row, case) if name in s.numbers)


def plain_options(options: DataclassInstance) -> dict[str, Any]:
    """Return options as the JSON types that they are read back as."""
    return json.loads(json.dumps(asdict(options)))  # type: ignore[no-any-return]


def as_plain(run: Run) -> dict[str, Any]:
    """Return a record as JSON types."""
    return {"format": FORMAT, **asdict(run)}


def to_json(run: Run, **computed: object) -> str:
    """Return a record as JSON text, with whatever was computed from it under the given names."""
    return json.dumps({**as_plain(run), **computed}, indent=1) + "\n"


def from_json(text: str) -> Run:
    """Read a record back; raises ValueError where the text is no record of this format."""
    plain = json.loads(text)
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        raise ValueError(f"not a record of the format {FORMAT!r}")
    try:
        return Run(
            **{name: plain[name] for name in ("scenario", "created", "machine", "data", "options")},
            entries=tuple(Entry(**entry) for entry in plain["entries"]),
            samples=tuple(map(measured_from_plain, plain["samples"])),
            absent=tuple(Absent(**absent) for absent in plain["absent"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"a record of the format {FORMAT!r} that lacks a field: {error}") from error


def measured_from_plain(plain: dict[str, Any]) -> Measured:
    """Return a sample from its JSON types; raises KeyError or TypeError where a field is missing or unknown."""
    return Measured(**{**plain, "case": tuple(plain["case"]), "points": tuple(map(tuple, plain["points"]))})


class RunJournal(JournalOf[Run]):
    """The journal of such a run."""

    def plain(self, record: Run) -> dict[str, Any]:
        """Return a record as JSON types."""
        return as_plain(record)

    def sample(self, plain: dict[str, Any]) -> Measured:
        """Return a sample from its JSON types."""
        return measured_from_plain(plain)
