"""`onecopy bench mosaic`: a canvas far larger than what may be held of it, made of tiles, and down on the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from onecopy_bench.engine import options as cli
from onecopy_bench.engine import rounds
from onecopy_bench.engine.crew import SampleError, crew_of
from onecopy_bench.engine.memory import difference, disk_bytes
from onecopy_bench.engine.options import Measure
from onecopy_bench.engine.pages import Scenario, rounds_of
from onecopy_bench.engine.pictures import by_case
from onecopy_bench.engine.record import Log, Record, heading
from onecopy_bench.engine.rounds import Attempt, Progress, Settings, Taken, Turn, Watch
from onecopy_bench.engine.tables import MB, Column, counted, number, plain, table_by_case
from onecopy_bench.engine.ways import installed
from onecopy_bench.scenarios.images import tiles
from onecopy_bench.scenarios.images.sampler import Sampler
from onecopy_bench.scenarios.images.tiles import NAMES, WAYS, Errand, Way

NAME = "mosaic"


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How the scenario is run."""

    rows: int = cli.field(20, "Of tiles.")
    columns: int = cli.field(20, "Of tiles.")
    size: int = cli.field(2048, "Pixels on the side of a tile.")
    cap: int = cli.size("512MiB", "Of the canvas in memory.")
    ways: tuple[str, ...] = cli.field(NAMES, "What is compared.", "--way", choices=NAMES)


def run(place: Path, options: Options, watch: Watch = lambda _: None, log: Log | None = None) -> Record:
    """Measure every way, with a canvas in a folder on a disk; raises ValueError if the log is of another run."""
    watch(Progress(0, 1, "adding up what the canvas must be"))
    chosen, absent = installed(WAYS, options.ways)
    errand = errand_of("", str(place), options)
    nbytes = 2 * errand.shape[0] * errand.shape[1]
    head = heading(NAME, place, options, chosen, data={"bytes": nbytes}, absent=absent)
    expected = tiles.expected(errand)
    case = (f"{options.rows} x {options.columns} tiles",)
    turns = [Turn(way.name, case, nbytes * way.private, sample(way, expected, nbytes, options)) for way in chosen]
    return rounds.run(head, turns, options, place, watch=watch, log=log)


def errand_of(way: str, folder: str, options: Options) -> Errand:
    """Return the errand of a worker."""
    return Errand(way, folder, options.rows, options.columns, options.size, options.cap)


def sample(way: Way, expected: int, nbytes: int, options: Options) -> Callable[[Attempt], Taken]:
    """Return what takes one sample."""

    def take(attempt: Attempt) -> Taken:
        attempt.begin()
        folder = attempt.folder()
        before = disk_bytes(folder, written=True)
        with crew_of(tiles.__name__, errand_of(way.name, str(folder), options), 1, options.timeout) as crew:
            sampler = Sampler(crew.pids[0])
            (message,) = crew.step("started", sampler.poll)
            numbers: dict[str, float | None] = {
                "total_ns": float(message["total_ns"]),
                "cpu_ns": float(message["cpu_ns"]),
                "mb_per_s": nbytes / MB / (message["total_ns"] / 1e9),
                "written": difference(disk_bytes(folder, written=True), before),
                "peak_resident": max((point[1] + point[2] for point in sampler.points), default=0.0),
                **sampler.peaks(),
            }
            (checked,) = crew.step("checked")
            if checked["checksum"] != expected:
                raise SampleError("wrong data", "the canvas is not what its tiles are")
            crew.dismiss()
        return Taken(numbers, sampler.points)

    return take


FLOOR, CAPPED = "write, fdatasync", "onecopy, capped"
COLUMNS: tuple[Column, ...] = (
    ("all\ns", plain("total_ns", 1e9)),
    ("MB/s", plain("mb_per_s")),
    ("CPU\ns", plain("cpu_ns", 1e9)),
    ("anon. peak\nMB", plain("peak_anonymous", MB)),
    ("with file\npages MB", plain("peak_resident", MB)),
    ("page cache,\npeak MB", plain("peak_cached", MB)),
    ("dirty,\npeak MB", plain("peak_dirty", MB)),
    ("written\nMB", plain("written", MB)),
)
DRAWN = {"s": plain("total_ns", 1e9), "anonymous and file pages, peak MB": plain("peak_resident", MB)}


def described(record: Record) -> str:
    """Return what was measured, in one line."""
    options = record.options
    return (
        f"mosaic: {options['rows']} x {options['columns']} tiles of {options['size']} x {options['size']} u16, "
        f"{record.data['bytes'] / MB:.1f} MB; the cap is {options['cap'] / MB:.1f} MB; "
        f"{counted(rounds_of(record), 'round')}"
    )


def findings(record: Record) -> Iterator[str]:
    """Yield how the capped canvas compares with writing the same bytes, and with its cap."""
    for case in record.cases():
        floor, ours = (record.spread(name, case, "total_ns") for name in (FLOOR, CAPPED))
        if floor is not None and ours is not None:
            yield f"{CAPPED} reaches {number(floor.median / ours.median)} of the rate of {FLOOR}."
        if (peak := record.spread(CAPPED, case, "peak_resident")) is not None:
            cap = number(record.options["cap"] / MB)
            yield f"{CAPPED} holds at most {number(peak.high / MB)} MB, where {cap} may be."


SCENARIO = Scenario(NAME, described, table_by_case(COLUMNS), findings, by_case(DRAWN))


@click.command(NAME)
@cli.common(SCENARIO, Options())
def command(*, options: Options, measure: Measure) -> None:
    """Measure stitching under a cap: tiles of 16-bit pixels onto a canvas that is brought down to the disk.

    Beside it the same bytes, written and flushed; the heap, where it fits; numpy.memmap; zarr. 40 x 40 tiles are
    13.4 GB, the usual 20 x 20 a quarter of it.
    """
    measure(lambda place, watch, log: run(place, options, watch, log))
