"""Ways to decode images, hold them all, and put them onto a canvas; one entry each.

A way decodes one file, makes a canvas, pastes, and brings what it wrote down to the disk. What it returns is held until
the sample has been measured. Decoders use as many threads as they do by themselves.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Work:
    """What a sample is about.

    Attributes
    ----------
    paths
        Of the images, all of one shape and of bytes.
    folder
        For whatever a way writes.
    columns
        Images in a line of the canvas.
    shape
        Of an image: rows, columns, samples.
    cap
        Bytes of a canvas that may be in memory, for ways that have a cap.
    """

    paths: tuple[str, ...]
    folder: str
    columns: int
    shape: Shape
    cap: int

    @property
    def canvas(self) -> Shape:
        """Shape of the canvas."""
        rows = -(-len(self.paths) // self.columns)
        return (rows * self.shape[0], self.columns * self.shape[1], *self.shape[2:])

    def origin(self, number: int) -> tuple[int, int]:
        """Row and column of an image's first pixel on the canvas."""
        return number // self.columns * self.shape[0], number % self.columns * self.shape[1]

    def place(self, name: str) -> str:
        """Return a path in the folder."""
        return os.path.join(self.folder, name)  # noqa: PTH118 - text


@dataclass(frozen=True, slots=True)
class Way:
    """One way.

    Attributes
    ----------
    name, detail
        The row's name, and what it does in a few more words.
    needs
        Modules that must be installed; imported before the clock starts.
    decode
        Given the number of a file, returns its image.
    stitch
        Given all of them, returns the canvas.
    look
        Returns the canvas as something that can be sliced into arrays by rows.
    sync
        Brings images and canvas down to the disk, where they are files.
    ours
        Whether it is onecopy's.
    private
        Private memory that it needs, as a share of all decoded images.
    environment
        Of the process.
    """

    name: str
    detail: str
    needs: tuple[str, ...]
    decode: Callable[[Work, int], Any]
    stitch: Callable[[Work, list[Any]], Any]
    look: Callable[[Work, Any], Any] = lambda _, canvas: canvas
    sync: Callable[[Work, list[Any], Any], None] | None = None
    ours: bool = False
    private: float = 0.0
    environment: tuple[str, ...] = field(default=())


def sync(*paths: str | os.PathLike[str]) -> None:
    """Bring files down to the disk, of folders all that is in them."""
    for path in paths:
        for file in Path(path).rglob("*") if Path(path).is_dir() else [Path(path)]:
            if file.is_file():
                fd = os.open(file, os.O_RDONLY)
                os.fdatasync(fd)
                os.close(fd)


def paste(work: Work, images: list[Any], canvas: Any) -> Any:
    """Put every image in its place."""
    height, width = work.shape[:2]
    for number, image in enumerate(images):
        row, column = work.origin(number)
        canvas[row : row + height, column : column + width] = image
    return canvas


def _tifffile(work: Work, number: int) -> Any:
    import tifffile

    return tifffile.imread(work.paths[number], key=0)


def _pillow(work: Work, number: int) -> Any:
    from PIL import Image

    with Image.open(work.paths[number]) as image:
        return np.asarray(image)


def _memmap_image(work: Work, number: int) -> Any:
    import tifffile

    out = np.memmap(work.place(f"{number}.raw"), np.uint8, "w+", shape=work.shape)
    with tifffile.TiffFile(work.paths[number]) as file:
        file.pages.first.asarray(out=out)
    return out


def _heap_canvas(work: Work, images: list[Any]) -> Any:
    return paste(work, images, np.zeros(work.canvas, np.uint8))


def _memmap_canvas(work: Work, images: list[Any]) -> Any:
    return paste(work, images, np.memmap(work.place("canvas.raw"), np.uint8, "w+", shape=work.canvas))


def _flush(_: Work, images: list[Any], canvas: Any) -> None:
    for array in (*images, canvas):
        array.flush()
        sync(array.filename)


def _written(work: Work, _: list[Any], canvas: Any) -> None:
    """Write a canvas of the heap to a file, and down to the disk: what a program does that wants to keep it."""
    with Path(work.place("canvas.raw")).open("wb", buffering=0) as file:
        for row in range(0, len(canvas), 1024):
            file.write(canvas[row : row + 1024])
        os.fdatasync(file.fileno())


def _zarr_canvas(work: Work, images: list[Any]) -> Any:
    import zarr

    array = zarr.create_array(
        work.place("canvas.zarr"), shape=work.canvas, chunks=(1024, *work.shape[1:]), dtype="u1", compressors=None
    )
    return paste(work, images, array)


def _sync_folder(work: Work, _: list[Any], __: Any) -> None:
    sync(work.folder)


def _vips(work: Work, number: int) -> Any:
    import pyvips

    image = pyvips.Image.new_from_file(work.paths[number])
    image.write_to_file(work.place(f"{number}.v"))
    return pyvips.Image.new_from_file(work.place(f"{number}.v"))


def _vips_canvas(work: Work, images: list[Any]) -> Any:
    import pyvips

    pyvips.Image.arrayjoin(images, across=work.columns).write_to_file(work.place("canvas.v"))
    return pyvips.Image.new_from_file(work.place("canvas.v"))


def _vips_rows(work: Work, _: Any) -> Any:
    header = 64  # bytes, of the format .v
    return np.memmap(work.place("canvas.v"), np.uint8, "r", header, work.canvas)


def _open(work: Work, number: int) -> Any:
    import onecopy as oc

    return oc.images.open(work.paths[number], store=work.place("store"))


def _canvas(work: Work, images: list[Any]) -> Any:
    import onecopy as oc

    canvas = oc.scratch(work.canvas, "u1", dir=work.folder)
    height, width = work.shape[:2]
    for number, image in enumerate(images):
        row, column = work.origin(number)
        canvas.write(np.s_[row : row + height, column : column + width], image.array)
    return canvas


def _capped_mosaic(work: Work, images: list[Any]) -> Any:
    import onecopy_mosaic

    places = [work.origin(number) for number in range(len(images))]
    tiles = [image.array for image in images]
    shape = work.canvas[0], work.canvas[1]
    whole = onecopy_mosaic.mosaic(tiles, places, shape=shape, max_resident=work.cap, folder=work.folder)
    return whole.scratch


def _sync_ours(work: Work, _: list[Any], canvas: Any) -> None:
    canvas.flush()
    sync(work.place("store"))  # an image that can be decoded again does not wait for the disk


_DECODERS = ("numpy", "tifffile", "imagecodecs")
_OURS = (*_DECODERS, "onecopy.images", "onecopy.scratch_arrays")

WAYS: tuple[Way, ...] = (
    Way(
        "numpy", "tifffile.imread, numpy.zeros: the heap, in 2 MiB pages", _DECODERS, _tifffile, _heap_canvas,
        sync=_written, private=2.2,
    ),
    Way(
        "numpy, 4 KiB pages", "the same with NUMPY_MADVISE_HUGEPAGE=0", _DECODERS, _tifffile, _heap_canvas,
        sync=_written, private=2.2, environment=("NUMPY_MADVISE_HUGEPAGE=0",),
    ),
    Way(
        "numpy.memmap", "decoded into numpy.memmap(mode='w+'), the canvas as well", _DECODERS, _memmap_image,
        _memmap_canvas, sync=_flush,
    ),
    Way("Pillow", "Image.open, numpy.zeros", ("numpy", "PIL.Image"), _pillow, _heap_canvas, sync=_written, private=3.2),
    Way(
        "pyvips", "each to a .v file, arrayjoin to another", ("numpy", "pyvips"), _vips, _vips_canvas, _vips_rows,
        sync=_sync_folder,
    ),
    Way(
        "zarr", "tifffile.imread, a zarr array in lines of 1024 rows, not compressed", (*_DECODERS, "zarr"), _tifffile,
        _zarr_canvas, sync=_sync_folder, private=1.2,
    ),
    Way(
        "onecopy", "oc.images.open, oc.scratch: decoded by this process, into files", _OURS, _open,
        _canvas, lambda _, canvas: canvas.array, _sync_ours, ours=True,
    ),
    Way(
        "onecopy, capped", "oc.images.open, onecopy_mosaic.mosaic with max_resident", (*_OURS, "onecopy_mosaic"), _open,
        _capped_mosaic, lambda _, canvas: canvas.array, _sync_ours, ours=True,
    ),
)  # fmt: skip
"""In the order of the tables."""

NAMES = tuple(way.name for way in WAYS)
