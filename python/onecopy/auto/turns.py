"""Processes of `onecopy run` that construct models take turns where memory is scarce.

A module is constructed with random weights in private memory, and its weights are shared when `load_state_dict` has
replaced them. If all workers of a server do that at the same time, each needs private memory for a whole model at its
peak, and in a control group they are killed. So only the process goes on that began first, once a quarter of the memory
is in use that was left before; when it has loaded its weights, and freed the random ones, the next one does. As soon as
the size of the model is known, processes go on together for which there is memory.

A process waits for another one only while that makes progress, and at most `MAX_SECONDS` in total.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path

from onecopy import _core
from onecopy.runs import call_log

__all__ = ["MAX_SECONDS", "finished", "registered"]

MAX_SECONDS = 300.0
"""Seconds that a process waits in total."""
IDLE_SECONDS = 5.0
"""Seconds after which a process whose memory does not change is not waited for."""
_STEP = 32 << 20
"""Bytes of parameters after which the memory is read again."""
_PAUSE = 0.05


class _Builder:
    """The process, while it constructs modules."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.nbytes = 0
        """Bytes of parameters since the memory was read."""
        self.announced = False
        self.waited = 0.0
        """Seconds."""
        self.read = 0
        """Bytes of the file of `onecopy run` that were read."""
        self.most_left = 0
        """Bytes of memory that were left when the first process began."""
        self.largest = 0
        """Bytes of the largest model that a process has loaded; 0: not known."""
        self.builders: dict[int, None] = {}
        """Processes that construct modules, in the order in which they began."""

    def registered(self, nbytes: int) -> None:
        self.nbytes += nbytes
        if self.nbytes < _STEP or self.waited >= MAX_SECONDS:
            return
        self.nbytes = 0
        left = _left()
        if not self.announced:
            self.announced = True
            call_log.append({"building": self.pid, "left": left})
        self._wait_while_scarce()

    def finished(self) -> None:
        self.nbytes = 0
        if self.announced:
            self.announced = False
            call_log.append({"built": self.pid})

    def _wait_while_scarce(self) -> None:
        watched, rss, since = 0, 0, 0.0
        ignored: set[int] = set()
        while self.waited < MAX_SECONDS:
            self._read()
            first = next((pid for pid in self.builders if pid not in ignored), self.pid)
            if first == self.pid or _left() >= self._needed():
                return
            now, size = time.monotonic(), _resident(first)
            if (first, size) != (watched, rss):
                watched, rss, since = first, size, now
            elif size == 0 or now - since > IDLE_SECONDS:
                ignored.add(first)
            time.sleep(_PAUSE)
            self.waited += _PAUSE

    def _needed(self) -> float:
        """Return how many bytes must be left for a process that is not the first one."""
        return 1.5 * self.largest if self.largest else 0.75 * self.most_left

    def _read(self) -> None:
        more = call_log.read_run(self.read)
        self.read += len(more)
        for line in more.split(b"\n"):
            with suppress(ValueError, TypeError, KeyError, AttributeError):
                fields = json.loads(line)
                if "building" in fields:
                    self.builders[int(fields["building"])] = None
                    self.most_left = max(self.most_left, int(fields["left"]))
                elif "built" in fields:
                    self.builders.pop(int(fields["built"]), None)
                elif fields.get("function") == call_log.LOAD_STATE_DICT:
                    self.largest = max(self.largest, int(fields["shared"]))


_builder = _Builder()


def registered(nbytes: int) -> None:
    """Wait for other processes if memory is scarce; call it for each parameter before its memory is written."""
    _of_process().registered(nbytes)


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


def _resident(pid: int) -> int:
    """Return the resident pages of a process; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
