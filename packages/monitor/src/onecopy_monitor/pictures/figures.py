"""Draws pictures with matplotlib, which is imported when the first picture is drawn."""

from __future__ import annotations

import importlib
import io
import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from onecopy.base.text import size
from onecopy_monitor.pictures.panels import BANDS

if TYPE_CHECKING:
    from onecopy_monitor.pictures.panels import Panel, Picture

__all__ = ["COLOURS", "DARK", "LIGHT", "THEMES", "Frame", "figure_of", "frames_of", "png_of", "svg_of"]

THEMES = ("auto", "light", "dark")
COLOURS = {"anonymous": "#D55E00", "file_clean": "#56B4E9", "file_dirty": "#0072B2", "shmem": "#CC79A7"}
LIGHT = {"paper": "#FFFFFF", "ink": "#222222", "quiet": "#666666", "faint": "#DDDDDD", "line": "#333333"}
DARK = {"paper": "#15181D", "ink": "#E8E8E8", "quiet": "#A5A9B0", "faint": "#343941", "line": "#F0F0F0"}
WIDE, NARROW = 900, 560
"""Width of a column of panels in pixels, if there is a single column, and if there are several."""
LEFT, RIGHT, HEAD, FOOT = 76, 18, 62, 20
TALL, LOW, BETWEEN, AXIS = 250, 90, 30, 34
"""Heights in pixels: a group's panel, a process's panel, a title, and the numbers below an axis."""
_PER_INCH = 72
"""Pixels per inch of a figure, so that a pixel is a point of SVG."""
_SETTINGS = {
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],  # matplotlib includes it; a viewer without it uses another font
    "font.size": 12,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "onecopy",  # the same samples produce the same file
    "text.parse_math": False,  # a name with two dollar signs is not a formula
}


@dataclass(frozen=True, slots=True)
class Frame:
    """A panel's position in pixels from the top left corner, and the upper end of its axis in bytes."""

    panel: Panel
    left: float
    top: float
    width: float
    height: float
    bytes: float
    timed: bool
    """Whether the time axis has labels."""


def frames_of(picture: Picture) -> tuple[list[Frame], float, float]:
    """Place the panels, and return them with the width and height of the picture."""
    wide = WIDE if len(picture.runs) == 1 else NARROW
    groups = max(run[0].top for run in picture.runs)
    processes = max((panel.top for run in picture.runs for panel in run[1:]), default=0)
    frames, lowest = [], 0.0
    for number, run in enumerate(picture.runs):
        y = float(HEAD if picture.title else 40)
        for at, panel in enumerate(run):
            height = LOW if at else TALL
            timed = at in (0, len(run) - 1)
            y += BETWEEN
            place = number * wide + LEFT, y, wide - LEFT - RIGHT, height
            frames.append(Frame(panel, *place, 1.06 * max(processes if at else groups, 4), timed))
            y += height + (AXIS if timed else 4)
        lowest = max(lowest, y)
    return frames, wide * len(picture.runs), lowest + FOOT + 16 * len(picture.notes)


def figure_of(picture: Picture, colours: dict[str, str]) -> Any:
    """Return a picture as a matplotlib figure."""
    figures = importlib.import_module("matplotlib.figure")
    frames, width, height = frames_of(picture)
    figure = figures.Figure((width / _PER_INCH, height / _PER_INCH), dpi=_PER_INCH, facecolor=colours["paper"])
    if picture.title:
        figure.text(16 / width, 1 - 24 / height, picture.title, color=colours["ink"], fontsize=15, fontweight="bold")
    for at, note in enumerate(reversed(picture.notes)):
        figure.text(16 / width, (12 + 16 * at) / height, note, color=colours["quiet"])
    shown: dict[str, Any] = {}
    for frame in frames:
        place = frame.left / width, 1 - (frame.top + frame.height) / height, frame.width / width, frame.height / height
        shown |= _draw(figure.add_axes(place, facecolor="none"), frame, max(picture.seconds, 0.01), colours)
    figure.legend(
        shown.values(),
        shown.keys(),
        loc="center left",
        bbox_to_anchor=(8 / width, 1 - (HEAD - 20 if picture.title else 20) / height),
        ncols=len(shown),
        frameon=False,
        labelcolor=colours["ink"],
        handlelength=1.6,
        columnspacing=1.2,
    )
    return figure


def svg_of(picture: Picture, theme: str = "auto") -> str:
    """Return a picture as SVG. `theme` is "light", "dark", or "auto" for the theme of the viewer."""
    saved = _saved(picture, DARK if theme == "dark" else LIGHT, "svg", _PER_INCH).decode()
    svg = re.sub(r'(width|height)="([\d.]+)pt"', r'\1="\2"', saved[saved.index("<svg") :], count=2)
    svg = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d)\d+", r"\1", path[0]), svg)  # a tenth of a pixel is enough
    title = f"<title>{escape(picture.title or 'memory over time')}</title>\n "
    style = f"<style>{_dark_rules()}</style>\n " if theme == "auto" else ""
    return svg.replace("<defs>", f"{title}{style}<defs>", 1).replace("<svg ", '<svg role="img" ', 1)


def png_of(picture: Picture, theme: str = "auto") -> bytes:
    """Return a picture as PNG with twice the resolution of the SVG. "auto" means "light"."""
    return _saved(picture, DARK if theme == "dark" else LIGHT, "png", 2 * _PER_INCH)


def _saved(picture: Picture, colours: dict[str, str], kind: str, dpi: int) -> bytes:
    matplotlib, content = importlib.import_module("matplotlib"), io.BytesIO()
    with matplotlib.rc_context(_SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph ", UserWarning)  # a name may have characters that the font lacks
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type")) if kind == "svg" else {"Software": None}
        figure_of(picture, colours).savefig(content, format=kind, dpi=dpi, metadata=nothing)
    return content.getvalue()


def _dark_rules() -> str:
    """Return the CSS that replaces the light theme's colours if the viewer's theme is dark."""
    rules = (
        f'[style*="{kind}: {LIGHT[name].lower()}"]{{{kind}:{DARK[name]}!important}}'
        for name in LIGHT
        for kind in ("fill", "stroke")
    )
    return f"@media (prefers-color-scheme: dark){{{''.join(rules)}}}"


def _draw(axes: Any, frame: Frame, seconds: float, colours: dict[str, str]) -> dict[str, Any]:
    """Draw a panel, and return its graphic elements, keyed by their labels in the legend."""
    panel = frame.panel
    unit, length = next(
        (unit, length)
        for unit, length in (("seconds", 1), ("minutes", 60), ("hours", 3600))
        if seconds < 180 * length or unit == "hours"
    )
    times = [at / length for at in panel.times]
    axes.set_xlim(0, seconds / length)
    axes.set_ylim(0, frame.bytes)
    _label(axes, frame, unit, colours)
    wide = times if len(times) > 1 else [times[0], times[0] + seconds / length / frame.width]  # a pixel
    heights = [panel.columns[name] * (len(wide) // len(times)) for name in BANDS]
    bands = axes.stackplot(wide, heights, colors=[COLOURS[name] for name in BANDS], linewidth=0)
    effects = importlib.import_module("matplotlib.patheffects")
    halo = [effects.withStroke(linewidth=3.5, foreground=colours["paper"], alpha=0.75)]
    summed = panel.line == "sum_of_rss"
    (line,) = axes.plot(
        times,
        panel.columns[panel.line],
        color=colours["line"],
        linewidth=1.5,
        linestyle=(0, (4, 2)) if summed else "-",
        path_effects=None if summed else halo,
    )
    if panel.peak is not None:
        at, nbytes = panel.peak[0] / length, panel.peak[1]
        axes.plot([at], [nbytes], "o", color=colours["ink"], markersize=6, markeredgecolor=colours["paper"])
        over = at > 0.8 * seconds / length
        axes.annotate(
            f"{size(nbytes)} at most",
            (at, nbytes),
            (-7 if over else 7, 6),
            textcoords="offset points",
            ha="right" if over else "left",
            color=colours["ink"],
            bbox={"facecolor": colours["paper"], "edgecolor": "none", "pad": 1},  # no line crosses the text
        )
    return {**dict(zip(BANDS.values(), bands, strict=True)), panel.line_words: line}


def _label(axes: Any, frame: Frame, unit: str, colours: dict[str, str]) -> None:
    """Add a title, ticks and a grid to the axes of a panel."""
    ticker = importlib.import_module("matplotlib.ticker")
    axes.set_title(frame.panel.title, loc="left", fontsize=12, fontweight="bold", color=colours["ink"], pad=7)
    axes.tick_params(length=0, pad=6, labelcolor=colours["quiet"], labelbottom=frame.timed)
    axes.spines["bottom"].set_color(colours["faint"])
    axes.grid(axis="y", color=colours["faint"], linewidth=1)
    axes.set_axisbelow(True)
    axes.yaxis.set_major_locator(ticker.MaxNLocator(2 if frame.height == LOW else 5, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(lambda nbytes, _: size(round(nbytes)) if nbytes > 0 else "0")
    axes.xaxis.set_major_locator(ticker.MaxNLocator(9 if frame.width > NARROW else 5, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(lambda at, _: f"{at:.6g}")
    if frame.timed:
        axes.set_xlabel(unit, loc="right", color=colours["quiet"], labelpad=1)
