"""`onecopy diff BEFORE AFTER`: compare two recordings as a table and as a picture."""

from __future__ import annotations

import json
from typing import Any

import click

from onecopy_monitor.cli.plot import check_output, processes_option, read, show, theme_option
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
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout instead of Markdown: bytes, seconds, counts.")
def command(
    *, before: str, after: str, output: str | None, title: str, theme: str, processes: int, as_json: bool
) -> None:
    """Compare two recordings of onecopy record: peaks, faults and times, as a table in Markdown.

    A ratio below 1 means that AFTER needs less than BEFORE.
    """
    if output is not None:
        check_output(output)
    runs = read(before), read(after)
    if as_json:
        click.echo(json.dumps({"before": _numbers(runs[0]), "after": _numbers(runs[1])}, indent=1))
    else:
        click.echo(compare(*runs))
    if output is not None:
        pairs = [(f"{name}: {run.title}", run.series) for name, run in zip(("before", "after"), runs, strict=True)]
        show(pairs, output, title, theme, processes)


def _numbers(run: Any) -> dict[str, Any]:
    return {"command": list(run.command), **{name: number for name, (number, _) in resources_of(run).items()}}
