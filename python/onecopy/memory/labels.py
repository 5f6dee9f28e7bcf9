"""Short names of processes: for an interpreter, with the name of the script that it runs."""

from __future__ import annotations

import os
from contextlib import suppress

from onecopy.memory import proc

__all__ = ["label_of"]

_INTERPRETERS = ("python", "pypy", "node", "java", "ruby", "perl", "bash", "sh", "dash")
_WITH_VALUE = ("-W", "-X")


def label_of(pid: int, name: str) -> str:
    """Return a short name of a process, given its name in the kernel; the result may contain any character.

    >>> label_of(0, "postgres")
    'postgres'
    """
    with suppress(OSError):
        words = proc.process_text(pid, "cmdline").rstrip("\0").split("\0")
        return label_from(words, name)
    return name


def label_from(words: list[str], name: str) -> str:
    """Return a short name of a process, given the words of its command line and its name in the kernel.

    >>> label_from(["/usr/bin/python3", "-u", "/srv/train.py", "--epochs", "3"], "python3")
    'python3 train.py'
    >>> label_from(["python", "-m", "torch.distributed.run", "x"], "pt_main_thread")
    'pt_main_thread torch.distributed.run'
    >>> label_from(["python", "-c", "import this"], "python")
    'python -c'
    """
    program = os.path.basename(words[0]) if words else ""  # noqa: PTH119 - text
    if not program.startswith(_INTERPRETERS):
        return name
    rest = iter(words[1:])
    for word in rest:
        if word == "-m":
            return f"{name} {next(rest, '')}".rstrip()
        if word == "-c":
            return f"{name} -c"
        if word in _WITH_VALUE:
            next(rest, None)
        elif not word.startswith("-"):
            return f"{name} {os.path.basename(word)}"  # noqa: PTH119
    return name
