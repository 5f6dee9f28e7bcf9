"""Writable arrays in nameless files: `scratch`, and what it returns."""

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

    from onecopy.page_cache import Range, WarmReport

__all__ = ["Scratch", "scratch"]

_NEEDS_A_COPY = (errno.EXDEV, errno.EOPNOTSUPP, errno.EOVERFLOW)
"""Another file system, one that gives no names later, a header that is longer than its room."""


def plain_bytes(values: NDArray[Any]) -> NDArray[Any]:
    """Return values as bytes one after the other, copied only where they do not lie so."""
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
    """Make a writable array of zeros in a nameless file, so that it may be larger than memory.

    The file is gone with the process, however that ends: there is nothing to clean up. What is written is dirty page
    cache, which the kernel writes to the disk and takes back without swap.

    Parameters
    ----------
    shape
        Extents, or one extent.
    dtype
        A little-endian type that safetensors has, those of ml_dtypes among them.
    dir
        A folder on a disk of this machine. None: ``$ONECOPY_SCRATCH``, else the folder for temporary files if that is
        on such a disk, else ``/var/tmp``.
    reserve
        Reserve the space now, so that a full disk is an error here and never later. False: a sparse file. A disk that
        is full when a new page is touched then **ends the process** (SIGBUS); `Scratch.write` raises OSError instead.
    max_resident
        Bytes, or a text such as "512 MiB", at least 1 MiB: the most that `Scratch.write` leaves in memory. It writes
        out and drops what was written first. Writes into `Scratch.array` are not bounded; `Scratch.memory` tells how
        far they went over it, and the next `Scratch.write` drops them. None: no bound but the machine's.
    anywhere
        Also on tmpfs, where it is memory and no disk, and on network and user-space file systems.
    name
        Stands in errors.

    Raises
    ------
    OSError
        ENOSPC or EDQUOT with the bytes that are needed and free. EOPNOTSUPP for a folder in memory or on a server, with
        the name of its file system, and for one that cannot reserve. Others where the folder will not do. Nothing is
        left behind.
    TypeError, ValueError
        A type that safetensors does not have; a shape or size that is none.

    Examples
    --------
    >>> import onecopy as oc
    >>> with oc.scratch((4, 1000), "u2", max_resident="64 MiB") as canvas:
    ...     canvas.write(0, 500)           # a row, within the bound
    ...     canvas.array[3, :10] = 9       # like any numpy array
    ...     image = canvas.seal()          # read-only, for every process that is given it
    >>> image.array[0, 0], image.array[3, 0]
    (np.uint16(500), np.uint16(9))
    """
    kind = kind_of(shape, dtype)
    cap = None if max_resident is None else byte_count("max_resident", max_resident)
    folder = "" if dir is None else path_text(dir)
    try:
        head = _core.scratch_head(kind.name, list(kind.shape))
    except (FormatError, TypeError):  # larger than a file of arrays can be, and perhaps not than a sparse one
        head = 0
    size = non_negative("the size", max(kind.nbytes, 1))
    core = _core.create_scratch(
        size, folder=folder, name=name, reserve=reserve, anywhere=anywhere, head=head, max_resident=cap
    )
    return Scratch(core, kind)


class Scratch(ArrayProtocol):
    """A writable array in a nameless file; made by `scratch`.

    Threads: any number may write to different places at once. A forked child shares the array, and what it writes is
    seen here; it has a bound of its own. Fork while no thread is inside of a call. It does not pickle: `seal` it first.
    """

    def __init__(self, core: _core.ScratchFile, kind: Kind) -> None:
        self._core = core
        self._kind = kind
        self._array: NDArray[Any] | None = None
        self._sealed: SealedArray | None = None

    # --- bytes in and out of memory -------------------------------------------------------------------------------

    @property
    def array(self) -> NDArray[Any]:
        """The array: writable until `seal`, in C order. It keeps the memory, also after `close`."""
        if self._array is None:
            self._array = self._kind.over(self._core.view())
        return self._array

    def write(self, index: Region, values: ArrayLike) -> None:
        """Write values into a part of the array, and keep to `max_resident` while doing so.

        Parameters
        ----------
        index
            Whole numbers and slices without steps on the leading axes; None or ``...``: everything.
        values
            What numpy would take for ``array[index] = values``: of the part's shape, or to be broadcast to it. They are
            converted 16 MiB at a time.

        Raises
        ------
        OSError
            The disk failed, or is full where nothing was reserved; PermissionError when sealed.
        IndexError, ValueError, TypeError
            An index outside; a step, or values of another shape; no index.

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
        _Writing(self._core, self._kind, strides, run_axis(box.lengths, self.shape)).put(first, 0, given)

    def write_direct(self, offset: int, values: NDArray[Any]) -> None:
        """Write values to the disk, and leave nothing of them in memory: for what is made in order, larger than memory.

        Whole pages go past the page cache (``O_DIRECT``) where the file system lets them, and where `values` begins as
        far behind a page of memory as `offset` behind a page of the file. Else they go through it and out again, which
        costs two to three times the processor time. It waits for the disk: write megabytes at once, in two threads.

        Parameters
        ----------
        offset
            Where they begin, in bytes of the array; it lies on a page of the file at the multiples of 4096.
        values
            Elements in C order, of any shape.

        Raises
        ------
        OSError
            The disk failed, or is full where nothing was reserved; EINVAL outside of the array; PermissionError when
            sealed.
        ValueError
            A negative offset.

        Examples
        --------
        >>> import numpy as np, onecopy as oc
        >>> with oc.scratch((3, 4096), "u1") as canvas:
        ...     canvas.write_direct(4096, np.full(8192, 7, "u1"))
        ...     canvas.array.sum(axis=1)
        array([    0, 28672, 28672], dtype=uint64)
        """
        self._core.write_direct(non_negative("offset", offset), plain_bytes(values))

    def release(self, region: Region = None) -> ReleaseReport:
        """Write a part to the disk, and take it out of memory.

        Rounded outwards to whole pages, and for regions of very many rows to what lies between them. Nothing is raised
        for what the kernel declines: the report tells what stayed in memory, and why. `flush` tells of lost bytes.

        Examples
        --------
        >>> import onecopy as oc
        >>> with oc.scratch((1024, 4096), "u1") as canvas:
        ...     canvas.array[:] = 1
        ...     canvas.release(slice(0, 512)).bytes
        2097152
        """
        ranges = self._ranges(region)
        if self._sealed is not None and not self._sealed.closed:
            _core.evict(self._sealed.core, ranges)  # what is mapped there would stay
        return self._core.release(ranges)

    def prefetch(self, region: Region = None) -> WarmReport:
        """Bring a part into memory, at the device's speed, as far as `max_resident` has room; see `onecopy.warm`."""
        return self._core.prefetch(self._ranges(region))

    def flush(self) -> None:
        """Write everything to the disk. OSError where bytes are lost (EIO, ENOSPC), also by earlier writing out."""
        self._core.flush()

    def memory(self) -> ScratchMemory:
        """Return what it holds of memory now; a number that the kernel does not tell is None."""
        told = self._core.memory()
        return ScratchMemory(told.resident, told.dirty, told.clean, told.shared, told.cap, told.over)

    def _ranges(self, region: Region) -> list[Range]:
        return ranges_of(region, self.shape, self.dtype.itemsize) or [(0, 0)]

    # --- the end of writing ---------------------------------------------------------------------------------------

    def seal(self) -> SealedArray:
        """End writing, and return the array as a read-only one that can be given to other processes.

        `write` raises from here on, and `array` is read-only. A view that was taken from `array` before still says that
        it is writable; writing into it ends the process (SIGSEGV), because the alternative is to change what others
        read. The same for each call.

        Raises
        ------
        OSError
            EIO: bytes were lost when they were written out.
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
        """Seal it, and give it a name: the file becomes a safetensors file of one array, without a copy.

        It appears whole or not at all, and is flushed first, unless ``durable=False`` says that after a power cut there
        may be anything in it (for files which are known to be made again then, as those of a `Store`). With checksums
        the data is read once. On another file system than `path`, where the file system cannot name a nameless file, or
        where the metadata has no room before the data (4 KiB have), the array is copied instead. `Saved.copied` and
        `Saved.reason` tell.

        Raises
        ------
        OSError
            As `onecopy.save`; FileExistsError where it was saved without a copy before.
        FormatError
            A name or metadata that the format does not have.

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
            return Saved(target, copied=True, reason="it has no bytes")
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
        """``max_resident`` in bytes; None: there is none."""
        return self._core.max_resident

    @property
    def path(self) -> str:
        """The folder that its file is in; the file has no name."""
        return self._core.folder

    @property
    def reason(self) -> str:
        """Why it is there: a sentence."""
        return self._core.reason

    @property
    def sealed(self) -> bool:
        """True after `seal`."""
        return self._core.sealed

    def close(self) -> None:
        """Let go of the file; its space is free with the last array and the last sealed one. Twice is fine."""
        self._array = self._sealed = None
        self._core.close()

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._core.closed

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a writable scratch array is this process's own: give its seal() to other processes")

    def __repr__(self) -> str:
        state = "closed" if self.closed else "sealed" if self.sealed else f"in {self.path}"
        return f"<onecopy.Scratch {self.shape} {self.dtype} {state}>"


class _Writing:
    """Values on their way into a file: in pieces of 16 MiB at most, as few calls as rows allow."""

    def __init__(self, core: _core.ScratchFile, kind: Kind, strides: tuple[int, ...], run: int) -> None:
        self.core = core
        self.dtype = kind.dtype
        self.strides = strides
        self.run = run  # from this axis on, the part lies in one piece

    def put(self, offset: int, axis: int, values: NDArray[Any]) -> None:
        """Write `values`, the part from `axis` on, to where its first element belongs."""
        if values.size == 0:
            return
        size = values.size * self.dtype.itemsize
        if axis + 1 < self.run or (size > CHUNK and values.shape[0] == 1):
            for row in values:
                self.put(offset, axis + 1, row)
                offset += self.strides[axis]
            return
        rows = len(values) if values.ndim else 1
        step = max(1, CHUNK * rows // size)
        if step < rows:
            for start in range(0, rows, step):
                self.put(offset + start * self.strides[axis], axis, values[start : start + step])
            return
        plain = plain_bytes(values.astype(self.dtype, copy=False))
        if axis >= self.run:
            self.core.write(offset, plain)
        else:
            self.core.write_rows(plain, offset=offset, stride=self.strides[axis], count=rows)
