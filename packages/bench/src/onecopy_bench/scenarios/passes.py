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
import random
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import click

from onecopy.base.text import counted
from onecopy_bench.engine import machine, rounds, scenario as cli
from onecopy_bench.engine.machine import disks, limits
from onecopy_bench.engine.machine.disks import Spot, here
from onecopy_bench.engine.machine.limits import OUT_OF_MEMORY
from onecopy_bench.engine.pictures import by_case
from onecopy_bench.engine.record import Absent, Log, Record, Row, Sample, heading
from onecopy_bench.engine.rounds import Settings, Turn, Watch
from onecopy_bench.engine.scenario import Scenario
from onecopy_bench.engine.tables import MB, MISSING, Spread, Table, cell, number, of_samples
from onecopy_bench.files import touch
from onecopy_bench.files.layout import Layout, Piece
from onecopy_bench.files.loaders import Job, Loader
from onecopy_bench.files.mechanisms import CEILINGS, CONTROLS, MECHANISMS, METHODS
from onecopy_bench.files.sampling import above, limited, turn
from onecopy_bench.scenarios.open import first_touch, layout_of, times_transfer


def places_of(record: Record) -> list[dict[str, Any]]:
    """Return the places of a record."""
    return list(record.data["places"])


def of(record: Record, method: str, place: str, order: str | None = None, share: float | None = None) -> list[Sample]:
    """Return the samples of one mechanism in one place, of one cell if given, in the order they were taken."""
    wanted = (place, order, None if share is None else f"{share:g}")
    return [
        s
        for s in record.samples
        if s.row == method and all(each in (None, mine) for each, mine in zip(wanted, s.case, strict=True))
    ]


def good(samples: Iterable[Sample]) -> list[Sample]:
    """Return the samples that can be used."""
    return [sample for sample in samples if sample.state == "ok"]


def ends_of(sample: Sample) -> list[int]:
    """Return when each pass ended, in ns since the start of opening."""
    return list(sample.processes[0]["notes"].get("passes_ns", ())) if sample.processes else []


def first_pass_ms(sample: Sample) -> float | None:
    """Return the time of opening, warming and the first pass; None where it did not end."""
    return next((end / 1e6 for end in ends_of(sample)), None)


def pass_ms(samples: Iterable[Sample], number: int) -> Spread | None:
    """Return the spread of the time of opening, warming and `number` passes; None where no sample got so far."""
    ends = map(ends_of, good(samples))
    return Spread.of(each[number - 1] / 1e6 for each in ends if len(each) >= number)


def second_pass_ms(samples: Iterable[Sample]) -> Spread | None:
    """Return the spread of the time of the second pass alone."""
    return Spread.of((each[1] - each[0]) / 1e6 for each in map(ends_of, samples) if len(each) > 1)


def device_rate(record: Record, place: dict[str, Any]) -> Spread | None:
    """Return what O_DIRECT reads of the device in a place, into reused buffers, in MB/s: the best thread count."""
    every = (of(record, r.name, place["name"]) for r in record.rows if r.name.startswith("o_direct-reused-"))
    spreads = (Spread.of(place["size"] / s.processes[0]["open_ns"] * 1e3 for s in good(each)) for each in every)
    return max((spread for spread in spreads if spread is not None), key=lambda spread: spread.median, default=None)


def notes_of(record: Record) -> Iterator[str]:
    """Yield what limits the numbers of a record, one sentence each."""
    for place in places_of(record):
        rate, ahead, limit = device_rate(record, place), place["read_ahead_bytes"], place["device_bytes_per_s"]
        read = "" if rate is None else f"; O_DIRECT reads {rate.median:.0f} MB/s"
        kib = "unknown" if ahead is None else f"{ahead // 1024} KiB"
        yield f"{place['name']}: {place['detail']}, {place['size'] / 1e6:.1f} MB, read-ahead {kib}{read}."
        if limit is not None and rate is not None and rate.median * 1e6 > 1.25 * limit:
            after = "after the 0.1 s that the kernel lets through"  # more than that is all a small file needs
            yield f"{place['name']}: THE THROTTLE DOES NOT ACT: the limit is {limit / 1e6:.0f} MB/s, {after}."
    yield from first_touch(record)
    used = {row.name for row in record.rows if row.uses_cache}
    yield from cli.cache_state([s for s in record.samples if s.row in used and s.processes], {})
    yield from cli.usual_limits(record)


OURS = "onecopy.warm"
TIE = 1.05
"""Medians within this factor of the best count as equal to it."""

HEADER = ("mechanism", "all resident\nms", "2nd pass\nms", "minor", "major", "huge\n%", "read\nMB", "CPU\nms")


def _rows_of(record: Record, place: dict[str, Any], order: str) -> Iterator[tuple[Row, list[Sample]]]:
    """Yield the rows of one table with their samples, in the order of the mechanisms, then the ceilings."""
    for row in record.rows:
        samples = of(record, row.name, place["name"], None if row.role == "ceiling" else order)
        if samples and row.role != "control":
            yield row, samples


def resident_ms(row: Row, samples: list[Sample]) -> Spread | None:
    """Return the time until everything was touched; where data do not stay, until it was read."""
    if not row.name.startswith("o_direct-reused"):
        return pass_ms(samples, 1)
    return Spread.of(s.processes[0]["open_ns"] / 1e6 for s in good(samples))


def warm_tables(record: Record) -> Iterator[Table]:
    """Yield a table for each place and order."""
    for place in places_of(record):
        for order in record.options["orders"]:
            words = "the order of the file" if order == "file" else "random order"
            rows = tuple(_cells(row, place, samples) for row, samples in _rows_of(record, place, order))
            yield Table(f"{place['name']}, touched in {words}", HEADER, rows)


def _cells(row: Row, place: dict[str, Any], samples: list[Sample]) -> tuple[str, ...]:
    def median(column: Callable[[dict[str, Any]], float | None]) -> str:
        known = [value for s in good(samples) if (value := column(s.processes[0])) is not None]
        return number(statistics.median(known)) if known else MISSING

    stays = not row.name.startswith("o_direct-reused")
    times = resident_ms(row, samples)
    return (
        row.name,
        cell(times) if times is not None else _instead(place, samples),
        cell(second_pass_ms(good(samples))),
        median(lambda p: p["minor_faults"]),
        median(lambda p: p["major_faults"]),
        median(lambda p: 100 * min((p["file_pmd_mapped"] + p["anon_huge"]) / place["size"], 1.0) if stays else None),
        median(lambda p: p["read_bytes"] / MB if "read_bytes" in p else None),
        median(lambda p: p["cpu_ms"]),
    )


def _instead(place: dict[str, Any], samples: list[Sample]) -> str:
    """Return what happened where no sample touched everything in its time."""
    notes = [s.processes[0]["notes"] for s in samples if s.processes]
    cut = next((note for note in notes if note.get("cut_short")), None)
    return samples[0].state if cut is None else f"cut short\nat {100 * cut['touched'] / place['size']:.0f} %"


def described(record: Record) -> str:
    """Return what was measured, in one line."""
    size = record.data["size"] / MB
    return f"{record.scenario} {record.data['file']}: {size:.1f} MB, cold, {counted(record.rounds, 'round')}"


COPY = "copy"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One cell: milliseconds by method, fastest median first, of those that got so far.

    `lost` are methods without a single good sample in this cell, and what became of them.
    """

    place: str
    order: str
    share: float
    passes: int
    times: dict[str, Spread]
    lost: dict[str, str]

    @property
    def winners(self) -> tuple[str, ...]:
        """The fastest and all within 5 % of it, fastest first; empty where no method got so far."""
        return tuple(name for name in self.times if self.ratio(name) <= TIE)

    def ratio(self, name: str) -> float:
        """Return the median of a method divided by that of the fastest."""
        return self.times[name].median / next(iter(self.times.values())).median

    @property
    def copy_ratio(self) -> float | None:
        """Median of "copy" divided by that of the fastest mapping; None where one of them is missing."""
        maps = [spread.median for name, spread in self.times.items() if name != COPY]
        return self.times[COPY].median / maps[0] if COPY in self.times and maps else None


def passes_of(record: Record) -> tuple[int, ...]:
    """Return the numbers of passes that are judged: 1, 2, 8, 32, ..., up to what the record has."""
    steps = [1, 2]
    while steps[-1] < record.options["passes"]:
        steps.append(min(4 * steps[-1], record.options["passes"]))
    return tuple(step for step in steps if step <= record.options["passes"])


def verdicts_of(record: Record) -> list[Verdict]:
    """Return the verdict of each cell, in the order of the tables."""
    return [
        _verdict(record, place["name"], order, share, passes)
        for place in places_of(record)
        for order in record.options["orders"]
        for share in record.options["shares"]
        for passes in passes_of(record)
    ]


def _verdict(record: Record, place: str, order: str, share: float, passes: int) -> Verdict:
    samples = {e.name: of(record, e.name, place, order, share) for e in record.rows if e.role == "row"}
    spreads = {name: pass_ms(taken, passes) for name, taken in samples.items()}
    lost = {name: _fate(taken) for name, taken in samples.items() if taken and all(s.state != "ok" for s in taken)}
    known = {name: spread for name, spread in spreads.items() if spread is not None}
    return Verdict(place, order, share, passes, dict(sorted(known.items(), key=lambda pair: pair[1].median)), lost)


def winner_text(verdict: Verdict) -> str:
    """Return the text of a cell: the winners and their time, and on further lines the next one and the copy."""
    if not verdict.winners:
        return "none got so far"
    lines = [f"{' = '.join(verdict.winners)}", f"{number(verdict.times[verdict.winners[0]].median)} ms"]
    behind = next((name for name in verdict.times if name not in verdict.winners), None)
    if behind is not None:
        lines.append(f"{behind} +{100 * (verdict.ratio(behind) - 1):.0f} %")
    if verdict.copy_ratio is not None and COPY not in (*verdict.winners, behind):
        lines.append(f"copy +{100 * (verdict.copy_ratio - 1):.0f} %")
    lines += [f"{name} {state}" for name, state in verdict.lost.items()]
    return "\n".join(lines)


def crossover_tables(record: Record) -> Iterator[Table]:
    """Yield who wins, by the share and the passes, for each place and order; then what each method holds and reads."""
    judged = {(v.place, v.order, v.share, v.passes): v for v in verdicts_of(record)}
    passes, shares = passes_of(record), record.options["shares"]
    header = ("touched", *(counted(count, "pass", "passes") for count in passes))
    for place in places_of(record):
        for order in record.options["orders"]:
            words = "the order of the file" if order == "file" else "random order"
            rows = (
                (_percent(share), *(winner_text(judged[place["name"], order, share, p]) for p in passes))
                for share in shares
            )
            yield Table(f"{place['name']}, touched in {words}", header, tuple(rows))
    for place in places_of(record):
        yield _costs(record, f"{place['name']}: MB held after the last pass, private / PSS", place["name"], _held)
        yield _costs(record, f"{place['name']}: MB read from the device", place["name"], _read)


def _costs(record: Record, title: str, place: str, cell: Callable[[list[Sample]], str]) -> Table:
    order, shares = record.options["orders"][0], record.options["shares"]
    names = [entry.name for entry in record.rows if entry.role == "row"]
    rows = ((name, *(cell(of(record, name, place, order, share)) for share in shares)) for name in names)
    return Table(title, ("method", *map(_percent, shares)), tuple(rows))


def _fate(samples: list[Sample]) -> str:
    """Return in one word what became of samples that are not good."""
    return "killed" if samples[0].reason.startswith(OUT_OF_MEMORY) else samples[0].state


def _held(samples: list[Sample]) -> str:
    anonymous, pss = (Spread.of(map(above(name), good(samples))) for name in ("anonymous", "pss"))
    if anonymous is None or pss is None:
        return _fate(samples) if samples else MISSING
    return f"{max(anonymous.median, 0):.0f} / {max(pss.median, 0):.0f}"


def _read(samples: list[Sample]) -> str:
    read = Spread.of(s.processes[0]["read_bytes"] for s in good(samples) if "read_bytes" in s.processes[0])
    if read is None:
        return _fate(samples) if samples else MISSING
    return number(read.median / MB)


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


def legend(record: Record) -> str:
    """Return how to read the tables."""
    star = "" if times_transfer(record) else " Times of copies hold for this machine alone, see the notes."
    return (
        "Median time of opening, warming and all passes; '=': within 5 % of each other; then the next one, and the"
        f" copy against the fastest mapping.{star}"
    )


WARM, CROSSOVER = "warm", "crossover"
ROWS = {WARM: MECHANISMS, CROSSOVER: METHODS}
BESIDE = {
    WARM: [CEILINGS[f"o_direct-{kind}"] for kind in ("fresh-1", "fresh-8", "reused-8")],
    CROSSOVER: [CEILINGS["o_direct-reused-4"]],
}
"""What a disk delivers at all, taken in each round: with it a throttle is proven."""

PLACES = ("disk", "slow", "tight")
PLACE = (
    "disk: where the file is; 128K: a copy on a loop device with this read-ahead; slow: on a throttled one; tight: a"
)
PLACE += " memory limit of half the file. All but disk need root."
ORDER = "Touch the pieces in the file's order, or in a random one."
PERCENT = click.FloatRange(min=0, min_open=True, max=100)
SLOW_READ_AHEAD, SLOW_BYTES = 128 << 10, 256 << 20
"""The read-ahead of the slow disk, and the most that is copied to it."""
BYTES_PER_S, REQUESTS_PER_S = 250_000_000, 3000
"""Its limits."""

Order = Literal["file", "shuffled"]
ORDERS = get_args(Order)


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How a run with passes goes.

    The chosen pieces are gone over `passes` times in one sample, at most: it stops between two pieces after `limit_s`
    seconds of passes, and a cell whose first pass did not end is not taken again.
    """

    rounds: int = 7
    timeout: float = 120.0
    idle_wait: float = 30.0
    file: str = cli.argument("FILE", type=click.Path())
    places: tuple[str, ...] = cli.places(("disk",), PLACE, PLACES)
    shares: tuple[float, ...] = (1.0,)
    passes: int = 2
    orders: tuple[str, ...] = cli.option(("file",), ORDER, "--order", type=click.Choice(ORDERS))
    limit_s: float = cli.option(5.0, "Seconds of passes after which a sample is cut short.")


METHOD_NAMES = tuple(method.name for method in METHODS)


@dataclass(frozen=True, slots=True)
class Crossover(Options):
    """How crossover is run."""

    places: tuple[str, ...] = cli.places(PLACES, PLACE, PLACES)
    shares: tuple[float, ...] = cli.option(
        (0.01, 0.05, 0.25, 0.5, 1.0), "Percent of the file that is touched.", "--share", type=PERCENT,
        default=(1, 5, 25, 50, 100), callback=lambda *given: tuple(sorted({percent / 100 for percent in given[2]})),
    )  # fmt: skip
    passes: int = cli.option(32, "Passes at most.")
    orders: tuple[str, ...] = cli.option(("shuffled", "file"), ORDER, "--order", type=click.Choice(ORDERS))
    limit_s: float = cli.option(3.0, "Seconds of passes after which a sample is cut short.")
    methods: tuple[str, ...] = cli.option(METHOD_NAMES, "What is compared.", "--method", choices=METHOD_NAMES)


def run(_: Path, options: Options, watch: Watch = lambda _: None, log: Log | None = None, name: str = WARM) -> Record:
    """Measure every row in every cell; raises Unavailable if not one of the places can be provided."""
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
        cells = [cell for spot in spots for cell in _cells_of(name, spot, options, first=spot is spots[0])]
        known = ("name", "detail", "size", "read_ahead_bytes", "device_bytes_per_s", "memory_bytes")
        places = [{each: getattr(spot, each) for each in known} for spot in spots]
        data = {"file": source.name, "size": source.stat().st_size, "places": places}
        loaders = {cell.loader.name: cell.loader for cell in cells}.values()
        rows = [Row(e.name, e.detail, role=e.role, uses_cache=e.uses_cache) for e in loaders]
        head = heading(name, source, options, rows, data=data, absent=absent)
        turns = [cell.turn(options) for cell in cells]
        return rounds.run(head, turns, options, watch=watch, log=log, files={spot.path for spot in spots})


def _cells_of(name: str, spot: Spot, options: Options, *, first: bool) -> Iterator[Cell]:
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
    device = copied.stat().st_dev
    group = stack.enter_context(limits.group(limits.reading(device, BYTES_PER_S, REQUESTS_PER_S)))
    detail = f"a loop device, at most {BYTES_PER_S / 1e6:.0f} MB/s and {REQUESTS_PER_S} requests/s"
    return Spot("slow", detail, copied, size, machine.read_ahead(device), BYTES_PER_S, groups=(group,))


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
        return replace(limited(plain, self.spot.groups, self.spot.memory_bytes), last=_did_not_end)


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


PAGE = 4096
LEAST, MOST = 64 << 10, 1 << 20
"""A piece has this many bytes at least (the last may be shorter), and at most."""


def cut(size: int, seed: int = 0) -> tuple[Piece, ...]:
    """Return consecutive pieces that cover all `size` bytes; all but the last end on a page."""
    chance, offset, pieces = random.Random(seed), 0, list[Piece]()  # noqa: S311 - a choice, not a secret
    while offset < size:
        length = min(chance.randrange(LEAST, MOST + 1, PAGE), size - offset)
        pieces.append(Piece(str(len(pieces)), offset, length))
        offset += length
    return tuple(pieces)


def choose(pieces: Sequence[Piece], share: float, order: Order, seed: int = 0) -> tuple[Piece, ...]:
    """Return a random choice of pieces that together hold a share of all bytes, to the page.

    The last piece chosen is shortened to fit; one page is always touched. The order is that of the file, or as they
    were drawn.

    Examples
    --------
    >>> some = choose(cut(100 << 20), 0.25, "file")
    >>> sum(piece.nbytes for piece in some) == 25 << 20
    True
    """
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
    described,
    warm_tables,
    limits=notes_of,
    without=("folder",),
)
CROSSOVER_SCENARIO = Scenario(
    CROSSOVER,
    "Measure when to map FILE and when to copy it: by the share touched, the passes, the disk and the memory.",
    Crossover(),
    functools.partial(run, name=CROSSOVER),
    described,
    crossover_tables,
    lambda record: [legend(record)],
    by_case({"ms of the first pass": of_samples(first_pass_ms)}),
    notes_of,
    without=("folder",),
)
