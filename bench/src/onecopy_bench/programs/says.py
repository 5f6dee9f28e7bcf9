"""From the samples of `bench run` to medians with their extremes, and the command relative to its baseline.

Pure functions over a record. Of N copies, times are the median and the slowest, memory is the sum. Ratios and
differences are medians over the rounds in which both commands went well.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onecopy_bench.programs.trees import total
from onecopy_bench.report.sentences import ENOUGH_ROUNDS
from onecopy_bench.report.summary import MB, Spread

if TYPE_CHECKING:
    from collections.abc import Callable

    from onecopy_bench.programs.record import Role, RunRecord, RunSample

Value = float | None


@dataclass(frozen=True, slots=True)
class Measure:
    """One thing that was measured: its spread for both commands, and how they compare, paired by round."""

    name: str
    command: Spread | None
    baseline: Spread | None
    ratio: Spread | None
    difference: Spread | None


def _of_totals(field: str, unit: float = MB) -> Callable[[RunSample], Value]:
    def value(sample: RunSample) -> Value:
        found = getattr(total(sample.held), field) if sample.held else None
        return None if found is None else found / unit

    return value


MEASURES: dict[str, Callable[[RunSample], Value]] = {
    "ready, median copy, s": lambda s: statistics.median(s.ready_ns) / 1e9,
    "ready, slowest copy, s": lambda s: max(s.ready_ns) / 1e9,
    "PSS, MB": _of_totals("pss"),
    "anonymous (PSS), MB": _of_totals("anonymous_pss"),
    "file (PSS), MB": _of_totals("file"),
    "shared memory (PSS), MB": _of_totals("shmem"),
    "private, MB": _of_totals("private"),
    "swap, MB": _of_totals("swap"),
    "page tables, MB": _of_totals("page_tables"),
    "peak anonymous (RSS), MB": lambda s: s.peak_anonymous / MB,
    "read from disk, MB": lambda s: None if s.disk_bytes is None else s.disk_bytes / MB,
    "major faults": _of_totals("major_faults", 1),
    "minor faults": _of_totals("minor_faults", 1),
    "processes": _of_totals("processes", 1),
}
"""What a table shows, by name: each is computed from one sample."""


def measures_of(record: RunRecord) -> list[Measure]:
    """Return everything that was measured in at least one good sample, in the order of the table."""
    found = []
    for name, value in MEASURES.items():
        command, baseline = (_by_round(record, role, value) for role in ("command", "baseline"))
        pairs = [(command[number], baseline[number]) for number in command if number in baseline]
        measure = Measure(
            name,
            Spread.of(command.values()),
            Spread.of(baseline.values()),
            Spread.of(mine / other for mine, other in pairs if other > 0),
            Spread.of(mine - other for mine, other in pairs),
        )
        if measure.command is not None or measure.baseline is not None:
            found.append(measure)
    return found


def _by_round(record: RunRecord, role: Role | str, value: Callable[[RunSample], Value]) -> dict[int, float]:
    good = {s.round: value(s) for s in record.samples if s.role == role and s.state == "ok"}
    return {number: found for number, found in good.items() if found is not None}


def notes_of(record: RunRecord) -> list[str]:
    """Return what limits the numbers: failures with their last lines, files that stayed cached, few rounds."""
    notes = [
        f"{s.role}, round {s.round + 1}: {s.state} ({s.reason}){_said(s)}" for s in record.samples if s.state != "ok"
    ]
    warm = [s.cached_before for s in record.samples if s.cached_before]
    if warm:
        notes.append(f"NOT cold: up to {max(warm) / MB:.1f} MB of the evicted files were still cached.")
    unknown = [s for s in record.samples if s.state == "ok" and s.cached_before is None]
    if record.options.evict and unknown:
        notes.append(f"Nobody knows what was cached before {len(unknown)} of {len(record.samples)} samples.")
    killed = sum(s.killed for s in record.samples)
    if killed:
        notes.append(f"{killed} processes did not end on SIGTERM and were killed.")
    if record.options.waits_for_exit:
        notes.append("The copies were waited for until they ended: what they hold is known by its peak only.")
    if record.options.rounds < ENOUGH_ROUNDS:
        notes.append(f"{record.options.rounds} rounds: a published number needs {ENOUGH_ROUNDS}.")
    return notes


def _said(sample: RunSample) -> str:
    return f". Last lines: {' | '.join(sample.said)}" if sample.said else "."
