"""`onecopy top`: who holds what, everything counted once, again and again."""

from __future__ import annotations

import contextlib
import csv
import json
import sys
import time
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

import click
from rich.live import Live
from rich.text import Text

from onecopy.cli import screen
from onecopy.cli.memory import groups, keys, top_screen
from onecopy.cli.words import plain
from onecopy.memory import FileReading, ProcessReading, Sampler, Totals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from onecopy.memory import Snapshot

HELP = "q quit  t tree  sort by: s share  a anon  f file  r rss  w swap  m faults  c cpu"


@click.command("top")
@groups.which
@click.option("--sort", type=click.Choice(list(top_screen.ORDERS)), default="share", show_default=True, help="Order.")
@click.option("--limit", "-n", type=click.IntRange(min=1), help="Processes and files at most; else what fits.")
@click.option("--once", is_flag=True, help="Sample once and print it.")
@click.option("--json", "as_json", is_flag=True, help="One look as JSON on stdout; total.real is in bytes.")
@click.option(
    "--csv",
    "as_csv",
    is_flag=False,
    flag_value="processes",
    type=click.Choice(["processes", "files", "total"]),
    help="One look as CSV on stdout: a line for each process, each big file, or the group.",
)
@groups.price
def command(
    *,
    pids: tuple[int, ...],
    tree: bool,
    sort: str,
    limit: int | None,
    every: float,
    once: bool,
    as_json: bool,
    as_csv: str | None,
    budget: float,
    **options: Any,
) -> None:
    """Show who holds memory, and which big files: everything counted once.

    REAL is what the processes hold together: the memory of each, and each file once, however many map it. SHARE is what
    of it is one process's. Without a PID, and without --match, --cgroup or --file, all processes of this machine.

    Needs no rights: what it may not see is told as unknown. Stops nobody.
    """
    single = once or as_json or as_csv is not None or not sys.stdout.isatty()
    with groups.sampler_of(pids, tree=tree, budget=budget, huge=True, **options) as sampler:
        if not single:
            _live(sampler, top_screen.View(sort, tree, limit), every, budget / 100)
            return
        snapshot = sampler.sample()
        if as_json:
            click.echo(json.dumps(as_dict(snapshot), indent=1))
        elif as_csv is not None:
            _write_csv(snapshot, as_csv)
        else:
            _print(screen.out(), snapshot, top_screen.View(sort, tree, limit))


def as_dict(snapshot: Snapshot) -> dict[str, Any]:
    """Return a look for JSON: the total first."""
    facts = snapshot.as_dict()
    return {"total": facts.pop("totals"), **facts}


def _print(console: Console, snapshot: Snapshot, view: top_screen.View) -> None:
    view.history.add(snapshot)
    for line in top_screen.lines_of(snapshot, view, console.width, None):
        console.print(line, soft_wrap=True)


def _write_csv(snapshot: Snapshot, what: str) -> None:
    tables: dict[str, tuple[type[ProcessReading | FileReading | Totals], Sequence[Any]]] = {
        "processes": (ProcessReading, snapshot.processes),
        "files": (FileReading, snapshot.files),
        "total": (Totals, (snapshot.totals,)),
    }
    kind, rows = tables[what]
    names = [one.name for one in fields(kind) if one.name not in ("walk", "notes")]
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        facts = asdict(row)
        writer.writerow([_cell(facts[name]) for name in names])


def _cell(value: object) -> object:
    """Return a cell: names as plain text, several numbers with spaces between them."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, tuple):
        return " ".join(":".join(map(str, one)) if isinstance(one, tuple) else str(one) for one in value)
    return "" if value is None else value


def _live(sampler: Sampler, view: top_screen.View, every: float, budget: float) -> None:
    """Sample and show, until q or Ctrl-C; so seldom that looking and showing cost no more than the budget."""
    limit = view.limit
    console = screen.out()
    start, spent = time.monotonic(), time.process_time()
    wait = every
    with (
        contextlib.suppress(KeyboardInterrupt),
        keys.single_keys() as listening,
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while True:
            before = time.process_time()
            snapshot = sampler.sample()
            view.history.add(snapshot)
            view.cost = (before - spent) / max(time.monotonic() - start, 1.0)
            while True:
                view.limit = limit or _room(snapshot, console.height)
                lines = top_screen.lines_of(snapshot, view, console.width, wait)[: console.height - 1]
                lines += [Text("")] * (console.height - 1 - len(lines))
                if listening:
                    lines.append(Text(HELP, style="dim"))
                live.update(Text("\n", no_wrap=True, overflow="crop").join(lines), refresh=True)
                wait = max(every, sampler.pause, (time.process_time() - before) / budget)
                key = keys.key_within(wait, listening=listening)
                if key is None:
                    break
                if key in ("q", "Q"):
                    return
                view.sort = top_screen.SORT_KEYS.get(key, view.sort)
                view.tree = not view.tree if key == "t" else view.tree


def _room(snapshot: Snapshot, height: int) -> int:
    """Return how many processes, and files, fit on a screen of so many lines."""
    left = height - 14
    return max(left // 2 if len(snapshot.files) > left // 3 else left - len(snapshot.files), 3)


__all__ = ["as_dict", "command"]
