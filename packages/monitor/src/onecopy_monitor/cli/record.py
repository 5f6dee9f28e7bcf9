"""`onecopy record -o FILE -- COMMAND...`: run a command and record the memory of its process tree.

The command owns the terminal; the summary is printed on stderr at the end. Signals are blocked: a single call of
`signal.sigtimedwait` waits for the next sample, the end of the command, and signals to forward.
"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

import click

from onecopy.base.text import escape
from onecopy.cli import child
from onecopy.cli.command_line import describe
from onecopy.cli.options import PID, interval
from onecopy.memory import proc
from onecopy_monitor.cli.groups import budget_option, exact_option
from onecopy_monitor.recording import End, Recorder
from onecopy_monitor.samples import sample_of
from onecopy_monitor.sampling.sampler import Sampler
from onecopy_monitor.series import Series
from onecopy_monitor.text_tables import series_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onecopy_monitor.snapshots import Snapshot

ENDS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}
"""Signals that end the recording of running processes (--pid)."""


class Recording:
    """Samples processes, writes the samples to a recorder, and keeps them. Sampling continues if writing fails."""

    def __init__(self, sampler: Sampler, recorder: Recorder, interval: float) -> None:
        self._sampler, self._recorder, self._interval = sampler, recorder, interval
        self._cpu_s, self._deferred = 0.0, 0
        # A child inherits the peak RSS of this process, and exec keeps it.
        self._own_rss = proc.status(os.getpid()).vm_hwm or 0
        self.series = Series()
        self.failed = False

    def sample(self) -> Snapshot:
        """Take a sample."""
        start = time.thread_time()
        snapshot = self._sampler.sample()
        sample = sample_of(snapshot)
        self.series.add(sample)
        self._deferred += snapshot.cost.deferred
        if not self.failed:
            try:
                self._recorder.add(sample)
            except OSError as error:
                self._fail(error)
        self._cpu_s += time.thread_time() - start
        return snapshot

    @property
    def pause(self) -> float:
        """Seconds until the next sample."""
        return max(self._interval, self._sampler.pause)

    def end(self, status: int | None = None, used: Sequence[float] | None = None) -> None:
        """Write the last line. `used` is the resource usage of the command, from `os.wait4`."""
        resources: dict[str, Any] = {}
        if used is not None:
            resources = {
                "max_rss": int(used[2]) << 10 if int(used[2]) << 10 > self._own_rss else None,
                "minor_faults": int(used[6]),
                "major_faults": int(used[7]),
                "user_s": round(used[0], 6),
                "system_s": round(used[1], 6),
            }
        resources |= {"looks": self.series.samples, "look_cpu_s": round(self._cpu_s, 6), "put_off": self._deferred}
        if not self.failed:
            try:
                self._recorder.end(End(self.series.seconds, status, **resources))
            except OSError as error:
                self._fail(error)

    def _fail(self, error: OSError) -> None:
        self.failed = True
        click.echo(f"onecopy: {describe(error)}: recording has stopped, but the command continues", err=True)


def follow(pid: int, recording: Recording) -> tuple[int, Sequence[float]]:
    """Sample until the command has ended. Return its status, negative for a signal, and its resource usage."""
    while True:
        recording.sample()
        child.wait(pid, recording.pause)
        if child.has_ended(pid):
            break
    recording.sample()  # children of the command may still run
    _, status, used = os.wait4(pid, 0)
    return os.waitstatus_to_exitcode(status), used


def attend(recording: Recording) -> tuple[None, None]:
    """Sample until all processes have ended, or until a signal in `ENDS` arrives. Exit statuses are unknown."""
    while any(one.state not in "ZX" for one in recording.sample().processes):  # a parent may never wait for a zombie
        if signal.sigtimedwait(ENDS, recording.pause) is not None:
            break
    return None, None


@click.command("record")
@click.option(
    "-o", "--output", required=True, type=click.Path(), metavar="FILE", help="File for the samples, as JSON lines."
)
@click.option("--pid", "pids", multiple=True, type=PID, help="Record this running process. Repeatable.")
@interval("100ms", "Time between two samples.")
@exact_option
@budget_option
@click.option("--no-children", is_flag=True, help="Do not record descendants.")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@click.option("-q", "--quiet", is_flag=True, help="Do not print a table of peaks at the end.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[--] [COMMAND]...")
def command(
    *,
    output: str,
    pids: tuple[int, ...],
    interval: float,
    exact: bool,
    budget: float,
    no_children: bool,
    force: bool,
    quiet: bool,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND and record its memory and that of its children, counting each page once.

    The exit status is that of COMMAND, or 128 + N if signal N ended it; signals are forwarded to it. Each sample is
    written immediately, so none are lost if the recorder is killed. With --pid, running processes are recorded until
    they end, or until Ctrl-C.
    """
    if bool(command) == bool(pids):
        raise click.UsageError("specify either a command to run or --pid")
    how: dict[str, Any] = {"exact": exact, "budget": budget / 100, "children": not no_children}
    with child.blocked_signals() as before:
        try:
            words = list(command) or [f"--pid {pid}" for pid in pids]
            recorder = Recorder(output, words, options={"interval": interval, **how}, force=force)
        except FileExistsError:
            raise click.ClickException(f"{output} exists: use --force to replace it") from None
        with recorder:
            try:
                observed = [child.start(command, before)] if command else pids
                sampler = Sampler(observed, **how)
            except OSError as error:
                recorder.discard()
                if not command:  # no such process
                    raise
                raise click.exceptions.Exit(child.refused(command, error)) from None
            recorder.begin()
            with sampler:
                recording = Recording(sampler, recorder, interval)
                status, used = follow(observed[0], recording) if command else attend(recording)
                recording.end(status, used)
    if not quiet:
        click.echo(
            f"\n{series_table(recording.series)}\nrecorded in {escape(output)}: see onecopy plot and onecopy diff",
            err=True,
        )
    raise click.exceptions.Exit(child.exit_status(status or 0) or int(recording.failed))
