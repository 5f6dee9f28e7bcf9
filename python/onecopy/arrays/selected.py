"""`SelectedArrays`: some arrays of a file, or some rows of them; of a file behind a URL, only these are fetched."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

from onecopy.arrays.entries import Entry, Memory, Part, array_of, dtype_of, name_of, range_of
from onecopy.arrays.file import ArrayFile, OneFile, no_array
from onecopy.arrays.several_files import How, close, of_shards
from onecopy.errors import FormatError, NoChecksum
from onecopy.files import Mapping
from onecopy.named_files import index_text, is_index, parse_index
from onecopy.text import is_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from onecopy.arrays.several_files import Member
    from onecopy.files import Identity
    from onecopy.page_cache import Range, Selection
    from onecopy.remote import Origin, Version


class SelectedArrays(ArrayFile):
    """Some arrays of an open file, which this object owns.

    An array of which rows were selected consists of these rows. `reopen` opens the same again when the object is
    unpickled; None: the file and the parts are pickled. `verifiable`: whether all bytes of the blocks of these arrays
    are there.
    """

    def __init__(
        self,
        file: ArrayFile,
        parts: Iterable[Part],
        *,
        reopen: tuple[Callable[..., ArrayFile], tuple[object, ...]] | None = None,
        verifiable: bool = True,
    ) -> None:
        self._file, self._reopen, self._verifiable = file, reopen, verifiable
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
        return self._file.path_of(name)

    def memory_of(self, name: str) -> Memory:
        """Return the bytes of one array with type and shape; KeyError if no array of that name was selected."""
        entry = self.entry(name)
        whole = self._file.memory_of(name)
        if isinstance(self._parts[name], str):
            return whole
        if whole.strides:
            raise ValueError(f"{name!r}: rows of an array that is not in C order cannot be selected")
        start = entry.offset - self._file.entry(name).offset
        return Memory(whole.view[start : start + entry.nbytes], whole.dtype, entry.shape)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return array_of(self.path, name, self.memory_of(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __contains__(self, name: object) -> bool:
        return is_text(name) and name in self._parts

    def _select(self, names: Iterable[Part] | None) -> Sequence[tuple[Member, list[Range] | None]]:
        parts = self._parts.values() if names is None else map(self._absolute, names)
        return self._file._select(parts)

    def _absolute(self, part: Part) -> Part:
        """Return a part of this object as a part of the file."""
        entry, selected = self.entry(name_of(part)), self._parts[name_of(part)]
        if isinstance(selected, str) or not entry.shape:
            return part
        first, _, _ = selected[1].indices(self._file.entry(entry.name).shape[0])
        start, stop, step = (slice(None) if isinstance(part, str) else part[1]).indices(entry.shape[0])
        return entry.name, slice(first + start, first + max(start, stop), step)

    def _selection(self, names: Iterable[Part] | None, *, verify: bool = False) -> Selection:
        if verify and not self._verifiable:
            raise NoChecksum(
                f"{self.path}: cannot verify: only parts of its blocks were fetched; open with verify=True"
            )
        return super()._selection(names, verify=verify)

    # --- the file -------------------------------------------------------------------------------------------------

    @property
    def files(self) -> tuple[Member, ...]:
        """The open files that contain the arrays."""
        return self._file.files

    @property
    def path(self) -> str:
        """The path of the file, the index or the model; of a URL that was not fetched whole, that of its part."""
        return self._file.path

    @property
    def identity(self) -> Identity:
        """The identity of the opened file at `path`: (device, inode, size in bytes, time of the last write in ns)."""
        return self._file.identity

    def changed(self) -> bool:
        """Return whether a path now refers to another file, or a file was modified; False for parts of URLs."""
        return self._reopen is None and self._file.changed()

    @property
    def views(self) -> int:
        """The number of views (arrays, memoryviews) in use; they keep the memory mapped after `close`."""
        return self._file.views

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._file.closed

    @property
    def metadata(self) -> dict[str, str]:
        """Metadata of the file."""
        return self._file.metadata

    def close(self) -> None:
        """Release the mapping; the memory is unmapped when the last view is gone. Further calls do nothing."""
        self._file.close()

    def __reduce__(self) -> tuple[object, ...]:
        return self._reopen or (SelectedArrays, (self._file, tuple(self._parts.values())))

    def __repr__(self) -> str:
        if self.closed:
            return f"<onecopy.ArrayFile {self.path!r} closed>"
        return f"<onecopy.ArrayFile {self.path!r} {len(self)} selected arrays, {self.nbytes / 1e6:.1f} MB, {self.mode}>"


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
    *,
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
    reopen = of_url_again, (url, tuple(parts), private, verify, source.versions)
    try:
        return SelectedArrays(file, parts, reopen=reopen, verifiable=verify)
    except BaseException:
        file.close()
        raise


def of_url_again(
    url: str, parts: Sequence[Part], private: bool, verify: bool, versions: dict[str, Version]
) -> ArrayFile:
    """Open what was pickled in another process; FileChanged if something is missing and the object has changed."""
    return of_url(url, parts, private=private, verify=verify, versions=versions)


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
