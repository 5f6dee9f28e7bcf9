"""Which processes are looked at, how often, and at what price: the options of `onecopy top` and `onecopy serve`."""

from __future__ import annotations

import contextlib
import resource
from typing import TYPE_CHECKING, Any

import click

from onecopy.cli.quantities import TIME
from onecopy.memory import Sampler

if TYPE_CHECKING:
    from collections.abc import Callable

LEAST_S = 0.1
FIRST_S = 0.25
"""Of processor time, that the first look may take besides: a short wait, and 500 processes are known."""


def which(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that tell who is looked at: what `sampler_of` takes, but for the price."""
    for option in (
        click.option("--file", "mapping", type=click.Path(), metavar="PATH", help="Everyone who maps this file."),
        click.option("--cgroup", "group", metavar="GROUP", help="Processes in this control group or below: /a/b."),
        click.option("--match", metavar="REGEX", help="Processes whose name or command line contains this."),
        click.option("--tree", is_flag=True, help="Descendants of the processes too."),
        click.argument("pids", nargs=-1, type=click.IntRange(min=1), metavar="[PID]..."),
    ):
        command = option(command)
    return command


def price(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that tell how often somebody looks, how exactly, and what that may cost."""
    for option in (
        click.option(
            "--budget",
            type=click.FloatRange(0, 100, min_open=True),
            default=1.0,
            show_default=True,
            metavar="PERCENT",
            help="Of one processor, that looking may cost.",
        ),
        click.option("--exact", is_flag=True, help="PSS of everybody at each look: 6 to 22 ms per GiB and process."),
        click.option(
            "--every",
            default="1 s",
            show_default=True,
            type=TIME,
            callback=lambda _, __, seconds: max(seconds, LEAST_S),
            help="Between two looks.",
        ),
    ):
        command = option(command)
    return command


def sampler_of(pids: tuple[int, ...], *, tree: bool, budget: float, **options: Any) -> Sampler:
    """Return what looks at them; `budget` in per cent. One file stays open for each, so that limit is lifted."""
    with contextlib.suppress(OSError, ValueError):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return Sampler(pids or None, children=tree, budget=budget / 100, at_first=FIRST_S, **options)
