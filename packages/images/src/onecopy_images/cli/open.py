"""`onecopy images open IMAGE`: decode an image into this machine's store."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

import click

import onecopy_images as images
from onecopy.base.text import escape, significant, size
from onecopy.cli import options, screen

if TYPE_CHECKING:
    from onecopy_images import Image


def opened(path: str, level: int, **settings: Any) -> Image:
    """Open an image while showing a progress bar."""
    with screen.progress("decode") as watch:
        return images.open(path, level, progress=watch, **settings)


@click.command("open")
@click.argument("path", metavar="IMAGE", type=click.Path())
@click.option("--level", type=click.IntRange(min=0), default=0, help="Level of a pyramid; default: 0, the largest.")
@options.folder("Folder of the store.")
@click.option("--max-bytes", type=options.SIZE, help="Maximum size of the decoded image.")
@options.as_json()
def command(*, path: str, level: int, folder: str | None, max_bytes: int | None, as_json: bool) -> None:
    """Decode IMAGE into this machine's store unless it is already there, and print the path of the pixels.

    An uncompressed TIFF is mapped in place. `onecopy store ls` lists decoded images; `onecopy store prune --max-age`
    removes decoded images that have not been used for 60 days.
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
