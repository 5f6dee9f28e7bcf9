"""Several files as one behind `oc.open`: every array, every shard, and nothing that an index may not name."""

import json
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tests.support.places import GOLDEN
from tests.support.shards import ARRAYS, INDEX, shard_of, write_set

import onecopy as oc
from onecopy.files import names_in


@pytest.fixture
def index(tmp_path):
    return write_set(tmp_path)


def test_shards_are_one_mapping_from_names_to_views(index):
    with oc.open(index) as model:
        assert list(model) == list(ARRAYS)
        for name, array in ARRAYS.items():
            assert np.array_equal(model[name], array)
            assert not model[name].flags.writeable
            assert not model[name].flags.owndata
        assert model.metadata == {"total_size": "14400", "by": "us"}
        assert (model.container, model.kind, model.mode) == ("safetensors set", "foreign", "map")
        assert (model.mode_reason, model.nbytes) == ("as requested", sum(array.nbytes for array in ARRAYS.values()))
        assert "3 files" in repr(model)
        kept = model["layer.0"]
    assert model.closed
    assert kept[0, 1] == 1
    with pytest.raises(ValueError, match="closed"):
        model["layer.0"]


def test_an_entry_is_a_place_in_the_file_of_path_of_and_parts_are_views_too(index):
    text = json.loads(index.read_text())
    del text["weight_map"]["layer.1"]
    index.write_text(json.dumps(text))
    model = oc.open(index)
    assert [entry.name for entry in model.entries] == [name for name in ARRAYS if name != "layer.1"]
    for entry in model.entries:
        data = Path(model.path_of(entry.name)).read_bytes()[entry.offset : entry.offset + entry.nbytes]
        assert data == ARRAYS[entry.name].tobytes()
    assert model.path_of("layer.5") == str(index.parent / shard_of(2))
    assert {file.path for file in model.files} == {str(index.parent / shard_of(at)) for at in range(3)}
    ask_residency, ask_slice = (lambda name: model.residency([name])), (lambda name: model.slice(name, 0))
    for ask in (model.entry, model.path_of, model.__getitem__, ask_residency, ask_slice):
        for name in ("nothing", "layer.1"):  # which is in a shard, and not in the index
            with pytest.raises(KeyError):
                ask(name)
    assert np.array_equal(model.slice("layer.3", slice(2, 4), 0), ARRAYS["layer.3"][2:4, 0])
    assert np.array_equal(model.shard("layer.3", 1, 2, axis=1), ARRAYS["layer.3"][:, 15:])


# --- residency ----------------------------------------------------------------------------------------------------


def test_warming_pinning_and_evicting_add_up(index):
    with oc.open(index) as model:
        whole = sum(file.core.nbytes for file in model.files)
        model.evict()
        seen = []
        report = model.warm(progress=lambda done, total: seen.append((done, total)))
        assert (report.complete, report.bytes, seen[-1]) == (True, whole, (whole, whole))
        assert "; 3 files" in report.reason
        job = model.warm(wait=False)
        assert job.wait().complete
        assert job.progress == (whole, whole)
        assert oc.warm(model).bytes == oc.residency(model).bytes == oc.files.pin(model).bytes == whole
        oc.files.unpin(model)
        assert model.pin(["layer.0"]).bytes < whole
        model.unpin()
        assert oc.evict(model).bytes == whole


def test_warming_some_touches_no_other_shard(index, cached):
    with oc.open(index) as model:
        model.evict()
        *before, _ = [cached(Path(file.path)) for file in model.files]  # not 0 if the kernel evicts nothing
        model.warm(["layer.5", ("layer.4", slice(0, 1))], huge=False)
        *others, last = [cached(Path(file.path)) for file in model.files]
        assert others == before
        assert last > 0
        assert model.warm([]).bytes == 0


def test_verifying_reads_all_shards_and_names_the_damaged_one(index):
    assert oc.open(index).verify().bytes >= sum(array.nbytes for array in ARRAYS.values())
    assert oc.open(index, warm=True, verify=True).verify([]).bytes == 0
    second = index.parent / shard_of(1)
    data = bytearray(second.read_bytes())
    data[-1] ^= 1
    second.write_bytes(data)
    with pytest.raises(oc.ChecksumError, match=shard_of(1)):
        oc.open(index).verify()
    assert oc.open(index).verify(["layer.0"]).bytes > 0


def test_modes(index):
    with oc.open(index, "copy") as copied, oc.open(index, "auto") as automatic:
        assert copied.mode == "copy"
        assert np.array_equal(copied["layer.5"], ARRAYS["layer.5"])
        assert automatic.mode in ("map", "copy")
        assert automatic.mode_reason != "as requested"
    mine = oc.open(index, private=True)["layer.1"]
    mine += 1
    assert np.array_equal(oc.open(index)["layer.1"], ARRAYS["layer.1"])
    with pytest.raises(ValueError, match="mode must be"):
        oc.open(index, "mapped")


# --- other processes ----------------------------------------------------------------------------------------------


def test_it_pickles_as_a_handle(index, python, monkeypatch):
    monkeypatch.chdir(index.parent)
    with oc.open(INDEX) as model:
        text = pickle.dumps(model)
    assert len(text) < 2000
    out = python(
        "import pickle, sys; m = pickle.loads(bytes.fromhex(sys.argv[1])); print(m['layer.5'][0, 0], len(m), m.mode)",
        text.hex(),
    )
    assert out.split() == ["5.0", "6", "map"]


@pytest.mark.parametrize("which", [INDEX, shard_of(1)])
def test_a_file_that_was_replaced_is_reported_when_the_handle_is_opened(index, which):
    model = oc.open(index)
    text = pickle.dumps(model)
    assert not model.changed()
    path = index.parent / which
    shutil.copy(path, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)
    assert model.changed()
    with pytest.raises(oc.errors.FileChanged) as error:
        pickle.loads(text)
    assert error.value.filename == str(path)


# --- what is refused ----------------------------------------------------------------------------------------------


def refused(index: Path, weight_map: object, **more: object) -> str:
    index.write_text(json.dumps({"weight_map": weight_map, **more}))
    with pytest.raises(oc.FormatError) as error:
        oc.open(index)
    assert str(index) in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    "place", ["/etc/passwd", "../up.safetensors", "a/../../b", "a/..", ".", "", "a\0b", "a\\b", "\ud800", 5, None]
)
def test_a_place_outside_of_the_folder_is_refused(index, place):
    assert "not a path inside the folder" in refused(index, {"layer.0": place})


@pytest.mark.parametrize("weight_map", [[], "all", None, 5, [["a", "b"]], {}])
def test_no_weight_map_or_an_empty_one_is_no_index(index, weight_map):
    assert ("empty" if weight_map == {} else "no 'weight_map'") in refused(index, weight_map)
    assert "no 'weight_map'" in refused(index, {"layer.0": shard_of(0)}, metadata=5)


def test_a_name_that_its_shard_has_not_is_reported_with_both_paths(index):
    message = refused(index, {"layer.0": shard_of(0), "layer.2": shard_of(0)})
    assert "'layer.2'" in message
    assert shard_of(0) in message


HOSTILE = [
    '{"weight_map": {"a": "x", "a": "y"}}',
    '{"weight_map": {"a": "x"}} and more',
    '{"weight_map": ',
    "{}",
    '{"\xff',
]
HOSTILE += ['{"weight_map": ' * 100_000, '{"weight_map": {"\\ud800": "x"}}']
HOSTILE += ['{"metadata": {"n": ' + "9" * 5000 + '}, "weight_map": {"a": "x"}}']


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_json_is_a_format_error_with_its_path(index, text):
    index.write_bytes(text.encode("latin-1"))
    with pytest.raises(oc.FormatError, match="index"):
        oc.open(index)


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_an_index_with_a_flipped_byte_opens_or_is_refused(index, at, flip):
    whole = json.dumps({"weight_map": {name: shard_of(at // 2) for at, name in enumerate(ARRAYS)}}).encode()
    data = bytearray(whole)
    data[at % len(data)] ^= flip
    index.write_bytes(data)
    try:
        with oc.open(index) as model:
            assert all(model[name].nbytes == model.entry(name).nbytes for name in model)
    except (oc.FormatError, OSError) as error:
        assert str(index.parent) in str(error)  # noqa: PT017
    index.write_bytes(whole[: at % len(whole)])
    with pytest.raises((oc.FormatError, OSError)):
        oc.open(index)


def test_an_index_is_read_up_to_a_hundred_million_bytes(tmp_path):
    path = tmp_path / INDEX
    for text, message in (('{"weight_map": {}}', INDEX), ('{"weight_map": ' + " " * 100, "more than the maximum")):
        path.write_text(text)
        os.truncate(path, 200 << 20)
        with pytest.raises(oc.FormatError, match=message):
            oc.open(path)


def test_a_shard_that_is_cut_off_is_reported_with_its_path_and_a_missing_one_with_the_index(index):
    os.truncate(index.parent / shard_of(2), 5000)
    with pytest.raises(oc.FormatError, match=shard_of(2)):
        oc.open(index)
    (index.parent / shard_of(1)).unlink()
    with pytest.raises(FileNotFoundError) as error:
        oc.open(index)
    assert error.value.filename == str(index.parent / shard_of(1))
    assert str(index) in error.value.strerror


def test_what_is_no_array_file_is_no_shard(index):
    (index.parent / "folder").mkdir()
    os.mkfifo(index.parent / "pipe")
    for name in ("folder", "pipe"):
        index.write_text(json.dumps({"weight_map": {"a": name}}))
        with pytest.raises(OSError, match="named by"):
            oc.open(index)
    assert INDEX in refused(index, {"a": INDEX})


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        *((["x", inside], "'x': another file's path uses it as a folder") for inside in ("x/y", "x/y/z")),
        (["x/y/z", "x/y"], "'x/y': another file's path uses it as a folder"),
        *(([name], "is not the path of a file inside") for name in ("x/", "x/.", "x/y/..", "x/" * 32 + "y")),
        *(([name], "longer than 255 bytes") for name in ("é" * 128, "x\ny")),
        ([*map(str, range(10_001))], "10001 files, more than the maximum of 10000"),
    ],
)
def test_paths_that_cannot_be_of_files_in_one_folder_are_refused(index, files, reason):
    index.write_text(json.dumps({"weight_map": {str(number): file for number, file in enumerate(files)}}))
    with pytest.raises(oc.FormatError, match=reason):
        names_in(index)


@pytest.mark.parametrize("name", ["config.json", "vectors.index.bin", "model.index.d/config.json"])
def test_a_file_with_another_name_than_an_index_or_a_model_names_no_files(tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"weight_map": {"layer.0": shard_of(0)}}))
    assert names_in(path) == []


def test_shards_are_all_of_any_one_format(index):
    np.save(index.parent / "array.npy", np.ones(3))
    message = refused(index, {"layer.0": shard_of(0), "array": "array.npy"})
    assert "npy" in message
    assert "safetensors" in message
    np.savez(index.parent / "a.npz", w=np.arange(3))
    np.savez(index.parent / "b.npz", v=np.arange(4))
    index.write_text(json.dumps({"weight_map": {"w": "a.npz", "v": "b.npz"}}))
    with oc.open(index) as model:
        assert model.container == "npz set"
        assert model["v"].tolist() == [0, 1, 2, 3]


# --- ONNX models with external data -----------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path):
    for name in ("external.onnx", "external.bin"):
        shutil.copy(GOLDEN / "onnx" / name, tmp_path)
    return tmp_path / "external.onnx"


def test_what_lies_in_other_files_is_there_too(model):
    with oc.open(model) as opened:
        assert list(opened) == ["w", "far"]
        assert opened["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
        assert opened["far"].tolist() == list(range(500))
        assert not opened["far"].flags.writeable
        assert (opened.container, opened.metadata) == ("onnx", {"opset": "21"})
        assert opened.path_of("far") == str(model.with_name("external.bin"))
        assert opened.warm(["far"]).complete
        assert opened.residency().bytes > 0
        for names, path in ((None, ""), (["far"], r"external\.bin")):
            with pytest.raises(oc.errors.NoChecksum, match=f".*{path}"):
                opened.verify(names)
        assert pickle.loads(pickle.dumps(opened))["far"][7] == 7


def test_a_data_file_that_is_too_short_is_reported_with_both_paths(model):
    data = model.with_name("external.bin")
    os.truncate(data, 1999)
    with pytest.raises(
        oc.FormatError, match=rf"{data}.*\[0, 2000\).* the file has 1999 bytes|1999 bytes.*{data}"
    ) as error:
        oc.open(model)
    assert str(model) in str(error.value)


def test_names_that_stand_twice_are_distinguished(tmp_path):
    onnx = pytest.importorskip("onnx")
    from onnx import helper, numpy_helper

    tensors = [numpy_helper.from_array(np.full(300, value, np.float32), "t") for value in (1, 2)]
    nodes = [helper.make_node("Constant", [], ["c"], value=tensor) for tensor in tensors]
    proto = helper.make_model(helper.make_graph(nodes, "g", [], [helper.make_tensor_value_info("c", 1, [300])]))
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="d.bin", convert_attribute=True)
    with oc.open(tmp_path / "m.onnx") as model:
        assert list(model) == ["c.value.t", "c.value.t~2"]
        assert [float(model[name][0]) for name in model] == [1, 2]
