"""Python data in mapped files: lists, dicts and tables of Python values, with one copy per machine.

`share` builds the data once and maps it in all processes; `save` and `open_records` write and read files; `Writer`
writes row by row; `import_json`, `import_jsonl` and `import_parquet` convert files in other formats.
`onecopy_records.rows` describes the operations of a List, `onecopy_records.types` the supported types of values, and
`onecopy_records.shuffle` a shuffled order that is computed on demand.

The distribution onecopy-records installs this package as ``onecopy_records``, which is also available as ``oc.records``
and ``onecopy.records``. The core uses it for `onecopy.share`, `onecopy.open_records`, `onecopy.cached` (with
``codec="records"``), `onecopy.torch.share_dataset`, and to list records files in ``onecopy ls``.

Each name is loaded on first use, so a worker that receives a List loads only the modules that read it.
"""

from typing import TYPE_CHECKING

from onecopy.base import lazy

if TYPE_CHECKING:
    from onecopy_records.row_files import (
        RowSource,
        Writer,
        arrow_rows,
        import_json,
        import_jsonl,
        import_parquet,
        json_rows,
        jsonl_rows,
        parquet_rows,
        save,
    )
    from onecopy_records.rows import Chain, Dict, List, Table, open_records
    from onecopy_records.schema import Ragged, Schema
    from onecopy_records.sharing import share
    from onecopy_records.types import Unloaded, register

_HOMES = {
    "rows": ("Chain", "Dict", "List", "Table", "open_records"),
    "types": ("Unloaded", "register"),
    "schema": ("Ragged", "Schema"),
    "row_files": (
        "RowSource",
        "Writer",
        "arrow_rows",
        "import_json",
        "import_jsonl",
        "import_parquet",
        "json_rows",
        "jsonl_rows",
        "parquet_rows",
        "save",
    ),
    "sharing": ("share",),
}
"""Public names, by the module that defines them."""

__all__ = [
    "Chain",
    "Dict",
    "List",
    "Ragged",
    "RowSource",
    "Schema",
    "Table",
    "Unloaded",
    "Writer",
    "arrow_rows",
    "import_json",
    "import_jsonl",
    "import_parquet",
    "json_rows",
    "jsonl_rows",
    "open_records",
    "parquet_rows",
    "register",
    "save",
    "share",
]


if not TYPE_CHECKING:  # a type checker would accept every name
    __getattr__ = lazy.attributes(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
