"""The scenario `images`: decode several images, hold them all, stitch them; on the heap, and in mapped files.

Every sample is a fresh process. Its memory is looked at some dozen times a second by the cheapest questions, together
with what is dirty and what is not free on the whole machine, so that the page cache counts; then the canvas is
compared, given up, and the seconds are taken until the process is small again. In the case with a limit the kernel
refuses private memory beyond it (RLIMIT_DATA).
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onecopy.memory import cgroup
from onecopy_bench import runner
from onecopy_bench.children import SampleError
from onecopy_bench.images import inputs, worker
from onecopy_bench.images.canvases import installed
from onecopy_bench.images.sampler import Sampler
from onecopy_bench.images.tables import NAME
from onecopy_bench.images.ways import NAMES, WAYS, Way, Work
from onecopy_bench.records import rounds
from onecopy_bench.records.rounds import Settings, Turn

if TYPE_CHECKING:
    from collections.abc import Callable

    from onecopy_bench.records.record import Run, RunJournal
    from onecopy_bench.records.rounds import Result

NEEDS = ("tifffile", "imagecodecs")
INPUTS = ("compressed", "plain")
_BACK = 0.1
_BACK_S = 20.0


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How the scenario is run.

    Attributes
    ----------
    count, columns
        Images, and how many stand in a line of the canvas.
    cap
        Bytes of a canvas in memory, for the way that is told.
    limit
        Bytes of private memory in the case with a limit; 0: no such case.
    ways, inputs, syncs
        What is compared, of which files, with and without bringing everything down to the disk.
    """

    count: int = 8
    columns: int = 4
    cap: int = 128 << 20
    limit: int = 256 << 20
    ways: tuple[str, ...] = NAMES
    inputs: tuple[str, ...] = INPUTS
    syncs: tuple[bool, ...] = (False, True)


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
        A folder for images and scratch files, on a disk.
    options
        Images, ways, cases.
    watch
        Called before each sample and at the end.
    journal
        Where samples are kept as they come, and found again.
    file
        An image of one's own, of bytes, that tifffile can read.

    Raises
    ------
    ModuleNotFoundError
        What is needed to make the images is not installed.
    OSError
        The images cannot be written.
    ValueError
        If the journal is of another run.
    """
    if missing := [name for name in NEEDS if importlib.util.find_spec(name) is None]:
        raise ModuleNotFoundError(f"bench images needs {' and '.join(missing)}: pip install 'onecopy[images]'")
    watch(runner.Progress(0, 1, "writing the images"))
    shape = written(place, options, file)
    chosen, absent = installed(WAYS, options.ways)
    paths = {kind: tuple(map(str, sorted((place / kind).iterdir()))) for kind in INPUTS}
    works = {kind: Work(paths[kind], "", options.columns, shape, options.cap) for kind in options.inputs}
    nbytes = shape[0] * shape[1] * (shape[2] if len(shape) > 2 else 1) * options.count
    data = {
        "shape": list(shape),
        "decoded": nbytes,
        "compressed": sum(Path(path).stat().st_size for path in paths["compressed"]),
    }
    heading = rounds.heading(NAME, place, options, chosen, data=data, absent=absent)
    wanted = Expected(place, works, options)
    cases = [(kind, sync, None) for kind in options.inputs for sync in options.syncs]
    limits = [(kind, False, options.limit) for kind in options.inputs[:1] if options.limit]
    found = [
        Turn(way.name, case_of(*case), way.private * nbytes, sample(way, works[case[0]], case, wanted, options))
        for case in [*cases, *limits]
        for way in chosen
    ]
    return rounds.run(heading, found, options, place, watch=watch, journal=journal)


def case_of(kind: str, sync: bool, limit: int | None) -> tuple[str, ...]:
    """Return the name of a case."""
    words = {"compressed": "compressed files", "plain": "files that are not compressed"}[kind]
    if limit is not None:
        return words, f"at most {limit >> 20} MiB of private memory"
    return words, "brought down to the disk" if sync else "left to the kernel"


def written(place: Path, options: Options, file: str | None) -> tuple[int, ...]:
    """Write all images in a child; return the shape of one."""
    arguments = [str(os.getpid()), str(place), str(options.count), *([os.path.realpath(file)] if file else [])]
    command = [sys.executable, "-P", "-m", inputs.__name__, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError((done.stderr.strip().splitlines() or ["killed"])[-1])
    facts = json.loads(done.stdout)
    if facts["dtype"] != "|u1":
        raise OSError(f"{file}: its pixels are {facts['dtype']}, and bytes are expected")
    return tuple(facts["shape"])


class Expected:
    """What a canvas must be: what tifffile and numpy make of the same files; asked for once."""

    def __init__(self, place: Path, works: dict[str, Work], options: Options) -> None:
        self._place, self._works, self._options = place, works, options
        self._known: dict[str, int] = {}

    def of(self, kind: str) -> int:
        """Return the checksum for a kind of input."""
        if kind not in self._known:
            errand = worker.Errand("numpy", self._works[kind])
            with rounds.crew_of(worker.__name__, errand, 1, self._options.timeout) as crew:
                crew.release("start")
                crew.gather("started")
                crew.release("check")
                self._known[kind] = crew.gather("checked")[0]["checksum"]
        return self._known[kind]


def sample(
    way: Way, work: Work, case: tuple[str, bool, int | None], wanted: Expected, options: Options
) -> Callable[[Path], Result]:
    """Return what takes one sample."""
    kind, sync, limit = case

    def take(folder: Path) -> Result:
        expected = wanted.of(kind)
        here = Work(work.paths, str(folder), work.columns, work.shape, work.cap)
        errand = worker.Errand(way.name, here, sync, limit)
        before = written_bytes(folder)
        with rounds.crew_of(worker.__name__, errand, 1, options.timeout, way.environment) as crew:
            sampler = Sampler(crew.pids[0])
            crew.release("start")
            (message,) = crew.gather("started", sampler.poll)
            sampler.look()
            numbers: dict[str, float | None] = {
                name: float(value) for name, value in message.items() if name != "phase"
            }
            numbers |= sampler.peaks()
            numbers["written"] = runner.difference(written_bytes(folder), before)
            points = tuple(sampler.points)
            crew.release("check")
            (checked,) = crew.gather("checked")
            if checked["checksum"] != expected:
                raise SampleError("wrong data", "the canvas is not what numpy makes of the same files")
            crew.release("drop")
            crew.gather("dropped")
            numbers["back_s"] = sampler.until_back(_BACK, _BACK_S)
            crew.dismiss()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return numbers, points

    return take


def written_bytes(place: Path) -> int | None:
    """Return the bytes that the disk of a folder has written since boot, for whomever; None where unknown."""
    disk = cgroup.block_stat(place.stat().st_dev)
    return None if disk is None else disk.bytes_written
