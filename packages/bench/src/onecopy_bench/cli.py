"""`onecopy bench SCENARIO`: measure in fresh processes, and show what that says; `report` shows a record again."""

from __future__ import annotations

from pathlib import Path

import click

from onecopy.cli import screen
from onecopy_bench.engine import pages, pictures
from onecopy_bench.engine.record import Record, read
from onecopy_bench.scenarios.every import COMMANDS, SCENARIOS
from onecopy_bench.stories import command as stories

PICTURES, PAGES = (".svg", ".png"), (".md",)


@click.group("bench", cls=screen.Group)
def command() -> None:
    """Measure in fresh processes, with a declared state of the page cache."""


@command.command("report")
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
def report(records: tuple[str, ...], outputs: tuple[Path, ...]) -> None:
    """Write RECORD as a page of tables and as a picture; several records as one page.

    A page that is written together with a picture shows it. A picture is of one record.
    """
    for output in outputs:
        if output.suffix not in {*PAGES, *PICTURES}:
            raise click.BadParameter(f"{output.name!r} must end in .md, .svg or .png", param_hint="-o")
    found = [one for path in records for one in from_file(path)]
    drawn = [output for output in outputs if output.suffix in PICTURES]
    shown = drawn[0].name if drawn else None
    draw = SCENARIOS[found[0].scenario].draw
    if drawn and len(found) > 1:
        raise click.UsageError(f"a picture is of one record, not of {len(found)}")
    if drawn and draw is None:
        raise click.BadParameter(f"there is no picture of {found[0].scenario!r}", param_hint="-o")
    text = "\n".join(pages.page(SCENARIOS[one.scenario], one, shown) for one in found)
    for path in drawn:
        pictures.save(path, lambda figure: draw(figure, found[0]) if draw else None)
    for path in (output for output in outputs if output.suffix in PAGES):
        path.write_text(text)
    if not outputs:
        click.echo(text, nl=False)


def from_file(path: str) -> list[Record]:
    """Read the records of a file; errors name the file."""
    try:
        found = read(path)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    if odd := [record.scenario for record in found if record.scenario not in SCENARIOS]:
        raise click.ClickException(f"{path}: a record of {odd[0]!r}: see `onecopy bench {odd[0]} --help`")
    return found


for each in (*COMMANDS, stories):
    command.add_command(each)
