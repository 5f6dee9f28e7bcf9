"""`onecopy diff BEFORE AFTER`: compare two recordings in a table or a picture."""

from __future__ import annotations

import click

from onecopy.cli import options
from onecopy_monitor.cli.plot import check_output, processes_option, read, theme_option
from onecopy_monitor.pictures import draw
from onecopy_monitor.recording import compare, resources_of


@click.command("diff")
@click.argument("before", type=click.Path(), metavar="BEFORE")
@click.argument("after", type=click.Path(), metavar="AFTER")
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="PICTURE",
    help="Draw both recordings side by side on the same axes: .svg, .html or .png.",
)
@click.option("--title", default="", help="Title of the picture.")
@theme_option
@processes_option
@options.as_json("JSON on stdout instead of Markdown, with bytes, seconds and counts.")
def command(
    *, before: str, after: str, output: str | None, title: str, theme: str, processes: int, as_json: bool
) -> None:
    """Compare the peaks, faults and times of two recordings in a Markdown table.

    A ratio below 1 means that AFTER needs less than BEFORE.
    """
    if output is not None:
        check_output(output)
    runs = {"before": read(before), "after": read(after)}
    if as_json:
        found = {
            name: {label: number for label, (number, _) in resources_of(run).items()} for name, run in runs.items()
        }
        options.show_json({name: {"command": list(runs[name].command), **numbers} for name, numbers in found.items()})
    else:
        click.echo(compare(*runs.values()))
    if output is not None:
        pairs = [(f"{name}: {run.title}", run.series) for name, run in runs.items()]
        draw(pairs, output, title=title, theme=theme, processes=processes)
