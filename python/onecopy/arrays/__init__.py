"""Files of named arrays, opened by mapping: a single file, the shards of an index, or a model with external data."""

from onecopy.base import lazy

TYPE_CHECKING = False  # typing takes longer to import than the rest of this module

if TYPE_CHECKING:
    from onecopy.arrays.entries import Entry, Memory, Part, of_numpy as of_numpy
    from onecopy.arrays.file import ArrayFile, OneFile as OneFile, key_of
    from onecopy.arrays.opening import open, open_arrays  # noqa: A004
    from onecopy.arrays.saving import VerifyReport, not_savable, save
    from onecopy.arrays.scratch import Scratch as Scratch, alloc as alloc
    from onecopy.arrays.several_files import (
        SelectedArrays as SelectedArrays,
        of_index as of_index,
        of_model as of_model,
        of_url as of_url,
    )
    from onecopy.arrays.streaming import stream as stream

_HOMES = {
    "entries": ("Entry", "Memory", "Part", "of_numpy"),
    "file": ("ArrayFile", "OneFile", "key_of"),
    "opening": ("open", "open_arrays"),
    "saving": ("VerifyReport", "not_savable", "save"),
    "several_files": ("SelectedArrays", "of_index", "of_model", "of_url"),
    "streaming": ("stream",),
    "scratch": ("Scratch", "alloc"),
}
__all__ = [
    "ArrayFile",
    "Entry",
    "Memory",
    "Part",
    "VerifyReport",
    "key_of",
    "not_savable",
    "open",
    "open_arrays",
    "save",
]

if not TYPE_CHECKING:  # with `__getattr__`, a type checker would accept every name
    __getattr__ = lazy.attributes(__name__, _HOMES)
