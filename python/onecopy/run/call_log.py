"""What became of each call that loads a file: how much of it is shared, how much is not, and why.

`calls` returns those of this process. Under `onecopy run` each process also appends them to a file in memory, a line of
JSON for each, from which `onecopy run` makes its report: a process that is killed loses none. `onecopy run` gives the
file to those that ask for it, in user, PID and mount namespaces too.
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
from onecopy.memory.regions import parse_numbers, parse_region, read_text, split_smaps
from onecopy.store import protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGEST_RUN = 64 << 20
"""Bytes of this file that are read; further calls are not counted."""
LOAD_STATE_DICT = "torch.nn.Module.load_state_dict"
MAX_CALLS = 1000
"""Different calls that a process keeps and reports; further ones are not reported."""
_MAX_LINE = 16 << 10
"""Bytes of a line; a longer one is neither written nor read."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a framework, or several equal ones of a process."""

    function: str
    """The function, as in its documentation: "torch.load"."""
    path: str
    """Path of the file; empty if it is not known."""
    shared: int
    """Bytes that are pages of the file, which all processes share."""
    copied: int
    """Bytes that are private to the process, as without `onecopy.auto`."""
    reason: str
    """Why bytes were copied, or why nothing is shared; empty if everything is shared."""
    pid: int = field(default_factory=os.getpid)
    """The process that called."""


_known: dict[Call, None] = {}
"""An ordered set."""


def calls() -> tuple[Call, ...]:
    """Return the calls of this process that loaded a file, shared or not, in their order; equal calls count once.

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
    """Keep a call for `calls`, and report it to `onecopy run`, if there is one; raises nothing.

    Calls that shared or copied less than `MIN_BYTES` are not kept, except for failures, of which the bytes are unknown.
    """
    with suppress(Exception):  # any: what cannot be reported must not end the program
        call = Call(function, path, shared, copied, reason)
        is_large = max(shared, copied) >= MIN_BYTES or (reason and not path)
        if is_large and call not in _known and len(_known) < MAX_CALLS:
            _known[call] = None
            append(asdict(call))


def note_read(function: str, file: str | bytes | os.PathLike[Any] | int, reason: str) -> None:
    """Keep a call that has read a file, of a path or a descriptor, instead of sharing it; raises nothing."""
    with suppress(Exception):  # any: the function of the framework raises its own error for this file
        note(function, name_of(file), copied=os.stat(file).st_size, reason=reason)  # noqa: PTH116 - a descriptor too


def note_failure(function: str, error: Exception) -> None:
    """Keep a call that was not shared because a step of onecopy failed; raises nothing."""
    with suppress(Exception):  # any: the text of the error may be made by the program
        note(function, "", reason=f"{type(error).__name__}: {error}")


def name_of(file: str | bytes | os.PathLike[Any] | int) -> str:
    """Return the path of a file as text, whether it is given by a path or by a descriptor."""
    if isinstance(file, int):
        return os.readlink(f"/proc/self/fd/{file}")  # noqa: PTH115 - text
    return os.path.abspath(os.fsdecode(file))  # noqa: PTH100 - text


_mapped: dict[str, str] = {}
"""From the path of a mapping in /proc/self/maps to the path of the file that it has the contents of."""
_exits = set[int]()
"""This process, if it sends what is left at its end."""


def mapped(place: str, path: str) -> None:
    """Report that mappings that /proc/PID/maps has as `place` have the contents of the file at `path`."""
    if _mapped.get(place) != path:
        _mapped[place] = path
        append({"mapped": place, "path": path})


def _end(pid: int) -> None:
    """Report the private memory of this process in what it shares, and what `onecopy run` has not taken before."""
    with suppress(Exception):  # any: the program ends as without onecopy
        if pid == os.getpid() and (_mapped or _unsent):
            protocol.ask_again()
            append({"private": private_bytes("self", _mapped)})


def private_bytes(pid: int | str, paths: dict[str, str]) -> dict[str, int]:
    """Return the private bytes of a process in mappings of files; `paths` is as `_mapped`."""
    found: dict[str, int] = {}
    for header, numbers, _ in split_smaps(read_text(f"/proc/{pid}/smaps")):
        *_, place, is_deleted = parse_region("smaps", header)
        path = paths.get(f"{place} (deleted)" if is_deleted else place)
        if path is not None:
            anonymous = parse_numbers("smaps", numbers)["anonymous"]
            found[path] = found.get(path, 0) + anonymous
    return found


_unsent: list[tuple[int, dict[str, Any]]] = []
"""Lines that `onecopy run` has not taken, because it did not answer, and the process that they are of."""


def append(fields: dict[str, Any]) -> int:
    """Append a line to the file of calls; return the PID that this process has for `onecopy run`; raises nothing.

    The line has that PID, which differs from `os.getpid` in a PID namespace. 0: there is no `onecopy run`, or it does
    not answer. Then the line is sent with the next one, or when the process ends.
    """
    with suppress(Exception):  # any: what cannot be reported must not end the program
        if RUN in os.environ and len(_unsent) < MAX_CALLS:
            _unsent.append((os.getpid(), fields))
            return _send()
    return 0


def _send() -> int:
    if os.getpid() not in _exits:
        import atexit

        _exits.clear()  # that of a parent, whose handlers a forked process runs too
        _exits.add(os.getpid())
        atexit.register(_end, os.getpid())
    descriptor, pid = _run_file(os.environ[RUN])
    try:
        while _unsent:
            owner, fields = _unsent.pop(0)
            line = json.dumps({**fields, "pid": pid}).encode() + b"\n"
            if owner == os.getpid() and len(line) <= _MAX_LINE:
                os.write(descriptor, line)  # one write, so that lines of processes do not mix
    finally:
        os.close(descriptor)
    return pid


def read_run(server: str, offset: int = 0) -> bytes:
    """Return the file of calls from an offset on; OSError or ValueError if there is none, or it cannot be reached.

    `server` may come from a process that is not trusted: nothing else than memory is read.
    """
    descriptor, _ = _run_file(server)
    try:
        fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)  # OSError for anything that is not a file in memory
        return os.pread(descriptor, min(max(os.fstat(descriptor).st_size - offset, 0), LARGEST_RUN), offset)
    finally:
        os.close(descriptor)


def _run_file(server: str) -> tuple[int, int]:
    """Return a descriptor of the file of calls, and the PID that `onecopy run` has for this process."""
    with closing(protocol.connected(server)) as connection:
        protocol.send(connection, protocol.LOG)
        reply, descriptor = protocol.receive(connection)
    if descriptor < 0:
        raise ConnectionRefusedError(errno.ECONNREFUSED, "onecopy run gives no file of calls")
    return descriptor, int(reply.split()[1])


def parse_lines(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the objects in complete or cut lines of a file of calls; what is damaged or too long is left out."""
    for line in data.split(b"\n"):
        with suppress(ValueError, RecursionError):
            if len(line) <= _MAX_LINE and isinstance(fields := json.loads(line), dict):
                yield fields


def parse_calls(data: bytes) -> list[Call]:
    """Return the calls that processes have appended to a file; lines that are damaged are left out.

    >>> [call.function for call in parse_calls(b'{"function": "torch.load", "path": "", "shared": 1}')]
    []
    """
    found = [call_of(fields) for fields in parse_lines(data)]
    return [call for call in found if call is not None]


def call_of(fields: dict[str, Any]) -> Call | None:
    """Return the call of a line; None if that has another one, or anything that no process of a run writes."""
    try:
        call = Call(**fields)
    except TypeError:
        return None
    texts = all(isinstance(one, str) for one in (call.function, call.path, call.reason))
    numbers = all(type(one) is int and abs(one) < 1 << 62 for one in (call.shared, call.copied, call.pid))
    return replace(call, shared=max(call.shared, 0), copied=max(call.copied, 0)) if texts and numbers else None
