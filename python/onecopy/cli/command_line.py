"""The verbs of `onecopy`, and the messages and exit statuses of errors."""

from __future__ import annotations

import os
import sys
import warnings
from typing import TYPE_CHECKING

import click

from onecopy.base.text import escape
from onecopy.cli.options import Group

if TYPE_CHECKING:
    from collections.abc import Sequence

VERBS = {
    "ls": ("ls", "list the contents of a file: names, types, shapes, sizes, and how much of it is in memory"),
    "convert": ("convert", "convert ONNX, GGUF, npz, torch, sharded and other files to one safetensors file"),
    "warm": ("warm", "read files into memory"),
    "hold": ("hold", "keep files in memory while the processes that read them restart"),
    "evict": ("evict", "drop files from the page cache"),
    "verify": ("verify", "compare every byte of a file with its stored checksums"),
    "run": ("run", "run an unmodified program whose processes share what they load"),
    "store": ("store", "list and prune the files that were built once per machine"),
    "explain": ("explain", "explain what processes use memory for, how much of it is copies, and what to do"),
    "container": ("container", "show how much memory is left before the OOM killer acts"),
}
"""The module and one-line description of each verb, in the order of the help text."""

PACKAGED = {
    "import": ("onecopy-records", "convert a JSON or Parquet file to a file of records"),
    "fetch": ("onecopy-remote", "fetch files behind URLs into the store of this machine"),
    "images": ("onecopy-images", "decode images once per machine, and view or stitch them"),
    "top": ("onecopy-monitor", "show live which processes and files use memory, counting each page once"),
    "record": ("onecopy-monitor", "run a command and record the memory of its processes"),
    "plot": ("onecopy-monitor", "draw a recording as SVG, HTML or PNG"),
    "diff": ("onecopy-monitor", "compare two recordings"),
    "serve": ("onecopy-monitor", "serve memory metrics for Prometheus, and a live page"),
    "bench": ("onecopy-bench", "measure onecopy and its alternatives in fresh processes"),
}
"""The distribution and one-line description of each verb that this project's other distributions add."""

FAILED, USAGE, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141
"""Exit statuses."""


@click.command(
    cls=Group,
    context_settings={"help_option_names": ["-h", "--help"]},
    modules={name: (f"onecopy.cli.{module}", words) for name, (module, words) in VERBS.items()},
    entry_points="onecopy.commands",
    packaged=PACKAGED,
)
@click.version_option(package_name="onecopy-core", message="onecopy %(version)s", help="Print the version and exit.")
def onecopy() -> None:
    """Open big read-only data in milliseconds, keep one copy per machine, and measure its memory."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, print any error, and return the exit status."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            status = onecopy.main(arguments, prog_name="onecopy", standalone_mode=False)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        return status_of(error)
    return status if isinstance(status, int) else 0


def status_of(error: BaseException) -> int:
    """Print an error and return its exit status. With ONECOPY_TRACEBACK=1, raise the error instead."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):  # a group without a command
        error.show()
        return USAGE
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx is not None else "onecopy"
        return _complain(f"{error.format_message()} (see '{path} --help')", USAGE)
    if isinstance(error, click.ClickException):
        return _complain(error.format_message(), FAILED)
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        return _complain("interrupted", INTERRUPTED)
    if isinstance(error, (BrokenPipeError, SystemExit)):
        return _exit_status(error)
    if os.environ.get("ONECOPY_TRACEBACK") == "1" or not isinstance(error, Exception):
        raise error
    return _complain(describe(error), FAILED)


def _exit_status(error: BrokenPipeError | SystemExit) -> int:
    if isinstance(error, BrokenPipeError) or isinstance(error.__context__, BrokenPipeError):  # click then exits
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # flushing stdout at exit must not fail
        return BROKEN_PIPE
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    return _complain(str(error.code), FAILED)  # as the interpreter does


def describe(error: Exception) -> str:
    """Return an error's message as one line, with an OSError's file name or any other error's class name."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    if isinstance(error, OSError | ValueError | RuntimeError | ModuleNotFoundError) and str(error):
        return str(error)
    return f"{type(error).__name__}: {error}"


def _complain(message: str, status: int) -> int:
    line = " ".join(escape(part) for part in message.splitlines())
    sys.stderr.write(f"onecopy: {line}\n")
    return status


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning as one line, without its source location."""
    _complain(f"warning: {message}", 0)
