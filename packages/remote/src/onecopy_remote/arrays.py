"""Some arrays of a file or an index at a URL: `onecopy.open` with `names`. Only their bytes are fetched."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, NamedTuple

from onecopy.arrays.entries import Part, name_of
from onecopy.arrays.file import ArrayFile, OneFile
from onecopy.arrays.open_mode import OpenMode
from onecopy.arrays.several_files import SelectedArrays, entry_of_part, of_shards
from onecopy.errors import FormatError, NoChecksum
from onecopy.files.companions import index_text, is_index, parse_index
from onecopy.files.mapping import Mapping
from onecopy_remote.fetching import fetch_ranges, fetch_versions
from onecopy_remote.origin import Origin, Version, versions_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from onecopy.files.page_cache import Portion, Range


class _Source(NamedTuple):
    """The arguments of `of_url`: a file or index at a URL, and how to open its arrays."""

    url: str
    parts: tuple[Part, ...]
    private: bool
    verify: bool
    versions: dict[str, Version]
    """The versions of the index and its shards, by name."""


class _FetchedArrays(SelectedArrays):
    """Some arrays of a file at a URL. Only the bytes of these arrays were fetched."""

    def __init__(self, file: ArrayFile, source: _Source) -> None:
        super().__init__(file, source.parts)
        self._source = source

    def changed(self) -> bool:
        """Return False, because the arrays belong to a fixed version of the file."""
        return False

    def _portions(self, parts: list[Part] | None, verify: bool) -> list[Portion]:
        if verify and not self._source.verify:
            raise NoChecksum(f"{self.path}: cannot verify partly fetched blocks: open the URL with verify=True")
        return super()._portions(parts, verify)

    def __reduce__(self) -> tuple[object, ...]:
        return of_url, tuple(self._source)


def of_url(
    url: str,
    parts: Iterable[Part],
    private: bool = False,
    verify: bool = False,
    versions: dict[str, Version] | None = None,
) -> ArrayFile:
    """Open some arrays of a safetensors file or index at a URL. Only the bytes of these arrays are fetched.

    `versions` maps the names of the index and its shards to versions; None: the current ones.
    """
    source = _Source(url, tuple(parts), private, verify, dict(versions or {}))
    origin = Origin(url)
    file = _fetched_set(source, origin) if is_index(url) else _fetched_file(source, origin.name, origin, source.parts)
    try:
        return _FetchedArrays(file, source)
    except BaseException:
        file.close()
        raise


def _version_of(source: _Source, name: str, origin: Origin) -> Version:
    if name not in source.versions:
        [source.versions[name]] = versions_of([origin])
    return source.versions[name]


def _fetched_file(source: _Source, name: str, origin: Origin, parts: Sequence[Part]) -> OneFile:
    def ranges(path: Path) -> list[Range]:
        with OneFile(os.fspath(path)) as file:
            # An invalid part raises an error before anything is fetched.
            entries = [entry_of_part(file.entry(name_of(part)), part) for part in parts]
            wanted = [(entry.offset, entry.nbytes) for entry in entries]
            if source.verify:
                with contextlib.suppress(FormatError):  # no checksums: `verify` raises the error again
                    return [*file.compiled.ranges_to_verify(wanted)]
            return wanted

    how = OpenMode(private=source.private)
    version = _version_of(source, name, origin)
    return fetch_ranges(origin, version, ranges, lambda path: OneFile(os.fspath(path), how))


def _fetched_set(source: _Source, origin: Origin) -> ArrayFile:
    path = str(fetch_versions([(origin.name, origin, _version_of(source, origin.name, origin))]))
    with contextlib.ExitStack() as stack:
        index = stack.enter_context(Mapping(path))
        files, metadata = parse_index(path, index_text(index))
        by_shard: dict[str, list[Part]] = {}
        for part in source.parts:
            by_shard.setdefault(files[name_of(part)], []).append(part)
        shards = [
            stack.enter_context(_fetched_file(source, shard, origin.beside(shard), parts))
            for shard, parts in by_shard.items()
        ]
        numbers = {shard: number for number, shard in enumerate(by_shard)}
        places = {name: numbers[files[name]] for name in map(name_of, source.parts)}
        opened = of_shards(index, shards, places, metadata, OpenMode("map", source.private))
        stack.pop_all()
    return opened
