"""Rounds of samples: the loop that runs every scenario.

A *trial* is one row in one case. A *round* runs every trial once, in a new (seeded) random order, so that a slowdown of
the machine or a disk affects all trials. A *sample* is one trial in one round. Fresh processes start and report
"ready". The page cache is brought into the required state and checked, and the parent waits until the machine is idle.
Then all processes are released together. Memory is polled while they work, and measured while they hold their data.

A failed sample is recorded with a state and a reason, and the run continues. Ctrl-C or an error in the parent ends the
run; in both cases, all processes are killed.
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

from onecopy.files import page_cache
from onecopy_bench import system
from onecopy_bench.record import Case, Log, Record, Sample
from onecopy_bench.worker import SampleError

IDLE = 0.93
"""The machine counts as idle if at least this share of its CPU time is idle."""
MEMORY_SHARE = 0.8
"""A sample that needs more than this share of the available memory is skipped."""
_WINDOW_S = 0.2


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that all scenarios share; the help text of the options explains them."""

    rounds: int = 5
    timeout: float = 900.0
    idle_wait: float = 60.0
    backed: bool = False
    seed: int = 0


class Measured(NamedTuple):
    """A sample's measurements. Unknown numbers are None and are not written to the record."""

    numbers: Mapping[str, float | None]
    points: Iterable[tuple[float, ...]] = ()
    processes: Iterable[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class Trial:
    """One row in one case, sampled once per round. `memory` is the number of private bytes that a sample needs."""

    row: str
    case: Case
    memory: float
    measure: Callable[[Attempt], Measured]


class Progress(NamedTuple):
    """The progress of a run: `done` of `total` samples, and the name of the next one ("" at the end)."""

    done: int
    total: int
    next: str


Watch = Callable[[Progress], None]


def _cpu_ticks() -> tuple[int, int]:
    """Return the number of idle clock ticks, and of all clock ticks, of all CPUs since boot."""
    # user nice system idle iowait irq softirq steal; guest time is part of user time
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def _idle_share(seconds: float) -> float:
    idle, total = _cpu_ticks()
    time.sleep(seconds)
    idle_after, total_after = _cpu_ticks()
    return (idle_after - idle) / max(total_after - total, 1)


class IdleWait:
    """Waits until the machine is idle, for at most `seconds` in all calls together.

    Times measured while the machine does other work are meaningless. Waiting for a disk counts as idle; time stolen by
    a hypervisor does not. After these seconds, samples are taken anyway; the record states how busy the machine is.
    """

    def __init__(self, seconds: float) -> None:
        self._windows = round(seconds / _WINDOW_S)

    def wait(self) -> float | None:
        """Wait, and return the last idle share, or None if the seconds were already used up."""
        share = None
        while self._windows > 0:
            share = _idle_share(_WINDOW_S)
            if share > IDLE:
                break
            self._windows -= 1
        return share


class Attempt:
    """Provides a sample with empty folders, which are removed afterwards, and waits for an idle machine."""

    def __init__(self, trial: Trial, settings: Settings, place: Path | None, idle: IdleWait) -> None:
        self._trial, self._settings, self._place, self._idle = trial, settings, place, idle
        self.stack = contextlib.ExitStack()
        self.started = ""
        self.idle_share: float | None = None

    def folder(self) -> Path:
        """Create and return a new empty folder inside the run's folder."""
        return Path(self.stack.enter_context(tempfile.TemporaryDirectory(dir=self._place)))

    def back(self, more: int = 0) -> None:
        """With `--backed`, touch and free the memory that the trial needs, and `more` bytes."""
        if self._settings.backed:
            system.back_memory(round(self._trial.memory) + more)

    def wait(self) -> None:
        """Wait for an idle machine, within the run's limit, just before the processes are released."""
        self.idle_share = self._idle.wait()
        self.started = datetime.now(UTC).isoformat(timespec="milliseconds")

    def begin(self) -> None:
        """Call `back` and `wait`; for trials that do not prepare the page cache."""
        self.back()
        self.wait()


def run(
    heading: Record,
    trials: Sequence[Trial],
    settings: Settings,
    place: Path | None = None,
    *,
    watch: Watch = lambda _: None,
    log: Log | None = None,
    files: Iterable[str | os.PathLike[str]] = (),
) -> Record:
    """Take every sample that the log lacks, and return the whole record.

    `heading` is the record without samples, `place` the folder for the samples' files (None: the folder for temporary
    files), and `files` are the measured files. `watch` is called before each sample and at the end. Raise ValueError if
    the log belongs to another run, and RuntimeError if a file changes while it is measured.
    """
    log = log or Log()
    record = log.begin(heading)
    if record.seconds is not None:
        return record
    samples, known = list(record.samples), {(s.row, s.case, s.round) for s in record.samples}
    identities = {Path(path): system.identity(path) for path in files}
    hidden = [str(folder) for folder in (place, *{path.parent for path in identities}) if folder is not None]
    chance, idle = random.Random(settings.seed), IdleWait(settings.idle_wait)  # noqa: S311 - an order
    begun, wanted = time.monotonic(), settings.rounds * len(trials)
    for number in range(settings.rounds):
        for trial in chance.sample(trials, len(trials)):
            if (trial.row, trial.case, number) not in known:
                watch(Progress(len(samples), wanted, ", ".join((trial.row, *trial.case))))
                samples.append(take_sample(trial, number, settings, place, idle, hidden))
                log.add(samples[-1])
            for path, identity in identities.items():
                if system.identity(path) != identity:
                    raise RuntimeError(f"{path.name} changed while it was measured")
    seconds = time.monotonic() - begun
    log.end(seconds)
    watch(Progress(len(samples), len(samples), ""))
    return replace(record, samples=tuple(samples), seconds=round(seconds, 1))


def take_sample(
    trial: Trial,
    number: int,
    settings: Settings,
    place: Path | None = None,
    idle: IdleWait | None = None,
    hidden: Iterable[str] = (),
) -> Sample:
    """Take one sample. A failure is also returned as a sample, whose reason omits the folders in `hidden`."""
    sample, attempt = Sample(trial.row, trial.case, number), Attempt(trial, settings, place, idle or IdleWait(0))
    available = page_cache.available_memory()
    try:
        if available is not None and trial.memory > MEMORY_SHARE * available:
            needs = f"needs {trial.memory / 1e6:.0f} MB of private memory"
            raise SampleError(
                "skipped", f"{needs}, more than {MEMORY_SHARE:.0%} of the available {available / 1e6:.0f} MB"
            )
        numbers, points, processes = trial.measure(attempt)
        known = tuple({k: v for k, v in each.items() if v is not None} for each in (numbers, *processes))
        sample = replace(sample, numbers=known[0], points=tuple(points), processes=known[1:])
    except SampleError as failure:
        reason = functools.reduce(lambda words, folder: words.replace(folder, ""), hidden, failure.reason)
        sample = replace(sample, state=failure.state, reason=without_home(reason))
    finally:
        attempt.stack.close()
    return replace(sample, started=attempt.started, idle_share=attempt.idle_share)


def without_home(text: str) -> str:
    """Replace the home folder in a text with "~"."""
    home = str(Path.home())
    return text.replace(home, "~") if len(home) > 1 else text  # the root folder as a home would match every path
