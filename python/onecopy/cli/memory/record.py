"""`onecopy record -o FILE -- COMMAND...`: run a command and write down what memory it needs, with all its children.

The command has the terminal; what is told here goes to stderr, at the end. Signals are blocked and waited for, so that
one call is the pause between looks, the news that the command has ended, and every signal that is to be handed on.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from onecopy.cli.command_line import describe
from onecopy.cli.words import plain
from onecopy.memory import proc
from onecopy.memory.recording import End, Recorder
from onecopy.memory.samples import sample_of
from onecopy.memory.sampling.sampler import Sampler
from onecopy.memory.series import Series
from onecopy.memory.table import series_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onecopy.memory.snapshots import Snapshot

HANDED_ON = {
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGWINCH,
}
ENDS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}
"""Those that end the recording of a process that was there before."""
OF_THE_KERNEL = 0x80
"""si_code of a signal that the terminal sent, to all of the foreground."""
NOT_FOUND, NOT_RUN = 127, 126
"""Exit statuses of shells."""


class Looks:
    """Looks, writes, and remembers; a disk that fills up ends the writing and nothing else."""

    def __init__(self, sampler: Sampler, recorder: Recorder, hz: float) -> None:
        self._sampler, self._recorder, self._period = sampler, recorder, 1 / hz
        self._cpu_s, self._deferred = 0.0, 0
        # A new process has our peak until it has more: exec does not forget it.
        self._own_rss = proc.status(os.getpid()).vm_hwm or 0
        self.series = Series()
        self.failed = False

    def sample(self) -> Snapshot:
        """Sample once."""
        start = time.thread_time()
        snapshot = self._sampler.sample()
        look = sample_of(snapshot)
        self.series.add(look)
        self._deferred += snapshot.cost.deferred
        if not self.failed:
            try:
                self._recorder.add(look)
            except OSError as error:
                self._fail(error)
        self._cpu_s += time.thread_time() - start
        return snapshot

    @property
    def pause(self) -> float:
        """Seconds until the next look."""
        return max(self._period, self._sampler.pause)

    def end(self, status: int | None = None, used: Sequence[float] | None = None) -> None:
        """Write the last line; `used` is what the kernel counted of the command, as in `os.wait4`."""
        facts: dict[str, Any] = {}
        if used is not None:
            facts = {
                "max_rss": int(used[2]) << 10 if int(used[2]) << 10 > self._own_rss else None,
                "minor_faults": int(used[6]),
                "major_faults": int(used[7]),
                "user_s": round(used[0], 6),
                "system_s": round(used[1], 6),
            }
        facts |= {"looks": self.series.samples, "look_cpu_s": round(self._cpu_s, 6), "put_off": self._deferred}
        if not self.failed:
            try:
                self._recorder.end(End(self.series.seconds, status, **facts))
            except OSError as error:
                self._fail(error)

    def _fail(self, error: OSError) -> None:
        self.failed = True
        click.echo(f"onecopy: {describe(error)}: no more is recorded; the command goes on", err=True)


def start(command: Sequence[str], mask: set[int]) -> int:
    """Start the command with the signals as they were; return its number."""
    signals = [signal.SIGPIPE, signal.SIGXFSZ]  # Python ignores these, and no other program does
    return os.posix_spawnp(command[0], list(command), os.environ, setsigmask=mask, setsigdef=signals)


def follow(pid: int, looks: Looks) -> tuple[int, Sequence[float]]:
    """Sample until the command has ended; return its status, negative for a signal, and what it used."""
    while True:
        looks.sample()
        came = signal.sigtimedwait(HANDED_ON | {signal.SIGCHLD}, looks.pause)
        if came is not None and came.si_signo in HANDED_ON and came.si_code != OF_THE_KERNEL:
            with suppress(ProcessLookupError):
                os.kill(pid, came.si_signo)  # not yet waited for, so the number is still its own
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None:
            break
    looks.sample()  # its children may be there still
    _, status, used = os.wait4(pid, 0)
    return os.waitstatus_to_exitcode(status), used


def attend(looks: Looks) -> None:
    """Sample until all processes have ended, or a signal comes."""
    while any(one.state not in "ZX" for one in looks.sample().processes):  # whoever should wait for it may not
        if signal.sigtimedwait(ENDS, looks.pause) is not None:
            return


def summary(looks: Looks, path: str) -> None:
    """Print a summary on stderr."""
    click.echo(
        f"\n{series_table(looks.series)}\nin {plain(path)}: onecopy plot shows it, and onecopy diff compares", err=True
    )


@click.command("record")
@click.option(
    "-o", "--output", required=True, type=click.Path(), metavar="FILE", help="Where the looks go: JSON lines."
)
@click.option(
    "--pid", "pids", multiple=True, type=click.IntRange(min=1), help="A process that runs already; repeatable."
)
@click.option("--hz", default=10.0, show_default=True, type=click.FloatRange(0.01, 1000), help="Looks a second.")
@click.option("--exact", is_flag=True, help="PSS of all processes at every look, whatever it costs them.")
@click.option(
    "--budget",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0, 100, min_open=True),
    help="What looking may cost, in percent of one processor; looks become fewer beyond it.",
)
@click.option("--no-children", is_flag=True, help="Without the descendants.")
@click.option("--force", is_flag=True, help="Write over FILE.")
@click.option("-q", "--quiet", is_flag=True, help="No table of peaks at the end.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[--] [COMMAND]...")
def command(
    *,
    output: str,
    pids: tuple[int, ...],
    hz: float,
    exact: bool,
    budget: float,
    no_children: bool,
    force: bool,
    quiet: bool,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND and record what memory it and its children need, everything counted once.

    The exit status is that of COMMAND, or 128 + N where signal N killed it; signals are handed on. Each look is written
    at once: a recorder that is killed loses none. With --pid, processes that run already are recorded until they end,
    or until Ctrl-C.
    """
    if bool(command) == bool(pids):
        raise click.UsageError("give either a command to run, or --pid")
    options = {"hz": hz, "exact": exact, "budget": budget / 100, "children": not no_children}
    how = {name: value for name, value in options.items() if name != "hz"}
    before = set[int](signal.pthread_sigmask(signal.SIG_BLOCK, HANDED_ON | {signal.SIGCHLD}))
    try:
        with _recorder(output, command or [f"--pid {pid}" for pid in pids], options, force) as recorder:
            if pids:
                status = _attached(pids, recorder, hz, how, quiet)
            else:
                status = _started(command, before, recorder, hz, how, quiet)
    finally:
        while signal.sigtimedwait(HANDED_ON, 0) is not None:
            pass  # it was for a command that has ended
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    raise click.exceptions.Exit(status)


def _recorder(output: str, command: Sequence[str], options: Mapping[str, object], force: bool) -> Recorder:
    try:
        return Recorder(output, list(command), options=options, force=force)
    except FileExistsError:
        raise click.ClickException(f"{output} is there already: --force writes over it") from None


def _attached(pids: Sequence[int], recorder: Recorder, hz: float, how: Mapping[str, Any], quiet: bool) -> int:
    try:
        sampler = Sampler(pids, **how)
    except OSError:  # there is no such process
        recorder.discard()
        raise
    recorder.begin()
    with sampler:
        looks = Looks(sampler, recorder, hz)
        attend(looks)
        looks.end()
    if not quiet:
        summary(looks, recorder.path)
    return int(looks.failed)


def _started(
    command: Sequence[str],
    mask: set[int],
    recorder: Recorder,
    hz: float,
    how: Mapping[str, Any],
    quiet: bool,
) -> int:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, as some parents leave it, nobody could be waited for
    try:
        pid = start(command, mask)
    except OSError as error:
        recorder.discard()
        click.echo(f"onecopy: {plain(command[0])}: {os.strerror(error.errno or 0)}", err=True)
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUN
    recorder.begin()
    with Sampler([pid], **how) as sampler:
        looks = Looks(sampler, recorder, hz)
        status, used = follow(pid, looks)
        looks.end(status, used)
    if not quiet:
        summary(looks, recorder.path)
    return 128 - status if status < 0 else status or int(looks.failed)
