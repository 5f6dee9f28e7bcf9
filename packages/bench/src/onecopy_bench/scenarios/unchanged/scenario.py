"""`onecopy bench unchanged`: unmodified programs, as they are and with `onecopy.auto`.

Several processes load the same file at the same time with the calls of a framework, and then answer requests, one
process after the other. What is measured is the time to load, the memory of all processes beside that of the file, and
the time of requests; results must be equal. The programs know nothing of onecopy: it is imported before them.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from onecopy_bench.engine import options as cli
from onecopy_bench.engine import rounds
from onecopy_bench.engine.crew import SampleError, crew_of
from onecopy_bench.engine.memory import memory_of
from onecopy_bench.engine.options import Measure
from onecopy_bench.engine.pages import Scenario, rounds_of
from onecopy_bench.engine.pictures import by_case
from onecopy_bench.engine.record import Log, Record, heading
from onecopy_bench.engine.rounds import Attempt, Progress, Settings, Taken, Turn, Watch
from onecopy_bench.engine.tables import MB, Column, Table, counted, number, plain, table
from onecopy_bench.engine.ways import installed, require
from onecopy_bench.scenarios.unchanged import server, worker
from onecopy_bench.scenarios.unchanged.programs import NAMES, PROGRAMS, Program

NAME = "unchanged"
MS = 1e6


@dataclass(frozen=True, slots=True)
class Way:
    """How the programs are run."""

    name: str
    detail: str
    ours: bool


WAYS = (
    Way("as it is", "the program alone", ours=False),
    Way(worker.AUTO, "onecopy.auto is imported before it, as by onecopy run", ours=True),
    Way(worker.EDITED, "one line of it loads the object with onecopy.load_object", ours=True),
)


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How the scenario is run."""

    rounds: int = 3
    size: int = cli.size("1GB", "Of each file, about.")
    processes: int = cli.field(4, "That load the same file.", type=click.IntRange(min=1))
    requests: int = cli.field(100, "That each process answers.", type=click.IntRange(min=1))
    server: bool = cli.field(
        False,
        "Processes are workers of gunicorn, asked over HTTP, alone and under onecopy run.",
        is_flag=True,
        show_default=False,
    )
    programs: tuple[str, ...] = cli.field(NAMES, "Which program.", "--program", choices=NAMES)


def run(place: Path, options: Options, watch: Watch = lambda _: None, log: Log | None = None) -> Record:
    """Measure both ways for every program, with files in a folder.

    Raises
    ------
    ModuleNotFoundError
        A server is wanted, and gunicorn is not installed.
    """
    if options.server:
        require(server.NEEDS, NAME)
    chosen, absent = installed(PROGRAMS, options.programs)
    paths = _written(place, chosen, options, watch)
    sizes = {which: size_of(Path(path).parent) for which, path in paths.items()}
    written = {program.name: sizes[program.name, False] for program in chosen}
    head = heading(NAME, place, options, WAYS, data={"bytes": written}, absent=absent)
    turns = [
        Turn(
            way.name,
            (program.name,),
            options.processes * 2 * sizes[which],
            (served if options.server else sample)(way, program, paths[which], sizes[which], place, options),
        )
        for program in chosen
        for way in WAYS
        if (which := (program.name, way.name == worker.EDITED)) in paths
    ]
    return rounds.run(head, turns, options, place, watch=watch, log=log)


def _written(place: Path, chosen: Sequence[Program], options: Options, watch: Watch) -> dict[tuple[str, bool], str]:
    """Write the files; return their paths by the name of the program, and whether it is edited."""
    paths = {}
    for at, program in enumerate(chosen):
        watch(Progress(at, len(chosen), f"writing the file of {program.name}"))
        for one in (program, None if options.server else program.edited):
            if one is not None:
                folder = place / f"program-{at}{'-edited' if one is program.edited else ''}"
                folder.mkdir()
                paths[program.name, one is program.edited] = str(folder / "data")
                one.make(str(folder / "data"), options.size)
    return paths


def size_of(folder: Path) -> int:
    """Return the bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def environment_of(place: Path) -> list[str]:
    """Return the variables of all measured processes."""
    return [f"ONECOPY_CACHE={place / 'store'}", "OMP_NUM_THREADS=1", "HF_HUB_OFFLINE=1", "TQDM_DISABLE=1"]


def served(
    way: Way, program: Program, path: str, size: int, place: Path, options: Options
) -> Callable[[Attempt], Taken]:
    """Return what takes one sample of a server."""
    under = (sys.executable, "-P", "-m", "onecopy", "run", "--quiet", "--") if way.ours else ()
    counts = options.processes, options.requests, options.timeout
    return server.Server(under, program.name, path, size, *counts, environment_of(place)).take


def sample(
    way: Way, program: Program, path: str, size: int, place: Path, options: Options
) -> Callable[[Attempt], Taken]:
    """Return what takes one sample."""
    errand = worker.Errand(way.name, program.name, path, options.requests)
    environment = environment_of(place)

    def take(attempt: Attempt) -> Taken:
        attempt.back()
        with crew_of(worker.__name__, errand, options.processes, options.timeout, environment) as crew:
            attempt.wait()
            before = [memory_of(pid) for pid in crew.pids]
            loaded = crew.step("loaded")
            after = [memory_of(pid) for pid in crew.pids]
            answered = crew.step("answered")
            crew.dismiss()
        sums = {message["checksum"] for message in answered}
        if len(sums) != 1:
            raise SampleError("wrong data", f"the results of the processes are {sorted(sums)}")
        times = [each for message in answered for each in message["times_ns"]]
        grown = sum(one.pss for one in after) - sum(one.pss for one in before)
        private = sum(one.anonymous for one in after) - sum(one.anonymous for one in before)
        return Taken(
            {
                "load_ns": max(message["load_ns"] for message in loaded),
                "held_share": grown / size,
                "private": private / options.processes,
                "p50_ns": statistics.median(times),
                "p99_ns": statistics.quantiles(times, n=100)[98] if len(times) > 1 else times[0],
                "checksum": sums.pop(),
            }
        )

    return take


COLUMNS: tuple[Column, ...] = (
    ("to load\nms", plain("load_ns", MS)),
    ("held by all,\ncopies of the file", plain("held_share")),
    ("private to each\nMB", plain("private", MB)),
    ("a request: p50\nms", plain("p50_ns", MS)),
    ("p99\nms", plain("p99_ns", MS)),
)
DRAWN = {"copies held by all processes": plain("held_share"), "ms of a request, p50": plain("p50_ns", MS)}


def tables_of(record: Record) -> Iterator[Table]:
    """Yield a table for each program."""
    for case in record.cases():
        words = f"{case[0]}, {record.data['bytes'][case[0]] / MB:.0f} MB"
        yield table(record, words, case, [row.name for row in record.rows], COLUMNS)


def described(record: Record) -> str:
    """Return what was measured, in one line."""
    options = record.options
    nouns = ("worker of a server", "workers of a server") if options.get("server") else ("process", "processes")
    processes = counted(options["processes"], *nouns)
    requests = options["requests"]
    return f"unchanged: {processes} of each program, {requests} requests each; {counted(rounds_of(record), 'round')}"


def findings(record: Record) -> Iterator[str]:
    """Yield, for each program, what sharing saves, and whether results are equal."""
    for case in record.cases():
        held = {row.name: record.spread(row.name, case, "held_share") for row in record.rows}
        sums = {row.name: record.spread(row.name, case, "checksum") for row in record.rows}
        words = [f"{number(spread.median)} {name}" for name, spread in held.items() if spread is not None]
        if len(words) < 2:
            continue
        same = len({spread.median for spread in sums.values() if spread is not None}) == 1
        yield f"{case[0]}: copies held: {', '.join(words)}; results {'equal' if same else 'DIFFER'}."


SCENARIO = Scenario(NAME, described, tables_of, findings, by_case(DRAWN))


@click.command(NAME)
@cli.common(SCENARIO, Options())
def command(*, options: Options, measure: Measure) -> None:
    """Measure unmodified programs, as they are and with onecopy.auto: memory, time to load, time of requests.

    Several processes load a file with torch, transformers, ONNX Runtime, scikit-learn, gensim, pandas or numpy, and
    answer requests one after the other.
    """
    measure(lambda place, watch, log: run(place, options, watch, log))
