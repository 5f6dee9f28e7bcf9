"""`onecopy bench start`: measure a program that does other work before it copies all weights from a cold file.

The methods differ in which process reads, and in when it begins: during the copy, when the weights are needed, or
from the very start, in parallel with the work. The file is evicted before each sample, and the sample verifies this.
"read" counts the bytes that the device reads for any process.

The work consists of compiling source code, which holds the GIL, as imports do. Its amount is fixed, but not its
duration, so that any slowdown caused by warming is visible; `pace` determines the amount. Weights are copied piece
by piece into one buffer, as for an upload to a device. Computing checksums is not part of the measured times.
"""

from __future__ import annotations

import mmap
import os
import statistics
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

import onecopy as oc
from onecopy_bench import system
from onecopy_bench.files.layout import Layout, Piece, checksum_of_file, combine, touch_array
from onecopy_bench.peers import Peer, named
from onecopy_bench.pictures import by_case
from onecopy_bench.places import PLACES, Unavailable, spot_of
from onecopy_bench.processes import call_once, expect_same, start_workers
from onecopy_bench.record import Absent, Case, Record
from onecopy_bench.runs import Attempt, Measured, Settings, Trial
from onecopy_bench.scenario import Plan, Scenario, Setup, limits_of_cold_runs, option, size_option
from onecopy_bench.system import difference, disk_bytes
from onecopy_bench.tables import MB, plain, table_by_case
from onecopy_bench.worker import Steps, prepare

NAME = "start"
BLOCK = 16 << 20
"""Number of random bytes. The file repeats them, each time preceded by a different number."""
SOURCE = "\n".join(f"def f{n}(a, b=({n}, 'x')):\n    return [a, b, {{'k{n}': a + {n}}}]" for n in range(60))
"""The source code that one unit of work compiles, which takes a few milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Method(Peer):
    """`begin(path)` runs before the program's other work. Afterwards, `wait(result)` returns the file's bytes."""

    begin: Callable[[str], Any]
    wait: Callable[[Any], NDArray[np.uint8]]


def _view(mapping: Any) -> NDArray[np.uint8]:
    return np.frombuffer(mapping.view(), np.uint8)


def _warmed(mapping: Any, job: Any) -> NDArray[np.uint8]:
    job.wait()
    return _view(mapping)


def _warming(path: str) -> Any:
    mapping = oc.Mapping(path)
    return mapping, oc.warm(mapping, wait=False)


def _willneed(path: str) -> mmap.mmap:
    """Request the whole file with one madvise call, as programs commonly do."""
    with open(path, "rb") as file:  # noqa: PTH123 - text
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    mapped.madvise(mmap.MADV_WILLNEED)
    return mapped


METHODS = (
    Method("none", "mapped; copying reads it", ours=True, begin=oc.Mapping, wait=_view),
    Method(
        "warm at copy", "warm, when the work is done", ours=True, begin=oc.Mapping,
        wait=lambda mapping: _warmed(mapping, oc.warm(mapping, wait=False)),
    ),
    Method(
        "warm early", "warm(wait=False) before the work, wait() after it", ours=True, begin=_warming,
        wait=lambda begun: _warmed(*begun),
    ),
    Method(
        "warm early, no wait", "the same, but copied while the file may still be read", ours=True, begin=_warming,
        wait=lambda begun: _view(begun[0]),
    ),
    Method(
        "willneed", "madvise(MADV_WILLNEED) on the whole file before the work",
        begin=_willneed, wait=lambda mapped: np.frombuffer(mapped, np.uint8),
    ),
    Method(
        "fromfile", "numpy.fromfile when the work is done", private=1.0, begin=str,
        wait=lambda path: np.fromfile(path, np.uint8),
    ),
    Method(
        "cat early", "cat FILE > /dev/null before the work, numpy.memmap after it",
        begin=lambda path: (path, subprocess.Popen(("cat", path), stdout=subprocess.DEVNULL)),
        wait=lambda begun: np.memmap(begun[0], mode="r"),  # the process is not waited for
    ),
)  # fmt: skip


def work(units: int) -> None:
    """Compile a number of units of source code, to simulate the other work during a start."""
    for _ in range(units):
        compile(SOURCE, "<work>", "exec")


def pace(seconds: float = 0.5) -> int:
    """Return the duration of a unit of work in nanoseconds: the median over `seconds` of work."""
    work(1)
    times: list[int] = []
    while not times or sum(times) < seconds * 1e9:
        start = perf_counter_ns()
        work(1)
        times.append(perf_counter_ns() - start)
    return statistics.median_low(times)


def copied(weights: NDArray[np.uint8], buffer: NDArray[np.uint8]) -> tuple[int, int, int]:
    """Copy all weights through one buffer. Return the ns spent copying, the ns spent on checksums, and the checksum."""
    sums, copying, reading = [], 0, 0
    for number, at in enumerate(range(0, len(weights), len(buffer))):
        start = perf_counter_ns()
        part = weights[at : at + len(buffer)]
        np.copyto(buffer[: len(part)], part)
        end = perf_counter_ns()
        sums.append(touch_array(str(number), buffer[: len(part)]))
        copying += end - start
        reading += perf_counter_ns() - end
    return copying, reading, combine(sums)


def steps(method: str, path: str = "", piece: int = 1, units: int = 0) -> Steps:
    """Do a number of units of work, copy the weights piece by piece, and keep them in memory."""
    copied(np.zeros(1 << 16, np.uint8), np.ones(1 << 15, np.uint8))
    work(1)
    prepare(("onecopy.files.mapping", "onecopy.files.page_cache"))
    yield "ready", {}
    chosen = named(METHODS, method)
    buffer = np.ones(piece, np.uint8)  # written, so that its pages are allocated
    start = perf_counter_ns()
    begun = chosen.begin(path)
    at_work = perf_counter_ns()
    work(units)
    at_need = perf_counter_ns()
    weights = chosen.wait(begun)
    at_copy = perf_counter_ns()
    copying, reading, checksum = copied(weights, buffer)
    times = {"work_ns": at_need - at_work, "wait_ns": at_copy - at_need, "copy_ns": copying}
    yield "started", {"total_ns": perf_counter_ns() - start - reading, **times, "checksum": checksum}
    del begun, weights


# --- the scenario -----------------------------------------------------------------------------------------------------


NAMES = tuple(method.name for method in METHODS)
PLACE = "Location of the weights: the disk, a loop disk with 128 KiB of read-ahead, or a slow FUSE server (needs root)."


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """The options of the scenario."""

    size: int = size_option("2GiB", "Size of the weights.")
    work_s: float = option(5.0, "Duration of the other work alone, in seconds.", at_least=0.0)
    piece: int = size_option("16MiB", "Bytes that are copied at once.")
    ways: tuple[str, ...] = option(NAMES, "When and by which process the file is read.", "--way", choices=NAMES)
    places: tuple[str, ...] = option(("disk", "128K"), PLACE, "--place", choices=PLACES)


def plan(setup: Setup, options: Options) -> Plan:
    """Write the weights and plan a run for each method and location."""
    setup.say("writing the weights")
    source = setup.place / "weights.bin"
    write(source, options.size)
    spots, absent = [], []
    for name in options.places:
        try:
            spots.append(spot_of(name, source, setup.stack))
        except Unavailable as reason:
            absent.append(Absent(f"place {name}", str(reason)))
    # The number of units that take `work_s` seconds in a process that does nothing else.
    units = round(options.work_s * 1e9 / call_once(options.timeout, pace))
    starts = enumerate(range(0, options.size, options.piece))
    pieces = (Piece(str(n), at, min(options.piece, options.size - at)) for n, at in starts)
    checksum = checksum_of_file(source, Layout("bytes", options.size, tuple(pieces)))
    chosen = [method for method in METHODS if method.name in options.ways]
    trials = [
        Trial(
            method.name, (spot.name,), method.private * options.size,
            partial(_take, method.name, str(spot.path), units, checksum, options),
        )
        for spot in spots
        for method in chosen
    ]  # fmt: skip
    data = {"bytes": options.size, "places": {spot.name: spot.read_ahead_bytes for spot in spots}}
    return Plan(chosen, trials, data, absent, source)


def write(path: Path, size: int) -> None:
    """Write incompressible weights without equal blocks, and flush them to the disk."""
    block = bytearray(os.urandom(min(BLOCK, size)))
    with path.open("wb") as file:
        for number, at in enumerate(range(0, size, BLOCK)):
            block[:8] = number.to_bytes(8, "little")
            file.write(memoryview(block)[: size - at])
        os.fsync(file.fileno())


def _take(method: str, path: str, units: int, checksum: int, options: Options, attempt: Attempt) -> Measured:
    attempt.begin()
    with start_workers(
        __name__, 1, options.timeout, method=method, path=path, piece=options.piece, units=units
    ) as workers:
        cached = system.set_cache_state(path, "cold")
        read = disk_bytes(path)
        (message,) = workers.step("started")
        read = difference(disk_bytes(path), read)
        workers.dismiss()
    expect_same(message["checksum"], checksum, "the checksums of the copy and of the file")
    numbers = {name: float(message[name]) for name in ("total_ns", "work_ns", "wait_ns", "copy_ns")}
    return Measured(
        numbers | {"gb_per_s": options.size / numbers["copy_ns"], "read_bytes": read, "cached_before": cached}
    )


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
    return f"{record.data['bytes'] / MB:.1f} MB of weights, cold, and {record.options['work_s']:g} s of other work"


SCENARIO = Scenario(
    NAME,
    """Measure a program's start: other work, and then a copy of all weights from a cold file, as for a device.

    The file is not warmed, warmed when it is needed, or warmed from the start, in parallel with the work. The
    peers are numpy.fromfile and `cat` in the background. Each sample is a fresh process, and the file is evicted
    before it. """,
    Options(),
    plan,
    _described,
    table_by_case(COLUMNS, _title),
    draw=by_case(DRAWN),
    limits=limits_of_cold_runs,
)
