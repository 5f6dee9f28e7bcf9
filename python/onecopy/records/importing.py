"""Convert JSON, JSON Lines, CSV and Parquet files to records files.

    anns = records.import_json("instances.json", "anns.oc", path="annotations")

To build the data once per machine under a key, give the source to `onecopy.share` instead: see
`onecopy.records.sources`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onecopy.records.opening import open_records
from onecopy.records.sources import Container, OnProgress, RowSource, json_rows, jsonl_rows
from onecopy.records.tabular import Types, csv_rows, parquet_rows
from onecopy.records.writing import save

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from onecopy.records.dicts import Dict
    from onecopy.records.rows import List

__all__ = ["import_csv", "import_json", "import_jsonl", "import_parquet"]


def import_json(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    path: str | Sequence[str] = (),
    container: Container = "list",
    progress: OnProgress | None = None,
) -> List[Any] | Dict[Any, Any]:
    """Write the rows of a JSON file to a records file, and open it; see `json_rows` for the options and errors.

    The write is atomic, like that of `save`: readers of `target` see the old file or the new one.

    Examples
    --------
    >>> import onecopy as oc, tempfile, pathlib
    >>> from onecopy import records
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "captions.json").write_text('{"annotations": [{"id": 1, "caption": "a cat"}]}')
    >>> rows = records.import_json(folder / "captions.json", folder / "captions.oc", path="annotations")
    >>> rows[0]["caption"]
    'a cat'
    """
    rows: List[Any] | Dict[Any, Any] = _into(target, json_rows(source, path, container=container, progress=progress))
    return rows


def import_jsonl(
    source: str | os.PathLike[str], target: str | os.PathLike[str], *, progress: OnProgress | None = None
) -> List[Any]:
    """Write the rows of a JSON Lines file to a records file, and open it; see `jsonl_rows` for the errors."""
    rows: List[Any] = _into(target, jsonl_rows(source, progress=progress))
    return rows


def import_csv(
    source: str | os.PathLike[str], target: str | os.PathLike[str], *, types: Types = None, **options: Any
) -> List[Any]:
    """Write the rows of a CSV file to a records file, and open it; see `csv_rows` for the options and errors."""
    rows: List[Any] = _into(target, csv_rows(source, types=types, **options))
    return rows


def import_parquet(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    progress: OnProgress | None = None,
) -> List[Any]:
    """Write the rows of a Parquet file to a records file, and open it; see `parquet_rows` for options and errors."""
    rows: List[Any] = _into(target, parquet_rows(source, columns=columns, progress=progress))
    return rows


def _into(target: str | os.PathLike[str], rows: RowSource) -> Any:
    save(target, rows)
    return open_records(target)
