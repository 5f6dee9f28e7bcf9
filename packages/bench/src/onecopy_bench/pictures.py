"""Draws records with matplotlib, which is imported only when a picture is drawn.

Colour-blind readers can tell the colours (Okabe-Ito) apart. Bars begin at zero, unless their values are too far apart
for one scale.
"""

from __future__ import annotations

import importlib
import os
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onecopy_bench.record import Case, Record
from onecopy_bench.tables import EMPTY, Compute, number

OURS, THEIRS = "#D55E00", "#7A8794"
INK, FAINT = "#333333", "#DDDDDD"
STYLE = {
    "font.family": "sans-serif",
    "font.size": 8,
    "axes.edgecolor": FAINT,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "svg.hashsalt": "onecopy",  # the same records produce the same file
    "svg.fonttype": "none",  # text stays text
}
WIDTH, PER_BAR, HEAD = 9.2, 0.3, 0.75
"""Size in inches. A README shows this width at 850 pixels; text is still legible at that size."""
FAR = 50.0
"""Bars use a logarithmic scale if the longest is more than this many times the shortest."""
NARROW = 34
"""Maximum number of characters in a line of a label."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel of bars for one measure: values and labels by row, and the names of onecopy's rows."""

    title: str
    values: Mapping[str, float]
    labels: Mapping[str, str]
    ours: set[str]


def save(path: str | os.PathLike[str] | Any, draw: Callable[..., None], *arguments: Any, **more: Any) -> None:
    """Call `draw` with a figure and the arguments, and save the figure as .svg or .png."""
    matplotlib, figures = (importlib.import_module(name) for name in ("matplotlib", "matplotlib.figure"))
    svg = more.get("format", str(path).rpartition(".")[2]) == "svg"
    with matplotlib.rc_context(STYLE):
        figure = figures.Figure(layout="constrained")
        draw(figure, *arguments)
        figure.savefig(path, dpi=200, metadata={"Date": None} if svg else None, **more)


def draw_panels(figure: Any, panels: Sequence[Panel]) -> None:
    """Draw panels side by side, each with a labelled bar per row, and the first row at the top."""
    rows = list(dict.fromkeys(row for panel in panels for row in panel.values))
    line = figure.subplots(1, max(len(panels), 1), squeeze=False, sharey=True)[0]
    line[0].set_yticks(range(len(rows)), [textwrap.fill(row, NARROW) for row in rows], parse_math=False)
    line[0].invert_yaxis()
    for axes, panel in zip(line, panels, strict=False):
        known = [value for value in panel.values.values() if value > 0] or [1.0]
        far = max(known) / min(known) > FAR
        start, end = (min(known) / 3, max(known) * 20) if far else (0.0, max(known) * 1.45)
        for at, row in enumerate(rows):
            if row in panel.values:
                value = max(panel.values[row], start)
                axes.barh(at, value, color=OURS if row in panel.ours else THEIRS, height=0.62)
                axes.annotate(panel.labels[row], (value, at), (4, 0), textcoords="offset points", va="center")
        if far:
            axes.set_xscale("log")
        axes.set_xlim(start, end)
        axes.set_title(textwrap.fill(panel.title + (", logarithmic" if far else ""), 24), fontsize=8)
        axes.tick_params(which="both", length=0)
        axes.tick_params(axis="x", which="both", labelbottom=False)


def draw_stacked(figure: Any, parts: Mapping[str, Sequence[Panel]]) -> None:
    """Draw several lines of panels, one below the other, each with its title."""
    bars = [{row for panel in panels for row in panel.values} for panels in parts.values()]
    heights = [HEAD + PER_BAR * max(len(rows), 1) + 0.3 for rows in bars]
    figure.set_size_inches(WIDTH, sum(heights) or HEAD)
    if parts:
        below = figure.subfigures(len(parts), 1, height_ratios=heights, squeeze=False)[:, 0]
        for part, (title, panels) in zip(below, parts.items(), strict=True):
            part.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold", parse_math=False)
            draw_panels(part, panels)


def by_case(drawn: Mapping[str, Compute]) -> Callable[[Any, Record], None]:
    """Return a function that draws a record, with bars for each case in which at least one number was measured."""

    def panels_of(record: Record, case: Case) -> list[Panel]:
        panels, ours = [], {row.name for row in record.rows if row.ours}
        for title, compute in drawn.items():
            names = dict.fromkeys(sample.row for sample in record.samples if sample.row != EMPTY)
            found = {name: spread.median for name in names if (spread := compute(record, name, case)) is not None}
            values = dict(sorted(found.items(), key=lambda pair: pair[1]))
            panels.append(Panel(title, values, {row: number(value) for row, value in values.items()}, ours))
        return [panel for panel in panels if panel.values]

    def draw(figure: Any, record: Record) -> None:
        every = {", ".join(case): panels_of(record, case) for case in record.cases()}
        draw_stacked(figure, {title: panels for title, panels in every.items() if panels})

    return draw
