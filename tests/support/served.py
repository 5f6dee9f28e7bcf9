"""Programs of `tests/support/unchanged` under `onecopy run`: started, asked over HTTP, and ended."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.children import CHILD_SECONDS, is_alive
from tests.support.places import ROOT
from tests.support.waiting import until

PROGRAMS = ROOT / "tests/support/unchanged"
PYTHON = (sys.executable,)
RUN = (sys.executable, "-m", "onecopy", "run", "--")
GUNICORN = ("-m", "gunicorn", "-b", "127.0.0.1:PORT", "--timeout", "300")

Answer = dict[str, Any]
"""What `model.answer` returned."""


def made_model(path: Path, layers: int = 12) -> int:
    """Write a model; return the bytes of its weights."""
    plain("model.py", str(path), str(layers))
    return layers * 1025 * 1024 * 4


def plain(*arguments: str, **environment: str) -> str:
    """Run a program without onecopy; return its standard output."""
    settings: dict[str, Any] = {"cwd": PROGRAMS, "env": {**os.environ, **environment}, "timeout": CHILD_SECONDS}
    return subprocess.run([*PYTHON, *arguments], check=True, stdout=subprocess.PIPE, text=True, **settings).stdout


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class Running:
    """A command in a session of its own. `PORT` in its words and in `more`, its environment, is a free port."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        cwd: Path = PROGRAMS,
        enter: Callable[[], None] | None = None,
        more: Mapping[str, str] = {},
    ) -> None:
        self.port = free_port()
        self.folder = folder
        self._log = folder / f"log-{self.port}"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [word.replace("PORT", str(self.port)) for word in command],
                cwd=cwd,
                env={**os.environ, **{name: value.replace("PORT", str(self.port)) for name, value in more.items()}},
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=enter,  # noqa: PLW1509 - no threads
            )

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def ask(self, path: str = "/", body: bytes | None = None) -> Answer | None:
        """Return the answer to a request, a POST if it has a body; None if there was none."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", body)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                answer: Answer = json.load(response)
        except OSError:
            return None
        return answer if "outputs" not in answer else json.loads(answer["outputs"][0]["data"][0])  # Triton's

    def answers_of(
        self, workers: int, path: str = "/", body: bytes | None = None, *, seconds: float = CHILD_SECONDS
    ) -> dict[int, Answer]:
        """Ask until so many workers have answered; return the answer of each by its PID."""
        answers: dict[int, Answer] = {}

        def all_answered() -> bool:
            assert self.process.poll() is None, self.log
            with ThreadPoolExecutor(workers) as pool:  # at the same time, so that no worker answers all
                asked = pool.map(self.ask, [path] * workers, [body] * workers)
                answers.update({one["pid"]: one for one in asked if one})
            return len(answers) >= workers

        until(all_answered, "all workers to answer", seconds=seconds)
        return answers

    def group(self) -> list[int]:
        """List the living processes of the session of the command."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - the numbers themselves
            with suppress(ProcessLookupError):
                if os.getsid(int(name)) == self.process.pid and is_alive(int(name)):
                    found.append(int(name))
        return found

    def stop(self, signum: int = signal.SIGTERM) -> str:
        """End the command as a service manager does; return what it printed. No process of it may be left."""
        self.process.send_signal(signum)
        return self._ended()

    def kill(self) -> None:
        """End all processes of the session at once."""
        for pid in self.group():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._ended()

    def _ended(self) -> str:
        self.process.wait(CHILD_SECONDS)
        until(lambda: not self.group(), "all processes to end")
        return self.log


@contextmanager
def running(command: Sequence[str], folder: Path, **settings: Any) -> Iterator[Running]:
    """Give a running command, with the settings of `Running`; no process of it is left."""
    one = Running(command, folder, **settings)
    try:
        yield one
    finally:
        one.kill()
