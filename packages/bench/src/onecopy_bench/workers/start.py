"""A program that starts, works, and copies all weights out of its file; and the ways to have them in memory by then.

The work is that of importing: source is compiled by the interpreter, which holds the GIL. It is an amount and not a
time, so that what warming takes from it is seen; `pace` finds the amount. Weights go piece by piece into one buffer
that is used again, as an upload to a device has it. Checksums are computed outside of all clocks.
"""

from __future__ import annotations

import mmap
import statistics
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

import onecopy as oc
from onecopy_bench.engine import ways
from onecopy_bench.engine.child import Steps, prepare
from onecopy_bench.engine.ways import named
from onecopy_bench.files import touch

SOURCE = "\n".join(f"def f{n}(a, b=({n}, 'x')):\n    return [a, b, {{'k{n}': a + {n}}}]" for n in range(60))
"""A unit of work is to compile this: some milliseconds."""

PACE = "pace"
"""Not a way: measures the nanoseconds that a unit takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way(ways.Way):
    """`begin` gets the path before the work; `wait` gets what that returned after it, and returns the file's bytes."""

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
    """Ask for the whole file at once, as a program does that knows no better."""
    with open(path, "rb") as file:  # noqa: PTH123 - text
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    mapped.madvise(mmap.MADV_WILLNEED)
    return mapped


WAYS = (
    Way("none", "mapped; copying reads it", ours=True, begin=oc.Mapping, wait=_view),
    Way(
        "warm at copy", "warm, when the work is done", ours=True, begin=oc.Mapping,
        wait=lambda mapping: _warmed(mapping, oc.warm(mapping, wait=False)),
    ),
    Way(
        "warm early", "warm(wait=False) before the work, wait() after it", ours=True, begin=_warming,
        wait=lambda begun: _warmed(*begun),
    ),
    Way(
        "warm early, no wait", "the same, and copied while it may still be read", ours=True, begin=_warming,
        wait=lambda begun: _view(begun[0]),
    ),
    Way(
        "willneed", "madvise(MADV_WILLNEED) of all before the work",
        begin=_willneed, wait=lambda mapped: np.frombuffer(mapped, np.uint8),
    ),
    Way(
        "fromfile", "numpy.fromfile when the work is done", private=1.0, begin=str,
        wait=lambda path: np.fromfile(path, np.uint8),
    ),
    Way(
        "cat early", "cat FILE > /dev/null before the work, numpy.memmap after it",
        begin=lambda path: (path, subprocess.Popen(("cat", path), stdout=subprocess.DEVNULL)),
        wait=lambda begun: np.memmap(begun[0], mode="r"),  # the process is not waited for
    ),
)  # fmt: skip


def work(units: int) -> None:
    """Do the rest of a start."""
    for _ in range(units):
        compile(SOURCE, "<work>", "exec")


def pace(seconds: float = 0.5) -> int:
    """Return the nanoseconds that a unit of work takes, the median of what fits into some seconds."""
    times: list[int] = []
    while not times or sum(times) < seconds * 1e9:
        start = perf_counter_ns()
        work(1)
        times.append(perf_counter_ns() - start)
    return statistics.median_low(times)


def copied(weights: NDArray[np.uint8], buffer: NDArray[np.uint8]) -> tuple[int, int, int]:
    """Copy everything through one buffer; return the ns of copying, those of reading the copies, and the checksum."""
    sums, copying, reading = [], 0, 0
    for number, at in enumerate(range(0, len(weights), len(buffer))):
        start = perf_counter_ns()
        part = weights[at : at + len(buffer)]
        np.copyto(buffer[: len(part)], part)
        end = perf_counter_ns()
        sums.append(touch.of_array(str(number), buffer[: len(part)]))
        copying += end - start
        reading += perf_counter_ns() - end
    return copying, reading, touch.combine(sums)


def play(way: str, path: str = "", piece: int = 1, units: int = 0) -> Steps:
    """Start once: work for some units, copy a piece at a time, and hold the weights."""
    copied(np.zeros(1 << 16, np.uint8), np.ones(1 << 15, np.uint8))
    work(1)
    prepare(("onecopy.files.mapping", "onecopy.files.page_cache"))
    yield "ready", {}
    if way == PACE:
        yield "started", {"unit_ns": pace()}
        return
    chosen = named(WAYS, way)
    buffer = np.ones(piece, np.uint8)  # written, so that its own pages are there
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
