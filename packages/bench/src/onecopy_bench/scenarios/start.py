"""`onecopy bench start`: a program that has other work to do before it copies all weights out of a cold file.

What is measured is when reading begins and by which process: never, when the weights are needed, or at the very start
beside the work. The file is evicted before each sample, and proven to be; bytes read are those of the device, for any
process.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from onecopy.base.text import counted
from onecopy_bench.engine import rounds, scenario as cli
from onecopy_bench.engine.crew import SampleError, crew_of, once
from onecopy_bench.engine.machine import cache, disks
from onecopy_bench.engine.machine.limits import Unavailable
from onecopy_bench.engine.memory import difference, disk_bytes
from onecopy_bench.engine.pictures import by_case
from onecopy_bench.engine.record import Absent, Case, Log, Record, heading
from onecopy_bench.engine.rounds import Attempt, Progress, Settings, Taken, Turn, Watch
from onecopy_bench.engine.scenario import Scenario
from onecopy_bench.engine.tables import MB, plain, table_by_case
from onecopy_bench.files import touch
from onecopy_bench.files.layout import Layout, Piece
from onecopy_bench.workers import start as worker
from onecopy_bench.workers.start import PACE, WAYS

NAME = "start"
NAMES = tuple(way.name for way in WAYS)
PLACE = (
    "'disk': where the weights are. A read-ahead such as 128K: a loop device with it (root). 'fuse': a file system"
    " that answers each request after half a millisecond (root)."
)
BLOCK = 16 << 20
"""Bytes that are made up once; the file repeats them, each time with a number in front."""


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How the scenario is run."""

    size: int = cli.size("2GiB", "Of the weights.")
    work_s: float = cli.option(5.0, "Seconds of other work, by itself.", type=click.FloatRange(min=0))
    piece: int = cli.size("16MiB", "Copied at once.")
    ways: tuple[str, ...] = cli.option(NAMES, "Which process reads, and when.", "--way", choices=NAMES)
    places: tuple[str, ...] = cli.places(("disk", "128K"), PLACE, ("disk", disks.FUSE))


def run(place: Path, options: Options, watch: Watch = lambda _: None, log: Log | None = None) -> Record:
    """Measure every way in every place, with weights in a folder on the disk that is to be measured."""
    watch(Progress(0, 1, "writing the weights"))
    source = place / "weights.bin"
    write(source, options.size)
    chosen = [way for way in WAYS if way.name in options.ways]
    with contextlib.ExitStack() as stack:
        spots, absent = [], []
        for name in options.places:
            try:
                spots.append(_spot(name, source, stack))
            except Unavailable as reason:
                absent.append(Absent(f"place {name}", str(reason)))
        data = {"bytes": options.size, "places": {spot.name: spot.read_ahead_bytes for spot in spots}}
        head = heading(NAME, source, options, chosen, data=data, absent=absent)
        # As much work as takes the seconds that were asked for, by a process that does nothing else.
        units = round(options.work_s * 1e9 / once(worker, options.timeout, "started", way=PACE)["unit_ns"])
        starts = enumerate(range(0, options.size, options.piece))
        pieces = (Piece(str(n), at, min(options.piece, options.size - at)) for n, at in starts)
        checksum = touch.of_file(source, Layout("bytes", options.size, tuple(pieces)))
        turns = [
            Turn(
                way.name, (spot.name,), way.private * options.size,
                partial(_take, way.name, str(spot.path), units, checksum, options),
            )
            for spot in spots
            for way in chosen
        ]  # fmt: skip
        return rounds.run(head, turns, options, place, watch=watch, log=log)


def _spot(name: str, source: Path, stack: contextlib.ExitStack) -> disks.Spot:
    if name == disks.FUSE:
        return disks.behind_fuse(source, stack)
    return disks.spot_of(source, None if name == "disk" else cli.read_ahead_of(name), stack)


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


def _take(way: str, path: str, units: int, checksum: int, options: Options, attempt: Attempt) -> Taken:
    attempt.begin()
    with crew_of(worker, 1, options.timeout, way=way, path=path, piece=options.piece, units=units) as crew:
        cache.evict(path)
        if left := cache.ask(path):
            raise SampleError("failed", f"{left} bytes of the file stay in memory: it is not cold")
        if left is None:
            raise SampleError("failed", "the kernel does not report whether the file is cold")
        read = disk_bytes(path)
        (message,) = crew.step("started")
        read = difference(disk_bytes(path), read)
        crew.dismiss()
    if message["checksum"] != checksum:
        raise SampleError("wrong data", f"copied {message['checksum']:#x}, the file has {checksum:#x}")
    numbers = {name: float(message[name]) for name in ("total_ns", "work_ns", "wait_ns", "copy_ns")}
    return Taken(numbers | {"gb_per_s": options.size / numbers["copy_ns"], "read_bytes": read, "cached_before": left})


COLUMNS = (
    ("start\ns", plain("total_ns", 1e9)),
    ("of it:\nwork s", plain("work_ns", 1e9)),
    ("waiting\ns", plain("wait_ns", 1e9)),
    ("copying\ns", plain("copy_ns", 1e9)),
    ("copying\nGB/s", plain("gb_per_s")),
    ("read\nMB", plain("read_bytes", MB)),
)
DRAWN = {"s until everything is copied": plain("total_ns", 1e9), "GB/s of the copy": plain("gb_per_s")}


def _title(record: Record, case: Case) -> str:
    ahead = record.data["places"].get(case[0])
    return f"{case[0]}, read-ahead {'unknown' if ahead is None else f'{ahead // 1024} KiB'}"


def _described(record: Record) -> str:
    work = f"{record.data['bytes'] / MB:.1f} MB of weights, cold, beside {record.options['work_s']:g} s of other work"
    return f"start: {work}; {counted(record.rounds, 'round')}"


SCENARIO = Scenario(
    NAME,
    """Measure a program's start: other work, and then all weights copied out of a cold file, as to a device.

    Warmed not at all, when they are needed, or from the very start beside the work; and numpy.fromfile, and `cat` in
    the background. Each sample is a fresh process; the file is evicted before it, and proven to be.
    """,
    Options(),
    run,
    _described,
    table_by_case(COLUMNS, _title),
    draw=by_case(DRAWN),
)
