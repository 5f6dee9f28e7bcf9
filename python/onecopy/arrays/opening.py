"""`open`: open a file of arrays in any supported format, together with the other files that it names.

Opening a path takes three steps: `resolve` finds the local file, `OneFile` detects its format and opens it, and the
functions in `several_files` open the files that it names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import onecopy  # whose errors are imported when one is raised
from onecopy import arrays, files, store
from onecopy.arrays.file import OneFile, expect_unchanged, key_of
from onecopy.arrays.open_mode import OpenMode
from onecopy.base.text import size
from onecopy.store.location import in_folder, is_offline, resolve, url_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from onecopy._core import FileHandle
    from onecopy.arrays.entries import Part
    from onecopy.arrays.file import ArrayFile
    from onecopy.files.mapping import ArraysMode
    from onecopy.store import Artefact
    from onecopy.store.location import Location, Nodes


def open(  # noqa: A001 - as `onecopy.open`
    path: Location,
    mode: ArraysMode | Literal["auto"] = "map",
    *,
    warm: bool = False,
    verify: bool = False,
    private: bool = False,
    pinned: bool = False,
    threads: int | None = None,
    align: int | None = None,
    names: Iterable[Part] | None = None,
    nodes: Nodes = None,
) -> ArrayFile:
    """Open a file of arrays as a mapping from names to read-only arrays, without reading the data.

    The format is detected from the contents: safetensors, and other formats that store arrays as they are laid out in
    memory (docs/formats/other.md). The index of a sharded model (``model.safetensors.index.json``) and an ONNX model
    with external data are opened together with all files that they name (`ArrayFile.files`), which must be in the same
    folder or below it; symbolic links are followed (docs/formats/other.md). `onecopy.open_records` opens files of
    records.

    Parameters
    ----------
    path
        The path of a file or of a model's folder. In a folder, ``model.safetensors``, the index or ``model.onnx`` is
        opened, or else the only file of these types. An `Artefact` from a `Store` is opened even if its path has been
        removed or replaced. A URL (``s3://``, ``gs://``, ``az://``, ``https://``; a folder if it ends with "/") is
        fetched once per machine into the default store, with all files that it names (`onecopy.remote.fetch`; needs
        ``pip install 'onecopy[remote]'``). "hold:NAME" is the newest generation of a file that a process of this user
        holds in memory (``onecopy hold NAME=FILE``); `ArrayFile.changed` then reports whether there is a newer
        generation or the process has ended.
    mode
        "map": arrays are pages of the page cache, which all processes share and which the kernel reads on first access.
        "snapshot": the current contents of the file, unaffected by later writes, are copied once per machine into the
        default store, or under ``onecopy run`` into memory. Processes that open the same contents share the copy. A
        file that nobody can modify (on a read-only file system, or flagged immutable or verity) is mapped directly. If
        no snapshot can be taken (on tmpfs, without enough space, or while the file is being written), the mode becomes
        "copy". "copy": several threads read the whole file immediately, into private memory in huge pages. "auto":
        "snapshot" for a file on a network or user-space file system, where access to a mapping may fail or block, if
        the file needs at most a quarter of the available memory; otherwise "map", with 2 MiB pages if the device's
        readahead is at least as large. `ArrayFile.mode_reason` gives the reason.
    warm
        Whether to read the whole file into memory before returning (see `ArrayFile.warm`).
    verify
        Whether to compare the data with the checksums before returning (see `ArrayFile.verify`). If combined with
        `warm`, the data is read only once.
    private
        Whether arrays are writable, in copy-on-write pages, for consumers that write in place. The file never changes;
        each written page becomes this process's private memory. Linux does not check this in advance: if a write needs
        more memory than is available, the process is ended. If the file is larger than the available memory,
        `ArrayFile.mode_reason` states the numbers; before large writes, call `onecopy.files.page_cache.expect_memory`.
    pinned
        Whether to read the whole file, as with `warm`, and register its pages with the NVIDIA driver as pinned host
        memory. They stay in memory until they are unmapped, with one copy for all processes, and the GPU copies from
        them directly: ``torch.from_numpy(array).to("cuda", non_blocking=True)``. The CUDA context of this thread is
        used, or else that of the first device, so call ``torch.cuda.set_device`` first. The file must not be truncated
        while it is open, because the GPU would read the old bytes. Tested on ext4 and tmpfs; some drivers reportedly
        hang with a file on xfs, so use ``mode="copy"`` there. A pickle does not contain this option. Cannot be combined
        with `private`, because pinning would copy each page.
    threads
        Number of threads that read for ``mode="copy"``; None: 8.
    align
        Alignment of every array in bytes, a power of two up to 2 MiB. If an array in the file is not aligned, an
        aligned copy is opened instead. The first process on the machine to need the copy creates it in the default
        store (`onecopy.Store`), and other processes use it. If the file changes, a new copy is made.
        `ArrayFile.mode_reason` and `ArrayFile.path` show which file was opened. None: open the file as it is.
    names
        The only arrays to open: names, or (name, slice of rows) for an array that consists of these rows. If `path` is
        the URL of a safetensors file or index, only the bytes of these arrays are fetched; later calls can fetch other
        arrays. Cannot be combined with `align`.
    nodes
        "torchrun" or "ray": fetch a URL together with the job's other nodes, so that the server sends the file only
        once; see `onecopy.remote.fetch`. Cannot be combined with `names`. None: this node fetches alone.

    Raises
    ------
    KeyError
        There is no array with one of the `names`.
    OSError
        FileNotFoundError, PermissionError, IsADirectoryError, ... with ``filename`` and ``errno``. With `pinned`:
        ENODEV if there is no GPU or no driver, EOPNOTSUPP if the driver cannot register read-only memory.
    FormatError
        The file is not valid (the message states the array or the byte offset) or has a different format (``found``
        names it); a shard does not match the index or is outside of the folder; or, with `align`, an array cannot be
        copied.
    ChecksumError, NoChecksum
        With `verify`: the data does not match the checksums, or the file has none.
    ValueError
        `pinned` and `private` are combined, or an argument has an invalid value.

    Examples
    --------
    >>> import numpy as np, onecopy as oc, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.safetensors")
    >>> oc.save(path, {"weight": np.arange(3.0)}, metadata={"step": "12"})
    >>> with oc.open(path) as model:
    ...     weight = model["weight"]
    ...     print(list(model), model.metadata["step"])
    ['weight'] 12
    >>> weight  # a view keeps the memory mapped
    array([0., 1., 2.])
    """
    if pinned and private:
        raise ValueError("`pinned` and `private` cannot be combined: pinning would copy each copy-on-write page")
    how = OpenMode(mode, private, threads)
    if names is not None:
        file = _open_some_arrays(path, how, align, nodes, names, verify=verify)
    elif align is not None:
        file = _open_aligned(*resolve(path, nodes=nodes), how, align)
    else:
        file = _open_local(*resolve(path, nodes=nodes), how)
    try:
        if file.kind == "records":
            raise onecopy.FormatError(
                "expected a file of arrays, found a file of records: open it with onecopy.open_records",
                onecopy.FormatError.Kind.NOT_THIS_FORMAT,
                path=file.path,
                found="file of records",
            )
        if warm or pinned:
            file.warm(verify=verify)
        elif verify:
            file.verify()
        if pinned:
            files.register_with_cuda(file.portions())
            file.mode_reason += f"; {size(file.nbytes)} pinned for CUDA"
    except BaseException:
        file.close()
        raise
    return file


def open_arrays(
    path: Location,
    mode: ArraysMode | Literal["auto"] = "map",
    *,
    private: bool = False,
    threads: int | None = None,
) -> ArrayFile:
    """Open a file like `open`, but also accept a file of records, and return its buffers as arrays.

    Examples
    --------
    >>> import onecopy as oc, tempfile, pathlib
    >>> from onecopy import records
    >>> path = pathlib.Path(tempfile.mkdtemp(), "names.oc")
    >>> records.save(path, ["Ada", "Grace"])
    >>> open_arrays(path).kind
    'records'
    """
    return _open_local(*resolve(path), OpenMode(mode, private, threads))


_ADVICE = {
    "PNG image": "open it with onecopy.images.open",
    "JPEG image": "open it with onecopy.images.open",
    "TIFF image": "open it with onecopy.images.open",
    "BigTIFF image": "open it with onecopy.images.open",
    "Parquet file": "import it with onecopy.records.import_parquet",
}
"""Advice for files in other formats, by `FormatError.found`."""


def _open_local(path: str, handle: FileHandle | None, how: OpenMode) -> ArrayFile:
    """Open a local file and the files that it names; if `path` is a folder, open the model in it."""
    try:
        file = OneFile(path, how, handle, accept_index=True)
    except IsADirectoryError:
        return _open_local(in_folder(path), None, how)
    except onecopy.FormatError as error:
        if (advice := _ADVICE.get(error.found or "")) is None:
            raise
        raise onecopy.errors.retyped(error, type(error), f"{error}: {advice}") from None
    if file.container == "shard index":
        file.close()
        return arrays.of_index(path, how)
    if file.container == "onnx" and "elsewhere" in file.metadata:
        return arrays.of_model(file, how)
    return file


def _open_some_arrays(
    path: Location, how: OpenMode, align: int | None, nodes: Nodes, names: Iterable[Part], *, verify: bool
) -> ArrayFile:
    if align is not None:
        raise ValueError("`names` and `align` cannot be combined")
    if nodes is not None:
        raise ValueError("`names` and `nodes` cannot be combined, because nodes fetch whole files")
    if isinstance(names, str):
        raise TypeError(f"names must be a list, not one name: pass [{names!r}]")
    parts = tuple(names)
    if (url := url_of(path)) and not is_offline():
        if how.mode == "copy":
            raise ValueError("mode 'copy' cannot be combined with a URL and `names`: use 'map' or 'auto'")
        return arrays.of_url(url, parts, how.private, verify)
    file = _open_local(*resolve(path), how)
    try:
        return arrays.SelectedArrays(file, parts)
    except BaseException:
        file.close()
        raise


# --- aligned copies ---------------------------------------------------------------------------------------------------
#
# In protobuf files, zip archives and files of other writers, an array can begin at any byte offset; some consumers
# reject such memory, and others are slow with it. The aligned copy is a safetensors file in the store. Its key
# identifies all files that it was made from.

_VERSION = "1"
"""Version of the aligned copies. Changing it invalidates all existing copies."""
_MIN_ALIGN, _MAX_ALIGN = 64, 2 << 20
"""Smallest and largest alignment that `save` supports, in bytes."""


def _open_aligned(path: str, handle: FileHandle | None, how: OpenMode, align: int) -> ArrayFile:
    if not 1 <= align <= _MAX_ALIGN or align & (align - 1):
        raise ValueError(f"align must be a power of two from 1 to {_MAX_ALIGN}, not {align}")
    with _open_local(path, handle, OpenMode()) as file:
        count = sum(bool(entry.nbytes and entry.offset % align) for entry in file.entries)
        reason = f"every array is aligned to {align} bytes"
        if count:
            path, handle = resolve(_aligned_copy(file, align))
            which = f"{count} of {len(file)} arrays of {file.path} are not aligned to {align} bytes"
            reason = f"an aligned copy, because {which}"
    opened = _open_local(path, handle, how)
    opened.mode_reason += f"; {reason}"
    return opened


def _aligned_copy(file: ArrayFile, align: int) -> Artefact:
    """Return a file's aligned copy in the default store. The first call creates the copy."""
    failure = "cannot make an aligned copy"
    if file.kind not in ("foreign", "arrays"):
        raise onecopy.FormatError(
            f"{failure} of a file of kind {file.kind!r}", onecopy.FormatError.Kind.UNSUPPORTED, path=file.path
        )
    if lacking := arrays.not_savable(file.entries):
        name, dtype = next(iter(lacking.items()))
        more = f", nor for {len(lacking) - 1} more" if len(lacking) > 1 else ""
        reason = f"safetensors has no element type for {name!r}, which is {dtype}{more}"
        raise onecopy.FormatError(f"{failure}: {reason}", onecopy.FormatError.Kind.UNSUPPORTED, path=file.path)

    def build(target: Path) -> None:
        arrays.save(target, file, metadata=file.metadata, align=max(align, _MIN_ALIGN))
        expect_unchanged(file)

    key = key_of(file, f"aligned to {align}, version {_VERSION}")
    return store.Store().get_or_build(key, build, source=file.path)
