"""`onecopy bench structs`: a C++ index opened in every way, and what it takes to answer 1, 1,000 and 10^6 questions.

Each sample is a fresh process of the C++ program: cold and warm, asking with each number of threads; several processes
at once from a warm cache; 100 short processes one after the other. With a memory limit, the processes join a control
group that holds a share of the file, from a cold cache. The reading order: `program` (the C++ program: where it is, the
files it builds, its rows), `nested` (a million values inside one another, and system calls), `tables` (what the samples
say).
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from onecopy.cli.options import SIZE
from onecopy_bench.engine import options as cli
from onecopy_bench.engine import rounds
from onecopy_bench.engine.machine import limits
from onecopy_bench.engine.options import Measure
from onecopy_bench.engine.pages import Scenario
from onecopy_bench.engine.record import Case, Log, Record, Row, heading
from onecopy_bench.engine.rounds import Attempt, Progress, Settings, Taken, Turn, Watch
from onecopy_bench.files.configurations import Configuration
from onecopy_bench.files.sampling import turn
from onecopy_bench.scenarios.structs import nested, program, tables
from onecopy_bench.scenarios.structs.program import Files
from onecopy_bench.scenarios.structs.tables import NESTED

NAME = "structs"
MODES = tuple(row.mode for row in program.ROWS)
NESTED_BYTES = 100
"""Bytes that a nested value and what it is compared with take, generously."""


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How the scenario is run; `memory_share` of the file is the limit of a control group, None: no limit."""

    rounds: int = 7
    timeout: float = 300.0
    idle_wait: float = 30.0
    modes: tuple[str, ...] = cli.field(MODES, "How it is opened.", "--mode", choices=MODES)
    threads: tuple[int, ...] = cli.field((1, 4), "That ask.")
    processes: int = cli.field(4, "At once, from a warm cache.", "-n", "--processes")
    fresh: int = cli.field(100, "Short processes in a row.", type=click.IntRange(min=0))
    nested: int = cli.field(1_000_000, "Values with a span each.", type=click.IntRange(min=0))
    limit_s: int = cli.field(30, "Seconds after which a process stops asking.")
    memory_share: float | None = None


def run(binary: Path, files: Files, options: Options, watch: Watch = lambda _: None, log: Log | None = None) -> Record:
    """Take all rounds of the files of a program (see `program.find` and `program.build`).

    Raises
    ------
    Unavailable
        If there can be no control group here: the message says why.
    RuntimeError
        If a file changes while it is measured, or the nested values do not open.
    """
    limit = None if options.memory_share is None else round(files.bytes * options.memory_share)
    with contextlib.ExitStack() as stack:
        group = None if limit is None else stack.enter_context(limits.group(limits.memory(limit)))
        turns, rows = [], {}
        for row, entry, case in entries(binary, files, options, group):
            rows[entry.name] = Row(entry.name, entry.detail, size=files.job(row).size)
            turns.append(turn_of(entry, row, files, case, options, (limit, group)))
        calls: dict[int, int | None] = {}
        if options.nested and limit is None:
            counts = sorted({options.nested, max(options.nested // 100, 1)})
            paths = {count: nested.build(binary, files.folder, count) for count in counts}
            calls = {count: nested.system_calls(binary, path) for count, path in paths.items()}
            rows[NESTED] = Row(NESTED, "values inside one another", role=NESTED)
            turns.append(nested_turn(binary, paths[options.nested], options))
        data = {
            "size": files.bytes,
            "kmers": files.kmers,
            "questions": files.questions,
            "checksum": files.checksum,
            "memory_bytes": limit,
            "system_calls": calls,
        }
        head = heading(NAME, files.folder, options, rows.values(), data=data)
        paths_of_rows = {files.job(row).path for row in files.rows() if row.mode in options.modes}
        return rounds.run(head, turns, options, watch=watch, log=log, files=paths_of_rows)


def entries(
    binary: Path, files: Files, options: Options, group: Path | None
) -> Iterator[tuple[program.Row, Configuration, Case]]:
    """Yield everything that a round holds: rows of the program, how they are started, and in which case."""
    more: dict[str, Any] = {} if group is None else {"group": group}
    for row in files.rows():
        if row.mode not in options.modes:
            continue
        for threads in options.threads if row.mode in program.ASKED else (1,):
            entry = program.configuration(binary, files, row, threads=threads, limit_s=options.limit_s, **more)
            yield row, entry, ("cold", "1")
            if group is None:
                yield row, entry, ("warm", "1")
        if group is None and row.mode != "read":
            if options.processes > 1:
                entry = program.configuration(binary, files, row, threads=1, limit_s=options.limit_s)
                yield row, entry, ("warm", str(options.processes))
            if options.fresh:
                yield row, program.configuration(binary, files, row, fresh=options.fresh), ("warm", "1")


def turn_of(
    entry: Configuration,
    row: program.Row,
    files: Files,
    case: Case,
    options: Options,
    limit: tuple[int | None, Path | None],
) -> Turn:
    """Return the turn of a row in a case; a process that the kernel kills for memory is a sample that says so."""
    nbytes, group = limit
    state: Any = case[0]
    plain = turn(entry, files.job(row), files.checksum, options, case=case, state=state, processes=int(case[1]))

    def take(attempt: Attempt) -> Taken:
        with limits.kills_explained([group] if group else [], nbytes):
            return plain.take(attempt)

    return replace(plain, take=take)


def nested_turn(binary: Path, path: Path, options: Options) -> Turn:
    """Return the turn that opens nested values, in a fresh process."""

    def take(attempt: Attempt) -> Taken:
        attempt.begin()
        return Taken(dataclasses.asdict(nested.take(binary, path)))

    return Turn(NESTED, (NESTED,), NESTED_BYTES * options.nested, take)


SCENARIO = Scenario(NAME, tables.described, tables.tables_of, tables.findings, limits=tables.limits)
SHARES = {"none": None, "half": 0.5}


@click.command(NAME)
@click.option(
    "--program", "binary", metavar="PATH", help="bench_structs.  [default: that of the checkout's release build]"
)
@cli.option("--size", type=SIZE, default="500MB", help="Of the index, at least.")
@click.option("--genome", type=click.Path(exists=True, dir_okay=False), help="FASTA.  [default: made up]")
@cli.option("--questions", type=cli.POSITIVE, default=1_000_000, help="That a process answers.")
@cli.option(
    "--limit",
    type=click.Choice(list(SHARES)),
    default="none",
    help="Of memory: in a control group of half of the file (root).",
)
@cli.common(SCENARIO, Options())
def command(
    *,
    binary: str | None,
    size: int,
    genome: str | None,
    questions: int,
    limit: str,
    options: Options,
    measure: Measure,
) -> None:
    """Measure a C++ index: opened in every way, cold and warm, then asked 1, 1,000 and all questions.

    The index is a dictionary of the k-mers of a genome (examples/structs), as large as asked for by mutation. Its rows:
    mapped, mapped and warmed, mapped and being warmed, mapped and read by single pages, copied; as a packed stream,
    mapped and loaded; read by fread into vectors; read by cereal, where the program was built with it.
    """
    options = replace(options, memory_share=SHARES[limit])
    at = program.find(binary)

    def measured(place: Path, watch: Watch, log: Log) -> Record:
        watch(Progress(0, 0, "building the index"))
        return run(at, program.build(at, place, size=size, genome=genome, questions=questions), options, watch, log)

    measure(measured)
