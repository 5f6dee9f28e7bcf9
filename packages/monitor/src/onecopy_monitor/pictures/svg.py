"""A picture as SVG."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from onecopy.text import size
from onecopy_monitor.pictures.axes import of_bytes, of_seconds
from onecopy_monitor.pictures.panels import BANDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onecopy_monitor.pictures.axes import Axis
    from onecopy_monitor.pictures.panels import Panel, Picture

__all__ = ["COLOURS", "THEMES", "Frame", "frames_of", "svg_of"]

THEMES = ("auto", "light", "dark")
COLOURS = {"anonymous": "#D55E00", "file_clean": "#56B4E9", "file_dirty": "#0072B2", "shmem": "#CC79A7"}
LIGHT = {"paper": "#FFFFFF", "ink": "#222222", "quiet": "#666666", "faint": "#DDDDDD", "line": "#333333"}
DARK = {"paper": "#15181D", "ink": "#E8E8E8", "quiet": "#A5A9B0", "faint": "#343941", "line": "#F0F0F0"}
WIDE, NARROW = 900, 560
"""Of a column of panels: one alone, and one of several."""
LEFT, RIGHT, HEAD, FOOT = 62, 18, 62, 20
TALL, LOW, BETWEEN, AXIS = 250, 90, 30, 34
"""Heights of the panel of a group and of a process; above a panel its title; below it the numbers of its axis."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The position of a panel in pixels, and its axes."""

    panel: Panel
    left: float
    top: float
    width: float
    height: float
    across: Axis
    up: Axis
    seconds: bool
    """Whether the time axis has labels."""

    def x(self, seconds: float) -> float:
        """Return the horizontal position of a time in seconds."""
        return self.left + self.width * seconds / self.across.top

    def y(self, nbytes: float) -> float:
        """Return the vertical position of a number of bytes."""
        return self.top + self.height * (1 - nbytes / self.up.top)


def frames_of(picture: Picture) -> tuple[list[Frame], float, float]:
    """Place the panels; return them with the width and the height of the picture."""
    wide = WIDE if len(picture.runs) == 1 else NARROW
    across = of_seconds(picture.seconds, 9 if len(picture.runs) == 1 else 5)
    groups = of_bytes(max(run[0].top for run in picture.runs))
    processes = of_bytes(max((panel.top for run in picture.runs for panel in run[1:]), default=0), 2)
    frames, lowest = [], 0.0
    for number, run in enumerate(picture.runs):
        y = float(HEAD if picture.title else 40)
        for at, panel in enumerate(run):
            height = TALL if at == 0 else LOW
            last = at == len(run) - 1
            y += BETWEEN
            place = number * wide + LEFT, y, wide - LEFT - RIGHT, height
            frames.append(Frame(panel, *place, across, processes if at else groups, seconds=last or at == 0))
            y += height + (AXIS if last or at == 0 else 4)
        lowest = max(lowest, y)
    return frames, wide * len(picture.runs), lowest + FOOT + 16 * len(picture.notes)


def svg_of(picture: Picture, theme: str = "auto") -> str:
    """Return a picture as SVG; `theme` is "light", "dark", or "auto" for the theme of the viewer."""
    frames, width, height = frames_of(picture)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img" font-family="system-ui, -apple-system, Segoe UI, DejaVu Sans, sans-serif" '
        'font-size="12">',
        f"<title>{escape(picture.title or 'memory over time')}</title>",
        f"<style>{style_of(theme)}</style>",
        f'<rect class="paper" width="{width:.0f}" height="{height:.0f}"/>',
    ]
    if picture.title:
        parts.append(_text(16, 24, picture.title, "ink", size="15", weight="600"))
    parts += _legend(16, HEAD - 16 if picture.title else 24, frames)
    for frame in frames:
        parts += _panel(frame)
    for at, note in enumerate(picture.notes):
        parts.append(_text(16, height - 12 - 16 * (len(picture.notes) - 1 - at), note, "quiet"))
    return "\n".join([*parts, "</svg>\n"])


def style_of(theme: str) -> str:
    """Return the CSS rules of a theme."""
    if theme != "auto":
        return _rules(DARK if theme == "dark" else LIGHT)
    return f"{_rules(LIGHT)}@media (prefers-color-scheme: dark){{{_rules(DARK)}}}"


def _rules(colours: dict[str, str]) -> str:
    fills = "".join(f".{name}{{fill:{colours[name]}}}" for name in ("paper", "ink", "quiet"))
    bands = "".join(f".{name}{{fill:{colour}}}" for name, colour in COLOURS.items())
    return (
        f"{fills}{bands}.grid{{stroke:{colours['faint']};stroke-width:1}}"
        f".line{{stroke:{colours['line']};stroke-width:1.5;fill:none;stroke-dasharray:5 3}}"
        f".share{{stroke:{colours['line']};stroke-width:1.5;fill:none}}"
        f".halo{{stroke:{colours['paper']};stroke-width:3.5;fill:none;opacity:.75}}"
        f".peak{{fill:{colours['ink']};stroke:{colours['paper']};stroke-width:3;paint-order:stroke}}"
        f".dot{{fill:{colours['ink']};stroke:{colours['paper']};stroke-width:1.5}}"
    )


def _text(x: float, y: float, text: str, kind: str, anchor: str = "start", size: str = "", weight: str = "") -> str:
    more = (f' font-size="{size}"' if size else "") + (f' font-weight="{weight}"' if weight else "")
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(text)}</text>'


def _legend(x: float, y: float, frames: list[Frame]) -> Iterable[str]:
    for name, words in BANDS.items():
        yield f'<rect class="{name}" x="{x:.1f}" y="{y - 10:.1f}" width="12" height="12" rx="2"/>'
        yield _text(x + 17, y, words, "ink")
        x += 42 + 6.6 * len(words)
    for line, words in dict.fromkeys((frame.panel.line, frame.panel.line_words) for frame in frames):
        kind = "line" if line == "sum_of_rss" else "share"
        yield f'<path class="{kind}" d="M{x:.1f} {y - 4:.1f}h22"/>'
        yield _text(x + 27, y, words, "ink")
        x += 52 + 6.6 * len(words)


def _panel(frame: Frame) -> Iterable[str]:
    left, right, bottom = frame.left, frame.left + frame.width, frame.top + frame.height
    yield _text(left, frame.top - 9, frame.panel.title, "ink", weight="600")
    for nbytes, words in frame.up.marks:
        y = frame.y(nbytes)
        yield f'<path class="grid" d="M{left:.1f} {y:.1f}H{right:.1f}"/>'
        unit = f" {frame.up.unit}" if nbytes == frame.up.marks[-1][0] else ""
        yield _text(left - 7, y + 4, words + unit, "quiet", "end")
    for seconds, words in frame.across.marks if frame.seconds else ():
        yield _text(frame.x(seconds), bottom + 17, words, "quiet", "middle")
    if frame.seconds:
        yield _text(right, bottom + 31, frame.across.unit, "quiet", "end")
    yield from _bands(frame)
    yield _line(frame)
    yield from _peak(frame)


def _bands(frame: Frame) -> Iterable[str]:
    """Draw the stacked bands; a single sample is one pixel wide."""
    panel = frame.panel
    xs = [frame.x(seconds) for seconds in panel.times]
    if len(xs) == 1:
        xs, once = [xs[0], xs[0] + 1], 2
    else:
        once = 1
    columns = [panel.columns[name] * once for name in BANDS]
    tops = [list(accumulate(values)) for values in zip(*columns, strict=True)]
    for at, name in enumerate(BANDS):
        if not any(columns[at]):
            continue
        upper = [f"{x:.1f} {frame.y(top[at]):.1f}" for x, top in zip(xs, tops, strict=True)]
        lower = [f"{x:.1f} {frame.y(top[at - 1] if at else 0):.1f}" for x, top in zip(xs, tops, strict=True)]
        yield f'<path class="{name}" d="M{"L".join([*upper, *reversed(lower)])}Z"/>'


def _line(frame: Frame) -> str:
    panel = frame.panel
    points = zip(panel.times, panel.columns[panel.line], strict=True)
    path = "L".join(f"{frame.x(at):.1f} {frame.y(nbytes):.1f}" for at, nbytes in points)
    if panel.line == "sum_of_rss":
        return f'<path class="line" d="M{path}"/>'
    return f'<path class="halo" d="M{path}"/><path class="share" d="M{path}"/>'  # it lies on the bands


def _peak(frame: Frame) -> Iterable[str]:
    if frame.panel.peak is None:
        return
    at, nbytes = frame.panel.peak
    x, y = frame.x(at), frame.y(nbytes)
    yield f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>'
    over = x > frame.left + 0.8 * frame.width
    above = max(y - 9, frame.top + 10)
    yield _text(x + (-7 if over else 7), above, f"{size(nbytes)} at most", "peak", "end" if over else "start")
