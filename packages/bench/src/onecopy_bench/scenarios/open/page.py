"""Records as a Markdown page: a table per case, and each row in which a peer leads with its explanation.

Pure functions: records in, text out. Rows are sorted by the median time until all was touched. A ratio of times
between a row that maps and a row that copies is written only where the run's own control, the first touch of fresh
memory, was fast enough for it to mean something elsewhere; the control stands beside the table in any case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from onecopy_bench.engine import machine
from onecopy_bench.engine.pages import rounds_of, text
from onecopy_bench.engine.record import Record
from onecopy_bench.engine.tables import EMPTY, Spread
from onecopy_bench.scenarios.open import sentences, summary
from onecopy_bench.scenarios.open.summary import Case, Line

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
    file = record.data
    yield f"## {text(file['file'])}: {file['size'] / 1e6:.1f} MB, {file['pieces']} pieces, touched in {_order(record)}"
    yield ""
    yield machine_line(record)
    yield (
        f"{rounds_of(record)} interleaved rounds, fresh processes; median (min-max) of the slowest process;"
        " memory of all processes together, less as many empty interpreters."
    )
    yield ""
    for case in summary.cases_of(record):
        yield from case_section(case, notes)
    yield from ceilings(record)
    yield from _bullets(sentences.sentences_of_run(record))
    yield ""


def machine_line(record: Record) -> str:
    """Return the machine in a sentence; what is not known is left out."""
    read_ahead = record.machine.get("read_ahead_bytes")
    known = machine.known_of(record.machine, None if read_ahead is None else f"read-ahead {read_ahead >> 10} KiB")
    return f"{', '.join(map(text, known))}. Measured {text(record.created)}."


def case_section(case: Case, notes: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines about one case: the table, the rows that are ahead of ours, and what it says."""
    yield f"### {str(case).capitalize()}"
    yield ""
    yield _line(HEADINGS)
    yield _line(["---", "---", "---", *["---:"] * (len(HEADINGS) - 3)])
    for line in sorted_lines(case):
        yield _line(cells(case, line))
    yield ""
    if not summary.times_transfer(case.record):
        yield (
            f"{WITHHELD} no ratio of times between mapping and copying loaders is claimed here:"
            f" {control(case.record)}. Megabytes and faults do not depend on it."
        )
        yield ""
    yield from ahead(case, notes)
    yield from _bullets(sentences.sentences_of_case(case))
    yield ""


def sorted_lines(case: Case) -> list[Line]:
    """Return the rows of a case, the fastest first; those without a time come last."""
    return sorted(summary.lines_of(case), key=lambda line: line.median("resident_ms") or float("inf"))


def holds(case: Case, line: Line) -> str:
    """Return what a row was seen to do with the data: "maps" or "copies", or "-" where it holds none."""
    if line.name == EMPTY or not line.values:
        return "-"
    return "copies" if summary.copies(case, line) else "maps"


def cells(case: Case, line: Line) -> list[str]:
    """Return the line of the table about one row."""
    name = f"**{text(line.name)}**" if line.name in summary.OF_ONECOPY else text(line.name)
    if not line.values:
        failure = line.failures[0] if line.failures else None
        return [name, text(line.row.detail), "-", failure.state if failure else "-", *["-"] * (len(HEADINGS) - 4)]
    faults = f"{_number(line.median('major_faults'))} / {_number(line.median('minor_faults'))}"
    return [
        name,
        text(line.row.detail),
        holds(case, line),
        spread(line.values.get("resident_ms")),
        ratio_to_ours(case, line),
        _number(line.median("open_ms")),
        _number(line.median("pss_above_empty_mb")),
        _number(line.median("anonymous_above_empty_mb")),
        _number(line.median("peak_above_empty_mb")),
        _number(line.median("disk_mb")),
        faults,
    ]


def ratio_to_ours(case: Case, line: Line) -> str:
    """Return the time of a row as a multiple of our best, or why there is none."""
    ours, time = summary.best_of_ours(case), line.median("resident_ms")
    if ours is None or time is None:
        return "-"
    if holds(case, line) == "copies" and not summary.times_transfer(case.record):
        return WITHHELD
    ratio = time / max(ours.values["resident_ms"].median, 1e-9)
    mark = " ◀" if line.name not in summary.OF_ONECOPY and ratio < 1 - summary.MARGIN else ""
    return f"{ratio:.2f}{mark}"


def control(record: Record) -> str:
    """Return the first-touch control in words."""
    rates = summary.touch_rates(record)
    if not rates:
        return "the run has no first-touch control"
    words = (f"{rate.median:.1f} GB/s ({rate.low:.1f}-{rate.high:.1f}) for {name}" for name, rate in rates.items())
    return (
        f"the control, the first touch of fresh anonymous memory, ran at {', '.join(words)},"
        f" and {summary.SLOW_MEMORY_GB_PER_S:g} GB/s are needed"
    )


def ahead(case: Case, notes: Mapping[str, str]) -> Iterator[str]:
    """Yield a line per row of others that is more than 5 % ahead of ours, with its explanation or the place for it."""
    ours, rows = summary.best_of_ours(case), summary.ahead_of_ours(case)
    if ours is None or not rows:
        return
    yield f"◀ ahead of our best row, {ours.name}, by more than {summary.MARGIN:.0%}:"
    yield ""
    for row, ratio in rows:
        why = notes.get(f"{case}, {row.name}", UNEXPLAINED)
        yield f"* **{text(row.name)}**, {sentences.lead(case, row, ratio)}: {why}"
    yield ""


def ceilings(record: Record) -> Iterator[str]:
    """Yield the table of the O_DIRECT readings and the control, if any were taken."""
    rows = summary.lines_of(summary.cases_of(record)[0], "ceiling")
    rates = summary.touch_rates(record)
    if rows:
        yield "### Ceilings"
        yield ""
        yield _line(("reading past the page cache", "ms (min-max)", "GiB/s"))
        yield _line(("---", "---:", "---:"))
        for row in rows:
            gib = _number(row.median("gib_per_s"))
            yield _line((text(row.row.detail), spread(row.values.get("resident_ms")), gib))
        yield ""
    for name, rate in rates.items():
        yield f"* Control, {text(name)}: {rate.median:.2f} GB/s ({rate.low:.2f}-{rate.high:.2f})."


def spread(value: Spread | None) -> str:
    """Return a median with its extremes."""
    return "-" if value is None else f"{_number(value.median)} ({_number(value.low)}-{_number(value.high)})"


def _bullets(said: tuple[sentences.Sentence, ...]) -> Iterator[str]:
    return (f"* {text(sentence.text)}" for sentence in said)


def _order(record: Record) -> str:
    return "a random order" if record.options["order"] == "shuffled" else "the order of the file"


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
