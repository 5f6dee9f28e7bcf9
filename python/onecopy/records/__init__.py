"""Python data in mapped files: lists, dicts and tables of any values, one copy per machine.

`share` makes one line of it; `open_records` and `save` read and write files; `Writer` streams; `import_json` and its
like bring in files of other formats. See `onecopy.records.rows` for what a List can do, and `onecopy.records.types`
for which values it can hold.

Importing this package loads nothing else: a worker that is given a List needs what reads, and nothing of what writes.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onecopy.records.arrow import arrow_rows
    from onecopy.records.columnar import Ragged
    from onecopy.records.dicts import Dict
    from onecopy.records.importing import import_csv, import_json, import_jsonl, import_parquet
    from onecopy.records.opening import attach, open_records
    from onecopy.records.rows import Chain, List
    from onecopy.records.schema import Schema
    from onecopy.records.sharing import share
    from onecopy.records.sources import RowSource, json_rows, jsonl_rows
    from onecopy.records.table import Table
    from onecopy.records.tabular import csv_rows, parquet_rows
    from onecopy.records.types import Unloaded, register
    from onecopy.records.writing import Writer, save

_HOMES = {
    "Chain": "rows",
    "Dict": "dicts",
    "List": "rows",
    "Unloaded": "types",
    "Ragged": "columnar",
    "RowSource": "sources",
    "Schema": "schema",
    "Table": "table",
    "Writer": "writing",
    "arrow_rows": "arrow",
    "attach": "opening",
    "csv_rows": "tabular",
    "import_csv": "importing",
    "import_json": "importing",
    "import_jsonl": "importing",
    "import_parquet": "importing",
    "json_rows": "sources",
    "jsonl_rows": "sources",
    "open_records": "opening",
    "parquet_rows": "tabular",
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


if not TYPE_CHECKING:  # to a type checker, this would have every name

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'onecopy.records' has no attribute {name!r}")
        value = getattr(import_module(f"onecopy.records.{_HOMES[name]}"), name)
        globals()[name] = value  # found at once the next time
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
