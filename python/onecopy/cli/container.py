"""`onecopy container [PID]`: show how much memory a container has left, next to the numbers that other tools show."""

from __future__ import annotations

import os
from dataclasses import asdict

import click

from onecopy.cli import options, screen
from onecopy.memory import container


@click.command("container")
@click.argument("pid", required=False, type=options.PID)
@options.as_json("JSON on stdout, in bytes.")
def command(*, pid: int | None, as_json: bool) -> int:
    """Show the memory of the control group (cgroup v1 or v2) of PID, or of this shell.

    The output shows the limit, the unreclaimable memory, clean and dirty page cache, why Kubernetes shows a
    different number, and refaults and pressure, which indicate a shortage of memory. The exit status is 3 if less than
    a tenth of the limit is left.
    """
    found = container(os.getppid() if pid is None else pid)
    if found is None:
        raise click.ClickException("the memory control group of the process is not visible")
    if as_json:
        options.show_json({**asdict(found), "unreclaimable": found.unreclaimable, "left": found.left})
    else:
        console = screen.out()
        screen.show_line(console, f"{found.directory} (cgroup v{found.version})", "bold")
        for sentence in found.sentences():
            screen.show_line(console, sentence)
    short = found.left is not None and found.limit is not None and found.left < found.limit // 10
    return 3 if short else 0
