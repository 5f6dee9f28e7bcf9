"""`onecopy hold [NAME=]FILE...`: keep files in memory until SIGTERM or Ctrl-C."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import resource
import signal
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn

import click
from rich.live import Live
from rich.text import Text

from onecopy.base.text import counted, escape, size
from onecopy.cli import options, screen
from onecopy.cli.screen import share
from onecopy.run.holder import Holder

if TYPE_CHECKING:
    from onecopy.run.holder import Change

_NAMED = re.compile(r"([^/=]+)=(.+)", re.DOTALL)
"""NAME=FILE. If a path contains "=", there must be a "/" before it, as in ./a=b."""


@click.command("hold")
@click.argument("files", nargs=-1, required=True, metavar="[NAME=]FILE...")
@click.option("--max-bytes", type=options.SIZE, help="Maximum bytes of all FILEs in memory; earlier FILEs come first.")
@click.option("--pin", type=options.SIZE, help="Maximum bytes to lock.  [default: RLIMIT_MEMLOCK]")
@options.interval("10s", "Time between two checks for evicted pages and replaced files.")
@options.threads("Number of threads; default: 8.")
@options.HUGE
@options.as_json("JSON on stdout: a line for each change.")
def command(*, files: tuple[str, ...], interval: float, as_json: bool, **settings: Any) -> NoReturn:
    """Keep files in memory, while the processes that read them restart, until SIGTERM or Ctrl-C.

    FILE is held as pages of the page cache: evicted pages are read back, and if FILE is replaced, the new file is held
    instead. NAME=FILE holds a copy in memory that writes to FILE do not change; this user's programs open it with
    oc.open("hold:NAME"). When two consecutive checks find the same new contents in FILE, these become the next
    generation, and the memory of the previous one is freed when its last user closes it.

    The default of --max-bytes is half of the available memory. Files with a NAME come first.
    Each change is printed as a line. Names, copies and locks are released when this process ends;
    files that other processes have opened stay valid.
    """
    matches = {file: _NAMED.fullmatch(file) for file in files}
    pairs = [(match[1], match[2]) for match in matches.values() if match]
    if len(names := dict(pairs)) < len(pairs):
        raise click.UsageError("specify each NAME only once")
    paths = [file for file, match in matches.items() if not match]
    with contextlib.suppress(OSError, ValueError):
        hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (hard, hard))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    console = screen.err()
    line: Any = contextlib.nullcontext()
    if console.is_terminal:  # lines of a redirected stdout must not go through this console
        line = Live(console=console, transient=True, auto_refresh=False, redirect_stdout=sys.stdout.isatty())
    with Holder(paths, names=names, **settings) as held, line:
        if not as_json and settings.get("max_bytes") is None:
            words = f"the limit is {size(held.max_bytes)}, half of the available memory; use --max-bytes to change it"
            click.echo(f"onecopy: {words}", err=True)
        while True:
            for change in held.refresh():
                show(change, as_json=as_json)
            if console.is_terminal:
                words = f"{summary(held)}; checked at {time.strftime('%H:%M:%S')}"
                line.update(Text(words, no_wrap=True, overflow="ellipsis"), refresh=True)
            time.sleep(interval)


def show(change: Change, *, as_json: bool) -> None:
    """Print a change as a line of JSON or text, and flush stdout for service logs."""
    if as_json:
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        click.echo(json.dumps({"time": at, **dataclasses.asdict(change)}))
    elif change.what in ("lost", "kept"):
        click.echo(f"onecopy: {sentence(change)}", err=True)
    else:
        click.echo(sentence(change))


def sentence(change: Change) -> str:
    """Format a change as one line."""
    label = f"{change.name}={change.path}" if change.name else change.path
    if change.what == "kept":
        return escape(f"{label}: {change.reason}; generation {change.generation} is kept")
    if change.what == "lost":
        return escape(f"{label}: {change.reason}; {'not held' if change.name else 'released'} until it stops changing")
    if change.what == "replaced":
        return escape(f"{label}: replaced: {change.reason}")
    resident = "unknown" if change.resident is None else size(change.resident)
    words = [f"{resident} of {size(change.size)} in memory"]
    words += [f"{size(change.filled)} read"] if change.filled else []
    words += [f"{size(change.locked)} locked"] if change.locked else []
    words += [f"generation {change.generation}"] if change.name else []
    words += [change.reason] if change.what == "short" else []
    return escape(f"{label}: {change.what}: {', '.join(words)}")


def summary(held: Holder) -> str:
    """Return the status line."""
    part = "unknown" if held.resident is None else size(held.resident)
    words = f"{counted(held.files, 'file')}, {part} of {size(held.wanted)} in memory"
    return f"{words} ({share(held.resident, held.wanted)}), {size(held.locked)} locked"
