"""The scenario `mosaic`: a canvas far larger than what may be held of it, made of tiles, and down on the disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onecopy_bench import runner
from onecopy_bench.children import SampleError
from onecopy_bench.images import mosaics
from onecopy_bench.images.canvases import installed
from onecopy_bench.images.mosaic_tables import NAME
from onecopy_bench.images.mosaics import NAMES, WAYS, Errand, Way
from onecopy_bench.images.sampler import Sampler
from onecopy_bench.records import rounds
from onecopy_bench.records.rounds import Settings, Turn
from onecopy_bench.report.summary import MB
from onecopy_bench.scenarios.images import written_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from onecopy_bench.records.record import Run, RunJournal
    from onecopy_bench.records.rounds import Result


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How the scenario is run.

    Attributes
    ----------
    rows, columns, size
        Tiles, and pixels on the side of one; of 16 bits.
    cap
        Bytes of the canvas in memory, for the way that is told.
    ways
        What is compared.
    """

    rows: int = 20
    columns: int = 20
    size: int = 2048
    cap: int = 512 << 20
    ways: tuple[str, ...] = NAMES


def run(
    place: Path,
    options: Options = Options(),
    watch: Callable[[runner.Progress], None] = lambda _: None,
    journal: RunJournal | None = None,
) -> Run:
    """Measure every way and return the record.

    Parameters
    ----------
    place
        A folder for the canvas, on a disk.
    options
        Tiles, cap, ways.
    watch
        Called before each sample and at the end.
    journal
        Where samples are kept as they come, and found again.

    Raises
    ------
    ValueError
        If the journal is of another run.
    """
    watch(runner.Progress(0, 1, "adding up what the canvas must be"))
    chosen, absent = installed(WAYS, options.ways)
    errand = errand_of("", str(place), options)
    nbytes = 2 * errand.shape[0] * errand.shape[1]
    heading = rounds.heading(NAME, place, options, chosen, data={"bytes": nbytes}, absent=absent)
    expected = mosaics.expected(errand)
    case = (f"{options.rows} x {options.columns} tiles",)
    found = [Turn(way.name, case, nbytes * way.private, sample(way, expected, nbytes, options)) for way in chosen]
    return rounds.run(heading, found, options, place, watch=watch, journal=journal)


def errand_of(way: str, folder: str, options: Options) -> Errand:
    """Return what a worker has to do."""
    return Errand(way, folder, options.rows, options.columns, options.size, options.cap)


def sample(way: Way, expected: int, nbytes: int, options: Options) -> Callable[[Path], Result]:
    """Return what takes one sample."""

    def take(folder: Path) -> Result:
        before = written_bytes(folder)
        errand = errand_of(way.name, str(folder), options)
        with rounds.crew_of(mosaics.__name__, errand, 1, options.timeout) as crew:
            sampler = Sampler(crew.pids[0])
            crew.release("start")
            (message,) = crew.gather("started", sampler.poll)
            numbers: dict[str, float | None] = {
                "total_ns": float(message["total_ns"]),
                "cpu_ns": float(message["cpu_ns"]),
                "mb_per_s": nbytes / MB / (message["total_ns"] / 1e9),
                "written": runner.difference(written_bytes(folder), before),
                "peak_resident": max((point[1] + point[2] for point in sampler.points), default=0.0),
                **sampler.peaks(),
            }
            crew.release("check")
            (checked,) = crew.gather("checked")
            if checked["checksum"] != expected:
                raise SampleError("wrong data", "the canvas is not what its tiles are")
            crew.dismiss()
        return numbers, tuple(sampler.points)

    return take
