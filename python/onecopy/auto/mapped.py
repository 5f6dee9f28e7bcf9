"""Memory with the contents of a file, for functions that behave as if they had read it: copy-on-write, of a snapshot.

`Source.array` returns arrays that own their memory, as arrays that were read do. They hold no descriptor.

**Not shared:** files without a snapshot: `onecopy.snapshots.take` raises `NoSnapshot` with the reason.
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Any

from onecopy import _core
from onecopy.auto import turns
from onecopy.identity import file_identity
from onecopy.runs import MIN_BYTES, call_log
from onecopy.runs.call_log import note
from onecopy.snapshots import NoSnapshot, Snapshot, fits_in_memory, take

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onecopy.page_cache import WarmJob

MIN_ARRAY = 256 << 10
"""Bytes; smaller arrays of a file are read: a mapping costs more than a copy."""


class Source(Snapshot):
    """A snapshot of a file that one call loads."""

    def __init__(self, function: str, taken: Snapshot) -> None:
        super().__init__(taken.descriptor, taken.path, taken.identity, taken.place)
        self.function = function
        """The function that loads, as in its documentation: "torch.load"."""
        self._arrays: list[weakref.ref[Any]] = []
        self._nbytes = 0
        """Bytes of these arrays."""

    def array(self, offset: int, shape: Sequence[int], dtype: Any, *, random: bool = False) -> Any:
        """Return a new array, in C order, that owns copy-on-write memory with bytes of the file.

        `random`: it is read here and there; if it is larger than half of the memory, nothing is read ahead.
        """
        random = random and not fits_in_memory(self.nbytes)
        array = _core.owned_array(self.descriptor, offset, tuple(shape), dtype, random=random)
        self._arrays.append(weakref.ref(array))
        self._nbytes += array.nbytes
        return array

    def memory(self, offset: int, nbytes: int) -> Any:
        """Return bytes of the file as `array` does, without counting them as shared."""
        import numpy as np

        return _core.owned_array(self.descriptor, offset, (nbytes,), np.dtype(np.uint8))

    def is_of(self, file: Any) -> bool:
        """Return whether the file of a path or a descriptor still has the contents of this snapshot."""
        return file_identity(file) == self.identity

    def __exit__(self, kind: Any, *rest: Any) -> None:
        if kind is not None:  # nothing is loaded
            self._arrays, self._nbytes = [], 0
        self.close()

    def close(self) -> None:
        """Report which arrays are in use, and release the snapshot; arrays stay. Objects copied the other arrays."""
        shared = sum(array.nbytes for reference in self._arrays if (array := reference()) is not None)
        if shared:
            call_log.mapped(os.readlink(f"/proc/self/fd/{self.descriptor}"), self.path)  # noqa: PTH115 - text
        note(self.function, self.path, shared=shared)
        note(self.function, self.path, copied=self._nbytes - shared, reason="arrays that the loaded object copies")
        self._arrays, self._nbytes = [], 0
        super().close()


def read_ahead(function: str, files: Iterable[str | os.PathLike[str]]) -> WarmJob | None:
    """Begin to read files into the page cache, beside the caller, who maps them and is about to touch them.

    Only files of network and user-space file systems, where a touch brings little and waits for the server. `keep` the
    job; None: there are no such files.
    """
    from onecopy.page_cache import warm

    slow = {path: size for path in files if (size := _size_if_slow(path)) >= MIN_BYTES}
    for path, size in slow.items():
        note(function, os.path.abspath(path), shared=size)  # noqa: PTH100 - text
    return warm(list(slow), wait=False) if slow else None


def _size_if_slow(path: str | os.PathLike[str]) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.fstat(descriptor).st_size if _core.is_remote(descriptor) else 0
    finally:
        os.close(descriptor)


def keep(job: WarmJob | None, owner: Any) -> None:
    """End a job when an object is freed that the framework made of the files."""
    if job is not None:
        weakref.finalize(owner, job.cancel).atexit = False


def source_of(function: str, file: str | int) -> Source | None:
    """Return the source for a path or a descriptor; None if it is small or has no snapshot, which is reported.

    OSError if the file cannot be opened.
    """
    facts = os.fstat(file) if isinstance(file, int) else os.stat(file)  # noqa: PTH116 - text
    if facts.st_size < MIN_BYTES:
        return None
    try:
        with turns.copying():
            return Source(function, take(file))
    except NoSnapshot as error:
        path = os.readlink(f"/proc/self/fd/{file}") if isinstance(file, int) else os.path.abspath(file)  # noqa: PTH115, PTH100
        note(function, path, copied=facts.st_size, reason=str(error))
        return None
