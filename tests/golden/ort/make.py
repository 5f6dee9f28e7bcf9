"""Write small.ort with ONNX Runtime (pip install onnx onnxruntime, versions in the README), and say what is in it."""

import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent)


def branch(name: str, value: float) -> onnx.GraphProto:
    """Return a subgraph with a constant of its own."""
    return helper.make_graph(
        [helper.make_node("Add", ["x", "bias"], [f"{name}_y"], name=f"{name}_add")],
        name,
        [],
        [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, [2, 3])],
        [numpy_helper.from_array(np.full((2, 3), value, np.float32), "bias")],
    )


model = helper.make_model(
    helper.make_graph(
        [
            helper.make_node("MatMul", ["input", "weight"], ["x"], name="matmul"),
            helper.make_node(
                "If",
                ["flag"],
                ["output"],
                name="choice",
                then_branch=branch("then", 1.0),
                else_branch=branch("else", 2.0),
            ),
            helper.make_node("Identity", ["words"], ["text"], name="text"),
            helper.make_node("Gather", ["table", "index"], ["row"], name="row"),
        ],
        "main",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, [2, 4])],
        [
            helper.make_tensor_value_info("output", TensorProto.FLOAT, [2, 3]),
            helper.make_tensor_value_info("text", TensorProto.STRING, [2]),
            helper.make_tensor_value_info("row", TensorProto.FLOAT16, [3]),
        ],
        [
            numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(4, 3), "weight"),
            numpy_helper.from_array(np.array(True), "flag"),
            numpy_helper.from_array(np.array(1, dtype=np.int64), "index"),
            numpy_helper.from_array(np.arange(15, dtype=np.float16).reshape(5, 3), "table"),
            helper.make_tensor("words", TensorProto.STRING, [2], [b"one", b"two"]),
        ],
    ),
    producer_name="golden",
    producer_version="1",
    opset_imports=[helper.make_opsetid("", 17)],
    ir_version=9,
)
onnx.checker.check_model(model)
with tempfile.NamedTemporaryFile(suffix=".onnx") as source:
    source.write(model.SerializeToString())
    source.flush()
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(folder / "small.ort")
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.save_model_format", "ORT")
    ort.InferenceSession(source.name, options, providers=["CPUExecutionProvider"])
print(ort.__version__, (folder / "small.ort").stat().st_size, "bytes")
