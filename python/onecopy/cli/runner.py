"""Run a program for `onecopy run`, and report which files its processes share.

The program starts after these imports, so they are few. One thread answers requests from the processes; another
samples the processes, which may be slow. The threads import modules at the first request or after `SAMPLING_SECONDS`.
"""

from __future__ import annotations

import _thread
import os
import select
import sys
import time

import onecopy
from onecopy.base.run_constants import KEEPER, MAP, NOTHING_LOADED, RUN, RUN_FILE, memory_file
from onecopy.cli import child
from onecopy.store import protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Mapping, Sequence
    from typing import Any

    from onecopy.run.report import RunReport, Sampler
    from onecopy.run.snapshot_server import SnapshotServer
else:
    import _signal as signal

SAMPLING_SECONDS = 0.25
MAX_WAIT_SECONDS = 10.0
"""Maximum number of seconds for which the report waits for a sample in progress."""
_FLAGS = {"-q": "quiet", "--quiet": "quiet", "--keep": "keep"}

_blocked_early = set[int]()


def block_early() -> None:
    """Block SIGUSR2 until `run` waits for it, because the signal would end this process by default."""
    _blocked_early.update({signal.SIGUSR2} - signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2}))


def parsed(words: Sequence[str]) -> dict[str, Any] | None:
    """Parse the command line without click. Return the arguments of `run`, or None if click must handle it."""
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
    mapped: Sequence[str] = (),
) -> int:
    """Run a command and return its exit status. The arguments are the options of `onecopy run`."""
    try:
        descriptor = memory_file(RUN_FILE)
    except (OSError, AttributeError) as error:  # only Linux has the function
        raise RuntimeError(f"`onecopy run` needs memfd_create, which failed: {error}") from None
    listening, server = protocol.listen()
    environment = _environment(os.environ, server) | ({} if keep else {KEEPER: server})
    if mapped:
        from onecopy.files.direct_mapping import real_folders

        given = os.environ.get(MAP, "")
        environment[MAP] = os.pathsep.join(real_folders(os.pathsep.join((*mapped, given))))
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
        processes.leave()
        report = processes.report() if output is not None or processes.have_reported() else None
        if not quiet:
            _print(report or NOTHING_LOADED)
        if output is not None and report is not None:
            with open(output, "w") as file:  # noqa: PTH123 - text
                file.write(report.json())
    return child.exit_status(status)


class _Processes:
    """Serves snapshots to the processes of a run, and samples them for the report."""

    def __init__(self, run_file: int, root: int) -> None:
        self._run_file, self._root = run_file, root
        self._lock = _thread.allocate_lock()  # importing `threading` takes longer than all other imports
        self._sampler: Sampler | None = None
        self._server: SnapshotServer | None = None

    def start(self, listening: int, server: str) -> None:
        """Serve and sample the processes in threads that end with this process."""

        def answer() -> None:
            select.select([listening], [], [], SAMPLING_SECONDS)
            import resource

            from onecopy.run.snapshot_server import SnapshotServer

            most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # of this process: the command has started
            self._server = SnapshotServer(listening, server, self._run_file)
            self._server.serve()

        def sample() -> None:
            seconds = SAMPLING_SECONDS
            while True:
                time.sleep(seconds)
                with self._lock:
                    begin = time.monotonic()
                    self._sampler_of_run().sample()
                    seconds = max(SAMPLING_SECONDS, 20 * (time.monotonic() - begin))

        _thread.start_new_thread(answer, ())
        _thread.start_new_thread(sample, ())

    def leave(self) -> None:
        """Hide this run's server from the servers of other runs."""
        if self._server is not None:
            self._server.leave()

    def have_reported(self) -> bool:
        """Return whether any process may have reported a call so far."""
        return self._sampler is not None or os.fstat(self._run_file).st_size > 0

    def report(self, *, living: bool = False) -> RunReport:
        """Sample the processes, and return a report on all of them, or only on the live processes."""
        is_locked = self._lock.acquire(timeout=MAX_WAIT_SECONDS)  # a process may hold up the other thread forever
        try:
            sampler = self._sampler_of_run()
            if is_locked:
                sampler.sample()
            return sampler.report(living=living)
        finally:
            if is_locked:
                self._lock.release()

    def _sampler_of_run(self) -> Sampler:
        from onecopy.run.report import Sampler

        self._sampler = self._sampler or Sampler(self._run_file, self._root)
        return self._sampler


def _environment(given: Mapping[str, str], server: str) -> dict[str, str]:
    """Return an environment in which every Python process imports `onecopy.auto` when it starts."""
    folder = os.path.join(os.path.dirname(str(onecopy.__file__)), "run", "startup")  # noqa: PTH118, PTH120 - text
    paths = given.get("PYTHONPATH", "")
    others = [each for each in paths.split(os.pathsep) if each != folder] if paths else []  # "" is the working folder
    return {
        **{name: given[name] for name in given if name != KEEPER},
        "PYTHONPATH": os.pathsep.join((folder, *others)),
        RUN: server,
    }


def _print(report: RunReport | str) -> None:
    sys.stderr.write(f"onecopy: {report}\n")
