"""Results of a store: artefacts, the state of a build that is waited for, and the report of `Store.prune`."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from builtins import bytes as bytes_type
    from pathlib import Path

    from onecopy import _core
    from onecopy.store.place import Place

__all__ = ["Artefact", "PruneReport", "State", "Waiting"]

State: TypeAlias = Literal["ready", "building", "partial", "stale claim", "leftover", "damaged", "foreign"]


@dataclass(frozen=True, slots=True)
class Artefact:
    """A file in a store; from `Store.ls` also an unfinished build or a file that a killed builder left."""

    key: str
    """Key of the artefact; empty if unknown."""
    path: Path
    """Absolute path of the file in the folder of the store."""
    bytes: int
    """Size of the file in bytes."""
    created: float
    """Time of the build, in seconds since 1970."""
    last_used: float
    """Time of the last use, in seconds since 1970."""
    source: str | None
    """Path of the file or folder that it was built from; None if none was given."""
    source_present: bool | None
    """Whether the source exists and is unchanged (inode, size, time of the last write); None without a source."""
    place: Place
    """Kind of file system of the store: "disk" or "memory"."""
    state: State = "ready"
    """State of the file; `Store.ls` alone returns other states than "ready"."""
    built: bool = False
    """Whether this call built the file."""
    waited: float = 0.0
    """Seconds that this call waited for other processes that were building."""
    seconds: float = 0.0
    """Seconds that the whole call took."""
    reason: str = ""
    """Explanation of the result or of the state, as a sentence."""
    handle: _core.FileHandle | None = field(default=None, repr=False, compare=False)
    """The open file, which stays readable if the file at `path` is removed or replaced; None from `Store.ls`."""

    def __fspath__(self) -> str:
        """Return the path; `onecopy.open` and `onecopy.open_records` use `handle`, even if the path was removed."""
        return str(self.path)

    def read_bytes(self) -> bytes_type:
        """Return the contents of the file that was found or built, as a private copy."""
        if self.handle is None:
            return self.path.read_bytes()
        pieces: list[bytes_type] = []
        while piece := os.pread(self.handle.fileno(), self.bytes, sum(map(len, pieces))):
            pieces.append(piece)
        return b"".join(pieces)

    def without_handle(self) -> Artefact:
        """Return a copy without the open file, which does not keep a file descriptor."""
        return replace(self, handle=None)

    def __reduce__(self) -> tuple[object, ...]:  # a file descriptor cannot be pickled
        return type(self), tuple(getattr(self, name) for name in self.__slots__ if name != "handle")


@dataclass(frozen=True, slots=True)
class Waiting:
    """The state of a build by another process, as passed to `on_wait`."""

    key: str
    """Key of the artefact that is being built."""
    pid: int
    """Process id of the builder; 0 if it is not known yet."""
    since: float
    """Time at which the build began, in seconds since 1970."""
    bytes: int
    """Bytes built so far, as reported by `report_progress`; 0 if nothing was reported."""
    seconds: float
    """Seconds waited so far."""


@dataclass(frozen=True, slots=True)
class PruneReport:
    """The artefacts that `Store.prune` removed, or would remove with ``dry_run=True``."""

    removed: list[Artefact]
    """Removed artefacts, each with a ``reason``."""
    kept: list[Artefact]
    """Artefacts that matched but are being built or were used in the meantime, each with a ``reason``."""
    bytes: int
    """Total size of the removed files; the space of a mapped file is freed when it is unmapped."""
