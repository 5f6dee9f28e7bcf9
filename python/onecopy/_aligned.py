"""Copies of files whose arrays begin anywhere, in which they begin where the caller wants them: made once per host.

Part of `onecopy.arrays`: what ``open(path, align=...)`` does. Protobuf, zip archives and the headers of other writers
put an array at any byte; some consumers refuse such memory, and others are slow with it. The copy is a safetensors file
in the store, found again by the identity of all files that it was made from.
"""

from __future__ import annotations

import errno
import hashlib
from typing import TYPE_CHECKING

from onecopy._saving import not_savable, save
from onecopy.base import FileChanged, FormatError
from onecopy.store import Store, file_key

if TYPE_CHECKING:
    from pathlib import Path

    from onecopy._named import NamedArrays

_VERSION = "1"
"""Of what `make` writes: another one makes every copy anew."""
LEAST, MOST = 64, 2 << 20
"""Bytes: what `save` can align to."""


def check(align: int) -> None:
    """Raise ValueError where an alignment in bytes is no power of two up to 2 MiB."""
    if not 1 <= align <= MOST or align & (align - 1):
        raise ValueError(f"align must be a power of two from 1 to {MOST}, not {align}")


def misaligned(file: NamedArrays, align: int) -> list[str]:
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


def make(file: NamedArrays, path: str, paths: tuple[str, ...], align: int) -> str:
    """Return the path of a copy of `file` that is aligned; a process of this machine makes it where there is none.

    Parameters
    ----------
    file
        What is open.
    path
        Of `file`, as given.
    paths
        Of the files that its arrays lie in.
    align
        Bytes, a power of two up to 2 MiB.

    Raises
    ------
    FormatError
        An array of a type that safetensors has not.
    FileChanged, OSError
        As `onecopy.Store.get_or_build` and `save`: no space, ...
    """
    if lacking := not_savable(file.entries):
        name, dtype = next(iter(lacking.items()))
        more = f", nor has it that of {len(lacking) - 1} others" if len(lacking) > 1 else ""
        raise FormatError(
            f"{path}: no aligned copy can be made, because safetensors has no type for {name!r}, which is {dtype}{more}"
        )

    def expect_unchanged() -> None:
        if file.changed():
            raise FileChanged(errno.ESTALE, "the file was changed or replaced while it was opened", path)

    def build(target: Path) -> None:
        save(target, file, metadata=file.metadata, align=max(align, LEAST))
        expect_unchanged()

    key = _key(path, paths, align)
    expect_unchanged()  # else the copy of what is open would be found for what came after it
    return str(Store().get_or_build(key, build, source=path).path)


def _key(path: str, paths: tuple[str, ...], align: int) -> str:
    """Return what says from which files, as they are now, a copy is made."""
    words = f"aligned to {align}, version {_VERSION}"
    others = [file_key(one) for one in paths if one != path]
    if others:  # a hundred shards would make a key that nobody reads
        words += (
            f", with {len(others)} files {hashlib.blake2b(chr(10).join(others).encode(), digest_size=16).hexdigest()}"
        )
    return file_key(path, version=words)
