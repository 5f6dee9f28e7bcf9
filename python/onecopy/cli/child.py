"""Start the command passed to a verb, and forward signals to it until it ends.

Until then, signals are blocked: `signal.sigtimedwait` waits for both the end of the command and signals to forward.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Mapping, Sequence
else:
    import _signal as signal  # without enums, whose import takes more than half of the start of `onecopy run`

FORWARDED = {
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGWINCH,
}
SENT_BY_KERNEL = 0x80
"""si_code of a signal from the terminal, which the kernel sends to all processes in the foreground group."""
NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit statuses that a shell returns for a command that it cannot start."""


class blocked_signals:  # noqa: N801 - a context manager
    """Block the signals that are forwarded to a command, and yield the previous signal mask, for `start`."""

    def __enter__(self) -> set[int]:
        self._before = set[int](signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED | {signal.SIGCHLD}))
        return self._before

    def __exit__(self, *_: object) -> None:
        while signal.sigtimedwait(FORWARDED, 0) is not None:
            pass  # discard signals for the command, which has ended
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)


def start(command: Sequence[str], mask: set[int], environment: Mapping[str, str] = os.environ) -> int:
    """Start a command with a signal mask, and return its PID."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if a parent left it ignored, children would be reaped
    signals = [signal.SIGPIPE, signal.SIGXFSZ]  # Python ignores these; other programs do not
    return os.posix_spawnp(command[0], list(command), environment, setsigmask=mask, setsigdef=signals)


def refused(command: Sequence[str], error: OSError) -> int:
    """Print why a command could not be started, and return the exit status that a shell would return."""
    from onecopy.base.text import escape  # rarely needed

    sys.stderr.write(f"onecopy: {escape(command[0])}: {os.strerror(error.errno or 0)}\n")
    return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE


def wait(pid: int, seconds: float | None = None, kept: int | None = None) -> bool:
    """Wait for a signal, and forward it unless it is the signal `kept`. Return whether `kept` was received."""
    signals = FORWARDED | {signal.SIGCHLD}
    came = signal.sigwaitinfo(signals) if seconds is None else signal.sigtimedwait(signals, seconds)
    if came is None or came.si_signo == kept:
        return came is not None
    # Signals from the terminal have reached the command too.
    if came.si_signo in FORWARDED and came.si_code != SENT_BY_KERNEL:
        os.kill(pid, came.si_signo)  # the PID cannot have been reused before the child is waited for
    return False


def has_ended(pid: int) -> bool:
    """Return whether a command has ended, without reaping it."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


def exit_status(code: int) -> int:
    """Return the exit status that a shell would report: 128 + N if signal N ended the command."""
    return 128 - code if code < 0 else code
