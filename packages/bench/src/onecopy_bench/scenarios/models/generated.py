"""Writing the models: an embedding with matrix products, convolutions; as .onnx, with external data, as .ort, packed.

    python -m onecopy_bench.scenarios.models.generated PARENT NAME FOLDER [FILE]

A process of its own writes them, because that takes several times a model's size of heap. Needs the package ``onnx``.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onecopy_bench.engine.child import die_with

INLINE, EXTERNAL, ORT, PACKED = "inline.onnx", "external.onnx", "model.ort", "packed.onnx"
"""The files of a model's folder."""


class Shape(NamedTuple):
    """How large a made-up model is."""

    rows: int
    width: int
    layers: int


WORDS = Shape(32768, 2048, 32)
"""256 MB of embedding, and 32 matrices of 16 MB: the model of the published table."""
CONVOLUTIONS = Shape(512, 512, 10)
"""Ten convolutions of 3 x 3 over 512 channels: 94 MB."""


def words(shape: Shape = WORDS) -> Any:
    """Return a model that looks rows up by number, and multiplies them with matrices."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    embedding: NDArray[np.float32] = random.standard_normal((shape.rows, shape.width), np.float32)
    weights = [numpy_helper.from_array(embedding, "words")]
    nodes = [helper.make_node("Gather", ["words", "ids"], ["x0"])]
    for layer in range(shape.layers):
        matrix = random.standard_normal((shape.width, shape.width), np.float32) / np.float32(shape.width**0.5)
        weights.append(numpy_helper.from_array(matrix, f"w{layer}"))
        nodes.append(helper.make_node("MatMul", [f"x{layer}", f"w{layer}"], [f"x{layer + 1}"]))
    graph = helper.make_graph(
        nodes,
        "words",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch"])],
        [helper.make_tensor_value_info(f"x{shape.layers}", TensorProto.FLOAT, ["batch", shape.width])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def convolutions(shape: Shape = CONVOLUTIONS) -> Any:
    """Return a model of 3 x 3 convolutions, each followed by a Relu, on images of 16 x 16."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    weights, nodes = [], []
    for layer in range(shape.layers):
        kernel = random.standard_normal((shape.width, shape.width, 3, 3), np.float32) / np.float32(
            (9 * shape.width) ** 0.5
        )
        weights.append(numpy_helper.from_array(kernel, f"w{layer}"))
        nodes.append(helper.make_node("Conv", [f"x{layer}", f"w{layer}"], [f"c{layer}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{layer}"], [f"x{layer + 1}"]))
    graph = helper.make_graph(
        nodes,
        "convolutions",
        [helper.make_tensor_value_info("x0", TensorProto.FLOAT, ["batch", shape.width, 16, 16])],
        [helper.make_tensor_value_info(f"x{shape.layers}", TensorProto.FLOAT, ["batch", shape.width, 16, 16])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def write(name: str, folder: Path, file: str | None = None) -> None:
    """Write a model in all its forms; ``file`` is a model of one's own."""
    import onnx

    inline = folder / INLINE
    if file is not None:
        shutil.copyfile(file, inline)
        model = onnx.load(file)
    else:
        model = {"words": words, "convolutions": convolutions, "words-int8": words}[name]()
        onnx.save(model, inline)
    if name == "words-int8":
        from onnxruntime.quantization import quantize_dynamic

        whole = inline.rename(folder / "whole.onnx")
        quantize_dynamic(whole, inline)
        whole.unlink()
        model = onnx.load(inline)
    external = folder / EXTERNAL
    onnx.save(model, external, save_as_external_data=True, location="external.bin", size_threshold=1024)
    del model
    _converted(external, folder / ORT, {"session.save_model_format": "ORT"})
    _converted(
        external,
        folder / PACKED,
        {
            "session.save_external_prepacked_constant_initializers": "1",
            "session.optimized_model_external_initializers_file_name": "packed.bin",
            "session.optimized_model_external_initializers_min_size_in_bytes": "1024",
        },
    )


def _converted(source: Path, target: Path, entries: dict[str, str]) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(target)
    for name, value in entries.items():
        options.add_session_config_entry(name, value)
    onnxruntime.InferenceSession(source, options)


if __name__ == "__main__":
    die_with(int(sys.argv[1]))
    write(sys.argv[2], Path(sys.argv[3]), *sys.argv[4:5])
