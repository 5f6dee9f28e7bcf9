"""`OpenMode`: the ways to open a file (mapped, from a snapshot, or copied), and how "auto" chooses a mode."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, NamedTuple

from onecopy import _core, store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onecopy.files.mapping import ArraysMode, Identity

__all__ = ["AS_REQUESTED", "OpenMode"]

AS_REQUESTED = "as requested"
"""`ArrayFile.mode_reason` if the caller chose the mode."""


class OpenMode(NamedTuple):
    """Options for opening files, and the identities that the files must have after unpickling."""

    mode: ArraysMode | Literal["auto"] = "map"
    private: bool = False
    threads: int | None = None
    reason: str = AS_REQUESTED
    expected: tuple[Identity, ...] = ()
    """Identities of the index or model, and of the files with arrays, in this order. If empty, any file is accepted."""

    def decided_for(self, path: str, others: Sequence[str] = ()) -> tuple[OpenMode, bool]:
        """Resolve the mode "auto" by the total size of all files. Also return whether to request 2 MiB pages."""
        if self.mode in ("map", "copy", "snapshot"):
            return self, False
        if self.mode != "auto":
            raise ValueError(f"mode must be 'map', 'copy', 'snapshot' or 'auto', not {self.mode!r}")
        # Opening a missing file raises the error.
        whole = sum(os.stat(other).st_size for other in others if os.path.exists(other))  # noqa: PTH110, PTH116
        copied, huge, reason = _core.choose_mode(path, whole=whole)
        return self._replace(mode="snapshot" if copied else "map", reason=reason), huge and not self.private

    def with_snapshot(self, path: str) -> tuple[OpenMode, _core.FileHandle | None]:
        """If the mode is "snapshot", take a snapshot of a file. If that fails, the mode becomes "copy"."""
        if self.mode != "snapshot":
            return self, None
        handle, place = store.handle_of(path)
        reason = place if self.reason == AS_REQUESTED else f"{self.reason}; {place}"
        return self._replace(mode="copy" if handle is None else "snapshot", reason=reason), handle


How = OpenMode
"""The name of this class in pickles from earlier versions."""
