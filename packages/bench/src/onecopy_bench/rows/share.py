"""`onecopy bench share`: what a dataset costs in a training job, by how it is held and how workers are started.

Each sample is a job of one or several ranks, as torchrun starts them, each with its workers. All ranks make the rows
ready; then all start their workers, which go over the rows; then all hold, and the whole is measured. The job is then
started a second time in the same folder: what is kept there is found. Another kind of sample builds in a process
without workers and measures what the allocator has not given back. What is subtracted from each is a job of the same
kind that holds ten rows.

"Demystify RAM usage in multi-process data loaders" reads each row and pickles it, which touches the reference count of
every object in it, as handing it on would. Beside that each row is judged by its checksum, at the same cost for all.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import gc
import itertools
import multiprocessing
import os
import pickle
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from onecopy.base.text import counted
from onecopy.memory import proc
from onecopy_bench import system
from onecopy_bench.peers import installed, missing, module, named
from onecopy_bench.pictures import by_case
from onecopy_bench.processes import memory_of, start_workers
from onecopy_bench.record import Absent, Record
from onecopy_bench.rows import data
from onecopy_bench.rows.data import Kind, Source, checksum
from onecopy_bench.rows.peers import EMPTY, HOLDERS, Holder, nbytes_of
from onecopy_bench.runs import Attempt, Measured, Settings, Trial
from onecopy_bench.scenario import Plan, Scenario, Setup, UsageError, option, usual_limits
from onecopy_bench.system import Peak, totals_of
from onecopy_bench.tables import MB, Table, less_empty, plain, table
from onecopy_bench.worker import SampleError, Steps, die_with

NAME = "share"
Start = Literal["fork", "spawn", "forkserver", "forkserver+preload"]
STARTS: tuple[Start, ...] = get_args(Start)
ALLOCATORS = ("glibc", "malloc_trim", "jemalloc")
NAMES = tuple(holder.name for holder in HOLDERS if holder is not EMPTY)
JEMALLOC = ctypes.util.find_library("jemalloc")
HEAP = "heap"
"""The first word of the cases that measure the builder's heap."""
STRETCH = 256
"""Rows between two readings of the clock."""
WITH_TORCH, WITHOUT_TORCH = 300e6, 30e6
"""Private bytes of a process that has imported what it needs, roughly."""
Sums = NDArray[np.uint64]


# --- a rank and its workers -------------------------------------------------------------------------------------------


class Pass(NamedTuple):
    """The result of one pass over the rows.

    `first_ns` is when the first row had been read, by the clock that all processes share; `rows` the rows read, in
    order from the first, before time was up; `total` the sum of their checksums.
    """

    first_ns: int
    rows: int
    total: int
    seconds: float


def go_over(rows: Any, limit_s: float) -> Pass:
    """Read all rows in order, or as many as the time allows."""
    first_ns = total = done = 0
    start = time.monotonic_ns()
    for begin in range(0, len(rows), STRETCH):
        for index in range(begin, min(begin + STRETCH, len(rows))):
            row = rows[index]
            pickle.dumps(row)
            total += checksum(index, row)
            done += 1
            first_ns = first_ns or time.monotonic_ns()
        if time.monotonic_ns() - start > limit_s * 1e9:
            break
    return Pass(first_ns, done, total, (time.monotonic_ns() - start) / 1e9)


def _run_worker(rows: Any, limit_s: float, pipe: Connection, *modules: str) -> None:
    """Import some modules, read the rows once, and hold everything until a message comes or the pipe closes."""
    die_with(os.getppid())
    for name in modules:
        module(name)
    pipe.send(go_over(rows, limit_s))
    with contextlib.suppress(EOFError):
        pipe.recv()


def _context_of(start: Start, modules: tuple[str, ...]) -> BaseContext:
    """Return the context that starts workers; a preloading fork server imports the modules once for all."""
    context = multiprocessing.get_context(start.partition("+")[0])
    if start == "forkserver+preload":
        context.set_forkserver_preload([__name__, *modules])
    return context


def _import_all(needs: tuple[str, ...], torch_too: bool) -> tuple[str, ...]:
    """Import the modules of the holder and of a training program, and return their names."""
    torch = ("torch",) if torch_too and not missing(("torch",)) else ()
    modules = tuple(dict.fromkeys(("numpy", *torch, *needs)))
    for name in modules:
        module(name)
    if "torch" in modules:
        module("torch.multiprocessing")  # tensors travel through shared memory
    return modules


def steps(
    holder: str,
    source: Source,
    folder: str,
    start: Start = "fork",
    workers: int = 0,
    torch: bool = True,
    limit_s: float = 60.0,
    allocator: str = "glibc",
) -> Steps:
    """Prepare the rows in a folder; then start workers that read them for some seconds (0: no workers).

    `torch`: import it in every process where it is installed, because a training program has it. `allocator`:
    "malloc_trim" is called when the rows are ready; others are chosen by who starts the process.
    """
    chosen = named(HOLDERS, holder)
    modules = _import_all(chosen.needs, torch)
    program = [name for name in modules if name == "torch"]
    context: Any = _context_of(start, modules)
    gc.collect()
    yield "ready", {}
    begin = time.monotonic_ns()
    rows = chosen.ready(source, Path(folder))
    taken = time.monotonic_ns() - begin
    gc.collect()
    if allocator == "malloc_trim":
        ctypes.CDLL(None).malloc_trim(0)
    yield "loaded", {"ready_ns": taken, "nbytes": nbytes_of(rows)}
    begin, pipes = time.monotonic_ns(), []
    for _ in range(workers):
        mine, its = context.Pipe()
        context.Process(target=_run_worker, args=(rows, limit_s, its, *program), daemon=True).start()
        its.close()
        pipes.append(mine)
    yield "started", {"workers": [child.pid for child in multiprocessing.active_children()]}
    passes = [Pass(*pipe.recv()) for pipe in pipes]
    last_first = max(each.first_ns for each in passes) - begin
    found = [[each.rows, each.total, each.seconds] for each in passes]
    try:
        yield "passed", {"last_first_ns": last_first, "passes": found}
    finally:
        for pipe in pipes:
            with contextlib.suppress(OSError):
                pipe.send("exit")
        for child in multiprocessing.active_children():
            child.join()


# --- the scenario -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How the scenario is run; each of `starts` with each number of `ranks` is a case."""

    rows: int = option(data.COCO_ROWS, "Number of rows of the dataset.", at_least=10)
    kind: Kind = option(
        "coco", "Synthetic COCO annotations; those of --file, repeated; (path, label) pairs.", "--data",
        choices=("coco", "real", "pairs"),
    )  # fmt: skip
    file: str | None = option(None, "A COCO file, for --data real.", kind="existing", is_path=True)
    peers: tuple[str, ...] = option(NAMES, "How the rows are held.", "--rival", choices=NAMES)
    starts: tuple[Start, ...] = option(STARTS, "How workers are started.", "--start", choices=STARTS)
    ranks: tuple[int, ...] = option((1, 2, 8), "Processes that each have workers, as torchrun starts them.")
    workers: int = option(4, "Number of workers of each rank.")
    torch: bool = option(True, "Import torch in every process, if it is installed.", "--torch/--no-torch")
    limit_s: float = option(120.0, "Seconds after which a pass stops.")
    allocators: tuple[str, ...] = option(
        ALLOCATORS, "Allocator of the builder's heap.", "--allocator", choices=ALLOCATORS
    )
    no_heap: bool = option(False, "Do not measure the builder's heap.")
    cold: bool = option(False, "Evict the files of the first run before the second.")


def plan(setup: Setup, options: Options) -> Plan:
    """Write the rows, and plan every holder in every case."""
    source = prepared(setup, setup.place, options.kind, options.rows, options.file)
    chosen, absent = installed(HOLDERS, (*options.peers, EMPTY.name))
    if "jemalloc" in options.allocators and JEMALLOC is None:
        absent.append(Absent(f"{HEAP}: jemalloc", "not installed: libjemalloc"))
    facts = {"kind": source.kind, "rows": source.count, "pickled": source.pickled}
    return Plan(chosen, list(_trials_of(source, chosen, options)), facts, absent)


def prepared(setup: Setup, folder: Path, kind: Kind, count: int, file: str | None = None) -> Source:
    """Write the rows into a folder and return their source."""
    made = data.rows_of(kind, count, file)
    return data.write(folder, kind, made, lambda seen: setup.say(f"{kind} rows", seen, count))


def _trials_of(source: Source, holders: Sequence[Holder], options: Options) -> Iterator[Trial]:
    sums = source.sums()
    for ranks, start, holder in itertools.product(options.ranks, options.starts, holders):
        take = partial(_take_job, holder, source, sums, start, ranks, options)
        yield Trial(holder.name, (start, str(ranks)), needs_of(holder, source, start, ranks, options), take)
    for allocator, holder in itertools.product(options.allocators, holders):
        if allocator != "jemalloc" or JEMALLOC is not None:
            take = partial(_take_heap, holder, source, allocator, options)
            yield Trial(holder.name, (HEAP, allocator), holder.builds * source.pickled, take)


def needs_of(holder: Holder, source: Source, start: Start, ranks: int, options: Options) -> float:
    """Return a rough upper bound of the private bytes of a job."""
    builders = 1 if holder.keeps or holder.alone else ranks
    held = holder.leaks if start == "fork" else holder.copied
    importing = ranks * (1 + options.workers if start in {"spawn", "forkserver"} else 1)
    imported = importing * (WITH_TORCH if options.torch else WITHOUT_TORCH)
    return source.pickled * (builders * holder.builds + ranks * options.workers * held) + imported


def _take_job(
    holder: Holder, source: Source, sums: Sums, start: Start, ranks: int, options: Options, attempt: Attempt
) -> Measured:
    """Take a sample of a job, which is started twice."""
    attempt.begin()
    folder = attempt.folder()
    arguments: dict[str, Any] = {"holder": holder.name, "source": source, "start": start, "workers": options.workers}
    arguments |= {"torch": options.torch, "limit_s": options.limit_s, "folder": os.fspath(folder)}
    first = _start_job(arguments, ranks, options, sums)
    if options.cold:
        for path in folder.rglob("*"):
            if path.is_file():
                system.evict(path)
    again = {} if holder.keeps else {"folder": tempfile.mkdtemp(dir=folder), "workers": 0}
    second = _start_job(arguments | again, ranks, options, sums)
    return Measured(first | {f"second_{name}": value for name, value in second.items()})


def _start_job(arguments: dict[str, Any], ranks: int, options: Options, sums: Sums) -> dict[str, float | None]:
    """Start a job once; return its times and memory, without workers only those of preparing the rows."""
    with start_workers(__name__, ranks, options.timeout, **arguments) as workers:
        peak = Peak(workers.family)
        loaded = workers.step("loaded", peak.poll)
        numbers: dict[str, float | None] = {
            "ready_ns": max(message["ready_ns"] for message in loaded),
            "nbytes": loaded[0]["nbytes"],
            "build_peak_anonymous": peak.bytes,
        }
        if arguments["workers"]:
            started = [pid for message in workers.step("started") for pid in message["workers"]]
            numbers |= _pace(workers.step("passed"), sums)
            totals = totals_of(workers.family())
            numbers |= {name: totals[name] for name in ("pss", "anonymous", "processes")}
            numbers["worker_uss"] = statistics.median(memory_of(pid).uss for pid in started)
        workers.dismiss()
    return numbers


def _pace(passed: Sequence[dict[str, Any]], sums: Sums) -> dict[str, float | None]:
    """Compare the rows that were read with those written and return the rates; raises SampleError if they differ."""
    passes = [each for message in passed for each in message["passes"]]
    for read, total, _ in passes:
        if read >= len(sums) or total != int(sums[read]):
            raise SampleError("wrong data", f"the first {read} rows sum to {total:#x}, not to what was written")
    return {
        "last_first_ns": max(message["last_first_ns"] for message in passed),
        "rows_read": min(read for read, _, _ in passes),
        "rows_per_s": statistics.median(read / max(seconds, 1e-9) for read, _, seconds in passes),
    }


def _take_heap(holder: Holder, source: Source, allocator: str, options: Options, attempt: Attempt) -> Measured:
    """Take a sample of the heap that the allocator of a building process keeps."""
    variables = [f"LD_PRELOAD={JEMALLOC}"] if allocator == "jemalloc" else []
    attempt.begin()
    arguments = {"holder": holder.name, "source": source, "folder": os.fspath(attempt.folder())}
    more = {"torch": options.torch, "allocator": allocator}
    with start_workers(__name__, 1, options.timeout, variables, **arguments, **more) as workers:
        (pid,) = workers.pids
        if variables and not any("jemalloc" in region.path for region in proc.maps(pid)):
            raise SampleError("failed", "jemalloc was not loaded")
        empty, peak = memory_of(pid), Peak(workers.family)
        (loaded,) = workers.step("loaded", peak.poll)
        after = memory_of(pid)
        workers.dismiss()
    found = {"heap": after.anonymous - empty.anonymous, "build_peak_anonymous": peak.bytes - empty.anonymous}
    return Measured(found | {name: loaded[name] for name in ("ready_ns", "nbytes")})


COLUMNS = (
    ("total PSS\nMB", plain("pss", MB)),
    ("less empty\nMB", less_empty("pss")),
    ("2nd run,\nless empty", less_empty("second_pss")),
    ("USS of a\nworker MB", plain("worker_uss", MB)),
    ("less empty\nMB", less_empty("worker_uss")),
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
    return f"{facts['rows']} rows ({facts['kind']}), {facts['pickled'] / MB:.1f} MB when pickled"


def _adjusted(options: Options) -> Options:
    if options.kind == "real" and not options.file:
        raise UsageError("--data real are those of a --file")
    return replace(options, allocators=()) if options.no_heap else options


def _limits(record: Record) -> Iterator[str]:
    wanted = record.data.get("rows", 0)
    short = {s.row for s in record.samples if s.numbers.get("rows_read", wanted) < wanted} - {EMPTY.name}
    if short:
        yield f"Stopped after {record.options['limit_s']:g} s, before all rows: {', '.join(sorted(short))}."
    yield from usual_limits(record)


DRAWN = {"MB in all, less empty": less_empty("pss"), "MB of a worker, less empty": less_empty("worker_uss")}


SCENARIO = Scenario(
    NAME,
    """Measure what a dataset costs in a training job: memory of all processes and of a worker, time to start.

    A job is ranks with their workers, each of which reads every row and pickles it, as in "Demystify RAM usage in
    multi-process data loaders". Rows are held as a list, serialised, in files, or by onecopy; every one is compared
    by its checksum with what was written. Each job is started twice. What is not installed has a row with the reason.
    """,
    Options(),
    plan,
    _described,
    _tables,
    draw=by_case(DRAWN),
    limits=_limits,
    adjust=_adjusted,
)
