"""Makes processes under `onecopy run` take turns constructing models if memory is scarce.

A module is constructed with random weights in private memory; `load_state_dict` then replaces them with shared ones. If
all of a server's workers do this at the same time, each needs private memory for a whole model, and in a small control
group, the OOM killer ends them. Therefore, once a quarter of the initially available memory is in use, only the process
that began first continues. When it has loaded its weights and freed the random ones, the next one continues. As soon as
the size of the model is known, as many processes continue as the memory allows.

A process waits for another only while the other writes parameters, maps files or copies a snapshot, and for at most
`MAX_SECONDS` in total. A process that never loads weights, such as a training process, soon stops delaying others.
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
"""Maximum number of seconds for which a process waits in total."""
IDLE_SECONDS = 5.0
"""Seconds without progress after which other processes stop waiting for a process."""
_STEP = 32 << 20
"""Number of parameter bytes between two checks of the available memory."""
_PAUSE = 0.05


class _Builder:
    """The state of this process: whether it constructs modules, and which other processes do."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.nbytes = 0
        """Number of parameter bytes since the last check of the memory."""
        self.private_pages = 0
        """Private pages of this process after construction, or 0 if it does not construct a module."""
        self.waited = 0.0
        """Seconds for which this process has waited."""
        self.read = 0
        """Number of bytes of the call log that have been read."""
        self.available_at_first = 0
        """Number of bytes of memory that were available when the first process began."""
        self.model_bytes = 0
        """Size in bytes of the largest model that a process has loaded, or 0 if it is unknown."""
        self.builders: dict[int, int] = {}
        """`private_pages` of the processes that construct modules, in the order in which they began."""
        self.copying: set[int] = set()
        """The processes that are copying a file into a snapshot."""

    def registered(self, nbytes: int) -> None:
        self.nbytes += nbytes
        if self.nbytes < _STEP or self.waited >= MAX_SECONDS:
            return
        self.private_pages = (self.private_pages or _pages(self.pid)[0]) + self.nbytes // PAGESIZE
        self.nbytes = 0
        number = call_log.append({"building": True, "left": _left(), "pages": self.private_pages})
        if number == self.pid:  # otherwise /proc of this PID namespace lacks the other processes
            self._wait_while_scarce()

    def finished(self) -> None:
        self.nbytes = 0
        if self.private_pages:
            self.private_pages = 0
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
        """Return how many bytes must be available before any process but the first continues."""
        return 1.5 * self.model_bytes if self.model_bytes else 0.75 * self.available_at_first

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
                    self.available_at_first = max(self.available_at_first, int(fields["left"]))
                elif "copying" in fields:
                    self.copying ^= {pid}
                elif "built" in fields:
                    self.builders.pop(pid, None)
                elif fields.get("function") == call_log.LOAD_STATE_DICT:
                    self.model_bytes = max(self.model_bytes, int(fields["shared"]))


_builder = _Builder()


def registered(nbytes: int) -> None:
    """Wait for other processes if memory is scarce. Called for each parameter before its memory is written."""
    _of_process().registered(nbytes)


@contextmanager
def copying() -> Iterator[None]:
    """Announce to other processes that this process copies a snapshot."""
    is_building = bool(_of_process().private_pages)
    if is_building:
        call_log.append({"copying": True})
    try:
        yield
    finally:
        if is_building:
            call_log.append({"copying": True})


def finished() -> None:
    """Let the next process continue, because this process's weights have been loaded."""
    _of_process().finished()


def _of_process() -> _Builder:
    global _builder  # noqa: PLW0603
    if _builder.pid != os.getpid():  # forked from the process that imported torch
        _builder = _Builder()
    return _builder


def _left() -> int:
    found = _core.available_memory()
    return 1 << 62 if found is None else found[0]


def _pages(pid: int) -> tuple[int, int]:
    """Return how many private and how many mapped pages of a process are resident, or (0, 0) if it has ended."""
    try:
        resident, mapped = Path(f"/proc/{pid}/statm").read_text().split()[1:3]
    except (OSError, ValueError):
        return 0, 0
    return int(resident) - int(mapped), int(mapped)
