"""`onecopy bench keys`: how long it takes to learn what is in a file of many arrays.

A tool that lists a checkpoint (a listing, a shard planner, a server that picks layers) opens it and asks for the
names; no data is read. Each sample is a fresh process that does so `REPEATS` times in a row, so that the cost of the
first call (code that is loaded on first use) does not drown that of a small file. The file is made for the run: arrays
of 64 bytes, names as transformers have them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click
import numpy as np

from onecopy_bench.engine import options as cli
from onecopy_bench.engine.options import Measure
from onecopy_bench.engine.pages import Scenario, rounds_of
from onecopy_bench.engine.record import Case, Log, Record
from onecopy_bench.engine.rounds import Watch
from onecopy_bench.engine.tables import Spread, Table, counted, table
from onecopy_bench.engine.ways import missing
from onecopy_bench.files.configurations import Configuration, Job, Opened, module
from onecopy_bench.scenarios import open as opening
from onecopy_bench.scenarios.open import Options, summary

NAME = "keys"
REPEATS = 20


def list_with_onecopy(job: Job) -> Opened:
    """Open the file and list the names of its arrays, `REPEATS` times."""
    for _ in range(REPEATS):
        with module("onecopy").open(job.path) as file:
            names = list(file.keys())
    return Opened(None, keep=names)


def list_with_safetensors(job: Job) -> Opened:
    """Open the file and list the names of its arrays, `REPEATS` times."""
    for _ in range(REPEATS):
        with module("safetensors").safe_open(job.path, framework="numpy") as file:
            names = file.keys()
    return Opened(None, keep=names)


KEYS = (
    Configuration("keys-safetensors", "safe_open(), keys()", list_with_safetensors, modules=("safetensors.numpy",)),
    Configuration("keys-onecopy", "open(), list(keys())", list_with_onecopy),
)
DEFAULTS = replace(opening.DEFAULTS, processes=(1,), ceilings="none")


def run(
    place: Path, count: int, options: Options = DEFAULTS, watch: Watch = lambda _: None, log: Log | None = None
) -> Record:
    """Measure how long opening a file of `count` arrays and listing their names takes; one process a sample."""
    import onecopy

    path = place / f"{count}-arrays.safetensors"
    names = (f"model.layers.{i // 8}.mlp.experts.{i % 8}.weight" for i in range(count))
    onecopy.save(path, dict.fromkeys(names, np.zeros(16, np.float32)))
    chosen = tuple(row for row in KEYS if not missing(row.modules))
    return opening.run(path, options, watch, log, configurations=chosen, scenario=NAME)


def described(record: Record) -> str:
    """Return what was measured, in one line."""
    return f"keys: {record.data['pieces']} arrays, {counted(rounds_of(record), 'round')}"


def once(record: Record, row: str, case: Case) -> Spread | None:
    """Return the time of one opening and listing."""
    spread = summary.opening(record, row, case)
    return spread and spread.divided_by(REPEATS)


def ratio(record: Record, row: str, case: Case) -> Spread | None:
    """Return the median time of a row divided by that of the first."""
    first, spread = once(record, record.rows[0].name, case), once(record, row, case)
    return Spread.of([spread.median / first.median]) if first and spread else None


def tables_of(record: Record) -> Iterator[Table]:
    """Yield milliseconds of one opening and listing."""
    columns = (("ms", once), ("ratio", ratio))
    yield table(record, "Opening and listing", summary.cases_of(record)[0], summary.names_of(record), columns)


SCENARIO = Scenario(NAME, described, tables_of, lambda _: ())


@click.command(NAME)
@cli.option("--arrays", type=cli.POSITIVE, default=20_000, help="Arrays in the file.")
@cli.common(SCENARIO, DEFAULTS, without=("order", "ceilings"))
def command(*, arrays: int, options: Options, measure: Measure) -> None:
    """Measure opening a file of many arrays and listing their names."""
    measure(lambda place, watch, log: run(place, arrays, options, watch, log))
