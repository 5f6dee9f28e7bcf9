"""`onecopy warm FILE`: bring a file, or some of its arrays, into the page cache, and report what happened."""

from __future__ import annotations

import fnmatch
import json
from typing import TYPE_CHECKING, Any

import click
from rich.progress import DownloadColumn

import onecopy
from onecopy.cli import reports, screen, targets
from onecopy.cli.words import parse_size, plain

if TYPE_CHECKING:
    from collections.abc import Callable


def as_bytes(_: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    """Return a size option in bytes; a wrong one is a wrong command line."""
    try:
        return None if text is None else parse_size(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param=parameter) from error


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
            return onecopy.warm(target, **options, on_progress=watch)
    with onecopy.open(path) as file:
        names = None if pattern is None else names_matching(file, pattern)
        return file.warm(names, verify=verify, **options, on_progress=watch)


@click.command("warm")
@click.argument("file", type=click.Path())
@click.option("--names", "pattern", metavar="GLOB", help="Only arrays whose names match.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads; chosen by size and cores if not given.")
@click.option("--budget", callback=as_bytes, metavar="SIZE", help="Bytes at most, such as 2GiB or 500MB.")
@click.option("--huge/--no-huge", default=None, help="Ask for huge pages, or not; chosen if not given.")
@click.option("--verify", is_flag=True, help="Compare with the stored checksums in the same pass.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def command(
    *,
    file: str,
    pattern: str | None,
    verify: bool,
    threads: int | None,
    budget: int | None,
    huge: bool | None,
    as_json: bool,
) -> None:
    """Bring FILE, and the files that it names if it is an index or a model, into memory; report what the kernel did."""
    options = {"threads": threads, "budget": budget, "huge": huge}
    with screen.progress_bar(screen.err(), DownloadColumn(), screen.RateColumn()) as bar:
        task = bar.add_task("warm", total=None)
        report = warm(file, pattern, verify, options, lambda done, total: bar.update(task, completed=done, total=total))
    if as_json:
        click.echo(json.dumps(reports.facts_of(report), indent=1))
        return
    console = screen.out()
    for sentence in reports.warm_sentences(plain(file), report):
        screen.show_line(console, sentence)
