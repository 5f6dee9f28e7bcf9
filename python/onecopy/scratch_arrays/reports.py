"""What a scratch array holds of the machine's memory, in numbers and in a sentence."""

from __future__ import annotations

from dataclasses import dataclass

from onecopy._core import ReleaseReport
from onecopy.text import size

__all__ = ["ReleaseReport", "Saved", "ScratchMemory"]


@dataclass(frozen=True)
class ScratchMemory:
    """Bytes, in whole pages; None where the kernel does not tell.

    Examples
    --------
    >>> print(ScratchMemory(resident=300_000_000, dirty=100_000_000, clean=200_000_000, shared=0, cap=None, over=0))
    300 MB in memory: 100 MB dirty, 200 MB clean; 0 B mapped elsewhere too; no cap
    """

    resident: int | None
    """In the page cache: what the machine pays, once, however many processes look at it."""
    dirty: int | None
    """Of these, not yet on the disk."""
    clean: int | None
    """Of these, on the disk: the kernel takes them back when memory is short."""
    shared: int | None
    """Mapped by this process and by another mapping as well, of this process or another one."""
    cap: int | None
    """``max_resident``; None: there is none."""
    over: int | None
    """Resident beyond the cap, by writes that went past it; 0 without a cap."""

    def __str__(self) -> str:
        parts = f"{_told(self.resident)} in memory: {_told(self.dirty)} dirty, {_told(self.clean)} clean"
        cap = "no cap" if self.cap is None else f"cap {size(self.cap)}, {_told(self.over)} over"
        return f"{parts}; {_told(self.shared)} mapped elsewhere too; {cap}"


@dataclass(frozen=True)
class Saved:
    """Where an array was saved, and how."""

    path: str
    copied: bool
    """False: the scratch file itself became the file."""
    reason: str
    """A sentence."""


def _told(nbytes: int | None) -> str:
    return "unknown" if nbytes is None else size(nbytes)
