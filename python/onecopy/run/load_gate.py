"""Processes of `onecopy run` that construct models take turns where memory is scarce.

A module is constructed with random weights in private memory, and its weights are shared when `load_state_dict` has
replaced them. If all workers of a server do that at the same time, each needs private memory for a whole model at its
peak, and in a control group they are killed. So only the process goes on that began first, once a quarter of the memory
is in use that was left before; when it has loaded its weights, and freed the random ones, the next one does. As soon as
the size of the model is known, processes go on together for which there is memory.

A process waits for another one only while that writes its parameters, maps files or copies a snapshot, and at most
`MAX_SECONDS` in total: one that goes on without loading weights, for example to train, is not waited for.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager, suppress
from mmap import PAGESIZE
from pathlib import Path
from typing import TYPE_CHECKING

from onecopy import _core
from onecopy.base.run_constants import RUN
from onecopy.run import call_log

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_SECONDS = 300.0
"""Seconds that a process waits in total."""
IDLE_SECONDS = 5.0
"""Seconds after which a process that neither writes parameters nor maps files is not waited for."""
_STEP = 32 << 20
"""Bytes of parameters after which the memory is read again."""
_PAUSE = 0.05


class _Builder:
    """The process, while it constructs modules."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.nbytes = 0
        """Bytes of parameters since the memory was read."""
        self.largest_private = 0
        """Pages of private memory that the process has when its parameters are written; 0: not announced."""
        self.waited = 0.0
        """Seconds."""
        self.read = 0
        """Bytes of the file of `onecopy run` that were read."""
        self.most_left = 0
        """Bytes of memory that were left when the first process began."""
        self.largest = 0
        """Bytes of the largest model that a process has loaded; 0: not known."""
        self.builders: dict[int, int] = {}
        """`largest_private` of processes that construct modules, in the order in which they began."""
        self.copying: set[int] = set()
        """Those of them that copy a file into a snapshot."""

    def registered(self, nbytes: int) -> None:
        self.nbytes += nbytes
        if self.nbytes < _STEP or self.waited >= MAX_SECONDS:
            return
        self.largest_private = (self.largest_private or _pages(self.pid)[0]) + self.nbytes // PAGESIZE
        self.nbytes = 0
        number = call_log.append({"building": True, "left": _left(), "pages": self.largest_private})
        if number == self.pid:  # in another PID namespace, the other processes cannot be seen
            self._wait_while_scarce()

    def finished(self) -> None:
        self.nbytes = 0
        if self.largest_private:
            self.largest_private = 0
            call_log.append({"built": True})

    def _wait_while_scarce(self) -> None:
        watched, seen, since = 0, (0, 0), 0.0
        ignored: set[int] = set()
        while self.waited < MAX_SECONDS:
            self._read()
            first = next((pid for pid in self.builders if pid not in ignored), self.pid)
            if first == self.pid or _left() >= self._needed():
                return
            now, (private, mapped) = time.monotonic(), _pages(first)
            progress = min(private, self.builders[first]), mapped
            if (first, progress) != (watched, seen):
                watched, seen, since = first, progress, now
            elif progress == (0, 0) or (first not in self.copying and now - since > IDLE_SECONDS):
                ignored.add(first)
            time.sleep(_PAUSE)
            self.waited += _PAUSE

    def _needed(self) -> float:
        """Return how many bytes must be left for a process that is not the first one."""
        return 1.5 * self.largest if self.largest else 0.75 * self.most_left

    def _read(self) -> None:
        with suppress(OSError, ValueError):
            more = call_log.read_run(os.environ[RUN], self.read)
            self.read += len(more)
            self._follow(more)

    def _follow(self, lines: bytes) -> None:
        for fields in call_log.parse_lines(lines):
            with suppress(ValueError, TypeError, KeyError, OverflowError):
                pid = int(fields["pid"])
                if "building" in fields:
                    self.builders[pid] = int(fields["pages"])
                    self.most_left = max(self.most_left, int(fields["left"]))
                elif "copying" in fields:
                    self.copying ^= {pid}
                elif "built" in fields:
                    self.builders.pop(pid, None)
                elif fields.get("function") == call_log.LOAD_STATE_DICT:
                    self.largest = max(self.largest, int(fields["shared"]))


_builder = _Builder()


def registered(nbytes: int) -> None:
    """Wait for other processes if memory is scarce; call it for each parameter before its memory is written."""
    _of_process().registered(nbytes)


@contextmanager
def copying() -> Iterator[None]:
    """Say to other processes, while a snapshot is taken, that this one is at work."""
    is_building = bool(_of_process().largest_private)
    if is_building:
        call_log.append({"copying": True})
    try:
        yield
    finally:
        if is_building:
            call_log.append({"copying": True})


def finished() -> None:
    """Let the next process go on: the weights of this one were loaded."""
    _of_process().finished()


def _of_process() -> _Builder:
    global _builder  # noqa: PLW0603
    if _builder.pid != os.getpid():  # a child of the process that imported torch
        _builder = _Builder()
    return _builder


def _left() -> int:
    found = _core.available_memory()
    return 1 << 62 if found is None else found[0]


def _pages(pid: int) -> tuple[int, int]:
    """Return the private and the mapped resident pages of a process; 0 if it has ended."""
    try:
        resident, mapped = Path(f"/proc/{pid}/statm").read_text().split()[1:3]
    except (OSError, ValueError):
        return 0, 0
    return int(resident) - int(mapped), int(mapped)
