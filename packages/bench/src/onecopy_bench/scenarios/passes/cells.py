"""Cells: one mechanism on one choice of pieces in one place, a fresh process for each sample.

All cells are turns of the same rounds, so that places, shares and mechanisms are interleaved. The samples themselves
are those of `files.sampling`: evicted and proven cold, waited for an idle machine, killed if need be.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from onecopy_bench.engine import options as cli
from onecopy_bench.engine import rounds
from onecopy_bench.engine.machine.disks import Spot
from onecopy_bench.engine.machine.limits import kills_explained
from onecopy_bench.engine.record import Absent, Log, Record, Row, Sample, heading
from onecopy_bench.engine.rounds import Attempt, Settings, Taken, Turn, Watch
from onecopy_bench.files import child, touch
from onecopy_bench.files.configurations import Configuration, Job
from onecopy_bench.files.layout import Layout
from onecopy_bench.files.sampling import turn
from onecopy_bench.scenarios.passes import pieces

ORDER = click.Choice(["file", "shuffled"])
ORDERS = "Touch the pieces in the file's order, or in a random one."
BUDGET = "Seconds for all rounds: fewer rounds when short, one at least."


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How a run with passes goes.

    The chosen pieces (`shares`, `orders`, see `pieces.choose`) are gone over `passes` times in one sample, at most: it
    stops between two pieces after `limit_s` seconds of passes, and a cell whose first pass did not end is not taken
    again. `budget_s` seconds are for all rounds, None: no end.
    """

    rounds: int = 7
    timeout: float = 120.0
    idle_wait: float = 30.0
    passes: int = cli.field(2, "Passes at most.")
    shares: tuple[float, ...] = (1.0,)
    orders: tuple[str, ...] = cli.field(("file",), ORDERS, "--order", type=ORDER)
    budget_s: float | None = cli.field(None, BUDGET, type=cli.SECONDS)
    limit_s: float = cli.field(5.0, "Seconds of passes after which a sample is cut short.")


@dataclass(frozen=True, slots=True)
class Work:
    """What a sample has to touch: an order, a share, the pieces of it, and their checksum."""

    order: str
    share: float
    job: Job
    checksum: int


@dataclass(frozen=True, slots=True)
class Cell:
    """One thing to be measured again and again."""

    spot: Spot
    work: Work
    entry: Configuration

    def turn(self, options: Options) -> Turn:
        """Return the turn of the cell."""
        groups = tuple(map(str, self.spot.groups))
        errand = child.Errand(self.entry, self.work.job, options.passes, options.limit_s, groups)
        case = (self.spot.name, self.work.order, f"{self.work.share:g}")
        plain = turn(self.entry, self.work.job, self.work.checksum, options, case=case, errand=errand)

        def take(attempt: Attempt) -> Taken:
            with kills_explained(self.spot.groups, self.spot.memory_bytes):
                return plain.take(attempt)

        return Turn(plain.row, plain.case, plain.memory, take, did_not_end)


def did_not_end(sample: Sample) -> bool:
    """Return whether a sample was cut short in its first pass."""
    notes = sample.processes[0]["notes"] if sample.processes else {}
    return bool(notes.get("cut_short")) and not notes["passes_ns"]


def works(spot: Spot, shares: Iterable[float], orders: Sequence[str], seed: int) -> list[Work]:
    """Return every order of every share of the file of a spot; the checksums are those of plain reads."""
    every = pieces.cut(spot.size, seed)
    found = []
    for share in shares:
        ordered = pieces.choose(every, share, "file", seed)
        checksum = touch.of_file(spot.path, Layout("bytes", spot.size, ordered))
        for order in orders:
            chosen = ordered if order == "file" else pieces.choose(every, share, "shuffled", seed)
            found.append(Work(order, share, Job(str(spot.path), "bytes", spot.size, chosen), checksum))
    return found


def run(
    scenario: str,
    source: Path,
    cells: Sequence[Cell],
    options: Options,
    *,
    absent: Iterable[Absent] = (),
    watch: Watch = lambda _: None,
    log: Log | None = None,
) -> Record:
    """Take all rounds and return the record; raises RuntimeError if a file changes meanwhile."""
    spots = {cell.spot.name: cell.spot for cell in cells}
    known = ("name", "detail", "size", "read_ahead_bytes", "device_bytes_per_s", "memory_bytes")
    places = [{name: getattr(spot, name) for name in known} for spot in spots.values()]
    data = {"file": source.name, "size": source.stat().st_size, "places": places}
    entries = {cell.entry.name: cell.entry for cell in cells}
    rows = [Row(e.name, e.detail, role=e.role, uses_cache=e.uses_cache) for e in entries.values()]
    head = heading(scenario, source, options, rows, data=data, absent=absent)
    turns = [cell.turn(options) for cell in cells]
    files = {spot.path for spot in spots.values()}
    return rounds.run(head, turns, options, watch=watch, log=log, files=files, budget_s=options.budget_s)
