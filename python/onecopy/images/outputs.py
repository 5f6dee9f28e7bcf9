"""What a canvas is written into: memory of the caller, a nameless file, or a file of one of four formats.

Whatever the format, tiles are pasted into memory that is mapped from a reserved file, so that a full disk is an error
before the first tile is decoded. That file becomes a ``.oc`` without a copy; TIFF and Zarr are written from it in
the end, tile by tile, beside the target, and put in its place when they are whole.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from onecopy.base import path_text
from onecopy.images.image import NAME, About
from onecopy.scratching import Scratch, scratch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Self

    from numpy.typing import NDArray

    from onecopy.images._regions import Rectangle

_CHUNK = (512, 512)
_OURS, _TIFF, _ZARR = (".oc", ".safetensors"), (".tif", ".tiff"), (".zarr",)


class Made(NamedTuple):
    """Where the pixels are now."""

    array: NDArray[Any] | None
    path: str | None
    scratch: Scratch | None
    close: Callable[[], None]


class Output(ABC):
    """A canvas to be filled, once, by any number of threads; left by an error, nothing of it stays."""

    @abstractmethod
    def put(self, place: Rectangle, pixels: NDArray[Any]) -> None:
        """Write pixels into a rectangle."""

    @abstractmethod
    def finish(self) -> Made:
        """Say that all is there."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give_up()

    def give_up(self) -> None:  # noqa: B027 - there need not be anything
        """Give back what `finish` has not handed on."""


class Given(Output):
    """An array of the caller."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array

    def put(self, place: Rectangle, pixels: NDArray[Any]) -> None:
        """Write pixels into a rectangle."""
        self._array[place.top : place.bottom, place.left : place.right] = pixels

    def finish(self) -> Made:
        """Say that all is there."""
        return Made(self._array, None, None, lambda: None)


class Nameless(Output):
    """A scratch: of the caller, or made here."""

    def __init__(self, canvas: Scratch, *, ours: bool) -> None:
        self._canvas, self._ours = canvas, ours

    def put(self, place: Rectangle, pixels: NDArray[Any]) -> None:
        """Write pixels into a rectangle, by system calls: they keep to the cap, and tell of a disk that fails."""
        self._canvas.write((slice(place.top, place.bottom), slice(place.left, place.right)), pixels)

    def finish(self) -> Made:
        """Say that all is there."""
        ours, self._ours = self._ours, False
        return Made(self._canvas.array, None, self._canvas, self._canvas.close if ours else lambda: None)

    def give_up(self) -> None:
        """Give back what `finish` has not handed on."""
        if self._ours:
            self._canvas.close()


class File(Nameless):
    """A scratch that becomes a file, or that a file is written from."""

    def __init__(self, canvas: Scratch, target: Path, tile: tuple[int, int], *, overwrite: bool) -> None:
        super().__init__(canvas, ours=True)
        self._target, self._tile, self._overwrite = target, tile, overwrite

    def finish(self) -> Made:
        """Write the file, and give the scratch back."""
        path, suffix = str(self._target), self._target.suffix
        if suffix in _OURS:
            return self._save(path)
        with _replacing(self._target, folder=suffix in _ZARR, overwrite=self._overwrite) as beside:
            (_write_zarr if suffix in _ZARR else _write_tiff)(self._canvas, beside, self._target.name, self._tile)
        return Made(None, path, None, lambda: None)

    def _save(self, path: str) -> Made:
        from onecopy.images.opening import open as open_image

        shape = self._canvas.shape
        about = About(0, (shape,), "YXS"[: len(shape)], "")
        self._canvas.save(path, NAME, about.metadata(""))
        image = open_image(path)
        return Made(image.array, path, None, image.close)


def output_for(
    out: Any,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    tile: tuple[int, int] | None,
    folder: str | os.PathLike[str] | None,
    max_resident: int | str | None,
    *,
    overwrite: bool,
) -> Output:
    """Return what a canvas of some shape is written into; raises before any work what can be known before.

    Raises
    ------
    ValueError
        An array that is smaller, of another type or read-only; a path that ends like no format that is known.
    FileExistsError
        There is something at the path.
    OSError
        There is no room for the canvas.
    ImportError
        The library of the format is not installed.
    """
    if out is None or isinstance(out, str | os.PathLike):
        target = None if out is None else Path(path_text(out))
        if target is not None:
            _check_target(target, overwrite)
            folder = folder or target.absolute().parent
        canvas = scratch(shape, dtype, dir=folder, max_resident=max_resident)
        return (
            Nameless(canvas, ours=True) if target is None else File(canvas, target, tile or _CHUNK, overwrite=overwrite)
        )
    fits = len(out.shape) == len(shape) and all(has >= need for has, need in zip(out.shape, shape, strict=True))
    if not fits or out.shape[2:] != shape[2:] or not np.can_cast(dtype, out.dtype, "same_kind"):
        raise ValueError(f"out has shape {tuple(out.shape)} and type {out.dtype}: no room for {shape} of {dtype}")
    if isinstance(out, Scratch):
        return Nameless(out, ours=False)
    if not out.flags.writeable:
        raise ValueError("out is a read-only array")
    return Given(out)


def _check_target(target: Path, overwrite: bool) -> None:
    suffix = target.suffix
    if suffix not in _OURS + _TIFF + _ZARR:
        known = ", ".join(_OURS + _TIFF + _ZARR)
        raise ValueError(f"{target}: the end of its name must say the format: {known}")
    if not overwrite and os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "there is something already, and overwrite=True was not given", str(target))
    if suffix in _TIFF:
        import tifffile  # noqa: F401 - what is missing is told now
    elif suffix in _ZARR:
        import zarr  # noqa: F401


def _write_tiff(canvas: Scratch, path: Path, name: str, tile: tuple[int, int]) -> None:
    import tifffile

    shape, dtype = canvas.shape, canvas.dtype
    if any(extent % 16 or extent <= 0 for extent in tile):
        raise ValueError(f"{name}: the tiles of a TIFF file must be multiples of 16, not {tile}")
    with path.open("wb") as file:
        tifffile.imwrite(
            file,
            _blocks(canvas, tile),
            shape=shape,
            dtype=dtype,
            tile=tile,
            ome=name.endswith((".ome.tif", ".ome.tiff")),
            photometric="rgb" if shape[2:] in ((3,), (4,)) else "minisblack",
            planarconfig="contig" if len(shape) == 3 else None,
            metadata={"axes": "YXS"[: len(shape)]},
            bigtiff=canvas.nbytes > 2**32 - 2**25,
        )
        file.flush()
        os.fsync(file.fileno())


def _blocks(canvas: Scratch, tile: tuple[int, int]) -> Iterator[NDArray[Any]]:
    """Yield the tiles of a canvas in their order, those at the edges filled up with zeros; behind them, it is let go."""
    shape = canvas.shape
    for top in range(0, shape[0], tile[0]):
        for left in range(0, shape[1], tile[1]):
            block = canvas.array[top : top + tile[0], left : left + tile[1]]
            whole = np.zeros((*tile, *shape[2:]), canvas.dtype)
            whole[: block.shape[0], : block.shape[1]] = block
            yield whole
        canvas.release(slice(top, min(top + tile[0], shape[0])))


def _write_zarr(canvas: Scratch, path: Path, name: str, tile: tuple[int, int]) -> None:  # noqa: ARG001
    import zarr

    shape = canvas.shape
    chunks = (*(min(one, extent) for one, extent in zip(tile, shape[:2], strict=True)), *shape[2:])
    array = zarr.create_array(store=str(path), shape=shape, dtype=canvas.dtype, chunks=chunks)
    for top in range(0, shape[0], chunks[0]):
        rows = slice(top, min(top + chunks[0], shape[0]))
        for left in range(0, shape[1], chunks[1]):
            columns = slice(left, min(left + chunks[1], shape[1]))
            array[rows, columns] = canvas.array[rows, columns]
        canvas.release(rows)


@contextlib.contextmanager
def _replacing(target: Path, *, folder: bool, overwrite: bool) -> Iterator[Path]:
    """Give a path beside a target; what is there in the end takes the target's place, and nothing does after an error.

    What a process that was killed left beside this target goes too.
    """
    for left in target.parent.glob(f".{glob.escape(target.name)}.onecopy-*"):
        if not _lives(left.name.rpartition("-")[2]):
            _remove(left)
    beside = target.with_name(f".{target.name}.onecopy-{os.getpid()}")
    try:
        yield beside
        if not overwrite and os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, "there is something by now", str(target))
        if folder and target.is_dir():
            old = target.with_name(f".{target.name}.onecopy-old-{os.getpid()}")
            target.rename(old)
            beside.rename(target)
            _remove(old)
        else:
            beside.replace(target)
    except BaseException:
        _remove(beside)
        raise


def _lives(pid: str) -> bool:
    return pid.isdigit() and Path(f"/proc/{pid}").exists() and int(pid) != os.getpid()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
