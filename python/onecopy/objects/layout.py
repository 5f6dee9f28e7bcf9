"""How an object lies in a file: which arrays hold its buffers, and the description of it in the metadata.

The file has one array for each buffer of 1 KiB and more, named after its path in the object, and these:

* "object.pickle", U8: the pickle (protocol 5, buffers out of band).
* "object.buffers", I64 of shape (n, 4): a row for each buffer, in the order in which the pickle takes them: the number
  of its array (0: "object.small"; i: the i-th of the list "arrays" in the metadata), the offset of its first byte
  there, its size in bytes, and 1 if it is memory of a torch tensor, else 0.
* "object.small", U8: all smaller buffers, each at a multiple of 16 bytes.

The metadata has the key "onecopy.object": a JSON object with "version", "type" (the class of the object), "arrays",
"python" and "packages" (the versions of the packages whose classes the pickle names).
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from onecopy.errors import FormatError

if TYPE_CHECKING:
    from onecopy.arrays import ArrayFile

METADATA = "onecopy.object"
PICKLE, BUFFERS, SMALL = "object.pickle", "object.buffers", "object.small"
VERSION = 1
MIN_BYTES = 1024
"""Smaller buffers are in the array "object.small"."""
SMALL_ALIGNMENT = 16


class Buffer(NamedTuple):
    """Where a buffer lies, as in a row of "object.buffers"."""

    array: str
    offset: int
    nbytes: int
    is_tensor: bool


class About(NamedTuple):
    """The description of an object in the metadata of its file."""

    type: str
    """Module and name of its class."""
    arrays: list[str]
    """Names of the arrays that hold one buffer each."""
    python: str
    """Version of Python: "3.11"."""
    packages: dict[str, str]
    """Versions of the packages whose classes the pickle names."""

    def to_json(self) -> str:
        """Return the text of the metadata."""
        return json.dumps({"version": VERSION, **self._asdict()})


def version_of(package: str) -> str | None:
    """Return the version of a package as it is recorded; None if it is not imported, or has none."""
    version = getattr(sys.modules.get(package), "__version__", None)
    return version if isinstance(version, str) else None


def about(file: ArrayFile) -> About:
    """Return the description of the object in a file; FormatError if it has none, or a damaged or newer one."""
    text = file.metadata.get(METADATA)
    if text is None:
        raise FormatError(
            f"{file.path}: not a file of an object: onecopy.save_object did not write it; onecopy.open reads arrays"
        )
    try:
        fields: Any = json.loads(text)
        found, version = About(*(fields[name] for name in About._fields)), fields["version"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise _damaged(file, f"the metadata {METADATA!r} has no description of an object") from None
    if version != VERSION:
        raise FormatError(f"{file.path}: written by a newer onecopy: version {version!r} of the layout of objects")
    if not _has_types(*found):
        raise _damaged(file, f"the metadata {METADATA!r} has values of wrong types")
    return found


def _has_types(kind: Any, arrays: Any, python: Any, packages: Any) -> bool:
    if not isinstance(arrays, list) or not isinstance(packages, dict):
        return False
    return all(isinstance(one, str) for one in (kind, python, *arrays, *packages, *packages.values()))


def buffers(file: ArrayFile, names: list[str]) -> list[Buffer]:
    """Return where the buffers lie, in bounds of their arrays; FormatError if the table does not match the arrays."""
    sizes = {entry.name: entry.nbytes for entry in file.entries}
    missing = [name for name in (PICKLE, BUFFERS, SMALL, *names) if name not in sizes]
    if missing:
        raise _damaged(file, f"array {missing[0]!r} is missing")
    entry = file.entry(BUFFERS)
    if entry.dtype != "I64" or len(entry.shape) != 2 or entry.shape[1] != 4:
        raise _damaged(file, f"{BUFFERS!r} must be an array of type I64 and shape (n, 4)")
    found = []
    for number, (which, offset, nbytes, is_tensor) in enumerate(file[BUFFERS].tolist()):
        name = SMALL if which == 0 else names[which - 1] if 0 < which <= len(names) else None
        if name is None or offset < 0 or nbytes < 0 or offset > sizes[name] or nbytes > sizes[name] - offset:
            raise _damaged(file, f"row {number} of {BUFFERS!r} is outside of the arrays")
        found.append(Buffer(name, offset, nbytes, bool(is_tensor)))
    return found


def _damaged(file: ArrayFile, what: str) -> FormatError:
    return FormatError(f"{file.path}: damaged file of an object: {what}")
