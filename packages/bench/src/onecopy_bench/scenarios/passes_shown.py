"""What records of `bench warm` and `bench crossover` say. Pure functions over a record.

A cell of crossover is a place, an order, a share and a number of passes; its time is that of opening, warming and all
passes, the median of the rounds. Methods within 5 % of the fastest share the win.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from onecopy_bench.engine import scenario
from onecopy_bench.engine.machine.limits import OUT_OF_MEMORY
from onecopy_bench.engine.record import Record, Row, Sample
from onecopy_bench.engine.tables import MB, MISSING, Spread, Table, counted, number, with_extremes
from onecopy_bench.files.sampling import above
from onecopy_bench.scenarios.open_shown import first_touch, times_transfer


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


def ends_of(sample: Sample) -> list[int]:
    """Return when each pass ended, in ns since the start of opening."""
    return list(sample.processes[0]["notes"].get("passes_ns", ())) if sample.processes else []


def first_pass_ms(sample: Sample) -> float | None:
    """Return the time of opening, warming and the first pass; None where it did not end."""
    return next((end / 1e6 for end in ends_of(sample)), None)


def pass_ms(samples: Iterable[Sample], number: int) -> Spread | None:
    """Return the spread of the time of opening, warming and `number` passes; None where no sample got so far."""
    ends = (ends_of(sample) for sample in samples if sample.state == "ok")
    return Spread.of(each[number - 1] / 1e6 for each in ends if len(each) >= number)


def second_pass_ms(samples: Iterable[Sample]) -> Spread | None:
    """Return the spread of the time of the second pass alone."""
    return Spread.of((each[1] - each[0]) / 1e6 for each in map(ends_of, samples) if len(each) > 1)


def device_rate(record: Record, place: dict[str, Any]) -> Spread | None:
    """Return what O_DIRECT reads of the device in a place, into reused buffers, in MB/s: the best thread count."""
    names = [row.name for row in record.rows if row.name.startswith("o_direct-reused-")]
    spreads = [
        Spread.of(
            place["size"] / s.processes[0]["open_ns"] * 1e3 for s in of(record, n, place["name"]) if s.state == "ok"
        )
        for n in names
    ]
    return max((spread for spread in spreads if spread is not None), key=lambda spread: spread.median, default=None)


def notes_of(record: Record) -> tuple[str, ...]:
    """Return what limits the numbers of a record, one sentence each."""
    return (*_place_notes(record), *first_touch(record), _cold(record), *scenario.limits(record))


def _place_notes(record: Record) -> Iterator[str]:
    for place in places_of(record):
        rate, ahead, limit = device_rate(record, place), place["read_ahead_bytes"], place["device_bytes_per_s"]
        read = "" if rate is None else f"; O_DIRECT reads {rate.median:.0f} MB/s"
        kib = "unknown" if ahead is None else f"{ahead // 1024} KiB"
        yield f"{place['name']}: {place['detail']}, {place['size'] / 1e6:.1f} MB, read-ahead {kib}{read}."
        if limit is not None and rate is not None and rate.median * 1e6 > 1.25 * limit:
            after = "after the 0.1 s that the kernel lets through"  # more than that is all a small file needs
            yield f"{place['name']}: THE THROTTLE DOES NOT ACT: the limit is {limit / 1e6:.0f} MB/s, {after}."


def _cold(record: Record) -> str:
    used = {row.name for row in record.rows if row.uses_cache}
    asked = [s.numbers.get("cached_before") for s in record.samples if s.row in used and s.processes]
    rest = [cached for cached in asked if cached]
    if unknown := asked.count(None):
        return f"It is unknown what was cached before {unknown} of {len(asked)} samples."
    if rest:
        return f"NOT cold: up to {max(rest) / 1e6:.1f} MB were cached before {len(rest)} of {len(asked)} samples."
    return f"Cold: the kernel counted 0 cached bytes of the file before each of {len(asked)} samples."


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
    return Spread.of(s.processes[0]["open_ns"] / 1e6 for s in samples if s.state == "ok")


def warm_tables(record: Record) -> Iterator[Table]:
    """Yield a table for each place and order."""
    for place in places_of(record):
        for order in record.options["orders"]:
            words = "the order of the file" if order == "file" else "shuffled order"
            rows = tuple(_cells(row, place, samples) for row, samples in _rows_of(record, place, order))
            yield Table(f"{place['name']}, touched in {words}", HEADER, rows)


def _cells(row: Row, place: dict[str, Any], samples: list[Sample]) -> tuple[str, ...]:
    good = [sample for sample in samples if sample.state == "ok"]

    def median(column: Callable[[dict[str, Any]], float | None]) -> str:
        known = [value for s in good if (value := column(s.processes[0])) is not None]
        return number(statistics.median(known)) if known else MISSING

    stays = not row.name.startswith("o_direct-reused")
    times = resident_ms(row, samples)
    return (
        row.name,
        with_extremes(times) if times is not None else _instead(place, samples),
        with_extremes(second_pass_ms(good)),
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


def warm_findings(record: Record) -> Iterator[str]:
    """Yield how `onecopy.warm` compares in each table."""
    for place in places_of(record):
        for order in record.options["orders"]:
            found = {r.name: resident_ms(r, s) for r, s in _rows_of(record, place, order) if r.role == "row"}
            medians = {name: spread.median for name, spread in found.items() if spread}
            if OURS in medians:
                yield f"{place['name']}, {order}: {_standing(medians)}"


def _standing(medians: dict[str, float]) -> str:
    ours, best = medians[OURS], min(medians, key=medians.__getitem__)
    if best == OURS:
        return f"{OURS} is the fastest, {number(ours)} ms."
    behind = ours / medians[best]
    words = "within 5 % of" if behind <= TIE else f"{100 * (behind - 1):.0f} % behind"
    return f"{OURS}, {number(ours)} ms, is {words} the fastest, {best}, {number(medians[best])} ms."


def described(record: Record) -> str:
    """Return what was measured, in one line."""
    size = record.data["size"] / MB
    return f"{record.scenario} {record.data['file']}: {size:.1f} MB, cold, {counted(record.rounds, 'round')}"


COPY = "copy"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One cell.

    Attributes
    ----------
    times
        Milliseconds by method, fastest median first; only methods that got so far.
    winners
        The fastest and all within 5 % of it, fastest first; empty where no method got so far.
    margin
        Median of the next one divided by that of the fastest; None where all are winners.
    copy_ratio
        Median of "copy" divided by that of the fastest mapping; None where one of them is missing.
    lost
        Methods without a single good sample in this cell, and what became of them.
    """

    place: str
    order: str
    share: float
    passes: int
    times: dict[str, Spread]
    winners: tuple[str, ...]
    margin: float | None
    copy_ratio: float | None
    lost: dict[str, str]


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
    times = dict(sorted(known.items(), key=lambda pair: pair[1].median))
    medians = {name: spread.median for name, spread in times.items()}
    best = next(iter(medians.values()), 0.0)
    winners = tuple(name for name, median in medians.items() if median <= TIE * best)
    behind = [median for name, median in medians.items() if name not in winners]
    maps = [median for name, median in medians.items() if name != COPY]
    ratio = medians[COPY] / min(maps) if COPY in medians and maps else None
    return Verdict(place, order, share, passes, times, winners, behind[0] / best if behind else None, ratio, lost)


def winner_text(verdict: Verdict) -> str:
    """Return the text of a cell: the winners and their time, and on further lines the next one and the copy."""
    if not verdict.winners:
        return "none got so far"
    lines = [f"{' = '.join(verdict.winners)}", f"{number(verdict.times[verdict.winners[0]].median)} ms"]
    behind = next((name for name in verdict.times if name not in verdict.winners), None)
    if behind is not None and verdict.margin is not None:
        lines.append(f"{behind} +{100 * (verdict.margin - 1):.0f} %")
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
            rows = (
                (_percent(share), *(winner_text(judged[place["name"], order, share, p]) for p in passes))
                for share in shares
            )
            yield Table(f"{place['name']}, {_words(order)}", header, tuple(rows))
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
    good = [sample for sample in samples if sample.state == "ok"]
    anonymous, pss = (Spread.of(map(above(name), good)) for name in ("anonymous", "pss"))
    if anonymous is None or pss is None:
        return _fate(samples) if samples else MISSING
    return f"{max(anonymous.median, 0):.0f} / {max(pss.median, 0):.0f}"


def _read(samples: list[Sample]) -> str:
    read = Spread.of(
        s.processes[0]["read_bytes"] for s in samples if s.state == "ok" and "read_bytes" in s.processes[0]
    )
    if read is None:
        return _fate(samples) if samples else MISSING
    return number(read.median / MB)


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


def _words(order: str) -> str:
    return "touched in the order of the file" if order == "file" else "touched in random order"


def legend(record: Record) -> str:
    """Return how to read the tables."""
    star = "" if times_transfer(record) else " Times of copies hold for this machine alone, see the notes."
    return (
        "Median time of opening, warming and all passes; '=': within 5 % of each other; then the next one, and the"
        f" copy against the fastest mapping.{star}"
    )
