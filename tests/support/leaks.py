"""After each test: what it left in this process and on the machine fails it.

Compared are open descriptors, mappings of files, Python threads and threads of onecopy, child processes and processes
whose parent has ended, and files in /dev/shm and in the default store. What fixtures of a wider scope hold is there
before the test, and stays.
"""

import gc
import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.children import children_of, descriptors, orphans
from tests.support.places import TEMPORARY

PATIENCE = 3.0
"""Seconds that a thread or process may take to end on request."""

# Servers that multiprocessing starts once and keeps for the life of a process.
KEPT_PROCESSES = re.compile(r"multiprocessing\.(resource_tracker|forkserver)")
# Threads that zarr, tqdm and an executor of asyncio keep; the server of the benchmark's peer that hands out tensors.
KEPT_THREADS = re.compile(r"asyncio_|zarr_io|tqdm_monitor|Thread-\d+ \(_answer\)")
# A pipe or socket belongs to one of those servers, or to a thread pool or event loop that a library keeps; libraries
# keep files of their own open: fonts, extensions, semaphores, the logs of a driver of Ray.
KEPT_DESCRIPTORS = re.compile(
    r"pipe:|socket:|anon_inode:|/dev/(null|urandom|tty|pts)|/proc/(?!\d+/status$)|/sys/|/usr/|\.so|/\.onnxruntime/|/dev/shm/sem\.|/ray/session_"
    rf"|{re.escape(sys.prefix)}/"
)
OURS = re.compile(rf"{re.escape(TEMPORARY)}/|/dev/shm/|/var/tmp/|/memfd:onecopy|/memfd:scratch")


def descriptors_of_tests() -> Counter[str]:
    """Count open descriptors by what they are open on, without those that libraries keep."""
    return Counter(name for name in descriptors() if not KEPT_DESCRIPTORS.search(name))


def mappings() -> Counter[str]:
    """Count mapped files that tests make: their pieces are one, since permissions split a mapping."""
    with open("/proc/self/maps") as file:  # noqa: PTH123
        names = {line.split(maxsplit=5)[5].rstrip() for line in file if line.count(" ") > 5 and "/" in line}
    return Counter(name for name in names if OURS.match(name) and not KEPT_DESCRIPTORS.search(name))


def threads() -> Counter[str]:
    """Count Python's threads by name, and those that the core starts."""
    found = Counter(thread.name for thread in threading.enumerate() if not KEPT_THREADS.match(thread.name))
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            name = (task / "comm").read_text().strip()
            if name.startswith("onecopy-"):
                found[name] += 1
    return found


def children() -> Counter[str]:
    """Count child processes, zombies included, and orphans of the session, by their pid and command."""
    found: Counter[str] = Counter()
    for pid in (*children_of(os.getpid()), *orphans()):
        with suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:100]
            if not KEPT_PROCESSES.search(command):
                found[f"{pid} {command or '(zombie)'}"] += 1
    return found


def files() -> Counter[str]:
    """Count files in /dev/shm and in the default store."""
    store = Path(os.environ.get("HOME", "/nowhere")) / ".cache/onecopy"
    return Counter(str(path) for folder in (Path("/dev/shm"), store) for path in folder.rglob("*") if path.is_file())


def hooks() -> Counter[str]:
    """Count finders of modules that replace functions of frameworks: `onecopy.auto` belongs in other interpreters."""
    found = (type(finder) for finder in sys.meta_path)
    return Counter(one.__qualname__ for one in found if one.__module__.startswith("onecopy.auto"))


KINDS = {
    one.__name__.partition("_")[0]: one for one in (descriptors_of_tests, mappings, threads, children, files, hooks)
}


def held() -> dict[str, Counter[str]]:
    """Count what this process and the machine hold, by kind."""
    return {kind: count() for kind, count in KINDS.items()}


def left_since(before: dict[str, Counter[str]]) -> dict[str, list[str]]:
    """List what is there now and was not before, by kind."""
    return {kind: sorted((now - before[kind]).elements()) for kind, now in held().items() if now - before[kind]}


@pytest.fixture(autouse=True)
def nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test after which more is held than before it."""
    before = held()
    yield
    request.node.funcargs.clear()  # the values of its fixtures, which have ended
    if not left_since(before):
        return
    end = time.monotonic() + PATIENCE
    gc.collect()
    while (left := left_since(before)) and time.monotonic() < end:
        time.sleep(0.02)
        gc.collect()
    if not left:
        return
    pytest.fail("left behind: " + "; ".join(f"{kind}: {', '.join(names)}" for kind, names in left.items()))
