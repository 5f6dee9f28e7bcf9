"""Other tools' files behind `oc.open`: what the tools themselves read from the golden files, and nothing executed."""

import itertools
import json
import zipfile

import numpy as np
import pytest
from tests.support.places import GOLDEN

import onecopy as oc

LINES = [
    (folder, line.split(" "))
    for folder in ("numpy", "torch")
    for line in (GOLDEN / folder / "expected.txt").read_text().splitlines()
]
REFUSED = [(folder, line[0], " ".join(line[2:])) for folder, line in LINES if line[1] == "refused"]
ARRAYS = [(folder, *line) for folder, line in LINES if line[1] != "refused"]


def numbers(text: str) -> tuple[int, ...]:
    return () if text == "-" else tuple(map(int, text.split(",")))


@pytest.mark.parametrize(("folder", "name", "array", "kind", "shape", "strides", "elements"), ARRAYS)
def test_an_array_is_what_the_tool_wrote(folder, name, array, kind, shape, strides, elements):
    with oc.open(GOLDEN / folder / name) as file:
        assert file.entry(array).dtype == kind
        view = file[array]
        if view.dtype.metadata:  # a type of torch's own: bytes under its name
            assert view.dtype.metadata == {"onecopy": kind}
            assert view.tobytes() == bytes.fromhex(elements)
            return
        assert view.shape == numbers(shape)
        assert view.tobytes() == bytes.fromhex(elements.replace("-", ""))
        if numbers(strides):
            assert tuple(step // view.itemsize for step in view.strides) == numbers(strides)
        assert not view.flags.writeable


def test_what_is_in_no_array_is_told_in_the_metadata():
    with oc.open(GOLDEN / "numpy" / "mixed.npz") as file:
        assert json.loads(file.metadata["left out"]) == {
            "compressed": ["packed"],
            "Python objects or structures": ["objects"],
            "not an array": ["notes.txt"],
        }
    with oc.open(GOLDEN / "torch" / "nested.pt") as file:
        assert "argparse.Namespace" in json.loads(file.metadata["left out"])
        assert file.metadata["format"] == "pt"


@pytest.mark.parametrize(("folder", "name", "why"), REFUSED)
def test_a_file_that_cannot_be_read_in_place_gives_the_reason(folder, name, why):
    with pytest.raises(oc.FormatError) as error:
        oc.open(GOLDEN / folder / name)
    assert why in str(error.value)
    assert str(GOLDEN / folder / name) in str(error.value)


def test_a_zip_archive_is_refused_with_the_reason(tmp_path):
    path = tmp_path / "archive.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model/models/model.json", "{}")
        archive.writestr("model/byteorder", "little")
    with pytest.raises(oc.FormatError, match=r"neither torch\.save nor numpy\.savez wrote it"):
        oc.open(path)
    with zipfile.ZipFile(GOLDEN / "torch" / "state_dict.pt") as before, zipfile.ZipFile(path, "w", 8) as after:
        for name in before.namelist():
            after.writestr(name, before.read(name))
    with pytest.raises(oc.FormatError, match="compressed"):
        oc.open(path)


@pytest.mark.parametrize("name", ["ort/small.ort", "executorch/small.pte", "executorch/small.ptd", "gguf/small.gguf"])
def test_entries_are_in_the_file_and_raw_ones_are_bytes_under_the_name_of_their_type(name):
    with oc.open(GOLDEN / name) as file:
        assert file.container == name.rpartition(".")[2]
        assert len(file) > 0
        for entry in file.entries:
            assert file[entry.name].nbytes == entry.nbytes
            assert entry.offset + entry.nbytes <= (GOLDEN / name).stat().st_size
            assert (file[entry.name].dtype.metadata or {}).get("onecopy", entry.dtype) == entry.dtype
        raw = [entry for entry in file.entries if file[entry.name].dtype.metadata]
        assert bool(raw) == (file.container == "gguf")
        assert file.container != "gguf" or file.metadata["general.architecture"]


ONNX = {"w": [[0, 1, 2], [3, 4, 5]], "typed": [1, 2], "c.value": [1, 2], "y.then_branch.tw": [3, 4], "i4": [0x21, 0x03]}
ONNX |= {"bf": [1.5, -2], "scalar": 7}


def test_every_tensor_in_place_is_what_onnx_wrote_and_a_type_of_the_format_alone_is_bytes_with_its_name():
    model = oc.open(GOLDEN / "onnx" / "small.onnx")
    names = ["c.value", "y.else_branch.ew", "y.then_branch.tw", "w", "half", "scalar", "bf", "i4", "typed"]
    assert (list(model), model.container, model.kind) == (names, "onnx", "foreign")
    assert {name: model[name].tolist() for name in ONNX} == ONNX
    assert model["half"].dtype == np.float16
    left_out = '{"not stored as raw bytes": ["ints"], "of text": ["words"]}'
    assert model.metadata == {"author": "us", "opset": "21", "producer": "golden", "left out": left_out}
    assert (model.entry("i4").dtype, model.entry("i4").shape) == ("INT4", (3,))
    assert model["i4"].dtype.metadata == {"onecopy": "INT4"}
    with pytest.raises(ValueError, match="cannot split packed elements along an axis, because they are raw bytes"):
        model.shard("i4", 0, 1)


def test_the_format_is_detected_from_the_content(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes((GOLDEN / "onnx" / "small.onnx").read_bytes())
    assert oc.open(path).container == "onnx"
    oc.save(tmp_path / "model.oc", {"w": np.ones(3)})
    (tmp_path / "model.oc").rename(tmp_path / "model.onnx")
    assert oc.open(tmp_path / "model.onnx").container == "safetensors"


def test_leaves_of_cpp_are_arrays_sequences_columns_plain_structs_records_and_fillers_are_hidden():
    with oc.open(GOLDEN / "struct.oc", verify=True) as file:
        assert not [name for name in file if name.startswith("#")]
        assert {"seed", "words", "subs.count", "subs[].name", "subs[].name.offsets", "extra?.nodes"} <= set(file)
        assert (file["words"].tolist(), file["seed"].shape, file["shape"].dtype) == ([1, 2, 3], (), np.uint16)
        text = file["subs[].name"].tobytes()
        names = [text[begin:end].decode() for begin, end in itertools.pairwise(file["subs[].name.offsets"])]
        assert names == ["", "one", ""]
        nodes = file["subs[].nodes"].view(np.dtype([("key", "<u4"), ("low", "<u2"), ("high", "<u2")]))
        assert nodes["key"].tolist() == [[1]]
