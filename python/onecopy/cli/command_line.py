"""The group of verbs, and the one place where an error becomes a line and an exit status.

Verbs are imported when they are asked for, so that `onecopy ls` does not pay for the benchmarks.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from typing import TYPE_CHECKING

import click

from onecopy.cli.words import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

VERBS = {
    "ls": "ls",
    "convert": "convert",
    "import": "import_",
    "images": "images",
    "warm": "warm",
    "evict": "evict",
    "verify": "verify",
    "store": "store",
    "top": "memory.top",
    "why": "memory.why",
    "container": "memory.container",
    "record": "memory.record",
    "plot": "memory.plot",
    "diff": "memory.diff",
    "serve": "memory.serve",
    "bench": "bench.group",
}
"""The module of each, in the order in which they are explained."""

BENCH = "Measure in fresh processes, with a declared state of the page cache."
"""What `bench` is, for the list of verbs: to ask its module loads numpy and knows all peers, half a second."""

FAILED, USAGE, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141


class Verbs(click.Group):
    """A group whose commands live in one module each, imported on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the verbs."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the module of a verb and return its command."""
        if cmd_name not in VERBS:
            return None
        command = importlib.import_module(f"onecopy.cli.{VERBS[cmd_name]}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of verbs, as click does, but without loading the benchmarks."""
        limit = formatter.width - 6 - max(map(len, VERBS))
        rows = []
        for name in VERBS:
            command = click.Command(name, help=BENCH) if name == "bench" else self.get_command(ctx, name)
            assert command is not None
            rows.append((name, command.get_short_help_str(limit)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def show_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Print the version and leave."""
    if not wanted or context.resilient_parsing:
        return
    from onecopy import __version__

    click.echo(f"onecopy {__version__}")
    context.exit()


@click.command(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=show_version,
    help="Print the version and exit.",
)
def onecopy() -> None:
    """Big read-only data: opened in milliseconds, held once per machine, its memory shown honestly."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status; nothing but its own errors passes through."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            status = onecopy.main(arguments, prog_name="onecopy", standalone_mode=False)
        sys.stdout.flush()
    except click.UsageError as error:
        return _complain(_usage(error), USAGE)
    except click.ClickException as error:
        return _complain(error.format_message(), FAILED)
    except (KeyboardInterrupt, click.Abort):
        return _complain("interrupted", INTERRUPTED)
    except (BrokenPipeError, SystemExit):  # click turns the first into the second, and nothing else
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader left: nobody to tell
        return BROKEN_PIPE
    except Exception as error:
        if os.environ.get("ONECOPY_TRACEBACK") == "1":
            raise
        return _complain(describe(error), FAILED)
    return status if isinstance(status, int) else 0


def describe(error: Exception) -> str:
    """Return an error in one line: for the system's refusals the file and the words, else the message.

    Examples
    --------
    >>> describe(FileNotFoundError(2, "No such file or directory", "a.safetensors"))
    'a.safetensors: No such file or directory'
    >>> describe(KeyError("a"))
    "KeyError: 'a'"
    """
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    if isinstance(error, OSError | ValueError | RuntimeError) and str(error):
        return str(error)
    return f"{type(error).__name__}: {error}"


def _usage(error: click.UsageError) -> str:
    path = error.ctx.command_path if error.ctx is not None else "onecopy"
    return f"{error.format_message()} (see '{path} --help')"


def _complain(message: str, status: int) -> int:
    line = " ".join(plain(part) for part in message.splitlines())
    sys.stderr.write(f"onecopy: {line}\n")
    return status


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    """Show a warning of the library as one line, without the place in its source."""
    _complain(f"warning: {message}", 0)
