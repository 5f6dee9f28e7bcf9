"""The `onecopy` command line, with one file per verb.

Only this package imports click and rich, and only when a command runs; `onecopy run` needs neither. An error is
reported as one line on stderr that starts with "onecopy: ". The exit status is then 1, or 2 for a wrong command line,
or 130 after Ctrl-C. ONECOPY_TRACEBACK=1 shows the traceback of an error.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status. By default, the arguments are those of this process."""
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
