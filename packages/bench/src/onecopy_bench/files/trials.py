"""The process that loads a file, and a sample that measures several such processes.

The worker opens the file, warms it, and then reads one byte of each page. That is the least a program can do with its
data, so it shows the largest difference between loaders. The counters (faults, CPU) cover opening, warming and reading.
The parent prepares the page cache state before it releases the workers, measures their memory while all of them hold
the data, and compares their checksums with the checksum of a plain read.
"""

from __future__ import annotations

import contextlib
import os
import resource
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Literal

import numpy as np

from onecopy.memory import proc
from onecopy_bench import system, worker
from onecopy_bench.files.layout import combine, touch_array
from onecopy_bench.files.loaders import Job, Loader, write_pt
from onecopy_bench.peers import module
from onecopy_bench.processes import Workers, call_once, command_of, expect_same, first_line_of, memory_of
from onecopy_bench.record import Case
from onecopy_bench.runs import Attempt, Measured, Settings, Trial
from onecopy_bench.system import Peak, difference, disk_bytes
from onecopy_bench.worker import SampleError, Steps, used_since

Cache = Literal["cold", "warm"]
PREFIX, TIMEOUT_S = ".onecopy-bench-", 900.0


# --- the worker -------------------------------------------------------------------------------------------------------


def prepare(loader: Loader) -> None:
    """Import a loader's modules, and run the code that touches pages once on a small array."""
    for name in loader.optional:
        with contextlib.suppress(ImportError):
            module(name)
    touch_array("", np.zeros(8192, np.uint8))
    worker.prepare(loader.needs)


def load(loader: Loader, job: Job) -> tuple[dict[str, Any], object]:
    """Load and touch the file. Return the times and counters, and an object that keeps the data alive."""
    before, checksum = resource.getrusage(resource.RUSAGE_SELF), None
    start = perf_counter_ns()
    opened = loader.open(job)
    at_open = perf_counter_ns()
    notes = opened.warm() if opened.warm is not None else {}
    at_warm = perf_counter_ns()
    if opened.arrays is not None:
        checksum = combine(touch_array(name, array) for name, array in opened.arrays())
    end, used = perf_counter_ns(), used_since(before)
    return {
        "open_ns": at_open - start,
        "warm_ns": at_warm - start if opened.warm is not None else None,
        "resident_ns": end - start,
        "checksum": checksum,
        "cpu_ms": used.pop("cpu_ns") / 1e6,
        **used,
        "notes": notes,
    }, opened


def steps(loader: Loader, job: Job) -> Steps:
    """Load a job's file, read each of its pages, and keep it loaded."""
    prepare(loader)
    yield "ready", {}
    message, held = load(loader, job)
    yield "resident", message
    del held


# --- a sample ---------------------------------------------------------------------------------------------------------


def trial_of(
    loader: Loader,
    job: Job,
    checksum: int,
    settings: Settings,
    *,
    case: Case = (),
    state: Cache = "cold",
    processes: int = 1,
) -> Trial:
    """Return a loader's trial in a case, which is a number of processes and a page cache state.

    If the loader is a program in another language, it receives the row, the path and the parent's process id as
    arguments, and follows the protocol of `worker`.
    """
    command = [*loader.command, loader.name, job.path, str(os.getpid())] if loader.command else command_of(__name__)
    arguments = {} if loader.command else {"loader": loader, "job": job}

    def measure(attempt: Attempt) -> Measured:
        with Workers([command] * processes, first_line_of(arguments), settings.timeout) as workers:
            workers.gather("ready")
            return _measure(loader, job, checksum, attempt, workers, state)

    return Trial(loader.name, case, loader.private * job.size * processes, measure)


def _measure(loader: Loader, job: Job, checksum: int, attempt: Attempt, workers: Workers, state: Cache) -> Measured:
    """Release the processes when they are ready, and return their measurements."""
    empty = [memory_of(pid) for pid in workers.pids]
    attempt.back(job.size)
    if loader.uses_cache:
        system.set_cache_state(job.path, state)
    attempt.wait()
    cached_before = system.cached_bytes(job.path) if loader.uses_cache else None  # waiting may have changed it
    disk_before, peak = disk_bytes(job.path), Peak(lambda: workers.pids)
    messages = workers.step("resident", peak.poll)
    held = [memory_of(pid) for pid in workers.pids]
    numbers = {
        "cached_before": cached_before,
        "disk_bytes": difference(disk_bytes(job.path), disk_before),
        "peak_anonymous": max(peak.bytes, sum(memory.anonymous for memory in held)),
    }
    readings = list(map(_reading_of, messages, empty, held))
    workers.dismiss()
    for each in readings:
        if each.get("checksum") is not None:
            expect_same(each["checksum"], checksum, "the checksums of the touched bytes and of the file")
    return Measured(numbers, processes=readings)


def _reading_of(message: dict[str, Any], empty: proc.Rollup, held: proc.Rollup) -> dict[str, Any]:
    """Return the numbers of one process in a sample. Raise SampleError if its message lacks a number."""
    for name in ("open_ns", "resident_ns"):
        if not isinstance(message.get(name), int):
            words = f"the phase 'resident' lacks a number: {name} is {message.get(name)!r}"
            raise SampleError("odd output", words)
    return {
        **message,
        "empty_pss": empty.pss,
        "empty_anonymous": empty.anonymous,
        "pss": held.pss,
        "anonymous": held.anonymous,
        "file_pmd_mapped": held.file_pmd_mapped,
        "anon_huge": held.anon_huge_pages,
    }


@contextlib.contextmanager
def pt_file(job: Job) -> Iterator[Job]:
    """Write a job's tensors to a .pt file on the same disk, yield a job for that file, and remove it after the block.

    Raise SampleError or OSError if the file cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir=Path(job.path).parent) as folder:
        target = Path(folder, "twin.pt")
        call_once(TIMEOUT_S, write_pt, job.path, str(target))
        yield replace(job, path=str(target), size=target.stat().st_size)
