"""Records as a Markdown page: a table per case, every row a peer leads told and given room for its explanation.

Pure functions: records in, text out. Rows are sorted by the median time until all was touched. A ratio of times
between a row that maps and a row that copies is written only where the run's own control, the first touch of fresh
memory, was fast enough for it to mean something elsewhere; the control stands beside the table in any case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onecopy_bench import machine
from onecopy_bench.report import sentences, summary

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from onecopy_bench.record import Record
    from onecopy_bench.report.summary import Row, Spread

HEADINGS = (
    "loader",
    "call",
    "holds",
    "all resident, ms (min-max)",
    "x of ours",
    "open, ms",
    "memory above empty, MB",
    "private, MB",
    "peak private, MB",
    "disk, MB",
    "faults major / minor",
)
WITHHELD = "†"
UNEXPLAINED = "_explanation: to be written_"


def page(records: Sequence[Record], picture: str | None = None, notes: Mapping[str, str] = {}) -> str:
    """Return the report of some records.

    Parameters
    ----------
    records
        Each becomes a section, each of its cases a table.
    picture
        The name of an image file to be shown on top.
    notes
        Explanations of rows in which a peer is ahead, by keys such as "cold, 1 process, numpy.memmap".
    """
    lines = ["# How files open", ""]
    if picture is not None:
        lines += [f"![Times and memory, by loader]({picture})", ""]
    for record in records:
        lines += section(record, notes)
    return "\n".join(lines).rstrip() + "\n"


def section(record: Record, notes: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines about one record."""
    file, options = record.file, record.options
    yield f"## {text(file.name)}: {file.size / 1e6:.1f} MB, {file.pieces} pieces, touched in {_order(record)}"
    yield ""
    yield machine_line(record)
    yield (
        f"{options.iterations} interleaved rounds, fresh processes; median (min-max) of the slowest process;"
        " memory of all processes together, less as many empty interpreters."
    )
    yield ""
    for case in record.cases():
        yield from case_section(case, notes)
    yield from ceilings(record)
    yield from _bullets(sentences.sentences_of_run(record))
    yield ""


def machine_line(record: Record) -> str:
    """Return the machine in a sentence; what is not known is left out."""
    read_ahead = record.machine.get("read_ahead_bytes")
    known = machine.known_of(record.machine, None if read_ahead is None else f"read-ahead {read_ahead >> 10} KiB")
    return f"{', '.join(map(text, known))}. Measured {text(record.created)}."


def case_section(case: Record, notes: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines about one case: the table, the rows that are ahead of ours, and what it says."""
    yield f"### {str(case.case).capitalize()}"
    yield ""
    yield _line(HEADINGS)
    yield _line(["---", "---", "---", *["---:"] * (len(HEADINGS) - 3)])
    for row in sorted_rows(case):
        yield _line(cells(case, row))
    yield ""
    if not sentences.times_transfer(case):
        yield (
            f"{WITHHELD} no ratio of times between mapping and copying loaders is claimed here:"
            f" {control(case)}. Megabytes and faults do not depend on it."
        )
        yield ""
    yield from ahead(case, notes)
    yield from _bullets(sentences.sentences_of_case(case))
    yield ""


def sorted_rows(case: Record) -> list[Row]:
    """Return the rows of a case, the fastest first; those without a time come last."""
    return sorted(summary.rows_of(case), key=lambda row: row.median("resident_ms") or float("inf"))


def holds(case: Record, row: Row) -> str:
    """Return what a row was seen to do with the data: "maps" or "copies", or "-" where it holds none."""
    if row.entry.name == "empty" or not row.values:
        return "-"
    return "copies" if summary.copies(case, row) else "maps"


def cells(case: Record, row: Row) -> list[str]:
    """Return the line of the table about one row."""
    name = f"**{text(row.entry.name)}**" if row.entry.name in summary.OF_ONECOPY else text(row.entry.name)
    if not row.values:
        failure = row.failures[0] if row.failures else None
        return [name, text(row.entry.detail), "-", failure.state if failure else "-", *["-"] * (len(HEADINGS) - 4)]
    faults = f"{_number(row.median('major_faults'))} / {_number(row.median('minor_faults'))}"
    return [
        name,
        text(row.entry.detail),
        holds(case, row),
        spread(row.values.get("resident_ms")),
        ratio_to_ours(case, row),
        _number(row.median("open_ms")),
        _number(row.median("pss_above_empty_mb")),
        _number(row.median("anonymous_above_empty_mb")),
        _number(row.median("peak_above_empty_mb")),
        _number(row.median("disk_mb")),
        faults,
    ]


def ratio_to_ours(case: Record, row: Row) -> str:
    """Return the time of a row as a multiple of our best, or why there is none."""
    ours, time = summary.best_of_ours(case), row.median("resident_ms")
    if ours is None or time is None:
        return "-"
    if holds(case, row) == "copies" and not sentences.times_transfer(case):
        return WITHHELD
    ratio = time / max(ours.values["resident_ms"].median, 1e-9)
    mark = " ◀" if row.entry.name not in summary.OF_ONECOPY and ratio < 1 - summary.MARGIN else ""
    return f"{ratio:.2f}{mark}"


def control(record: Record) -> str:
    """Return the first-touch control in words."""
    rates = summary.touch_rates(record)
    if not rates:
        return "the run has no first-touch control"
    words = (f"{rate.median:.1f} GB/s ({rate.low:.1f}-{rate.high:.1f}) for {name}" for name, rate in rates.items())
    return (
        f"the control, the first touch of fresh anonymous memory, ran at {', '.join(words)},"
        f" and {sentences.SLOW_MEMORY_GB_PER_S:g} GB/s are needed"
    )


def ahead(case: Record, notes: Mapping[str, str]) -> Iterator[str]:
    """Yield a line per row of others that is more than 5 % ahead of ours, with its explanation or the room for it."""
    ours, rows = summary.best_of_ours(case), summary.ahead_of_ours(case)
    if ours is None or not rows:
        return
    yield f"◀ ahead of our best row, {ours.entry.name}, by more than {summary.MARGIN:.0%}:"
    yield ""
    for row, ratio in rows:
        why = notes.get(f"{case.case}, {row.entry.name}", UNEXPLAINED)
        yield f"* **{text(row.entry.name)}**, {sentences.lead(case, row, ratio)}: {why}"
    yield ""


def ceilings(record: Record) -> Iterator[str]:
    """Yield the table of the O_DIRECT readings and the control, if any were taken."""
    rows = summary.rows_of(record, "ceiling")
    rates = summary.touch_rates(record)
    if rows:
        yield "### Ceilings"
        yield ""
        yield _line(("reading past the page cache", "ms (min-max)", "GiB/s"))
        yield _line(("---", "---:", "---:"))
        for row in rows:
            gib = _number(row.median("gib_per_s"))
            yield _line((text(row.entry.detail), spread(row.values.get("resident_ms")), gib))
        yield ""
    for name, rate in rates.items():
        yield f"* Control, {text(name)}: {rate.median:.2f} GB/s ({rate.low:.2f}-{rate.high:.2f})."


def spread(value: Spread | None) -> str:
    """Return a median with its extremes."""
    return "-" if value is None else f"{_number(value.median)} ({_number(value.low)}-{_number(value.high)})"


def text(words: str) -> str:
    """Return words that stay in their cell and are not obeyed as Markdown or HTML."""
    visible = "".join(c if c.isprintable() else repr(c)[1:-1] for c in words)
    return "".join(f"\\{c}" if c in "\\`*[]|<" else c for c in visible)


def _bullets(said: tuple[sentences.Sentence, ...]) -> Iterator[str]:
    return (f"* {text(sentence.text)}" for sentence in said)


def _order(record: Record) -> str:
    return "a random order" if record.options.order == "shuffled" else "the order of the file"


def _line(words: Sequence[str]) -> str:
    return f"| {' | '.join(words)} |"


def _number(value: float | None) -> str:
    """Return a number with three significant digits and all before the point; "-" for None."""
    if value is None:
        return "-"
    size = abs(value)
    if size < 0.0005:
        return "0"
    digits = 0 if size >= 99.95 else 1 if size >= 9.995 else 2 if size >= 0.9995 else 3
    return f"{value:,.{digits}f}"
