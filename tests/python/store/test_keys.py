"""A key names the data and the function that makes it: two functions under one key never answer for each other."""

import functools
import json
import operator
import os
import pathlib
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.places import ROOT

import onecopy as oc
import onecopy.records
from onecopy.store.keys import name_of

TABLE = "images"
FOLDER = Path("/data")


def annotations() -> list[str]:
    return ["annotation"]


def categories() -> list[str]:
    return ["category"]


def table_of(name: str) -> Callable[[], list[str]]:
    return lambda: [name]


def with_default(name: str) -> Callable[[], list[str]]:
    def build(what: str = name) -> list[str]:
        return [what]

    return build


class Loader:
    def __init__(self, name: str) -> None:
        self.name = name

    def load(self) -> list[str]:
        return [self.name]

    def __call__(self) -> list[str]:
        return [self.name]


def nested(name: str) -> Callable[[], list[str]]:
    inner = table_of(name)
    return lambda: [*inner()]


PAIRS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "functions": (annotations, categories),
    "lambdas": (lambda: ["annotation"], lambda: ["category"]),
    "what is closed over": (table_of("annotation"), table_of("category")),
    "what an inner function closes over": (nested("annotation"), nested("category")),
    "defaults": (with_default("annotation"), with_default("category")),
    "partial functions": (functools.partial(list, ("annotation",)), functools.partial(list, ("category",))),
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


def test_a_name_is_the_same_for_the_same_function() -> None:
    assert name_of(table_of("a")) == name_of(table_of("a"))
    assert name_of(Loader("a").load) == name_of(Loader("a").load)
    assert name_of(annotations).partition(" ")[0] == "annotations"
    assert name_of(functools.partial(operator.add, 1, 2)).partition(" ")[0] == "add"


def test_values_of_the_module_count(monkeypatch: pytest.MonkeyPatch) -> None:
    build = lambda: [TABLE, FOLDER]  # noqa: E731
    names = {name_of(build)}
    monkeypatch.setitem(globals(), "TABLE", "annotations")
    names.add(name_of(build))
    monkeypatch.setitem(globals(), "FOLDER", pathlib.Path("/other"))
    names.add(name_of(build))
    assert len(names) == 3


def test_values_without_a_stable_identity_are_refused(tmp_path: Path) -> None:
    lock = threading.Lock()
    with pytest.raises(TypeError, match=r"'lock' of the function, a lock, cannot be pickled"):
        oc.share(lambda: [lock.locked()], "k", store=tmp_path / "store")
    assert oc.share(lambda: [lock.locked()])[0] is False  # without a key, all calls share one artefact


def test_functions_that_refer_to_themselves_have_a_name() -> None:
    def count(n: int = 3) -> list[int]:
        return [n, *count(n - 1)] if n else []

    assert name_of(count) == name_of(count)


def test_a_name_is_the_same_in_every_process() -> None:
    """Whatever the seed of hashes, on which the order of sets depends."""
    code = (
        "import sys; sys.path.insert(0, '.')\n"
        "from onecopy.store.keys import name_of\n"
        "def build(names):\n"
        "    return lambda: [x for x in names if x in {'a', 'b', 'c', 'd', 'e'}]\n"
        "print(name_of(build({'x': {'f', 'g', 'h', 'i'}})))"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(said) == 1


def test_a_list_of_another_length_under_a_key_is_refused(tmp_path: Path) -> None:
    oc.share([1, 2, 3], "k", store=tmp_path / "store")
    assert oc.share([1, 2, 3], "k", store=tmp_path / "store")[2] == 3
    with pytest.raises(ValueError, match="key 'k' refers to data with 3 rows, but 2 rows were given"):
        oc.share([1, 2], "k", store=tmp_path / "store")
