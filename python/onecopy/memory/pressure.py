"""Memory shortage: the time that tasks lost waiting for memory (PSI), and the number of OOM kills.

Units, errors and `root` are those of `onecopy.memory.cgroup`. Linux reports pressure from version 4.20, for groups only
with cgroup v2; it may be disabled unless booted with ``psi=1``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from onecopy.memory.cgroup import ROOT, _text

__all__ = ["Pressure", "Stall", "kills", "parse_kills", "parse_pressure", "pressure"]

_STALL_LINE = re.compile(r"(some|full) avg10=(\d+\.\d+) avg60=(\d+\.\d+) avg300=(\d+\.\d+) total=(\d+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Stall:
    """Time lost to waiting for memory: shares (0 to 1) of the last 10, 60 and 300 seconds; total seconds since boot."""

    avg10: float
    avg60: float
    avg300: float
    total_s: float


@dataclass(frozen=True, slots=True)
class Pressure:
    """`some`: at least one task waited for memory. `full`: all tasks that were not idle waited at the same time."""

    some: Stall
    full: Stall


def parse_pressure(text: str) -> Pressure:
    r"""Parse the text of ``/proc/pressure/memory``, or of memory.pressure of a group.

    >>> stall = "avg10=1.50 avg60=0.00 avg300=0.00 total=2000000"
    >>> parse_pressure(f"some {stall}\nfull {stall}\n").some
    Stall(avg10=0.015, avg60=0.0, avg300=0.0, total_s=2.0)
    """
    stalls: dict[str, Stall] = {}
    for line in filter(None, text.split("\n")):
        match = _STALL_LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"pressure: cannot read line {line!r}")
        stalls[match[1]] = Stall(
            float(match[2]) / 100, float(match[3]) / 100, float(match[4]) / 100, int(match[5]) / 1e6
        )
    if stalls.keys() != {"some", "full"}:
        raise ValueError("pressure: no line for 'some' or 'full'")
    return Pressure(stalls["some"], stalls["full"])


def pressure(group: Path | None = None, *, root: Path = ROOT) -> Pressure | None:
    """Read the pressure of a group, given its directory, or of the machine; None if the kernel does not report it.

    >>> found = pressure()
    >>> found is None or 0 <= found.full.avg10 <= 1
    True
    """
    text = _text(Path(root, "proc/pressure/memory") if group is None else group / "memory.pressure")
    return parse_pressure(text) if text else None


def parse_kills(text: str) -> int | None:
    r"""Return the number of OOM kills from the text of memory.events (v2) or memory.oom_control (v1).

    >>> parse_kills("low 0\nhigh 0\nmax 7\noom 1\noom_kill 1\n"), parse_kills("oom_kill_disable 0\n")
    (1, None)
    """
    for line in text.split("\n"):
        name, _, number = line.partition(" ")
        if name == "oom_kill":
            if not number.isdecimal():
                raise ValueError(f"kills: cannot read line {line!r}")
            return int(number)
    return None


def kills(group: Path) -> int | None:
    """Return the number of OOM kills of a group, given its directory; None if the kernel does not report it.

    >>> kills(Path("/proc"))
    """
    for name in ("memory.events", "memory.oom_control"):
        if (text := _text(group / name)) is not None:
            return parse_kills(text)
    return None
