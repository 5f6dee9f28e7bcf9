"""`open`: open a file of arrays of any supported format, together with the other files that it names.

Opening reads headers and no data: a 4 GB model opens in the time of a few system calls. Its arrays are pages of the
page cache, so N processes share one copy. numpy is loaded with the first array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from onecopy import arrays, files, store
from onecopy.arrays.file import OneFile, expect_unchanged, key_of
from onecopy.arrays.open_mode import OpenMode
from onecopy.base.text import size
from onecopy.errors import FormatError, Kind, retyped
from onecopy.remote.location import in_folder, resolve, url_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from onecopy._core import FileHandle
    from onecopy.arrays.entries import Part
    from onecopy.arrays.file import ArrayFile
    from onecopy.files.mapping import ArraysMode
    from onecopy.remote import Nodes
    from onecopy.remote.location import Location
    from onecopy.store import Artefact


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

    The format is detected from the contents: safetensors, and arrays of other formats that are stored as they are laid
    out in memory (docs/formats/other.md). The index of a sharded model (``model.safetensors.index.json``) and an ONNX
    model with external data are opened together with all files that they name (`ArrayFile.files`). They must be in
    its folder or below it, where symbolic links are followed (docs/formats/other.md). `onecopy.open_records` opens
    files of records.

    Parameters
    ----------
    path
        Path of a file, or of the folder of a model: its ``model.safetensors``, index or ``model.onnx`` is opened, else
        the only such file of another name. Or an `Artefact` of a `Store`, which is opened even if its path was removed
        or replaced since. Or a URL (``s3://``, ``gs://``, ``az://``, ``https://``), which is fetched once per machine
        into the default store, with all files that it names (`onecopy.remote.fetch`; needs ``pip install
        'onecopy[remote]'``); one that ends with "/" is a folder. Or "hold:NAME": the newest generation of what a
        process of this user has in memory (``onecopy hold NAME=FILE``); `ArrayFile.changed` says when there is a newer
        one, or that process has ended.
    mode
        "map": arrays are pages of the page cache, shared by all processes and read from disk when first accessed.
        "snapshot": the contents that the file has now, which no later write changes, copied once per machine: into
        the default store, or under ``onecopy run`` into its memory. Processes that open the same contents share the
        copy. A file that cannot be written where it is (read-only mount, flags immutable or verity) is mapped itself.
        Without a snapshot (tmpfs; no space; a file that is being written) it is "copy".
        "copy": the whole file is read now, into private memory in huge pages, by several threads.
        "auto": "snapshot" for a file on a network or user-space file system that is at most a quarter of the available
        memory, because accessing a mapping may fail or wait there; else "map", with 2 MiB pages where the readahead of
        the device is at least as large. `ArrayFile.mode_reason` gives the reason.
    warm
        Whether to read the whole file into memory before returning (see `ArrayFile.warm`).
    verify
        Whether to compare the data with the checksums before returning (see `ArrayFile.verify`); with `warm` in the
        same pass.
    private
        Whether arrays are writable, on copy-on-write pages, for consumers that write in place. The file never changes;
        each page that is written becomes private memory of this process, which Linux grants without asking: with more
        than is available, it ends the process at the write. Where the file is larger than the available memory,
        `ArrayFile.mode_reason` says so, with the numbers; before large writes, call
        `onecopy.files.page_cache.expect_memory`.
    pinned
        Whether to read the whole file, as with `warm`, and register its pages with the NVIDIA driver as pinned host
        memory. They stay in memory until they are unmapped, one copy for all processes, and a GPU copies from them by
        itself: ``torch.from_numpy(array).to("cuda", non_blocking=True)``. Uses the CUDA context of this thread, else
        that of the first device: call ``torch.cuda.set_device`` before. The file must not be truncated meanwhile: the
        GPU would read the old bytes. Tried on ext4 and in memory; a driver is said to wait without end for a file on
        xfs, of which ``mode="copy"`` can be pinned. Pickled, the file is opened without it. Not with `private`, which
        would copy each page.
    threads
        Number of threads that read for ``mode="copy"``; None: 8.
    align
        Alignment of every array in bytes, a power of two up to 2 MiB. If an array of the file is not aligned, an
        aligned copy is opened instead. The first process of the machine makes it in the default store
        (`onecopy.Store`), and others use it; it is made again when the file changes. `ArrayFile.mode_reason` and
        `ArrayFile.path` show which file was opened. None: the file as it is.
    names
        Only these arrays: names, or (name, slice of rows), for which the array consists of these rows. Of a safetensors
        file or index behind a URL, only their bytes are fetched; a later call adds what is missing. Not with `align`.
    nodes
        Nodes with which a URL is fetched, so that its server sends the file once, not once per node: "torchrun" or
        "ray", as that of `onecopy.remote.fetch`. Not with `names`. None: this node fetches alone.

    Raises
    ------
    KeyError
        There is no array of one of `names`.
    OSError
        FileNotFoundError, PermissionError, IsADirectoryError, ... with ``filename`` and ``errno``. With `pinned`:
        ENODEV, there is no GPU or no driver; EOPNOTSUPP, they cannot register read-only memory.
    FormatError
        The file is invalid for its format (the message names the array or the byte offset), or it is a file of records;
        a named file does not match its index or is outside its folder; with `align`, an array cannot be copied.
    ChecksumError, NoChecksum
        With `verify`: the data does not match the checksums, or there are none.
    ValueError
        `pinned` with `private`, or an argument has an invalid value.

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
        raise ValueError("pinned and private exclude each other: each copy-on-write page would be copied")
    how = OpenMode(mode, private, threads)
    if names is not None:
        file = _some_arrays(path, how, align, nodes, names, verify=verify)
    elif align is not None:
        file = _aligned(*resolve(path, nodes=nodes), how, align)
    else:
        file = _opened(*resolve(path, nodes=nodes), how)
    try:
        if file.kind == "records":
            raise FormatError(
                "not a file of arrays: it holds records, use onecopy.open_records", Kind.NOT_THIS_FORMAT, path=file.path
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
    """Open a file like `open`, and files of records too, as the arrays that they consist of.

    Examples
    --------
    >>> import onecopy as oc, tempfile, pathlib
    >>> from onecopy import records
    >>> path = pathlib.Path(tempfile.mkdtemp(), "names.oc")
    >>> records.save(path, ["Ada", "Grace"])
    >>> open_arrays(path).kind
    'records'
    """
    return _opened(*resolve(path), OpenMode(mode, private, threads))


def _opened(path: str, handle: FileHandle | None, how: OpenMode) -> ArrayFile:
    try:
        file = OneFile(path, how, handle)
    except (IsADirectoryError, ValueError) as error:
        if (other := _opened_otherwise(path, how, error)) is None:
            raise
        return other
    if file.container != "onnx" or "elsewhere" not in file.metadata:
        return file

    return arrays.of_model(file, how)


_ADVICE = {
    "image": "open it with onecopy.images.open",
    "a Parquet file": "import it with onecopy.records.import_parquet",
}
"""What to do with a file of another format, by the end of the error that names the format."""


def _opened_otherwise(path: str, how: OpenMode, error: Exception) -> ArrayFile | None:
    """Open the folder of a model, or an index of shards; None for other files, or an error with advice."""
    if isinstance(error, IsADirectoryError):
        return _opened(in_folder(path), None, how)
    if not isinstance(error, FormatError):
        return None
    if files.begins_as_json(path):
        return arrays.of_index(path, how)
    for end, advice in _ADVICE.items():
        if str(error).endswith(end):
            raise retyped(error, type(error), f"{error}: {advice}") from None
    return None


def _some_arrays(
    path: Location, how: OpenMode, align: int | None, nodes: Nodes, names: Iterable[Part], *, verify: bool
) -> ArrayFile:
    if align is not None:
        raise ValueError("names and align exclude each other")
    if isinstance(names, str):
        raise TypeError(f"names must be a list of names: [{names!r}]")
    if nodes is not None:
        raise ValueError("nodes is for URLs that are opened whole: without names")
    parts = tuple(names)
    if url := url_of(path):
        if how.mode == "copy":
            raise ValueError("mode must be 'map' or 'auto' for some arrays of a URL, not 'copy'")
        return arrays.of_url(url, parts, private=how.private, verify=verify)
    file = _opened(*resolve(path), how)
    try:
        return arrays.selected(file, parts)
    except BaseException:
        file.close()
        raise


# --- aligned copies ---------------------------------------------------------------------------------------------------
#
# In protobuf files, zip archives and files of other writers an array can begin at any byte offset; some consumers
# reject such memory, and others are slow with it. The aligned copy is a safetensors file in the store. Its key is the
# identity of all files that it was made from.

_VERSION = "1"
"""Version of the aligned copies; a change invalidates all existing ones."""
_MIN_ALIGN, _MAX_ALIGN = 64, 2 << 20
"""Smallest and largest alignment of `save`, in bytes."""


def _aligned(path: str, handle: FileHandle | None, how: OpenMode, align: int) -> ArrayFile:
    if not 1 <= align <= _MAX_ALIGN or align & (align - 1):
        raise ValueError(f"align must be a power of two from 1 to {_MAX_ALIGN}, not {align}")
    with _opened(path, handle, OpenMode()) as file:
        count = sum(bool(entry.nbytes and entry.offset % align) for entry in file.entries)
        reason = f"every array is aligned to {align} bytes"
        if count:
            if file.kind not in ("foreign", "arrays"):
                raise FormatError(
                    f"cannot make an aligned copy of a file of kind {file.kind!r}", Kind.UNSUPPORTED, path=file.path
                )
            path, handle = resolve(_aligned_copy(file, align))
            which = f"{count} of {len(file)} arrays of {file.path} are not aligned to {align} bytes"
            reason = f"an aligned copy, because {which}"
    opened = _opened(path, handle, how)
    opened.mode_reason += f"; {reason}"
    return opened


def _aligned_copy(file: ArrayFile, align: int) -> Artefact:
    """Return an aligned copy from the default store, made by this call if it does not exist."""
    if lacking := arrays.not_savable(file.entries):
        name, dtype = next(iter(lacking.items()))
        more = f", nor for {len(lacking) - 1} more" if len(lacking) > 1 else ""
        raise FormatError(
            f"cannot make an aligned copy: safetensors has no element type for {name!r}, which is {dtype}{more}",
            Kind.UNSUPPORTED,
            path=file.path,
        )

    def build(target: Path) -> None:
        arrays.save(target, file, metadata=file.metadata, align=max(align, _MIN_ALIGN))
        expect_unchanged(file)

    key = key_of(file, f"aligned to {align}, version {_VERSION}")
    return store.Store().get_or_build(key, build, source=file.path)
