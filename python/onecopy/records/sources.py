"""Files of rows, as what `share`, `save` and `Writer.extend` take: read when they are needed, and row by row.

    anns = oc.share(records.json_rows("instances.json", "annotations"), key=oc.file_key("instances.json"))

JSON goes straight into columns, in compiled code without the interpreter's lock; CSV and Parquet by way of Python's own
reader and pyarrow. Nothing is opened before the rows are wanted, so a source costs nothing where the data is there
already. Memory is some MB, whatever the size of the file. To look at the rows of a source, iterate it.
"""

from __future__ import annotations

import abc
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from onecopy.arguments import path_text
from onecopy.errors import FormatError
from onecopy.files import Mapping

if TYPE_CHECKING:
    import os

    from onecopy import _core

__all__ = ["Container", "OnProgress", "RowSource", "json_rows", "jsonl_rows"]

Container = Literal["list", "dict"]
OnProgress = Callable[[int, int], object]
"""Called about 20 times a second with the bytes of the source that are done, and all of them; it may raise."""
Tell = Callable[[int], object]
"""Called with the number of rows so far."""


class RowSource(abc.ABC):
    """Rows that are in a file; made by `json_rows`, `jsonl_rows`, `csv_rows` and `parquet_rows`.

    Iterating builds nameless records first and gives their rows (pairs, of a dict), so that it raises what an import
    would.
    """

    container: Container = "list"

    def __init__(self, source: str | os.PathLike[str], progress: OnProgress | None) -> None:
        self._path = path_text(source)
        self._on_progress = progress

    @property
    def path(self) -> str:
        """The file."""
        return self._path

    @abc.abstractmethod
    def add_to(self, builder: _core.RecordBuilder, registry: Any, tell: Tell | None) -> int:
        """Append all rows and return how many there were."""

    def __iter__(self) -> Iterator[Any]:
        from onecopy.records.sharing import share  # which imports this module
        from onecopy.store import Store

        rows: Any = share(self, store=Store(where="here"))
        return iter(rows.items() if self.container == "dict" else rows)

    def __repr__(self) -> str:
        return f"<onecopy.{type(self).__name__} of {self._path}>"

    def _report(self, done: int, total: int) -> None:
        if self._on_progress is not None:
            self._on_progress(done, total)


class JsonRows(RowSource):
    """Rows of a JSON file."""

    def __init__(
        self,
        source: str | os.PathLike[str],
        path: Sequence[str],
        lines: bool,
        container: Container,
        progress: OnProgress | None,
    ) -> None:
        super().__init__(source, progress)
        if container not in ("list", "dict"):
            raise ValueError(f"container must be 'list' or 'dict', not {container!r}")
        self.container = container
        self._members = list(path)
        self._lines = lines

    def add_to(self, builder: _core.RecordBuilder, registry: Any, tell: Tell | None) -> int:  # noqa: ARG002 - values are plain
        """Append all rows and return how many there were."""
        about, before = Path(self._path).stat(), builder.length

        def told(rows: int, done: int) -> None:
            self._report(done, about.st_size)
            if tell is not None:
                tell(before + rows)

        if stat.S_ISREG(about.st_mode) and about.st_size == 0:  # which cannot be mapped
            if self._lines:
                return 0
            raise FormatError(f"{self._path}: no JSON: the file is empty")
        with Mapping(self._path) as text:
            return builder.extend_json(text.core, self._members, self._lines, told)


def json_rows(
    source: str | os.PathLike[str],
    path: str | Sequence[str] = (),
    *,
    container: Container = "list",
    progress: OnProgress | None = None,
) -> RowSource:
    r"""Name the rows of a JSON file: the items of an array, or the members of an object.

    They are what `json.load` would give, of the same types: integers of any size, the nearest floats, NaN and Infinity,
    and the last value of a key that comes twice. The whole file is checked, also what is beside the rows. It is mapped,
    and its pages stay the page cache's; of memory an import takes some MB, and 16 bytes for each value in the largest
    object of a row.

    Parameters
    ----------
    source
        A file in UTF-8, without a byte order mark.
    path
        Where the rows are: ``"annotations"``, ``"data.items"``; a list of keys where a key has a dot. None: the whole.
    container
        "dict": the value there is an object, and its members are the rows: a dict with its keys. They must be
        different ones.
    progress
        Gets rows, bytes done and bytes in all, about 20 times a second.

    Raises
    ------
    FormatError
        When the rows are read: no JSON, no such member, no array; with file, byte, line, column and the path of the
        value. Also half a surrogate pair (``"\ud800"``), which UTF-8 cannot express, and more than 60 levels.
    OSError
        The file cannot be opened or mapped.

    Examples
    --------
    >>> import onecopy as oc, tempfile, pathlib
    >>> from onecopy import records
    >>> path = pathlib.Path(tempfile.mkdtemp(), "instances.json")
    >>> _ = path.write_text('{"info": "", "annotations": [{"id": 7, "bbox": [1, 2.5]}]}')
    >>> oc.share(records.json_rows(path, "annotations"))[0]
    {'id': 7, 'bbox': [1, 2.5]}
    """
    members = path.split(".") if isinstance(path, str) else path
    return JsonRows(source, members, False, container, progress)


def jsonl_rows(source: str | os.PathLike[str], *, progress: OnProgress | None = None) -> RowSource:
    r"""Name the rows of a file of JSON Lines: a value on each line; empty lines are none.

    See `json_rows` for values, memory and errors.

    Examples
    --------
    >>> import onecopy as oc, tempfile, pathlib
    >>> from onecopy import records
    >>> path = pathlib.Path(tempfile.mkdtemp(), "rows.jsonl")
    >>> _ = path.write_text('{"id": 1}\n{"id": 2}\n')
    >>> oc.share(records.jsonl_rows(path))[1]
    {'id': 2}
    """
    return JsonRows(source, [], True, "list", progress)
