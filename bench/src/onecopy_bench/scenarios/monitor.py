"""The scenario `monitor`: what looking at memory costs, how right it is, and what it does to who is looked at.

Every sample is a fresh group of processes that hold something, and a fresh process that looks at them by one way,
some times a second. Ways take turns in every case. The truth is the sum of PSS, taken while nothing changes, or right
after the look while something does.
"""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onecopy_bench import runner
from onecopy_bench.children import SampleError
from onecopy_bench.monitors import cases, target, watcher
from onecopy_bench.monitors.tables import NAME
from onecopy_bench.monitors.ways import ACCURACY, DISTURBANCE, NAMES, NOBODY, QUESTIONS, Way, available
from onecopy_bench.records import rounds
from onecopy_bench.records.rounds import Settings, Turn
from onecopy_bench.scenarios.start import write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from onecopy_bench.children import Crew
    from onecopy_bench.monitors.cases import Case
    from onecopy_bench.records.record import Run, RunJournal
    from onecopy_bench.records.rounds import Result

TRUTH_EVERY = 5
"""Looks, between two readings of the truth."""
_AROUND_S = 0.5
"""How much longer than the faults the watching lasts."""


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How the scenario is run.

    Attributes
    ----------
    size
        Bytes of the file that is mapped; what forked processes share is a quarter of it.
    seconds, hz
        How long each sample looks, and how often.
    processes
        Of the crowd.
    questions, ways
        What is asked, and of whom.
    """

    size: int = 1 << 30
    seconds: float = 5.0
    hz: float = 10.0
    processes: int = 500
    questions: tuple[str, ...] = QUESTIONS
    ways: tuple[str, ...] = NAMES


def run(
    place: Path,
    options: Options = Options(),
    watch: Callable[[runner.Progress], None] = lambda _: None,
    journal: RunJournal | None = None,
    screen: str = "",
) -> Run:
    """Measure every way in every case and return the record.

    Parameters
    ----------
    place
        A folder for the file that is mapped, on a disk.
    options
        Sizes, seconds, questions.
    watch
        Called before each sample and at the end.
    journal
        Where samples are kept as they come, and found again.
    screen
        The module that draws a look, for the way that draws; empty: that row is absent.

    Raises
    ------
    OSError
        If the file cannot be written.
    ValueError
        If the journal is of another run.
    """
    watch(runner.Progress(0, 1, "writing the file"))
    files = {"": "", "file": str(place / "mapped.bin"), "small": str(place / "small.bin")}
    write(place / "mapped.bin", options.size)
    write(place / "small.bin", cases.MAPPINGS * target.PAGE)
    chosen, absent = available(options.ways, screen)
    heading = rounds.heading(NAME, place, options, chosen, data={"bytes": options.size}, absent=absent)
    found = [
        Turn(way.name, case.name, case.memory, sample(way, case, files, options, screen))
        for question in options.questions
        for case in cases.cases_of(question, options.size, options.seconds, options.processes)
        for way in chosen
        if question in way.questions
    ]
    return rounds.run(heading, found, options, place, watch=watch, journal=journal)


def sample(way: Way, case: Case, files: dict[str, str], options: Options, screen: str) -> Callable[[Path], Result]:
    """Return what takes one sample."""
    errand = dataclasses.replace(case.errand, path=files[case.errand.path])

    def take(_: Path) -> Result:
        with rounds.crew_of(target.__name__, errand, case.copies, options.timeout) as targets:
            targets.release("start")
            pids = tuple(itertools.chain.from_iterable(one["pids"] for one in targets.gather("started")))
            if case.when == cases.AFTER:
                targets.release("go")
                targets.gather("done")
            looking = watcher_of(way, case, pids, options, screen)
            with rounds.crew_of(watcher.__name__, looking, 1, options.timeout) as watchers:
                numbers = watched(case, targets, watchers)
                watchers.dismiss()
            targets.dismiss()
        if way.name != NOBODY and numbers["said"] <= 0:
            raise SampleError("wrong data", f"it says that {len(pids)} processes hold {numbers['said']:g} bytes")
        return dict(numbers), ()

    return take


def watcher_of(way: Way, case: Case, pids: tuple[int, ...], options: Options, screen: str) -> watcher.Errand:
    """Return what the one who looks has to do."""
    faulting = case.question == DISTURBANCE
    longer = min(target.WARM_UP_S, options.seconds) + _AROUND_S if faulting else 0.0
    every = TRUTH_EVERY if case.question == ACCURACY else 0
    return watcher.Errand(way.name, pids, options.seconds + longer, options.hz, every, screen)


def watched(case: Case, targets: Crew, watchers: Crew) -> dict[str, float]:
    """Look, while processes do what they do in this case; return the numbers of both sides."""
    watchers.release("start")
    if case.when == cases.WHILE:
        targets.release("go")
    (message,) = watchers.gather("looked")
    numbers = {name: float(value) for name, value in message.items() if name != "phase"}
    if case.when == cases.WHILE:
        for done in targets.gather("done"):
            numbers |= done["numbers"]
    return numbers
