"""From the samples of `bench structs` to tables and sentences: pure functions over what a run has left behind."""

from __future__ import annotations

import dataclasses
import statistics
from typing import TYPE_CHECKING, Any

from onecopy_bench import record as records
from onecopy_bench.passes.tables import MISSING, Table, number
from onecopy_bench.report.sentences import ENOUGH_ROUNDS
from onecopy_bench.report.summary import MB, Spread
from onecopy_bench.structs.program import ASKED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from onecopy_bench.record import Cache, Sample
    from onecopy_bench.scenarios.structs import Measured

Value = float | None
Rounds = dict[int, float]
"""A number for each round in which there is one."""


def _note(name: str, unit: float) -> Callable[[Sample], Value]:
    def value(sample: Sample) -> Value:
        noted = [reading.notes[name] for reading in sample.readings if name in reading.notes]
        return float(max(noted)) / unit if noted else None

    return value


def _all_ms(sample: Sample) -> Value:
    """Until all questions are answered: not where time was up before."""
    whole = all(reading.checksum is not None for reading in sample.readings)
    return max(reading.resident_ns for reading in sample.readings) / 1e6 if whole else None


def _rate(sample: Sample) -> Value:
    """Answers per second, from opening to the end."""
    answered = _note("answered", 1)(sample)
    return None if answered is None else answered / max(r.resident_ns for r in sample.readings) * 1e9


TIMES: dict[str, Callable[[Sample], Value]] = {
    "open\nms": lambda s: max(reading.open_ns for reading in s.readings) / 1e6,
    "1\nanswer": _note("first_ns", 1e6),
    "1,000\nanswers": _note("few_ns", 1e6),
    "all\nanswers": _all_ms,
}
"""Milliseconds since the process was let go, by the words of a table."""

AGAIN = _note("again_ns", 1e6)

CLAIMS: tuple[tuple[str, str, Cache, Callable[[Sample], Value], str], ...] = (
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


def _memory(field: str) -> Callable[[Sample], Value]:
    return lambda s: sum(getattr(r.held, field) - getattr(r.empty, field) for r in s.readings) / MB


def values(measured: Measured, name: str, cache: Cache, processes: int, value: Callable[[Sample], Value]) -> Rounds:
    """Return a number of each good sample of a configuration in a case, by round."""
    good = [
        s
        for s in measured.record.samples
        if (s.configuration, s.cache, s.processes) == (name, cache, processes) and s.state == "ok"
    ]
    found = {sample.round: value(sample) for sample in good}
    return {number: each for number, each in found.items() if each is not None}


def tables_of(measured: Measured) -> list[Table]:
    """Return all tables: times for each state of the cache and number of threads, then memory, then nested values."""
    caches: tuple[Cache, ...] = measured.record.options.caches
    tables = [time_table(measured, cache, threads) for cache in caches for threads in measured.options.threads]
    if measured.memory_bytes is None:
        tables.append(memory_table(measured))
    else:
        tables.append(rate_table(measured))
    return tables + ([nested_table(measured)] if measured.nested else [])


def time_table(measured: Measured, cache: Cache, threads: int) -> Table:
    """Return what it takes from the start of opening to the answers, and to answer once more."""
    rows = []
    for mode in _modes(measured):
        if mode == "none" or (mode not in ASKED and threads != 1):
            continue
        name = _named(mode, threads)
        columns = (*TIMES.values(), AGAIN)
        cells = [_cell(values(measured, name, cache, 1, column).values()) for column in columns]
        if any(cell != MISSING for cell in cells):
            rows.append((mode, *cells))
        elif reason := _reason(measured, name, cache):
            rows.append((mode, reason, *[""] * (len(columns) - 1)))
    place = "" if measured.memory_bytes is None else f", in {measured.memory_bytes / MB:.0f} MB"
    return Table(f"{cache}, {_words(threads)}{place}: ms since the start", ("", *TIMES, "all,\nagain"), tuple(rows))


def rate_table(measured: Measured) -> Table:
    """Return how many answers a second a process gives, opening included, and what it reads for them."""
    header = ("", *(f"{_words(n)}\nanswers/s" for n in measured.options.threads), "major\nfaults", "read from\ndisk MB")
    rows = []
    for mode in _modes(measured):
        rates = [_cell(values(measured, _named(mode, n), "cold", 1, _rate).values()) for n in measured.options.threads]
        faults, read = (
            _cell(values(measured, mode, "cold", 1, value).values())
            for value in (lambda s: float(s.readings[0].major_faults), _disk)
        )
        if any(cell != MISSING for cell in rates):
            rows.append((mode, *rates, faults, read))
    return Table("Answers, opening included", header, tuple(rows))


def memory_table(measured: Measured) -> Table:
    """Return what one process and several processes hold, and what short processes take."""
    count, fresh = measured.options.processes, measured.options.fresh
    header = ["", "private\nMB", "peak\nRSS MB"]
    header += [f"PSS of {count}\nMB", "of the\nfile"] if count > 1 else []
    header += [f"{fresh} short,\nms"] if fresh else []
    rows = []
    for mode in _modes(measured):
        private = values(measured, mode, "warm", 1, _memory("anonymous"))
        peak = values(measured, mode, "warm", 1, _note("max_rss", MB))
        cells = [_cell(private.values()), _cell(peak.values())]
        if count > 1:
            pss = values(measured, mode, "warm", count, _memory("pss"))
            size = measured.record.file.size / MB
            cells += [_cell(pss.values()), _cell(each / size for each in pss.values())]
        if fresh:
            short = values(measured, f"{mode}-fresh", "warm", 1, lambda s: s.readings[0].resident_ns / 1e6)
            cells.append(_cell(short.values()))
        rows.append((mode, *cells))
    return Table("Memory above an empty process, and short processes", tuple(header), tuple(rows))


def nested_table(measured: Measured) -> Table:
    """Return what nested values cost."""
    rows = measured.nested
    cells = (
        _cell(each.open_ns / 1e6 for each in rows),
        _cell(each.records_ns / 1e6 for each in rows),
        _cell(each.open_ns / each.records_ns for each in rows),
        _cell(each.private_bytes / MB for each in rows),
        " and ".join(MISSING if calls is None else str(calls) for calls in measured.system_calls.values()),
    )
    sizes = " and ".join(f"{count:,}" for count in measured.system_calls)
    header = ("values", "open\nms", "records\nms", "ratio", "private\nMB", "system\ncalls")
    title = f"Nested values; system calls of a process with {sizes} of them"
    return Table(title, header, ((f"{rows[0].count:,}", *cells),))


def sentences_of(measured: Measured) -> list[str]:
    """Return what the tables say in words, and what limits them."""
    said = [sentence for claim in CLAIMS if (sentence := _compared(measured, *claim)) is not None]
    failed = {(s.configuration, s.state, s.reason) for s in measured.record.samples if s.state != "ok"}
    said += [f"{name}: {state}: {reason}" for name, state, reason in sorted(failed)]
    late = {s.configuration for s in measured.record.samples if s.state == "ok" and _was_cut(s)}
    if late:
        said.append(f"Stopped after {measured.options.limit_s} s, before all answers: {', '.join(sorted(late))}.")
    warm = [s.cached_before for s in measured.record.samples if s.cache == "cold" and s.cached_before]
    if warm:
        said.append(f"NOT cold: up to {max(warm) / MB:.1f} MB of a file were still cached.")
    if measured.options.rounds < ENOUGH_ROUNDS:
        said.append(f"{measured.options.rounds} rounds: a published number needs {ENOUGH_ROUNDS}.")
    return said


def to_json(measured: Measured) -> str:
    """Return the record as JSON, with what belongs to this scenario, its tables and its sentences."""
    plain = {name: getattr(measured, name) for name in ("kmers", "questions", "memory_bytes", "system_calls")}
    extra: dict[str, Any] = {
        **plain,
        "options": dataclasses.asdict(measured.options),
        "nested": [dataclasses.asdict(each) for each in measured.nested],
    }
    tables = [dataclasses.asdict(table) for table in tables_of(measured)]
    return records.to_json(measured.record, structs=extra, tables=tables, sentences=sentences_of(measured))


def to_markdown(measured: Measured) -> str:
    """Return heading, tables and sentences as Markdown."""
    tables = [table.markdown() for table in tables_of(measured)]
    return "\n\n".join([heading(measured), *tables, *sentences_of(measured)]) + "\n"


def heading(measured: Measured) -> str:
    """Return what was measured, in one line."""
    rounds = measured.options.rounds
    return (
        f"structs: {measured.record.file.size / MB:.1f} MB, {measured.kmers:,} k-mers,"
        f" {measured.questions:,} questions, {rounds} round{'' if rounds == 1 else 's'}"
    )


def _compared(
    measured: Measured, above: str, below: str, cache: Cache, value: Callable[[Sample], Value], words: str
) -> str | None:
    """Return a sentence with the median of the ratios of two rows, round by round; None where there is no pair."""
    tops, bottoms = (values(measured, name, cache, 1, value) for name in (above, below))
    ratios = [tops[n] / bottoms[n] for n in tops if bottoms.get(n)]
    return words.format(number(statistics.median(ratios))) if ratios else None


def _modes(measured: Measured) -> list[str]:
    names = (entry.name for entry in measured.record.entries)
    return [name for name in names if "-" not in name]


def _named(mode: str, threads: int) -> str:
    return mode if threads == 1 else f"{mode}-{threads}"


def _words(threads: int) -> str:
    return f"{threads} thread{'' if threads == 1 else 's'}"


def _was_cut(sample: Sample) -> bool:
    return any("answered" in reading.notes and reading.checksum is None for reading in sample.readings)


def _disk(sample: Sample) -> Value:
    return None if sample.disk_bytes is None else sample.disk_bytes / MB


def _reason(measured: Measured, name: str, cache: Cache) -> str:
    lost = (s for s in measured.record.samples if (s.configuration, s.cache, s.processes) == (name, cache, 1))
    return next((s.state for s in lost if s.state != "ok"), "")


def _cell(found: Iterable[float]) -> str:
    """Return a median and, below it, the extremes; two digits behind the point, so that six columns fit a terminal."""
    spread = Spread.of(found)
    if spread is None:
        return MISSING
    median, low, high = (number(round(value, 2)) for value in (spread.median, spread.low, spread.high))
    return f"{median}\n({low}-{high})" if low != high else median
