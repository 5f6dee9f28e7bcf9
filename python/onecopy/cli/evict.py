"""`onecopy evict FILE...`: drop files from the page cache, and report how much was dropped."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

import onecopy
from onecopy.cli import reports, screen

if TYPE_CHECKING:
    from onecopy.page_cache import EvictReport


def evict(path: str) -> EvictReport:
    """Drop a file and the files that it names; return the report."""
    with reports.opened(path) as target:
        return onecopy.evict(target)


@click.command("evict")
@click.argument("files", nargs=-1, required=True, type=click.Path(), metavar="FILE...")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout: a list with one report per file.")
def command(*, files: tuple[str, ...], as_json: bool) -> None:
    """Drop each FILE, and the files that it names, from the page cache.

    Pages that a process has mapped stay in memory; the report has their share.
    """
    evicted = ((file, evict(file)) for file in files)  # a generator: each report is printed before the next file
    if as_json:
        click.echo(json.dumps([{"file": file, **reports.facts_of(report)} for file, report in evicted], indent=1))
        return
    console = screen.out()
    for file, report in evicted:
        screen.show_line(console, reports.evict_sentence(file, report))
