"""Copies of files whose arrays begin anywhere, in which they begin where the caller wants them: made once per host.

Part of `onecopy.arrays`: what ``open(path, align=...)`` does. Protobuf, zip archives and the headers of other writers
put an array at any byte; some consumers refuse such memory, and others are slow with it. The copy is a safetensors file
in the store, found again by the identity of all files that it was made from.
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
"""Of what `make` writes: another one makes every copy anew."""
LEAST, MOST = 64, 2 << 20
"""Bytes: what `save` can align to."""


def check(align: int) -> None:
    """Raise ValueError where an alignment in bytes is no power of two up to 2 MiB."""
    if not 1 <= align <= MOST or align & (align - 1):
        raise ValueError(f"align must be a power of two from 1 to {MOST}, not {align}")


def misaligned(file: ArrayFile, align: int) -> list[str]:
    """List the arrays that begin elsewhere than at multiples of `align` bytes.

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
    """Return a copy of an open file that is aligned; made by a process of this machine where there is none.

    Raises
    ------
    FormatError
        An array of a type that safetensors has not.
    FileChanged, OSError
        As `onecopy.Store.get_or_build` and `save`: no space, ...
    """
    if lacking := not_savable(file.entries):
        name, dtype = next(iter(lacking.items()))
        more = f", nor for {len(lacking) - 1} more" if len(lacking) > 1 else ""
        raise FormatError(
            f"{file.path}: there can be no aligned copy: safetensors has no type for {name!r}, which is {dtype}{more}"
        )

    def build(target: Path) -> None:
        save(target, file, metadata=file.metadata, align=max(align, LEAST))
        expect_unchanged(file)

    key = key_of(file, f"aligned to {align}, version {_VERSION}")
    return Store(where="here").get_or_build(key, build, source=file.path)
