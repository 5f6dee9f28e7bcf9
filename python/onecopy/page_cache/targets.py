"""What the functions of `onecopy.page_cache` are given: an open file, some bytes of it, several files, or a path."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol, TypeAlias

from onecopy import _core
from onecopy.arguments import non_negative, path_text

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Mapped", "Opened", "Portion", "Range", "Selection", "Several", "Target", "of_opened", "of_target"]

Range: TypeAlias = tuple[int, int]
"""(offset, length) in bytes of the mapping; rounded outwards to whole pages."""

Meant: TypeAlias = "list[tuple[_core.Mapping, list[Range], _core.Inspector | None]]"


class Mapped(Protocol):
    """Whatever has a mapping: `onecopy.Mapping`, `onecopy.ArrayFile`."""

    @property
    def core(self) -> _core.Mapping:
        """The compiled half's mapping."""


Portion: TypeAlias = "tuple[_core.Mapping, Sequence[Range] | None, _core.Inspector | None]"
"""A file, ranges of it (None: all of it), and what inspects the bytes in the same pass."""


class Selection:
    """Portions of one file or of several."""

    def __init__(self, portions: tuple[Portion, ...]) -> None:
        self.portions = portions


class Several(Protocol):
    """Whatever lies in several files: an `onecopy.ArrayFile` of several, a `Selection`."""

    @property
    def portions(self) -> tuple[Portion, ...]:
        """All of all files."""


Opened: TypeAlias = "Mapped | Several"
Target: TypeAlias = "Opened | str | os.PathLike[str]"


def of_target(target: Target, ranges: Sequence[Range] | None, inspector: _core.Inspector | None = None) -> Meant:
    """Return the mappings that are meant, and of each the ranges as the core wants them."""
    if isinstance(target, str | bytes | os.PathLike):
        core = _core.open_mapping(path_text(target), 0, None, False, False, 0, None)
        return [(core, _ranges(ranges), inspector)]
    return of_opened(target, ranges, inspector)


def of_opened(target: object, ranges: Sequence[Range] | None, inspector: _core.Inspector | None = None) -> Meant:
    """Return the same of what is open; TypeError for what is not, and for ranges of several files."""
    core = getattr(target, "core", None)
    if core is not None:
        return [(core, _ranges(ranges), inspector)]
    portions = getattr(target, "portions", None)
    if portions is None:
        raise TypeError(f"expected an open onecopy file, not {target!r}")
    if ranges is not None:
        raise TypeError("ranges are bytes of one file, and these are several: name arrays instead, file.warm([...])")
    return [(core, _ranges(part), looks) for core, part, looks in portions]


def _ranges(ranges: Sequence[Range] | None) -> list[Range]:
    """Return the ranges as the core wants them, where none at all means everything; no ranges are nothing."""
    if ranges is None:
        return []
    return [(non_negative("offset", offset), non_negative("length", length)) for offset, length in ranges] or [(0, 0)]
