"""What every record with passes says: the time of passes, and what limits its numbers. Pure functions over a record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from onecopy_bench.engine import pages
from onecopy_bench.engine.record import Record, Sample
from onecopy_bench.engine.tables import Spread
from onecopy_bench.scenarios.open.shown import first_touch


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
    return (*_places(record), *first_touch(record), _cold(record), *pages.limits(record))


def _places(record: Record) -> Iterator[str]:
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
