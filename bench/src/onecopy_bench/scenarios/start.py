"""The scenario `start`: a program that has other work to do before it copies all weights out of a cold file.

What is measured is when reading begins and by whom: never, when the weights are needed, or at the very start beside
the work. Every sample is a fresh process that does an amount of work and then copies the file piece by piece, as an
upload to a device does. The file is evicted before each, and the kernel is asked whether that worked; bytes read are
those of the device, for whomever. The same on a loop device for each read-ahead asked for, in the same rounds.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onecopy_bench import runner, touch
from onecopy_bench.children import SampleError
from onecopy_bench.layout import Layout, Piece
from onecopy_bench.machine import cache
from onecopy_bench.passes.limits import Unavailable
from onecopy_bench.record import Absent
from onecopy_bench.records import rounds
from onecopy_bench.records.rounds import Settings, Turn
from onecopy_bench.scenarios.warm import spot_of
from onecopy_bench.starts import worker
from onecopy_bench.starts.tables import NAME
from onecopy_bench.starts.ways import NAMES, WAYS, Way

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from onecopy_bench.passes.cells import Spot
    from onecopy_bench.records.record import Run, RunJournal
    from onecopy_bench.records.rounds import Result

BLOCK = 16 << 20
"""Bytes that are made up once; the file repeats them, each time with a number in front."""


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How the scenario is run.

    Attributes
    ----------
    size
        Bytes of the weights.
    work_s, work
        Seconds that the rest of the start takes by itself; "cpu": of one thread, "sleep": waiting for others.
    piece
        Bytes that are copied at once.
    ways
        What is compared.
    read_aheads
        Bytes, each on a loop device (root); None is the device of the folder.
    """

    size: int = 2 << 30
    work_s: float = 5.0
    work: str = "cpu"
    piece: int = 16 << 20
    ways: tuple[str, ...] = NAMES
    read_aheads: tuple[int | None, ...] = (None, 128 << 10)


def run(
    place: Path,
    options: Options = Options(),
    watch: Callable[[runner.Progress], None] = lambda _: None,
    journal: RunJournal | None = None,
) -> Run:
    """Measure every way in every place and return the record.

    Parameters
    ----------
    place
        A folder for the weights, on the disk that is to be measured.
    options
        Size, work, places.
    watch
        Called before each sample and at the end.
    journal
        Where samples are kept as they come, and found again.

    Raises
    ------
    OSError
        If the weights cannot be written.
    ValueError
        If the journal is of another run.
    """
    watch(runner.Progress(0, 1, "writing the weights"))
    source = place / "weights.bin"
    write(source, options.size)
    chosen = [way for way in WAYS if way.name in options.ways]
    with contextlib.ExitStack() as stack:
        spots, absent = [], []
        for ahead in options.read_aheads:
            try:
                spots.append(spot_of(source, ahead, stack))
            except Unavailable as reason:
                absent.append(Absent(f"read-ahead of {(ahead or 0) >> 10} KiB", str(reason)))
        data = {"bytes": options.size, "places": {s.place.name: s.place.read_ahead_bytes for s in spots}}
        heading = rounds.heading(NAME, source, options, chosen, data=data, absent=absent)
        work = units(options) if options.work == "cpu" and spots else 0
        checksum = touch.of_file(source, layout(options))
        found = [
            Turn(way.name, (spot.place.name,), way.private * options.size, sample(way, spot, work, checksum, options))
            for spot in spots
            for way in chosen
        ]
        return rounds.run(heading, found, options, place, watch=watch, journal=journal)


def write(path: Path, size: int) -> None:
    """Write weights that nothing can compress or take for one another, down to the disk; OSError names the file."""
    block = bytearray(os.urandom(min(BLOCK, size)))
    with path.open("wb", buffering=0) as file:
        try:
            for number, at in enumerate(range(0, size, BLOCK)):
                block[:8] = number.to_bytes(8, "little")
                left = memoryview(block)[: size - at]
                while left:  # a disk that is nearly full takes less than it is given
                    left = left[file.write(left) :]
            os.fsync(file.fileno())
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error


def layout(options: Options) -> Layout:
    """Return the pieces that are copied, for the judge of what was copied."""
    ends = range(0, options.size, options.piece)
    pieces = (Piece(str(n), at, min(options.piece, options.size - at)) for n, at in enumerate(ends))
    return Layout("bytes", options.size, tuple(pieces))


def units(options: Options) -> int:
    """Return how much work takes the seconds that were asked for, by a process that does nothing else."""
    with rounds.crew_of(worker.__name__, worker.Errand(worker.PACE, "", 1), 1, options.timeout) as crew:
        crew.release("start")
        (message,) = crew.gather("started")
        crew.dismiss()
    return round(options.work_s * 1e9 / int(message["unit_ns"]))


def sample(way: Way, spot: Spot, work: int, checksum: int, options: Options) -> Callable[[Path], Result]:
    """Return what takes one sample."""
    path = str(spot.path)
    seconds = options.work_s if options.work == "sleep" else 0.0
    errand = worker.Errand(way.name, path, options.piece, work, seconds)

    def take(_: Path) -> Result:
        with rounds.crew_of(worker.__name__, errand, 1, options.timeout) as crew:
            before = evicted(path)
            read = runner.disk_bytes(path)
            crew.release("start")
            (message,) = crew.gather("started")
            read = runner.difference(runner.disk_bytes(path), read)
            crew.dismiss()
        if message["checksum"] != checksum:
            raise SampleError("wrong data", f"copied {message['checksum']:#x}, the file has {checksum:#x}")
        numbers = {name: float(message[name]) for name in ("total_ns", "work_ns", "wait_ns", "copy_ns")}
        return {
            **numbers,
            "gb_per_s": options.size / numbers["copy_ns"],
            "read_bytes": read,
            "cached_before": before,
        }, ()

    return take


def evicted(path: str) -> int:
    """Take a file out of memory; raises SampleError unless the kernel says that nothing of it is left."""
    cache.evict(path)
    left = cache.ask(path)
    if left is None:
        raise SampleError("failed", "the kernel does not tell whether the file is cold")
    if left:
        raise SampleError("failed", f"{left} bytes of the file stay in memory: it is not cold")
    return left
