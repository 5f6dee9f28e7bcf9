"""`onecopy bench models`: what ONNX Runtime sessions cost, by how the model is opened, in one process and in several.

Every sample is N fresh processes that open one model one way, all at once; each runs it once with every batch and
compares what came out with what ONNX Runtime gives by itself. Then all are measured; then, of one process, the time of
`run`. What is subtracted is a sample of processes that have imported everything and opened nothing.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from onecopy_bench.engine import options as cli
from onecopy_bench.engine import rounds
from onecopy_bench.engine.crew import SampleError, crew_of
from onecopy_bench.engine.machine.processes import totals_of
from onecopy_bench.engine.memory import Peak
from onecopy_bench.engine.options import Measure
from onecopy_bench.engine.pages import Scenario, rounds_of
from onecopy_bench.engine.pictures import by_case
from onecopy_bench.engine.record import Absent, Case, Log, Record, Row, heading
from onecopy_bench.engine.rounds import Attempt, Progress, Settings, Taken, Turn, Watch
from onecopy_bench.engine.tables import MB, Column, Table, above_empty, counted, number, plain, table
from onecopy_bench.engine.ways import require
from onecopy_bench.scenarios.models import generated, worker
from onecopy_bench.scenarios.models.ways import EMPTY, WAYS, Way

NAME = "models"
MODELS = ("words", "convolutions", "words-int8")
NAMES = tuple(way.name for way in WAYS)
EXISTING = click.Path(exists=True, dir_okay=False)
NEEDS = ("onnx", "onnxruntime")
HEAPS = 3.0
"""Multiples of the file that opening it takes at most, for one process."""


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How the scenario is run: each number of `processes` is a case; memory is measured after one run of each batch."""

    inputs: str | None = cli.field(None, "An .npz of inputs, for --file.", type=EXISTING, show_default=False)
    models: tuple[str, ...] = cli.field(MODELS, "Which is made up.", "--model", choices=MODELS)
    ways: tuple[str, ...] = cli.field(NAMES, "How it is opened.", "--way", choices=NAMES)
    processes: tuple[int, ...] = cli.field((1, 4), "That open it at once.")
    batches: tuple[int, ...] = cli.field((1, 64), "Extent of the inputs' first free axis.", "--batch")
    runs: int = cli.field(20, "Of each batch, timed.")
    threads: int = cli.field(1, "Of a session.")

    @property
    def measured_batches(self) -> tuple[int, ...]:
        """The batches, or one where the inputs are given."""
        return self.batches[:1] if self.inputs else self.batches


def run(
    place: Path, options: Options, watch: Watch = lambda _: None, log: Log | None = None, file: str | None = None
) -> Record:
    """Measure every way in every case; `file` is a model of one's own, instead of those that are made up.

    Raises
    ------
    ModuleNotFoundError
        ``onnx`` or ``onnxruntime`` is not installed.
    """
    require(NEEDS, NAME)
    chosen = [way for way in WAYS if way.name in options.ways]
    names = [Path(file).stem] if file else list(options.models)
    folders, absent = {}, []
    for at, name in enumerate(names):
        watch(Progress(at, len(names), f"writing {name}"))
        try:
            folders[name] = written(place, name, file)
        except SampleError as error:
            absent.append(Absent(name, error.reason))
    data = {name: (folder / generated.INLINE).stat().st_size for name, folder in folders.items()}
    rows = (*chosen, Row(EMPTY, "imports everything, opens nothing"))
    head = heading(NAME, place, options, rows, data=data, absent=absent)
    turns = [turn for folder in folders.values() for turn in turns_of(folder, chosen, options)]
    return rounds.run(head, turns, options, place, watch=watch, log=log)


def written(place: Path, name: str, file: str | None) -> Path:
    """Write a model in all its forms, in a child, and pack it; raises SampleError where that fails."""
    folder = place / name
    folder.mkdir()
    arguments = [str(os.getpid()), name, str(folder), *([os.path.realpath(file)] if file else [])]
    command = [sys.executable, "-P", "-m", generated.__name__, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        shutil.rmtree(folder)
        raise SampleError("failed", (done.stderr.strip().splitlines() or ["killed"])[-1])
    return folder


def turns_of(folder: Path, ways: Sequence[Way], options: Options) -> list[Turn]:
    """Return everything that a round holds, of one model."""
    wanted, size = Sums(folder, options), (folder / generated.INLINE).stat().st_size
    found = []
    for count in options.processes:
        case: Case = (folder.name, counted(count, "process", "processes"))
        for way in (*ways, None):
            name, needs = (EMPTY, 0.0) if way is None else (way.name, HEAPS * count * size)
            found.append(Turn(name, case, needs, sample(way, folder, count, wanted, options)))
    return found


class Sums:
    """What outputs must be: those of ONNX Runtime alone, packed or not; computed once."""

    def __init__(self, folder: Path, options: Options) -> None:
        self._folder, self._options = folder, options
        self._known: dict[str, list[str]] = {}

    def of(self, way: Way) -> list[str]:
        """Return the checksums of a way's outputs, by batch."""
        # An .ort file has been optimised by another session: it is its own measure.
        reference = "external" if way.packs else "external, not packed"
        if reference not in self._known:
            errand = errand_of(reference, self._folder, self._options)
            with crew_of(worker.__name__, errand, 1, self._options.timeout) as crew:
                self._known[reference] = crew.step("opened")[0]["sums"]
        return self._known[reference]


def sample(way: Way | None, folder: Path, count: int, wanted: Sums, options: Options) -> Callable[[Attempt], Taken]:
    """Return what takes one sample; of no way, that of processes that open nothing."""

    def take(attempt: Attempt) -> Taken:
        attempt.begin()
        errand = errand_of(EMPTY if way is None else way.name, folder, options)
        if way is not None and way.prepare is not None:
            prepared(errand, options)
        expected = [] if way is None else wanted.of(way)
        with crew_of(worker.__name__, errand, count, options.timeout) as crew:
            peak = Peak(crew.pids, family=True)
            opened = crew.step("opened", peak.poll)
            if any(message["sums"] != expected for message in opened):
                raise SampleError("wrong data", "outputs are not those of ONNX Runtime by itself")
            held = totals_of(crew.pids)
            numbers: dict[str, float | None] = {
                "create_ns": statistics.median(message["create_ns"] for message in opened),
                "first_ns": statistics.median(message["first_ns"] for message in opened),
                "pss": held.pss,
                "uss": held.private,
                "anonymous": held.anonymous,
                "peak_anonymous": peak.bytes,
            }
            if count == 1:
                (ran,) = crew.step("ran")
                for batch, times in zip(errand.batches, ran["times"], strict=False):
                    numbers[f"run_{batch}_p50_ns"] = statistics.median(times)
                    numbers[f"run_{batch}_p99_ns"] = sorted(times)[max(-(-99 * len(times) // 100) - 1, 0)]
                crew.dismiss()
        return Taken(numbers)

    return take


def errand_of(name: str, folder: Path, options: Options) -> worker.Errand:
    """Return the errand of a worker."""
    inputs = os.path.realpath(options.inputs) if options.inputs else None
    return worker.Errand(name, str(folder), options.measured_batches, options.runs, options.threads, inputs)


def prepared(errand: worker.Errand, options: Options) -> None:
    """Do what a way needs once per machine."""
    with crew_of(worker.__name__, replace(errand, packs_too=True), 1, options.timeout) as crew:
        crew.step("opened")
        crew.dismiss()


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
OURS, BY_HAND, DEFAULT = "onecopy packed", "saved packed", "inline"


def tables_of(record: Record) -> Iterator[Table]:
    """Yield a table for each case."""
    names = [row.name for row in record.rows]
    for case in record.cases():
        yield table(record, ", ".join(case), case, names, (*MEMORY, *_times(record, case)))


def _times(record: Record, case: Case) -> tuple[Column, ...]:
    """Return the columns of runs, where any were timed."""
    batches = record.options["batches"]
    if not any(record.spread(row.name, case, f"run_{batches[0]}_p50_ns") for row in record.rows):
        return ()
    return tuple(
        (f"run, {batch}\n{which} ms", plain(f"run_{batch}_{which}_ns", 1e6))
        for batch in batches
        for which in ("p50", "p99")
    )


def described(record: Record) -> str:
    """Return what was measured, in one line."""
    files = ", ".join(f"{name} ({size / MB:.1f} MB)" for name, size in record.data.items())
    threads = counted(record.options["threads"], "thread")
    return f"models: {files}; {threads} a session, {counted(rounds_of(record), 'round')}"


def findings(record: Record) -> Iterator[str]:
    """Yield how ours compare with what ONNX Runtime does alone, and with the same done by hand."""
    runs = [(f"run_{batch}_p50_ns", f"ms a run of {batch}") for batch in record.options["batches"]]
    for case in record.cases():
        for name, words in (("pss", "MB in all"), ("create_ns", "ms to create"), *runs):
            unit = MB if name == "pss" else 1e6
            found = [record.spread(row, case, name) for row in (OURS, BY_HAND, DEFAULT)]
            if all(found):
                ours, by_hand, usual = (number(spread.median / unit) for spread in found if spread)
                yield f"{', '.join(case)}: {words}: {OURS} {ours}, {BY_HAND} {by_hand}, {DEFAULT} {usual}."


SCENARIO = Scenario(NAME, described, tables_of, findings, by_case(DRAWN))


@click.command(NAME)
@click.option("--file", type=EXISTING, help="An .onnx of yours, instead of those that are made up.")
@cli.common(SCENARIO, Options())
def command(*, file: str | None, options: Options, measure: Measure) -> None:
    """Measure ONNX Runtime sessions: time to create, memory of all processes, time of a run, by how they are opened.

    Models are made up (an embedding with matrix products of 768 MB, convolutions of 94 MB, the first one with 8-bit
    weights), or yours. Each is written as .onnx with its weights inside and outside, as .ort and with packed weights.
    Needs onnx and onnxruntime, and 6 GB of disk. Outputs are compared with those of ONNX Runtime by itself, bit by bit.
    """
    if options.inputs and not file:
        raise click.UsageError("--inputs are those of a --file")
    measure(lambda place, watch, log: run(place, options, watch, log, file))
