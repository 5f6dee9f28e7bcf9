"""`onecopy bench warm` and `onecopy bench crossover`: one process opens a cold file and goes over it, in many ways.

`warm` compares single mechanisms that bring a mapped file into memory: every page is touched, twice. `crossover` finds
from which share of a file, and how many passes, on which way of opening it wins: a share is gone over again and again,
so that the cells of 1, 2, 8 and 32 passes are prefixes of one run. O_DIRECT and the first-touch control are beside
both. A *share* is a random choice of consecutive pieces of 64 KiB to 1 MiB, as tensors of a model or blocks of an index
would be; a smaller share is always part of a larger one. Places:

* "disk": the file where it is; a read-ahead such as 128K: a copy on a loop device with it.
* "slow": a copy of its beginning on a loop device whose reads a control group throttles, as a network volume is.
* "tight": the file where it is, in a control group whose memory limit is half of the file.

A place that this machine cannot provide is left out, and the record says why.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import click

from onecopy_bench.engine import rounds
from onecopy_bench.engine import scenario as cli
from onecopy_bench.engine.machine import disks, kernel, limits
from onecopy_bench.engine.machine.disks import Spot, here
from onecopy_bench.engine.pictures import by_case
from onecopy_bench.engine.record import Absent, Log, Record, Row, Sample, heading
from onecopy_bench.engine.rounds import Attempt, Settings, Taken, Turn, Watch
from onecopy_bench.engine.scenario import Scenario
from onecopy_bench.engine.tables import of_samples
from onecopy_bench.files import touch
from onecopy_bench.files.ceilings import CEILINGS, CONTROLS
from onecopy_bench.files.layout import Layout, Piece
from onecopy_bench.files.loaders import Job, Loader
from onecopy_bench.files.mechanisms import MECHANISMS, METHODS
from onecopy_bench.files.sampling import turn
from onecopy_bench.scenarios import passes_shown as shown
from onecopy_bench.scenarios.open import layout_of

WARM, CROSSOVER = "warm", "crossover"
ROWS = {WARM: MECHANISMS, CROSSOVER: METHODS}
BESIDE = {
    WARM: tuple(c for c in CEILINGS if c.name in {"o_direct-fresh-1", "o_direct-fresh-8", "o_direct-reused-8"}),
    CROSSOVER: tuple(c for c in CEILINGS if c.name == "o_direct-reused-4"),
}
"""What a disk delivers at all, taken in each round: with it a throttle is proven."""

PLACES = ("disk", "slow", "tight")
PLACE = (
    "disk: where the file is; 128K: a copy on a loop device with this read-ahead; slow: on a throttled one; tight: a"
)
PLACE += " memory limit of half the file. All but disk need root."
ORDER = "Touch the pieces in the file's order, or in a random one."
BUDGET = "Seconds for all rounds: fewer rounds when short, one at least."
PERCENT = click.FloatRange(min=0, min_open=True, max=100)
SLOW_READ_AHEAD, SLOW_BYTES = 128 << 10, 256 << 20
"""The read-ahead of the slow disk, and the most that is copied to it."""

Order = Literal["file", "shuffled"]


def _fractions(_: click.Context, __: click.Parameter, percents: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(sorted({percent / 100 for percent in percents}))


def _shares(shares: tuple[float, ...]) -> tuple[float, ...]:
    default = tuple(100 * share for share in shares)
    words = "Percent of the file that is touched."
    found: tuple[float, ...] = cli.option(shares, words, "--share", type=PERCENT, default=default, callback=_fractions)
    return found


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How a run with passes goes.

    The chosen pieces are gone over `passes` times in one sample, at most: it stops between two pieces after `limit_s`
    seconds of passes, and a cell whose first pass did not end is not taken again. `budget_s` seconds are for all
    rounds, None: no end.
    """

    rounds: int = 7
    timeout: float = 120.0
    idle_wait: float = 30.0
    file: str = cli.argument("FILE", type=click.Path())
    places: tuple[str, ...] = cli.places(("disk",), PLACE, PLACES)
    shares: tuple[float, ...] = _shares((1.0,))
    passes: int = cli.option(2, "Passes at most.")
    orders: tuple[str, ...] = cli.option(("file",), ORDER, "--order", type=click.Choice(("file", "shuffled")))
    budget_s: float | None = cli.option(None, BUDGET, type=cli.SECONDS)
    limit_s: float = cli.option(5.0, "Seconds of passes after which a sample is cut short.")


METHOD_NAMES = tuple(method.name for method in METHODS)


@dataclass(frozen=True, slots=True)
class Crossover(Options):
    """How crossover is run: `throttle` bytes and `requests` a second are the limits of the slow disk."""

    places: tuple[str, ...] = cli.places(PLACES, PLACE, PLACES)
    shares: tuple[float, ...] = _shares((0.01, 0.05, 0.25, 0.5, 1.0))
    passes: int = cli.option(32, "Passes at most.")
    orders: tuple[str, ...] = cli.option(
        ("shuffled", "file"), ORDER, "--order", type=click.Choice(("file", "shuffled"))
    )
    limit_s: float = cli.option(3.0, "Seconds of passes after which a sample is cut short.")
    methods: tuple[str, ...] = cli.option(METHOD_NAMES, "What is compared.", "--method", choices=METHOD_NAMES)
    throttle: int = cli.size("250MB", "Of 'slow', per second.")
    requests: int = cli.option(3000, "As well.")


def run(_: Path, options: Options, watch: Watch = lambda _: None, log: Log | None = None, name: str = WARM) -> Record:
    """Measure every row in every cell.

    Raises
    ------
    OSError, ValueError
        If the file cannot be read, or is empty.
    Unavailable
        If not one of the places can be provided.
    """
    source = Path(options.file).absolute()
    layout_of(source)
    absent, spots = [], []
    with contextlib.ExitStack() as stack:
        for place in options.places:
            try:
                spots.append(_spot(place, source, options, stack))
            except limits.Unavailable as reason:
                absent.append(Absent(place, str(reason)))
        if not spots:
            raise limits.Unavailable("; ".join(f"{each.name}: {each.reason}" for each in absent))
        cells = [cell for spot in spots for cell in _cells(name, spot, options, first=spot is spots[0])]
        return measure(name, source, cells, options, absent=absent, watch=watch, log=log)


def _cells(name: str, spot: Spot, options: Options, *, first: bool) -> Iterator[Cell]:
    wanted = options.methods if isinstance(options, Crossover) else None
    for work in works(spot, options.shares, options.orders, options.seed):
        for loader in ROWS[name]:
            if (wanted is None or loader.name in wanted) and (loader.name != "part" or work.share < 1):
                yield Cell(spot, work, loader)
    whole = works(spot, (1.0,), ("file",), options.seed)[0]
    device = BESIDE[name] if spot.memory_bytes is None else ()
    yield from (Cell(spot, whole, loader) for loader in (*device, *(CONTROLS if first else ())))


def _spot(name: str, source: Path, options: Options, stack: contextlib.ExitStack) -> Spot:
    if name == "disk":
        return here(source)
    if name == "tight":
        half = here(source).size // 2
        group = stack.enter_context(limits.group(limits.memory(half)))
        detail = f"in a control group of {half / 1e6:.1f} MB"
        return replace(here(source), name=name, detail=detail, memory_bytes=half, groups=(group,))
    if name != "slow" or not isinstance(options, Crossover):
        return disks.spot_of(source, cli.read_ahead_of(name), stack)
    size = min(source.stat().st_size, SLOW_BYTES)
    copied = stack.enter_context(disks.loop_disk(source.parent, size, SLOW_READ_AHEAD)) / source.name
    disks.copy(source, copied, size)
    device, rate = copied.stat().st_dev, options.throttle
    group = stack.enter_context(limits.group(limits.reading(device, rate, options.requests)))
    detail = f"a loop device, at most {rate / 1e6:.0f} MB/s and {options.requests} requests/s"
    return Spot("slow", detail, copied, size, kernel.read_ahead(device), rate, groups=(group,))


@dataclass(frozen=True, slots=True)
class Work:
    """What a sample has to touch: an order, a share, the pieces of it, and their checksum."""

    order: str
    share: float
    job: Job
    checksum: int


@dataclass(frozen=True, slots=True)
class Cell:
    """One row on one choice of pieces in one place: what is measured again and again."""

    spot: Spot
    work: Work
    loader: Loader

    def turn(self, options: Options) -> Turn:
        """Return the turn of the cell."""
        case = (self.spot.name, self.work.order, f"{self.work.share:g}")
        groups = tuple(map(str, self.spot.groups))
        errand: dict[str, Any] = {"passes": options.passes, "limit_s": options.limit_s, "groups": groups}
        plain = turn(self.loader, self.work.job, self.work.checksum, options, case=case, **errand)

        def take(attempt: Attempt) -> Taken:
            with limits.kills_explained(self.spot.groups, self.spot.memory_bytes):
                return plain.take(attempt)

        return Turn(plain.row, plain.case, plain.memory, take, _did_not_end)


def _did_not_end(sample: Sample) -> bool:
    notes = sample.processes[0]["notes"] if sample.processes else {}
    return bool(notes.get("cut_short")) and not notes["passes_ns"]


def works(spot: Spot, shares: Iterable[float], orders: Sequence[str], seed: int) -> list[Work]:
    """Return every order of every share of the file of a spot; the checksums are those of plain reads."""
    every = cut(spot.size, seed)
    found = []
    for share in shares:
        ordered = choose(every, share, "file", seed)
        checksum = touch.of_file(spot.path, Layout("bytes", spot.size, ordered))
        for order in orders:
            chosen = ordered if order == "file" else choose(every, share, "shuffled", seed)
            found.append(Work(order, share, Job(str(spot.path), "bytes", spot.size, chosen), checksum))
    return found


def measure(
    name: str,
    source: Path,
    cells: Sequence[Cell],
    options: Options,
    *,
    absent: Iterable[Absent] = (),
    watch: Watch = lambda _: None,
    log: Log | None = None,
) -> Record:
    """Take all rounds and return the record; raises RuntimeError if a file changes meanwhile."""
    spots = {cell.spot.name: cell.spot for cell in cells}
    known = ("name", "detail", "size", "read_ahead_bytes", "device_bytes_per_s", "memory_bytes")
    places = [{each: getattr(spot, each) for each in known} for spot in spots.values()]
    data = {"file": source.name, "size": source.stat().st_size, "places": places}
    loaders = {cell.loader.name: cell.loader for cell in cells}
    rows = [Row(e.name, e.detail, role=e.role, uses_cache=e.uses_cache) for e in loaders.values()]
    head = heading(name, source, options, rows, data=data, absent=absent)
    turns = [cell.turn(options) for cell in cells]
    files = {spot.path for spot in spots.values()}
    return rounds.run(head, turns, options, watch=watch, log=log, files=files, budget_s=options.budget_s)


PAGE = 4096
LEAST, MOST = 64 << 10, 1 << 20
"""A piece has this many bytes at least (the last may be shorter), and at most."""


def cut(size: int, seed: int = 0) -> tuple[Piece, ...]:
    """Return consecutive pieces that cover all `size` bytes; all but the last end on a page."""
    return tuple(_cut(size, random.Random(seed)))  # noqa: S311 - a choice, not a secret


def _cut(size: int, chance: random.Random) -> Iterator[Piece]:
    offset = 0
    for number in itertools.count():
        if offset >= size:
            return
        length = min(chance.randrange(LEAST, MOST + 1, PAGE), size - offset)
        yield Piece(str(number), offset, length)
        offset += length


def choose(pieces: Sequence[Piece], share: float, order: Order, seed: int = 0) -> tuple[Piece, ...]:
    """Return a random choice of pieces that together hold a share of all bytes, to the page.

    Parameters
    ----------
    share
        More than 0, at most 1. The last piece chosen is shortened to fit; one page is always touched.
    order
        "file": by offset. "shuffled": as they were drawn.

    Examples
    --------
    >>> some = choose(cut(100 << 20), 0.25, "file")
    >>> sum(piece.nbytes for piece in some) == 25 << 20
    True
    """
    if not 0 < share <= 1:
        raise ValueError(f"a share is more than 0 and at most 1, not {share:g}")
    left = max(round(share * sum(piece.nbytes for piece in pieces)), 1)
    chosen = []
    for piece in random.Random(seed).sample(pieces, len(pieces)):  # noqa: S311
        if left <= 0:
            break
        nbytes = min(piece.nbytes, -(-left // PAGE) * PAGE)
        chosen.append(Piece(piece.name, piece.offset, nbytes))
        left -= nbytes
    return tuple(chosen if order == "shuffled" else sorted(chosen, key=lambda piece: piece.offset))


WARM_SCENARIO = Scenario(
    WARM,
    "Measure each mechanism that brings FILE into memory, from a cold cache; then touch every page, twice.",
    Options(),
    run,
    shown.described,
    shown.warm_tables,
    shown.warm_findings,
    limits=shown.notes_of,
    without=("folder", "passes", "shares"),
)
CROSSOVER_SCENARIO = Scenario(
    CROSSOVER,
    "Measure when to map FILE and when to copy it: by the share touched, the passes, the disk and the memory.",
    Crossover(),
    functools.partial(run, name=CROSSOVER),
    shown.described,
    shown.crossover_tables,
    lambda record: [shown.legend(record)],
    by_case({"ms of the first pass": of_samples(shown.first_pass_ms)}),
    shown.notes_of,
    without=("folder",),
)
