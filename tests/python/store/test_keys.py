"""A key names the data and the function that makes it: two functions under one key never answer for each other."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import onecopy as oc
import onecopy.records


def annotations() -> list[str]:
    return ["annotation"]


def categories() -> list[str]:
    return ["category"]


class Loader:
    def __init__(self, name: str) -> None:
        self.name = name

    def load(self) -> list[str]:
        return [self.name]

    def __call__(self) -> list[str]:
        return [self.name]


PAIRS = [(annotations, categories), (Loader("annotation").load, Loader("category").load)]
PAIRS += [(Loader("annotation"), Loader("category"))]


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=["functions", "methods", "callable objects"])
def test_two_functions_under_one_key_are_two_artefacts(tmp_path: Path, first: Any, second: Any) -> None:
    for _ in range(2):
        assert list(oc.share(first, "labels.json", store=tmp_path / "store")) == ["annotation"]
        assert list(oc.share(second, "labels.json", store=tmp_path / "store")) == ["category"]
    assert len(oc.Store(tmp_path / "store").ls()) == 2


@pytest.mark.parametrize("made", [lambda read: read, lambda read: read()], ids=["a function", "an iterator"])
def test_tables_of_one_file_under_the_key_of_the_file(tmp_path: Path, made: Callable[[Any], Any]) -> None:
    """As the README does it with COCO, whose files have three tables."""
    path = tmp_path / "instances.json"
    path.write_text(json.dumps({"images": [{"id": 1}], "annotations": [{"id": 7}, {"id": 8}]}))
    for is_built in (True, False):
        for name, ids in (("images", [1]), ("annotations", [7, 8])):
            rows = made(lambda name=name: onecopy.records.json_rows(path, name))
            table = oc.share(rows, oc.file_key(path), store=tmp_path / "store")
            assert [row["id"] for row in table] == ids
            assert table.report is None or table.report.built == is_built


def test_a_list_of_another_length_under_a_key_is_refused(tmp_path: Path) -> None:
    oc.share([1, 2, 3], "k", store=tmp_path / "store")
    assert oc.share([1, 2, 3], "k", store=tmp_path / "store")[2] == 3
    with pytest.raises(ValueError, match="key 'k' refers to data with 3 rows, but `data` has 2 rows"):
        oc.share([1, 2], "k", store=tmp_path / "store")
