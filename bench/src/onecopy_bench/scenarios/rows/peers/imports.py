"""A JSON file of annotations, loaded in every way: the file lies in the folder, and the rows come from it alone."""

from __future__ import annotations

import importlib
import json
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


def with_json(_: Source, folder: Path) -> Any:
    """Load the document with the standard library."""
    with (folder / DOCUMENT).open("rb") as file:
        return json.load(file)


def with_orjson(_: Source, folder: Path) -> Any:
    """Load the document with orjson."""
    return importlib.import_module("orjson").loads((folder / DOCUMENT).read_bytes())


def with_msgspec(_: Source, folder: Path) -> Any:
    """Load the document with msgspec."""
    return importlib.import_module("msgspec.json").decode((folder / DOCUMENT).read_bytes())


def with_pyarrow(_: Source, folder: Path) -> Any:
    """Load the lines into a table."""
    importlib.import_module("pyarrow.json")
    return importlib.import_module("pyarrow").json.read_json(folder / LINES)


def with_polars(_: Source, folder: Path) -> Any:
    """Load the lines into a frame."""
    return importlib.import_module("polars").read_ndjson(folder / LINES)


def with_onecopy(_: Source, folder: Path) -> Any:
    """Import the document into a file and open that."""
    onecopy = module("onecopy")
    module("onecopy.records").import_json(folder / DOCUMENT, folder / "rows.oc")
    return onecopy.open_records(folder / "rows.oc")


PEERS = (
    Peer("json.load", "the standard library", with_json, builds=7.0),
    Peer("orjson.loads", "orjson", with_orjson, ("orjson",), builds=7.0),
    Peer("msgspec.json", "msgspec", with_msgspec, ("msgspec.json",), builds=7.0),
    Peer("pyarrow.json", "read_json of lines", with_pyarrow, ("pyarrow.json",), builds=3.0),
    Peer("polars ndjson", "read_ndjson of lines", with_polars, ("polars",), builds=4.0, names=frame_names),
    Peer("onecopy import", "import_json, open", with_onecopy, (*MODULES, "onecopy.records:import_json"), builds=2.0),
)
