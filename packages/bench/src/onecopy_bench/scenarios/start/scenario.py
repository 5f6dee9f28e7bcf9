"""`onecopy bench start`: a program that has other work to do before it copies all weights out of a cold file.

What is measured is when reading begins and by which process: never, when the weights are needed, or at the very start
beside the work. Every sample is a fresh process that does an amount of work and then copies the file piece by piece, as
an upload to a device does. The file is evicted before each, and proven to be; bytes read are those of the device, for
any process. The same on a loop device for each read-ahead asked for, in the same rounds.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from onecopy_bench.engine import options as cli
from onecopy_bench.engine import rounds
from onecopy_bench.engine.crew import SampleError, crew_of
from onecopy_bench.engine.machine import cache, disks
from onecopy_bench.engine.machine.disks import Spot
from onecopy_bench.engine.machine.limits import Unavailable
from onecopy_bench.engine.memory import difference, disk_bytes
from onecopy_bench.engine.options import Measure
from onecopy_bench.engine.pages import Scenario, rounds_of
from onecopy_bench.engine.pictures import by_case
from onecopy_bench.engine.record import Absent, Log, Record, heading
from onecopy_bench.engine.rounds import Attempt, Progress, Settings, Taken, Turn, Watch
from onecopy_bench.engine.tables import MB, Column, Table, counted, number, plain, table
from onecopy_bench.files import touch
from onecopy_bench.files.layout import Layout, Piece
from onecopy_bench.scenarios.start import worker
from onecopy_bench.scenarios.start.ways import NAMES, WAYS, Way

NAME = "start"
WORK = "What it is: compiling of source, in one thread that holds the GIL; or waiting."
BLOCK = 16 << 20
"""Bytes that are made up once; the file repeats them, each time with a number in front."""


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How the scenario is run.

    `work` is done on a CPU, by one thread, or it is a sleep. `read_aheads` are bytes, each on a loop device (root);
    None is the device of the folder.
    """

    size: int = cli.size("2GiB", "Of the weights.")
    work_s: float = cli.field(5.0, "Seconds of other work, by itself.", type=click.FloatRange(min=0))
    work: str = cli.field("cpu", WORK, type=click.Choice(("cpu", "sleep")))
    piece: int = cli.size("16MiB", "Copied at once.")
    ways: tuple[str, ...] = cli.field(NAMES, "Which process reads when.", "--way", choices=NAMES)
    read_aheads: tuple[int | None, ...] = (None, 128 << 10)


def run(place: Path, options: Options, watch: Watch = lambda _: None, log: Log | None = None) -> Record:
    """Measure every way in every place, with weights in a folder on the disk that is to be measured."""
    watch(Progress(0, 1, "writing the weights"))
    source = place / "weights.bin"
    write(source, options.size)
    chosen = [way for way in WAYS if way.name in options.ways]
    with contextlib.ExitStack() as stack:
        spots, absent = [], []
        for ahead in options.read_aheads:
            try:
                spots.append(disks.spot_of(source, ahead, stack))
            except Unavailable as reason:
                absent.append(Absent(f"read-ahead of {(ahead or 0) >> 10} KiB", str(reason)))
        data = {"bytes": options.size, "places": {spot.name: spot.read_ahead_bytes for spot in spots}}
        head = heading(NAME, source, options, chosen, data=data, absent=absent)
        work = units(options) if options.work == "cpu" and spots else 0
        checksum = touch.of_file(source, layout(options))
        turns = [
            Turn(way.name, (spot.name,), way.private * options.size, sample(way, spot, work, checksum, options))
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


def layout(options: Options) -> Layout:
    """Return the pieces that are copied, for the judge of what was copied."""
    ends = range(0, options.size, options.piece)
    pieces = (Piece(str(n), at, min(options.piece, options.size - at)) for n, at in enumerate(ends))
    return Layout("bytes", options.size, tuple(pieces))


def units(options: Options) -> int:
    """Return how much work takes the seconds that were asked for, by a process that does nothing else."""
    with crew_of(worker.__name__, worker.Errand(worker.PACE, "", 1), 1, options.timeout) as crew:
        (message,) = crew.step("started")
        crew.dismiss()
    return round(options.work_s * 1e9 / int(message["unit_ns"]))


def sample(way: Way, spot: Spot, work: int, checksum: int, options: Options) -> Callable[[Attempt], Taken]:
    """Return what takes one sample."""
    path = str(spot.path)
    seconds = options.work_s if options.work == "sleep" else 0.0
    errand = worker.Errand(way.name, path, options.piece, work, seconds)

    def take(attempt: Attempt) -> Taken:
        attempt.begin()
        with crew_of(worker.__name__, errand, 1, options.timeout) as crew:
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


COLUMNS: tuple[Column, ...] = (
    ("start\ns", plain("total_ns", 1e9)),
    ("of it:\nwork s", plain("work_ns", 1e9)),
    ("waiting\ns", plain("wait_ns", 1e9)),
    ("copying\ns", plain("copy_ns", 1e9)),
    ("copying\nGB/s", plain("gb_per_s")),
    ("read\nMB", plain("read_bytes", MB)),
)
DRAWN = {"s until everything is copied": plain("total_ns", 1e9), "GB/s of the copy": plain("gb_per_s")}
NONE, LATE, EARLY = "none", "warm at copy", "warm early"


def tables_of(record: Record) -> Iterator[Table]:
    """Yield a table for each place."""
    for case in record.cases():
        ahead = record.data["places"].get(case[0])
        words = f"{case[0]}, read-ahead {'unknown' if ahead is None else f'{ahead // 1024} KiB'}"
        yield table(record, words, case, [row.name for row in record.rows], COLUMNS)


def described(record: Record) -> str:
    """Return what was measured, in one line."""
    options = record.options
    doing = {"cpu": "of work of one thread", "sleep": "of sleep"}[options["work"]]
    return (
        f"start: {record.data['bytes'] / MB:.1f} MB of weights, cold, beside {options['work_s']:g} s {doing}; "
        f"{counted(rounds_of(record), 'round')}"
    )


def findings(record: Record) -> Iterator[str]:
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


SCENARIO = Scenario(NAME, described, tables_of, findings, by_case(DRAWN))


@click.command(NAME)
@cli.read_aheads((cli.DEVICE, "128K"))
@cli.common(SCENARIO, Options())
def command(*, options: Options, measure: Measure) -> None:
    """Measure a program's start: other work, and then all weights copied out of a cold file, as to a device.

    Warmed not at all, when they are needed, or from the very start beside the work; and numpy.fromfile, and `cat` in
    the background. Each sample is a fresh process; the file is evicted before it, and proven to be.
    """
    measure(lambda place, watch, log: run(place, options, watch, log))
