"""`onecopy hold [NAME=]FILE...`: keep files in memory until SIGTERM or Ctrl-C.

Changes are lines on stdout and lost files lines on stderr, flushed at once for the log of a service. On a terminal, a
status line stands below them.
"""

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
"""NAME=FILE; a path with "=" is written with a "/" before it."""


@click.command("hold")
@click.argument("files", nargs=-1, required=True, metavar="[NAME=]FILE...")
@click.option("--max-bytes", type=options.SIZE, help="Maximum bytes of all FILEs in memory, assigned in their order.")
@click.option("--pin", type=options.SIZE, help="Maximum bytes to lock.  [default: RLIMIT_MEMLOCK]")
@options.interval("10s", "Time between two checks for evicted pages and replaced files.")
@options.threads("Number of threads; default: 8.")
@options.HUGE
@options.as_json("A line of JSON on stdout for each change.")
def command(*, files: tuple[str, ...], interval: float, as_json: bool, **settings: Any) -> NoReturn:
    """Keep files in memory, across restarts of the processes that read them, until SIGTERM or Ctrl-C.

    Of FILE, the pages of the page cache are held: evicted pages are read back, and a replaced FILE is held instead of
    the old one. NAME=FILE holds a copy in memory, which no write to FILE changes: programs of this user open it with
    oc.open("hold:NAME"). When FILE was replaced or written and two checks found it unchanged, its new contents become
    the next generation: processes that open the name from then on get it, and the generation before leaves memory with
    its last user. Each NAME has one holder; a second one is refused.

    The default of --max-bytes is half of the available memory, for all FILEs, those with names first; a new generation
    takes its size in addition while the one before is used. Each change is printed as a line. Names, copies and locks
    end with this process, however it ends; what processes have opened stays with them. The exit status is 0 after
    SIGTERM.
    """
    matches = {file: _NAMED.fullmatch(file) for file in files}
    pairs = [(match[1], match[2]) for match in matches.values() if match]
    if len(names := dict(pairs)) < len(pairs):
        raise click.UsageError("a NAME is given twice")
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
            words = f"at most {size(held.max_bytes)}, half of the available memory; --max-bytes sets it"
            click.echo(f"onecopy: {words}", err=True)
        while True:
            for change in held.refresh():
                show(change, as_json=as_json)
            if console.is_terminal:
                words = f"{summary(held)}; checked at {time.strftime('%H:%M:%S')}"
                line.update(Text(words, no_wrap=True, overflow="ellipsis"), refresh=True)
            time.sleep(interval)


def show(change: Change, *, as_json: bool) -> None:
    """Print one change as a line of JSON or of text."""
    if as_json:
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        click.echo(json.dumps({"time": at, **dataclasses.asdict(change)}))
    elif change.what in ("lost", "kept"):
        click.echo(f"onecopy: {sentence(change)}", err=True)
    else:
        click.echo(sentence(change))


def sentence(change: Change) -> str:
    """Return a change as one line.

    Examples
    --------
    >>> from onecopy.run.holder import Change
    >>> sentence(Change("a.bin", "warmed", "read back", 4_000_000, 4_000_000, 4_000_000, 0, 1_000_000))
    'a.bin: warmed: 4.00 MB of 4.00 MB in memory, 1.00 MB read'
    >>> sentence(Change("a.bin", "lost", "truncated from 9 to 5 bytes", 0, 0, 0, 0))
    'a.bin: truncated from 9 to 5 bytes; released until it stops changing'
    >>> sentence(Change("a.bin", "kept", "Permission denied", 9, 9, 9, 0, name="model", generation=2))
    'model=a.bin: Permission denied; generation 2 stays'
    """
    label = f"{change.name}={change.path}" if change.name else change.path
    if change.what == "kept":
        return escape(f"{label}: {change.reason}; generation {change.generation} stays")
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
