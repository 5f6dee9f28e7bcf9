"""Session options: copies with a mode's entries, and the entries that determine prepacked weights."""

from __future__ import annotations

import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_IDENTITY = bytes.fromhex(
    "08093a370a100a016112016222084964656e746974791201675a0f0a0161120a0a08080112040a020801"
    "620f0a0162120a0a08080112040a02080142040a001011"
)
"""A minimal ONNX model that returns its input."""

PREPACKING_OFF = "session.disable_prepacking"
FOLDER = "session.model_external_initializers_file_folder_path"
"""Names of entries. The first disables prepacking; the second is the external data folder of a model in memory."""

IN_PLACE = {PREPACKING_OFF: "1", "session.use_external_initializer_file_buffers_directly": "1"}
"""Entries that make ONNX Runtime use the given weights in place, without prepacking."""
ORT_IN_PLACE = {
    "session.use_memory_mapped_ort_model": "1",
    "session.use_ort_model_bytes_for_initializers": "1",
    PREPACKING_OFF: "1",
}

DECIDING = (
    # These entries change the optimized graph or the prepacked form; others apply when a session is created.
    "ep.cpu.qmoe_deferred_scale",
    "mlas.disable_kleidiai",
    "mlas.enable_gemm_fastmath_arm64_bfloat16",
    "mlas.kleidiai.conv_igemm_max_work",
    "mlas.nchwc_depthwise_sliding",
    "mlas.nchwc_pointwise_conv_max_input_channel_batch",
    "mlas.qnbit.force_fp32",
    "mlas.use_lut_gemm",
    "optimization.constant_folding_max_output_size_in_bytes",
    "optimization.disable_specified_optimizers",
    "optimization.enable_cast_chain_elimination",
    "optimization.enable_gelu_approximation",
    "optimization.minimal_build_optimizations",
    "session.disable_aot_function_inlining",
    "session.disable_double_qdq_remover",
    "session.disable_qdq_constant_folding",
    "session.disable_quant_qdq",
    "session.enable_dq_matmulnbits_fusion",
    "session.enable_quant_qdq_cleanup",
    "session.enable_saved_runtime_optimizations",
    "session.function_expansion_byte_limit",
    "session.function_expansion_node_limit",
    "session.gqa_value_layout",
    "session.graph_optimizations_loop_level",
    "session.kernel_dispatch_policy",
    "session.qdq_matmulnbits_accuracy_level",
    "session.qdq_matmulnbits_block_size",
    "session.qdqisint8allowed",
    "session.set_denormal_as_zero",
    "session.strict_shape_type_inference",
    "session.use_deterministic_compute",
    "session.x64quantprecision",
)
OTHER_THAN_RESULTS = (
    PREPACKING_OFF,
    "session.dynamic_block_base",
    "session.force_spinning_stop",
    "session.inter_op.allow_spinning",
    "session.intra_op.allow_spinning",
    "session.intra_op_thread_affinities",
    "session.use_env_allocators",
)
"""Entries for the threads and memory of a session. Sessions on prepacked weights support them too."""

_changing = threading.Lock()


def copied(options: onnxruntime.SessionOptions | None, entries: Mapping[str, str]) -> onnxruntime.SessionOptions:
    """Return a copy of session options with additional entries, obtained from a session on a minimal model."""
    if options is None:
        copy = onnxruntime.SessionOptions()
    else:
        copy = _session(_IDENTITY, options).get_session_options()
        copy.enable_profiling = options.enable_profiling
    for name, value in entries.items():
        copy.add_session_config_entry(name, value)
    return copy


def _session(model: bytes | Path, options: onnxruntime.SessionOptions) -> onnxruntime.InferenceSession:
    """Return a session that writes no profile. Options that would write one are changed temporarily."""
    with _changing:
        profiling, options.enable_profiling = options.enable_profiling, False
        try:
            return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"], enable_fallback=0)
        finally:
            options.enable_profiling = profiling


def holds(options: onnxruntime.SessionOptions | None, initializers: Iterable[str], files: Iterable[str]) -> bool:
    """Return whether options contain one of these initializers or external files in memory, or cannot be copied."""
    # Options cannot be inspected. But a copy refuses a second initializer with the same name, and a model without its
    # external data can be opened only with options that contain it. Copies do not contain files.
    if options is None:
        return False
    value = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(1, np.float32))
    try:
        copy = copied(options, {})
        for name in initializers:
            copy.add_initializer(name, value)
            copy.add_external_initializers([name], [value])
    except Exception:  # the only common class of the errors of ONNX Runtime
        return True
    for file in files:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model.onnx")
            path.write_bytes(_model_of(file))
            with suppress(Exception):  # as above
                _session(path, options)
                return True
    return False


def _model_of(location: str) -> bytes:
    """Return a minimal ONNX model that returns a byte of an external file."""

    def field(number: int, *parts: bytes) -> bytes:
        size = len(b"".join(parts))
        return bytes((number << 3 | 2, size & 127 | 128, size >> 7 & 127 | 128, size >> 14)) + b"".join(parts)

    data = field(13, field(1, b"location"), field(2, location.encode()))
    tensor = field(5, b"\x08\x01\x10\x02", field(8, b"w"), data, b"\x70\x01")
    node = field(1, field(1, b"w"), field(2, b"y"), field(4, b"Identity"))
    output = field(12, field(1, b"y"), field(2, field(1, b"\x08\x02", field(2, field(1, b"\x08\x01")))))
    return b"\x08\x08" + field(7, node, field(2, b"g"), tensor, output) + field(8, b"\x10\x0d")


def entry(options: onnxruntime.SessionOptions | None, name: str) -> str | None:
    """Return an entry of session options, or None if it is not set."""
    if options is None:
        return None
    try:
        value: str = options.get_session_config_entry(name)
    except RuntimeError:
        return None
    return value


def deciding(options: onnxruntime.SessionOptions | None) -> dict[str, str]:
    """Return the entries that determine the optimized model and its prepacked weights."""
    found = {"graph_optimization_level": (options or onnxruntime.SessionOptions()).graph_optimization_level.name}
    found.update({name: value for name in DECIDING if (value := entry(options, name)) is not None})
    return found


def with_deciding(entries: Mapping[str, str]) -> onnxruntime.SessionOptions:
    """Return session options with entries that `deciding` returned."""
    options = onnxruntime.SessionOptions()
    for name, value in entries.items():
        if name == "graph_optimization_level":
            options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, value)
        else:
            options.add_session_config_entry(name, value)
    return options
