"""`onecopy run -- COMMAND...`: run a program whose processes share what they load, without a change of the program."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onecopy.cli import BLOCKED_EARLY, child
from onecopy.runs import RUN, call_log
from onecopy.runs.keeper import Keeper
from onecopy.runs.report import Report, Sampler
from onecopy.snapshots import KEEPER, MAP_WRITABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

SAMPLING_SECONDS = 0.25


@click.command("run")
@click.option(
    "--report",
    "output",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Write the report as JSON when COMMAND ends.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print no report.")
@click.option("--keep", is_flag=True, help="Keep what is shared in the store, on disk, for the next run.")
@click.option(
    "--map-writable",
    is_flag=True,
    help="Map files themselves, without a copy. A write to a file then changes what the processes have loaded, and "
    "truncating it ends them.",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="[--] COMMAND...")
def command(*, output: str | None, quiet: bool, keep: bool, map_writable: bool, command: tuple[str, ...]) -> None:
    """Run COMMAND, and have its Python processes hold what they load once for all of them.

    Model weights and arrays that torch, transformers, safetensors, ONNX Runtime, numpy and joblib load from files
    become copy-on-write memory of one snapshot, which this process keeps until COMMAND ends: the first process that
    loads a file copies it, the others map the copy, and the file may be written or replaced meanwhile. The report has
    what was shared, what was not, and why; it is printed on stderr when COMMAND ends, and when this process receives
    SIGUSR2.

    The exit status is that of COMMAND, or 128 + N if signal N ended it; other signals are forwarded to it. onecopy must
    be installed in the environment of COMMAND. Processes that ignore PYTHONPATH (python -I, -E) share nothing.
    """
    try:
        descriptor = os.memfd_create(call_log.RUN_FILE, os.MFD_CLOEXEC)
    except (OSError, AttributeError) as error:  # only Linux has the function
        raise click.ClickException(f"memory for the report: {error}; `onecopy run` needs memfd_create") from None
    sampler = Sampler(descriptor)
    keeper = Keeper(sampler.sample, SAMPLING_SECONDS)
    environment = _environment(os.environ, descriptor) | ({} if keep else {KEEPER: keeper.environment})
    if map_writable:
        environment[MAP_WRITABLE] = "1"
    with child.blocked_signals() as before:
        try:
            pid = child.start(command, before - BLOCKED_EARLY, environment)
        except OSError as error:
            raise click.exceptions.Exit(child.refused(command, error)) from None
        sampler.root = pid
        keeper.start()
        while not child.has_ended(pid):
            if child.wait(pid, kept=signal.SIGUSR2):
                sampler.sample()
                _print(_report(descriptor, sampler, living=True))
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        sampler.sample()
        report = _report(descriptor, sampler)
        if not quiet:
            _print(report)
        if output is not None:
            Path(output).write_text(json.dumps(_facts(report), indent=1) + "\n")
    raise click.exceptions.Exit(child.exit_status(status))


def _environment(given: Mapping[str, str], descriptor: int) -> dict[str, str]:
    """Return the environment in which every Python process imports `onecopy.auto` when it starts."""
    found = find_spec("onecopy.auto")
    assert found is not None
    assert found.origin is not None
    folder = str(Path(found.origin).parent / "startup")
    paths = given.get("PYTHONPATH", "")
    others = [each for each in paths.split(os.pathsep) if each != folder] if paths else []  # "" is the working folder
    return {
        **{name: given[name] for name in given if name not in (KEEPER, MAP_WRITABLE)},
        "PYTHONPATH": os.pathsep.join((folder, *others)),
        RUN: f"/proc/{os.getpid()}/fd/{descriptor}",
    }


def _report(descriptor: int, sampler: Sampler, *, living: bool = False) -> Report:
    """Return the report of all processes, or of those that are alive."""
    lines = os.pread(descriptor, call_log.LARGEST_RUN, 0).split(b"\n")
    calls = call_log.parse_calls(lines)
    chosen = [call for call in calls if not living or Path(f"/proc/{call.pid}").exists()]
    return Report.of(chosen, sampler.private, sampler.read_files)


def _print(report: Report) -> None:
    click.echo(f"onecopy: {report}", err=True)


def _facts(report: Report) -> dict[str, Any]:
    return {**asdict(report), "saved": report.saved}
