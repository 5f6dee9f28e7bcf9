"""What a run of `open` says about one case, in plain sentences: computed from what was measured, and nothing else.

Each function looks at one question and returns a sentence, or None where the record cannot answer. A sentence
never claims more than its numbers: if four processes hold a file more than once, that is what it says. The
findings come first, then what limits them: cache states that were not reached, busy machines, few rounds,
slow memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from onecopy_bench.machine import quiet
from onecopy_bench.report import summary
from onecopy_bench.report.summary import MB

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onecopy_bench.record import Record
    from onecopy_bench.report.summary import Row, Spread

SLOW_MEMORY_GB_PER_S = 3.0
"""Below this rate of first touch, times of copying loaders say nothing about other machines."""

ENOUGH_ROUNDS = 7
"""Rounds that a published number needs."""

ONCE = 1.05
"""Up to this multiple of the file's size, a file counts as held once."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """One plain sentence; a "limit" says how far the findings go."""

    kind: Literal["finding", "limit"]
    text: str


def sentences_of(record: Record) -> tuple[Sentence, ...]:
    """Return everything worth saying about a record of one case, findings first."""
    return (*sentences_of_case(record), *sentences_of_run(record))


def sentences_of_case(record: Record) -> tuple[Sentence, ...]:
    """Return what is worth saying about the case of a record, findings first."""
    rows = {row.entry.name: row for row in summary.rows_of(record)}
    findings = (sharing(record, rows), peers(record), leaders(record), *ceilings(record), agreement(record))
    limits = (*failures(record, "row"), cache_state(record), busy(record))
    return (
        *(Sentence("finding", text) for text in findings if text),
        *(Sentence("limit", text) for text in limits if text),
    )


def sentences_of_run(record: Record) -> tuple[Sentence, ...]:
    """Return what limits a whole run, whatever its cases."""
    limits = (
        *failures(record, "ceiling"),
        *failures(record, "control"),
        slow_memory(record),
        few_rounds(record),
        absent(record),
    )
    return tuple(Sentence("limit", text) for text in limits if text)


def sharing(record: Record, rows: dict[str, Row]) -> str | None:
    """Say how often N processes hold the file, mapped and copied."""
    held = _above_empty(rows.get("map"))
    if held is None:
        return None
    n, size = record.processes, record.file.size / MB
    copies = _above_empty(rows.get("copy"))
    against = f" against {_mb(copies)} for copies" if copies is not None else ""
    if n == 1:
        private = rows["map"].values["anonymous_above_empty_mb"].median
        return (
            f"1 process holds the {_mb(size)} in the page cache, where others can share them,"
            f" and {_mb(max(private, 0))} of its own{against}."
        )
    total = f"{_mb(held)} in total (PSS minus {n} empty interpreters){against}"
    times = held / size
    if times <= ONCE:
        return f"{n} processes hold {_mb(size)} once instead of {n} times: {total}."
    return f"{n} processes hold {_mb(size)} {times:.2f} times, not once: {total}."


def _above_empty(row: Row | None) -> float | None:
    return None if row is None else row.median("pss_above_empty_mb")


def peers(record: Record) -> str | None:
    """Say how `map+warm` compares with a plain NumPy mapping, paired by round."""
    touched = summary.paired_ratio(record, "map+warm", "numpy.memmap")
    warmed = summary.paired_ratio(record, "map+warm", "numpy.memmap", summary.warm_ms)
    if touched is None or warmed is None:
        return None
    return (
        f"{state_of(record)}, {_who(record)} takes {_ratio(touched[0])} of the time of a plain numpy.memmap"
        f" until every page has been touched, {_ratio(warmed[0])} until warm() returns"
        f" ({_pairs(touched[1])})."
    )


def leaders(record: Record) -> str | None:
    """Say which rows of others are ahead of ours by more than 5 %, or that none is."""
    ours, ahead = summary.best_of_ours(record), summary.ahead_of_ours(record)
    if ours is None:
        return None
    if not ahead:
        return f"{state_of(record)}, no row is more than {summary.MARGIN:.0%} ahead of {ours.entry.name}."
    rows = ", ".join(f"{row.entry.name} ({lead(record, row, ratio)})" for row, ratio in ahead)
    return f"{state_of(record)}, AHEAD of {ours.entry.name} by more than {summary.MARGIN:.0%}: {rows}."


def lead(record: Record, row: Row, ratio: float) -> str:
    """Return how far a row is ahead of ours, without a number where that would compare copies with maps in vain."""
    if summary.copies(record, row) and not times_transfer(record):
        return "it copies, and no ratio is claimed here"
    return f"{ratio:.2f} of our time"


def ceilings(record: Record) -> Iterable[str]:
    """Say which share of the device's rate `map+warm` reaches, where it started cold.

    A reading into fresh memory is a copy: it is told only where times of copies mean something.
    """
    if not record.cold:
        return
    who = _who(record)
    for kind, where in (("fresh", "into fresh huge-page memory"), ("reused", "into a reused 4 MiB buffer")):
        best = summary.best_ceiling(record, kind) if kind == "reused" or times_transfer(record) else None
        warmed = summary.paired_ratio(record, best, "map+warm", summary.warm_ms) if best else None
        touched = summary.paired_ratio(record, best, "map+warm") if best else None
        if best is not None and warmed is not None and touched is not None:
            threads = best.rsplit("-", 1)[1]
            yield (
                f"Cold, {who} reaches {_ratio(warmed[0])} of the rate of O_DIRECT x {threads} {where}"
                f" when warm() returns, {_ratio(touched[0])} when every page has been touched"
                f" (against the best of its kind, {_pairs(warmed[1])})."
            )


def agreement(record: Record) -> str | None:
    """Say that the touched bytes were those of the file, and for how many samples that was checked."""
    checked = {
        sample.configuration
        for sample in record.samples
        if sample.state == "ok" and any(reading.checksum is not None for reading in sample.readings)
    }
    wrong = {sample.configuration for sample in record.samples if sample.state == "wrong data"}
    if not checked or wrong:
        return None
    return f"Checksums of the touched bytes agree with a plain read of the file: {len(checked)} rows."


def failures(record: Record, role: str) -> Iterable[str]:
    """Say what went wrong in the entries of one role, one sentence per configuration and state."""
    for row in summary.rows_of(record, role):
        for failure in row.failures:
            total = row.good + sum(other.times for other in row.failures)
            yield (f"{row.entry.name}: {failure.times} of {total} samples {failure.state} ({failure.reason}).")


def cache_state(record: Record) -> str | None:
    """Say whether the declared state of the page cache was reached before every sample.

    Each sample is held against the file that its row loads: some peers have one of their own.
    """
    sizes = {entry.name: entry.size or record.file.size for entry in record.entries if entry.uses_cache}
    before = [
        (s.cached_before, sizes[s.configuration]) for s in record.samples if s.configuration in sizes and s.started
    ]
    if not before:
        return None
    known = [(cached, size) for cached, size in before if cached is not None]
    if len(known) < len(before):
        return f"Nobody knows what was cached before {len(before) - len(known)} of {len(before)} samples."
    state = "cold" if record.cold else "warm"
    off = [(cached, size) for cached, size in known if (cached > 0 if record.cold else cached < size)]
    if off:
        cached, size = max(off) if record.cold else min(off)
        much = "up to" if record.cold else "as little as"
        still = "were still" if record.cold else "was"
        return (
            f"NOT {state}: {much} {cached / MB:.1f} of {size / MB:.1f} MB {still} cached"
            f" before {len(off)} of {len(known)} samples."
        )
    if record.cold:
        return f"Cold: the kernel counted 0 cached bytes of the file before each of {len(known)} samples."
    return f"Warm: the whole file was cached, always filled alike, before each of {len(known)} samples."


def times_transfer(record: Record) -> bool:
    """Return whether fresh memory is known to be fast enough here for times of copies to mean something."""
    rates = summary.touch_rates(record)
    return bool(rates) and all(rate.median >= SLOW_MEMORY_GB_PER_S for rate in rates.values())


def slow_memory(record: Record) -> str | None:
    """Warn where fresh memory is slower than disks can be, or nobody knows."""
    rates = summary.touch_rates(record)
    if times_transfer(record):
        return None
    if not rates:
        return "Without a control, times of copies against maps cannot be taken to other machines."
    slowest = min(rates.values(), key=lambda rate: rate.median)
    return (
        f"Fresh anonymous memory is touched at {slowest.median:.1f} GB/s here, below"
        f" {SLOW_MEMORY_GB_PER_S:g} GB/s: times of copies against maps do not transfer to other machines;"
        " megabytes do."
    )


def busy(record: Record) -> str | None:
    """Warn where samples were taken beside other work, or without looking."""
    noisy, taken = quiet.busy_of(record.samples)
    if not noisy:
        return None
    return (
        f"{noisy} of {taken} samples were taken on a machine that was not known to be"
        f" {quiet.ENOUGH:.0%} idle: read the times as rough."
    )


def few_rounds(record: Record) -> str | None:
    """Warn where there are too few rounds for a number to be published."""
    rounds = record.options.iterations
    if rounds >= ENOUGH_ROUNDS:
        return None
    return f"{rounds} round{'s' if rounds != 1 else ''}: a published number needs {ENOUGH_ROUNDS}."


def absent(record: Record) -> str | None:
    """Say which rows this machine could not have, by reason."""
    reasons: dict[str, list[str]] = {}
    for row in record.absent:
        reasons.setdefault(row.reason, []).append(row.name)
    words = "; ".join(f"{', '.join(names)} ({reason})" for reason, names in reasons.items())
    return f"Not compared: {words}." if words else None


def state_of(record: Record) -> str:
    """Return the declared state of the cache as the first word of a sentence."""
    return "Cold" if record.cold else "Warm"


def _who(record: Record) -> str:
    n = record.processes
    return f"map+warm, the slowest of {n} processes," if n > 1 else "map+warm"


def _mb(megabytes: float) -> str:
    return f"{megabytes:.0f} MB" if megabytes >= 10 else f"{megabytes:.3g} MB"


def _ratio(spread: Spread) -> str:
    return f"{spread.median:.2f} ({spread.low:.2f}-{spread.high:.2f})"


def _pairs(number: int) -> str:
    return f"median of {number} paired rounds" if number > 1 else "one round"
