"""Files of named arrays, opened by mapping: one file, the shards of an index, or a model with external data.

`onecopy.open` is in `opening`, what it returns in `file`, `onecopy.save` in `saving`. Importing this package loads what
opening needs; numpy comes with the first array.
"""

from onecopy.arrays.file import ArrayFile, Entry, Memory, Part, VerifyReport, key_of
from onecopy.arrays.opening import open, open_arrays  # noqa: A004

__all__ = ["ArrayFile", "Entry", "Memory", "Part", "VerifyReport", "key_of", "open", "open_arrays"]
