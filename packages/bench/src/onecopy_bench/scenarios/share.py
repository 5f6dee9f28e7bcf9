"""`onecopy bench share`: what a dataset costs in a training job, by how it is held and how workers are started.

Each sample is a job of one or several ranks, as torchrun starts them, each with its workers. All ranks make the rows
ready; then all start their workers, which go over the rows; then all hold, and the whole is measured. The job is then
started a second time in the same folder: what is kept there is found. Another kind of sample builds in a process
without workers and measures what the allocator has not given back.

What is subtracted from each is a job of the same kind that holds ten rows.
"""

from __future__ import annotations

import ctypes.util
import itertools
import os
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import click
import numpy as np
from numpy.typing import NDArray

from onecopy.base.text import counted
from onecopy.memory import proc
from onecopy_bench.engine import rounds, scenario as cli
from onecopy_bench.engine.crew import SampleError, crew_of
from onecopy_bench.engine.machine import cache
from onecopy_bench.engine.memory import Peak, family_of, memory_of, totals_of
from onecopy_bench.engine.pictures import by_case
from onecopy_bench.engine.record import Absent, Log, Record, heading
from onecopy_bench.engine.rounds import Attempt, Progress, Settings, Taken, Turn, Watch
from onecopy_bench.engine.scenario import Scenario
from onecopy_bench.engine.tables import MB, Table, above_empty, plain, table
from onecopy_bench.engine.ways import installed
from onecopy_bench.workers import rank, rows
from onecopy_bench.workers.rank import Start
from onecopy_bench.workers.rivals import EMPTY, SHARED, Rival
from onecopy_bench.workers.rows import Kind, Source

NAME = "share"
STARTS: tuple[Start, ...] = get_args(Start)
ALLOCATORS = ("glibc", "malloc_trim", "jemalloc")
NAMES = tuple(rival.name for rival in SHARED if rival is not EMPTY)
DATA = "Made-up COCO annotations; those of --file, again and again; (path, label) pairs."
COLD = "Evict what a first run has kept before the second."
JEMALLOC = ctypes.util.find_library("jemalloc")
Sums = NDArray[np.uint64]
HEAP = "heap"
"""The first word of the cases that measure the builder's heap."""

WITH_TORCH, WITHOUT_TORCH = 300e6, 30e6
"""Private bytes of a process that has imported what it needs, roughly."""


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How the scenario is run; each of `starts` with each number of `ranks` is a case."""

    rows: int = cli.option(rows.COCO_ROWS, "Number of rows of the dataset.", type=click.IntRange(min=10))
    kind: Kind = cli.option("coco", DATA, "--data", type=click.Choice(("coco", "real", "pairs")))
    file: str | None = cli.option(None, "A COCO file, for --data real.", type=cli.EXISTING, path=True)
    rivals: tuple[str, ...] = cli.option(NAMES, "How the rows are held.", "--rival", choices=NAMES)
    starts: tuple[Start, ...] = cli.option(STARTS, "How workers are started.", "--start", choices=STARTS)
    ranks: tuple[int, ...] = cli.option((1, 2, 8), "Processes that each have workers, as torchrun starts them.")
    workers: int = cli.option(4, "Number of workers of each rank.")
    torch: bool = cli.option(True, "Import it in every process, where it is installed.", "--torch/--no-torch")
    limit_s: float = cli.option(120.0, "Seconds after which a pass stops.")
    allocators: tuple[str, ...] = cli.option(
        ALLOCATORS, "Allocator of the builder's heap.", "--allocator", choices=ALLOCATORS
    )
    no_heap: bool = cli.option(False, "Leave the builder's heap out.", "--no-heap", is_flag=True, show_default=False)
    cold: bool = cli.option(False, COLD, "--cold", is_flag=True, show_default=False)


def run(place: Path, options: Options, watch: Watch = lambda _: None, log: Log | None = None) -> Record:
    """Write the rows, and measure every rival."""
    return measure(prepared(place, options.kind, options.rows, options.file, watch), place, options, watch, log)


def measure(
    source: Source, place: Path, options: Options, watch: Watch = lambda _: None, log: Log | None = None
) -> Record:
    """Measure every rival in every case, of the rows of a source."""
    chosen, absent = installed(SHARED, (*options.rivals, EMPTY.name))
    if "jemalloc" in options.allocators and JEMALLOC is None:
        absent.append(Absent(f"{HEAP}: jemalloc", "not installed: libjemalloc"))
    facts = {"kind": source.kind, "rows": source.count, "pickled": source.pickled}
    head = heading(NAME, place, options, chosen, data=facts, absent=absent)
    return rounds.run(head, list(_turns_of(source, chosen, options)), options, place, watch=watch, log=log)


def prepared(folder: Path, kind: Kind, count: int, file: str | None, watch: Watch) -> Source:
    """Write the rows into a folder and return their source."""
    made = rows.rows_of(kind, count, file)
    return rows.write(folder, kind, made, lambda seen: watch(Progress(seen, count, f"{kind} rows")))


def _turns_of(source: Source, rivals: Sequence[Rival], options: Options) -> Iterator[Turn]:
    sums = source.sums()
    for ranks, start, rival in itertools.product(options.ranks, options.starts, rivals):
        take = partial(_take_job, rival, source, sums, start, ranks, options)
        yield Turn(rival.name, (start, str(ranks)), needs_of(rival, source, start, ranks, options), take)
    for allocator, rival in itertools.product(options.allocators, rivals):
        if allocator != "jemalloc" or JEMALLOC is not None:
            take = partial(_take_heap, rival, source, allocator, options)
            yield Turn(rival.name, (HEAP, allocator), rival.builds * source.pickled, take)


def needs_of(rival: Rival, source: Source, start: Start, ranks: int, options: Options) -> float:
    """Return roughly the private bytes that a job needs at most."""
    builders = 1 if rival.keeps or rival.alone else ranks
    held = rival.leaks if start == "fork" else rival.copied
    importing = ranks * (1 + options.workers if start in {"spawn", "forkserver"} else 1)
    imported = importing * (WITH_TORCH if options.torch else WITHOUT_TORCH)
    return source.pickled * (builders * rival.builds + ranks * options.workers * held) + imported


def _take_job(
    rival: Rival, source: Source, sums: Sums, start: Start, ranks: int, options: Options, attempt: Attempt
) -> Taken:
    """Take a sample of a job: started twice."""
    attempt.begin()
    folder = attempt.folder()
    errand: dict[str, Any] = {"rival": rival.name, "source": source, "start": start, "workers": options.workers}
    errand |= {"torch": options.torch, "limit_s": options.limit_s, "folder": os.fspath(folder)}
    first = _start_job(errand, ranks, options, sums)
    if options.cold:
        for path in folder.rglob("*"):
            if path.is_file():
                cache.evict(path)
    again = {} if rival.keeps else {"folder": tempfile.mkdtemp(dir=folder), "workers": 0}
    second = _start_job(errand | again, ranks, options, sums)
    return Taken(first | {f"second_{name}": value for name, value in second.items()})


def _start_job(errand: dict[str, Any], ranks: int, options: Options, sums: Sums) -> dict[str, float | None]:
    """Start a job once and return what it took and held; without workers, only what it took to be ready."""
    with crew_of(rank, ranks, options.timeout, **errand) as crew:
        peak = Peak(crew.pids, family=True)
        loaded = crew.step("loaded", peak.poll)
        numbers: dict[str, float | None] = {
            "ready_ns": max(message["ready_ns"] for message in loaded),
            "nbytes": loaded[0]["nbytes"],
            "build_peak_anonymous": peak.bytes,
        }
        if errand["workers"]:
            workers = [pid for message in crew.step("started") for pid in message["workers"]]
            numbers |= _pace(crew.step("passed"), sums)
            totals = totals_of(family_of(crew.pids))
            numbers |= {name: totals[name] for name in ("pss", "anonymous", "processes")}
            numbers["worker_uss"] = statistics.median(memory_of(pid).uss for pid in workers)
        crew.dismiss()
    return numbers


def _pace(passed: Sequence[dict[str, Any]], sums: Sums) -> dict[str, float | None]:
    """Judge what was read and return how fast; raises SampleError where it is not what was written."""
    passes = [each for message in passed for each in message["passes"]]
    for read, total, _ in passes:
        if read >= len(sums) or total != int(sums[read]):
            raise SampleError("wrong data", f"the first {read} rows sum to {total:#x}, not to what was written")
    return {
        "last_first_ns": max(message["last_first_ns"] for message in passed),
        "rows_read": min(read for read, _, _ in passes),
        "rows_per_s": statistics.median(read / max(seconds, 1e-9) for read, _, seconds in passes),
    }


def _take_heap(rival: Rival, source: Source, allocator: str, options: Options, attempt: Attempt) -> Taken:
    """Take a sample of what the allocator of a process that builds has not given back."""
    variables = [f"LD_PRELOAD={JEMALLOC}"] if allocator == "jemalloc" else []
    attempt.begin()
    errand = {"rival": rival.name, "source": source, "folder": os.fspath(attempt.folder())}
    more = {"torch": options.torch, "allocator": allocator}
    with crew_of(rank, 1, options.timeout, variables, **errand, **more) as crew:
        (pid,) = crew.pids
        if variables and not any("jemalloc" in region.path for region in proc.maps(pid)):
            raise SampleError("failed", "jemalloc was not loaded")
        empty, peak = memory_of(pid), Peak(crew.pids, family=True)
        (loaded,) = crew.step("loaded", peak.poll)
        after = memory_of(pid)
        crew.dismiss()
    found = {"heap": after.anonymous - empty.anonymous, "build_peak_anonymous": peak.bytes - empty.anonymous}
    return Taken(found | {name: loaded[name] for name in ("ready_ns", "nbytes")})


COLUMNS = (
    ("total PSS\nMB", plain("pss", MB)),
    ("less empty\nMB", above_empty("pss")),
    ("2nd run,\nless empty", above_empty("second_pss")),
    ("USS of a\nworker MB", plain("worker_uss", MB)),
    ("less empty\nMB", above_empty("worker_uss")),
    ("ready\ns", plain("ready_ns", 1e9)),
    ("2nd run,\nready s", plain("second_ready_ns", 1e9)),
    ("last first\nitem s", plain("last_first_ns", 1e9)),
    ("2nd run,\nitem s", plain("second_last_first_ns", 1e9)),
    ("rows/s of\na worker", plain("rows_per_s")),
    ("payload\nMB", plain("nbytes", MB)),
)
HEAP_COLUMNS = (
    ("left, less\nstart MB", plain("heap", MB)),
    ("payload\nMB", plain("nbytes", MB)),
    ("peak, less\nstart MB", plain("build_peak_anonymous", MB)),
    ("ready\ns", plain("ready_ns", 1e9)),
)


def _tables(record: Record) -> Iterator[Table]:
    names = [row.name for row in record.rows] + [a.name for a in record.absent if ": " not in a.name]
    for case in sorted(record.cases(), key=lambda case: case[0] == HEAP):
        if case[0] == HEAP:
            yield table(record, f"The builder's heap, {case[1]}", case, names, HEAP_COLUMNS)
        else:
            title = f"{case[0]}, {counted(int(case[1]), 'rank')} of {record.options['workers']} workers"
            yield table(record, title, case, names, COLUMNS)


def _described(record: Record) -> str:
    facts = record.data
    size = f"{facts['rows']} rows ({facts['kind']}), {facts['pickled'] / MB:.1f} MB when pickled"
    return f"share: {size}; {counted(record.rounds, 'round')}"


def _adjusted(options: Options) -> Options:
    if options.kind == "real" and not options.file:
        raise click.UsageError("--data real are those of a --file")
    return replace(options, allocators=()) if options.no_heap else options


def _limits(record: Record) -> Iterator[str]:
    wanted = record.data.get("rows", 0)
    short = {s.row for s in record.samples if s.numbers.get("rows_read", wanted) < wanted} - {EMPTY.name}
    if short:
        yield f"Stopped after {record.options['limit_s']:g} s, before all rows: {', '.join(sorted(short))}."
    yield from cli.usual_limits(record)


DRAWN = {"MB in all, less empty": above_empty("pss"), "MB of a worker, less empty": above_empty("worker_uss")}


SCENARIO = Scenario(
    NAME,
    """Measure what a dataset costs in a training job: memory of all processes and of a worker, time to start.

    A job is ranks with their workers, each of which reads every row and pickles it, as in "Demystify RAM usage in
    multi-process data loaders". Rows are held as a list, serialised, in files, or by onecopy; every one is compared
    by its checksum with what was written. Each job is started twice. What is not installed has a row with the reason.
    """,
    Options(),
    run,
    _described,
    _tables,
    draw=by_case(DRAWN),
    limits=_limits,
    adjust=_adjusted,
)
