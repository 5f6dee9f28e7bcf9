"""Python data in mapped files: lists, dicts and tables of Python values, with one copy per machine.

`share` builds the data once and maps it in all processes; `save` and `open_records` write and read files; `Writer`
writes row by row; `import_json`, `import_jsonl`, `import_csv` and `import_parquet` convert files of other formats. The
operations of a List are in `onecopy.records.rows`, the supported types of values in `onecopy.records.types`.

Importing this package loads none of its modules, so that a worker that receives a List loads only the reading modules.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onecopy.records.columnar import Ragged, Schema
    from onecopy.records.rows import Chain, Dict, List, Table, attach, open_records
    from onecopy.records.sharing import share
    from onecopy.records.sources import (
        RowSource,
        arrow_rows,
        csv_rows,
        import_csv,
        import_json,
        import_jsonl,
        import_parquet,
        json_rows,
        jsonl_rows,
        parquet_rows,
    )
    from onecopy.records.types import Unloaded, register
    from onecopy.records.writing import Writer, save

_HOMES = {
    "Chain": "rows",
    "Dict": "rows",
    "List": "rows",
    "Unloaded": "types",
    "Ragged": "columnar",
    "RowSource": "sources",
    "Schema": "columnar",
    "Table": "rows",
    "Writer": "writing",
    "arrow_rows": "sources",
    "attach": "rows",
    "csv_rows": "sources",
    "import_csv": "sources",
    "import_json": "sources",
    "import_jsonl": "sources",
    "import_parquet": "sources",
    "json_rows": "sources",
    "jsonl_rows": "sources",
    "open_records": "rows",
    "parquet_rows": "sources",
    "register": "types",
    "save": "writing",
    "share": "sharing",
}

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
    "attach",
    "csv_rows",
    "import_csv",
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

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'onecopy.records' has no attribute {name!r}")
        value = getattr(import_module(f"onecopy.records.{_HOMES[name]}"), name)
        globals()[name] = value  # the next access does not call this function
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
