"""What identifies a run of the kernel, and a process in it."""

from __future__ import annotations

from pathlib import Path

__all__ = ["boot_identity", "start_of"]


def boot_identity() -> str:
    """Return the identity of this run of the kernel; empty where there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def start_of(process: str | int) -> str:
    """Return the start time of a process as text, in clock ticks since boot; empty if the process has ended.

    Process numbers are used again; the pair of both is not.
    """
    try:
        text = Path(f"/proc/{process}/stat").read_text(errors="replace")
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[19]
