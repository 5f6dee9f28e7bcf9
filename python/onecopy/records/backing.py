"""The file under a List or a Dict: where it lies, how it travels, what of it is in memory."""

from __future__ import annotations

import abc
import os
from typing import TYPE_CHECKING, Any

from onecopy.files import Closeable, absolute
from onecopy.records._read_only import ReadOnly

if TYPE_CHECKING:
    from onecopy import _core
    from onecopy.arrays import VerifyReport
    from onecopy.arrays.one_file import OneFile
    from onecopy.page_cache import EvictReport, PinReport, Residency, WarmJob, WarmReport
    from onecopy.store import Artefact

__all__ = ["Backed", "Origin"]


class Origin:
    """Where rows come from: the same for all lists and views of a file.

    `core` is the file's compiled half, all that reading rows asks for; a worker that only reads has no need of
    `onecopy.arrays`. `trusted` is for what was written in this job, for itself: pickles in it are read.
    """

    def __init__(self, core: _core.ArrayFile, given: str, source: _core.RecordSource, *, trusted: bool) -> None:
        self.core = core
        self.given = given
        self.source = source
        self.trusted = trusted
        self._file: OneFile | None = None

    @property
    def file(self) -> OneFile:
        """The file as named arrays, made when it is first asked for."""
        if self._file is None:
            from onecopy.arrays.one_file import OneFile

            self._file = OneFile.of_compiled(self.core, self.given)
        return self._file

    def path(self) -> str:
        """Return a path that leads other processes to the file, for as long as this one keeps it open."""
        if not self.given.startswith("/proc/"):
            return absolute(self.given)
        return f"/proc/{os.getpid()}/fd/{self.core.mapping.fileno()}"

    def handle(self, rows: tuple[int, int, int] | bytes | None, fields: tuple[str | int, ...] = ()) -> tuple[Any, ...]:
        """Return the arguments with which `onecopy.records.attach` opens these rows in another process."""
        handle = (self.path(), self.core.mapping.identity, rows)
        return (*handle, fields, self.trusted) if fields or self.trusted else handle


class Backed(ReadOnly, Closeable):
    """What every list and dict of records has: its file, and an end."""

    _origin: Origin
    report: Artefact | None = None
    """What `onecopy.share` found or built under a key."""

    @property
    def path(self) -> str:
        """The file; where it has no name, a path under /proc that leads to it while this process has it open."""
        return self._origin.path()

    @property
    def nbytes(self) -> int:
        """Bytes of the values of the whole file, of which the machine holds one copy."""
        return self._origin.source.payload

    @property
    def file(self) -> OneFile:
        """The same file as named arrays: `warm`, `pin`, `verify` by name, checksums, identity."""
        return self._origin.file

    def warm(self, **options: Any) -> WarmReport | WarmJob:
        """Bring the file into memory at the device's speed; see `onecopy.warm`."""
        done: WarmReport | WarmJob = self._origin.file.warm(**options)
        return done

    def evict(self) -> EvictReport:
        """Take the file out of memory; see `onecopy.evict`."""
        return self._origin.file.evict()

    def pin(self) -> PinReport:
        """Lock the file into memory; see `onecopy.pin`."""
        return self._origin.file.pin()

    def residency(self) -> Residency:
        """Report how much of the file is in memory; see `onecopy.residency`."""
        return self._origin.file.residency()

    def verify(self, **options: Any) -> VerifyReport:
        """Compare the bytes with their checksums; see `onecopy.ArrayFile.verify`."""
        return self._origin.file.verify(**options)

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of the file. What came from it lives on."""
