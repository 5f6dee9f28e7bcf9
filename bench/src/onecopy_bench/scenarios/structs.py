"""The scenario `structs`: a C++ index opened in every way, and what it takes to answer 1, 1,000 and 10^6 questions.

Each sample is a fresh process of the C++ program: cold and warm, asking with each number of threads; several processes
at once from a warm cache; 100 short processes one after the other. With a memory limit, the processes join a control
group that holds a share of the file, from a cold cache.
"""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onecopy_bench import machine, runner
from onecopy_bench.machine import cache
from onecopy_bench.machine.quiet import Patience
from onecopy_bench.passes import limits
from onecopy_bench.passes.series import OUT_OF_MEMORY
from onecopy_bench.record import Case, Entry, File, Record
from onecopy_bench.record import Options as RunnerOptions
from onecopy_bench.structs import nested, program

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onecopy_bench.configurations import Configuration, Job
    from onecopy_bench.journal import JournalOf
    from onecopy_bench.record import Sample
    from onecopy_bench.structs.nested import Nested
    from onecopy_bench.structs.program import Files

NAME = "structs"
NESTED_BYTES = 100  # that a nested value and what it is compared with take, generously


@dataclass(frozen=True, slots=True)
class Options:
    """How the scenario is run.

    Attributes
    ----------
    rounds
        Each takes every row in every case once, in an order of its own.
    threads
        That ask, each a case of its own.
    processes
        That open at once, from a warm cache.
    fresh
        Short processes one after the other; 0 leaves them out.
    nested
        Values inside one another; 0 leaves them out.
    memory_share
        Of the file, for a control group; None is without.
    limit_s
        Seconds after which a process stops asking.
    timeout, idle_wait, backed, seed
        As in `onecopy_bench.record.Options`.
    modes
        Of the rows, these only, and what they are held against (see `program.ROWS`).
    """

    rounds: int = 7
    threads: tuple[int, ...] = (1, 4)
    processes: int = 4
    fresh: int = 100
    nested: int = 1_000_000
    memory_share: float | None = None
    limit_s: int = 30
    timeout: float = 300.0
    idle_wait: float = 30.0
    backed: bool = False
    seed: int = 0
    modes: tuple[str, ...] = tuple(row.mode for row in program.ROWS)


@dataclass(frozen=True, slots=True)
class Measured:
    """What a run leaves behind: its samples; the nested values round by round; system calls by their number."""

    record: Record
    options: Options
    kmers: int
    questions: int
    memory_bytes: int | None
    nested: tuple[Nested, ...]
    system_calls: dict[int, int | None]


@dataclass(frozen=True, slots=True)
class Turn:
    """One thing to be measured again and again."""

    configuration: Configuration
    case: Case
    job: Job
    checksum: int


def run(
    binary: Path,
    files: Files,
    options: Options = Options(),
    watch: Callable[[runner.Progress], None] = lambda _: None,
    journal: JournalOf[Record] | None = None,
) -> Measured:
    """Take all rounds.

    Parameters
    ----------
    binary, files
        See `program.find` and `program.build`.
    options
        Rounds, cases, limits.
    watch
        Called before each sample and at the end.
    journal
        Where samples are kept as they come, and found again; nested values are not among them.

    Raises
    ------
    ValueError
        If the journal is of another run.
    Unavailable
        If there can be no control group here: the message says why.
    RuntimeError
        If a file changes while it is measured, or the nested values do not open.
    """
    limit = None if options.memory_share is None else round(files.bytes * options.memory_share)
    with contextlib.ExitStack() as stack:
        group = None if limit is None else stack.enter_context(limits.group(limits.memory(limit)))
        found = turns(binary, files, options, group)
        record = Record(
            scenario=NAME,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            machine=machine.facts(files.folder),
            options=settings(options),
            file=File("index.oc", "struct", files.bytes, files.bytes, 1, files.checksum),
            entries=tuple({t.configuration.name: entry_of(t) for t in found}.values()),
            samples=(),
        )
        if journal is not None:
            record = journal.begin(record)
        record = replace(record, samples=take_all(found, options, (limit, group), watch, record.samples, journal))
    values, calls = take_nested(binary, files.folder, options) if limit is None else ((), {})
    return Measured(record, options, files.kmers, files.questions, limit, values, calls)


def settings(options: Options) -> RunnerOptions:
    """Return what the runner has to know."""
    counts = (1,) if options.memory_share is not None else tuple(dict.fromkeys((1, options.processes)))
    return RunnerOptions(
        processes=counts,
        caches=("cold",) if options.memory_share is not None else ("cold", "warm"),
        iterations=options.rounds,
        timeout=options.timeout,
        idle_wait=options.idle_wait,
        backed=options.backed,
        seed=options.seed,
        ceilings="none",
    )


def turns(binary: Path, files: Files, options: Options, group: Path | None) -> list[Turn]:
    """Return everything that a round holds."""
    more: dict[str, Any] = {} if group is None else {"group": group}
    limited = group is not None
    found = []
    for row in files.rows():
        if row.mode not in options.modes:
            continue
        asks = row.mode in program.ASKED
        cases = [Case(1, "cold")] if limited else [Case(1, "cold"), Case(1, "warm")]

        def turn(case: Case, row: program.Row = row, **chosen: object) -> Turn:
            configuration = program.configuration(binary, files, row, **chosen, **more)
            return Turn(configuration, case, files.job(row), files.checksum)

        for threads in options.threads if asks else (1,):
            found += [turn(case, threads=threads, limit_s=options.limit_s) for case in cases]
        if limited or row.mode == "read":
            continue
        if options.processes > 1:
            found.append(turn(Case(options.processes, "warm"), threads=1, limit_s=options.limit_s))
        if options.fresh:
            found.append(turn(Case(1, "warm"), fresh=options.fresh))
    return found


def entry_of(turn: Turn) -> Entry:
    """Return what the record keeps of a configuration."""
    each = turn.configuration
    return Entry(each.name, each.detail, each.role, each.uses_cache, turn.job.size)


def take_all(
    found: Sequence[Turn],
    options: Options,
    control: tuple[int | None, Path | None],
    watch: Callable[[runner.Progress], None],
    taken: Sequence[Sample] = (),
    journal: JournalOf[Record] | None = None,
) -> tuple[Sample, ...]:
    """Take round after round, but for what was taken; `control` are the limit of memory and its group."""
    chance = random.Random(options.seed)  # noqa: S311 - an order, not a secret
    patience = Patience(options.idle_wait)
    identities = {turn.job.path: cache.identity(turn.job.path) for turn in found}
    samples = list(taken)
    has = {(sample.configuration, sample.cache, sample.processes, sample.round) for sample in taken}
    total = len(found) * options.rounds
    for number in range(options.rounds):
        for turn in chance.sample(found, len(found)):
            if (turn.configuration.name, turn.case.cache, turn.case.processes, number) in has:
                continue
            watch(runner.Progress(len(samples), total, f"{turn.configuration.name}, {turn.case}"))
            samples.append(take(turn, number, options, patience, *control))
            if journal is not None:
                journal.add(samples[-1])
            if cache.identity(turn.job.path) != identities[turn.job.path]:
                raise RuntimeError(f"{Path(turn.job.path).name} changed while it was measured")
    watch(runner.Progress(total, total, ""))
    return tuple(samples)


def take(
    turn: Turn, number: int, options: Options, patience: Patience, limit: int | None, group: Path | None
) -> Sample:
    """Take one sample; a failure is its result, and one that the kernel killed for memory says so."""
    plan = runner.Plan((turn.configuration,), turn.job, turn.checksum, settings(options))
    kills = limits.out_of_memory_kills(group) if group else None
    sample = runner.take(plan, turn.configuration, number, patience, turn.case)
    if group and sample.state == "crashed" and (limits.out_of_memory_kills(group) or 0) > (kills or 0):
        sample = replace(sample, reason=f"{OUT_OF_MEMORY} at the limit of {(limit or 0) / 1e6:.1f} MB")
    return sample


def take_nested(binary: Path, folder: Path, options: Options) -> tuple[tuple[Nested, ...], dict[int, int | None]]:
    """Open nested values in each round, and count system calls for them and for a hundredth of them."""
    if not options.nested:
        return (), {}
    counts = sorted({options.nested, max(options.nested // 100, 1)})
    paths = {count: nested.build(binary, folder, count) for count in counts}
    values = []
    for _ in range(options.rounds):
        if options.backed:
            runner.back(NESTED_BYTES * options.nested)
        values.append(nested.take(binary, paths[options.nested]))
    return tuple(values), {count: nested.system_calls(binary, path) for count, path in paths.items()}
