"""What the tests of the writer share: an old file and a new one, and system calls that fail or kill."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
from tests.support import seccomp

import onecopy as oc

MIB = 1 << 20
OLD = {"old": np.arange(1000)}
NEW = {"new": np.arange(20 * MIB // 8), "b": np.full((3, 3), 7, np.int8)}  # four writes, and the header again
HIDDEN = re.compile(r"\.onecopy-[0-9a-f]{8}-([0-7]|[0-9a-f]{8})")

# seccomp(2): an action that the kernel does not know kills the process, with SIGSYS. Together with the number of an
# error, this is none that it knows.
KILL = 0x8000_0000
RENAMES = ("rename", "renameat", "renameat2")


def some_opens(mask: int, value: int) -> list[seccomp.Refusal]:
    """Return the opening of files with certain flags."""
    return [seccomp.Refusal("open", 1, mask, value), seccomp.Refusal("openat", 2, mask, value)]


seccomp.PARTIAL.update(
    {
        "open a new file": some_opens(os.O_EXCL, os.O_EXCL),
        "open the folder": some_opens(os.O_TMPFILE | os.O_PATH, os.O_DIRECTORY),
        "write the first piece": [seccomp.Refusal("pwrite64", 2, value=2 * MIB)],
        "write the last piece": [seccomp.Refusal("pwrite64", 3, value=18 * MIB)],
        "write the header": [seccomp.Refusal("pwrite64", 2, value=4096)],
    }
)


def save_without(unnamed: bool, path: Path, *names: str, error: int | None = None) -> None:
    """Save `NEW` while calls are refused; without unnamed files too, unless `unnamed`."""
    if not unnamed:
        seccomp.refuse("O_TMPFILE")
    if names:
        seccomp.refuse(*names, error=error)
    oc.save(path, NEW)


class Late(dict[str, np.ndarray]):
    """`NEW`, with something that happens when the first array is asked for its data: the file has been begun then."""

    def __init__(self, action: Callable[[], object]) -> None:
        super().__init__(NEW)
        self.action = action
        self.asked = 0

    def __getitem__(self, name: str) -> np.ndarray:
        self.asked += 1
        if self.asked == len(NEW) + 1:
            self.action()
        return super().__getitem__(name)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
