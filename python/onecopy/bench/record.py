"""What a run leaves behind: every raw sample, the machine, the options; as dataclasses and as JSON.

Units are in the names: `_ns` nanoseconds, `_ms` milliseconds; everything else that counts is bytes. A record
holds no host name, no user name and no folder: the file under test appears with its last component, and what
a failed child said is cleaned of the home folder. The table and the sentences are written into the JSON for
its readers, and computed again from the samples when it is read back.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onecopy.bench.children import State

FORMAT = "onecopy-bench 1"


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of one process at one moment, in bytes, from smaps_rollup."""

    pss: int
    anonymous: int
    private: int
    file_pmd_mapped: int
    anon_huge: int


@dataclass(frozen=True, slots=True)
class Reading:
    """One process of one sample: its two clocks, its faults, and its memory before and while it holds.

    `open_ns` ends when an array can be asked for, `warm_ns` when the warming call returned (None: there was
    none), `resident_ns` when every page had been touched; all three start together.
    `read_bytes` came from a disk because this process asked. `empty` was taken when the imports were done and
    the file not yet opened: what an empty interpreter with the same imports costs, in the same sample.
    """

    open_ns: int
    warm_ns: int | None
    resident_ns: int
    checksum: int | None
    minor_faults: int
    major_faults: int
    cpu_ms: float
    read_bytes: int | None
    empty: Memory
    held: Memory
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sample:
    """One configuration in one round.

    Attributes
    ----------
    state, reason
        "ok", or what went wrong and the facts about it.
    started
        When the children were let go, ISO 8601, UTC.
    idle_share
        Share of the machine's CPU time that was idle just before (None: unknown or not waited for).
    cached_before, cached_after
        Bytes of the file in the page cache when the children were let go, and while they held it.
    disk_bytes
        Bytes that the whole disk read between the two moments, for whomever (None: no such disk).
    peak_anonymous
        Highest sum of RssAnon over all processes, polled every 5 ms while they loaded.
    """

    configuration: str
    round: int
    processes: int
    state: State
    reason: str = ""
    started: str = ""
    idle_share: float | None = None
    cached_before: int | None = None
    cached_after: int | None = None
    disk_bytes: int | None = None
    peak_anonymous: int = 0
    readings: tuple[Reading, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """What the record has to know of a configuration to be read without the program that made it."""

    name: str
    detail: str
    role: str
    uses_cache: bool


@dataclass(frozen=True, slots=True)
class File:
    """The file under test: last part of its name, kind, sizes in bytes, pieces, checksum of the touch."""

    name: str
    kind: str
    size: int
    data_bytes: int
    pieces: int
    checksum: int


@dataclass(frozen=True, slots=True)
class Options:
    """How a scenario is run.

    Attributes
    ----------
    processes
        Processes that load the file at once; ceilings and controls run in one.
    cold
        Evict the file before each sample (else: evict and fill it the same way before each sample).
    iterations
        Rounds; each holds every configuration once, in an order of its own.
    timeout
        Seconds that one phase of a child may take.
    idle_wait
        Seconds that the whole run may spend on waiting for an idle machine.
    ceilings
        Take the O_DIRECT readings too; the first-touch control is always taken.
    seed
        Of the order of the configurations.
    """

    processes: int = 4
    cold: bool = False
    iterations: int = 7
    timeout: float = 120.0
    idle_wait: float = 30.0
    ceilings: bool = True
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Record:
    """One run of one scenario."""

    scenario: str
    created: str
    machine: dict[str, Any]
    options: Options
    file: File
    entries: tuple[Entry, ...]
    samples: tuple[Sample, ...]


def as_plain(record: Record) -> dict[str, Any]:
    """Return a record as JSON types, without the table that is computed from it."""
    return {"format": FORMAT, **asdict(record)}


def to_json(record: Record, **computed: object) -> str:
    """Return a record as JSON text, with whatever was computed from it under the given names."""
    return json.dumps({**as_plain(record), **computed}, indent=1) + "\n"


def from_json(text: str) -> Record:
    """Read a record back; raises ValueError where the text is no record of this format."""
    plain = json.loads(text)
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        raise ValueError(f"not a record of the format {FORMAT!r}")
    try:
        return Record(
            scenario=plain["scenario"],
            created=plain["created"],
            machine=plain["machine"],
            options=Options(**plain["options"]),
            file=File(**plain["file"]),
            entries=tuple(Entry(**entry) for entry in plain["entries"]),
            samples=tuple(_sample(sample) for sample in plain["samples"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"a record of the format {FORMAT!r} that lacks a field: {error}") from error


def _sample(plain: dict[str, Any]) -> Sample:
    return Sample(**{**plain, "readings": tuple(_reading(reading) for reading in plain["readings"])})


def _reading(plain: dict[str, Any]) -> Reading:
    return Reading(**{**plain, "empty": Memory(**plain["empty"]), "held": Memory(**plain["held"])})
