"""`onecopy bench open`: how long a file takes to open and to be all there, and what N processes then hold.

Rows: onecopy and every peer that is installed (see `onecopy_bench.peers`), for N processes at once, in each case;
beside them the O_DIRECT ceilings and the first-touch control, in one process each. The first row is what the others are
relative to.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import click

from onecopy.arrays import open_arrays
from onecopy_bench.engine import options as cli
from onecopy_bench.engine import pages, rounds
from onecopy_bench.engine.options import Measure
from onecopy_bench.engine.pages import Scenario
from onecopy_bench.engine.record import Absent, Log, Record, Row, heading
from onecopy_bench.engine.rounds import Progress, Settings, Turn, Watch
from onecopy_bench.engine.ways import missing
from onecopy_bench.files import touch, twins
from onecopy_bench.files.ceilings import CHOICES, CONTROLS
from onecopy_bench.files.configurations import Configuration, Job
from onecopy_bench.files.layout import Layout, read_layout, shuffled
from onecopy_bench.files.sampling import Cache, turn
from onecopy_bench.peers import ROWS
from onecopy_bench.scenarios.open import shown

NAME = "open"
Order = Literal["file", "shuffled"]
Ceilings = Literal["few", "all", "none"]


ORDER_NAME, CEILINGS_NAME = click.Choice(get_args(Order)), click.Choice(get_args(Ceilings))
ORDER = "Touch the tensors in the order of the file, or in a random one that is the same for all rows."
CEILINGS = "O_DIRECT readings: the usual best, every number of threads, or none."


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How the scenario is run.

    Each number of `processes` in each state of the page cache is a case: "cold" evicts the file before each sample,
    "warm" evicts it and then fills the cache, always in the same way. The first-touch control is always taken.
    """

    rounds: int = 7
    timeout: float = 120.0
    idle_wait: float = 30.0
    processes: tuple[int, ...] = (4,)
    caches: tuple[Cache, ...] = ("warm",)
    order: Order = cli.field("file", ORDER, type=ORDER_NAME)
    ceilings: Ceilings = cli.field("few", CEILINGS, type=CEILINGS_NAME)


DEFAULTS = Options()


def run(
    path: str | os.PathLike[str],
    options: Options = DEFAULTS,
    watch: Watch = lambda _: None,
    log: Log | None = None,
    *,
    configurations: tuple[Configuration, ...] | None = None,
    scratch: Path | None = None,
    scenario: str = NAME,
) -> Record:
    """Measure how a file opens; of a safetensors file the tensors are loaded by name.

    Parameters
    ----------
    configurations
        What to compare; None takes all that are installed and understand the file.
    scratch
        A folder for the tensors in the containers of peers; None is the folder of the file.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is empty or not a regular file, or the log is of another run.
    """
    layout = layout_of(path)
    checksum = touch.of_file(path, layout)
    if options.order == "shuffled":
        layout = shuffled(layout, options.seed)
    chosen, absent = applicable(layout, options) if configurations is None else (configurations, ())
    job = Job(os.fspath(Path(path).absolute()), layout.kind, layout.size, layout.pieces)
    data = {
        "file": Path(path).name,
        "kind": layout.kind,
        "size": layout.size,
        "data_bytes": layout.nbytes,
        "pieces": len(layout.pieces),
        "checksum": checksum,
    }
    with twins.written(chosen, job, scratch, lambda words: watch(Progress(0, 0, words))) as (jobs, unwritten):
        lost = {each.name for each in unwritten}
        present = [entry for entry in chosen if entry.name not in lost]
        sizes = {name: twin.size for name, twin in jobs.items()}
        rows = [Row(e.name, e.detail, role=e.role, uses_cache=e.uses_cache, size=sizes.get(e.name)) for e in present]
        head = heading(scenario, path, options, rows, data=data, absent=(*absent, *unwritten))
        turns = [one for e in present for one in turns_of(e, jobs.get(e.name, job), checksum, options)]
        files = {each.path for each in (job, *jobs.values())}
        return rounds.run(head, turns, options, watch=watch, log=log, files=files)


def turns_of(entry: Configuration, job: Job, checksum: int, options: Options) -> list[Turn]:
    """Return the turns of a configuration: one for each case, of ceilings and controls one."""
    if entry.role != "row":
        return [turn(entry, job, checksum, options)]
    return [
        turn(entry, job, checksum, options, case=(cache, str(count)), state=cache, processes=count)
        for cache in options.caches
        for count in options.processes
    ]


def layout_of(path: str | os.PathLike[str]) -> Layout:
    """Return what the file holds; ValueError where there is nothing to measure, FormatError if damaged."""
    if not Path(path).is_file() and Path(path).exists():
        raise ValueError(f"{os.fspath(path)} is not a regular file")
    layout = read_layout(path)
    if layout.kind == "bytes" and os.fspath(path).endswith(".safetensors"):
        open_arrays(path)  # a damaged file is no benchmark: FormatError says what is wrong
    if layout.nbytes == 0:
        raise ValueError(f"{os.fspath(path)} holds no data: {layout.size} bytes")
    return layout


def applicable(
    layout: Layout, options: Options, asked: tuple[str, ...] = ()
) -> tuple[tuple[Configuration, ...], tuple[Absent, ...]]:
    """Return the configurations that are installed here and understand the file, and the rows that are not.

    Rows that are taken by request only have to be among those `asked` for.
    """
    every = (*ROWS, *CHOICES[options.ceilings], *CONTROLS)
    candidates = [c for c in every if layout.kind in c.kinds and (not c.by_request or c.name in asked)]
    lost: Mapping[str, list[str]] = {c.name: lacks for c in candidates if (lacks := missing(c.modules))}
    absent = tuple(Absent(name, f"not installed: {', '.join(lacks)}") for name, lacks in lost.items())
    return tuple(c for c in candidates if c.name not in lost), absent


SCENARIO = Scenario(NAME, shown.described, shown.tables_of, shown.findings, shown.draw, shown.limits)
BRIEF = Scenario(NAME, shown.described, shown.brief_tables, shown.brief_findings, limits=lambda _: ())
"""What is shown of the memory and the times alone."""


class Counts(click.ParamType[tuple[int, ...]]):
    """Counts of processes: "4", or "1,2,4,8"."""

    name = "N,..."

    def convert(
        self, value: str | tuple[int, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return the numbers."""
        if isinstance(value, tuple):
            return value
        words = value.split(",")
        if not all(word.strip().isdecimal() and int(word) >= 1 for word in words):
            self.fail(f"{value!r} is not a number of processes such as 4, or several such as 1,2,4,8", param, ctx)
        return tuple(int(word) for word in words)


@click.command(NAME)
@click.argument("file", type=click.Path())
@click.option(
    "-n",
    "--processes",
    "counts",
    type=Counts(),
    multiple=True,
    default=(DEFAULTS.processes,),
    show_default="4",
    help="Processes that load the file at once; several numbers are measured in the same rounds.",
)
@click.option("--cold", is_flag=True, help="Evict this one file before each sample, and prove it.")
@click.option("--warm", is_flag=True, help="Fill the cache alike before each sample: the default; both with --cold.")
@click.option("--only", multiple=True, metavar="ROW", help="Of the rows, take this one only (more than once for more).")
@click.option(
    "--scratch",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="Folder for the tensors in the containers of peers, on the same disk.  [default: beside FILE]",
)
@click.option("--brief", is_flag=True, help="One small table and one sentence; no O_DIRECT readings.")
@cli.common(SCENARIO, DEFAULTS, without=("folder",))
def command(
    *,
    file: str,
    counts: tuple[tuple[int, ...], ...],
    cold: bool,
    warm: bool,
    only: tuple[str, ...],
    scratch: Path | None,
    brief: bool,
    options: Options,
    measure: Measure,
) -> None:  # fmt: skip
    """Measure how FILE opens: copied, mapped, warmed, by its peers, and by the device alone."""
    caches: tuple[Cache, ...] = ("warm",) if not cold else ("cold", "warm") if warm else ("cold",)
    processes = tuple(dict.fromkeys(n for numbers in counts for n in numbers))
    options = replace(options, processes=processes, caches=caches, ceilings="none" if brief else options.ceilings)
    rows = chosen_rows(only, file, options)
    measure(
        lambda _, watch, log: run(file, options, watch, log, configurations=rows, scratch=scratch),
        lambda record: pages.show(BRIEF if brief else SCENARIO, record),
    )


def chosen_rows(only: tuple[str, ...], file: str, options: Options) -> tuple[Configuration, ...] | None:
    """Return the configurations that were asked for by name, with ceilings and controls; None for all."""
    if not only:
        return None
    if unknown := set(only) - {row.name for row in ROWS}:
        raise click.BadParameter(
            f"no row {min(unknown)!r}; there are {', '.join(row.name for row in ROWS)}", param_hint="--only"
        )
    chosen, absent = applicable(layout_of(file), options, only)
    if lost := next((row for row in absent if row.name in only), None):
        raise click.UsageError(f"{lost.name}: {lost.reason}")
    return tuple(row for row in chosen if row.role != "row" or row.name in only)
