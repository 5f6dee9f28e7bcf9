"""The file that backs a List or a Dict: its path, its pickle, and its pages in memory."""

from __future__ import annotations

import abc
import os
from typing import TYPE_CHECKING, Any

from onecopy.files import Closeable, absolute

if TYPE_CHECKING:
    from onecopy import _core
    from onecopy.arrays import VerifyReport
    from onecopy.arrays.file import OneFile
    from onecopy.page_cache import EvictReport, PinReport, Residency, WarmJob, WarmReport
    from onecopy.store import Artefact

__all__ = ["Backed", "Origin"]


_WRITERS = {
    "append",
    "clear",
    "extend",
    "insert",
    "pop",
    "popitem",
    "remove",
    "reverse",
    "setdefault",
    "sort",
    "update",
}
_ADVICE = "shared data is read-only: change it before it is shared, or change a copy, list(data) or dict(data)"


class ReadOnly:
    """Base class whose errors for writing methods give advice; `hasattr` is False for these methods."""

    if not TYPE_CHECKING:  # a type checker would accept every attribute

        def __getattr__(self, name: str) -> Any:
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(f"{text}: {_ADVICE}" if name in _WRITERS else text, name=name, obj=self)

        def __setitem__(self, index: Any, value: Any) -> None:
            raise TypeError(f"{type(self).__name__!r} object does not support item assignment: {_ADVICE}")

        def __delitem__(self, index: Any) -> None:
            raise TypeError(f"{type(self).__name__!r} object does not support item deletion: {_ADVICE}")


class Origin:
    """The open file of records, shared by all lists and views of it.

    `core` is the file of the compiled module, which is sufficient for reading rows; `onecopy.arrays` is loaded on
    demand. `trusted` is True for files that this job wrote for itself: their pickled values are unpickled.
    """

    def __init__(self, core: _core.ArrayFile, given: str, source: _core.RecordSource, *, trusted: bool) -> None:
        self.core = core
        self.given = given
        self.source = source
        self.trusted = trusted
        self._file: OneFile | None = None

    @property
    def file(self) -> OneFile:
        """The file as named arrays, created on first use."""
        if self._file is None:
            from onecopy.arrays.file import OneFile

            self._file = OneFile.of_compiled(self.core, self.given)
        return self._file

    def path(self) -> str:
        """Return a path by which other processes can open the file while this process has it open."""
        if not self.given.startswith("/proc/"):
            return absolute(self.given)
        return f"/proc/{os.getpid()}/fd/{self.core.mapping.fileno()}"

    def handle(self, rows: tuple[int, int, int] | bytes | None, fields: tuple[str | int, ...] = ()) -> tuple[Any, ...]:
        """Return the arguments with which `onecopy.records.attach` opens these rows in another process."""
        handle = (self.path(), self.core.mapping.identity, rows)
        return (*handle, fields, self.trusted) if fields or self.trusted else handle


class Backed(ReadOnly, Closeable):
    """Base class of lists and dicts of records: access to their file."""

    _origin: Origin
    report: Artefact | None = None
    """The artefact that `onecopy.share` found or built; None for data without a key."""

    @property
    def path(self) -> str:
        """Path of the file; a path under /proc, valid while this process has it open, for data without a key."""
        return self._origin.path()

    @property
    def nbytes(self) -> int:
        """Size of the values in the whole file, in bytes; the machine holds one copy of them."""
        return self._origin.source.payload

    @property
    def file(self) -> OneFile:
        """The file as named arrays, for `warm`, `pin` and `verify` by name, and its identity."""
        return self._origin.file

    def warm(self, **options: Any) -> WarmReport | WarmJob:
        """Read the file into memory at the speed of the device; see `onecopy.warm`."""
        done: WarmReport | WarmJob = self._origin.file.warm(**options)
        return done

    def evict(self) -> EvictReport:
        """Drop the file from memory; see `onecopy.evict`."""
        return self._origin.file.evict()

    def pin(self) -> PinReport:
        """Lock the file into memory; see `onecopy.pin`."""
        return self._origin.file.pin()

    def residency(self) -> Residency:
        """Report how much of the file is in memory; see `onecopy.residency`."""
        return self._origin.file.residency()

    def verify(self, **options: Any) -> VerifyReport:
        """Compare the file with its checksums; see `onecopy.ArrayFile.verify`."""
        return self._origin.file.verify(**options)

    @abc.abstractmethod
    def close(self) -> None:
        """Release the file; slices and views made from it stay valid."""
