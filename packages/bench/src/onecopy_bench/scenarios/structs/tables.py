"""From the samples of `bench structs` to tables and sentences: pure functions over a record."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator

from onecopy_bench.engine.pages import few_rounds, rounds_of
from onecopy_bench.engine.record import Record, Sample
from onecopy_bench.engine.tables import MB, MISSING, Spread, Table, counted, number
from onecopy_bench.files.sampling import above, slowest
from onecopy_bench.scenarios.structs.program import ASKED

Value = float | None
NESTED = "nested"
"""The row of values inside one another."""

Rounds = dict[int, float]
"""A number for each round in which there is one."""


def _note(name: str, unit: float) -> Callable[[Sample], Value]:
    def value(sample: Sample) -> Value:
        noted = [each["notes"][name] for each in sample.processes if name in each.get("notes", {})]
        return float(max(noted)) / unit if noted else None

    return value


def _all_ms(sample: Sample) -> Value:
    """Until all questions are answered: not where time was up before."""
    whole = all("checksum" in each for each in sample.processes)
    return slowest("resident_ns")(sample) if whole else None


def _rate(sample: Sample) -> Value:
    """Answers per second, from opening to the end."""
    answered = _note("answered", 1)(sample)
    return None if answered is None else answered / slowest("resident_ns", 1)(sample) * 1e9


TIMES: dict[str, Callable[[Sample], Value]] = {
    "open\nms": slowest("open_ns"),
    "1\nanswer": _note("first_ns", 1e6),
    "1,000\nanswers": _note("few_ns", 1e6),
    "all\nanswers": _all_ms,
}
"""Milliseconds since the process was released, by the words of a table."""

AGAIN = _note("again_ns", 1e6)

CLAIMS: tuple[tuple[str, str, str, Callable[[Sample], Value], str], ...] = (
    ("copy", "map", "warm", TIMES["open\nms"], "From a warm cache, map opens {} times as fast as copy."),
    (
        "fread",
        "map",
        "warm",
        AGAIN,
        "Once touched, the mapped index answers {} times as fast as the heap copy of fread.",
    ),
    ("copy", "warm", "cold", TIMES["1,000\nanswers"], "Cold, warm has 1,000 answers {} times as soon as copy."),
    ("copy", "read", "warm", TIMES["open\nms"], "copy takes {} times one read of the file into huge pages."),
)
"""Ratios in words: the row above, the row below, the cache, and what of them."""


def values(record: Record, name: str, cache: str, processes: int, value: Callable[[Sample], Value]) -> Rounds:
    """Return a number of each good sample of a row in a case, by round."""
    found = {sample.round: value(sample) for sample in record.of(name, (cache, str(processes)))}
    return {number: each for number, each in found.items() if each is not None}


def tables_of(record: Record) -> list[Table]:
    """Return all tables: times for each state of the cache and number of threads, then memory, then nested values."""
    limited = record.data["memory_bytes"] is not None
    caches = ("cold",) if limited else ("cold", "warm")
    tables = [time_table(record, cache, threads) for cache in caches for threads in record.options["threads"]]
    tables.append(rate_table(record) if limited else memory_table(record))
    return tables + ([nested_table(record)] if record.of(NESTED, (NESTED,)) else [])


def time_table(record: Record, cache: str, threads: int) -> Table:
    """Return what it takes from the start of opening to the answers, and to answer once more."""
    rows = []
    for mode in _modes(record):
        if mode == "none" or (mode not in ASKED and threads != 1):
            continue
        name = _named(mode, threads)
        columns = (*TIMES.values(), AGAIN)
        cells = [_cell(values(record, name, cache, 1, column).values()) for column in columns]
        if any(cell != MISSING for cell in cells):
            rows.append((mode, *cells))
        elif reason := _reason(record, name, cache):
            rows.append((mode, reason, *[""] * (len(columns) - 1)))
    limit = record.data["memory_bytes"]
    place = "" if limit is None else f", in {limit / MB:.0f} MB"
    return Table(f"{cache}, {_words(threads)}{place}: ms since the start", ("", *TIMES, "all,\nagain"), tuple(rows))


def rate_table(record: Record) -> Table:
    """Return how many answers a second a process gives, opening included, and what it reads for them."""
    header = (
        "",
        *(f"{_words(n)}\nanswers/s" for n in record.options["threads"]),
        "major\nfaults",
        "read from\ndisk MB",
    )
    rows = []
    for mode in _modes(record):
        rates = [_cell(values(record, _named(mode, n), "cold", 1, _rate).values()) for n in record.options["threads"]]
        faults, read = (
            _cell(values(record, mode, "cold", 1, value).values())
            for value in (lambda s: float(s.processes[0]["major_faults"]), _disk)
        )
        if any(cell != MISSING for cell in rates):
            rows.append((mode, *rates, faults, read))
    return Table("Answers, opening included", header, tuple(rows))


def memory_table(record: Record) -> Table:
    """Return what one process and several processes hold, and what short processes take."""
    count, fresh = record.options["processes"], record.options["fresh"]
    header = ["", "private\nMB", "peak\nRSS MB"]
    header += [f"PSS of {count}\nMB", "of the\nfile"] if count > 1 else []
    header += [f"{fresh} short,\nms"] if fresh else []
    rows = []
    for mode in _modes(record):
        private = values(record, mode, "warm", 1, above("anonymous"))
        peak = values(record, mode, "warm", 1, _note("max_rss", MB))
        cells = [_cell(private.values()), _cell(peak.values())]
        if count > 1:
            pss = values(record, mode, "warm", count, above("pss"))
            size = record.data["size"] / MB
            cells += [_cell(pss.values()), _cell(each / size for each in pss.values())]
        if fresh:
            short = values(record, f"{mode}-fresh", "warm", 1, slowest("resident_ns"))
            cells.append(_cell(short.values()))
        rows.append((mode, *cells))
    return Table("Memory above an empty process, and short processes", tuple(header), tuple(rows))


def nested_table(record: Record) -> Table:
    """Return what nested values cost."""
    rows, calls = [sample.numbers for sample in record.of(NESTED, (NESTED,))], record.data["system_calls"]
    cells = (
        _cell(each["open_ns"] / 1e6 for each in rows),
        _cell(each["records_ns"] / 1e6 for each in rows),
        _cell(each["open_ns"] / each["records_ns"] for each in rows),
        _cell(each["private_bytes"] / MB for each in rows),
        " and ".join(MISSING if count is None else str(count) for count in calls.values()),
    )
    sizes = " and ".join(f"{int(count):,}" for count in calls)
    header = ("values", "open\nms", "records\nms", "ratio", "private\nMB", "system\ncalls")
    title = f"Nested values; system calls of a process with {sizes} of them"
    return Table(title, header, ((f"{rows[0]['count']:,.0f}", *cells),))


def findings(record: Record) -> Iterator[str]:
    """Yield what the tables say in words."""
    yield from (sentence for claim in CLAIMS if (sentence := _compared(record, *claim)) is not None)


def limits(record: Record) -> Iterator[str]:
    """Yield what limits the numbers."""
    failed = {(s.row, s.state, s.reason) for s in record.samples if s.state != "ok"}
    yield from (f"{name}: {state}: {reason}" for name, state, reason in sorted(failed))
    late = {s.row for s in record.samples if s.state == "ok" and _was_cut(s)}
    if late:
        yield f"Stopped after {record.options['limit_s']} s, before all answers: {', '.join(sorted(late))}."
    cached = [
        s.numbers["cached_before"] for s in record.samples if s.case[0] == "cold" and s.numbers.get("cached_before")
    ]
    if cached:
        yield f"NOT cold: up to {max(cached) / MB:.1f} MB of a file were still cached."
    yield from few_rounds(record)


def described(record: Record) -> str:
    """Return what was measured, in one line."""
    data = record.data
    kmers = "" if data["kmers"] is None else f"{data['kmers']:,} k-mers, "
    rounds = counted(rounds_of(record), "round")
    return f"structs: {data['size'] / MB:.1f} MB, {kmers}{data['questions']:,} questions, {rounds}"


def _compared(
    record: Record, upper: str, lower: str, cache: str, value: Callable[[Sample], Value], words: str
) -> str | None:
    """Return a sentence with the median of the ratios of two rows, round by round; None where there is no pair."""
    tops, bottoms = (values(record, name, cache, 1, value) for name in (upper, lower))
    ratios = [tops[n] / bottoms[n] for n in tops if bottoms.get(n)]
    return words.format(number(statistics.median(ratios))) if ratios else None


def _modes(record: Record) -> list[str]:
    return [row.name for row in record.rows if "-" not in row.name and row.name != NESTED]


def _named(mode: str, threads: int) -> str:
    return mode if threads == 1 else f"{mode}-{threads}"


def _words(threads: int) -> str:
    return counted(threads, "thread")


def _was_cut(sample: Sample) -> bool:
    return any("answered" in each.get("notes", {}) and "checksum" not in each for each in sample.processes)


def _disk(sample: Sample) -> Value:
    return sample.numbers["disk_bytes"] / MB if "disk_bytes" in sample.numbers else None


def _reason(record: Record, name: str, cache: str) -> str:
    lost = (s for s in record.samples if (s.row, s.case) == (name, (cache, "1")))
    return next((s.state for s in lost if s.state != "ok"), "")


def _cell(found: Iterable[float]) -> str:
    """Return a median and, below it, the extremes; two digits behind the point, so that six columns fit a terminal."""
    spread = Spread.of(found)
    if spread is None:
        return MISSING
    median, low, high = (number(round(value, 2)) for value in (spread.median, spread.low, spread.high))
    return f"{median}\n({low}-{high})" if low != high else median
