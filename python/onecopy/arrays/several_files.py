"""`ArrayFile` for several files: the shards of a model, or a model with external data."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

from onecopy import _core, page_cache
from onecopy.arguments import path_text
from onecopy.arrays.entries import Entry, Memory, Part, array_of, dtype_of, name_of, range_of
from onecopy.arrays.file import AS_REQUESTED, ArrayFile, OneFile, no_array
from onecopy.errors import FileChanged, FormatError, NoChecksum
from onecopy.files import Mapping, OpenFile, absolute, check_mode
from onecopy.named_files import SetError, index_text, is_index, names_of_index, parse_index
from onecopy.page_cache import Portion
from onecopy.text import is_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from onecopy.files import ArraysMode, Identity
    from onecopy.page_cache import Range
    from onecopy.remote import Origin, Version


class SeveralFiles(ArrayFile):
    """The arrays of several mapped files; every operation applies to all of the files."""

    kind = "foreign"  # onecopy writes only single files

    def __init__(
        self,
        owner: OpenFile,
        members: Sequence[Member],
        places: dict[str, int],
        container: str,
        metadata: dict[str, str],
        how: How,
        reopen: Callable[[str, How], ArrayFile],
    ) -> None:
        """Take ownership of open files; `reopen` opens them again when the object is unpickled."""
        self._owner, self._members, self._places = owner, tuple(members), places
        self.container, self._metadata, self._how = container, metadata, how
        self.mode, self.mode_reason = cast("ArraysMode", how.mode), how.reason
        self._absolute, self._reopen = absolute(owner.path), reopen

    # --- arrays ---------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._member(name)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, name: object) -> bool:
        return is_text(name) and name in self._places

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Name, dtype, shape, offset in its file (see `path_of`) and size in bytes of each array; reads no data."""
        return tuple(self._members[at].entry(name) for name, at in self._places.items())

    def entry(self, name: str) -> Entry:
        """Return the entry of one array; KeyError if there is no array of that name."""
        return self._member(name).entry(name)

    def memory_of(self, name: str) -> Memory:
        """Return the bytes of one array with type and shape; KeyError if there is no array of that name."""
        return self._member(name).memory_of(name)

    def path_of(self, name: str) -> str:
        """Return the path of the file that contains an array; KeyError if there is no array of that name."""
        return self._member(name).path

    def _member(self, name: str) -> Member:
        if name not in self:
            raise no_array(name, self)
        return self._members[self._places[name]]

    def _portions(self, parts: list[Part] | None, verify: bool) -> list[Portion]:
        if parts is None:
            return [portion for member in self._members for portion in member._portions(None, verify)]
        wanted: dict[int, list[Part]] = {}
        for part in parts:
            self._member(name_of(part))
            wanted.setdefault(self._places[name_of(part)], []).append(part)
        return [portion for at in sorted(wanted) for portion in self._members[at]._portions(wanted[at], verify)]

    # --- the files ------------------------------------------------------------------------------------------------

    @property
    def files(self) -> tuple[Member, ...]:
        """The open files that contain the arrays."""
        return self._members

    @property
    def metadata(self) -> dict[str, str]:
        """Metadata of the index or the model; values that are not text as JSON."""
        return dict(self._metadata)

    def __reduce__(self) -> tuple[object, ...]:
        identities = (self.identity, *(member.identity for member in self._members))
        return self._reopen, (self._absolute, self._how._replace(expected=identities))

    def _counted(self) -> str:
        return f"{len(self)} arrays in {len(self._members)} files"


Member: TypeAlias = "OneFile | DataFile"
"""One of the open files that contain arrays."""


class DataFile(Mapping):
    """A file of raw bytes in which a model has arrays at given offsets."""

    def __init__(self, path: str, how: How) -> None:
        handle, mode = None, how.mode
        if mode == "snapshot":
            from onecopy import snapshots  # here, because it may load the store

            handle, _ = snapshots.handle_of(path)
            mode = "copy" if handle is None else "snapshot"
        if handle is None:
            super().__init__(path, mode="copy" if mode == "copy" else "map", private=how.private, threads=how.threads)
        else:
            self._path, self._absolute, self._options = path, "", (0, None, "map", how.private, 0)
            self._core = _core.map_descriptor(handle.fileno(), path, private_pages=how.private)
        self._entries: dict[str, Entry] = {}

    def add(self, entry: Entry, model: str) -> None:
        """Add an array; FormatError if the file is too short for it."""
        if entry.offset > self.nbytes or entry.nbytes > self.nbytes - entry.offset:
            raise SetError(
                f"{self.path}: {entry.name!r}: {model} places it at bytes [{entry.offset}, "
                f"{entry.offset + entry.nbytes}), but the file has {self.nbytes} bytes"
            )
        self._entries[entry.name] = entry

    def entry(self, name: str) -> Entry:
        """Return the entry of one array; KeyError if this file has no array of that name."""
        return self._entries[name]

    def _portions(self, parts: list[Part] | None, verify: bool) -> list[Portion]:
        if verify:
            raise NoChecksum(f"{self.path}: cannot verify: the file has no checksums")
        return [Portion(self.core, None if parts is None else [range_of(self.entry(name_of(p)), p) for p in parts])]

    def memory_of(self, name: str) -> Memory:
        """Return the bytes of one array with type and shape."""
        entry = self._entries[name]
        return Memory(self.view(entry.offset, entry.nbytes), entry.dtype, entry.shape)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return array_of(self.path, name, self.memory_of(name))


class How(NamedTuple):
    """Options with which the files of a set are opened, and the identities they must have when unpickled."""

    mode: ArraysMode | Literal["auto"]
    private: bool = False
    threads: int | None = None
    reason: str = AS_REQUESTED
    expected: tuple[Identity, ...] = ()
    """Identities of the index or model, and of the other files in order; empty: any file is accepted."""


def close(*opened: OpenFile) -> None:
    """Close files."""
    for file in opened:
        file.close()


def confined(owner: str, locations: Iterable[str]) -> list[str]:
    """Return the paths of the files that `owner` names; SetError if symbolic links lead out of its folder."""
    folder = os.path.dirname(owner)  # noqa: PTH120 - as given
    homes = (os.path.realpath(folder), os.path.dirname(os.path.realpath(owner)))  # noqa: PTH120
    paths = []
    for location in locations:
        path = os.path.join(folder, location)  # noqa: PTH118
        if "/" in location or os.path.islink(path):  # noqa: PTH114
            real = os.path.realpath(path)
            if not any(os.path.commonpath([home, real]) == home for home in homes):
                raise SetError(f"{owner}: {location!r} resolves to {real}, which is outside the folder of {owner}")
        paths.append(path)
    return paths


@contextlib.contextmanager
def named_by(owner: str) -> Iterator[None]:
    """Add the index or model that names the file to the message of an OSError."""
    try:
        yield
    except OSError as error:
        raise type(error)(error.errno, f"{error.strerror} (named by {owner})", error.filename) from None


def expect(file: OpenFile, how: How, number: int) -> None:
    """Raise FileChanged if a file is not the one that was pickled."""
    if how.expected and (number >= len(how.expected) or file.identity != tuple(how.expected[number])):
        raise FileChanged(errno.ESTALE, "the file was modified or replaced since it was pickled", file.path)


def decided(how: How, owner: str, paths: list[str]) -> tuple[How, bool]:
    """Choose between mapping and copying by the total size of the files; return whether to request 2 MiB pages too."""
    if how.mode != "auto":
        _ = how.mode == "snapshot" or check_mode(how.mode)
        return how, False
    # A missing file is reported when it is opened.
    whole = sum(os.stat(path).st_size for path in paths if os.path.exists(path))  # noqa: PTH110, PTH116 - text
    copied, huge, reason = _core.choose_mode(owner, whole=whole)
    return how._replace(mode="snapshot" if copied else "map", reason=reason), huge and not how.private


def of_index(path: str, how: How) -> SeveralFiles:
    """Open the shards that an index names; `onecopy.open` calls this for a file that begins like JSON.

    FormatError or its subclass SetError, with the path and the reason, if the index or a shard is damaged, lacks an
    array or is outside the folder; FileChanged for other files than those that were pickled; OSError with ``filename``.
    """
    index = Mapping(path)
    shards: list[OneFile] = []
    try:
        expect(index, how, 0)
        weight_map, metadata = parse_index(path, index_text(index))
        numbers: dict[str, int] = {}
        places = {name: numbers.setdefault(file, len(numbers)) for name, file in weight_map.items()}
        paths = confined(path, numbers)
        how, huge = decided(how, path, paths)
        for number, shard in enumerate(paths, start=1):
            with named_by(path):
                shards.append(OneFile(shard, mode=how.mode, private=how.private, threads=how.threads))
            expect(shards[-1], how, number)
        opened = of_shards(index, shards, places, metadata, how)
        if huge:
            page_cache.warm(opened, mechanism="advise")
    except BaseException:
        close(index, *shards)
        raise
    return opened


def of_shards(
    index: Mapping, shards: list[OneFile], places: dict[str, int], metadata: dict[str, str], how: How
) -> SeveralFiles:
    """Return open shards as one file; SetError if a shard lacks an array, or the shards have two formats."""
    for name, at in places.items():
        if name not in shards[at]:
            raise SetError(f"{index.path}: {name!r} is missing in {shards[at].path}, which the index names for it")
    container = shards[0].container if shards else "safetensors"
    for shard in shards:
        if shard.container != container:
            raise SetError(
                f"{index.path}: shards of two formats: {shards[0].path} is {container}, {shard.path} {shard.container}"
            )
    return SeveralFiles(index, shards, places, f"{container} set", metadata, how, of_index)


def files_of_index(path: str | os.PathLike[str]) -> list[str]:
    """Return the paths of the files that an index names, without opening them; errors are those of `of_index`."""
    return confined(path_text(path), dict.fromkeys(names_of_index(path)))


def of_model(model: OneFile, how: How) -> SeveralFiles:
    """Open the files of external data that an open ONNX model names; called by `onecopy.open`.

    The returned object owns the model, which is closed if an error is raised: SetError with both paths if a file is too
    short or outside the folder; FileChanged for other files than were pickled; OSError, which names the model.
    """
    data: list[DataFile] = []
    try:
        expect(model, how, 0)
        expect(model, how, 1)
        outside = _outside(model)
        numbers: dict[str, int] = {}
        places = dict.fromkeys(model, 0)
        for location, entry in outside:
            places[entry.name] = numbers.setdefault(location, len(numbers) + 1)
        paths = confined(model.path, numbers)
        how, huge = decided(how, model.path, [model.path, *paths])
        for number, path in enumerate(paths, start=2):
            with named_by(model.path):
                data.append(DataFile(path, how))
            expect(data[-1], how, number)
        for location, entry in outside:
            data[numbers[location] - 1].add(entry, model.path)
        metadata = {key: text for key, text in model.metadata.items() if key != "elsewhere" or not data}
        opened = SeveralFiles(model, [model, *data], places, model.container, metadata, how, reopened_model)
        if huge:
            page_cache.warm(opened, mechanism="advise")
    except BaseException:
        close(model, *data)
        raise
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


def reopened_model(path: str, how: How) -> SeveralFiles:
    """Open files that were pickled in another process; FileChanged if one was modified or replaced since."""
    model = OneFile(path, mode=how.mode, private=how.private, threads=how.threads, identity=how.expected[0])
    return of_model(model, how)


class SelectedArrays(ArrayFile):
    """Some arrays of an open file, which this object owns.

    An array of which rows were selected consists of these rows. `reopen` opens the same again when the object is
    unpickled; None: the file and the parts are pickled. `verifiable`: whether all bytes of the blocks of these arrays
    are there.
    """

    _owner: ArrayFile

    def __init__(
        self,
        file: ArrayFile,
        parts: Iterable[Part],
        *,
        reopen: tuple[Callable[..., ArrayFile], tuple[object, ...]] | None = None,
        verifiable: bool = True,
    ) -> None:
        self._owner, self._reopen, self._verifiable = file, reopen, verifiable
        self.mode, self.mode_reason, self.container, self.kind = file.mode, file.mode_reason, file.container, file.kind
        self._parts: dict[str, Part] = {}
        self._entries: dict[str, Entry] = {}
        for part in parts:
            name = name_of(part)
            if name in self._parts:
                raise ValueError(f"{name!r} is selected twice")
            self._parts[name], self._entries[name] = part, _selected(file.entry(name), part)

    # --- arrays ---------------------------------------------------------------------------------------------------

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Name, dtype, shape, offset in its file and size in bytes of each selected array; reads no data."""
        return tuple(self._entries.values())

    def entry(self, name: str) -> Entry:
        """Return the entry of one array; KeyError if no array of that name was selected."""
        if name not in self:
            raise no_array(name, self)
        return self._entries[name]

    def path_of(self, name: str) -> str:
        """Return the path of the file that contains an array; KeyError if no array of that name was selected."""
        self.entry(name)
        return self._owner.path_of(name)

    def memory_of(self, name: str) -> Memory:
        """Return the bytes of one array with type and shape; KeyError if no array of that name was selected."""
        entry = self.entry(name)
        whole = self._owner.memory_of(name)
        if isinstance(self._parts[name], str):
            return whole
        if whole.strides:
            raise ValueError(f"{name!r}: rows of an array that is not in C order cannot be selected")
        start = entry.offset - self._owner.entry(name).offset
        return Memory(whole.view[start : start + entry.nbytes], whole.dtype, entry.shape)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return array_of(self.path, name, self.memory_of(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __contains__(self, name: object) -> bool:
        return is_text(name) and name in self._parts

    def _of_file(self, part: Part) -> Part:
        """Return a part of this object as a part of the file."""
        entry, selected = self.entry(name_of(part)), self._parts[name_of(part)]
        if isinstance(selected, str) or not entry.shape:
            return part
        first, _, _ = selected[1].indices(self._owner.entry(entry.name).shape[0])
        start, stop, step = (slice(None) if isinstance(part, str) else part[1]).indices(entry.shape[0])
        return entry.name, slice(first + start, first + max(start, stop), step)

    def _portions(self, parts: list[Part] | None, verify: bool) -> list[Portion]:
        if verify and not self._verifiable:
            raise NoChecksum(
                f"{self.path}: cannot verify: only parts of its blocks were fetched; open with verify=True"
            )
        return self._owner._portions(list(self._parts.values() if parts is None else map(self._of_file, parts)), verify)

    # --- the file -------------------------------------------------------------------------------------------------

    @property
    def files(self) -> tuple[Member, ...]:
        """The open files that contain the arrays."""
        return self._owner.files

    def changed(self) -> bool:
        """Return whether a path now refers to another file, or a file was modified; False for parts of URLs."""
        return self._reopen is None and super().changed()

    @property
    def metadata(self) -> dict[str, str]:
        """Metadata of the file."""
        return self._owner.metadata

    def __reduce__(self) -> tuple[object, ...]:
        return self._reopen or (SelectedArrays, (self._owner, tuple(self._parts.values())))

    def _counted(self) -> str:
        return f"{len(self)} selected arrays"


def _selected(entry: Entry, part: Part) -> Entry:
    """Return the entry of the rows of an array."""
    if isinstance(part, str):
        return entry
    if not entry.shape:
        raise ValueError(f"{entry.name!r}: an array without axes has no rows")
    if dtype_of(entry.dtype)[1]:
        raise ValueError(f"{entry.name!r}: rows of packed elements cannot be selected")
    offset, nbytes = range_of(entry, part)
    rows = len(range(*part[1].indices(entry.shape[0])))
    return Entry(entry.name, entry.dtype, (rows, *entry.shape[1:]), offset, nbytes)


def of_url(
    url: str,
    parts: Sequence[Part],
    private: bool = False,
    verify: bool = False,
    versions: dict[str, Version] | None = None,
) -> ArrayFile:
    """Open some arrays behind a URL: of a safetensors file or an index of such, only their bytes are fetched.

    `versions`: those of the index and its shards by name, which a pickle of the result contains; None: the current
    ones. Errors are those of `onecopy.open` and `onecopy.remote.fetch`; KeyError for a missing name.
    """
    from onecopy import remote

    source = _Source(remote.Origin(url), {} if versions is None else dict(versions), private, verify)
    file = source.of_index(parts) if is_index(url) else source.of_one(source.origin.name, source.origin, parts)
    reopen = of_url, (url, tuple(parts), private, verify, source.versions)
    try:
        return SelectedArrays(file, parts, reopen=reopen, verifiable=verify)
    except BaseException:
        file.close()
        raise


class _Source(NamedTuple):
    """A file or index behind a URL, with the versions of the files that were opened."""

    origin: Origin
    versions: dict[str, Version]
    private: bool
    verify: bool

    def _version(self, name: str, origin: Origin) -> Version:
        from onecopy import remote

        if name not in self.versions:
            [self.versions[name]] = remote.versions_of([origin])
        return self.versions[name]

    def of_one(self, name: str, origin: Origin, parts: Sequence[Part]) -> OneFile:
        from onecopy import remote

        def ranges(path: Path) -> list[Range]:
            with OneFile(path) as file:
                wanted = [range_of(_entry_of(file, part), part) for part in parts]
                if self.verify:
                    with contextlib.suppress(FormatError):  # without checksums; raised again when they are compared
                        return [*file.compiled.ranges_to_verify(wanted)]
                return wanted

        version = self._version(name, origin)
        return remote.fetch_ranges(origin, version, ranges, lambda path: OneFile(path, private=self.private))

    def of_index(self, parts: Sequence[Part]) -> ArrayFile:
        from onecopy import remote

        name = self.origin.name
        path = str(remote.fetch_versions([(name, self.origin, self._version(name, self.origin))]))
        index = Mapping(path)
        opened: dict[str, OneFile] = {}
        try:
            files, metadata = parse_index(path, index_text(index))
            for name in map(name_of, parts):
                if name not in files:
                    raise KeyError(name)
            by_shard: dict[str, list[Part]] = {}
            for part in parts:
                by_shard.setdefault(files[name_of(part)], []).append(part)
            for shard, of_shard in by_shard.items():
                opened[shard] = self.of_one(shard, self.origin.beside(shard), of_shard)
            numbers = {shard: number for number, shard in enumerate(opened)}
            places = {name: numbers[files[name]] for name in map(name_of, parts)}
            return of_shards(index, list(opened.values()), places, metadata, How("map", self.private))
        except BaseException:
            close(index, *opened.values())
            raise


def _entry_of(file: ArrayFile, part: Part) -> Entry:
    entry = file.entry(name_of(part))
    _selected(entry, part)  # raises before anything is fetched
    return entry
