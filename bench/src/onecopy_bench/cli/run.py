"""`onecopy bench run`: any program, N copies of it, measured in the way of the other scenarios."""

from __future__ import annotations

import dataclasses
import shlex
import shutil
from typing import TYPE_CHECKING

import click

from onecopy.cli import screen
from onecopy.cli.words import plain, significant
from onecopy_bench.cli import outputs
from onecopy_bench.programs import measure, says
from onecopy_bench.programs.copies import numbered
from onecopy_bench.programs.record import RunOptions, RunRecord, to_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from onecopy_bench.report.summary import Spread

DEFAULTS = RunOptions()
MISSING = "-"
SECONDS = click.FloatRange(min=0, min_open=True)


@click.command("run", context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option(
    "-n",
    "--processes",
    type=click.IntRange(min=1),
    default=DEFAULTS.processes,
    show_default=True,
    help="Copies that are started in the same instant.",
)
@click.option("--ready", metavar="TEXT", help="A copy is ready when it says this on stdout or stderr.")
@click.option(
    "--settle", type=SECONDS, metavar="S", help="A copy is ready when its memory has stood still for S seconds."
)
@click.option(
    "--hold-ms",
    type=click.FloatRange(min=0),
    default=DEFAULTS.hold_ms,
    show_default=True,
    metavar="M",
    help="Milliseconds from 'all are ready' to the look at the memory.",
)
@click.option(
    "--timeout",
    type=SECONDS,
    default=DEFAULTS.timeout,
    show_default=True,
    metavar="S",
    help="Seconds until all have to be ready.",
)
@click.option("--baseline", metavar="CMD", help="Another command, in one word, to compare with in each round.")
@click.option(
    "--rounds", type=click.IntRange(min=1), default=DEFAULTS.rounds, show_default=True, metavar="R", help="Rounds."
)
@click.option(
    "--evict",
    multiple=True,
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Drop this file from the page cache before each start; more than once for more.",
)
@click.option("--seed", type=int, default=DEFAULTS.seed, show_default=True, help="Of the order in each round.")
@click.option("--json", "json_path", metavar="OUT", help="Write the record here; '-' for stdout, without tables.")
def command(command: tuple[str, ...], baseline: str | None, json_path: str | None, **chosen: object) -> int:
    """Start N copies of COMMAND, wait until they are ready, and tell what they hold.

    Exactly the text {i} in an argument becomes the number of the copy, from 0, for ports and folders of their own.
    Without --ready and --settle a copy is ready when it has ended with status 0. Memory is that of each copy with all
    its children. Everything is ended afterwards: SIGTERM, five seconds, SIGKILL.

    Example: onecopy bench run -n 4 --ready 'startup complete' -- python -u serve.py --port 80{i}
    """
    if chosen["ready"] is not None and chosen["settle"] is not None:
        raise click.UsageError("--ready and --settle exclude each other: a copy is ready in one way")
    if chosen["ready"] == "":
        raise click.BadParameter("an empty text is never said", param_hint="--ready")
    outputs.check_json(json_path)
    options = dataclasses.replace(DEFAULTS, **chosen)  # type: ignore[arg-type]
    record = with_bar(found(command), found(words_of(baseline)), options)
    text = to_json(record, measures=[dataclasses.asdict(m) for m in says.measures_of(record)])
    if json_path != "-":
        show(screen.out(), record)
    outputs.write(json_path, text)
    return 0 if any(sample.state == "ok" for sample in record.samples if sample.role == "command") else 1


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


def with_bar(command: Sequence[str], baseline: Sequence[str], options: RunOptions) -> RunRecord:
    """Run with a progress bar on stderr."""
    with screen.progress_bar(screen.err()) as bar:
        task = bar.add_task("starting", total=None)
        return measure.run(
            command,
            baseline,
            options,
            lambda now: bar.update(task, completed=now.done, total=now.total, description=now.next),
        )


def show(console: Console, record: RunRecord) -> None:
    """Print a record: what was run, a line per measure, and what limits them."""
    options = record.options
    state = f", {', '.join(options.evict)} evicted" if options.evict else ""
    copies = f"{options.processes} cop{'y' if options.processes == 1 else 'ies'}"
    screen.show_line(
        console, f"run: {copies}, {options.rounds} round{'s' if options.rounds > 1 else ''}{state}", "bold"
    )
    for role, words in (("command", record.command), ("baseline", record.baseline)):
        if words:
            screen.show_line(console, f"{role}: {shlex.join(words)}")
    console.print()
    grid = grid_of(record)
    if grid.rows:
        grid.show(console)
        screen.show_line(console, legend(record), "dim")
    for note in says.notes_of(record):
        screen.show_line(console, f"note: {note}", "dim")


def grid_of(record: RunRecord) -> screen.Grid:
    """Return the table: a line per measure; the baseline and the comparison where there is one."""
    titles = ("command", "baseline", "ratio", "difference") if record.baseline else ("command",)
    grid = screen.Grid((screen.Column(""), *(screen.Column(title, right=True) for title in titles)))
    for measured in says.measures_of(record):
        cells = (measured.command, measured.baseline, measured.ratio, measured.difference)[: len(titles)]
        medians = [cell if at < 2 else middle(cell) for at, cell in enumerate(map(spread, cells))]
        grid.rows.append((plain(measured.name), *medians))
    return grid


def legend(record: RunRecord) -> str:
    """Return how to read the table."""
    compared = "; ratio and difference: median of paired rounds" if record.baseline else ""
    return f"Medians (min-max) over the rounds; memory of all copies together, with their children{compared}."


def spread(value: Spread | None) -> str:
    """Return a median with its extremes where they differ from it."""
    if value is None:
        return MISSING
    if value.low == value.high:
        return significant(value.median)
    return f"{significant(value.median)} ({significant(value.low)}-{significant(value.high)})"


def middle(cell: str) -> str:
    """Return the median of a cell without its extremes."""
    return cell.partition(" ")[0]
