"""`Recorder`: writes samples to a file of JSON lines."""

from __future__ import annotations

import json
import os
import platform
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onecopy.arguments import cpu_count, path_text
from onecopy.files import Closeable
from onecopy_monitor.samples import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onecopy_monitor.samples import FileSample, ProcessSample, Sample

__all__ = ["FORMAT", "VERSION", "End", "Machine", "Recorder"]

FORMAT, VERSION = "onecopy memory", 1


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine on which a recording was made; the fields are keys of the file format."""

    name: str
    """Name of the machine in the network."""
    kernel: str
    """Version of the kernel."""
    processors: int
    """Number of CPUs that the recorder could use."""
    memory: int
    """Memory of the machine in bytes."""
    page: int
    """Size of a page in bytes."""

    @classmethod
    def here(cls) -> Machine:
        """Return this machine.

        >>> Machine.here().page in (4096, 16384, 65536)
        True
        """
        page = os.sysconf("SC_PAGE_SIZE")
        memory = page * os.sysconf("SC_PHYS_PAGES")
        return cls(platform.node(), platform.release(), cpu_count(), memory, page)


@dataclass(frozen=True, slots=True)
class End:
    """The last line of a recording; the fields are keys of the file format.

    Numbers are None if unknown, as most are for processes that were attached to.
    """

    seconds: float
    """Seconds from the first to the last sample."""
    exit: int | None = None
    """Exit status of the command; -N if it was killed by signal N."""
    max_rss: int | None = None
    """Peak of RSS of the largest process that was waited for, in bytes, as recorded by the kernel."""
    minor_faults: int | None = None
    """Page faults of the command that did not wait for a disk."""
    major_faults: int | None = None
    """Page faults of the command that waited for a disk."""
    user_s: float | None = None
    """CPU seconds of the command in user mode."""
    system_s: float | None = None
    """CPU seconds of the command in the kernel."""
    looks: int = 0
    """Number of samples."""
    look_cpu_s: float = 0.0
    """CPU seconds of sampling."""
    put_off: int = 0
    """Number of page-table walks that were deferred, because they exceed the budget."""


@dataclass
class _Numbering:
    """The numbers that identify processes or files in a recording, and the facts written for each of them."""

    numbers: dict[Any, int] = field(default_factory=dict)
    facts: dict[int, object] = field(default_factory=dict)

    def number(self, key: object, facts: object) -> tuple[int, bool]:
        """Return the number of a key, and whether its facts have changed since they were written."""
        number = self.numbers.setdefault(key, len(self.numbers))
        new = self.facts.get(number) != facts
        self.facts[number] = facts
        return number, new


class Recorder(Closeable):
    """Writes each sample to a file immediately, so that killing the recorder loses none. For one thread at a time.

    Parameters
    ----------
    path
        Path of the file to create.
    command
        The observed command, as words.
    options
        Options of the recording, plain values that are stored in the file.
    force
        Whether to overwrite an existing file.

    Raises
    ------
    FileExistsError
        The file exists, and `force` is False.
    OSError
        The file cannot be created; from `add` and `end`: it cannot be written, but its earlier lines are readable.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        command: Sequence[str] = (),
        *,
        options: Mapping[str, object] | None = None,
        force: bool = False,
    ) -> None:
        self.path = path_text(path)
        self._last: list[list[int | None]] = []
        self._processes, self._files = _Numbering(), _Numbering()
        self._is_new = True
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        try:
            self._descriptor = os.open(self.path, flags | os.O_EXCL, 0o666)
        except FileExistsError:
            if not force:
                raise
            self._is_new = False
            self._descriptor = os.open(self.path, flags, 0o666)
        self._head: dict[str, object] | None = {
            "format": FORMAT,
            "version": VERSION,
            "command": list(command),
            "started": time.time(),
            "machine": _plain_dict(Machine.here()),
            "options": dict(options or {}),
            "columns": list(COLUMNS),
        }

    def begin(self) -> None:
        """Truncate the file and write the first line; `add` and `end` do this if it was not called."""
        if self._head is not None:
            head, self._head = self._head, None
            os.ftruncate(self._descriptor, 0)
            self._write(head)

    def discard(self) -> None:
        """Close the file; if nothing was written, remove it if this recorder created it, else leave it unchanged."""
        self.close()
        if self._is_new and self._head is not None:
            os.unlink(self.path)  # noqa: PTH108 - text

    def close(self) -> None:
        """Close the file; further calls do nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def add(self, sample: Sample) -> None:
        """Write one sample."""
        self.begin()
        lines: list[dict[str, object]] = []
        processes = [self._process(one, lines) for one in sample.processes]
        files = [self._file(one, lines) for one in sample.files]
        line: dict[str, object] = {"at": round(sample.at, 4), "total": sample.total, "processes": processes}
        if files != self._last:  # most samples find the files of the sample before
            line["files"] = self._last = files
        self._write(*lines, line)

    def end(self, end: End) -> None:
        """Write the last line."""
        self.begin()
        facts = _plain_dict(end)
        self._write({"end": round(facts.pop("seconds"), 4), **facts})

    def _process(self, one: ProcessSample, lines: list[dict[str, object]]) -> list[object]:
        number, new = self._processes.number((one.pid, one.started), (one.name, one.parent))
        if new:
            facts = {"pid": one.pid, "started": one.started, "parent": one.parent, "name": one.name}
            lines.append({"process": number, **facts})
        return [number, one.row, one.peak_rss, one.minor_faults, one.major_faults, round(one.cpu_s, 3)]

    def _file(self, one: FileSample, lines: list[dict[str, object]]) -> list[int | None]:
        number, new = self._files.number(one.key, (one.path, one.size))
        if new:
            lines.append({"file": number, "path": one.path, "kind": one.kind, "size": one.size})
        return [number, one.once, one.dirty, one.saves, one.sharers]

    def _write(self, *lines: Mapping[str, object]) -> None:
        """Write lines in one call; a full disk leaves an incomplete line, which readers skip."""
        text = "".join(json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n" for line in lines)
        left = memoryview(text.encode("ascii"))
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except OSError as error:
                raise OSError(error.errno, os.strerror(error.errno or 0), self.path) from None


def _plain_dict(record: Machine | End) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__slots__}
