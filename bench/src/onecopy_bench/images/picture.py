"""`bench images` as a picture: memory over time on the heap and in mapped files, one beside the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onecopy_bench.images.tables import HEAP, NAME, OURS
from onecopy_bench.report.picture import FAINT
from onecopy_bench.report.summary import MB

if TYPE_CHECKING:
    from onecopy_bench.records.record import Measured, Run

__all__ = ["NAME", "draw"]

WIDTH, HEIGHT = 9.2, 2.3
ANONYMOUS, FILE, DIRTY, USED = "#D55E00", "#56B4E9", "#0072B2", "#555555"


def draw(figure: Any, run: Run) -> None:
    """Draw a line of panels per case: the heap, and ours, on the same axes."""
    cases = [case for case in run.cases() if run.of(HEAP, case) or run.of(OURS, case)]
    figure.set_size_inches(WIDTH, HEIGHT * max(len(cases), 1) + 0.4)
    grid = figure.subplots(max(len(cases), 1), 2, squeeze=False, sharex="row", sharey="row")
    for case, panels in zip(cases, grid, strict=False):
        ends = [1e-3]
        for axes, row in zip(panels, (HEAP, OURS), strict=True):
            axes.set_title(f"{row}: {', '.join(case)}", fontsize=8)
            axes.grid(color=FAINT, linewidth=0.6)
            axes.set_axisbelow(True)
            samples = [sample for sample in run.of(row, case) if sample.points]
            if samples:
                ends.append(_panel(axes, _median(samples)))
            else:
                axes.text(0.5, 0.5, "does not finish", transform=axes.transAxes, ha="center", va="center")
        panels[0].set_xlim(0, max(ends))
        panels[0].set_ylabel("MB", fontsize=8)
    for axes in grid[-1]:
        axes.set_xlabel("seconds", fontsize=8)
    handles, labels = grid[0][-1].get_legend_handles_labels()
    if not handles:
        handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)


def _median(samples: list[Measured]) -> Measured:
    """Return the sample whose time is in the middle."""
    return sorted(samples, key=lambda sample: sample.numbers["total_ns"])[len(samples) // 2]


def _panel(axes: Any, sample: Measured) -> float:
    """Draw one sample; return when it ended, in seconds."""
    end = sample.numbers["total_ns"] / 1e9
    points = [point for point in sample.points if point[0] <= end] or list(sample.points)
    seconds = [point[0] for point in points]
    anonymous, file, dirty, used = ([max(point[at], 0.0) / MB for point in points] for at in range(1, 5))
    axes.stackplot(
        seconds, anonymous, file, colors=(ANONYMOUS, FILE), labels=("anonymous memory", "pages of files, mapped")
    )
    axes.plot(seconds, dirty, color=DIRTY, linewidth=1.2, label="dirty, whole machine")
    axes.plot(seconds, used, color=USED, linewidth=1.2, linestyle="--", label="all that is not free, whole machine")
    axes.set_ylim(bottom=0)
    return max(seconds)
