"""Rounds of cells: one mechanism on one choice of pieces in one place, a fresh process for each sample.

A round holds every cell once, in an order drawn anew, so that places, shares and mechanisms are interleaved. The
samples themselves are `onecopy_bench.runner`'s: evicted and proven cold, waited for an idle machine, killed if need be.
"""

from __future__ import annotations

import json
import random
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING

from onecopy_bench import machine, record, runner, touch
from onecopy_bench.configurations import Job
from onecopy_bench.layout import Layout
from onecopy_bench.machine import cache
from onecopy_bench.machine.quiet import Patience
from onecopy_bench.passes import limits, pieces
from onecopy_bench.passes.series import OUT_OF_MEMORY, Entry, Options, Place, Series, Taken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from onecopy_bench.configurations import Configuration

KEPT = ("mechanism", "reason", "threads", "bytes", "complete", "touched")
"""What a record keeps of a mechanism's notes; the rest repeats what the sample has measured itself."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A place on this machine: the file there, and the control groups that its processes join."""

    place: Place
    path: Path
    groups: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Work:
    """What a sample has to touch: an order, a share, the pieces of it, and their checksum."""

    order: str
    share: float
    job: Job
    checksum: int


@dataclass(frozen=True, slots=True)
class Cell:
    """One thing to be measured again and again."""

    spot: Spot
    work: Work
    entry: Configuration


def works(spot: Spot, shares: Iterable[float], orders: Sequence[str], seed: int) -> list[Work]:
    """Return every order of every share of the file of a spot; the checksums are those of plain reads."""
    size = spot.place.size
    every = pieces.cut(size, seed)
    found = []
    for share in shares:
        ordered = pieces.choose(every, share, "file", seed)
        checksum = touch.of_file(spot.path, Layout("bytes", size, ordered))
        for order in orders:
            chosen = ordered if order == "file" else pieces.choose(every, share, "shuffled", seed)
            found.append(Work(order, share, Job(str(spot.path), "bytes", size, chosen), checksum))
    return found


def run(
    scenario: str,
    source: Path,
    cells: Sequence[Cell],
    options: Options,
    *,
    missing: dict[str, str],
    watch: Callable[[runner.Progress], None] = lambda _: None,
) -> Series:
    """Take all rounds and return the record; raises RuntimeError if a file changes meanwhile."""
    created = datetime.now(UTC).isoformat(timespec="seconds")
    entries = {cell.entry.name: cell.entry for cell in cells}
    places = {cell.spot.place.name: cell.spot.place for cell in cells}
    return Series(
        scenario=scenario,
        created=created,
        machine=machine.facts(source),
        file=source.name,
        size=source.stat().st_size,
        options=options,
        places=tuple(places.values()),
        missing=missing,
        entries=tuple(Entry(e.name, e.detail, e.role, e.uses_cache) for e in entries.values()),
        samples=take_all(cells, options, watch),
    )


def take_all(
    cells: Sequence[Cell], options: Options, watch: Callable[[runner.Progress], None] = lambda _: None
) -> tuple[Taken, ...]:
    """Take round after round, as long as the budget lasts."""
    chance = random.Random(options.seed)  # noqa: S311 - an order, not a secret
    patience = Patience(options.idle_wait)
    identities = {cell.spot.path: cache.identity(cell.spot.path) for cell in cells}
    left = list(cells)
    samples: list[Taken] = []
    begin, longest = monotonic(), 0.0
    for number in range(options.rounds):
        at = monotonic()
        if number and options.budget_s is not None and at - begin + longest > options.budget_s:
            break
        total = len(samples) + len(left) * (options.rounds - number)
        for cell in chance.sample(left, len(left)):
            watch(runner.Progress(len(samples), total, f"{cell.spot.place.name}: {cell.entry.name}"))
            samples.append(take(cell, number, options, patience))
            if cache.identity(cell.spot.path) != identities[cell.spot.path]:
                raise RuntimeError(f"{cell.spot.path.name} changed while it was measured")
            if samples[-1].cut_short and not samples[-1].passes_ns:
                left.remove(cell)  # it would not end in the next round either
        longest = max(longest, monotonic() - at)
    watch(runner.Progress(len(samples), len(samples), ""))
    return tuple(samples)


def take(cell: Cell, number: int, options: Options, patience: Patience) -> Taken:
    """Take one sample; a failure is its result, and one that the kernel killed for memory says so."""
    groups = [str(group) for group in cell.spot.groups]
    settings = json.dumps({"passes": options.passes, "limit_s": options.limit_s, "groups": groups})
    command = (sys.executable, "-P", "-m", "onecopy_bench.passes.child", settings)
    entry = replace(cell.entry, command=command)
    how = record.Options(processes=(1,), caches=("cold",), timeout=options.timeout)
    plan = runner.Plan((entry,), cell.work.job, cell.work.checksum, how)
    kills = _kills(cell.spot)
    sample = runner.take(plan, entry, number, patience)
    if sample.state == "crashed" and _kills(cell.spot) > kills:
        limit = cell.spot.place.memory_bytes or 0
        sample = replace(sample, reason=f"{OUT_OF_MEMORY} at the limit of {limit / 1e6:.1f} MB")
    return flat(cell, number, sample)


def _kills(spot: Spot) -> int:
    return sum(limits.out_of_memory_kills(group) or 0 for group in spot.groups)


def flat(cell: Cell, number: int, sample: record.Sample) -> Taken:
    """Return what a sample of one process says, in one flat entry."""
    head = Taken(
        place=cell.spot.place.name,
        method=cell.entry.name,
        order=cell.work.order,
        share=cell.work.share,
        round=number,
        state=sample.state,
        reason=sample.reason,
        started=sample.started,
        idle_share=sample.idle_share,
        cached_before=sample.cached_before,
        disk_bytes=sample.disk_bytes,
    )
    if not sample.readings:
        return head
    (reading,) = sample.readings
    return replace(
        head,
        open_ns=reading.open_ns,
        warm_ns=reading.warm_ns,
        passes_ns=tuple(reading.notes.get("passes_ns", ())),
        cut_short=bool(reading.notes.get("cut_short")),
        minor_faults=reading.minor_faults,
        major_faults=reading.major_faults,
        cpu_ms=reading.cpu_ms,
        read_bytes=reading.read_bytes,
        anonymous=reading.held.anonymous - reading.empty.anonymous,
        pss=reading.held.pss - reading.empty.pss,
        huge=reading.held.file_pmd_mapped + reading.held.anon_huge,
        notes={name: reading.notes[name] for name in KEPT if name in reading.notes},
    )
