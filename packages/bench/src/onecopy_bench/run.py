"""`onecopy bench run`: measure N copies of any program, and N copies of a baseline in the same rounds.

A sample evicts files, starts all copies together, waits until they are ready, measures them while they hold their data,
and stops them. Times are those of the median and slowest copy; memory is a sum. Ratios and differences are medians over
rounds in which both commands succeeded. The record shows the command line, with "~" for the home folder.

With `--program`, the commands are programs in this package that load a file through a framework. Each program runs
unchanged, under `onecopy run`, and (if available) in a version rewritten to map its file.

Each copy is started by a worker (see `copies`), once all workers are ready. The memory of workers is not counted.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onecopy.base.text import counted
from onecopy_bench import copies, programs, system
from onecopy_bench.copies import members_of, numbered
from onecopy_bench.peers import installed, named
from onecopy_bench.processes import Workers, command_of, first_line_of
from onecopy_bench.programs import ANSWERED, PROGRAMS, Program
from onecopy_bench.record import Absent, Case, Record, Row, Sample, Spread
from onecopy_bench.runs import Attempt, Measured, Settings, Trial, without_home
from onecopy_bench.scenario import (
    Plan,
    Scenario,
    Setup,
    UsageError,
    argument,
    limits_of_cold_runs,
    option,
    size_option,
    usual_limits,
)
from onecopy_bench.system import Peak, difference, disk_bytes, sum_of, totals_of
from onecopy_bench.tables import MB, MISSING, Table, cell, percentile_99, slowest
from onecopy_bench.worker import SampleError

NAME = "run"
NAMES = tuple(program.name for program in PROGRAMS)
COMMAND, BASELINE, REWRITTEN, MAPPED = "command", "baseline", "rewritten", "mapped"
UNDER = (sys.executable, "-P", "-m", "onecopy", "run", "--quiet")
HOLD = "Milliseconds to wait after all copies are ready, before memory is measured."
BASE = "Another command (quoted as one word) to compare with COMMAND in each round."
PROGRAM = "Instead of COMMAND, run a program that loads a file in -n workers: with onecopy run, without, and rewritten."


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """The scenario's options. Without `ready`, a copy is ready when it has ended."""

    rounds: int = 3
    timeout: float = 120.0
    idle_wait: float = 0.0
    command: tuple[str, ...] = argument("-- COMMAND...", (), kind="words")
    baseline: str | None = option(None, BASE, metavar="CMD")
    processes: int = option(1, "Number of copies that are started at the same time.", "-n", "--processes")
    ready: str | None = option(None, "A copy is ready when it prints this on stdout or stderr.", metavar="TEXT")
    hold_ms: float = option(500.0, HOLD, at_least=0.0, metavar="M")
    evict: tuple[str, ...] = option(
        (), "Drop this file from the page cache before each start.", metavar="FILE", kind="existing", is_path=True
    )
    programs: tuple[str, ...] = option((), PROGRAM, "--program", choices=NAMES, shown=())
    size: int = size_option("1GB", "Approximate size of the file that a --program loads.")
    requests: int = option(100, "Number of requests that each worker of a --program answers.")


def plan(setup: Setup, options: Options) -> Plan:
    """Plan the runs of a command or of programs, and of the baseline."""
    absent: list[Absent] = []
    data: dict[str, Any] = {}
    if options.programs:
        chosen, absent = installed(PROGRAMS, options.programs)
        trials: list[Trial] = []
        for at, program in enumerate(chosen):
            setup.say(f"writing the file of {program.name}", at, len(chosen))
            found, data[program.name] = _trials_of(program, setup.place / f"program-{at}", options)
            trials += found
        rows = [Row(COMMAND, "under onecopy run"), Row(BASELINE, "without onecopy run")]
        rows += [Row(REWRITTEN, "its file or calls changed")] if any(p.rewritten for p in chosen) else []
        rows += [Row(MAPPED, "under onecopy run --map FOLDER")] if any(p.immutable for p in chosen) else []
    else:
        commands = {COMMAND: options.command, BASELINE: tuple(shlex.split(options.baseline or ""))}
        commands = {name: words for name, words in commands.items() if words}
        trials = [Trial(name, (), 0.0, measuring(words, options)) for name, words in commands.items()]
        data |= {name: [without_home(word) for word in words] for name, words in commands.items()}
        rows = [Row(name, shlex.join(words)) for name, words in data.items()]
    disk = Path(options.evict[0]) if options.evict else Path.cwd()
    return Plan(rows, trials, data, absent, disk, options=replace(options, command=(), baseline=None))


def _trials_of(program: Program, folder: Path, options: Options) -> tuple[list[Trial], int]:
    """Write a program's files. Return its trials, and the size of its file in bytes."""
    folder.mkdir()
    words = ("env", f"ONECOPY_CACHE={folder.parent / 'store'}", "OMP_NUM_THREADS=1")
    counts = (str(options.processes), str(options.requests))
    settings = replace(options, processes=1, ready=ANSWERED)
    paths: dict[str, Path] = {}
    trials = []
    for row, name, under in (
        (COMMAND, program.name, (*UNDER, "--")),
        (BASELINE, program.name, ()),
        (REWRITTEN, program.rewritten, ()),
        (MAPPED, program.name if program.immutable else "", (*UNDER, "--map", str(folder), "--")),
    ):
        if name and name not in paths:
            paths[name] = folder / f"data-{len(paths)}"
            named(PROGRAMS, name).make(str(paths[name]), options.size)
        if name:
            server = (sys.executable, "-P", "-m", programs.MODULE, name, str(paths[name]), *counts)
            size = paths[name].stat().st_size
            measure = measuring((*words, *under, *server), settings, folder, size)
            trials.append(Trial(row, (program.name,), options.processes * 2.0 * size, measure))
    return trials, paths[program.name].stat().st_size


def measuring(
    command: Sequence[str], options: Options, folder: Path | None = None, size: int = 0
) -> Callable[[Attempt], Measured]:
    """Return a function that takes one sample. If `folder` is given, a program's workers write measurements to it."""
    arguments = {"command": list(command), "ready": options.ready, "hold_s": options.hold_ms / 1e3}
    arguments["limit_s"] = options.timeout
    workers_of = [command_of(copies.__name__, [f"{copies.VARIABLE}={number}"]) for number in range(options.processes)]

    def measure(attempt: Attempt) -> Measured:
        for path in options.evict:
            system.set_cache_state(path, "cold")
        with Workers(workers_of, first_line_of(arguments), options.timeout + 3 * copies.GRACE_S) as workers:
            workers.gather("ready")
            attempt.wait()
            cached, disk = sum_of(map(system.cached_bytes, options.evict)), _disk_bytes(options.evict)
            peak = Peak(lambda: [pid for worker in workers.pids for pid in members_of(worker)])
            running = workers.step("running", peak.poll)
            workers.step("held", peak.poll)
            held = [totals_of(members_of(worker)) for worker in workers.pids]
            read = difference(_disk_bytes(options.evict), disk)
            ended = workers.step("ended")
            workers.dismiss()
        numbers: dict[str, float | None] = {
            "peak_anonymous": max(peak.bytes, sum(each["anonymous"] for each in held)),
            "disk_bytes": read,
            "cached_before": cached if options.evict else None,
            "killed": sum(message["killed"] for message in ended),
        }
        totals = held if options.ready is not None else [{} for _ in held]
        if folder is not None:
            more = _answers(folder, size)
            running = [{"ready_ns": more.pop("load_ns")}]
            numbers |= more
        return Measured(numbers, processes=[{**one, **two} for one, two in zip(running, totals, strict=True)])

    return measure


def _answers(folder: Path, size: int) -> dict[str, Any]:
    """Return the measurements of a program's workers. Raise SampleError if their results differ."""
    found = []
    for path in folder.glob("answers-*.json"):
        found.append(json.loads(path.read_text()))
        path.unlink()
    sums = {each["checksum"] for each in found}
    if len(sums) != 1:
        raise SampleError("wrong data", f"the results of the workers differ: {sorted(sums)}")
    times = [time for each in found for time in each["times_ns"]]
    return {
        "load_ns": max(each["load_ns"] for each in found),
        "held_share": sum(each["pss"] for each in found) / size,
        "worker_private": sum(each["anonymous"] for each in found) / len(found),
        "p50_ns": statistics.median(times),
        "p99_ns": percentile_99(times),
        "checksum": sums.pop(),
    }


def _disk_bytes(paths: Sequence[str]) -> int | None:
    """Return the bytes read since boot from the disks of these files or, if none, of the working directory."""
    return sum_of(map(disk_bytes, {Path(path).stat().st_dev: path for path in paths or (os.curdir,)}.values()))


def _sum(name: str, unit: float = MB) -> Callable[[Sample], float | None]:
    """Return a function that sums a number over all copies, or returns None if it is unknown for any copy."""
    return lambda s: sum(p[name] for p in s.processes) / unit if all(name in p for p in s.processes) else None


def _number(name: str, unit: float = MB) -> Callable[[Sample], float | None]:
    return lambda sample: sample.numbers[name] / unit if name in sample.numbers else None


MEASURES: dict[str, Callable[[Sample], float | None]] = {
    "ready, median copy, s": lambda s: statistics.median(each["ready_ns"] for each in s.processes) / 1e9,
    "ready, slowest copy, s": slowest("ready_ns", 1e9),
    "held by all, copies of the file": _number("held_share", 1),
    "private to a worker, MB": _number("worker_private"),
    "a request, p50, ms": _number("p50_ns", 1e6),
    "a request, p99, ms": _number("p99_ns", 1e6),
    "PSS, MB": _sum("pss"),
    "anonymous (PSS), MB": _sum("anonymous_pss"),
    "file (PSS), MB": _sum("file"),
    "shared memory (PSS), MB": _sum("shmem"),
    "private, MB": _sum("private"),
    "swap, MB": _sum("swap"),
    "page tables, MB": _sum("page_tables"),
    "peak anonymous (RSS), MB": _number("peak_anonymous"),
    "read from disk, MB": _number("disk_bytes"),
    "major faults": _sum("major_faults", 1),
    "minor faults": _sum("minor_faults", 1),
    "processes": _sum("processes", 1),
}
"""A table's measures by name, each computed from one sample."""


def spreads_of(record: Record, name: str, case: Case = ()) -> dict[str, Spread | None]:
    """Return a measure for each row, and the ratio and difference between command and baseline, paired by round."""
    rows = {
        row: {s.round: each for s in record.of(row, case) if (each := MEASURES[name](s)) is not None}
        for row in (COMMAND, BASELINE, REWRITTEN, MAPPED)
    }
    command, baseline = rows[COMMAND], rows[BASELINE]
    pairs = [(command[number], baseline[number]) for number in command if number in baseline]
    found = {row: Spread.of(values.values()) for row, values in rows.items()}
    found["ratio"] = Spread.of(mine / other for mine, other in pairs if other > 0)
    return found | {"difference": Spread.of(mine - other for mine, other in pairs)}


def _tables(record: Record) -> Iterator[Table]:
    """Yield a table for each case, with a line per measure, including any baseline and the comparison with it."""
    for case in record.cases() or ((),):
        lines = {name: spreads_of(record, name, case) for name in MEASURES}
        titles = [row for row in next(iter(lines.values())) if any(line[row] for line in lines.values())]
        words = "; ratio and difference: median of paired rounds" if "ratio" in titles else ""
        title = f"Medians (min-max) over the rounds; memory of all copies together, with their children{words}"
        rows = ((name, *(cell(line[row]) for row in titles)) for name, line in lines.items())
        shown = tuple(row for row in rows if set(row[1:]) - {MISSING})
        if shown:
            yield Table(f"{case[0]}: {title}" if case else title, ("", *titles), shown)


def _described(record: Record) -> str:
    evicted = record.options["evict"]
    state = f", {', '.join(evicted)} evicted" if evicted else ""
    of_programs = ("worker of each program", "workers of each program")
    nouns = of_programs if record.options["programs"] else ("copy", "copies")
    return f"{counted(record.options['processes'], *nouns)}{state}"


def _limits(record: Record) -> Iterator[str]:
    """Yield sentences about the limits of the numbers: killed processes, copies that ended, and the usual limits."""
    if killed := sum(s.numbers.get("killed", 0) for s in record.samples):
        yield f"{killed:.0f} processes did not end on SIGTERM and were killed."
    if record.options["ready"] is None and not record.options["programs"]:
        yield "Copies count as ready when they have ended, so only the peak of their memory is known."
    yield from (limits_of_cold_runs if record.options["evict"] else usual_limits)(record)


def _findings(record: Record) -> Iterator[str]:
    """Yield the commands and, for programs, whether the results of all rows are equal, or else which rows differ."""
    yield from (f"{row.name}: {row.detail}" for row in record.rows)
    for case in record.cases():
        sums: dict[str, set[float]] = {}
        for sample in record.samples:
            if sample.case == case and sample.state == "ok":
                sums.setdefault(sample.row, set()).add(sample.numbers["checksum"])
        wanted = sums.get(BASELINE) or set().union(*sums.values())
        others = [name for name, found in sums.items() if found != wanted or len(found) > 1]
        which = f": {', '.join(others)}" if others else ""
        yield f"{case[0]}: results {'equal' if sums and not others else 'DIFFER' + which}."


def _adjusted(options: Options) -> Options:
    """Return the options unchanged. Raise UsageError if they are invalid."""
    if options.ready == "":
        raise UsageError("the text must not be empty", "--ready")
    if bool(options.command) == bool(options.programs):
        both = "specify either COMMAND or --program, not both"
        raise UsageError(both if options.command else "Missing argument '-- COMMAND...'")
    try:
        baseline = shlex.split(options.baseline or "")
    except ValueError as error:
        raise UsageError(f"{options.baseline!r}: {error}", "--baseline") from error
    for words in (options.command, baseline):
        if words and shutil.which(numbered(words, 0)[0]) is None:
            raise UsageError(f"program {words[0]!r} not found")
    return options


SCENARIO = Scenario(
    NAME,
    """Start N copies of COMMAND, wait until they are ready, and report their memory.

    In arguments, {i} is replaced with the number of the copy, from 0, so that copies can use different ports and
    folders. Without --ready, a copy is ready when it has ended with status 0. Memory includes all children of each
    copy. At the end every copy receives SIGTERM, and SIGKILL after five seconds.

    Example: onecopy bench run -n 4 --ready 'startup complete' -- python -u serve.py --port 80{i}

    Without COMMAND, unmodified programs load a file with torch or numpy, in workers that answer requests.
    """,
    Options(),
    plan,
    _described,
    _tables,
    _findings,
    limits=_limits,
    measures=MEASURES,
    adjust=_adjusted,
    without=("backed",),
    status=lambda record: 0 if any(s.row == COMMAND and s.state == "ok" for s in record.samples) else 1,
    settings={"context_settings": {"allow_interspersed_args": False}},
)
