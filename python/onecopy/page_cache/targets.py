"""The targets that the functions of `onecopy.page_cache` accept: open files, ranges of them, or a path."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol, TypeAlias

from onecopy import _core
from onecopy.arguments import non_negative, path_text

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Mapped", "Opened", "Portion", "Range", "Selection", "Several", "Target", "of_opened", "of_target"]

Range: TypeAlias = tuple[int, int]
"""(offset, length) in bytes from the start of the mapping; rounded outwards to whole pages."""

SEVERAL = "ranges cannot be given for several files: give names of arrays instead, file.warm([...])"

CorePortions: TypeAlias = "list[tuple[_core.Mapping, list[Range], _core.Inspector | None]]"
"""Portions as the compiled module takes them: an empty list of ranges is the whole mapping."""


class Mapped(Protocol):
    """An object with one mapping: `onecopy.Mapping`, or an `onecopy.ArrayFile` of one file."""

    @property
    def core(self) -> _core.Mapping:
        """The mapping of the compiled module."""


Portion: TypeAlias = "tuple[_core.Mapping, Sequence[Range] | None, _core.Inspector | None]"
"""A mapping, ranges of it (None: the whole mapping), and an optional inspector that checks the bytes while reading."""


class Selection:
    """Portions of one or several files, as a target."""

    def __init__(self, portions: tuple[Portion, ...]) -> None:
        self.portions = portions


class Several(Protocol):
    """An object with portions of several files: an `onecopy.ArrayFile` of several files, or a `Selection`."""

    @property
    def portions(self) -> tuple[Portion, ...]:
        """The portions, one or more per file."""


Opened: TypeAlias = "Mapped | Several"
Single: TypeAlias = "Opened | str | os.PathLike[str]"
Target: TypeAlias = "Single | Sequence[Single]"
"""An open file, a path, or a list of these, which are treated as one."""


def of_target(target: Target, ranges: Sequence[Range] | None, inspector: _core.Inspector | None = None) -> CorePortions:
    """Return the mappings of a target, each with its ranges; a path is mapped by this call."""
    if isinstance(target, list | tuple):
        if ranges is not None or inspector is not None:
            raise TypeError(SEVERAL)
        return [part for single in target for part in of_target(single, None)]
    if isinstance(target, str | bytes | os.PathLike):
        core = _core.open_mapping(path_text(target))
        return [(core, _ranges(ranges), inspector)]
    return of_opened(target, ranges, inspector)


def of_opened(target: object, ranges: Sequence[Range] | None, inspector: _core.Inspector | None = None) -> CorePortions:
    """Return the mappings of an open file, each with its ranges.

    TypeError if `target` is not an open file, or if `ranges` are given for several files.
    """
    core = getattr(target, "core", None)
    if core is not None:
        return [(core, _ranges(ranges), inspector)]
    portions = getattr(target, "portions", None)
    if portions is None:
        raise TypeError(f"expected an open onecopy file, not {target!r}: onecopy.Mapping(path) opens any file")
    if ranges is not None:
        raise TypeError(SEVERAL)
    return [(core, _ranges(part), inspects) for core, part, inspects in portions]


def _ranges(ranges: Sequence[Range] | None) -> list[Range]:
    """Return ranges for the compiled module: [] for None, the whole mapping; [(0, 0)] for [], no bytes at all."""
    if ranges is None:
        return []
    return [(non_negative("offset", offset), non_negative("length", length)) for offset, length in ranges] or [(0, 0)]
