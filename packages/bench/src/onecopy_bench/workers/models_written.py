"""Writing models: an embedding with matrix products, convolutions; as .onnx, with external data, as .ort, packed.

Needs the package ``onnx``.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

INLINE, EXTERNAL, ORT, PACKED = "inline.onnx", "external.onnx", "model.ort", "packed.onnx"
"""The files of a model's folder."""

_PACKED = {
    "session.save_external_prepacked_constant_initializers": "1",
    "session.optimized_model_external_initializers_file_name": "packed.bin",
    "session.optimized_model_external_initializers_min_size_in_bytes": "1024",
}


def _normal(random: np.random.Generator, shape: tuple[int, ...], inputs: int = 1) -> NDArray[np.float32]:
    """Return random weights, so that outputs are about as large as inputs."""
    return random.standard_normal(shape, np.float32) / np.float32(inputs**0.5)


def model_of(nodes: list[Any], weights: dict[str, NDArray[Any]], first: Any, last: tuple[str, list[Any]]) -> Any:
    """Return a model of nodes and weights, from one input to one output."""
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        nodes,
        "made-up",
        [helper.make_tensor_value_info(*first)],
        [helper.make_tensor_value_info(last[0], TensorProto.FLOAT, last[1])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def products(width: int, layers: int, nodes: list[Any], weights: dict[str, NDArray[Any]]) -> None:
    """Append layers of matrix products of x0, x1, ... to the nodes and weights of a model."""
    from onnx import helper

    random = np.random.default_rng(0)
    for layer in range(layers):
        weights[f"w{layer}"] = _normal(random, (width, width), width)
        nodes.append(helper.make_node("MatMul", [f"x{layer}", f"w{layer}"], [f"x{layer + 1}"]))


def words(rows: int = 32768, width: int = 2048, layers: int = 32) -> Any:
    """Return a model that looks rows up and multiplies them with matrices: 256 MB of embedding, 32 times 16 MB."""
    from onnx import TensorProto, helper

    weights = {"words": _normal(np.random.default_rng(0), (rows, width))}
    nodes = [helper.make_node("Gather", ["words", "ids"], ["x0"])]
    products(width, layers, nodes, weights)
    return model_of(nodes, weights, ("ids", TensorProto.INT64, ["batch"]), (f"x{layers}", ["batch", width]))


def convolutions(width: int = 512, layers: int = 10) -> Any:
    """Return a model of 3 x 3 convolutions, each followed by a Relu, on images of 16 x 16: 94 MB."""
    from onnx import TensorProto, helper

    random = np.random.default_rng(0)
    weights, nodes, shape = {}, [], ["batch", width, 16, 16]
    for layer in range(layers):
        weights[f"w{layer}"] = _normal(random, (width, width, 3, 3), 9 * width)
        nodes.append(helper.make_node("Conv", [f"x{layer}", f"w{layer}"], [f"c{layer}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{layer}"], [f"x{layer + 1}"]))
    return model_of(nodes, weights, ("x0", TensorProto.FLOAT, shape), (f"x{layers}", shape))


MODELS: dict[str, Callable[[], Any]] = {"words": words, "convolutions": convolutions, "words-int8": words}


def write(name: str, folder: Path, file: str | None = None) -> None:
    """Write a model in all its forms; ``file`` is a model of one's own."""
    import onnx

    inline = folder / INLINE
    if file is not None:
        shutil.copyfile(file, inline)
    else:
        onnx.save(MODELS[name](), inline)
    if name == "words-int8":
        from onnxruntime.quantization import quantize_dynamic

        whole = inline.rename(folder / "whole.onnx")
        quantize_dynamic(whole, inline)
        whole.unlink()
    external = folder / EXTERNAL
    model = onnx.load(inline)
    onnx.save(model, external, save_as_external_data=True, location="external.bin", size_threshold=1024)
    del model
    _convert(external, folder / ORT, {"session.save_model_format": "ORT"})
    _convert(external, folder / PACKED, _PACKED)


def _convert(source: Path, target: Path, entries: dict[str, str]) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(target)
    for name, value in entries.items():
        options.add_session_config_entry(name, value)
    onnxruntime.InferenceSession(source, options)
