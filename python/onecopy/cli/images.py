"""`onecopy images open|view|stitch`: decode images once per machine, write small pictures, stitch tiles."""

from __future__ import annotations

import errno
import json
import logging
import os
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import click
from rich.progress import DownloadColumn

from onecopy import images
from onecopy.cli import screen
from onecopy.cli.images_stitch import VIEW, stitch
from onecopy.cli.words import SIZE, escape, significant, size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onecopy.images import Image


@click.group("images", cls=screen.Group)
def command() -> None:
    """Decode images once per machine, write small pictures of them, and stitch tiles."""
    for library in ("tifffile", "pyvips"):  # errors have the messages that they log
        logging.getLogger(library).addHandler(logging.NullHandler())


command.add_command(stitch)


def opened(path: str, level: int, **options: Any) -> Image:
    """Open an image with a progress bar."""
    with screen.progress_bar(screen.err(), DownloadColumn(), screen.RateColumn()) as bar:
        task = bar.add_task("decode", total=None)

        def watch(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        return images.open(path, level, progress=watch, **options)


@command.command("open")
@click.argument("path", metavar="IMAGE", type=click.Path())
@click.option("--level", type=click.IntRange(min=0), default=0, help="Level of a pyramid; default: 0, the largest.")
@click.option("--store", "folder", type=click.Path(), metavar="FOLDER", help="Folder of the store.")
@click.option("--max-bytes", type=SIZE, help="Maximum size of the decoded image.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def open_(*, path: str, level: int, folder: str | None, max_bytes: int | None, as_json: bool) -> None:
    """Decode IMAGE into the store of this machine unless the store has it, and print the path of the pixels.

    An uncompressed TIFF is mapped in place. `onecopy store ls` lists decoded images; `onecopy store prune --max-age`
    removes those that were not used for 60 days.
    """
    start = monotonic()
    with opened(path, level, store=folder, max_bytes=max_bytes) as image:
        shape, nbytes = " x ".join(map(str, image.shape)), image.nbytes
        facts = {
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
        click.echo(json.dumps(facts, indent=1))
        return
    click.echo(escape(str(facts["path"])))
    screen.show_line(
        screen.err(),
        f"onecopy: {path}: level {level} of {len(image.levels)}, {shape} {facts['dtype']}, {size(nbytes)}: "
        f"{image.reason} ({significant(monotonic() - start)} s)",
    )


@command.command("view")
@click.argument("path", metavar="IMAGE", type=click.Path())
@click.option("-o", "--output", "target", type=click.Path(), metavar="PNG", help="Default: IMAGE.view.png.")
@click.option(
    "--max-side", type=click.IntRange(min=1), default=1024, show_default=True, help="Maximum pixels of the longer side."
)
@click.option("--level", type=click.IntRange(min=0), help="Level of a pyramid; default: the smallest sufficient.")
@click.option("--no-stretch", is_flag=True, help="Keep the brightness: do not map the range of the pixels to 0 to 255.")
@click.option("--force", is_flag=True, help="Replace PNG if it exists.")
def view(*, path: str, target: str | None, max_side: int, level: int | None, no_stretch: bool, force: bool) -> None:
    """Write a small picture of IMAGE, or of an output of `images stitch`, as a PNG file.

    Each of its pixels is the mean of a block. `images stitch` ignores files *.view.png.
    """
    target = target or str(Path(path).with_suffix(VIEW))
    if not force and os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "the file exists: --force replaces it", target)
    try:
        from PIL import Image as Pictures
    except ImportError:
        raise click.ClickException("a PNG file is written by Pillow: pip install 'onecopy[images]'") from None
    array = pixels_of(path, max_side, level)
    small = images.thumbnail(array, max_side, stretch=not no_stretch)
    beside = Path(f"{target}.{os.getpid()}.part")
    try:
        Pictures.fromarray(small).save(beside, "PNG")
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)
    screen.show_line(
        screen.out(), f"{target}: {small.shape[1]} x {small.shape[0]} pixels of {array.shape[1]} x {array.shape[0]}"
    )


def pixels_of(path: str, max_side: int, level: int | None) -> NDArray[Any]:
    """Return the pixels of an image or a Zarr array; only the parts that are indexed are read."""
    if Path(path, "zarr.json").exists() or Path(path, ".zarray").exists():
        import zarr

        found: NDArray[Any] = zarr.open_array(path, mode="r")
        return found
    if level is None:
        ours = path.endswith((".oc", ".safetensors"))
        levels = ((),) if ours else images.codecs.read_facts(path).levels
        good = [number for number, shape in enumerate(levels) if shape and max(shape[:2]) >= max_side]
        level = max(good, default=0)
    return opened(path, level).array
