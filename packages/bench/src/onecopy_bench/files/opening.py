"""`onecopy bench open`: the time to open a file and read all of it, and the memory that processes then use.

Each row is onecopy or an installed peer, measured with N simultaneous processes in each case. The O_DIRECT ceilings and
the first-touch control are each measured with one process. Times are those of the slowest process. Memory is the sum
over all processes, minus the memory of empty interpreters. If the control shows that fresh memory is slow on this
machine, the table omits ratios of copying rows to mapping rows, because they would not hold on other machines.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onecopy.base.text import counted
from onecopy_bench import tables
from onecopy_bench.files.layout import Layout, checksum_of_file, read_layout
from onecopy_bench.files.loaders import CEILINGS, CONTROLS, ROWS, Job, Loader
from onecopy_bench.files.trials import Cache, pt_file, trial_of
from onecopy_bench.peers import installed, module
from onecopy_bench.pictures import by_case
from onecopy_bench.record import Absent, Case, Record, Row, Sample, Spread
from onecopy_bench.runs import Settings
from onecopy_bench.scenario import Plan, Scenario, Setup, UsageError, argument, cache_state, option, usual_limits
from onecopy_bench.tables import EMPTY, MB, Column, Compute, Table, median, number
from onecopy_bench.worker import SampleError

NAME = "open"
GIB = 2**30
OURS = ("map", "map+warm")
"""The rows that show the recommended use of onecopy. Times are compared with the faster of the two."""
OF_ONECOPY = (*OURS, "map+verify", "copy")
SLOW_MEMORY_GB_PER_S = 3.0
"""Below this first-touch rate, the times of copying loaders do not apply to other machines."""
ONCE = 1.05
"""If all processes together use at most this multiple of the file's size, they count as sharing one copy."""


def of_loaded(value: Callable[[Sample], float]) -> Compute:
    """Return a function that computes a value for every row except the empty baseline."""
    return lambda record, row, case: None if row == EMPTY else tables.per_sample(value)(record, row, case)


def gib_per_s(record: Record, row: str, case: Case) -> Spread | None:
    """Return the size of the file's data divided by the time of the slowest process."""
    rate = record.data["data_bytes"] / GIB
    return of_loaded(lambda sample: rate / max(tables.slowest("resident_ns", 1e9)(sample), 1e-12))(record, row, case)


opening, resident = of_loaded(tables.slowest("open_ns")), of_loaded(tables.slowest("resident_ns"))
pss, private = tables.per_sample(tables.above_start("pss")), tables.per_sample(tables.above_start("anonymous"))
peak = tables.per_sample(lambda s: s.numbers["peak_anonymous"] / MB - tables.total("empty_anonymous")(s))
huge = tables.per_sample(lambda s: tables.total("file_pmd_mapped")(s) + tables.total("anon_huge")(s))


def cases_of(record: Record) -> list[Case]:
    """Return a record's planned cases: each is a page cache state and a number of processes."""
    return [(cache, str(n)) for cache in record.options["caches"] for n in record.options["processes"]]


def claimed_ratio(record: Record, row: str, case: Case) -> Spread | None:
    """Return a row's median time as a multiple of onecopy's best time, or None if either was not measured.

    Also return None for a copying row if the copy times of this machine do not apply to other machines.
    """
    times = [time for name in OURS if (time := median(resident, record, name, case))]
    time, held = median(resident, record, row, case), median(private, record, row, case)
    copies = held is not None and held >= 0.5 * record.data["data_bytes"] / MB * int(case[1])
    if not times or time is None or (copies and not times_carry_over(record)):
        return None
    return Spread.of([time / min(times)])


def touch_rates(record: Record) -> dict[str, Spread]:
    """Return the first-touch rates in GB/s, by row."""

    def rate(sample: Sample) -> float:
        (each,) = sample.processes
        return float(each["notes"]["bytes"]) / max(float(each["resident_ns"] - each["open_ns"]), 1.0)

    taken = [sample for sample in record.samples if sample.state == "ok"]
    found = {name: Spread.of(rate(s) for s in taken if s.row == name) for name in record.names("control")}
    return {name: spread for name, spread in found.items() if spread is not None}


def times_carry_over(record: Record) -> bool:
    """Return whether fresh memory is known to be fast enough for copy times to apply to other machines."""
    rates = touch_rates(record)
    return bool(rates) and all(rate.median >= SLOW_MEMORY_GB_PER_S for rate in rates.values())


def first_touch(record: Record) -> Iterator[str]:
    """Yield a sentence on the speed of fresh memory, and on whether copy times apply to other machines."""
    rates = touch_rates(record)
    words = ", ".join(f"{r.median:.1f} ({r.low:.1f}-{r.high:.1f}) GB/s for {name}" for name, r in rates.items())
    slow = (
        f" Below {SLOW_MEMORY_GB_PER_S:g} GB/s, time ratios of copies and mappings do not carry over to other machines"
        " and are not shown here; megabytes do carry over."
    )
    if rates:
        yield f"First touch of fresh anonymous memory: {words}.{'' if times_carry_over(record) else slow}"
    else:
        yield "Without a control, it is unknown whether the times of copies and mappings carry over to other machines."


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
    "kernel counters, sum of all processes": (
        ("read from\ndisk MB", tables.plain("disk_bytes", MB)),
        ("major\nfaults", tables.per_sample(tables.total("major_faults", 1))),
        ("minor\nfaults", tables.per_sample(tables.total("minor_faults", 1))),
    ),
}
"""The tables of a case, each a mapping of titles to columns."""
BRIEF: tuple[Column, ...] = (("memory of\nall, MB", pss), ("open\nms", opening), ("all touched\nms", resident))


def _tables(record: Record) -> Iterator[Table]:
    """Yield each case's tables, fastest row first, and then the ceilings; with `--brief`, one small table per case."""
    calls = {row.name: f"{row.name}\n{row.detail}" for row in record.rows}
    for case in cases_of(record):
        title = f"{case[0].capitalize()}, {counted(int(case[1]), 'process', 'processes')}"
        if record.options.get("brief"):
            names = [name for name in record.names() if name != EMPTY]
            names.sort(key=lambda name: -(median(pss, record, name, case) or 0.0))
            yield tables.table(record, title, case, names, BRIEF)
            continue
        names = sorted(record.names(), key=lambda name: median(resident, record, name, case) or float("inf"))
        for part, (words, columns) in enumerate(PARTS.items()):
            found = tables.table(record, f"{title}: {words}", case, names, columns)
            shown = tuple((calls[name], *cells) for name, *cells in found.rows)
            yield replace(found, rows=shown) if part == 0 else found
    if (ceilings := record.names("ceiling")) and not record.options.get("brief"):
        columns = (("ms", resident), ("GiB/s", gib_per_s))
        yield tables.table(record, "Reading past the page cache, with O_DIRECT and threads", (), ceilings, columns)


def _findings(record: Record) -> Iterator[str]:
    """For each case, yield sentences on the number of copies in memory and on the state of the page cache."""
    for case in cases_of(record):
        yield from _sharing(record, case)
        if not record.options.get("brief"):
            sizes = {r.name: r.size or record.data["size"] for r in record.rows if r.uses_cache and r.role == "row"}
            samples = [s for s in record.samples if s.case == case and s.row in sizes and s.processes]
            yield from cache_state(samples, sizes, cold=case[0] == "cold")


def _sharing(record: Record, case: Case) -> Iterator[str]:
    held, copied = median(pss, record, "map", case), median(pss, record, "copy", case)
    own = median(private, record, "map", case)
    if held is None or own is None:
        return
    n, size = int(case[1]), record.data["size"] / MB
    against = f" against {number(copied)} MB for copies." if copied is not None else "."
    if n == 1:
        cached = f"1 process holds the {number(size)} MB in the page cache, where others can share it,"
        yield f"{cached} and {number(max(own, 0))} MB of private memory{against}"
        return
    times = f"once instead of {n} times" if held / size <= ONCE else f"{held / size:.2f} times, not once"
    all_of_them = f"{number(held)} MB in total (PSS minus {n} empty interpreters){against}"
    yield f"{n} processes hold {number(size)} MB {times}: {all_of_them}"


def _limits(record: Record) -> Iterator[str]:
    if not record.options.get("brief"):
        yield from first_touch(record)
        yield from usual_limits(record)


def _described(record: Record) -> str:
    file = record.data
    what = counted(file["pieces"], "tensor") if file["kind"] == "safetensors" else "plain bytes"
    return f"{file['file']}, {file['size'] / MB:.1f} MB, {what}"


def _draw(figure: Any, record: Record) -> None:
    rows = tuple(replace(row, ours=row.name in OF_ONECOPY) for row in record.rows)
    drawn = {"s until every page was read": of_loaded(tables.slowest("resident_ns", 1e9)), "MB of all processes": pss}
    by_case(drawn)(figure, replace(record, rows=rows))


# --- measuring --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """The scenario's options.

    Each combination of a number of `processes` and a page cache state is a case: "cold" evicts the file before each
    sample; "warm" evicts it and then fills the cache, always in the same way. The first-touch control always runs.
    """

    rounds: int = 7
    timeout: float = 120.0
    idle_wait: float = 30.0
    file: str = argument("FILE")
    processes: tuple[int, ...] = option((4,), "Number of processes that load the file together.", "-n", "--processes")
    cold: bool = option(False, "Evict the file before each sample, and check that it is not cached.")
    warm: bool = option(False, "Fill the cache before each sample (the default); with --cold, measure both states.")
    only: tuple[str, ...] = option((), "Measure only this row.", kind="text", metavar="ROW")
    brief: bool = option(False, "Print one small table and one sentence; skip O_DIRECT readings.")
    caches: tuple[Cache, ...] = ("warm",)
    ceilings: bool = True


def plan(setup: Setup, options: Options) -> Plan:
    """Plan the measurement of a file, tensor by tensor if possible. Raise ValueError for an empty file or a folder."""
    path = Path(options.file)
    layout = layout_of(path)
    checksum = checksum_of_file(path, layout)
    data = {"file": path.name, "kind": layout.kind, "size": layout.size, "data_bytes": layout.nbytes}
    data |= {"pieces": len(layout.pieces), "checksum": checksum}
    job = Job(os.fspath(path.absolute()), layout.kind, layout.size, layout.pieces)
    chosen, absent = applicable(layout, options)
    jobs, lost = _jobs_of(setup, job, chosen)
    present = [loader for loader in chosen if loader.name in jobs]
    rows = [
        Row(e.name, e.detail, role=e.role, uses_cache=e.uses_cache, size=jobs[e.name].size if e.reads_pt else None)
        for e in present
    ]
    cases: list[dict[str, Any]]
    cases = [{"case": (c, str(n)), "state": c, "processes": n} for c in options.caches for n in options.processes]
    every = [
        trial_of(e, jobs[e.name], checksum, options, **case)
        for e in present
        for case in (cases if e.role == "row" else ({},))
    ]
    return Plan(rows, every, data, (*absent, *lost), path, {each.path for each in (job, *jobs.values())}, options)


def _jobs_of(setup: Setup, job: Job, chosen: Sequence[Loader]) -> tuple[dict[str, Job], list[Absent]]:
    """Return each loader's job by name, and the loaders whose .pt file could not be written."""
    jobs = {loader.name: job for loader in chosen if not loader.reads_pt}
    others = [loader.name for loader in chosen if loader.reads_pt]
    if not others:
        return jobs, []
    setup.say("writing the tensors as .pt")
    try:
        return jobs | dict.fromkeys(others, setup.stack.enter_context(pt_file(job))), []
    except (SampleError, OSError) as error:
        return jobs, [Absent(name, f"its file could not be written: {error}") for name in others]


def layout_of(path: str | os.PathLike[str]) -> Layout:
    """Return a file's layout. Raise ValueError if it is empty or not a regular file, FormatError if it is damaged."""
    if not Path(path).is_file() and Path(path).exists():
        raise ValueError(f"{os.fspath(path)} is not a regular file")
    layout = read_layout(path)
    if layout.kind == "bytes" and os.fspath(path).endswith(".safetensors"):
        module("onecopy").open(path)  # raises FormatError, which describes the damage
    if layout.nbytes == 0:
        raise ValueError(f"{os.fspath(path)} contains no data: {layout.size} bytes")
    return layout


def applicable(layout: Layout, options: Options) -> tuple[list[Loader], list[Absent]]:
    """Return the selected loaders that support the file: those that are installed, and those that are not."""
    rows = [row for row in ROWS if (row.name in options.only if options.only else not row.by_request)]
    every = (*rows, *(CEILINGS if options.ceilings else ()), *CONTROLS)
    return installed(each for each in every if layout.kind in each.kinds)


def _adjusted(options: Options) -> Options:
    """Complete the options of a command line. Raise UsageError if a row is unknown or not installed."""
    if unknown := set(options.only) - {row.name for row in ROWS}:
        raise UsageError(f"unknown row {min(unknown)!r}; choose from {', '.join(row.name for row in ROWS)}", "--only")
    if options.only and (lost := installed(ROWS, options.only)[1]):
        raise UsageError(f"{lost[0].name}: {lost[0].reason}")
    caches: tuple[Cache, ...] = ("warm",) if not options.cold else ("cold", "warm") if options.warm else ("cold",)
    return replace(options, caches=caches, ceilings=not options.brief)


SCENARIO = Scenario(
    NAME,
    "Measure how fast onecopy opens FILE (copied, mapped, warmed), compared with its peers and with the device.",
    Options(),
    plan,
    _described,
    _tables,
    _findings,
    _draw,
    _limits,
    adjust=_adjusted,
    without=("folder",),
)
