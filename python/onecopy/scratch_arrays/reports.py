"""Reports of scratch arrays: memory, and where they were saved."""

from __future__ import annotations

from dataclasses import dataclass

from onecopy._core import ReleaseReport
from onecopy.text import size

__all__ = ["ReleaseReport", "Saved", "ScratchMemory"]


@dataclass(frozen=True)
class ScratchMemory:
    """Memory of a scratch array in bytes, in whole pages; None if the kernel does not report a number.

    Examples
    --------
    >>> print(ScratchMemory(resident=300_000_000, dirty=100_000_000, clean=200_000_000, shared=0, cap=None, over=0))
    300 MB in memory: 100 MB dirty, 200 MB clean; 0 B mapped elsewhere too; no cap
    """

    resident: int | None
    """Bytes of the array in the page cache, counted once for all processes."""
    dirty: int | None
    """Resident bytes that are not yet written back to disk."""
    clean: int | None
    """Resident bytes that are on disk; the kernel evicts them when memory is short."""
    shared: int | None
    """Resident bytes that this process and another mapping have mapped."""
    cap: int | None
    """``max_resident`` in bytes; None without a cap."""
    over: int | None
    """Resident bytes above the cap, from writes to `Scratch.array`; 0 without a cap."""

    def __str__(self) -> str:
        parts = f"{_in_words(self.resident)} in memory: {_in_words(self.dirty)} dirty, {_in_words(self.clean)} clean"
        cap = "no cap" if self.cap is None else f"cap {size(self.cap)}, {_in_words(self.over)} over"
        return f"{parts}; {_in_words(self.shared)} mapped elsewhere too; {cap}"


@dataclass(frozen=True)
class Saved:
    """Result of saving an array."""

    path: str
    """Path of the saved file."""
    copied: bool
    """False if the scratch file itself was linked to the path; True if the array was copied."""
    reason: str
    """A sentence on why it was copied or not."""


def _in_words(nbytes: int | None) -> str:
    return "unknown" if nbytes is None else size(nbytes)
