"""The page of the stories, as Markdown and as HTML that loads nothing, its pictures, and the table of the README."""

from __future__ import annotations

import io
import os
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onecopy.base.text import escape
from onecopy.cli.screen import duration
from onecopy_bench.engine import pictures
from onecopy_bench.engine.pictures import FAINT, INK, WIDTH
from onecopy_bench.engine.record import Record, Sample
from onecopy_bench.engine.tables import Spread, text
from onecopy_bench.scenarios import images
from onecopy_bench.stories import reading
from onecopy_bench.stories.reading import Stories
from onecopy_bench.stories.story import Line, Metric, Story

BEGIN, END = "<!-- stories -->", "<!-- /stories -->"
"""What the generated table of a page stands between."""

HOW = (
    "Each story is a published figure, the same measured again on this machine with what it was published"
    " of, and onecopy beside it, in one run for each story: fresh processes, rounds in random order, outputs compared."
    " Medians, with extremes where there are several rounds."
)


def _rendered(template: str, record: Stories, stories: Sequence[Story], **more: Any) -> str:
    import jinja2  # here, because measuring does not need it

    html = template.endswith(".html")
    loader = jinja2.FileSystemLoader(Path(__file__).with_name("templates"))
    settings: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "undefined": jinja2.StrictUndefined}
    environment = jinja2.Environment(loader=loader, autoescape=html, **settings)  # noqa: S701 - Markdown is not HTML
    environment.filters |= {"text": text, "plain": escape, "bold": bold}
    names = {
        "record": record,
        "stories": stories,
        "reading": reading,
        "duration": duration,
        "how": HOW,
        "nothing": reading.NOTHING,
    }
    title = "Published figures, measured here"
    return environment.get_template(template).render(names, title=title, duration=duration, **more)


def bold(figure: str, best: bool) -> str:
    """Return the best figure of a row in bold, and another one as it is."""
    return f"**{figure}**" if figure and best else figure


def to_markdown(record: Stories, stories: Sequence[Story], picture: str | None = None) -> str:
    """Return the page; `picture` is the name of an image file to be shown on top."""
    return _rendered("page.md", record, stories, picture=picture).rstrip() + "\n"


def to_html(record: Stories, stories: Sequence[Story]) -> str:
    """Return the page as one file, light or dark as the screen is."""
    return _rendered("page.html", record, stories, inline=_inline)


def block(record: Stories, stories: Sequence[Story]) -> str:
    """Return the table with its marks, as a README has it."""
    facts = record.heading.machine
    memory = f"{facts.get('memory_bytes', 0) / 2**30:.0f} GiB"
    words = f"{facts.get('cores_usable')} CPUs, {memory}, {facts.get('kernel')}, {record.heading.created[:10]}"
    table = _rendered("table.md", record, stories).rstrip()
    return "\n".join([BEGIN, "", table, "", f"Here: {text(words)}.", END])


FAR = 50.0
"""Bars whose longest is so many times the shortest are on a logarithmic scale."""
MOST = 4
"""Metrics of a story that are drawn."""
NARROW = 34
"""Characters of a line of a label."""
OURS, THEIRS = "#D55E00", "#7A8794"
PER_LINE, CURVES, HEAD = 0.36, 2.1, 0.75


def _metrics_of(story: Story, record: Record) -> dict[str, dict[str, Spread]]:
    """Return what is drawn: by metric, the rows that were measured; none that has fewer than two."""
    found = {m.name: {x.row: s for x in story.lines if (s := story.spread(m, record, x.row))} for m in story.metrics}
    return dict([(name, rows) for name, rows in found.items() if len(rows) > 1][:MOST])


def _height_of(story: Story, record: Record) -> float:
    rows = {row for found in _metrics_of(story, record).values() for row in found}
    return HEAD + max(len(rows), 1) * PER_LINE + (CURVES if _curves(story, record) else 0.0)


def _draw(figure: Any, story: Story, record: Record) -> None:
    """Draw a story into a figure: a column for each metric, a line for each way; and memory over time above them."""
    found, over_time = _metrics_of(story, record), _curves(story, record)
    lines = [line for line in story.lines if any(line.row in rows for rows in found.values())]
    above, bars = figure, figure
    if over_time:
        above, bars = figure.subfigures(2, 1, height_ratios=(CURVES, _height_of(story, record) - CURVES))
        for axes, (row, sample) in zip(above.subplots(1, 2, sharex=True, sharey=True), over_time, strict=False):
            images.curves(axes, sample, machine=False)
            axes.set_title(f"memory over time: {story.line(row).words}", fontsize=8)
            axes.set_ylabel("MB", fontsize=8)
            axes.legend(fontsize=7, frameon=False)
    panels = bars.subplots(1, max(len(found), 1), squeeze=False, sharey=True)[0]
    panels[0].set_yticks(range(len(lines)), [textwrap.fill(line.words, NARROW) for line in lines], parse_math=False)
    panels[0].invert_yaxis()
    panels[0].tick_params(axis="y", labelsize=8)
    for axes, name in zip(panels, found, strict=False):
        _bars(axes, lines, story.metric(name), found[name])


def _curves(story: Story, record: Record) -> list[tuple[str, Sample]]:
    """Return the samples that are drawn over time, of a story whose scenario takes them."""
    if story.scenario is not images.SCENARIO:
        return []
    case = tuple(story.metrics[0].case)
    rows = (images.HEAP, images.OURS)
    return [(row, found) for row in rows if (found := images.middle(record, row, case)) is not None]


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


def _inline(story: Story, record: Record) -> str:
    """Return the picture of a story for a page: its ink and lines have the colours of the page."""

    def drawn(figure: Any) -> None:
        figure.set_size_inches(WIDTH, _height_of(story, record))
        _draw(figure, story, record)

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
    heights = [_height_of(story, one) + 0.3 for _, story, one in found]

    def drawn(figure: Any) -> None:
        figure.set_size_inches(WIDTH, sum(heights))
        below = figure.subfigures(len(found), 1, height_ratios=heights, squeeze=False)[:, 0]
        for part, (number, story, one) in zip(below, found, strict=True):
            part.suptitle(f"{number}. {story.title}", x=0.01, ha="left", fontsize=12, fontweight="bold")
            _draw(part, story, one)

    pictures.save(path, drawn)
