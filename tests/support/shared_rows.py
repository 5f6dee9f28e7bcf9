"""What other processes do with shared rows: at the top of a module, so that spawned ones find it."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import onecopy as oc
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
    """Tell the parent."""
    queue.put(growth(data))


def slow_rows(log: Path, seconds: float) -> list[dict[str, Any]]:
    """Make the rows slowly, and leave a line for each time this was done."""
    with log.open("a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(seconds)
    return rows()


def rank(folder: str, log: str) -> None:
    """Be a rank: share by key, without any word to the others."""
    data = oc.share(lambda: slow_rows(Path(log), 0.3), "rows", store=folder)
    built = data.report is not None and data.report.built
    print(json.dumps({"digest": digest(data), "built": built, "path": data.path}))
