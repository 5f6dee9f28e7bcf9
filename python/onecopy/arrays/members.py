"""The files that an index or a model names: check their paths, open them, and read arrays from raw data files."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from onecopy import _core
from onecopy.arrays.entries import Entry, Memory, array_of
from onecopy.errors import FileChanged, NoChecksum
from onecopy.files import Mapping, OpenFile, check_mode
from onecopy.named_files import SetError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from numpy.typing import NDArray

    from onecopy.arrays.one_file import OneFile
    from onecopy.files import ArraysMode, Identity
    from onecopy.page_cache import Portion, Range


Member: TypeAlias = "OneFile | DataFile"
"""One of the open files that contain arrays."""


class DataFile(Mapping):
    """A file of raw bytes in which a model has arrays at given offsets."""

    def __init__(self, path: str, mode: ArraysMode, private: bool, threads: int | None) -> None:
        handle = None
        if mode == "snapshot":
            from onecopy import snapshots  # here, because it may load the store

            handle, _ = snapshots.handle_of(path)
            mode = "copy" if handle is None else "snapshot"
        if handle is None:
            super().__init__(path, mode="copy" if mode == "copy" else "map", private=private, threads=threads)
        else:
            self._path, self._absolute, self._options = path, "", (0, None, "map", private, 0)
            self._core = _core.map_descriptor(handle.fileno(), path, private_pages=private)
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

    def portion(self, ranges: list[Range] | None, *, verify: bool) -> Portion:
        """Return ranges, or the whole file, as a portion for `onecopy.page_cache`; NoChecksum for ``verify=True``."""
        if verify:
            raise NoChecksum(f"{self.path}: cannot verify: the file has no checksums")
        return self.core, ranges, None

    def memory_of(self, name: str) -> Memory:
        """Return the bytes of one array with type and shape."""
        entry = self._entries[name]
        return Memory(self.view(entry.offset, entry.nbytes), entry.dtype, entry.shape)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return array_of(self.path, name, self.memory_of(name))


class How(NamedTuple):
    """Options with which the files of a set are opened, and the identities they must have when unpickled."""

    mode: ArraysMode
    reason: str
    private: bool
    threads: int | None
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


def decided(mode: ArraysMode | Literal["auto"], owner: str, paths: list[str], how: How) -> tuple[How, bool]:
    """Choose between mapping and copying by the total size of the files; return whether to request 2 MiB pages too."""
    if mode != "auto":
        _ = mode == "snapshot" or check_mode(mode)
        return how._replace(mode=mode), False
    # A missing file is reported when it is opened.
    whole = sum(os.stat(path).st_size for path in paths if os.path.exists(path))  # noqa: PTH110, PTH116 - text
    copied, huge, reason = _core.choose_mode(owner, whole=whole)
    return how._replace(mode="snapshot" if copied else "map", reason=reason), huge and not how.private
