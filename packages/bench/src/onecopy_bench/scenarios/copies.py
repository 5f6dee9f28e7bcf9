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
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Self

from onecopy_bench.engine.crew import SampleError, end_of, last_lines, state_of
from onecopy_bench.engine.machine.processes import MARK, Trees
from onecopy_bench.engine.memory import anonymous_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onecopy_bench.scenarios.run import Options

NUMBER = "{i}"
"""Exactly these three characters in an argument become the number of the copy, from 0; other braces stay."""

LAUNCHER = """
import ctypes, os, signal, sys
parent, go, *command = sys.argv[1:]
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG; it outlives exec
if os.getppid() != int(parent):
    sys.exit("the parent died first")
for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and exec would hand that on
    signal.signal(number, signal.SIG_DFL)
os.write(1, b".")
os.read(int(go), 1)
os.closerange(3, int(go) + 1)
os.execvp(command[0], command)
"""

POLL_S, MEMORY_S, LOOK_S = 0.002, 0.02, 0.2
"""How often it is looked who is ready, what memory there is, and who belongs to a copy."""

GRACE_S = 5.0
TAIL = 4096


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
        assert process.stdout is not None
        self.process, self.stdout = process, process.stdout
        self.ready_ns: int | None = None
        self.heard_ns: int | None = None
        self.listener = threading.Thread(target=self._listen, args=(marker,), daemon=True)
        self._tail = b""

    def _listen(self, marker: bytes) -> None:
        """Read all output, and note when the marker came."""
        while piece := os.read(self.stdout.fileno(), 1 << 16):
            said = self._tail + piece
            if marker and self.heard_ns is None and marker in said:
                self.heard_ns = time.monotonic_ns()
            self._tail = said[-max(TAIL, len(marker)) :]

    def last_lines(self) -> tuple[str, ...]:
        """Return the last lines it said."""
        return last_lines(self._tail, 5)


class Copies:
    """The copies of one sample: of a command, with `NUMBER` where the copy's number belongs.

    The options say how many, what makes them ready, and how long that may take.
    """

    def __init__(self, command: Sequence[str], options: Options) -> None:
        self._command, self._options = command, options
        self._looked = self._polled = 0.0
        self._start, self._go = 0, -1
        self._trees = Trees([], [])
        self.copies: list[Copy] = []
        self.members: list[list[int]] = []
        self.peak_anonymous = self.killed = 0

    def __enter__(self) -> Self:
        go, self._go = os.pipe()
        token = secrets.token_hex(8)
        marks = [f"{token}-{number}" for number in range(self._options.processes)]
        try:
            for number, mark in enumerate(marks):
                self.copies.append(self._launch(number, mark, go))
            self._trees = Trees([copy.process.pid for copy in self.copies], marks)
            for copy in self.copies:
                os.read(copy.stdout.fileno(), 1)  # its launcher waits
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise SampleError("failed", f"cannot start a process: {error}") from error
            raise
        finally:
            os.close(go)
        return self

    def _launch(self, number: int, mark: str, go: int) -> Copy:
        words = [str(os.getpid()), str(go), *numbered(self._command, number)]
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", LAUNCHER, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(go,),
            start_new_session=True,
            env={**os.environ, MARK: mark},
        )
        return Copy(process, (self._options.ready or "").encode())

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Let all copies become the program now."""
        self._start = time.monotonic_ns()
        os.close(self._go)
        self._go = -1
        for copy in self.copies:
            copy.listener.start()

    def wait_until_ready(self) -> None:
        """Wait until every copy has said the text, or has ended well where there is none to be said.

        Raises
        ------
        SampleError
            If one ends before, with its last lines, or the time is up.
        """
        while late := [copy for copy in self.copies if copy.ready_ns is None]:
            now = self._look()
            for copy in late:
                copy.ready_ns = self._ready_at(copy, now)
            late = [copy for copy in late if copy.ready_ns is None]
            if late and now > self._options.timeout * 1e9:
                words = f"{len(late)} of {len(self.copies)} copies were not ready within {self._options.timeout:g} s"
                if self._options.ready is not None and not any(copy.last_lines() for copy in late):
                    words += "; they said nothing (output to a pipe is often kept back: try stdbuf -oL, python -u)"
                raise SampleError("timeout", words)

    def _ready_at(self, copy: Copy, now: int) -> int | None:
        """Return when a copy was ready, or None where it is not; raises SampleError where it never will be."""
        status = copy.process.poll()
        if status is not None:
            copy.listener.join(GRACE_S / 10)  # what it said last
        if copy.heard_ns is not None:
            return copy.heard_ns - self._start
        if status == 0 and self._options.ready is None:
            return now
        if status is not None:
            raise self._ended(copy, status, "before it was ready")
        return None

    def hold(self, seconds: float) -> None:
        """Keep the copies; raises SampleError where one ends meanwhile."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._look()
            for copy in self.copies:
                if (status := copy.process.poll()) is not None:
                    raise self._ended(copy, status, "while it was to hold")
        self.members = self._trees.members()

    def _look(self) -> int:
        """Wait a little, poll the memory if it is time; return the nanoseconds since the start."""
        time.sleep(POLL_S)
        now = time.monotonic()
        if now - self._looked >= LOOK_S:
            self._looked, self.members = now, self._trees.members()
        if now - self._polled >= MEMORY_S:
            self._polled = now
            self.peak_anonymous = max(self.peak_anonymous, sum(map(anonymous_of, self.members)))
        return time.monotonic_ns() - self._start

    def _ended(self, copy: Copy, status: int, when: str) -> SampleError:
        return SampleError(state_of(status), f"copy {self.copies.index(copy)}: {end_of(status)} {when}")

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
        self._signal(signal.SIGTERM)
        self.killed = len(self._signal(signal.SIGKILL))
        for copy in self.copies:
            copy.process.wait()
            if copy.listener.ident is not None:
                copy.listener.join(GRACE_S)
            copy.stdout.close()

    def _signal(self, number: signal.Signals) -> set[int]:
        """Send a signal to everything that lives until nothing does or the time is up; return who got it."""
        reached: set[int] = set()
        deadline = time.monotonic() + GRACE_S
        while (living := self._living()) and time.monotonic() < deadline:
            for pid in living - reached:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
            reached |= living
            time.sleep(POLL_S)
        return reached

    def _living(self) -> set[int]:
        for copy in self.copies:
            copy.process.poll()  # reaps it
        return {pid for pids in self._trees.members() for pid in pids}
