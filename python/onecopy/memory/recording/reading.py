"""Recordings read back, whoever wrote them: a file is believed only as far as it makes sense."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NoReturn

from onecopy.arguments import path_text
from onecopy.errors import FormatError
from onecopy.files import open_regular
from onecopy.memory.recording.writing import FORMAT, VERSION, End, Machine
from onecopy.memory.samples import COLUMNS, FileSample, ProcessSample, Sample
from onecopy.memory.series import Series

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onecopy.memory.samples import Row

__all__ = ["Recording", "read_recording"]

_LONGEST = 64 << 20
"""Bytes of one line."""
_MOST = 2**62
"""Bytes of anything: sums of many must not pass what a number of 64 bits holds."""
_MOST_NAMED = 1_000_000
"""Processes, and files, of one recording."""


@dataclass(frozen=True, slots=True)
class Recording:
    """What `onecopy record` wrote."""

    path: str
    command: tuple[str, ...]
    started: float
    """Seconds since 1970."""
    machine: Machine
    series: Series
    end: End | None
    """None: the recorder was killed, or is still at it."""
    cut: bool
    """The last line is not whole: the recorder was killed as it wrote, or the disk was full."""

    @property
    def title(self) -> str:
        """The command as one line, or the name of the file."""
        return " ".join(self.command) or os.path.basename(self.path)  # noqa: PTH119 - text


def read_recording(path: str | os.PathLike[str]) -> Recording:
    """Read a recording; a last line that is cut is passed over, and told.

    Raises
    ------
    FormatError
        It is no recording, or damaged: names the file and the line.
    OSError
        It cannot be read.

    Examples
    --------
    >>> import os, tempfile
    >>> from onecopy.memory import Recorder, Sampler, sample_of
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
    """Goes through the lines of one file."""

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
        """Read all lines; return whether the last one is cut."""
        with open_regular(self.path) as file:
            for line in self._lines(file):
                whole = line.endswith(b"\n")
                try:
                    told = json.loads(line, parse_constant=self._refuse_constant)
                except (ValueError, RecursionError) as error:
                    if not whole and self._line > 1:
                        return True
                    self._refuse(f"no line of JSON ({_short(error)})")
                if not isinstance(told, dict):
                    self._refuse(f"an object was expected, not {type(told).__name__}")
                self._take(told)
        if self._line == 0:
            self._refuse("the file is empty")
        return False

    def _lines(self, file: Any) -> Iterator[bytes]:
        while line := file.readline(_LONGEST):
            self._line += 1
            if len(line) == _LONGEST:
                self._refuse(f"a line of more than {_LONGEST} bytes")
            yield line

    def _take(self, told: dict[str, Any]) -> None:
        if self._line == 1:
            self._header(told)
        elif "process" in told:
            self._process(told)
        elif "file" in told:
            self._file(told)
        elif "at" in told:
            self._look(told)
        elif "end" in told:
            self._end(told)

    def _header(self, told: dict[str, Any]) -> None:
        if told.get("format") != FORMAT:
            self._refuse(f"no recording of onecopy: 'format' is {_short(told.get('format'))}, not {FORMAT!r}")
        if self._whole(told, "version") > VERSION:
            self._refuse(f"version {told['version']}, and this onecopy reads {VERSION}: a newer one wrote it")
        columns, command = told.get("columns"), told.get("command")
        if columns != list(COLUMNS):
            self._refuse(f"'columns' is {_short(columns)}, not {list(COLUMNS)}")
        if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
            self._refuse("'command' must be a list of words")
        self.command = tuple(command)
        self.started = self._seconds(told, "started")
        machine = self._dict(told, "machine")
        words = self._text(machine, "name"), self._text(machine, "kernel")
        self.machine = Machine(*words, *(self._whole(machine, name) for name in ("processors", "memory", "page")))

    def _process(self, told: dict[str, Any]) -> None:
        number = self._number(told, "process", self._processes)
        pid, parent = self._whole(told, "pid"), self._whole(told, "parent")
        row: Row = (0,) * len(COLUMNS)  # type: ignore[assignment]
        name = self._text(told, "name")
        self._processes[number] = ProcessSample(pid, self._seconds(told, "started"), parent, name, row, None, 0, 0, 0.0)

    def _file(self, told: dict[str, Any]) -> None:
        number = self._number(told, "file", self._files)
        kind = self._text(told, "kind")
        if kind not in ("file", "shmem"):
            self._refuse(f"'kind' is {_short(kind)}, neither 'file' nor 'shmem'")
        size = None if told.get("size") is None else self._whole(told, "size")
        self._files[number] = FileSample((0, number), self._text(told, "path"), kind, size, None, 0, 0, 0)

    def _look(self, told: dict[str, Any]) -> None:
        at = self._seconds(told, "at")
        if at < self._at:
            self._refuse(f"'at' is {at}, which is before {self._at} of the look before")
        self._at = at
        processes = tuple(map(self._process_look, self._list(told, "processes")))
        if len({one.pid for one in processes}) != len(processes):
            self._refuse("a process is there twice")
        if "files" in told:
            self._mapped = tuple(map(self._file_look, self._list(told, "files")))
        self.series.add(Sample(at, self._row(told.get("total")), processes, self._mapped))

    def _process_look(self, told: object) -> ProcessSample:
        if not isinstance(told, list) or len(told) != 6:
            self._refuse(f"a process in a look must be a list of 6, not {_short(told)}")
        number, row, peak, minor, major, cpu = told
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

    def _file_look(self, told: object) -> FileSample:
        if not isinstance(told, list) or len(told) != 5:
            self._refuse(f"a file in a look must be a list of 5, not {_short(told)}")
        number, once, dirty, saves, sharers = told
        known = self._files.get(number) if isinstance(number, int) else None
        if known is None:
            self._refuse(f"there is no file {_short(number)}")
        return known._replace(
            once=self._natural(once, "bytes in memory"),
            dirty=None if dirty is None else self._natural(dirty, "dirty bytes"),
            saves=self._natural(saves, "bytes saved"),
            sharers=self._natural(sharers, "sharers"),
        )

    def _end(self, told: dict[str, Any]) -> None:
        found: dict[str, Any] = {"seconds": self._seconds(told, "end")}
        for one in fields(End)[1:]:
            value = told.get(one.name)
            if value is not None:
                number = -value if one.name == "exit" and isinstance(value, int) and value < 0 else value
                self._real(number, one.name) if one.name.endswith("_s") else self._natural(number, one.name)
                found[one.name] = value
        self.end = End(**found)

    # --- values -------------------------------------------------------------------------------------------------------

    def _row(self, told: object) -> Row:
        if not isinstance(told, list) or len(told) != len(COLUMNS):
            self._refuse(f"a list of {len(COLUMNS)} numbers was expected, not {_short(told)}")
        return tuple(self._natural(one, name) for one, name in zip(told, COLUMNS, strict=True))  # type: ignore[return-value]

    def _natural(self, value: object, what: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _MOST:
            self._refuse(f"{what} must be a whole number from 0 to 2**62, not {_short(value)}")
        return value

    def _real(self, value: object, what: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
            self._refuse(f"{what} must be a number of seconds, not {_short(value)}")
        return float(value)

    def _number(self, told: dict[str, Any], name: str, known: dict[int, Any]) -> int:
        number = self._whole(told, name)
        if number not in known and len(known) >= _MOST_NAMED:
            self._refuse(f"more than {_MOST_NAMED} of {name!r}")
        return number

    def _whole(self, told: dict[str, Any], name: str) -> int:
        return self._natural(told.get(name), repr(name))

    def _seconds(self, told: dict[str, Any], name: str) -> float:
        return self._real(told.get(name), repr(name))

    def _text(self, told: dict[str, Any], name: str) -> str:
        value = told.get(name)
        if not isinstance(value, str):
            self._refuse(f"{name!r} must be a text, not {_short(value)}")
        return value

    def _list(self, told: dict[str, Any], name: str) -> list[Any]:
        value = told.get(name)
        if not isinstance(value, list):
            self._refuse(f"{name!r} must be a list, not {_short(value)}")
        return value

    def _dict(self, told: dict[str, Any], name: str) -> dict[str, Any]:
        value = told.get(name)
        if not isinstance(value, dict):
            self._refuse(f"{name!r} must be an object, not {_short(value)}")
        return value

    def _refuse_constant(self, name: str) -> NoReturn:
        raise ValueError(f"{name} is no number")

    def _refuse(self, why: str) -> NoReturn:
        raise FormatError(f"{self.path}: line {self._line}: {why}" if self._line else f"{self.path}: {why}")


def _short(value: object) -> str:
    """Show a value that came from elsewhere, in a few characters."""
    text = f"a number of {value.bit_length()} bits" if isinstance(value, int) and abs(value) > _MOST else ""
    with suppress(RecursionError):
        text = text or (str(value) if isinstance(value, Exception) else repr(value))
    return text if len(text) <= 60 else f"{text[:57]}..."
