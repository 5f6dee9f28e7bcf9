"""What other processes do with shared rows: at the top of a module, so that spawned ones find it."""

from __future__ import annotations

import gc
import hashlib
import os
from typing import Any

from onecopy.memory import proc

ROWS = 80_000


def rows() -> list[dict[str, Any]]:
    """Make rows that say of themselves whether they are right."""
    return [{"id": i, "name": f"name {i}", "box": [i / 3, i, 2.5], "more": (i, None)} for i in range(ROWS)]


def digest(data: Any) -> str:
    """Read everything, and sum it up."""
    total = hashlib.sha256()
    for row in data:
        total.update(repr(row).encode())
    return total.hexdigest()


def growth(data: Any) -> tuple[str, int]:
    """Read everything; the digest, and by how many bytes this process alone grew while it did."""
    digest(data[: len(data) // 20])  # what is loaded and allocated once, whatever the data
    gc.collect()
    before = proc.rollup(os.getpid()).uss
    found = digest(data)
    gc.collect()
    return found, proc.rollup(os.getpid()).uss - before


def answer(data: Any, queue: Any) -> None:
    queue.put(growth(data))
