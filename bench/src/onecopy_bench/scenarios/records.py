"""The scenario `records`: one item at a time, in a fresh process for each way of asking.

A sample makes its rows ready, answers every question once to be judged, and then times the statement over all of them
again and again; what is asked for is random, and the data are warm. Rows that are kept in files are built by a process
of their own before, which is timed as well; so the memory of the one that asks is without what building leaves.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onecopy_bench import runner
from onecopy_bench.children import SampleError
from onecopy_bench.record import Absent
from onecopy_bench.records import probe, rounds
from onecopy_bench.records.data import Source
from onecopy_bench.records.peers import imports
from onecopy_bench.records.probe import Errand
from onecopy_bench.records.record import Entry, Run
from onecopy_bench.records.rounds import Settings, Turn
from onecopy_bench.records.ways import CASES, WAYS, draw, right_answer
from onecopy_bench.scenarios.share import prepared

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onecopy_bench.children import Crew
    from onecopy_bench.records.record import RunJournal
    from onecopy_bench.records.rounds import Result
    from onecopy_bench.records.ways import Case, Way

NAME = "records"
NAMES = tuple(case.name for case in CASES)
INDEX_BYTES = 8
"""What an index of a sampler counts as, where pickled rows count otherwise."""


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How the scenario is run.

    Attributes
    ----------
    cases
        By name, see `ways.CASES`.
    rows, strings, pairs, keys, imported
        How many annotations, strings, pairs, keys of the dict, rows of the JSON file.
    shuffle
        Numbers of indices, each a case of its own.
    draws
        Random items that are asked for in a sample.
    repeats
        How often.
    """

    cases: tuple[str, ...] = NAMES
    rows: int = 200_000
    strings: int = 10_000_000
    pairs: int = 1_000_000
    keys: int = 1_000_000
    imported: int = 770_000
    shuffle: tuple[int, ...] = (50_000_000, 1_000_000_000)
    draws: int = 20_000
    repeats: int = 5

    def count(self, case: Case) -> int:
        """Return how many rows a case is asked of."""
        special = {"string": self.strings, "pair": self.pairs, "import": self.imported}
        return self.keys if case.kind == "keyed" else special.get(case.name, self.rows)


def run(
    place: Path,
    options: Options = Options(),
    watch: Callable[[runner.Progress], None] = lambda _: None,
    journal: RunJournal | None = None,
) -> Run:
    """Measure every way in every case and return the record.

    Parameters
    ----------
    place
        A folder for the data; each sample gets an empty one in it.
    options
        Cases, sizes, repeats.
    watch
        Called before each sample and at the end.
    journal
        Where samples are kept as they come, and found again.

    Raises
    ------
    ValueError
        If the journal is of another run.
    """
    sources = write_sources(place, options, watch)
    found = [turn for case in CASES if case.name in options.cases for turn in turns(case, sources, options)]
    heading = rounds.heading(NAME, place, options, entries(options), absent=absences(options))
    return rounds.run(heading, found, options, place, watch=watch, journal=journal)


def every_way(options: Options) -> list[tuple[Case, Way]]:
    """Return all questions with all ways to answer them."""
    return [(case, way) for case in CASES if case.name in options.cases for way in WAYS[case.name]]


def entries(options: Options) -> tuple[Entry, ...]:
    """Return what the record keeps of each way: its name and its case, and the statement."""
    return tuple(
        Entry(f"{case.name}: {way.name}", way.statement, way.name.startswith("onecopy"))
        for case, way in every_way(options)
        if not way.peer.missing()
    )


def absences(options: Options) -> tuple[Absent, ...]:
    """Return the ways that this machine cannot go."""
    return tuple(
        Absent(f"{case.name}: {way.name}", f"not installed: {', '.join(missing)}")
        for case, way in every_way(options)
        if (missing := way.peer.missing())
    )


def write_sources(
    place: Path, options: Options, watch: Callable[[runner.Progress], None]
) -> Mapping[tuple[str, int], Source]:
    """Write the rows that the cases need, by their kind and count; those of the import as JSON as well."""
    sources: dict[tuple[str, int], Source] = {}
    for case in CASES:
        key = (case.kind, options.count(case))
        if case.name not in options.cases or case.subject == "next":
            continue
        folder = place / f"{key[0]}-{key[1]}"
        if key not in sources:
            folder.mkdir(exist_ok=True)
            sources[key] = prepared(folder, case.kind, key[1], None, watch)
        if case.name == "import":
            imports.write(sources[key], folder)
    return sources


def turns(case: Case, sources: Mapping[tuple[str, int], Source], options: Options) -> list[Turn]:
    """Return what a round holds of a case."""
    asked: list[tuple[Source, tuple[str, ...]]]
    if case.subject == "next":
        asked = [(Source("", case.kind, n, INDEX_BYTES * n), (case.name, f"{n:.0e}")) for n in options.shuffle]
    else:
        asked = [(sources[case.kind, options.count(case)], (case.name,))]
    found = []
    for source, title in asked:
        errand = Errand(case.name, "", source, "", draws_of(case, source, options), options.repeats, options.seed)
        right = right_answer(case, source, draw(source, errand.draws, errand.seed))
        for way in WAYS[case.name]:
            if not way.peer.missing():
                mine = dataclasses.replace(errand, way=way.name)
                found.append(Turn(way.name, title, way.peer.builds * source.pickled, asking(mine, way, right, options)))
    return found


def draws_of(case: Case, source: Source, options: Options) -> int:
    """Return how many items are asked for: a sampler gives each index once, so the repeats share them."""
    return min(options.draws, source.count // (options.repeats + 1) if case.subject == "next" else source.count)


def asking(errand: Errand, way: Way, right: int, options: Options) -> Callable[[Path], Result]:
    """Return what takes a sample."""

    def take(folder: Path) -> Result:
        mine = dataclasses.replace(errand, folder=os.fspath(folder))
        if errand.case == "import":
            link_documents(Path(errand.source.path).parent, folder)
        numbers: dict[str, float | None] = {}
        if way.peer.keeps:
            with rounds.crew_of(probe.__name__, mine, 1, options.timeout) as crew:
                opened, built = opening(crew)
                crew.dismiss()
            numbers = {"build_ns": opened["open_ns"], "build_peak": built}
        with rounds.crew_of(probe.__name__, mine, 1, options.timeout) as crew:
            empty = runner.memory_of(crew.pids[0])
            opened, peak = opening(crew)
            after = runner.memory_of(crew.pids[0])
            crew.release("measure")
            (measured,) = crew.gather("measured")
            held = runner.memory_of(crew.pids[0])
            crew.dismiss()
        if measured["answer"] != right:
            raise SampleError("wrong data", f"the answers sum to {measured['answer']:#x}, the right ones to {right:#x}")
        return {
            "build_ns": opened["open_ns"],
            "build_peak": peak,
            **numbers,
            "open_ns": opened["open_ns"],
            "nbytes": opened["nbytes"],
            "opened_uss": after.private - empty.private,
            "uss": held.private - empty.private,
            "best_ns": min(measured["ns"]),
            "median_ns": statistics.median(measured["ns"]),
        }, tuple((each,) for each in measured["ns"])

    return take


def opening(crew: Crew) -> tuple[dict[str, float], int]:
    """Let the process of a crew make its rows ready; return what it says, and its highest RssAnon above the start."""
    start = runner.memory_of(crew.pids[0]).anonymous
    peak = rounds.FamilyPeak(crew.pids)
    crew.release("load")
    (opened,) = crew.gather("opened", peak.poll)
    peak.poll()
    return opened, max(peak.bytes - start, 0)


def link_documents(source: Path, folder: Path) -> None:
    """Return a sample the JSON files without copying them."""
    for name in (imports.DOCUMENT, imports.LINES):
        (folder / name).hardlink_to(source / name)
