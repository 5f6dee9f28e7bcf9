"""Writing records: rows in, a file out, some MB of memory however many there are."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onecopy import _core
from onecopy.arguments import path_text
from onecopy.records.sources import Container, RowSource
from onecopy.records.types import plain_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import Self

__all__ = ["Writer", "save"]


class Writer:
    """Writes rows to a records file, one after the other; the file appears at the end, whole, or not at all.

    What is appended goes to an unnamed spool file beside the target, because the width of a column and even its type
    may change with the last row; closing copies it once, in order. It needs the space of the data twice for that time.

    Parameters
    ----------
    path
        The file to be. Replaced atomically where it exists.
    container
        "list"; or "dict" for (key, value) pairs that are found by their key.
    spool
        The folder for the spool file; None: that of `path`, or one on a disk where `path` is in memory.

    Raises
    ------
    NotShareable
        From `append` and `extend`: a value that no records file can hold, with its path. What was appended before
        stays.
    OSError
        The disk is full (ENOSPC), or the folder cannot be written to.

    Examples
    --------
    >>> import onecopy as oc, tempfile, pathlib
    >>> from onecopy import records
    >>> path = pathlib.Path(tempfile.mkdtemp(), "rows.oc")
    >>> with records.Writer(path) as writer:
    ...     writer.append({"id": 1})
    ...     writer.extend({"id": i} for i in range(2, 5))
    3
    >>> len(oc.open_records(path))
    4
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        container: Container = "list",
        spool: str | os.PathLike[str] | None = None,
    ) -> None:
        self._path = path_text(path)
        folder = path_text(spool) if spool is not None else spool_folder(Path(self._path).parent)
        self._core: _core.RecordBuilder | None = _core.RecordBuilder(folder, container, {})

    def _builder(self) -> _core.RecordBuilder:
        if self._core is None:
            raise ValueError("the writer is closed")
        return self._core

    def append(self, row: Any) -> None:
        """Append a row; of a dict a pair (key, value)."""
        self._builder().append(row, plain_of)

    def extend(self, rows: Iterable[Any], *, progress: Callable[[int], object] | None = None) -> int:
        """Append rows and return how many; `progress` gets their number now and then, and may raise."""
        return fill(self._builder(), rows, plain_of, progress)

    def __len__(self) -> int:
        return self._builder().length

    def close(self) -> None:
        """Write the file; a second call does nothing."""
        if self._core is not None:
            builder, self._core = self._core, None
            builder.save(self._path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        self._core = None


def save(path: str | os.PathLike[str], data: Iterable[Any] | Mapping[Any, Any]) -> None:
    """Write a list, a dict or any iterable of rows to a records file, which `onecopy.open` opens in place.

    Atomic: readers see the old file or the new one. See `Writer` for what is raised and what it costs.

    Examples
    --------
    >>> import onecopy as oc, tempfile, pathlib
    >>> from onecopy import records
    >>> path = pathlib.Path(tempfile.mkdtemp(), "rows.oc")
    >>> records.save(path, [("a.jpg", 3), ("b.jpg", 1)])
    >>> oc.open_records(path)[0]
    ('a.jpg', 3)
    """
    container, rows = rows_of(data)
    with Writer(path, container=container) as writer:
        writer.extend(rows)


def fill(
    builder: _core.RecordBuilder, rows: Iterable[Any], registry: Any, progress: Callable[[int], object] | None
) -> int:
    """Append rows to a builder: those of a file without making objects of them, where that can be."""
    if isinstance(rows, RowSource):
        return rows.add_to(builder, registry, progress)
    return builder.extend(rows, registry, progress)


def rows_of(data: Iterable[Any] | Mapping[Any, Any]) -> tuple[Container, Iterable[Any]]:
    """Return how data is stored: the pairs of a dict, or the rows of anything else."""
    if isinstance(data, (str, bytes)):
        raise TypeError(f"a list, a dict or an iterable of rows is shared, not one {type(data).__name__}")
    if isinstance(data, Mapping):
        return "dict", data.items()
    if isinstance(data, RowSource):
        return data.container, data
    if not hasattr(data, "__iter__") and not hasattr(data, "__getitem__"):
        raise TypeError(f"a list, a dict or an iterable of rows is shared, not one {type(data).__name__}")
    return "list", data


def spool_folder(target: Path) -> str:
    """Choose where to spool: beside the target, unless that is in memory, where it would cost twice."""
    folders = [target, Path(tempfile.gettempdir()), Path("/var/tmp")]  # noqa: S108 - the file is nameless
    on_disk = [folder for folder in folders if folder.is_dir() and not _core.is_in_memory(str(folder))]
    return str((on_disk or folders)[0])
