"""Files whose names are not UTF-8 open wherever a path is taken."""

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onecopy as oc
from onecopy import records

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

ARRAY = np.arange(600_000).reshape(400, 500, 3)


def bytes_of(write: Callable[[io.BytesIO], object]) -> bytes:
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


FILES: dict[str, Callable[[], bytes]] = {
    "a.json": lambda: b'[{"a": 1}]',
    "a.jsonl": lambda: b'{"a": 1}\n',
    "a.parquet": lambda: bytes_of(lambda file: parquet.write_table(pyarrow.table({"a": [1]}), file)),
    "a.npy": lambda: bytes_of(lambda file: np.save(file, ARRAY)),
}


@pytest.fixture
def strange(tmp_path, monkeypatch) -> Path:
    """Return a folder whose name is not UTF-8, with a file of each kind."""
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / "store"))
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xe9"))
    folder.mkdir()
    for name, make in FILES.items():
        (folder / name).write_bytes(make())
    return folder


def saved(folder: Path) -> Any:
    oc.save(folder / "new.safetensors", {"a": ARRAY})
    with oc.open(folder / "new.safetensors", mode="copy", verify=True) as file:
        return file["a"]


USES: dict[str, Callable[[Path], Any]] = {
    "saved": saved,
    "npy": lambda folder: next(iter(oc.open(folder / "a.npy").values())),
    "scratch": lambda folder: oc.scratch((2, 2), "f4", folder).save(folder / "scratch.oc"),
    "json": lambda folder: list(oc.share(records.json_rows(folder / "a.json"), key=oc.file_key(folder / "a.json"))),
    "jsonl": lambda folder: list(records.import_jsonl(folder / "a.jsonl", folder / "rows.oc")),
    "parquet": lambda folder: list(oc.share(records.parquet_rows(folder / "a.parquet"), store=folder / "store")),
}


@pytest.mark.parametrize("use", USES)
def test_a_name_that_is_not_utf8_opens(strange, use):
    USES[use](strange)
