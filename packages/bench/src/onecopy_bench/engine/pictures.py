"""Records as pictures, drawn by matplotlib, which is imported when a picture is drawn and not before.

Colours are those of Okabe and Ito, which colour-blind readers can tell apart; bars begin at zero.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onecopy_bench.engine.record import Case, Record
from onecopy_bench.engine.tables import EMPTY, Compute, number

OURS, THEIRS = "#0072B2", "#56B4E9"
INK, FAINT = "#333333", "#DDDDDD"
LINES = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#000000", "#999999")
STYLE = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.edgecolor": FAINT,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "hatch.linewidth": 0.6,
    "svg.hashsalt": "onecopy",  # the same records give the same file
    "svg.fonttype": "none",  # text stays text
}
WIDTH, PER_ROW, PER_CASE = 9.2, 0.25, 0.7
"""Inches: the width is legible where a README shows it at 850 pixels."""


def save(path: str | os.PathLike[str] | Any, draw: Callable[..., None], *arguments: Any, **more: Any) -> None:
    """Draw into one file, by what gets a figure and the arguments; its suffix is the format, .svg or .png."""
    matplotlib, figures = (importlib.import_module(name) for name in ("matplotlib", "matplotlib.figure"))
    svg = more.get("format", str(path).rpartition(".")[2]) == "svg"
    with matplotlib.rc_context(STYLE):
        figure = figures.Figure(layout="constrained")
        draw(figure, *arguments)
        figure.savefig(path, dpi=200, metadata={"Date": None} if svg else None, **more)


def panels(figure: Any, record: Record, cases: Sequence[Case], heading: Callable[[Case], str], drawn: Any) -> None:
    """Draw a line of panels per case, each with the bars of one number; `drawn` maps titles to what computes it."""
    computes: Mapping[str, Compute] = drawn
    names = [name for name in dict.fromkeys(sample.row for sample in record.samples) if name != EMPTY]
    ours = {name.rpartition(": ")[2] for name in record.ours}
    figure.set_size_inches(WIDTH, max(len(cases), 1) * (len(names) * PER_ROW + PER_CASE) + 0.4)
    for case, line in zip(cases, figure.subplots(max(len(cases), 1), len(computes), squeeze=False), strict=False):
        for axes, (words, column) in zip(line, computes.items(), strict=True):
            found = {name: column(record, name, case) for name in names}
            bars(axes, {name: max(s.median, 0.0) for name, s in found.items() if s is not None}, ours)
            axes.set_title(f"{heading(case)}: {words}", fontsize=9)


def by_case(drawn: Mapping[str, Compute]) -> Callable[[Any, Record], None]:
    """Return what draws a record with a line of panels for each of its cases in which one of the numbers is known."""

    def draw(figure: Any, record: Record) -> None:
        rows = {(sample.row, sample.case) for sample in record.samples}
        known = {case for row, case in rows if any(compute(record, row, case) for compute in drawn.values())}
        panels(figure, record, [case for case in record.cases() if case in known], ", ".join, drawn)

    return draw


def bars(axes: Any, values: Mapping[str, float], ours: set[str]) -> None:
    """Draw bars, the longest at the bottom, each with its number."""
    names = sorted(values, key=lambda name: -values[name])
    widths = [values[name] for name in names]
    axes.barh(range(len(names)), widths, color=[OURS if name in ours else THEIRS for name in names], height=0.66)
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.set_xlim(0, max(widths, default=1.0) * 1.2 or 1.0)
    for at, width in enumerate(widths):
        axes.text(width + 0.01 * axes.get_xlim()[1], at, number(width), va="center", size=8)
    plain_axes(axes)


def plain_axes(axes: Any) -> None:
    """Leave of some axes a faint grid that stands behind the bars."""
    axes.tick_params(length=0)
    axes.grid(axis="x", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
