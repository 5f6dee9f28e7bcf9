"""A process that loads a file: it opens it, warms it, and goes over its pieces.

A pass reads one byte of each page, the least that a program can do, so that differences between loaders are largest.
Counters (faults, CPU) cover opening, warming and the first pass. The process joins its control groups once the imports
are done.
"""

from __future__ import annotations

import contextlib
import resource
import sys
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np

from onecopy_bench.engine import child
from onecopy_bench.engine.child import Steps, module, used_since
from onecopy_bench.files import touch
from onecopy_bench.files.loaders import Job, Loader, Opened


def prepare(loader: Loader) -> None:
    """Import what a loader needs and run the touching code once on a small array."""
    for name in loader.optional:
        with contextlib.suppress(ImportError):
            module(name)
    touch.of_arrays([("", np.zeros(8192, np.uint8))])
    child.prepare(loader.needs)


def go_over(opened: Opened, deadline: float) -> tuple[int | None, int]:
    """Touch all pieces once; return their checksum, None where the deadline came first, and the bytes passed."""
    assert opened.arrays is not None
    sums, done = [], 0
    for name, array in opened.arrays():
        sums.append(touch.of_array(name, array))
        done += array.nbytes
        if perf_counter_ns() > deadline:
            return None, done
    return touch.combine(sums), done


def load(loader: Loader, job: Job, passes: int, limit_s: float) -> tuple[dict[str, Any], object]:
    """Run the clocks and return what they and the kernel counted, and what has to stay alive."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    start = perf_counter_ns()
    opened = loader.open(job)
    at_open = perf_counter_ns()
    notes = opened.warm() if opened.warm is not None else {}
    at_warm = perf_counter_ns()
    deadline = at_warm + limit_s * 1e9
    checksum, touched, ends = None, 0, list[int]()
    used = used_since(before)
    for number in range(passes if opened.arrays is not None else 0):
        found, touched = go_over(opened, deadline)
        if number == 0:
            used, checksum = used_since(before), found
        if found is None:
            break
        if found != checksum:
            sys.exit(f"pass {number + 1} read other bytes than the first: {found:#x}, not {checksum:#x}")
        ends.append(perf_counter_ns() - start)
    cut_short = len(ends) < passes and touched > 0
    return {
        "open_ns": at_open - start,
        "warm_ns": at_warm - start if opened.warm is not None else None,
        "resident_ns": ends[0] if ends else perf_counter_ns() - start,
        "checksum": checksum,
        "cpu_ms": used.pop("cpu_ns") / 1e6,
        **used,
        "notes": {**notes, "passes_ns": ends, "touched": touched, "cut_short": cut_short},
    }, opened


def play(
    loader: Loader,
    job: Job,
    passes: int = 1,
    limit_s: float = float("inf"),
    groups: tuple[str, ...] = (),
    twin: str = "",
) -> Steps:
    """Load the file of a job, go over it so often at most, for so many seconds, and hold it.

    `twin` is a path: the twin that the loader reads is written there, and that is all.
    """
    prepare(loader)
    if twin and loader.twin is not None:
        yield "ready", {}
        loader.twin.write(job.path, twin)
        yield "written", {}
        return
    for group in groups:  # late: what an interpreter costs is not the file's
        Path(group, "cgroup.procs").write_text("0")
    yield "ready", {}
    message, held = load(loader, job, passes, limit_s)
    yield "resident", message
    del held
