"""The numbers of `bench open`: what is computed from a sample, and how rows compare.

Of N processes the slowest counts for times and the sum for memory, interpreters taken off. Times are in ms, memory in
MB (10**6 bytes).
"""

from __future__ import annotations

from collections.abc import Callable

from onecopy_bench.engine.record import Case, Record, Sample
from onecopy_bench.engine.tables import EMPTY, MB, Compute, Spread, of_samples
from onecopy_bench.files.sampling import above, slowest, total

GIB = 2**30
OURS = ("map", "map+warm")
"""The rows in which onecopy does what it is for; the faster of them is compared with the peers."""

OF_ONECOPY = (*OURS, "map+verify", "copy")
"""All rows that are not peers."""

MARGIN = 0.05
"""A row is ahead of another where its median time is shorter by more than this share."""

SLOW_MEMORY_GB_PER_S = 3.0
"""Below this rate of first touch, times of copying loaders do not carry over to other machines."""

WHOLE: Case = ()
"""The case of ceilings and controls: they are taken once for all cases."""

resident_ms = slowest("resident_ns")


def warm_ms(sample: Sample) -> float:
    """Return the time of the slowest process until its warming call returned, or until all was touched."""
    return float(max(each.get("warm_ns", each["resident_ns"]) for each in sample.processes)) / 1e6


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


def ahead_of_ours(record: Record, case: Case) -> list[tuple[str, float]]:
    """Return the rows of others that are ahead of our best one, each with its share of our time, the best first."""
    found = {name: ratio_to_ours(record, name, case) for name in names_of(record) if name not in OF_ONECOPY}
    ahead = [(name, ratio.median) for name, ratio in found.items() if ratio and ratio.median < 1 - MARGIN]
    return sorted(ahead, key=lambda pair: pair[1])


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
    found = {
        name: Spread.of(_touch_gb_per_s(s) for s in record.samples if s.row == name and s.state == "ok")
        for name in names_of(record, "control")
    }
    return {name: spread for name, spread in found.items() if spread is not None}


def _touch_gb_per_s(sample: Sample) -> float:
    (each,) = sample.processes
    return float(each["notes"]["bytes"]) / max(float(each["resident_ns"] - each["open_ns"]), 1.0)


def times_transfer(record: Record) -> bool:
    """Return whether fresh memory is known to be fast enough here for times of copies to carry over."""
    rates = touch_rates(record)
    return bool(rates) and all(rate.median >= SLOW_MEMORY_GB_PER_S for rate in rates.values())


def paired_ratio(
    record: Record, one: tuple[str, Case], other: tuple[str, Case], time: Callable[[Sample], float] = resident_ms
) -> tuple[Spread, int] | None:
    """Return the time of one row in a case divided by that of another, by round, and how many pairs."""
    below = {sample.round: time(sample) for sample in record.of(*other)}
    ratios = [time(s) / below[s.round] for s in record.of(*one) if below.get(s.round, 0) > 0]
    spread = Spread.of(ratios)
    return None if spread is None else (spread, len(ratios))


def best_ceiling(record: Record, kind: str) -> str | None:
    """Return the O_DIRECT row of a kind ("fresh" or "reused") with the shortest median time."""
    names = [name for name in names_of(record, "ceiling") if name.startswith(f"o_direct-{kind}-")]
    times = {name: time for name in names if (time := median(resident, record, name, WHOLE)) is not None}
    return min(times, key=times.__getitem__) if times else None
