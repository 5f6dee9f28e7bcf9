"""N copies of a program: started in the same instant, brought to "ready", held, and ended, whatever happens.

Each copy first is a launcher that waits; when all of them do, one closed pipe lets them become the program in the
same instant, and the clock starts there, so that no start of Python is in it. A copy leads a session of its own, its
stdin is empty, and what it says on stdout or stderr is read all the time and the last lines kept. The kernel kills
the first process of a copy should this one die; leaving the block ends all of them: SIGTERM, a grace, SIGKILL.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import signal
import subprocess
import sys
import time
from typing import IO, TYPE_CHECKING, Self

from onecopy_bench.engine.crew import SampleError, signal_name
from onecopy_bench.engine.machine.processes import MARK, Trees
from onecopy_bench.engine.memory import resident

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onecopy_bench.scenarios.run import Options

NUMBER = "{i}"
"""Exactly these three characters in an argument become the number of the copy, from 0; other braces stay."""

LAUNCHER = """
import ctypes, os, signal, sys
parent, here, go, *command = sys.argv[1:]
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG; it outlives exec
if os.getppid() != int(parent):
    sys.exit("the parent died first")
for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and exec would hand that on
    signal.signal(number, signal.SIG_DFL)
os.write(int(here), b".")
os.read(int(go), 1)
os.closerange(3, max(int(here), int(go)) + 1)
os.execvp(command[0], command)
"""

POLL_S = 0.02
LOOK_S = 0.2
"""Memory is polled at the first interval; who belongs to a copy is looked up at the second."""

GRACE_S = 5.0
PIECES = 16
TAIL = 4096
STILL = 0.01
"""Memory has settled where it stays within this share of itself."""


def numbered(command: Sequence[str], number: int) -> list[str]:
    """Return a command with the number of its copy put in.

    Examples
    --------
    >>> numbered(["serve", "--port=800{i}", '{"i": 1}'], 3)
    ['serve', '--port=8003', '{"i": 1}']
    """
    return [word.replace(NUMBER, str(number)) for word in command]


class Copy:
    """One copy: its first process, what it said last, and when it was ready (ns after the start; None: not yet)."""

    def __init__(self, process: subprocess.Popen[bytes], marker: bytes) -> None:
        self.process = process
        self.ready_ns: int | None = None
        self.heard = False
        self._marker = marker
        self._tail = b""

    @property
    def stdout(self) -> IO[bytes]:
        """The pipe that stdout and stderr come through."""
        assert self.process.stdout is not None
        return self.process.stdout

    def drain(self) -> bool:
        """Read what has come, at most `PIECES`, and look for the marker; return False at the end of the output."""
        for _ in range(PIECES):
            try:
                piece = os.read(self.stdout.fileno(), 1 << 16)
            except BlockingIOError:
                return True
            if not piece:
                return False
            joined = self._tail + piece
            self.heard = self.heard or (bool(self._marker) and self._marker in joined)
            self._tail = joined[-max(TAIL, len(self._marker)) :]
        return True

    def last_lines(self, count: int = 5) -> tuple[str, ...]:
        """Return the last lines it said that are not empty, each at most 200 characters."""
        lines = (line.strip() for line in self._tail.decode("utf-8", "replace").splitlines())
        return tuple(line[:200] for line in lines if line)[-count:]


class Copies:
    """The copies of one sample.

    Parameters
    ----------
    command
        The program and its arguments, with `NUMBER` where the copy's number belongs.
    options
        How many, what makes them ready, and how long that may take.
    """

    def __init__(self, command: Sequence[str], options: Options) -> None:
        self._command = command
        self._options = options
        self._selector = selectors.DefaultSelector()
        self._looked = self._polled = 0.0
        self._start = 0
        self._go = -1
        self._trees = Trees([], [])
        self.copies: list[Copy] = []
        self.members: list[list[int]] = []
        self.peak_anonymous = 0
        self.killed = 0

    def __enter__(self) -> Self:
        here, here_write = os.pipe()
        go_read, self._go = os.pipe()
        token = secrets.token_hex(8)
        marks = [f"{token}-{number}" for number in range(self._options.processes)]
        try:
            for number, mark in enumerate(marks):
                self.copies.append(self._launch(number, mark, here_write, go_read))
            self._trees = Trees([copy.process.pid for copy in self.copies], marks)
            os.close(here_write)
            here_write = -1
            waiting = b""
            while len(waiting) < len(self.copies) and (piece := os.read(here, len(self.copies))):
                waiting += piece
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise SampleError("failed", f"cannot start a process: {error}") from error
            raise
        finally:
            for fd in (here, here_write, go_read):
                if fd >= 0:
                    os.close(fd)
        return self

    def _launch(self, number: int, mark: str, here: int, go: int) -> Copy:
        words = [str(os.getpid()), str(here), str(go), *numbered(self._command, number)]
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", LAUNCHER, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(here, go),
            start_new_session=True,
            env={**os.environ, MARK: mark},
        )
        copy = Copy(process, (self._options.ready or "").encode())
        os.set_blocking(copy.stdout.fileno(), False)
        self._selector.register(copy.stdout, selectors.EVENT_READ, copy)
        return copy

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Let all copies become the program now."""
        self._start = time.monotonic_ns()
        os.close(self._go)
        self._go = -1

    def wait_until_ready(self) -> None:
        """Wait until every copy is ready in the way that was asked for.

        Raises
        ------
        SampleError
            If one ends before, with its last lines, or the time is up.
        """
        options, settling = self._options, [_Settling() for _ in self.copies]
        while waiting := [copy for copy in self.copies if copy.ready_ns is None]:
            now = self._look_once()
            for copy, settled in zip(self.copies, settling, strict=True):
                if copy.ready_ns is None:
                    copy.ready_ns = self._ready_at(copy, settled, now)
            if now > options.timeout * 1e9 and any(copy.ready_ns is None for copy in waiting):
                raise self._too_late([copy for copy in waiting if copy.ready_ns is None])

    def _ready_at(self, copy: Copy, settled: _Settling, now: int) -> int | None:
        """Return when a copy was ready, or None where it is not; raises SampleError where it never will be."""
        if self._options.ready is not None and copy.heard:
            return now
        status = copy.process.poll()
        if status is not None:
            if self._options.waits_for_exit and status == 0:
                return now
            raise self._ended(copy, status, "before it was ready")
        if self._options.settle is not None:
            return settled.since(now, self._memory_of(copy), self._options.settle)
        return None

    def hold(self, seconds: float) -> None:
        """Keep reading what the copies say; raises SampleError where one ends meanwhile."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._look_once()
            for copy in self.copies:
                if (status := copy.process.poll()) is not None:
                    raise self._ended(copy, status, "while it was to hold")
        self.members = self._trees.members()

    def _look_once(self) -> int:
        """Read what was said and poll the memory if it is time; return the nanoseconds since the start."""
        self._listen()
        now = time.monotonic()
        if now - self._looked >= LOOK_S:
            self._looked, self.members = now, self._trees.members()
        if now - self._polled >= POLL_S:
            self._polled = now
            anonymous = sum(resident(pids)[1] for pids in self.members)
            self.peak_anonymous = max(self.peak_anonymous, anonymous)
        return time.monotonic_ns() - self._start

    def _listen(self) -> None:
        """Wait for output, `POLL_S` at most, and read it; what has ended is not listened to any more."""
        for key, _ in self._selector.select(POLL_S):
            if not key.data.drain():
                self._selector.unregister(key.fileobj)
                time.sleep(POLL_S / 20)  # the status of a process comes just after the end of its output

    def _memory_of(self, copy: Copy) -> int:
        return resident(self.members[self.copies.index(copy)])[0] if self.members else 0

    def _ended(self, copy: Copy, status: int, when: str) -> SampleError:
        copy.drain()
        how = f"exit status {status}" if status >= 0 else signal_name(-status)
        return SampleError("failed" if status >= 0 else "crashed", f"copy {self.copies.index(copy)}: {how} {when}")

    def _too_late(self, late: Sequence[Copy]) -> SampleError:
        words = f"{len(late)} of {len(self.copies)} copies were not ready within {self._options.timeout:g} s"
        if self._options.ready is not None and not any(copy.last_lines() for copy in late):
            words += "; they said nothing (what is written to a pipe is often kept back: try stdbuf -oL, python -u)"
        return SampleError("timeout", words)

    def last_lines(self) -> tuple[str, ...]:
        """Return what was said last: by the first copy that is not ready, else by the first."""
        late = [copy for copy in self.copies if copy.ready_ns is None] or self.copies
        return late[0].last_lines() if late else ()

    def close(self) -> None:
        """End every process of every copy: SIGTERM, `GRACE_S` seconds, SIGKILL; wait for them, close the pipes."""
        if self._go >= 0:
            for copy in self.copies:
                copy.process.kill()  # a launcher that still waits
            os.close(self._go)
            self._go = -1
        self._signal(signal.SIGTERM, GRACE_S)
        self.killed = len(self._signal(signal.SIGKILL, GRACE_S))
        for copy in self.copies:
            copy.process.wait()
            copy.stdout.close()
        self._selector.close()

    def _signal(self, number: signal.Signals, seconds: float) -> set[int]:
        """Send a signal to everything that lives until nothing does or the time is up; return who got it."""
        reached: set[int] = set()
        deadline = time.monotonic() + seconds
        while (living := self._living()) and time.monotonic() < deadline:
            for pid in set(living) - reached:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
            reached.update(living)
            self._listen()
        return reached

    def _living(self) -> list[int]:
        for copy in self.copies:
            copy.process.poll()  # reaps it
        return [pid for pids in self._trees.members() for pid in pids]


class _Settling:
    """Since when the memory of a copy has stood still."""

    def __init__(self) -> None:
        self._bytes = 0
        self._since: int | None = None

    def since(self, now: int, memory: int, seconds: float) -> int | None:
        """Return when it came to rest, once that is `seconds` ago; None before. Times are in nanoseconds."""
        if self._since is None or memory == 0 or abs(memory - self._bytes) > STILL * self._bytes:
            self._bytes, self._since = memory, now
        return self._since if now - self._since >= seconds * 1e9 else None
