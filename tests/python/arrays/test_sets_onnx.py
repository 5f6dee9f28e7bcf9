"""An ONNX model with external data behind `oc.open`: every array, and nothing that the model may not name."""

import os
import pickle
import shutil

import numpy as np
import pytest
from tests.support.places import GOLDEN

import onecopy as oc

MODELS = GOLDEN / "onnx"


@pytest.fixture
def model(tmp_path):
    for name in ("external.onnx", "external.bin"):
        shutil.copy(MODELS / name, tmp_path)
    return tmp_path / "external.onnx"


def test_what_lies_in_other_files_is_there_too(model):
    with oc.open(model) as opened:
        assert list(opened) == ["w", "far"]
        assert opened["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
        assert opened["far"].tolist() == list(range(500))
        assert not opened["far"].flags.writeable
        assert opened.container == "onnx"
        assert opened.metadata == {"opset": "21"}
        assert opened.path_of("far") == str(model.parent / "external.bin")
        assert opened.warm(["far"]).complete
        assert opened.residency().bytes > 0
        with pytest.raises(oc.errors.NoChecksum):
            opened.verify()
        with pytest.raises(oc.errors.NoChecksum, match=r"external\.bin"):
            opened.verify(["far"])
        again = pickle.loads(pickle.dumps(opened))
        assert again["far"][7] == 7


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

    def constant(value: float):
        tensor = numpy_helper.from_array(np.full(300, value, np.float32), "t")
        return helper.make_node("Constant", [], ["c"], value=tensor)

    first, second = constant(1), constant(2)
    graph = helper.make_graph([first, second], "g", [], [helper.make_tensor_value_info("c", 1, [300])])
    proto = helper.make_model(graph)
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="d.bin", convert_attribute=True)
    with oc.open(tmp_path / "m.onnx") as model:
        assert list(model) == ["c.value.t", "c.value.t~2"]
        assert [float(model[name][0]) for name in model] == [1, 2]
