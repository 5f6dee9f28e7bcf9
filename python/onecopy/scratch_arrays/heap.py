"""`alloc`: small arrays on the heap, large ones in scratch files, with the same methods."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

from onecopy import _core
from onecopy.arguments import byte_count, non_negative
from onecopy.scratch_arrays.array_protocol import ArrayProtocol, Kind, kind_of
from onecopy.scratch_arrays.regions import Region, box_of
from onecopy.scratch_arrays.reports import Saved, ScratchMemory
from onecopy.scratch_arrays.writable import Scratch, as_bytes, scratch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import ArrayLike, DTypeLike, NDArray

    from onecopy.scratch_arrays.sealed import SealedArray

__all__ = ["HeapArray", "alloc"]

HEAP_BELOW = "64 MiB"


def alloc(
    shape: int | Iterable[int],
    dtype: DTypeLike,
    heap_below: int | str | None = None,
    *,
    dir: str | os.PathLike[str] | None = None,  # noqa: A002 - as `scratch` has it
    max_resident: int | str | None = None,
) -> Scratch | HeapArray:
    """Make a writable array of zeros: small ones on the heap, large ones in a scratch file.

    Parameters
    ----------
    shape, dtype
        As for `scratch`.
    heap_below
        Arrays of fewer bytes are on the heap: a number, or text such as "64 MiB". None is ``$ONECOPY_HEAP_BELOW``, or
        64 MiB if that is not set. With 0, no array is on the heap.
    dir, max_resident
        Arguments of `scratch` for arrays in scratch files.

    Returns
    -------
    Scratch or HeapArray
        Both have the same methods; reports of a `HeapArray` have the reason that it is on the heap.

    Raises
    ------
    OSError
        The scratch file cannot be made; see `scratch`.
    ValueError
        `heap_below` or ``$ONECOPY_HEAP_BELOW`` is not a size.

    Examples
    --------
    >>> import onecopy as oc
    >>> from onecopy.scratch_arrays import alloc
    >>> type(alloc(1000, "f4")).__name__, type(alloc(1000, "f4", heap_below="1 kB")).__name__
    ('HeapArray', 'Scratch')
    """
    below = os.environ.get("ONECOPY_HEAP_BELOW", HEAP_BELOW) if heap_below is None else heap_below
    kind = kind_of(shape, dtype)
    if kind.nbytes < byte_count("heap_below", below):
        return HeapArray(kind)
    return scratch(kind.shape, kind.dtype, dir, max_resident=max_resident)


class HeapArray(ArrayProtocol):
    """A writable array on the heap with the methods of `Scratch`. `alloc` returns it."""

    path = ""
    """Empty: a heap array has no folder."""
    reason = "on the heap, because it is small"
    """A sentence on where the array is and why."""

    def __init__(self, kind: Kind) -> None:
        import numpy as np

        self._kind = kind
        # numpy itself requests huge pages for arrays of 4 MiB and more.
        self._array: NDArray[Any] | None = np.zeros(kind.shape, kind.dtype)
        self._file: Scratch | None = None

    @property
    def array(self) -> NDArray[Any]:
        """The array in C order, writable until `seal`."""
        if self._array is None:
            raise ValueError("the array is closed")
        return self._array

    def write(self, index: Region, values: ArrayLike) -> None:
        """Write values into a part of the array; see `Scratch.write`. PermissionError if sealed."""
        if self.sealed:
            raise PermissionError("the array is sealed")
        box = box_of(index, self.shape)
        part = tuple(slice(start, start + length) for start, length in zip(box.starts, box.lengths, strict=True))
        import numpy as np

        self.array[part] = np.broadcast_to(np.asarray(values), box.kept).reshape(box.lengths)

    def write_direct(self, offset: int, values: NDArray[Any]) -> None:
        """Write values at a byte offset; see `Scratch.write_direct`."""
        if self.sealed:
            raise PermissionError("the array is sealed")
        import numpy as np

        start, given, whole = non_negative("offset", offset), as_bytes(values), self.array.reshape(-1).view(np.uint8)
        if start > len(whole) - len(given):
            raise OSError(errno.EINVAL, f"bytes [{start}, +{len(given)}) of {len(whole)}")
        whole[start : start + len(given)] = given

    def release(self, region: Region = None) -> _core.ReleaseReport:
        """Do nothing, and return a report with the reason: heap memory cannot be evicted."""
        box_of(region, self.shape)
        return _core.ReleaseReport(self.reason)

    def prefetch(self, region: Region = None) -> _core.ReleaseReport:
        """Do nothing, and return a report with the reason."""
        return self.release(region)

    def flush(self) -> None:
        """Do nothing: heap memory has no file."""

    def memory(self) -> ScratchMemory:
        """Return the memory report: no bytes are shared; the other numbers are unknown (None)."""
        return ScratchMemory(None, None, None, 0, None, 0)

    def seal(self) -> SealedArray:
        """Copy the array into a scratch file and return it as a read-only array for other processes."""
        return self._in_file().seal()

    def save(
        self,
        path: str | os.PathLike[str],
        name: str = "data",
        metadata: Mapping[str, str] | None = None,
        *,
        checksum: bool = True,
        durable: bool = True,  # noqa: ARG002 - `onecopy.save` always flushes
    ) -> Saved:
        """Write the array to a safetensors file; see `Scratch.save`."""
        from onecopy.arrays.saving import save

        save(path, {name: self.array}, metadata, checksum=checksum)
        return Saved(os.fspath(path), copied=True, reason=self.reason)

    def _in_file(self) -> Scratch:
        if self._file is None:
            self._file = scratch(self.shape, self.dtype)
            self._file.write(None, self.array)
            self.array.flags.writeable = False
        return self._file

    @property
    def sealed(self) -> bool:
        """Whether `seal` was called."""
        return self._file is not None

    def close(self) -> None:
        """Release the memory; it is freed with the last view. Closing twice has no effect."""
        self._array = None
        if self._file is not None:
            self._file.close()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._array is None

    def __repr__(self) -> str:
        return f"<onecopy.HeapArray {self.shape} {self.dtype} {'closed' if self.closed else 'on the heap'}>"
