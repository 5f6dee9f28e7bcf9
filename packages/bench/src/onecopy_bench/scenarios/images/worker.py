"""The child of a sample of `bench images`: a program that decodes images, holds them, and stitches them."""

from __future__ import annotations

import gc
import importlib
import resource
import zlib
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np

from onecopy_bench.engine.child import Steps
from onecopy_bench.engine.ways import named
from onecopy_bench.scenarios.images.ways import WAYS, Way, Work

STEP = 256
"""Rows of a canvas that are read at once."""


def checksum(canvas: Any, rows: int) -> int:
    """Return the CRC-32 of all pixels of what can be sliced into arrays by rows."""
    found = 0
    for row in range(0, rows, STEP):
        found = zlib.crc32(np.ascontiguousarray(canvas[row : row + STEP]).data, found)
    return found


@dataclass(frozen=True, slots=True)
class Errand:
    """What a worker has to do.

    Attributes
    ----------
    way, work
        What, with which files.
    sync
        Bring everything down to the disk; part of the time.
    limit
        Bytes of private memory (RLIMIT_DATA) beyond what the imports took; None: no limit.
    """

    way: str
    work: Work
    sync: bool = False
    limit: int | None = None


def run(way: Way, errand: Errand) -> tuple[dict[str, Any], list[Any], Any]:
    """Do the work once; return what the clocks and the kernel say, the images, and the canvas."""
    work = errand.work
    before, start = resource.getrusage(resource.RUSAGE_SELF), perf_counter_ns()
    images = [way.decode(work, number) for number in range(len(work.paths))]
    decoded = perf_counter_ns()
    canvas = way.stitch(work, images)
    stitched = perf_counter_ns()
    if errand.sync and way.sync is not None:
        way.sync(work, images, canvas)
    end, after = perf_counter_ns(), resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return (
        {
            "total_ns": end - start,
            "decode_ns": decoded - start,
            "stitch_ns": stitched - decoded,
            "sync_ns": end - stitched,
            "cpu_ns": round(cpu * 1e9),
            "minor_faults": after.ru_minflt - before.ru_minflt,
            "major_faults": after.ru_majflt - before.ru_majflt,
        },
        images,
        canvas,
    )


def restrict(limit: int) -> None:
    """Let the kernel refuse private memory beyond what is there now and `limit` bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    now = next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData:"))
    resource.setrlimit(resource.RLIMIT_DATA, (now + limit, now + limit))


def play(errand: Errand) -> Steps:
    """Decode, hold and stitch; then give everything back."""
    way = named(WAYS, errand.way)
    for module in way.needs:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    yield "ready", {}
    if errand.limit is not None:
        restrict(errand.limit)
    message, images, canvas = run(way, errand)
    yield "started", message
    yield "checked", {"checksum": checksum(way.look(errand.work, canvas), errand.work.canvas[0])}
    del images, canvas
    gc.collect()
    yield "dropped", {}
