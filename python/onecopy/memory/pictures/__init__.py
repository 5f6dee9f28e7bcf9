"""Memory over time as a picture: SVG, HTML with all numbers under the pointer, or PNG.

    with oc.watch() as watched:
        train()
    watched.plot("run.html")

The SVG is written here, without a library: it follows the reader's light or dark theme, and is the picture of the HTML
as well, which is one file that loads nothing. A PNG is made of it by pyvips. Names that come out of processes are
escaped, as text and as data. Colours are those of Okabe and Ito, safe for colour-blind readers.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from onecopy.arguments import path_text
from onecopy.atomic_files import path_beside, remove, replace
from onecopy.memory.pictures.page import page_of
from onecopy.memory.pictures.panels import picture_of
from onecopy.memory.pictures.svg import THEMES, svg_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onecopy.memory.series import Series

__all__ = ["THEMES", "draw", "drawn"]

_DPI = 144
"""Of PNG: two pixels for each of the SVG's."""


def draw(
    runs: Sequence[tuple[str, Series]],
    path: str | os.PathLike[str],
    *,
    title: str = "",
    theme: str = "auto",
    processes: int = 8,
) -> None:
    """Draw runs beside one another, on the same axes, into a file; its name tells the format: .svg, .html or .png.

    Parameters
    ----------
    runs
        What each is called, and what was seen.
    path
        The file; what is there is replaced when the new one is whole.
    title
        Above all of it; if empty, the name of the only run.
    theme
        "light", "dark", or "auto": as the reader's screen is; a PNG is light then.
    processes
        So many processes of each run, those that held most, have a panel of their own.

    Raises
    ------
    ValueError
        The name ends otherwise; no such theme; nothing was seen.
    OSError
        The file cannot be written.
    ModuleNotFoundError
        A PNG, and pyvips is not installed.

    Examples
    --------
    >>> import os, tempfile
    >>> import onecopy as oc
    >>> with oc.watch() as watched:
    ...     pass
    >>> path = os.path.join(tempfile.mkdtemp(), "run.svg")
    >>> draw([("nothing", watched.series)], path)
    >>> os.path.getsize(path) > 1000
    True
    """
    name = path_text(path)
    content = drawn(runs, os.path.splitext(name)[1], title=title, theme=theme, processes=processes)  # noqa: PTH122
    target = Path(os.path.realpath(name))
    beside = target if target.exists() and not target.is_file() else path_beside(target)  # /dev/stdout is a target too
    try:
        beside.write_bytes(content)
        if beside != target:
            replace(beside, target, overwrite=True)
    except OSError as error:  # of a full disk it would not say where
        raise OSError(error.errno, error.strerror, name) from None
    finally:
        if beside != target:
            remove(beside)


def drawn(
    runs: Sequence[tuple[str, Series]], suffix: str, *, title: str = "", theme: str = "auto", processes: int = 8
) -> bytes:
    """Return what `draw` writes for a suffix, ".svg", ".html" or ".png"."""
    if suffix.lower() not in (".svg", ".html", ".png"):
        raise ValueError(f"a picture is .svg, .html or .png, not {suffix!r}")
    if theme not in THEMES:
        raise ValueError(f"a theme is {', '.join(THEMES)}, not {theme!r}")
    picture = picture_of(runs, title, processes)
    if suffix.lower() == ".html":
        return page_of(picture, runs, theme).encode()
    if suffix.lower() == ".svg":
        return svg_of(picture, theme).encode()
    return _png(svg_of(picture, "light" if theme == "auto" else theme))


def _png(svg: str) -> bytes:
    try:
        pyvips = importlib.import_module("pyvips")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "a PNG needs pyvips: pip install 'onecopy[png]'; .svg and .html need nothing", name=error.name
        ) from None
    content: bytes = pyvips.Image.svgload_buffer(svg.encode(), dpi=_DPI).pngsave_buffer()
    return content
