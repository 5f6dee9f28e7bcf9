"""One sample of N processes that load one file: the cache in a proven state, memory measured, data compared.

*Twins* are the tensors of the file under test in the container of a rival that cannot read a safetensors file. They are
written once before the first round, each by a fresh process with the rival's own writer, into a temporary folder beside
the file under test, so on the same disk. The folder goes with the run.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from onecopy.memory import proc
from onecopy_bench.engine.crew import Crew, SampleError, command_of, first_line_of, once
from onecopy_bench.engine.machine import cache
from onecopy_bench.engine.machine.limits import kills_explained
from onecopy_bench.engine.memory import Peak, difference, disk_bytes, memory_of
from onecopy_bench.engine.record import Absent, Case
from onecopy_bench.engine.rounds import Attempt, Settings, Taken, Turn
from onecopy_bench.files import loading as worker
from onecopy_bench.files.loaders import Job, Loader

Cache = Literal["cold", "warm"]

GO = {True: "load", False: "go"}
"""What releases a child: programs of another language have a word of their own."""


def turn(
    loader: Loader,
    job: Job,
    checksum: int,
    settings: Settings,
    *,
    case: Case = (),
    state: Cache = "cold",
    processes: int = 1,
    **errand: Any,
) -> Turn:
    """Return the turn of a loader in a case: that many processes, from a state of the page cache.

    `errand` is what each of them has to do, where that is not one pass over the file (see `files.loading`).
    """
    command, line = command_of(worker), first_line_of({"loader": loader, "job": job, **errand})
    if loader.command:
        pieces = [[piece.name, piece.offset, piece.nbytes] for piece in job.pieces]
        table = json.dumps({"kind": job.kind, "size": job.size, "pieces": pieces})
        command, line = [*loader.command, loader.name, job.path, str(os.getpid())], table.encode() + b"\n"

    def take(attempt: Attempt) -> Taken:
        with Crew([command] * processes, line, settings.timeout) as crew:
            crew.gather("ready")
            return measure(loader, job, checksum, attempt, crew, state)

    return Turn(loader.name, case, loader.private * job.size * processes, take)


def limited(plain: Turn, groups: Sequence[Path], nbytes: int | None) -> Turn:
    """Return a turn in control groups; a process that the kernel kills for memory is a sample that says so."""

    def take(attempt: Attempt) -> Taken:
        with kills_explained(groups, nbytes):
            return plain.take(attempt)

    return replace(plain, take=take)


def measure(loader: Loader, job: Job, checksum: int, attempt: Attempt, crew: Crew, state: Cache) -> Taken:
    """Release processes that are ready, and return everything that was measured of them."""
    empty = [memory_of(pid) for pid in crew.pids]
    read_before = list(map(read_bytes, crew.pids))
    attempt.back(job.size)
    if loader.uses_cache:
        cache.evict(job.path)  # whether that worked is measured below
        if state == "warm":
            cache.fill(job.path)
    attempt.wait()
    cached_before = cache.ask(job.path) if loader.uses_cache else None  # waiting may have changed it
    disk_before = disk_bytes(job.path)
    peak = Peak(crew.pids)
    crew.release(GO[bool(loader.command)])
    messages = crew.gather("resident", peak.poll)
    held = [memory_of(pid) for pid in crew.pids]
    disk_after = disk_bytes(job.path)
    read = map(difference, map(read_bytes, crew.pids), read_before)
    numbers = {
        "cached_before": cached_before,
        "cached_after": cache.ask(job.path) if loader.uses_cache else None,
        "disk_bytes": difference(disk_after, disk_before),
        "peak_anonymous": max(peak.bytes, sum(memory.anonymous for memory in held)),
    }
    readings = list(map(reading, messages, read, empty, held))
    crew.dismiss()
    for each in readings:
        if each.get("checksum") not in (None, checksum):
            raise SampleError(
                "wrong data", f"the touched bytes sum to {each['checksum']:#x}, those of the file to {checksum:#x}"
            )
    return Taken(numbers, processes=readings)


def reading(message: dict[str, Any], read: int | None, empty: proc.Rollup, held: proc.Rollup) -> dict[str, Any]:
    """Return one process's part of a sample; raises SampleError where its message lacks something."""
    found: dict[str, Any] = {name: value for name, value in message.items() if name != "phase"}
    for name in ("open_ns", "resident_ns"):
        if not isinstance(found.get(name), int):
            raise SampleError("odd output", f"the phase 'resident' lacks a number: {name} is {found.get(name)!r}")
    return {
        **found,
        "read_bytes": read,
        "empty_pss": empty.pss,
        "empty_anonymous": empty.anonymous,
        "pss": held.pss,
        "anonymous": held.anonymous,
        "private": held.uss,
        "file_pmd_mapped": held.file_pmd_mapped,
        "anon_huge": held.anon_huge_pages,
    }


def read_bytes(pid: int) -> int | None:
    """Return the bytes that a child has made a disk read so far; None where the kernel does not count."""
    with contextlib.suppress(OSError):
        return proc.io(pid).read_bytes
    return None


def slowest(name: str, unit: float = 1e6) -> Callable[[Any], float]:
    """Return what computes the longest time of the processes of a sample."""
    return lambda sample: max(each[name] for each in sample.processes) / unit


def total(name: str, unit: float = 1e6) -> Callable[[Any], float]:
    """Return what computes the sum of a number over the processes of a sample."""
    return lambda sample: sum(each.get(name, 0) for each in sample.processes) / unit


def above(name: str, unit: float = 1e6) -> Callable[[Any], float]:
    """Return what computes memory less that of as many empty processes."""
    return lambda sample: sum(each[name] - each[f"empty_{name}"] for each in sample.processes) / unit


PREFIX = ".onecopy-bench-"
TIMEOUT_S = 900.0


@contextlib.contextmanager
def twins(
    loaders: Sequence[Loader], job: Job, watch: Callable[[str], None] = lambda _: None
) -> Iterator[tuple[dict[str, Job], tuple[Absent, ...]]]:
    """Write the twins that some loaders read; two that read the same container share one file.

    Yields the job of each loader that reads a twin, by name, and those whose twin could not be written.
    """
    jobs: dict[str, Job] = {}
    absent: list[Absent] = []
    with contextlib.ExitStack() as stack:
        place: str | None = None
        found: dict[str, Job | str] = {}
        for loader in loaders:
            if loader.twin is None:
                continue
            suffix = loader.twin.suffix
            if suffix not in found:
                watch(f"writing the tensors as {suffix}")
                try:
                    if place is None:
                        beside = tempfile.TemporaryDirectory(prefix=PREFIX, dir=Path(job.path).parent)
                        place = stack.enter_context(beside)
                    found[suffix] = _write(loader, job, Path(place, f"twin{suffix}"))
                except (SampleError, OSError) as error:
                    reason = error.reason if isinstance(error, SampleError) else error.strerror or error
                    found[suffix] = f"its file could not be written: {reason}"
            twin = found[suffix]
            if isinstance(twin, str):
                absent.append(Absent(loader.name, twin))
            else:
                jobs[loader.name] = twin
        yield jobs, tuple(absent)


def _write(loader: Loader, job: Job, target: Path) -> Job:
    """Write one twin in a process of its own and return the job of loading it; raises SampleError."""
    once(worker, TIMEOUT_S, "written", loader=loader, job=job, twin=str(target))
    return replace(job, path=str(target), size=target.stat().st_size)
