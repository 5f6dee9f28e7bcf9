"""`onecopy bench SCENARIO`: measure in fresh processes, and show what that says; `report` shows a record again."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from onecopy.cli import screen
from onecopy_bench.engine import pages, pictures
from onecopy_bench.engine.pages import Scenario
from onecopy_bench.engine.record import Record, read
from onecopy_bench.scenarios import open as opening
from onecopy_bench.scenarios.every import COMMANDS, SCENARIOS
from onecopy_bench.scenarios.open import page, picture
from onecopy_bench.scenarios.open.summary import cases_of
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
@click.option(
    "--case", "wanted", multiple=True, metavar="CASE", help="Of `bench open`: only this case, such as 'cold,4'."
)
@click.option(
    "--notes",
    "notes_path",
    type=click.Path(),
    help="Of `bench open`: a TOML file of explanations: \"cold, 1 process, numpy.memmap\" = 'why it is ahead'.",
)
def report(
    records: tuple[str, ...], outputs: tuple[Path, ...], wanted: tuple[str, ...], notes_path: str | None
) -> None:
    """Write RECORD as a page of tables and as a picture; of `bench open`, several records as one page.

    A page that is written together with a picture shows it.
    """
    for output in outputs:
        if output.suffix not in {*PAGES, *PICTURES}:
            raise click.BadParameter(f"{output.name!r} must end in .md, .svg or .png", param_hint="-o")
    found = [one for path in records for one in from_file(path)]
    drawn = [output for output in outputs if output.suffix in PICTURES]
    shown = drawn[0].name if drawn else None
    scenario = SCENARIOS[found[0].scenario]
    if scenario is opening.SCENARIO:
        found = [cut for one in found for cut in of_cases(one, wanted)]
        text = page.page(found, shown, explanations(notes_path))
    else:
        text = pages.page(scenario, found[0], shown)
    for path in drawn:
        if scenario.draw is None:
            raise click.BadParameter(f"there is no picture of {scenario.name!r}", param_hint="-o")
        pictures.save(path, drawing(scenario, found))
    for path in (output for output in outputs if output.suffix in PAGES):
        path.write_text(text)
    if not outputs:
        click.echo(text, nl=False)


def drawing(scenario: Scenario, records: list[Record]) -> Callable[[Any], None]:
    """Return what draws some records into a figure: of `bench open` all, else the first."""
    if scenario is opening.SCENARIO:
        return lambda figure: picture.draw(figure, records)
    draw = scenario.draw
    assert draw is not None
    return lambda figure: draw(figure, records[0])


def from_file(path: str) -> list[Record]:
    """Read the records of a file; errors name the file."""
    try:
        found = read(path)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    if odd := [record.scenario for record in found if record.scenario not in SCENARIOS]:
        raise click.ClickException(f"{path}: a record of {odd[0]!r}: see `onecopy bench {odd[0]} --help`")
    return found


def of_cases(record: Record, wanted: tuple[str, ...]) -> list[Record]:
    """Return a record whole, or cut to its cases that were asked for."""
    if not wanted:
        return [record]
    cases = {f"{case.cache},{case.processes}": case for case in cases_of(record)}
    words = [word.replace(" ", "") for word in wanted]
    if unknown := [word for word in words if word not in cases]:
        raise click.BadParameter(f"no case {unknown[0]!r}; there are {' '.join(cases)}", param_hint="--case")
    return [
        replace(record, options={**record.options, "caches": [case.cache], "processes": [case.processes]})
        for case in (cases[word] for word in words)
    ]


def explanations(path: str | None) -> dict[str, str]:
    """Read the explanations of a notes file."""
    if path is None:
        return {}
    try:
        return {key: str(value) for key, value in tomllib.loads(Path(path).read_text()).items()}
    except tomllib.TOMLDecodeError as error:
        raise click.ClickException(f"{path}: {error}") from error


for each in (*COMMANDS, stories):
    command.add_command(each)
