"""Rounds of samples of a program, and of its baseline in the same rounds.

A sample is all copies once: files evicted, copies launched and let go together, waited for until they are ready, held,
looked at, ended. What goes wrong is a sample with a state, a reason and the last lines of output; the run goes on.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from onecopy_bench import machine, runner
from onecopy_bench.children import SampleError
from onecopy_bench.machine import cache
from onecopy_bench.programs.copies import Copies
from onecopy_bench.programs.record import RunOptions, RunRecord, RunSample
from onecopy_bench.programs.trees import totals_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onecopy_bench.programs.record import Role


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far a run is: `done` of `total` samples, and what comes next ("" at the end)."""

    done: int
    total: int
    next: str


def run(
    command: Sequence[str],
    baseline: Sequence[str] = (),
    options: RunOptions = RunOptions(),  # noqa: B008 - frozen
    watch: Callable[[RunProgress], None] = lambda _: None,
) -> RunRecord:
    """Measure a program, and another one beside it.

    Parameters
    ----------
    command, baseline
        A program and its arguments; `copies.NUMBER` in an argument becomes the number of the copy. An empty baseline
        is none.
    options
        How many copies, what makes them ready, and so on.
    watch
        Called before each sample and at the end.

    Raises
    ------
    OSError
        If a file to be evicted cannot be opened.
    """
    commands: dict[Role, Sequence[str]] = {"command": command, **({"baseline": baseline} if baseline else {})}
    chance = random.Random(options.seed)  # noqa: S311 - an order, not a secret
    order = [
        (number, role) for number in range(options.rounds) for role in chance.sample(sorted(commands), len(commands))
    ]
    samples: list[RunSample] = []
    for number, role in order:
        watch(RunProgress(len(samples), len(order), f"{role}, round {number + 1}"))
        samples.append(take(commands[role], RunSample(role, number, "ok"), options))
    watch(RunProgress(len(samples), len(order), ""))
    return RunRecord(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=machine.facts(options.evict[0] if options.evict else Path.cwd()),
        options=replace(options, evict=tuple(Path(path).name for path in options.evict)),
        command=tuple(map(_homeless, command)),
        baseline=tuple(map(_homeless, baseline)),
        samples=tuple(samples),
    )


def take(command: Sequence[str], sample: RunSample, options: RunOptions) -> RunSample:
    """Take one sample; a failure is its result."""
    for path in options.evict:
        cache.evict(path)
    copies = Copies(command, options)
    try:
        with copies:
            cached, disk = _cached(options.evict), _disk_bytes(options.evict)
            copies.start()
            copies.wait_until_ready()
            if not options.waits_for_exit:
                copies.hold(options.hold_ms / 1e3)
            held = () if options.waits_for_exit else tuple(map(totals_of, copies.members))
            read = runner.difference(_disk_bytes(options.evict), disk)
    except SampleError as failure:
        sample = replace(
            sample,
            state=failure.state,
            reason=_homeless(failure.reason),
            said=tuple(map(_homeless, copies.last_lines())),
        )
    else:
        anonymous = sum(totals.anonymous for totals in held)
        sample = replace(
            sample,
            ready_ns=tuple(copy.ready_ns or 0 for copy in copies.copies),
            held=held,
            peak_anonymous=max(copies.peak_anonymous, anonymous),
            disk_bytes=read,
            cached_before=cached,
        )
    return replace(sample, killed=copies.killed)


def _cached(paths: Sequence[str]) -> int | None:
    """Return how many bytes of some files are cached together; None for no files, and where it is unknown."""
    known = [cache.ask(path) for path in paths]
    return None if None in known or not known else sum(filter(None, known))


def _disk_bytes(paths: Sequence[str]) -> int | None:
    """Return the bytes read since boot from the disks of some files, else from that of the working folder."""
    disks = {Path(path).stat().st_dev: os.fspath(path) for path in (paths or (os.curdir,))}
    known = [runner.disk_bytes(path) for path in disks.values()]
    return None if None in known else sum(filter(None, known))


def _homeless(text: str) -> str:
    return text.replace(runner.home(), "~")
