"""`onecopy warm FILE...`: bring files, or some arrays of them, into the page cache and report; or hold them there."""

from __future__ import annotations

import fnmatch
import json
from typing import TYPE_CHECKING, Any

import click
from rich.progress import DownloadColumn

import onecopy
from onecopy.arrays import open_arrays
from onecopy.cli import holding, reports, screen, targets
from onecopy.cli.quantities import SIZE, Quantity
from onecopy.cli.words import parse_duration, plain

if TYPE_CHECKING:
    from collections.abc import Callable

HOLDS, WARMS = ("interval", "pin"), ("pattern", "verify")
"""Options that go with --hold, and that do not."""
INTERVAL = Quantity(
    "time", parse_duration, lambda seconds: 0 < seconds <= holding.LONGEST, "more than 0 s and at most a year"
)


def names_matching(file: Any, pattern: str) -> list[str]:
    """Return the names of the arrays that match; raises ValueError where none does."""
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
@click.option("--threads", type=click.IntRange(min=1), help="Threads; chosen by size and cores if not given.")
@click.option(
    "--max-bytes",
    type=SIZE,
    help="Bring in so much at most, or hold it; of all FILEs, in their order.",
)
@click.option("--huge/--no-huge", default=None, help="Ask for huge pages, or not; chosen if not given.")
@click.option("--verify", is_flag=True, help="Compare with the stored checksums in the same pass.")
@click.option("--hold", is_flag=True, help="Stay, and keep the FILEs in memory until SIGTERM or Ctrl-C.")
@click.option(
    "--interval",
    default="10s",
    show_default=True,
    type=INTERVAL,
    help="With --hold: look for what was dropped or replaced so often.",
)
@click.option(
    "--pin",
    type=SIZE,
    help="With --hold: lock so much at most.  [default: what RLIMIT_MEMLOCK allows]",
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
    """Bring each FILE, and the files that it names if it is an index or a model, into memory; report what was done.

    With --hold, stay: what the kernel drops is brought back, a FILE that was replaced is held anew, and each change is
    a line. --max-bytes is then half of the memory that may be used, if not given. Nothing is left when it ends, however
    it ends; the exit status is 0 after SIGTERM.
    """
    refuse(context, WARMS if hold else HOLDS, "does not go" if hold else "goes only")
    if hold:
        return holding.hold(files, interval, pin=pin, as_json=as_json, **options)
    warmed = []
    left = options.pop("max_bytes")
    for file in dict.fromkeys(files):
        report = warmed_with_bar(file, pattern, verify, {**options, "max_bytes": left})
        left = None if left is None else max(left - report.filled, 0)
        warmed.append({"file": file, **reports.facts_of(report)})
        if not as_json:
            for sentence in reports.warm_sentences(plain(file), report):
                screen.show_line(screen.out(), sentence)
    if as_json:
        click.echo(json.dumps(warmed[0] if len(warmed) == 1 else warmed, indent=1))
    return 0


def refuse(context: click.Context, names: tuple[str, ...], words: str) -> None:
    """Raise a usage error where one of these options was given."""
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "") is click.core.ParameterSource.COMMANDLINE
        if parameter.name in names and given:
            raise click.UsageError(f"{parameter.opts[0]} {words} with --hold", context)


def warmed_with_bar(file: str, pattern: str | None, verify: bool, options: dict[str, Any]) -> Any:
    """Warm one file with a progress bar and return the report."""
    with screen.progress_bar(screen.err(), DownloadColumn(), screen.RateColumn()) as bar:
        task = bar.add_task("warm", total=None)
        return warm(file, pattern, verify, options, lambda done, total: bar.update(task, completed=done, total=total))
