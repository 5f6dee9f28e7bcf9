"""Python data in mapped files: lists, dicts and tables of Python values, with one copy per machine.

`share` builds the data once and maps it in all processes; `save` and `open_records` write and read files; `Writer`
writes row by row; `import_json`, `import_jsonl` and `import_parquet` convert files in other formats.
`onecopy.data.rows` describes the operations of a List, `onecopy.data.types` the supported types of values.

Each name is loaded on first use, so a worker that receives a List loads only the modules that read it.
"""

from typing import TYPE_CHECKING

from onecopy.base import lazy

if TYPE_CHECKING:
    from onecopy.data.row_files import (
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
    from onecopy.data.rows import Chain, Dict, List, Table, open_records
    from onecopy.data.schema import Ragged, Schema
    from onecopy.data.sharing import share
    from onecopy.data.types import Unloaded, register

_HOMES = {
    "onecopy.data.rows": ("Chain", "Dict", "List", "Table", "open_records"),
    "onecopy.data.types": ("Unloaded", "register"),
    "onecopy.data.schema": ("Ragged", "Schema"),
    "onecopy.data.row_files": (
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
    "onecopy.data.sharing": ("share",),
}

__path__: list[str] = []
"""`onecopy.base.lazy.OTHER_NAMES` lists the modules of this package in earlier versions."""
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
