"""The child of a sample that loads a file: both clocks, the faults and the CPU time of one fresh process."""

from __future__ import annotations

import contextlib
import gc
import importlib
import resource
from time import perf_counter_ns
from typing import Any

from onecopy_bench.engine.child import Steps
from onecopy_bench.files.configurations import Configuration, Job


def prepare(entry: Configuration) -> None:
    """Import what a configuration needs and run the touching code once on a small array."""
    import numpy as np

    from onecopy_bench.files import touch

    for module in entry.modules:
        importlib.import_module(module)
    for module in entry.optional:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    touch.of_arrays([("", np.zeros(8192, np.uint8))])
    gc.collect()
    gc.freeze()


def load(entry: Configuration, job: Job) -> tuple[dict[str, Any], object]:
    """Run both clocks and return what they and the kernel counted, and what has to stay alive."""
    from onecopy_bench.files import touch

    before = resource.getrusage(resource.RUSAGE_SELF)
    start = perf_counter_ns()
    opened = entry.open(job)
    at_open = perf_counter_ns()
    notes = opened.warm() if opened.warm is not None else {}
    at_warm = perf_counter_ns()
    checksum = touch.of_arrays(opened.arrays()) if opened.arrays is not None else None
    at_resident = perf_counter_ns()
    after = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "open_ns": at_open - start,
        "warm_ns": at_warm - start if opened.warm is not None else None,
        "resident_ns": at_resident - start,
        "checksum": checksum,
        **used(before, after),
        "notes": notes,
    }, opened


def used(before: resource.struct_rusage, after: resource.struct_rusage) -> dict[str, float]:
    """Return the faults and the CPU time between two moments."""
    return {
        "minor_faults": after.ru_minflt - before.ru_minflt,
        "major_faults": after.ru_majflt - before.ru_majflt,
        "cpu_ms": round((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3, 3),
    }


def play(errand: tuple[Configuration, Job]) -> Steps:
    """Load the file of a job once, and hold it."""
    entry, job = errand
    prepare(entry)
    yield "ready", {}
    message, held = load(entry, job)
    yield "resident", message
    del held
