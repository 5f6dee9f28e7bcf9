"""Records in pages that a truncated file has lost: zeros that no call takes for values."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.children import in_a_child

import onecopy as oc
import onecopy.records

Calls = dict[str, Callable[[Any, Any], object]]

OF_ROWS: Calls = {
    "a row": lambda rows, _: rows[-1],
    "the next row": lambda rows, _: next(reversed(rows)),
    "several rows": lambda rows, _: rows.rows([-1]),
    "columns": lambda rows, _: rows.take([-1]),
    "a column": lambda rows, _: rows.column("number").numpy(),
    "Arrow": lambda rows, _: rows.__arrow_c_stream__(),
    "a lazy row": lambda rows, _: rows.lazy[-1].number,
}
OF_DICT: Calls = {
    "a value": lambda pairs, _: pairs["key 19999"],
    "no key": lambda pairs, _: pairs.get("none"),
    "keys": lambda pairs, _: list(pairs),
}
OF_LAZY: Calls = {
    "a copy of a lazy list": lambda _, words: words.copy(),
    "its length": lambda _, words: len(words),
    "its items": lambda _, words: list(words),
}


@pytest.mark.parametrize("calls", [OF_ROWS, OF_DICT])
@in_a_child
def test_values_in_lost_pages_are_errors_however_they_are_read(tmp_path: Path, calls: Calls) -> None:
    path = tmp_path / "rows.oc"
    rows = [{"number": number, "words": [f"text {number}"]} for number in range(20_000)]
    oc.records.save(path, rows if calls is OF_ROWS else {f"key {row['number']}": row for row in rows})
    oc.files.guard()
    opened: Any = oc.open_records(path)
    words = opened.lazy[-1 if calls is OF_ROWS else "key 19999"].words
    os.truncate(path, 4096)
    for name, call in (calls | OF_LAZY).items():
        with pytest.raises(oc.DataLost) as raised:
            call(opened, words)
        assert (name, raised.value.errno, raised.value.filename) == (name, errno.EIO, str(path))
