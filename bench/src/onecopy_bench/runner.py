"""Rounds of samples: what every scenario has in common.

A *round* holds each configuration once per case (ceilings and controls: once), in an order drawn anew (seeded), so
that a machine that grows slower or a disk that tires meets all of them. A *sample* is one of these: fresh processes,
started and brought to "ready"; the cache put into its declared state and asked about; the machine waited for; then
all let go together, their memory polled while they load and measured while they hold; then dismissed.

A sample that goes wrong is a sample with a state and a reason; the run goes on. Ctrl-C and errors of the
parent itself end the run, and no child survives either.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from onecopy import page_cache
from onecopy.memory import cgroup, proc
from onecopy_bench.ceilings import fresh_memory
from onecopy_bench.children import Crew, SampleError, command_of, table_of
from onecopy_bench.machine import cache
from onecopy_bench.machine.quiet import Patience
from onecopy_bench.record import Case, Memory, Options, Reading, Sample
from onecopy_bench.touch import STRIDE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from onecopy_bench.configurations import Configuration, Job
    from onecopy_bench.record import Cache

BACKED_MORE = 256 << 20
"""Bytes that a sample takes beside its data: page tables, interpreters, what the kernel reads ahead."""

MEMORY_SHARE = 0.8
"""A sample may take this share of the available memory; beyond it, it is skipped and says so."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run: the configurations, the file, the checksum they all have to reach, and how.

    `twins` are the jobs of the configurations that load the same pieces from another file, by name.
    """

    configurations: tuple[Configuration, ...]
    job: Job
    checksum: int
    options: Options
    twins: Mapping[str, Job] = field(default_factory=dict)

    def job_of(self, configuration: Configuration) -> Job:
        """Return what the children of a configuration load."""
        return self.twins.get(configuration.name, self.job)


class Turn(NamedTuple):
    """One sample to be taken: a configuration in a case; ceilings and controls have none."""

    configuration: Configuration
    case: Case | None

    @property
    def title(self) -> str:
        """What a progress bar calls it."""
        return self.configuration.name if self.case is None else f"{self.configuration.name}, {self.case}"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is: `done` of `total` samples, what comes next ("" at the end), and the seconds left.

    `seconds_left` takes a sample to last as long as those of the same configuration and case did, and one that was
    never taken as the mean of all; None before the first.
    """

    done: int
    total: int
    next: str
    seconds_left: float | None = None


def run(
    plan: Plan,
    watch: Callable[[Progress], None] = lambda _: None,
    keep: Callable[[Sample], None] = lambda _: None,
    taken: Sequence[Sample] = (),
) -> tuple[Sample, ...]:
    """Take every sample of a plan, in the order of the rounds.

    Parameters
    ----------
    watch
        Called before each sample and at the end.
    keep
        Called with each sample as it comes.
    taken
        Samples of the same plan that need not be taken again.

    Raises
    ------
    RuntimeError
        If the file, or a twin of it, changes while it is measured.
    """
    paths = {job.path for job in (plan.job, *plan.twins.values())}
    identities = {path: cache.identity(path) for path in paths}
    patience = Patience(plan.options.idle_wait)
    has = {(s.configuration, s.round, s.cache and Case(s.processes, s.cache)) for s in taken}
    every = [(number, turn) for number, turns in enumerate(rounds(plan.configurations, plan.options)) for turn in turns]
    order = [(number, turn) for number, turn in every if (turn.configuration.name, number, turn.case) not in has]
    samples = list(taken)
    clock = Clock([turn for _, turn in order])
    for number, turn in order:
        watch(Progress(len(samples), len(every), turn.title, clock.seconds_left()))
        with clock.timing(turn):
            samples.append(take(plan, turn.configuration, number, patience, turn.case))
        keep(samples[-1])
        for path, identity in identities.items():
            if cache.identity(path) != identity:
                raise RuntimeError(f"{Path(path).name} changed while it was measured")
    watch(Progress(len(samples), len(every), "", 0.0))
    return tuple(samples)


class Clock:
    """How long the samples of a run take, to estimate how long the others will."""

    def __init__(self, order: Sequence[Turn]) -> None:
        self._left = list(order)
        self._seen: defaultdict[Turn, list[float]] = defaultdict(list)

    @contextlib.contextmanager
    def timing(self, turn: Turn) -> Iterator[None]:
        """Time the next sample."""
        start = time.monotonic()
        yield
        self._seen[turn].append(time.monotonic() - start)
        self._left.pop(0)

    def seconds_left(self) -> float | None:
        """Return the estimate, or None where nothing was timed yet."""
        if not self._seen:
            return None
        means = {turn: sum(seconds) / len(seconds) for turn, seconds in self._seen.items()}
        other = sum(means.values()) / len(means)
        return sum(means.get(turn, other) for turn in self._left)


def rounds(configurations: Sequence[Configuration], options: Options) -> list[list[Turn]]:
    """Return the order of the samples in each round, the same for the same seed."""
    chance = random.Random(options.seed)  # noqa: S311 - an order, not a secret
    turns = [
        Turn(entry, case) for entry in configurations for case in (options.cases if entry.role == "row" else (None,))
    ]
    return [chance.sample(turns, len(turns)) for _ in range(options.iterations)]


def take(plan: Plan, configuration: Configuration, number: int, patience: Patience, case: Case | None = None) -> Sample:
    """Take one sample; a failure is its result. A row without a case gets the first of the plan."""
    if configuration.role != "row":
        sample = Sample(configuration.name, number, 1, "ok")
    else:
        case = case or plan.options.cases[0]
        sample = Sample(configuration.name, number, case.processes, "ok", cache=case.cache)
    job = plan.job_of(configuration)
    try:
        refuse_too_much(configuration, job.size, sample.processes)
        sample = measure(plan, configuration, sample, patience)
        check(sample, plan.checksum)
    except SampleError as failure:
        reason = failure.reason.replace(str(Path(job.path).parent), "").replace(home(), "~")
        sample = replace(sample, state=failure.state, reason=reason)
    return sample


def home() -> str:
    """Return the home folder, or something that no text contains where that is the root folder."""
    home = str(Path.home())
    return home if len(home) > 1 else "\0"  # the root folder as a home would match every path


def refuse_too_much(configuration: Configuration, size: int, processes: int) -> None:
    """Raise SampleError where the private memory of a sample would exhaust the machine."""
    wanted = configuration.private_share * size * processes
    available = page_cache.available_memory()
    if available is not None and wanted > MEMORY_SHARE * available:
        raise SampleError(
            "skipped",
            f"{processes} processes need {wanted / 1e6:.0f} MB of private memory,"
            f" {available / 1e6:.0f} MB are available",
        )


def measure(plan: Plan, configuration: Configuration, sample: Sample, patience: Patience) -> Sample:
    """Run the processes of one sample and return it with everything that was measured."""
    job = plan.job_of(configuration)
    commands = [command_of(configuration, job)] * sample.processes
    with Crew(commands, table_of(job), plan.options.timeout) as crew:
        crew.gather("ready")
        empty = [memory_of(pid) for pid in crew.pids]
        read_before = [read_bytes(pid) for pid in crew.pids]
        if plan.options.backed:
            back(job.size + round(configuration.private_share * job.size * sample.processes))
        if configuration.uses_cache:
            declare_cache(job.path, sample.cache or "cold")
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


def back(size: int) -> None:
    """Touch and free as much memory as a sample is going to take, so that it is there when it is asked for.

    The host of a virtual machine may take free memory back and give it again on first access, a page at a time and at
    less than 1 GB/s. What was used a moment ago is still backed, as all memory of a physical machine is.
    """
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            memory, data = fresh_memory(size + BACKED_MORE, huge=True)
            data[::STRIDE] = 1
            del memory
        os._exit(0)
    os.waitpid(pid, 0)


def declare_cache(path: str, state: Cache) -> None:
    """Bring the page cache into the declared state; whether that worked is asked later."""
    cache.evict(path)
    if state == "warm":
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
