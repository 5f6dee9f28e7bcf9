"""`onecopy bench records`: one item at a time, in every way of holding rows."""

from __future__ import annotations

import dataclasses

import click

from onecopy_bench.cli import rounds
from onecopy_bench.scenarios import records as scenario

DEFAULTS = scenario.Options()
POSITIVE = click.IntRange(min=1)


@click.command("records")
@rounds.choice("--case", "cases", scenario.NAMES, "What is asked for.")
@click.option("--rows", type=POSITIVE, default=DEFAULTS.rows, show_default=True, help="Annotations.")
@click.option("--strings", type=POSITIVE, default=DEFAULTS.strings, show_default=True, help="Of 26 characters.")
@click.option("--pairs", type=POSITIVE, default=DEFAULTS.pairs, show_default=True, help="Of a path and a label.")
@click.option("--keys", type=POSITIVE, default=DEFAULTS.keys, show_default=True, help="Of the dict.")
@click.option("--imported", type=POSITIVE, default=DEFAULTS.imported, show_default=True, help="Rows of the JSON file.")
@click.option(
    "--shuffle",
    type=POSITIVE,
    multiple=True,
    default=DEFAULTS.shuffle,
    show_default=True,
    callback=rounds.once,
    help="Indices of a sampler. Repeatable.",
)
@click.option("--draws", type=POSITIVE, default=DEFAULTS.draws, show_default=True, help="Random items of a sample.")
@click.option("--repeats", type=POSITIVE, default=DEFAULTS.repeats, show_default=True, help="Of all draws.")
@rounds.options(DEFAULTS)
def command(
    *,
    out: rounds.Out,
    **chosen: object,
) -> None:
    """Measure one item at a time: rows, fields, batches, strings, keys, an import, shuffled indices.

    Each way to ask is a statement in a fresh process, timed over random items and judged by their checksums. A way
    whose package is not installed is a row that says so.
    """
    options = dataclasses.replace(DEFAULTS, **chosen)  # type: ignore[arg-type]
    rounds.measured(
        out,
        lambda place, watch, journal: scenario.run(place, options, watch, journal),
    )
