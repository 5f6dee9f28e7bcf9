"""A benchmark record as tables, per case: two layouts, and neither loses a digit.

Where there is room, a cell holds median, extremes and ratio side by side; at 80 columns they stand below each
other. Ratios are to the first row. A star marks ratios of times that do not transfer to other machines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onecopy.cli import screen
from onecopy.cli.words import plain, significant
from onecopy_bench.report import sentences, summary

if TYPE_CHECKING:
    from rich.console import Console

    from onecopy_bench.record import Record
    from onecopy_bench.report.sentences import Sentence
    from onecopy_bench.report.summary import Row, Spread

COLUMNS = {
    "open_ms": "open ms",
    "resident_ms": "all-resident ms",
    "gib_per_s": "GiB/s",
    "anonymous_mb": "anonymous MB",
    "pss_mb": "PSS MB",
    "peak_anonymous_mb": "peak anonymous MB",
}
BRIEF_COLUMNS = {
    "pss_above_empty_mb": "memory of all, MB",
    "open_ms": "open, ms",
    "resident_ms": "all touched, ms",
}
"""Memory without that of as many interpreters; times of the slowest process."""
WIDE_COLUMNS = {**COLUMNS, "pss_above_empty_mb": "PSS above empty MB", "huge_mb": "huge pages MB"}
KERNEL_COLUMNS = {
    "disk_mb": "read from\ndisk MB",
    "major_faults": "major\nfaults",
    "minor_faults": "minor\nfaults",
    "anonymous_above_empty_mb": "private MB\nabove empty",
    "peak_above_empty_mb": "peak MB\nabove empty",
    "huge_mb": "huge\npages MB",
}
PAGES = {"first-touch-4k": "4 KiB pages", "first-touch-huge": "2 MiB pages"}
TIMES = ("open_ms", "resident_ms", "gib_per_s")
WITH_EXTREMES = ("open_ms", "resident_ms")
MISSING = "-"


def show(console: Console, record: Record) -> None:
    """Print everything about a record: the rows of each case, the ceilings, the control and the sentences."""
    for case in record.cases():
        show_case(console, case)
        console.print()
    show_ceilings(console, record)
    show_control(console, record)
    show_sentences(console, sentences.sentences_of_run(record))


def show_case(console: Console, case: Record) -> None:
    """Print one case: times and memory, what the kernel counted, and what that says."""
    screen.show_line(console, heading(case), "bold")
    console.print()
    rows = summary.rows_of(case)
    wide = wide_grid(case, rows)
    grid = wide if wide.needed() <= console.width else narrow_grid(case, rows)
    grid.show(console)
    screen.show_line(console, legend(case), "dim")
    console.print()
    kernel_grid(rows).show(console)
    console.print()
    show_sentences(console, sentences.sentences_of_case(case))


def show_brief(console: Console, record: Record) -> None:
    """Print of each case what all processes hold and how long they took, the heaviest first, and one sentence."""
    for case in record.cases():
        screen.show_line(console, heading(case), "bold")
        console.print()
        titles = (screen.Column(title, right=True) for title in BRIEF_COLUMNS.values())
        grid = screen.Grid((screen.Column("opened by"), *titles))
        rows = {row.entry.name: row for row in summary.rows_of(case)}
        for row in sorted(
            (row for row in rows.values() if row.entry.name != "empty"),
            key=lambda row: row.median("pss_above_empty_mb") or 0.0,
            reverse=True,
        ):
            cells = (row.median(column) for column in BRIEF_COLUMNS)
            grid.rows.append(
                (plain(row.entry.name), *(MISSING if cell is None else significant(cell) for cell in cells))
            )
        grid.show(console)
        console.print()
        if said := sentences.sharing(case, rows):
            screen.show_line(console, said)


def show_sentences(console: Console, said: tuple[Sentence, ...]) -> None:
    """Print sentences, each a paragraph; what limits them in a dim voice."""
    for sentence in said:
        note = sentence.kind == "limit"
        screen.show_line(console, f"note: {sentence.text}" if note else sentence.text, "dim" if note else "")


def kernel_grid(rows: list[Row]) -> screen.Grid:
    """Return the table of what the kernel counted: medians over the rounds, sums over the processes."""
    titles = (screen.Column(title, right=True) for title in KERNEL_COLUMNS.values())
    grid = screen.Grid((screen.Column("configuration"), *titles))
    for row in rows:
        medians = (row.median(column) for column in KERNEL_COLUMNS)
        grid.rows.append((plain(row.entry.name), *(MISSING if m is None else significant(m) for m in medians)))
    return grid


def show_keys(console: Console, record: Record, repeats: int) -> None:
    """Print the scenario `keys`: milliseconds of one opening and listing."""
    screen.show_line(
        console, f"{record.scenario}: {record.file.pieces} arrays, {record.options.iterations} rounds", "bold"
    )
    grid = screen.Grid(
        (
            screen.Column("configuration"),
            screen.Column(""),
            screen.Column("ms (min-max)", right=True),
            screen.Column("ratio", right=True),
        )
    )
    for row in summary.rows_of(record):
        spread, ratio = row.values.get("open_ms"), row.relative.get("open_ms")
        each = MISSING if spread is None else _with_extremes(spread.divided_by(repeats))
        grid.rows.append(
            (
                plain(row.entry.name),
                plain(second_line(row)),
                each,
                MISSING if ratio is None else f"{_ratio(ratio)}x",
            )
        )
    grid.show(console)


def heading(record: Record) -> str:
    """Return what was measured, in one line."""
    options, file = record.options, record.file
    what = f"{file.pieces} tensors" if file.kind == "safetensors" else "plain bytes"
    return (
        f"{record.scenario} {file.name}: {file.size / 1e6:.1f} MB, {what};"
        f" {_plural(record.processes, 'process', 'processes')}, {record.case.cache},"
        f" {_plural(options.iterations, 'round', 'rounds')}{', shuffled' if options.order == 'shuffled' else ''}"
    )


def legend(record: Record) -> str:
    """Return how to read the table."""
    who = "times of the slowest process, memory of all together" if record.processes > 1 else "one process"
    star = "; *: ratios of times that do not transfer, see the notes" if _star(record) else ""
    first = record.entries[0].name
    return f"Medians (min-max); {who}, interpreters included (row 'empty'); x: relative to '{first}'{star}."


def narrow_grid(record: Record, rows: list[Row]) -> screen.Grid:
    """Return the table for 80 columns: median, ratio and extremes below each other."""
    titles = [title.replace("anonymous", "anon.").replace("-", "-\n").replace(" ", "\n") for title in COLUMNS.values()]
    grid = screen.Grid((screen.Column("configuration"), *(screen.Column(title, right=True) for title in titles)))
    star = _star(record)
    for row in rows:
        cells = ["\n".join(filter(None, parts_of(row, column, star))) for column in COLUMNS]
        grid.rows.append((f"{plain(row.entry.name)}\n{plain(second_line(row))}", *cells))
    return grid


def wide_grid(record: Record, rows: list[Row]) -> screen.Grid:
    """Return the table for wide screens: median, extremes and ratio side by side."""
    titles = [screen.Column(title, right=True) for title in WIDE_COLUMNS.values()]
    grid = screen.Grid((screen.Column("configuration"), screen.Column(""), *titles))
    star = _star(record)
    columns = [aligned([parts_of(row, column, star) for row in rows]) for column in WIDE_COLUMNS]
    for row, *cells in zip(rows, *columns, strict=True):
        grid.rows.append((plain(row.entry.name), plain(second_line(row)), *cells))
    return grid


def second_line(row: Row) -> str:
    """Return the call that was measured, or how many samples of it went wrong."""
    lost = sum(failure.times for failure in row.failures)
    return f"{row.failures[0].state}: {lost} of {row.good + lost}" if lost else row.entry.detail


def parts_of(row: Row, column: str, star: str) -> tuple[str, str, str]:
    """Return (median, ratio, extremes) of one cell; empty where there is none."""
    spread = row.values.get(column)
    if spread is None:
        return MISSING, "", ""
    ratio = row.relative.get(column)
    mark = star if column in TIMES else ""
    extremes = _extremes(spread) if column in WITH_EXTREMES and row.good > 1 else ""
    return significant(spread.median), "" if ratio is None else f"{_ratio(ratio)}x{mark}", extremes


def aligned(cells: list[tuple[str, str, str]]) -> list[str]:
    """Return the cells of one column with medians, extremes and ratios below each other."""
    medians, ratios, extremes = (max(map(len, part)) for part in zip(*cells, strict=True))
    return [
        " ".join(filter(None, (f"{median:>{medians}}", f"{spread:<{extremes}}", f"{ratio:>{ratios}}")))
        for median, ratio, spread in cells
    ]


def show_ceilings(console: Console, record: Record) -> None:
    """Print the O_DIRECT readings by threads, if any were taken."""
    rows = {row.entry.name: row for row in summary.rows_of(record, "ceiling")}
    if not rows:
        return
    titles = (
        "into fresh huge-page memory\nms (min-max)  GiB/s",
        "into reused 4 MiB buffers\nms (min-max)  GiB/s",
    )
    columns = (
        screen.Column("O_DIRECT\nthreads", right=True),
        *(screen.Column(t, right=True) for t in titles),
    )
    grid = screen.Grid(columns)
    for threads in sorted({int(name.rsplit("-", 1)[1]) for name in rows}):
        cells = [_ceiling_cell(rows.get(f"o_direct-{kind}-{threads}")) for kind in ("fresh", "reused")]
        grid.rows.append((str(threads), *cells))
    grid.show(console)


def show_control(console: Console, record: Record) -> None:
    """Print how fast fresh memory can be touched at all."""
    rates = summary.touch_rates(record)
    words = [f"{PAGES.get(name, name)} {_with_extremes(rate)}" for name, rate in rates.items()]
    if words:
        screen.show_line(console, f"Control, first touch of fresh anonymous memory, GB/s: {'; '.join(words)}.")


def _ceiling_cell(row: Row | None) -> str:
    if row is None or not row.values:
        return MISSING if row is None or not row.failures else row.failures[0].state
    return f"{_with_extremes(row.values['resident_ms'])}  {significant(row.values['gib_per_s'].median):>5}"


def _star(record: Record) -> str:
    return "" if sentences.times_transfer(record) else "*"


def _with_extremes(spread: Spread) -> str:
    return f"{significant(spread.median)} ({_extremes(spread)})"


def _extremes(spread: Spread) -> str:
    return f"{significant(spread.low)}-{significant(spread.high)}"


def _ratio(value: float) -> str:
    return significant(value) if value == 0 or value >= 0.01 else f"{value:.1g}"


def _plural(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
