"""The parent of measured processes: it starts several workers, releases them together, and ends all of them.

`Workers` is a context manager around the processes of one sample. Each worker has its own process group, so that Ctrl-C
reaches only the parent; at the end of the block, all workers that are still alive are killed. Any failure of a worker
raises `SampleError`: a timeout, a signal, a line that is not JSON, an unexpected phase, or an exit status. The sample
is then recorded with that reason and the last line of stderr.

If an interrupt arrives after a worker starts but before it is added to the list, the kernel kills that worker together
with the parent. Use `Workers` in the main thread, because workers die with the *thread* that started them.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pickle
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, Self

from onecopy.memory import proc
from onecopy_bench.system import family_of
from onecopy_bench.worker import FAILED, SampleError, end_of, last_lines, state_of

WORKER = "onecopy_bench.worker"
MAX_LINE = 1 << 20
_POLL_S, _GRACE_S = 0.005, 2.0


def command_of(module: str, environment: Sequence[str] = ()) -> list[str]:
    """Return the command that starts a worker for a module's steps."""
    variables = ["env", *environment] if environment else []
    return [*variables, sys.executable, "-P", "-m", WORKER, module, str(os.getpid())]


def first_line_of(arguments: dict[str, Any]) -> bytes:
    """Return the first line of a worker's stdin, which contains its pickled arguments."""
    return base64.b64encode(pickle.dumps(arguments)) + b"\n"


@contextlib.contextmanager
def start_workers(
    module: str, count: int, timeout: float, environment: Sequence[str] = (), **arguments: Any
) -> Iterator[Workers]:
    """Start workers that run a module's steps with the same arguments, and wait until all of them are ready."""
    with Workers([command_of(module, environment)] * count, first_line_of(arguments), timeout) as workers:
        workers.gather("ready")
        yield workers


def call_once(timeout: float, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a module's function in a fresh process, and return its result as JSON types. Raise SampleError on error."""
    with start_workers(WORKER, 1, timeout, function=function, arguments=arguments) as workers:
        (message,) = workers.step("returned")
        workers.dismiss()
    return message["result"]


def expect_same(found: int, expected: int, what: str) -> None:
    """Raise SampleError if a checksum differs from the expected one. `what` names both checksums."""
    if found != expected:
        raise SampleError("wrong data", f"{what} differ: {found:#x} and {expected:#x}")


def memory_of(pid: int) -> proc.Rollup:
    """Return a worker's memory. Raise SampleError if it has just died."""
    try:
        return proc.rollup(pid)
    except ProcessLookupError as error:
        raise SampleError("crashed", "the process died while its memory was measured") from error


class Worker:
    """One process of a sample: its pipes, the bytes received, and its stderr in an unnamed file."""

    def __init__(self, command: Sequence[str]) -> None:
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        try:
            self._process = subprocess.Popen(command, stdin=-1, stdout=-1, stderr=self._stderr, process_group=0)
        except BaseException:
            self._stderr.close()
            raise
        self.pid, self._received = self._process.pid, b""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self.stdout = self._process.stdin, self._process.stdout

    def send(self, line: bytes) -> None:
        """Write one line. If the process has ended, the next read reports it."""
        with contextlib.suppress(BrokenPipeError):
            self._stdin.write(line)
            self._stdin.flush()

    def receive(self, phase: str) -> dict[str, Any] | None:
        """Read the available output. Return the message for `phase`, or None until its line is complete."""
        piece = os.read(self.stdout.fileno(), 1 << 16)
        if not piece:
            raise self._gone(f"before it reported {phase!r}")
        self._received += piece
        if b"\n" not in self._received:
            if len(self._received) > MAX_LINE:
                raise SampleError("odd output", f"the process wrote {len(self._received)} bytes without an end of line")
            return None
        line, _, self._received = self._received.partition(b"\n")
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if isinstance(message, dict) and message.get("phase") == FAILED:
            raise SampleError(message["state"], message["reason"])
        if not isinstance(message, dict) or message.pop("phase", None) != phase:
            raise SampleError("odd output", f"expected the phase {phase!r}, got {line[:80]!r}")
        return message

    def leave(self, seconds: float) -> None:
        """Wait for a process that was asked to exit. Raise SampleError unless its status is 0."""
        try:
            status = self._process.wait(max(seconds, 0))
        except subprocess.TimeoutExpired:
            raise SampleError("timeout", "the process was measured but did not exit") from None
        if status != 0:
            raise self._gone("after it was asked to exit")

    def _gone(self, when: str) -> SampleError:
        try:
            status = self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            return SampleError("odd output", f"closed its stdout {when}, but did not exit")
        said = "".join(f": {line}" for line in last_lines(self._stderr, 1))
        return SampleError("odd output" if status == 0 else state_of(status), f"{end_of(status)} {when}{said}")

    def close(self) -> None:
        """Kill the process, its group and its descendants if they are alive, wait for it, and close the pipes."""
        for _ in range(2):  # again, for processes that started meanwhile
            for pid in family_of([self.pid])[:0:-1]:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._stdin, self.stdout, self._stderr):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


class Workers:
    """The processes of one sample, one for each command. They are killed when the block ends.

    Each process receives `first_line` on its stdin. A phase may take up to `timeout` seconds.
    """

    def __init__(self, commands: Sequence[Sequence[str]], first_line: bytes, timeout: float) -> None:
        self._commands, self._first_line, self._timeout = commands, first_line, timeout
        self.workers: list[Worker] = []

    def __enter__(self) -> Self:
        try:
            for command in self._commands:
                self.workers.append(Worker(command))
            for worker in self.workers:
                worker.send(self._first_line)
        except BaseException as error:
            self.__exit__()
            if isinstance(error, OSError):
                raise SampleError("failed", f"cannot start a process: {error}") from error
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.close()

    @property
    def pids(self) -> list[int]:
        """The process ids, in the order in which the processes were started."""
        return [worker.pid for worker in self.workers]

    def family(self) -> list[int]:
        """Return the processes and all their descendants."""
        return family_of(self.pids)

    def step(self, phase: str, poll: Callable[[], None] | None = None) -> list[dict[str, Any]]:
        """Start the next step of all workers, wait until all have finished it, and return their messages."""
        for worker in self.workers:
            worker.send(b"go\n")
        return self.gather(phase, poll)

    def gather(self, phase: str, poll: Callable[[], None] | None = None) -> list[dict[str, Any]]:
        """Wait until every worker has reported `phase`, and return their messages; `poll` runs every 5 ms."""
        deadline = time.monotonic() + self._timeout
        messages: dict[int, dict[str, Any]] = {}
        with selectors.DefaultSelector() as selector:
            for worker in self.workers:
                selector.register(worker.stdout, selectors.EVENT_READ, worker)
            while len(messages) < len(self.workers):
                left = deadline - time.monotonic()
                if left <= 0:
                    late = f"{len(self.workers) - len(messages)} of {len(self.workers)} processes"
                    raise SampleError("timeout", f"{late} did not report {phase!r} within {self._timeout:g} s")
                for key, _ in selector.select(min(left, _POLL_S) if poll else left):
                    message = key.data.receive(phase)
                    if message is not None:
                        messages[key.data.pid] = message
                        selector.unregister(key.fileobj)
                if poll is not None:
                    poll()
        return [messages[pid] for pid in self.pids]

    def dismiss(self) -> None:
        """Ask all workers to exit, and wait until each has exited with status 0."""
        deadline = time.monotonic() + self._timeout
        for worker in self.workers:
            worker.send(b"exit\n")
        for worker in self.workers:
            worker.leave(deadline - time.monotonic())
