"""The child of a sample with passes: a fresh interpreter that opens one file, warms it, and goes over its pieces.

    python -m onecopy_bench.passes.child SETTINGS MECHANISM FILE PARENT

The protocol is that of `onecopy_bench.child`. SETTINGS is JSON: `passes`, how often at most;
`limit_s`, after how many seconds of passes to stop between two pieces; `groups`, the control groups to join once the
imports are done. A pass reads one byte of each page, the least that a program can do, so that the differences between
the mechanisms are at their largest. Counters (faults, CPU) cover opening, warming and the first pass.
"""

from __future__ import annotations

import gc
import importlib
import json
import resource
import sys
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from onecopy_bench import touch
from onecopy_bench.child import die_with, open_channel, say, wait_for
from onecopy_bench.configurations import Job
from onecopy_bench.layout import Piece
from onecopy_bench.passes import mechanisms

if TYPE_CHECKING:
    from onecopy_bench.configurations import Configuration, Opened


def go_over(opened: Opened, deadline: int) -> tuple[int | None, int]:
    """Touch all pieces once; return their checksum, None where the deadline came first, and the bytes passed."""
    assert opened.arrays is not None
    sums, done = [], 0
    for name, array in opened.arrays():
        sums.append(touch.of_array(name, array))
        done += array.nbytes
        if perf_counter_ns() > deadline:
            return None, done
    return touch.combine(sums), done


def measure(entry: Configuration, job: Job, passes: int, limit_s: float) -> tuple[dict[str, Any], object]:
    """Run the clocks and return what they and the kernel counted, and what has to stay alive."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    start = perf_counter_ns()
    opened = entry.open(job)
    at_open = perf_counter_ns()
    notes = opened.warm() if opened.warm is not None else {}
    at_warm = perf_counter_ns()
    deadline = at_warm + round(limit_s * 1e9)
    checksum, touched, ends = None, 0, []
    after = resource.getrusage(resource.RUSAGE_SELF)
    for number in range(passes if opened.arrays is not None else 0):
        found, touched = go_over(opened, deadline)
        if number == 0:
            after = resource.getrusage(resource.RUSAGE_SELF)
            checksum = found
        if found is None:
            break
        if found != checksum:
            sys.exit(f"pass {number + 1} read other bytes than the first: {found:#x}, not {checksum:#x}")
        ends.append(perf_counter_ns() - start)
    return {
        "phase": "resident",
        "open_ns": at_open - start,
        "warm_ns": at_warm - start if opened.warm is not None else None,
        "resident_ns": ends[0] if ends else perf_counter_ns() - start,
        "checksum": checksum,
        "minor_faults": after.ru_minflt - before.ru_minflt,
        "major_faults": after.ru_majflt - before.ru_majflt,
        "cpu_ms": round((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3, 3),
        "notes": {**notes, "passes_ns": ends, "touched": touched, "cut_short": len(ends) < passes and touched > 0},
    }, opened


def main(arguments: list[str]) -> None:
    """Play the part of the one process of a sample."""
    settings, name, path, parent = arguments
    die_with(int(parent))
    channel = open_channel()
    wanted = json.loads(settings)
    table = json.loads(sys.stdin.readline())
    entry = mechanisms.named(name)
    for module in entry.modules:
        importlib.import_module(module)
    touch.of_arrays([("", np.zeros(2 * touch.STRIDE, np.uint8))])
    job = Job(path, table["kind"], table["size"], tuple(Piece(*piece) for piece in table["pieces"]))
    gc.collect()
    gc.freeze()
    for group in wanted["groups"]:  # late: what an interpreter costs is not the file's
        Path(group, "cgroup.procs").write_text("0")
    say(channel, {"phase": "ready"})
    wait_for("load")
    message, held = measure(entry, job, wanted["passes"], wanted["limit_s"])
    say(channel, message)
    wait_for("exit")
    del held


if __name__ == "__main__":
    main(sys.argv[1:])
