"""What a canvas is written into: memory of the caller, a nameless file, or a file of one of four formats.

Whatever the format, tiles are pasted into memory that is mapped from a reserved file, so that a full disk is an error
before the first tile is decoded. That file becomes a ``.oc`` without a copy; TIFF and Zarr are written from it in
the end, tile by tile, beside the target, and put in its place when they are whole. A TIFF's space is reserved at first
too; what a Zarr takes is not known before it is compressed.
"""

from __future__ import annotations

import contextlib
import errno
import os
from abc import ABC, abstractmethod
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakSet

import numpy as np

from onecopy.arguments import path_text
from onecopy.atomic_files import path_beside, remove, replace
from onecopy.images._files import most_of_a_tiff, write_tiff, write_zarr
from onecopy.images._regions import covered_rows, in_bands, span_of
from onecopy.images._row_evictor import RowEvictor
from onecopy.images._window import Window
from onecopy.images.image import NAME, About
from onecopy.page_cache import available_memory
from onecopy.scratch_arrays import Scratch, scratch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Self

    from numpy.typing import NDArray

    from onecopy.images._regions import Rectangle, Share

_CHUNK = (512, 512)
_USUAL_CAP = 512 << 20
"""Bytes of a large canvas that are in memory where nobody said how many."""
_SPARSE: WeakSet[Scratch] = WeakSet()
"""Canvases made here of which nothing is reserved: a full disk must be told by a call, or it is SIGBUS."""
_OURS, _TIFF, _ZARR = (".oc", ".safetensors"), (".tif", ".tiff"), (".zarr",)


class Made(NamedTuple):
    """Where the pixels are now."""

    array: NDArray[Any] | None
    path: str | None
    scratch: Scratch | None
    close: Callable[[], None]


class Work(NamedTuple):
    """What is to be written."""

    shares: list[Share]
    """From top to bottom."""
    may_be_cut: Callable[[int], bool]
    """Whether a tile may be asked for more than once."""


class Output(ABC):
    """A canvas to be filled, once, by any number of threads; left by an error, nothing of it stays."""

    shares: list[Share]
    """What is written, in this order; perhaps in smaller pieces than was asked for."""

    @abstractmethod
    def put(self, place: Rectangle, pixels: NDArray[Any]) -> None:
        """Write pixels into a rectangle."""

    def has_room(self, bottom: int) -> bool:  # noqa: ARG002 - memory of the caller has no bound
        """Return whether `expect` finds room for rows up to this one without another row being finished before."""
        return True

    def expect(self, bottom: int) -> None:  # noqa: B027
        """Announce writes up to this row; waits until there is room."""

    def finished(self, row: int) -> None:  # noqa: B027
        """Declare the rows above this one final."""

    @abstractmethod
    def finish(self) -> Made:
        """Complete the output."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give_up()

    def give_up(self) -> None:  # noqa: B027 - there need not be anything
        """Release what `finish` has not taken over."""


class Given(Output):
    """An array of the caller."""

    def __init__(self, array: NDArray[Any], work: Work) -> None:
        self._array, self.shares = array, work.shares

    def put(self, place: Rectangle, pixels: NDArray[Any]) -> None:
        """Write pixels into a rectangle."""
        self._array[place.top : place.bottom, place.left : place.right] = pixels

    def finish(self) -> Made:
        """Complete the output."""
        return Made(self._array, None, None, lambda: None)


class Nameless(Output):
    """A scratch: of the caller, or made here."""

    def __init__(self, canvas: Scratch, work: Work, *, ours: bool) -> None:
        self._canvas, self._ours = canvas, ours
        self.shares, self._rows = _rows_at_a_time(canvas, work, ours=ours)
        self._through_memory = canvas.memory_cap is None and canvas not in _SPARSE

    def put(self, place: Rectangle, pixels: NDArray[Any]) -> None:
        """Write pixels into a rectangle: through memory, or by calls, which keep to a cap and tell of full disks."""
        if self._rows is not None:
            self._rows.put(place, pixels)
        elif self._through_memory:
            self._canvas.array[place.top : place.bottom, place.left : place.right] = pixels
        else:
            self._canvas.write((slice(place.top, place.bottom), slice(place.left, place.right)), pixels)

    def has_room(self, bottom: int) -> bool:
        """Return whether `expect` finds room for rows up to this one without another row being finished before."""
        return self._rows is None or self._rows.has_room(bottom)

    def expect(self, bottom: int) -> None:
        """Announce writes up to this row; waits until there is room."""
        if self._rows is not None:
            self._rows.expect(bottom)

    def finished(self, row: int) -> None:
        """Declare the rows above this one final."""
        if self._rows is not None:
            self._rows.finished(row)

    def finish(self) -> Made:
        """Complete the output."""
        if self._rows is not None:
            self._rows.finish()
        ours, self._ours = self._ours, False
        return Made(self._canvas.array, None, self._canvas, self._canvas.close if ours else lambda: None)

    def give_up(self) -> None:
        """Release what `finish` has not taken over."""
        if self._rows is not None:
            self._rows.close()
        if self._ours:
            self._canvas.close()


class File(Nameless):
    """A scratch that becomes a file, or that a file is written from."""

    def __init__(self, canvas: Scratch, work: Work, target: Path, tile: tuple[int, int], *, overwrite: bool) -> None:
        super().__init__(canvas, work, ours=True)
        self._target, self._tile, self._overwrite = target, tile, overwrite
        self._beside = path_beside(target)
        if target.suffix in _TIFF and canvas not in _SPARSE:
            try:
                with self._errors_name_the_target(), self._beside.open("wb") as file:
                    os.posix_fallocate(file.fileno(), 0, most_of_a_tiff(canvas, tile))
            except BaseException:
                self.give_up()
                raise

    def finish(self) -> Made:
        """Write the file, and give the scratch back."""
        if self._rows is not None:
            self._rows.finish()
        path, suffix = str(self._target), self._target.suffix
        if suffix in _OURS:
            return self._save(path)
        with self._errors_name_the_target():
            (write_zarr if suffix in _ZARR else write_tiff)(self._canvas, self._beside, self._target.name, self._tile)
        replace(self._beside, self._target, overwrite=self._overwrite)
        return Made(None, path, None, lambda: None)

    def give_up(self) -> None:
        """Release what `finish` has not taken over."""
        super().give_up()
        remove(self._beside)

    @contextlib.contextmanager
    def _errors_name_the_target(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:  # an encoder's write names no file, or the hidden one
            error.filename = str(self._target)
            raise

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
    work: Work,
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
        if out is None:
            return Nameless(_canvas(shape, dtype, folder, max_resident, anywhere=False), work, ours=True)
        target = Path(path_text(out))
        _check_target(target, tile, overwrite)
        beside = target.absolute().parent
        cap = _usual_cap(shape, dtype, work) if max_resident is None else max_resident
        canvas = _canvas(shape, dtype, folder or beside, cap, anywhere=folder is None)
        return File(canvas, work, target, tile or _CHUNK, overwrite=overwrite)
    fits = len(out.shape) == len(shape) and all(has >= need for has, need in zip(out.shape, shape, strict=True))
    if not fits or out.shape[2:] != shape[2:] or not np.can_cast(dtype, out.dtype, "safe"):
        raise ValueError(f"out has shape {tuple(out.shape)} and type {out.dtype}: no room for {shape} of {dtype}")
    if isinstance(out, Scratch):
        return Nameless(out, work, ours=False)
    if not out.flags.writeable:
        raise ValueError("out is a read-only array")
    return Given(out, work)


def _canvas(
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    folder: str | os.PathLike[str] | None,
    max_resident: int | str | None,
    *,
    anywhere: bool,
) -> Scratch:
    """Return a scratch; a sparse one where the place is right and nothing can be reserved."""
    try:
        return scratch(shape, dtype, folder, max_resident=max_resident, anywhere=anywhere)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        sparse = scratch(shape, dtype, folder, False, max_resident, anywhere=anywhere)
        _SPARSE.add(sparse)
        return sparse


def _rows_at_a_time(canvas: Scratch, work: Work, *, ours: bool) -> tuple[list[Share], Window | RowEvictor | None]:
    """Return what is written in which order, and what holds some rows of a canvas at a time.

    None: all of it fits, or too much is begun at a time. Tiles that are in memory are cut before that.
    """
    held, shares = canvas.memory_cap, work.shares
    if held is None and ours:
        held = _usual_cap(canvas.shape, canvas.dtype, work)
    if held is None or not shares or canvas.nbytes == 0:
        return shares, None
    rows = held * canvas.shape[0] // canvas.nbytes
    if span_of(shares) > rows * 3 // 4:
        shares = in_bands(shares, max(1, rows // 8), work.may_be_cut)
    if span_of(shares) > rows * 3 // 4:
        return work.shares, None
    covered = covered_rows(shares, canvas.shape[0])
    filled = np.flatnonzero(covered)
    if ours or (covered[filled[0] : filled[-1] + 1] == canvas.shape[1]).all():
        return shares, Window(canvas, covered, held * 7 // 8)
    return shares, RowEvictor(canvas, shares[0].top, rows * 7 // 8)


def _usual_cap(shape: tuple[int, ...], dtype: np.dtype[Any], work: Work) -> int | None:
    """Return the bytes of a canvas that are to be in memory where nobody asked for a cap; None: all of it.

    From an eighth of what is available on, who writes is held up by the kernel until the disk has taken most of it:
    there is nothing to gain by memory any more.
    """
    available, row = available_memory(), prod(shape[1:]) * dtype.itemsize
    if available is None or shape[0] * row <= available // 8:
        return None
    cap = max(min(_USUAL_CAP, available // 8), span_of(work.shares) * row * 3 // 2)
    return cap if cap <= available // 4 else None


def _check_target(target: Path, tile: tuple[int, int] | None, overwrite: bool) -> None:
    suffix = target.suffix
    if suffix not in _OURS + _TIFF + _ZARR:
        known = ", ".join(_OURS + _TIFF + _ZARR)
        raise ValueError(f"{target}: the end of its name must say the format: {known}")
    if not overwrite and os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "there is something already, and overwrite=True was not given", str(target))
    if tile is not None and any(extent <= 0 or (suffix in _TIFF and extent % 16) for extent in tile):
        raise ValueError(f"{target}: tiles must have pixels, and in a TIFF file multiples of 16 of them, not {tile}")
    if suffix in _TIFF:
        import tifffile  # noqa: F401 - what is missing is told now
    elif suffix in _ZARR:
        import zarr  # noqa: F401
