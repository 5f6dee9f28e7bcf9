"""`onecopy why PID...`: what the memory of a process is, in sentences, with an exit status for scripts."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import get_args

import click

from onecopy.cli import screen
from onecopy.memory.diagnosis import Code, Diagnosis, why

WRONG = 3


def codes(_: click.Context, parameter: click.Parameter, text: str | None) -> tuple[str, ...] | None:
    """Return the codes of a list with commas."""
    if text is None:
        return None
    found = tuple(text.split(","))
    if unknown := [code for code in found if code not in get_args(Code)]:
        raise click.BadParameter(f"{unknown[0]!r} is none of {', '.join(get_args(Code))}", param=parameter)
    return found


@click.command("why")
@click.argument("pids", nargs=-1, required=True, type=click.IntRange(min=1), metavar="PID...")
@click.option(
    "--seconds",
    type=click.FloatRange(0, 3600),
    default=1.0,
    show_default=True,
    help="Sample twice, so long apart: what grows, what is read again.",
)
@click.option(
    "--fail-on", callback=codes, metavar="CODE,...", help="What makes the exit status 3; else what is marked !."
)
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout: a list with one diagnosis per process.")
def command(*, pids: tuple[int, ...], seconds: float, fail_on: tuple[str, ...] | None, as_json: bool) -> int:
    """Explain the memory of each PID in sentences, and what is wrong with it.

    Codes: cache, dirty, shmem, written, heap, kept, forked, peak, page-tables, swap, growing, refaults, container. Exit
    status 3 where something is wrong. Walks page tables: 6 to 22 ms per GiB, for which the process may have to wait.
    """
    found = [why(pid, seconds=seconds) for pid in pids]
    if as_json:
        click.echo(json.dumps([asdict(one) for one in found], indent=1))
    else:
        console = screen.out()
        for one in found:
            for number, line in enumerate(str(one).splitlines()):
                (screen.show_line if number else screen.show_heading)(console, line)
    return WRONG if any(_wrong(one, fail_on) for one in found) else 0


def _wrong(diagnosis: Diagnosis, fail_on: tuple[str, ...] | None) -> bool:
    if fail_on is None:
        return bool(diagnosis.bad)
    return any(one.code in fail_on for one in diagnosis.causes)
