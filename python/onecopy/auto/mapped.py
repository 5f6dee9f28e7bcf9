"""Which files may be mapped instead of read, and memory of a file that is mapped a second time."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from onecopy import _core
from onecopy.auto import overwriting
from onecopy.files import Mapping
from onecopy.runs.call_log import MIN_BYTES
from onecopy.text import size

if TYPE_CHECKING:
    from onecopy.memory.proc import Region

__all__ = ["File", "SecondMappings", "mapping_of"]


class File:
    """A file that a call loads.

    Raises
    ------
    OSError
        The file does not exist, or may not be read.
    """

    path: str
    """The absolute path."""
    nbytes: int
    """Size in bytes."""
    reason: str
    """Why the file is not mapped: it is not regular, small, or on a network file system; empty if it may be."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(os.fspath(path))  # noqa: PTH100 - text
        self._facts = os.stat(self.path)  # noqa: PTH116 - text
        self.nbytes = self._facts.st_size
        if not stat.S_ISREG(self._facts.st_mode):
            self.reason = "not a regular file"
        elif self.nbytes < MIN_BYTES:
            self.reason = f"smaller than {size(MIN_BYTES)}"
        else:
            copied, _, reason = _core.choose_mode(self.path)
            self.reason = reason if copied else ""

    def begins(self) -> bytes:
        """Return the first bytes."""
        with Path(self.path).open("rb", buffering=0) as file:
            return file.read(8)

    def protect(self) -> None:
        """Make writes of this process to the file, which a framework maps, replace it."""
        overwriting.protect(self._facts.st_dev, self._facts.st_ino)


def mapping_of(path: str) -> Mapping:
    """Return a copy-on-write mapping of a file, which writes of this process to the file do not change."""
    mapping = Mapping(path, private=True)
    overwriting.protect(*mapping.identity[:2])
    return mapping


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
        reason = File(region.path).reason
        if reason:
            return reason
        mapping = mapping_of(region.path)
    except OSError as error:
        return f"the file cannot be mapped again: {error.strerror}"
    again = Regions().at(mapping.address)  # not `os.stat`, which reports another device on btrfs and overlayfs
    if again is None or (again.dev, again.inode) != (region.dev, region.inode):
        mapping.close()
        return "the file was replaced after it was mapped"
    return mapping
