"""`onecopy bench start`: a program that has other work to do before it copies all weights out of a cold file.

What is measured is when reading begins and by which process: never, when the weights are needed, or at the very start
beside the work. The file is evicted before each sample, and proven to be; bytes read are those of the device, for any
process.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from onecopy_bench.engine import rounds
from onecopy_bench.engine import scenario as cli
from onecopy_bench.engine.crew import SampleError, crew_of
from onecopy_bench.engine.machine import cache, disks
from onecopy_bench.engine.machine.disks import Spot
from onecopy_bench.engine.machine.limits import Unavailable
from onecopy_bench.engine.memory import difference, disk_bytes
from onecopy_bench.engine.pictures import by_case
from onecopy_bench.engine.record import Absent, Case, Log, Record, heading
from onecopy_bench.engine.rounds import Attempt, Progress, Settings, Taken, Turn, Watch
from onecopy_bench.engine.scenario import Scenario
from onecopy_bench.engine.tables import MB, counted, number, plain, table_by_case
from onecopy_bench.files import touch
from onecopy_bench.files.layout import Layout, Piece
from onecopy_bench.workers import start as worker
from onecopy_bench.workers.start import WAYS, Way

NAME = "start"
NAMES = tuple(way.name for way in WAYS)
WORK = "What it is: compiling of source, in one thread that holds the GIL; or waiting."
PLACE = "'disk': where the weights are. A read-ahead such as 128K: a loop device with it (root)."
BLOCK = 16 << 20
"""Bytes that are made up once; the file repeats them, each time with a number in front."""


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How the scenario is run."""

    size: int = cli.size("2GiB", "Of the weights.")
    work_s: float = cli.option(5.0, "Seconds of other work, by itself.", type=click.FloatRange(min=0))
    work: str = cli.option("cpu", WORK, type=click.Choice(("cpu", "sleep")))
    piece: int = cli.size("16MiB", "Copied at once.")
    ways: tuple[str, ...] = cli.option(NAMES, "Which process reads when.", "--way", choices=NAMES)
    places: tuple[str, ...] = cli.places(("disk", "128K"), PLACE)


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
                spots.append(disks.spot_of(source, None if name == "disk" else cli.read_ahead_of(name), stack))
            except Unavailable as reason:
                absent.append(Absent(f"read-ahead of {name}", str(reason)))
        data = {"bytes": options.size, "places": {spot.name: spot.read_ahead_bytes for spot in spots}}
        head = heading(NAME, source, options, chosen, data=data, absent=absent)
        units = _units(options) if options.work == "cpu" and spots else 0
        checksum = touch.of_file(source, _layout(options))
        turns = [
            Turn(way.name, (spot.name,), way.private * options.size, _sample(way, spot, units, checksum, options))
            for spot in spots
            for way in chosen
        ]
        return rounds.run(head, turns, options, place, watch=watch, log=log)


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


def _layout(options: Options) -> Layout:
    """Return the pieces that are copied, for the judge of what was copied."""
    starts = range(0, options.size, options.piece)
    pieces = (Piece(str(n), at, min(options.piece, options.size - at)) for n, at in enumerate(starts))
    return Layout("bytes", options.size, tuple(pieces))


def _units(options: Options) -> int:
    """Return how much work takes the seconds that were asked for, by a process that does nothing else."""
    with crew_of(worker, 1, options.timeout, way=worker.PACE) as crew:
        (message,) = crew.step("started")
        crew.dismiss()
    return round(options.work_s * 1e9 / int(message["unit_ns"]))


def _sample(way: Way, spot: Spot, units: int, checksum: int, options: Options) -> Callable[[Attempt], Taken]:
    path, seconds = str(spot.path), options.work_s if options.work == "sleep" else 0.0
    errand: dict[str, Any] = {"way": way.name, "path": path, "piece": options.piece, "units": units, "seconds": seconds}

    def take(attempt: Attempt) -> Taken:
        attempt.begin()
        with crew_of(worker, 1, options.timeout, **errand) as crew:
            before, read = evicted(path), disk_bytes(path)
            (message,) = crew.step("started")
            read = difference(disk_bytes(path), read)
            crew.dismiss()
        if message["checksum"] != checksum:
            raise SampleError("wrong data", f"copied {message['checksum']:#x}, the file has {checksum:#x}")
        numbers = {name: float(message[name]) for name in ("total_ns", "work_ns", "wait_ns", "copy_ns")}
        rate = options.size / numbers["copy_ns"]
        return Taken({**numbers, "gb_per_s": rate, "read_bytes": read, "cached_before": before})

    return take


def evicted(path: str) -> int:
    """Take a file out of memory; raises SampleError unless the kernel reports that nothing of it is left."""
    cache.evict(path)
    left = cache.ask(path)
    if left is None:
        raise SampleError("failed", "the kernel does not report whether the file is cold")
    if left:
        raise SampleError("failed", f"{left} bytes of the file stay in memory: it is not cold")
    return left


COLUMNS = (
    ("start\ns", plain("total_ns", 1e9)),
    ("of it:\nwork s", plain("work_ns", 1e9)),
    ("waiting\ns", plain("wait_ns", 1e9)),
    ("copying\ns", plain("copy_ns", 1e9)),
    ("copying\nGB/s", plain("gb_per_s")),
    ("read\nMB", plain("read_bytes", MB)),
)
DRAWN = {"s until everything is copied": plain("total_ns", 1e9), "GB/s of the copy": plain("gb_per_s")}
NONE, LATE, EARLY = "none", "warm at copy", "warm early"


def _title(record: Record, case: Case) -> str:
    ahead = record.data["places"].get(case[0])
    return f"{case[0]}, read-ahead {'unknown' if ahead is None else f'{ahead // 1024} KiB'}"


def _described(record: Record) -> str:
    doing = {"cpu": "of work of one thread", "sleep": "of sleep"}[record.options["work"]]
    return (
        f"start: {record.data['bytes'] / MB:.1f} MB of weights, cold, beside {record.options['work_s']:g} s {doing}; "
        f"{counted(record.rounds, 'round')}"
    )


def _findings(record: Record) -> Iterator[str]:
    """Yield, for each place, what warming early saves, and how that compares with others."""
    for case in record.cases():
        found = {row.name: record.spread(row.name, case, "total_ns") for row in record.rows}
        seconds = {name: spread.median / 1e9 for name, spread in found.items() if spread is not None}
        if {NONE, LATE, EARLY} <= seconds.keys():
            words = ", ".join(f"{name} {number(seconds[name])}" for name in (NONE, LATE, EARLY))
            share = number(seconds[NONE] / seconds[EARLY])
            yield f"{case[0]}: s until all is copied: {words}; {EARLY} is {share} times as fast as {NONE}."
        others = {name: value for name, value in seconds.items() if name not in record.ours}
        if EARLY in seconds and others:
            best = min(others, key=others.__getitem__)
            words = f"{EARLY} {number(seconds[EARLY])} s, the best of the others {number(others[best])} ({best})"
            yield f"{case[0]}: {words}."


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
    _findings,
    by_case(DRAWN),
)
