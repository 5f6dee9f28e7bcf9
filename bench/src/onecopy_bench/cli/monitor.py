"""`onecopy bench monitor`: what looking at memory costs, how right it is, and what it does to who is looked at."""

from __future__ import annotations

import dataclasses

import click

from onecopy.cli.memory import top_screen
from onecopy.cli.quantities import SIZE_OF_SOMETHING
from onecopy_bench.cli import rounds
from onecopy_bench.monitors.ways import NAMES, QUESTIONS
from onecopy_bench.scenarios import monitor as scenario

DEFAULTS = scenario.Options()


@click.command("monitor")
@rounds.choice("--question", "questions", QUESTIONS, "What is asked.")
@rounds.choice("--way", "ways", NAMES, "Who looks.")
@click.option(
    "--size",
    default="1GiB",
    show_default=True,
    type=SIZE_OF_SOMETHING,
    help="Of the file that is mapped; what forked processes share is a quarter of it.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=DEFAULTS.seconds,
    show_default=True,
    help="How long each sample looks.",
)
@click.option(
    "--hz",
    type=click.FloatRange(min=0, min_open=True, max=1000),
    default=DEFAULTS.hz,
    show_default=True,
    help="Looks a second, as far as a way wants to look so often.",
)
@click.option(
    "--processes",
    type=click.IntRange(min=1, max=10_000),
    default=DEFAULTS.processes,
    show_default=True,
    help="Of the crowd.",
)
@rounds.options(DEFAULTS)
def command(
    *,
    out: rounds.Out,
    **chosen: object,
) -> None:
    """Measure looking at the memory of processes: by onecopy, by a sum of PSS, by psutil, by ps.

    What a look costs, as processor time of who looks, also at a crowd; how far what it says is from the sum of PSS,
    while processes share a file, are forked, or copy what they share; and how many page faults a process can take while
    it is looked at. Each sample is a fresh group of processes and a fresh one that looks. Without psutil its rows are
    left out.
    """
    options = dataclasses.replace(DEFAULTS, **chosen)  # type: ignore[arg-type]
    rounds.measured(
        out,
        lambda place, watch, journal: scenario.run(place, options, watch, journal, top_screen.__name__),
    )
