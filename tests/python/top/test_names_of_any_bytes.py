"""Files whose names are not UTF-8 open wherever a path is taken."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onecopy as oc
from onecopy import records

ARRAY = np.arange(600_000).reshape(400, 500, 3)


def read_saved(folder: Path) -> Any:
    oc.save(folder / "new.safetensors", {"a": np.arange(600_000)})
    with oc.open(folder / "new.safetensors", mode="copy", verify=True) as file:
        return file["a"]


def read_npy(folder: Path) -> Any:
    np.save(folder / "a.npy", np.arange(600_000))
    return next(iter(oc.open(folder / "a.npy").values()))


def read_json(folder: Path) -> Any:
    (folder / "a.json").write_text('[{"a": 1}]')
    return list(oc.share(records.json_rows(folder / "a.json"), key=oc.file_key(folder / "a.json")))


def import_jsonl(folder: Path) -> Any:
    (folder / "a.jsonl").write_text('{"a": 1}\n')
    return list(records.import_jsonl(folder / "a.jsonl", folder / "rows.oc"))


def share_parquet(folder: Path) -> Any:
    parquet = pytest.importorskip("pyarrow.parquet")
    with (folder / "a.parquet").open("wb") as file:
        parquet.write_table(pytest.importorskip("pyarrow").table({"a": [1]}), file)
    return list(oc.share(records.parquet_rows(folder / "a.parquet"), store=folder / "store"))


def save_scratch(folder: Path) -> Any:
    return oc.scratch((2, 2), "f4", folder).save(folder / "scratch.oc")


@pytest.mark.parametrize("use", [read_saved, read_npy, read_json, import_jsonl, share_parquet, save_scratch])
def test_a_name_that_is_not_utf8_opens(tmp_path, monkeypatch, use):
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / "store"))
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xe9"))
    folder.mkdir()
    use(folder)
