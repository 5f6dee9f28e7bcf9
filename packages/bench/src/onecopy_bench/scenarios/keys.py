"""`onecopy bench keys`: how long it takes to learn what is in a file of many arrays.

A tool that lists a checkpoint (a listing, a shard planner, a server that picks layers) opens it and asks for the
names; no data is read. Each sample is a fresh process that does so `REPEATS` times in a row, so that the cost of the
first call (code that is loaded on first use) does not drown that of a small file. The file is made for the run: arrays
of 64 bytes, names as transformers have them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from onecopy.base.text import counted
from onecopy_bench.engine import scenario as cli
from onecopy_bench.engine.child import module
from onecopy_bench.engine.record import Case, Log, Record
from onecopy_bench.engine.rounds import Watch
from onecopy_bench.engine.scenario import Scenario
from onecopy_bench.engine.tables import Spread, Table, table
from onecopy_bench.engine.ways import installed
from onecopy_bench.files.loaders import Job, Loader, Opened
from onecopy_bench.scenarios import open as opening

NAME = "keys"
REPEATS = 20


@dataclass(frozen=True, slots=True)
class Options(opening.Options):
    """How the scenario is run."""

    arrays: int = cli.option(20_000, "Arrays in the file.")


def _listed(package: str, function: str, options: dict[str, str], job: Job) -> Opened:
    """Open the file and list the names of its arrays, `REPEATS` times."""
    for _ in range(REPEATS):
        with getattr(module(package), function)(job.path, **options) as file:
            names = list(file.keys())
    return Opened(None, keep=names)


KEYS = (
    Loader(
        "keys-safetensors", "safe_open(), keys()", needs=("safetensors.numpy",),
        open=partial(_listed, "safetensors", "safe_open", {"framework": "numpy"}),
    ),
    Loader("keys-onecopy", "open(), list(keys())", open=partial(_listed, "onecopy", "open", {})),
)  # fmt: skip


def run(place: Path, options: Options, watch: Watch = lambda _: None, log: Log | None = None) -> Record:
    """Measure how long opening a file of many arrays and listing their names takes; one process a sample."""
    import onecopy

    path = place / f"{options.arrays}-arrays.safetensors"
    names = (f"model.layers.{i // 8}.mlp.experts.{i % 8}.weight" for i in range(options.arrays))
    onecopy.save(path, dict.fromkeys(names, np.zeros(16, np.float32)))
    return opening.measure(*installed(KEYS), replace(options, file=str(path)), watch, log, NAME)


def _once(record: Record, row: str, case: Case) -> Spread | None:
    spread = opening.opening(record, row, case)
    return spread and spread.divided_by(REPEATS)


def _ratio(record: Record, row: str, case: Case) -> Spread | None:
    first, spread = _once(record, record.rows[0].name, case), _once(record, row, case)
    return Spread.of([spread.median / first.median]) if first and spread else None


def _tables(record: Record) -> Iterator[Table]:
    columns = (("ms", _once), ("ratio", _ratio))
    yield table(record, "Opening and listing", opening.cases_of(record)[0], opening.names_of(record), columns)


SCENARIO = Scenario(
    NAME,
    "Measure opening a file of many arrays and listing their names.",
    Options(processes=(1,), ceilings=False),
    run,
    lambda record: f"keys: {record.data['pieces']} arrays, {counted(record.rounds, 'round')}",
    _tables,
    without=("file", "processes", "cold", "warm", "only", "order", "brief"),
)
