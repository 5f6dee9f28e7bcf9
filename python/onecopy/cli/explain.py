"""`onecopy explain PID...`: explain in sentences how processes use memory, with an exit status for scripts."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import get_args

import click

from onecopy.cli import options, screen
from onecopy.memory.explaining import Code, explain
from onecopy.run.report import causes_of_run

WRONG = 3
"""Exit status if any cause is a problem."""


def codes(_: click.Context, parameter: click.Parameter, text: str | None) -> tuple[str, ...] | None:
    """Parse a comma-separated list of codes."""
    if text is None:
        return None
    found = tuple(text.split(","))
    if unknown := [code for code in found if code not in get_args(Code)]:
        raise click.BadParameter(f"{unknown[0]!r} is not one of {', '.join(get_args(Code))}", param=parameter)
    return found


@click.command("explain")
@click.argument("pids", nargs=-1, required=True, type=options.PID, metavar="PID...")
@options.interval("1s", "Time between two samples, which show growth and refaults; 0: one sample.", least="0")
@click.option(
    "--fail-on",
    callback=codes,
    metavar="CODE,...",
    help="Codes that set the exit status to 3; default: the codes of lines marked with !.",
)
@options.as_json("JSON on stdout: a list with one object per process.")
def command(*, pids: tuple[int, ...], interval: float, fail_on: tuple[str, ...] | None, as_json: bool) -> int:
    """Explain in sentences how each PID uses memory, and which uses are problems.

    Codes: cache, dirty, shmem, written, heap, kept, forked, peak, page-tables, swap, growing, refaults, container,
    copies, run. The exit status is 3 if there is a problem. Reading PSS walks page tables, which may delay the process
    by 6 to 22 ms per GiB. For the code "copies", page tables of other processes of the same program are walked, too.
    """
    explained = [(pid, explain(pid, interval=interval)) for pid in pids]
    found = [replace(one, causes=(*one.causes, *causes_of_run(pid))) for pid, one in explained]
    if as_json:
        options.show_json([asdict(one) for one in found])
    else:
        console = screen.out()
        for one in found:
            heading, *lines = str(one).splitlines()
            screen.show_line(console, heading, "bold")
            for line in lines:
                screen.show_line(console, line)
    wrong = [one.bad if fail_on is None else [c for c in one.causes if c.code in fail_on] for one in found]
    return WRONG if any(wrong) else 0
