"""The arrays of one file, on its mapping; the compiled half reads the header, once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from onecopy import _core
from onecopy.arguments import path_text, thread_count
from onecopy.arrays.file import (
    ArrayFile,
    Entry,
    Memory,
    Part,
    array_of,
    is_text,
    name_of,
    no_array,
    range_of,
)
from onecopy.files import Identity, Mode, OpenFile, absolute, check_mode

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from onecopy.page_cache import Portion, Range


class OneFile(OpenFile, ArrayFile):
    """The arrays of one mapped file."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        mode: Mode | Literal["auto"] = "map",
        private: bool = False,
        threads: int | None = None,
        identity: Identity | None = None,
        handle: _core.FileHandle | None = None,
    ) -> None:
        given = path_text(path)
        huge = False
        if mode == "auto":
            copied, huge, reason = _core.choose_mode(given)
            mode = "copy" if copied else "map"
        else:
            reason = "as asked"
        number = thread_count(threads)
        core = _core.open_arrays(given, check_mode(mode), private, number, identity, handle)
        self._set(core, given, mode, reason, private, number)
        if huge and not private:
            from onecopy import page_cache

            page_cache.warm(self, mechanism="advise")

    def _set(
        self, core: _core.ArrayFile, path: str, mode: Mode, reason: str, private: bool, threads: int | None
    ) -> None:
        self._core, self._mapping = core, core.mapping
        self._path, self._absolute = path, absolute(path)
        self._mode, self._reason = mode, reason
        self._private, self._threads = private, threads
        self._names: list[str] | None = None
        if core.header_damaged:
            import warnings

            warnings.warn(
                f"{path}: the header's checksum does not match: the file is damaged, or was re-saved by another tool "
                "that kept onecopy's metadata. It is opened as a file of another tool, without checksums.",
                stacklevel=5,  # of `open`
            )

    @classmethod
    def of_compiled(cls, core: _core.ArrayFile, path: str) -> OneFile:
        """Wrap the compiled half of a file that is mapped; for rooms that open files without this one."""
        self = cls.__new__(cls)
        self._set(core, path, "map", "as asked", private=False, threads=None)
        return self

    # --- arrays ---------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> NDArray[Any]:
        return array_of(self._path, name, self.memory_of(name))

    def memory_of(self, name: str) -> Memory:
        """Return the bytes of one array, and what they are; KeyError when there is none of that name."""
        found = self._core.view(name) if is_text(name) else None
        if found is None:
            raise no_array(name, self)
        return Memory(*found)

    def __iter__(self) -> Iterator[str]:
        return iter(self._all_names())

    def __len__(self) -> int:
        return len(self._all_names())

    def __contains__(self, name: object) -> bool:
        return is_text(name) and self._core.entry(name) is not None

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
        row = self._core.entry(name) if is_text(name) else None
        if row is None:
            raise no_array(name, self)
        return Entry(*row)

    def path_of(self, name: str) -> str:
        """Return the path of the file that an array lies in, this one; KeyError when there is none of that name."""
        self.entry(name)
        return self._path

    def _select(self, names: Iterable[Part] | None) -> list[tuple[OneFile, list[Range] | None]]:
        return [(self, None if names is None else [range_of(self.entry(name_of(part)), part) for part in names])]

    def portion(self, ranges: list[Range] | None, *, verify: bool) -> Portion:
        """Return what `onecopy.page_cache` needs to know of some ranges, or of all of the file."""
        if not verify:
            return self._mapping, ranges, None
        wide = self._core.ranges_to_verify([(0, 0)] if ranges == [] else ranges or [])
        return self._mapping, wide, self._core.verifier()

    # --- the file -------------------------------------------------------------------------------------------------

    @property
    def files(self) -> tuple[OneFile, ...]:
        """The open files that arrays lie in: this one."""
        return (self,)

    @property
    def core(self) -> _core.Mapping:
        """The compiled half's mapping, for `onecopy.page_cache`."""
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
        """Why it was opened so: a sentence for ``mode="auto"``, else "as asked"; what became of ``align``."""
        return self._reason

    def add_reason(self, reason: str) -> None:
        """Append to `mode_reason`; for the code that opens files."""
        self._reason += f"; {reason}"

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
        """Release the mapping; memory goes with the last array. Closing twice is fine."""
        self._core.close()

    def __reduce__(self) -> tuple[object, ...]:
        return _reattach, (self._absolute, self._mode, self._private, self._threads, self.identity)

    def __repr__(self) -> str:
        if self.closed:
            return f"<onecopy.ArrayFile {self._path!r} closed>"
        return f"<onecopy.ArrayFile {self._path!r} {len(self)} arrays, {self.nbytes / 1e6:.1f} MB, {self._mode}>"


def _reattach(path: str, mode: Mode, private: bool, threads: int, identity: Identity) -> OneFile:
    """Open again what was pickled in another process."""
    return OneFile(path, mode=mode, private=private, threads=threads, identity=identity)
