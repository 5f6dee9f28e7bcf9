"""`onecopy bench models`: what ONNX Runtime sessions cost, by how the model is opened, in one process and in several.

The methods are what ONNX Runtime offers by hand and the modes of onecopy. Every sample is N fresh processes that open
one model one method, all at once; each runs it once with every batch and compares what came out with what ONNX Runtime
gives by itself. Then all are measured; then, of one process, the time of `run`. What is subtracted is a sample of
processes that have imported everything and opened nothing.
"""

from __future__ import annotations

import functools
import gc
import os
import shutil
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onecopy.base.text import counted
from onecopy_bench.peers import Peer, module, named, require
from onecopy_bench.pictures import by_case
from onecopy_bench.processes import call_once, start_workers
from onecopy_bench.record import Absent, Case, Record, Row
from onecopy_bench.runs import Attempt, Measured, Settings, Trial
from onecopy_bench.scenario import Plan, Scenario, Setup, UsageError, option
from onecopy_bench.system import Peak, totals_of
from onecopy_bench.tables import EMPTY, MB, Column, Table, less_empty, percentile_99, plain, table
from onecopy_bench.worker import SampleError, Steps

NAME, NEEDS = "models", ("onnx", "onnxruntime")
HEAPS = 3.0
"""Multiples of the file that opening it takes at most, for one process."""
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
    """Write a model in all its forms; `file` is a model of the user, None a synthetic one."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Method(Peer):
    """A method of opening one file of a model's folder, given SessionOptions in which the entries are set.

    `packs` is whether kernels use packed weights: outputs are equal among those that do, and among those that do not.
    `prepares`: something is built once per machine, before anything is measured.
    """

    file: str
    open: Callable[[Path, Any], Any]
    entries: dict[str, str] = field(default_factory=dict)
    packs: bool = True
    prepares: bool = False


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


def _method(name: str, detail: str, file: str, open: Callable[[Path, Any], Any] = _plain, **more: Any) -> Method:  # noqa: A002
    return Method(name, detail, file=file, open=open, ours=name.startswith("onecopy"), **more)


_OFF: dict[str, Any] = {"packs": False, "entries": _PACKING_OFF}
_UNPACKED: dict[str, Any] = {"packs": False}
_ONCE: dict[str, Any] = {"prepares": True}

METHODS = (
    _method("inline", ".onnx with its weights inside, as it is", INLINE),
    _method("external", "external data, as it is", EXTERNAL),
    _method("external, not packed", "disable_prepacking", EXTERNAL, **_OFF),
    _method("ort", ".ort, as it is", ORT),
    _method("ort, mapped", "use_memory_mapped_ort_model", ORT, entries=_MAPPED),
    _method("ort, mapped, bytes", "and use_ort_model_bytes_for_initializers", ORT, entries=_IN_PLACE),
    _method("saved packed", "an optimised model with packed weights, saved and opened by hand", PACKED),
    _method("onecopy direct", "session(external, 'direct')", EXTERNAL, partial(_opened, "direct"), **_UNPACKED),
    _method(
        "onecopy direct, inline", "session(inline, 'direct'): aligned once per machine", INLINE,
        partial(_opened, "direct"), **_UNPACKED, **_ONCE,
    ),
    _method("onecopy direct, ort", "session(ort, 'direct')", ORT, partial(_opened, "direct"), **_UNPACKED),
    _method("onecopy packed", "session(inline, 'prepacked')", INLINE, partial(_opened, "prepacked"), **_ONCE),
    _method("onecopy auto", "session(inline, 'auto')", INLINE, partial(_opened, "auto"), **_ONCE),
)  # fmt: skip


def _prepare(name: str, folder: Path) -> None:
    """Build what a method opens, once per machine."""
    _ours("prepacked", folder / named(METHODS, name).file, wait=True)


_OTHER = 16  # extent of symbolic axes other than the batch
_TYPES = {
    f"tensor({name})": code
    for name, code in {
        "bool": "?", "double": "f8", "float": "f4", "float16": "f2", "int16": "i2", "int32": "i4", "int64": "i8",
        "int8": "i1", "uint16": "u2", "uint32": "u4", "uint64": "u8", "uint8": "u1",
    }.items()
}  # fmt: skip


def _inputs_of(session: Any, batch: int, given: str | None) -> dict[str, Any]:
    """Return the inputs of a file, or made-up ones: random rows and small floats, zeros for other types."""
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


def _options_of(method: Method, threads: int) -> Any:
    options = module("onnxruntime").SessionOptions()
    options.intra_op_num_threads = threads
    for name, value in method.entries.items():
        options.add_session_config_entry(name, value)
    return options


def steps(
    method: str = EMPTY,
    folder: str = "",
    batches: tuple[int, ...] = (1, 64),
    runs: int = 20,
    threads: int = 1,
    inputs: str | None = None,
) -> Steps:
    """Open the model of a folder, run each batch once, and hold it; then time runs of all batches in turn."""
    module("onnxruntime")  # before the clock starts
    module("onecopy.frameworks.onnxruntime")
    gc.collect()
    yield "ready", {}
    if method == EMPTY:
        yield "opened", {"create_ns": 0, "first_ns": 0, "sums": []}
        yield "ran", {"times": []}
        return
    chosen = named(METHODS, method)
    path = Path(folder) / chosen.file
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


# --- the scenario -----------------------------------------------------------------------------------------------------


NAMES = tuple(method.name for method in METHODS)


@dataclass(frozen=True, slots=True)
class Options(Settings):
    """How the scenario is run: each number of `processes` is a case; memory is measured after one run of each batch."""

    file: str | None = option(None, "Your own .onnx file, instead of synthetic models.", kind="existing", is_path=True)
    inputs: str | None = option(None, "An .npz of inputs, for --file.", kind="existing", is_path=True)
    models: tuple[str, ...] = option(tuple(MODELS), "Synthetic model to measure.", "--model", choices=tuple(MODELS))
    ways: tuple[str, ...] = option(NAMES, "How the file is opened.", "--way", choices=NAMES)
    processes: tuple[int, ...] = option((1, 4), "Number of processes that open it at once.")
    batches: tuple[int, ...] = option((1, 64), "Size of the first free axis of the inputs.", "--batch")
    runs: int = option(20, "Number of timed runs of each batch.")
    threads: int = option(1, "Number of threads of a session.")


def plan(setup: Setup, options: Options) -> Plan:
    """Plan every method in every case; raises ModuleNotFoundError without ``onnx`` or ``onnxruntime``."""
    require(NEEDS, NAME)
    chosen = [method for method in METHODS if method.name in options.ways]
    names = [Path(options.file).stem] if options.file else list(options.models)
    folders, absent = {}, []
    for at, name in enumerate(names):
        setup.say(f"writing {name}", at, len(names))
        try:
            folders[name] = _written(setup.place / name, options)
        except SampleError as error:
            absent.append(Absent(name, error.reason))
    data = {name: (folder / INLINE).stat().st_size for name, folder in folders.items()}
    rows = (*chosen, Row(EMPTY, "imports everything, opens nothing"))
    trials = [trial for folder in folders.values() for trial in _trials_of(folder, chosen, options)]
    return Plan(rows, trials, data, absent)


def _written(folder: Path, options: Options) -> Path:
    """Write a model in all its forms, in a child; raises SampleError where that fails."""
    folder.mkdir()
    file = os.path.realpath(options.file) if options.file else None
    try:
        call_once(options.timeout, write, folder.name, folder, file)
    except SampleError:
        shutil.rmtree(folder)
        raise
    return folder


def _trials_of(folder: Path, methods: Sequence[Method], options: Options) -> Iterator[Trial]:
    wanted, size = functools.cache(partial(_sums_of, folder, options)), (folder / INLINE).stat().st_size
    for count in options.processes:
        case: Case = (folder.name, counted(count, "process", "processes"))
        for method in (*methods, None):
            name, needs = (EMPTY, 0.0) if method is None else (method.name, HEAPS * count * size)
            yield Trial(name, case, needs, partial(_take, method, folder, count, wanted, options))


def _sums_of(folder: Path, options: Options, packs: bool) -> list[str]:
    """Return the expected outputs by batch: those of ONNX Runtime alone, packed or not."""
    arguments = _arguments_of("external" if packs else "external, not packed", folder, options)
    with start_workers(__name__, 1, options.timeout, **arguments) as workers:
        sums: list[str] = workers.step("opened")[0]["sums"]
        return sums


def _arguments_of(name: str, folder: Path, options: Options) -> dict[str, Any]:
    inputs = os.path.realpath(options.inputs) if options.inputs else None
    batches = options.batches[:1] if inputs else options.batches
    arguments = {"method": name, "folder": str(folder), "batches": batches, "runs": options.runs}
    return {**arguments, "threads": options.threads, "inputs": inputs}


def _take(
    method: Method | None,
    folder: Path,
    count: int,
    wanted: Callable[[bool], list[str]],
    options: Options,
    attempt: Attempt,
) -> Measured:
    """Take one sample; without a method, of processes that open nothing."""
    attempt.begin()
    arguments = _arguments_of(EMPTY if method is None else method.name, folder, options)
    if method is not None and method.prepares:
        call_once(options.timeout, _prepare, method.name, folder)
    # An .ort file has been optimised by another session: it is its own measure.
    expected = [] if method is None else wanted(method.packs)
    with start_workers(__name__, count, options.timeout, **arguments) as workers:
        peak = Peak(workers.family)
        opened = workers.step("opened", peak.poll)
        if any(message["sums"] != expected for message in opened):
            raise SampleError("wrong data", "outputs are not those of ONNX Runtime by itself")
        held = totals_of(workers.pids)
        numbers = {name: statistics.median(each[name] for each in opened) for name in ("create_ns", "first_ns")}
        numbers |= {"pss": held["pss"], "uss": held["private"], "anonymous": held["anonymous"]}
        if count == 1:
            (ran,) = workers.step("ran")
            for batch, times in zip(arguments["batches"], ran["times"], strict=False):
                numbers[f"run_{batch}_p50_ns"] = statistics.median(times)
                numbers[f"run_{batch}_p99_ns"] = percentile_99(times)
            workers.dismiss()
    return Measured({**numbers, "peak_anonymous": peak.bytes})


MEMORY: tuple[Column, ...] = (
    ("create\nms", plain("create_ns", 1e6)),
    ("first run\nms", plain("first_ns", 1e6)),
    ("total PSS\nMB", plain("pss", MB)),
    ("less empty\nMB", less_empty("pss")),
    ("total USS\nMB", plain("uss", MB)),
    ("anonymous,\nless empty", less_empty("anonymous")),
    ("its peak,\nless empty", less_empty("peak_anonymous")),
)
DRAWN = {"MB, less empty": less_empty("pss"), "ms to create": plain("create_ns", 1e6)}


def _tables(record: Record) -> Iterator[Table]:
    """Yield a table for each case, with the times of runs where any were timed."""
    names, batches = [row.name for row in record.rows], record.options["batches"]
    for case in record.cases():
        timed = any(plain(f"run_{batches[0]}_p50_ns")(record, name, case) for name in names)
        times = [
            (f"run, {batch}\n{which} ms", plain(f"run_{batch}_{which}_ns", 1e6))
            for batch in (batches if timed else ())
            for which in ("p50", "p99")
        ]
        yield table(record, ", ".join(case), case, names, (*MEMORY, *times))


def _described(record: Record) -> str:
    files = ", ".join(f"{name} ({size / MB:.1f} MB)" for name, size in record.data.items())
    return f"{files}, {counted(record.options['threads'], 'thread')} a session"


def _adjusted(options: Options) -> Options:
    if options.inputs and not options.file:
        raise UsageError("--inputs are those of a --file")
    return options


SCENARIO = Scenario(
    NAME,
    """Measure ONNX Runtime sessions: time to create, memory of all processes, time of a run, by how they are opened.

    Models are made up (an embedding with matrix products of 768 MB, convolutions of 94 MB, the first one with 8-bit
    weights), or yours. Each is written as .onnx with its weights inside and outside, as .ort and with packed weights.
    Needs onnx and onnxruntime, and 6 GB of disk. Outputs are compared with those of ONNX Runtime by itself, bit by bit.
    """,
    Options(),
    plan,
    _described,
    _tables,
    draw=by_case(DRAWN),
    adjust=_adjusted,
)
