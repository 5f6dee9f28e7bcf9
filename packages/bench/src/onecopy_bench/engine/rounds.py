"""Rounds of samples: the loop that every scenario runs in.

A *round* takes every turn once, in an order drawn anew (seeded), so that a machine that grows slower or a disk that
tires meets all of them. A *sample* is one turn in one round: fresh processes, started and brought to "ready"; the cache
put into its declared state and proven; the machine waited for; then all released together, their memory polled while
they work and measured while they hold; then dismissed.

A sample that goes wrong is a sample with a state and a reason; the run continues. Ctrl-C and errors of the parent
itself end the run, and no child survives either.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from onecopy_bench.engine import memory
from onecopy_bench.engine.crew import SampleError
from onecopy_bench.engine.machine import cache
from onecopy_bench.engine.record import Case, Log, Record, Sample

ENOUGH = 0.93
"""Share of idle CPU time from which on the machine counts as idle."""

_WINDOW_S = 0.2


def parse_cpu_times(text: str) -> tuple[int, int]:
    r"""Return (idle, all) clock ticks since boot from the text of /proc/stat.

    Examples
    --------
    >>> parse_cpu_times("cpu  10 0 5 80 5 0 0 0 7 0\ncpu0 ...")
    (85, 100)
    """
    # user nice system idle iowait irq softirq steal; guest time is part of user time
    ticks = [int(word) for word in text.split("\n", 1)[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def doubt(samples: Iterable[Any]) -> str | None:
    """Return the sentence about samples that were not known to be taken on an idle machine, if there are any."""
    taken = [sample for sample in samples if sample.started]
    busy = sum(sample.idle_share is None or sample.idle_share <= ENOUGH for sample in taken)
    words = f"{busy} of {len(taken)} samples were not known to be taken on an idle machine: read the times as rough."
    return words if busy else None


class Patience:
    """Waits for an idle machine, at most `seconds` in all calls together.

    A time that was taken beside other work says nothing. Idle includes waiting for a disk; time stolen by a hypervisor
    does not. When the budget is spent the samples are taken anyway, and the record says how busy the machine was.
    """

    def __init__(self, seconds: float) -> None:
        self._windows = round(seconds / _WINDOW_S)

    def wait(self) -> float | None:
        """Wait until the machine is idle or the budget is spent; return the idle share that was seen last.

        None means that the budget was spent before this call, so nothing was watched.
        """
        share = None
        while self._windows > 0:
            share = _idle_share(_WINDOW_S)
            if share > ENOUGH:
                break
            self._windows -= 1
        return share


def _idle_share(seconds: float) -> float:
    idle, total = parse_cpu_times(Path("/proc/stat").read_text())
    time.sleep(seconds)
    idle_after, total_after = parse_cpu_times(Path("/proc/stat").read_text())
    return (idle_after - idle) / max(total_after - total, 1)


Watch = Callable[["Progress"], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """What every scenario is run with; the words of its options say what it is."""

    rounds: int = 5
    timeout: float = 900.0
    idle_wait: float = 60.0
    backed: bool = False
    seed: int = 0


class Taken(NamedTuple):
    """What a sample has measured; numbers that are None are unknown, and left out of the record."""

    numbers: Mapping[str, float | None]
    points: Iterable[tuple[float, ...]] = ()
    processes: Iterable[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class Turn:
    """One row in one case: what is sampled once a round, with `memory` private bytes that a sample needs.

    `last` is whether a sample is the last of its turn: one that did not end would not end in the next round either.
    """

    row: str
    case: Case
    memory: float
    take: Callable[[Attempt], Taken]
    last: Callable[[Sample], bool] = lambda _: False


class Attempt:
    """What a turn takes its sample with: an empty folder that goes with it, and the wait for an idle machine."""

    def __init__(self, turn: Turn, settings: Settings, place: Path | None, patience: Patience) -> None:
        self._turn, self._settings, self._place, self._patience = turn, settings, place, patience
        self.stack = contextlib.ExitStack()
        self.started = ""
        self.idle_share: float | None = None

    def folder(self) -> Path:
        """Return a new empty folder in the place of the run."""
        return Path(self.stack.enter_context(tempfile.TemporaryDirectory(dir=self._place)))

    def back(self, more: int = 0) -> None:
        """Touch and free the memory of the turn and `more` bytes, where the run is a backed one."""
        if self._settings.backed:
            memory.back(round(self._turn.memory) + more)

    def wait(self) -> None:
        """Wait for an idle machine, within the budget of the run: the processes are released next."""
        self.idle_share = self._patience.wait()
        self.started = datetime.now(UTC).isoformat(timespec="milliseconds")

    def begin(self) -> None:
        """Do both: what a turn begins with whose cache needs no state."""
        self.back()
        self.wait()


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is: `done` of `total` samples, and what comes next ("" at the end)."""

    done: int
    total: int
    next: str


def run(
    heading: Record,
    turns: Sequence[Turn],
    settings: Settings,
    place: Path | None = None,
    *,
    watch: Watch = lambda _: None,
    log: Log | None = None,
    files: Iterable[str | os.PathLike[str]] = (),
) -> Record:
    """Take every sample that the log does not have, and return the whole record.

    Parameters
    ----------
    heading
        The record without samples.
    place
        A folder for the files of samples; None: that of temporary files.
    watch
        Called before each sample and at the end.
    files
        What is measured on.

    Raises
    ------
    ValueError
        If the log is of another run.
    RuntimeError
        If a file changes while it is measured.
    """
    log = log or Log()
    record = log.begin(heading)
    if record.seconds is not None:
        return record
    samples, has = list(record.samples), {(s.row, s.case, s.round): s for s in record.samples}
    identities = {Path(path): cache.identity(path) for path in files}
    hidden = [str(folder) for folder in (place, *{path.parent for path in identities}) if folder is not None]
    chance, patience = random.Random(settings.seed), Patience(settings.idle_wait)  # noqa: S311 - an order
    left, begun = list(turns), time.monotonic()
    for number in range(settings.rounds):
        order = chance.sample(left, len(left))
        for position, turn in enumerate(order):
            sample = has.get((turn.row, turn.case, number))
            if sample is None:
                rest = len(order) - position + len(left) * (settings.rounds - number - 1)
                watch(Progress(len(samples), len(samples) + rest, ", ".join((turn.row, *turn.case))))
                sample = take(turn, number, settings, place, patience, hidden)
                samples.append(sample)
                log.add(sample)
            if turn.last(sample):
                left.remove(turn)
            for path, identity in identities.items():
                if cache.identity(path) != identity:
                    raise RuntimeError(f"{path.name} changed while it was measured")
    seconds = time.monotonic() - begun
    log.end(seconds)
    watch(Progress(len(samples), len(samples), ""))
    return replace(record, samples=tuple(samples), seconds=round(seconds, 1))


def take(
    turn: Turn,
    number: int,
    settings: Settings,
    place: Path | None = None,
    patience: Patience | None = None,
    hidden: Iterable[str] = (),
) -> Sample:
    """Take one sample; a failure is its result. `hidden` are folders that no reason may name."""
    sample, attempt = Sample(turn.row, turn.case, number), Attempt(turn, settings, place, patience or Patience(0))
    try:
        memory.refuse_too_much(turn.memory)
        numbers, points, processes = turn.take(attempt)
        sample = replace(
            sample,
            numbers={name: value for name, value in numbers.items() if value is not None},
            points=tuple(points),
            processes=tuple({k: v for k, v in each.items() if v is not None} for each in processes),
        )
    except SampleError as failure:
        reason = functools.reduce(lambda words, folder: words.replace(folder, ""), hidden, failure.reason)
        sample = replace(sample, state=failure.state, reason=without_home(reason))
    finally:
        attempt.stack.close()
    return replace(sample, started=attempt.started, idle_share=attempt.idle_share)


def without_home(text: str) -> str:
    """Return a text with the home folder as "~"."""
    home = str(Path.home())
    return text.replace(home, "~") if len(home) > 1 else text  # the root folder as a home would match every path
