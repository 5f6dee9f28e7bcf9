"""A log of calls that load files. It records how much each call shared, how much it copied, and why.

`calls` returns the calls of this process. Under `onecopy run`, each process also appends its calls to the call log of
the run, a file in memory with lines of JSON, so that no calls are lost if the process is killed. The run's server
sends this file's descriptor to processes, even to those in other user, PID and mount namespaces.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from onecopy.base.run_constants import MIN_BYTES, RUN
from onecopy.memory.smaps import parse_numbers, parse_region, read_text, split_smaps
from onecopy.store import protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_LOG_BYTES = 64 << 20
"""Maximum number of bytes of the log that are read; later calls are not counted."""
LOAD_STATE_DICT = "torch.nn.Module.load_state_dict"
MAX_CALLS = 1000
"""Maximum number of different calls that a process keeps and reports."""
_MAX_LINE = 16 << 10
"""Maximum length of a line in bytes; longer lines are neither written nor read."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call to a framework, or several equal calls from a process."""

    function: str
    """The documented name of the function, such as "torch.load"."""
    path: str
    """Path of the file, or "" if it is unknown."""
    shared: int
    """Number of bytes on pages of the file, which all processes share."""
    copied: int
    """Number of bytes that are private to the process, as without `onecopy.auto`."""
    reason: str
    """Why bytes were copied or are not shared, or "" if everything is shared."""
    pid: int = field(default_factory=os.getpid)
    """The PID of the calling process."""


_known: dict[Call, None] = {}
"""The calls of this process and of the processes from which it was forked, in order."""


def calls() -> tuple[Call, ...]:
    """Return this process's calls that loaded files, whether or not the data is shared, in order, without duplicates.

    Examples
    --------
    >>> import onecopy.auto, numpy, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "table.npy")
    >>> numpy.save(path, numpy.zeros(1 << 20))
    >>> table = numpy.load(path)
    >>> print(onecopy.auto.calls()[-1].shared)
    8388608
    """
    return tuple(call for call in _known if call.pid == os.getpid())


def note(function: str, path: str, shared: int = 0, copied: int = 0, reason: str = "") -> None:
    """Log a call. Calls that load less than `MIN_BYTES` are dropped, except failures, whose size is unknown."""
    with suppress(Exception):  # a report must not end the program
        call = Call(function, path, shared, copied, reason)
        is_large = max(shared, copied) >= MIN_BYTES or (reason and not path)
        if is_large and call not in _known and len(_known) < MAX_CALLS:
            _known[call] = None
            append(asdict(call))


def note_read(function: str, file: str | bytes | os.PathLike[Any] | int, reason: str) -> None:
    """Log a call that reads a file instead of sharing it. The file is specified by its path or descriptor."""
    with suppress(Exception):  # the framework raises its own error for this file
        note(function, name_of(file), copied=os.stat(file).st_size, reason=reason)  # noqa: PTH116 - a descriptor too


def note_failure(function: str, error: Exception) -> None:
    """Log a call whose data was not shared because onecopy failed."""
    with suppress(Exception):  # code of the program may format the error
        note(function, "", reason=f"{type(error).__name__}: {error}")


def name_of(file: str | bytes | os.PathLike[Any] | int) -> str:
    """Return the path of a file that is specified by its path or descriptor."""
    if isinstance(file, int):
        return os.readlink(f"/proc/self/fd/{file}")  # noqa: PTH115 - text
    return os.path.abspath(os.fsdecode(file))  # noqa: PTH100 - text


_mapped: dict[str, str] = {}
"""Paths of mappings in /proc/self/maps, and the paths of the files that they contain."""
_exits = set[int]()
"""The PID of this process, if `_end` is registered to run at exit."""


def mapped(place: str, path: str) -> None:
    """Report that mappings with the path `place` in /proc/PID/maps contain the file at `path`."""
    if _mapped.get(place) != path:
        _mapped[place] = path
        append({"mapped": place, "path": path})


def _end(pid: int) -> None:
    """Report the private memory in this process's mappings, and send any unsent lines."""
    with suppress(Exception):  # the program must end as it would without onecopy
        if pid == os.getpid() and (_mapped or _unsent):
            protocol.ask_again()
            append({"private": private_bytes("self", _mapped)})


def private_bytes(pid: int | str, paths: dict[str, str]) -> dict[str, int]:
    """Return the private bytes in a process's mappings, by file. `paths` maps the paths of mappings to files."""
    found: dict[str, int] = {}
    for header, numbers, _ in split_smaps(read_text(f"/proc/{pid}/smaps")):
        *_, place, is_deleted = parse_region("smaps", header)
        path = paths.get(f"{place} (deleted)" if is_deleted else place)
        if path is not None:
            anonymous = parse_numbers("smaps", numbers)["anonymous"]
            found[path] = found.get(path, 0) + anonymous
    return found


_unsent: list[tuple[int, dict[str, Any]]] = []
"""PIDs and lines that could not be sent because `onecopy run` did not answer."""


def append(fields: dict[str, Any]) -> int:
    """Append a line to the call log, and return this process's PID in the PID namespace of `onecopy run`.

    If `onecopy run` does not answer, return 0. The line is then sent with the next one or when the process ends.
    """
    with suppress(Exception):  # a report must not end the program
        if RUN in os.environ and len(_unsent) < MAX_CALLS:
            _unsent.append((os.getpid(), fields))
            return _send()
    return 0


def _send() -> int:
    if os.getpid() not in _exits:
        import atexit

        _exits.clear()  # a forked process also runs the handlers of its parent
        _exits.add(os.getpid())
        atexit.register(_end, os.getpid())
    descriptor, pid = _run_file(os.environ[RUN])
    try:
        while _unsent:
            owner, fields = _unsent.pop(0)
            line = json.dumps({**fields, "pid": pid}).encode() + b"\n"
            if owner == os.getpid() and len(line) <= _MAX_LINE:
                os.write(descriptor, line)  # in one call, so that lines of processes do not mix
    finally:
        os.close(descriptor)
    return pid


def read_run(server: str, offset: int = 0) -> bytes:
    """Return the contents of the call log, starting at an offset. Raise OSError or ValueError if it cannot be read."""
    descriptor, _ = _run_file(server)
    try:
        fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)  # OSError unless it is memory: `server` is not trusted
        return os.pread(descriptor, min(max(os.fstat(descriptor).st_size - offset, 0), MAX_LOG_BYTES), offset)
    finally:
        os.close(descriptor)


def _run_file(server: str) -> tuple[int, int]:
    """Return a descriptor of the call log, and this process's PID in the server's PID namespace."""
    with closing(protocol.connected(server)) as connection:
        protocol.send(connection, protocol.LOG)
        reply, descriptor = protocol.receive(connection)
    if descriptor < 0:
        raise ConnectionRefusedError(errno.ECONNREFUSED, "onecopy run did not send its call log")
    return descriptor, int(reply.split()[1])


def parse_lines(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the objects in the lines of a call log, skipping damaged and overlong lines."""
    for line in data.split(b"\n"):
        with suppress(ValueError, RecursionError):
            if len(line) <= _MAX_LINE and isinstance(fields := json.loads(line), dict):
                yield fields


def parse_calls(data: bytes) -> list[Call]:
    """Return the calls in a call log."""
    found = [call_of(fields) for fields in parse_lines(data)]
    return [call for call in found if call is not None]


def call_of(fields: dict[str, Any]) -> Call | None:
    """Return the call in a line, or None if the line is of another kind or malformed."""
    try:
        call = Call(**fields)
    except TypeError:
        return None
    texts = all(isinstance(one, str) for one in (call.function, call.path, call.reason))
    numbers = all(type(one) is int and abs(one) < 1 << 62 for one in (call.shared, call.copied, call.pid))
    return replace(call, shared=max(call.shared, 0), copied=max(call.copied, 0)) if texts and numbers else None
