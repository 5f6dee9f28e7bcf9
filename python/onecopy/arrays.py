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
import warnings
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeGuard, cast, overload

from onecopy import _core, _dtypes, residency
from onecopy._saving import save
from onecopy.base import FormatError, path_text, thread_count
from onecopy.files import Identity, Mode, OpenFile, absolute, check_mode

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from onecopy.residency import EvictReport, Mechanism, PinReport, Range, Residency, WarmJob, WarmReport

__all__ = ["ArrayFile", "Entry", "Part", "VerifyReport", "open", "save"]

_ROOMS = {"records": "onecopy.records.opening"}
"""What else a path can become, by the kind of the file: rooms above this one, loaded when there is such a file."""

Part: TypeAlias = "str | tuple[str, slice]"
"""An array by name, or rows of it: ("wte", slice(0, 1000))."""


class Entry(NamedTuple):
    """One array of a file."""

    name: str
    dtype: str
    """As safetensors calls it: "F32", "BF16", ...; of other formats also what they call a type of their own."""
    shape: tuple[int, ...]
    offset: int
    """Bytes from the start of the file."""
    nbytes: int


class VerifyReport(NamedTuple):
    """What a `verify` did; it raises where anything is wrong."""

    bytes: int
    """Compared, in whole blocks."""
    seconds: float
    gib_per_s: float
    """2**30 bytes a second."""
    threads: int


class ArrayFile(OpenFile, Mapping[str, "NDArray[Any]"]):
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
    ) -> None:
        given = path_text(path)
        huge = False
        if mode == "auto":
            copied, huge, reason = _core.choose_mode(given)
            mode = "copy" if copied else "map"
        else:
            reason = "as asked"
        number = thread_count(threads)
        core = _core.open_arrays(given, check_mode(mode), private, number, identity)
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
                stacklevel=4,
            )

    @classmethod
    def of_compiled(cls, core: _core.ArrayFile, path: str) -> ArrayFile:
        """Wrap the compiled half of a file that is mapped; for rooms that open files without this one."""
        self = cls.__new__(cls)
        self._set(core, path, "map", "as asked", private=False, threads=None)
        return self

    # --- arrays ---------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> NDArray[Any]:
        import numpy as np

        found = self._core.view(name) if _is_text(name) else None
        if found is None:
            raise KeyError(name)
        memory, name_of_type, shape, strides = found
        dtype = _dtypes.to_numpy(name_of_type)
        if _dtypes.is_raw(name_of_type):
            return np.ndarray(len(memory), dtype, memory)
        try:
            return np.ndarray(shape, dtype, memory, strides=tuple(step * dtype.itemsize for step in strides) or None)
        except ValueError as error:  # 65 axes, or extents beyond 63 bits beside a zero: valid in the file
            raise FormatError(f"{self._path}: {name!r}: numpy has no array of its shape: {error}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._all_names())

    def __len__(self) -> int:
        return len(self._all_names())

    def __contains__(self, name: object) -> bool:
        return _is_text(name) and self._core.entry(name) is not None

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
        row = self._core.entry(name) if _is_text(name) else None
        if row is None:
            raise KeyError(name)
        return Entry(*row)

    def slice(self, name: str, *index: builtins.slice | int) -> NDArray[Any]:
        """Return part of an array: a view, no copy; only the pages that are touched are ever read.

        Examples
        --------
        >>> import numpy as np, onecopy as oc, tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp(), "model.safetensors")
        >>> oc.save(path, {"w": np.arange(8).reshape(4, 2)})
        >>> oc.open(path).slice("w", slice(1, 3), 0)
        array([2, 4])
        """
        part: NDArray[Any] = self[name][(*index, ...)]  # the ellipsis makes views of single elements too
        return part

    def shard(self, name: str, rank: int, ranks: int, *, axis: int = 0) -> NDArray[Any]:
        """Return the part of an array that belongs to one rank of a tensor-parallel group: a view, no copy.

        Parameters
        ----------
        name
            The array. Its extent along `axis` must be divisible by `ranks`.
        rank, ranks
            Which part of how many: 0 <= rank < ranks.
        axis
            The axis that is split. Along axis 0 the part is contiguous, and only its pages are ever read.

        Examples
        --------
        >>> import numpy as np, onecopy as oc, tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp(), "model.safetensors")
        >>> oc.save(path, {"w": np.arange(8).reshape(4, 2)})
        >>> oc.open(path).shard("w", 1, 2)
        array([[4, 5],
               [6, 7]])
        """
        array = self[name]
        if _dtypes.is_raw(self.entry(name).dtype):
            raise ValueError(f"{name!r}: packed arrays are given as raw bytes and cannot be split along an axis")
        if not 0 <= rank < ranks:
            raise ValueError(f"rank must be from 0 to {ranks - 1}, not {rank}")
        extent = array.shape[axis]
        if extent % ranks:
            raise ValueError(f"{name!r}: {extent} along axis {axis} cannot be split into {ranks} equal parts")
        part = builtins.slice(rank * (extent // ranks), (rank + 1) * (extent // ranks))
        index = [builtins.slice(None)] * array.ndim
        index[axis] = part
        return array[tuple(index)]

    # --- residency ------------------------------------------------------------------------------------------------

    @overload
    def warm(
        self,
        names: Iterable[Part] | None = None,
        *,
        threads: int | None = None,
        huge: bool | None = None,
        budget: int | None = None,
        mechanism: Mechanism = "auto",
        in_order: bool = False,
        verify: bool = False,
        wait: Literal[True] = True,
        on_progress: Callable[[int, int], object] | None = None,
    ) -> WarmReport: ...

    @overload
    def warm(
        self,
        names: Iterable[Part] | None = None,
        *,
        threads: int | None = None,
        huge: bool | None = None,
        budget: int | None = None,
        mechanism: Mechanism = "auto",
        in_order: bool = False,
        verify: bool = False,
        wait: Literal[False],
        on_progress: None = None,
    ) -> WarmJob: ...

    def warm(
        self, names: Iterable[Part] | None = None, *, verify: bool = False, **options: Any
    ) -> WarmReport | WarmJob:
        """Bring arrays into memory at the device's speed; see `onecopy.warm` for the other options.

        Parameters
        ----------
        names
            Names, or (name, slice of rows); None: everything.
        verify
            Compare the bytes with their checksums in the same pass, also those that were in memory before; whole blocks
            of 2 MiB. The report's ``verified`` tells how many bytes agreed.

        Raises
        ------
        DataLost
            The file was truncated, or the device failed.
        ChecksumError, NoChecksum
            With `verify`: see `verify`.

        Examples
        --------
        >>> import numpy as np, onecopy as oc, tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp(), "model.safetensors")
        >>> oc.save(path, {"a": np.zeros(1000), "b": np.ones(1000)})
        >>> with oc.open(path) as model:
        ...     model.warm(["b"]).complete
        True
        """
        ranges = self._ranges(names)
        if verify:
            ranges = self._core.ranges_to_verify([(0, 0)] if ranges == [] else ranges or [])
            options["inspector"] = self._core.verifier()
        report: WarmReport | WarmJob = residency.warm(self, ranges, **options)
        return report

    def verify(
        self,
        names: Iterable[Part] | None = None,
        *,
        threads: int | None = None,
        on_progress: Callable[[int, int], object] | None = None,
    ) -> VerifyReport:
        """Compare the bytes with the checksums that `save` stored: CRC-32C of every 2 MiB, and of the header.

        A mapped file is read with pread, so that a file that is truncated meanwhile raises instead of killing the
        process; with ``mode="copy"`` the copy itself is checked. Checksums find accidents (disks, memory, transfers,
        programs that edit in place), not attackers: whoever can write the file can write them too.

        Parameters
        ----------
        names
            Names, or (name, slice of rows); None: everything. Blocks are compared whole, with what else is in them.
        threads
            None: 8.
        on_progress
            Called about 20 times a second with (bytes done, bytes in total); raising in it stops the work.

        Raises
        ------
        ChecksumError
            Bytes do not agree; the message names block, place and arrays, ``blocks`` has all damaged blocks.
        NoChecksum
            The file has no checksums to compare with.
        DataLost
            The file was truncated, or the device failed.

        Examples
        --------
        >>> import numpy as np, onecopy as oc, tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp(), "model.safetensors")
        >>> oc.save(path, {"a": np.zeros(1000)})
        >>> oc.open(path).verify().bytes
        8000
        >>> with path.open("r+b") as file:
        ...     _ = file.seek(-1, 2), file.write(b"x")
        >>> oc.open(path).verify()
        Traceback (most recent call last):
            ...
        onecopy.base.ChecksumError: ...: 1 of 1 blocks is damaged; block 0, bytes [4096, 12096) of the file, in 'a': ...
        """
        done = self.warm(names, verify=True, mechanism="none", threads=threads, on_progress=on_progress)
        verified = done.verified or 0
        return VerifyReport(verified, done.seconds, verified / 2**30 / done.seconds, done.threads)

    def evict(self, names: Iterable[Part] | None = None) -> EvictReport:
        """Take arrays out of memory; see `onecopy.evict`."""
        return residency.evict(self, self._ranges(names))

    def residency(self, names: Iterable[Part] | None = None) -> Residency:
        """Tell what is in memory; see `onecopy.residency.residency`."""
        return residency.residency(self, self._ranges(names))

    def pin(self, names: Iterable[Part] | None = None) -> PinReport:
        """Lock arrays into memory; see `onecopy.pin`."""
        return residency.pin(self, self._ranges(names))

    def unpin(self, names: Iterable[Part] | None = None) -> None:
        """Let go of what `pin` locked."""
        residency.unpin(self, self._ranges(names))

    def _ranges(self, names: Iterable[Part] | None) -> list[Range] | None:
        if names is None:
            return None
        if isinstance(names, str):
            raise TypeError(f"names must be a list of names: [{names!r}]")
        return [self._range(part) for part in names]

    def _range(self, part: Part) -> Range:
        name, rows = (part, builtins.slice(None)) if isinstance(part, str) else part
        entry = self.entry(name)
        if not entry.shape or entry.nbytes == 0:
            return entry.offset, entry.nbytes
        if not isinstance(rows, builtins.slice):
            raise TypeError(f"{name!r}: rows must be a slice, not {rows!r}")
        start, stop, step = rows.indices(entry.shape[0])
        if step != 1:
            raise ValueError(f"{name!r}: rows must be a slice of step 1, not {step}")
        if stop <= start:
            return entry.offset, 0
        # Rows of packed elements need not begin on a byte: the bytes that hold them.
        begin = start * entry.nbytes // entry.shape[0]
        end = -(-stop * entry.nbytes // entry.shape[0])
        return entry.offset + begin, end - begin

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
        """Why it was opened so: a sentence for ``mode="auto"``, else "as asked"."""
        return self._reason

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(row[4] for row in self._core.entries())

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

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other  # comparing all arrays would read all of both files


def _is_text(name: object) -> TypeGuard[str]:
    """Tell whether a file could have an array of this name: text, and not half a surrogate pair."""
    if not isinstance(name, str):
        return False
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


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
) -> ArrayFile:
    """Open a file of arrays: names to read-only arrays, without reading the data.

    safetensors, and what other formats hold as it lies in memory (docs/formats/other.md); which format it is, the
    content says, not the name. A file of records (`onecopy.records.save`) becomes a `List`, a `Table` or a `Dict`
    instead; `onecopy.records.open` is the same for a type checker.

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

    Raises
    ------
    OSError
        FileNotFoundError, PermissionError, IsADirectoryError, ... with ``filename`` and ``errno``.
    FormatError
        Not a valid file of its format; the message names the array or the byte.
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
    file = ArrayFile(path, mode=mode, private=private, threads=threads)
    try:
        if warm:
            file.warm(verify=verify)
        elif verify:
            file.verify()
        room = _ROOMS.get(file.kind)
        return file if room is None else cast("ArrayFile", import_module(room).of_file(file, trusted=False))
    except BaseException:
        file.close()
        raise
