"""Copy-on-write memory of a snapshot, for functions that must behave as if they had read the file.

Like arrays that were read, arrays from `Source.array` own their memory and use no descriptor.
"""

from __future__ import annotations

import mmap
import os
import time
import weakref
from bisect import bisect_left
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onecopy import _core, files
from onecopy.base.run_constants import MIN_BYTES
from onecopy.files.identity import file_identity
from onecopy.run import call_log, load_gate
from onecopy.run.call_log import note
from onecopy.store.snapshots import NoSnapshot, Snapshot, fits_in_memory, take

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onecopy.files.page_cache import WarmJob

MIN_ARRAY = 256 << 10
"""Minimum size of an array in bytes. Smaller ones are read, because a mapping costs more than a copy."""
MIN_PART = 16 << 10
"""Minimum size of a part of a mapping (`Parts`) in bytes. Smaller ones are read."""
_DEFAULT_MAX_MAPPINGS = 65530
"""The default value of vm.max_map_count."""


class Source(Snapshot):
    """A snapshot of a file that one call loads."""

    def __init__(self, function: str, taken: Snapshot) -> None:
        super().__init__(taken.descriptor, taken.path, taken.identity, taken.place, taken.lead)
        self.function = function
        """The documented name of the loading function, such as "torch.load"."""
        self._arrays: list[weakref.ref[Any]] = []
        self._nbytes = 0

    def array(self, offset: int, shape: Sequence[int], dtype: Any, *, random: bool = False) -> Any:
        """Return a new array in C order that owns copy-on-write memory containing bytes of the file."""
        random = random and not fits_in_memory(self.nbytes)  # read ahead what fits, even if access is random
        _mappings.expect_room()
        return self.counted(_core.owned_array(self.descriptor, self.lead + offset, tuple(shape), dtype, random=random))

    def memory(self, offset: int, nbytes: int) -> Any:
        """Return bytes of the file as an array that is not counted as shared."""
        import numpy as np

        _mappings.expect_room()
        return _core.owned_array(self.descriptor, self.lead + offset, (nbytes,), np.dtype(np.uint8))

    def counted(self, array: Any) -> Any:
        """Count an array as shared if it is still in use when this snapshot is closed. Return the array."""
        self._arrays.append(weakref.ref(array))
        self._nbytes += array.nbytes
        return array

    def is_of(self, file: Any) -> bool:
        """Return whether a file, given by its path or descriptor, still has the contents of this snapshot."""
        return file_identity(file) == self.identity

    def __exit__(self, kind: Any, *rest: Any) -> None:
        if kind is not None:  # nothing was loaded
            self._arrays, self._nbytes = [], 0
        self.close()

    def close(self) -> None:
        """Log how many bytes are in use and how many were copied, and release the snapshot. Arrays stay valid."""
        shared = sum(array.nbytes for reference in self._arrays if (array := reference()) is not None)
        if shared:
            call_log.mapped(call_log.name_of(self.descriptor), self.path)
        note(self.function, self.path, shared=shared)
        note(self.function, self.path, copied=self._nbytes - shared, reason="arrays that the loaded object copied")
        self._arrays, self._nbytes = [], 0
        super().close()


class Parts:
    """A copy-on-write mapping of a whole file, parts of which are returned as arrays.

    One mapping per tensor would exceed vm.max_map_count.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._array = source.memory(0, source.nbytes)
        self.address = int(self._array.ctypes.data)
        """The address of the mapping."""
        self._taken: list[tuple[int, int]] = []
        """The sorted ranges of the parts that were returned."""

    @property
    def path(self) -> str:
        """Path of the file."""
        return self._source.path

    def part(self, begin: int, nbytes: int) -> Any:
        """Return bytes of the file as an array, or None if they were returned before and cannot be mapped again."""
        place = bisect_left(self._taken, (begin + nbytes, 0))
        if place and self._taken[place - 1][1] > begin:
            return self._source.memory(begin, nbytes) if self._source.descriptor >= 0 else None
        self._taken.insert(place, (begin, begin + nbytes))
        array = self._array[begin : begin + nbytes]
        weakref.finalize(array, _drop_private, self.address + begin, nbytes).atexit = False
        return array


def _drop_private(address: int, nbytes: int) -> None:
    """Discard the written pages in a part of a copy-on-write mapping."""
    import ctypes

    begin, end = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE, (address + nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if end > begin:
        ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), mmap.MADV_DONTNEED)


class _Mappings:
    """Counts how many more mappings this process may create, in addition to those of the program and its libraries."""

    def __init__(self) -> None:
        self._left = 0
        self._due = 0.0

    def expect_room(self) -> None:
        """Raise NoSnapshot if this process uses three quarters of the mappings that it may have."""
        self._left -= 1
        if self._left < 0 or time.monotonic() > self._due:
            try:
                most = int(Path("/proc/sys/vm/max_map_count").read_text())
            except FileNotFoundError:  # a sandbox
                most = _DEFAULT_MAX_MAPPINGS
            with Path("/proc/self/maps").open("rb") as file:
                room = most * 3 // 4 - sum(1 for _ in file)
            if room <= 0:
                raise NoSnapshot(f"the process uses three quarters of the {most} mappings that it may have")
            self._left, self._due = room // 2, time.monotonic() + 1


_mappings = _Mappings()


def _expect_descriptors() -> None:
    """Raise NoSnapshot if this process has opened three quarters of the files that it may open."""
    import resource

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    lowest = os.open("/", os.O_PATH | os.O_CLOEXEC)  # the lowest free number
    os.close(lowest)
    if 0 <= most * 3 // 4 <= lowest:
        raise NoSnapshot(f"the process has opened three quarters of the {most} files that it may open")


def read_ahead(function: str, paths: Iterable[str | os.PathLike[str]]) -> WarmJob | None:
    """Start reading files on network and user-space file systems, where page faults are slow, into the page cache.

    Return None if there are no such files.
    """
    slow = {path: size for path in paths if (size := _size_if_slow(path)) >= MIN_BYTES}
    for path, size in slow.items():
        note(function, call_log.name_of(path), shared=size)
    return files.warm(list(slow), wait=False) if slow else None


def _size_if_slow(path: str | os.PathLike[str]) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.fstat(descriptor).st_size if _core.is_remote(descriptor) else 0
    finally:
        os.close(descriptor)


def keep(job: WarmJob | None, owner: Any) -> None:
    """Cancel a job when its owner is freed."""
    if job is not None:
        weakref.finalize(owner, job.cancel).atexit = False


def source_of(function: str, file: str | int, lead: int = 0) -> Source | None:
    """Return a source for a file (specified by path or descriptor), or None if it is small or has no snapshot.

    `lead` is passed to `onecopy.store.snapshots.take`.
    """
    if os.stat(file).st_size < MIN_BYTES:  # noqa: PTH116 - a descriptor too
        return None
    try:
        _mappings.expect_room()
        _expect_descriptors()
        with load_gate.copying():
            return Source(function, take(file, lead))
    except NoSnapshot as error:
        call_log.note_read(function, file, str(error))
        return None
