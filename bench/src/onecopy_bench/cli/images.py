"""`onecopy bench images`: images decoded, held and stitched, on the heap and in mapped files."""

from __future__ import annotations

import dataclasses

import click

from onecopy.cli.quantities import SIZE_OF_SOMETHING
from onecopy_bench.cli import rounds
from onecopy_bench.images.ways import NAMES
from onecopy_bench.scenarios import images as scenario

DEFAULTS = scenario.Options()


@click.command("images")
@click.option("--count", type=click.IntRange(min=1), default=DEFAULTS.count, show_default=True, help="Of the images.")
@click.option(
    "--columns", type=click.IntRange(min=1), default=DEFAULTS.columns, show_default=True, help="Images side by side."
)
@click.option("--file", type=click.Path(exists=True, dir_okay=False), help="An image of yours, instead of one made up.")
@click.option(
    "--cap",
    default="128MiB",
    show_default=True,
    type=SIZE_OF_SOMETHING,
    help="Of the canvas in memory, for 'onecopy, capped'.",
)
@click.option(
    "--limit",
    default="256MiB",
    show_default=True,
    type=SIZE_OF_SOMETHING,
    help="Of private memory, in the case that has one.",
)
@rounds.choice("--way", "ways", NAMES, "What is compared.")
@rounds.choice("--input", "inputs", scenario.INPUTS, "Of which files.")
@rounds.options(DEFAULTS)
def command(
    *,
    file: str | None,
    out: rounds.Out,
    **chosen: object,
) -> None:
    """Measure decoding and stitching: several images held at once, and one canvas of all of them.

    On the heap, in numpy.memmap, by Pillow, pyvips and zarr, and by oc.images and oc.scratch; with and without bringing
    everything down to the disk, and with a limit of private memory. The page cache is counted.
    """
    options = dataclasses.replace(DEFAULTS, **chosen)  # type: ignore[arg-type]
    try:
        rounds.measured(
            out,
            lambda place, watch, journal: scenario.run(place, options, watch, journal, file),
        )
    except ModuleNotFoundError as error:
        raise click.ClickException(str(error)) from error
