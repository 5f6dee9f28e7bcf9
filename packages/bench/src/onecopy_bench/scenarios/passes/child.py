"""The child of a sample with passes: a process that opens one file, warms it, and goes over its pieces repeatedly.

A pass reads one byte of each page, the least that a program can do, so that the differences between the mechanisms are
largest. Counters (faults, CPU) cover opening, warming and the first pass. The process joins its control groups once
the imports are done.
"""

from __future__ import annotations

import resource
import sys
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from onecopy_bench.engine.child import Steps
from onecopy_bench.files import touch
from onecopy_bench.files.child import prepare, used
from onecopy_bench.files.configurations import Configuration, Job, Opened


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


@dataclass(frozen=True, slots=True)
class Errand:
    """What is opened, how often it is gone over at most, after how many seconds to stop, and the groups to join."""

    entry: Configuration
    job: Job
    passes: int
    limit_s: float
    groups: tuple[str, ...] = ()


def measure(errand: Errand) -> tuple[dict[str, Any], object]:
    """Run the clocks and return what they and the kernel counted, and what has to stay alive."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    start = perf_counter_ns()
    opened = errand.entry.open(errand.job)
    at_open = perf_counter_ns()
    notes = opened.warm() if opened.warm is not None else {}
    at_warm = perf_counter_ns()
    deadline = at_warm + round(errand.limit_s * 1e9)
    checksum, touched, ends = None, 0, []
    after = resource.getrusage(resource.RUSAGE_SELF)
    for number in range(errand.passes if opened.arrays is not None else 0):
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
        "open_ns": at_open - start,
        "warm_ns": at_warm - start if opened.warm is not None else None,
        "resident_ns": ends[0] if ends else perf_counter_ns() - start,
        "checksum": checksum,
        **used(before, after),
        "notes": {
            **notes,
            "passes_ns": ends,
            "touched": touched,
            "cut_short": len(ends) < errand.passes and touched > 0,
        },
    }, opened


def play(errand: Errand) -> Steps:
    """Go over the pieces of a file, and hold it."""
    prepare(errand.entry)
    for group in errand.groups:  # late: what an interpreter costs is not the file's
        Path(group, "cgroup.procs").write_text("0")
    yield "ready", {}
    message, held = measure(errand)
    yield "resident", message
    del held
