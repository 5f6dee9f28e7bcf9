"""Writable arrays that may be larger than memory, in unnamed files with reserved space.

    import onecopy as oc

    canvas = oc.scratch((40_000, 40_000), "u2", max_resident="512 MiB")   # OSError here if the disk is full
    canvas.write(slice(0, 1000), rows)      # at most 512 MiB of the array stay in memory
    image = canvas.seal()                   # read-only; other processes map it without copying
    canvas.save("mosaic.safetensors")       # links the file to a name, without copying

The array consists of page cache: if memory is short, the kernel writes its pages to disk and evicts them; for heap
memory, this would require swap. The file has no name, so a killed process leaves nothing behind. `alloc` chooses
between the heap and a scratch file according to the size.

**When not to use it.** For arrays of a few megabytes, and for random writes to an array much larger than memory,
because each write waits for the disk. In containers that can write only to tmpfs, scratch files save no memory.

**Two ways to write.** `Scratch.write` uses system calls: it respects ``max_resident``, and raises OSError if the disk
fails; `Scratch.write_direct` leaves no pages in memory. `Scratch.array` is a NumPy array in a mapping: its memory is
not limited, and a failing disk ends the process (SIGBUS). A full disk does not, because space is reserved.

**Threads.** Any number of threads may write to different regions.
"""

from __future__ import annotations

import errno
import operator
import os
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, cast

from onecopy import _core, files
from onecopy._core import ReleaseReport
from onecopy.arrays.entries import is_raw, of_numpy, to_numpy
from onecopy.arrays.saving import CHUNK, save
from onecopy.arrays.scratch_indexing import Region, box_of, ranges_of, run_axis, strides_of
from onecopy.base.text import byte_count, non_negative, path_text, size
from onecopy.errors import FormatError
from onecopy.files.mapping import Closeable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy as np
    from numpy.typing import ArrayLike, DTypeLike, NDArray

    from onecopy.files.mapping import Identity
    from onecopy.files.page_cache import Range, WarmReport

__all__ = ["HeapArray", "ReleaseReport", "Saved", "Scratch", "ScratchMemory", "SealedArray", "alloc", "scratch"]


@dataclass(frozen=True)
class ScratchMemory:
    """A scratch array's memory in bytes, in whole pages. Numbers that the kernel does not report are None.

    Examples
    --------
    >>> print(ScratchMemory(resident=300_000_000, dirty=100_000_000, clean=200_000_000, shared=0, cap=None, over=0))
    300 MB in memory: 100 MB dirty, 200 MB clean; 0 B also mapped elsewhere; no cap
    """

    resident: int | None
    """Number of bytes of the array in the page cache, counted once for all processes."""
    dirty: int | None
    """Resident bytes that are not yet written back to disk."""
    clean: int | None
    """Resident bytes that are already on disk; the kernel evicts them when memory is short."""
    shared: int | None
    """Resident bytes that are also in another mapping."""
    cap: int | None
    """``max_resident`` in bytes, or None without a cap."""
    over: int | None
    """Resident bytes above the cap, from writes to `Scratch.array`, or 0 without a cap."""

    def __str__(self) -> str:
        parts = f"{_in_words(self.resident)} in memory: {_in_words(self.dirty)} dirty, {_in_words(self.clean)} clean"
        cap = "no cap" if self.cap is None else f"cap {size(self.cap)}, {_in_words(self.over)} over"
        return f"{parts}; {_in_words(self.shared)} also mapped elsewhere; {cap}"


@dataclass(frozen=True)
class Saved:
    """The result of saving an array."""

    path: str
    """Path of the saved file."""
    copied: bool
    """True if the array was copied; False if the scratch file itself was linked to the path."""
    reason: str
    """Why the array was or was not copied."""


def _in_words(nbytes: int | None) -> str:
    return "unknown" if nbytes is None else size(nbytes)


def kind_of(shape: int | Iterable[int], dtype: DTypeLike) -> tuple[tuple[int, ...], str, int]:
    """Return an array's shape, type and size in bytes. Raise ValueError or TypeError for an unsupported array."""
    import numpy as np

    extents = tuple(map(operator.index, shape)) if hasattr(shape, "__iter__") else (operator.index(shape),)
    if any(extent < 0 for extent in extents):
        raise ValueError(f"extents must not be negative: shape {extents}")
    wanted = np.dtype(dtype)
    name = of_numpy(wanted)
    if name is None or is_raw(name):
        raise TypeError(f"dtype {wanted} is not supported: safetensors has no such element type")
    if wanted != wanted.newbyteorder("<"):
        raise ValueError(f"dtype {wanted} is not supported: scratch arrays are little-endian")
    return extents, name, prod(extents) * wanted.itemsize


class ArrayProtocol(Closeable):
    """Base class of objects that provide their memory as a NumPy array."""

    _core: _core.Mapping | _core.ScratchFile

    def __init__(self, shape: tuple[int, ...], name: str) -> None:
        self.shape = shape
        """The extents of the axes."""
        self.dtype: np.dtype[Any] = to_numpy(name)
        """The element type."""
        self.nbytes = prod(shape) * self.dtype.itemsize
        """Size of the array in bytes."""
        self._name = name
        self._array: NDArray[Any] | None = None

    @property
    def array(self) -> NDArray[Any]:
        """The array in C order. It stays valid after `close`, but then this attribute raises ValueError.

        The array is writable in a `Scratch` until `seal`, and read-only in a `SealedArray`.
        """
        if self.closed:
            raise ValueError("the array is closed")
        if self._array is None:
            import numpy as np

            core = self._core
            memory = core.view(0, self.nbytes) if isinstance(core, _core.Mapping) else core.view()
            self._array = np.ndarray(self.shape, self.dtype, memory[: self.nbytes])
        return self._array

    def close(self) -> None:
        """Release the memory, which is freed when the last view is gone. Further calls do nothing."""
        self._array = None
        self._core.close()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._core.closed

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a 0-dimensional array has no length")
        return self.shape[0]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        import numpy as np

        array = self.array
        if dtype is not None and np.dtype(dtype) != array.dtype:
            if copy is False:
                raise ValueError(f"converting {array.dtype} to {np.dtype(dtype)} needs a copy, but copy is False")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __buffer__(self, flags: int) -> memoryview:  # from Python 3.12 on; before, use memoryview(x.array)
        return self.array.data

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # kDLCPU


class SealedArray(ArrayProtocol):
    """A read-only scratch array, returned by `Scratch.seal`.

    Its pickle is a handle of about a hundred bytes. While the process that pickled the array has it open, unpickling
    the handle in another process of the same user maps the same pages without copying. Afterwards, unpickling raises
    FileNotFoundError. `onecopy.warm`, `evict` and `residency` accept it.

    Examples
    --------
    >>> import onecopy as oc, pickle
    >>> with oc.scratch((2, 3), "u2") as canvas:
    ...     canvas.array[:] = 7
    ...     sealed = canvas.seal()
    >>> pickle.loads(pickle.dumps(sealed)).array.sum()
    np.uint64(42)
    >>> sealed.array[0, 0] = 1
    Traceback (most recent call last):
        ...
    ValueError: assignment destination is read-only
    """

    def __init__(self, core: _core.Mapping, shape: tuple[int, ...], name: str, head: int) -> None:
        super().__init__(shape, name)
        self._core: _core.Mapping = core
        self._head = head

    @property
    def core(self) -> _core.Mapping:
        """The mapping as an object of the compiled module, for `onecopy.files.page_cache`."""
        return self._core

    @property
    def path(self) -> str:
        """Path of the unnamed file in ``/proc``, which is valid while this process has the file open."""
        return f"/proc/{os.getpid()}/fd/{self._core.fileno()}"

    def __reduce__(self) -> tuple[object, ...]:
        return _attach, (self.path, self._core.identity, self._head, self._name, self.shape)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "sealed"
        return f"<onecopy.SealedArray {self.shape} {self.dtype} {state}>"


def _attach(path: str, identity: Identity, head: int, name: str, shape: tuple[int, ...]) -> SealedArray:
    """Map an array that another process has sealed."""
    nbytes = prod(shape) * to_numpy(name).itemsize
    try:
        core = _core.open_mapping(path, offset=head, length=max(nbytes, 1), expected=identity)
    except PermissionError:
        raise
    except OSError as error:
        process = path.split("/")[2]
        reason = f"cannot map the sealed array: process {process} has ended or has closed it"
        raise FileNotFoundError(errno.ENOENT, reason, path) from error
    return SealedArray(core, shape, name, head)


_NEEDS_A_COPY = (errno.EXDEV, errno.EOPNOTSUPP, errno.EOVERFLOW)
"""Errors when linking: another file system, no support for linking unnamed files, or a header that is too large."""


def as_bytes(values: NDArray[Any]) -> NDArray[Any]:
    """Return the values' bytes in C order, as a view if they are contiguous, or otherwise as a copy."""
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
    """Create a writable array of zeros in an unnamed file. The array may be larger than memory.

    The kernel frees the file when the last process that has it open ends, even if it is killed. Written pages are dirty
    page cache: the kernel writes them to disk and evicts them without swap.

    Parameters
    ----------
    shape
        Extents of the axes, or one extent.
    dtype
        A little-endian element type of safetensors, including the types of ml_dtypes.
    dir
        A folder on a local disk. None: ``$ONECOPY_SCRATCH``, or if it is not set, the folder for temporary files, or
        ``/var/tmp`` if that folder is not on a local disk.
    reserve
        True: reserve the disk space now. If the disk is full, OSError is raised here; later writes cannot fail for lack
        of space. False: create a sparse file. If the disk is full when a new page of `Scratch.array` is touched, the
        kernel **ends the process** (SIGBUS); `Scratch.write` raises OSError instead.
    max_resident
        Maximum bytes that `Scratch.write` leaves in memory, as a number or text such as "512 MiB", at least 1 MiB. The
        oldest pages are written to disk and evicted. Writes to `Scratch.array` are not limited: `Scratch.memory`
        reports the excess, which the next `Scratch.write` evicts. None: no limit.
    anywhere
        Whether to also allow tmpfs, where the file consumes memory, and network and user-space file systems.
    name
        Name of the array in error messages.

    Raises
    ------
    OSError
        ENOSPC or EDQUOT: the disk is full; the message states the needed and free bytes. EOPNOTSUPP: the file system
        is in memory, on a network or in user space, or cannot reserve space. Other errors: the folder cannot be used.
    TypeError, ValueError
        safetensors lacks the dtype, or the shape, `dir` or `max_resident` is invalid.

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
    extents, kind, nbytes = kind_of(shape, dtype)
    cap = None if max_resident is None else byte_count("max_resident", max_resident)
    folder = "" if dir is None else path_text(dir)
    try:
        head = _core.scratch_head(kind, list(extents))
    except (FormatError, TypeError):  # too large for a safetensors header, but not for a sparse file
        head = 0
    size = non_negative("the size", max(nbytes, 1))
    core = _core.create_scratch(
        size, folder=folder, name=name, reserve=reserve, anywhere=anywhere, head=head, max_resident=cap
    )
    return Scratch(core, extents, kind)


class Scratch(ArrayProtocol):
    """A writable array in an unnamed file, returned by `scratch`.

    Any number of threads may write to different regions. A forked child shares the array: both processes see each
    other's writes, and each applies `max_resident` to its own writes. Fork only while no thread is calling a method.
    The array cannot be pickled, but the result of `seal` can.
    """

    def __init__(self, core: _core.ScratchFile, shape: tuple[int, ...], name: str) -> None:
        super().__init__(shape, name)
        self._core: _core.ScratchFile = core
        self._sealed: SealedArray | None = None

    # --- writing and eviction -------------------------------------------------------------------------------------

    def write(self, index: Region, values: ArrayLike) -> None:
        """Write values to a part of the array, and keep at most `max_resident` bytes of the array in memory.

        Parameters
        ----------
        index
            Integers and slices without steps, for the leading axes; None or ``...``: the whole array.
        values
            Values that have the shape of the part, or that NumPy can broadcast to it. They are converted in blocks of
            16 MiB.

        Raises
        ------
        OSError
            The disk failed, or is full and the space was not reserved.
        PermissionError
            The array is sealed.
        IndexError, ValueError, TypeError
            The index is invalid, is out of range or contains a step, or the values do not fit the part.

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
        given = np.broadcast_to(np.asarray(values), box.kept).reshape(box.lengths)
        strides = strides_of(self.shape, self.dtype.itemsize)
        first = sum(start * stride for start, stride in zip(box.starts, strides, strict=True))
        self._write(first, 0, given, strides, run_axis(box.lengths, self.shape))

    def _write(self, offset: int, axis: int, values: NDArray[Any], strides: tuple[int, ...], run: int) -> None:
        """Write `values`, which begin at the array's axis `axis`, in blocks of 16 MiB. `run_axis` returns `run`."""
        if values.size == 0:
            return
        size = values.size * self.dtype.itemsize
        if axis + 1 < run or (size > CHUNK and values.shape[0] == 1):
            for row in values:
                self._write(offset, axis + 1, row, strides, run)
                offset += strides[axis]
            return
        rows = len(values) if values.ndim else 1
        step = max(1, CHUNK * rows // size)
        if step < rows:
            for start in range(0, rows, step):
                self._write(offset + start * strides[axis], axis, values[start : start + step], strides, run)
            return
        block = as_bytes(values.astype(self.dtype, copy=False))
        if axis >= run:
            self._core.write(offset, block)
        else:
            self._core.write_rows(block, offset=offset, stride=strides[axis], count=rows)

    def write_direct(self, offset: int, values: NDArray[Any]) -> None:
        """Write values to disk without leaving pages in memory, for large arrays that are written sequentially.

        Whole pages bypass the page cache (``O_DIRECT``) if the file system supports it, and if the address of `values`
        and `offset` are equal modulo 4096. Otherwise, they are written through the page cache and evicted, which takes
        two to three times the CPU time. Each call waits for the disk, so write megabytes per call, from two threads.

        Parameters
        ----------
        offset
            Byte offset in the array; multiples of `mmap.PAGESIZE` are page boundaries of the file.
        values
            An array of any shape and dtype; its bytes are written in C order.

        Raises
        ------
        OSError
            The disk failed, or is full and the space was not reserved; EINVAL: the bytes extend beyond the array.
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
        """Write part of the array to disk and evict its pages, rounded outwards to whole pages.

        If a region has more than 16384 separate ranges, the bytes between them are included. If the kernel does not
        evict some pages, the report states how many bytes remain, and why. Write errors are raised by `flush`.

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
            _core.evict(self._sealed.core, ranges)  # pages that this mapping references would not be evicted
        return self._core.release(ranges)

    def prefetch(self, region: Region = None) -> WarmReport:
        """Read part of the array into memory, at most `max_resident` bytes; see `onecopy.warm`."""
        return self._core.prefetch(ranges_of(region, self.shape, self.dtype.itemsize))

    def flush(self) -> None:
        """Write all dirty pages to disk. Raise OSError (EIO, ENOSPC) if this or an earlier writeback lost bytes."""
        self._core.flush()

    def memory(self) -> ScratchMemory:
        """Return the array's memory. Numbers that the kernel does not report are None."""
        found = self._core.memory()
        return ScratchMemory(found.resident, found.dirty, found.clean, found.shared, found.cap, found.over)

    # --- sealing and saving --------------------------------------------------------------------------------------

    def seal(self) -> SealedArray:
        """Make the array read-only, and return it as a `SealedArray` that other processes can map.

        Afterwards `write` raises PermissionError, and `array` is read-only. Earlier views of `array` keep NumPy's
        writable flag, but their pages are read-only: writing to such a view ends the process (SIGSEGV). Each call
        returns the same object until that is closed.

        Raises
        ------
        OSError
            EIO: an earlier writeback lost bytes.
        """
        if self._sealed is None or self._sealed.closed:
            core = self._core.seal()
            if self._array is not None:
                self._array.flags.writeable = False
            self._sealed = SealedArray(core, self.shape, self._name, self._core.head)
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
        """Seal the array and link its file to `path` without copying, as a safetensors file with one array.

        The file appears complete or not at all. It is flushed to disk first, unless ``durable=False``: in that case,
        its contents are undefined after a power failure, which is acceptable for files that can be rebuilt, such as
        those in a `Store`. Computing the checksums reads the data once. The array is copied if `path` is on another
        file system, if the file system cannot link unnamed files, or if the name and metadata do not fit into the space
        before the data (4 KiB always fit).

        Returns
        -------
        Saved
            States whether the array was copied, and why.

        Raises
        ------
        OSError
            The file cannot be written, as for `onecopy.save`.
        FileExistsError
            The array has already been saved without copying.
        FormatError
            The name or the metadata is invalid.

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
        target, texts, reason = path_text(path), dict(metadata or {}), "the array has no bytes"
        sealed = self.seal()
        if self.nbytes:
            try:
                self._core.publish(
                    target,
                    name=name,
                    dtype=self._name,
                    shape=list(self.shape),
                    metadata=texts,
                    checksum=checksum,
                    durable=durable,
                )
            except OSError as error:
                if error.errno not in _NEEDS_A_COPY:
                    raise
                reason = f"copied: {error.strerror}"
            else:
                return Saved(target, copied=False, reason="the scratch file itself was linked to the path")
        spec = (name, self._name, self.shape)
        writer = _core.make_writer(target, [spec], metadata=texts, align=None, checksum=checksum, durable=durable)
        for start in range(0, self.nbytes, CHUNK):
            length = min(CHUNK, self.nbytes - start)
            writer.write(sealed.core.view(start, length))
            if self.memory_cap is not None:
                _core.evict(sealed.core, [(start, length)])
        writer.commit()
        return Saved(target, copied=True, reason=reason)

    # --- the file -------------------------------------------------------------------------------------------------

    @property
    def memory_cap(self) -> int | None:
        """``max_resident`` in bytes, or None without a limit."""
        return self._core.max_resident

    @property
    def path(self) -> str:
        """Path of the folder that contains the unnamed file."""
        return self._core.folder

    @property
    def reason(self) -> str:
        """Why this folder was chosen."""
        return self._core.reason

    @property
    def sealed(self) -> bool:
        """Whether `seal` was called."""
        return self._core.sealed

    def close(self) -> None:
        """Release the file. Its space is freed when the last view or sealed array is gone. Further calls do nothing."""
        self._sealed = None
        super().close()

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("cannot pickle a writable scratch array: send the result of seal() to other processes")

    def __repr__(self) -> str:
        if self.closed:
            state = "closed"
        else:
            state = "sealed" if self.sealed else f"in {self.path}" if self.path else "on the heap"
        return f"<onecopy.{type(self).__name__} {self.shape} {self.dtype} {state}>"


HEAP_BELOW = "64 MiB"


def alloc(
    shape: int | Iterable[int],
    dtype: DTypeLike,
    heap_below: int | str | None = None,
    *,
    dir: str | os.PathLike[str] | None = None,  # noqa: A002 - as in `scratch`
    max_resident: int | str | None = None,
) -> Scratch:
    """Create a writable array of zeros, on the heap if it is small, or in a scratch file if it is large.

    Parameters
    ----------
    shape, dtype
        As for `scratch`.
    heap_below
        Arrays smaller than this are on the heap: a number of bytes, or text such as "64 MiB". None:
        ``$ONECOPY_HEAP_BELOW``, or 64 MiB if it is not set. 0: no array is on the heap.
    dir, max_resident
        As for `scratch`, for arrays in scratch files.

    Returns
    -------
    Scratch or HeapArray
        Both have the same methods; the reports of a `HeapArray` state that it is on the heap.

    Raises
    ------
    NotEnoughMemory
        An array on the heap would be larger than the available memory.
    OSError
        The scratch file cannot be created; see `scratch`.
    ValueError
        `heap_below` or ``$ONECOPY_HEAP_BELOW`` is not a size.

    Examples
    --------
    >>> import onecopy as oc
    >>> from onecopy.arrays.scratch import alloc
    >>> type(alloc(1000, "f4")).__name__, type(alloc(1000, "f4", heap_below="1 kB")).__name__
    ('HeapArray', 'Scratch')
    """
    below = os.environ.get("ONECOPY_HEAP_BELOW", HEAP_BELOW) if heap_below is None else heap_below
    extents, kind, nbytes = kind_of(shape, dtype)
    if nbytes < byte_count("heap_below", below):
        import numpy as np

        files.expect_memory(nbytes, "allocate", instead="lower heap_below to keep the array in a file on disk")
        return HeapArray(np.zeros(extents, to_numpy(kind)))  # numpy itself requests huge pages for 4 MiB and more
    return scratch(extents, dtype, dir, max_resident=max_resident)


class _Heap:
    """The memory of a NumPy array, with the interface of the compiled `ScratchFile`."""

    folder, reason, max_resident, sealed = "", "on the heap, because it is small", None, False

    def __init__(self, values: NDArray[Any]) -> None:
        self._values: NDArray[Any] | None = values

    @property
    def closed(self) -> bool:
        return self._values is None

    def close(self) -> None:
        self._values = None

    def view(self) -> memoryview:
        if self._values is None:
            raise ValueError("the array is closed")
        return as_bytes(self._values).data

    def write(self, offset: int, block: NDArray[Any]) -> None:
        self.write_rows(block, offset=offset, stride=0, count=1)

    write_direct = write

    def write_rows(self, block: NDArray[Any], *, offset: int, stride: int, count: int) -> None:
        import numpy as np

        memory, shape = np.frombuffer(self.view(), np.uint8), (count, len(block) // count)
        if offset + stride * (count - 1) > len(memory) - shape[1]:
            where = f"{shape[1]} bytes at offset {offset} are out of range"
            raise OSError(errno.EINVAL, f"{where}: the array has {len(memory)} bytes")
        np.lib.stride_tricks.as_strided(memory[offset:], shape, (stride, 1))[...] = block.reshape(shape)

    def release(self, _ranges: list[Range]) -> ReleaseReport:
        return ReleaseReport(self.reason)

    prefetch = release

    def flush(self) -> None:
        """Do nothing: heap memory has no file."""

    def memory(self) -> ScratchMemory:
        return ScratchMemory(None, None, None, 0, None, 0)


class HeapArray(Scratch):
    """A writable array on the heap with the methods of `Scratch`, returned by `alloc`.

    Before `seal`, the methods `release`, `prefetch` and `flush` do nothing, and reports contain a reason instead of
    numbers. `save` always copies and flushes. Unlike a `Scratch`, it can be pickled.
    """

    def __init__(self, values: NDArray[Any]) -> None:
        shape, name, _ = kind_of(values.shape, values.dtype)
        super().__init__(cast("_core.ScratchFile", _Heap(values)), shape, name)

    def seal(self) -> SealedArray:
        """Copy the array into a scratch file, and return a read-only array that other processes can map."""
        if not self.sealed:
            file = scratch(self.shape, self.dtype)
            file.write(None, self.array)
            self._core = file._core
        return super().seal()

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
        save(path, {name: self.array}, metadata, checksum=checksum)
        return Saved(os.fspath(path), copied=True, reason=self.reason)

    def __reduce__(self) -> tuple[object, ...]:
        return HeapArray, (self.array,)
