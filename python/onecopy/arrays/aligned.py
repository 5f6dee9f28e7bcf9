"""Aligned copies of files, made once per machine: the implementation of ``open(path, align=...)``.

In protobuf files, zip archives and files of other writers an array can begin at any byte offset; some consumers reject
such memory, and others are slow with it. The aligned copy is a safetensors file in the store. Its key is the identity
of all files that it was made from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onecopy.arrays.file import expect_unchanged, key_of
from onecopy.arrays.saving import not_savable, save
from onecopy.errors import FormatError
from onecopy.store import Artefact, Store

if TYPE_CHECKING:
    from pathlib import Path

    from onecopy.arrays.file import ArrayFile

_VERSION = "1"
"""Version of the copies that `make` writes; a change invalidates all existing copies."""
MIN_ALIGN, MAX_ALIGN = 64, 2 << 20
"""Smallest and largest alignment of `save`, in bytes."""


def check(align: int) -> None:
    """Raise ValueError if an alignment, in bytes, is not a power of two up to 2 MiB."""
    if not 1 <= align <= MAX_ALIGN or align & (align - 1):
        raise ValueError(f"align must be a power of two from 1 to {MAX_ALIGN}, not {align}")


def misaligned(file: ArrayFile, align: int) -> list[str]:
    """Return the names of the arrays whose offset in their file is not a multiple of `align` bytes.

    Examples
    --------
    >>> import numpy as np, onecopy as oc, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.safetensors")
    >>> oc.save(path, {"a": np.zeros(3, np.uint8), "b": np.zeros(64)})
    >>> misaligned(oc.open(path), 64), misaligned(oc.open(path), 4096)
    ([], ['a'])
    """
    return [entry.name for entry in file.entries if entry.nbytes and entry.offset % align]


def make(file: ArrayFile, align: int) -> Artefact:
    """Return an aligned copy of an open file from the default store, made by this call if it does not exist.

    Raises
    ------
    FormatError
        safetensors has no element type for one of the arrays.
    FileChanged, OSError
        See `onecopy.Store.get_or_build` and `save`.
    """
    if lacking := not_savable(file.entries):
        name, dtype = next(iter(lacking.items()))
        more = f", nor for {len(lacking) - 1} more" if len(lacking) > 1 else ""
        raise FormatError(
            f"{file.path}: cannot make an aligned copy: safetensors has no element type for {name!r}, which is "
            f"{dtype}{more}"
        )

    def build(target: Path) -> None:
        save(target, file, metadata=file.metadata, align=max(align, MIN_ALIGN))
        expect_unchanged(file)

    key = key_of(file, f"aligned to {align}, version {_VERSION}")
    return Store().get_or_build(key, build, source=file.path)
