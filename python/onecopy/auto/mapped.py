"""Which files may be mapped instead of read, and memory of a file that is mapped a second time."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from onecopy import _core
from onecopy.auto import overwriting
from onecopy.files import Mapping
from onecopy.text import size

if TYPE_CHECKING:
    from onecopy.memory.proc import Region

__all__ = ["MIN_BYTES", "SecondMappings", "mapping_of", "protect", "why_not"]

MIN_BYTES = 1 << 20
"""Smaller files are read: a copy of them takes less than what their mapping costs."""


def why_not(path: str) -> str | None:
    """Return why a file is not mapped: it is not regular, small, or on a network file system; None if it may be.

    Raises
    ------
    OSError
        The file does not exist, or may not be read.
    """
    facts = os.stat(path)  # noqa: PTH116 - text
    if not stat.S_ISREG(facts.st_mode):
        return "not a regular file"
    if facts.st_size < MIN_BYTES:
        return f"smaller than {size(MIN_BYTES)}"
    copied, _, reason = _core.choose_mode(path)
    return reason if copied else None


def mapping_of(path: str) -> Mapping:
    """Return a copy-on-write mapping of a file, which writes of this process to the file do not change."""
    mapping = Mapping(path, private=True)
    overwriting.protect(*mapping.identity[:2])
    return mapping


def protect(path: str) -> None:
    """Make writes of this process to a file that a framework maps replace it."""
    facts = os.stat(path)  # noqa: PTH116 - text
    overwriting.protect(facts.st_dev, facts.st_ino)


class SecondMappings:
    """Maps files that are mapped already a second time, so that writes to one mapping do not show in the other."""

    def __init__(self) -> None:
        self._mappings: dict[tuple[int, int, str], Mapping | str] = {}
        """By the file of a region: a mapping of the whole file, or why there is none."""

    def of(self, region: Region) -> Mapping | str:
        """Return a mapping of the file of a region, or why there is none: its path must still lead to this file."""
        key = region.dev, region.inode, region.path
        if key not in self._mappings:
            self._mappings[key] = _mapped_again(region)
        return self._mappings[key]

    def close(self) -> None:
        """Close the files; the memory of views stays mapped."""
        for one in self._mappings.values():
            if isinstance(one, Mapping):
                one.close()


def _mapped_again(region: Region) -> Mapping | str:
    from onecopy.memory.addresses import Regions

    if region.deleted:
        return "the file was removed after it was mapped"
    try:
        reason = why_not(region.path)
        if reason is not None:
            return reason
        mapping = mapping_of(region.path)
    except OSError as error:
        return f"the file cannot be mapped again: {error.strerror}"
    again = Regions().at(mapping.address)  # not `os.stat`, which reports another device on btrfs and overlayfs
    if again is None or (again.dev, again.inode) != (region.dev, region.inode):
        mapping.close()
        return "the file was replaced after it was mapped"
    return mapping
