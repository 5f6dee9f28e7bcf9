"""`onecopy images open`: decode images once per machine; onecopy-mosaic adds verbs to the group."""

from __future__ import annotations

import logging
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from onecopy import images
from onecopy.cli import options, screen
from onecopy.cli.groups import Group
from onecopy.text import escape, significant, size

if TYPE_CHECKING:
    from onecopy.images import Image

PACKAGED = {
    "stitch": (
        "onecopy-mosaic",
        "Stitch the tiles in FOLDER, and write OUT: .oc (to be mapped), .ome.tif, .tif or .zarr.",
    ),
    "view": ("onecopy-mosaic", "Write a small picture of IMAGE, or of an output of `images stitch`, as a PNG file."),
}
"""Distribution and one-line description of each verb that another distribution adds."""


@click.group("images", cls=Group, entry_points="onecopy.commands.images", packaged=PACKAGED)
def command() -> None:
    """Decode images once per machine; onecopy-mosaic adds small pictures of them, and stitches tiles."""
    for library in ("tifffile", "pyvips"):  # errors have the messages that they log
        logging.getLogger(library).addHandler(logging.NullHandler())


def opened(path: str, level: int, **settings: Any) -> Image:
    """Open an image with a progress bar."""
    with screen.progress("decode") as watch:
        return images.open(path, level, progress=watch, **settings)


@command.command("open")
@click.argument("path", metavar="IMAGE", type=click.Path())
@click.option("--level", type=click.IntRange(min=0), default=0, help="Level of a pyramid; default: 0, the largest.")
@options.folder("Folder of the store.")
@click.option("--max-bytes", type=options.SIZE, help="Maximum size of the decoded image.")
@options.as_json()
def open_(*, path: str, level: int, folder: str | None, max_bytes: int | None, as_json: bool) -> None:
    """Decode IMAGE into the store of this machine unless the store has it, and print the path of the pixels.

    An uncompressed TIFF is mapped in place. `onecopy store ls` lists decoded images; `onecopy store prune --max-age`
    removes those that were not used for 60 days.
    """
    start = monotonic()
    with opened(path, level, store=folder, max_bytes=max_bytes) as image:
        shape, nbytes = " x ".join(map(str, image.shape)), image.nbytes
        report = {
            "source": path,
            "path": str(image.file.path),
            "level": image.level,
            "levels": image.levels,
            "shape": image.shape,
            "dtype": str(image.dtype),
            "axes": image.axes,
            "nbytes": nbytes,
            "codec": image.codec,
            "built": image.artefact is not None and image.artefact.built,
            "reason": image.reason,
            "seconds": monotonic() - start,
        }
    if as_json:
        options.show_json(report)
        return
    click.echo(escape(str(report["path"])))
    screen.show_line(
        screen.err(),
        f"onecopy: {path}: level {level} of {len(image.levels)}, {shape} {report['dtype']}, {size(nbytes)}: "
        f"{image.reason} ({significant(monotonic() - start)} s)",
    )
