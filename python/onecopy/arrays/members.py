"""Files that an index or a model names: which may be named, how they are opened, and arrays in those that are bytes."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from onecopy import _core
from onecopy.arrays.file import Entry, Memory, array_of
from onecopy.errors import FileChanged, FormatError, NoChecksum
from onecopy.files import Mapping, OpenFile, check_mode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from numpy.typing import NDArray

    from onecopy.arrays.one_file import OneFile
    from onecopy.files import Identity, Mode
    from onecopy.page_cache import Portion, Range


Member: TypeAlias = "OneFile | DataFile"
"""One of the files that arrays lie in."""


class SetError(FormatError):
    """Files cannot be opened as one: one of them is too short, lacks what it is to have, or may not be named."""


class DataFile(Mapping):
    """A file of bytes in which a model says that arrays lie."""

    def __init__(self, path: str, mode: Mode, private: bool, threads: int | None) -> None:
        super().__init__(path, mode=mode, private=private, threads=threads)
        self._entries: dict[str, Entry] = {}

    def add(self, entry: Entry, model: str) -> None:
        """Take an array in; FormatError where the file is too short for it."""
        if entry.offset > self.nbytes or entry.nbytes > self.nbytes - entry.offset:
            raise SetError(
                f"{self.path}: {entry.name!r}: bytes [{entry.offset}, {entry.offset + entry.nbytes}) as {model} says, "
                f"but the file has {self.nbytes}"
            )
        self._entries[entry.name] = entry

    def entry(self, name: str) -> Entry:
        """Return what the model says of one array; KeyError when none of that name is to be here."""
        return self._entries[name]

    def portion(self, ranges: list[Range] | None, *, verify: bool) -> Portion:
        """Return what `onecopy.page_cache` needs to know of some ranges, or of all of the file."""
        if verify:
            raise NoChecksum(f"{self.path}: there are no checksums to compare with")
        return self.core, ranges, None

    def memory_of(self, name: str) -> Memory:
        """Return the bytes of one array, and what they are."""
        entry = self._entries[name]
        return Memory(self.view(entry.offset, entry.nbytes), entry.dtype, entry.shape)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return array_of(self.path, name, self.memory_of(name))


class How(NamedTuple):
    """How the files of a set are opened, and in another process which ones they must be."""

    mode: Mode
    reason: str
    private: bool
    threads: int | None
    expected: tuple[Identity, ...] = ()
    """Of the index or model, and of the others in their order; none: any will do."""


def close(*opened: OpenFile) -> None:
    """Close files."""
    for file in opened:
        file.close()


def confined(owner: str, locations: Iterable[str]) -> list[str]:
    """Return the paths of the files that an index or a model names; FormatError where links lead out of its folder."""
    folder = os.path.dirname(owner)  # noqa: PTH120 - as given
    homes = (os.path.realpath(folder), os.path.dirname(os.path.realpath(owner)))  # noqa: PTH120
    paths = []
    for location in locations:
        path = os.path.join(folder, location)  # noqa: PTH118
        if "/" in location or os.path.islink(path):  # noqa: PTH114
            real = os.path.realpath(path)
            if not any(os.path.commonpath([home, real]) == home for home in homes):
                raise SetError(f"{owner}: {location!r} leads to {real}, which is not inside the folder of {owner}")
        paths.append(path)
    return paths


@contextlib.contextmanager
def named_by(owner: str) -> Iterator[None]:
    """Add to an OSError which index or model names the file."""
    try:
        yield
    except OSError as error:
        raise type(error)(error.errno, f"{error.strerror} ({owner} names it)", error.filename) from None


def expect(file: OpenFile, how: How, number: int) -> None:
    """Raise FileChanged where this is not the file that was pickled."""
    if how.expected and (number >= len(how.expected) or file.identity != tuple(how.expected[number])):
        raise FileChanged(errno.ESTALE, "the path leads to another file by now, or the file was written", file.path)


def decided(mode: Mode | Literal["auto"], owner: str, paths: list[str], how: How) -> tuple[How, bool]:
    """Choose between mapping and copying by all the files together, and tell whether to ask for 2 MiB pages."""
    if mode != "auto":
        check_mode(mode)
        return how._replace(mode=mode), False
    whole = sum(os.stat(path).st_size for path in paths if os.path.exists(path))  # noqa: PTH110, PTH116 - opening tells
    copied, huge, reason = _core.choose_mode(owner, whole)
    return how._replace(mode="copy" if copied else "map", reason=reason), huge and not how.private
