"""Records in pages that a truncated file has lost: zeros that no call takes for values."""

import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.children import in_a_child

import onecopy as oc
import onecopy.records

Calls = Mapping[str, Callable[[Any], object]]

OF_ROWS: Calls = {
    "a row": lambda rows: rows[-1],
    "the next row": lambda rows: next(reversed(rows)),
    "several rows": lambda rows: rows.rows([-1]),
    "columns": lambda rows: rows.take([-1]),
    "a column": lambda rows: rows.column("number").numpy(),
    "a lazy value": lambda rows: rows.lazy[-1]["number"],
    "the length of a lazy list": lambda rows: len(rows.lazy[-1].words),
    "a copy of a lazy row": lambda rows: rows.lazy[-1].copy(),
    "Arrow": lambda rows: rows.__arrow_c_stream__(),
    "everything": lambda rows: rows.verify(),
}
OF_DICT: Calls = {
    "a value": lambda pairs: pairs["key 19999"],
    "no key": lambda pairs: pairs.get("none"),
    "keys": list,
}


@pytest.mark.parametrize("calls", [OF_ROWS, OF_DICT])
@in_a_child
def test_values_in_lost_pages_are_errors_however_they_are_read(tmp_path: Path, calls: Calls) -> None:
    path = tmp_path / "rows.oc"
    rows = [{"number": number, "words": [f"text {number}"]} for number in range(20_000)]
    oc.records.save(path, rows if calls is OF_ROWS else {f"key {row['number']}": row for row in rows})
    oc.files.guard()
    opened = oc.open_records(path)
    os.truncate(path, 4096)
    for name, call in calls.items():
        with pytest.raises(oc.DataLost) as raised:
            call(opened)
        assert (name, raised.value.errno, raised.value.filename) == (name, errno.EIO, str(path))
