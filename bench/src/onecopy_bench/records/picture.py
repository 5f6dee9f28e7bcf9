"""Records as pictures: what all processes hold and how a worker grows; or the time of each way, by case.

Drawn with matplotlib (the extra `plots`), which is imported when a picture is drawn and not before. Colours are those
of Okabe and Ito; bars begin at zero.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from onecopy_bench.images import picture as images
from onecopy_bench.passes.tables import number
from onecopy_bench.records.columns import EMPTY, above_empty
from onecopy_bench.records.tables import HEAP, SCENARIOS, figures_of
from onecopy_bench.report.picture import FAINT, MAPS, OURS, STYLE
from onecopy_bench.report.summary import MB

if TYPE_CHECKING:
    import os

    from onecopy_bench.records.record import Run

LINES = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#000000", "#999999")
WIDTH, PER_ROW, PER_CASE = 9.2, 0.25, 0.7


def draw(run: Run, path: str | os.PathLike[str]) -> None:
    """Draw a record into one file; its name tells the format, .svg or .png.

    Raises
    ------
    ModuleNotFoundError
        If matplotlib is not installed.
    """
    matplotlib = importlib.import_module("matplotlib")
    figures = importlib.import_module("matplotlib.figure")
    with matplotlib.rc_context(STYLE):
        figure = figures.Figure(layout="constrained")
        if run.scenario == images.NAME:
            images.draw(figure, run)
        elif run.scenario in SCENARIOS:
            _draw_ways(figure, run)
        else:
            (_draw_share if run.scenario == "share" else _draw_items)(figure, run)
        figure.savefig(path, dpi=200, metadata={"Date": None} if str(path).endswith(".svg") else None)


def _draw_share(figure: Any, run: Run) -> None:
    """Draw a line of panels per case: the totals less the empty job, and the private memory of a worker over time."""
    cases = [case for case in run.cases() if case[0] != HEAP]
    names = [entry.name for entry in run.entries if entry.name != EMPTY]
    height = len(names) * PER_ROW + PER_CASE
    figure.set_size_inches(WIDTH, max(len(cases), 1) * height + 0.4)
    panels = figure.subplots(max(len(cases), 1), 2, squeeze=False)
    for case, (totals, curves) in zip(cases, panels, strict=False):
        words = f"{case[0]}, {case[1]} x (1 + {run.options['workers']})"
        held = {name: above_empty("pss")(run, name, case) for name in names}
        bars = {name: max(spread.median, 0.0) for name, spread in held.items() if spread is not None}
        _bars(totals, bars, {e.name for e in run.entries if e.ours})
        totals.set_title(f"{words}: MB in all, less empty", fontsize=9)
        for name, colour in zip(names, LINES * len(names), strict=False):
            _curve(curves, run, name, case, colour)
        curves.set_title("USS of a worker: MB over seconds", fontsize=9)
        curves.grid(color=FAINT, linewidth=0.6)
        curves.set_ylim(bottom=0)
        if curves.lines:
            curves.legend(fontsize=6.5, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))


def _curve(axes: Any, run: Run, name: str, case: tuple[str, ...], colour: str) -> None:
    """Draw the private memory of the median worker in the last good round."""
    samples = [sample for sample in run.of(name, case) if sample.points]
    if samples:
        points = samples[-1].points
        width = 2.2 if name.startswith("onecopy") else 1.2
        x, y = [point[0] for point in points], [point[1] / MB for point in points]
        axes.plot(x, y, color=colour, linewidth=width, label=name)


def _draw_ways(figure: Any, run: Run) -> None:
    """Draw a line of panels per case, each with the number that its scenario wants drawn."""
    drawn = SCENARIOS[run.scenario].DRAWN
    cases, names = run.cases(), [entry.name for entry in run.entries if entry.name != EMPTY]
    figure.set_size_inches(WIDTH, max(len(cases), 1) * (len(names) * PER_ROW + PER_CASE) + 0.4)
    ours = {entry.name for entry in run.entries if entry.ours}
    for case, panels in zip(cases, figure.subplots(max(len(cases), 1), 2, squeeze=False), strict=False):
        for axes, (words, column) in zip(panels, drawn.items(), strict=True):
            found = {name: column(run, name, case) for name in names}
            _bars(axes, {name: max(s.median, 0.0) for name, s in found.items() if s is not None}, ours)
            axes.set_title(f"{', '.join(case)}: {words}", fontsize=9)


def _draw_items(figure: Any, run: Run) -> None:
    """Draw a panel per case: the best of each way."""
    cases = {case: figures_of(run, case) for case in run.cases()}
    heights = [max(len(values), 1) * PER_ROW + PER_CASE for _, values in cases.values()] or [PER_CASE]
    figure.set_size_inches(WIDTH, sum(heights) + 0.4)
    panels = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)
    ours = {entry.name.partition(": ")[2] for entry in run.entries if entry.ours}
    for (case, (title, values)), (axes,) in zip(cases.items(), panels, strict=False):
        _bars(axes, values, ours)
        axes.set_title(f"{', '.join(case)}: {title}")


def _bars(axes: Any, values: dict[str, float], ours: set[str]) -> None:
    """Draw bars, the longest at the bottom, each with its number."""
    names = sorted(values, key=lambda name: -values[name])
    widths = [values[name] for name in names]
    axes.barh(range(len(names)), widths, color=[OURS if name in ours else MAPS for name in names], height=0.66)
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.set_xlim(0, max(widths, default=1.0) * 1.2 or 1.0)
    for at, width in enumerate(widths):
        axes.text(width + 0.01 * axes.get_xlim()[1], at, number(width), va="center", size=8)
    axes.tick_params(length=0)
    axes.grid(axis="x", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
