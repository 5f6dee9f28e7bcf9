"""What the tests of the store share: processes that ask it for something, and what must be left of them."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import onecopy as oc

SIZE = 300_000  # bytes
PATIENCE = 60  # seconds until something that hangs is ended


def content_of(key: str) -> np.ndarray:
    """Return what belongs to a key, and to no other."""
    return np.random.default_rng(list(key.encode())).integers(0, 256, SIZE, np.uint8)


class Recipe:
    """A build function that writes into a log each time it is called."""

    def __init__(self, key: str, log: Path, before: Callable[[], object] = bool) -> None:
        self.key, self.log, self.before = key, log, before

    def __call__(self, path: Path) -> None:
        with self.log.open("a") as log:
            log.write(f"{self.key}\n")
        self.before()
        oc.save(path, {"content": content_of(self.key)})


def builds(log: Path) -> list[str]:
    """Return the keys that were built, in order."""
    return log.read_text().split() if log.exists() else []


def is_right(artefact: oc.store.Artefact) -> bool:
    """Tell whether an artefact is what belongs to its key."""
    with oc.open(artefact.path) as file:
        return np.array_equal(file["content"], content_of(artefact.key))


def descriptors() -> list[str]:
    """List what this process has open, by the names that files had when they had one."""
    found = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - the numbers themselves
        with contextlib.suppress(OSError):
            # What a forked child inherits of a thread that waits may lose its name while the child looks.
            found.append(os.readlink(f"/proc/self/fd/{name}").removesuffix(" (deleted)"))  # noqa: PTH115
    return sorted(found)


def fork(work: Callable[[], Any]) -> int:
    """Do something in a forked process; it leaves with 0 where that returned something true."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.alarm(PATIENCE)
            status = 0 if work() else 2
        except KeyboardInterrupt:
            status = 130
        finally:
            os._exit(status)
    return pid


def status_of(pid: int) -> int:
    """Wait for a process."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def until(condition: Callable[[], object]) -> None:
    """Wait for something that comes soon."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.001)


def is_alive(pid: int) -> bool:
    """Tell whether a process is there and runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def killed_at_the_end(pids: list[int]) -> Iterator[None]:
    """Kill processes that are not children of ours, however the block ends."""
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def suffixes(store: oc.Store) -> list[str]:
    """List the files of a store by what they are; hidden ones by their whole name."""
    return sorted(path.suffix or path.name for path in store.folder.iterdir())
