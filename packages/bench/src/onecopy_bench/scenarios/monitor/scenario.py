"""`onecopy bench monitor`: what sampling memory costs, how right it is, and what it does to the processes sampled.

Every sample is a fresh group of processes that hold something, and a fresh process that samples them by one way, some
times a second. Ways take turns in every case. The truth is the sum of PSS, taken while nothing changes, or right after
the look while something does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import click

from onecopy_bench.engine import options as cli
from onecopy_bench.engine import rounds
from onecopy_bench.engine.crew import Crew, SampleError, crew_of
from onecopy_bench.engine.options import Measure
from onecopy_bench.engine.pages import Scenario, rounds_of
from onecopy_bench.engine.pictures import panels
from onecopy_bench.engine.record import Case, Log, Record, heading
from onecopy_bench.engine.rounds import Attempt, Progress, Settings, Taken, Turn, Watch
from onecopy_bench.engine.tables import MB, Column, Spread, Table, counted, number, plain, table
from onecopy_bench.engine.ways import named
from onecopy_bench.scenarios.monitor import cases, target, watcher, ways
from onecopy_bench.scenarios.monitor.ways import ACCURACY, DISTURBANCE, NAMES, NOBODY, QUESTIONS, WAYS, available
from onecopy_bench.scenarios.start.scenario import write
from onecopy_monitor.cli import top_screen

NAME = "monitor"
TRUTH_EVERY = 5
"""Looks, between two readings of the truth."""
INTERVAL = click.FloatRange(min=0.001, max=60)
AROUND_S = 0.5
"""How much longer than the faults the watching lasts."""


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How the scenario is run: each sample takes `seconds`, with a snapshot every `interval` seconds."""

    questions: tuple[str, ...] = cli.field(QUESTIONS, "What is asked.", "--question", choices=QUESTIONS)
    ways: tuple[str, ...] = cli.field(NAMES, "Which way of sampling.", "--way", choices=NAMES)
    size: int = cli.size("1GiB", "Of the file; a quarter is what processes share.")
    seconds: float = cli.field(5.0, "How long each sample lasts.")
    interval: float = cli.field(0.1, "Seconds between two snapshots, more if a way needs more.", type=INTERVAL)
    processes: int = cli.field(500, "Of the crowd.", type=click.IntRange(min=1, max=10_000))


def run(
    place: Path, options: Options, watch: Watch = lambda _: None, log: Log | None = None, screen: str = ""
) -> Record:
    """Measure every way in every case, with a file in a folder on a disk.

    `screen` is the module that draws a look, for the way that draws; empty: that row is absent.

    Raises
    ------
    OSError
        If the file cannot be written.
    ValueError
        If the log is of another run.
    """
    watch(Progress(0, 1, "writing the file"))
    files = {"": "", "file": str(place / "mapped.bin"), "small": str(place / "small.bin")}
    write(place / "mapped.bin", options.size)
    write(place / "small.bin", cases.MAPPINGS * target.PAGE)
    chosen, absent = available(options.ways, screen)
    head = heading(NAME, place, options, chosen, data={"bytes": options.size}, absent=absent)
    turns = [
        Turn(way.name, case.name, case.memory, sample(way, case, files, options, screen))
        for question in options.questions
        for case in cases.cases_of(question, options.size, options.seconds, options.processes)
        for way in chosen
        if question in way.questions
    ]
    return rounds.run(head, turns, options, place, watch=watch, log=log)


def sample(
    way: ways.Way, case: cases.Case, files: dict[str, str], options: Options, screen: str
) -> Callable[[Attempt], Taken]:
    """Return what takes one sample."""
    errand = replace(case.errand, path=files[case.errand.path])

    def take(attempt: Attempt) -> Taken:
        attempt.begin()
        with crew_of(target.__name__, errand, case.copies, options.timeout) as targets:
            pids = tuple(itertools.chain.from_iterable(one["pids"] for one in targets.step("started")))
            if case.when == cases.AFTER:
                targets.step("done")
            looking = watcher_of(way, case, pids, options, screen)
            with crew_of(watcher.__name__, looking, 1, options.timeout) as watchers:
                numbers = watched(case, targets, watchers)
                watchers.dismiss()
            targets.dismiss()
        if way.name != NOBODY and numbers["said"] <= 0:
            raise SampleError("wrong data", f"it says that {len(pids)} processes hold {numbers['said']:g} bytes")
        return Taken(numbers)

    return take


def watcher_of(way: ways.Way, case: cases.Case, pids: tuple[int, ...], options: Options, screen: str) -> watcher.Errand:
    """Return the errand of the process that looks."""
    faulting = case.question == DISTURBANCE
    longer = min(target.WARM_UP_S, options.seconds) + AROUND_S if faulting else 0.0
    every = TRUTH_EVERY if case.question == ACCURACY else 0
    return watcher.Errand(way.name, pids, options.seconds + longer, options.interval, every, screen)


def watched(case: cases.Case, targets: Crew, watchers: Crew) -> dict[str, float]:
    """Look, while processes do what they do in this case; return the numbers of both sides."""
    watchers.release()
    if case.when == cases.WHILE:
        targets.release()
    (message,) = watchers.gather("looked")
    numbers = {name: float(value) for name, value in message.items() if name != "phase"}
    if case.when == cases.WHILE:
        for done in targets.gather("done"):
            numbers |= done["numbers"]
    return numbers


BAR = 1.0
"""Per cent of their page faults that sampling may cost the processes sampled."""


def slower(record: Record, row: str, case: Case) -> Spread | None:
    """Return by how many per cent fewer faults there were than without sampling, paired by round."""
    alone = {s.round: s.numbers["faults_per_s"] for s in record.of(NOBODY, case) if "faults_per_s" in s.numbers}
    mine = (s for s in record.of(row, case) if "faults_per_s" in s.numbers and s.round in alone)
    return Spread.of(100 * (1 - s.numbers["faults_per_s"] / alone[s.round]) for s in mine)


def headline(record: Record, row: str, case: Case) -> Spread | None:
    """Return the number that a case is about: ms of CPU time a look, the worst error, or the slowdown in %."""
    if case[0] == ACCURACY:
        found = plain("worst_error", 0.01)(record, row, case)
        return None if found is None else Spread(*(abs(v) for v in (found.median, found.low, found.high)))
    return slower(record, row, case) if case[0] == DISTURBANCE else plain("mean_ns", 1e6)(record, row, case)


DRAWN = {"ms a look, or % of error or slowdown": headline, "of a CPU, %": plain("share", 0.01)}
COLUMNS: dict[str, tuple[Column, ...]] = {
    ways.COST: (
        ("following:\nmedian ms", plain("median_ns", 1e6)),
        ("least\nms", plain("least_ns", 1e6)),
        ("most\nms", plain("most_ns", 1e6)),
        ("all, each\nms", plain("mean_ns", 1e6)),
        ("first\nms", plain("first_ns", 1e6)),
        ("of a\nCPU %", plain("share", 0.01)),
        ("looks", plain("looks")),
        ("says\nMB", plain("said", MB)),
    ),
    ACCURACY: (
        ("says\nMB", plain("told", MB)),
        ("truth\nMB", plain("truth", MB)),
        ("error\n%", plain("error", 0.01)),
        ("first\nlook %", plain("first_error", 0.01)),
        ("worst\n%", plain("worst_error", 0.01)),
    ),
    DISTURBANCE: (
        ("slower\n%", slower),
        ("faults/s\nx 1000", plain("faults_per_s", 1e3)),
        ("256 faults:\nmedian us", plain("piece_ns", 1e3)),
        ("99 %\nus", plain("p99_ns", 1e3)),
        ("longest\nms", plain("longest_ns", 1e6)),
        ("sampling:\nof a CPU %", plain("share", 0.01)),
    ),
}
COLUMNS[ways.CROWD] = (
    ("first: wall\nms", plain("first_wall_ns", 1e6)),
    ("following:\nwall ms", plain("wall_ns", 1e6)),
    *COLUMNS[ways.COST],
)
TITLES = {
    ways.COST: "What a look costs, CPU time",
    ways.CROWD: "A look at many",
    ACCURACY: "What they hold together",
    DISTURBANCE: "Processes that are sampled",
}


def tables_of(record: Record) -> Iterator[Table]:
    """Yield a table for each case, in the order of the questions."""
    for case in cases_of(record):
        every = [row.name for row in record.rows] + [absent.name for absent in record.absent]
        names = [name for name in every if case[0] in named(WAYS, name).questions]
        yield table(record, f"{TITLES[case[0]]}: {case[1]}", case, names, COLUMNS[case[0]])


def cases_of(record: Record) -> list[Case]:
    """Return the cases that were measured, in the order of the questions and of their making."""
    size, seconds, processes = (record.options[name] for name in ("size", "seconds", "processes"))
    every = [case.name for question in QUESTIONS for case in cases.cases_of(question, size, seconds, processes)]
    met = {sample.case for sample in record.samples}
    return [case for case in every if case in met]


def described(record: Record) -> str:
    """Return what was measured, in one line."""
    options = record.options
    rate = options["hz"] if "hz" in options else 1 / options["interval"]  # "hz": committed records
    return (
        f"monitor: snapshots at {rate:g} Hz for {options['seconds']:g} s; a file of "
        f"{record.data['bytes'] / MB:.1f} MB; {counted(rounds_of(record), 'round')}"
    )


def findings(record: Record) -> Iterator[str]:
    """Yield, for each case, how ours compares with others, and with the bar."""
    for case in cases_of(record):
        found = {row.name: headline(record, row.name, case) for row in record.rows}
        known = {name: spread.median for name, spread in found.items() if spread is not None}
        ours = known.pop(ways.OURS, None)
        if ours is not None:
            others = {name: value for name, value in known.items() if name not in (ways.DRAWN, NOBODY)}
            yield from _said(record, case, ours, others)


def _said(record: Record, case: Case, ours: float, others: dict[str, float]) -> Iterator[str]:
    words = f"{case[0]}, {case[1]}"
    beside = "; ".join(f"{name} {number(value)}" for name, value in others.items())
    if case[0] == ACCURACY:
        told = f"{words}: onecopy was off by {number(ours)} % at worst"
        yield told + (f", and by others: {beside}." if beside else ".")
    elif case[0] == DISTURBANCE:
        spread = slower(record, ways.OURS, case)
        if spread is not None:
            bar = "below" if ours < BAR else "not below"
            extremes = f"{number(spread.low)} to {number(spread.high)}"
            told = f"{words}: {number(ours)} % ({extremes}) fewer while onecopy looks: the median is {bar} {BAR:g} %"
            yield told + (f"; {beside}." if beside else ".")
    elif right := [name for name in others if named(WAYS, name).once]:
        best = min(right, key=others.__getitem__)
        ratio = number(others[best] / max(ours, 1e-9))
        yield f"{words}: onecopy {number(ours)} ms a look; {beside}. {best}, the cheapest that counts once: {ratio} x."


SCENARIO = Scenario(
    NAME,
    described,
    tables_of,
    findings,
    lambda figure, record: panels(figure, record, cases_of(record), ", ".join, DRAWN),
)


@click.command(NAME)
@cli.common(SCENARIO, Options())
def command(*, options: Options, measure: Measure) -> None:
    """Measure sampling the memory of processes: by onecopy, by a sum of PSS, by psutil, by ps.

    What a look costs, as CPU time of the process that looks, also at a crowd; how far what it reports is from the sum
    of PSS, while processes share a file, are forked, or copy what they share; and how many page faults a process can
    take while it is sampled. Each sample is a fresh group of processes and a fresh one that looks. Without psutil its
    rows are left out.
    """
    measure(lambda place, watch, log: run(place, options, watch, log, top_screen.__name__))
