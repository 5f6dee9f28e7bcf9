"""A sample of `bench unchanged --server`: gunicorn with workers that load a file, alone or under `onecopy run`.

The server is asked over HTTP, one request after the other, so that times are not those of a wait for a CPU.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from onecopy_bench.engine.crew import SampleError
from onecopy_bench.engine.memory import memory_of
from onecopy_bench.engine.rounds import Attempt, Taken
from onecopy_bench.scenarios.unchanged import application

NEEDS = ("gunicorn",)
WARM_UP = 3
"""Requests to each worker, about, before those that are measured."""
_PAUSE = 0.02
_GRACE = 30.0


@dataclass(frozen=True, slots=True)
class Server:
    """A server, and how it is asked.

    Attributes
    ----------
    under
        The words before the command: those of `onecopy run`, or none.
    program, path, size
        Which program its workers are, with which file, of how many bytes.
    workers, requests
        How many workers; how many requests are measured for each of them.
    timeout
        Seconds until all workers must have answered.
    environment
        Variables of the server, as NAME=VALUE.
    """

    under: Sequence[str]
    program: str
    path: str
    size: int
    workers: int
    requests: int
    timeout: float
    environment: Sequence[str]

    def take(self, attempt: Attempt) -> Taken:
        """Start the server, ask it, and end it; return what was measured."""
        attempt.back()
        attempt.wait()
        start = perf_counter_ns()
        with self._running(attempt.folder() / "log") as port:
            before = self._all_answered(port)
            loaded = perf_counter_ns() - start
            for number in range(WARM_UP * self.workers):
                _ask(port, number, self.timeout)
            after = [memory_of(pid) for pid in before]
            times, checksum = [], 0.0
            for number in range(self.workers * self.requests):
                begin = perf_counter_ns()
                checksum += _ask(port, number, self.timeout)["result"]
                times.append(perf_counter_ns() - begin)
        grown = sum(one.pss for one in after) - sum(one["pss"] for one in before.values())
        private = sum(one.anonymous for one in after) - sum(one["anonymous"] for one in before.values())
        return Taken(
            {
                "load_ns": loaded,
                "held_share": grown / self.size,
                "private": private / self.workers,
                "p50_ns": statistics.median(times),
                "p99_ns": statistics.quantiles(times, n=100)[98] if len(times) > 1 else times[0],
                "checksum": checksum,
            }
        )

    @contextlib.contextmanager
    def _running(self, log: Path) -> Iterator[int]:
        """Start the server; yield its port, and end all its processes."""
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = int(found.getsockname()[1])
        made = f"{application.__name__}:{application.made.__name__}({self.program!r}, {self.path!r})"
        gunicorn = [sys.executable, "-P", "-m", "gunicorn", "-w", str(self.workers), "-b", f"127.0.0.1:{port}"]
        command = ["env", *self.environment, *self.under, *gunicorn, "--timeout", "0", made]
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        try:
            yield port
        except OSError as error:
            lines = log.read_text(errors="replace").splitlines() or [str(error)]
            raise SampleError("failed", f"{error}; the last line of the server: {lines[-1][:200]}") from error
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.terminate()
                process.wait(_GRACE)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _all_answered(self, port: int) -> dict[int, dict[str, Any]]:
        """Ask until every worker has answered; return the answers by PID."""
        answers: dict[int, dict[str, Any]] = {}
        deadline = time.monotonic() + self.timeout

        def ask(_: int) -> None:
            with contextlib.suppress(OSError):
                answer = _ask(port, 0, self.timeout)
                answers[answer["pid"]] = answer

        while len(answers) < self.workers:
            if time.monotonic() > deadline:
                words = f"{len(answers)} of {self.workers} workers answered within {self.timeout:g} s"
                raise SampleError("timeout", words)
            with ThreadPoolExecutor(self.workers) as pool:  # at the same time, so that no worker answers all
                list(pool.map(ask, range(self.workers)))
            time.sleep(_PAUSE)
        return answers


def _ask(port: int, number: int, timeout: float) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{number}", timeout=timeout) as response:
        answer: dict[str, Any] = json.load(response)
        return answer
