"""A file of named arrays, opened by mapping and looked at in place; and writing one.

`open` reads the header and touches no data: a 4 GB model opens in the time of a few system calls, and its pages are
the page cache's own, so N processes hold one copy. `save` writes the same format (safetensors, laid out for mapping),
in one stream, and replaces the target at the end or not at all.

numpy is loaded with the first array. Arrays are read-only views that keep the memory alive, also after
`ArrayFile.close`. Element types that numpy does not have (BF16, F8) come through `ml_dtypes` when it is installed,
else as raw bytes (void items of that size, whose ``dtype.metadata["onecopy"]`` is the type's name); packed types (F4,
F6) always as uint8 bytes, likewise marked.
"""

from __future__ import annotations

import builtins
import re
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, cast

from onecopy import _core, residency
from onecopy._named import (
    Entry,
    Memory,
    NamedArrays,
    Part,
    VerifyReport,
    array_of,
    is_text,
    key_of,
    name_of,
    no_array,
    range_of,
)
from onecopy._saving import not_savable, save
from onecopy.base import FormatError, path_text, thread_count
from onecopy.files import Identity, Mode, OpenFile, absolute, check_mode
from onecopy.residency import Portion

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from onecopy.residency import Range

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

_ROOMS = {"records": "onecopy.records.opening"}
"""What else a path can become, by the kind of the file: rooms above this one, loaded when there is such a file."""
_SHARDS, _MODELS = "onecopy.sets.shards", "onecopy.sets.models"
"""Several files as one; likewise."""
_JSON = re.compile(rb"\s*\{\s*[\"}][^\0]*")
"""How an index of shards begins, and no safetensors file, whose header is too short for eight bytes without a zero."""


class ArrayFile(OpenFile, NamedArrays):
    """A read-only mapping from names to arrays, all of them views of one mapped file.

    Made by `onecopy.open`. Looking up a name costs about a microsecond and touches no data. It pickles as path and
    identity, so that another process (fork, spawn or forkserver) maps the same pages; if the path leads to another
    file by then, `FileChanged` is raised there.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        mode: Mode | Literal["auto"] = "map",
        private: bool = False,
        threads: int | None = None,
        identity: Identity | None = None,
        handle: _core.FileHandle | None = None,
    ) -> None:
        given = path_text(path)
        huge = False
        if mode == "auto":
            copied, huge, reason = _core.choose_mode(given)
            mode = "copy" if copied else "map"
        else:
            reason = "as asked"
        number = thread_count(threads)
        core = _core.open_arrays(given, check_mode(mode), private, number, identity, handle)
        self._set(core, given, mode, reason, private, number)
        if huge and not private:
            residency.warm(self, mechanism="advise")

    def _set(
        self, core: _core.ArrayFile, path: str, mode: Mode, reason: str, private: bool, threads: int | None
    ) -> None:
        self._core, self._mapping = core, core.mapping
        self._path, self._absolute = path, absolute(path)
        self._mode, self._reason = mode, reason
        self._private, self._threads = private, threads
        self._names: list[str] | None = None
        if core.header_damaged:
            warnings.warn(
                f"{path}: the header's checksum does not match: the file is damaged, or was re-saved by another tool "
                "that kept onecopy's metadata. It is opened as a file of another tool, without checksums.",
                stacklevel=5,  # of `open`
            )

    @classmethod
    def of_compiled(cls, core: _core.ArrayFile, path: str) -> ArrayFile:
        """Wrap the compiled half of a file that is mapped; for rooms that open files without this one."""
        self = cls.__new__(cls)
        self._set(core, path, "map", "as asked", private=False, threads=None)
        return self

    # --- arrays ---------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> NDArray[Any]:
        return array_of(self._path, name, self.memory_of(name))

    def memory_of(self, name: str) -> Memory:
        """Return the bytes of one array, and what they are; KeyError when there is none of that name."""
        found = self._core.view(name) if is_text(name) else None
        if found is None:
            raise no_array(name, self)
        return Memory(*found)

    def __iter__(self) -> Iterator[str]:
        return iter(self._all_names())

    def __len__(self) -> int:
        return len(self._all_names())

    def __contains__(self, name: object) -> bool:
        return is_text(name) and self._core.entry(name) is not None

    def _all_names(self) -> list[str]:
        if self._names is None:
            self._names = self._core.names()
        return self._names

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Name, dtype, shape, offset and bytes of each array, in the order of the header; reads no data."""
        return tuple(Entry(*row) for row in self._core.entries())

    def entry(self, name: str) -> Entry:
        """Return what the header says of one array; KeyError when there is none of that name."""
        row = self._core.entry(name) if is_text(name) else None
        if row is None:
            raise no_array(name, self)
        return Entry(*row)

    def path_of(self, name: str) -> str:
        """Return the path of the file that an array lies in, this one; KeyError when there is none of that name."""
        self.entry(name)
        return self._path

    def _select(self, names: Iterable[Part] | None) -> list[tuple[ArrayFile, list[Range] | None]]:
        return [(self, None if names is None else [range_of(self.entry(name_of(part)), part) for part in names])]

    def portion(self, ranges: list[Range] | None, *, verify: bool) -> Portion:
        """Return what `onecopy.residency` needs to know of some ranges, or of all of the file."""
        if not verify:
            return Portion(self._mapping, ranges)
        wide = self._core.ranges_to_verify([(0, 0)] if ranges == [] else ranges or [])
        return Portion(self._mapping, wide, self._core.verifier())

    # --- the file -------------------------------------------------------------------------------------------------

    @property
    def core(self) -> _core.Mapping:
        """The compiled half's mapping, for `onecopy.residency`."""
        return self._mapping

    @property
    def compiled(self) -> _core.ArrayFile:
        """The compiled half's file, for `onecopy.records`."""
        return self._core

    @property
    def mode(self) -> Mode:
        """How it was opened: "map" or "copy"."""
        return self._mode

    @property
    def mode_reason(self) -> str:
        """Why it was opened so: a sentence for ``mode="auto"``, else "as asked"; what became of ``align``."""
        return self._reason

    def add_reason(self, reason: str) -> None:
        """Say more in `mode_reason`; for those who open files."""
        self._reason += f"; {reason}"

    @property
    def metadata(self) -> dict[str, str]:
        """Return the file's own key-value texts; onecopy's entry is left out."""
        return {key: value for key, value in self._core.metadata().items() if key != "onecopy"}

    @property
    def container(self) -> str:
        """The file's format: "safetensors", "onnx", ..."""
        return self._core.container

    @property
    def kind(self) -> str:
        """What onecopy wrote ("arrays", "struct", "records", "image"), or "foreign" for other tools' files."""
        return self._core.kind

    def close(self) -> None:
        """Give the mapping back; memory goes with the last array. Closing twice is fine."""
        self._core.close()

    def __reduce__(self) -> tuple[object, ...]:
        return _reattach, (self._absolute, self._mode, self._private, self._threads, self.identity)

    def __repr__(self) -> str:
        if self.closed:
            return f"<onecopy.ArrayFile {self._path!r} closed>"
        return f"<onecopy.ArrayFile {self._path!r} {len(self)} arrays, {self.nbytes / 1e6:.1f} MB, {self._mode}>"


def _reattach(path: str, mode: Mode, private: bool, threads: int, identity: Identity) -> ArrayFile:
    """Open again what was pickled in another process."""
    return ArrayFile(path, mode=mode, private=private, threads=threads, identity=identity)


def open(
    path: str | os.PathLike[str],
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
    content says, not the name. The index of a model in shards (``model.safetensors.index.json``), and an ONNX model
    whose data lies in other files, become an `onecopy.sets.ArraySet`, which has the same methods. A file of records
    (`onecopy.records.save`) becomes a `List`, a `Table` or a `Dict` instead; `onecopy.records.open` is the same for a
    type checker.

    Parameters
    ----------
    path
        A file of any tool.
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
        Not a valid file of its format; the message names the array or the byte. With `align`: what cannot be copied.
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
        if warm:
            file.warm(verify=verify)
        elif verify:
            file.verify()
    except BaseException:
        file.close()
        raise
    return open_file(file)


def open_file(file: ArrayFile) -> ArrayFile:
    """Return what `open` makes of a file: itself, or the records that it holds. It is closed where that fails."""
    room = _ROOMS.get(file.kind)
    if room is None:
        return file
    try:
        return cast("ArrayFile", import_module(room).of_file(file, trusted=False))
    except BaseException:
        file.close()
        raise


def _open_aligned(
    path: str | os.PathLike[str], mode: Mode | Literal["auto"], private: bool, threads: int | None, align: int
) -> ArrayFile:
    from onecopy import _aligned  # which knows the store

    _aligned.check(align)
    with open_arrays(path) as source:
        names = _aligned.misaligned(source, align)
        target, handle = path_text(path), None
        reason = f"every array begins at a multiple of {align} bytes"
        if names:
            if source.kind not in ("foreign", "arrays"):
                raise FormatError(f"{target}: it holds a {source.kind} of onecopy, and only arrays can be moved")
            made = _aligned.make(source, align)
            target, handle = str(made.path), made.handle
            reason = (
                f"an aligned copy, because {len(names)} of {len(source)} arrays of {source.path} begin at no multiple "
                f"of {align} bytes"
            )
    file = (
        open_arrays(target, mode, private=private, threads=threads)
        if handle is None
        else ArrayFile(target, mode=mode, private=private, threads=threads, handle=handle)
    )
    file.add_reason(reason)
    return file


def open_arrays(
    path: str | os.PathLike[str],
    mode: Mode | Literal["auto"] = "map",
    *,
    private: bool = False,
    threads: int | None = None,
) -> ArrayFile:
    """Open a file, or several as one, as arrays: like `open`, but records stay the arrays that they consist of.

    Examples
    --------
    >>> import onecopy as oc, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "names.oc")
    >>> oc.records.save(path, ["Ada", "Grace"])
    >>> type(oc.arrays.open_arrays(path)).__name__
    'ArrayFile'
    """
    try:
        file = ArrayFile(path, mode=mode, private=private, threads=threads)
    except FormatError:
        if not _begins_as_json(path):
            raise
        return cast("ArrayFile", import_module(_SHARDS).of_index(path, mode, private=private, threads=threads))
    if file.container != "onnx" or "elsewhere" not in file.metadata:
        return file
    return cast("ArrayFile", import_module(_MODELS).of_model(file, private=private, threads=threads, mode=mode))


def _begins_as_json(path: str | os.PathLike[str]) -> bool:
    with builtins.open(path, "rb") as file:  # noqa: PTH123 - any PathLike
        return _JSON.fullmatch(file.read(64)) is not None
