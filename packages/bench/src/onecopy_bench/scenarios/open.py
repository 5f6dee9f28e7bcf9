"""`onecopy bench open`: how long a file takes to open and to be all there, and what N processes then hold.

Rows: onecopy and every rival that is installed (see `files.rivals`), for N processes at once, in each case; beside them
the O_DIRECT ceilings and the first-touch control, in one process each. The first row is what the others are relative
to.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import click

from onecopy.arrays import open_arrays
from onecopy_bench.engine import rounds
from onecopy_bench.engine import scenario as cli
from onecopy_bench.engine.record import Absent, Log, Record, Row, heading
from onecopy_bench.engine.rounds import Progress, Settings, Turn, Watch
from onecopy_bench.engine.scenario import Scenario
from onecopy_bench.engine.ways import installed
from onecopy_bench.files import touch, twins
from onecopy_bench.files.ceilings import CHOICES, CONTROLS
from onecopy_bench.files.layout import Layout, read_layout, shuffled
from onecopy_bench.files.loaders import Job, Loader
from onecopy_bench.files.rivals import ROWS
from onecopy_bench.files.sampling import Cache, turn
from onecopy_bench.scenarios import open_shown as shown

NAME = "open"
Order = Literal["file", "shuffled"]
COUNT = "Processes that load the file at once; several numbers are measured in the same rounds."
ORDER = "Touch the tensors in the order of the file, or in a random one that is the same for all rows."
CEILINGS = "O_DIRECT readings: the usual best, every number of threads, or none."
ONLY = "Of the rows, take this one only (more than once for more)."
COLD, WARM = (
    "Evict this one file before each sample, and prove it.",
    "Fill the cache alike: the default; both with --cold.",
)
BRIEF = "One small table and one sentence; no O_DIRECT readings."
SCRATCH = "Folder for the tensors in the containers of rivals, on the same disk.  [default: beside FILE]"


def _counts(_: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> tuple[int, ...]:
    """Return counts of processes, given as "4", or "1,2,4,8"."""
    words = [word.strip() for text in texts for word in text.split(",")]
    if not all(word.isdecimal() and int(word) >= 1 for word in words):
        wrong = ",".join(words)
        raise click.BadParameter(
            f"{wrong!r} is not a number of processes such as 4, or several such as 1,2,4,8", param=parameter
        )
    return tuple(dict.fromkeys(map(int, words)))


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How the scenario is run.

    Each number of `processes` in each state of the page cache is a case: "cold" evicts the file before each sample,
    "warm" evicts it and then fills the cache, always in the same way. The first-touch control is always taken.
    """

    rounds: int = 7
    timeout: float = 120.0
    idle_wait: float = 30.0
    file: str = cli.argument("FILE", type=click.Path())
    processes: tuple[int, ...] = cli.option(
        (4,), COUNT, "-n", "--processes", type=str, default=("4",), callback=_counts, metavar="N,..."
    )
    cold: bool = cli.option(False, COLD, "--cold", is_flag=True, show_default=False)
    warm: bool = cli.option(False, WARM, "--warm", is_flag=True, show_default=False)
    only: tuple[str, ...] = cli.option((), ONLY, "--only", type=str, metavar="ROW")
    order: Order = cli.option("file", ORDER, type=click.Choice(get_args(Order)))
    ceilings: str = cli.option("few", CEILINGS, type=click.Choice(tuple(CHOICES)))
    scratch: str | None = cli.option(None, SCRATCH, type=click.Path(file_okay=False, exists=True), path=True)
    brief: bool = cli.option(False, BRIEF, "--brief", is_flag=True, show_default=False)
    caches: tuple[Cache, ...] = ("warm",)


def run(_: Path, options: Options, watch: Watch = lambda _: None, log: Log | None = None) -> Record:
    """Measure how a file opens; of a safetensors file the tensors are loaded by name.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is empty or not a regular file, or the log is of another run.
    """
    chosen, absent = applicable(layout_of(options.file), options, options.only)
    if options.only:
        chosen, absent = [row for row in chosen if row.role != "row" or row.name in options.only], []
    return measure(chosen, absent, options, watch, log)


def measure(
    chosen: Sequence[Loader],
    absent: Sequence[Absent],
    options: Options,
    watch: Watch = lambda _: None,
    log: Log | None = None,
    scenario: str = NAME,
) -> Record:
    """Measure some loaders of a file."""
    path = Path(options.file)
    layout = layout_of(path)
    checksum = touch.of_file(path, layout)
    if options.order == "shuffled":
        layout = shuffled(layout, options.seed)
    job = Job(os.fspath(path.absolute()), layout.kind, layout.size, layout.pieces)
    data = {
        "file": path.name,
        "kind": layout.kind,
        "size": layout.size,
        "data_bytes": layout.nbytes,
        "pieces": len(layout.pieces),
        "checksum": checksum,
    }
    scratch = Path(options.scratch) if options.scratch else None
    with twins.written(chosen, job, scratch, lambda words: watch(Progress(0, 0, words))) as (jobs, unwritten):
        lost = {each.name for each in unwritten}
        present = [loader for loader in chosen if loader.name not in lost]
        sizes = {name: twin.size for name, twin in jobs.items()}
        rows = [Row(e.name, e.detail, role=e.role, uses_cache=e.uses_cache, size=sizes.get(e.name)) for e in present]
        head = heading(scenario, path, options, rows, data=data, absent=(*absent, *unwritten))
        turns = [one for e in present for one in _turns_of(e, jobs.get(e.name, job), checksum, options)]
        files = {each.path for each in (job, *jobs.values())}
        return rounds.run(head, turns, options, watch=watch, log=log, files=files)


def _turns_of(loader: Loader, job: Job, checksum: int, options: Options) -> Iterator[Turn]:
    """Yield the turns of a loader: one for each case, of ceilings and controls one."""
    if loader.role != "row":
        yield turn(loader, job, checksum, options)
        return
    for cache in options.caches:
        for count in options.processes:
            yield turn(loader, job, checksum, options, case=(cache, str(count)), state=cache, processes=count)


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


def applicable(layout: Layout, options: Options, asked: Sequence[str] = ()) -> tuple[list[Loader], list[Absent]]:
    """Return the loaders that are installed here and understand the file, and the rows that are not.

    Rows that are taken by request only have to be among those `asked` for.
    """
    every = (*ROWS, *CHOICES[options.ceilings], *CONTROLS)
    candidates = [c for c in every if layout.kind in c.kinds and (not c.by_request or c.name in asked)]
    return installed(candidates)


def _adjusted(options: Options) -> Options:
    """Return the options of a command line; raises a usage error where a row that was asked for is not there."""
    if unknown := set(options.only) - {row.name for row in ROWS}:
        raise click.BadParameter(
            f"no row {min(unknown)!r}; there are {', '.join(row.name for row in ROWS)}", param_hint="--only"
        )
    if options.only and (lost := installed(ROWS, options.only)[1]):
        raise click.UsageError(f"{lost[0].name}: {lost[0].reason}")
    caches: tuple[Cache, ...] = ("warm",) if not options.cold else ("cold", "warm") if options.warm else ("cold",)
    return replace(options, caches=caches, ceilings="none" if options.brief else options.ceilings)


SCENARIO = Scenario(
    NAME,
    "Measure how FILE opens: copied, mapped, warmed, by its rivals, and by the device alone.",
    Options(),
    run,
    shown.described,
    shown.tables_of,
    shown.findings,
    shown.draw,
    shown.limits,
    adjust=_adjusted,
    without=("folder",),
)
