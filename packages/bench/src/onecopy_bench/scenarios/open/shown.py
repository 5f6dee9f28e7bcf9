"""What is shown of `bench open`: tables and a picture of each case, and sentences computed from what was measured.

A sentence never claims more than its numbers: if four processes hold a file more than once, that is what it says. A
ratio of times between a row that maps and a row that copies is left out where the run's own control, the first touch of
fresh memory, was too slow for it to hold on other machines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from onecopy_bench.engine import pages, pictures
from onecopy_bench.engine.pages import rounds_of
from onecopy_bench.engine.record import Case, Record
from onecopy_bench.engine.tables import EMPTY, MB, Column, Spread, Table, counted, number, table
from onecopy_bench.scenarios.open import summary
from onecopy_bench.scenarios.open.summary import MARGIN, SLOW_MEMORY_GB_PER_S, WHOLE, cases_of, median, names_of

ONCE = 1.05
"""Up to this multiple of the file's size, a file counts as held once."""

PARTS: dict[str, tuple[Column, ...]] = {
    "the slowest process": (
        ("all resident\nms", summary.resident),
        ("x of\nours", summary.claimed_ratio),
        ("open\nms", summary.opening),
        ("GiB/s", summary.gib_per_s),
    ),
    "memory of all processes, less empty ones": (
        ("PSS\nMB", summary.pss),
        ("private\nMB", summary.private),
        ("peak\nprivate MB", summary.peak),
        ("huge\npages MB", summary.huge),
    ),
    "what the kernel counted, of all processes": (
        ("read from\ndisk MB", summary.disk),
        ("major\nfaults", summary.major),
        ("minor\nfaults", summary.minor),
    ),
}
"""The tables of a case."""

CEILINGS: tuple[Column, ...] = (("ms", summary.resident), ("GiB/s", summary.gib_per_s))
BRIEF: tuple[Column, ...] = (
    ("memory of\nall, MB", summary.pss),
    ("open\nms", summary.opening),
    ("all touched\nms", summary.resident),
)
DRAWN = {"s until every page was read": summary.seconds, "MB of all processes": summary.pss}


def words_of(case: Case) -> str:
    """Return a case in words."""
    return f"{case[0]}, {counted(int(case[1]), 'process', 'processes')}"


def described(record: Record) -> str:
    """Return what was measured, in one line."""
    file = record.data
    what = counted(file["pieces"], "tensor") if file["kind"] == "safetensors" else "plain bytes"
    order = ", shuffled" if record.options["order"] == "shuffled" else ""
    rounds = counted(rounds_of(record), "round")
    return f"{record.scenario} {file['file']}: {file['size'] / MB:.1f} MB, {what}; {rounds}{order}"


def tables_of(record: Record) -> Iterator[Table]:
    """Yield the tables of each case, the fastest row first; then the ceilings."""
    for case in cases_of(record):
        times = {name: median(summary.resident, record, name, case) or float("inf") for name in names_of(record)}
        names = sorted(times, key=times.__getitem__)
        for part, (words, columns) in enumerate(PARTS.items()):
            found = table(record, f"{words_of(case).capitalize()}: {words}", case, names, columns)
            yield with_calls(record, case, found) if part == 0 else found
    if ceilings := names_of(record, "ceiling"):
        yield table(record, "Reading past the page cache, with O_DIRECT and threads", WHOLE, ceilings, CEILINGS)


def with_calls(record: Record, case: Case, found: Table) -> Table:
    """Return a table with the call of each row below its name, and whether the row was seen to map or to copy."""
    calls = {row.name: row.detail for row in record.rows}

    def call(name: str) -> str:
        held = name != EMPTY and median(summary.private, record, name, case) is not None
        does = ("copies: " if summary.copies(record, name, case) else "maps: ") if held else ""
        return f"{name}\n{does}{calls[name]}"

    return replace(found, rows=tuple((call(name), *cells) for name, *cells in found.rows))


def brief_tables(record: Record) -> Iterator[Table]:
    """Yield of each case what all processes hold and how long they took, the heaviest first."""
    for case in cases_of(record):
        held = {name: median(summary.pss, record, name, case) or 0.0 for name in names_of(record) if name != EMPTY}
        yield table(record, words_of(case).capitalize(), case, sorted(held, key=lambda name: -held[name]), BRIEF)


def brief_findings(record: Record) -> Iterator[str]:
    """Yield how often the processes of each case hold the file."""
    for case in cases_of(record):
        yield from sharing(record, case)


def findings(record: Record) -> Iterator[str]:
    """Yield what is worth saying about each case."""
    for case in cases_of(record):
        for answer in (sharing, peers, leaders, ceilings, agreement, cache_state):
            yield from answer(record, case)


def sharing(record: Record, case: Case) -> Iterator[str]:
    """Yield how often N processes hold the file, mapped and copied."""
    held, copied, private = (
        median(compute, record, row, case)
        for compute, row in ((summary.pss, "map"), (summary.pss, "copy"), (summary.private, "map"))
    )
    if held is None or private is None:
        return
    n, size = int(case[1]), record.data["size"] / MB
    against = f" against {number(copied)} MB for copies" if copied is not None else ""
    if n == 1:
        yield (
            f"1 process holds the {number(size)} MB in the page cache, where others can share them,"
            f" and {number(max(private, 0))} MB of its own{against}."
        )
        return
    total = f"{number(held)} MB in total (PSS minus {n} empty interpreters){against}"
    if held / size <= ONCE:
        yield f"{n} processes hold {number(size)} MB once instead of {n} times: {total}."
    else:
        yield f"{n} processes hold {number(size)} MB {held / size:.2f} times, not once: {total}."


def peers(record: Record, case: Case) -> Iterator[str]:
    """Yield how `map+warm` compares with a plain NumPy mapping, paired by round."""
    pair = ("map+warm", case), ("numpy.memmap", case)
    touched, warmed = summary.paired_ratio(record, *pair), summary.paired_ratio(record, *pair, summary.warm_ms)
    if touched is not None and warmed is not None:
        yield (
            f"{words_of(case).capitalize()}: map+warm takes {ratio(touched[0])} of the time of a plain numpy.memmap"
            f" until every page has been touched, {ratio(warmed[0])} until warm() returns ({pairs(touched[1])})."
        )


def leaders(record: Record, case: Case) -> Iterator[str]:
    """Yield which rows of others are ahead of ours by more than 5 %, or that none is."""
    ours, ahead = summary.best_of_ours(record, case), summary.ahead_of_ours(record, case)
    words = words_of(case).capitalize()
    if ours is not None and not ahead:
        yield f"{words}: no row is more than {MARGIN:.0%} ahead of {ours[0]}."
    elif ours is not None:
        rows = ", ".join(f"{name} ({lead(record, name, case, share)})" for name, share in ahead)
        yield f"{words}: AHEAD of {ours[0]} by more than {MARGIN:.0%}: {rows}."


def lead(record: Record, name: str, case: Case, share: float) -> str:
    """Return how far a row is ahead of ours, without a number where that would compare copies with maps in vain."""
    if summary.claimed_ratio(record, name, case) is None:
        return "it copies, and no ratio is claimed here"
    return f"{share:.2f} of our time"


def ceilings(record: Record, case: Case) -> Iterator[str]:
    """Yield which share of the device's rate `map+warm` reaches, where it started cold.

    A reading into fresh memory is a copy: it is reported only where times of copies carry over.
    """
    if case[0] != "cold":
        return
    for kind, where in (("fresh", "into fresh huge-page memory"), ("reused", "into a reused 4 MiB buffer")):
        best = summary.best_ceiling(record, kind) if kind == "reused" or summary.times_transfer(record) else None
        if best is None:
            continue
        pair = (best, WHOLE), ("map+warm", case)
        warmed, touched = summary.paired_ratio(record, *pair, summary.warm_ms), summary.paired_ratio(record, *pair)
        if warmed is not None and touched is not None:
            yield (
                f"{words_of(case).capitalize()}: map+warm reaches {ratio(warmed[0])} of the rate of O_DIRECT x"
                f" {best.rsplit('-', 1)[1]} {where} when warm() returns, {ratio(touched[0])} when every page has been"
                f" touched (against the best of its kind, {pairs(warmed[1])})."
            )


def agreement(record: Record, case: Case) -> Iterator[str]:
    """Yield that the touched bytes were those of the file, and for how many rows that was checked."""
    samples = [sample for sample in record.samples if sample.case in (WHOLE, case)]
    checked = {s.row for s in samples if s.state == "ok" and any("checksum" in each for each in s.processes)}
    if checked and all(sample.state != "wrong data" for sample in samples):
        yield f"Checksums of the touched bytes agree with a plain read of the file: {counted(len(checked), 'row')}."


def cache_state(record: Record, case: Case) -> Iterator[str]:
    """Yield whether the declared state of the page cache was reached before every sample.

    Each sample is compared with the file that its row loads: some peers have one of their own.
    """
    sizes = {r.name: r.size or record.data["size"] for r in record.rows if r.uses_cache and r.role == "row"}
    samples = [s for s in record.samples if s.case == case and s.row in sizes and s.processes]
    known = [(s.numbers["cached_before"], sizes[s.row]) for s in samples if "cached_before" in s.numbers]
    cold = case[0] == "cold"
    off = [(cached, size) for cached, size in known if (cached > 0 if cold else cached < size)]
    if len(known) < len(samples):
        yield f"It is unknown what was cached before {len(samples) - len(known)} of {len(samples)} samples."
    elif off:
        cached, size = max(off) if cold else min(off)
        much, still = ("up to", "were still") if cold else ("as little as", "was")
        yield (
            f"NOT {case[0]}: {much} {cached / MB:.1f} of {size / MB:.1f} MB {still} cached"
            f" before {len(off)} of {len(known)} samples."
        )
    elif known and cold:
        yield f"Cold: the kernel counted 0 cached bytes of the file before each of {len(known)} samples."
    elif known:
        yield f"Warm: the whole file was cached, always filled alike, before each of {len(known)} samples."


def first_touch(record: Record) -> Iterator[str]:
    """Yield how fast fresh memory is touched, and so how far times of copies carry over."""
    rates = summary.touch_rates(record)
    words = ", ".join(f"{r.median:.1f} ({r.low:.1f}-{r.high:.1f}) GB/s for {name}" for name, r in rates.items())
    if not rates:
        yield "Without a control, times of copies against maps cannot be taken to other machines."
    elif summary.times_transfer(record):
        yield f"First touch of fresh anonymous memory: {words}."
    else:
        yield (
            f"First touch of fresh anonymous memory: {words}. Below {SLOW_MEMORY_GB_PER_S:g} GB/s, times of copies"
            " against maps do not transfer to other machines, and no ratio of them is claimed here; megabytes do."
        )


def limits(record: Record) -> Iterator[str]:
    """Yield how far times of copies carry over, and what limits every record."""
    yield from first_touch(record)
    yield from pages.limits(record)


def draw(figure: Any, record: Record) -> None:
    """Draw the times and the memory of every case."""
    rows = (replace(row, ours=row.name in summary.OF_ONECOPY) for row in record.rows if row.role == "row")
    pictures.panels(figure, replace(record, rows=tuple(rows)), cases_of(record), words_of, DRAWN)


def ratio(spread: Spread) -> str:
    """Return a ratio with its extremes."""
    return f"{spread.median:.2f} ({spread.low:.2f}-{spread.high:.2f})"


def pairs(count: int) -> str:
    """Return of how many rounds a ratio is the median."""
    return f"median of {count} paired rounds" if count > 1 else "one round"
