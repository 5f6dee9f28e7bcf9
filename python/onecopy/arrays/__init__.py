"""Files of named arrays, opened by mapping: one file, the shards of an index, or a model with external data.

Importing this package loads the modules for opening; `save` is loaded on first use, and numpy with the first array.
"""

from typing import TYPE_CHECKING, Any

from onecopy.arrays.entries import Entry, Memory, Part
from onecopy.arrays.file import ArrayFile, VerifyReport, key_of
from onecopy.arrays.opening import open, open_arrays  # noqa: A004

if TYPE_CHECKING:
    from onecopy.arrays.saving import not_savable, save

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


if not TYPE_CHECKING:  # a type checker would accept every name

    def __getattr__(name: str) -> Any:
        if name not in ("not_savable", "save"):
            raise AttributeError(f"module 'onecopy.arrays' has no attribute {name!r}")
        from onecopy.arrays import saving

        return getattr(saving, name)
