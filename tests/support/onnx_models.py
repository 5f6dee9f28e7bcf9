"""Small ONNX models: an embedding and matrix products, whose weights lie where a test wants them."""

from pathlib import Path

import numpy as np
import pytest

from onecopy import Mapping, _core

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

IDS = np.arange(7, dtype=np.int64)


def words_model(rows: int = 500, width: int = 128, layers: int = 3) -> onnx.ModelProto:
    """Look rows up by number and multiply them with matrices."""
    random = np.random.default_rng(0)
    weights = [numpy_helper.from_array(random.standard_normal((rows, width), np.float32), "words")]
    nodes = [helper.make_node("Gather", ["words", "ids"], ["x0"])]
    for layer in range(layers):
        matrix = random.standard_normal((width, width), np.float32) / np.float32(width**0.5)
        weights.append(numpy_helper.from_array(matrix, f"w{layer}"))
        nodes.append(helper.make_node("MatMul", [f"x{layer}", f"w{layer}"], [f"x{layer + 1}"]))
    nodes.append(helper.make_node("Add", [f"x{layers}", "bias"], ["y"]))
    weights.append(numpy_helper.from_array(np.ones(width, np.float32), "bias"))
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", width])
    graph = helper.make_graph(nodes, "words", [ids], [y], weights, doc_string="rows by number")
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def save_inline(path: Path, *, aligned: bool, **shape: int) -> Path:
    """Save a model with its weights inside, all at multiples of four bytes, or all but those that happen to be."""
    model = words_model(**shape)
    for _ in range(200):
        path.write_bytes(model.SerializeToString())
        with Mapping(path) as mapping:
            offsets = [row[5] for row in _core.parse_onnx(mapping.core)["tensors"] if row[6] >= 1024]
        odd = [index for index, offset in enumerate(offsets) if offset % 4]
        if bool(odd) is not aligned:
            return path
        if not aligned:
            model.producer_name += "."
        elif odd[0] == 0:  # what stands before the data moves it
            model.graph.name += "."
        else:
            model.graph.initializer[odd[0] - 1].doc_string += "."
    raise AssertionError("no way found to place the weights")


def save_external(path: Path, location: str = "weights.bin", **shape: int) -> Path:
    """Save a model whose weights are in another file."""
    onnx.save(words_model(**shape), path, save_as_external_data=True, all_tensors_to_one_file=True, location=location)
    return path


def save_ort(path: Path, **shape: int) -> Path:
    """Save a model as ONNX Runtime's own format."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(path)
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(words_model(**shape).SerializeToString(), options)
    return path
