"""From the samples of `bench monitor` to tables and sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onecopy_bench.monitors import ways
from onecopy_bench.passes.tables import Table, number
from onecopy_bench.records.columns import plain, table
from onecopy_bench.report.summary import MB, Spread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onecopy_bench.records.columns import Case, Column
    from onecopy_bench.records.record import Run

NAME = "monitor"
BAR = 1.0
"""Per cent of its page faults that looking may cost who is looked at."""


def slower(run: Run, row: str, case: Case) -> Spread | None:
    """Return by how many per cent fewer faults there were than with nobody looking, paired by round."""
    alone = {s.round: s.numbers["faults_per_s"] for s in run.of(ways.NOBODY, case) if "faults_per_s" in s.numbers}
    mine = (s for s in run.of(row, case) if "faults_per_s" in s.numbers and s.round in alone)
    return Spread.of(100 * (1 - s.numbers["faults_per_s"] / alone[s.round]) for s in mine)


def headline(run: Run, row: str, case: Case) -> Spread | None:
    """Return the number that a case is about: ms of processor time a look, the worst error, or the slowdown in %."""
    if case[0] == ways.ACCURACY:
        found = plain("worst_error", 0.01)(run, row, case)
        return None if found is None else Spread(*(abs(v) for v in (found.median, found.low, found.high)))
    return slower(run, row, case) if case[0] == ways.DISTURBANCE else plain("mean_ns", 1e6)(run, row, case)


DRAWN = {"ms a look, or % of error or slowdown": headline, "of a processor, %": plain("share", 0.01)}
"""What a picture shows of each case."""

COLUMNS: dict[str, tuple[Column, ...]] = {
    ways.COST: (
        ("following:\nmedian ms", plain("median_ns", 1e6)),
        ("least\nms", plain("least_ns", 1e6)),
        ("most\nms", plain("most_ns", 1e6)),
        ("all, each\nms", plain("mean_ns", 1e6)),
        ("first\nms", plain("first_ns", 1e6)),
        ("of a pro-\ncessor %", plain("share", 0.01)),
        ("looks", plain("looks")),
        ("says\nMB", plain("said", MB)),
    ),
    ways.ACCURACY: (
        ("says\nMB", plain("told", MB)),
        ("truth\nMB", plain("truth", MB)),
        ("error\n%", plain("error", 0.01)),
        ("first\nlook %", plain("first_error", 0.01)),
        ("worst\n%", plain("worst_error", 0.01)),
    ),
    ways.DISTURBANCE: (
        ("slower\n%", slower),
        ("faults/s\nx 1000", plain("faults_per_s", 1e3)),
        ("256 faults:\nmedian us", plain("piece_ns", 1e3)),
        ("99 %\nus", plain("p99_ns", 1e3)),
        ("longest\nms", plain("longest_ns", 1e6)),
        ("looking: of a\nprocessor %", plain("share", 0.01)),
    ),
}
COLUMNS[ways.CROWD] = (
    ("first: wall\nms", plain("first_wall_ns", 1e6)),
    ("following:\nwall ms", plain("wall_ns", 1e6)),
    *COLUMNS[ways.COST],
)

TITLES = {
    ways.COST: "What a look costs, processor time",
    ways.CROWD: "A look at many",
    ways.ACCURACY: "What they hold together",
    ways.DISTURBANCE: "Who is looked at",
}


def tables_of(run: Run) -> Iterator[Table]:
    """Yield a table for each case, in the order of the questions."""
    for case in cases_of(run):
        names = [entry.name for entry in run.entries if case[0] in ways.way_named(entry.name).questions]
        lost = [a.name for a in run.absent if case[0] in ways.way_named(a.name).questions]
        yield table(run, f"{TITLES[case[0]]}: {case[1]}", case, [*names, *lost], COLUMNS[case[0]])


def cases_of(run: Run) -> list[Case]:
    """Return the cases that were met: questions in their order, each with its cases in the order of their making."""
    from onecopy_bench.monitors.cases import cases_of as made

    size, seconds, processes = (run.options[name] for name in ("size", "seconds", "processes"))
    every = [case.name for question in ways.QUESTIONS for case in made(question, size, seconds, processes)]
    met = {sample.case for sample in run.samples}
    return [case for case in every if case in met]


def heading(run: Run) -> str:
    """Return what was measured, in one line."""
    options, rounds = run.options, run.options["rounds"]
    return (
        f"monitor: looks at {options['hz']:g} Hz for {options['seconds']:g} s; a file of {run.data['bytes'] / MB:.1f} "
        f"MB; {rounds} round{'' if rounds == 1 else 's'}"
    )


def sentences_of(run: Run) -> Iterator[str]:
    """Yield, for each case, how ours stands beside others, and beside the bar."""
    for case in cases_of(run):
        found = {entry.name: headline(run, entry.name, case) for entry in run.entries}
        known = {name: spread.median for name, spread in found.items() if spread is not None}
        ours = known.pop(ways.OURS, None)
        if ours is not None:
            yield from _said(run, case, ours, {n: v for n, v in known.items() if n not in (ways.DRAWN, ways.NOBODY)})


def _said(run: Run, case: Case, ours: float, others: dict[str, float]) -> Iterator[str]:
    words = f"{case[0]}, {case[1]}"
    beside = "; ".join(f"{name} {number(value)}" for name, value in others.items())
    if case[0] == ways.ACCURACY:
        told = f"{words}: onecopy was off by {number(ours)} % at worst"
        yield told + (f", and by others: {beside}." if beside else ".")
    elif case[0] == ways.DISTURBANCE:
        spread = slower(run, ways.OURS, case)
        if spread is not None:
            bar = "below" if ours < BAR else "not below"
            extremes = f"{number(spread.low)} to {number(spread.high)}"
            told = f"{words}: {number(ours)} % ({extremes}) fewer while onecopy looks: the median is {bar} {BAR:g} %"
            yield told + (f"; {beside}." if beside else ".")
    elif right := [name for name in others if ways.way_named(name).once]:
        best = min(right, key=others.__getitem__)
        ratio = number(others[best] / max(ours, 1e-9))
        yield f"{words}: onecopy {number(ours)} ms a look; {beside}. {best}, the cheapest that counts once: {ratio} x."
