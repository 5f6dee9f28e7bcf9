"""`onecopy warm FILE...`: read files, or some of the arrays in them, into the page cache."""

from __future__ import annotations

from typing import Any

import click

import onecopy
from onecopy.arrays import open_arrays
from onecopy.cli import options, reports, screen


def warm(path: str, pattern: str | None, verify: bool, settings: dict[str, Any]) -> Any:
    """Warm a file, or only the arrays that match a pattern, and return the report."""
    with screen.progress("warm") as watch:
        if pattern is None and not verify:
            with reports.opened(path) as target:
                return onecopy.warm(target, **settings, progress=watch)
        with open_arrays(path) as file:
            names = None if pattern is None else reports.names_matching(file, pattern)
            return file.warm(names, verify=verify, **settings, progress=watch)


@click.command("warm")
@options.FILES
@options.names("Only arrays whose names match GLOB.")
@options.threads("Number of threads; default: 8.")
@click.option("--max-bytes", type=options.SIZE, help="Read at most SIZE in total, earlier FILEs first.")
@options.HUGE
@click.option("--verify", is_flag=True, help="Verify the stored checksums in the same pass.")
@options.as_json()
def command(*, files: tuple[str, ...], as_json: bool, pattern: str | None, verify: bool, **settings: Any) -> None:
    """Read each FILE, and the files that an index or a model names, into memory, and report the result.

    The kernel may evict the data again; `onecopy hold` keeps files in memory.
    """
    warmed = []
    left = settings.pop("max_bytes")
    for file in dict.fromkeys(files):
        report = warm(file, pattern, verify, {**settings, "max_bytes": left})
        left = None if left is None else max(left - report.filled, 0)
        warmed.append({"file": file, **reports.attributes_of(report)})
        if not as_json:
            for sentence in reports.warm_sentences(file, report):
                screen.show_line(screen.out(), sentence)
    if as_json:
        options.show_json(warmed[0] if len(warmed) == 1 else warmed)
