"""Options of `onecopy top` and `onecopy serve`: which processes to sample, the sampling rate and the CPU time."""

from __future__ import annotations

import contextlib
import resource
from typing import TYPE_CHECKING, Any

import click

from onecopy.cli import options
from onecopy_monitor import Sampler

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST_S = 0.25
"""Additional CPU seconds for the first sample, enough to measure 500 processes."""


def which(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that select processes. `sampler_of` takes their values."""
    for option in (
        click.option("--file", "mapping", type=click.Path(), metavar="PATH", help="Processes that map this file."),
        click.option("--cgroup", "group", metavar="GROUP", help="Processes in this control group (/a/b) or below."),
        click.option("--regex", metavar="REGEX", help="Processes whose name or command line matches REGEX."),
        click.option("--tree", is_flag=True, help="Include descendants of the processes."),
        click.argument("pids", nargs=-1, type=options.PID, metavar="[PID]..."),
    ):
        command = option(command)
    return command


budget_option = click.option(
    "--budget",
    type=click.FloatRange(0, 100, min_open=True),
    default=1.0,
    show_default=True,
    metavar="PERCENT",
    help="Maximum CPU time of sampling, in percent of one CPU.",
)
exact_option = click.option("--exact", is_flag=True, help="Walk all page tables in every sample, ignoring the budget.")


def rate(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for the rate, precision and CPU budget of sampling. `sampler_of` takes their values."""
    return options.interval("1s", "Time between two samples.", least="100ms")(exact_option(budget_option(command)))


def sampler_of(pids: tuple[int, ...], *, tree: bool, budget: float, **settings: Any) -> Sampler:
    """Return a sampler of the selected processes, with a CPU budget in percent.

    The sampler keeps one file open per process, so the limit of open files is raised to its maximum.
    """
    with contextlib.suppress(OSError, ValueError):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return Sampler(pids or None, children=tree, budget=budget / 100, at_first=FIRST_S, **settings)
