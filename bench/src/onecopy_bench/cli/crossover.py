"""`onecopy bench crossover FILE`: who wins, by the share that is touched and the number of passes."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from onecopy.cli.quantities import SIZE
from onecopy_bench.cli import outputs, passes
from onecopy_bench.passes import picture, winners
from onecopy_bench.passes.limits import Unavailable
from onecopy_bench.passes.series import notes_of, to_json
from onecopy_bench.scenarios import crossover as scenario

if TYPE_CHECKING:
    from onecopy_bench.passes.series import Series

DEFAULTS = scenario.DEFAULTS
SLOW = scenario.Throttle()


def as_shares(_: click.Context, __: click.Parameter, percents: tuple[float, ...]) -> tuple[float, ...]:
    """Return shares, the smallest first."""
    return tuple(sorted({percent / 100 for percent in percents}))


@click.command("crossover")
@click.argument("file", type=click.Path())
@click.option(
    "--place",
    "places",
    type=click.Choice(scenario.PLACES),
    multiple=True,
    default=scenario.PLACES,
    show_default=True,
    help="This disk; a throttled one (root); a memory limit of half the file (root). Repeatable.",
)
@click.option(
    "--share",
    "shares",
    type=click.FloatRange(min=0, min_open=True, max=100),
    multiple=True,
    default=tuple(100 * share for share in DEFAULTS.shares),
    show_default=True,
    callback=as_shares,
    help="Percent of the file that is touched. Repeatable.",
)
@click.option(
    "--method",
    "methods",
    type=click.Choice(scenario.NAMES),
    multiple=True,
    default=scenario.NAMES,
    show_default=True,
    help="What is compared. Repeatable.",
)
@click.option(
    "--passes", type=click.IntRange(min=1), default=DEFAULTS.passes, show_default=True, help="Passes at most."
)
@click.option("--throttle", type=SIZE, default="250MB", show_default=True, help="Of 'slow', per second.")
@click.option("--requests", type=click.IntRange(min=1), default=SLOW.requests_per_s, show_default=True, help="As well.")
@passes.orders(DEFAULTS.orders)
@passes.options(DEFAULTS)
@click.option("--details", is_flag=True, help="All times too, not only who wins.")
@click.option("--plot", metavar="OUT", help="Draw who wins, as .svg or .png (needs onecopy-bench[plots]).")
@click.option("--markdown", metavar="OUT", help="Write the tables here.")
@click.option("--json", "json_path", metavar="OUT", help="Write the record here; '-' for stdout, without tables.")
def command(
    *,
    file: str,
    places: tuple[str, ...],
    methods: tuple[str, ...],
    throttle: int,
    requests: int,
    details: bool,
    plot: str | None,
    markdown: str | None,
    json_path: str | None,
    **chosen: object,
) -> None:
    """Measure when to map FILE and when to copy it: by the share touched, the passes, the disk and the memory."""
    passes.check_folders(json_path, markdown, plot)
    if plot is not None and importlib.util.find_spec("matplotlib") is None:
        raise click.ClickException("--plot needs matplotlib: pip install 'onecopy-bench[plots]'")
    options = dataclasses.replace(DEFAULTS, **chosen)  # type: ignore[arg-type]
    slower = dataclasses.replace(SLOW, bytes_per_s=throttle, requests_per_s=requests)
    where = cast("tuple[scenario.Where, ...]", tuple(dict.fromkeys(places)))
    try:
        series = passes.with_bar(
            lambda watch: scenario.run(file, options, places=where, methods=methods, throttle=slower, watch=watch)
        )
    except Unavailable as reason:
        raise click.ClickException(str(reason)) from reason
    outputs.write(json_path, to_json(series, **winners.computed(series)))
    if markdown is not None:
        Path(markdown).write_text(winners.to_markdown(series) + "\n")
    if plot is not None:
        picture.draw(series, plot)
    if json_path != "-":
        show(series, details=details)


def show(series: Series, *, details: bool) -> None:
    """Print everything about a record."""
    rounds = 1 + max(sample.round for sample in series.samples)
    heading = f"crossover {series.file}: {series.size / 1e6:.1f} MB, cold, {rounds} round{'' if rounds == 1 else 's'}"
    tables = [*winners.tables_of(series), *winners.cost_tables(series)]
    more = winners.detail_tables(series) if details else []
    passes.show(heading, [*tables, *more], (winners.legend(series), *notes_of(series)))
