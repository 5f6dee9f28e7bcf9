"""`onecopy bench share`: what a dataset costs in a training job, by how it is held and how workers are started.

Each sample is a job of one or several ranks, as torchrun starts them, each with its workers. All ranks make the rows
ready; then all start their workers, which go over the rows while their memory is sampled again and again; then all
hold, and the whole is measured. The job is then started a second time in the same folder: what is kept there is found.
Another kind of sample builds in a process without workers and measures what the allocator has not given back.

What is subtracted from each is a job of the same kind that holds ten rows.
"""

from __future__ import annotations

import ctypes.util
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import click
import numpy as np
from numpy.typing import NDArray

from onecopy.memory import proc
from onecopy_bench.engine import options as cli
from onecopy_bench.engine import pictures, rounds
from onecopy_bench.engine.crew import Crew, SampleError, crew_of
from onecopy_bench.engine.machine import cache
from onecopy_bench.engine.machine.processes import Trees, totals_of
from onecopy_bench.engine.memory import Peak, memory_of
from onecopy_bench.engine.options import Measure
from onecopy_bench.engine.pages import Scenario, rounds_of
from onecopy_bench.engine.record import Absent, Case, Log, Record, Row, heading
from onecopy_bench.engine.rounds import Attempt, Progress, Settings, Taken, Turn, Watch
from onecopy_bench.engine.tables import EMPTY as EMPTY_ROW
from onecopy_bench.engine.tables import MB, Column, Table, above_empty, counted, plain, table
from onecopy_bench.engine.ways import installed, require
from onecopy_bench.scenarios.rows import data, rank
from onecopy_bench.scenarios.rows.data import Kind, Source
from onecopy_bench.scenarios.rows.peers import Peer
from onecopy_bench.scenarios.rows.peers.heap import EMPTY
from onecopy_bench.scenarios.rows.peers.table import SHARED
from onecopy_bench.scenarios.rows.rank import Allocator, Errand, Loader, Start

NAME = "share"
STARTS: tuple[Start, ...] = get_args(Start)
ALLOCATORS: tuple[Allocator, ...] = get_args(Allocator)
LOADER_NAME = click.Choice(get_args(Loader))
LOADER = "Each worker goes over all rows; or those of a DataLoader do so together."
NAMES = tuple(peer.name for peer in SHARED if peer is not EMPTY)
HEAP = "heap"
"""The first word of the cases that measure the builder's heap."""

WITH_TORCH, WITHOUT_TORCH = 300e6, 30e6
"""Private bytes of a process that has imported what it needs, roughly."""


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How the scenario is run; each of `starts` with each number of `ranks` is a case."""

    peers: tuple[str, ...] = cli.field(NAMES, "How the rows are held.", "--peer", choices=NAMES)
    starts: tuple[Start, ...] = cli.field(STARTS, "How workers are started.", "--start", choices=STARTS)
    ranks: tuple[int, ...] = cli.field((1, 2, 8), "Processes that each have workers, as torchrun starts them.")
    workers: int = cli.field(4, "Of each rank.")
    loader: Loader = cli.field("loop", LOADER, type=LOADER_NAME)
    torch: bool = cli.field(True, "Import it in every process, where it is installed.", "--torch/--no-torch")
    limit_s: float = cli.field(120.0, "Seconds after which a pass stops.")
    interval_s: float = cli.field(0.5, "Between two readings of the memory of the workers.")
    allocators: tuple[Allocator, ...] = cli.field(
        ALLOCATORS, "For the builder's heap.", "--allocator", choices=ALLOCATORS
    )
    cold: bool = cli.field(
        False, "Evict what a first run has kept before the second.", is_flag=True, show_default=False
    )


def run(source: Source, place: Path, options: Options, watch: Watch = lambda _: None, log: Log | None = None) -> Record:
    """Measure every peer in every case, of the rows of a source (see `data.write`).

    Raises
    ------
    ModuleNotFoundError
        If a DataLoader is asked for and torch is not installed.
    """
    peers, absent = available(options)
    rows = (Row(peer.name, peer.detail, peer.name.startswith("onecopy")) for peer in peers)
    facts = {"kind": source.kind, "rows": source.count, "pickled": source.pickled}
    head = heading(NAME, place, options, rows, data=facts, absent=absent)
    return rounds.run(head, turns_of(source, peers, options), options, place, watch=watch, log=log)


def available(options: Options) -> tuple[list[Peer], tuple[Absent, ...]]:
    """Return the peers that are installed, the empty one with them, and what is not."""
    peers, absent = installed(SHARED, (*options.peers, EMPTY.name))
    if "jemalloc" in options.allocators and not has_jemalloc():
        absent.append(Absent(f"{HEAP}: jemalloc", "not installed: libjemalloc"))
    if options.loader == "dataloader":
        require(("torch",), NAME)
    return peers, tuple(absent)


def has_jemalloc() -> bool:
    """Return whether jemalloc can be loaded into a process."""
    return ctypes.util.find_library("jemalloc") is not None


def turns_of(source: Source, peers: Sequence[Peer], options: Options) -> list[Turn]:
    """Return everything that a round holds."""
    sums = source.sums()
    found = [
        Turn(
            peer.name,
            (start, str(ranks)),
            needs_of(peer, source, start, ranks, options),
            job(peer, source, sums, (start, ranks), options),
        )
        for ranks in options.ranks
        for start in options.starts
        for peer in peers
    ]
    for allocator in options.allocators:
        if allocator != "jemalloc" or has_jemalloc():
            found += [
                Turn(
                    peer.name, (HEAP, allocator), peer.builds * source.pickled, built(peer, source, allocator, options)
                )
                for peer in peers
            ]
    return found


def needs_of(peer: Peer, source: Source, start: Start, ranks: int, options: Options) -> float:
    """Return roughly the private bytes that a job needs at most."""
    builders = 1 if peer.keeps or peer.alone else ranks
    held = peer.leaks if start == "fork" else peer.copied
    importing = ranks * (1 + options.workers if start in {"spawn", "forkserver"} else 1)
    imported = importing * (WITH_TORCH if options.torch else WITHOUT_TORCH)
    return source.pickled * (builders * peer.builds + ranks * options.workers * held) + imported


def job(
    peer: Peer, source: Source, sums: NDArray[np.uint64], case: tuple[Start, int], options: Options
) -> Callable[[Attempt], Taken]:
    """Return what takes a sample of a job: started twice."""
    start, ranks = case

    def take(attempt: Attempt) -> Taken:
        attempt.begin()
        folder = attempt.folder()
        more: dict[str, Any] = {"loader": options.loader, "torch": options.torch, "limit_s": options.limit_s}
        errand = Errand(peer.name, source, os.fspath(folder), start, options.workers, **more)
        first = start_job(errand, ranks, options, sums)
        if options.cold:
            for path in folder.rglob("*"):
                if path.is_file():
                    cache.evict(path)
        again = errand if peer.keeps else replace(errand, workers=0, folder=tempfile.mkdtemp(dir=folder))
        second = start_job(again, ranks, options, sums)
        numbers = {**first.numbers, **{f"second_{name}": value for name, value in second.numbers.items()}}
        return Taken(numbers, second.points or first.points)

    return take


def start_job(errand: Errand, ranks: int, options: Options, sums: NDArray[np.uint64]) -> Taken:
    """Start a job once and return what it took and held; without workers, only what it took to be ready."""
    with crew_of(rank.__name__, errand, ranks, options.timeout) as crew:
        peak = Peak(crew.pids, family=True)
        loaded = crew.step("loaded", peak.poll)
        numbers: dict[str, float | None] = {
            "ready_ns": max(message["ready_ns"] for message in loaded),
            "nbytes": loaded[0]["nbytes"],
            "handle_bytes": loaded[0]["handle_bytes"],
            "build_peak_anonymous": peak.bytes,
        }
        points: list[tuple[float, ...]] = []
        if errand.workers:
            workers = [pid for message in crew.step("started") for pid in message["workers"]]
            crew.release()
            curve = Curve(workers, options.interval_s)
            numbers |= pace(crew.gather("passed", curve.poll), sums)
            curve.look()
            numbers |= held(crew, workers)
            points = curve.points
        crew.dismiss()
    return Taken(numbers, points)


def held(crew: Crew, workers: Sequence[int]) -> dict[str, float | None]:
    """Return what all processes of a job hold together, and the median of its workers."""
    members = Trees(crew.pids, [f"none of {pid}" for pid in crew.pids]).members()
    totals = totals_of(pid for tree in members for pid in tree)
    return {
        "pss": totals.pss,
        "anonymous": totals.anonymous,
        "processes": totals.processes,
        "worker_uss": statistics.median(memory_of(pid).private for pid in workers),
    }


def pace(passed: Sequence[dict[str, Any]], sums: NDArray[np.uint64]) -> dict[str, float | None]:
    """Judge what was read and return how fast; raises SampleError where it is not what was written."""
    passes = [each for message in passed for each in message["passes"]]
    for read, total, _ in passes:
        if read >= len(sums) or total != int(sums[read]):
            raise SampleError("wrong data", f"the first {read} rows sum to {total:#x}, not to what was written")
    return {
        "last_first_ns": max(message["last_first_ns"] for message in passed),
        "rows_read": min(read for read, _, _ in passes),
        "rows_per_s": statistics.median(read / max(seconds, 1e-9) for read, _, seconds in passes),
    }


class Curve:
    """The private bytes of workers over time: seconds, median, maximum.

    To read them takes milliseconds per gigabyte under a lock of the process, so the pauses are ten times that.
    """

    def __init__(self, pids: Sequence[int], interval_s: float) -> None:
        self._pids, self._interval_s = pids, interval_s
        self._start = self._next = time.monotonic()
        self.points: list[tuple[float, ...]] = []

    def poll(self) -> None:
        """Look if it is time to."""
        if time.monotonic() >= self._next:
            self.look()

    def look(self) -> None:
        """Look now."""
        begin = time.monotonic()
        uss = [memory_of(pid).private for pid in self._pids]
        now = time.monotonic()
        self.points.append((round(begin - self._start, 3), statistics.median(uss), max(uss)))
        self._next = now + max(self._interval_s, 10 * (now - begin))


def built(peer: Peer, source: Source, allocator: Allocator, options: Options) -> Callable[[Attempt], Taken]:
    """Return what takes a sample of the builder's heap."""
    variables = ["LD_PRELOAD=" + str(ctypes.util.find_library("jemalloc"))] if allocator == "jemalloc" else []

    def take(attempt: Attempt) -> Taken:
        attempt.begin()
        errand = Errand(peer.name, source, os.fspath(attempt.folder()), torch=options.torch, allocator=allocator)
        with crew_of(rank.__name__, errand, 1, options.timeout, variables) as crew:
            (pid,) = crew.pids
            if variables and not any("jemalloc" in region.path for region in proc.maps(pid)):
                raise SampleError("failed", "jemalloc was not loaded")
            empty, peak = memory_of(pid), Peak(crew.pids, family=True)
            (loaded,) = crew.step("loaded", peak.poll)
            after = memory_of(pid)
            crew.dismiss()
        return Taken(
            {
                "heap": after.anonymous - empty.anonymous,
                "build_peak_anonymous": peak.bytes - empty.anonymous,
                "ready_ns": loaded["ready_ns"],
                "nbytes": loaded["nbytes"],
            }
        )

    return take


def prepared(folder: Path, kind: Kind, count: int, file: str | os.PathLike[str] | None, watch: Watch) -> Source:
    """Write the rows into a folder and return their source."""
    rows = data.rows_of(kind, count, file)
    return data.write(folder, kind, rows, lambda seen: watch(Progress(seen, count, f"{kind} rows")))


COLUMNS: tuple[Column, ...] = (
    ("total PSS\nMB", plain("pss", MB)),
    ("less empty\nMB", above_empty("pss")),
    ("2nd run,\nless empty", above_empty("second_pss")),
    ("USS of a\nworker MB", plain("worker_uss", MB)),
    ("less empty\nMB", above_empty("worker_uss")),
    ("ready\ns", plain("ready_ns", 1e9)),
    ("2nd run,\nready s", plain("second_ready_ns", 1e9)),
    ("last first\nitem s", plain("last_first_ns", 1e9)),
    ("2nd run,\nitem s", plain("second_last_first_ns", 1e9)),
    ("rows/s of\na worker", plain("rows_per_s")),
    ("payload\nMB", plain("nbytes", MB)),
)
HEAP_COLUMNS: tuple[Column, ...] = (
    ("left, less\nstart MB", plain("heap", MB)),
    ("payload\nMB", plain("nbytes", MB)),
    ("peak, less\nstart MB", plain("build_peak_anonymous", MB)),
    ("ready\ns", plain("ready_ns", 1e9)),
)
OURS = "onecopy"


def tables_of(record: Record) -> Iterator[Table]:
    """Yield a table for each case, those of the builder's heap last."""
    names = [row.name for row in record.rows] + [a.name for a in record.absent if ": " not in a.name]
    for case in sorted(record.cases(), key=lambda case: case[0] == HEAP):
        if case[0] == HEAP:
            yield table(record, f"The builder's heap, {case[1]}", case, names, HEAP_COLUMNS)
        else:
            title = f"{case[0]}, {counted(int(case[1]), 'rank')} of {record.options['workers']} workers"
            yield table(record, title, case, names, COLUMNS)


def described(record: Record) -> str:
    """Return what was measured, in one line."""
    facts = record.data
    return (
        f"share: {facts['rows']} rows ({facts['kind']}), {facts['pickled'] / MB:.1f} MB when pickled;"
        f" {record.options['loader']}, {counted(rounds_of(record), 'round')}"
    )


def findings(record: Record) -> Iterator[str]:
    """Yield, for every case of ours, what all processes hold as a multiple of the payload."""
    for case in record.cases():
        payload, words = record.spread(OURS, case, "nbytes"), ", ".join(case)
        holding = [above_empty(name)(record, OURS, case) for name in ("pss", "second_pss")]
        if payload and all(holding):
            first, second = (f"{spread.median * MB / payload.median:.3f}" for spread in holding if spread)
            yield f"{words}: onecopy holds {first} of its payload, {second} in the second run."
        if handle := record.spread(OURS, case, "handle_bytes"):
            yield f"{words}: the handle that each worker gets is {handle.high:.0f} bytes."
        ready, again = (record.spread(OURS, case, name) for name in ("ready_ns", "second_ready_ns"))
        if ready and again and again.median:
            yield f"{words}: its second run is ready in 1/{ready.median / again.median:.0f} of the first."
    wanted = record.data.get("rows", 0)
    short = {s.row for s in record.samples if s.numbers.get("rows_read", wanted) < wanted} - {EMPTY_ROW}
    if short:
        yield f"Stopped after {record.options['limit_s']:g} s, before all rows: {', '.join(sorted(short))}."


def draw(figure: Any, record: Record) -> None:
    """Draw a line of panels per case: the totals less the empty job, and the private memory of a worker over time."""
    cases = [case for case in record.cases() if case[0] != HEAP]
    names = [row.name for row in record.rows if row.name != EMPTY_ROW]
    height = len(names) * pictures.PER_ROW + pictures.PER_CASE
    figure.set_size_inches(pictures.WIDTH, max(len(cases), 1) * height + 0.4)
    for case, (totals, curves) in zip(cases, figure.subplots(max(len(cases), 1), 2, squeeze=False), strict=False):
        found = {name: above_empty("pss")(record, name, case) for name in names}
        values = {name: max(spread.median, 0.0) for name, spread in found.items() if spread is not None}
        pictures.bars(totals, values, record.ours)
        words = f"{case[0]}, {case[1]} x (1 + {record.options['workers']})"
        totals.set_title(f"{words}: MB in all, less empty", fontsize=9)
        for name, colour in zip(names, pictures.LINES * len(names), strict=False):
            _curve(curves, record, name, case, colour)
        curves.set_title("USS of a worker: MB over seconds", fontsize=9)
        curves.grid(color=pictures.FAINT, linewidth=0.6)
        curves.set_ylim(bottom=0)
        if curves.lines:
            curves.legend(fontsize=6.5, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))


def _curve(axes: Any, record: Record, name: str, case: Case, colour: str) -> None:
    """Draw the private memory of the median worker in the last good round."""
    samples = [sample for sample in record.of(name, case) if sample.points]
    if samples:
        points, width = samples[-1].points, 2.2 if name.startswith("onecopy") else 1.2
        x, y = [point[0] for point in points], [point[1] / MB for point in points]
        axes.plot(x, y, color=colour, linewidth=width, label=name)


SCENARIO = Scenario(NAME, described, tables_of, findings, draw)


@click.command(NAME)
@cli.option("--rows", type=click.IntRange(min=10), default=data.COCO_ROWS, help="Of the dataset.")
@cli.option(
    "--data",
    "kind",
    type=click.Choice(("coco", "real", "pairs")),
    default="coco",
    help="Made-up COCO annotations; those of --file, again and again; (path, label) pairs.",
)
@click.option("--file", type=click.Path(exists=True, dir_okay=False), help="A COCO file, for --data real.")
@click.option("--no-heap", is_flag=True, help="Leave the builder's heap out.")
@cli.common(SCENARIO, Options())
def command(
    *, rows: int, kind: Kind, file: str | None, no_heap: bool, options: Options, measure: Measure
) -> None:  # fmt: skip
    """Measure what a dataset costs in a training job: memory of all processes, of a worker over time, time to start.

    A job is ranks with their workers, each of which reads every row and pickles it, as in "Demystify RAM usage in
    multi-process data loaders". Rows are held as a list, serialised, in files, or by onecopy; every one is compared
    by its checksum with what was written. Each job is started twice. What is not installed is a row that says so.
    """
    if no_heap:
        options = replace(options, allocators=())
    measure(lambda place, watch, log: run(prepared(place, kind, rows, file, watch), place, options, watch, log))
