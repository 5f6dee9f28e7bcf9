"""What `bench warm`, `crossover` and `structs` share on the command line: options, the bar, tables, files."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any, TypeVar

import click

from onecopy.cli import screen, targets
from onecopy.cli.words import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from onecopy_bench.passes.series import Options
    from onecopy_bench.passes.tables import Table
    from onecopy_bench.runner import Progress

Function = TypeVar("Function", bound="Callable[..., Any]")
Found = TypeVar("Found")
POSITIVE = click.FloatRange(min=0, min_open=True)


def orders(default: tuple[str, ...]) -> Callable[[Function], Function]:
    """Return the option `--order`."""
    return click.option(
        "--order",
        "orders",
        type=click.Choice(["file", "shuffled"]),
        multiple=True,
        default=default,
        show_default=True,
        callback=lambda _, __, chosen: tuple(dict.fromkeys(chosen)),
        help="Touch the pieces in the file's order, or in a random one. Repeatable.",
    )


def timeout(default: float) -> Callable[[Function], Function]:
    """Return the option `--timeout`."""
    return click.option(
        "--timeout", type=POSITIVE, default=default, show_default=True, help="Seconds a sample may take."
    )


def idle_wait(default: float) -> Callable[[Function], Function]:
    """Return the option `--idle-wait`."""
    return click.option(
        "--idle-wait",
        type=click.FloatRange(min=0),
        default=default,
        show_default=True,
        help="Seconds that the whole run may wait for an idle machine.",
    )


def options(defaults: Options) -> Callable[[Function], Function]:
    """Return the options of all runs with passes."""
    each = (
        click.option(
            "--iterations",
            "rounds",
            type=click.IntRange(min=1),
            default=defaults.rounds,
            show_default=True,
            help="Rounds.",
        ),
        click.option(
            "--budget-s", type=POSITIVE, help="Seconds for all rounds: fewer rounds when short, one at least."
        ),
        click.option(
            "--limit-s",
            type=POSITIVE,
            default=defaults.limit_s,
            show_default=True,
            help="Seconds of passes after which a sample is cut short.",
        ),
        timeout(defaults.timeout),
        idle_wait(defaults.idle_wait),
        click.option("--seed", type=int, default=defaults.seed, show_default=True, help="Of pieces and orders."),
    )

    def decorate(function: Function) -> Function:
        for option in reversed(each):
            function = option(function)
        return function

    return decorate


def check_folders(*paths: str | None) -> None:
    """Raise a usage error where a file could not be written at the end of a long run."""
    for path in paths:
        if not targets.has_folder(path):
            raise click.UsageError(f"no folder for {path!r}")


def with_bar(run: Callable[[Callable[[Progress], None]], Found], first: str = "preparing") -> Found:
    """Run a scenario with a progress bar on stderr; SIGTERM ends it like Ctrl-C, so that no disk or group is left."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with screen.progress_bar(screen.err()) as bar:
            task = bar.add_task(first, total=None)

            def watch(progress: Progress) -> None:
                bar.update(task, completed=progress.done, total=progress.total, description=progress.next)

            return run(watch)
    finally:
        signal.signal(signal.SIGTERM, before)


def show(heading: str, tables: Sequence[Table], sentences: Iterable[str]) -> None:
    """Print a heading, tables, and sentences."""
    console = screen.out()
    screen.show_line(console, heading, "bold")
    for table in tables:
        console.print()
        screen.show_line(console, table.title, "bold")
        wide = grid(table, " ")
        (wide if wide.needed() <= console.width else grid(table, "\n")).show(console)
    console.print()
    for sentence in sentences:
        screen.show_line(console, sentence)


def grid(table: Table, between: str) -> screen.Grid:
    """Return a table for the screen; `between` parts the lines of a cell."""
    words = [title.replace("\n", between) for title in table.header]
    columns = (screen.Column(words[0]), *(screen.Column(title, right=True) for title in words[1:]))
    rows = [tuple(between.join(map(plain, cell.split("\n"))) for cell in row) for row in table.rows]
    return screen.Grid(columns, rows)
