"""`onecopy bench SCENARIO`: run a scenario in fresh processes and show what it says."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onecopy.bench import sentences, summary
from onecopy.bench.configurations import REPEATS
from onecopy.bench.record import Options, Record, to_json
from onecopy.bench.scenarios import keys as keys_scenario
from onecopy.bench.scenarios import open as open_scenario
from onecopy.cli import bench_crossover, bench_tables, bench_warm, screen

if TYPE_CHECKING:
    from collections.abc import Callable

    from onecopy.bench.runner import Progress

DEFAULTS = Options()


@click.group("bench")
def command() -> None:
    """Measure in fresh processes, with a declared state of the page cache."""


command.add_command(bench_warm.command)
command.add_command(bench_crossover.command)


@command.command("open")
@click.argument("file", type=click.Path())
@click.option(
    "-n",
    "--processes",
    type=click.IntRange(min=1),
    default=DEFAULTS.processes,
    show_default=True,
    help="Processes that load the file at once.",
)
@click.option("--cold", is_flag=True, help="Evict this one file before each sample, and prove it.")
@click.option(
    "--iterations",
    type=click.IntRange(min=1),
    default=DEFAULTS.iterations,
    show_default=True,
    help="Rounds; each takes every configuration once, in random order.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=DEFAULTS.timeout,
    show_default=True,
    help="Seconds that one phase of a child may take.",
)
@click.option(
    "--idle-wait",
    type=click.FloatRange(min=0),
    default=DEFAULTS.idle_wait,
    show_default=True,
    help="Seconds that the whole run may wait for an idle machine.",
)
@click.option("--ceilings/--no-ceilings", default=True, help="O_DIRECT readings too, or not.")
@click.option("--seed", type=int, default=DEFAULTS.seed, show_default=True, help="Of the order in each round.")
@click.option("--json", "json_path", metavar="OUT", help="Write the record here; '-' for stdout, without tables.")
def open_command(
    file: str,
    json_path: str | None,
    **chosen: int | float | bool,
) -> None:
    """Measure how FILE opens: copied, mapped, warmed, by its peers, and by the device alone."""
    if json_path not in (None, "-") and not Path(str(json_path)).absolute().parent.is_dir():
        raise click.BadParameter(f"no folder for {json_path!r}", param_hint="--json")
    options = dataclasses.replace(DEFAULTS, **chosen)  # type: ignore[arg-type]
    record = with_bar(lambda watch: open_scenario.run(file, options, watch))
    text = to_json(record, **computed(record))
    if json_path == "-":
        click.echo(text, nl=False)
        return
    bench_tables.show(screen.out(), record)
    if json_path is not None:
        Path(json_path).write_text(text)


@command.command("keys")
@click.option("--arrays", type=click.IntRange(min=1), default=20_000, show_default=True, help="Arrays in the file.")
@click.option(
    "--iterations", type=click.IntRange(min=1), default=DEFAULTS.iterations, show_default=True, help="Rounds."
)
@click.option("--json", "json_path", metavar="OUT", help="Write the record here.")
def keys_command(arrays: int, iterations: int, json_path: str | None) -> None:
    """Measure opening a file of many arrays and listing their names."""
    options = dataclasses.replace(DEFAULTS, iterations=iterations)
    record = with_bar(lambda watch: keys_scenario.run(arrays, options, watch))
    bench_tables.show_keys(screen.out(), record, REPEATS)
    if json_path is not None:
        Path(json_path).write_text(to_json(record, **computed(record)))


def with_bar(run: Callable[[Callable[[Progress], None]], Record]) -> Record:
    """Run a scenario with a progress bar on stderr."""
    with screen.progress_bar(screen.err()) as bar:
        task = bar.add_task("checking the file", total=None)

        def watch(progress: Progress) -> None:
            bar.update(task, completed=progress.done, total=progress.total, description=progress.next)

        return run(watch)


def computed(record: Record) -> dict[str, object]:
    """Return what the record's readers want and its samples imply: rows and sentences."""
    return {
        "rows": [
            dataclasses.asdict(row) for role in ("row", "ceiling", "control") for row in summary.rows_of(record, role)
        ],
        "sentences": [sentence.text for sentence in sentences.sentences_of(record)],
    }
