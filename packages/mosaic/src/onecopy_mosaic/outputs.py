"""Outputs of a mosaic: an array of the caller, an unnamed scratch file, or a file of one of four formats.

For files, tiles are pasted into a scratch file whose space is reserved, so that a full disk is an error before the
first tile is decoded. The scratch file becomes an ``.oc`` file without a copy. TIFF and Zarr are encoded from it at the
end, tile by tile, beside the target, and renamed to it when they are complete. The space of a TIFF is reserved first
too; that of a Zarr array is not known before it is compressed.
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
from onecopy.images.image import NAME, About
from onecopy.page_cache import available_memory
from onecopy.scratch_arrays import Scratch, scratch
from onecopy_mosaic.files import max_tiff_bytes, write_tiff, write_zarr
from onecopy_mosaic.regions import covered_rows, in_bands, span_of
from onecopy_mosaic.row_evictor import RowEvictor
from onecopy_mosaic.window import Window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Self

    from numpy.typing import NDArray

    from onecopy_mosaic.regions import Rectangle, Share

_CHUNK = (512, 512)
_USUAL_CAP = 512 << 20
"""Bytes of a large canvas that may be in memory by default."""
_SPARSE: WeakSet[Scratch] = WeakSet()
"""Canvases without reserved space: they are written by system calls, as a full disk would be SIGBUS in a mapping."""
_OURS, _TIFF, _ZARR = (".oc", ".safetensors"), (".tif", ".tiff"), (".zarr",)


class Finished(NamedTuple):
    """Where the pixels are after `Output.finish`."""

    array: NDArray[Any] | None
    path: str | None
    scratch: Scratch | None
    close: Callable[[], None]


class Work(NamedTuple):
    """The tiles that an output is written from."""

    shares: list[Share]
    """Visible parts of the tiles, from top to bottom."""
    may_be_cut: Callable[[int], bool]
    """Returns whether a tile may be loaded more than once."""


class Output(ABC):
    """A canvas that is filled once, by any number of threads. Leaving the context after an error removes the output."""

    shares: list[Share]
    """The shares to write, in this order; they may be cut into smaller ones than those of the `Work`."""

    @abstractmethod
    def put(self, place: Rectangle, pixels: NDArray[Any]) -> None:
        """Write pixels into a rectangle."""

    def has_room(self, bottom: int) -> bool:  # noqa: ARG002 - memory of the caller has no bound
        """Return whether `expect` finds space for rows up to this one without another row being finished before."""
        return True

    def expect(self, bottom: int) -> None:  # noqa: B027
        """Announce writes up to this row; waits until there is space."""

    def finished(self, row: int) -> None:  # noqa: B027
        """Declare the rows above this one final."""

    @abstractmethod
    def finish(self) -> Finished:
        """Complete the output."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give_up()

    def give_up(self) -> None:  # noqa: B027 - there need not be anything
        """Release what `finish` has not taken over."""


class ArrayOutput(Output):
    """Output into an array of the caller."""

    def __init__(self, array: NDArray[Any], work: Work) -> None:
        self._array, self.shares = array, work.shares

    def put(self, place: Rectangle, pixels: NDArray[Any]) -> None:
        """Write pixels into a rectangle."""
        self._array[place.top : place.bottom, place.left : place.right] = pixels

    def finish(self) -> Finished:
        """Complete the output."""
        return Finished(self._array, None, None, lambda: None)


class ScratchOutput(Output):
    """Output into a scratch file, of the caller or created here."""

    def __init__(self, canvas: Scratch, work: Work, *, ours: bool) -> None:
        self._canvas, self._ours = canvas, ours
        self.shares, self._rows = _rows_at_a_time(canvas, work, ours=ours)
        self._through_memory = canvas.memory_cap is None and canvas not in _SPARSE

    def put(self, place: Rectangle, pixels: NDArray[Any]) -> None:
        """Write pixels into a rectangle: through the mapping, or by system calls with a memory cap or without space."""
        if self._rows is not None:
            self._rows.put(place, pixels)
        elif self._through_memory:
            self._canvas.array[place.top : place.bottom, place.left : place.right] = pixels
        else:
            self._canvas.write((slice(place.top, place.bottom), slice(place.left, place.right)), pixels)

    def has_room(self, bottom: int) -> bool:
        """Return whether `expect` finds space for rows up to this one without another row being finished before."""
        return self._rows is None or self._rows.has_room(bottom)

    def expect(self, bottom: int) -> None:
        """Announce writes up to this row; waits until there is space."""
        if self._rows is not None:
            self._rows.expect(bottom)

    def finished(self, row: int) -> None:
        """Declare the rows above this one final."""
        if self._rows is not None:
            self._rows.finished(row)

    def finish(self) -> Finished:
        """Complete the output."""
        if self._rows is not None:
            self._rows.finish()
        ours, self._ours = self._ours, False
        return Finished(self._canvas.array, None, self._canvas, self._canvas.close if ours else lambda: None)

    def give_up(self) -> None:
        """Release what `finish` has not taken over."""
        if self._rows is not None:
            self._rows.close()
        if self._ours:
            self._canvas.close()


class FileOutput(ScratchOutput):
    """Output into a file: a scratch file that becomes it, or that it is encoded from."""

    def __init__(self, canvas: Scratch, work: Work, target: Path, tile: tuple[int, int], *, overwrite: bool) -> None:
        super().__init__(canvas, work, ours=True)
        self._target, self._tile, self._overwrite = target, tile, overwrite
        self._beside = path_beside(target)
        if target.suffix in _TIFF and canvas not in _SPARSE:
            try:
                with self._errors_name_the_target(), self._beside.open("wb") as file:
                    os.posix_fallocate(file.fileno(), 0, max_tiff_bytes(canvas, tile))
            except BaseException:
                self.give_up()
                raise

    def finish(self) -> Finished:
        """Write the file, and release the scratch file."""
        if self._rows is not None:
            self._rows.finish()
        path, suffix = str(self._target), self._target.suffix
        if suffix in _OURS:
            return self._save(path)
        with self._errors_name_the_target():
            (write_zarr if suffix in _ZARR else write_tiff)(self._canvas, self._beside, self._target.name, self._tile)
        replace(self._beside, self._target, overwrite=self._overwrite)
        return Finished(None, path, None, lambda: None)

    def give_up(self) -> None:
        """Release what `finish` has not taken over."""
        super().give_up()
        remove(self._beside)

    @contextlib.contextmanager
    def _errors_name_the_target(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:  # errors of encoders have no file name, or that of the temporary file
            error.filename = str(self._target)
            raise

    def _save(self, path: str) -> Finished:
        from onecopy.images.opening import open as open_image

        shape = self._canvas.shape
        about = About(0, (shape,), "YXS"[: len(shape)], "")
        self._canvas.save(path, NAME, about.metadata(""))
        image = open_image(path)
        return Finished(image.array, path, None, image.close)


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
    """Return the output for a canvas; errors of `out` are raised before any tile is decoded.

    Raises
    ------
    ValueError
        `out` is an array that is too small, of another dtype or read-only, or a path with an unknown suffix.
    FileExistsError
        The path exists.
    OSError
        There is no space for the canvas.
    ImportError
        The library of the format is not installed.
    """
    if out is None or isinstance(out, str | os.PathLike):
        if out is None:
            return ScratchOutput(_canvas(shape, dtype, folder, max_resident, anywhere=False), work, ours=True)
        target = Path(path_text(out))
        _check_target(target, tile, overwrite)
        beside = target.absolute().parent
        cap = _usual_cap(shape, dtype, work) if max_resident is None else max_resident
        canvas = _canvas(shape, dtype, folder or beside, cap, anywhere=folder is None)
        return FileOutput(canvas, work, target, tile or _CHUNK, overwrite=overwrite)
    fits = len(out.shape) == len(shape) and all(has >= need for has, need in zip(out.shape, shape, strict=True))
    if not fits or out.shape[2:] != shape[2:] or not np.can_cast(dtype, out.dtype, "safe"):
        raise ValueError(
            f"out does not fit: it has shape {tuple(out.shape)} and dtype {out.dtype}, but the mosaic has {shape} "
            f"and {dtype}"
        )
    if isinstance(out, Scratch):
        return ScratchOutput(out, work, ours=False)
    if not out.flags.writeable:
        raise ValueError("out is a read-only array: give a writable one")
    return ArrayOutput(out, work)


def _canvas(
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    folder: str | os.PathLike[str] | None,
    max_resident: int | str | None,
    *,
    anywhere: bool,
) -> Scratch:
    """Return a scratch file; a sparse one if the file system cannot reserve space."""
    try:
        return scratch(shape, dtype, folder, max_resident=max_resident, anywhere=anywhere)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        sparse = scratch(shape, dtype, folder, False, max_resident, anywhere=anywhere)
        _SPARSE.add(sparse)
        return sparse


def _rows_at_a_time(canvas: Scratch, work: Work, *, ours: bool) -> tuple[list[Share], Window | RowEvictor | None]:
    """Return the shares in the order of writing, and the object that limits the rows in memory.

    The second is None if the canvas fits, or if too many rows are partly written at a time; tiles in memory are cut to
    avoid that.
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
    """Return the default of `max_resident` in bytes; None if the whole canvas may be in memory.

    Above an eighth of the available memory, the kernel throttles writers to the speed of the disk, so that more memory
    does not make writing faster.
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
        raise ValueError(f"{target}: unknown format: the suffix must be one of {known}")
    if not overwrite and os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "the path exists: give overwrite=True to replace it", str(target))
    if tile is not None and any(extent <= 0 or (suffix in _TIFF and extent % 16) for extent in tile):
        raise ValueError(f"{target}: tile extents must be positive, and multiples of 16 in a TIFF file, not {tile}")
    if suffix in _TIFF:
        import tifffile  # noqa: F401 - a missing library is an error before the work
    elif suffix in _ZARR:
        import zarr  # noqa: F401
