"""`onecopy import SOURCE TARGET`: convert a JSON, JSON Lines, CSV or Parquet file to a file of records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.progress import DownloadColumn

from onecopy import records
from onecopy.cli import screen
from onecopy.cli.words import size
from onecopy.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable

SUFFIXES = {
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}
IMPORTS: dict[str, Callable[..., Any]] = {
    "json": records.import_json,
    "jsonl": records.import_jsonl,
    "csv": records.import_csv,
    "parquet": records.import_parquet,
}
TAKES = {"path": "json", "container": "json", "types": "csv", "delimiter": "csv"}
"""The format that each option is for."""


def format_of(source: str) -> str:
    """Return the format by the suffix of the name; raises click.UsageError for an unknown suffix."""
    suffix = Path(source).suffix.lower()
    if suffix not in SUFFIXES:
        raise click.UsageError(f"unknown suffix {suffix or source!r}: give the format with --format")
    return SUFFIXES[suffix]


def options_for(form: str, source: str, **given: Any) -> dict[str, Any]:
    """Return the options of the import; raises click.UsageError for an option of another format."""
    options = {name: value for name, value in given.items() if value is not None}
    for name in options:
        if TAKES[name] != form:
            raise click.UsageError(
                f"--{'dict' if name == 'container' else name} is for {TAKES[name]}, and this is {form}"
            )
    if form == "csv" and source.lower().endswith(".tsv"):
        options.setdefault("delimiter", "\t")
    return options


@click.command("import")
@click.argument("source", type=click.Path())
@click.argument("target", type=click.Path())
@click.option(
    "--format",
    "form",
    type=click.Choice(["auto", *IMPORTS]),
    default="auto",
    help="Format of SOURCE; auto: by its suffix.",
)
@click.option("--path", metavar="a.b", help="JSON: the member whose items are the rows.")
@click.option("--dict", "container", flag_value="dict", help="JSON: the members of the object are the rows.")
@click.option("--types", type=click.Choice(["infer"]), help="CSV: infer column types (needs pyarrow); default: text.")
@click.option("--delimiter", metavar="CHARACTER", help="CSV: separator of fields.")
def command(*, source: str, target: str, form: str, **given: Any) -> None:
    """Write the rows of SOURCE to TARGET, a file of records, which `onecopy.open_records` maps."""
    form = format_of(source) if form == "auto" else form
    options = options_for(form, source, **given)
    with screen.progress_bar(screen.err(), DownloadColumn()) as bar:
        task = bar.add_task("import", total=None)

        def watch(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

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
