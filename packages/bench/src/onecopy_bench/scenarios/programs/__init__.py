"""`onecopy bench run`: any program, N copies of it, and of its baseline in the same rounds.

A sample is all copies once: files evicted, copies launched and released together, waited for until they are ready,
held, measured, ended. Of N copies, times are the median and the slowest, memory is the sum. Ratios and differences are
medians over the rounds in which both commands went well. The command line is kept, with the home folder as "~".
"""

from __future__ import annotations

import os
import shlex
import shutil
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

from onecopy_bench.engine import options as cli
from onecopy_bench.engine import rounds
from onecopy_bench.engine.crew import SampleError
from onecopy_bench.engine.machine import cache
from onecopy_bench.engine.machine.processes import totals_of
from onecopy_bench.engine.memory import difference, disk_bytes
from onecopy_bench.engine.options import Measure
from onecopy_bench.engine.pages import Scenario, few_rounds, rounds_of
from onecopy_bench.engine.record import Log, Record, Row, Sample, heading
from onecopy_bench.engine.rounds import Attempt, Settings, Taken, Turn, Watch, without_home
from onecopy_bench.engine.tables import MB, MISSING, Spread, Table, cell, counted
from onecopy_bench.scenarios.programs.copies import Copies, numbered

NAME = "run"
COMMAND, BASELINE = "command", "baseline"
NOT_NEGATIVE, EXISTING = click.FloatRange(min=0), click.Path(exists=True, dir_okay=False)
SETTLE = "A copy is ready when its memory has stood still for S seconds."
HOLD = "Milliseconds from 'all are ready' to the reading of the memory."
EVICT = "Drop this file from the page cache before each start."


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How programs are run; without `ready` and `settle` a copy is ready when it has ended."""

    rounds: int = 3
    timeout: float = 120.0
    idle_wait: float = 0.0
    processes: int = cli.field(1, "Copies that are started in the same instant.", "-n", "--processes")
    ready: str | None = cli.field(None, "A copy is ready when it says this on stdout or stderr.", metavar="TEXT")
    settle: float | None = cli.field(None, SETTLE, type=cli.SECONDS, metavar="S")
    hold_ms: float = cli.field(500.0, HOLD, type=NOT_NEGATIVE, metavar="M")
    evict: tuple[str, ...] = cli.field((), EVICT, metavar="FILE", type=EXISTING)

    @property
    def waits_for_exit(self) -> bool:
        """Whether a copy is ready when it has ended."""
        return self.ready is None and self.settle is None


def run(
    command: Sequence[str],
    baseline: Sequence[str] = (),
    options: Options = Options(),
    watch: Watch = lambda _: None,
    log: Log | None = None,
) -> Record:
    """Measure a program, and another one beside it; `copies.NUMBER` in an argument becomes the number of the copy.

    Raises
    ------
    OSError
        If a file to be evicted cannot be opened.
    """
    commands = {COMMAND: command, **({BASELINE: baseline} if baseline else {})}
    turns = [Turn(name, (), 0.0, sample(words, options)) for name, words in commands.items()]
    data = {name: [without_home(word) for word in words] for name, words in commands.items()}
    place = options.evict[0] if options.evict else Path.cwd()
    nameless = replace(options, evict=tuple(Path(path).name for path in options.evict))
    rows = [Row(name, shlex.join(words)) for name, words in data.items()]
    return rounds.run(heading(NAME, place, nameless, rows, data=data), turns, options, watch=watch, log=log)


def sample(command: Sequence[str], options: Options) -> Callable[[Attempt], Taken]:
    """Return what takes one sample."""

    def take(attempt: Attempt) -> Taken:
        for path in options.evict:
            cache.evict(path)
        attempt.wait()
        copies = Copies(command, options)
        try:
            with copies:
                cached, disk = _cached(options.evict), _disk_bytes(options.evict)
                copies.start()
                copies.wait_until_ready()
                if not options.waits_for_exit:
                    copies.hold(options.hold_ms / 1e3)
                held = [] if options.waits_for_exit else [asdict(totals_of(pids)) for pids in copies.members]
                read = difference(_disk_bytes(options.evict), disk)
        except SampleError as failure:
            said = copies.last_lines()
            words = f"; last lines: {' | '.join(said)}" if said else ""
            raise SampleError(failure.state, f"{failure.reason}{words}") from failure
        numbers = {
            "peak_anonymous": max(copies.peak_anonymous, sum(each["anonymous"] for each in held)),
            "disk_bytes": read,
            "cached_before": cached,
            "killed": copies.killed,
        }
        ready = [{"ready_ns": copy.ready_ns or 0} for copy in copies.copies]
        totals: list[dict[str, Any]] = held or [{} for _ in ready]
        return Taken(numbers, processes=[{**one, **two} for one, two in zip(ready, totals, strict=True)])

    return take


def _cached(paths: Sequence[str]) -> int | None:
    """Return how many bytes of some files are cached together; None for no files, and where it is unknown."""
    known = [cache.ask(path) for path in paths]
    return None if None in known or not known else sum(filter(None, known))


def _disk_bytes(paths: Sequence[str]) -> int | None:
    """Return the bytes read since boot from the disks of some files, else from that of the working folder."""
    disks = {Path(path).stat().st_dev: os.fspath(path) for path in (paths or (os.curdir,))}
    known = [disk_bytes(path) for path in disks.values()]
    return None if None in known else sum(filter(None, known))


def _sum(name: str, unit: float = MB) -> Callable[[Sample], float | None]:
    """Return what adds a number up over the copies; what is unknown of one is unknown of all."""

    def value(sample: Sample) -> float | None:
        return sum(each[name] for each in sample.processes) / unit if all(name in p for p in sample.processes) else None

    return value


MEASURES: dict[str, Callable[[Sample], float | None]] = {
    "ready, median copy, s": lambda s: statistics.median(each["ready_ns"] for each in s.processes) / 1e9,
    "ready, slowest copy, s": lambda s: max(each["ready_ns"] for each in s.processes) / 1e9,
    "PSS, MB": _sum("pss"),
    "anonymous (PSS), MB": _sum("anonymous_pss"),
    "file (PSS), MB": _sum("file"),
    "shared memory (PSS), MB": _sum("shmem"),
    "private, MB": _sum("private"),
    "swap, MB": _sum("swap"),
    "page tables, MB": _sum("page_tables"),
    "peak anonymous (RSS), MB": lambda s: s.numbers["peak_anonymous"] / MB,
    "read from disk, MB": lambda s: s.numbers["disk_bytes"] / MB if "disk_bytes" in s.numbers else None,
    "major faults": _sum("major_faults", 1),
    "minor faults": _sum("minor_faults", 1),
    "processes": _sum("processes", 1),
}
"""What a table shows, by name: each is computed from one sample."""


def spreads_of(record: Record, name: str) -> list[Spread | None]:
    """Return a measure of the command, of the baseline, and how they compare: ratio and difference, paired by round."""
    found = [
        {s.round: each for s in record.of(row, ()) if (each := MEASURES[name](s)) is not None}
        for row in (COMMAND, BASELINE)
    ]
    command, baseline = found
    pairs = [(command[number], baseline[number]) for number in command if number in baseline]
    ratios = (mine / other for mine, other in pairs if other > 0)
    values = (command.values(), baseline.values(), ratios, (mine - other for mine, other in pairs))
    return [Spread.of(each) for each in values]


def tables_of(record: Record) -> Iterator[Table]:
    """Yield the table: a line per measure; the baseline and the comparison where there is one."""
    compared = BASELINE in record.data
    titles = (COMMAND, BASELINE, "ratio", "difference") if compared else (COMMAND,)
    rows = [(name, *map(cell, spreads_of(record, name)[: len(titles)])) for name in MEASURES]
    words = "; ratio and difference: median of paired rounds" if compared else ""
    title = f"Medians (min-max) over the rounds; memory of all copies together, with their children{words}"
    shown = tuple(row for row in rows if set(row[1:]) != {MISSING})
    if shown:
        yield Table(title, ("", *titles), shown)


def described(record: Record) -> str:
    """Return what was measured, in one line."""
    evicted = record.options["evict"]
    state = f", {', '.join(evicted)} evicted" if evicted else ""
    copies = counted(record.options["processes"], "copy", "copies")
    return f"run: {copies}, {counted(rounds_of(record), 'round')}{state}"


def limits(record: Record) -> Iterator[str]:
    """Yield what limits the numbers: failures with their last lines, files that stayed cached, few rounds."""
    for each in record.samples:
        if each.state != "ok":
            yield f"{each.row}, round {each.round + 1}: {each.state} ({each.reason})."
    good = [sample for sample in record.samples if sample.state == "ok"]
    warm = [cached for s in good if (cached := s.numbers.get("cached_before"))]
    if warm:
        yield f"NOT cold: up to {max(warm) / MB:.1f} MB of the evicted files were still cached."
    unknown = [sample for sample in good if "cached_before" not in sample.numbers]
    if record.options["evict"] and unknown:
        yield f"It is unknown what was cached before {len(unknown)} of {len(record.samples)} samples."
    if killed := sum(s.numbers.get("killed", 0) for s in record.samples):
        yield f"{killed:.0f} processes did not end on SIGTERM and were killed."
    if record.options["ready"] is None and record.options["settle"] is None:
        yield "The copies were waited for until they ended: what they hold is known by its peak only."
    yield from few_rounds(record)


def findings(record: Record) -> Iterator[str]:
    """Yield the commands."""
    yield from (f"{row.name}: {row.detail}" for row in record.rows)


SCENARIO = Scenario(NAME, described, tables_of, findings, limits=limits)


@click.command(NAME, context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option("--baseline", metavar="CMD", help="Another command, in one word, to compare with in each round.")
@cli.common(SCENARIO, Options(), without=("folder", "backed"))
def command(command: tuple[str, ...], baseline: str | None, options: Options, measure: Measure) -> int:  # fmt: skip
    """Start N copies of COMMAND, wait until they are ready, and report what they hold.

    Exactly the text {i} in an argument becomes the number of the copy, from 0, for ports and folders of their own.
    Without --ready and --settle a copy is ready when it has ended with status 0. Memory is that of each copy with all
    its children. Everything is ended afterwards: SIGTERM, five seconds, SIGKILL.

    Example: onecopy bench run -n 4 --ready 'startup complete' -- python -u serve.py --port 80{i}
    """
    if options.ready is not None and options.settle is not None:
        raise click.UsageError("--ready and --settle exclude each other: a copy is ready in one way")
    if options.ready == "":
        raise click.BadParameter("an empty text is never said", param_hint="--ready")
    words = (found(command), found(words_of(baseline)))
    record = measure(lambda _, watch, log: run(*words, options, watch, log))
    return 0 if record.of(COMMAND, ()) else 1


def words_of(text: str | None) -> tuple[str, ...]:
    """Return the words of a command that was given as one; raises click.BadParameter where a quote is open."""
    try:
        return tuple(shlex.split(text)) if text is not None else ()
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: {error}", param_hint="--baseline") from error


def found(command: Sequence[str]) -> Sequence[str]:
    """Return a command whose program exists; raises click.UsageError otherwise."""
    if command and shutil.which(numbered(command, 0)[0]) is None:
        raise click.UsageError(f"no program {command[0]!r}")
    return command
