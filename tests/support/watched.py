"""Processes to be sampled: each runs some lines of Python, reports it, and waits for a request to go on or to end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from typing import Any, Self

TOUCH = """
    def touch(memory, begin=0, end=None, step=4096):
        return sum(memory[at] for at in range(begin, len(memory) if end is None else end, step))
"""
MAP = """
    import mmap, sys
    file = open(sys.argv[1], "rb")
    memory = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
"""
TOUCH_ALL = "    touch(memory)\n"
"""Lines for `Watched` that map the file of the first argument, and that bring all of it into memory."""


class Watched:
    """Processes that ran `code`; `after` is run on request. Killed at the end of a ``with`` block."""

    def __init__(self, code: str, *arguments: object, count: int = 1, after: str = "pass") -> None:
        lines = textwrap.dedent(TOUCH) + textwrap.dedent(code)
        lines += "\nimport sys\nprint('ready', flush=True)\nwhile sys.stdin.readline():\n"
        lines += textwrap.indent(textwrap.dedent(after), "    ") + "\n    print('done', flush=True)\n"
        command = [sys.executable, "-c", lines, *map(str, arguments)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.children: list[Any] = [subprocess.Popen(command, start_new_session=True, **pipes) for _ in range(count)]
        try:
            self._expect("ready")
        except BaseException:
            self.__exit__()
            raise

    @property
    def pids(self) -> list[int]:
        return [child.pid for child in self.children]

    def go_on(self) -> None:
        for child in self.children:
            child.stdin.write("\n")
            child.stdin.flush()
        self._expect("done")

    def kill(self, *numbers: int) -> None:
        """Kill some of the processes, and wait for their end."""
        for number in numbers:
            self.children[number].kill()
            self.children[number].wait()

    def _expect(self, word: str) -> None:
        for child in self.children:
            line = child.stdout.readline()
            assert line == f"{word}\n", f"{line!r} came, not {word}; status {child.poll()}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.children:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # what it forked, too
            child.communicate()
