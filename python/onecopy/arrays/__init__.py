"""Files of named arrays, opened by mapping: one file, the shards of an index, or a model with external data.

numpy is loaded with the first array.
"""

from onecopy.arrays.entries import Entry, Memory, Part
from onecopy.arrays.file import ArrayFile, VerifyReport, key_of
from onecopy.arrays.opening import open, open_arrays  # noqa: A004
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
