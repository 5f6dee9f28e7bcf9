"""The command line `onecopy`: one file per verb, over the library. `onecopy --help` lists the verbs.

click and rich are imported by this package alone, and only when a command runs. Errors are one line on stderr that
starts with "onecopy: "; the exit status is 1, 2 for a wrong command line, 130 after Ctrl-C. Set ONECOPY_TRACEBACK=1
for the traceback of an error. Programs import `onecopy` instead.
"""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


BLOCKED_EARLY = set[int]()
"""Signals that `main` has blocked before a verb was imported."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; `arguments` are those of the process if None."""
    if (sys.argv[1:] if arguments is None else list(arguments))[:1] == ["run"] and hasattr(signal, "pthread_sigmask"):
        # It would end the process, until `run` waits for it.
        early = {signal.SIGUSR2}
        BLOCKED_EARLY.update(early - signal.pthread_sigmask(signal.SIG_BLOCK, early))
    from onecopy.cli import command_line

    return command_line.run(arguments)
