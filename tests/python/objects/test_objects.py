"""Objects come back from their files as they were, on pages of the file; nothing runs without trust."""

import gc
import json
import logging
import pickle
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp
from tests.support.calls import Calls
from tests.support.objects import ABOUT, ARRAYS, RAN, Model, Runs, model

import onecopy as oc
from onecopy.base.load_report import LoadReport


class Copies:
    """An object that copies its array when it is loaded, as the trees of scikit-learn do."""

    def __init__(self, nodes: Any) -> None:
        self.nodes = nodes

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.nodes = state["nodes"].copy()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "object.oc"


def round_trip(path: Path, value: Any, **options: Any) -> tuple[Any, LoadReport]:
    reports: list[LoadReport] = []
    oc.save_object(path, value)
    return oc.load_object(path, trusted=True, report=reports.append, **options), reports[0]


# --- what comes back --------------------------------------------------------------------------------------------------


def test_nested_dataclasses_come_back_with_views_of_the_file(path):
    loaded, report = round_trip(path, model())
    for mine, other in zip(loaded.layers, model().layers, strict=True):
        assert mine.name == other.name
        for array, expected in ((mine.weight, other.weight), (mine.bias, other.bias)):
            assert np.array_equal(array, expected)
            assert not array.flags.writeable  # small arrays are read-only as large ones are
    assert loaded.labels == {"cat": 0, "dog": 1}
    assert report.mapped == 2 * (96_000 + 28)
    assert [one.name for one in report.copied] == ["object.pickle"]


def test_small_arrays_begin_at_multiples_of_16_bytes(path):
    loaded, _ = round_trip(path, [np.full(size, size, np.uint8) for size in range(1, 40)] + [np.ones(2)])
    assert [array.ctypes.data % 16 for array in loaded] == [0] * 40
    assert [array[-1] for array in loaded] == [*range(1, 40), 1]


@given(
    array=hnp.arrays(
        dtype=st.one_of(hnp.scalar_dtypes(), hnp.unicode_string_dtypes(), hnp.nested_dtypes(max_itemsize=64)),
        shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=40),
    ),
    turned=st.booleans(),
    step=st.sampled_from([1, 2, -1]),
)
def test_every_array_comes_back_with_its_type_shape_order_and_bytes(tmp_path_factory, array, turned, step):
    path = tmp_path_factory.mktemp("objects") / "array.oc"
    array = array.T if turned else array
    array = array[::step] if array.ndim else array
    loaded, _ = round_trip(path, [array, array])
    assert loaded[0] is loaded[1]
    assert (loaded[0].dtype, loaded[0].shape) == (array.dtype, array.shape)
    assert loaded[0].tobytes("A") == array.tobytes("A") or array.dtype.hasobject
    if array.flags.forc:
        flags = (array.flags.c_contiguous, array.flags.f_contiguous)
        assert (loaded[0].flags.c_contiguous, loaded[0].flags.f_contiguous) == flags


NAMED = {
    "fortran": (np.asfortranarray(np.ones((30, 50))), "fortran", "F64", (50, 30)),
    "times": (np.arange(300).astype("M8[s]"), "times", "U8", (300, 8)),
    "big endian": (np.arange(400, dtype=">f4"), "big endian", "U8", (400, 4)),
    "bf16": (np.ones(600, ml_dtypes.bfloat16), "bf16", "BF16", (600,)),
    3: (np.zeros(200), "3", "F64", (200,)),
    "#hidden": (np.zeros(250), "array #hidden", "F64", (250,)),
    "object.pickle": (np.zeros(251), "object.pickle (2)", "F64", (251,)),
    "\udcff": (np.zeros(252), "\\udcff", "F64", (252,)),
    "rows": ([np.zeros(128)], "rows[0]", "F64", (128,)),
    "model": (model(), "model.layers[1].weight", "F64", (60, 200)),
}
"""Values in an object, each with the name of an array in the file, its type and its shape."""


def test_open_shows_the_arrays_by_their_paths_and_runs_nothing(path):
    RAN.clear()
    oc.save_object(path, {key: value for key, (value, *_) in NAMED.items()} | {"runs": Runs()})
    with oc.open(path) as file:
        shapes = {entry.name: (entry.dtype, entry.shape) for entry in file.entries}
        assert file.kind == "arrays"
        assert np.array_equal(file["model.layers[1].weight"], model().layers[1].weight)
        file.verify()
    assert RAN == []
    own = {"object.pickle", "object.buffers", "object.small", "model.layers[0].weight"}
    assert {name: shapes[name] for name in shapes.keys() - own} == {
        name: (dtype, shape) for _, name, dtype, shape in NAMED.values()
    }
    assert own < shapes.keys()


def test_private_arrays_are_writable_and_the_file_stays(path):
    frozen = np.arange(10_000.0)
    frozen.flags.writeable = False
    loaded, _ = round_trip(path, {"a": frozen.copy(), "small": np.ones(3), "frozen": frozen}, private=True)
    before = path.read_bytes()
    for name in ("a", "small"):
        loaded[name][:] = 7
        assert loaded[name][0] == 7
    assert path.read_bytes() == before
    assert oc.load_object(path, trusted=True)["a"][5] == 5
    assert not loaded["frozen"].flags.writeable  # as it was saved


def test_ls_shows_the_class_and_the_arrays_of_an_object_and_runs_nothing(path, onecopy_command):
    RAN.clear()
    oc.save_object(path, model())
    shown = onecopy_command("ls", path).stdout.splitlines()
    assert shown[0] == f"{path}: safetensors, object of class {Model.__module__}.Model, onecopy arrays"
    assert any(line.startswith("layers[1].weight  F64") for line in shown)
    oc.save(path, ARRAYS, {"onecopy.object": json.dumps(ABOUT | {"type": "\x1b[31m"})})
    assert "\x1b" not in onecopy_command("ls", path).stdout
    oc.save(path, ARRAYS, {"onecopy.object": "{"})
    assert onecopy_command("ls", path).stdout.splitlines()[0] == f"{path}: safetensors, onecopy arrays"


def test_mapped_and_unusual_arrays(path, tmp_path):
    np.save(tmp_path / "a.npy", np.arange(5000))
    values = {
        "memmap": np.load(tmp_path / "a.npy", mmap_mode="r"),
        "objects": np.array([1, "a", None], object),
        "masked": np.ma.masked_array(np.arange(500), np.arange(500) % 2),
        "record": np.zeros(100, [("a", "i4"), ("b", "f8")]).view(np.recarray),
        "empty dtype": np.zeros(5, "V0"),
    }
    loaded, report = round_trip(path, values)
    assert type(loaded["memmap"]) is np.ndarray
    assert loaded["memmap"].tolist() == list(range(5000))
    assert loaded["objects"].tolist() == [1, "a", None]
    assert loaded["masked"].sum() == values["masked"].sum()
    assert loaded["record"].b.tolist() == [0.0] * 100
    assert loaded["empty dtype"].shape == (5,)
    assert report.mapped == 40_000  # the subclasses are in the pickle


def test_a_view_keeps_the_file_mapped_and_nothing_else_is_kept(path):
    oc.save_object(path, model())
    weight = oc.load_object(path, trusted=True).layers[0].weight
    assert str(path) in Path("/proc/self/maps").read_text()
    path.unlink()
    assert weight[59, 199] == 11_999
    del weight
    assert str(path) not in Path("/proc/self/maps").read_text()


def test_what_a_class_copies_is_reported_and_logged(path, caplog):
    loaded, report = round_trip(path, {"tree": Copies(np.zeros(300_000)), "kept": np.zeros(1000)})
    assert report.mapped == 8000
    assert report.copied[0][:2] == ("tree.nodes", 2_400_000)
    first, second, third = str(report).splitlines()
    assert first == f"{path}: 8.00 kB mapped, 2.40 MB copied"
    assert second == "  tree.nodes, 2.40 MB: copied by the object's classes"
    assert third.startswith("  object.pickle, ")
    with caplog.at_level(logging.WARNING, "onecopy"):
        oc.load_object(path, trusted=True)
    assert "tree.nodes, 2.40 MB" in caplog.text
    assert loaded["tree"].nodes.flags.owndata


# --- once per machine -------------------------------------------------------------------------------------------------


def test_an_object_is_built_once_and_every_call_loads_the_same_file(tmp_path):
    store, calls = oc.Store(tmp_path / "store"), Calls(tmp_path / "calls")

    def build() -> Model:
        calls.note("built")
        return model()

    first, second = (oc.share_object(build, "k", store=store) for _ in range(2))
    assert len(calls()) == 1
    assert np.array_equal(first.layers[0].weight, second.layers[0].weight)
    assert not first.layers[0].weight.flags.owndata  # the builder uses the file as well
    oc.share_object(build, "l", store=store)
    assert (len(calls()), oc.share_object(lambda: [1], "k", store=store)) == (2, [1])
    assert oc.share_object(build, "k", store=store, private=True).layers[0].weight.flags.writeable


def test_another_version_of_a_package_builds_the_object_again(tmp_path, monkeypatch):
    """Also of a package that the function does not name: those of the classes that the object has are known later."""
    store, calls, data = oc.Store(tmp_path / "store"), Calls(tmp_path / "calls"), pickle.dumps(model())

    def build() -> Any:
        calls.note("built")
        return pickle.loads(data)

    oc.share_object(build, "k", store=store)
    monkeypatch.setattr(np, "__version__", "99.0")
    for _ in range(2):
        oc.share_object(build, "k", store=store)
    assert len(calls()) == 2
    assert sum("numpy 99.0" in artefact.key for artefact in store.ls()) == 1
    monkeypatch.undo()
    oc.share_object(build, "k", store=store)
    assert len(calls()) == 2


def test_what_a_factory_raises_is_passed_on_and_nothing_is_left(tmp_path):
    store = oc.Store(tmp_path / "store")

    def fail() -> None:
        raise LookupError("no such model")

    with pytest.raises(LookupError, match="no such model"):
        oc.share_object(fail, "k", store=store)
    with pytest.raises(TypeError, match=r"expects a function that returns the object, not a dict: use lambda: data"):
        oc.share_object({"a": 1}, "k", store=store)  # type: ignore[type-var]
    assert store.ls() == []


def test_saving_keeps_no_view_of_the_memory_until_the_garbage_is_collected(path):
    """The collector clears views in cycles while they are exported, which crashes classes of compiled modules."""
    data = bytearray(5000)
    gc.disable()
    try:
        oc.save_object(path, {"view": np.frombuffer(data, np.uint8), "list": [np.frombuffer(data, np.uint16)]})
        data.append(1)  # BufferError while a view exists
    finally:
        gc.enable()
