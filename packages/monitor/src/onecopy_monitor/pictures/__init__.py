"""Memory over time as a picture: SVG, interactive HTML, or PNG.

    with onecopy_monitor.watch() as watched:
        train()
    watched.plot("run.html")

matplotlib draws the picture. The SVG follows the light or dark theme of the viewer. The HTML is a single file with the
same SVG. It loads no other files, and shows the values at the pointer. Names of processes are escaped. The Okabe-Ito
colours are used, which colour-blind readers can distinguish.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onecopy.base.text import escape, path_text
from onecopy_monitor.pictures.figures import COLOURS, DARK, LIGHT, THEMES, frames_of, png_of, svg_of
from onecopy_monitor.pictures.panels import picture_of
from onecopy_monitor.samples import LABELS
from onecopy_monitor.text_tables import series_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onecopy_monitor.pictures.panels import Picture
    from onecopy_monitor.series import Series

__all__ = ["THEMES", "draw", "drawn"]


def draw(
    runs: Sequence[tuple[str, Series]],
    path: str | os.PathLike[str],
    *,
    title: str = "",
    theme: str = "auto",
    processes: int = 8,
) -> None:
    """Draw runs side by side, on the same axes, in a file whose suffix selects the format: .svg, .html or .png.

    Parameters
    ----------
    runs
        Pairs of a name and a series.
    path
        Path of the file; an existing file is replaced atomically.
    title
        Title of the picture. If it is empty, a single run's name is the title.
    theme
        "light", "dark", or "auto" for the viewer's theme; with "auto", a PNG file is light.
    processes
        Number of processes per run that get their own panel: those that use the most memory.

    Raises
    ------
    ValueError
        The suffix or the theme is not supported, or a series has no samples.
    OSError
        The file cannot be written.

    Examples
    --------
    >>> import os, tempfile
    >>> import onecopy_monitor
    >>> with onecopy_monitor.watch() as watched:
    ...     pass
    >>> path = os.path.join(tempfile.mkdtemp(), "run.svg")
    >>> draw([("nothing", watched.series)], path)
    >>> os.path.getsize(path) > 1000
    True
    """
    name = path_text(path)
    content = drawn(runs, os.path.splitext(name)[1], title=title, theme=theme, processes=processes)  # noqa: PTH122
    target = Path(os.path.realpath(name))
    beside = target.with_name(f".{target.name}.{os.getpid()}-{os.urandom(4).hex()}.part")
    try:
        if target.exists() and not target.is_file():  # /dev/stdout
            target.write_bytes(content)
        else:
            beside.write_bytes(content)
            beside.replace(target)
    except OSError as error:  # adds the path, which the error of a full disk does not have
        raise OSError(error.errno, error.strerror, name) from None
    finally:
        beside.unlink(missing_ok=True)


def drawn(
    runs: Sequence[tuple[str, Series]], suffix: str, *, title: str = "", theme: str = "auto", processes: int = 8
) -> bytes:
    """Return the bytes that `draw` writes for the suffix ".svg", ".html" or ".png"."""
    if suffix.lower() not in (".svg", ".html", ".png"):
        raise ValueError(f"the suffix of a picture must be .svg, .html or .png, not {suffix!r}")
    if theme not in THEMES:
        raise ValueError(f"theme must be one of {', '.join(THEMES)}, not {theme!r}")
    picture = picture_of(runs, title, processes)
    if suffix.lower() == ".html":
        return _page_of(picture, runs, theme).encode()
    if suffix.lower() == ".svg":
        return svg_of(picture, theme).encode()
    return png_of(picture, theme)


def _page_of(picture: Picture, runs: Sequence[tuple[str, Series]], theme: str = "auto") -> str:
    """Return a picture as HTML, with the tables of its runs. See `draw` for `theme`."""
    from importlib.resources import files

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
    """Return the data for the page's script. The template escapes HTML characters in it."""
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
    return {"panels": panels, "seconds": seconds, "width": width, "height": height, "names": LABELS, "colours": COLOURS}
