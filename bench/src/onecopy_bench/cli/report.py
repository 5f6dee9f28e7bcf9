"""`onecopy bench report`: records as a Markdown page and as a picture."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onecopy_bench.record import Record, from_json
from onecopy_bench.report import markdown, picture

if TYPE_CHECKING:
    from collections.abc import Iterable

PICTURES = (".svg", ".png")
PAGES = (".md",)


@click.command("report")
@click.argument("records", nargs=-1, required=True, type=click.Path(), metavar="RECORD...")
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="OUT",
    help="A .md, .svg or .png file; more than once for several. Without it the page goes to stdout.",
)
@click.option(
    "--case", "wanted", multiple=True, metavar="CASE", help="Only this case, such as 'cold,4'; more than once for more."
)
@click.option(
    "--notes",
    "notes_path",
    type=click.Path(),
    help="A TOML file of explanations: \"cold, 1 process, numpy.memmap\" = 'why it is ahead'.",
)
def command(
    records: tuple[str, ...], outputs: tuple[Path, ...], wanted: tuple[str, ...], notes_path: str | None
) -> None:
    """Write RECORDs of `bench open` as a page of tables and as a picture.

    A page that is written together with a picture shows it.
    """
    for output in outputs:
        if output.suffix not in {*PAGES, *PICTURES}:
            raise click.BadParameter(f"{output.name!r} is none of .md, .svg and .png", param_hint="-o")
    read = [record for path in records for record in cut(from_file(path), wanted)]
    notes = explanations(notes_path)
    pictures = [output for output in outputs if output.suffix in PICTURES]
    for path in pictures:
        draw(read, path)
    text = markdown.page(read, pictures[0].name if pictures else None, notes)
    for path in (output for output in outputs if output.suffix in PAGES):
        path.write_text(text)
    if not outputs:
        click.echo(text, nl=False)


def from_file(path: str) -> Record:
    """Read a record; errors name the file."""
    try:
        record = from_json(Path(path).read_text())
    except ValueError as error:
        raise click.ClickException(f"{path}: {error}") from error
    if record.scenario != "open":
        raise click.ClickException(f"{path}: a record of the scenario {record.scenario!r}, not of 'open'")
    return record


def cut(record: Record, wanted: tuple[str, ...]) -> Iterable[Record]:
    """Return a record whole, or its cases that were asked for."""
    if not wanted:
        return [record]
    cases = {f"{case.case.cache},{case.case.processes}": case for case in record.cases()}
    words = [word.replace(" ", "") for word in wanted]
    if unknown := [word for word in words if word not in cases]:
        raise click.BadParameter(f"no case {unknown[0]!r}; there are {' '.join(cases)}", param_hint="--case")
    return [cases[word] for word in words]


def explanations(path: str | None) -> dict[str, str]:
    """Read the explanations of a notes file."""
    if path is None:
        return {}
    try:
        return {key: str(value) for key, value in tomllib.loads(Path(path).read_text()).items()}
    except tomllib.TOMLDecodeError as error:
        raise click.ClickException(f"{path}: {error}") from error


def draw(records: list[Record], path: Path) -> None:
    """Draw the picture; a missing matplotlib is told with its cure."""
    try:
        picture.draw(records, path)
    except ModuleNotFoundError as error:
        raise click.ClickException("pictures need matplotlib: pip install 'onecopy-bench[plots]'") from error
