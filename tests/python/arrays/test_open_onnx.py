"""ONNX models behind `oc.open`: weights with the layout of memory are mapped in place; the others are reported."""

import numpy as np
import pytest
from tests.support.places import GOLDEN

import onecopy as oc

MODELS = GOLDEN / "onnx"


def test_every_tensor_in_place_is_what_onnx_wrote_and_a_type_of_the_format_alone_is_bytes_with_its_name():
    model = oc.open(MODELS / "small.onnx")
    assert model.container == "onnx"
    assert model.kind == "foreign"
    assert list(model) == [
        "c.value", "y.else_branch.ew", "y.then_branch.tw", "w", "half", "scalar", "bf", "i4", "typed",
    ]  # fmt: skip
    assert model["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert model["half"].dtype == np.float16
    assert model["scalar"].shape == ()
    assert int(model["scalar"]) == 7
    assert model["bf"].tobytes() == np.array([0x3FC0, 0xC000], "<u2").tobytes()  # 1.5 and -2
    assert model["typed"].tolist() == [1, 2]
    assert model["c.value"].tolist() == [1, 2]
    assert model["y.then_branch.tw"].tolist() == [3, 4]
    left_out = '{"not stored as raw bytes": ["ints"], "of text": ["words"]}'
    assert model.metadata == {"author": "us", "opset": "21", "producer": "golden", "left out": left_out}

    assert model.entry("i4").dtype == "INT4"
    assert model.entry("i4").shape == (3,)
    assert model["i4"].tolist() == [0x21, 0x03]
    assert model["i4"].dtype.metadata == {"onecopy": "INT4"}
    with pytest.raises(ValueError, match="cannot split packed elements along an axis, because they are bytes"):
        model.shard("i4", 0, 1)


def test_the_format_is_detected_from_the_content(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes((MODELS / "small.onnx").read_bytes())
    assert oc.open(path).container == "onnx"
    oc.save(tmp_path / "model.oc", {"w": np.ones(3)})
    (tmp_path / "model.oc").rename(tmp_path / "model.onnx")
    assert oc.open(tmp_path / "model.onnx").container == "safetensors"
