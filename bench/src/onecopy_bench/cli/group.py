"""`onecopy bench SCENARIO`: measure in fresh processes, and show what that says."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from onecopy.cli import screen
from onecopy_bench.cli import (
    crossover,
    images,
    models,
    monitor,
    mosaic,
    outputs,
    passes,
    records,
    report,
    run,
    share,
    start,
    stories,
    structs,
    tables,
    warm,
)
from onecopy_bench.journal import Journal
from onecopy_bench.peers import ROWS
from onecopy_bench.peers.ours import REPEATS
from onecopy_bench.record import Ceilings, Options, Order, Record, to_json
from onecopy_bench.report import sentences, summary
from onecopy_bench.scenarios import keys as keys_scenario
from onecopy_bench.scenarios import open as open_scenario

if TYPE_CHECKING:
    from collections.abc import Callable

    from onecopy_bench.configurations import Configuration
    from onecopy_bench.runner import Progress

DEFAULTS = Options()


class Counts(click.ParamType[tuple[int, ...]]):
    """Numbers of processes: "4", or "1,2,4,8"."""

    name = "N,..."

    def convert(
        self, value: str | tuple[int, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return the numbers."""
        if isinstance(value, tuple):
            return value
        words = value.split(",")
        if not all(word.strip().isdecimal() and int(word) >= 1 for word in words):
            self.fail(f"{value!r} is not a number of processes such as 4, or several such as 1,2,4,8", param, ctx)
        return tuple(int(word) for word in words)


@click.group("bench", cls=screen.Group)
def command() -> None:
    """Measure in fresh processes, with a declared state of the page cache."""


command.add_command(warm.command)
command.add_command(crossover.command)
command.add_command(report.command)
command.add_command(run.command)
command.add_command(structs.command)
command.add_command(share.command)
command.add_command(models.command)
command.add_command(start.command)
command.add_command(images.command)
command.add_command(mosaic.command)
command.add_command(records.command)
command.add_command(monitor.command)
command.add_command(stories.command)


@command.command("open")
@click.argument("file", type=click.Path())
@click.option(
    "-n",
    "--processes",
    type=Counts(),
    multiple=True,
    default=(DEFAULTS.processes,),
    show_default="4",
    help="Processes that load the file at once; several numbers are measured in the same rounds.",
)
@click.option("--cold", is_flag=True, help="Evict this one file before each sample, and prove it.")
@click.option("--warm", is_flag=True, help="Fill the cache alike before each sample: the default; both with --cold.")
@click.option(
    "--order",
    type=click.Choice(get_args(Order)),
    default=DEFAULTS.order,
    show_default=True,
    help="Touch the tensors in the order of the file, or in a random one that is the same for all rows.",
)
@click.option(
    "--rounds",
    "--iterations",
    "iterations",
    type=click.IntRange(min=1),
    default=DEFAULTS.iterations,
    show_default=True,
    help="Each takes every configuration once per case, in random order.",
)
@click.option("--only", multiple=True, metavar="ROW", help="Of the rows, take this one only (more than once for more).")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=DEFAULTS.timeout,
    show_default=True,
    help="Seconds that one phase of a child may take.",
)
@passes.idle_wait(DEFAULTS.idle_wait)
@click.option(
    "--ceilings",
    type=click.Choice(get_args(Ceilings)),
    default=DEFAULTS.ceilings,
    show_default=True,
    help="O_DIRECT readings: the usual best, every number of threads, or none.",
)
@click.option(
    "--backed",
    is_flag=True,
    help="Touch and free as much memory as a sample needs before it: where a virtual machine's host takes free memory"
    " back, new memory is slower than disks, and no time says anything about other machines.",
)
@click.option("--seed", type=int, default=DEFAULTS.seed, show_default=True, help="Of the orders.")
@click.option(
    "--scratch",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="Folder for the tensors in the containers of peers, on the same disk.  [default: beside FILE]",
)
@click.option("--brief", is_flag=True, help="One small table and one sentence; no O_DIRECT readings.")
@click.option("--json", "json_path", metavar="OUT", help="Write the record here; '-' for stdout, without tables.")
@click.option(
    "--resume", is_flag=True, help="Go on with a killed run, whose samples are in OUT.samples; else begin anew."
)
def open_command(
    file: str,
    json_path: str | None,
    *,
    resume: bool,
    scratch: Path | None,
    only: tuple[str, ...],
    processes: tuple[tuple[int, ...], ...],
    cold: bool,
    warm: bool,
    brief: bool,
    **chosen: int | float | str,
) -> None:
    """Measure how FILE opens: copied, mapped, warmed, by its peers, and by the device alone."""
    journal = outputs.journal_of(json_path, Journal, resume=resume)
    caches = (*(["cold"] if cold else []), *(["warm"] if warm or not cold else []))
    counts = tuple(dict.fromkeys(n for numbers in processes for n in numbers))
    if brief:
        chosen["ceilings"] = "none"
    options = dataclasses.replace(DEFAULTS, processes=counts, caches=caches, **chosen)  # type: ignore[arg-type]
    rows = chosen_rows(only, file, options)
    with outputs.told(journal):
        record = with_bar(
            lambda watch: open_scenario.run(file, options, watch, configurations=rows, journal=journal, scratch=scratch)
        )
    write(json_path, record)
    if json_path != "-":
        (tables.show_brief if brief else tables.show)(screen.out(), record)
    if journal is not None:
        journal.remove()


def chosen_rows(only: tuple[str, ...], file: str, options: Options) -> tuple[Configuration, ...] | None:
    """Return the configurations that were asked for by name, with ceilings and controls; None for all."""
    if not only:
        return None
    if unknown := set(only) - {row.name for row in ROWS}:
        raise click.BadParameter(
            f"no row {min(unknown)!r}; there are {', '.join(row.name for row in ROWS)}", param_hint="--only"
        )
    chosen, absent = open_scenario.applicable(open_scenario.layout_of(file), options, only)
    if lost := next((row for row in absent if row.name in only), None):
        raise click.UsageError(f"{lost.name}: {lost.reason}")
    return tuple(row for row in chosen if row.role != "row" or row.name in only)


@command.command("keys")
@click.option("--arrays", type=click.IntRange(min=1), default=20_000, show_default=True, help="Arrays in the file.")
@click.option(
    "--rounds",
    "--iterations",
    "iterations",
    type=click.IntRange(min=1),
    default=DEFAULTS.iterations,
    show_default=True,
    help="Rounds.",
)
@click.option("--json", "json_path", metavar="OUT", help="Write the record here; '-' for stdout, without tables.")
def keys_command(arrays: int, iterations: int, json_path: str | None) -> None:
    """Measure opening a file of many arrays and listing their names."""
    outputs.check_json(json_path)
    options = dataclasses.replace(DEFAULTS, iterations=iterations)
    record = with_bar(lambda watch: keys_scenario.run(arrays, options, watch))
    write(json_path, record)
    if json_path != "-":
        tables.show_keys(screen.out(), record, REPEATS)


def write(json_path: str | None, record: Record) -> None:
    """Write a record with what its samples imply, if that was asked for."""
    if json_path is None:
        return
    outputs.write(json_path, to_json(record, tables=[computed(case) for case in record.cases()]))


def with_bar(run: Callable[[Callable[[Progress], None]], Record]) -> Record:
    """Run a scenario with a progress bar on stderr."""
    with screen.progress_bar(screen.err(), left=screen.SecondsLeftColumn()) as bar:
        task = bar.add_task("checking the file", total=None)

        def watch(progress: Progress) -> None:
            bar.update(
                task,
                completed=progress.done,
                total=progress.total or None,
                description=progress.next,
                left=progress.seconds_left,
            )

        return run(watch)


def computed(case: Record) -> dict[str, object]:
    """Return what readers want of a record of one case and its samples imply: rows and sentences."""
    roles = ("row", "ceiling", "control")
    return {
        "case": case.case._asdict(),
        "rows": [dataclasses.asdict(row) for role in roles for row in summary.rows_of(case, role)],
        "sentences": [sentence.text for sentence in sentences.sentences_of(case)],
    }
