"""`ArrayFile` for one file: the compiled module maps it and parses its header."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from onecopy import _core
from onecopy.arguments import path_text, thread_count
from onecopy.arrays.entries import Entry, Memory, Part, array_of, name_of, range_of
from onecopy.arrays.file import ArrayFile, no_array
from onecopy.files import ArraysMode, Identity, OpenFile, absolute, check_mode
from onecopy.text import is_text

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from onecopy.page_cache import Portion, Range


Opened: TypeAlias = "tuple[_core.ArrayFile, str, str, bool]"
"""A file of the compiled module, its container, its kind, and whether the checksum of its header is wrong."""

AS_REQUESTED = "as requested"
"""`ArrayFile.mode_reason` if the caller chose the mode."""


class OneFile(OpenFile, ArrayFile):
    """The arrays of one mapped file."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        mode: ArraysMode | Literal["auto"] = "map",
        private: bool = False,
        threads: int | None = None,
        identity: Identity | None = None,
        handle: _core.FileHandle | None = None,
    ) -> None:
        given = path_text(path)
        huge, reason = False, AS_REQUESTED
        if mode == "auto":
            copied, huge, reason = _core.choose_mode(given)
            mode = "snapshot" if copied else "map"
        if mode == "snapshot" and handle is None:
            mode, handle, reason = _snapshot(given, reason)
        number = thread_count(threads)
        opened = _core.open_arrays(
            given,
            copy=mode != "snapshot" and check_mode(mode),
            private_pages=private,
            threads=number,
            expected=identity,
            handle=handle,
        )
        self._set(opened, given, mode, reason, private, number)
        if huge and not private:
            from onecopy import page_cache

            page_cache.warm(self, mechanism="advise")

    def _set(
        self, opened: Opened, path: str, mode: ArraysMode, reason: str, private: bool, threads: int | None
    ) -> None:
        self._core, self._container, self._kind, damaged = opened
        self._path, self._absolute = path, absolute(path)
        self._mode, self._reason = mode, reason
        self._private, self._threads = private, threads
        self._names: list[str] | None = None
        if damaged:
            import warnings

            warnings.warn(
                f"{path}: the checksum of the header does not match: the file is damaged, or another tool rewrote it "
                "and kept the metadata of onecopy. It is opened as a file of another tool, without checksums.",
                stacklevel=5,  # of `open`
            )

    @classmethod
    def of_compiled(cls, core: _core.ArrayFile, path: str) -> OneFile:
        """Wrap a mapped file of the compiled module; for modules that open files without `onecopy.open`."""
        self = cls.__new__(cls)
        opened = core, core.container, core.kind, False
        self._set(opened, path, "map", AS_REQUESTED, private=False, threads=None)
        return self

    # --- arrays ---------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> NDArray[Any]:
        return array_of(self._path, name, self.memory_of(name))

    def memory_of(self, name: str) -> Memory:
        """Return the bytes of one array with type and shape; KeyError if there is no array of that name."""
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
        """Name, dtype, shape, offset and size in bytes of each array, in the order of the header; reads no data."""
        return tuple(Entry(*row) for row in self._core.entries())

    def entry(self, name: str) -> Entry:
        """Return the entry of one array; KeyError if there is no array of that name."""
        row = self._core.entry(name) if is_text(name) else None
        if row is None:
            raise no_array(name, self)
        return Entry(*row)

    def path_of(self, name: str) -> str:
        """Return the path of this file; KeyError if there is no array of that name."""
        self.entry(name)
        return self._path

    def _select(self, names: Iterable[Part] | None) -> list[tuple[OneFile, list[Range] | None]]:
        return [(self, None if names is None else [range_of(self.entry(name_of(part)), part) for part in names])]

    def portion(self, ranges: list[Range] | None, *, verify: bool) -> Portion:
        """Return ranges, or the whole file, as a portion for `onecopy.page_cache`; with `verify`, also its verifier."""
        if not verify:
            return self.core, ranges, None
        return self.core, self._core.ranges_to_verify(ranges), self._core.verifier()

    # --- the file -------------------------------------------------------------------------------------------------

    @property
    def files(self) -> tuple[OneFile, ...]:
        """The open files that contain the arrays: only this one."""
        return (self,)

    @property
    def core(self) -> _core.Mapping:
        """The mapping of the compiled module, for `onecopy.page_cache`."""
        return self._core.mapping

    @property
    def compiled(self) -> _core.ArrayFile:
        """The file of the compiled module, for `onecopy.records`."""
        return self._core

    @property
    def mode(self) -> ArraysMode:
        """The mode in which the file was opened: "map" or "copy"."""
        return self._mode

    @property
    def mode_reason(self) -> str:
        """The reason for `mode`: a sentence for ``mode="auto"``, else "as requested"; then the result of ``align``."""
        return self._reason

    def add_reason(self, reason: str) -> None:
        """Append to `mode_reason`; used by the functions that open files."""
        self._reason += f"; {reason}"

    @property
    def metadata(self) -> dict[str, str]:
        """Metadata of the file, without the entry of onecopy."""
        return {key: value for key, value in self._core.metadata().items() if key != "onecopy"}

    @property
    def container(self) -> str:
        """The format of the file: "safetensors", "onnx", ..."""
        return self._container

    @property
    def kind(self) -> str:
        """The kind of contents: "arrays", "struct", "records" or "image" of onecopy; "foreign" for other tools."""
        return self._kind

    def close(self) -> None:
        """Release the mapping; the memory is unmapped when the last view is gone. Further calls do nothing."""
        self._core.close()

    def __reduce__(self) -> tuple[object, ...]:
        return _reattach, (self._absolute, self._mode, self._private, self._threads, self.identity)

    def __repr__(self) -> str:
        if self.closed:
            return f"<onecopy.ArrayFile {self._path!r} closed>"
        return f"<onecopy.ArrayFile {self._path!r} {len(self)} arrays, {self.nbytes / 1e6:.1f} MB, {self._mode}>"


def _snapshot(path: str, reason: str) -> tuple[ArraysMode, _core.FileHandle | None, str]:
    from onecopy import snapshots  # here, because it may load the store

    handle, place = snapshots.handle_of(path)
    reason = place if reason == AS_REQUESTED else f"{reason}; {place}"
    return "copy" if handle is None else "snapshot", handle, reason


def _reattach(path: str, mode: ArraysMode, private: bool, threads: int, identity: Identity) -> OneFile:
    """Open a file that was pickled in another process; FileChanged if it was modified or replaced since."""
    return OneFile(path, mode=mode, private=private, threads=threads, identity=identity)
