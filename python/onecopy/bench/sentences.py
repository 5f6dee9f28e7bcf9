"""What a run of `open` says, in plain sentences: computed from what was measured, and nothing else.

Each function looks at one question and returns a sentence, or None where the record cannot answer. A sentence
never claims more than its numbers: if four processes hold a file more than once, that is what it says. The
findings come first, then what limits them: cache states that were not reached, busy machines, few rounds,
slow memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from onecopy.bench import quiet, summary
from onecopy.bench.summary import MB

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onecopy.bench.record import Record
    from onecopy.bench.summary import Row, Spread

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
    """Return everything worth saying about a record, findings first."""
    rows = {row.entry.name: row for row in summary.rows_of(record)}
    findings = (sharing(record, rows), peers(record), *ceilings(record), agreement(record))
    limits = (*failures(record), cache_state(record), slow_memory(record), busy(record), few_rounds(record))
    return (
        *(Sentence("finding", text) for text in findings if text),
        *(Sentence("limit", text) for text in limits if text),
    )


def sharing(record: Record, rows: dict[str, Row]) -> str | None:
    """Say how often N processes hold the file, mapped and copied."""
    held = _above_empty(rows.get("map"))
    if held is None:
        return None
    n, size = record.options.processes, record.file.size / MB
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


def ceilings(record: Record) -> Iterable[str]:
    """Say which share of the device's rate `map+warm` reaches, where it started cold."""
    if not record.options.cold:
        return
    who = _who(record)
    for kind, where in (("fresh", "into fresh huge-page memory"), ("reused", "into a reused 4 MiB buffer")):
        best = summary.best_ceiling(record, kind)
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


def failures(record: Record) -> Iterable[str]:
    """Say what went wrong, one sentence per configuration and state."""
    for role in ("row", "ceiling", "control"):
        for row in summary.rows_of(record, role):
            for failure in row.failures:
                total = row.good + sum(other.times for other in row.failures)
                yield (f"{row.entry.name}: {failure.times} of {total} samples {failure.state} ({failure.reason}).")


def cache_state(record: Record) -> str | None:
    """Say whether the declared state of the page cache was reached before every sample."""
    used = {entry.name for entry in record.entries if entry.uses_cache}
    before = [s.cached_before for s in record.samples if s.configuration in used and s.started]
    if not before:
        return None
    known = [cached for cached in before if cached is not None]
    size = record.file.size
    if len(known) < len(before):
        return f"Nobody knows what was cached before {len(before) - len(known)} of {len(before)} samples."
    if record.options.cold:
        rest = [cached for cached in known if cached > 0]
        if not rest:
            return f"Cold: the kernel counted 0 cached bytes of the file before each of {len(known)} samples."
        return (
            f"NOT cold: up to {max(rest) / MB:.1f} of {size / MB:.1f} MB were still cached"
            f" before {len(rest)} of {len(known)} samples."
        )
    rest = [cached for cached in known if cached < size]
    if not rest:
        return f"Warm: the whole file was cached, always filled alike, before each of {len(known)} samples."
    return (
        f"NOT warm: as little as {min(rest) / MB:.1f} of {size / MB:.1f} MB was cached"
        f" before {len(rest)} of {len(known)} samples."
    )


def times_transfer(record: Record) -> bool:
    """Tell whether fresh memory is known to be fast enough here for times of copies to mean something."""
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
    taken = [sample for sample in record.samples if sample.started]
    noisy = [s for s in taken if s.idle_share is None or s.idle_share <= quiet.ENOUGH]
    if not noisy:
        return None
    return (
        f"{len(noisy)} of {len(taken)} samples were taken on a machine that was not known to be"
        f" {quiet.ENOUGH:.0%} idle: read the times as rough."
    )


def few_rounds(record: Record) -> str | None:
    """Warn where there are too few rounds for a number to be published."""
    rounds = record.options.iterations
    if rounds >= ENOUGH_ROUNDS:
        return None
    return f"{rounds} round{'s' if rounds != 1 else ''}: a published number needs {ENOUGH_ROUNDS}."


def state_of(record: Record) -> str:
    """Return the declared state of the cache as the first word of a sentence."""
    return "Cold" if record.options.cold else "Warm"


def _who(record: Record) -> str:
    n = record.options.processes
    return f"map+warm, the slowest of {n} processes," if n > 1 else "map+warm"


def _mb(megabytes: float) -> str:
    return f"{megabytes:.0f} MB" if megabytes >= 10 else f"{megabytes:.3g} MB"


def _ratio(spread: Spread) -> str:
    return f"{spread.median:.2f} ({spread.low:.2f}-{spread.high:.2f})"


def _pairs(number: int) -> str:
    return f"median of {number} paired rounds" if number > 1 else "one round"
