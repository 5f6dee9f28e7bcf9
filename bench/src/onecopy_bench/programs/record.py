"""What a run of `bench run` leaves behind: every sample with its totals, as dataclasses and as JSON.

Units are in the names or bytes. The command line is kept, with the home folder as "~"; host and user names are not.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from onecopy_bench.programs.trees import Totals

if TYPE_CHECKING:
    from onecopy_bench.children import State

FORMAT = "onecopy-bench-run 1"

Role = Literal["command", "baseline"]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How programs are run.

    Attributes
    ----------
    processes
        Copies of the program that are started together.
    rounds
        Each holds one sample of the command and one of the baseline, if there is one, in random order.
    ready
        A copy is ready when it has said this text on stdout or stderr.
    settle
        A copy is ready when its memory has stood still for this many seconds. Without both: when it has ended.
    hold_ms
        Milliseconds between "all are ready" and the look at the memory.
    timeout
        Seconds until all copies have to be ready.
    evict
        Files that are dropped from the page cache before each sample.
    seed
        Of the order in each round.
    """

    processes: int = 1
    rounds: int = 3
    ready: str | None = None
    settle: float | None = None
    hold_ms: float = 500.0
    timeout: float = 120.0
    evict: tuple[str, ...] = ()
    seed: int = 0

    @property
    def waits_for_exit(self) -> bool:
        """Whether a copy is ready when it has ended."""
        return self.ready is None and self.settle is None


@dataclass(frozen=True, slots=True)
class RunSample:
    """One start of all copies of a program.

    Attributes
    ----------
    role, round, state, reason, said
        Which command, when, "ok" or what went wrong, the facts about it, and the last lines of output then.
    ready_ns
        When each copy was ready, counted from the instant in which all were let go.
    held
        What the processes of each copy held; empty where copies were ready by ending.
    peak_anonymous
        The highest sum of RssAnon over all processes of all copies, polled until the end of the hold.
    disk_bytes
        Bytes that the disks of the evicted files (else of the working folder) read meanwhile, for whomever.
    cached_before
        Bytes of the evicted files that were cached when the copies were let go; None: unknown, or no files.
    killed
        Processes that did not end on SIGTERM in time.
    """

    role: Role
    round: int
    state: State
    reason: str = ""
    said: tuple[str, ...] = ()
    ready_ns: tuple[int, ...] = ()
    held: tuple[Totals, ...] = ()
    peak_anonymous: int = 0
    disk_bytes: int | None = None
    cached_before: int | None = None
    killed: int = 0


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run: the commands, the machine, the options, and all samples."""

    created: str
    machine: dict[str, Any]
    options: RunOptions
    command: tuple[str, ...]
    baseline: tuple[str, ...]
    samples: tuple[RunSample, ...]


def to_json(record: RunRecord, **computed: object) -> str:
    """Return a record as JSON text, with whatever was computed from it under the given names."""
    return json.dumps({"format": FORMAT, **asdict(record), **computed}, indent=1) + "\n"


def from_json(text: str) -> RunRecord:
    """Read a record back; raises ValueError where the text is no record of this format."""
    plain = json.loads(text)
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        raise ValueError(f"not a record of the format {FORMAT!r}")
    try:
        return RunRecord(
            created=plain["created"],
            machine=plain["machine"],
            options=RunOptions(**_tuples(plain["options"])),
            command=tuple(plain["command"]),
            baseline=tuple(plain["baseline"]),
            samples=tuple(
                RunSample(**{**_tuples(s), "held": tuple(Totals(**held) for held in s["held"])})
                for s in plain["samples"]
            ),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"a record of the format {FORMAT!r} that lacks a field: {error}") from error


def _tuples(plain: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in plain.items()}
