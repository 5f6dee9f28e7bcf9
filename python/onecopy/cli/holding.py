"""`onecopy warm --hold FILE...`: keep files in memory until SIGTERM or Ctrl-C, and print each change.

Changes are lines on stdout, lost files lines on stderr, flushed at once for the log of a service. On a terminal, a
status line stands below them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn

import click
from rich.live import Live
from rich.text import Text

from onecopy.cli import screen
from onecopy.cli.words import escape, share, size
from onecopy.holding import Hold

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onecopy.holding import Change

MAX_INTERVAL = 366 * 86_400.0
"""Maximum seconds between two refreshes."""


class Ended(BaseException):
    """SIGTERM was received. A BaseException, so that only `hold` catches it."""


def hold(files: tuple[str, ...], interval: float, *, as_json: bool, **options: Any) -> int:
    """Hold files until SIGTERM and return the exit status 0; Ctrl-C raises KeyboardInterrupt."""
    raise_lock_limit()
    try:
        with _ending(), Hold(files, **options) as held, _live() as live:
            if not as_json and options.get("max_bytes") is None:
                words = f"at most {size(held.max_bytes)}, half of the available memory; --max-bytes sets it"
                click.echo(f"onecopy: {words}", err=True)
            while True:
                for change in held.refresh():
                    show(change, as_json=as_json)
                if live is not None:
                    line = f"{summary(held)}; checked at {time.strftime('%H:%M:%S')}"
                    live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=True)
                time.sleep(interval)
    except Ended:
        return 0


def raise_lock_limit() -> None:
    """Raise the soft limit of locked memory to the hard limit."""
    import resource

    with contextlib.suppress(OSError, ValueError):
        hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (hard, hard))


@contextlib.contextmanager
def _ending() -> Iterator[None]:
    """Turn SIGTERM into `Ended` inside the block, also during a refresh."""

    def end(*_: object) -> NoReturn:
        raise Ended

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _live() -> Iterator[Live | None]:
    """Show a status line if stderr is a terminal; else yield None."""
    console = screen.err()
    if not console.is_terminal:
        yield None
        return
    # Lines of a redirected stdout must not go through this console.
    both = sys.stdout.isatty()
    with Live(console=console, transient=True, auto_refresh=False, redirect_stdout=both) as live:
        yield live


def show(change: Change, *, as_json: bool) -> None:
    """Print one change as a line of JSON or of text."""
    if as_json:
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        click.echo(json.dumps({"time": at, **dataclasses.asdict(change)}))
    elif change.what == "lost":
        click.echo(f"onecopy: {sentence(change)}", err=True)
    else:
        click.echo(sentence(change))


def sentence(change: Change) -> str:
    """Return a change as one line.

    Examples
    --------
    >>> from onecopy.holding import Change
    >>> sentence(Change("a.bin", "warmed", "read back", 4_000_000, 4_000_000, 4_000_000, 0, 1_000_000))
    'a.bin: warmed: 4.00 MB of 4.00 MB in memory, 1.00 MB read'
    >>> sentence(Change("a.bin", "lost", "truncated from 9 to 5 bytes", 0, 0, 0, 0))
    'a.bin: truncated from 9 to 5 bytes; released until it stops changing'
    """
    if change.what == "lost":
        return escape(f"{change.path}: {change.reason}; released until it stops changing")
    if change.what == "replaced":
        return escape(f"{change.path}: replaced: {change.reason}")
    resident = "unknown" if change.resident is None else size(change.resident)
    words = [f"{resident} of {size(change.size)} in memory"]
    words += [f"{size(change.filled)} read"] if change.filled else []
    words += [f"{size(change.locked)} locked"] if change.locked else []
    words += [change.reason] if change.what == "short" else []
    return escape(f"{change.path}: {change.what}: {', '.join(words)}")


def summary(held: Hold) -> str:
    """Return the status line."""
    files, resident = held.files, held.resident
    part = "unknown" if resident is None else size(resident)
    words = f"{files} file{'' if files == 1 else 's'}, {part} of {size(held.wanted)} in memory"
    return f"{words} ({share(resident, held.wanted)}), {size(held.locked)} locked"
