"""`onecopy images view IMAGE`: write a small picture of an image of any size."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onecopy.cli import screen
from onecopy_images.atomic_files import path_beside, remove
from onecopy_images.cli.open import opened
from onecopy_images.cli.stitch import VIEW
from onecopy_images.codecs import read_facts
from onecopy_images.thumbnails import thumbnail

if TYPE_CHECKING:
    from numpy.typing import NDArray


@click.command("view")
@click.argument("path", metavar="IMAGE", type=click.Path())
@click.option("-o", "--output", "target", type=click.Path(), metavar="PNG", help="Default: IMAGE.view.png.")
@click.option(
    "--max-side", type=click.IntRange(min=1), default=1024, show_default=True, help="Maximum length of the longer side."
)
@click.option("--level", type=click.IntRange(min=0), help="Level of a pyramid; default: the smallest that suffices.")
@click.option("--no-stretch", is_flag=True, help="Keep pixel values instead of stretching them to 0 to 255.")
@click.option("--force", is_flag=True, help="Replace PNG if it exists.")
def command(*, path: str, target: str | None, max_side: int, level: int | None, no_stretch: bool, force: bool) -> None:
    """Write a small picture of IMAGE, or of an output of `images stitch`, as a PNG file.

    Each pixel is the mean of a block of the image. `images stitch` ignores files named *.view.png.
    """
    target = target or str(Path(path).with_suffix(VIEW))
    if not force and os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "the file exists: use --force to replace it", target)
    try:
        from PIL import Image as Pictures
    except ImportError:
        raise click.ClickException("writing a PNG file requires Pillow: pip install 'onecopy[images]'") from None
    array = pixels_of(path, max_side, level)
    small = thumbnail(array, max_side, stretch=not no_stretch)
    beside = path_beside(Path(target))
    try:
        Pictures.fromarray(small).save(beside, "PNG")
        beside.replace(target)
    finally:
        remove(beside)
    screen.show_line(
        screen.out(), f"{target}: {small.shape[1]} x {small.shape[0]} pixels of {array.shape[1]} x {array.shape[0]}"
    )


def pixels_of(path: str, max_side: int, level: int | None) -> NDArray[Any]:
    """Return the pixels of an image or a Zarr array, which are read when they are indexed."""
    if Path(path, "zarr.json").exists() or Path(path, ".zarray").exists():
        import zarr

        found: NDArray[Any] = zarr.open_array(path, mode="r")
        return found
    if level is None:
        ours = path.endswith((".oc", ".safetensors"))
        levels = ((),) if ours else read_facts(path).levels
        good = [number for number, shape in enumerate(levels) if shape and max(shape[:2]) >= max_side]
        level = max(good, default=0)
    return opened(path, level).array
