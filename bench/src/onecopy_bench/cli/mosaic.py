"""`onecopy bench mosaic`: a canvas far larger than what may be held of it."""

from __future__ import annotations

import dataclasses

import click

from onecopy.cli.quantities import SIZE_OF_SOMETHING
from onecopy_bench.cli import rounds
from onecopy_bench.images.mosaics import NAMES
from onecopy_bench.scenarios import mosaic as scenario

DEFAULTS = scenario.Options()
POSITIVE = click.IntRange(min=1)


@click.command("mosaic")
@click.option("--rows", type=POSITIVE, default=DEFAULTS.rows, show_default=True, help="Of tiles.")
@click.option("--columns", type=POSITIVE, default=DEFAULTS.columns, show_default=True, help="Of tiles.")
@click.option("--size", type=POSITIVE, default=DEFAULTS.size, show_default=True, help="Pixels on the side of a tile.")
@click.option("--cap", default="512MiB", show_default=True, type=SIZE_OF_SOMETHING, help="Of the canvas in memory.")
@rounds.choice("--way", "ways", NAMES, "What is compared.")
@rounds.options(DEFAULTS)
def command(
    *,
    out: rounds.Out,
    **chosen: object,
) -> None:
    """Measure stitching under a cap: tiles of 16-bit pixels onto a canvas that is brought down to the disk.

    Beside it the same bytes, written and flushed; the heap, where it has room; numpy.memmap; zarr. 40 x 40 tiles are
    13.4 GB, the usual 20 x 20 a quarter of it.
    """
    options = dataclasses.replace(DEFAULTS, **chosen)  # type: ignore[arg-type]
    rounds.measured(
        out,
        lambda place, watch, journal: scenario.run(place, options, watch, journal),
    )
