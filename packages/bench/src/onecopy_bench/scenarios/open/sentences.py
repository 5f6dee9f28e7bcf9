"""What a run of `open` says about one case, in plain sentences: computed from what was measured, and nothing else.

Each function answers one question and returns a sentence, or None where the record cannot answer. A sentence
never claims more than its numbers: if four processes hold a file more than once, that is what it says. The
findings come first, then what limits them: cache states that were not reached, busy machines, few rounds,
slow memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from onecopy_bench.engine.machine import quiet
from onecopy_bench.engine.pages import few_rounds
from onecopy_bench.engine.record import Record
from onecopy_bench.engine.tables import MB, Spread
from onecopy_bench.scenarios.open import summary
from onecopy_bench.scenarios.open.summary import SLOW_MEMORY_GB_PER_S, Case, Line, times_transfer

ONCE = 1.05
"""Up to this multiple of the file's size, a file counts as held once."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """One plain sentence; a "limit" says how far the findings go."""

    kind: Literal["finding", "limit"]
    text: str


def sentences_of_case(case: Case) -> tuple[Sentence, ...]:
    """Return what is worth saying about a case, findings first."""
    lines = {line.name: line for line in summary.lines_of(case)}
    findings = (sharing(case, lines), peers(case), leaders(case), *ceilings(case), agreement(case))
    limits = (*failures(case, "row"), cache_state(case), busy(case))
    return (
        *(Sentence("finding", text) for text in findings if text),
        *(Sentence("limit", text) for text in limits if text),
    )


def sentences_of_run(record: Record) -> tuple[Sentence, ...]:
    """Return what limits a whole run, whatever its cases."""
    case = summary.cases_of(record)[0]
    limits = (
        *failures(case, "ceiling"),
        *failures(case, "control"),
        slow_memory(record),
        *few_rounds(record),
        absent(record),
    )
    return tuple(Sentence("limit", text) for text in limits if text)


def sharing(case: Case, lines: dict[str, Line]) -> str | None:
    """Say how often N processes hold the file, mapped and copied."""
    held = _above_empty(lines.get("map"))
    if held is None:
        return None
    n, size = case.processes, case.size
    copies = _above_empty(lines.get("copy"))
    against = f" against {_mb(copies)} for copies" if copies is not None else ""
    if n == 1:
        private = lines["map"].values["anonymous_above_empty_mb"].median
        return (
            f"1 process holds the {_mb(size)} in the page cache, where others can share them,"
            f" and {_mb(max(private, 0))} of its own{against}."
        )
    total = f"{_mb(held)} in total (PSS minus {n} empty interpreters){against}"
    times = held / size
    if times <= ONCE:
        return f"{n} processes hold {_mb(size)} once instead of {n} times: {total}."
    return f"{n} processes hold {_mb(size)} {times:.2f} times, not once: {total}."


def _above_empty(line: Line | None) -> float | None:
    return None if line is None else line.median("pss_above_empty_mb")


def peers(case: Case) -> str | None:
    """Say how `map+warm` compares with a plain NumPy mapping, paired by round."""
    touched = summary.paired_ratio(case, "map+warm", "numpy.memmap")
    warmed = summary.paired_ratio(case, "map+warm", "numpy.memmap", summary.warm_ms)
    if touched is None or warmed is None:
        return None
    return (
        f"{state_of(case)}, {_who(case)} takes {_ratio(touched[0])} of the time of a plain numpy.memmap"
        f" until every page has been touched, {_ratio(warmed[0])} until warm() returns"
        f" ({_pairs(touched[1])})."
    )


def leaders(case: Case) -> str | None:
    """Say which rows of others are ahead of ours by more than 5 %, or that none is."""
    ours, ahead = summary.best_of_ours(case), summary.ahead_of_ours(case)
    if ours is None:
        return None
    if not ahead:
        return f"{state_of(case)}, no row is more than {summary.MARGIN:.0%} ahead of {ours.name}."
    rows = ", ".join(f"{line.name} ({lead(case, line, ratio)})" for line, ratio in ahead)
    return f"{state_of(case)}, AHEAD of {ours.name} by more than {summary.MARGIN:.0%}: {rows}."


def lead(case: Case, line: Line, ratio: float) -> str:
    """Return how far a row is ahead of ours, without a number where that would compare copies with maps in vain."""
    if summary.copies(case, line) and not times_transfer(case.record):
        return "it copies, and no ratio is claimed here"
    return f"{ratio:.2f} of our time"


def ceilings(case: Case) -> Iterable[str]:
    """Say which share of the device's rate `map+warm` reaches, where it started cold.

    A reading into fresh memory is a copy: it is reported only where times of copies mean something.
    """
    if not case.cold:
        return
    who = _who(case)
    for kind, where in (("fresh", "into fresh huge-page memory"), ("reused", "into a reused 4 MiB buffer")):
        best = summary.best_ceiling(case, kind) if kind == "reused" or times_transfer(case.record) else None
        warmed = summary.paired_ratio(case, best, "map+warm", summary.warm_ms) if best else None
        touched = summary.paired_ratio(case, best, "map+warm") if best else None
        if best is not None and warmed is not None and touched is not None:
            threads = best.rsplit("-", 1)[1]
            yield (
                f"Cold, {who} reaches {_ratio(warmed[0])} of the rate of O_DIRECT x {threads} {where}"
                f" when warm() returns, {_ratio(touched[0])} when every page has been touched"
                f" (against the best of its kind, {_pairs(warmed[1])})."
            )


def agreement(case: Case) -> str | None:
    """Say that the touched bytes were those of the file, and for how many samples that was checked."""
    checked = {s.row for s in case.samples if s.state == "ok" and any("checksum" in each for each in s.processes)}
    if not checked or any(sample.state == "wrong data" for sample in case.samples):
        return None
    return f"Checksums of the touched bytes agree with a plain read of the file: {len(checked)} rows."


def failures(case: Case, role: str) -> Iterable[str]:
    """Say what went wrong in the rows of one role, one sentence per row and state."""
    for line in summary.lines_of(case, role):
        for failure in line.failures:
            count = line.good + sum(other.times for other in line.failures)
            yield f"{line.name}: {failure.times} of {count} samples {failure.state} ({failure.reason})."


def cache_state(case: Case) -> str | None:
    """Say whether the declared state of the page cache was reached before every sample.

    Each sample is compared with the file that its row loads: some peers have one of their own.
    """
    sizes = {row.name: row.size or case.record.data["size"] for row in case.rows() if row.uses_cache}
    found = [(s.numbers.get("cached_before"), sizes[s.row]) for s in case.samples if s.row in sizes and s.processes]
    if not found:
        return None
    known = [(cached, size) for cached, size in found if cached is not None]
    if len(known) < len(found):
        return f"It is unknown what was cached before {len(found) - len(known)} of {len(found)} samples."
    off = [(cached, size) for cached, size in known if (cached > 0 if case.cold else cached < size)]
    if off:
        cached, size = max(off) if case.cold else min(off)
        much, still = ("up to", "were still") if case.cold else ("as little as", "was")
        return (
            f"NOT {case.cache}: {much} {cached / MB:.1f} of {size / MB:.1f} MB {still} cached"
            f" before {len(off)} of {len(known)} samples."
        )
    if case.cold:
        return f"Cold: the kernel counted 0 cached bytes of the file before each of {len(known)} samples."
    return f"Warm: the whole file was cached, always filled alike, before each of {len(known)} samples."


def slow_memory(record: Record) -> str | None:
    """Warn where fresh memory is slower than disks can be, or where that is unknown."""
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


def busy(case: Case) -> str | None:
    """Warn where samples were taken beside other work, or without looking."""
    noisy, taken = quiet.busy_of(case.samples)
    if not noisy:
        return None
    return (
        f"{noisy} of {taken} samples were taken on a machine that was not known to be"
        f" {quiet.ENOUGH:.0%} idle: read the times as rough."
    )


def absent(record: Record) -> str | None:
    """Say which rows this machine could not have, by reason."""
    reasons: dict[str, list[str]] = {}
    for row in record.absent:
        reasons.setdefault(row.reason, []).append(row.name)
    words = "; ".join(f"{', '.join(names)} ({reason})" for reason, names in reasons.items())
    return f"Not compared: {words}." if words else None


def state_of(case: Case) -> str:
    """Return the declared state of the cache as the first word of a sentence."""
    return case.cache.capitalize()


def _who(case: Case) -> str:
    n = case.processes
    return f"map+warm, the slowest of {n} processes," if n > 1 else "map+warm"


def _mb(megabytes: float) -> str:
    return f"{megabytes:.0f} MB" if megabytes >= 10 else f"{megabytes:.3g} MB"


def _ratio(spread: Spread) -> str:
    return f"{spread.median:.2f} ({spread.low:.2f}-{spread.high:.2f})"


def _pairs(number: int) -> str:
    return f"median of {number} paired rounds" if number > 1 else "one round"
