"""The ways to decode images, hold them all, and put them onto a canvas; and the process that does so once.

A way decodes one file, makes a canvas, pastes, and brings what it wrote down to the disk. What it returns is held until
the sample has been measured. Decoders use as many threads as they do by themselves.
"""

from __future__ import annotations

import gc
import os
import re
import resource
import shutil
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onecopy_bench.engine import ways
from onecopy_bench.engine.child import Steps, module, prepare, used_since
from onecopy_bench.engine.ways import named

Shape = tuple[int, ...]
MADE_UP: Shape = (4864, 3968, 3)
"""Shape of images that are made up: that of the real slide which published figures are of."""
ROWS = 256
"""Rows of a canvas that are read at once."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a sample is about: images of one shape (rows, columns, samples) and of bytes, and how they are stitched.

    Ways write into the folder; `cap` is the bytes of a canvas that may be in memory, for ways that have a cap.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Way(ways.Way):
    """One way: `decode` the file of a number, `stitch` all images to the canvas, and `sync` both down to the disk.

    `rows` returns the canvas as something that can be sliced into arrays by rows.
    """

    decode: Callable[[Work, int], Any]
    stitch: Callable[[Work, list[Any]], Any]
    rows: Callable[[Work, Any], Any] = lambda _, canvas: canvas
    sync: Callable[[Work, list[Any], Any], None]


def _sync(*paths: str | os.PathLike[str]) -> None:
    """Bring files down to the disk, of folders all that is in them."""
    for path in paths:
        for file in Path(path).rglob("*") if Path(path).is_dir() else [Path(path)]:
            if file.is_file():
                fd = os.open(file, os.O_RDONLY)
                os.fdatasync(fd)
                os.close(fd)


def _paste(work: Work, images: list[Any], canvas: Any) -> Any:
    height, width = work.shape[:2]
    for number, image in enumerate(images):
        row, column = work.origin(number)
        canvas[row : row + height, column : column + width] = image
    return canvas


def _pillow(work: Work, number: int) -> Any:
    with module("PIL.Image").open(work.paths[number]) as image:
        return np.asarray(image)


def _memmap(work: Work, name: str, shape: Shape) -> Any:
    return np.memmap(work.place(name), np.uint8, "w+", shape=shape)


def _memmap_image(work: Work, number: int) -> Any:
    out = _memmap(work, f"{number}.raw", work.shape)
    with module("tifffile").TiffFile(work.paths[number]) as file:
        file.pages.first.asarray(out=out)
    return out


def _flush(_: Work, images: list[Any], canvas: Any) -> None:
    for array in (*images, canvas):
        array.flush()
        _sync(array.filename)


def _written(work: Work, _: list[Any], canvas: Any) -> None:
    """Write a canvas of the heap to a file, and down to the disk: what a program does that wants to keep it."""
    with Path(work.place("canvas.raw")).open("wb", buffering=0) as file:
        for row in range(0, len(canvas), 1024):
            file.write(canvas[row : row + 1024])
        os.fdatasync(file.fileno())


def _zarr_canvas(work: Work, images: list[Any]) -> Any:
    shapes: dict[str, Any] = {"shape": work.canvas, "chunks": (1024, *work.shape[1:])}
    array = module("zarr").create_array(work.place("canvas.zarr"), **shapes, dtype="u1", compressors=None)
    return _paste(work, images, array)


def _vips(work: Work, image: Any, name: str) -> Any:
    image.write_to_file(work.place(name))
    return module("pyvips").Image.new_from_file(work.place(name))


def _canvas(work: Work, images: list[Any]) -> Any:
    canvas = module("onecopy").scratch(work.canvas, "u1", dir=work.folder)
    height, width = work.shape[:2]
    for number, image in enumerate(images):
        row, column = work.origin(number)
        canvas.write(np.s_[row : row + height, column : column + width], image.array)
    return canvas


def _capped_mosaic(work: Work, images: list[Any]) -> Any:
    places = [work.origin(number) for number in range(len(images))]
    capped: dict[str, Any] = {"shape": work.canvas[:2], "max_resident": work.cap, "folder": work.folder}
    return module("onecopy_images").mosaic([image.array for image in images], places, **capped).scratch


def _sync_ours(work: Work, _: list[Any], canvas: Any) -> None:
    canvas.flush()
    _sync(work.place("store"))  # an image that can be decoded again does not wait for the disk


_DECODERS = ("numpy", "tifffile", "imagecodecs")
_OURS = (*_DECODERS, "onecopy_images", "onecopy.arrays.scratch")
_TIFF: dict[str, Any] = {"decode": lambda work, number: module("tifffile").imread(work.paths[number], key=0)}
_HEAP: dict[str, Any] = {
    "stitch": lambda work, images: _paste(work, images, np.zeros(work.canvas, np.uint8)), "sync": _written
}  # fmt: skip
_FOLDER: dict[str, Any] = {"sync": lambda work, *_: _sync(work.folder)}
_FILES: dict[str, Any] = {
    "decode": lambda work, number: module("onecopy").images.open(work.paths[number], store=work.place("store")),
    "rows": lambda _, canvas: canvas.array, "sync": _sync_ours, "ours": True,
}  # fmt: skip

WAYS = (
    Way(
        "numpy", "tifffile.imread, numpy.zeros: the heap, in 2 MiB pages", _DECODERS, private=2.2, **_TIFF, **_HEAP
    ),
    Way(
        "numpy, 4 KiB pages", "the same with NUMPY_MADVISE_HUGEPAGE=0", _DECODERS, private=2.2,
        environment=("NUMPY_MADVISE_HUGEPAGE=0",), **_TIFF, **_HEAP,
    ),
    Way(
        "numpy.memmap", "decoded into numpy.memmap(mode='w+'), the canvas as well", _DECODERS,
        decode=_memmap_image, sync=_flush,
        stitch=lambda work, images: _paste(work, images, _memmap(work, "canvas.raw", work.canvas)),
    ),
    Way("Pillow", "Image.open, numpy.zeros", ("numpy", "PIL.Image"), private=3.2, decode=_pillow, **_HEAP),
    Way(
        "pyvips", "each to a .v file, arrayjoin to another", ("numpy", "pyvips"), **_FOLDER,
        decode=lambda work, n: _vips(work, module("pyvips").Image.new_from_file(work.paths[n]), f"{n}.v"),
        stitch=lambda work, images: _vips(
            work, module("pyvips").Image.arrayjoin(images, across=work.columns), "canvas.v"
        ),
        rows=lambda work, _: np.memmap(work.place("canvas.v"), np.uint8, "r", 64, work.canvas),  # behind a header
    ),
    Way(
        "zarr", "tifffile.imread, a zarr array in lines of 1024 rows, not compressed", (*_DECODERS, "zarr"),
        private=1.2, stitch=_zarr_canvas, **_TIFF, **_FOLDER,
    ),
    Way("onecopy", "oc.images.open, oc.scratch: decoded by this process, into files", _OURS, stitch=_canvas, **_FILES),
    Way(
        "onecopy, capped", "oc.images.open, oc.images.mosaic with max_resident", _OURS,
        stitch=_capped_mosaic, **_FILES,
    ),
)  # fmt: skip


def _made_up(seed: int = 1) -> NDArray[np.uint8]:
    """Return an image of blobs, which compresses as microscope images do."""
    rng = np.random.default_rng(seed)
    image = np.zeros(MADE_UP, np.uint8)
    y, x = np.mgrid[-20:21, -20:21]
    blob = np.clip(20 - np.hypot(y, x), 0, None)
    rows, columns = rng.integers(20, MADE_UP[0] - 21, 9000), rng.integers(20, MADE_UP[1] - 21, 9000)
    for row, column in zip(rows, columns, strict=True):
        part = image[row - 20 : row + 21, column - 20 : column + 21]
        np.maximum(part, (blob[..., None] * rng.uniform(2, 12, 3)).astype(np.uint8), out=part)
    return image


def _write(folder: Path, count: int, file: str | None) -> dict[str, Any]:
    """Write images, compressed and not: copies of a file, or made up; return the shape and type of one."""
    import tifffile

    compressed, plain = folder / "compressed", folder / "plain"
    compressed.mkdir()
    plain.mkdir()
    source = Path(file) if file else compressed / "0.tif"
    if not file:
        tifffile.imwrite(source, _made_up(), tile=(256, 256), compression="jpeg", photometric="rgb")
    image = tifffile.imread(source, key=0)
    for number in range(count):
        copy = compressed / f"{number}{source.suffix}"
        if copy != source:
            shutil.copyfile(source, copy)
        tifffile.imwrite(plain / f"{number}.tif", image, photometric="rgb" if image.ndim == 3 else "minisblack")
    return {"shape": image.shape, "dtype": image.dtype.str}


def _checksum(canvas: Any, rows: int) -> int:
    found = 0
    for row in range(0, rows, ROWS):
        found = zlib.crc32(np.ascontiguousarray(canvas[row : row + ROWS]).data, found)
    return found


def _run(way: Way, work: Work, sync: bool) -> tuple[dict[str, Any], list[Any], Any]:
    """Do the work once; return what clocks and kernel have counted, the images, and the canvas."""
    before, start = resource.getrusage(resource.RUSAGE_SELF), perf_counter_ns()
    images = [way.decode(work, number) for number in range(len(work.paths))]
    decoded = perf_counter_ns()
    canvas = way.stitch(work, images)
    stitched = perf_counter_ns()
    if sync:
        way.sync(work, images, canvas)
    end, used = perf_counter_ns(), used_since(before)
    message = {
        "total_ns": end - start,
        "decode_ns": decoded - start,
        "stitch_ns": stitched - decoded,
        "sync_ns": end - stitched,
        **used,
    }
    return message, images, canvas


def _restrict(limit: int) -> None:
    """Let the kernel refuse private memory beyond what is there now and `limit` bytes."""
    now = int(re.findall(r"^VmData:\s*(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)[0]) << 10
    resource.setrlimit(resource.RLIMIT_DATA, (now + limit, now + limit))


def play(
    way: str = "",
    work: Work | None = None,
    sync: bool = False,
    limit: int | None = None,
    make: tuple[Path, int, str | None] | None = None,
) -> Steps:
    """Decode, hold and stitch, with a limit of private memory (None: no limit); then give everything back.

    `make` is a folder, a count and a file: the images are written, and that is all.
    """
    if make is not None or work is None:
        yield "ready", {}
        yield "written", _write(*make) if make else {}
        return
    chosen = named(WAYS, way)
    prepare(chosen.needs)
    yield "ready", {}
    if limit is not None:
        _restrict(limit)
    message, images, canvas = _run(chosen, work, sync)
    yield "started", message
    yield "checked", {"checksum": _checksum(chosen.rows(work, canvas), work.canvas[0])}
    del images, canvas
    gc.collect()
    yield "dropped", {}
