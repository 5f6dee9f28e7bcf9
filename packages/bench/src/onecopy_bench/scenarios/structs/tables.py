"""From the samples of `bench structs` to tables and sentences: pure functions over a record."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace

from onecopy_bench.engine.pages import few_rounds, rounds_of
from onecopy_bench.engine.record import Case, Record, Sample
from onecopy_bench.engine.tables import MB, MISSING, Column, Compute, Table, counted, number, of_samples, plain, table
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


def elsewhere(suffix: str, case: Case, value: Callable[[Sample], Value]) -> Compute:
    """Return what computes a number of the row with a suffix, in a case of its own."""
    compute = of_samples(value)
    return lambda record, row, _: compute(record, row + suffix, case)


def tables_of(record: Record) -> Iterator[Table]:
    """Yield times for each state of the cache and number of threads, then memory, then nested values."""
    limited = record.data["memory_bytes"] is not None
    for cache in ("cold",) if limited else ("cold", "warm"):
        for threads in record.options["threads"]:
            yield time_table(record, cache, threads)
    yield rate_table(record) if limited else memory_table(record)
    if record.of(NESTED, (NESTED,)):
        yield nested_table(record)


def time_table(record: Record, cache: str, threads: int) -> Table:
    """Return what it takes from the start of opening to the answers, and to answer once more."""
    columns = [(title, of_samples(value)) for title, value in (*TIMES.items(), ("all,\nagain", AGAIN))]
    limit = record.data["memory_bytes"]
    place = "" if limit is None else f", in {limit / MB:.0f} MB"
    title = f"{cache}, {counted(threads, 'thread')}{place}: ms since the start"
    modes = [mode for mode in _modes(record) if mode in ASKED or (threads == 1 and mode != "none")]
    found = table(record, title, (cache, "1"), [mode + _suffix(threads) for mode in modes], columns)
    rows = ((mode, *cells) for mode, (_, *cells) in zip(modes, found.rows, strict=True) if cells[0] != MISSING)
    return replace(found, rows=tuple(rows))


def rate_table(record: Record) -> Table:
    """Return how many answers a second a process gives, opening included, and what it reads for them."""
    cold = ("cold", "1")
    columns = [
        *(
            (f"{counted(n, 'thread')}\nanswers/s", elsewhere(_suffix(n), cold, _rate))
            for n in record.options["threads"]
        ),
        ("major\nfaults", of_samples(lambda s: float(s.processes[0]["major_faults"]))),
        ("read from\ndisk MB", of_samples(_disk)),
    ]
    modes = [mode for mode in _modes(record) if mode in ASKED]
    return table(record, "Answers, opening included", cold, modes, columns)


def memory_table(record: Record) -> Table:
    """Return what one process and several processes hold, and what short processes take."""
    count, fresh, size = record.options["processes"], record.options["fresh"], record.data["size"] / MB
    warm = ("warm", "1")
    columns = [("private\nMB", of_samples(above("anonymous"))), ("peak\nRSS MB", of_samples(_note("max_rss", MB)))]
    if count > 1:
        several, pss = ("warm", str(count)), above("pss")
        columns.append((f"PSS of {count}\nMB", elsewhere("", several, pss)))
        columns.append(("of the\nfile", elsewhere("", several, lambda s: pss(s) / size)))
    if fresh:
        columns.append((f"{fresh} short,\nms", elsewhere("-fresh", warm, slowest("resident_ns"))))
    return table(record, "Memory above an empty process, and short processes", warm, _modes(record), columns)


def nested_table(record: Record) -> Table:
    """Return what nested values cost."""
    calls = record.data["system_calls"]
    found = " and ".join(MISSING if count is None else str(count) for count in calls.values())
    sizes = " and ".join(f"{int(count):,}" for count in calls)
    columns: list[Column] = [
        ("values", plain("count")),
        ("open\nms", plain("open_ns", 1e6)),
        ("records\nms", plain("records_ns", 1e6)),
        ("ratio", of_samples(lambda s: s.numbers["open_ns"] / s.numbers["records_ns"])),
        ("private\nMB", plain("private_bytes", MB)),
    ]
    return table(record, f"Nested values; system calls for {sizes}: {found}", (NESTED,), [NESTED], columns)


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


def _suffix(threads: int) -> str:
    return "" if threads == 1 else f"-{threads}"


def _was_cut(sample: Sample) -> bool:
    return any("answered" in each.get("notes", {}) and "checksum" not in each for each in sample.processes)


def _disk(sample: Sample) -> Value:
    return sample.numbers["disk_bytes"] / MB if "disk_bytes" in sample.numbers else None
