"""`onecopy warm FILE...`: read files, or some of their arrays, into the page cache; --hold keeps them there."""

from __future__ import annotations

import fnmatch
import json
from typing import TYPE_CHECKING, Any

import click
from rich.progress import DownloadColumn

import onecopy
from onecopy.arrays import open_arrays
from onecopy.cli import holding, reports, screen, targets
from onecopy.cli.words import SIZE, Quantity, escape, parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable

HOLDS, WARMS = ("interval", "pin"), ("pattern", "verify")
"""Options that need --hold, and options that exclude it."""
INTERVAL = Quantity(
    "time", parse_duration, lambda seconds: 0 < seconds <= holding.MAX_INTERVAL, "more than 0 s and at most a year"
)


def names_matching(file: Any, pattern: str) -> list[str]:
    """Return the names of the arrays that match; ValueError if none does."""
    names = [name for name in file.keys() if fnmatch.fnmatchcase(name, pattern)]  # noqa: SIM118
    if not names:
        raise ValueError(f"none of the {len(file)} arrays of {file.path} matches {pattern!r}")
    return names


def warm(
    path: str, pattern: str | None, verify: bool, options: dict[str, Any], watch: Callable[[int, int], None]
) -> Any:
    """Open the file, warm all of it or the arrays that match, and return the report."""
    if pattern is None and not verify:
        with targets.opened(path) as target:
            return onecopy.warm(target, **options, progress=watch)
    with open_arrays(path) as file:
        names = None if pattern is None else names_matching(file, pattern)
        return file.warm(names, verify=verify, **options, progress=watch)


@click.command("warm")
@click.argument("files", nargs=-1, required=True, type=click.Path(), metavar="FILE...")
@click.option("--names", "pattern", metavar="GLOB", help="Only arrays whose names match.")
@click.option("--threads", type=click.IntRange(min=1), help="Number of threads; default: by size and CPUs.")
@click.option(
    "--max-bytes",
    type=SIZE,
    help="Maximum bytes of all FILEs in memory, assigned in their order.",
)
@click.option("--huge/--no-huge", default=None, help="Use huge pages, or not; default: by the size.")
@click.option("--verify", is_flag=True, help="Verify the stored checksums in the same pass.")
@click.option("--hold", is_flag=True, help="Stay, and keep the FILEs in memory until SIGTERM or Ctrl-C.")
@click.option(
    "--interval",
    default="10s",
    show_default=True,
    type=INTERVAL,
    help="With --hold: time between two checks for evicted pages and replaced files.",
)
@click.option(
    "--pin",
    type=SIZE,
    help="With --hold: maximum bytes to lock.  [default: RLIMIT_MEMLOCK]",
)
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout; with --hold, a line for each change.")
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
    **options: Any,
) -> int:
    """Read each FILE into memory, with the files that an index or a model names, and report the result.

    With --hold, keep running: evicted pages are read back, a replaced FILE is held instead of the old one, and each
    change is printed as a line. The default of --max-bytes is then half of the available memory. Locks end with the
    process; the exit status is 0 after SIGTERM.
    """
    refuse(context, WARMS if hold else HOLDS, "cannot be used" if hold else "can be used only")
    if hold:
        return holding.hold(files, interval, pin=pin, as_json=as_json, **options)
    warmed = []
    left = options.pop("max_bytes")
    for file in dict.fromkeys(files):
        report = warmed_with_bar(file, pattern, verify, {**options, "max_bytes": left})
        left = None if left is None else max(left - report.filled, 0)
        warmed.append({"file": file, **reports.facts_of(report)})
        if not as_json:
            for sentence in reports.warm_sentences(escape(file), report):
                screen.show_line(screen.out(), sentence)
    if as_json:
        click.echo(json.dumps(warmed[0] if len(warmed) == 1 else warmed, indent=1))
    return 0


def refuse(context: click.Context, names: tuple[str, ...], words: str) -> None:
    """Raise a usage error if one of these options was given."""
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "") is click.core.ParameterSource.COMMANDLINE
        if parameter.name in names and given:
            raise click.UsageError(f"{parameter.opts[0]} {words} with --hold", context)


def warmed_with_bar(file: str, pattern: str | None, verify: bool, options: dict[str, Any]) -> Any:
    """Warm one file with a progress bar and return the report."""
    with screen.progress_bar(screen.err(), DownloadColumn(), screen.RateColumn()) as bar:
        task = bar.add_task("warm", total=None)
        return warm(file, pattern, verify, options, lambda done, total: bar.update(task, completed=done, total=total))
