"""`onecopy explain`: what processes use memory for, how much of it is copies, and what to do."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, get_args

import click

from onecopy.base.text import amount, counted, size
from onecopy.cli import child, options, screen
from onecopy.memory import proc
from onecopy.memory.explaining import Code, Explanation, explain
from onecopy.memory.selection import all_pids, in_group, named, with_descendants
from onecopy.run.report import causes_of_run

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WRONG = 3
"""Exit status if any cause is a problem."""
_TICK = 0.5
_GROWN, _STEADY = 1.2, 0.02
"""A command is examined again if its private memory has grown by this factor, but by less than this share per tick."""


class WithCommand(click.Command):
    """A verb that accepts a command after "--", and passes it as the argument `command`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Split off the command."""
        words = list[str]()
        if "--" in args:
            args, words = args[: args.index("--")], args[args.index("--") + 1 :]
        rest = super().parse_args(ctx, args)
        ctx.params["command"] = tuple(words)
        return rest


def codes(_: click.Context, parameter: click.Parameter, text: str | None) -> tuple[str, ...] | None:
    """Parse a comma-separated list of codes."""
    if text is None:
        return None
    found = tuple(text.split(","))
    if unknown := [code for code in found if code not in get_args(Code)]:
        raise click.BadParameter(f"{unknown[0]!r} is not one of {', '.join(get_args(Code))}", param=parameter)
    return found


@click.command("explain", cls=WithCommand)
@click.argument("targets", nargs=-1, metavar="[PID | NAME]... [-- COMMAND...]")
@click.option("--children", type=options.PID, multiple=True, metavar="PID", help="PID and its descendants. Repeatable.")
@click.option("--cgroup", "group", metavar="GROUP", help="Processes in this control group (/a/b) or below.")
@click.option(
    "--look-in",
    type=click.Path(exists=True),
    multiple=True,
    metavar="PATH",
    help="A file, or a folder with files, that the processes may have loaded. Repeatable.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.01, 600),
    default=2.0,
    show_default=True,
    help="Approximate time limit for comparing pages; if there are too many, a random part is compared.",
)
@click.option(
    "--after", type=options.TIME, metavar="TIME", help="Examine COMMAND after this time, and end it with SIGTERM."
)
@click.option(
    "--fail-on",
    callback=codes,
    metavar="CODE,...",
    help="Codes that set the exit status to 3; default: the codes of lines marked with !.",
)
@click.option("--details", is_flag=True, help="Also show each process, and all causes.")
@options.as_json("JSON on stdout.")
def command(
    *,
    targets: tuple[str, ...],
    children: tuple[int, ...],
    group: str | None,
    after: float | None,
    command: tuple[str, ...],
    fail_on: tuple[str, ...] | None,
    **settings: Any,
) -> int:
    """Explain what processes use memory for, how much of it is copies of the same bytes, and what to do.

    All processes are explained together: each PID, the processes of a program called NAME with their descendants, or
    those of COMMAND. Their private pages are compared with each other, and with files that they may have loaded. The
    processes are neither stopped nor changed. Processes of other users require root.

    COMMAND is examined whenever its memory has grown. When it ends, the result with the most memory is printed.

    Codes: cache, copies, dirty, forked, heap, kept, libraries, run, shared,
    shmem, swap, written, zeros. The exit status is 3
    if there is a problem. With COMMAND and without --after, it is that of COMMAND.
    """
    show = {name: settings.pop(name) for name in ("details", "as_json")}
    if command:
        if targets or children or group:
            raise click.UsageError("specify either a COMMAND or running processes")
        found, status = _of_command(command, after, settings)
        if found is None:
            raise click.ClickException("the command ended before its memory could be examined")
        _show(found, **show, on_stderr=after is None and not show["as_json"])
        return status if after is None else _status(found, fail_on)
    if after is not None:
        raise click.UsageError("--after needs a COMMAND")
    pids = [pid for target in targets for pid in _pids_of(target)] + with_descendants(children)
    if group is not None:
        pids += [pid for pid in all_pids() if in_group(pid, group)]
    pids = [pid for pid in dict.fromkeys(pids) if pid != os.getpid()]
    if not pids:
        raise click.UsageError("no running processes match" if group else "specify a PID, a NAME or a COMMAND")
    found = _explained(pids, settings)
    _show(found, **show)
    return _status(found, fail_on)


def _pids_of(target: str) -> list[int]:
    if target.isdecimal():
        return [int(target)]
    found = with_descendants(named(target))
    if not found:
        raise click.ClickException(f"no process runs a program called {target!r}; `ps aux` lists commands and PIDs")
    return found


def _of_command(
    command: Sequence[str], after: float | None, settings: dict[str, Any]
) -> tuple[Explanation | None, int]:
    """Run a command. Return the explanation with the most memory, and the exit status of the command."""
    found, start, last = None, time.monotonic(), 0
    with child.blocked_signals() as before:
        try:
            pid = child.start(command, before)
        except OSError as error:
            raise SystemExit(child.refused(command, error)) from None
        private = 0
        while not child.has_ended(pid):
            child.wait(pid, _TICK)
            pids = with_descendants([pid])
            last, private = private, _private(pids)
            is_due = after is not None and time.monotonic() - start >= after
            is_steady = private - last <= _STEADY * private
            if is_due or (after is None and is_steady and private >= _GROWN * _examined(found)):
                with suppress(OSError):
                    found = _explained(pids, settings)
            if is_due:
                for each in pids:
                    with suppress(ProcessLookupError):
                        os.kill(each, signal.SIGTERM)
                after = None if found is None else float("inf")
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return found, child.exit_status(status)


def _explained(pids: Sequence[int], settings: dict[str, Any]) -> Explanation:
    found = explain(pids, **settings)
    return replace(found, causes=(*found.causes, *causes_of_run(pids)))


def _private(pids: Iterable[int]) -> int:
    total = 0
    for pid in pids:
        with suppress(OSError, ValueError):
            total += proc.status(pid).rss_anon or 0
    return total


def _examined(found: Explanation | None) -> int:
    return 0 if found is None else sum(one.private for one in found.processes)


def _status(found: Explanation, fail_on: tuple[str, ...] | None) -> int:
    wrong = found.bad if fail_on is None else [one for one in found.causes if one.code in fail_on]
    return WRONG if wrong else 0


def _show(found: Explanation, *, details: bool, as_json: bool, on_stderr: bool = False) -> None:
    if as_json:
        options.show_json(asdict(found))
        return
    console = screen.err() if on_stderr else screen.out()
    heading, _, rest = str(found).partition("\n\n")
    console.print(heading, style="bold", soft_wrap=True)
    for line in ("", *rest.splitlines()):
        console.print(line, style="bold red" if line.startswith("!") else "", soft_wrap=True)
    if details:
        console.print()
        for cause in found.causes:
            mark, each = "!" if cause.bad else " ", amount(cause.times, cause.bytes // cause.times)
            screen.show_line(console, f"{cause.code:<10}{mark} {each}   {cause.text}")
        console.print()
        _table(found).show(console)
        for group, number in Counter(one.group for one in found.processes).items():
            number_text = counted(number, "process", "processes")
            screen.show_line(console, f"{number_text} charged to {group or 'an unknown control group'}")
        for path, payers in found.charged:
            screen.show_line(console, f"{path}: {payers}")


def _table(found: Explanation) -> screen.Grid:
    grid = screen.Grid(">PID name~ >memory >private >copies >peak >page_tables >swap")
    for one in found.processes:
        amounts = (one.pss, one.private, one.copies, one.peak, one.page_tables, one.swap)
        sizes = ("?" if nbytes is None else size(nbytes) for nbytes in amounts)
        grid.add(str(one.pid), one.name, *sizes)
    return grid
