"""Files of records that onecopy 0.1.0 wrote: every later version opens them and gives the same values.

Same means equal types, order of keys and bits of floats. The expectations beside the files were made from the values,
not read back by onecopy. What today's writer writes is not compared with the files: the format may gain fields.
"""

import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.golden.records import classes, make
from tests.support.children import run_python
from tests.support.places import GOLDEN, ROOT
from tests.support.rows import same

import onecopy as oc
import onecopy.arrays
import onecopy.records

FOLDER = GOLDEN / "records"
FILES = sorted(path.name.removesuffix(".json") for path in FOLDER.glob("*.json"))
CONTAINERS = {
    "values.oc": oc.records.List,
    "table.oc": oc.records.Table,
    "shapes.oc": oc.records.Table,
    "dict.oc": oc.records.Dict,
}
KINDS = {
    "null", "boolean", "integer", "bigint", "real", "number", "text", "bytes",
    "list", "tuple", "fixed", "record", "map", "array", "extension", "choice",
}  # fmt: skip
"""All of docs/formats/records.md."""


def expected_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return found


def rows_of(opened: Any) -> list[Any]:
    return list(opened.items() if isinstance(opened, oc.records.Dict) else opened)


def check(path: Path, expected: dict[str, Any]) -> None:
    """Open a file and compare every row, however it is reached, with the expectation."""
    with oc.open_records(path) as opened:
        assert type(opened) is CONTAINERS.get(path.name, type(opened))
        assert isinstance(opened, oc.records.Dict) == (expected["container"] == "dict")
        assert len(opened) == len(expected["rows"])
        rows = rows_of(opened)
        for number, (row, wanted) in enumerate(zip(rows, expected["rows"], strict=True)):
            assert make.described(row) == wanted, f"row {number}: {row!r}"
        assert opened.verify().bytes > 0
        again = pickle.loads(pickle.dumps(opened))
        assert [make.described(row) for row in rows_of(again)] == expected["rows"]


@pytest.mark.parametrize("name", FILES)
def test_a_golden_file_gives_exactly_the_values_that_were_written_and_verifies(name: str) -> None:
    check(FOLDER / name, expected_of(name))


@pytest.mark.parametrize("name", [name for name in FILES if not name.startswith("empty")])
def test_a_damaged_golden_file_does_not_verify(name: str, tmp_path: Path) -> None:
    """The checksums of the old file are compared with its bytes, and not merely accepted."""
    with onecopy.arrays.open_arrays(FOLDER / name) as file:
        at = next(entry.offset for entry in file.entries if entry.nbytes)
    content = bytearray((FOLDER / name).read_bytes())
    content[at] ^= 1
    (tmp_path / name).write_bytes(content)
    with onecopy.arrays.open_arrays(tmp_path / name) as file, pytest.raises(oc.ChecksumError):
        file.verify()


def test_every_key_of_a_golden_dict_is_found_by_its_index() -> None:
    with oc.open_records(FOLDER / "dict.oc") as opened:
        assert isinstance(opened, oc.records.Dict)
        for key, value in make.KEYS.items():
            if isinstance(key, float) and math.isnan(key):
                assert key not in opened
            else:
                assert same(opened[key], value), key
        assert "key 30" not in opened
        assert (1, "b") not in opened


def test_a_golden_table_gives_its_columns() -> None:
    with oc.open_records(FOLDER / "table.oc") as table:
        assert isinstance(table, oc.records.Table)
        assert table.columns == tuple(make.TABLE[0])
        for name in table.columns:
            assert same(list(table.column(name)), [row[name] for row in make.TABLE]), name
        taken = table.take([5, 0], ["id", "box"])
        assert taken["id"].tolist() == [500, 0]
        assert same(taken["box"].values, np.array(make.TABLE[5]["box"]))


def test_classes_of_a_golden_file_are_found_only_when_their_module_is_imported() -> None:
    """Opening executes no code: a stand-in says which module has to be imported."""
    said = run_python(
        """
        import sys
        sys.path.insert(0, sys.argv[1])
        import onecopy as oc
        import onecopy.arrays
        import onecopy.records
        rows = oc.open_records(sys.argv[2])
        print([row for row in rows if isinstance(row, onecopy.records.Unloaded)])
        import tests.golden.records.classes as classes
        print(classes.Colour.RED in list(rows))
        """,
        ROOT,
        FOLDER / "objects.oc",
    )
    assert f"import {classes.__name__}, then read it again" in said
    assert said.endswith("True\n")


def test_the_golden_files_hold_every_kind_of_the_format() -> None:
    found, widths = set(), set()
    for name in FILES:
        content = (FOLDER / name).read_bytes()
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        types = json.loads(header["__metadata__"]["onecopy"])["schema"]["types"]
        found |= {one["kind"] for one in types}
        widths |= {entry["dtype"] for path, entry in header.items() if path.endswith((".data", ".shape"))}
    assert found == KINDS
    assert widths >= {"I8", "I16", "I32", "I64", "F64", "U8", "U16", "U64"}


def test_no_golden_file_lacks_its_expectation_and_its_maker() -> None:
    assert sorted(path.name for path in FOLDER.glob("*.oc")) == FILES == sorted(make.GOLDEN)


@pytest.mark.parametrize("name", FILES)
def test_the_values_of_the_maker_are_those_of_the_expectation(name: str, tmp_path: Path) -> None:
    """Today's writer and reader agree with the expectation, so the maker has not drifted away from the files."""
    data = make.GOLDEN[name]
    assert make.expectation(data) == expected_of(name)["rows"]
    onecopy.records.save(tmp_path / name, data)
    check(tmp_path / name, expected_of(name))
