"""Stories as pictures: bars for each metric, ours in its own colour, and memory over time."""

from __future__ import annotations

import io
import os
import re
import textwrap
from collections.abc import Sequence
from typing import Any

from onecopy_bench.engine import pictures
from onecopy_bench.engine.pictures import FAINT, INK, WIDTH
from onecopy_bench.engine.record import Record
from onecopy_bench.engine.tables import Spread
from onecopy_bench.scenarios.images.scenario import HEAP, curves, middle
from onecopy_bench.scenarios.images.scenario import OURS as OURS_IN_FILES
from onecopy_bench.stories import images, reading
from onecopy_bench.stories.record import Stories
from onecopy_bench.stories.story import Line, Metric, Story

FAR = 50.0
"""Bars whose longest is so many times the shortest are on a logarithmic scale."""
MOST = 4
"""Metrics of a story that are drawn."""
NARROW = 34
"""Characters of a line of a label."""
OURS, THEIRS = "#D55E00", "#7A8794"
PER_LINE, CURVES, HEAD = 0.36, 2.1, 0.75


def metrics_of(story: Story, record: Record) -> dict[str, dict[str, Spread]]:
    """Return what is drawn: by metric, the rows that were measured; none that has fewer than two."""
    found = {m.name: {x.row: s for x in story.lines if (s := m.of(record, x.row))} for m in story.metrics}
    return dict([(name, rows) for name, rows in found.items() if len(rows) > 1][:MOST])


def height_of(story: Story, record: Record) -> float:
    """Return how high the picture of a story is, in inches."""
    rows = {row for found in metrics_of(story, record).values() for row in found}
    return HEAD + max(len(rows), 1) * PER_LINE + (CURVES if _curves(story, record) else 0.0)


def draw(figure: Any, story: Story, record: Record) -> None:
    """Draw a story into a figure: a column for each metric, a line for each way; and memory over time above them."""
    found, over_time = metrics_of(story, record), _curves(story, record)
    lines = [line for line in story.lines if any(line.row in rows for rows in found.values())]
    above, bars = figure, figure
    if over_time:
        above, bars = figure.subfigures(2, 1, height_ratios=(CURVES, height_of(story, record) - CURVES))
        for axes, (row, sample) in zip(above.subplots(1, 2, sharex=True, sharey=True), over_time, strict=False):
            curves(axes, sample, machine=False)
            axes.set_title(f"memory over time: {story.line(row).words}", fontsize=8)
            axes.set_ylabel("MB", fontsize=8)
            axes.legend(fontsize=7, frameon=False)
    panels = bars.subplots(1, max(len(found), 1), squeeze=False, sharey=True)[0]
    panels[0].set_yticks(range(len(lines)), [textwrap.fill(line.words, NARROW) for line in lines], parse_math=False)
    panels[0].invert_yaxis()
    panels[0].tick_params(axis="y", labelsize=8)
    for axes, name in zip(panels, found, strict=False):
        _bars(axes, lines, story.metric(name), found[name])


def _curves(story: Story, record: Record) -> list[tuple[str, Any]]:
    if story is not images.STORY:
        return []
    return [(row, found) for row in (HEAP, OURS_IN_FILES) if (found := middle(record, row, images.CASE)) is not None]


def _bars(axes: Any, lines: Sequence[Line], metric: Metric, rows: dict[str, Spread]) -> None:
    """Draw the bars of a metric: logarithmic, where they are far apart."""
    values = {row: max(spread.median, 0.0) for row, spread in rows.items()}
    top, least = max(values.values()) or 1.0, min((value for value in values.values() if value > 0), default=1.0)
    far = top / least > FAR
    start = least / 3 if far else 0.0
    for at, line in enumerate(lines):
        if line.row in values:
            value = values[line.row]
            axes.barh(at, value, color=OURS if line.ours else THEIRS, height=0.62)
            words, place = reading.amount(rows[line.row], metric.unit), (max(value, start), at)
            axes.annotate(words, place, (4, 0), textcoords="offset points", va="center", fontsize=8)
    if far:
        axes.set_xscale("log")
    axes.set_xlim(start, top * (20 if far else 1.45))
    title = f"{metric.words}, {metric.unit}{', logarithmic' if far else ''}"
    axes.set_title(textwrap.fill(title, 24), fontsize=8)
    pictures.plain_axes(axes)
    axes.tick_params(axis="x", which="both", length=0, labelbottom=False)


def inline(story: Story, record: Record) -> str:
    """Return the picture of a story for a page: its ink and lines have the colours of the page."""

    def drawn(figure: Any) -> None:
        figure.set_size_inches(WIDTH, height_of(story, record))
        draw(figure, story, record)

    file = io.StringIO()
    pictures.save(file, drawn, format="svg", transparent=True)
    svg = file.getvalue()
    svg = re.sub(INK, "currentColor", svg[svg.index("<svg") :], flags=re.IGNORECASE)
    return re.sub(FAINT, "var(--faint)", svg, flags=re.IGNORECASE)


def save(path: str | os.PathLike[str], record: Stories, stories: Sequence[Story]) -> None:
    """Draw all stories into one file; ValueError where nothing was measured."""
    found = [(number, story, one) for number, story in enumerate(stories, 1) if (one := record.of(story)) is not None]
    if not found:
        raise ValueError("there is nothing to draw: no story was measured")
    heights = [height_of(story, one) + 0.3 for _, story, one in found]

    def drawn(figure: Any) -> None:
        figure.set_size_inches(WIDTH, sum(heights))
        below = figure.subfigures(len(found), 1, height_ratios=heights, squeeze=False)[:, 0]
        for part, (number, story, one) in zip(below, found, strict=True):
            part.suptitle(f"{number}. {story.title}", x=0.01, ha="left", fontsize=12, fontweight="bold")
            draw(part, story, one)

    pictures.save(path, drawn)
