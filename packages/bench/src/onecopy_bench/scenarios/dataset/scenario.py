"""`onecopy bench dataset`: images that ranks with forked workers read for two epochs.

The images are decoded in every epoch, held by each rank, kept in a file each, or decoded once per machine. What is
measured is the time of the first epoch, with all that comes before it, that of the second, the memory of all ranks and
workers, and the page cache of what was written. The image files are in the page cache.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from onecopy import page_cache
from onecopy_bench.engine import options as cli
from onecopy_bench.engine import rounds
from onecopy_bench.engine.crew import crew_of
from onecopy_bench.engine.machine.processes import totals_of
from onecopy_bench.engine.memory import difference
from onecopy_bench.engine.options import Measure
from onecopy_bench.engine.pages import Scenario, rounds_of
from onecopy_bench.engine.pictures import by_case
from onecopy_bench.engine.record import Case, Log, Record, heading
from onecopy_bench.engine.rounds import Attempt, Progress, Settings, Taken, Turn, Watch
from onecopy_bench.engine.tables import MB, Column, Spread, counted, number, plain, table_by_case
from onecopy_bench.engine.ways import installed, require
from onecopy_bench.scenarios.dataset import inputs, worker
from onecopy_bench.scenarios.dataset.ways import NAMES, WAYS, Way, Work

NAME = "dataset"
NEEDS = ("PIL",)
SECOND = 1e9


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How the scenario is run."""

    rounds: int = 3
    count: int = cli.field(20_000, "Of the images.", type=click.IntRange(min=1))
    height: int = cli.field(96, "Of each image, in pixels.", type=click.IntRange(min=1))
    width: int = cli.field(128, "Of each image, in pixels.", type=click.IntRange(min=1))
    ranks: int = cli.field(2, "Processes that read the dataset together.", type=click.IntRange(min=1))
    workers: int = cli.field(2, "Of each rank.", type=click.IntRange(min=1))
    ways: tuple[str, ...] = cli.field(NAMES, "What is compared.", "--way", choices=NAMES)


def run(place: Path, options: Options, watch: Watch = lambda _: None, log: Log | None = None) -> Record:
    """Measure every way.

    Raises
    ------
    ModuleNotFoundError
        Pillow is not installed.
    OSError
        The images cannot be written.
    ValueError
        The log is of another run.
    """
    require(NEEDS, NAME, "'onecopy[images]'")
    watch(Progress(0, 1, "writing the images"))
    images = place / "images"
    write(images, options)
    chosen, absent = installed(WAYS, options.ways)
    decoded = options.count * options.height * options.width * 3
    compressed = sum(entry.stat().st_size for entry in os.scandir(images))
    data = {"decoded": decoded, "compressed": compressed}
    head = heading(NAME, place, options, chosen, data=data, absent=absent)
    case = (f"{options.ranks} ranks of {counted(options.workers, 'worker')}",)
    turns = [
        Turn(way.name, case, way.private * decoded * options.ranks, sample(way, str(images), options)) for way in chosen
    ]
    return rounds.run(head, turns, options, place, watch=watch, log=log)


def write(folder: Path, options: Options) -> None:
    """Write the images with a child; OSError if it fails."""
    folder.mkdir()
    words = [str(os.getpid()), str(folder), *map(str, (options.count, options.height, options.width))]
    command = [sys.executable, "-P", "-m", inputs.__name__, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"the images cannot be written: {done.stderr.strip()[-300:]}")


def sample(way: Way, images: str, options: Options) -> Callable[[Attempt], Taken]:
    """Return what takes one sample."""

    def take(attempt: Attempt) -> Taken:
        folder = attempt.folder()
        errand = worker.Errand(way.name, Work(images, str(folder)), options.ranks, options.workers)
        attempt.back()
        with crew_of(worker.__name__, errand, options.ranks, options.timeout, ["OMP_NUM_THREADS=1"]) as crew:
            attempt.wait()
            before = totals_of(crew.pids)
            first = crew.step("first")
            second = crew.step("second")
            after = totals_of([*crew.pids, *(pid for message in second for pid in message["workers"])])
            crew.dismiss()
        return Taken(
            {
                "first_ns": max(message["ns"] for message in first),
                "open_ns": max(message["open_ns"] for message in first),
                "second_ns": max(message["ns"] for message in second),
                "pss": after.pss - before.pss,
                "anonymous": difference(after.anonymous_pss, before.anonymous_pss),
                "cached": cached(folder),
                "checksum": sum(message["checksum"] for message in second),
            }
        )

    return take


def cached(folder: Path) -> int | None:
    """Return the bytes of the files below a folder that are in the page cache; None where that is unknown."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size]
    reports = [page_cache.residency(path).cached for path in files]
    return None if None in reports else sum(nbytes for nbytes in reports if nbytes is not None)


def images_per_s(record: Record, row: str, case: Case) -> Spread | None:
    """Return the images that all ranks read per second in the second epoch."""
    count = record.options["count"]
    return Spread.of(count * SECOND / one.numbers["second_ns"] for one in record.of(row, case))


COLUMNS: tuple[Column, ...] = (
    ("first epoch\ns", plain("first_ns", SECOND)),
    ("second epoch\ns", plain("second_ns", SECOND)),
    ("images/s,\nsecond epoch", images_per_s),
    ("PSS of all\nMB", plain("pss", MB)),
    ("of it anonymous\nMB", plain("anonymous", MB)),
    ("page cache of\nwhat was written, MB", plain("cached", MB)),
)
DRAWN = {"MB, PSS of all processes": plain("pss", MB), "s of the second epoch": plain("second_ns", SECOND)}


def described(record: Record) -> str:
    """Return what was measured, in one line."""
    options, data = record.options, record.data
    return (
        f"dataset: {options['count']} JPEG images of {options['height']} x {options['width']} pixels, "
        f"{data['compressed'] / MB:.0f} MB, decoded {data['decoded'] / MB:.0f} MB; two epochs by "
        f"{options['ranks']} ranks of {counted(options['workers'], 'worker')}; {counted(rounds_of(record), 'round')}"
    )


def findings(record: Record) -> Iterator[str]:
    """Yield what sharing changes beside each other way, and whether all have read the same pixels."""
    for case in record.cases():
        ours = {name: record.spread("onecopy", case, name) for name in ("second_ns", "anonymous")}
        sums = [record.spread(row.name, case, "checksum") for row in record.rows]
        same = len({value for spread in sums if spread is not None for value in (spread.low, spread.high)}) == 1
        for row in record.rows:
            second, memory = (record.spread(row.name, case, name) for name in ours)
            if row.ours or second is None or memory is None:
                continue
            if ours["second_ns"] is None or ours["anonymous"] is None:
                continue
            yield (
                f"{row.name} -> onecopy: anonymous memory {memory.median / MB:.0f} MB -> "
                f"{ours['anonymous'].median / MB:.0f} MB, second epoch in "
                f"{number(ours['second_ns'].median / second.median)} of the time."
            )
        yield f"The pixels of all ways are {'equal' if same else 'DIFFERENT'}."


SCENARIO = Scenario(NAME, described, table_by_case(COLUMNS), findings, by_case(DRAWN))


@click.command(NAME)
@cli.common(SCENARIO, Options())
def command(*, options: Options, measure: Measure) -> None:
    """Measure datasets of images: decoded in every epoch, held by each rank, in files of numpy, or by oc.images.share.

    Ranks fork workers, which read the images in a shuffled order for two epochs. The page cache is counted.
    """
    measure(lambda place, watch, log: run(place, options, watch, log))
