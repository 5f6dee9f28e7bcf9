"""`ArrayFile`, the class of objects that `onecopy.open` returns, and its subclass `OneFile` for a single file."""

from __future__ import annotations

import abc
import builtins
import errno
import functools
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

import onecopy  # whose errors are imported when one is raised
from onecopy import _core, arrays, files, store
from onecopy.arrays.entries import Entry, Memory, Part, array_of, is_raw, name_of, range_of
from onecopy.arrays.open_mode import AS_REQUESTED, OpenMode
from onecopy.base.text import byte_count, counted, is_text, size, thread_count
from onecopy.files.mapping import ArraysMode, OpenFile, absolute

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from typing import Unpack

    from numpy.typing import NDArray

    from onecopy.arrays.saving import VerifyReport
    from onecopy.arrays.several_files import Member
    from onecopy.arrays.streaming import StreamedPart
    from onecopy.files.page_cache import EvictReport, PinReport, Portion, Residency, WarmJob, WarmOptions, WarmReport


class ArrayFile(Mapping[str, "NDArray[Any]"], OpenFile):
    """A read-only mapping from names to arrays that are views of one or more mapped files.

    `onecopy.open` creates it for a single file, for the shards that an index names, or for a model and its external
    data; `files` lists the files. Getting an array by name takes about a microsecond and reads no data. A pickle
    contains the path and the identity of each file, and processes that load it map the same pages; unpickling raises
    `FileChanged` if a file has been modified or replaced.

    Arrays are read-only views that keep the memory mapped after `close`. Element types that NumPy lacks (BF16, F8) have
    a dtype from `ml_dtypes`. Elements smaller than a byte (F4, F6) are returned as uint8 bytes, with the type's name in
    ``dtype.metadata["onecopy"]``.
    """

    mode: ArraysMode
    """The mode in which the files were actually opened: "map", "copy" or "snapshot"."""
    mode_reason: str
    """Why `mode` was used ("as requested", or the reason for an automatic choice); then the result of ``align``."""
    container: str
    """The format: "safetensors", "onnx", ..., or "safetensors set" for shards."""
    kind: str
    """The kind of contents: "arrays", "struct", "records" or "image" if onecopy wrote the file, otherwise "foreign"."""

    _files: Sequence[Member]
    _metadata: dict[str, str]

    # --- arrays ---------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def _names(self) -> Collection[str]:
        """Return the array names in order."""

    @abc.abstractmethod
    def _found(self, name: str) -> Entry | None:
        """Return an array's entry, or None if there is no array with that name."""

    @abc.abstractmethod
    def _file_of(self, name: str) -> Member:
        """Return the file that contains an existing array."""

    @abc.abstractmethod
    def _memory(self, name: str) -> Memory | None:
        """Return an array's bytes, or None if there is no array with that name."""

    def __getitem__(self, name: str) -> NDArray[Any]:
        memory = self.memory_of(name)
        try:
            return array_of(memory)
        except ValueError as error:  # 65 axes, or an empty array with an extent of 2**63: valid in the file
            reason = f"{name!r}: numpy cannot represent its shape: {error}"
            raise onecopy.FormatError(reason, onecopy.FormatError.Kind.UNSUPPORTED, path=self.path_of(name)) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def __contains__(self, name: object) -> bool:
        return is_text(name) and self._found(name) is not None

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The name, dtype, shape, offset in the file (see `path_of`) and size in bytes of each array. Reads no data."""
        return tuple(map(self.entry, self))

    def entry(self, name: str) -> Entry:
        """Return an array's entry. Raise KeyError if there is no array with that name."""
        found = self._found(name) if is_text(name) else None
        if found is None:
            raise _no_array(name, self)
        return found

    def path_of(self, name: str) -> str:
        """Return the path of the file that contains an array. Raise KeyError if there is no array with that name."""
        self.entry(name)
        return self._file_of(name).path

    def memory_of(self, name: str) -> Memory:
        """Return an array's bytes with their type and shape. Raise KeyError if there is no array with that name."""
        found = self._memory(name) if is_text(name) else None
        if found is None:
            raise _no_array(name, self)
        return found

    @property
    def nbytes(self) -> int:
        """The total size of all arrays in bytes."""
        return sum(entry.nbytes for entry in self.entries)

    # --- the files ------------------------------------------------------------------------------------------------

    @property
    def files(self) -> Sequence[Member]:
        """The open files that contain the arrays: this file, each shard, or the model and its external data."""
        return self._files

    def portions(self, names: Iterable[Part] | None = None, *, verify: bool = False) -> list[Portion]:
        """Return the mappings of all or some arrays with their ranges, as targets for `onecopy.files.page_cache`.

        With `verify`, ranges are whole blocks, and inspectors compare their checksums. Raise NoChecksum if the file
        has no checksums.
        """
        if isinstance(names, str):
            raise TypeError(f"names must be a list, not one name: pass [{names!r}]")
        return self._portions(None if names is None else list(names), verify)

    @abc.abstractmethod
    def _portions(self, parts: list[Part] | None, verify: bool) -> list[Portion]: ...

    @property
    def metadata(self) -> dict[str, str]:
        """Metadata of the file, index or model, without onecopy's entry. Values other than strings appear as JSON."""
        return dict(self._metadata)

    # --- parts of arrays ------------------------------------------------------------------------------------------

    def slice(self, name: str, *index: builtins.slice | int) -> NDArray[Any]:
        """Return part of an array as a view, without copying. Pages outside the part are not read.

        Examples
        --------
        >>> import numpy as np, onecopy as oc, tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp(), "model.safetensors")
        >>> oc.save(path, {"w": np.arange(8).reshape(4, 2)})
        >>> oc.open(path).slice("w", slice(1, 3), 0)
        array([2, 4])
        """
        part: NDArray[Any] = self[name][(*index, ...)]  # the ellipsis makes a single element a view
        return part

    def shard(self, name: str, rank: int, world_size: int, *, axis: int = 0) -> NDArray[Any]:
        """Return the part of an array that belongs to one rank in a tensor-parallel group, as a view, without copying.

        Parameters
        ----------
        name
            Name of the array. Its extent along `axis` must be divisible by `world_size`.
        rank, world_size
            Index of the part, and number of parts: 0 <= rank < world_size.
        axis
            The axis to split. Parts along axis 0 are contiguous, so other pages are not read.

        Raises
        ------
        KeyError
            There is no array with that name.
        ValueError
            The extent is not divisible by `world_size`, `rank` is out of range, or the elements are packed.

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
        if is_raw(self.entry(name).dtype):
            raise ValueError(f"{name!r}: cannot split packed elements along an axis, because they are raw bytes")
        if not 0 <= rank < world_size:
            raise ValueError(f"rank must be from 0 to {world_size - 1}, not {rank}")
        extent = array.shape[axis]
        if extent % world_size:
            raise ValueError(f"{name!r}: cannot split the extent {extent} of axis {axis} into {world_size} equal parts")
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
        verify: bool = False,
        wait: Literal[True] = True,
        progress: Callable[[int, int], object] | None = None,
        **options: Unpack[WarmOptions],
    ) -> WarmReport: ...

    @overload
    def warm(
        self,
        names: Iterable[Part] | None = None,
        *,
        verify: bool = False,
        wait: Literal[False],
        **options: Unpack[WarmOptions],
    ) -> WarmJob: ...

    def warm(
        self, names: Iterable[Part] | None = None, *, verify: bool = False, **options: Any
    ) -> WarmReport | WarmJob:
        """Read arrays into the page cache at the speed of the device. For the other options, see `onecopy.warm`.

        Parameters
        ----------
        names
            Names of arrays, or (name, slice of rows); None: all arrays of all files.
        verify
            Whether to compare the bytes with their checksums in the same pass, in whole 2 MiB blocks, including bytes
            that were already in memory. ``verified`` in the report is the number of bytes compared.

        Raises
        ------
        KeyError
            There is no array with one of the names.
        DataLost
            The file was truncated, or the device failed.
        ChecksumError, NoChecksum
            With ``verify=True``, as in `verify`.

        Examples
        --------
        >>> import numpy as np, onecopy as oc, tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp(), "model.safetensors")
        >>> oc.save(path, {"a": np.zeros(1000), "b": np.ones(1000)})
        >>> with oc.open(path) as model:
        ...     model.warm(["b"]).complete
        True
        """
        report: WarmReport | WarmJob = files.warm(self.portions(names, verify=verify), **options)
        return report

    def verify(
        self,
        names: Iterable[Part] | None = None,
        *,
        threads: int | None = None,
        progress: Callable[[int, int], object] | None = None,
    ) -> VerifyReport:
        """Compare the bytes with the CRC-32C checksums that `save` stored for every 2 MiB and for the header.

        A mapped file is read with pread, so if another program truncates it, the process gets an error instead of
        SIGBUS. With ``mode="copy"``, the copy itself is checked. Checksums detect accidental damage (by disks, memory,
        transfers or editing in place), but not attacks: a program that can write to the file can replace them.

        Parameters
        ----------
        names
            Names of arrays, or (name, slice of rows); None: all arrays. Whole blocks are compared, including the bytes
            of other arrays in them.
        threads
            Number of threads that read; None: 8.
        progress
            Called about 20 times per second with (bytes done, bytes in total). If it raises an exception, verification
            stops and the exception is passed on.

        Raises
        ------
        ChecksumError
            Some bytes do not match. The message describes the first damaged block; ``blocks`` lists all of them.
        NoChecksum
            The file has no checksums.
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
        speed = verified / 2**30 / done.seconds if done.seconds else 0.0  # without arrays, 0 seconds
        return arrays.VerifyReport(verified, done.seconds, speed, done.threads)

    def stream(
        self,
        names: Iterable[Part] | None = None,
        *,
        order: Literal["file", "names"] = "file",
        window: int | str = "512 MiB",
    ) -> Iterator[StreamedPart]:
        """Yield the arrays in a file that is larger than memory, reading ahead and releasing each array after use.

        At any time, the page cache contains about `window` bytes of the file, so other files stay cached. Parts of the
        file that were already cached stay cached, too.

        Parameters
        ----------
        names
            Names of arrays, or (name, slice of rows); None: all arrays.
        order
            "file": the order in the file, which is the fastest to read from disk; "names": the order of `names`.
        window
            Maximum bytes of the file in memory, as a number or text: at least 8 MiB, and limited to a quarter of the
            available memory. A quarter of the window is in use while the rest is being read. Arrays larger than that
            quarter are split into parts of whole rows. Larger rows, arrays of packed elements, and arrays that are not
            in C order are not split.

        Yields
        ------
        StreamedPart
            (name, rows, array), where `array` is a view, not a copy. It stays valid, but its pages may have to be
            read again once the next part has been requested.

        Raises
        ------
        KeyError
            There is no array with one of the names.
        ValueError
            The window is smaller than 8 MiB, `order` is unknown, or a slice of rows has a step.
        DataLost
            The file was truncated, or the device failed.

        Examples
        --------
        >>> import numpy as np, onecopy as oc, tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp(), "model.safetensors")
        >>> oc.save(path, {"a": np.ones((1000, 3)), "b": np.ones(5)})
        >>> with oc.open(path) as model:
        ...     sum(float(array.sum()) for name, rows, array in model.stream(window="64 MiB"))
        3005.0
        """
        return arrays.stream(self, names, order, byte_count("window", window))

    def evict(self, names: Iterable[Part] | None = None) -> EvictReport:
        """Drop arrays from memory; see `onecopy.evict`."""
        return files.evict(self.portions(names))

    def residency(self, names: Iterable[Part] | None = None) -> Residency:
        """Report how much of the arrays is in memory; see `onecopy.residency`."""
        return files.residency(self.portions(names))

    def pin(self, names: Iterable[Part] | None = None) -> PinReport:
        """Lock arrays in memory; see `onecopy.files.pin`."""
        return files.pin(self.portions(names))

    def unpin(self, names: Iterable[Part] | None = None) -> None:
        """Unlock arrays that `pin` has locked."""
        files.unpin(self.portions(names))

    def __repr__(self) -> str:
        if self.closed:
            return f"<onecopy.ArrayFile {self.path!r} closed>"

        return f"<onecopy.ArrayFile {self.path!r} {self._counted()}, {size(self.nbytes)}, {self.mode}>"

    def _counted(self) -> str:
        return counted(len(self), "array")

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other  # comparing arrays would read both files


def key_of(file: ArrayFile, version: str) -> str:
    """Return a `Store` key that changes if any of the files changes, like `onecopy.file_key` for a single file.

    Raise FileChanged if a file has been modified or replaced since it was opened.
    """
    paths = dict.fromkeys(map(file.path_of, file))
    others = [store.file_key(path) for path in paths if path != file.path]
    if others:  # a digest, because the list of a hundred shards would be unreadable
        version += f", with {len(others)} files {store.digest_of(others, 'the files')}"
    key = store.file_key(file.path, version)
    expect_unchanged(file)  # otherwise the key of the new file could name data of the old one
    return key


def expect_unchanged(file: ArrayFile) -> None:
    """Raise FileChanged if a file has been modified or replaced since it was opened."""
    if file.changed():
        raise onecopy.errors.FileChanged(errno.ESTALE, "the file was modified or replaced while it was open", file.path)


def _no_array(name: object, file: ArrayFile) -> KeyError:
    """Return a KeyError for a missing array, with a note that lists names in the file."""
    error = KeyError(name)
    first = ", ".join(repr(each) for each in itertools.islice(file, 4))
    count = counted(len(file), "array")
    error.add_note(f"{file.path} has {count}: {first}{', ...' if len(file) > 4 else ''}")
    return error


_LARGE = 16 << 20
"""Files smaller than this are not compared with the available memory."""


class OneFile(ArrayFile):
    """The arrays of one mapped file.

    `handle` is the open file, if any. With `accept_index`, the JSON index of a sharded model is opened as a file
    without arrays, whose container is "shard index".
    """

    def __init__(
        self,
        path: str,
        how: OpenMode | None = None,
        handle: _core.FileHandle | None = None,
        *,
        accept_index: bool = False,
    ) -> None:
        how, huge = OpenMode() if how is None else how, False
        if how.mode not in ("map", "copy"):
            how, huge = how.decided_for(path)
            if handle is None:
                how, handle = how.with_snapshot(path)
        core, container, kind, damaged = _core.open_arrays(
            path,
            copy=how.mode == "copy",
            private_pages=how.private,
            threads=0 if how.threads is None else thread_count(how.threads),
            expected=how.expected[0] if how.expected else None,
            handle=handle,
            accept_index=accept_index,
        )
        self._set(core, container, kind, path, how)
        if damaged:
            import warnings

            warnings.warn(
                f"{path}: the checksum of the header does not match: the file is damaged, or another tool rewrote it "
                "and kept onecopy's metadata. It is opened as another tool's file, without checksums.",
                stacklevel=4,  # the caller of `open`
            )
        if how.private and how.mode == "map":
            self._note_write_limit(core.mapping.nbytes)
        if huge:
            self.warm(mechanism="advise")

    def _note_write_limit(self, nbytes: int) -> None:
        """If only part of a large file can be written to, add the size of this part to `mode_reason`."""
        left = _core.available_memory() if nbytes >= _LARGE else None
        if left is not None and left[0] < nbytes:
            self.mode_reason += (
                f"; writing to more than {left[0]} of {nbytes} bytes ends the process (limited by {left[1]}): call "
                "onecopy.files.page_cache.expect_memory first, which raises MemoryError instead"
            )

    def _set(self, core: _core.ArrayFile, container: str, kind: str, path: str, how: OpenMode) -> None:
        self._core, self.container, self.kind = core, container, kind
        self._path, self._absolute, self._how = path, absolute(path), how
        self.mode, self.mode_reason = how.mode, how.reason  # type: ignore[assignment]  # not "auto"
        self._all: list[str] | None = None

    @classmethod
    def of_compiled(cls, core: _core.ArrayFile, path: str) -> OneFile:
        """Wrap a file that the compiled module has opened."""
        self = cls.__new__(cls)
        self._set(core, core.container, core.kind, path, OpenMode())
        return self

    def close(self) -> None:
        """Close the file. Its memory is unmapped when the last view is gone. Further calls do nothing."""
        self._core.close()

    def _mappings(self) -> tuple[_core.Mapping]:
        return (self.core,)

    def _names(self) -> list[str]:
        if self._all is None:
            self._all = self._core.names()
        return self._all

    def _found(self, name: str) -> Entry | None:
        row = self._core.entry(name)
        return None if row is None else Entry(*row)

    def _file_of(self, name: str) -> OneFile:  # noqa: ARG002 - all arrays are in this file
        return self

    def _memory(self, name: str) -> Memory | None:
        found = self._core.view(name)
        return None if found is None else Memory(*found)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The name, dtype, shape, offset and size in bytes of each array, in header order. Reads no data."""
        return tuple(Entry(*row) for row in self._core.entries())

    def _portions(self, parts: list[Part] | None, verify: bool) -> list[Portion]:
        ranges = None if parts is None else [range_of(self.entry(name_of(part)), part) for part in parts]
        if not verify:
            return [files.Portion(self.core, ranges)]
        return [files.Portion(self.core, self._core.ranges_to_verify(ranges), self._core.verifier())]

    @property
    def files(self) -> tuple[OneFile, ...]:
        """The open files that contain the arrays: this file."""
        return (self,)

    @functools.cached_property
    def core(self) -> _core.Mapping:
        """The mapping as an object of the compiled module, for `onecopy.files.page_cache`."""
        return self._core.mapping

    @property
    def compiled(self) -> _core.ArrayFile:
        """The file as an object of the compiled module, for `onecopy.records`."""
        return self._core

    @property
    def metadata(self) -> dict[str, str]:
        """The file's metadata, without onecopy's own entry."""
        return {key: value for key, value in self._core.metadata().items() if key != "onecopy"}

    def __reduce__(self) -> tuple[object, ...]:  # loading raises FileChanged if the file has changed
        return OneFile, (self._absolute, self._how._replace(expected=(self.identity,), reason=AS_REQUESTED))
