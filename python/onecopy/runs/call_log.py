"""What became of each call that loads a file: how much of it is shared, how much is not, and why.

`calls` returns those of this process. Under `onecopy run` each process also appends them to a file, a line of JSON for
each, from which `onecopy run` makes its report: a process that is killed loses none.
"""

from __future__ import annotations

import errno
import json
import os
import re
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from io import FileIO
from typing import TYPE_CHECKING, Any

from onecopy.runs import MIN_BYTES, RUN_FILE
from onecopy.variables import RUN

if TYPE_CHECKING:
    from collections.abc import Iterable

_RUN_PATH = re.compile(r"/proc/\d{1,10}/fd/\d{1,10}")
LARGEST_RUN = 64 << 20
"""Bytes of this file that are read; further calls are not counted."""
LOAD_STATE_DICT = "torch.nn.Module.load_state_dict"
MAX_CALLS = 1000
"""Different calls that a process keeps and reports; further ones are not reported."""
_MAX_LINE = 16 << 10
"""Bytes of a line; a longer one is not written, and ends the reading of a file."""


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
    """Keep a call for `calls`, and append it to the file of `onecopy run`, if there is one; raises nothing.

    Calls that shared or copied less than `MIN_BYTES` are not kept, except for failures, of which the bytes are unknown.
    """
    if max(shared, copied) < MIN_BYTES and (path or not reason):
        return
    call = Call(function, path, shared, copied, reason)
    if call not in _known and len(_known) < MAX_CALLS:
        _known[call] = None
        append(asdict(call))


_mapped: dict[str, str] = {}
"""From the path of a mapping in /proc/self/maps to the path of the file that it has the contents of."""
_exits = set[int]()
"""This process, if it reports its private memory at its end."""


def mapped(place: str, path: str) -> None:
    """Report that mappings that /proc/PID/maps has as `place` have the contents of the file at `path`."""
    if _mapped.get(place) != path:
        _mapped[place] = path
        append({"mapped": place, "path": path})
    if RUN in os.environ and os.getpid() not in _exits:
        import atexit

        _exits.clear()  # that of a parent, whose handlers a forked process runs too
        _exits.add(os.getpid())
        atexit.register(_report_private, os.getpid())


def _report_private(pid: int) -> None:
    """Report the private memory of this process in what it shares, when it ends."""
    with suppress(OSError, ValueError):
        if pid == os.getpid():
            append({"private": private_bytes(pid, _mapped), "pid": pid})


def private_bytes(pid: int, paths: dict[str, str]) -> dict[str, int]:
    """Return the private bytes of a process in mappings of files, by `paths`: from the path in its maps to the file's.

    Raises OSError if the process has ended, or belongs to another user.
    """
    found: dict[str, int] = {}
    path = ""
    with open(f"/proc/{pid}/smaps", errors="replace") as file:  # noqa: PTH123 - without pathlib
        lines = file.read().splitlines()
    for line in lines:
        words = line.split(maxsplit=5)
        if "-" in words[0]:
            path = paths.get(words[5], "") if len(words) == 6 else ""
        elif path and words[0] == "Anonymous:":
            found[path] = found.get(path, 0) + (int(words[1]) << 10)
    return found


def append(fields: dict[str, Any]) -> None:
    """Append a line to the file of `onecopy run`, if there is one that this process may write; raises nothing."""
    line = json.dumps(fields).encode() + b"\n"
    if RUN in os.environ and len(line) <= _MAX_LINE:
        with suppress(OSError), _run_file(os.environ[RUN], os.O_WRONLY | os.O_APPEND) as file:
            file.write(line)  # one write, so that lines of processes do not mix


def read_run(offset: int = 0) -> bytes:
    """Return the file of `onecopy run` from an offset on; empty if there is none, or it may not be read."""
    with suppress(OSError), _run_file(os.environ.get(RUN, ""), os.O_RDONLY) as file:
        file.seek(offset)
        return file.read()
    return b""


def calls_of_run(path: str) -> list[Call]:
    """Return the calls in the file of another `onecopy run`; OSError if it has ended, or belongs to another user.

    `path` may come from a process that is not trusted: nothing else than a file in memory of that name is opened.
    """
    if not _RUN_PATH.fullmatch(path) or not os.readlink(path).startswith(f"/memfd:{RUN_FILE}"):  # noqa: PTH115
        raise FileNotFoundError(errno.ENOENT, "not a file of onecopy run", path)
    with _run_file(path, os.O_RDONLY) as file:
        return parse_calls((file.read(LARGEST_RUN) or b"").split(b"\n"))


def _run_file(path: str, flags: int) -> FileIO:
    """Open the file of `onecopy run`; OSError if there is none.

    If `onecopy run` was killed, its PID may be in use again: no other file than the one of that name is written.
    """
    file = FileIO(os.open(path, flags | os.O_CLOEXEC), "wb" if flags & os.O_WRONLY else "rb")
    if not os.readlink(f"/proc/self/fd/{file.fileno()}").startswith(f"/memfd:{RUN_FILE}"):  # noqa: PTH115
        file.close()
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return file


def parse_calls(lines: Iterable[bytes]) -> list[Call]:
    """Return the calls that processes have appended to a file; lines that are damaged are left out.

    >>> [call.function for call in parse_calls([b'{"function": "torch.load", "path": "", "shared": 1}', b"{"])]
    []
    """
    found = []
    for line in lines:
        try:
            call = Call(**json.loads(line))
        except (ValueError, TypeError, RecursionError):
            continue
        texts = all(isinstance(one, str) for one in (call.function, call.path, call.reason))
        if texts and all(type(one) is int for one in (call.shared, call.copied, call.pid)):
            found.append(replace(call, shared=max(call.shared, 0), copied=max(call.copied, 0)))
    return found
