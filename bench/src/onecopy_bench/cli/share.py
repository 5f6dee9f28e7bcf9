"""`onecopy bench share`: what a dataset costs in a training job, by how it is held and how workers are started."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from onecopy_bench.cli import rounds
from onecopy_bench.records import data
from onecopy_bench.scenarios import share as scenario

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from onecopy_bench.records.record import Run, RunJournal
    from onecopy_bench.runner import Progress

DEFAULTS = scenario.Options()


@click.command("share")
@click.option("--rows", type=click.IntRange(min=10), default=data.COCO_ROWS, show_default=True, help="Of the dataset.")
@click.option(
    "--data",
    "kind",
    type=click.Choice(("coco", "real", "pairs")),
    default="coco",
    show_default=True,
    help="Made-up COCO annotations; those of --file, again and again; (path, label) pairs.",
)
@click.option("--file", type=click.Path(exists=True, dir_okay=False), help="A COCO file, for --data real.")
@rounds.choice("--peer", "peers", scenario.NAMES, "How the rows are held.")
@rounds.choice("--start", "starts", scenario.STARTS, "How workers are started.")
@click.option(
    "--ranks",
    type=click.IntRange(min=1),
    multiple=True,
    default=DEFAULTS.ranks,
    show_default=True,
    callback=rounds.once,
    help="Processes that each have workers, as torchrun starts them. Repeatable.",
)
@click.option(
    "--workers", type=click.IntRange(min=1), default=DEFAULTS.workers, show_default=True, help="Of each rank."
)
@click.option(
    "--loader",
    type=click.Choice(scenario.LOADERS),
    default=DEFAULTS.loader,
    show_default=True,
    help="Each worker goes over all rows; or those of a torch DataLoader do so together.",
)
@click.option(
    "--torch/--no-torch", default=True, show_default=True, help="Import it in every process, where it is installed."
)
@click.option(
    "--limit-s",
    type=click.FloatRange(min=0, min_open=True),
    default=DEFAULTS.limit_s,
    show_default=True,
    help="Seconds after which a pass stops.",
)
@click.option(
    "--interval-s",
    type=click.FloatRange(min=0, min_open=True),
    default=DEFAULTS.interval_s,
    show_default=True,
    help="Between two looks at the memory of the workers.",
)
@rounds.choice("--allocator", "allocators", scenario.ALLOCATORS, "For the builder's heap.")
@click.option("--no-heap", is_flag=True, help="Leave the builder's heap out.")
@click.option("--cold", is_flag=True, help="Evict what a first run has kept before the second.")
@rounds.options(DEFAULTS)
def command(
    *,
    rows: int,
    kind: data.Kind,
    file: str | None,
    no_heap: bool,
    out: rounds.Out,
    **chosen: object,
) -> None:
    """Measure what a dataset costs in a training job: memory of all processes, of a worker over time, time to start.

    A job is ranks with their workers, each of which reads every row and pickles it, as in "Demystify RAM usage in
    multi-process data loaders". Rows are held as a list, serialised, in files, or by onecopy; every one is compared
    by its checksum with what was written. Each job is started twice. What is not installed is a row that says so.
    """
    if no_heap:
        chosen["allocators"] = ()
    options = dataclasses.replace(DEFAULTS, **chosen)  # type: ignore[arg-type]

    def run(place: Path, watch: Callable[[Progress], None], journal: RunJournal | None) -> Run:
        source = scenario.prepared(place, kind, rows, file, watch)
        return scenario.run(source, place, options, watch, journal)

    rounds.measured(out, run)
