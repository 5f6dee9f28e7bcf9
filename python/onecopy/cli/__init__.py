"""The command line `onecopy`: one file per verb, over the library. `onecopy --help` lists the verbs.

click and rich are imported by this package alone, and only when a command runs; `onecopy run` needs neither. Errors are
one line on stderr that starts with "onecopy: "; the exit status is 1, 2 for a wrong command line, 130 after Ctrl-C. Set
ONECOPY_TRACEBACK=1 for the traceback of an error. Programs import `onecopy` instead.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; `arguments` are those of the process if None."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given[:1] == ["run"]:
        from onecopy.cli import runner

        runner.block_early()
        if (options := runner.parsed(given[1:])) is not None:
            try:
                return runner.run(**options)
            except (Exception, KeyboardInterrupt) as error:
                from onecopy.cli import command_line

                return command_line.status_of(error)
    from onecopy.cli import command_line

    return command_line.run(given)
