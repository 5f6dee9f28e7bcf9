"""A benchmark record as tables, per case: two layouts, and neither loses a digit.

On a wide screen a cell holds median, extremes and ratio side by side; at 80 columns they stand below each
other. Ratios are to the first row. A star marks ratios of times that do not transfer to other machines.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console

from onecopy.cli import screen
from onecopy.cli.words import escape, significant
from onecopy_bench.engine.pages import rounds_of
from onecopy_bench.engine.record import Record
from onecopy_bench.engine.tables import EMPTY, MISSING, Spread, counted
from onecopy_bench.scenarios.open import sentences, summary
from onecopy_bench.scenarios.open.sentences import Sentence
from onecopy_bench.scenarios.open.summary import Case, Line, cases_of, times_transfer

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


def show(console: Console, record: Record) -> None:
    """Print everything about a record: the rows of each case, the ceilings, the control and the sentences."""
    for case in cases_of(record):
        show_case(console, case)
        console.print()
    show_ceilings(console, record)
    show_control(console, record)
    show_sentences(console, sentences.sentences_of_run(record))


def show_case(console: Console, case: Case) -> None:
    """Print one case: times and memory, what the kernel counted, and what that says."""
    screen.show_line(console, heading(case), "bold")
    console.print()
    lines = summary.lines_of(case)
    wide = wide_grid(case, lines)
    grid = wide if wide.needed() <= console.width else narrow_grid(case, lines)
    grid.show(console)
    screen.show_line(console, legend(case), "dim")
    console.print()
    kernel_grid(lines).show(console)
    console.print()
    show_sentences(console, sentences.sentences_of_case(case))


def show_brief(console: Console, record: Record) -> None:
    """Print of each case what all processes hold and how long they took, the heaviest first, and one sentence."""
    for case in cases_of(record):
        screen.show_line(console, heading(case), "bold")
        console.print()
        titles = (screen.Column(title, right=True) for title in BRIEF_COLUMNS.values())
        grid = screen.Grid((screen.Column("opened by"), *titles))
        rows = {line.name: line for line in summary.lines_of(case)}
        shown = [line for line in rows.values() if line.name != EMPTY]
        for line in sorted(shown, key=lambda line: line.median("pss_above_empty_mb") or 0.0, reverse=True):
            grid.rows.append((escape(line.name), *_medians(line, BRIEF_COLUMNS)))
        grid.show(console)
        console.print()
        if said := sentences.sharing(case, rows):
            screen.show_line(console, said)


def show_sentences(console: Console, said: tuple[Sentence, ...]) -> None:
    """Print sentences, each a paragraph; what limits them in a dim voice."""
    for sentence in said:
        note = sentence.kind == "limit"
        screen.show_line(console, f"note: {sentence.text}" if note else sentence.text, "dim" if note else "")


def kernel_grid(lines: list[Line]) -> screen.Grid:
    """Return the table of what the kernel counted: medians over the rounds, sums over the processes."""
    titles = (screen.Column(title, right=True) for title in KERNEL_COLUMNS.values())
    rows = [(escape(line.name), *_medians(line, KERNEL_COLUMNS)) for line in lines]
    return screen.Grid((screen.Column("configuration"), *titles), rows)


def _medians(line: Line, columns: Iterable[str]) -> list[str]:
    medians = (line.median(column) for column in columns)
    return [MISSING if median is None else significant(median) for median in medians]


def heading(case: Case) -> str:
    """Return what was measured, in one line."""
    file, options = case.record.data, case.record.options
    what = f"{file['pieces']} tensors" if file["kind"] == "safetensors" else "plain bytes"
    return (
        f"{case.record.scenario} {file['file']}: {case.size:.1f} MB, {what};"
        f" {counted(case.processes, 'process', 'processes')}, {case.cache},"
        f" {counted(rounds_of(case.record), 'round')}{', shuffled' if options['order'] == 'shuffled' else ''}"
    )


def legend(case: Case) -> str:
    """Return how to read the table."""
    who = "times of the slowest process, memory of all together" if case.processes > 1 else "one process"
    star = "; *: ratios of times that do not transfer, see the notes" if _star(case) else ""
    first = case.record.rows[0].name
    return f"Medians (min-max); {who}, interpreters included (row 'empty'); x: relative to '{first}'{star}."


def narrow_grid(case: Case, lines: list[Line]) -> screen.Grid:
    """Return the table for 80 columns: median, ratio and extremes below each other."""
    titles = [title.replace("anonymous", "anon.").replace("-", "-\n").replace(" ", "\n") for title in COLUMNS.values()]
    grid = screen.Grid((screen.Column("configuration"), *(screen.Column(title, right=True) for title in titles)))
    for line in lines:
        cells = ["\n".join(filter(None, parts_of(line, column, _star(case)))) for column in COLUMNS]
        grid.rows.append((f"{escape(line.name)}\n{escape(second_line(line))}", *cells))
    return grid


def wide_grid(case: Case, lines: list[Line]) -> screen.Grid:
    """Return the table for wide screens: median, extremes and ratio side by side."""
    titles = [screen.Column(title, right=True) for title in WIDE_COLUMNS.values()]
    grid = screen.Grid((screen.Column("configuration"), screen.Column(""), *titles))
    columns = [aligned([parts_of(line, column, _star(case)) for line in lines]) for column in WIDE_COLUMNS]
    for line, *cells in zip(lines, *columns, strict=True):
        grid.rows.append((escape(line.name), escape(second_line(line)), *cells))
    return grid


def second_line(line: Line) -> str:
    """Return the call that was measured, or how many samples of it went wrong."""
    lost = sum(failure.times for failure in line.failures)
    return f"{line.failures[0].state}: {lost} of {line.good + lost}" if lost else line.row.detail


def parts_of(line: Line, column: str, star: str) -> tuple[str, str, str]:
    """Return (median, ratio, extremes) of one cell; empty where there is none."""
    spread = line.values.get(column)
    if spread is None:
        return MISSING, "", ""
    ratio = line.relative.get(column)
    mark = star if column in TIMES else ""
    extremes = _extremes(spread) if column in WITH_EXTREMES and line.good > 1 else ""
    return significant(spread.median), "" if ratio is None else f"{ratio_of(ratio)}x{mark}", extremes


def aligned(cells: list[tuple[str, str, str]]) -> list[str]:
    """Return the cells of one column with medians, extremes and ratios below each other."""
    medians, ratios, extremes = (max(map(len, part)) for part in zip(*cells, strict=True))
    return [
        " ".join(filter(None, (f"{median:>{medians}}", f"{spread:<{extremes}}", f"{ratio:>{ratios}}")))
        for median, ratio, spread in cells
    ]


def show_ceilings(console: Console, record: Record) -> None:
    """Print the O_DIRECT readings by threads, if any were taken."""
    rows = {line.name: line for line in summary.lines_of(cases_of(record)[0], "ceiling")}
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
    words = [f"{PAGES.get(name, name)} {with_extremes(rate)}" for name, rate in rates.items()]
    if words:
        screen.show_line(console, f"Control, first touch of fresh anonymous memory, GB/s: {'; '.join(words)}.")


def _ceiling_cell(line: Line | None) -> str:
    if line is None or not line.values:
        return MISSING if line is None or not line.failures else line.failures[0].state
    return f"{with_extremes(line.values['resident_ms'])}  {significant(line.values['gib_per_s'].median):>5}"


def _star(case: Case) -> str:
    return "" if times_transfer(case.record) else "*"


def with_extremes(spread: Spread) -> str:
    """Return a median with its extremes, on one line."""
    return f"{significant(spread.median)} ({_extremes(spread)})"


def _extremes(spread: Spread) -> str:
    return f"{significant(spread.low)}-{significant(spread.high)}"


def ratio_of(value: float) -> str:
    """Return a ratio; a small one keeps a digit."""
    return significant(value) if value == 0 or value >= 0.01 else f"{value:.1g}"
