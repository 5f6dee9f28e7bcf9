"""What lies behind addresses of this process: mapped files, and pages that were copied on write.

The kernel answers: ``/proc/self/maps`` has the files, ``/proc/self/pagemap`` the kind of each page.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import Counter
from mmap import PAGESIZE
from typing import TYPE_CHECKING

from onecopy.memory import proc

if TYPE_CHECKING:
    from typing import Self

__all__ = ["Pages", "Regions"]

_PRESENT, _SWAPPED, _OF_FILE = 0x80, 0x40, 0x20
"""Flags in the highest byte of an entry of pagemap; _OF_FILE: or of shared memory."""
_ENTRY_BYTES = 8


class Regions:
    """The mapped regions of this process at one moment.

    Raises
    ------
    OSError
        There is no ``/proc``.
    """

    def __init__(self) -> None:
        self._all = proc.maps(os.getpid())
        self._starts = [region.start for region in self._all]

    def at(self, address: int) -> proc.Region | None:
        """Return the region that contains an address, if any."""
        place = bisect_right(self._starts, address) - 1
        return self._all[place] if place >= 0 and address < self._all[place].end else None


class Pages:
    """The pagemap of this process; an unprivileged process can read the flags, but not the page numbers.

    Raises
    ------
    OSError
        There is no ``/proc``, or it may not be read.
    """

    def __enter__(self) -> Self:
        self._fd = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def private_bytes(self, address: int, nbytes: int) -> int:
        """Return how many bytes of an address range lie on anonymous pages, counting whole pages."""
        first, last = address // PAGESIZE, (address + nbytes - 1) // PAGESIZE
        entries = os.pread(self._fd, (last - first + 1) * _ENTRY_BYTES, first * _ENTRY_BYTES)
        kinds = Counter(entries[_ENTRY_BYTES - 1 :: _ENTRY_BYTES])
        return min(sum(count for kind, count in kinds.items() if _is_private(kind)) * PAGESIZE, nbytes)


def _is_private(kind: int) -> bool:
    return bool(kind & _SWAPPED or (kind & _PRESENT and not kind & _OF_FILE))
