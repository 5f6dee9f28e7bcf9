"""`onecopy bench warm FILE`: each mechanism of bringing a mapped file into memory, alone, from a cold cache.

The rows of `mechanisms.MECHANISMS`, and O_DIRECT and the first-touch control beside them, each in a fresh process; then
every page is touched, twice. The file is measured where it is, and on a loop device for each read-ahead asked for, all
places in the same rounds. One table per place and order; the O_DIRECT rows are the same in all tables of a place.
"""

from __future__ import annotations

import contextlib
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from onecopy_bench.engine import options as cli
from onecopy_bench.engine.machine import disks
from onecopy_bench.engine.machine.limits import Unavailable
from onecopy_bench.engine.options import Measure
from onecopy_bench.engine.pages import Scenario
from onecopy_bench.engine.record import Log, Record, Row, Sample
from onecopy_bench.engine.rounds import Watch
from onecopy_bench.engine.tables import MB, MISSING, Spread, Table, counted, number, with_extremes
from onecopy_bench.files.ceilings import CEILINGS, CONTROLS
from onecopy_bench.scenarios.open import layout_of
from onecopy_bench.scenarios.passes import cells
from onecopy_bench.scenarios.passes.cells import Options
from onecopy_bench.scenarios.passes.mechanisms import MECHANISMS
from onecopy_bench.scenarios.passes.notes import notes_of, of, pass_ms, places_of, second_pass_ms

NAME = "warm"
BESIDE = tuple(c for c in CEILINGS if c.name in {"o_direct-fresh-1", "o_direct-fresh-8", "o_direct-reused-8"})
"""The ceilings that are taken in each round; `bench open` has them all."""


def run(
    path: str | os.PathLike[str],
    options: Options,
    read_aheads: Sequence[int | None] = (None,),
    watch: Watch = lambda _: None,
    log: Log | None = None,
) -> Record:
    """Measure every mechanism, for each read-ahead on a loop device beside the file; None is the file where it is.

    Raises
    ------
    Unavailable
        If a loop device cannot be made: the message says why.
    OSError, ValueError
        If the file cannot be read, or is empty.
    """
    source = Path(path).absolute()
    layout_of(source)
    with contextlib.ExitStack() as stack:
        try:
            spots = [disks.spot_of(source, ahead, stack) for ahead in read_aheads]
        except Unavailable as reason:
            raise Unavailable(f"no disk with another read-ahead: {reason}") from reason
        found = []
        for spot in spots:
            for work in cells.works(spot, options.shares, options.orders, options.seed):
                found += [cells.Cell(spot, work, entry) for entry in MECHANISMS]
            whole = cells.works(spot, (1.0,), ("file",), options.seed)[0]
            found += [cells.Cell(spot, whole, entry) for entry in (*BESIDE, *(CONTROLS if spot is spots[0] else ()))]
        return cells.run(NAME, source, found, options, watch=watch, log=log)


OURS = "onecopy.warm"
TIE = 1.05
"""Medians within this factor of the best count as equal to it."""

HEADER = ("mechanism", "all resident\nms", "2nd pass\nms", "minor", "major", "huge\n%", "read\nMB", "CPU\nms")


def rows_of(record: Record, place: dict[str, Any], order: str) -> Iterator[tuple[Row, list[Sample]]]:
    """Yield the rows of one table with their samples, in the order of the mechanisms, then the ceilings."""
    for row in record.rows:
        samples = of(record, row.name, place["name"], None if row.role == "ceiling" else order)
        if samples and row.role != "control":
            yield row, samples


def resident_ms(row: Row, samples: list[Sample]) -> Spread | None:
    """Return the time until everything was touched; where data do not stay, until it was read."""
    if not row.name.startswith("o_direct-reused"):
        return pass_ms(samples, 1)
    return Spread.of(s.processes[0]["open_ns"] / 1e6 for s in samples if s.state == "ok")


def tables_of(record: Record) -> Iterator[Table]:
    """Yield a table for each place and order."""
    for place in places_of(record):
        for order in record.options["orders"]:
            words = "the order of the file" if order == "file" else "shuffled order"
            rows = tuple(_cells(row, place, samples) for row, samples in rows_of(record, place, order))
            yield Table(f"{place['name']}, touched in {words}", HEADER, rows)


def _cells(row: Row, place: dict[str, Any], samples: list[Sample]) -> tuple[str, ...]:
    good = [sample for sample in samples if sample.state == "ok"]

    def median(column: Callable[[dict[str, Any]], float | None]) -> str:
        known = [value for s in good if (value := column(s.processes[0])) is not None]
        return number(statistics.median(known)) if known else MISSING

    stays = not row.name.startswith("o_direct-reused")
    times = resident_ms(row, samples)
    return (
        row.name,
        with_extremes(times) if times is not None else _instead(place, samples),
        with_extremes(second_pass_ms(good)),
        median(lambda p: p["minor_faults"]),
        median(lambda p: p["major_faults"]),
        median(lambda p: 100 * min((p["file_pmd_mapped"] + p["anon_huge"]) / place["size"], 1.0) if stays else None),
        median(lambda p: p["read_bytes"] / MB if "read_bytes" in p else None),
        median(lambda p: p["cpu_ms"]),
    )


def _instead(place: dict[str, Any], samples: list[Sample]) -> str:
    """Return what happened where no sample touched everything in its time."""
    notes = [s.processes[0]["notes"] for s in samples if s.processes]
    cut = next((note for note in notes if note.get("cut_short")), None)
    return samples[0].state if cut is None else f"cut short\nat {100 * cut['touched'] / place['size']:.0f} %"


def findings(record: Record) -> Iterator[str]:
    """Yield how `onecopy.warm` compares in each table."""
    for place in places_of(record):
        for order in record.options["orders"]:
            found = {r.name: resident_ms(r, s) for r, s in rows_of(record, place, order) if r.role == "row"}
            medians = {name: spread.median for name, spread in found.items() if spread}
            if OURS in medians:
                yield f"{place['name']}, {order}: {_standing(medians)}"


def _standing(medians: dict[str, float]) -> str:
    ours, best = medians[OURS], min(medians, key=medians.__getitem__)
    if best == OURS:
        return f"{OURS} is the fastest, {number(ours)} ms."
    behind = ours / medians[best]
    words = "within 5 % of" if behind <= TIE else f"{100 * (behind - 1):.0f} % behind"
    return f"{OURS}, {number(ours)} ms, is {words} the fastest, {best}, {number(medians[best])} ms."


def described(record: Record) -> str:
    """Return what was measured, in one line."""
    rounds = counted(1 + max(sample.round for sample in record.samples), "round")
    return f"{record.scenario} {record.data['file']}: {record.data['size'] / 1e6:.1f} MB, cold, {rounds}"


SCENARIO = Scenario(NAME, described, tables_of, findings, limits=notes_of)


@click.command(NAME)
@click.argument("file", type=click.Path())
@cli.read_aheads((cli.DEVICE,))
@cli.common(SCENARIO, Options(), without=("folder", "passes"))
def command(*, file: str, read_aheads: tuple[int | None, ...], options: Options, measure: Measure) -> None:
    """Measure each mechanism that brings FILE into memory, from a cold cache; then touch every page, twice."""
    measure(lambda _, watch, log: run(file, options, read_aheads, watch, log))
