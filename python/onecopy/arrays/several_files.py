"""`ArrayFile` for several files: the shards of a model, or a model with external data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onecopy.arrays.entries import Entry, Memory, Part, name_of, range_of
from onecopy.arrays.file import ArrayFile, no_array
from onecopy.arrays.members import How, Member, close
from onecopy.files import OpenFile, absolute
from onecopy.text import is_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from onecopy.files import ArraysMode, Identity
    from onecopy.page_cache import Range


class SeveralFiles(ArrayFile):
    """The arrays of several mapped files; every operation applies to all of the files."""

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
        self._container, self._metadata, self._how = container, metadata, how
        self._absolute, self._reopen = absolute(owner.path), reopen
        self._closed = False

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

    def _select(self, names: Iterable[Part] | None) -> list[tuple[Member, list[Range] | None]]:
        if names is None:
            return [(member, None) for member in self._members]
        wanted: dict[int, list[Range]] = {}
        for part in names:
            entry = self.entry(name_of(part))
            wanted.setdefault(self._places[entry.name], []).append(range_of(entry, part))
        return [(self._members[at], wanted[at]) for at in sorted(wanted)]

    # --- the files ------------------------------------------------------------------------------------------------

    @property
    def files(self) -> tuple[Member, ...]:
        """The open files that contain the arrays."""
        return self._members

    @property
    def path(self) -> str:
        """The path that was given to `onecopy.open`: of the index or the model."""
        return self._owner.path

    @property
    def identity(self) -> Identity:
        """The identity of the opened index or model: (device, inode, size in bytes, time of the last write in ns)."""
        return self._owner.identity

    def changed(self) -> bool:
        """Return whether a path now refers to another file, or a file was modified since it was opened."""
        return self._owner.changed() or any(member.changed() for member in self._members)

    @property
    def views(self) -> int:
        """The number of views (arrays, memoryviews) in use; they keep the memory mapped after `close`."""
        return sum(member.views for member in self._members)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @property
    def mode(self) -> ArraysMode:
        """The mode in which the files were opened: "map" or "copy"."""
        return self._how.mode

    @property
    def mode_reason(self) -> str:
        """The reason for `mode`: a sentence for ``mode="auto"``, else "as requested"."""
        return self._how.reason

    def add_reason(self, reason: str) -> None:
        """Append to `mode_reason`; used by the functions that open files."""
        self._how = self._how._replace(reason=f"{self._how.reason}; {reason}")

    @property
    def metadata(self) -> dict[str, str]:
        """Metadata of the index or the model; values that are not text as JSON."""
        return dict(self._metadata)

    @property
    def container(self) -> str:
        """The format: that of the shards followed by " set" ("safetensors set"), or "onnx"."""
        return self._container

    @property
    def kind(self) -> str:
        """Always "foreign": onecopy writes only single files."""
        return "foreign"

    def close(self) -> None:
        """Release the mappings; the memory is unmapped when the last view is gone. Further calls do nothing."""
        self._closed = True
        close(self._owner, *self._members)

    def __reduce__(self) -> tuple[object, ...]:
        identities = (self.identity, *(member.identity for member in self._members))
        return self._reopen, (self._absolute, self._how._replace(expected=identities))

    def __repr__(self) -> str:
        if self.closed:
            return f"<onecopy.ArrayFile {self.path!r} closed>"
        facts = f"{len(self)} arrays in {len(self._members)} files, {self.nbytes / 1e6:.1f} MB, {self.mode}"
        return f"<onecopy.ArrayFile {self.path!r} {facts}>"
