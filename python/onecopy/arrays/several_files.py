"""`ArrayFile` for several files (the shards of a model, a model with external data), and for some arrays of a file."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar, cast

from onecopy import _core, remote
from onecopy.arrays.entries import Entry, Memory, Part, is_raw, name_of, range_of
from onecopy.arrays.file import ArrayFile, OneFile
from onecopy.arrays.open_mode import OpenMode
from onecopy.base.arguments import thread_count
from onecopy.base.text import counted
from onecopy.errors import FileChanged, FormatError, Kind, NoChecksum
from onecopy.files import page_cache
from onecopy.files.companions import SetError, index_text, is_index, parse_index, paths_of
from onecopy.files.mapping import Mapping, OpenFile, absolute
from onecopy.files.page_cache import Portion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, KeysView, Sequence
    from pathlib import Path

    from onecopy.files.mapping import ArraysMode, Mode
    from onecopy.files.page_cache import Range


class DataFile(Mapping):
    """A file of raw bytes in which a model has arrays at given offsets."""

    def __init__(self, path: str, how: OpenMode) -> None:
        how, handle = how.taken(path)
        mode: Mode = "copy" if how.mode == "copy" else "map"
        fd = None if handle is None else handle.fileno()
        self._set(path, (0, None, mode, how.private, thread_count(how.threads)), fd=fd)
        self._entries: dict[str, Entry] = {}

    def add(self, entry: Entry, model: str) -> None:
        """Add an array; SetError if the file is too short for it."""
        if entry.offset > self.nbytes or entry.nbytes > self.nbytes - entry.offset:
            raise SetError(
                f"{entry.name!r}: {model} places it at bytes [{entry.offset}, "
                f"{entry.offset + entry.nbytes}), but the file has {self.nbytes} bytes",
                Kind.TRUNCATED,
                path=self.path,
            )
        self._entries[entry.name] = entry

    def entry(self, name: str) -> Entry:
        """Return the entry of one array; KeyError if this file has no array of that name."""
        return self._entries[name]

    def memory_of(self, name: str) -> Memory:
        """Return the bytes of one array with type and shape."""
        entry = self._entries[name]
        return Memory(self.view(entry.offset, entry.nbytes), entry.dtype, entry.shape)

    def _portions(self, parts: list[Part] | None, verify: bool) -> list[Portion]:
        if verify:
            raise NoChecksum(f"{self.path}: cannot verify: the file has no checksums")
        return [Portion(self.core, None if parts is None else [range_of(self.entry(name_of(p)), p) for p in parts])]


Member: TypeAlias = OneFile | DataFile
"""One of the open files that contain arrays."""
T = TypeVar("T", bound=Member)
Reopen: TypeAlias = "tuple[Callable[..., ArrayFile], tuple[object, ...]]"
"""What a pickle contains: a function that opens the same arrays again, and its arguments."""


class SeveralFiles(ArrayFile):
    """The arrays of several mapped files, or some arrays of an open file; operations apply to all files of the arrays.

    An array of which rows were selected consists of these rows.
    """

    kind = "foreign"  # onecopy writes only single files
    _parts: dict[str, Part] | None = None
    """The selected parts of arrays, by name; None: all arrays of all files."""
    _is_verifiable = True
    """Whether all bytes of the blocks of these arrays are there."""

    def __init__(
        self,
        owner: OpenFile | ArrayFile,
        files: Sequence[Member],
        places: dict[str, int],
        how: OpenMode,
        container: str,
        metadata: dict[str, str],
        reopen: Reopen,
    ) -> None:
        """Take ownership of open files, and of `owner`; `places` has the number of the file of each array."""
        self._owner, self._files, self._places, self._reopen = owner, tuple(files), places, reopen
        self.mode, self.mode_reason = cast("ArraysMode", how.mode), how.reason
        self.container, self._metadata = container, metadata

    def _names(self) -> KeysView[str]:
        return self._places.keys()

    def _found(self, name: str) -> Entry | None:
        if name not in self._places:
            return None
        return _selected(self._file_of(name).entry(name), self._part(name))

    def _memory(self, name: str) -> Memory | None:
        if name not in self._places:
            return None
        whole, part = self._file_of(name).memory_of(name), self._part(name)
        if isinstance(part, str):
            return whole
        if whole.strides:
            raise ValueError(f"{name!r}: rows of an array that is not in C order cannot be selected")
        entry = self._file_of(name).entry(name)
        rows = _selected(entry, part)
        start = rows.offset - entry.offset
        return Memory(whole.view[start : start + rows.nbytes], whole.dtype, rows.shape)

    def _file_of(self, name: str) -> Member:
        return self._files[self._places[name]]

    def _part(self, name: str) -> Part:
        return name if self._parts is None else self._parts[name]

    def _of_file(self, part: Part) -> Part:
        """Return a part of this object as a part of its file."""
        entry, rows = self.entry(name_of(part)), self._part(name_of(part))
        if isinstance(rows, str) or not entry.shape:
            return part
        first, _, _ = rows[1].indices(self._file_of(entry.name).entry(entry.name).shape[0])
        start, stop, step = (slice(None) if isinstance(part, str) else part[1]).indices(entry.shape[0])
        return entry.name, slice(first + start, first + max(start, stop), step)

    def _portions(self, parts: list[Part] | None, verify: bool) -> list[Portion]:
        if verify and not self._is_verifiable:
            raise NoChecksum(
                f"{self.path}: cannot verify: only parts of its blocks were fetched; open with verify=True"
            )
        if parts is None and self._parts is None:
            return [portion for file in self._files for portion in file._portions(None, verify)]
        wanted: dict[int, list[Part]] = {}
        for part in self._places if parts is None else parts:
            own = self._of_file(part)
            wanted.setdefault(self._places[name_of(part)], []).append(own)
        return [portion for at in sorted(wanted) for portion in self._files[at]._portions(wanted[at], verify)]

    @property
    def files(self) -> tuple[Member, ...]:
        """The open files that contain the arrays."""
        return self._files

    def changed(self) -> bool:
        """Return whether a path now refers to another file, or a file was modified; False for parts of URLs."""
        return self._reopen[0] is not of_url and super().changed()

    @property
    def metadata(self) -> dict[str, str]:
        """Metadata of the file, the index or the model; values that are not text as JSON."""
        return dict(self._metadata)

    def __reduce__(self) -> tuple[object, ...]:
        return self._reopen

    def _counted(self) -> str:
        if self._parts is not None:
            return counted(len(self), "selected array")
        return f"{super()._counted()} in {counted(len(self._files), 'file')}"


def selected(file: ArrayFile, parts: Iterable[Part]) -> SeveralFiles:
    """Return some arrays, or rows of them, of an open file, which the result owns."""
    by_name: dict[str, Part] = {}
    for part in parts:
        name = name_of(part)
        if name in by_name:
            raise ValueError(f"{name!r} is selected twice")
        _selected(file.entry(name), part)  # raises an error for a part that cannot be selected
        by_name[name] = part
    places = {name: file.files.index(file._file_of(name)) for name in by_name}
    how, reopen = OpenMode(file.mode, reason=file.mode_reason), (selected, (file, tuple(by_name.values())))
    opened = SeveralFiles(file, file.files, places, how, file.container, file.metadata, reopen)
    opened.kind, opened._parts = file.kind, by_name
    return opened


def _expect(file: OpenFile, how: OpenMode, number: int) -> None:
    """Raise FileChanged if a file is not the one that was pickled."""
    if how.expected and (number >= len(how.expected) or file.identity != tuple(how.expected[number])):
        raise FileChanged(errno.ESTALE, "the file was modified or replaced since it was pickled", file.path)


def _named(
    stack: contextlib.ExitStack,
    owner: str,
    paths: list[str],
    how: OpenMode,
    kind: Callable[[str, OpenMode], T],
    first: int,
) -> list[T]:
    """Open the files that `owner` names; an OSError names it. `first`: number of the first in the expected ones."""
    files = []
    for number, path in enumerate(paths, first):
        try:
            file = kind(path, how._replace(expected=()))
        except OSError as error:
            raise type(error)(error.errno, f"{error.strerror} (named by {owner})", error.filename) from None
        stack.enter_context(file)
        _expect(file, how, number)
        files.append(file)
    return files


def of_index(path: str, how: OpenMode) -> SeveralFiles:
    """Open the shards that an index names; `onecopy.open` calls this for a file that begins like JSON.

    FormatError or its subclass SetError, with the path and the reason, if the index or a shard is damaged, lacks an
    array or is outside the folder; FileChanged for other files than those that were pickled; OSError with ``filename``.
    """
    with contextlib.ExitStack() as stack:
        index = stack.enter_context(Mapping(path))
        _expect(index, how, 0)
        weight_map, metadata = parse_index(path, index_text(index))
        numbers: dict[str, int] = {}
        places = {name: numbers.setdefault(file, len(numbers)) for name, file in weight_map.items()}
        paths = paths_of(path, numbers)
        how, huge = how.decided(path, paths)
        opened = of_shards(index, _named(stack, path, paths, how, OneFile, 1), places, metadata, how)
        if huge:
            page_cache.warm(opened, mechanism="advise")
        stack.pop_all()
    return opened


def of_shards(
    index: Mapping, shards: list[OneFile], places: dict[str, int], metadata: dict[str, str], how: OpenMode
) -> SeveralFiles:
    """Return open shards as one file; SetError if a shard lacks an array, or the shards have two formats."""
    for name, at in places.items():
        if name not in shards[at]:
            raise SetError(
                f"{name!r} is missing in {shards[at].path}, which the index names for it",
                Kind.INCONSISTENT,
                path=index.path,
            )
    container = shards[0].container if shards else "safetensors"
    for shard in shards:
        if shard.container != container:
            raise SetError(
                f"shards of two formats: {shards[0].path} is {container}, {shard.path} {shard.container}",
                Kind.INCONSISTENT,
                path=index.path,
            )
    return SeveralFiles(
        index, shards, places, how, f"{container} set", metadata, _reopened_by(of_index, index, shards, how)
    )


def _reopened_by(
    function: Callable[..., ArrayFile], owner: OpenFile, others: Sequence[Member], how: OpenMode
) -> Reopen:
    identities = (owner.identity, *(other.identity for other in others))
    return function, (absolute(owner.path), how._replace(expected=identities))


def of_model(model: OneFile, how: OpenMode) -> SeveralFiles:
    """Open the files of external data that an open ONNX model names; called by `onecopy.open`.

    The returned object owns the model, which is closed if an error is raised: SetError with both paths if a file is too
    short or outside the folder; FileChanged for other files than were pickled; OSError, which names the model.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(model)
        _expect(model, how, 0)
        _expect(model, how, 1)
        outside = _outside(model)
        numbers: dict[str, int] = {}
        places = dict.fromkeys(model, 0)
        for location, entry in outside:
            places[entry.name] = numbers.setdefault(location, len(numbers) + 1)
        paths = paths_of(model.path, numbers)
        how, huge = how.decided(model.path, [model.path, *paths])
        data = _named(stack, model.path, paths, how, DataFile, 2)
        for location, entry in outside:
            data[numbers[location] - 1].add(entry, model.path)
        metadata = {key: text for key, text in model.metadata.items() if key != "elsewhere" or not data}
        files: list[Member] = [model, *data]
        reopen = _reopened_by(reopened_model, model, files, how)
        opened = SeveralFiles(model, files, places, how, model.container, metadata, reopen)
        if huge:
            page_cache.warm(opened, mechanism="advise")
        stack.pop_all()
    return opened


def _outside(model: OneFile) -> list[tuple[str, Entry]]:
    """Return the arrays in other files with their locations; duplicate names get the suffix "~2", "~3", ..."""
    tensors = cast("list[tuple[Any, ...]]", _core.parse_onnx(model.core)["tensors"])
    taken = dict.fromkeys([*model, *(name for name, *_, is_initializer in tensors if is_initializer)], 1)
    outside = []
    for name, kind, dtype, shape, storage, offset, nbytes, location, is_initializer in tensors:
        if storage != "external":
            continue
        own = name
        while not is_initializer and own in taken:
            taken[name] += 1  # the last number used as a suffix
            own = f"{name}~{taken[name]}"
        taken.setdefault(own, 1)
        outside.append((location, Entry(own, dtype or kind, tuple(shape), offset, nbytes)))
    return outside


def reopened_model(path: str, how: OpenMode) -> SeveralFiles:
    """Open files that were pickled in another process; FileChanged if one was modified or replaced since."""
    return of_model(OneFile(path, how), how)


def _selected(entry: Entry, part: Part) -> Entry:
    """Return the entry of the rows of an array."""
    if isinstance(part, str):
        return entry
    if not entry.shape:
        raise ValueError(f"{entry.name!r}: an array without axes has no rows")
    if is_raw(entry.dtype):
        raise ValueError(f"{entry.name!r}: rows of packed elements cannot be selected")
    offset, nbytes = range_of(entry, part)
    rows = len(range(*part[1].indices(entry.shape[0])))
    return Entry(entry.name, entry.dtype, (rows, *entry.shape[1:]), offset, nbytes)


def of_url(
    url: str,
    parts: Sequence[Part],
    private: bool = False,
    verify: bool = False,
    versions: dict[str, remote.Version] | None = None,
) -> ArrayFile:
    """Open some arrays behind a URL: of a safetensors file or an index of such, only their bytes are fetched.

    `versions`: those of the index and its shards by name, which a pickle of the result contains; None: the current
    ones. Errors are those of `onecopy.open` and `onecopy.remote.fetch`; KeyError for a missing name.
    """
    source = _Source(remote.Origin(url), {} if versions is None else dict(versions), private, verify)
    file = source.of_index(parts) if is_index(url) else source.of_one(source.origin.name, source.origin, parts)
    try:
        opened = selected(file, parts)
    except BaseException:
        file.close()
        raise
    opened._reopen, opened._is_verifiable = (of_url, (url, tuple(parts), private, verify, source.versions)), verify
    return opened


class _Source(NamedTuple):
    """A file or index behind a URL, with the versions of the files that were opened."""

    origin: remote.Origin
    versions: dict[str, remote.Version]
    private: bool
    verify: bool

    def _version(self, name: str, origin: remote.Origin) -> remote.Version:
        if name not in self.versions:
            [self.versions[name]] = remote.versions_of([origin])
        return self.versions[name]

    def of_one(self, name: str, origin: remote.Origin, parts: Sequence[Part]) -> OneFile:
        def ranges(path: Path) -> list[Range]:
            with OneFile(os.fspath(path)) as file:
                for part in parts:
                    _selected(file.entry(name_of(part)), part)  # raises an error before anything is fetched
                wanted = [range_of(file.entry(name_of(part)), part) for part in parts]
                if self.verify:
                    with contextlib.suppress(FormatError):  # without checksums; raised again when they are compared
                        return [*file.compiled.ranges_to_verify(wanted)]
                return wanted

        version = self._version(name, origin)
        return remote.fetch_ranges(
            origin, version, ranges, lambda path: OneFile(os.fspath(path), OpenMode(private=self.private))
        )

    def of_index(self, parts: Sequence[Part]) -> ArrayFile:
        name = self.origin.name
        path = str(remote.fetch_versions([(name, self.origin, self._version(name, self.origin))]))
        with contextlib.ExitStack() as stack:
            index = stack.enter_context(Mapping(path))
            files, metadata = parse_index(path, index_text(index))
            by_shard: dict[str, list[Part]] = {}
            for part in parts:
                if name_of(part) not in files:
                    raise KeyError(name_of(part))
                by_shard.setdefault(files[name_of(part)], []).append(part)
            shards = []
            for shard, wanted in by_shard.items():
                shards.append(stack.enter_context(self.of_one(shard, self.origin.beside(shard), wanted)))
            numbers = {shard: number for number, shard in enumerate(by_shard)}
            places = {name: numbers[files[name]] for name in map(name_of, parts)}
            opened = of_shards(index, shards, places, metadata, OpenMode("map", self.private))
            stack.pop_all()
        return opened
