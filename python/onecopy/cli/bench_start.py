"""`onecopy bench start`: how long a program takes that has other work to do before it needs its weights."""

from __future__ import annotations

import dataclasses

import click

from onecopy.bench.scenarios import start as scenario
from onecopy.bench.starts.ways import NAMES
from onecopy.cli import bench_data
from onecopy.cli.bench_warm import as_read_aheads
from onecopy.cli.words import parse_size

DEFAULTS = scenario.Options()


def as_size(_: click.Context, parameter: click.Parameter, text: str) -> int:
    """Return a size option in bytes, at least one; a wrong one is a wrong command line."""
    try:
        nbytes = parse_size(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param=parameter) from error
    if nbytes < 1:
        raise click.BadParameter("it is at least one byte", param=parameter)
    return nbytes


@click.command("start")
@click.option("--size", default="2GiB", show_default=True, callback=as_size, metavar="SIZE", help="Of the weights.")
@click.option(
    "--work-s",
    type=click.FloatRange(min=0),
    default=DEFAULTS.work_s,
    show_default=True,
    help="Seconds of other work, by itself.",
)
@click.option(
    "--work",
    type=click.Choice(("cpu", "sleep")),
    default=DEFAULTS.work,
    show_default=True,
    help="What it is: compiling of source, in one thread that holds the GIL; or waiting.",
)
@click.option("--piece", default="16MiB", show_default=True, callback=as_size, metavar="SIZE", help="Copied at once.")
@bench_data.choice("--way", "ways", NAMES, "Who reads when.")
@click.option(
    "--read-ahead",
    "read_aheads",
    multiple=True,
    default=("device", "128K"),
    show_default=True,
    callback=as_read_aheads,
    metavar="SIZE",
    help="'device': that of the folder. A size such as 128K: on a loop device beside it (root). Repeatable.",
)
@bench_data.options(DEFAULTS)
def command(
    *,
    out: bench_data.Out,
    **chosen: object,
) -> None:
    """Measure a program's start: other work, and then all weights copied out of a cold file, as to a device.

    Warmed not at all, when they are needed, or from the very start beside the work; and numpy.fromfile, and `cat` in
    the background. Each sample is a fresh process; the file is evicted before it, and proven to be.
    """
    options = dataclasses.replace(DEFAULTS, **chosen)  # type: ignore[arg-type]
    bench_data.measured(
        out,
        lambda place, watch, journal: scenario.run(place, options, watch, journal),
    )
