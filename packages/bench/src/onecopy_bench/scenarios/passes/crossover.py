"""`onecopy bench crossover FILE`: from which share of a file, and how many passes, on which way of opening it wins.

Each sample opens the file cold in one of `mechanisms.METHODS`, goes over a share of it, and again, and reports when
each pass was done; so the cells of 1, 2, 8 and 32 passes are prefixes of one run. Places:

* "disk": the file where it is.
* "slow": a copy of its beginning on a loop device whose reads a control group throttles, as a network volume is.
* "tight": the file where it is, in a control group whose memory limit is half of the file.

A place that this machine cannot provide is left out, and the record says why.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import click

from onecopy.cli.options import SIZE
from onecopy_bench.engine import options as cli
from onecopy_bench.engine.machine import disks, kernel, limits
from onecopy_bench.engine.machine.disks import Spot, here
from onecopy_bench.engine.options import Measure
from onecopy_bench.engine.pages import Scenario
from onecopy_bench.engine.record import Absent, Log, Record
from onecopy_bench.engine.rounds import Watch
from onecopy_bench.engine.tables import counted, number
from onecopy_bench.files.ceilings import CEILINGS, CONTROLS
from onecopy_bench.scenarios.open import layout_of
from onecopy_bench.scenarios.open.summary import times_transfer
from onecopy_bench.scenarios.passes import cells, warm, winners
from onecopy_bench.scenarios.passes.cells import Options
from onecopy_bench.scenarios.passes.mechanisms import METHODS
from onecopy_bench.scenarios.passes.notes import notes_of, places_of
from onecopy_bench.scenarios.passes.winners import COPY, Verdict, passes_of, verdicts_of

NAME = "crossover"
DEFAULTS = Options(passes=32, shares=(0.01, 0.05, 0.25, 0.5, 1.0), orders=("shuffled", "file"), limit_s=3.0)
Where = Literal["disk", "slow", "tight"]
PLACES: tuple[Where, ...] = ("disk", "slow", "tight")
NAMES = tuple(method.name for method in METHODS)
DEVICE = tuple(c for c in CEILINGS if c.name == "o_direct-reused-4")
"""What a disk delivers at all: with it a throttle is proven."""


@dataclass(frozen=True, slots=True)
class Throttle:
    """A slower disk: bytes and requests per second, read-ahead, and the most that is copied to it."""

    bytes_per_s: int = 250_000_000
    requests_per_s: int = 3000
    read_ahead: int = 128 << 10
    size: int = 256 << 20


def run(
    path: str | os.PathLike[str],
    options: Options = DEFAULTS,
    *,
    places: Sequence[Where] = PLACES,
    methods: Sequence[str] = NAMES,
    throttle: Throttle | None = None,
    watch: Watch = lambda _: None,
    log: Log | None = None,
) -> Record:
    """Measure every method in every cell; `throttle` is what "slow" is, None: as a network volume.

    Raises
    ------
    OSError, ValueError
        If the file cannot be read, or is empty.
    Unavailable
        If not one of the places can be provided.
    """
    source = Path(path).absolute()
    layout_of(source)
    absent, spots = [], []
    with contextlib.ExitStack() as stack:
        for name in places:
            try:
                spots.append(_spot(name, source, throttle or Throttle(), stack))
            except limits.Unavailable as reason:
                absent.append(Absent(name, str(reason)))
        if not spots:
            raise limits.Unavailable("; ".join(f"{each.name}: {each.reason}" for each in absent))
        found = [cell for spot in spots for cell in _cells(spot, options, methods, first=spot is spots[0])]
        return cells.run(NAME, source, found, options, absent=absent, watch=watch, log=log)


def _cells(spot: Spot, options: Options, methods: Sequence[str], *, first: bool) -> list[cells.Cell]:
    found = []
    for work in cells.works(spot, options.shares, options.orders, options.seed):
        wanted = [entry for entry in METHODS if entry.name in methods]
        found += [cells.Cell(spot, work, entry) for entry in wanted if entry.name != "part" or work.share < 1]
    whole = cells.works(spot, (1.0,), ("file",), options.seed)[0]
    device = DEVICE if spot.memory_bytes is None else ()
    return found + [cells.Cell(spot, whole, entry) for entry in (*device, *(CONTROLS if first else ()))]


def _spot(name: Where, source: Path, throttle: Throttle, stack: contextlib.ExitStack) -> Spot:
    if name == "slow":
        return _slow(source, throttle, stack)
    spot = here(source)
    if name == "disk":
        return spot
    half = spot.size // 2
    group = stack.enter_context(limits.group(limits.memory(half)))
    detail = f"in a control group of {half / 1e6:.1f} MB"
    return replace(spot, name=name, detail=detail, memory_bytes=half, groups=(group,))


def _slow(source: Path, throttle: Throttle, stack: contextlib.ExitStack) -> Spot:
    size, limit = min(source.stat().st_size, throttle.size), throttle.bytes_per_s
    copied = stack.enter_context(disks.loop_disk(source.parent, size, throttle.read_ahead)) / source.name
    disks.copy(source, copied, size)
    device = copied.stat().st_dev
    group = stack.enter_context(limits.group(limits.reading(device, limit, throttle.requests_per_s)))
    detail = f"a loop device, at most {limit / 1e6:.0f} MB/s and {throttle.requests_per_s} requests/s"
    return Spot("slow", detail, copied, size, kernel.read_ahead(device), limit, groups=(group,))


COLOURS = {
    "copy": "#E69F00",
    "map": "#56B4E9",
    "advise": "#0072B2",
    "warm": "#009E73",
    "huge": "#009E73",
    "small": "#F0E442",
    "part": "#CC79A7",
}
NOBODY = "#DDDDDD"


def draw(figure: Any, record: Record) -> None:
    """Draw who wins where: a grid for each place and order; the winner gives its colour and its name."""
    places, orders, shares = places_of(record), record.options["orders"], record.options["shares"]
    figure.set_size_inches(1.2 + 4.6 * len(orders), 1.3 + 0.62 * len(shares) * len(places) + 0.8 * (len(places) - 1))
    axes, verdicts = figure.subplots(len(places), len(orders), squeeze=False), verdicts_of(record)
    for place, line in zip(places, axes, strict=True):
        for order, axis in zip(orders, line, strict=True):
            _grid(axis, [v for v in verdicts if (v.place, v.order) == (place["name"], order)], record)
            words = "in the order of the file" if order == "file" else "in random order"
            axis.set_title(f"{place['name']}: {words}", fontsize=10, loc="left")
    names = ", ".join(row.name for row in record.rows if row.role == "row")
    title = f"The fastest of {names}; {record.data['size'] / 1e6:.0f} MB, cold"
    figure.suptitle(title, fontsize=11, x=0.01, ha="left")
    if not times_transfer(record):
        words = "Fresh memory is slow here: times of copies hold for this machine alone."
        figure.supxlabel(words, fontsize=8, x=0.01, ha="left")


def _grid(axis: Any, verdicts: list[Verdict], record: Record) -> None:
    shares, passes = record.options["shares"], passes_of(record)
    rectangle = importlib.import_module("matplotlib.patches").Rectangle
    for verdict in verdicts:
        x, y = passes.index(verdict.passes), shares.index(verdict.share)
        colour = COLOURS.get(verdict.winners[0], NOBODY) if verdict.winners else NOBODY
        axis.add_patch(rectangle((x, y), 1, 1, facecolor=colour, alpha=0.55, edgecolor="white", linewidth=2))
        axis.text(x + 0.5, y + 0.5, _text(verdict), ha="center", va="center", fontsize=7.5, linespacing=1.25)
    axis.set(xlim=(0, len(passes)), ylim=(len(shares), 0))
    axis.set_xticks([i + 0.5 for i in range(len(passes))], [counted(p, "pass", "passes") for p in passes])
    axis.set_yticks([i + 0.5 for i in range(len(shares))], [f"{100 * share:g} %" for share in shares])
    axis.tick_params(length=0, labelsize=8)
    axis.spines[:].set_visible(False)


def _text(verdict: Verdict) -> str:
    if not verdict.winners:
        return "none got\nso far"
    names = list(verdict.winners[:2]) + (["..."] if len(verdict.winners) > 2 else [])
    line = f"{number(verdict.times[verdict.winners[0]].median)} ms"
    if verdict.copy_ratio is not None and COPY not in verdict.winners:
        line += f", copy x{verdict.copy_ratio:.2g}"
    elif COPY in verdict.lost:
        line += f", copy {verdict.lost[COPY]}"
    return " = ".join(names) + "\n" + line


SCENARIO = Scenario(
    NAME,
    warm.described,
    lambda record: [*winners.tables_of(record), *winners.cost_tables(record)],
    lambda record: [winners.legend(record)],
    draw,
    notes_of,
)


def as_shares(_: click.Context, __: click.Parameter, percents: tuple[float, ...]) -> tuple[float, ...]:
    """Return shares, the smallest first."""
    return tuple(sorted({percent / 100 for percent in percents}))


SLOW = Throttle()
PERCENT = click.FloatRange(min=0, min_open=True, max=100)


@click.command(NAME)
@click.argument("file", type=click.Path())
@cli.choice("--place", "places", PLACES, "This disk; a throttled one (root); a memory limit of half the file (root).")
@cli.several(
    "--share",
    "shares",
    tuple(100 * share for share in DEFAULTS.shares),
    "Percent of the file that is touched.",
    type=PERCENT,
    callback=as_shares,
)
@cli.choice("--method", "methods", NAMES, "What is compared.")
@cli.option("--throttle", type=SIZE, default="250MB", help="Of 'slow', per second.")
@cli.option("--requests", type=cli.POSITIVE, default=SLOW.requests_per_s, help="As well.")
@cli.common(SCENARIO, DEFAULTS, without=("folder",))
def command(
    *,
    file: str,
    places: tuple[str, ...],
    methods: tuple[str, ...],
    throttle: int,
    requests: int,
    options: Options,
    measure: Measure,
) -> None:  # fmt: skip
    """Measure when to map FILE and when to copy it: by the share touched, the passes, the disk and the memory."""
    more: dict[str, Any] = {"places": cast("tuple[Where, ...]", places), "methods": methods}
    more["throttle"] = replace(SLOW, bytes_per_s=throttle, requests_per_s=requests)
    measure(lambda _, watch, log: run(file, options, watch=watch, log=log, **more))
