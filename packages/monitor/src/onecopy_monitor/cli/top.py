"""`onecopy top`: show the memory of processes and files, live or once, without counting pages twice."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import select
import sys
import time
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

import click
from rich.live import Live
from rich.text import Text

from onecopy.base.text import escape
from onecopy.cli import screen
from onecopy.memory import proc
from onecopy.memory.copies import find
from onecopy_monitor import FileReading, ProcessReading, Sampler, Totals
from onecopy_monitor.cli import groups, top_screen

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from onecopy_monitor import Snapshot

MAX_COMPARED = 64
"""Maximum number of processes whose pages are compared."""
COMPARING_SECONDS = 0.2
"""Approximate number of seconds for comparing pages."""
HELP = "q quit  t tree  sort by: s share  a anon  f file  r rss  w swap  m faults  c cpu"


@click.command("top")
@groups.which
@click.option("--sort", type=click.Choice(list(top_screen.ORDERS)), default="share", show_default=True, help="Order.")
@click.option(
    "--limit",
    "-n",
    type=click.IntRange(min=1),
    help="Maximum number of processes and of files to show.",
)
@click.option("--once", is_flag=True, help="Print one sample and exit.")
@click.option("--json", "as_json", is_flag=True, help="Print one sample as JSON, in bytes.")
@click.option(
    "--csv",
    "as_csv",
    is_flag=False,
    flag_value="processes",
    type=click.Choice(["processes", "files", "total"]),
    help="Print one sample as CSV, with a line for each process, each big file, or the group.",
)
@groups.rate
def command(
    *,
    pids: tuple[int, ...],
    tree: bool,
    sort: str,
    limit: int | None,
    interval: float,
    once: bool,
    as_json: bool,
    as_csv: str | None,
    budget: float,
    **options: Any,
) -> None:
    """Show the memory of processes and the big files that they map, counting each page once.

    REAL is the deduplicated total: the private memory of all processes, and each shared page once. SHARE is one
    process's share of that total. COPIES is private memory that duplicates other pages of these processes,
    estimated from a part of the pages; `onecopy explain` names the files. Without a PID, --regex, --cgroup or --file,
    all processes are sampled.

    No privileges are needed: numbers that cannot be read are shown as unknown. No process is stopped.
    """
    single = once or as_json or as_csv is not None or not sys.stdout.isatty()
    with groups.sampler_of(pids, tree=tree, budget=budget, huge=True, **options) as sampler:
        if not single:
            _live(sampler, top_screen.View(sort, tree, limit), interval, budget / 100)
            return
        snapshot = sampler.sample()
        if as_json:
            values = as_dict(snapshot)
            copies = copies_in(snapshot)
            values["processes"] = [{**one, "copies": copies.get(one["pid"])} for one in values["processes"]]
            click.echo(json.dumps(values, indent=1))
        elif as_csv is not None:
            _write_csv(snapshot, as_csv)
        else:
            _print(screen.out(), snapshot, top_screen.View(sort, tree, limit))


def as_dict(snapshot: Snapshot) -> dict[str, Any]:
    """Return a snapshot as a JSON-compatible dict that begins with the total."""
    values = snapshot.as_dict()
    return {"total": values.pop("totals"), **values}


def copies_in(snapshot: Snapshot) -> dict[int, int]:
    """Estimate how many private bytes of each process duplicate other pages, by comparing a part of the pages.

    Only the processes with the most private memory are compared.
    """
    regions = {}
    for one in sorted(snapshot.processes, key=lambda one: -one.anonymous)[:MAX_COMPARED]:
        if one.state not in "DZ":  # one that waits in the kernel could make this process wait
            with contextlib.suppress(OSError):
                regions[one.pid] = proc.smaps(one.pid)
    return dict(find(regions, seconds=COMPARING_SECONDS, others=False).data)


def _print(console: Console, snapshot: Snapshot, view: top_screen.View) -> None:
    view.history.add(snapshot)
    view.copies = copies_in(snapshot)
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
        cells = asdict(row)
        writer.writerow([_cell(cells[name]) for name in names])


def _cell(value: object) -> object:
    """Return the value of a cell: escape control characters in names, and join the numbers in tuples with spaces."""
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, tuple):
        return " ".join(":".join(map(str, one)) if isinstance(one, tuple) else str(one) for one in value)
    return "" if value is None else value


def _live(sampler: Sampler, view: top_screen.View, interval: float, budget: float) -> None:
    """Take and show samples until q or Ctrl-C is pressed, at a rate that keeps the CPU time within the budget."""
    limit = view.limit
    console = screen.out()
    start, spent = time.monotonic(), time.process_time()
    wait, compare_at = interval, start
    with (
        contextlib.suppress(KeyboardInterrupt, EOFError),
        single_keys() as listening,
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while True:
            before = time.process_time()
            snapshot = sampler.sample()
            view.history.add(snapshot)
            if time.monotonic() >= compare_at:
                spent_before = time.process_time()
                view.copies = copies_in(snapshot)
                compare_at = time.monotonic() + (time.process_time() - spent_before) / budget
            view.cost = (before - spent) / max(time.monotonic() - start, 1.0)
            while True:
                view.limit = limit or _rows_that_fit(snapshot, console.height)
                lines = top_screen.lines_of(snapshot, view, console.width, wait)[: console.height - 1]
                lines += [Text("")] * (console.height - 1 - len(lines))
                if listening:
                    lines.append(Text(HELP, style="dim"))
                live.update(Text("\n", no_wrap=True, overflow="crop").join(lines), refresh=True)
                wait = max(interval, sampler.pause, (time.process_time() - before) / budget)
                typed = keys_within(wait, listening=listening)
                if typed is None:
                    break
                for key in typed:
                    if key in ("q", "Q"):
                        return
                    view.sort = top_screen.SORT_KEYS.get(key, view.sort)
                    view.tree = not view.tree if key == "t" else view.tree


@contextlib.contextmanager
def single_keys() -> Iterator[bool]:
    """Make keys readable without Enter inside the block. Yield whether stdin is a terminal. Ctrl-C still interrupts."""
    import termios
    import tty

    if not sys.stdin.isatty():
        yield False
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield True
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def keys_within(seconds: float, *, listening: bool) -> str | None:
    """Wait for keys and return them, or None after `seconds`. If not `listening`, only wait.

    A key that the terminal sends as several characters, such as an arrow key, ends the result and is not included.
    Raise EOFError if the terminal no longer exists.
    """
    if not listening:
        time.sleep(seconds)
        return None
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    if not ready:
        return None
    typed = os.read(sys.stdin.fileno(), 256)
    if not typed:
        raise EOFError
    return typed.decode("utf-8", "replace").partition("\x1b")[0]


def _rows_that_fit(snapshot: Snapshot, height: int) -> int:
    """Return how many processes and files fit on a screen of `height` lines."""
    left = height - 14
    return max(left // 2 if len(snapshot.files) > left // 3 else left - len(snapshot.files), 3)


__all__ = ["as_dict", "command"]
