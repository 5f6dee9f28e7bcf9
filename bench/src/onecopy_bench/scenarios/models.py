"""The scenario `models`: what ONNX Runtime sessions cost, by how the model is opened, in one process and in several.

Every sample is N fresh processes that open one model one way, all at once; each runs it once with every batch and
compares what came out with what ONNX Runtime gives by itself. Then all are measured; then, of one process, the time of
`run`. What is subtracted is a sample of processes that have imported everything and opened nothing.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import shutil
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onecopy_bench import runner
from onecopy_bench.children import SampleError
from onecopy_bench.models import generated, worker
from onecopy_bench.models.ways import EMPTY, WAYS, Way
from onecopy_bench.programs.trees import totals_of
from onecopy_bench.record import Absent
from onecopy_bench.records import rounds
from onecopy_bench.records.record import Entry, Run
from onecopy_bench.records.rounds import Settings, Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onecopy_bench.records.record import RunJournal
    from onecopy_bench.records.rounds import Result

NAME = "models"
MODELS = ("words", "convolutions", "words-int8")
NAMES = tuple(way.name for way in WAYS)
NEEDS = ("onnx", "onnxruntime")
_HEAPS = 3.0  # of the file: what opening it takes at most, for one process


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How the scenario is run.

    Attributes
    ----------
    models
        Of those that are made up.
    ways
        What is compared.
    processes
        Each is a case of each model.
    batches, runs
        How often each batch is run where the time is taken; memory is measured after one run of each.
    threads
        Of each session.
    inputs
        An .npz of inputs for a model of one's own; none: they are made up.
    """

    models: tuple[str, ...] = MODELS
    ways: tuple[str, ...] = NAMES
    processes: tuple[int, ...] = (1, 4)
    batches: tuple[int, ...] = (1, 64)
    runs: int = 20
    threads: int = 1
    inputs: str | None = None

    @property
    def measured_batches(self) -> tuple[int, ...]:
        """The batches, or one where the inputs are given."""
        return self.batches[:1] if self.inputs else self.batches


def run(
    place: Path,
    options: Options = Options(),
    watch: Callable[[runner.Progress], None] = lambda _: None,
    journal: RunJournal | None = None,
    file: str | None = None,
) -> Run:
    """Measure every way in every case and return the record.

    Parameters
    ----------
    place
        A folder for the models; each sample gets an empty one in it.
    options
        Models, ways, processes.
    watch
        Called before each sample and at the end.
    journal
        Where samples are kept as they come, and found again.
    file
        A model of one's own, instead of those that are made up.

    Raises
    ------
    ModuleNotFoundError
        ``onnx`` or ``onnxruntime`` is not installed.
    ValueError
        If the journal is of another run.
    """
    if missing := [name for name in NEEDS if importlib.util.find_spec(name) is None]:
        raise ModuleNotFoundError(f"bench models needs {' and '.join(missing)}: pip install {' '.join(missing)}")
    chosen = [way for way in WAYS if way.name in options.ways]
    names = [Path(file).stem] if file else list(options.models)
    folders, absent = {}, []
    for number, name in enumerate(names):
        watch(runner.Progress(number, len(names), f"writing {name}"))
        try:
            folders[name] = written(place, name, file)
        except SampleError as error:
            absent.append(Absent(name, error.reason))
    data = {name: (folder / generated.INLINE).stat().st_size for name, folder in folders.items()}
    empty = Entry(EMPTY, "imports everything, opens nothing", ours=False)
    heading = rounds.heading(NAME, place, options, (*chosen, empty), data=data, absent=absent)
    found = [turn for folder in folders.values() for turn in turns(folder, chosen, options)]
    return rounds.run(heading, found, options, place, watch=watch, journal=journal)


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


def turns(folder: Path, ways: Sequence[Way], options: Options) -> list[Turn]:
    """Return everything that a round holds, of one model."""
    wanted = Sums(folder, options)
    found = []
    for count in options.processes:
        for way in ways:
            needs = _HEAPS * count * (folder / generated.INLINE).stat().st_size
            found.append(Turn(way.name, case(folder, count), needs, sample(way, folder, count, wanted, options)))
        found.append(Turn(EMPTY, case(folder, count), 0.0, sample(None, folder, count, wanted, options)))
    return found


def case(folder: Path, count: int) -> tuple[str, ...]:
    """Return the name of a case."""
    return (folder.name, f"{count} process{'' if count == 1 else 'es'}")


class Sums:
    """What outputs must be: those of ONNX Runtime alone, packed or not; asked for once."""

    def __init__(self, folder: Path, options: Options) -> None:
        self._folder, self._options = folder, options
        self._known: dict[str, list[str]] = {}

    def of(self, way: Way) -> list[str]:
        """Return the checksums of a way's outputs, by batch."""
        # An .ort file has been optimised by another session: it is its own measure.
        reference = "external" if way.packs else "external, not packed"
        if reference not in self._known:
            errand = errand_of(reference, self._folder, self._options)
            with rounds.crew_of(worker.__name__, errand, 1, self._options.timeout) as crew:
                crew.release("open")
                (message,) = crew.gather("opened")
                self._known[reference] = message["sums"]
        return self._known[reference]


def sample(way: Way | None, folder: Path, count: int, wanted: Sums, options: Options) -> Callable[[Path], Result]:
    """Return what takes one sample."""
    name = EMPTY if way is None else way.name

    def take(_: Path) -> Result:
        errand = errand_of(name, folder, options)
        if way is not None and way.prepare is not None:
            prepared(errand, options)
        if way is not None:
            expected = wanted.of(way)
        with rounds.crew_of(worker.__name__, errand, count, options.timeout) as crew:
            peak = rounds.FamilyPeak(crew.pids)
            crew.release("open")
            opened = crew.gather("opened", peak.poll)
            if way is not None and any(message["sums"] != expected for message in opened):
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
                crew.release("run")
                (ran,) = crew.gather("ran")
                for batch, times in zip(errand.batches, ran["times"], strict=False):
                    numbers[f"run_{batch}_p50_ns"] = statistics.median(times)
                    numbers[f"run_{batch}_p99_ns"] = sorted(times)[max(-(-99 * len(times) // 100) - 1, 0)]
                crew.dismiss()
        return numbers, ()

    return take


def errand_of(name: str, folder: Path, options: Options) -> worker.Errand:
    """Return what a worker has to do."""
    inputs = os.path.realpath(options.inputs) if options.inputs else None
    return worker.Errand(name, str(folder), options.measured_batches, options.runs, options.threads, inputs)


def prepared(errand: worker.Errand, options: Options) -> None:
    """Do what a way needs once per host."""
    errand = dataclasses.replace(errand, packs_too=True)
    with rounds.crew_of(worker.__name__, errand, 1, options.timeout) as crew:
        crew.release("open")
        crew.gather("opened")
        crew.dismiss()
