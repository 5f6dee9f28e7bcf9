"""A cached function is called once per machine for its inputs, its code and its arguments."""

import importlib
import json
import multiprocessing
import os
import pickle
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.calls import Calls

import onecopy as oc


@pytest.fixture
def calls(tmp_path: Path) -> Calls:
    return Calls(tmp_path / "calls")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([{"id": 1}, {"id": 2}]))
    return path


@pytest.fixture
def store(tmp_path: Path) -> oc.Store:
    return oc.Store(tmp_path / "store")


def test_a_function_is_called_once_for_its_inputs(source, store, calls):
    @oc.cached(inputs=[source], store=store)
    def rows() -> list[dict[str, int]]:
        """Return the rows."""
        calls.note("rows")
        return json.loads(source.read_text())

    assert [list(rows()), list(rows())] == [[{"id": 1}, {"id": 2}]] * 2
    assert isinstance(rows(), oc.records.Table)
    assert (calls(), rows.__name__, rows.__doc__) == (["rows"], "rows", "Return the rows.")
    assert rows.__wrapped__() == [{"id": 1}, {"id": 2}]
    source.write_text("[1]")
    assert list(rows()) == [1]
    assert [artefact.source for artefact in store.ls()] == [str(source)] * 2
    source.unlink()
    assert len(store.prune(missing_source=True).removed) == 2


def test_functions_of_two_modules_with_the_same_code_are_two(tmp_path, source, store, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("one_module", "other_module"):  # another value of a global
        (tmp_path / f"{name}.py").write_text("def word():\n    return [__name__]\n")
        word = importlib.import_module(name).word
        assert list(oc.cached(inputs=[source], store=store)(word)()) == [name]


def test_arguments_are_part_of_the_identity_however_they_are_passed(store, calls):
    @oc.cached(store=store)
    def numbers(stop: int, *, step: int = 1, names: frozenset[str] = frozenset()) -> list[int]:
        calls.note(stop)
        return list(range(0, stop, step))

    for _ in range(2):
        assert list(numbers(3)) == list(numbers(stop=3)) == list(numbers(3, step=1)) == [0, 1, 2]
    assert calls() == ["3"]
    assert list(numbers(4, step=2)) == [0, 2]
    assert list(numbers(3, names=frozenset("abc"))) == list(numbers(3, names=frozenset("cba")))
    assert calls() == ["3", "4", "3"]
    with pytest.raises(TypeError, match="stop"):
        numbers()  # type: ignore[call-arg]


def test_inputs_may_depend_on_arguments(tmp_path, store, calls):
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)

    @oc.cached(inputs=lambda folder, names: [folder / name for name in names], store=store)
    def contents(folder: Path, names: list[str]) -> list[str]:
        calls.note(names)
        return [(folder / name).read_text() for name in names]

    assert list(contents(tmp_path, ["a", "b"])) == ["a", "b"]
    (tmp_path / "b").write_text("B!")
    assert list(contents(tmp_path, ["a", "b"])) == ["a", "B!"]
    assert list(contents(tmp_path, ["a"])) == ["a"]
    assert len(calls()) == 3
    keys = [
        contents.key(tmp_path, ["a"]),
        contents.key(tmp_path, names=["a"]),
        contents.key(folder=tmp_path, names=["a"]),
    ]
    assert {contents.key(tmp_path, ["a", "b"])}.isdisjoint(keys)
    assert len(set(keys)) == 1


def test_objects_are_loaded_from_a_mapped_file(source, store, calls):
    @oc.cached(inputs=[source], codec="object", store=store)
    def table() -> dict[str, Any]:
        calls.note("table")
        return {"a": np.arange(1000), "b": "text"}

    assert (table()["a"][-1], table()["b"], calls()) == (999, "text", ["table"])
    assert not table()["a"].flags.writeable
    assert store.prune(missing_source=True).removed == []
    source.unlink()
    assert len(store.prune(missing_source=True).removed) == 1


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("which", [0, 1])
def test_an_input_that_changes_while_it_is_read_is_an_error_and_nothing_is_kept(tmp_path, store, which, lazy):
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.write_text("old")

    def change() -> list[int]:
        paths[which].write_text("new content")
        return [1]

    rows = oc.cached(inputs=paths, store=store)(lambda: (one for _ in "." for one in change()) if lazy else change())
    with pytest.raises(oc.errors.FileChanged, match=re.escape(str(paths[which]))):
        rows()
    assert [artefact for artefact in store.ls() if artefact.state == "ready"] == []
    assert list(oc.cached(inputs=paths, store=store)(lambda: [2])()) == [2]


def test_wrong_uses_are_errors_that_name_them(source, store):
    lock = threading.Lock()
    with pytest.raises(TypeError, match=r"'lock' of the function cannot have one: a lock cannot be pickled"):
        oc.cached(inputs=[source], store=store)(lambda: [lock])()
    with pytest.raises(TypeError, match="the arguments of the function cannot have one: a lock cannot be pickled"):
        oc.cached(store=store)(lambda given: [given])(lock)
    with pytest.raises(TypeError, match="inputs must be a list, not one path"):
        oc.cached(inputs=str(source), store=store)(lambda: [1])()
    for name, error in (("none", FileNotFoundError), (".", IsADirectoryError)):
        with pytest.raises(error):
            oc.cached(inputs=[source.parent / name], store=store)(lambda: [1])()
    with pytest.raises(ValueError, match="codec must be"):
        oc.cached(codec="pickle")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="progress"):
        oc.cached(codec="object", progress=print)  # type: ignore[call-overload]
    assert store.ls() == []


def test_a_generator_of_inputs_is_read_once(source, store, calls):
    @oc.cached(inputs=(path for path in [source]), store=store)
    def contents() -> list[str]:
        calls.note("contents")
        return [source.read_text()]

    assert list(contents()) == list(contents())
    source.write_text("B")
    assert list(contents()) == ["B"]
    assert len(calls()) == 2


class Reader:
    def __init__(self, word: str, store: oc.Store) -> None:
        self.word = word
        self.cached_rows = oc.cached(store=store)(self.rows)

    def rows(self) -> list[str]:
        return [self.word]


def test_methods_are_cached_by_the_class_and_the_attributes_of_their_object(store, calls):
    class Words:
        def __init__(self, word: str) -> None:
            self.word = word

        @oc.cached(store=store)
        def repeated(self, count: int = 1) -> list[str]:
            calls.note(self.word)
            return [self.word] * count

    assert [list(Words("a").repeated(2)), list(Words("b").repeated())] == [["a", "a"], ["b"]]
    assert list(Words("a").repeated(count=2)) == ["a", "a"]
    assert calls() == ["a", "b"]
    assert list(Words.repeated(Words("c"))) == ["c"]
    assert [list(Reader(word, store).cached_rows()) for word in "ab"] == [["a"], ["b"]]


def test_a_function_can_be_decorated_without_parentheses(tmp_path, monkeypatch):
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path))

    @oc.cached
    def rows() -> list[int]:
        return [1, 2]

    assert list(rows()) == [1, 2]
    assert oc.cached(lambda: {"a": 1})()["a"] == 1
    with pytest.raises(TypeError, match=r"cached decorates a function, not '.*': pass paths as inputs="):
        oc.cached("rows.json")  # type: ignore[call-overload]


def test_a_function_that_calls_a_cached_function_changes_with_it_its_version_and_its_inputs(source, store):
    def made(word: str, version: str = "1") -> list[str]:
        inner = oc.cached(inputs=[source], version=version, store=store)(lambda: [word, source.read_text()])
        return list(oc.cached(store=store)(lambda: [*inner(), "outer"])())

    source.write_text("old")
    for _ in range(2):
        assert [made("a"), made("b"), made("a", "2")] == [[word, "old", "outer"] for word in "aba"]
    assert len(store.ls()) == 6
    source.write_text("new")
    assert made("a") == ["a", "new", "outer"]


def test_keys_are_text():
    for call in (oc.share, oc.share_object):
        with pytest.raises(TypeError, match=r"not 5.*key='5'"):
            call(lambda: [1], key=5)  # type: ignore[operator]


@oc.cached(inputs=[__file__], store=os.environ.get("TEST_CACHED_STORE", "/nonexistent"))
def of_this_module(count: int) -> list[int]:
    return [os.getpid()] * count


@pytest.mark.processes
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_decorated_function_can_be_sent_to_workers_which_share_its_result(tmp_path, monkeypatch, method):
    monkeypatch.setenv("TEST_CACHED_STORE", str(tmp_path / "store"))
    assert pickle.loads(pickle.dumps(of_this_module)) is of_this_module
    context: Any = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        results = pool.map(of_this_module, [3, 3, 3, 3], chunksize=1)
    assert len({tuple(rows) for rows in results}) == 1
