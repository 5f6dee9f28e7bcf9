"""A million values inside one another: what opening them costs beside as many plain records, and its system calls."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from onecopy_bench.scenarios.structs.program import ask


@dataclass(frozen=True, slots=True)
class Nested:
    """One process: nanoseconds to open, and to allocate and fill plain records of 24 bytes; memory in bytes.

    `private_bytes` is what the kernel counts more than before opening, `told_private_bytes` what the library reports.
    """

    count: int
    open_ns: int
    records_ns: int
    private_bytes: int
    told_private_bytes: int


def build(program: Path, folder: Path, count: int) -> Path:
    """Write a file of `count` values with a span each."""
    path = folder / f"nested-{count}.oc"
    ask(program, "nested", "build", path, "--count", count)
    return path


def take(program: Path, path: Path) -> Nested:
    """Open such a file once, in a fresh process."""
    told = ask(program, "nested", "open", path)
    return Nested(**{name: told[name] for name in Nested.__dataclass_fields__})


def system_calls(program: Path, path: Path) -> int | None:
    """Return how many system calls a process makes that opens such a file; None without strace, or where it may not."""
    if shutil.which("strace") is None:
        return None
    command = ["strace", "-f", "-c", "-U", "calls,name", str(program), "nested", "open", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"^\s*(\d+)\s+total\s*$", done.stderr, re.MULTILINE)
    return int(found.group(1)) if done.returncode == 0 and found else None
