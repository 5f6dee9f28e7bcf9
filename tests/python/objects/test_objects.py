"""Objects come back from their files as they were, on pages of the file; nothing runs without trust."""

import dataclasses
import errno
import json
import logging
import os
import pickle
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import onecopy as oc
from onecopy.objects import Copied, LoadReport

RAN: list[str] = []


@dataclasses.dataclass
class Layer:
    weight: Any
    bias: Any
    name: str = ""


@dataclasses.dataclass
class Model:
    layers: list[Layer]
    labels: dict[str, int]


def run() -> None:
    RAN.append("ran")


class Runs:
    """An object whose unpickling runs code."""

    def __reduce__(self) -> tuple[Any, ...]:
        return run, ()


class Copies:
    """An object that copies its array when it is loaded, as the trees of scikit-learn do."""

    def __init__(self, nodes: Any) -> None:
        self.nodes = nodes

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.nodes = state["nodes"].copy()


def model() -> Model:
    layers = [Layer(np.arange(12_000.0).reshape(60, 200) + i, np.ones(7, np.float32), f"layer {i}") for i in range(2)]
    return Model(layers, {"cat": 0, "dog": 1})


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
        assert (mine.name, mine.weight.tolist(), mine.bias.tolist()) == (
            other.name,
            other.weight.tolist(),
            other.bias.tolist(),
        )
        assert not mine.weight.flags.writeable
        assert not mine.bias.flags.writeable  # small arrays are read-only as large ones are
    assert loaded.labels == {"cat": 0, "dog": 1}
    assert report.shared == 2 * (96_000 + 28)
    assert [one.name for one in report.copied] == ["object.pickle"]


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
    if array.flags.c_contiguous or array.flags.f_contiguous:
        assert (loaded[0].flags.c_contiguous, loaded[0].flags.f_contiguous) == (
            array.flags.c_contiguous,
            array.flags.f_contiguous,
        )


def test_open_shows_the_arrays_by_their_paths_and_runs_nothing(path):
    RAN.clear()
    values = {
        "model": model(),
        "runs": Runs(),
        "fortran": np.asfortranarray(np.ones((30, 50))),
        "times": np.arange(300).astype("M8[s]"),
        "big endian": np.arange(400, dtype=">f4"),
        "bf16": np.ones(600, ml_dtypes.bfloat16),
        "rows": [np.zeros(128), np.zeros(129)],
        3: np.zeros(200),
        "#hidden": np.zeros(250),
        "object.pickle": np.zeros(251),
        "\udcff": np.zeros(252),
    }
    oc.save_object(path, values)
    with oc.open(path) as file:
        shapes = {entry.name: (entry.dtype, entry.shape) for entry in file.entries}
        assert file.kind == "arrays"
        assert np.array_equal(file["model.layers[1].weight"], model().layers[1].weight)
        file.verify()
    assert RAN == []
    own = {name for name in shapes if name in {"object.pickle", "object.buffers", "object.small"}}
    assert len(own) == 3
    assert {name: facts for name, facts in shapes.items() if name not in own} == {
        "model.layers[0].weight": ("F64", (60, 200)),
        "model.layers[1].weight": ("F64", (60, 200)),
        "fortran": ("F64", (50, 30)),
        "times": ("U8", (300, 8)),
        "big endian": ("U8", (400, 4)),
        "bf16": ("BF16", (600,)),
        "rows[0]": ("F64", (128,)),
        "rows[1]": ("F64", (129,)),
        "3": ("F64", (200,)),
        "array #hidden": ("F64", (250,)),
        "object.pickle (2)": ("F64", (251,)),
        "\\udcff": ("F64", (252,)),
    }


def test_private_arrays_are_writable_and_the_file_stays(path):
    content = np.arange(10_000.0)
    frozen = content.copy()
    frozen.flags.writeable = False
    loaded, _ = round_trip(path, {"a": content, "small": np.ones(3), "frozen": frozen}, private=True)
    before = path.read_bytes()
    loaded["a"][:] = 7
    loaded["small"][:] = 7
    assert path.read_bytes() == before
    assert oc.load_object(path, trusted=True)["a"][5] == 5
    assert not loaded["frozen"].flags.writeable  # as it was saved
    assert loaded["a"][0] == 7


def test_ls_shows_the_class_and_the_arrays_of_an_object_and_runs_nothing(path, onecopy_process):
    RAN.clear()
    oc.save_object(path, model())
    shown = onecopy_process("ls", path).stdout.splitlines()
    assert shown[0] == f"{path}: safetensors, object of the class {__name__}.Model, arrays of onecopy"
    assert any(line.startswith("layers[1].weight  F64") for line in shown)
    oc.save(path, ARRAYS, {"onecopy.object": json.dumps(ABOUT | {"type": "\x1b[31m"})})
    assert "\x1b" not in onecopy_process("ls", path).stdout
    oc.save(path, ARRAYS, {"onecopy.object": "{"})
    assert onecopy_process("ls", path).stdout.splitlines()[0] == f"{path}: safetensors, arrays of onecopy"


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
    assert report.shared == 40_000  # the subclasses are in the pickle


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
    assert report.shared == 8000
    assert report.copied[0] == Copied("tree.nodes", 2_400_000)
    assert str(report).startswith(f"{path}: 8.00 kB shared, 2.40 MB copied: 'tree.nodes' 2.40 MB, 'object.pickle' ")
    with caplog.at_level(logging.WARNING, "onecopy"):
        oc.load_object(path, trusted=True)
    assert "'tree.nodes' 2.40 MB" in caplog.text
    assert loaded["tree"].nodes.flags.owndata


# --- trust and hostile files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trusted", [False, 1, "yes", None])
def test_nothing_is_opened_without_trust(path, trusted):
    RAN.clear()
    oc.save_object(path, Runs())
    with pytest.raises(ValueError, match=r"unpickles .*object\.oc, which runs code .* trusted=True"):
        oc.load_object(path, trusted=trusted)
    with pytest.raises(TypeError):
        oc.load_object(path)  # type: ignore[call-arg]
    assert RAN == []
    oc.load_object(path, trusted=True)
    assert RAN == ["ran"]


def test_a_damaged_pickle_is_a_checksum_error_and_nothing_runs(path):
    RAN.clear()
    oc.save_object(path, [Runs(), np.zeros(1 << 20)])
    entry = oc.open(path).entry("object.pickle")
    for at in range(entry.offset, entry.offset + entry.nbytes, 7):
        flip(path, at)
        with pytest.raises(oc.ChecksumError, match=str(path)):
            oc.load_object(path, trusted=True)
        flip(path, at)
    assert RAN == []


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 4]))


def test_a_cut_file_is_an_error(path):
    oc.save_object(path, model())
    content = path.read_bytes()
    for length in (0, 7, 100, 5000, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises((oc.FormatError, OSError), match=str(path)):
            oc.load_object(path, trusted=True)


def test_other_files_are_refused_by_name(path, tmp_path):
    oc.save(path, {"a": np.zeros(3)})
    with pytest.raises(oc.FormatError, match=r"not a file of an object: .*onecopy\.open reads arrays"):
        oc.load_object(path, trusted=True)
    with pytest.raises(FileNotFoundError):
        oc.load_object(tmp_path / "none.oc", trusted=True)
    from onecopy import records

    records.save(path, ["a"])
    with pytest.raises(oc.FormatError, match="holds records"):
        oc.load_object(path, trusted=True)


ABOUT = {"version": 1, "type": "builtins.list", "arrays": ["a"], "python": "3.11", "packages": {}}
ARRAYS = {
    "object.pickle": np.frombuffer(pickle.dumps([1]), np.uint8),
    "object.buffers": np.array([[1, 0, 24, 0]]),
    "object.small": np.zeros(16, np.uint8),
    "a": np.zeros(3),
}


@pytest.mark.parametrize(
    ("about", "arrays", "message"),
    [
        (ABOUT, {"object.buffers": np.array([[1, 0, 25, 0]])}, "row 0 of 'object.buffers' is outside"),
        (ABOUT, {"object.buffers": np.array([[1, -8, 8, 0]])}, "row 0 .* outside"),
        (ABOUT, {"object.buffers": np.array([[1, 2**62, 2**62, 0]])}, "row 0 .* outside"),
        (ABOUT, {"object.buffers": np.array([[1, 8, 2**63 - 1, 0]])}, "row 0 .* outside"),
        (ABOUT, {"object.buffers": np.array([[1, 0, 8, 0], [2, 0, 8, 0]])}, "row 1 .* outside"),
        (ABOUT, {"object.buffers": np.array([[-1, 0, 8, 0]])}, "row 0 .* outside"),
        (ABOUT, {"object.buffers": np.array([[0, 10, 8, 0]])}, "row 0 .* outside"),
        (ABOUT, {"object.buffers": np.zeros((1, 3), np.int64)}, "type I64 and shape"),
        (ABOUT, {"object.buffers": np.zeros(4, np.int64)}, "type I64 and shape"),
        (ABOUT, {"object.buffers": np.zeros((1, 4))}, "type I64 and shape"),
        (ABOUT, {"object.small": None}, "'object.small' is missing"),
        (ABOUT, {"a": None}, "'a' is missing"),
        (ABOUT | {"version": 2}, {}, "newer onecopy: version 2"),
        (ABOUT | {"arrays": [3]}, {}, "wrong types"),
        (ABOUT | {"arrays": "a"}, {}, "wrong types"),
        (ABOUT | {"packages": ["numpy"]}, {}, "wrong types"),
        ([1], {}, "has no description"),
        ({"version": 1}, {}, "has no description"),
    ],
)
def test_a_wrong_description_is_refused_before_anything_is_unpickled(path, about, arrays, message):
    RAN.clear()
    chosen = {**ARRAYS, "object.pickle": np.frombuffer(pickle.dumps(Runs()), np.uint8), **arrays}
    given = {name: array for name, array in chosen.items() if array is not None}
    oc.save(path, given, {"onecopy.object": json.dumps(about)}, 64)
    with pytest.raises(oc.FormatError, match=message):
        oc.load_object(path, trusted=True)
    assert RAN == []


def test_the_valid_description_of_the_test_above_loads(path):
    oc.save(path, ARRAYS, {"onecopy.object": json.dumps(ABOUT)}, 64)
    assert oc.load_object(path, trusted=True) == [1]


EDGES = st.sampled_from([-(2**63), -1, 0, 1, 2, 8, 24, 25, 2**62, 2**63 - 1])


@given(rows=st.lists(st.tuples(EDGES, EDGES, EDGES, EDGES), max_size=4))
def test_every_table_of_buffers_is_refused_or_in_bounds(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("tables") / "object.oc"
    buffers = [pickle.PickleBuffer(bytearray(b"x")) for _ in rows]
    content = np.frombuffer(pickle.dumps(buffers, protocol=5, buffer_callback=lambda _: False), np.uint8)
    table = np.array(rows, np.int64).reshape(-1, 4)
    oc.save(
        path, ARRAYS | {"object.pickle": content, "object.buffers": table}, {"onecopy.object": json.dumps(ABOUT)}, 64
    )
    sizes = {0: 16, 1: 24}
    valid = all(
        which in sizes and 0 <= offset <= sizes[which] and 0 <= nbytes <= sizes[which] - offset
        for which, offset, nbytes, _ in rows
    )
    if valid:
        loaded = oc.load_object(path, trusted=True)
        assert [bytes(view) for view in loaded] == [bytes(nbytes) for _, _, nbytes, _ in rows]
    else:
        with pytest.raises(oc.FormatError, match="is outside of the arrays"):
            oc.load_object(path, trusted=True)


def test_without_checksums_nothing_is_unpickled(path):
    oc.save(path, ARRAYS, {"onecopy.object": json.dumps(ABOUT)}, 64, checksum=False)
    with pytest.raises(oc.NoChecksum):
        oc.load_object(path, trusted=True)


class Gone:
    pass


def test_a_class_that_is_missing_is_an_error_with_the_file_and_the_versions(path, monkeypatch):
    oc.save_object(path, [Gone(), np.zeros(3)])
    monkeypatch.delattr(__import__(__name__, fromlist=["Gone"]), "Gone")
    with pytest.raises(AttributeError) as raised:
        oc.load_object(path, trusted=True)
    assert f"{path}: a builtins.list, saved by Python 3" in raised.value.__notes__[0]
    assert f"numpy {np.__version__}" in raised.value.__notes__[0]


def test_what_cannot_be_pickled_leaves_the_old_file(path):
    oc.save_object(path, [1])
    for value in ([lambda: 1], [open(os.devnull)]):  # noqa: SIM115, PTH123
        with pytest.raises((pickle.PicklingError, AttributeError, TypeError)):
            oc.save_object(path, value)
        getattr(value[0], "close", lambda: None)()
    assert oc.load_object(path, trusted=True) == [1]
    with pytest.raises(ValueError, match="wrong suffix"):
        oc.save_object(path.with_suffix(".pkl"), [1])


def test_a_full_disk_is_reported_and_leaves_nothing(small_disk, in_child):
    def save() -> tuple[int | None, list[str]]:
        folder = small_disk("ext4")
        try:
            oc.save_object(folder / "object.oc", np.zeros(1 << 27, np.uint8))
        except OSError as error:
            return error.errno, [name for name in os.listdir(folder) if name != "lost+found"]  # noqa: PTH208
        return None, []

    assert in_child(save) == (errno.ENOSPC, [])


# --- once per machine -------------------------------------------------------------------------------------------------

BUILT: list[str] = []


def build() -> Model:
    BUILT.append("built")
    return model()


def test_an_object_is_built_once_and_every_call_loads_the_same_file(tmp_path):
    BUILT.clear()
    store = oc.Store(tmp_path / "store")
    first = oc.share_object(build, "k", store=store)
    second = oc.share_object(build, "k", store=store)
    assert BUILT == ["built"]
    assert np.array_equal(first.layers[0].weight, second.layers[0].weight)
    assert not first.layers[0].weight.flags.owndata  # the builder uses the file as well
    oc.share_object(build, "l", store=store)
    other = oc.share_object(lambda: [1], "k", store=store)
    assert (BUILT, other) == (["built", "built"], [1])
    assert oc.share_object(build, "k", store=store, private=True).layers[0].weight.flags.writeable


def test_another_version_of_a_package_builds_the_object_again(tmp_path, monkeypatch):
    BUILT.clear()
    store = oc.Store(tmp_path / "store")
    oc.share_object(build, "k", store=store)
    monkeypatch.setattr(np, "__version__", "99.0")
    for _ in range(2):
        oc.share_object(build, "k", store=store)
    assert len(BUILT) == 2
    assert sum("numpy 99.0" in artefact.key for artefact in store.ls()) == 1
    monkeypatch.undo()
    oc.share_object(build, "k", store=store)
    assert len(BUILT) == 2


def test_what_a_factory_raises_is_passed_on_and_nothing_is_left(tmp_path):
    store = oc.Store(tmp_path / "store")

    def fail() -> None:
        raise LookupError("no such model")

    with pytest.raises(LookupError, match="no such model"):
        oc.share_object(fail, "k", store=store)
    assert store.ls() == []
