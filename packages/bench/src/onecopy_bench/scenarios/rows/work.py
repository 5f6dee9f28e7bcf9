"""What a worker does: the loop of the article, once over all rows; and the same as a Dataset for a DataLoader.

"Demystify RAM usage in multi-process data loaders" reads each row and pickles it, which touches the reference count of
every object in it, as handing it on would. Beside that each row is judged by its checksum, at the same cost for all.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import pickle
import signal
import time
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from onecopy_bench.scenarios.rows.data import checksum

STRETCH = 256
"""Rows between two readings of the clock; the batch of a DataLoader."""

_PR_SET_PDEATHSIG = 1


class Pass(NamedTuple):
    """What one pass over the rows came to.

    `first_ns` is when the first row had been read, by the clock that all processes share; `rows` the rows read, in
    order from the first, before time was up; `total` the sum of their checksums.
    """

    first_ns: int
    rows: int
    total: int
    seconds: float


def read(rows: Any, index: int) -> int:
    """Read one row, pickle it as the article does, and return its checksum."""
    row = rows[index]
    pickle.dumps(row)
    return checksum(index, row)


def go_over(rows: Any, limit_s: float) -> Pass:
    """Read all rows in their order, or as many as there is time for."""
    first_ns = total = done = 0
    start = time.monotonic_ns()
    for begin in range(0, len(rows), STRETCH):
        for index in range(begin, min(begin + STRETCH, len(rows))):
            total += read(rows, index)
            done += 1
            first_ns = first_ns or time.monotonic_ns()
        if time.monotonic_ns() - start > limit_s * 1e9:
            break
    return Pass(first_ns, done, total, (time.monotonic_ns() - start) / 1e9)


def run(rows: Any, limit_s: float, pipe: Connection, *modules: str) -> None:
    """Be a worker that has imported some modules: one pass, then hold everything until the pipe says so or ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    for name in modules:
        importlib.import_module(name)
    pipe.send(go_over(rows, limit_s))
    with contextlib.suppress(EOFError):
        pipe.recv()


class Judged:
    """The rows as a Dataset: an item is the checksum of a row that was read and pickled in the worker."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> int:
        return read(self.rows, index)
