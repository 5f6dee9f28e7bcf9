"""Processes of `onecopy hold` that look every 50 ms and report as JSON."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator

COMMAND = [sys.executable, "-m", "onecopy", "hold", "--interval", "0.05s", "--json"]


@contextlib.contextmanager
def holder(*arguments: object, command: list[str] = COMMAND) -> Iterator[subprocess.Popen[str]]:
    """Start a process that holds files until the block ends; give it, with the pipes of its output."""
    process = subprocess.Popen(
        [*command, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
