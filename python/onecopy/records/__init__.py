"""Python data in mapped files: lists, dicts and tables of any values, one copy per machine.

`share` makes one line of it; `open` and `save` read and write files; `Writer` streams; `import_json` and its like bring
in files of other formats. See `onecopy.records.rows` for what a List can do, and `onecopy.records.types` for which
values it can hold.
"""

from onecopy.records.arrow_rows import arrow_rows
from onecopy.records.columnar import Ragged
from onecopy.records.dicts import Dict
from onecopy.records.importing import import_csv, import_json, import_jsonl, import_parquet
from onecopy.records.opening import attach, open  # noqa: A004
from onecopy.records.rows import Chain, List
from onecopy.records.schema import Schema
from onecopy.records.sharing import share
from onecopy.records.sources import RowSource, json_rows, jsonl_rows
from onecopy.records.table import Table
from onecopy.records.tabular import csv_rows, parquet_rows
from onecopy.records.types import NotShareable, register
from onecopy.records.writing import Writer, save

__all__ = [
    "Chain",
    "Dict",
    "List",
    "NotShareable",
    "Ragged",
    "RowSource",
    "Schema",
    "Table",
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
    "open",
    "parquet_rows",
    "register",
    "save",
    "share",
]
