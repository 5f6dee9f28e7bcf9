"""`onecopy bench start`: how long a program takes that has other work to do before it needs its weights."""

from __future__ import annotations

import dataclasses

import click

from onecopy.cli.quantities import SIZE_OF_SOMETHING
from onecopy_bench.cli import rounds
from onecopy_bench.cli.warm import as_read_aheads
from onecopy_bench.scenarios import start as scenario
from onecopy_bench.starts.ways import NAMES

DEFAULTS = scenario.Options()


@click.command("start")
@click.option("--size", default="2GiB", show_default=True, type=SIZE_OF_SOMETHING, help="Of the weights.")
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
@click.option("--piece", default="16MiB", show_default=True, type=SIZE_OF_SOMETHING, help="Copied at once.")
@rounds.choice("--way", "ways", NAMES, "Who reads when.")
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
@rounds.options(DEFAULTS)
def command(
    *,
    out: rounds.Out,
    **chosen: object,
) -> None:
    """Measure a program's start: other work, and then all weights copied out of a cold file, as to a device.

    Warmed not at all, when they are needed, or from the very start beside the work; and numpy.fromfile, and `cat` in
    the background. Each sample is a fresh process; the file is evicted before it, and proven to be.
    """
    options = dataclasses.replace(DEFAULTS, **chosen)  # type: ignore[arg-type]
    rounds.measured(
        out,
        lambda place, watch, journal: scenario.run(place, options, watch, journal),
    )
