"""Who wins where: a record of `bench crossover` as verdicts, tables, and a block of Markdown.

Pure functions over a record. A cell is a place, an order, a share and a number of passes; its time is that of opening,
warming and all passes, the median of the rounds. Methods within 5 % of the fastest share the win.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from onecopy_bench.engine.machine.limits import OUT_OF_MEMORY
from onecopy_bench.engine.record import Record, Sample
from onecopy_bench.engine.tables import MB, MISSING, Spread, Table, counted, number
from onecopy_bench.files.sampling import above
from onecopy_bench.scenarios.open.summary import times_transfer
from onecopy_bench.scenarios.passes.notes import notes_of, of, pass_ms, places_of

TIE = 1.05
COPY = "copy"
BEGIN, END = "<!-- crossover:begin -->", "<!-- crossover:end -->"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One cell.

    Attributes
    ----------
    times
        Milliseconds by method, fastest median first; only methods that got so far.
    winners
        The fastest and all within 5 % of it, fastest first; empty where no method got so far.
    margin
        Median of the next one divided by that of the fastest; None where all are winners.
    copy_ratio
        Median of "copy" divided by that of the fastest mapping; None where one of them is missing.
    lost
        Methods without a single good sample in this cell, and what became of them.
    """

    place: str
    order: str
    share: float
    passes: int
    times: dict[str, Spread]
    winners: tuple[str, ...]
    margin: float | None
    copy_ratio: float | None
    lost: dict[str, str]


def passes_of(record: Record) -> tuple[int, ...]:
    """Return the numbers of passes that are judged: 1, 2, 8, 32, ..., up to what the record has."""
    steps = [1, 2]
    while steps[-1] < record.options["passes"]:
        steps.append(min(4 * steps[-1], record.options["passes"]))
    return tuple(step for step in steps if step <= record.options["passes"])


def verdicts_of(record: Record) -> list[Verdict]:
    """Return the verdict of each cell, in the order of the tables."""
    return [
        _verdict(record, place["name"], order, share, passes)
        for place in places_of(record)
        for order in record.options["orders"]
        for share in record.options["shares"]
        for passes in passes_of(record)
    ]


def _verdict(record: Record, place: str, order: str, share: float, passes: int) -> Verdict:
    samples = {e.name: of(record, e.name, place, order, share) for e in record.rows if e.role == "row"}
    spreads = {name: pass_ms(taken, passes) for name, taken in samples.items()}
    lost = {name: _fate(taken) for name, taken in samples.items() if taken and all(s.state != "ok" for s in taken)}
    known = {name: spread for name, spread in spreads.items() if spread is not None}
    times = dict(sorted(known.items(), key=lambda pair: pair[1].median))
    medians = {name: spread.median for name, spread in times.items()}
    best = next(iter(medians.values()), 0.0)
    winners = tuple(name for name, median in medians.items() if median <= TIE * best)
    behind = [median for name, median in medians.items() if name not in winners]
    maps = [median for name, median in medians.items() if name != COPY]
    ratio = medians[COPY] / min(maps) if COPY in medians and maps else None
    return Verdict(place, order, share, passes, times, winners, behind[0] / best if behind else None, ratio, lost)


def winner_text(verdict: Verdict) -> str:
    """Return the text of a cell: the winners and their time, and on further lines the next one and the copy."""
    if not verdict.winners:
        return "none got so far"
    lines = [f"{' = '.join(verdict.winners)}", f"{number(verdict.times[verdict.winners[0]].median)} ms"]
    behind = next((name for name in verdict.times if name not in verdict.winners), None)
    if behind is not None and verdict.margin is not None:
        lines.append(f"{behind} +{100 * (verdict.margin - 1):.0f} %")
    if verdict.copy_ratio is not None and COPY not in (*verdict.winners, behind):
        lines.append(f"copy +{100 * (verdict.copy_ratio - 1):.0f} %")
    lines += [f"{name} {state}" for name, state in verdict.lost.items()]
    return "\n".join(lines)


def tables_of(record: Record) -> list[Table]:
    """Return who wins, one table for each place and order: a row per share, a column per number of passes."""
    judged = {(v.place, v.order, v.share, v.passes): v for v in verdicts_of(record)}
    passes = passes_of(record)
    header = ("touched", *(counted(count, "pass", "passes") for count in passes))
    return [
        Table(
            f"{place['name']}, {_words(order)}",
            header,
            tuple(
                (_percent(share), *(winner_text(judged[place["name"], order, share, p]) for p in passes))
                for share in record.options["shares"]
            ),
        )
        for place in places_of(record)
        for order in record.options["orders"]
    ]


def cost_tables(record: Record) -> list[Table]:
    """Return what each method holds and reads, two tables for each place, by the share touched, in the first order."""
    return [
        _costs(record, f"{place['name']}: {title}", place["name"], cell)
        for place in places_of(record)
        for title, cell in (("MB held after the last pass, private / PSS", _held), ("MB read from the device", _read))
    ]


def _costs(record: Record, title: str, place: str, cell: Callable[[list[Sample]], str]) -> Table:
    order, shares = record.options["orders"][0], record.options["shares"]
    names = [entry.name for entry in record.rows if entry.role == "row"]
    rows = ((name, *(cell(of(record, name, place, order, share)) for share in shares)) for name in names)
    return Table(title, ("method", *map(_percent, shares)), tuple(rows))


def _fate(samples: list[Sample]) -> str:
    """Return in one word what became of samples that are not good."""
    return "killed" if samples[0].reason.startswith(OUT_OF_MEMORY) else samples[0].state


def _held(samples: list[Sample]) -> str:
    good = [sample for sample in samples if sample.state == "ok"]
    anonymous, pss = (Spread.of(map(above(name), good)) for name in ("anonymous", "pss"))
    if anonymous is None or pss is None:
        return _fate(samples) if samples else MISSING
    return f"{max(anonymous.median, 0):.0f} / {max(pss.median, 0):.0f}"


def _read(samples: list[Sample]) -> str:
    read = Spread.of(
        s.processes[0]["read_bytes"] for s in samples if s.state == "ok" and "read_bytes" in s.processes[0]
    )
    if read is None:
        return _fate(samples) if samples else MISSING
    return number(read.median / MB)


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


def _words(order: str) -> str:
    return "touched in the order of the file" if order == "file" else "touched in random order"


def legend(record: Record) -> str:
    """Return how to read the tables."""
    star = "" if times_transfer(record) else " Times of copies hold for this machine alone, see the notes."
    return (
        "Median time of opening, warming and all passes; '=': within 5 % of each other; then the next one, and the"
        f" copy against the fastest mapping.{star}"
    )


def to_markdown(record: Record) -> str:
    """Return the block that a page of the documentation holds between its two marks, marks included."""
    methods = ", ".join(f"`{e.name}` ({e.detail})" for e in record.rows if e.role == "row")
    machine = record.machine
    where = f"{machine.get('cpu')}, {machine.get('cores')} cores, {machine.get('kernel')}"
    head = (
        f"{record.data['size'] / MB:.0f} MB, cold, {where}, {record.created[:10]}. Methods: {methods}. {legend(record)}"
    )
    tables = [table.markdown() for table in (*tables_of(record), *cost_tables(record))]
    notes = "\n".join(f"* {note}" for note in notes_of(record))
    return "\n\n".join([BEGIN, head, *tables, notes, END])
