"""`onecopy bench share`: the cost of a dataset in a training job, for each way to hold it and start workers.

Each sample is a job of one or several ranks, as torchrun starts them, each with its workers. All ranks prepare the rows
and start their workers, which read all rows. Then all processes hold the rows while the whole job is measured. The job
is then started a second time in the same folder, where it finds the files of the first run. The result of a similar
job that holds ten rows is subtracted from each result.

As in "Demystify RAM usage in multi-process data loaders", workers read each row and pickle it, which changes the
reference count of every object in it, just as sending it to the main process would. In addition, the checksum of each
row is compared, at the same cost for all holders.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import multiprocessing
import os
import pickle
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from onecopy.base.text import counted
from onecopy_bench.peers import installed, missing, module, named
from onecopy_bench.pictures import by_case
from onecopy_bench.processes import memory_of, start_workers
from onecopy_bench.record import Case, Record
from onecopy_bench.rows import data
from onecopy_bench.rows.data import Source, checksum
from onecopy_bench.rows.share_peers import EMPTY, HOLDERS, Holder
from onecopy_bench.runs import Attempt, Measured, Settings, Trial
from onecopy_bench.scenario import Plan, Scenario, Setup, option, usual_limits
from onecopy_bench.system import Peak, totals_of
from onecopy_bench.tables import MB, less_empty, plain, table_by_case
from onecopy_bench.worker import SampleError, Steps, die_with

NAME = "share"
Start = Literal["fork", "spawn", "forkserver", "forkserver+preload"]
STARTS: tuple[Start, ...] = get_args(Start)
NAMES = tuple(holder.name for holder in HOLDERS if holder is not EMPTY)
STRETCH = 256
"""Number of rows between two readings of the clock."""
WITH_TORCH, WITHOUT_TORCH = 300e6, 30e6
"""Approximate private bytes of a process that has imported its modules."""
Sums = NDArray[np.uint64]


# --- a rank and its workers -------------------------------------------------------------------------------------------


class Pass(NamedTuple):
    """A pass over the rows: the time of the first row, the number of rows, and the sum of their checksums."""

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


def _run_worker(rows: Any, limit_s: float, pipe: Connection, torch: bool) -> None:
    """Import torch if the job uses it, read the rows once, and keep them until a message arrives or the pipe closes."""
    die_with(os.getppid())
    if torch:
        module("torch")
    pipe.send(go_over(rows, limit_s))
    with contextlib.suppress(EOFError):
        pipe.recv()


def _import_all(needs: tuple[str, ...], torch_too: bool) -> tuple[str, ...]:
    """Import the holder's modules and, like a training program, torch if it is installed. Return their names."""
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
) -> Steps:
    """Prepare the rows in a folder, and start workers (0: none) that read them for at most `limit_s` seconds."""
    chosen = named(HOLDERS, holder)
    modules = _import_all(chosen.needs, torch)
    context: Any = multiprocessing.get_context(start.partition("+")[0])
    if start == "forkserver+preload":
        context.set_forkserver_preload([__name__, *modules])
    gc.collect()
    yield "ready", {}
    begin = time.monotonic_ns()
    rows = chosen.ready(source, Path(folder))
    taken = time.monotonic_ns() - begin
    gc.collect()
    yield "loaded", {"ready_ns": taken, "nbytes": getattr(rows, "nbytes", None)}
    begin, pipes = time.monotonic_ns(), []
    for _ in range(workers):
        mine, its = context.Pipe()
        context.Process(target=_run_worker, args=(rows, limit_s, its, "torch" in modules), daemon=True).start()
        its.close()
        pipes.append(mine)
    yield "started", {"workers": [child.pid for child in multiprocessing.active_children()]}
    passes = [Pass(*pipe.recv()) for pipe in pipes]
    try:
        yield "passed", {"last_first_ns": max(each.first_ns for each in passes) - begin, "passes": passes}
    finally:
        for pipe in pipes:
            with contextlib.suppress(OSError):
                pipe.send("exit")
        for child in multiprocessing.active_children():
            child.join()


# --- the scenario -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """The scenario's options. Each combination of `starts` and `ranks` is a case."""

    rows: int = option(data.COCO_ROWS, "Number of rows of the dataset.", at_least=10)
    peers: tuple[str, ...] = option(NAMES, "Method of holding the rows.", "--rival", choices=NAMES)
    starts: tuple[Start, ...] = option(STARTS, "Start method of the workers.", "--start", choices=STARTS)
    ranks: tuple[int, ...] = option((1, 2, 8), "Number of ranks: processes with workers, as torchrun starts them.")
    workers: int = option(4, "Number of workers of each rank.")
    torch: bool = option(True, "Import torch in every process, if it is installed.", "--torch/--no-torch")
    limit_s: float = option(120.0, "Seconds after which a worker stops reading.")


def plan(setup: Setup, options: Options) -> Plan:
    """Write the rows, and plan a run for each holder and case."""
    source = data.write(setup.place, data.coco(options.rows), lambda seen: setup.say("rows", seen, options.rows))
    chosen, absent = installed(HOLDERS, (*options.peers, EMPTY.name))
    sums = source.sums()
    trials = [
        Trial(
            holder.name, (start, str(ranks)), needs_of(holder, source, start, ranks, options),
            partial(_take, holder, source, sums, start, ranks, options),
        )
        for ranks, start, holder in itertools.product(options.ranks, options.starts, chosen)
    ]  # fmt: skip
    return Plan(chosen, trials, {"kind": "coco", "rows": source.count, "pickled": source.pickled}, absent)


def needs_of(holder: Holder, source: Source, start: Start, ranks: int, options: Options) -> float:
    """Return a rough upper bound of a job's private memory in bytes."""
    builders = 1 if holder.keeps or holder.alone else ranks
    held = holder.leaks if start == "fork" else holder.copied
    importing = ranks * (1 + options.workers if start in {"spawn", "forkserver"} else 1)
    imported = importing * (WITH_TORCH if options.torch else WITHOUT_TORCH)
    return source.pickled * (builders * holder.builds + ranks * options.workers * held) + imported


def _take(
    holder: Holder, source: Source, sums: Sums, start: Start, ranks: int, options: Options, attempt: Attempt
) -> Measured:
    """Take a sample by starting a job twice."""
    attempt.begin()
    folder = attempt.folder()
    arguments: dict[str, Any] = {"holder": holder.name, "source": source, "start": start, "workers": options.workers}
    arguments |= {"torch": options.torch, "limit_s": options.limit_s, "folder": os.fspath(folder)}
    first = _start_job(arguments, ranks, options, sums)
    again = {} if holder.keeps else {"folder": tempfile.mkdtemp(dir=folder), "workers": 0}
    second = _start_job(arguments | again, ranks, options, sums)
    return Measured(first | {f"second_{name}": value for name, value in second.items()})


def _start_job(arguments: dict[str, Any], ranks: int, options: Options, sums: Sums) -> dict[str, float | None]:
    """Start a job once. Return its times and memory; without workers, they cover only the preparation of the rows."""
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
    """Compare the rows that were read with the written rows, and return the rates. Raise SampleError if rows differ."""
    passes = [Pass(*each) for message in passed for each in message["passes"]]
    for each in passes:
        if each.rows >= len(sums) or each.total != int(sums[each.rows]):
            raise SampleError("wrong data", f"the checksums of the first {each.rows} rows differ from those written")
    return {
        "last_first_ns": max(message["last_first_ns"] for message in passed),
        "rows_read": min(each.rows for each in passes),
        "rows_per_s": statistics.median(each.rows / max(each.seconds, 1e-9) for each in passes),
    }


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


def _title(record: Record, case: Case) -> str:
    return f"{case[0]}, {counted(int(case[1]), 'rank')} of {record.options['workers']} workers"


def _described(record: Record) -> str:
    return f"{record.data['rows']} rows ({record.data['kind']}), {record.data['pickled'] / MB:.1f} MB when pickled"


def _limits(record: Record) -> Iterator[str]:
    wanted = record.data.get("rows", 0)
    short = {s.row for s in record.samples if s.numbers.get("rows_read", wanted) < wanted} - {EMPTY.name}
    if short:
        yield f"Stopped after {record.options['limit_s']:g} s, before all rows were read: {', '.join(sorted(short))}."
    yield from usual_limits(record)


SCENARIO = Scenario(
    NAME,
    """Measure the cost of a dataset in a training job: memory of all processes and of a worker, time to start.

    A job consists of ranks with their workers. Each worker reads every row and pickles it, as in "Demystify RAM usage
    in multi-process data loaders". Rows are held as a list, serialised, in files, or by onecopy, and the checksum of
    every row is compared. Each job is started twice. The packages that are not installed are listed below the tables.
    """,
    Options(),
    plan,
    _described,
    table_by_case(COLUMNS, _title),
    draw=by_case({"MB in all, less empty": less_empty("pss"), "MB of a worker, less empty": less_empty("worker_uss")}),
    limits=_limits,
)
