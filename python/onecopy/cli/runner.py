"""What `onecopy run` does. It is the start of each program that it runs, so little is imported before that.

One thread answers the processes, another one samples them, which may take long or be held up by a process. Each imports
its modules when the first process asks for something, or after `SAMPLING_SECONDS`. Those of the report are imported if
there is something to report.
"""

from __future__ import annotations

import _thread
import os
import select
import sys
import time

import onecopy
from onecopy.base.run_constants import KEEPER, MAP_WRITABLE, NOTHING_LOADED, RUN, RUN_FILE, memory_file
from onecopy.cli import child
from onecopy.store import protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Mapping, Sequence
    from typing import Any

    from onecopy.run.report import RunReport, Sampler
else:
    import _signal as signal

SAMPLING_SECONDS = 0.25
MAX_WAIT_SECONDS = 10.0
"""Seconds that the report waits for a sample that another thread takes."""
_FLAGS = {"-q": "quiet", "--quiet": "quiet", "--keep": "keep", "--map-writable": "map_writable"}

_blocked_early = set[int]()


def block_early() -> None:
    """Block SIGUSR2, which would end this process, until `run` waits for it."""
    if hasattr(signal, "pthread_sigmask"):
        _blocked_early.update({signal.SIGUSR2} - signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2}))


def parsed(words: Sequence[str]) -> dict[str, Any] | None:
    """Return the arguments of `run` for words of the command line; None if they need click: for help, or an error."""
    options: dict[str, Any] = {}
    rest = list(words)
    while rest and rest[0] in (*_FLAGS, "--report"):
        if (word := rest.pop(0)) in _FLAGS:
            options[_FLAGS[word]] = True
        elif rest and not os.path.exists(rest[0]):  # noqa: PTH110 - click checks whether an existing file can be written
            options["output"] = rest.pop(0)
        else:
            return None
    if rest[:1] == ["--"]:
        rest = rest[1:]
    elif any(word.startswith("-") for word in rest):  # click takes options after the command too
        return None
    return {**options, "command": rest} if rest else None


def run(
    command: Sequence[str],
    *,
    output: str | None = None,
    quiet: bool = False,
    keep: bool = False,
    map_writable: bool = False,
) -> int:
    """Run a command and return its exit status; the arguments are the options of `onecopy run`."""
    try:
        descriptor = memory_file(RUN_FILE)
    except (OSError, AttributeError) as error:  # only Linux has the function
        raise RuntimeError(f"memory for the report: {error}; `onecopy run` needs memfd_create") from None
    listening, server = protocol.listen()
    environment = _environment(os.environ, server) | ({} if keep else {KEEPER: server})
    if map_writable:
        environment[MAP_WRITABLE] = "1"
    with child.blocked_signals() as before:
        try:
            pid = child.start(command, before - _blocked_early, environment)
        except OSError as error:
            return child.refused(command, error)
        processes = _Processes(descriptor, pid)
        processes.start(listening, server)
        while not child.has_ended(pid):
            if child.wait(pid, kept=signal.SIGUSR2):
                _print(processes.report(living=True))
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        report = processes.report() if output is not None or processes.have_reported() else None
        if not quiet:
            _print(report or NOTHING_LOADED)
        if output is not None and report is not None:
            with open(output, "w") as file:  # noqa: PTH123 - text
                file.write(report.json())
    return child.exit_status(status)


class _Processes:
    """The processes of a run: what keeps their snapshots, and the samples and calls that a report is made of."""

    def __init__(self, run_file: int, root: int) -> None:
        self._run_file, self._root = run_file, root
        self._lock = _thread.allocate_lock()  # `threading` takes longer than all that is imported here
        self._sampler: Sampler | None = None

    def start(self, listening: int, server: str) -> None:
        """Answer processes, and sample them, in threads that end with this process."""

        def answer() -> None:
            select.select([listening], [], [], SAMPLING_SECONDS)
            import resource

            from onecopy.store.snapshot_server import SnapshotServer

            most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # of this process: the command has started
            SnapshotServer(listening, server, self._run_file).serve()

        def sample() -> None:
            seconds = SAMPLING_SECONDS
            while True:
                time.sleep(seconds)
                seconds = max(SAMPLING_SECONDS, 20 * self._sample())

        _thread.start_new_thread(answer, ())
        _thread.start_new_thread(sample, ())

    def have_reported(self) -> bool:
        """Return whether a report may have more than `NOTHING_LOADED`."""
        return self._sampler is not None or os.fstat(self._run_file).st_size > 0

    def report(self, *, living: bool = False) -> RunReport:
        """Sample, and return the report of all processes, or of those that are alive."""
        from onecopy.run.report import Sampler

        # A process may hold up the other thread without an end: then the report has what was sampled before.
        is_mine = self._lock.acquire(timeout=MAX_WAIT_SECONDS)
        try:
            self._sampler = self._sampler or Sampler(self._run_file, self._root)
            if is_mine:
                self._sampler.sample()
            return self._sampler.report(living=living)
        finally:
            if is_mine:
                self._lock.release()

    def _sample(self) -> float:
        """Sample all processes; return how many seconds that took."""
        from onecopy.run.report import Sampler

        with self._lock:
            begin = time.monotonic()
            self._sampler = self._sampler or Sampler(self._run_file, self._root)
            self._sampler.sample()
            return time.monotonic() - begin


def _environment(given: Mapping[str, str], server: str) -> dict[str, str]:
    """Return the environment in which every Python process imports `onecopy.auto` when it starts."""
    folder = os.path.join(os.path.dirname(str(onecopy.__file__)), "run", "startup")  # noqa: PTH118, PTH120 - text
    paths = given.get("PYTHONPATH", "")
    others = [each for each in paths.split(os.pathsep) if each != folder] if paths else []  # "" is the working folder
    return {
        **{name: given[name] for name in given if name not in (KEEPER, MAP_WRITABLE)},
        "PYTHONPATH": os.pathsep.join((folder, *others)),
        RUN: server,
    }


def _print(report: RunReport | str) -> None:
    sys.stderr.write(f"onecopy: {report}\n")
