"""A forked process that announces a moment of its work, in which it is killed."""

import os
import signal
from collections.abc import Callable

from tests.support.children import fork, status_of


class Announcing:
    """A forked process that does `work`, announces a moment in it, and waits there to be killed if `waits`."""

    def __init__(self, work: Callable[[Callable[[], object]], object], *, waits: bool = True) -> None:
        self._announcements, announcements = os.pipe()

        def announce() -> None:
            os.write(announcements, b".")
            if waits:
                signal.pause()

        self.pid = fork(lambda: work(announce))
        os.close(announcements)

    def kill(self, *, at_once: bool = False) -> None:
        """Kill the process at the moment that it announces; `at_once`: wherever it is."""
        with os.fdopen(self._announcements, "rb", buffering=0) as pipe:
            announced = at_once or pipe.read(1) == b"."
            os.kill(self.pid, signal.SIGKILL)
            status = status_of(self.pid)
        assert announced, f"the process ended with status {status} before the moment came"
        assert status == -signal.SIGKILL

    def end(self) -> int:
        """Wait for a process that announces its moment and ends; return its status."""
        with os.fdopen(self._announcements, "rb", buffering=0) as pipe:
            announced, status = pipe.read(1) == b".", status_of(self.pid)
        assert announced, f"the process ended with status {status} before the moment came"
        return status
