"""What a run leaves behind: every raw sample, the machine, the options; as dataclasses and as JSON.

A record holds one or several *cases*: a number of processes and a state of the page cache, each met by every row in
every round. `Record.cases` cuts it into records of one case, which is what tables and sentences are made of;
ceilings and controls use neither and belong to all of them.

Units are in the names: `_ns` nanoseconds, `_ms` milliseconds; everything else that counts is bytes. A record
holds no host name, no user name and no folder: the file under test appears with its last component, and what
a failed child said is cleaned of the home folder. The tables and the sentences are written into the JSON for
its readers, and computed again from the samples when it is read back. Records of the first format, which had one
case, are read too.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from onecopy_bench.children import State

FORMAT = "onecopy-bench 2"
FIRST_FORMAT = "onecopy-bench 1"

Cache = Literal["cold", "warm"]
Order = Literal["file", "shuffled"]
Ceilings = Literal["few", "all", "none"]


class Case(NamedTuple):
    """How many processes load the file at once, and what the page cache holds of it before."""

    processes: int
    cache: Cache

    def __str__(self) -> str:
        return f"{self.cache}, {self.processes} process{'es' if self.processes > 1 else ''}"


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
    cache
        The declared state of the page cache; None for ceilings and controls.
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
    cache: Cache | None = None
    started: str = ""
    idle_share: float | None = None
    cached_before: int | None = None
    cached_after: int | None = None
    disk_bytes: int | None = None
    peak_anonymous: int = 0
    readings: tuple[Reading, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """What the record has to know of a configuration to be read without the program that made it.

    `size` is that of the file it loads, in bytes, where that is not the file under test.
    """

    name: str
    detail: str
    role: str
    uses_cache: bool
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Absent:
    """A row that this machine could not have, and why."""

    name: str
    reason: str


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
        Processes that load the file at once, each number a case; ceilings and controls run in one.
    caches
        States of the page cache, each a case: "cold" evicts the file before each sample, "warm" evicts it and
        then fills the cache, always in the same way.
    order
        The pieces are touched in the order of the file, or in a seeded random order that is the same for all rows.
    iterations
        Rounds; each holds every configuration once per case, in an order of its own.
    timeout
        Seconds that one phase of a child may take.
    idle_wait
        Seconds that the whole run may spend on waiting for an idle machine.
    ceilings
        The O_DIRECT readings: the few that were the best of their kind so far, all, or none. The first-touch
        control is always taken.
    backed
        Touch and free as much memory as a sample needs before each (see `runner.back`).
    seed
        Of the order of the configurations and of the pieces.
    """

    processes: tuple[int, ...] = (4,)
    caches: tuple[Cache, ...] = ("warm",)
    order: Order = "file"
    iterations: int = 7
    timeout: float = 120.0
    idle_wait: float = 30.0
    ceilings: Ceilings = "few"
    backed: bool = False
    seed: int = 0

    @property
    def cases(self) -> tuple[Case, ...]:
        """Every number of processes in every state of the cache."""
        return tuple(Case(n, cache) for cache in self.caches for n in self.processes)


@dataclass(frozen=True, slots=True)
class Record:
    """One run of one scenario; `absent` are the rows that this machine could not have."""

    scenario: str
    created: str
    machine: dict[str, Any]
    options: Options
    file: File
    entries: tuple[Entry, ...]
    samples: tuple[Sample, ...]
    absent: tuple[Absent, ...] = ()

    @property
    def case(self) -> Case:
        """The case of a record that has one; ValueError where it has several: see `cases`."""
        (case,) = self.options.cases
        return case

    @property
    def processes(self) -> int:
        """The processes of a record of one case."""
        return self.case.processes

    @property
    def cold(self) -> bool:
        """Whether the cache of a record of one case was evicted."""
        return self.case.cache == "cold"

    def cases(self) -> tuple[Record, ...]:
        """Cut the record into records of one case; each has all ceilings and controls."""
        return tuple(self._cut(case) for case in self.options.cases)

    def _cut(self, case: Case) -> Record:
        return replace(
            self,
            options=replace(self.options, processes=(case.processes,), caches=(case.cache,)),
            samples=tuple(s for s in self.samples if s.cache is None or (s.processes, s.cache) == case),
        )


def as_plain(record: Record) -> dict[str, Any]:
    """Return a record as JSON types, without the tables that are computed from it."""
    return {"format": FORMAT, **asdict(record)}


def to_json(record: Record, **computed: object) -> str:
    """Return a record as JSON text, with whatever was computed from it under the given names."""
    return json.dumps({**as_plain(record), **computed}, indent=1) + "\n"


def from_json(text: str) -> Record:
    """Read a record back; raises ValueError where the text is no record of this format or of the first."""
    try:
        plain = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"no record of a benchmark ({error}); recordings of memory are for `onecopy plot`") from None
    found = plain.get("format") if isinstance(plain, dict) else None
    if found not in {FORMAT, FIRST_FORMAT}:
        raise ValueError(f"not a record of the format {FORMAT!r}, but {found!r}")
    try:
        return _record(plain if found == FORMAT else _from_first(plain))
    except (KeyError, TypeError) as error:
        raise ValueError(f"a record of the format {found!r} that lacks a field: {error}") from error


def sample_from_plain(plain: dict[str, Any]) -> Sample:
    """Return a sample from its JSON types; raises KeyError or TypeError where a field is missing or unknown."""
    return Sample(**{**plain, "readings": tuple(_reading(reading) for reading in plain["readings"])})


def _record(plain: dict[str, Any]) -> Record:
    lists = {name: tuple(value) for name, value in plain["options"].items() if isinstance(value, list)}
    return Record(
        scenario=plain["scenario"],
        created=plain["created"],
        machine=plain["machine"],
        options=Options(**{**plain["options"], **lists}),
        file=File(**plain["file"]),
        entries=tuple(Entry(**entry) for entry in plain["entries"]),
        samples=tuple(sample_from_plain(sample) for sample in plain["samples"]),
        absent=tuple(Absent(**absent) for absent in plain["absent"]),
    )


def _from_first(plain: dict[str, Any]) -> dict[str, Any]:
    """Return the plain record of the first format as one of this: its one case becomes the only case."""
    options = dict(plain["options"])
    cache = "cold" if options.pop("cold") else "warm"
    options |= {"processes": [options["processes"]], "caches": [cache]}
    options["ceilings"] = "all" if options["ceilings"] else "none"
    rows = {entry["name"] for entry in plain["entries"] if entry["role"] == "row"}
    samples = [{**s, "cache": cache if s["configuration"] in rows else None} for s in plain["samples"]]
    return {**plain, "options": options, "samples": samples, "absent": []}


def _reading(plain: dict[str, Any]) -> Reading:
    return Reading(**{**plain, "empty": Memory(**plain["empty"]), "held": Memory(**plain["held"])})
