"""Write records files: `save`, and `Writer` for row by row; memory use does not grow with the number of rows."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onecopy import _core
from onecopy.arguments import path_text
from onecopy.errors import NotShareable
from onecopy.records.rows import Chain, Dict, List
from onecopy.records.sources import Container, RowSource
from onecopy.records.types import plain_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import Self


class Writer:
    """Writes rows to a records file, which appears complete when the writer is closed, or not at all.

    Rows are first written to an unnamed spool file, because the last row can change the width and the type of a column;
    closing copies them to the target in order. While closing, the data takes twice its space.

    Parameters
    ----------
    path
        Path of the file; an existing file is replaced atomically.
    container
        "list", or "dict" for rows that are pairs (key, value) and are looked up by key.
    spool
        The folder for the spool file; None: the folder of `path`, or a folder on disk if that is in memory.

    Raises
    ------
    NotShareable
        From `append` and `extend`: a value cannot be stored; the message begins with its path. Rows appended before
        stay.
    OSError
        The disk is full (ENOSPC), or the folder is not writable.

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
        """Append one row; a pair (key, value) for ``container="dict"``."""
        self._builder().append(row, plain_of)

    def extend(self, rows: Iterable[Any], *, progress: Callable[[int], object] | None = None) -> int:
        """Append rows and return their number.

        `progress` is called from time to time with the number of rows so far; an exception that it raises is passed on.
        """
        return fill(self._builder(), rows, plain_of, progress)

    def __len__(self) -> int:
        return self._builder().length

    def close(self) -> None:
        """Write the file; further calls do nothing."""
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
    """Write a list, a dict or an iterator of rows to a records file, for `onecopy.open_records`.

    The write is atomic: readers see the old file or the new one. See `Writer` for errors and disk space.

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
    """Append rows to a builder and return their number; rows of a `RowSource` without creating Python objects."""
    if isinstance(rows, RowSource):
        return rows.add_to(builder, registry, progress)
    return builder.extend(rows, registry, progress=progress)


def rows_of(data: Any) -> tuple[Container, Iterable[Any]]:
    """Return the container of data and its rows: the pairs of a dict, the items of a list, or those of an iterator.

    NotShareable for other containers: what is read is a List or a Dict, so their type and more would be lost.
    """
    kind = type(data)
    if kind is dict or isinstance(data, Dict):
        return "dict", data.items()
    if isinstance(data, RowSource):
        return data.container, data
    if kind is list or isinstance(data, (List, Chain)) or (hasattr(kind, "__iter__") and not hasattr(kind, "__len__")):
        return "list", data
    rows = "dict(data)" if isinstance(data, Mapping) else "list(data)"
    hint = f"pass {rows} for its rows alone, or " if hasattr(kind, "__iter__") and kind not in (str, bytes) else ""
    raise NotShareable(
        f"rows are a list, a dict or an iterator, not a {kind.__name__}: {hint}use share_object (codec='object' of "
        "cached), which returns whatever can be pickled as what it is"
    )


def spool_folder(target: Path) -> str:
    """Return the folder for the spool file: `target`, or a folder on disk if `target` is in memory."""
    folders = [target, Path(tempfile.gettempdir()), Path("/var/tmp")]  # noqa: S108 - the file is nameless
    on_disk = [folder for folder in folders if folder.is_dir() and not _core.is_in_memory(str(folder))]
    return str((on_disk or folders)[0])
