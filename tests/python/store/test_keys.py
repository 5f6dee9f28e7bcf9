"""A key names the data and the function that makes it: two functions under one key never answer for each other."""

import json
import threading
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


PAIRS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "functions": (annotations, categories),
    "methods": (Loader("annotation").load, Loader("category").load),
    "callable objects": (Loader("annotation"), Loader("category")),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_two_functions_under_one_key_are_two_artefacts(tmp_path: Path, pair: str) -> None:
    first, second = PAIRS[pair]
    for _ in range(2):
        assert list(oc.share(first, "labels.json", store=tmp_path / "store")) == ["annotation"]
        assert list(oc.share(second, "labels.json", store=tmp_path / "store")) == ["category"]
    assert len(oc.Store(tmp_path / "store").ls()) == 2


def test_tables_of_one_file_under_the_key_of_the_file(tmp_path: Path) -> None:
    """As the README does it with COCO, whose files have three tables."""
    path = tmp_path / "instances.json"
    path.write_text(json.dumps({"images": [{"id": 1}], "annotations": [{"id": 7}, {"id": 8}]}))
    key, folder = oc.file_key(path), tmp_path / "store"
    images = oc.share(lambda: onecopy.records.json_rows(path, "images"), key, store=folder)
    boxes = oc.share(lambda: onecopy.records.json_rows(path, "annotations"), key, store=folder)
    assert ([row["id"] for row in images], [row["id"] for row in boxes]) == ([1], [7, 8])
    images = oc.share(onecopy.records.json_rows(path, "images"), key, store=folder)
    boxes = oc.share(onecopy.records.json_rows(path, "annotations"), key, store=folder)
    assert ([row["id"] for row in images], [row["id"] for row in boxes]) == ([1], [7, 8])
    again = oc.share(onecopy.records.json_rows(path, "annotations"), key, store=folder)
    assert again.report is not None
    assert not again.report.built


def test_values_without_a_stable_identity_are_refused(tmp_path: Path) -> None:
    lock = threading.Lock()
    with pytest.raises(TypeError, match=r"'lock' of the function, a lock, cannot be pickled"):
        oc.share(lambda: [lock.locked()], "k", store=tmp_path / "store")
    assert oc.share(lambda: [lock.locked()])[0] is False  # without a key, all calls share one artefact


def test_a_list_of_another_length_under_a_key_is_refused(tmp_path: Path) -> None:
    oc.share([1, 2, 3], "k", store=tmp_path / "store")
    assert oc.share([1, 2, 3], "k", store=tmp_path / "store")[2] == 3
    with pytest.raises(ValueError, match="key 'k' refers to data with 3 rows, but `data` has 2 rows"):
        oc.share([1, 2], "k", store=tmp_path / "store")
