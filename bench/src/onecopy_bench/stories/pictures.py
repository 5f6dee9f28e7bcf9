"""Stories as pictures: bars for each metric, ours in its own colour, and memory over time; SVG, light and dark."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from onecopy.memory.pictures.axes import of_bytes, of_seconds
from onecopy.memory.pictures.svg import DARK, LIGHT
from onecopy_bench.images.tables import HEAP
from onecopy_bench.images.tables import OURS as OURS_IN_FILES
from onecopy_bench.records.record import Run
from onecopy_bench.stories import images, reading

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onecopy_bench.records.record import Measured
    from onecopy_bench.stories.record import Stories
    from onecopy_bench.stories.story import Metric, Samples, Story

WIDTH = 440
"""Of a panel in pixels: one fills a phone, two stand side by side."""
HEAD, ROW, FOOT = 34, 34, 12
CURVE = 210
FAR = 50.0
"""Bars whose longest is so many times the shortest are on a logarithmic scale."""
MOST = 4
"""Bars of a story: so many metrics."""
OURS, THEIRS, FILES = "#D55E00", "#7A8794", "#56B4E9"
FONT = "system-ui, -apple-system, Segoe UI, DejaVu Sans, sans-serif"


@dataclass(frozen=True, slots=True)
class Panel:
    """A drawing of `WIDTH` by `height` pixels, and what it shows in words."""

    title: str
    height: float
    parts: tuple[str, ...]


def style() -> str:
    """Return the rules of style of all panels: as the reader's screen is, light or dark."""
    marks = f".ours{{fill:{OURS}}}.theirs{{fill:{THEIRS}}}.files{{fill:{FILES}}}"
    return f"{_rules(LIGHT)}{marks}@media (prefers-color-scheme: dark){{{_rules(DARK)}}}"


def _rules(colours: dict[str, str]) -> str:
    fills = "".join(f".{name}{{fill:{colours[name]}}}" for name in ("paper", "ink", "quiet"))
    return f"{fills}.grid{{stroke:{colours['faint']};stroke-width:1;fill:none}}"


def panels_of(story: Story, samples: Samples) -> list[Panel]:
    """Return the panels of a story: bars of what was measured of several ways, and memory over time."""
    drawn = [panel for metric in story.metrics if (panel := bars(story, metric, samples)) is not None][:MOST]
    if story is images.STORY and isinstance(samples, Run):
        curves = [(row, images.middle(samples, row)) for row in (HEAP, OURS_IN_FILES)]
        found = [(row, sample) for row, sample in curves if sample is not None]
        drawn = [*_curves(found), *drawn]
    return drawn


def bars(story: Story, metric: Metric, samples: Samples) -> Panel | None:
    """Return a bar for each way; None where fewer than two were measured."""
    spreads = [(line, metric.of(samples, line.row)) for line in story.lines]
    found = [(line, spread) for line, spread in spreads if spread is not None]
    if len(found) < 2:
        return None
    values = [max(spread.median, 0.0) for _, spread in found]
    scale = _Scale(values)
    words = f"{metric.words}, {metric.unit}{', logarithmic' if scale.logarithmic else ''}"
    parts = [_text(0, 16, words, "ink", weight="600")]
    for at, (line, spread) in enumerate(found):
        y = HEAD + at * ROW
        kind = "ours" if line.ours else "theirs"
        width = max(scale.share(max(spread.median, 0.0)) * (WIDTH - 84), 2.0)
        parts.append(
            _text(0, y + 8, line.words, "ink" if line.ours else "quiet", size=11, weight="600" if line.ours else "")
        )
        parts.append(f'<rect class="{kind}" x="0" y="{y + 12}" width="{width:.1f}" height="12" rx="2"/>')
        parts.append(_text(width + 6, y + 22.5, reading.amount(spread, metric.unit), "ink", size=11.5))
    return Panel(words, HEAD + len(found) * ROW + FOOT, tuple(parts))


class _Scale:
    """Where a value ends between 0 and 1."""

    def __init__(self, values: Sequence[float]) -> None:
        self._top = max(values) or 1.0
        least = min((value for value in values if value > 0), default=self._top)
        self.logarithmic = self._top / least > FAR
        self._floor = 10.0 ** math.floor(math.log10(least) - 0.01)

    def share(self, value: float) -> float:
        """Return the share of the width."""
        if not self.logarithmic:
            return value / self._top
        if value <= self._floor:
            return 0.0
        return math.log(value / self._floor) / math.log(self._top / self._floor)


def _curves(samples: Sequence[tuple[str, Measured]]) -> Iterator[Panel]:
    """Yield memory over time, all on the same axes."""
    ends = {row: sample.numbers["total_ns"] / 1e9 for row, sample in samples}
    shown = {row: [p for p in sample.points if p[0] <= ends[row]] or list(sample.points) for row, sample in samples}
    if not shown:
        return
    across = of_seconds(max(point[0] for points in shown.values() for point in points), 5)
    up = of_bytes(max(images.of_the_process(point) for points in shown.values() for point in points), 4)
    left, top, width, height = 62.0, 52.0, WIDTH - 72.0, float(CURVE)
    for row, points in shown.items():
        title = f"memory over time: {images.STORY.line(row).words}"
        parts = [_text(0, 16, title, "ink", weight="600")]
        for x, kind, words in ((left, "ours", "heap (anonymous)"), (left + 150, "files", "pages of files")):
            parts.append(f'<rect class="{kind}" x="{x}" y="28" width="12" height="12" rx="2"/>')
            parts.append(_text(x + 17, 38, words, "ink", size=11.5))
        for mark, words in up.marks:
            y = top + height * (1 - mark / up.top)
            parts.append(f'<path class="grid" d="M{left:.1f} {y:.1f}H{left + width:.1f}"/>')
            unit = f" {up.unit}" if mark == up.marks[-1][0] else ""
            parts.append(_text(left - 6, y + 4, words + unit, "quiet", "end", size=11))
        for mark, words in across.marks:
            parts.append(_text(left + width * mark / across.top, top + height + 16, words, "quiet", "middle", size=11))
        parts.append(_text(left + width, top + height + 30, across.unit, "quiet", "end", size=11))
        xs = [left + width * point[0] / across.top for point in points]
        low = [top + height * (1 - max(point[1], 0.0) / up.top) for point in points]
        high = [top + height * (1 - max(images.of_the_process(point), 0.0) / up.top) for point in points]
        parts += [_band("files", xs, high, low), _band("ours", xs, low, [top + height] * len(xs))]
        yield Panel(title, top + height + 40, tuple(parts))


def _band(kind: str, xs: Sequence[float], upper: Sequence[float], lower: Sequence[float]) -> str:
    there = [f"{x:.1f} {y:.1f}" for x, y in zip(xs, upper, strict=True)]
    back = [f"{x:.1f} {y:.1f}" for x, y in zip(xs, lower, strict=True)]
    return f'<path class="{kind}" d="M{"L".join([*there, *reversed(back)])}Z"/>'


def _text(x: float, y: float, words: str, kind: str, anchor: str = "start", size: float = 13, weight: str = "") -> str:
    more = f' font-weight="{weight}"' if weight else ""
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
    return f'<text class="{kind}" {where}{more}>{escape(words)}</text>'


def inline(panel: Panel) -> str:
    """Return a panel for a page that has the style; it is as wide as its place, and no wider than drawn."""
    box = f'viewBox="0 0 {WIDTH} {panel.height:.0f}" width="{WIDTH}" height="{panel.height:.0f}"'
    return (
        f'<svg {box} role="img" font-family="{FONT}"><title>{escape(panel.title)}</title>{"".join(panel.parts)}</svg>'
    )


def to_svg(record: Stories, stories: Sequence[Story]) -> str:
    """Return one picture of all stories, two panels in a line; ValueError where nothing was measured."""
    margin, between, heading = 20, 28, 34
    parts, y = [], float(margin)
    for number, story in enumerate(stories, start=1):
        samples = record.of(story)
        panels = panels_of(story, samples) if samples is not None else []
        if not panels:
            continue
        parts.append(_text(margin, y + 16, f"{number}. {story.title}", "ink", size=16, weight="600"))
        y += heading
        for pair in (panels[at : at + 2] for at in range(0, len(panels), 2)):
            for column, panel in enumerate(pair):
                x = margin + column * (WIDTH + between)
                parts.append(f'<g transform="translate({x} {y:.0f})">{"".join(panel.parts)}</g>')
            y += max(panel.height for panel in pair) + 10
        y += 14
    if not parts:
        raise ValueError("there is nothing to draw: no story was measured")
    width = 2 * margin + 2 * WIDTH + between
    head = f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y:.0f}" width="{width}" height="{y:.0f}"'
    paper = f'<rect class="paper" width="{width}" height="{y:.0f}"/>'
    first = f'<svg {head} role="img" font-family="{FONT}"><title>Stories</title><style>{style()}</style>{paper}'
    return "\n".join([first, *parts, "</svg>\n"])
