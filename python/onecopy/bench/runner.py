"""Rounds of samples: what every scenario has in common.

A *round* holds each configuration once, in an order drawn anew (seeded), so that a machine that grows slower
or a disk that tires meets all of them. A *sample* is one configuration in one round: fresh processes, started
and brought to "ready"; the cache put into its declared state and asked about; the machine waited for; then
all let go together, their memory polled while they load and measured while they hold; then dismissed.

A sample that goes wrong is a sample with a state and a reason; the run goes on. Ctrl-C and errors of the
parent itself end the run, and no child survives either.
"""

from __future__ import annotations

import contextlib
import os
import random
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onecopy import cgroup, proc
from onecopy.bench import cache
from onecopy.bench.children import Crew, SampleError, command_of, table_of
from onecopy.bench.quiet import Patience
from onecopy.bench.record import Memory, Options, Reading, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onecopy.bench.configurations import Configuration, Job

MEMORY_SHARE = 0.8
"""A sample may take this share of the available memory; beyond it, it is skipped and says so."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run: the configurations, the file, the checksum they all have to reach, and how."""

    configurations: tuple[Configuration, ...]
    job: Job
    checksum: int
    options: Options


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is: `done` of `total` samples, and the configuration that comes next ("" at the end)."""

    done: int
    total: int
    next: str


def run(plan: Plan, watch: Callable[[Progress], None] = lambda _: None) -> tuple[Sample, ...]:
    """Take every sample of a plan, in the order of the rounds.

    Raises
    ------
    RuntimeError
        If the file changes while it is measured.
    """
    identity = cache.identity(plan.job.path)
    patience = Patience(plan.options.idle_wait)
    order = [
        (number, entry) for number, entries in enumerate(rounds(plan.configurations, plan.options)) for entry in entries
    ]
    samples: list[Sample] = []
    for number, entry in order:
        watch(Progress(len(samples), len(order), entry.name))
        samples.append(take(plan, entry, number, patience))
        if cache.identity(plan.job.path) != identity:
            raise RuntimeError(f"{Path(plan.job.path).name} changed while it was measured")
    watch(Progress(len(samples), len(order), ""))
    return tuple(samples)


def rounds(configurations: Sequence[Configuration], options: Options) -> list[list[Configuration]]:
    """Return the order of the configurations in each round, the same for the same seed."""
    chance = random.Random(options.seed)  # noqa: S311 - an order, not a secret
    return [chance.sample(configurations, len(configurations)) for _ in range(options.iterations)]


def take(plan: Plan, configuration: Configuration, number: int, patience: Patience) -> Sample:
    """Take one sample; a failure is its result."""
    processes = plan.options.processes if configuration.role == "row" else 1
    sample = Sample(configuration.name, number, processes, "ok")
    try:
        refuse_too_much(configuration, plan.job.size, processes)
        sample = measure(plan, configuration, sample, patience)
        check(sample, plan.checksum)
    except SampleError as failure:
        reason = failure.reason.replace(str(Path(plan.job.path).parent), "").replace(_home(), "~")
        sample = replace(sample, state=failure.state, reason=reason)
    return sample


def _home() -> str:
    home = str(Path.home())
    return home if len(home) > 1 else "\0"  # the root folder as a home would match every path


def refuse_too_much(configuration: Configuration, size: int, processes: int) -> None:
    """Raise SampleError where the private memory of a sample would exhaust the machine."""
    wanted = configuration.private_share * size * processes
    available = available_memory()
    if available is not None and wanted > MEMORY_SHARE * available:
        raise SampleError(
            "skipped",
            f"{processes} processes need {wanted / 1e6:.0f} MB of private memory,"
            f" {available / 1e6:.0f} MB are available",
        )


def available_memory() -> int | None:
    """Return the bytes that this process may still take: what the machine has, or less in a container."""
    machine = cgroup.meminfo().mem_available
    group = cgroup.memory_group(os.getpid())
    if group is None or group.limit is None:
        return machine
    room = max(group.limit - group.stat.anon - (group.stat.kernel or 0), 0)
    return room if machine is None else min(machine, room)


def measure(plan: Plan, configuration: Configuration, sample: Sample, patience: Patience) -> Sample:
    """Run the processes of one sample and return it with everything that was measured."""
    job = plan.job
    commands = [command_of(configuration, job)] * sample.processes
    with Crew(commands, table_of(job), plan.options.timeout) as crew:
        crew.gather("ready")
        empty = [memory_of(pid) for pid in crew.pids]
        read_before = [read_bytes(pid) for pid in crew.pids]
        if configuration.uses_cache:
            declare_cache(job.path, plan.options)
        idle_share = patience.wait()
        cached_before = cache.ask(job.path) if configuration.uses_cache else None  # waiting may have changed it
        started = datetime.now(UTC).isoformat(timespec="milliseconds")
        disk_before = disk_bytes(job.path)
        peak = Peak(crew.pids)
        crew.release("load")
        messages = crew.gather("resident", peak.poll)
        held = [memory_of(pid) for pid in crew.pids]
        disk_after = disk_bytes(job.path)
        read_after = [read_bytes(pid) for pid in crew.pids]
        cached_after = cache.ask(job.path) if configuration.uses_cache else None
        read = map(difference, read_after, read_before)
        readings = tuple(map(reading, messages, read, empty, held))
        crew.dismiss()
    return replace(
        sample,
        started=started,
        idle_share=idle_share,
        cached_before=cached_before,
        cached_after=cached_after,
        disk_bytes=difference(disk_after, disk_before),
        peak_anonymous=max(peak.bytes, sum(memory.anonymous for memory in held)),
        readings=readings,
    )


def declare_cache(path: str, options: Options) -> None:
    """Bring the page cache into the declared state; whether that worked is asked later."""
    cache.evict(path)
    if not options.cold:
        cache.fill(path)


def reading(message: dict[str, Any], read: int | None, empty: Memory, held: Memory) -> Reading:
    """Return one process's part of a sample; raises SampleError where its message lacks something."""
    try:
        return Reading(
            open_ns=int(message["open_ns"]),
            warm_ns=message.get("warm_ns"),
            resident_ns=int(message["resident_ns"]),
            checksum=message.get("checksum"),
            minor_faults=int(message.get("minor_faults", 0)),
            major_faults=int(message.get("major_faults", 0)),
            cpu_ms=float(message.get("cpu_ms", 0.0)),
            read_bytes=read,
            empty=empty,
            held=held,
            notes=dict(message.get("notes", {})),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise SampleError("odd output", f"the phase 'resident' lacks a number: {error!r}") from error


def check(sample: Sample, checksum: int) -> None:
    """Raise SampleError where a process touched other bytes than the file has."""
    for reading in sample.readings:
        if reading.checksum is not None and reading.checksum != checksum:
            raise SampleError(
                "wrong data",
                f"the touched bytes sum to {reading.checksum:#x}, those of the file to {checksum:#x}",
            )


def memory_of(pid: int) -> Memory:
    """Return the memory of a child; raises SampleError where it has just died."""
    try:
        rollup = proc.rollup(pid)
    except ProcessLookupError as error:
        raise SampleError("crashed", "died while it was to hold still") from error
    return Memory(rollup.pss, rollup.anonymous, rollup.uss, rollup.file_pmd_mapped, rollup.anon_huge_pages)


def disk_bytes(path: str) -> int | None:
    """Return the bytes that the disk of a file has read since boot, for whomever; None where unknown."""
    disk = cgroup.block_stat(Path(path).stat().st_dev)
    return None if disk is None else disk.bytes_read


def read_bytes(pid: int) -> int | None:
    """Return the bytes that a child has made a disk read so far; None where the kernel does not count."""
    with contextlib.suppress(OSError):
        return proc.io(pid).read_bytes
    return None


def difference(after: int | None, before: int | None) -> int | None:
    """Return after - before, or None where either is unknown."""
    return None if after is None or before is None else after - before


class Peak:
    """The highest sum of RssAnon over some processes so far, in bytes."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self.bytes = 0

    def poll(self) -> None:
        """Look once; a process that is gone counts nothing, its end is noticed elsewhere."""
        now = 0
        for pid in self._pids:
            with contextlib.suppress(OSError):
                now += proc.status(pid).rss_anon or 0
        self.bytes = max(self.bytes, now)
