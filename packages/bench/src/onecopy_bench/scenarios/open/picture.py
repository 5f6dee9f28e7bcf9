"""Records as a picture: per case the times until all was touched, and beside them the memory they cost.

Colours are those
of Okabe and Ito, safe for colour-blind readers; copying loaders are hatched as well. Bars begin at zero.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from onecopy_bench.engine.pages import rounds_of
from onecopy_bench.engine.pictures import INK, OURS, THEIRS, WIDTH, plain_axes
from onecopy_bench.engine.record import Record
from onecopy_bench.scenarios.open import summary
from onecopy_bench.scenarios.open.page import holds
from onecopy_bench.scenarios.open.summary import Case, Line, cases_of

MAPS, COPIES = THEIRS, "#E69F00"
CEILINGS = {"fresh": ("#D55E00", "--"), "reused": ("#009E73", ":")}
WHERE = {"fresh": "O_DIRECT into fresh memory", "reused": "O_DIRECT, the device alone"}

PER_ROW, PER_CASE, MARGINS = 0.27, 0.85, 1.0


def draw(figure: Any, records: Sequence[Record]) -> None:
    """Draw every case of some records."""
    cases = [case for record in records for case in cases_of(record)]
    heights = [len(rows_of(case)) * PER_ROW + PER_CASE for case in cases]
    figure.set_size_inches(WIDTH, sum(heights) + MARGINS)
    figure.get_layout_engine().set(h_pad=0.12, w_pad=0.06, rect=(0, 0, 1, 1 - 0.4 / (sum(heights) + MARGINS)))
    panels = figure.subplots(len(cases), 2, squeeze=False, sharey="row", width_ratios=(1.75, 1), height_ratios=heights)
    for case, (times, memory) in zip(cases, panels, strict=True):
        draw_times(times, case)
        draw_memory(memory, case)
    legend(figure)
    figure.supxlabel(caption(records), fontsize=7.5, color="#666666", x=0.01, ha="left", parse_math=False)


def rows_of(case: Case) -> list[Line]:
    """Return the rows that have a time, the slowest first: bars are drawn from the bottom."""
    rows = [row for row in summary.lines_of(case) if "resident_ms" in row.values]
    return sorted(rows, key=lambda row: -row.values["resident_ms"].median)


def colour_of(case: Case, row: Line) -> str:
    """Return the colour of a row: ours, another mapping, or a copy."""
    if holds(case, row) == "copies":
        return COPIES
    return OURS if row.name in summary.OF_ONECOPY else MAPS


def draw_times(axes: Any, case: Case) -> None:
    """Draw the medians as bars with whiskers from the smallest to the largest, and the ceilings as lines."""
    rows = rows_of(case)
    spreads = [row.values["resident_ms"].divided_by(1000) for row in rows]
    errors = [[s.median - s.low for s in spreads], [s.high - s.median for s in spreads]]
    medians, highs = [s.median for s in spreads], [s.high for s in spreads]
    _bars(axes, case, rows, medians)
    axes.errorbar(medians, range(len(rows)), xerr=errors, fmt="none", ecolor=INK, elinewidth=0.9, capsize=2)
    for kind, (colour, style) in CEILINGS.items():
        best = summary.best_ceiling(case, kind) if case.cold else None
        for row in summary.lines_of(case, "ceiling"):
            if row.name == best:
                time = row.values["resident_ms"].median / 1e3
                axes.axvline(time, color=colour, linestyle=style, linewidth=1.3, zorder=3)
    _scale(axes, max(highs, default=1.0) * 1.18, _seconds)
    _labels(axes, highs, [_seconds(median, "#.3g") for median in medians])
    axes.set_yticks(range(len(rows)), [row.name for row in rows], parse_math=False)
    for label, row in zip(axes.get_yticklabels(), rows, strict=True):
        if row.name in summary.OF_ONECOPY:
            label.set_fontweight("bold")
    shuffled = ", shuffled" if case.record.options["order"] == "shuffled" else ""
    axes.set_title(f"{str(case).capitalize()}{shuffled}: time until every page was read")


def draw_memory(axes: Any, case: Case) -> None:
    """Draw the memory of all processes together, less as many empty interpreters, and a line at one file."""
    rows = rows_of(case)
    megabytes = [max(row.median("pss_above_empty_mb") or 0.0, 0.0) for row in rows]
    once = case.size
    _bars(axes, case, rows, megabytes)
    axes.axvline(once, color="#999999", linewidth=0.9, zorder=0)
    _scale(axes, max((*megabytes, once)) * 1.3, _bytes)
    _labels(axes, megabytes, [_bytes(value, "#.3g") for value in megabytes])
    axes.set_title("memory (line: the file once)")


def _bars(axes: Any, case: Case, rows: list[Line], widths: list[float]) -> None:
    colours = [colour_of(case, row) for row in rows]
    bars = axes.barh(range(len(rows)), widths, color=colours, height=0.66, edgecolor="white", linewidth=0)
    for bar, colour in zip(bars, colours, strict=True):
        if colour == COPIES:
            bar.set_hatch("////")
    plain_axes(axes)


def _scale(axes: Any, end: float, words: Callable[[float], str]) -> None:
    """Let the axis begin at zero and end with its last label, with a few ticks that say their unit."""
    axes.set_xlim(0, end)
    axes.locator_params(axis="x", nbins=5)
    axes.xaxis.set_major_formatter(lambda value, _: words(value) if value > 0 else "0")
    axes.tick_params(axis="x", labelsize=8, labelcolor="#777777")


def _labels(axes: Any, places: list[float], words: list[str]) -> None:
    """Write each number behind its bar, on white so that no line crosses it."""
    gap = 0.015 * axes.get_xlim()[1]
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
    for row, (place, word) in enumerate(zip(places, words, strict=True)):
        axes.text(place + gap, row, word, va="center", size=8, bbox=ground, zorder=4)


def legend(figure: Any) -> None:
    """Put the meaning of colours and lines on top, once."""
    patches = importlib.import_module("matplotlib.patches")
    lines = importlib.import_module("matplotlib.lines")
    handles = [
        patches.Patch(facecolor=OURS, label="onecopy, mapped"),
        patches.Patch(facecolor=MAPS, label="mapped by others"),
        patches.Patch(facecolor=COPIES, edgecolor="white", linewidth=0, hatch="////", label="copies"),
        *(
            lines.Line2D([], [], color=colour, linestyle=style, label=WHERE[kind])
            for kind, (colour, style) in CEILINGS.items()
        ),
    ]
    figure.legend(handles=handles, loc="upper center", ncols=len(handles), frameon=False, fontsize=8, handlelength=1.6)


def caption(records: Sequence[Record]) -> str:
    """Return what was measured, how, and how far it goes, in short lines."""
    lines = []
    for record in records:
        read_ahead = record.machine.get("read_ahead_bytes")
        ahead = f", read-ahead {read_ahead >> 10} KiB" if read_ahead is not None else ""
        lines.append(
            f"{record.data['file']}, {record.data['size'] / 1e6:,.0f} MB, {record.data['pieces']} pieces{ahead};"
            f" medians of {rounds_of(record)} interleaved rounds, whiskers min-max; slowest process."
        )
    slow = [record for record in records if not summary.times_transfer(record)]
    if slow:
        rates = [rate.median for record in slow for rate in summary.touch_rates(record).values()]
        rate = f"{min(rates):.1f} GB/s" if rates else "an unknown rate"
        lines.append(
            f"Fresh memory is touched at {rate} here: times of copying loaders do not transfer to other machines."
        )
    return "\n".join(dict.fromkeys(lines))


def _seconds(value: float, form: str = ".3g") -> str:
    return f"{_digits(value * 1e3, form)} ms" if value < 0.0995 else f"{_digits(value, form)} s"


def _bytes(megabytes: float, form: str = ".3g") -> str:
    return f"{_digits(megabytes / 1e3, form)} GB" if megabytes >= 999.5 else f"{_digits(megabytes, form)} MB"


def _digits(value: float, form: str) -> str:
    return f"{value:{form}}".removesuffix(".")
