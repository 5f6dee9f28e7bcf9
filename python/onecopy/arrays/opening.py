"""`open`: one call for every file of arrays, whatever its format and however many files it names.

Reads headers and touches no data: a 4 GB model opens in the time of a few system calls, and its pages are the page
cache's own, so N processes hold one copy. numpy is loaded with the first array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from onecopy.arguments import path_text
from onecopy.arrays.one_file import OneFile
from onecopy.errors import FormatError

if TYPE_CHECKING:
    import os

    from onecopy import _core
    from onecopy.arrays.file import ArrayFile
    from onecopy.files import Mode
    from onecopy.store import Artefact

__all__ = ["open", "open_arrays"]


def open(  # noqa: A001 - as `onecopy.open`
    path: str | os.PathLike[str] | Artefact,
    mode: Mode | Literal["auto"] = "map",
    *,
    warm: bool = False,
    verify: bool = False,
    private: bool = False,
    threads: int | None = None,
    align: int | None = None,
) -> ArrayFile:
    """Open a file of arrays: names to read-only arrays, without reading the data.

    safetensors, and what other formats hold as it lies in memory (docs/formats/other.md); which format it is, the
    content says, not the name. The index of a model in shards (``model.safetensors.index.json``) and an ONNX model with
    external data are opened as one, with all files that they name, at once: `ArrayFile.files`. Such files must lie in
    the folder of the index, or, where the index is a link (as in the cache of huggingface_hub), in the folder that it
    leads to. A file of records is for `onecopy.open_records`.

    Parameters
    ----------
    path
        A file of any tool; or what a `Store` found or built, which is opened even if it has been removed since.
    mode
        "map": arrays are the page cache's own pages, shared by all processes, read when touched.
        "copy": everything is read into one private block now, in huge pages, in parallel.
        "auto": a copy of files on network and user-space file systems that are at most a quarter of the memory that may
        be used, because a later touch of a mapping could fail or wait there; else a mapping, in 2 MiB pages where the
        device reads as much ahead. `ArrayFile.mode_reason` says why.
    warm
        Bring everything into memory before returning (see `ArrayFile.warm`).
    verify
        Compare everything with its checksums before returning (see `ArrayFile.verify`); with `warm` in the same pass.
    private
        Writable arrays on copy-on-write pages, for consumers that write in place: the file never changes, and each page
        that is written becomes private memory of this process.
    threads
        Of ``mode="copy"``; None: 8.
    align
        Bytes, a power of two up to 2 MiB, at a multiple of which every array is to begin. Where one does not, an
        aligned copy of the file is opened instead: made in the store (`onecopy.Store`) by the first process of the
        machine that asks, found there by the others, and made anew when the file changes. `ArrayFile.mode_reason` and
        `ArrayFile.path` say so. None: views of the file as it is.

    Raises
    ------
    OSError
        FileNotFoundError, PermissionError, IsADirectoryError, ... with ``filename`` and ``errno``.
    FormatError
        Not a valid file of its format; the message names the array or the byte. A file of records. Files that do not
        fit their index, or may not be named by it. With `align`: what cannot be copied.
    ChecksumError, NoChecksum
        With `verify`: bytes that are not what was written, or no checksums to compare with.

    Examples
    --------
    >>> import numpy as np, onecopy as oc, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.safetensors")
    >>> oc.save(path, {"weight": np.arange(3.0)}, metadata={"step": "12"})
    >>> with oc.open(path) as model:
    ...     weight = model["weight"]
    ...     print(list(model), model.metadata["step"])
    ['weight'] 12
    >>> weight  # still there: a view keeps the memory
    array([0., 1., 2.])
    """
    file = (
        open_arrays(path, mode, private=private, threads=threads)
        if align is None
        else _open_aligned(path, mode, private, threads, align)
    )
    try:
        if file.kind == "records":
            raise FormatError(f"{file.path}: a list or dict of records, not arrays: open it with onecopy.open_records")
        if warm:
            file.warm(verify=verify)
        elif verify:
            file.verify()
    except BaseException:
        file.close()
        raise
    return file


def open_arrays(
    path: str | os.PathLike[str] | Artefact,
    mode: Mode | Literal["auto"] = "map",
    *,
    private: bool = False,
    threads: int | None = None,
) -> ArrayFile:
    """Open a file, or several as one: like `open`, but records are opened too, as the arrays that they consist of.

    Examples
    --------
    >>> import onecopy as oc, tempfile, pathlib
    >>> from onecopy import records
    >>> path = pathlib.Path(tempfile.mkdtemp(), "names.oc")
    >>> records.save(path, ["Ada", "Grace"])
    >>> open_arrays(path).kind
    'records'
    """
    given, handle = _place_of(path)
    try:
        file = OneFile(given, mode=mode, private=private, threads=threads, handle=handle)
    except FormatError:
        if not _begins_as_json(given):
            raise
        from onecopy.arrays import shards

        return shards.of_index(given, mode, private=private, threads=threads)
    if file.container != "onnx" or "elsewhere" not in file.metadata:
        return file
    from onecopy.arrays import models

    return models.of_model(file, private=private, threads=threads, mode=mode)


def _place_of(path: str | os.PathLike[str] | Artefact) -> tuple[str, _core.FileHandle | None]:
    """Return the path, and of what a store has found or built also the file itself, held open."""
    return path_text(path), getattr(path, "handle", None)


def _open_aligned(
    path: str | os.PathLike[str] | Artefact,
    mode: Mode | Literal["auto"],
    private: bool,
    threads: int | None,
    align: int,
) -> ArrayFile:
    from onecopy.arrays import aligned  # which loads the store

    aligned.check(align)
    opened: str | os.PathLike[str] | Artefact = path
    with open_arrays(path) as source:
        names = aligned.misaligned(source, align)
        reason = f"every array begins at a multiple of {align} bytes"
        if names:
            if source.kind not in ("foreign", "arrays"):
                raise FormatError(f"{source.path}: it holds a {source.kind} of onecopy, and only arrays can be moved")
            opened = aligned.make(source, align)
            reason = (
                f"an aligned copy, because {len(names)} of {len(source)} arrays of {source.path} begin at no multiple "
                f"of {align} bytes"
            )
    file = open_arrays(opened, mode, private=private, threads=threads)
    file.add_reason(reason)
    return file


def _begins_as_json(path: str) -> bool:
    """Return True for what begins as an index of shards does; a safetensors file has a zero byte there."""
    import builtins
    import re

    with builtins.open(path, "rb") as file:  # noqa: PTH123 - text
        return re.fullmatch(rb"\s*\{\s*[\"}][^\0]*", file.read(64)) is not None
