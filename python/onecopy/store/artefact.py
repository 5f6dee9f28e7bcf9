"""What a store hands out and says: an artefact, whom one waits for, what was pruned."""

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

State: TypeAlias = Literal["ready", "building", "stale claim", "leftover", "damaged", "foreign"]


@dataclass(frozen=True, slots=True)
class Artefact:
    """A file in a store, or (from `Store.ls`) what somebody left who did not come to the end."""

    key: str
    """Empty where it is not known."""
    path: Path
    bytes: int
    created: float
    """Seconds since 1970, as `time.time` has it."""
    last_used: float
    """The same."""
    source: str | None
    """What it was built from, if that was told."""
    source_present: bool | None
    """Whether the source is there and is what it was (inode, size, time of the last write); None: no source."""
    place: Place
    state: State = "ready"
    """Anything else than "ready" comes from `Store.ls` alone."""
    built: bool = False
    """True: by this very call."""
    waited: float = 0.0
    """Seconds, for others who built."""
    seconds: float = 0.0
    """Of the whole call."""
    reason: str = ""
    """A sentence: what happened, or what this is."""
    handle: _core.FileHandle | None = field(default=None, repr=False, compare=False)
    """The file itself, held open: what is at `path` may have been removed or replaced since. None: from `Store.ls`."""

    def __fspath__(self) -> str:
        """Return the path; `onecopy.open` and `onecopy.open_records` open the very file, even if it was removed."""
        return str(self.path)

    def read_bytes(self) -> bytes_type:
        """Read the very file that was found or built, whole, as bytes of this process."""
        if self.handle is None:
            return self.path.read_bytes()
        pieces: list[bytes_type] = []
        while piece := os.pread(self.handle.fileno(), self.bytes, sum(map(len, pieces))):
            pieces.append(piece)
        return b"".join(pieces)

    def without_handle(self) -> Artefact:
        """Return the same facts without the open file, for those who keep them."""
        return replace(self, handle=None)

    def __reduce__(self) -> tuple[object, ...]:  # a descriptor does not travel
        return type(self), tuple(getattr(self, name) for name in self.__slots__ if name != "handle")


@dataclass(frozen=True, slots=True)
class Waiting:
    """Who is being waited for, as told to `on_wait` at each look."""

    key: str
    pid: int
    """Of the builder; 0: it has not said so yet."""
    since: float
    """When it began: seconds since 1970."""
    bytes: int
    """What it says is there by now (`progress`); 0: it says nothing."""
    seconds: float
    """Waited so far."""


@dataclass(frozen=True, slots=True)
class PruneReport:
    """What a prune removed, or would."""

    removed: list[Artefact]
    """``reason`` says why."""
    kept: list[Artefact]
    """What was asked for and is being built, or was used meanwhile; ``reason`` says which."""
    bytes: int
    """Of what was removed. Of what somebody maps, the space is free when he lets go."""
