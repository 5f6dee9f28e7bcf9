"""A process that loads a file, and one sample of several of them: the cache in a proven state, memory, data compared.

The worker opens a file, warms it, and goes over its pieces. A pass reads one byte of each page, the least that a
program can do, so that differences between loaders are largest. Counters (faults, CPU) cover opening, warming and the
first pass. It joins its control groups once the imports are done.

*Twins* are the tensors of the file under test in the container of a peer that cannot read a safetensors file. They are
written once before the first round, each by a fresh process with the peer's own writer, into a temporary folder beside
the file under test, so on the same disk. The folder goes with the run.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Literal

import numpy as np

from onecopy.memory import proc
from onecopy_bench import system, worker
from onecopy_bench.files.layout import combine, touch_array
from onecopy_bench.files.loaders import Job, Loader, Opened
from onecopy_bench.peers import module
from onecopy_bench.places import kills_explained
from onecopy_bench.processes import Workers, call_once, command_of, expect_same, first_line_of, memory_of
from onecopy_bench.record import Absent, Case
from onecopy_bench.runs import Attempt, Measured, Settings, Trial
from onecopy_bench.system import Peak, difference, disk_bytes
from onecopy_bench.worker import SampleError, Steps, used_since

Cache = Literal["cold", "warm"]
PREFIX, TIMEOUT_S = ".onecopy-bench-", 900.0


# --- the worker -------------------------------------------------------------------------------------------------------


def prepare(loader: Loader) -> None:
    """Import what a loader needs and run the touching code once on a small array."""
    for name in loader.optional:
        with contextlib.suppress(ImportError):
            module(name)
    touch_array("", np.zeros(8192, np.uint8))
    worker.prepare(loader.needs)


def go_over(opened: Opened, deadline: float) -> tuple[int | None, int]:
    """Touch all pieces once; return their checksum (None after the deadline) and the number of bytes touched."""
    assert opened.arrays is not None
    sums, done = [], 0
    for name, array in opened.arrays():
        sums.append(touch_array(name, array))
        done += array.nbytes
        if perf_counter_ns() > deadline:
            return None, done
    return combine(sums), done


def load(loader: Loader, job: Job, passes: int, limit_s: float) -> tuple[dict[str, Any], object]:
    """Load and touch the file; return the times and counters, and the object that must stay alive."""
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


def steps(
    loader: Loader,
    job: Job,
    passes: int = 1,
    limit_s: float = float("inf"),
    groups: tuple[str, ...] = (),
) -> Steps:
    """Load the file of a job, read it up to `passes` times within `limit_s` seconds, and hold it."""
    prepare(loader)
    for group in groups:  # late: what an interpreter costs is not the file's
        Path(group, "cgroup.procs").write_text("0")
    yield "ready", {}
    message, held = load(loader, job, passes, limit_s)
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
    limit: tuple[Sequence[Path], int | None] = ((), None),
    **arguments: Any,
) -> Trial:
    """Return the trial of a loader in a case: that many processes, from a state of the page cache.

    `limit` is the control groups that they join, and the bytes of memory that these allow; `arguments` are those of
    `steps`, where it is not one pass over the file.
    """
    command, line, word = command_of(__name__), first_line_of({"loader": loader, "job": job, **arguments}), "go"
    if loader.command:  # programs of another language have a word of their own
        pieces = [[piece.name, piece.offset, piece.nbytes] for piece in job.pieces]
        table = json.dumps({"kind": job.kind, "size": job.size, "pieces": pieces})
        command, line, word = [*loader.command, loader.name, job.path, str(os.getpid())], table.encode() + b"\n", "load"

    def measure(attempt: Attempt) -> Measured:
        with kills_explained(*limit), Workers([command] * processes, line, settings.timeout) as workers:
            workers.gather("ready")
            return _measure(loader, job, checksum, attempt, workers, state, word)

    return Trial(loader.name, case, loader.private * job.size * processes, measure)


def _measure(
    loader: Loader, job: Job, checksum: int, attempt: Attempt, workers: Workers, state: Cache, word: str
) -> Measured:
    """Release processes that are ready, and return their measurements."""
    empty = [memory_of(pid) for pid in workers.pids]
    read_before = list(map(system.bytes_read_by, workers.pids))
    attempt.back(job.size)
    if loader.uses_cache:
        system.set_cache_state(job.path, state)
    attempt.wait()
    cached_before = system.cached_bytes(job.path) if loader.uses_cache else None  # waiting may have changed it
    disk_before, peak = disk_bytes(job.path), Peak(lambda: workers.pids)
    messages = workers.step("resident", peak.poll, word)
    held = [memory_of(pid) for pid in workers.pids]
    read = map(difference, map(system.bytes_read_by, workers.pids), read_before)
    numbers = {
        "cached_before": cached_before,
        "cached_after": system.cached_bytes(job.path) if loader.uses_cache else None,
        "disk_bytes": difference(disk_bytes(job.path), disk_before),
        "peak_anonymous": max(peak.bytes, sum(memory.anonymous for memory in held)),
    }
    readings = list(map(_reading_of, messages, read, empty, held))
    workers.dismiss()
    for each in readings:
        if each.get("checksum") is not None:
            expect_same(each["checksum"], checksum, "the sums of the touched bytes and of those of the file")
    return Measured(numbers, processes=readings)


def _reading_of(message: dict[str, Any], read: int | None, empty: proc.Rollup, held: proc.Rollup) -> dict[str, Any]:
    """Return one process's part of a sample; raises SampleError if its message lacks a number."""
    for name in ("open_ns", "resident_ns"):
        if not isinstance(message.get(name), int):
            words = f"the phase 'resident' lacks a number: {name} is {message.get(name)!r}"
            raise SampleError("odd output", words)
    return {
        **message,
        "read_bytes": read,
        "empty_pss": empty.pss,
        "empty_anonymous": empty.anonymous,
        "pss": held.pss,
        "anonymous": held.anonymous,
        "private": held.uss,
        "file_pmd_mapped": held.file_pmd_mapped,
        "anon_huge": held.anon_huge_pages,
    }


@contextlib.contextmanager
def twins(
    loaders: Sequence[Loader], job: Job, watch: Callable[[str], None] = lambda _: None
) -> Iterator[tuple[dict[str, Job], tuple[Absent, ...]]]:
    """Write the twins that some loaders read; two that read the same container share one file.

    Yields the job of each loader that reads a twin, by name, and those whose twin could not be written.
    """
    jobs: dict[str, Job] = {}
    failed: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        written: dict[str, Job | str] = {}
        place = ""
        for loader in loaders:
            if loader.twin is None:
                continue
            if (suffix := loader.twin.suffix) not in written:
                watch(f"writing the tensors as {suffix}")
                try:
                    parent = Path(job.path).parent
                    place = place or stack.enter_context(tempfile.TemporaryDirectory(prefix=PREFIX, dir=parent))
                    target = Path(place, f"twin{suffix}")
                    call_once(TIMEOUT_S, loader.twin.write, job.path, str(target))
                    written[suffix] = replace(job, path=str(target), size=target.stat().st_size)
                except (SampleError, OSError) as error:
                    reason = error.reason if isinstance(error, SampleError) else error.strerror or error
                    written[suffix] = f"its file could not be written: {reason}"
            twin = written[suffix]
            if isinstance(twin, str):
                failed[loader.name] = twin
            else:
                jobs[loader.name] = twin
        yield jobs, tuple(Absent(name, reason) for name, reason in failed.items())
