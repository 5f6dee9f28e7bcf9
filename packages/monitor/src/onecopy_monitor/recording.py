r"""Recordings: files of JSON lines with samples, which stay readable if the recorder is killed.

    {"format": "onecopy memory", "version": 1, "command": [...], "started": ..., "machine": {...}, "columns": [...]}
    {"process": 0, "pid": 4312, "started": 81.5, "parent": 4300, "name": "python"}
    {"file": 0, "path": "/data/train.bin", "kind": "file", "size": 1000000000}
    {"at": 0.1, "total": [...], "processes": [[0, [...], VmHWM, minor, major, cpu_s], ...], "files": [[0, ...], ...]}
    {"end": 12.5, "exit": 0, ...}

`columns` contains the names of the numbers in each ``total``. Before the first sample with a process or file, a line
assigns a number to it; another line follows if its name changes. In a sample, a file's list consists of its number, its
bytes in the deduplicated total, dirty bytes, saved bytes and the number of sharers. Other kinds of lines are reserved
for later versions and are skipped. The contents are validated when they are read; see `read_recording`.
"""

from __future__ import annotations

import json
import os
import platform
import time
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NoReturn

from onecopy.base.text import cpu_count, escape, path_text, significant, size
from onecopy.errors import FormatError
from onecopy.files.mapping import Closeable, open_regular
from onecopy_monitor.samples import COLUMNS, LABELS, FileSample, ProcessSample, Sample
from onecopy_monitor.series import Series

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from onecopy_monitor.samples import Row

__all__ = ["FORMAT", "VERSION", "End", "Machine", "Recorder", "Recording", "compare", "read_recording", "resources_of"]

FORMAT, VERSION = "onecopy memory", 1
_MAX_LINE = 64 << 20
"""Maximum length of a line in bytes."""
_MAX_NUMBER = 2**62
"""Maximum value of a field in bytes, so that sums fit into 64 bits."""
_MAX_NAMED = 1_000_000
"""Maximum number of processes, and of files, in a recording."""
_LONG = 120
"""Maximum length of a command in characters."""
Fact = tuple[float | None, str]
"""A number, or None if it is unknown, and its text."""


# --- writing ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine on which a recording was made. Field names are keys in the file."""

    name: str
    """Host name of the machine."""
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
        """Describe this machine.

        >>> Machine.here().page in (4096, 16384, 65536)
        True
        """
        page = os.sysconf("SC_PAGE_SIZE")
        memory = page * os.sysconf("SC_PHYS_PAGES")
        return cls(platform.node(), platform.release(), cpu_count(), memory, page)


@dataclass(frozen=True, slots=True)
class End:
    """The last line of a recording. Field names are keys in the file.

    Unknown numbers are None. If the recorder was attached to running processes, most numbers are unknown.
    """

    seconds: float
    """Seconds from the first to the last sample."""
    exit: int | None = None
    """Exit status of the command, or -N if signal N killed it."""
    max_rss: int | None = None
    """Peak RSS of the largest process that was waited for, in bytes, as recorded by the kernel."""
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
    """Number of page-table walks that were deferred because they would have exceeded the budget."""


@dataclass
class _Numbering:
    """The numbers that identify processes or files in a recording, and the last values written for each of them."""

    numbers: dict[Any, int] = field(default_factory=dict)
    written: dict[int, object] = field(default_factory=dict)

    def number(self, key: object, values: object) -> tuple[int, bool]:
        """Return a key's number, and whether its values have changed since they were last written."""
        number = self.numbers.setdefault(key, len(self.numbers))
        new = self.written.get(number) != values
        self.written[number] = values
        return number, new


class Recorder(Closeable):
    """Writes each sample to a file immediately, so that none are lost if the recorder is killed. Not thread-safe.

    Parameters
    ----------
    path
        Path of the file to create.
    command
        The words of the observed command.
    options
        Options of the recording, as plain values to store in the file.
    force
        Whether to overwrite an existing file.

    Raises
    ------
    FileExistsError
        The file exists, and `force` is False.
    OSError
        The file cannot be created, or (raised by `add` and `end`) it cannot be written. Earlier lines stay readable.
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
        """Truncate the file and write the first line. `add` and `end` call this method if necessary."""
        if self._head is not None:
            head, self._head = self._head, None
            os.ftruncate(self._descriptor, 0)
            self._write(head)

    def discard(self) -> None:
        """Close the file, and remove it if this recorder created it but wrote nothing."""
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
        if files != self._last:  # most samples have the same files as the last one
            line["files"] = self._last = files
        self._write(*lines, line)

    def end(self, end: End) -> None:
        """Write the last line."""
        self.begin()
        values = _plain_dict(end)
        self._write({"end": round(values.pop("seconds"), 4), **values})

    def _process(self, one: ProcessSample, lines: list[dict[str, object]]) -> list[object]:
        number, new = self._processes.number((one.pid, one.started), (one.name, one.parent))
        if new:
            values = {"pid": one.pid, "started": one.started, "parent": one.parent, "name": one.name}
            lines.append({"process": number, **values})
        return [number, one.row, one.peak_rss, one.minor_faults, one.major_faults, round(one.cpu_s, 3)]

    def _file(self, one: FileSample, lines: list[dict[str, object]]) -> list[int | None]:
        number, new = self._files.number(one.key, (one.path, one.size))
        if new:
            lines.append({"file": number, "path": one.path, "kind": one.kind, "size": one.size})
        return [number, one.once, one.dirty, one.saves, one.sharers]

    def _write(self, *lines: Mapping[str, object]) -> None:
        """Write lines in one call. If the disk is full, an incomplete line remains, which readers skip."""
        text = "".join(json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n" for line in lines)
        left = memoryview(text.encode("ascii"))
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except OSError as error:
                raise OSError(error.errno, os.strerror(error.errno or 0), self.path) from None


def _plain_dict(record: Machine | End) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__slots__}


# --- reading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Recording:
    """The contents of a file that `onecopy record` wrote."""

    path: str
    """Path of the file."""
    command: tuple[str, ...]
    """The words of the recorded command; empty if the recorder was attached to running processes."""
    started: float
    """Start time in seconds since 1970."""
    machine: Machine
    """The machine on which the recording was made."""
    series: Series
    """The samples over time."""
    end: End | None
    """Total resources used, or None if the recorder was killed or is still running."""
    cut: bool
    """Whether the last line is incomplete, because the recorder was killed or the disk was full."""

    @property
    def title(self) -> str:
        """The command as one line, or the name of the file."""
        return " ".join(self.command) or os.path.basename(self.path)  # noqa: PTH119 - text


def read_recording(path: str | os.PathLike[str]) -> Recording:
    """Read a recording. An incomplete last line is skipped and reported by `Recording.cut`.

    Raises
    ------
    FormatError
        The file is not a recording or is damaged; the message states the file and the line.
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
        """Read all lines. Return whether the last one is incomplete."""
        with open_regular(self.path) as file:
            for text in self._lines(file):
                whole = text.endswith(b"\n")
                try:
                    line = json.loads(text, parse_constant=self._refuse_constant)
                except (ValueError, RecursionError) as error:
                    if not whole and self._line > 1:
                        return True
                    self._refuse(f"the line is not JSON ({_short(error)})")
                if not isinstance(line, dict):
                    self._refuse(f"expected an object, found a {type(line).__name__}")
                self._take(line)
        if self._line == 0:
            self._refuse("the file is empty")
        return False

    def _lines(self, file: Any) -> Iterator[bytes]:
        while line := file.readline(_MAX_LINE):
            self._line += 1
            if len(line) == _MAX_LINE:
                self._refuse(f"the line is longer than {_MAX_LINE} bytes")
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
            self._refuse(f"not a onecopy recording: 'format' is {_short(line.get('format'))}, not {FORMAT!r}")
        if self._whole(line, "version") > VERSION:
            self._refuse(f"version {line['version']} is newer than {VERSION}, the newest supported version")
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
            self._refuse(f"'kind' must be 'file' or 'shmem', not {_short(kind)}")
        size = None if line.get("size") is None else self._whole(line, "size")
        self._files[number] = FileSample((0, number), self._text(line, "path"), kind, size, None, 0, 0, 0)

    def _sample(self, line: dict[str, Any]) -> None:
        at = self._seconds(line, "at")
        if at < self._at:
            self._refuse(f"'at' is {at}, which is before the previous sample at {self._at}")
        self._at = at
        processes = tuple(map(self._process_sample, self._list(line, "processes")))
        if len({one.pid for one in processes}) != len(processes):
            self._refuse("duplicate process")
        if "files" in line:
            self._mapped = tuple(map(self._file_sample, self._list(line, "files")))
        self.series.add(Sample(at, self._row(line.get("total")), processes, self._mapped))

    def _process_sample(self, line: object) -> ProcessSample:
        if not isinstance(line, list) or len(line) != 6:
            self._refuse(f"a process in a sample must be a list of 6 values, not {_short(line)}")
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
            self._refuse(f"a file in a sample must be a list of 5 values, not {_short(line)}")
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
            self._refuse(f"expected a list of {len(COLUMNS)} numbers, found {_short(line)}")
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
            self._refuse(f"the recording has more than {_MAX_NAMED} {name!r} lines")
        return number

    def _whole(self, line: dict[str, Any], name: str) -> int:
        return self._natural(line.get(name), repr(name))

    def _seconds(self, line: dict[str, Any], name: str) -> float:
        return self._real(line.get(name), repr(name))

    def _text(self, line: dict[str, Any], name: str) -> str:
        value = line.get(name)
        if not isinstance(value, str):
            self._refuse(f"{name!r} must be a string, not {_short(value)}")
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


# --- comparing --------------------------------------------------------------------------------------------------------


def resources_of(recording: Recording) -> dict[str, Fact]:
    """Return a recording's peaks and the resources that the command used, keyed by their labels in `compare`.

    Raise ValueError if the recording has no samples.
    """
    series, end = recording.series, recording.end
    peak = series.peak
    resources = {f"{LABELS[name]}, peak": _fact(getattr(peak, name).bytes, size) for name in LABELS}
    one = max(peak.high_water, (end.max_rss if end else None) or 0)
    resources["largest process, peak RSS"] = _fact(one or None, size)
    processes = series.processes
    minor = sum(process.minor_faults for process in processes)
    major = sum(process.major_faults for process in processes)
    cpu = sum(process.cpu_s for process in processes)
    if end is not None and end.user_s is not None and end.system_s is not None:
        minor, major = max(minor, end.minor_faults or 0), max(major, end.major_faults or 0)
        cpu = max(cpu, end.user_s + end.system_s)
    resources["page faults"] = _fact(minor + major, str)
    resources["major page faults (disk)"] = _fact(major, str)
    resources["processes"] = _fact(len(processes) + series.dropped, str)
    resources["seconds"] = _fact(end.seconds if end else series.seconds, significant)
    resources["CPU seconds"] = _fact(cpu, significant)
    return resources


def compare(before: Recording, after: Recording) -> str:
    """Return a Markdown table that compares two recordings, with their commands above it.

    Peaks may have occurred at different times. A ratio below 1 means that `after` needs less. The ratio is empty if
    `before` is 0 or a number is unknown. Control characters and markup in commands are escaped.

    Raises
    ------
    ValueError
        One of the recordings has no samples.
    """
    first, second = resources_of(before), resources_of(after)
    lines = [f"* {name}: {_code(run)}{_ended(run)}" for name, run in (("before", before), ("after", after))]
    lines += ["", "| | before | after | ratio |", "|---|---:|---:|---:|"]
    lines += [
        f"| {name} | {first[name][1]} | {second[name][1]} | {_ratio(first[name], second[name])} |" for name in first
    ]
    return "\n".join(lines)


def _fact(number: float | None, words: Callable[[int], str] | Callable[[float], str]) -> Fact:
    return (None, "?") if number is None else (number, words(number))  # type: ignore[arg-type]


def _ratio(before: Fact, after: Fact) -> str:
    return "" if not before[0] or after[0] is None else f"{significant(after[0] / before[0])}"


def _code(run: Recording) -> str:
    shown = escape(run.title)
    shown = shown if len(shown) <= _LONG else f"{shown[: _LONG - 1]}…"
    return f"`{shown.replace('`', chr(39))}`"


def _ended(run: Recording) -> str:
    if run.end is None:
        return " (the recorder was killed or is still running)"
    if run.end.exit is None or run.end.exit == 0:
        return ""
    return f" (signal {-run.end.exit})" if run.end.exit < 0 else f" (exit status {run.end.exit})"
