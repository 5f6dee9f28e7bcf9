"""`read_recording`: read and validate recordings, whose contents are not trusted."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NoReturn

from onecopy.arguments import path_text
from onecopy.errors import FormatError
from onecopy.files import open_regular
from onecopy_monitor.recording.writing import FORMAT, VERSION, End, Machine
from onecopy_monitor.samples import COLUMNS, FileSample, ProcessSample, Sample
from onecopy_monitor.series import Series

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onecopy_monitor.samples import Row

__all__ = ["Recording", "read_recording"]

_MAX_LINE = 64 << 20
"""Maximum bytes of one line."""
_MAX_NUMBER = 2**62
"""Limit of numbers of bytes, so that sums fit 64 bits."""
_MAX_NAMED = 1_000_000
"""Maximum number of processes, and of files, in one recording."""


@dataclass(frozen=True, slots=True)
class Recording:
    """The contents of a file that `onecopy record` wrote."""

    path: str
    """Path of the file."""
    command: tuple[str, ...]
    """The recorded command as words; empty for processes that were attached to."""
    started: float
    """Time of the start in seconds since 1970."""
    machine: Machine
    """The machine on which it was recorded."""
    series: Series
    """The samples over time."""
    end: End | None
    """Resources used at the end; None if the recorder was killed or is still running."""
    cut: bool
    """Whether the last line is incomplete, because the recorder was killed or the disk was full."""

    @property
    def title(self) -> str:
        """The command as one line, or the name of the file."""
        return " ".join(self.command) or os.path.basename(self.path)  # noqa: PTH119 - text


def read_recording(path: str | os.PathLike[str]) -> Recording:
    """Read a recording; an incomplete last line is skipped, and reported by `Recording.cut`.

    Raises
    ------
    FormatError
        The file is not a recording or is damaged; the message has the file and the line.
    OSError
        The file cannot be read.

    Examples
    --------
    >>> import os, tempfile
    >>> from onecopy_monitor import Recorder, Sampler, sample_of
    >>> name = os.path.join(tempfile.mkdtemp(), "run.jsonl")
    >>> with Recorder(name, ["python"]) as recorder, Sampler([os.getpid()]) as sampler:
    ...     recorder.add(sample_of(sampler.sample()))
    >>> recording = read_recording(name)
    >>> recording.command, len(recording.series.total), recording.end
    (('python',), 1, None)
    """
    reader = _Reader(path_text(path))
    cut = reader.read()
    return Recording(reader.path, reader.command, reader.started, reader.machine, reader.series, reader.end, cut)


class _Reader:
    """Parser of the lines of one recording."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.command: tuple[str, ...] = ()
        self.started = 0.0
        self.machine = Machine("", "", 0, 0, 0)
        self.series = Series()
        self.end: End | None = None
        self._line = 0
        self._at = 0.0
        self._processes: dict[int, ProcessSample] = {}
        self._files: dict[int, FileSample] = {}
        self._mapped: tuple[FileSample, ...] = ()

    def read(self) -> bool:
        """Read all lines; return whether the last one is incomplete."""
        with open_regular(self.path) as file:
            for text in self._lines(file):
                whole = text.endswith(b"\n")
                try:
                    line = json.loads(text, parse_constant=self._refuse_constant)
                except (ValueError, RecursionError) as error:
                    if not whole and self._line > 1:
                        return True
                    self._refuse(f"not a line of JSON ({_short(error)})")
                if not isinstance(line, dict):
                    self._refuse(f"an object was expected, not {type(line).__name__}")
                self._take(line)
        if self._line == 0:
            self._refuse("the file is empty")
        return False

    def _lines(self, file: Any) -> Iterator[bytes]:
        while line := file.readline(_MAX_LINE):
            self._line += 1
            if len(line) == _MAX_LINE:
                self._refuse(f"a line of more than {_MAX_LINE} bytes")
            yield line

    def _take(self, line: dict[str, Any]) -> None:
        if self._line == 1:
            self._header(line)
        elif "process" in line:
            self._process(line)
        elif "file" in line:
            self._file(line)
        elif "at" in line:
            self._sample(line)
        elif "end" in line:
            self._end(line)

    def _header(self, line: dict[str, Any]) -> None:
        if line.get("format") != FORMAT:
            self._refuse(f"not a recording of onecopy: 'format' is {_short(line.get('format'))}, not {FORMAT!r}")
        if self._whole(line, "version") > VERSION:
            self._refuse(f"version {line['version']} is newer than {VERSION}, which this version of onecopy reads")
        columns, command = line.get("columns"), line.get("command")
        if columns != list(COLUMNS):
            self._refuse(f"'columns' is {_short(columns)}, not {list(COLUMNS)}")
        if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
            self._refuse("'command' must be a list of words")
        self.command = tuple(command)
        self.started = self._seconds(line, "started")
        machine = self._dict(line, "machine")
        words = self._text(machine, "name"), self._text(machine, "kernel")
        self.machine = Machine(*words, *(self._whole(machine, name) for name in ("processors", "memory", "page")))

    def _process(self, line: dict[str, Any]) -> None:
        number = self._number(line, "process", self._processes)
        pid, parent = self._whole(line, "pid"), self._whole(line, "parent")
        row: Row = (0,) * len(COLUMNS)  # type: ignore[assignment]
        name = self._text(line, "name")
        self._processes[number] = ProcessSample(pid, self._seconds(line, "started"), parent, name, row, None, 0, 0, 0.0)

    def _file(self, line: dict[str, Any]) -> None:
        number = self._number(line, "file", self._files)
        kind = self._text(line, "kind")
        if kind not in ("file", "shmem"):
            self._refuse(f"'kind' is {_short(kind)}, neither 'file' nor 'shmem'")
        size = None if line.get("size") is None else self._whole(line, "size")
        self._files[number] = FileSample((0, number), self._text(line, "path"), kind, size, None, 0, 0, 0)

    def _sample(self, line: dict[str, Any]) -> None:
        at = self._seconds(line, "at")
        if at < self._at:
            self._refuse(f"'at' is {at}, which is before {self._at} of the previous sample")
        self._at = at
        processes = tuple(map(self._process_sample, self._list(line, "processes")))
        if len({one.pid for one in processes}) != len(processes):
            self._refuse("duplicate process")
        if "files" in line:
            self._mapped = tuple(map(self._file_sample, self._list(line, "files")))
        self.series.add(Sample(at, self._row(line.get("total")), processes, self._mapped))

    def _process_sample(self, line: object) -> ProcessSample:
        if not isinstance(line, list) or len(line) != 6:
            self._refuse(f"a process in a sample must be a list of 6, not {_short(line)}")
        number, row, peak, minor, major, cpu = line
        known = self._processes.get(number) if isinstance(number, int) else None
        if known is None:
            self._refuse(f"there is no process {_short(number)}")
        return known._replace(
            row=self._row(row),
            peak_rss=None if peak is None else self._natural(peak, "VmHWM"),
            minor_faults=self._natural(minor, "minor faults"),
            major_faults=self._natural(major, "major faults"),
            cpu_s=self._real(cpu, "cpu_s"),
        )

    def _file_sample(self, line: object) -> FileSample:
        if not isinstance(line, list) or len(line) != 5:
            self._refuse(f"a file in a sample must be a list of 5, not {_short(line)}")
        number, once, dirty, saves, sharers = line
        known = self._files.get(number) if isinstance(number, int) else None
        if known is None:
            self._refuse(f"there is no file {_short(number)}")
        return known._replace(
            once=self._natural(once, "bytes in memory"),
            dirty=None if dirty is None else self._natural(dirty, "dirty bytes"),
            saves=self._natural(saves, "bytes saved"),
            sharers=self._natural(sharers, "sharers"),
        )

    def _end(self, line: dict[str, Any]) -> None:
        found: dict[str, Any] = {"seconds": self._seconds(line, "end")}
        for one in fields(End)[1:]:
            value = line.get(one.name)
            if value is not None:
                number = -value if one.name == "exit" and isinstance(value, int) and value < 0 else value
                self._real(number, one.name) if one.name.endswith("_s") else self._natural(number, one.name)
                found[one.name] = value
        self.end = End(**found)

    # --- values -------------------------------------------------------------------------------------------------------

    def _row(self, line: object) -> Row:
        if not isinstance(line, list) or len(line) != len(COLUMNS):
            self._refuse(f"a list of {len(COLUMNS)} numbers was expected, not {_short(line)}")
        return tuple(self._natural(one, name) for one, name in zip(line, COLUMNS, strict=True))  # type: ignore[return-value]

    def _natural(self, value: object, what: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _MAX_NUMBER:
            self._refuse(f"{what} must be a whole number from 0 to 2**62, not {_short(value)}")
        return value

    def _real(self, value: object, what: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
            self._refuse(f"{what} must be a number of seconds, not {_short(value)}")
        return float(value)

    def _number(self, line: dict[str, Any], name: str, known: dict[int, Any]) -> int:
        number = self._whole(line, name)
        if number not in known and len(known) >= _MAX_NAMED:
            self._refuse(f"more than {_MAX_NAMED} of {name!r}")
        return number

    def _whole(self, line: dict[str, Any], name: str) -> int:
        return self._natural(line.get(name), repr(name))

    def _seconds(self, line: dict[str, Any], name: str) -> float:
        return self._real(line.get(name), repr(name))

    def _text(self, line: dict[str, Any], name: str) -> str:
        value = line.get(name)
        if not isinstance(value, str):
            self._refuse(f"{name!r} must be a text, not {_short(value)}")
        return value

    def _list(self, line: dict[str, Any], name: str) -> list[Any]:
        value = line.get(name)
        if not isinstance(value, list):
            self._refuse(f"{name!r} must be a list, not {_short(value)}")
        return value

    def _dict(self, line: dict[str, Any], name: str) -> dict[str, Any]:
        value = line.get(name)
        if not isinstance(value, dict):
            self._refuse(f"{name!r} must be an object, not {_short(value)}")
        return value

    def _refuse_constant(self, name: str) -> NoReturn:
        raise ValueError(f"{name} is not a number")

    def _refuse(self, why: str) -> NoReturn:
        raise FormatError(f"{self.path}: line {self._line}: {why}" if self._line else f"{self.path}: {why}")


def _short(value: object) -> str:
    """Return an untrusted value as short text."""
    text = f"a number of {value.bit_length()} bits" if isinstance(value, int) and abs(value) > _MAX_NUMBER else ""
    with suppress(RecursionError):
        text = text or (str(value) if isinstance(value, Exception) else repr(value))
    return text if len(text) <= 60 else f"{text[:57]}..."
