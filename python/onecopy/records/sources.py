"""`RowSource`: the rows of JSON, CSV and Parquet files as input of `share`, `save` and `Writer.extend`.

    anns = oc.share(records.json_rows("instances.json", "annotations"), key=oc.file_key("instances.json"))

JSON is parsed by the compiled module without the GIL, CSV by Python's `csv` or pyarrow, and Parquet by pyarrow. The
file is opened when the rows are read, so a source costs nothing if the artefact of its key exists. JSON and Parquet
take a few MB of memory, whatever the size of the file. Iterate a source to see its rows.
"""

from __future__ import annotations

import abc
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from onecopy.arguments import is_url, path_text
from onecopy.errors import FormatError
from onecopy.files import Mapping

if TYPE_CHECKING:
    import os

    from onecopy import _core

__all__ = ["Container", "OnProgress", "RowSource", "json_rows", "jsonl_rows"]

Container = Literal["list", "dict"]
OnProgress = Callable[[int, int], object]
"""Called about 20 times per second with (bytes of the source done, bytes in total); an exception stops the import."""
OnRows = Callable[[int], object]
"""Called with the number of rows so far."""


class RowSource(abc.ABC):
    """The rows of a file; created by `json_rows`, `jsonl_rows`, `csv_rows` and `parquet_rows`.

    Iterating imports the whole file into unnamed records and yields their rows (pairs for a dict), so it raises the
    errors of an import.
    """

    container: Container = "list"

    def __init__(self, source: str | os.PathLike[str], progress: OnProgress | None) -> None:
        if is_url(source):
            from onecopy.remote import local

            source = local(source)
        self._path = path_text(source)
        self._on_progress = progress

    @property
    def path(self) -> str:
        """Path of the file."""
        return self._path

    def name(self) -> str:
        """Return text that changes with the kind of the source, the selected part of the file and the options."""
        from onecopy.store import keys

        facts = {name: value for name, value in vars(self).items() if name != "_on_progress"}
        return f"{type(self).__qualname__} {keys.digest_of(facts, 'an option of the source')}"

    @abc.abstractmethod
    def add_to(self, builder: _core.RecordBuilder, registry: Any, on_rows: OnRows | None) -> int:
        """Append all rows to a builder and return their number."""

    def __iter__(self) -> Iterator[Any]:
        from onecopy.records.sharing import share  # here, because it imports this module

        rows: Any = share(self)
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

    def add_to(self, builder: _core.RecordBuilder, registry: Any, on_rows: OnRows | None) -> int:  # noqa: ARG002 - JSON has only plain values
        """Append all rows to a builder and return their number."""
        about, before = Path(self._path).stat(), builder.length

        def on_progress(rows: int, done: int) -> None:
            self._report(done, about.st_size)
            if on_rows is not None:
                on_rows(before + rows)

        if stat.S_ISREG(about.st_mode) and about.st_size == 0:  # an empty file cannot be mapped
            if self._lines:
                return 0
            raise FormatError(f"{self._path}: not JSON: the file is empty")
        with Mapping(self._path) as text:
            return builder.extend_json(text.core, path=self._members, lines=self._lines, progress=on_progress)


def json_rows(
    source: str | os.PathLike[str],
    path: str | Sequence[str] = (),
    *,
    container: Container = "list",
    progress: OnProgress | None = None,
) -> RowSource:
    r"""Return the rows of a JSON file as a source: the items of an array, or the members of an object.

    The values are equal to those of `json.load`: integers of any size, the nearest floats, NaN and Infinity, and the
    last value of a duplicate key. The whole file is validated, including the parts outside the rows. The file is
    mapped; an import takes a few MB of memory, and 16 bytes per value in the largest object of a row.

    Parameters
    ----------
    source
        Path of a file in UTF-8, without a byte order mark.
    path
        Position of the rows in the document: ``"annotations"``, ``"data.items"``, or a list of keys if a key contains a
        dot. Empty: the whole document.
    container
        "list": the value at `path` is an array of rows. "dict": it is an object, whose members become a Dict; its keys
        must be unique.
    progress
        Called about 20 times per second with (bytes done, bytes in total).

    Raises
    ------
    FormatError
        When the rows are read: the text is not valid JSON, has no value at `path`, or the value is not an array; the
        message has file, byte, line, column and the path of the value. Also for an unpaired surrogate (``"\ud800"``),
        which UTF-8 cannot represent, and for more than 60 levels of nesting.
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
    r"""Return the rows of a JSON Lines file as a source: one value per line; empty lines are skipped.

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
