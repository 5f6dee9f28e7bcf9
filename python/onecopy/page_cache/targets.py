"""The targets that the functions of `onecopy.page_cache` accept: open files, ranges of them, or a path."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol, TypeAlias

from onecopy import _core
from onecopy.arguments import non_negative, path_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onecopy._core import Inspector

__all__ = ["Mapped", "Opened", "Portion", "Range", "Selection", "Several", "Target", "of_opened", "of_target"]

Range: TypeAlias = tuple[int, int]
"""(offset, length) in bytes from the start of the mapping; rounded outwards to whole pages."""

SEVERAL = "ranges cannot be given for several files: give names of arrays instead, file.warm([...])"


class Mapped(Protocol):
    """An object with one mapping: `onecopy.Mapping`, or an `onecopy.ArrayFile` of one file."""

    @property
    def core(self) -> _core.Mapping:
        """The mapping of the compiled module."""


Portion: TypeAlias = "tuple[_core.Mapping, Sequence[Range] | None, Inspector | None]"
"""A mapping, ranges of it (None: all of it; []: no bytes), and an inspector that checks the bytes while reading."""


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


def of_target(target: Target, ranges: Sequence[Range] | None, inspector: Inspector | None = None) -> list[Portion]:
    """Return the mappings of a target, each with its ranges; a path is mapped by this call."""
    if isinstance(target, list | tuple):
        if ranges is not None or inspector is not None:
            raise TypeError(SEVERAL)
        return [part for single in target for part in of_target(single, None)]
    if isinstance(target, str | bytes | os.PathLike):
        core = _core.open_mapping(path_text(target))
        return [(core, _checked(ranges), inspector)]
    return of_opened(target, ranges, inspector)


def of_opened(target: object, ranges: Sequence[Range] | None, inspector: Inspector | None = None) -> list[Portion]:
    """Return the mappings of an open file, each with its ranges.

    TypeError if `target` is not an open file, or if `ranges` are given for several files.
    """
    core = getattr(target, "core", None)
    if core is not None:
        return [(core, _checked(ranges), inspector)]
    portions = getattr(target, "portions", None)
    if portions is None:
        raise TypeError(f"expected an open onecopy file, not {target!r}: onecopy.Mapping(path) opens any file")
    if ranges is not None:
        raise TypeError(SEVERAL)
    return [(core, _checked(part), inspects) for core, part, inspects in portions]


def _checked(ranges: Sequence[Range] | None) -> list[Range] | None:
    if ranges is None:
        return None
    return [(non_negative("offset", offset), non_negative("length", length)) for offset, length in ranges]
