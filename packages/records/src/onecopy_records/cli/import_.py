"""`onecopy import SOURCE TARGET`: convert a JSON, JSON Lines or Parquet file to a file of records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.progress import DownloadColumn

from onecopy.base.text import size
from onecopy.cli import screen
from onecopy.errors import FormatError
from onecopy_records import row_files

if TYPE_CHECKING:
    from collections.abc import Callable

SUFFIXES = {
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}
IMPORTS: dict[str, Callable[..., Any]] = {
    "json": row_files.import_json,
    "jsonl": row_files.import_jsonl,
    "parquet": row_files.import_parquet,
}


@click.command("import")
@click.argument("source", type=click.Path())
@click.argument("target", type=click.Path())
@click.option(
    "--format",
    "form",
    type=click.Choice(["auto", *IMPORTS]),
    default="auto",
    help="Format of SOURCE; auto uses its suffix.",
)
@click.option("--path", metavar="a.b", help="JSON: the member whose items are the rows.")
@click.option("--dict", "container", flag_value="dict", help="JSON: the members of the object are the rows.")
def command(*, source: str, target: str, form: str, **given: Any) -> None:
    """Write the rows of SOURCE to TARGET, a file of records that `onecopy.open_records` maps."""
    suffix = Path(source).suffix.lower()
    if form == "auto" and (form := SUFFIXES.get(suffix, "")) == "":
        raise click.UsageError(f"unknown suffix {suffix or source!r}: specify the format with --format")
    options = {name: value for name, value in given.items() if value is not None}
    if options and form != "json":
        option = "path" if "path" in options else "dict"
        raise click.UsageError(f"--{option} applies to json, but SOURCE is {form}")
    with screen.progress("import", DownloadColumn()) as watch:
        try:
            imported = IMPORTS[form](source, target, progress=watch, **options)
        except FormatError as error:
            message = str(error).replace("give the path to one of its members", "give --path with one of its members")
            raise click.ClickException(message) from None
    with imported:
        kind = type(imported).__name__.lower()
        read = size(Path(source).stat().st_size)
        screen.show_line(
            screen.out(), f"{target}: {kind} of {len(imported):,} rows, {size(imported.nbytes)}, from {read} of {form}"
        )
