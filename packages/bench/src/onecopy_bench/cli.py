"""`onecopy bench SCENARIO`: measure in fresh processes, and show what that says; `report` shows a record again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from onecopy.base.text import counted
from onecopy.cli.groups import Group
from onecopy_bench.engine import pictures
from onecopy_bench.engine.record import Record, read
from onecopy_bench.engine.rounds import Settings
from onecopy_bench.engine.scenario import FILE, Scenario
from onecopy_bench.engine.tables import Table, plain, table
from onecopy_bench.scenarios import images, keys, models, nodes, open, passes, records, run, share, start, structs  # noqa: A004
from onecopy_bench.stories import command as stories

PICTURES, PAGES = (".svg", ".png"), (".md",)
SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        open.SCENARIO, keys.SCENARIO, run.SCENARIO, passes.WARM_SCENARIO, passes.CROSSOVER_SCENARIO, structs.SCENARIO,
        share.SCENARIO, records.SCENARIO, images.SCENARIO, models.SCENARIO, start.SCENARIO, nodes.SCENARIO,
    )
}  # fmt: skip


def scenario_of(record: Record) -> Scenario:
    """Return the scenario of a record; of one that is gone, one that shows every number."""
    return SCENARIOS.get(record.scenario) or Scenario(
        record.scenario, "", Settings(), lambda *_: record, _described, _every_number
    )


def _described(record: Record) -> str:
    return f"{record.scenario}: {counted(record.rounds, 'round')}"


def _every_number(record: Record) -> Iterator[Table]:
    """Yield a table of all numbers for each case; nanoseconds as milliseconds."""
    for case in record.cases():
        samples = [sample for sample in record.samples if sample.case == case]
        names = dict.fromkeys(name for sample in samples for name in sample.numbers)
        columns = [
            (f"{name.removesuffix('_ns')}\nms", plain(name, 1e6)) if name.endswith("_ns") else (name, plain(name))
            for name in names
        ]
        yield table(record, ", ".join(case), case, dict.fromkeys(sample.row for sample in samples), columns)


@click.group("bench", cls=Group)
def command() -> None:
    """Measure in fresh processes, with a declared state of the page cache."""


@command.command("report")
@click.argument("records", nargs=-1, required=True, type=click.Path(), metavar="RECORD...")
@click.option(
    "-o", "--output", "outputs", multiple=True, type=FILE, metavar="OUT",
    help="A .md, .svg or .png file; more than once for several. Without it the page goes to stdout.",
)  # fmt: skip
def report(records: tuple[str, ...], outputs: tuple[Path, ...]) -> None:
    """Write RECORD as a page of tables and as a picture; several records as one page.

    A page that is written together with a picture shows it. A picture is of one record.
    """
    for output in outputs:
        if output.suffix not in {*PAGES, *PICTURES}:
            raise click.BadParameter(f"{output.name!r} must end in .md, .svg or .png", param_hint="-o")
    found = [one for path in records for one in _from_file(path)]
    drawn = [output for output in outputs if output.suffix in PICTURES]
    draw = scenario_of(found[0]).draw
    if drawn and len(found) > 1:
        raise click.UsageError(f"a picture is of one record, not of {len(found)}")
    if drawn and draw is None:
        raise click.BadParameter(f"there is no picture of {found[0].scenario!r}", param_hint="-o")
    text = "\n".join(scenario_of(one).page(one, drawn[0].name if drawn else None) for one in found)
    for path in drawn:
        assert draw is not None
        pictures.save(path, draw, found[0])
    for path in (output for output in outputs if output.suffix in PAGES):
        path.write_text(text)
    if not outputs:
        click.echo(text, nl=False)


def _from_file(path: str) -> list[Record]:
    try:
        found = read(path)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    if any(record.scenario == "stories" for record in found):
        raise click.ClickException(f"{path}: a record of stories: see `onecopy bench stories --from`")
    return found


for each in SCENARIOS.values():
    command.add_command(each.command())
command.add_command(stories)
