"""An open file of arrays, as everyone sees it; whether one file holds them or several.

`ArrayFile` is what `onecopy.open` returns. Here is all that follows from names and entries: parts of arrays, and what
of them is in memory. Where the bytes lie is for the classes below: `one_file`, `several_files`.
"""

from __future__ import annotations

import abc
import builtins
import errno
import functools
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeGuard, overload

from onecopy.errors import FileChanged, FormatError
from onecopy.files import Closeable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from onecopy.arrays.members import Member
    from onecopy.files import Identity, Mode
    from onecopy.page_cache import (
        EvictReport,
        Mechanism,
        PinReport,
        Portion,
        Range,
        Residency,
        Selection,
        WarmJob,
        WarmReport,
    )

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


class Memory(NamedTuple):
    """The bytes of one array, for those who make something else of them than numpy's arrays."""

    view: memoryview
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] = ()
    """In elements; none: the last axis runs fastest."""


class ArrayFile(Mapping[str, "NDArray[Any]"], Closeable, abc.ABC):
    """A read-only mapping from names to arrays, all of them views of mapped files.

    Made by `onecopy.open`, of one file, of the shards that an index names, or of a model and its external data (`files`
    has them). Looking up a name costs about a microsecond and touches no data. It pickles as path and identity, so that
    another process (fork, spawn or forkserver) maps the same pages; if the path leads to another file by then,
    `FileChanged` is raised there.

    Arrays are read-only views that keep the memory alive, also after `close`. Element types that numpy does not have
    (BF16, F8) are dtypes of `ml_dtypes`; elements smaller than a byte (F4, F6) are uint8 bytes whose
    ``dtype.metadata["onecopy"]`` is the type's name.
    """

    # --- arrays ---------------------------------------------------------------------------------------------------

    @property
    @abc.abstractmethod
    def entries(self) -> tuple[Entry, ...]:
        """Name, dtype, shape, offset (in the file of `path_of`) and bytes of each array; reads no data."""

    @abc.abstractmethod
    def entry(self, name: str) -> Entry:
        """Return what the header says of one array; KeyError when there is none of that name."""

    @abc.abstractmethod
    def path_of(self, name: str) -> str:
        """Return the path of the file that an array lies in; KeyError when there is none of that name."""

    @abc.abstractmethod
    def memory_of(self, name: str) -> Memory:
        """Return the bytes of one array, and what they are; KeyError when there is none of that name."""

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(entry.nbytes for entry in self.entries)

    # --- the files ------------------------------------------------------------------------------------------------

    @property
    @abc.abstractmethod
    def files(self) -> tuple[Member, ...]:
        """The open files that arrays lie in: this one, or each shard, or the model and its external data."""

    @property
    def portions(self) -> tuple[Portion, ...]:
        """All of all files, for `onecopy.page_cache`."""
        return self._selection(None).portions

    @property
    @abc.abstractmethod
    def path(self) -> str:
        """The path as given: of the file, of the index, or of the model."""

    @property
    @abc.abstractmethod
    def identity(self) -> Identity:
        """Which file `path` led to: (device, inode, size, mtime in ns)."""

    @abc.abstractmethod
    def changed(self) -> bool:
        """Return True where a path now leads to another file, or a file was written or truncated since."""

    @property
    @abc.abstractmethod
    def views(self) -> int:
        """Number of views (arrays, memoryviews) that are alive; they keep the memory after `close`."""

    @property
    @abc.abstractmethod
    def closed(self) -> bool:
        """True after `close`."""

    @abc.abstractmethod
    def close(self) -> None:
        """Release the mappings; memory goes with the last array. Closing twice is fine."""

    @property
    @abc.abstractmethod
    def mode(self) -> Mode:
        """How the files were opened: "map" or "copy"."""

    @property
    @abc.abstractmethod
    def mode_reason(self) -> str:
        """Why they were opened so: a sentence for ``mode="auto"``, else "as asked"; what became of ``align``."""

    @abc.abstractmethod
    def add_reason(self, reason: str) -> None:
        """Append to `mode_reason`; for the code that opens files."""

    @property
    @abc.abstractmethod
    def metadata(self) -> dict[str, str]:
        """The key-value texts of the file, the index or the model, without onecopy's own; JSON of what is no text."""

    @property
    @abc.abstractmethod
    def container(self) -> str:
        """The format: "safetensors", "onnx", ..., or "safetensors set" for shards."""

    @property
    @abc.abstractmethod
    def kind(self) -> str:
        """What onecopy wrote ("arrays", "struct", "records", "image"), or "foreign" for other tools' files."""

    @abc.abstractmethod
    def _select(self, names: Iterable[Part] | None) -> Sequence[tuple[Member, list[Range] | None]]:
        """Return the files that hold some arrays, and where in them; of None, the files as a whole."""

    # --- parts of arrays ------------------------------------------------------------------------------------------

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

    def shard(self, name: str, rank: int, world_size: int, *, axis: int = 0) -> NDArray[Any]:
        """Return the part of an array that belongs to one rank of a tensor-parallel group: a view, no copy.

        Parameters
        ----------
        name
            The array. Its extent along `axis` must be divisible by `world_size`.
        rank, world_size
            Which part of how many: 0 <= rank < world_size.
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
        _, is_raw = dtype_of(self.entry(name).dtype)
        if is_raw:
            raise ValueError(f"{name!r}: packed arrays are given as raw bytes and cannot be split along an axis")
        if not 0 <= rank < world_size:
            raise ValueError(f"rank must be from 0 to {world_size - 1}, not {rank}")
        extent = array.shape[axis]
        if extent % world_size:
            raise ValueError(f"{name!r}: {extent} along axis {axis} cannot be split into {world_size} equal parts")
        part = builtins.slice(rank * (extent // world_size), (rank + 1) * (extent // world_size))
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
        max_bytes: int | str | None = None,
        mechanism: Mechanism = "auto",
        in_order: bool = False,
        verify: bool = False,
        wait: Literal[True] = True,
        progress: Callable[[int, int], object] | None = None,
    ) -> WarmReport: ...

    @overload
    def warm(
        self,
        names: Iterable[Part] | None = None,
        *,
        threads: int | None = None,
        huge: bool | None = None,
        max_bytes: int | str | None = None,
        mechanism: Mechanism = "auto",
        in_order: bool = False,
        verify: bool = False,
        wait: Literal[False],
        progress: None = None,
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
        from onecopy import page_cache

        report: WarmReport | WarmJob = page_cache.warm(self._selection(names, verify=verify), **options)
        return report

    def verify(
        self,
        names: Iterable[Part] | None = None,
        *,
        threads: int | None = None,
        progress: Callable[[int, int], object] | None = None,
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
        progress
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
        onecopy.ChecksumError: ...: 1 of 1 blocks is damaged; block 0, bytes [4096, 12096) of the file, in 'a': ...
        """
        done = self.warm(names, verify=True, mechanism="none", threads=threads, progress=progress)
        verified = done.verified or 0
        speed = verified / 2**30 / done.seconds if done.seconds else 0.0  # of no arrays
        return VerifyReport(verified, done.seconds, speed, done.threads)

    def evict(self, names: Iterable[Part] | None = None) -> EvictReport:
        """Take arrays out of memory; see `onecopy.evict`."""
        from onecopy import page_cache

        return page_cache.evict(self._selection(names))

    def residency(self, names: Iterable[Part] | None = None) -> Residency:
        """Report how much is in memory; see `onecopy.residency`."""
        from onecopy import page_cache

        return page_cache.residency(self._selection(names))

    def pin(self, names: Iterable[Part] | None = None) -> PinReport:
        """Lock arrays into memory; see `onecopy.pin`."""
        from onecopy import page_cache

        return page_cache.pin(self._selection(names))

    def unpin(self, names: Iterable[Part] | None = None) -> None:
        """Let go of what `pin` locked."""
        from onecopy import page_cache

        page_cache.unpin(self._selection(names))

    def _selection(self, names: Iterable[Part] | None, *, verify: bool = False) -> Selection:
        from onecopy.page_cache import Selection

        if isinstance(names, str):
            raise TypeError(f"names must be a list of names: [{names!r}]")
        return Selection(tuple(file.portion(at, verify=verify) for file, at in self._select(names)))

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other  # comparing all arrays would read all of both files


def name_of(part: Part) -> str:
    """Return the name in what stands for an array or for rows of it."""
    return part if isinstance(part, str) else part[0]


def range_of(entry: Entry, part: Part) -> Range:
    """Return where an array lies in its file, or rows of it."""
    name, rows = (part, builtins.slice(None)) if isinstance(part, str) else part
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


def key_of(file: ArrayFile, version: str) -> str:
    """Return a key for a `Store` that is another one as soon as any of the files is: `onecopy.file_key` of several.

    FileChanged where one of them is not what was opened any more.
    """
    from onecopy import _core
    from onecopy.store import file_key

    paths = dict.fromkeys(map(file.path_of, file))
    others = [file_key(path) for path in paths if path != file.path]
    if others:  # a hundred shards would make a key that nobody reads
        version += f", with {len(others)} files {_core.digest(chr(10).join(others))}"
    key = file_key(file.path, version)
    expect_unchanged(file)  # else what is made of it would be found for what came after it
    return key


def expect_unchanged(file: ArrayFile) -> None:
    """Raise FileChanged where a file was written or replaced since it was opened."""
    if file.changed():
        raise FileChanged(errno.ESTALE, "the file was changed or replaced while it was open", file.path)


def array_of(where: str, name: str, memory: Memory) -> NDArray[Any]:
    """Return the array that some bytes of a file are."""
    import numpy as np

    view, dtype_name, shape, strides = memory
    dtype, is_raw = dtype_of(dtype_name)
    if is_raw:
        return np.ndarray(len(view), dtype, view)
    try:
        return np.ndarray(shape, dtype, view, strides=tuple(step * dtype.itemsize for step in strides) or None)
    except ValueError as error:  # 65 axes, or extents beyond 63 bits beside a zero: valid in the file
        raise FormatError(f"{where}: {name!r}: numpy has no array of its shape: {error}") from None


@functools.cache
def dtype_of(name: str) -> tuple[np.dtype[Any], bool]:
    """Return the dtype for a type of the file, and True where its elements are given as bytes."""
    from onecopy.arrays import dtypes

    return dtypes.to_numpy(name), dtypes.is_raw(name)


def no_array(name: object, file: ArrayFile) -> KeyError:
    """Return the error of a name that is not there; the key is all that it holds, and a note says what there is."""
    error = KeyError(name)
    first = ", ".join(repr(each) for each in itertools.islice(file, 4))
    count = f"{len(file)} array{'' if len(file) == 1 else 's'}"
    error.add_note(f"{file.path} has {count}: {first}{', ...' if len(file) > 4 else ''}")
    return error


def is_text(name: object) -> TypeGuard[str]:
    """Return whether a file could have an array of this name: text, and not half a surrogate pair."""
    if not isinstance(name, str):
        return False
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
