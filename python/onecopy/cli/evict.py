"""`onecopy evict FILE...`: drop files from the page cache, and report how much was dropped."""

from __future__ import annotations

import click

import onecopy
from onecopy.cli import options, reports, screen


@click.command("evict")
@options.FILES
@options.as_json("JSON on stdout: a list with one report per file.")
def command(*, files: tuple[str, ...], as_json: bool) -> None:
    """Drop each FILE, and the files that an index or a model names, from the page cache.

    Pages that a process maps stay in memory; the report shows their share.
    """
    evicted = []
    for file in files:
        with reports.opened(file) as target:
            report = onecopy.evict(target)
        evicted.append({"file": file, **reports.attributes_of(report)})
        if not as_json:
            screen.show_line(screen.out(), reports.evict_sentence(file, report))
    if as_json:
        options.show_json(evicted)
