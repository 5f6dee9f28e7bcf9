"""Python data in mapped files: lists, dicts and tables of any values, one copy per machine.

`share` makes one line of it; `open` and `save` read and write files; `Writer` streams. See `onecopy.records.rows` for
what a List can do, and `onecopy.records.types` for which values it can hold.
"""

from onecopy.records.columnar import Ragged
from onecopy.records.dicts import Dict
from onecopy.records.importing import from_arrow, from_parquet
from onecopy.records.opening import attach, open  # noqa: A004
from onecopy.records.rows import Chain, List
from onecopy.records.schema import Schema
from onecopy.records.sharing import share
from onecopy.records.table import Table
from onecopy.records.types import NotShareable, register
from onecopy.records.writing import Writer, save

__all__ = [
    "Chain",
    "Dict",
    "List",
    "NotShareable",
    "Ragged",
    "Schema",
    "Table",
    "Writer",
    "attach",
    "from_arrow",
    "from_parquet",
    "open",
    "register",
    "save",
    "share",
]
