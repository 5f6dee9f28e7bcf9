"""`alloc`: small arrays on the heap, large ones in scratch files, with the same face."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

from onecopy import _core
from onecopy.arguments import byte_count, non_negative
from onecopy.scratch_arrays.array_protocol import ArrayProtocol, Kind, kind_of
from onecopy.scratch_arrays.regions import Region, box_of
from onecopy.scratch_arrays.reports import Saved, ScratchMemory
from onecopy.scratch_arrays.writable import Scratch, plain_bytes, scratch

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
    """Make a writable array of zeros where its size belongs: on the heap, or in a scratch file.

    Parameters
    ----------
    shape, dtype
        As of `scratch`.
    heap_below
        Bytes, or a text: smaller arrays are on the heap. None: ``$ONECOPY_HEAP_BELOW``, else 64 MiB. 0: never.
    dir, max_resident
        Of a scratch file.

    Returns
    -------
    Scratch or HeapArray
        With the same methods; what they tell of the heap says so.

    Raises
    ------
    OSError
        As `scratch`.
    ValueError
        A size that is none, also in the environment.

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
    """A writable array on the heap, with the face of a `Scratch`; made by `alloc`."""

    path = ""
    reason = "on the heap, because it is small"

    def __init__(self, kind: Kind) -> None:
        import numpy as np

        self._kind = kind
        # Of 4 MiB and more, numpy asks for huge pages itself.
        self._array: NDArray[Any] | None = np.zeros(kind.shape, kind.dtype)
        self._home: Scratch | None = None

    @property
    def array(self) -> NDArray[Any]:
        """The array: writable until `seal`, in C order."""
        if self._array is None:
            raise ValueError("the array is closed")
        return self._array

    def write(self, index: Region, values: ArrayLike) -> None:
        """Write values into a part of the array; see `Scratch.write`. PermissionError when sealed."""
        if self.sealed:
            raise PermissionError("the array is sealed")
        box = box_of(index, self.shape)
        part = tuple(slice(start, start + length) for start, length in zip(box.starts, box.lengths, strict=True))
        import numpy as np

        self.array[part] = np.broadcast_to(np.asarray(values), box.kept).reshape(box.lengths)

    def write_direct(self, offset: int, values: NDArray[Any]) -> None:
        """Write values to where they begin, in bytes of the array; see `Scratch.write_direct`."""
        if self.sealed:
            raise PermissionError("the array is sealed")
        import numpy as np

        at, plain, whole = non_negative("offset", offset), plain_bytes(values), self.array.reshape(-1).view(np.uint8)
        if at > len(whole) - len(plain):
            raise OSError(errno.EINVAL, f"bytes [{at}, +{len(plain)}) of {len(whole)}")
        whole[at : at + len(plain)] = plain

    def release(self, region: Region = None) -> _core.ReleaseReport:
        """Release nothing, and say so: memory of the heap has no other place."""
        box_of(region, self.shape)
        return _core.ReleaseReport(self.reason)

    def prefetch(self, region: Region = None) -> _core.ReleaseReport:
        """Bring nothing in, and say so."""
        return self.release(region)

    def flush(self) -> None:
        """Do nothing: there is no disk."""

    def memory(self) -> ScratchMemory:
        """Return what is known: nobody shares it; how much of it was touched, the kernel does not tell."""
        return ScratchMemory(None, None, None, 0, None, 0)

    def seal(self) -> SealedArray:
        """End writing, and return a read-only array for other processes: copied into a scratch file, once."""
        return self._moved().seal()

    def save(
        self,
        path: str | os.PathLike[str],
        name: str = "data",
        metadata: Mapping[str, str] | None = None,
        *,
        checksum: bool = True,
        durable: bool = True,  # noqa: ARG002 - what is copied is flushed
    ) -> Saved:
        """Write it to a safetensors file of one array; see `Scratch.save`."""
        from onecopy.arrays.saving import save

        save(path, {name: self.array}, metadata, checksum=checksum)
        return Saved(os.fspath(path), copied=True, reason=self.reason)

    def _moved(self) -> Scratch:
        if self._home is None:
            self._home = scratch(self.shape, self.dtype)
            self._home.write(None, self.array)
            self.array.flags.writeable = False
        return self._home

    @property
    def sealed(self) -> bool:
        """True after `seal`."""
        return self._home is not None

    def close(self) -> None:
        """Let go of the memory; it goes with the last array. Closing twice is fine."""
        self._array = None
        if self._home is not None:
            self._home.close()

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._array is None

    def __repr__(self) -> str:
        return f"<onecopy.HeapArray {self.shape} {self.dtype} {'closed' if self.closed else 'on the heap'}>"
