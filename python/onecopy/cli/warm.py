"""`onecopy warm FILE...`: read files, or some of their arrays, into the page cache; --hold keeps them there.

With --hold, changes are lines on stdout and lost files lines on stderr, flushed at once for the log of a service. On a
terminal, a status line stands below them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import resource
import signal
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn

import click
from rich.live import Live
from rich.text import Text

import onecopy
from onecopy.arrays import open_arrays
from onecopy.cli import options, reports, screen
from onecopy.cli.screen import share
from onecopy.holding import Hold
from onecopy.text import counted, escape, size

if TYPE_CHECKING:
    from onecopy.holding import Change


HOLDS, WARMS = ("interval", "pin"), ("pattern", "verify")
"""Options that need --hold, and options that exclude it."""


def warm(path: str, pattern: str | None, verify: bool, settings: dict[str, Any]) -> Any:
    """Warm all of a file, or the arrays that match, with a progress bar, and return the report."""
    with screen.progress("warm") as watch:
        if pattern is None and not verify:
            with reports.opened(path) as target:
                return onecopy.warm(target, **settings, progress=watch)
        with open_arrays(path) as file:
            names = None if pattern is None else reports.names_matching(file, pattern)
            return file.warm(names, verify=verify, **settings, progress=watch)


@click.command("warm")
@options.FILES
@options.names("Only arrays whose names match.")
@options.threads("Number of threads; default: 8.")
@click.option(
    "--max-bytes", type=options.SIZE, help="Read at most SIZE of all FILEs, in their order; with --hold: keep."
)
@click.option(
    "--huge/--no-huge",
    default=None,
    help="Use huge pages, or not; default: if a file is at most half of the available memory.",
)
@click.option("--verify", is_flag=True, help="Verify the stored checksums in the same pass.")
@click.option("--hold", is_flag=True, help="Keep running, and keep the FILEs in memory, until SIGTERM or Ctrl-C.")
@options.interval("10s", "With --hold: time between two checks for evicted pages and replaced files.")
@click.option("--pin", type=options.SIZE, help="With --hold: maximum bytes to lock.  [default: RLIMIT_MEMLOCK]")
@options.as_json("JSON on stdout; with --hold, a line for each change.")
@click.pass_context
def command(
    context: click.Context,
    /,
    *,
    files: tuple[str, ...],
    hold: bool,
    interval: float,
    pin: int | None,
    as_json: bool,
    pattern: str | None,
    verify: bool,
    **settings: Any,
) -> int:
    """Read each FILE into memory, with the files that an index or a model names, and report the result.

    With --hold, keep running: evicted pages are read back, a replaced FILE is held instead of the old one, and each
    change is printed as a line. The default of --max-bytes is then half of the available memory. Locks end with the
    process; the exit status is 0 after SIGTERM.
    """
    refuse(context, WARMS if hold else HOLDS, "cannot be used" if hold else "can be used only")
    if hold:
        hold_files(files, interval, pin=pin, as_json=as_json, **settings)
    warmed = []
    left = settings.pop("max_bytes")
    for file in dict.fromkeys(files):
        report = warm(file, pattern, verify, {**settings, "max_bytes": left})
        left = None if left is None else max(left - report.filled, 0)
        warmed.append({"file": file, **reports.attributes_of(report)})
        if not as_json:
            for sentence in reports.warm_sentences(escape(file), report):
                screen.show_line(screen.out(), sentence)
    if as_json:
        options.show_json(warmed[0] if len(warmed) == 1 else warmed)
    return 0


def refuse(context: click.Context, names: tuple[str, ...], words: str) -> None:
    """Raise a usage error if one of these options was given."""
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "") is click.core.ParameterSource.COMMANDLINE
        if parameter.name in names and given:
            raise click.UsageError(f"{parameter.opts[0]} {words} with --hold", context)


def hold_files(files: tuple[str, ...], interval: float, *, as_json: bool, **settings: Any) -> NoReturn:
    """Hold files until SIGTERM, which ends this process with status 0, or Ctrl-C, which raises KeyboardInterrupt."""
    with contextlib.suppress(OSError, ValueError):
        hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (hard, hard))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    console = screen.err()
    line: Any = contextlib.nullcontext()
    if console.is_terminal:  # lines of a redirected stdout must not go through this console
        line = Live(console=console, transient=True, auto_refresh=False, redirect_stdout=sys.stdout.isatty())
    with Hold(files, **settings) as held, line:
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
    part = "unknown" if held.resident is None else size(held.resident)
    words = f"{counted(held.files, 'file')}, {part} of {size(held.wanted)} in memory"
    return f"{words} ({share(held.resident, held.wanted)}), {size(held.locked)} locked"
