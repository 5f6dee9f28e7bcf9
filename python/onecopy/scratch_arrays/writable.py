"""`scratch` and `Scratch`: writable arrays in unnamed files."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from onecopy import _core
from onecopy.arguments import byte_count, non_negative, path_text
from onecopy.arrays.saving import CHUNK
from onecopy.errors import FormatError
from onecopy.scratch_arrays.array_protocol import ArrayProtocol, Kind, kind_of
from onecopy.scratch_arrays.regions import Region, box_of, ranges_of, run_axis, strides_of
from onecopy.scratch_arrays.reports import ReleaseReport, Saved, ScratchMemory
from onecopy.scratch_arrays.sealed import SealedArray

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from numpy.typing import ArrayLike, DTypeLike, NDArray

    from onecopy.page_cache import WarmReport

__all__ = ["Scratch", "scratch"]

_NEEDS_A_COPY = (errno.EXDEV, errno.EOPNOTSUPP, errno.EOVERFLOW)
"""Errors of linking: another file system; unnamed files cannot be linked; the header does not fit before the data."""


def as_bytes(values: NDArray[Any]) -> NDArray[Any]:
    """Return the bytes of the values in C order, as a view if they are contiguous, else as a copy."""
    import numpy as np

    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def scratch(
    shape: int | Iterable[int],
    dtype: DTypeLike,
    dir: str | os.PathLike[str] | None = None,  # noqa: A002 - as the standard library's tempfile calls it
    reserve: bool = True,
    max_resident: int | str | None = None,
    *,
    anywhere: bool = False,
    name: str = "scratch",
) -> Scratch:
    """Make a writable array of zeros in an unnamed file; the array may be larger than memory.

    The kernel frees the file when the last process that has it open ends, also when that is killed. Written pages are
    dirty page cache: the kernel writes them to disk and evicts them without swap.

    Parameters
    ----------
    shape
        Extents of the axes, or one extent.
    dtype
        A little-endian element type of safetensors, including the types of ml_dtypes.
    dir
        A folder on a local disk. None: ``$ONECOPY_SCRATCH``; if that is not set, the folder for temporary files if it
        is on a local disk, else ``/var/tmp``.
    reserve
        True reserves the disk space now: a full disk raises OSError here and cannot fail later. False makes a sparse
        file: if the disk is full when a new page of `Scratch.array` is touched, the kernel **ends the process**
        (SIGBUS); `Scratch.write` raises OSError instead.
    max_resident
        Maximum bytes that `Scratch.write` leaves in memory, as a number or text such as "512 MiB", at least 1 MiB. The
        oldest written pages are written to disk and evicted. Writes to `Scratch.array` are not limited:
        `Scratch.memory` reports the excess, which the next `Scratch.write` evicts. None: no limit.
    anywhere
        Also allow tmpfs, where the file consumes memory, and network and user-space file systems.
    name
        Name of the array in error messages.

    Raises
    ------
    OSError
        ENOSPC or EDQUOT: the disk is full; the message has the needed and free bytes. EOPNOTSUPP: the file system is
        in memory, on a network or in user space, or cannot reserve space. Other errors of the folder. Nothing is left
        behind.
    TypeError, ValueError
        safetensors does not have the dtype, or the shape, `dir` or `max_resident` is not valid.

    Examples
    --------
    >>> import onecopy as oc
    >>> with oc.scratch((4, 1000), "u2", max_resident="64 MiB") as canvas:
    ...     canvas.write(0, 500)           # one row, with at most 64 MiB in memory
    ...     canvas.array[3, :10] = 9       # a numpy array
    ...     image = canvas.seal()          # read-only; other processes can map it
    >>> image.array[0, 0], image.array[3, 0]
    (np.uint16(500), np.uint16(9))
    """
    kind = kind_of(shape, dtype)
    cap = None if max_resident is None else byte_count("max_resident", max_resident)
    folder = "" if dir is None else path_text(dir)
    try:
        head = _core.scratch_head(kind.name, list(kind.shape))
    except (FormatError, TypeError):  # too large for a safetensors header, but a sparse file may hold it
        head = 0
    size = non_negative("the size", max(kind.nbytes, 1))
    core = _core.create_scratch(
        size, folder=folder, name=name, reserve=reserve, anywhere=anywhere, head=head, max_resident=cap
    )
    return Scratch(core, kind)


class Scratch(ArrayProtocol):
    """A writable array in an unnamed file. `scratch` returns it.

    Threads: any number of threads may write to different regions. A forked child shares the array: both processes see
    each other's writes, and each applies `max_resident` to its own. Fork while no thread is in a call. It cannot be
    pickled; the result of `seal` can.
    """

    def __init__(self, core: _core.ScratchFile, kind: Kind) -> None:
        self._core = core
        self._kind = kind
        self._array: NDArray[Any] | None = None
        self._sealed: SealedArray | None = None

    # --- writing and eviction -------------------------------------------------------------------------------------

    @property
    def array(self) -> NDArray[Any]:
        """The array in C order, writable until `seal`. It keeps the memory alive after `close`."""
        if self._array is None:
            self._array = self._kind.over(self._core.view())
        return self._array

    def write(self, index: Region, values: ArrayLike) -> None:
        """Write values into a part of the array with at most `max_resident` bytes of it in memory.

        Parameters
        ----------
        index
            Integers and slices without steps on the leading axes; None or ``...`` is the whole array.
        values
            Values as for ``array[index] = values`` in numpy: of the shape of the part, or broadcast to it. They are
            converted in blocks of 16 MiB.

        Raises
        ------
        OSError
            The disk failed, or is full and the space was not reserved.
        PermissionError
            The array is sealed.
        IndexError, ValueError, TypeError
            The index is out of range; it has a step, or the values have another shape; it is not an index.

        Examples
        --------
        >>> import numpy as np, onecopy as oc
        >>> with oc.scratch((3, 4), "f4") as canvas:
        ...     canvas.write((slice(1, 3), slice(2, 4)), [[1, 2], [3, 4]])
        ...     canvas.array[1:]
        array([[0., 0., 1., 2.],
               [0., 0., 3., 4.]], dtype=float32)
        """
        import numpy as np

        box = box_of(index, self.shape)
        strides = strides_of(self.shape, self.dtype.itemsize)
        given = np.broadcast_to(np.asarray(values), box.kept).reshape(box.lengths)
        first = sum(start * stride for start, stride in zip(box.starts, strides, strict=True))
        _BlockWriter(self._core, self._kind, strides, run_axis(box.lengths, self.shape)).write(first, 0, given)

    def write_direct(self, offset: int, values: NDArray[Any]) -> None:
        """Write values to disk without leaving pages in memory, for arrays larger than memory written in order.

        Whole pages bypass the page cache (``O_DIRECT``) if the file system supports it and the address of `values` and
        `offset` have the same remainder by 4096. Otherwise they are written through the page cache and evicted, which
        costs two to three times the CPU time. Each call waits for the disk: write megabytes per call, in two threads.

        Parameters
        ----------
        offset
            Byte offset in the array; multiples of 4096 are page boundaries of the file.
        values
            An array of any shape and dtype; its bytes are written in C order.

        Raises
        ------
        OSError
            The disk failed, or is full and the space was not reserved; EINVAL: the bytes end after the array.
        PermissionError
            The array is sealed.
        ValueError
            The offset is negative.

        Examples
        --------
        >>> import numpy as np, onecopy as oc
        >>> with oc.scratch((3, 4096), "u1") as canvas:
        ...     canvas.write_direct(4096, np.full(8192, 7, "u1"))
        ...     canvas.array.sum(axis=1)
        array([    0, 28672, 28672], dtype=uint64)
        """
        self._core.write_direct(non_negative("offset", offset), as_bytes(values))

    def release(self, region: Region = None) -> ReleaseReport:
        """Write a part to disk and evict its pages, rounded outwards to whole pages.

        Regions of more than 16384 separate ranges include the bytes between them. Pages that the kernel does not evict
        raise no error: the report has their bytes and the reason. Write errors of the disk are raised by `flush`.

        Examples
        --------
        >>> import onecopy as oc
        >>> with oc.scratch((1024, 4096), "u1") as canvas:
        ...     canvas.array[:] = 1
        ...     canvas.release(slice(0, 512)).bytes
        2097152
        """
        ranges = ranges_of(region, self.shape, self.dtype.itemsize)
        if self._sealed is not None and not self._sealed.closed:
            _core.evict(self._sealed.core, ranges)  # pages that this mapping references would stay in memory
        return self._core.release(ranges)

    def prefetch(self, region: Region = None) -> WarmReport:
        """Read a part into memory, at most `max_resident` bytes; see `onecopy.warm`."""
        return self._core.prefetch(ranges_of(region, self.shape, self.dtype.itemsize))

    def flush(self) -> None:
        """Write all dirty pages to disk. OSError (EIO, ENOSPC) if this or an earlier write-back lost bytes."""
        self._core.flush()

    def memory(self) -> ScratchMemory:
        """Return the memory of the array; numbers that the kernel does not report are None."""
        found = self._core.memory()
        return ScratchMemory(found.resident, found.dirty, found.clean, found.shared, found.cap, found.over)

    # --- sealing and saving --------------------------------------------------------------------------------------

    def seal(self) -> SealedArray:
        """Make the array read-only, and return it as a `SealedArray` that other processes can map.

        Afterwards `write` raises PermissionError and `array` is read-only. Views taken from `array` before keep numpy's
        writable flag, but their pages are read-only: writing to such a view ends the process (SIGSEGV). Each call
        returns the same object.

        Raises
        ------
        OSError
            EIO: an earlier write-back lost bytes.
        """
        if self._sealed is None:
            core = self._core.seal()
            if self._array is not None:
                self._array.flags.writeable = False
            self._sealed = SealedArray(core, self._kind, self._core.head)
        return self._sealed

    def save(
        self,
        path: str | os.PathLike[str],
        name: str = "data",
        metadata: Mapping[str, str] | None = None,
        *,
        checksum: bool = True,
        durable: bool = True,
    ) -> Saved:
        """Seal the array and link its file to `path`, as a safetensors file of one array, without a copy.

        The file appears complete or not at all. It is flushed first; with ``durable=False`` it is not, and may have any
        content after a power failure (for files that are rebuilt then, as those of a `Store`). Checksums read the data
        once. The array is copied if `path` is on another file system, if the file system cannot link unnamed files, or
        if name and metadata do not fit before the data (4 KiB always fit).

        Returns
        -------
        Saved
            Whether the array was copied, with the reason.

        Raises
        ------
        OSError
            The file cannot be written, as for `onecopy.save`.
        FileExistsError
            The array was saved without a copy before.
        FormatError
            The format does not allow the name or the metadata.

        Examples
        --------
        >>> import onecopy as oc, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> with oc.scratch((2, 2), "f4", folder) as canvas:
        ...     canvas.array[:] = 1.5
        ...     _ = canvas.save(f"{folder}/image.safetensors")
        >>> oc.open(f"{folder}/image.safetensors", verify=True)["data"].sum()
        np.float32(6.0)
        """
        target, texts = path_text(path), dict(metadata or {})
        sealed = self.seal()
        if self.nbytes == 0:
            self._copy_to(target, name, texts, sealed, checksum=checksum, durable=durable)
            return Saved(target, copied=True, reason="the array has no bytes")
        try:
            self._core.publish(
                target,
                name=name,
                dtype=self._kind.name,
                shape=list(self.shape),
                metadata=texts,
                checksum=checksum,
                durable=durable,
            )
        except OSError as error:
            if error.errno not in _NEEDS_A_COPY:
                raise
            self._copy_to(target, name, texts, sealed, checksum=checksum, durable=durable)
            return Saved(target, copied=True, reason=f"copied: {error.strerror}")
        return Saved(target, copied=False, reason="the scratch file itself, in place")

    def _copy_to(
        self, target: str, name: str, metadata: dict[str, str], sealed: SealedArray, *, checksum: bool, durable: bool
    ) -> None:
        spec = (name, self._kind.name, self.shape)
        writer = _core.make_writer(target, [spec], metadata=metadata, align=None, checksum=checksum, durable=durable)
        for start in range(0, self.nbytes, CHUNK):
            length = min(CHUNK, self.nbytes - start)
            writer.write(sealed.core.view(start, length))
            if self.memory_cap is not None:
                _core.evict(sealed.core, [(start, length)])
        writer.commit()

    # --- the file -------------------------------------------------------------------------------------------------

    @property
    def memory_cap(self) -> int | None:
        """``max_resident`` in bytes; None without a limit."""
        return self._core.max_resident

    @property
    def path(self) -> str:
        """Path of the folder of the unnamed file."""
        return self._core.folder

    @property
    def reason(self) -> str:
        """A sentence on why the file is in this folder."""
        return self._core.reason

    @property
    def sealed(self) -> bool:
        """Whether `seal` was called."""
        return self._core.sealed

    def close(self) -> None:
        """Release the file; its space is freed with the last view and sealed array. Closing twice has no effect."""
        self._array = self._sealed = None
        self._core.close()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._core.closed

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("cannot pickle a writable scratch array: pass the result of seal() to other processes")

    def __repr__(self) -> str:
        state = "closed" if self.closed else "sealed" if self.sealed else f"in {self.path}"
        return f"<onecopy.Scratch {self.shape} {self.dtype} {state}>"


class _BlockWriter:
    """Writes values to a file in blocks of at most 16 MiB."""

    def __init__(self, core: _core.ScratchFile, kind: Kind, strides: tuple[int, ...], run: int) -> None:
        self.core = core
        self.dtype = kind.dtype
        self.strides = strides
        self.run = run  # first axis from which the part is contiguous in the file

    def write(self, offset: int, axis: int, values: NDArray[Any]) -> None:
        """Write `values`, whose first axis is `axis` of the array, at the byte offset of their first element."""
        if values.size == 0:
            return
        size = values.size * self.dtype.itemsize
        if axis + 1 < self.run or (size > CHUNK and values.shape[0] == 1):
            for row in values:
                self.write(offset, axis + 1, row)
                offset += self.strides[axis]
            return
        rows = len(values) if values.ndim else 1
        step = max(1, CHUNK * rows // size)
        if step < rows:
            for start in range(0, rows, step):
                self.write(offset + start * self.strides[axis], axis, values[start : start + step])
            return
        block = as_bytes(values.astype(self.dtype, copy=False))
        if axis >= self.run:
            self.core.write(offset, block)
        else:
            self.core.write_rows(block, offset=offset, stride=self.strides[axis], count=rows)
