"""The child of a sample of `bench images`: a program that decodes images, holds them, and stitches them.

python -m onecopy_bench.images.worker PARENT

-> {"way": ..., "work": {...}, "sync": ..., "limit": ...}    see `Errand`
<- {"phase": "ready"}            imports are done
-> start
<- {"phase": "started", "total_ns": ..., "decode_ns": ..., "stitch_ns": ..., "sync_ns": ..., "cpu_ns": ..., ...}
-> check
<- {"phase": "checked", "checksum": ...}       the canvas, looked at outside of all clocks
-> drop
<- {"phase": "dropped"}          everything has been given back
-> exit
"""

from __future__ import annotations

import gc
import importlib
import json
import resource
import sys
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from onecopy_bench.child import die_with, open_channel, say, wait_for
from onecopy_bench.images import ways
from onecopy_bench.images.canvases import checksum
from onecopy_bench.images.ways import Way, Work


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


def errand_of(plain: dict[str, Any]) -> Errand:
    """Return an errand from its JSON types."""
    work = plain.pop("work")
    return Errand(work=Work(**{**work, "paths": tuple(work["paths"]), "shape": tuple(work["shape"])}), **plain)


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


def main(arguments: list[str]) -> None:
    """Play the part of the one process of a sample."""
    die_with(int(arguments[0]))
    channel = open_channel()
    errand = errand_of(json.loads(sys.stdin.readline()))
    way = ways.way_named(errand.way)
    for module in way.needs:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    say(channel, {"phase": "ready"})
    wait_for("start")
    if errand.limit is not None:
        restrict(errand.limit)
    message, images, canvas = run(way, errand)
    say(channel, {"phase": "started", **message})
    wait_for("check")
    shape = errand.work.canvas
    say(channel, {"phase": "checked", "checksum": checksum(way.look(errand.work, canvas), shape[0])})
    wait_for("drop")
    del images, canvas
    gc.collect()
    say(channel, {"phase": "dropped"})
    wait_for("exit")


if __name__ == "__main__":
    main(sys.argv[1:])
