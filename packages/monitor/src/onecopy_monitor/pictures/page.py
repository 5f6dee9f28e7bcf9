"""A picture as an HTML page in one file: the SVG, and a script that shows the numbers under the pointer."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any

from onecopy.text import escape
from onecopy_monitor.pictures.figures import COLOURS, DARK, LIGHT, frames_of, svg_of
from onecopy_monitor.pictures.panels import BANDS
from onecopy_monitor.table import series_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onecopy_monitor.pictures.panels import Picture
    from onecopy_monitor.series import Series

__all__ = ["page_of"]

_NAMES = {
    **BANDS,
    "real": "deduplicated total",
    "sum_of_rss": "sum of RSS",
    "page_tables": "page tables",
    "swap": "swap",
}


def page_of(picture: Picture, runs: Sequence[tuple[str, Series]], theme: str = "auto") -> str:
    """Return a picture as HTML, with the tables of its runs below; `theme` is that of `draw`."""
    from jinja2 import Environment

    template = files("onecopy_monitor.pictures").joinpath("page.html").read_text("utf-8")
    return (
        Environment(autoescape=True, trim_blocks=True)
        .from_string(template)
        .render(
            title=picture.title or "memory over time",
            theme=theme,
            themes={"light": LIGHT, "dark": DARK},
            svg=svg_of(picture, theme),
            tables=[(escape(name), series_table(series)) for name, series in runs],
            data=_data(picture),
        )
    )


def _data(picture: Picture) -> dict[str, Any]:
    """Return what the script of the page needs; the template escapes characters of HTML in it."""
    frames, width, height = frames_of(picture)
    panels = [
        {
            "left": frame.left,
            "top": frame.top,
            "width": frame.width,
            "height": frame.height,
            "times": [round(at, 4) for at in frame.panel.times],
            "columns": frame.panel.columns,
        }
        for frame in frames
    ]
    seconds = max(picture.seconds, 0.01)
    return {"panels": panels, "seconds": seconds, "width": width, "height": height, "names": _NAMES, "colours": COLOURS}
