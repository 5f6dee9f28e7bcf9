"""`onecopy bench warm` and `onecopy bench crossover`: one process opens a cold file and goes over it, in many ways.

`warm` compares single mechanisms that bring a mapped file into memory: every page is touched, twice. `crossover` finds
from which share of a file, and how many passes, on which way of opening it wins: a share is gone over again and again,
so that 1, 2, 8 and 32 passes are prefixes of one run. O_DIRECT and the first-touch control are beside both. A *share*
is a random choice of consecutive pieces of 64 KiB to 1 MiB, as tensors of a model or blocks of an index would be; a
smaller share is always part of a larger one. Places are those of `places.spot_of`; one that this machine cannot provide
is left out, and the record says why.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onecopy.base.text import counted
from onecopy_bench import places
from onecopy_bench.files.layout import Layout, Piece, checksum_of_file
from onecopy_bench.files.loaders import CEILINGS, CONTROLS, MECHANISMS, METHODS, Job, Loader
from onecopy_bench.files.opening import first_touch, layout_of
from onecopy_bench.files.trials import trial_of
from onecopy_bench.pictures import by_case
from onecopy_bench.places import OUT_OF_MEMORY, Spot, Unavailable
from onecopy_bench.record import Case, Record, Row, Sample, Spread
from onecopy_bench.runs import Settings, Trial
from onecopy_bench.scenario import Plan, Scenario, Setup, argument, limits_of_cold_runs, option, places_option
from onecopy_bench.tables import MB, Column, Compute, Table, above_start, number, per_sample, table

WARM, CROSSOVER, COPY = "warm", "crossover", "copy"
TIE = 1.05
"""Medians within this factor of the best count as equal to it."""
PAGE, LEAST, MOST = 4096, 64 << 10, 1 << 20
"""A piece has `LEAST` bytes at least (the last may be shorter), and at most `MOST`."""
ROWS = {WARM: MECHANISMS, CROSSOVER: METHODS}
BESIDE = {
    WARM: [CEILINGS[f"o_direct-{kind}"] for kind in ("fresh-1", "fresh-8", "reused-8")],
    CROSSOVER: [CEILINGS["o_direct-reused-4"]],
}
"""What a disk delivers at all, taken in each round: with it a throttle is proven."""


# --- what a record says -----------------------------------------------------------------------------------------------


def notes_of(sample: Sample) -> dict[str, Any]:
    """Return the notes of the process of a sample."""
    return dict(sample.processes[0].get("notes", {})) if sample.processes else {}


def pass_ms(passes: int) -> Compute:
    """Return a function that computes the time of opening, warming and that many passes."""
    return per_sample(lambda s: _end_of_pass(s, passes))


def _end_of_pass(sample: Sample, number: int) -> float | None:
    ends = notes_of(sample)["passes_ns"]
    return ends[number - 1] / 1e6 if len(ends) >= number else None


def _resident_ms(sample: Sample) -> float | None:
    """Return the time until everything was touched; where data do not stay, until it was read."""
    if sample.row.startswith("o_direct-reused"):
        return float(sample.processes[0]["open_ns"]) / 1e6
    return _end_of_pass(sample, 1)


def _second_pass_ms(sample: Sample) -> float | None:
    first, second = _end_of_pass(sample, 1), _end_of_pass(sample, 2)
    return None if first is None or second is None else second - first


def _of_process(name: str, unit: float = 1.0) -> Compute:
    return per_sample(lambda sample: each / unit if (each := sample.processes[0].get(name)) is not None else None)


def _huge_percent(record: Record, row: str, case: Case) -> Spread | None:
    size = next(place["size"] for place in record.data["places"] if place["name"] == case[0])
    processes = (sample.processes[0] for sample in record.of(row, case) if "reused" not in row)
    return Spread.of(100 * min((each["file_pmd_mapped"] + each["anon_huge"]) / size, 1.0) for each in processes)


WARM_COLUMNS: tuple[Column, ...] = (
    ("all resident\nms", per_sample(_resident_ms)),
    ("2nd pass\nms", per_sample(_second_pass_ms)),
    ("minor", _of_process("minor_faults")),
    ("major", _of_process("major_faults")),
    ("huge\n%", _huge_percent),
    ("read\nMB", _of_process("read_bytes", MB)),
    ("CPU\nms", _of_process("cpu_ms")),
)


def _words_of(place: str, order: str) -> str:
    return f"{place}, touched in {'the order of the file' if order == 'file' else 'random order'}"


def _places_and_orders(record: Record) -> Iterator[tuple[str, str]]:
    return itertools.product([place["name"] for place in record.data["places"]], record.options["orders"])


def warm_tables(record: Record) -> Iterator[Table]:
    """Yield a table for each place and order; ceilings read the whole file in its order."""
    for place, order in _places_and_orders(record):
        names = [*record.names(), *(record.names("ceiling") if order == "file" else ())]
        yield table(record, _words_of(place, order), (place, order, "1"), names, WARM_COLUMNS)


def passes_of(record: Record) -> list[int]:
    """Return the numbers of passes that are judged: 1, 2, 8, 32, ..., up to what the record has."""
    most, steps = record.options["passes"], [1, 2]
    while steps[-1] < most:
        steps.append(min(4 * steps[-1], most))
    return [step for step in steps if step <= most]


def times_of(record: Record, case: Case, passes: int) -> dict[str, float]:
    """Return the median milliseconds of the methods that completed so many passes, the fastest first."""
    found = {name: pass_ms(passes)(record, name, case) for name in record.names()}
    known = {name: spread.median for name, spread in found.items() if spread is not None}
    return dict(sorted(known.items(), key=lambda pair: pair[1]))


def winners_in(record: Record, case: Case, passes: int) -> str:
    """Return a cell: the fastest methods and their time, then the next one, the copy, and those that failed."""
    times = times_of(record, case, passes)
    best = min(times.values(), default=0.0)
    winners = [name for name, time in times.items() if time <= TIE * best]
    lines = [" = ".join(winners), f"{number(best)} ms"] if winners else ["none got so far"]
    behind = [name for name in times if name not in winners]
    shown = dict.fromkeys((*behind[:1], *(name for name in behind if name == COPY)))
    lines += [f"{name} +{100 * (times[name] / best - 1):.0f} %" for name in shown]
    lost = {s.row: s for s in record.samples if s.case == case and s.state != "ok" and not record.of(s.row, case)}
    killed = {name for name, sample in lost.items() if sample.reason.startswith(OUT_OF_MEMORY)}
    lines += [f"{name} {'killed' if name in killed else sample.state}" for name, sample in lost.items()]
    return "\n".join(lines)


def crossover_tables(record: Record) -> Iterator[Table]:
    """Yield the fastest methods by share and passes for each place and order; then memory and reads by method."""
    passes, shares = passes_of(record), [f"{share:g}" for share in record.options["shares"]]
    percents = [f"{100 * share:g} %" for share in record.options["shares"]]
    header = ("touched", *(counted(count, "pass", "passes") for count in passes))
    for place, order in _places_and_orders(record):
        rows = (
            (percent, *(winners_in(record, (place, order, share), count) for count in passes))
            for percent, share in zip(percents, shares, strict=True)
        )
        yield Table(_words_of(place, order), header, tuple(rows))
    costs = {
        "private MB held after the last pass": per_sample(above_start("anonymous")),
        "PSS held after the last pass, MB": per_sample(above_start("pss")),
        "MB read from the device": _of_process("read_bytes", MB),
    }
    order = record.options["orders"][0]
    for place in [place["name"] for place in record.data["places"]]:
        cases = [(place, order, share) for share in shares]
        for words, compute in costs.items():
            columns = [
                (percent, lambda record, row, _, c=case, compute=compute: compute(record, row, c))
                for percent, case in zip(percents, cases, strict=True)
            ]
            yield table(record, f"{place}: {words}", cases[0], record.names(), columns)


def _described(record: Record) -> str:
    return f"{record.data['file']}, {record.data['size'] / MB:.1f} MB, cold"


def _limits(record: Record) -> Iterator[str]:
    for place in record.data["places"]:
        reused = [name for name in record.names("ceiling") if "reused" in name]
        spreads = [per_sample(_resident_ms)(record, name, (place["name"], "file", "1")) for name in reused]
        rate = max((place["size"] / spread.median / 1e3 for spread in spreads if spread is not None), default=None)
        ahead, limit = place["read_ahead_bytes"], place["device_bytes_per_s"]
        read = "" if rate is None else f"; O_DIRECT reads {rate:.0f} MB/s"
        kib = "unknown" if ahead is None else f"{ahead // 1024} KiB"
        yield f"{place['name']}: {place['detail']}, {place['size'] / 1e6:.1f} MB, read-ahead {kib}{read}."
        if limit is not None and rate is not None and rate * 1e6 > 1.25 * limit:
            after = "after the 0.1 s that the kernel lets through"  # more than that is all a small file needs
            yield f"{place['name']}: THE THROTTLE DOES NOT ACT: the limit is {limit / 1e6:.0f} MB/s, {after}."
    if cut := dict.fromkeys(f"{s.row} ({', '.join(s.case)})" for s in record.samples if _did_not_end(s)):
        yield f"Cut short after {record.options['limit_s']:g} s, in the first pass: {'; '.join(cut)}."
    yield from first_touch(record)
    yield from limits_of_cold_runs(record)


LEGEND = (
    "Median time of opening, warming and all passes; '=': within 5 % of each other; then the next one, and the copy."
    " How far times of copies hold on other machines is said below."
)


# --- measuring --------------------------------------------------------------------------------------------------------

PLACES = ("disk", "slow", "tight")
PLACE = (
    "disk: where the file is; 128K: a copy on a loop device with this read-ahead; slow: on a throttled one; tight: a"
    " memory limit of half the file. All but disk need root."
)
ORDERS = ("file", "shuffled")
ORDER = "Touch the pieces in the file's order, or in a random one."
LIMIT = "Seconds of passes after which a sample is cut short."


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How the scenario is run.

    The chosen pieces are gone over `passes` times in one sample, at most: it stops between two pieces after `limit_s`
    seconds of passes, and a cell whose first pass did not end is not taken again.
    """

    rounds: int = 7
    timeout: float = 120.0
    idle_wait: float = 30.0
    file: str = argument("FILE")
    places: tuple[str, ...] = places_option(("disk",), PLACE, PLACES)
    shares: tuple[float, ...] = (1.0,)
    passes: int = 2
    orders: tuple[str, ...] = option(("file",), ORDER, "--order", choices=ORDERS, shown=("file",))
    limit_s: float = option(5.0, LIMIT)


METHOD_NAMES = tuple(method.name for method in METHODS)


@dataclass(frozen=True, slots=True)
class Crossover(Options):
    """How crossover is run."""

    places: tuple[str, ...] = places_option(PLACES, PLACE, PLACES)
    shares: tuple[float, ...] = option(
        (0.01, 0.05, 0.25, 0.5, 1.0), "Percent of the file that is touched.", "--share", kind="percent",
        shown=(1, 5, 25, 50, 100), parse=lambda given: tuple(sorted({percent / 100 for percent in given})),
    )  # fmt: skip
    passes: int = option(32, "Maximum number of passes.")
    orders: tuple[str, ...] = option(("shuffled", "file"), ORDER, "--order", choices=ORDERS, shown=("shuffled", "file"))
    limit_s: float = option(3.0, LIMIT)
    methods: tuple[str, ...] = option(METHOD_NAMES, "What is compared.", "--method", choices=METHOD_NAMES)


def plan(setup: Setup, options: Options, name: str) -> Plan:
    """Plan every row in every cell; raises Unavailable if not one of the places can be provided."""
    source = Path(options.file).absolute()
    layout_of(source)
    spots, absent = places.spots_of(options.places, source, setup.stack)
    if not spots:
        raise Unavailable("; ".join(f"{each.name}: {each.reason}" for each in absent))
    loaders: dict[str, Loader] = {}
    trials: list[Trial] = []
    for spot in spots:
        for loader, trial in _trials_of(name, spot, options, first=spot is spots[0]):
            loaders[loader.name] = loader
            trials.append(trial)
    known = ("name", "detail", "size", "read_ahead_bytes", "device_bytes_per_s", "memory_bytes")
    facts = [{each: getattr(spot, each) for each in known} for spot in spots]
    data = {"file": source.name, "size": source.stat().st_size, "places": facts}
    rows = [Row(e.name, e.detail, role=e.role, uses_cache=e.uses_cache) for e in loaders.values()]
    return Plan(rows, trials, data, absent, source, {spot.path for spot in spots})


def _trials_of(name: str, spot: Spot, options: Options, *, first: bool) -> Iterator[tuple[Loader, Trial]]:
    """Yield the trials of one place: rows on each choice of pieces, ceilings on the whole file."""
    wanted = options.methods if isinstance(options, Crossover) else None
    rows = [loader for loader in ROWS[name] if wanted is None or loader.name in wanted]
    beside = [*(BESIDE[name] if spot.memory_bytes is None else ()), *(CONTROLS if first else ())]
    every = cut(spot.size, options.seed)
    for share in dict.fromkeys((*options.shares, 1.0)):
        ordered = choose(every, share, "file", options.seed)
        checksum = checksum_of_file(spot.path, Layout("bytes", spot.size, ordered))
        for order in dict.fromkeys((*options.orders, "file")):
            loaders = [row for row in rows if share in options.shares and order in options.orders]
            loaders = [row for row in loaders if row.name != "part" or share < 1]
            pieces = ordered if order == "file" else choose(every, share, order, options.seed)
            job, case = Job(str(spot.path), "bytes", spot.size, pieces), (spot.name, order, f"{share:g}")
            for loader in (*loaders, *(beside if (share, order) == (1.0, "file") else ())):
                arguments: dict[str, Any] = {"passes": options.passes, "limit_s": options.limit_s}
                arguments |= {"groups": tuple(map(str, spot.groups)), "limit": (spot.groups, spot.memory_bytes)}
                trial = trial_of(loader, job, checksum, options, case=case, **arguments)
                yield loader, replace(trial, is_last=_did_not_end)


def _did_not_end(sample: Sample) -> bool:
    notes = notes_of(sample)
    return bool(notes.get("cut_short")) and not notes["passes_ns"]


def cut(size: int, seed: int = 0) -> tuple[Piece, ...]:
    """Return consecutive pieces that cover all `size` bytes; all but the last end on a page."""
    chance, offset, pieces = random.Random(seed), 0, list[Piece]()  # noqa: S311 - a choice, not a secret
    while offset < size:
        length = min(chance.randrange(LEAST, MOST + 1, PAGE), size - offset)
        pieces.append(Piece(str(len(pieces)), offset, length))
        offset += length
    return tuple(pieces)


def choose(pieces: Sequence[Piece], share: float, order: str, seed: int = 0) -> tuple[Piece, ...]:
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


def _scenario(name: str, words: str, options: Options, tables: Any, **more: Any) -> Scenario:
    named = functools.partial(plan, name=name)
    return Scenario(name, words, options, named, _described, tables, limits=_limits, without=("folder",), **more)


WARM_SCENARIO = _scenario(
    WARM,
    "Measure each mechanism that brings FILE into memory, from a cold cache; then touch every page, twice.",
    Options(),
    warm_tables,
)
CROSSOVER_SCENARIO = _scenario(
    CROSSOVER,
    "Measure when to map FILE and when to copy it: by the share touched, the passes, the disk and the memory.",
    Crossover(),
    crossover_tables,
    findings=lambda _: (LEGEND,),
    draw=by_case({"ms of the first pass": per_sample(_resident_ms)}),
)
