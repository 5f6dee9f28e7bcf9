"""`onecopy images stitch FOLDER -o OUT`: stitch the tiles of a folder at listed or registered positions."""

from __future__ import annotations

import contextlib
import json
import re
from math import prod
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import click
from rich.progress import DownloadColumn

import onecopy_images as images
from onecopy.base.text import significant, size
from onecopy.cli import screen
from onecopy.cli.options import SIZE
from onecopy_images.position_files import parse_positions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.progress import ProgressColumn

    from onecopy_images import Mosaic, Registration
    from onecopy_images.position_files import Listed

SUFFIXES = {".bmp", ".jp2", ".jpeg", ".jpg", ".jxl", ".ndpi", ".png", ".svs", ".tif", ".tiff", ".webp"}
VIEW = ".view.png"
"""Suffix of pictures that `images view` writes; these are not tiles."""


def in_order_of_names(names: Sequence[str]) -> list[str]:
    """Sort names, comparing the numbers in them as numbers.

    Examples
    --------
    >>> in_order_of_names(["t10.tif", "t9.tif", "T.tif"])
    ['T.tif', 't9.tif', 't10.tif']
    """

    def key(name: str) -> list[tuple[int, int, str]]:
        parts = re.findall(r"[0-9]+|[^0-9]+", name)
        return [(0, int(part), part) if part[0] in "0123456789" else (1, 0, part) for part in parts]

    return sorted(names, key=key)


def pair_of(_: click.Context, parameter: click.Parameter, text: str | None) -> tuple[int, int] | None:
    """Return the two numbers in an option such as 5x4. Raise click.BadParameter for other text."""
    if text is None:
        return None
    match = re.fullmatch(r"\s*([1-9]\d*)\s*[xX]\s*([1-9]\d*)\s*", text)
    if match is None:
        raise click.BadParameter(f"{text!r} is not a pair of numbers such as 5x4", param=parameter)
    return int(match[1]), int(match[2])


def share_of(_: click.Context, parameter: click.Parameter, text: str) -> float:
    """Return an overlap such as 10% or 0.1 as a fraction. Raise click.BadParameter for other text."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%?)\s*", text)
    share = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not 0 < share <= 0.5:
        raise click.BadParameter(f"{text!r} is not an overlap above 0 % and at most 50 %", param=parameter)
    return share


def tiles_in(folder: str, listed: Sequence[Listed] | None, pattern: str | None) -> list[str]:
    """Return the names of the tiles in order. Raise ValueError if there are none, or OSError if listing fails."""
    if listed is not None:
        return in_order_of_names([one.name for one in listed])
    views = pattern is not None and pattern.endswith(VIEW)  # the pattern selects such pictures
    there = [path for path in Path(folder).iterdir() if path.is_file() and (views or not path.name.endswith(VIEW))]
    names = [
        path.name
        for path in there
        if (path.match(pattern) if pattern else path.suffix.lower() in SUFFIXES and not path.name.startswith("."))
    ]
    if not names:
        raise ValueError(f"{folder}: the folder contains no images{' that match ' + repr(pattern) if pattern else ''}")
    return in_order_of_names(names)


@contextlib.contextmanager
def progress(name: str, *columns: ProgressColumn) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar, and yield a function that sets the amount done and the total."""
    with screen.progress_bar(screen.err(), *columns) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def order_of(names: Sequence[str], first: Sequence[str]) -> list[int]:
    """Return the tile numbers, starting with the tiles named in `first`. Raise ValueError if a name is unknown."""
    if unknown := [name for name in first if name not in names]:
        raise ValueError(f"--first {unknown[0]!r}: no tile has this name")
    front = [names.index(name) for name in dict.fromkeys(first)]
    return front + [number for number in range(len(names)) if number not in front]


@click.command("stitch")
@click.argument("folder", type=click.Path())
@click.option("-o", "--output", "target", required=True, type=click.Path(), metavar="OUT", help="The image to write.")
@click.option(
    "--positions", "list_path", type=click.Path(), metavar="FILE", help="Positions of the tiles in MIST's format."
)
@click.option("--grid", callback=pair_of, metavar="RxC", help="Rows x columns: register the tiles by their pixels.")
@click.option(
    "--overlap",
    callback=share_of,
    metavar="P",
    default="10%",
    show_default=True,
    help="Expected overlap of neighbours, for --grid.",
)
@click.option("--column-major", is_flag=True, help="Tiles are listed by columns instead of rows.")
@click.option("--names", "pattern", metavar="GLOB", help="Stitch only files with matching names; default: all.")
@click.option("--first", multiple=True, metavar="NAME", help="Paste this tile first, below the others. Repeatable.")
@click.option(
    "--size",
    "extent",
    callback=pair_of,
    metavar="WxH",
    help="Size of the image; default: large enough for the tiles.",
)
@click.option("--tile", callback=pair_of, metavar="WxH", help="Size of TIFF tiles or Zarr chunks; default: 512x512.")
@click.option("--max-resident", type=SIZE, help="Maximum bytes of the image in memory, such as 512MiB.")
@click.option("--threads", type=click.IntRange(1, 1024), help="Decoding threads; default: one per CPU, at most 4.")
@click.option("--force", is_flag=True, help="Replace OUT if it exists.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout, with the positions.")
def command(
    *,
    folder: str,
    target: str,
    list_path: str | None,
    grid: tuple[int, int] | None,
    overlap: float,
    column_major: bool,
    pattern: str | None,
    first: tuple[str, ...],
    extent: tuple[int, int] | None,
    tile: tuple[int, int] | None,
    max_resident: int | None,
    threads: int | None,
    force: bool,
    as_json: bool,
) -> None:
    """Stitch the tiles in FOLDER, and write OUT as .oc (to be mapped), .ome.tif, .tif or .zarr.

    Tiles are pasted in name order, later ones over earlier ones; numbers in names are compared numerically. Positions
    are read from a list (--positions) or determined from the pixels (--grid).
    """
    if (list_path is None) == (grid is None):
        raise click.UsageError("specify the positions of the tiles with either --positions FILE or --grid RxC")
    listed = None if list_path is None else parse_positions(Path(list_path).read_text("utf-8", "replace"), list_path)
    names = tiles_in(folder, listed, pattern)
    paths, registration, start = [Path(folder, name) for name in names], None, monotonic()
    if listed is not None:
        place = {one.name: (one.row, one.column) for one in listed}
        positions: Any = [place[name] for name in names]
    else:
        assert grid is not None
        if not (console := screen.err()).is_terminal:
            screen.show_line(console, f"onecopy: registering {len(paths)} tiles, {grid[0]} rows x {grid[1]} columns")
        with progress("register") as watch:
            registration = images.register(paths, grid, overlap, column_major=column_major, progress=watch)
        positions = registration.positions.tolist()
    registering = monotonic() - start
    with progress("stitch", DownloadColumn(), screen.RateColumn()) as watch:
        done = images.mosaic(
            paths,
            positions,
            target,
            order=order_of(names, first),
            shape=None if extent is None else extent[::-1],
            tile=None if tile is None else tile[::-1],
            max_resident=max_resident,
            threads=threads,
            overwrite=force,
            progress=watch,
        )
    done.close()
    show(done, names, positions, None if registration is None else (registration, registering), as_json)


def show(
    done: Mosaic, names: list[str], positions: Any, registered: tuple[Registration, float] | None, as_json: bool
) -> None:
    """Print a summary of the mosaic and, if the tiles were registered, of the registration and its duration."""
    registration, registering = registered or (None, 0.0)
    if as_json:
        facts = {
            "path": done.path,
            "shape": done.shape,
            "dtype": str(done.dtype),
            "tiles": {name: {"row": int(y), "column": int(x)} for name, (y, x) in zip(names, positions, strict=True)},
            "hidden": [names[number] for number in done.hidden],
            "covered": done.covered,
            "registration": None if registration is None else str(registration),
            "guessed": [] if registration is None else [names[number] for number in registration.guessed],
            "seconds": registering + done.seconds,
            "seconds_registering": registering,
            "seconds_pasting": done.seconds,
        }
        click.echo(json.dumps(facts, indent=1))
        return
    if registration is not None:
        screen.show_line(screen.err(), f"onecopy: {registration}")
        for number in registration.guessed:
            screen.show_line(screen.err(), f"onecopy: placed by the usual shift, not by its pixels: {names[number]}")
    screen.show_line(screen.out(), f"{done.path}: {done} {times(done, None if registered is None else registering)}")


def times(done: Mosaic, registering: float | None) -> str:
    """Return the duration of each step, and the pasting rate in bytes per second, as text."""
    nbytes = int(done.covered) * prod(done.shape[2:]) * done.dtype.itemsize
    rate = f"{size(round(nbytes / done.seconds))}/s" if done.seconds else "at once"
    pasted_in = f"{significant(done.seconds)} s ({rate})"
    if registering is None:
        return f"in {pasted_in}"
    both = significant(registering + done.seconds)
    return f"in {both} s: registered in {significant(registering)} s, pasted in {pasted_in}"
