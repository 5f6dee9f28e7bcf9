"""The child of a sample of `bench start`: a program that starts, works, and copies all weights out of its file.

The work is that of importing: source is compiled by the interpreter, which holds the GIL. It is an amount and not a
time, so that what warming takes from it is seen; `pace` finds the amount. Weights go piece by piece into one buffer
that is used again, as an upload to a device has it. Looking at what was copied is outside of all clocks.
"""

from __future__ import annotations

import gc
import importlib
import time
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onecopy_bench.engine.child import Steps
from onecopy_bench.engine.ways import named
from onecopy_bench.files import touch
from onecopy_bench.scenarios.start.ways import WAYS

SOURCE = "\n".join(f"def f{n}(a, b=({n}, 'x')):\n    return [a, b, {{'k{n}': a + {n}}}]" for n in range(60))
"""A unit of work is to compile this: some milliseconds."""

PACE = "pace"
"""Not a way: measures the nanoseconds that a unit takes."""


@dataclass(frozen=True, slots=True)
class Errand:
    """What a worker has to do.

    Attributes
    ----------
    way, path
        How to read which file.
    piece
        Bytes that are copied at once.
    units
        Of work.
    seconds
        Of sleep, beside it.
    """

    way: str
    path: str
    piece: int
    units: int = 0
    seconds: float = 0.0


def work(units: int, seconds: float) -> None:
    """Do the rest of a start."""
    for _ in range(units):
        compile(SOURCE, "<work>", "exec")
    time.sleep(seconds)


def pace(seconds: float = 0.5) -> int:
    """Return the nanoseconds that a unit of work takes, the median of what fits into some seconds."""
    times: list[int] = []
    while not times or sum(times) < seconds * 1e9:
        start = perf_counter_ns()
        work(1, 0)
        times.append(perf_counter_ns() - start)
    return sorted(times)[len(times) // 2]


def copied(weights: NDArray[np.uint8], buffer: NDArray[np.uint8]) -> tuple[int, int, int]:
    """Copy everything through one buffer; return the time of copying, that of looking, both in ns, and the checksum."""
    sums, copying, looking = [], 0, 0
    for number, at in enumerate(range(0, len(weights), len(buffer))):
        start = perf_counter_ns()
        part = weights[at : at + len(buffer)]
        np.copyto(buffer[: len(part)], part)
        end = perf_counter_ns()
        sums.append(touch.of_array(str(number), buffer[: len(part)]))
        copying += end - start
        looking += perf_counter_ns() - end
    return copying, looking, touch.combine(sums)


def started(errand: Errand) -> tuple[dict[str, Any], object]:
    """Start once; return what the clocks say, and what has to stay alive."""
    way = named(WAYS, errand.way)
    buffer = np.ones(errand.piece, np.uint8)  # written, so that its own pages are there
    start = perf_counter_ns()
    begun = way.begin(errand.path)
    at_work = perf_counter_ns()
    work(errand.units, errand.seconds)
    at_need = perf_counter_ns()
    weights = way.wait(begun)
    at_copy = perf_counter_ns()
    copying, looking, checksum = copied(weights, buffer)
    return {
        "total_ns": perf_counter_ns() - start - looking,
        "work_ns": at_need - at_work,
        "wait_ns": at_copy - at_need,
        "copy_ns": copying,
        "checksum": checksum,
    }, (begun, weights)


def play(errand: Errand) -> Steps:
    """Start once, and hold the weights."""
    for module in ("onecopy.files", "onecopy.page_cache"):  # before the clock starts
        importlib.import_module(module)
    copied(np.zeros(1 << 16, np.uint8), np.ones(1 << 15, np.uint8))
    work(1, 0)
    gc.collect()
    gc.freeze()
    yield "ready", {}
    if errand.way == PACE:
        yield "started", {"unit_ns": pace()}
        return
    message, held = started(errand)
    yield "started", message
    del held
