"""`ArrayFile` for several files (a model's shards, or a model with external data), or for some arrays in a file."""

from __future__ import annotations

import contextlib
import errno
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from onecopy import _core
from onecopy.arrays.entries import Entry, Memory, Part, is_raw, name_of, range_of
from onecopy.arrays.file import ArrayFile, OneFile
from onecopy.base import lazy
from onecopy.base.text import counted, thread_count
from onecopy.errors import FileChanged, Kind, NoChecksum
from onecopy.files import page_cache
from onecopy.files.companions import SetError, index_text, parse_index, paths_of
from onecopy.files.mapping import Mapping, OpenFile, absolute
from onecopy.files.page_cache import Portion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, KeysView, Sequence

    from onecopy.arrays.open_mode import OpenMode
    from onecopy.files.mapping import ArraysMode, Mode


class DataFile(Mapping):
    """A file of raw bytes that contains a model's arrays at offsets given by the model."""

    def __init__(self, path: str, how: OpenMode) -> None:
        how, handle = how.with_snapshot(path)
        mode: Mode = "copy" if how.mode == "copy" else "map"
        fd = None if handle is None else handle.fileno()
        self._set(path, (0, None, mode, how.private, thread_count(how.threads)), fd=fd)
        self._entries: dict[str, Entry] = {}

    def add(self, entry: Entry, model: str) -> None:
        """Add an array. Raise SetError if the file is too short."""
        if entry.offset + entry.nbytes > self.nbytes:
            raise SetError(
                f"{entry.name!r}: {model} places it at bytes [{entry.offset}, "
                f"{entry.offset + entry.nbytes}), but the file has {self.nbytes} bytes",
                Kind.TRUNCATED,
                path=self.path,
            )
        self._entries[entry.name] = entry

    def entry(self, name: str) -> Entry:
        """Return an array's entry. Raise KeyError if there is no array with that name."""
        return self._entries[name]

    def memory_of(self, name: str) -> Memory:
        """Return an array's bytes with their type and shape. Raise KeyError if there is no array with that name."""
        entry = self._entries[name]
        return Memory(self.view(entry.offset, entry.nbytes), entry.dtype, entry.shape)

    def _portions(self, parts: list[Part] | None, verify: bool) -> list[Portion]:
        if verify:
            raise NoChecksum(f"{self.path}: cannot verify: the file has no checksums")
        return [Portion(self.core, None if parts is None else [range_of(self.entry(name_of(p)), p) for p in parts])]


Member: TypeAlias = OneFile | DataFile
"""An open file that contains arrays."""
T = TypeVar("T", bound=Member)


class SeveralFiles(ArrayFile):
    """The arrays in several mapped files. Operations apply to all of the files."""

    kind = "foreign"  # onecopy writes only single files

    def __init__(
        self,
        owner: OpenFile,
        files: Sequence[Member],
        places: dict[str, int],
        how: OpenMode,
        container: str,
        metadata: dict[str, str],
        reopen: Callable[[str, OpenMode], SeveralFiles],
    ) -> None:
        """Take ownership of the files. `owner` is the index or model; `places` maps array names to file numbers."""
        self._owner, self._files, self._places = owner, tuple(files), places
        self._path, self.container, self._metadata = owner.path, container, metadata
        self.mode, self.mode_reason = cast("ArraysMode", how.mode), how.reason
        identities = (owner.identity, *(file.identity for file in files))
        self._reopen = reopen, (absolute(owner.path), how._replace(expected=identities))

    def _mappings(self) -> list[_core.Mapping]:
        return list(dict.fromkeys([*self._owner._mappings(), *(file.core for file in self._files)]))

    def _names(self) -> KeysView[str]:
        return self._places.keys()

    def _found(self, name: str) -> Entry | None:
        return self._file_of(name).entry(name) if name in self._places else None

    def _memory(self, name: str) -> Memory | None:
        return self._file_of(name).memory_of(name) if name in self._places else None

    def _file_of(self, name: str) -> Member:
        return self._files[self._places[name]]

    def _portions(self, parts: list[Part] | None, verify: bool) -> list[Portion]:
        if parts is None:
            return [portion for file in self._files for portion in file._portions(None, verify)]
        wanted: dict[int, list[Part]] = {}
        for part in parts:
            name = self.entry(name_of(part)).name
            wanted.setdefault(self._places[name], []).append(part)
        return [portion for at in sorted(wanted) for portion in self._files[at]._portions(wanted[at], verify)]

    def close(self) -> None:
        """Close the files. Their memory is unmapped when the last view is gone. Further calls do nothing."""
        for file in (self._owner, *self._files):
            file.close()

    def __reduce__(self) -> tuple[object, ...]:
        return self._reopen

    def _counted(self) -> str:
        return f"{super()._counted()} in {counted(len(self._files), 'file')}"


class SelectedArrays(ArrayFile):
    """Some arrays in an open file, or some of their rows. This object owns the file."""

    def __init__(self, file: ArrayFile, parts: Iterable[Part]) -> None:
        self._parts: dict[str, Part] = {}
        for part in parts:
            name = name_of(part)
            if name in self._parts:
                raise ValueError(f"{name!r} is selected twice")
            entry_of_part(file.entry(name), part)  # raises an error if the part cannot be selected
            self._parts[name] = part
        self._file, self._path, self._files, self._metadata = file, file.path, file.files, file.metadata
        self.mode, self.mode_reason, self.container, self.kind = file.mode, file.mode_reason, file.container, file.kind

    def _mappings(self) -> Sequence[_core.Mapping]:
        return self._file._mappings()

    def _names(self) -> KeysView[str]:
        return self._parts.keys()

    def _found(self, name: str) -> Entry | None:
        return entry_of_part(self._file.entry(name), self._parts[name]) if name in self._parts else None

    def _memory(self, name: str) -> Memory | None:
        rows = self._found(name)
        if rows is None:
            return None
        whole = self._file.memory_of(name)
        if isinstance(self._parts[name], str):
            return whole
        if whole.strides:
            raise ValueError(f"{name!r}: cannot select rows of an array that is not in C order")
        start = rows.offset - self._file.entry(name).offset
        return Memory(whole.view[start : start + rows.nbytes], whole.dtype, rows.shape)

    def _file_of(self, name: str) -> Member:
        return self._file._file_of(name)

    def _portions(self, parts: list[Part] | None, verify: bool) -> list[Portion]:
        wanted = self._parts if parts is None else parts
        return self._file._portions([self._of_file(part) for part in wanted], verify)

    def _of_file(self, part: Part) -> Part:
        """Convert a part of a selected array to the same part of the array in the file."""
        entry = self.entry(name_of(part))
        rows = self._parts[entry.name]
        if isinstance(rows, str) or not entry.shape:
            return part
        first, _, _ = rows[1].indices(self._file.entry(entry.name).shape[0])
        start, stop, step = (slice(None) if isinstance(part, str) else part[1]).indices(entry.shape[0])
        return entry.name, slice(first + start, first + max(start, stop), step)

    def close(self) -> None:
        """Close the files. Their memory is unmapped when the last view is gone. Further calls do nothing."""
        self._file.close()

    def __reduce__(self) -> tuple[object, ...]:
        return SelectedArrays, (self._file, tuple(self._parts.values()))

    def _counted(self) -> str:
        return counted(len(self), "selected array")


selected = SelectedArrays
"""The name of the class in pickles from earlier versions."""


def entry_of_part(entry: Entry, part: Part) -> Entry:
    """Return the entry for a part of an array."""
    if isinstance(part, str):
        return entry
    if not entry.shape:
        raise ValueError(f"{entry.name!r}: cannot select rows of an array without axes")
    if is_raw(entry.dtype):
        raise ValueError(f"{entry.name!r}: cannot select rows of packed elements")
    offset, nbytes = range_of(entry, part)
    rows = len(range(*part[1].indices(entry.shape[0])))
    return Entry(entry.name, entry.dtype, (rows, *entry.shape[1:]), offset, nbytes)


# --- files that another file names ------------------------------------------------------------------------------------


def of_index(path: str, how: OpenMode) -> SeveralFiles:
    """Open the shards that an index names. Raise FileChanged if a file has changed since it was pickled.

    Raise FormatError or SetError if the index or a shard is invalid, lacks an array, or is outside of the folder.
    """
    with contextlib.ExitStack() as stack:
        index = stack.enter_context(Mapping(path))
        _expect(index, how, 0)
        weight_map, metadata = parse_index(path, index_text(index))
        numbers: dict[str, int] = {}
        places = {name: numbers.setdefault(file, len(numbers)) for name, file in weight_map.items()}
        shards, how = _open_named(stack, index, numbers, how, OneFile, 1)
        opened = of_shards(index, shards, places, metadata, how)
        stack.pop_all()
    return opened


def of_model(model: OneFile, how: OpenMode) -> SeveralFiles:
    """Open an ONNX model's external data. The result owns the model; if an error occurs, the model is closed.

    Raise SetError if a file is too short or outside of the folder, and FileChanged if one has changed since pickling.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(model)
        _expect(model, how, 0)
        outside = _outside(model)
        numbers: dict[str, int] = {}
        places = dict.fromkeys(model, 0)
        for location, entry in outside:
            places[entry.name] = numbers.setdefault(location, len(numbers) + 1)
        data, how = _open_named(stack, model, numbers, how, DataFile, 2, beside=[model])
        for location, entry in outside:
            data[numbers[location] - 1].add(entry, model.path)
        metadata = {key: text for key, text in model.metadata.items() if key != "elsewhere" or not data}
        opened = SeveralFiles(model, [model, *data], places, how, model.container, metadata, reopened_model)
        stack.pop_all()
    return opened


def reopened_model(path: str, how: OpenMode) -> SeveralFiles:
    """Open an ONNX model that was pickled. Raise FileChanged if a file has been modified or replaced since."""
    return of_model(OneFile(path, how), how)


def _open_named(
    stack: contextlib.ExitStack,
    owner: OpenFile,
    names: Iterable[str],
    how: OpenMode,
    kind: Callable[[str, OpenMode], T],
    first: int,
    beside: Sequence[Member] = (),
) -> tuple[list[T], OpenMode]:
    """Open the files that `owner` names. The mode depends on their total size, including the open files in `beside`.

    `first` is the index of the first file's identity in `how.expected`. An OSError names `owner`.
    """
    paths = paths_of(owner.path, names)
    how, huge = how.decided_for(owner.path, [*(file.path for file in beside), *paths])
    opened = []
    for number, path in enumerate(paths, first):
        try:
            file = kind(path, how._replace(expected=()))
        except OSError as error:
            raise type(error)(error.errno, f"{error.strerror} (named by {owner.path})", error.filename) from None
        stack.enter_context(file)
        _expect(file, how, number)
        opened.append(file)
    if huge:
        page_cache.warm([*beside, *opened], mechanism="advise")
    return opened, how


def _expect(file: OpenFile, how: OpenMode, number: int) -> None:
    """Raise FileChanged if a file has changed since it was pickled."""
    if how.expected and (number >= len(how.expected) or file.identity != tuple(how.expected[number])):
        raise FileChanged(errno.ESTALE, "the file was modified or replaced since it was pickled", file.path)


def of_shards(
    index: Mapping, shards: list[OneFile], places: dict[str, int], metadata: dict[str, str], how: OpenMode
) -> SeveralFiles:
    """Combine open shards into one file. Raise SetError if a shard lacks an array, or if the shards' formats differ."""
    for name, at in places.items():
        if name not in shards[at]:
            reason = f"{name!r} is missing from {shards[at].path}, where the index places it"
            raise SetError(reason, Kind.INCONSISTENT, path=index.path)
    container = shards[0].container if shards else "safetensors"
    for shard in shards:
        if shard.container != container:
            reason = (
                f"shards have different formats: {shards[0].path} is {container}, {shard.path} is {shard.container}"
            )
            raise SetError(reason, Kind.INCONSISTENT, path=index.path)
    return SeveralFiles(index, shards, places, how, f"{container} set", metadata, of_index)


def _outside(model: OneFile) -> list[tuple[str, Entry]]:
    """Return a model's arrays in other files, each with its file. Duplicate names get the suffix "~2", "~3", ..."""
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


def of_url(*arguments: Any) -> ArrayFile:
    """Open some arrays of a file at a URL with onecopy-remote. Pickles from earlier versions contain this name."""
    opened: ArrayFile = lazy.load("onecopy_remote.arrays").of_url(*arguments)
    return opened
