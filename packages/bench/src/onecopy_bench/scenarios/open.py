"""`onecopy bench open`: how long a file takes to open and to be all there, and what N processes then hold.

Rows: onecopy and every rival that is installed (see `files.rivals`), for N processes at once, in each case; beside them
the O_DIRECT ceilings and the first-touch control, in one process each.

Of N processes the slowest counts for times and the sum for memory, interpreters taken off. A sentence never claims more
than its numbers: if four processes hold a file more than once, that is what it says. A ratio of times between a row
that maps and a row that copies is left out where the control was too slow for it to hold on other machines.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import click

from onecopy.arrays import open_arrays
from onecopy.base.text import counted
from onecopy_bench.engine import pictures, rounds, scenario as cli
from onecopy_bench.engine.record import Absent, Case, Log, Record, Row, Sample, heading
from onecopy_bench.engine.rounds import Progress, Settings, Watch
from onecopy_bench.engine.scenario import Scenario
from onecopy_bench.engine.tables import EMPTY, MB, Column, Compute, Spread, Table, number, of_samples, table
from onecopy_bench.engine.ways import installed
from onecopy_bench.files import sampling, touch
from onecopy_bench.files.layout import Layout, read_layout, shuffled
from onecopy_bench.files.loaders import Job, Loader
from onecopy_bench.files.mechanisms import CEILINGS, CONTROLS
from onecopy_bench.files.rivals import ROWS
from onecopy_bench.files.sampling import Cache, above, slowest, total, turn

GIB = 2**30
OURS = ("map", "map+warm")
"""The rows in which onecopy does what it is for; the faster of them is compared with the rivals."""

OF_ONECOPY = (*OURS, "map+verify", "copy")
"""All rows that are not rivals."""

MARGIN = 0.05
"""A row is ahead of another where its median time is shorter by more than this share."""
NO_RATIO = "it copies, and no ratio is claimed here"

SLOW_MEMORY_GB_PER_S = 3.0
"""Below this rate of first touch, times of copying loaders do not carry over to other machines."""

WHOLE: Case = ()
"""The case of ceilings and controls: they are taken once for all cases."""

resident_ms = slowest("resident_ns")


def of_loaded(value: Callable[[Sample], float]) -> Compute:
    """Return what computes a number of samples that load something: all but those of the empty row."""
    return lambda record, row, case: None if row == EMPTY else of_samples(value)(record, row, case)


def gib_per_s(record: Record, row: str, case: Case) -> Spread | None:
    """Return the data of the file divided by the time of the slowest process."""
    nbytes = record.data["data_bytes"]
    return of_loaded(lambda s: nbytes / GIB / max(resident_ms(s) / 1e3, 1e-9))(record, row, case)


opening, resident = of_loaded(slowest("open_ns")), of_loaded(resident_ms)
seconds = of_loaded(slowest("resident_ns", 1e9))
pss, private = of_samples(above("pss")), of_samples(above("anonymous"))
peak = of_samples(lambda s: s.numbers["peak_anonymous"] / MB - total("empty_anonymous")(s))
disk = of_samples(lambda s: s.numbers["disk_bytes"] / MB if "disk_bytes" in s.numbers else None)
huge = of_samples(lambda s: total("file_pmd_mapped")(s) + total("anon_huge")(s))
major, minor = of_samples(total("major_faults", 1)), of_samples(total("minor_faults", 1))


def cases_of(record: Record) -> list[Case]:
    """Return the cases that a record was to have: a state of the page cache, and a number of processes."""
    return [(cache, str(n)) for cache in record.options["caches"] for n in record.options["processes"]]


def names_of(record: Record, role: str = "row") -> list[str]:
    """Return the names of the rows of a role."""
    return [row.name for row in record.rows if row.role == role]


def median(compute: Compute, record: Record, row: str, case: Case) -> float | None:
    """Return the median of what is computed of a row, or None where it was not measured."""
    spread = compute(record, row, case)
    return None if spread is None else spread.median


def best_of_ours(record: Record, case: Case) -> tuple[str, float] | None:
    """Return the faster of our mapped rows and its median time until all was touched, or None without any."""
    times = {name: median(resident, record, name, case) for name in OURS}
    return min(((name, time) for name, time in times.items() if time), key=lambda pair: pair[1], default=None)


def ratio_to_ours(record: Record, row: str, case: Case) -> Spread | None:
    """Return the median time of a row as a multiple of our best; None where it has no time."""
    ours, time = best_of_ours(record, case), median(resident, record, row, case)
    return None if ours is None or time is None else Spread.of([time / ours[1]])


def claimed_ratio(record: Record, row: str, case: Case) -> Spread | None:
    """Return the same; None where it would compare a copy with a mapping, and such times do not carry over."""
    withheld = copies(record, row, case) and not times_transfer(record)
    return None if withheld else ratio_to_ours(record, row, case)


def copies(record: Record, row: str, case: Case) -> bool:
    """Return whether a row was seen to hold a copy per process: anonymous memory of at least half the data each."""
    held = median(private, record, row, case)
    return held is not None and held >= 0.5 * record.data["data_bytes"] / MB * int(case[1])


def touch_rates(record: Record) -> dict[str, Spread]:
    """Return the rates of the first-touch controls in GB/s, by row."""

    def rate(sample: Sample) -> float:
        (each,) = sample.processes
        return float(each["notes"]["bytes"]) / max(float(each["resident_ns"] - each["open_ns"]), 1.0)

    taken = [sample for sample in record.samples if sample.state == "ok"]
    found = {name: Spread.of(rate(s) for s in taken if s.row == name) for name in names_of(record, "control")}
    return {name: spread for name, spread in found.items() if spread is not None}


def times_transfer(record: Record) -> bool:
    """Return whether fresh memory is known to be fast enough here for times of copies to carry over."""
    rates = touch_rates(record)
    return bool(rates) and all(rate.median >= SLOW_MEMORY_GB_PER_S for rate in rates.values())


ONCE = 1.05
"""Up to this multiple of the file's size, a file counts as held once."""

PARTS: dict[str, tuple[Column, ...]] = {
    "the slowest process": (
        ("all resident\nms", resident),
        ("x of\nours", claimed_ratio),
        ("open\nms", opening),
        ("GiB/s", gib_per_s),
    ),
    "memory of all processes, less empty ones": (
        ("PSS\nMB", pss),
        ("private\nMB", private),
        ("peak\nprivate MB", peak),
        ("huge\npages MB", huge),
    ),
    "what the kernel counted, of all processes": (
        ("read from\ndisk MB", disk),
        ("major\nfaults", major),
        ("minor\nfaults", minor),
    ),
}
"""The tables of a case."""

CEILING_COLUMNS: tuple[Column, ...] = (("ms", resident), ("GiB/s", gib_per_s))
BRIEF_COLUMNS: tuple[Column, ...] = (
    ("memory of\nall, MB", pss),
    ("open\nms", opening),
    ("all touched\nms", resident),
)
DRAWN = {"s until every page was read": seconds, "MB of all processes": pss}


def words_of(case: Case) -> str:
    """Return a case in words."""
    return f"{case[0]}, {counted(int(case[1]), 'process', 'processes')}"


def described(record: Record) -> str:
    """Return what was measured, in one line."""
    file = record.data
    what = counted(file["pieces"], "tensor") if file["kind"] == "safetensors" else "plain bytes"
    order = ", shuffled" if record.options["order"] == "shuffled" else ""
    rounds = counted(record.rounds, "round")
    return f"{record.scenario} {file['file']}: {file['size'] / MB:.1f} MB, {what}; {rounds}{order}"


def tables_of(record: Record) -> Iterator[Table]:
    """Yield the tables of each case, the fastest row first; then the ceilings. A brief one has one small table."""
    if record.options.get("brief"):
        for case in cases_of(record):
            held = {name: median(pss, record, name, case) or 0.0 for name in names_of(record) if name != EMPTY}
            yield table(
                record, words_of(case).capitalize(), case, sorted(held, key=lambda name: -held[name]), BRIEF_COLUMNS
            )
        return
    for case in cases_of(record):
        times = {name: median(resident, record, name, case) or float("inf") for name in names_of(record)}
        names = sorted(times, key=times.__getitem__)
        for part, (words, columns) in enumerate(PARTS.items()):
            found = table(record, f"{words_of(case).capitalize()}: {words}", case, names, columns)
            yield _with_calls(record, case, found) if part == 0 else found
    if ceilings := names_of(record, "ceiling"):
        yield table(record, "Reading past the page cache, with O_DIRECT and threads", WHOLE, ceilings, CEILING_COLUMNS)


def _with_calls(record: Record, case: Case, found: Table) -> Table:
    """Return a table with the call of each row below its name, and whether the row was seen to map or to copy."""
    calls = {row.name: row.detail for row in record.rows}

    def call(name: str) -> str:
        held = name != EMPTY and median(private, record, name, case) is not None
        does = ("copies: " if copies(record, name, case) else "maps: ") if held else ""
        return f"{name}\n{does}{calls[name]}"

    return replace(found, rows=tuple((call(name), *cells) for name, *cells in found.rows))


def findings(record: Record) -> Iterator[str]:
    """Yield what is worth saying about each case; of a brief one how often the processes hold the file."""
    brief = record.options.get("brief")
    for case in cases_of(record):
        for answer in (_sharing,) if brief else (_sharing, _leaders, _agreement, _cache_state):
            yield from answer(record, case)


def _sharing(record: Record, case: Case) -> Iterator[str]:
    """Yield how often N processes hold the file, mapped and copied."""
    held, copied, own = (
        median(compute, record, row, case) for compute, row in ((pss, "map"), (pss, "copy"), (private, "map"))
    )
    if held is None or own is None:
        return
    n, size = int(case[1]), record.data["size"] / MB
    against = f" against {number(copied)} MB for copies." if copied is not None else "."
    if n == 1:
        cached = f"1 process holds the {number(size)} MB in the page cache, where others can share them,"
        yield f"{cached} and {number(max(own, 0))} MB of its own{against}"
        return
    times = f"once instead of {n} times" if held / size <= ONCE else f"{held / size:.2f} times, not once"
    total = f"{number(held)} MB in total (PSS minus {n} empty interpreters){against}"
    yield f"{n} processes hold {number(size)} MB {times}: {total}"


def _leaders(record: Record, case: Case) -> Iterator[str]:
    """Yield which rows of others are ahead of ours by more than 5 %, or that none is.

    Without a number where that would compare copies with maps in vain.
    """
    found = {name: ratio_to_ours(record, name, case) for name in names_of(record) if name not in OF_ONECOPY}
    ahead = [(ratio.median, name) for name, ratio in found.items() if ratio and ratio.median < 1 - MARGIN]
    ours, words = best_of_ours(record, case), words_of(case).capitalize()
    if ours is not None and not ahead:
        yield f"{words}: no row is more than {MARGIN:.0%} ahead of {ours[0]}."
    elif ours is not None:
        rows = [
            f"{name} ({f'{share:.2f} of our time' if claimed_ratio(record, name, case) else NO_RATIO})"
            for share, name in sorted(ahead)
        ]
        yield f"{words}: AHEAD of {ours[0]} by more than {MARGIN:.0%}: {', '.join(rows)}."


def _agreement(record: Record, case: Case) -> Iterator[str]:
    """Yield that the touched bytes were those of the file, and for how many rows that was checked."""
    samples = [sample for sample in record.samples if sample.case in (WHOLE, case)]
    checked = {s.row for s in samples if s.state == "ok" and any("checksum" in each for each in s.processes)}
    if checked and all(sample.state != "wrong data" for sample in samples):
        yield f"Checksums of the touched bytes agree with a plain read of the file: {counted(len(checked), 'row')}."


def _cache_state(record: Record, case: Case) -> Iterator[str]:
    sizes = {r.name: r.size or record.data["size"] for r in record.rows if r.uses_cache and r.role == "row"}
    samples = [s for s in record.samples if s.case == case and s.row in sizes and s.processes]
    return cli.cache_state(samples, sizes, cold=case[0] == "cold")


def first_touch(record: Record) -> Iterator[str]:
    """Yield how fast fresh memory is touched, and so how far times of copies carry over."""
    rates = touch_rates(record)
    words = ", ".join(f"{r.median:.1f} ({r.low:.1f}-{r.high:.1f}) GB/s for {name}" for name, r in rates.items())
    slow = (
        f" Below {SLOW_MEMORY_GB_PER_S:g} GB/s, times of copies against maps do not transfer to other machines, and no"
        " ratio of them is claimed here; megabytes do."
    )
    if rates:
        yield f"First touch of fresh anonymous memory: {words}.{'' if times_transfer(record) else slow}"
    else:
        yield "Without a control, times of copies against maps cannot be taken to other machines."


def limits(record: Record) -> Iterator[str]:
    """Yield how far times of copies carry over, and what limits every record."""
    if not record.options.get("brief"):
        yield from first_touch(record)
        yield from cli.usual_limits(record)


def draw(figure: Any, record: Record) -> None:
    """Draw the times and the memory of every case."""
    rows = (replace(row, ours=row.name in OF_ONECOPY) for row in record.rows if row.role == "row")
    pictures.panels(figure, replace(record, rows=tuple(rows)), cases_of(record), words_of, DRAWN)


NAME = "open"
Order = Literal["file", "shuffled"]
COUNT = "Processes that load the file at once; several numbers are measured in the same rounds."
ORDER = "Touch the tensors in the order of the file, or in a random one that is the same for all rows."
ONLY = "Of the rows, take this one only (more than once for more)."
COLD, WARM = (
    "Evict this one file before each sample, and prove it.",
    "Fill the cache alike: the default; both with --cold.",
)
BRIEF = "One small table and one sentence; no O_DIRECT readings."
BESIDE = tuple(CEILINGS[name] for name in ("o_direct-fresh-8", "o_direct-reused-1", "o_direct-reused-8"))
"""The best of their kind in the records that we have: a virtual disk wants one thread, a fast one many."""


def _counts(_: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> tuple[int, ...]:
    """Return counts of processes, given as "4", or "1,2,4,8"."""
    words = [word.strip() for text in texts for word in text.split(",")]
    if not all(word.isdecimal() and int(word) >= 1 for word in words):
        wrong = ",".join(words)
        raise click.BadParameter(
            f"{wrong!r} is not a number of processes such as 4, or several such as 1,2,4,8", param=parameter
        )
    return tuple(dict.fromkeys(map(int, words)))


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How the scenario is run.

    Each number of `processes` in each state of the page cache is a case: "cold" evicts the file before each sample,
    "warm" evicts it and then fills the cache, always in the same way. The first-touch control is always taken.
    """

    rounds: int = 7
    timeout: float = 120.0
    idle_wait: float = 30.0
    file: str = cli.argument("FILE", type=click.Path())
    processes: tuple[int, ...] = cli.option(
        (4,), COUNT, "-n", "--processes", type=str, default=("4",), callback=_counts, metavar="N,..."
    )
    cold: bool = cli.option(False, COLD, "--cold", is_flag=True, show_default=False)
    warm: bool = cli.option(False, WARM, "--warm", is_flag=True, show_default=False)
    only: tuple[str, ...] = cli.option((), ONLY, "--only", type=str, metavar="ROW")
    order: Order = cli.option("file", ORDER, type=click.Choice(get_args(Order)))
    brief: bool = cli.option(False, BRIEF, "--brief", is_flag=True, show_default=False)
    caches: tuple[Cache, ...] = ("warm",)
    ceilings: bool = True


def run(_: Path, options: Options, watch: Watch = lambda _: None, log: Log | None = None) -> Record:
    """Measure how a file opens; of a safetensors file the tensors are loaded by name.

    Raises ValueError if it is empty or not a regular file, or the log is of another run.
    """
    chosen, absent = applicable(layout_of(options.file), options)
    return measure(chosen, absent, options, watch, log)


def measure(
    chosen: Sequence[Loader],
    absent: Sequence[Absent],
    options: Options,
    watch: Watch = lambda _: None,
    log: Log | None = None,
    scenario: str = NAME,
) -> Record:
    """Measure some loaders of a file."""
    path = Path(options.file)
    layout = layout_of(path)
    checksum = touch.of_file(path, layout)
    if options.order == "shuffled":
        layout = shuffled(layout, options.seed)
    job = Job(os.fspath(path.absolute()), layout.kind, layout.size, layout.pieces)
    data = {"file": path.name, "kind": layout.kind, "size": layout.size, "data_bytes": layout.nbytes}
    data |= {"pieces": len(layout.pieces), "checksum": checksum}
    with sampling.twins(chosen, job, lambda words: watch(Progress(0, 0, words))) as (jobs, unwritten):
        lost = {each.name for each in unwritten}
        present = [loader for loader in chosen if loader.name not in lost]
        sizes = {name: twin.size for name, twin in jobs.items()}
        rows = [Row(e.name, e.detail, role=e.role, uses_cache=e.uses_cache, size=sizes.get(e.name)) for e in present]
        head = heading(scenario, path, options, rows, data=data, absent=(*absent, *unwritten))
        cases: list[dict[str, Any]]
        cases = [{"case": (c, str(n)), "state": c, "processes": n} for c in options.caches for n in options.processes]
        turns = [
            turn(e, jobs.get(e.name, job), checksum, options, **case)
            for e in present
            for case in (cases if e.role == "row" else ({},))
        ]
        files = {each.path for each in (job, *jobs.values())}
        return rounds.run(head, turns, options, watch=watch, log=log, files=files)


def layout_of(path: str | os.PathLike[str]) -> Layout:
    """Return what the file holds; ValueError where there is nothing to measure, FormatError if damaged."""
    if not Path(path).is_file() and Path(path).exists():
        raise ValueError(f"{os.fspath(path)} is not a regular file")
    layout = read_layout(path)
    if layout.kind == "bytes" and os.fspath(path).endswith(".safetensors"):
        open_arrays(path)  # a damaged file is no benchmark: FormatError says what is wrong
    if layout.nbytes == 0:
        raise ValueError(f"{os.fspath(path)} holds no data: {layout.size} bytes")
    return layout


def applicable(layout: Layout, options: Options) -> tuple[list[Loader], list[Absent]]:
    """Return the loaders that are installed here and understand the file, and the rows that are not."""
    rows = [row for row in ROWS if (row.name in options.only if options.only else not row.by_request)]
    every = (*rows, *(BESIDE if options.ceilings else ()), *CONTROLS)
    return installed(each for each in every if layout.kind in each.kinds)


def _adjusted(options: Options) -> Options:
    """Return the options of a command line; raises a usage error where a row that was asked for is not there."""
    if unknown := set(options.only) - {row.name for row in ROWS}:
        raise click.BadParameter(
            f"no row {min(unknown)!r}; there are {', '.join(row.name for row in ROWS)}", param_hint="--only"
        )
    if options.only and (lost := installed(ROWS, options.only)[1]):
        raise click.UsageError(f"{lost[0].name}: {lost[0].reason}")
    caches: tuple[Cache, ...] = ("warm",) if not options.cold else ("cold", "warm") if options.warm else ("cold",)
    return replace(options, caches=caches, ceilings=not options.brief)


SCENARIO = Scenario(
    NAME,
    "Measure how FILE opens: copied, mapped, warmed, by its rivals, and by the device alone.",
    Options(),
    run,
    described,
    tables_of,
    findings,
    draw,
    limits,
    adjust=_adjusted,
    without=("folder",),
)
