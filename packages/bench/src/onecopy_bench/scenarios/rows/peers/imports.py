"""A JSON file of annotations, loaded in every way: the file lies in the folder, and the rows come from it alone."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from onecopy_bench.files.configurations import module
from onecopy_bench.scenarios.rows.data import Source
from onecopy_bench.scenarios.rows.peers import Peer
from onecopy_bench.scenarios.rows.peers.files import frame_names
from onecopy_bench.scenarios.rows.peers.onecopy import MODULES

DOCUMENT, LINES = "rows.json", "rows.jsonl"
"""The same rows as one JSON array, and as one object per line."""


def write(source: Source, folder: Path) -> None:
    """Write both files, row by row."""
    with (folder / DOCUMENT).open("w") as document, (folder / LINES).open("w") as lines:
        for i, row in enumerate(source.rows()):
            text = json.dumps(row)
            document.write(("[" if i == 0 else ",\n") + text)
            lines.write(text + "\n")
        document.write("]\n")


def by(package: str, function: str, lines: bool = False) -> Callable[[Source, Path], Any]:
    """Return what loads the document by a function of bytes, or the lines by a function of a path."""

    def load(_: Source, folder: Path) -> Any:
        call = getattr(importlib.import_module(package), function)
        return call(folder / LINES if lines else (folder / DOCUMENT).read_bytes())

    return load


def with_onecopy(_: Source, folder: Path) -> Any:
    """Import the document into a file and open that."""
    onecopy = module("onecopy")
    module("onecopy.records").import_json(folder / DOCUMENT, folder / "rows.oc")
    return onecopy.open_records(folder / "rows.oc")


READ_JSON = by("pyarrow.json", "read_json", lines=True)
READ_NDJSON = by("polars", "read_ndjson", lines=True)

PEERS = (
    Peer("json.load", "the standard library", by("json", "loads"), builds=7.0),
    Peer("orjson.loads", "orjson", by("orjson", "loads"), ("orjson",), builds=7.0),
    Peer("msgspec.json", "msgspec", by("msgspec.json", "decode"), ("msgspec.json",), builds=7.0),
    Peer("pyarrow.json", "read_json of lines", READ_JSON, ("pyarrow.json",), builds=3.0),
    Peer(
        "polars ndjson",
        "read_ndjson of lines",
        READ_NDJSON,
        ("polars",),
        builds=4.0,
        names=frame_names,
    ),
    Peer("onecopy import", "import_json, open", with_onecopy, (*MODULES, "onecopy.records"), builds=2.0),
)
