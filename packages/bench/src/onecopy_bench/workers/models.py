"""The ways to open a model, what ONNX Runtime offers by hand and the rungs of onecopy; and the process that runs it."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onecopy_bench.engine import ways
from onecopy_bench.engine.child import Steps, module
from onecopy_bench.engine.ways import named

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


def words(rows: int = 32768, width: int = 2048, layers: int = 32) -> Any:
    """Return a model that looks rows up and multiplies them with matrices: 256 MB of embedding, 32 times 16 MB."""
    from onnx import TensorProto, helper

    weights = {"words": _normal(np.random.default_rng(0), (rows, width))}
    nodes, random = [helper.make_node("Gather", ["words", "ids"], ["x0"])], np.random.default_rng(0)
    for layer in range(layers):
        weights[f"w{layer}"] = _normal(random, (width, width), width)
        nodes.append(helper.make_node("MatMul", [f"x{layer}", f"w{layer}"], [f"x{layer + 1}"]))
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


_PACKING_OFF = {"session.disable_prepacking": "1"}
_MAPPED = {"session.use_memory_mapped_ort_model": "1"}
_IN_PLACE = _MAPPED | {"session.use_ort_model_bytes_for_initializers": "1"}
EMPTY = "empty"
"""The row of a process that has imported everything and opened nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way(ways.Way):
    """One way to open one file of a model's folder, given SessionOptions in which the entries are set.

    `packs` is whether kernels use packed weights: outputs are equal among those that do, and among those that do not.
    `prepare` is called once per machine, before anything is measured.
    """

    file: str
    open: Callable[[Path, Any], Any]
    entries: dict[str, str] = field(default_factory=dict)
    packs: bool = True
    prepare: Callable[[Path], object] | None = None


def _plain(path: Path, options: Any) -> Any:
    return module("onnxruntime").InferenceSession(path, options)


def _ours(mode: str, path: Path, options: Any = None, **more: Any) -> Any:
    return module("onecopy").onnxruntime.session(path, mode, sess_options=options, store=path.parent / "store", **more)


def _opened(mode: str, path: Path, options: Any) -> Any:
    session = _ours(mode, path, options)
    # Where no kernel packs anything, what was saved once per machine is opened as "direct".
    wanted = {"auto": ("prepacked", "read", "direct"), "prepacked": ("prepacked", "direct")}.get(mode, (mode,))
    if session.onecopy.mode not in wanted:
        raise RuntimeError(f"it is {session.onecopy.mode}: {session.onecopy.reason}")
    return session


def _way(name: str, detail: str, file: str, open: Callable[[Path, Any], Any] = _plain, **more: Any) -> Way:  # noqa: A002
    return Way(name, detail, file=file, open=open, ours=name.startswith("onecopy"), **more)


_OFF: dict[str, Any] = {"packs": False, "entries": _PACKING_OFF}
_UNPACKED: dict[str, Any] = {"packs": False}
_ONCE: dict[str, Any] = {"prepare": partial(_ours, "prepacked", wait=True)}

WAYS = (
    _way("inline", ".onnx with its weights inside, as it is", INLINE),
    _way("external", "external data, as it is", EXTERNAL),
    _way("external, not packed", "disable_prepacking", EXTERNAL, **_OFF),
    _way("ort", ".ort, as it is", ORT),
    _way("ort, mapped", "use_memory_mapped_ort_model", ORT, entries=_MAPPED),
    _way("ort, mapped, bytes", "and use_ort_model_bytes_for_initializers", ORT, entries=_IN_PLACE),
    _way("saved packed", "an optimised model with packed weights, saved and opened by hand", PACKED),
    _way("onecopy direct", "session(external, 'direct')", EXTERNAL, partial(_opened, "direct"), **_UNPACKED),
    _way(
        "onecopy direct, inline", "session(inline, 'direct'): aligned once per machine", INLINE,
        partial(_opened, "direct"), **_UNPACKED, **_ONCE,
    ),
    _way("onecopy direct, ort", "session(ort, 'direct')", ORT, partial(_opened, "direct"), **_UNPACKED),
    _way("onecopy packed", "session(inline, 'prepacked')", INLINE, partial(_opened, "prepacked"), **_ONCE),
    _way("onecopy auto", "session(inline, 'auto')", INLINE, partial(_opened, "auto"), **_ONCE),
)  # fmt: skip


_OTHER = 16  # extent of symbolic axes other than the batch
_TYPES = {
    f"tensor({name})": code
    for name, code in {
        "bool": "?", "double": "f8", "float": "f4", "float16": "f2", "int16": "i2", "int32": "i4", "int64": "i8",
        "int8": "i1", "uint16": "u2", "uint32": "u4", "uint64": "u8", "uint8": "u1",
    }.items()
}  # fmt: skip


def _inputs_of(session: Any, batch: int, given: str | None) -> dict[str, Any]:
    """Return inputs: those of a file; else random rows of the embedding, small random floats, zeros of other types."""
    if given is not None:
        with np.load(given) as file:
            return dict(file)
    random = np.random.default_rng(0)
    first = next((e for one in session.get_inputs() for e in one.shape if not isinstance(e, int)), None)
    inputs: dict[str, Any] = {}
    for one in session.get_inputs():
        if one.type not in _TYPES:
            raise RuntimeError(f"the model's input {one.name!r} of type {one.type} cannot be made up")
        shape = [e if isinstance(e, int) else batch if e == first else _OTHER for e in one.shape]
        dtype = np.dtype(_TYPES[one.type])
        values = random.standard_normal(shape) * 0.1 if dtype.kind == "f" else np.zeros(shape)
        inputs[one.name] = values.astype(dtype)
    if "ids" in inputs:
        inputs["ids"] = np.random.default_rng(batch).integers(0, 32768, inputs["ids"].shape)
    return inputs


def _options_of(way: Way, threads: int) -> Any:
    options = module("onnxruntime").SessionOptions()
    options.intra_op_num_threads = threads
    for name, value in way.entries.items():
        options.add_session_config_entry(name, value)
    return options


def play(
    way: str = EMPTY,
    folder: str = "",
    batches: tuple[int, ...] = (1, 64),
    runs: int = 20,
    threads: int = 1,
    inputs: str | None = None,
    prepares: bool = False,
    writes: tuple[str, str | None] | None = None,
) -> Steps:
    """Open the model of a folder, run each batch once, and hold it; then run every batch again and again, by turns.

    `prepares`: what the way needs once per machine, and that is all. `writes`, the name of a model and a file: the
    model is written into the folder in all its forms, which takes several times its size of heap.
    """
    if writes is not None:
        yield "ready", {}
        write(writes[0], Path(folder), writes[1])
        yield "opened", {}
        return
    module("onnxruntime")  # before the clock starts
    module("onecopy.frameworks.onnxruntime")
    gc.collect()
    yield "ready", {}
    if way == EMPTY:
        yield "opened", {"create_ns": 0, "first_ns": 0, "sums": []}
        yield "ran", {"times": []}
        return
    chosen = named(WAYS, way)
    path = Path(folder) / chosen.file
    if prepares:
        if chosen.prepare is not None:
            chosen.prepare(path)
        yield "opened", {}
        return
    options = _options_of(chosen, threads)
    start = perf_counter_ns()
    session = chosen.open(path, options)
    created, first, sums = perf_counter_ns(), 0, []
    given = [_inputs_of(session, batch, inputs) for batch in batches]
    for one in given:
        before = perf_counter_ns()
        outputs = session.run(None, one)
        first = first or perf_counter_ns() - before
        sums.append(blake2b(b"".join(output.tobytes() for output in outputs), digest_size=8).hexdigest())
    yield "opened", {"create_ns": created - start, "first_ns": first, "sums": sums}
    times: list[list[int]] = [[] for _ in given]
    for _ in range(runs):
        for one, into in zip(given, times, strict=True):
            before = perf_counter_ns()
            session.run(None, one)
            into.append(perf_counter_ns() - before)
    yield "ran", {"times": times}
