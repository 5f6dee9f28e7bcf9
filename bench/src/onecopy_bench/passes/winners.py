"""Who wins where: a record of `bench crossover` as verdicts, tables, and a block of Markdown.

Pure functions over a record. A cell is a place, an order, a share and a number of passes; its time is that of opening,
warming and all passes, the median of the rounds. Methods within 5 % of the fastest share the win.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from onecopy_bench.passes.series import OUT_OF_MEMORY, notes_of, pass_ms, times_transfer
from onecopy_bench.passes.tables import MISSING, Table, number, with_extremes
from onecopy_bench.report.summary import MB, Spread

if TYPE_CHECKING:
    from collections.abc import Callable

    from onecopy_bench.passes.series import Series, Taken

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


def passes_of(series: Series) -> tuple[int, ...]:
    """Return the numbers of passes that are judged: 1, 2, 8, 32, ..., up to what the record has."""
    steps = [1, 2]
    while steps[-1] < series.options.passes:
        steps.append(min(4 * steps[-1], series.options.passes))
    return tuple(step for step in steps if step <= series.options.passes)


def verdicts_of(series: Series) -> list[Verdict]:
    """Return the verdict of each cell, in the order of the tables."""
    return [
        _verdict(series, place.name, order, share, passes)
        for place in series.places
        for order in series.options.orders
        for share in series.options.shares
        for passes in passes_of(series)
    ]


def _verdict(series: Series, place: str, order: str, share: float, passes: int) -> Verdict:
    samples = {e.name: series.of(e.name, place, order, share) for e in series.entries if e.role == "row"}
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


def tables_of(series: Series) -> list[Table]:
    """Return who wins, one table for each place and order: a row per share, a column per number of passes."""
    judged = {(v.place, v.order, v.share, v.passes): v for v in verdicts_of(series)}
    passes = passes_of(series)
    header = ("touched", *(f"{number} pass{'es' if number > 1 else ''}" for number in passes))
    return [
        Table(
            f"{place.name}, {_words(order)}",
            header,
            tuple(
                (_percent(share), *(winner_text(judged[place.name, order, share, p]) for p in passes))
                for share in series.options.shares
            ),
        )
        for place in series.places
        for order in series.options.orders
    ]


def cost_tables(series: Series) -> list[Table]:
    """Return what each method holds and reads, two tables for each place, by the share touched, in the first order."""
    return [
        _costs(series, f"{place.name}: {title}", place.name, cell)
        for place in series.places
        for title, cell in (("MB held after the last pass, private / PSS", _held), ("MB read from the device", _read))
    ]


def _costs(series: Series, title: str, place: str, cell: Callable[[list[Taken]], str]) -> Table:
    order, shares = series.options.orders[0], series.options.shares
    names = [entry.name for entry in series.entries if entry.role == "row"]
    rows = ((name, *(cell(series.of(name, place, order, share)) for share in shares)) for name in names)
    return Table(title, ("method", *map(_percent, shares)), tuple(rows))


def detail_tables(series: Series) -> list[Table]:
    """Return every method's times, one table for each place and order: medians and extremes in ms."""
    passes = passes_of(series)
    header = ("touched", "method", *(f"{number} pass{'es' if number > 1 else ''}\nms" for number in passes))
    found = []
    for place in series.places:
        for order in series.options.orders:
            rows = [
                (_percent(share), e.name, *(with_extremes(pass_ms(samples, p)) for p in passes))
                for share in series.options.shares
                for e in series.entries
                if e.role == "row" and (samples := series.of(e.name, place.name, order, share))
            ]
            found.append(Table(f"{place.name}, {_words(order)}", header, tuple(rows)))
    return found


def _fate(samples: list[Taken]) -> str:
    """Return in one word what became of samples that are not good."""
    return "killed" if samples[0].reason.startswith(OUT_OF_MEMORY) else samples[0].state


def _held(samples: list[Taken]) -> str:
    good = [sample for sample in samples if sample.state == "ok"]
    anonymous, pss = (Spread.of(values) for values in ([s.anonymous for s in good], [s.pss for s in good]))
    if anonymous is None or pss is None:
        return _fate(samples) if samples else MISSING
    return f"{max(anonymous.median, 0) / MB:.0f} / {max(pss.median, 0) / MB:.0f}"


def _read(samples: list[Taken]) -> str:
    read = Spread.of(s.read_bytes for s in samples if s.state == "ok" and s.read_bytes is not None)
    if read is None:
        return _fate(samples) if samples else MISSING
    return number(read.median / MB)


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


def _words(order: str) -> str:
    return "touched in the order of the file" if order == "file" else "touched in random order"


def computed(series: Series) -> dict[str, Any]:
    """Return what a record's readers want and its samples imply: the verdicts and the notes."""
    return {"verdicts": [asdict(verdict) for verdict in verdicts_of(series)], "notes": notes_of(series)}


def legend(series: Series) -> str:
    """Return how to read the tables."""
    star = "" if times_transfer(series) else " Times of copies hold for this machine alone, see the notes."
    return (
        "Median time of opening, warming and all passes; '=': within 5 % of each other; then the next one, and the"
        f" copy against the fastest mapping.{star}"
    )


def to_markdown(series: Series) -> str:
    """Return the block that a page of the documentation holds between its two marks, marks included."""
    methods = ", ".join(f"`{e.name}` ({e.detail})" for e in series.entries if e.role == "row")
    machine = series.machine
    where = f"{machine.get('cpu')}, {machine.get('cores')} cores, {machine.get('kernel')}"
    head = f"{series.size / MB:.0f} MB, cold, {where}, {series.created[:10]}. Methods: {methods}. {legend(series)}"
    tables = [table.markdown() for table in (*tables_of(series), *cost_tables(series))]
    notes = "\n".join(f"* {note}" for note in notes_of(series))
    return "\n\n".join([BEGIN, head, *tables, notes, END])


def filled(page: str, block: str, begin: str = BEGIN, end: str = END) -> str:
    """Return a page with its block replaced; raises ValueError where the page has not the two marks, once each."""
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise ValueError(f"the page needs one {begin} and, after it, one {end}")
    return page[: page.index(begin)] + block + page[page.index(end) + len(end) :]
