"""The scenario `share`: what a dataset costs in a training job, by how it is held and how workers are started.

Each sample is a job of one or several ranks, as torchrun starts them, each with its workers. All ranks make the rows
ready; then all start their workers, which go over the rows while their memory is looked at again and again; then all
hold, and the whole is measured. The job is then started a second time in the same folder: what is kept there is found.
Another kind of sample builds in a process without workers and looks at what the allocator has not given back.

What is subtracted from each is a job of the same kind that holds ten rows.
"""

from __future__ import annotations

import ctypes.util
import dataclasses
import importlib.util
import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from onecopy.memory import proc
from onecopy_bench import runner
from onecopy_bench.children import SampleError
from onecopy_bench.machine import cache
from onecopy_bench.programs.trees import Trees, totals_of
from onecopy_bench.record import Absent
from onecopy_bench.records import data, rank, rounds
from onecopy_bench.records.peers.heap import EMPTY
from onecopy_bench.records.peers.table import SHARED
from onecopy_bench.records.rank import Allocator, Errand, Loader, Start
from onecopy_bench.records.record import Entry, Run
from onecopy_bench.records.rounds import Settings, Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import Any

    import numpy as np
    from numpy.typing import NDArray

    from onecopy_bench.children import Crew
    from onecopy_bench.records.data import Kind, Source
    from onecopy_bench.records.peers import Peer
    from onecopy_bench.records.record import RunJournal
    from onecopy_bench.records.rounds import Result

NAME = "share"
STARTS: tuple[Start, ...] = get_args(Start)
ALLOCATORS: tuple[Allocator, ...] = get_args(Allocator)
LOADERS: tuple[Loader, ...] = get_args(Loader)
NAMES = tuple(peer.name for peer in SHARED if peer is not EMPTY)
HEAP = "heap"
"""The first word of the cases that look at the builder's heap."""

WITH_TORCH, WITHOUT_TORCH = 300e6, 30e6
"""Private bytes of a process that has imported what it needs, roughly."""


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How the scenario is run.

    Attributes
    ----------
    peers, starts, ranks
        What is compared; each start with each number of ranks is a case.
    workers
        Of each rank.
    loader
        Workers run the loop of the article, each over all rows; or those of a DataLoader read them once together.
    torch
        Import it in every process where it is installed, as a training program does.
    limit_s
        Seconds after which a pass stops.
    interval_s
        Between two looks at the memory of the workers.
    allocators
        For the builder's heap; none leaves that out.
    cold
        Evict what the first job has kept before the second begins; else it is in the page cache.
    """

    peers: tuple[str, ...] = NAMES
    starts: tuple[Start, ...] = STARTS
    ranks: tuple[int, ...] = (1, 2, 8)
    workers: int = 4
    loader: Loader = "loop"
    torch: bool = True
    limit_s: float = 120.0
    interval_s: float = 0.5
    allocators: tuple[Allocator, ...] = ALLOCATORS
    cold: bool = False


def run(
    source: Source,
    place: Path,
    options: Options = Options(),
    watch: Callable[[runner.Progress], None] = lambda _: None,
    journal: RunJournal | None = None,
) -> Run:
    """Measure every peer in every case and return the record.

    Parameters
    ----------
    source
        See `onecopy_bench.records.data.write`.
    place
        A folder; each sample gets an empty one in it.
    options
        Peers, starts, ranks, limits.
    watch
        Called before each sample and at the end.
    journal
        Where samples are kept as they come, and found again.

    Raises
    ------
    ValueError
        If the journal is of another run.
    """
    peers, absent = available(options)
    rows = (Entry(peer.name, peer.detail, peer.name.startswith("onecopy")) for peer in peers)
    data = {"kind": source.kind, "rows": source.count, "pickled": source.pickled}
    heading = rounds.heading(NAME, place, options, rows, data=data, absent=absent)
    return rounds.run(heading, turns(source, peers, options), options, place, watch=watch, journal=journal)


def available(options: Options) -> tuple[list[Peer], tuple[Absent, ...]]:
    """Return the peers that are installed, the empty one with them, and what is not."""
    wanted = [peer for peer in SHARED if peer.name in options.peers or peer is EMPTY]
    absent = [
        Absent(peer.name, f"not installed: {', '.join(missing)}") for peer in wanted if (missing := peer.missing())
    ]
    if "jemalloc" in options.allocators and not has_jemalloc():
        absent.append(Absent(f"{HEAP}: jemalloc", "not installed: libjemalloc"))
    if options.loader == "dataloader" and importlib.util.find_spec("torch") is None:
        raise ModuleNotFoundError("a DataLoader needs torch: pip install torch")
    return [peer for peer in wanted if not peer.missing()], tuple(absent)


def has_jemalloc() -> bool:
    """Return whether jemalloc can be loaded into a process."""
    return ctypes.util.find_library("jemalloc") is not None


def turns(source: Source, peers: Sequence[Peer], options: Options) -> list[Turn]:
    """Return everything that a round holds."""
    sums, found = source.sums(), []
    for ranks in options.ranks:
        for start in options.starts:
            for peer in peers:
                needs = memory_of(peer, source, start, ranks, options)
                found.append(
                    Turn(peer.name, (start, str(ranks)), needs, job(peer, source, sums, (start, ranks), options))
                )
    for allocator in options.allocators:
        if allocator == "jemalloc" and not has_jemalloc():
            continue
        for peer in peers:
            needs = peer.builds * source.pickled
            found.append(Turn(peer.name, (HEAP, allocator), needs, building(peer, source, allocator, options)))
    return found


def memory_of(peer: Peer, source: Source, start: Start, ranks: int, options: Options) -> float:
    """Return roughly the private bytes that a job needs at most."""
    builders = 1 if peer.keeps or peer.alone else ranks
    held = peer.leaks if start == "fork" else peer.copied
    importing = ranks * (1 + options.workers if start in {"spawn", "forkserver"} else 1)
    imported = importing * (WITH_TORCH if options.torch else WITHOUT_TORCH)
    return source.pickled * (builders * peer.builds + ranks * options.workers * held) + imported


def job(
    peer: Peer, source: Source, sums: NDArray[np.uint64], case: tuple[Start, int], options: Options
) -> Callable[[Path], Result]:
    """Return what takes a sample of a job: started twice."""
    start, ranks = case

    def take(folder: Path) -> Result:
        more: dict[str, Any] = {"loader": options.loader, "torch": options.torch, "limit_s": options.limit_s}
        errand = Errand(peer.name, source, os.fspath(folder), start, options.workers, **more)
        numbers, points = start_job(errand, ranks, options, sums)
        if options.cold:
            for path in folder.rglob("*"):
                if path.is_file():
                    cache.evict(path)
        again = errand if peer.keeps else dataclasses.replace(errand, workers=0, folder=tempfile.mkdtemp(dir=folder))
        second, later = start_job(again, ranks, options, sums)
        return {**numbers, **{f"second_{name}": value for name, value in second.items()}}, later or points

    return take


def start_job(errand: Errand, ranks: int, options: Options, sums: NDArray[np.uint64]) -> Result:
    """Start a job once and return what it took and held; without workers, only what it took to be ready."""
    with rounds.crew_of(rank.__name__, errand, ranks, options.timeout) as crew:
        peak = rounds.FamilyPeak(crew.pids)
        crew.release("load")
        loaded = crew.gather("loaded", peak.poll)
        numbers: dict[str, float | None] = {
            "ready_ns": max(message["ready_ns"] for message in loaded),
            "nbytes": loaded[0]["nbytes"],
            "handle_bytes": loaded[0]["handle_bytes"],
            "build_peak_anonymous": peak.bytes,
        }
        points: tuple[tuple[float, ...], ...] = ()
        if errand.workers:
            crew.release("work")
            workers = [pid for message in crew.gather("started") for pid in message["workers"]]
            crew.release("collect")
            curve = Curve(workers, options.interval_s)
            passed = crew.gather("passed", curve.poll)
            numbers |= pace(passed, sums)
            curve.look()
            numbers |= held(crew, workers)
            points = tuple(curve.points)
        crew.dismiss()
    return numbers, points


def held(crew: Crew, workers: Sequence[int]) -> dict[str, float | None]:
    """Return what all processes of a job hold together, and the median of its workers."""
    members = Trees(crew.pids, [f"none of {pid}" for pid in crew.pids]).members()
    totals = totals_of(pid for tree in members for pid in tree)
    return {
        "pss": totals.pss,
        "anonymous": totals.anonymous,
        "processes": totals.processes,
        "worker_uss": statistics.median(uss_of(workers)),
    }


def uss_of(pids: Sequence[int]) -> list[int]:
    """Return the private bytes of some processes; raises SampleError where one has just died."""
    return [runner.memory_of(pid).private for pid in pids]


def pace(passed: Sequence[dict[str, Any]], sums: NDArray[np.uint64]) -> dict[str, float | None]:
    """Judge what was read and return how fast; raises SampleError where it is not what was written."""
    passes = [each for message in passed for each in message["passes"]]
    for rows, total, _ in passes:
        if rows >= len(sums) or total != int(sums[rows]):
            raise SampleError("wrong data", f"the first {rows} rows sum to {total:#x}, not to what was written")
    return {
        "last_first_ns": max(message["last_first_ns"] for message in passed),
        "rows_read": min(rows for rows, _, _ in passes),
        "rows_per_s": statistics.median(rows / max(seconds, 1e-9) for rows, _, seconds in passes),
    }


class Curve:
    """The private bytes of workers over time: seconds, median, largest.

    To look takes milliseconds per gigabyte under a lock of the process looked at, so the pauses are ten times that.
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
        uss = uss_of(self._pids)
        now = time.monotonic()
        self.points.append((round(begin - self._start, 3), statistics.median(uss), max(uss)))
        self._next = now + max(self._interval_s, 10 * (now - begin))


def building(peer: Peer, source: Source, allocator: Allocator, options: Options) -> Callable[[Path], Result]:
    """Return what takes a sample of the builder's heap."""
    variables = ["LD_PRELOAD=" + str(ctypes.util.find_library("jemalloc"))] if allocator == "jemalloc" else []

    def take(folder: Path) -> Result:
        errand = Errand(peer.name, source, os.fspath(folder), torch=options.torch, allocator=allocator)
        with rounds.crew_of(rank.__name__, errand, 1, options.timeout, variables) as crew:
            (pid,) = crew.pids
            if variables and not any("jemalloc" in region.path for region in proc.maps(pid)):
                raise SampleError("failed", "jemalloc was not loaded")
            empty, peak = runner.memory_of(pid), rounds.FamilyPeak(crew.pids)
            crew.release("load")
            (loaded,) = crew.gather("loaded", peak.poll)
            after = runner.memory_of(pid)
            crew.dismiss()
        return {
            "heap": after.anonymous - empty.anonymous,
            "build_peak_anonymous": peak.bytes - empty.anonymous,
            "ready_ns": loaded["ready_ns"],
            "nbytes": loaded["nbytes"],
        }, ()

    return take


def prepared(
    folder: Path,
    kind: Kind,
    count: int,
    file: str | os.PathLike[str] | None,
    watch: Callable[[runner.Progress], None],
) -> Source:
    """Write the rows into a folder and return their source."""
    return data.write(
        folder, kind, data.rows_of(kind, count, file), lambda seen: watch(runner.Progress(seen, count, f"{kind} rows"))
    )
