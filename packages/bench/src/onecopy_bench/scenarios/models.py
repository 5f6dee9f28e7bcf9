"""`onecopy bench models`: what ONNX Runtime sessions cost, by how the model is opened, in one process and in several.

Every sample is N fresh processes that open one model one way, all at once; each runs it once with every batch and
compares what came out with what ONNX Runtime gives by itself. Then all are measured; then, of one process, the time of
`run`. What is subtracted is a sample of processes that have imported everything and opened nothing.
"""

from __future__ import annotations

import functools
import os
import shutil
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from onecopy.base.text import counted
from onecopy_bench.engine import rounds, scenario as cli
from onecopy_bench.engine.crew import SampleError, crew_of, once
from onecopy_bench.engine.memory import Peak, totals_of
from onecopy_bench.engine.pictures import by_case
from onecopy_bench.engine.record import Absent, Case, Log, Record, Row, heading
from onecopy_bench.engine.rounds import Attempt, Progress, Settings, Taken, Turn, Watch
from onecopy_bench.engine.scenario import Scenario
from onecopy_bench.engine.tables import MB, Column, Table, above_empty, percentile_99, plain, table
from onecopy_bench.engine.ways import require
from onecopy_bench.workers import models as worker
from onecopy_bench.workers.models import EMPTY, INLINE, MODELS, WAYS, Way

NAME = "models"
NAMES = tuple(way.name for way in WAYS)
NEEDS = ("onnx", "onnxruntime")
HEAPS = 3.0
"""Multiples of the file that opening it takes at most, for one process."""


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How the scenario is run: each number of `processes` is a case; memory is measured after one run of each batch."""

    file: str | None = cli.option(
        None, "An .onnx of yours, instead of those that are made up.", type=cli.EXISTING, path=True
    )
    inputs: str | None = cli.option(None, "An .npz of inputs, for --file.", type=cli.EXISTING, path=True)
    models: tuple[str, ...] = cli.option(tuple(MODELS), "Model that is made up.", "--model", choices=tuple(MODELS))
    ways: tuple[str, ...] = cli.option(NAMES, "How the file is opened.", "--way", choices=NAMES)
    processes: tuple[int, ...] = cli.option((1, 4), "Number of processes that open it at once.")
    batches: tuple[int, ...] = cli.option((1, 64), "Extent of the inputs' first free axis.", "--batch")
    runs: int = cli.option(20, "Number of timed runs of each batch.")
    threads: int = cli.option(1, "Number of threads of a session.")


def run(place: Path, options: Options, watch: Watch = lambda _: None, log: Log | None = None) -> Record:
    """Measure every way in every case; raises ModuleNotFoundError without ``onnx`` or ``onnxruntime``."""
    require(NEEDS, NAME)
    chosen = [way for way in WAYS if way.name in options.ways]
    names = [Path(options.file).stem] if options.file else list(options.models)
    folders, absent = {}, []
    for at, name in enumerate(names):
        watch(Progress(at, len(names), f"writing {name}"))
        try:
            folders[name] = _written(place / name, options)
        except SampleError as error:
            absent.append(Absent(name, error.reason))
    data = {name: (folder / INLINE).stat().st_size for name, folder in folders.items()}
    rows = (*chosen, Row(EMPTY, "imports everything, opens nothing"))
    head = heading(NAME, place, options, rows, data=data, absent=absent)
    turns = [turn for folder in folders.values() for turn in _turns_of(folder, chosen, options)]
    return rounds.run(head, turns, options, place, watch=watch, log=log)


def _written(folder: Path, options: Options) -> Path:
    """Write a model in all its forms, in a child; raises SampleError where that fails."""
    folder.mkdir()
    file = os.path.realpath(options.file) if options.file else None
    try:
        once(worker, options.timeout, "opened", folder=str(folder), writes=(folder.name, file))
    except SampleError:
        shutil.rmtree(folder)
        raise
    return folder


def _turns_of(folder: Path, ways: Sequence[Way], options: Options) -> Iterator[Turn]:
    wanted, size = functools.cache(partial(_sums_of, folder, options)), (folder / INLINE).stat().st_size
    for count in options.processes:
        case: Case = (folder.name, counted(count, "process", "processes"))
        for way in (*ways, None):
            name, needs = (EMPTY, 0.0) if way is None else (way.name, HEAPS * count * size)
            yield Turn(name, case, needs, partial(_take, way, folder, count, wanted, options))


def _sums_of(folder: Path, options: Options, packs: bool) -> list[str]:
    """Return what outputs must be, by batch: those of ONNX Runtime alone, packed or not."""
    errand = _errand_of("external" if packs else "external, not packed", folder, options)
    with crew_of(worker, 1, options.timeout, **errand) as crew:
        sums: list[str] = crew.step("opened")[0]["sums"]
        return sums


def _errand_of(name: str, folder: Path, options: Options) -> dict[str, Any]:
    inputs = os.path.realpath(options.inputs) if options.inputs else None
    batches = options.batches[:1] if inputs else options.batches
    errand = {"way": name, "folder": str(folder), "batches": batches, "runs": options.runs}
    return {**errand, "threads": options.threads, "inputs": inputs}


def _take(
    way: Way | None, folder: Path, count: int, wanted: Callable[[bool], list[str]], options: Options, attempt: Attempt
) -> Taken:
    """Take one sample; of no way, that of processes that open nothing."""
    attempt.begin()
    errand = _errand_of(EMPTY if way is None else way.name, folder, options)
    if way is not None and way.prepare is not None:
        once(worker, options.timeout, "opened", **errand, prepares=True)
    # An .ort file has been optimised by another session: it is its own measure.
    expected = [] if way is None else wanted(way.packs)
    with crew_of(worker, count, options.timeout, **errand) as crew:
        peak = Peak(crew.pids, family=True)
        opened = crew.step("opened", peak.poll)
        if any(message["sums"] != expected for message in opened):
            raise SampleError("wrong data", "outputs are not those of ONNX Runtime by itself")
        held = totals_of(crew.pids)
        numbers = {name: statistics.median(each[name] for each in opened) for name in ("create_ns", "first_ns")}
        numbers |= {"pss": held["pss"], "uss": held["private"], "anonymous": held["anonymous"]}
        if count == 1:
            (ran,) = crew.step("ran")
            for batch, times in zip(errand["batches"], ran["times"], strict=False):
                numbers[f"run_{batch}_p50_ns"] = statistics.median(times)
                numbers[f"run_{batch}_p99_ns"] = percentile_99(times)
            crew.dismiss()
    return Taken({**numbers, "peak_anonymous": peak.bytes})


MEMORY: tuple[Column, ...] = (
    ("create\nms", plain("create_ns", 1e6)),
    ("first run\nms", plain("first_ns", 1e6)),
    ("total PSS\nMB", plain("pss", MB)),
    ("less empty\nMB", above_empty("pss")),
    ("total USS\nMB", plain("uss", MB)),
    ("anonymous,\nless empty", above_empty("anonymous")),
    ("its peak,\nless empty", above_empty("peak_anonymous")),
)
DRAWN = {"MB, less empty": above_empty("pss"), "ms to create": plain("create_ns", 1e6)}


def _tables(record: Record) -> Iterator[Table]:
    """Yield a table for each case, with the times of runs where any were timed."""
    names, batches = [row.name for row in record.rows], record.options["batches"]
    for case in record.cases():
        timed = any(record.spread(name, case, f"run_{batches[0]}_p50_ns") for name in names)
        times = [
            (f"run, {batch}\n{which} ms", plain(f"run_{batch}_{which}_ns", 1e6))
            for batch in (batches if timed else ())
            for which in ("p50", "p99")
        ]
        yield table(record, ", ".join(case), case, names, (*MEMORY, *times))


def _described(record: Record) -> str:
    files = ", ".join(f"{name} ({size / MB:.1f} MB)" for name, size in record.data.items())
    threads = counted(record.options["threads"], "thread")
    return f"models: {files}; {threads} a session, {counted(record.rounds, 'round')}"


def _adjusted(options: Options) -> Options:
    if options.inputs and not options.file:
        raise click.UsageError("--inputs are those of a --file")
    return options


SCENARIO = Scenario(
    NAME,
    """Measure ONNX Runtime sessions: time to create, memory of all processes, time of a run, by how they are opened.

    Models are made up (an embedding with matrix products of 768 MB, convolutions of 94 MB, the first one with 8-bit
    weights), or yours. Each is written as .onnx with its weights inside and outside, as .ort and with packed weights.
    Needs onnx and onnxruntime, and 6 GB of disk. Outputs are compared with those of ONNX Runtime by itself, bit by bit.
    """,
    Options(),
    run,
    _described,
    _tables,
    draw=by_case(DRAWN),
    adjust=_adjusted,
)
