"""`onecopy bench models`: the cost of ONNX Runtime sessions for each way to open the model, in one or more processes.

The methods are those of ONNX Runtime and the modes of onecopy. In every sample, N fresh processes open the same model
with the same method, all at the same time. Each runs every batch once, and its outputs are compared with those of ONNX
Runtime alone. Then the memory of all processes is measured, and, if there is only one process, the time of `run`. The
memory of processes that have imported everything but opened nothing is subtracted.
"""

from __future__ import annotations

import functools
import gc
import itertools
import os
import shutil
import statistics
from collections.abc import Callable, Iterator
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
from onecopy_bench.record import Absent, Record, Row
from onecopy_bench.runs import Attempt, Measured, Settings, Trial
from onecopy_bench.scenario import Plan, Scenario, Setup, option
from onecopy_bench.system import Peak, totals_of
from onecopy_bench.tables import EMPTY, MB, Column, Table, less_empty, percentile_99, plain, table
from onecopy_bench.worker import SampleError, Steps

NAME, NEEDS = "models", ("onnx", "onnxruntime")
HEAPS = 3.0
"""The maximum memory that a process needs to open a file, as a multiple of the file's size."""
INLINE, EXTERNAL, ORT, PACKED = "inline.onnx", "external.onnx", "model.ort", "packed.onnx"
"""The files in a model's folder."""

_PACKED = {
    "session.save_external_prepacked_constant_initializers": "1",
    "session.optimized_model_external_initializers_file_name": "packed.bin",
    "session.optimized_model_external_initializers_min_size_in_bytes": "1024",
}


def _normal(random: np.random.Generator, shape: tuple[int, ...], inputs: int = 1) -> NDArray[np.float32]:
    """Return random weights, scaled so that outputs are about as large as inputs."""
    return random.standard_normal(shape, np.float32) / np.float32(inputs**0.5)


def model_of(nodes: list[Any], weights: dict[str, NDArray[Any]], first: Any, last: tuple[str, list[Any]]) -> Any:
    """Return a model with these nodes and weights, one input and one output."""
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
    """Return a model that looks up rows in a 256 MB table and multiplies them by 32 matrices of 16 MB."""
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
    """Write a model in all formats. `file` is the user's model (None: write a synthetic model)."""
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
    for target, entries in ((ORT, {"session.save_model_format": "ORT"}), (PACKED, _PACKED)):
        _plain(external, _options(entries, log_severity_level=3, optimized_model_filepath=str(folder / target)))


def _options(entries: dict[str, str], **settings: Any) -> Any:
    """Return SessionOptions with the given entries and attributes."""
    options = module("onnxruntime").SessionOptions()
    for name, value in settings.items():
        setattr(options, name, value)
    for name, value in entries.items():
        options.add_session_config_entry(name, value)
    return options


_PACKING_OFF = {"session.disable_prepacking": "1"}
_MAPPED = {"session.use_memory_mapped_ort_model": "1"}
_IN_PLACE = _MAPPED | {"session.use_ort_model_bytes_for_initializers": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Method(Peer):
    """A method of opening one file in a model's folder, with SessionOptions that contain `entries`.

    `mode`: the mode of a onecopy session. `packs`: kernels use packed weights; methods with equal `packs` produce
    equal outputs. `prepares`: the method builds a file once per machine, before anything is measured.
    """

    file: str
    open: Callable[[Path, Any], Any]
    entries: dict[str, str] = field(default_factory=dict)
    mode: str = ""
    packs: bool = True
    prepares: bool = False


def _plain(path: Path, options: Any) -> Any:
    return module("onnxruntime").InferenceSession(path, options)


def _ours(mode: str, path: Path, options: Any = None, **more: Any) -> Any:
    return module("onecopy").onnxruntime.session(path, mode, sess_options=options, store=path.parent / "store", **more)


def _expect_mode(session: Any, mode: str) -> None:
    # Where no kernel packs weights, the file that was saved once per machine is opened as "direct".
    wanted = {"auto": ("prepacked", "read", "direct"), "prepacked": ("prepacked", "direct")}.get(mode, (mode,))
    if session.onecopy.mode not in wanted:
        raise RuntimeError(f"the session has the unexpected mode {session.onecopy.mode!r}: {session.onecopy.reason}")


def _method(name: str, detail: str, file: str, mode: str = "", **more: Any) -> Method:
    open_file = partial(_ours, mode) if mode else _plain
    return Method(name, detail, file=file, open=open_file, mode=mode, ours=bool(mode), **more)


METHODS = (
    _method("inline", ".onnx with its weights inside, as it is", INLINE),
    _method("external", "external data, as it is", EXTERNAL),
    _method("external, not packed", "disable_prepacking", EXTERNAL, packs=False, entries=_PACKING_OFF),
    _method("ort", ".ort, as it is", ORT),
    _method("ort, mapped", "use_memory_mapped_ort_model", ORT, entries=_MAPPED),
    _method("ort, mapped, bytes", "and use_ort_model_bytes_for_initializers", ORT, entries=_IN_PLACE),
    _method("saved packed", "an optimised model with packed weights, saved and opened by hand", PACKED),
    _method("onecopy direct", "session(external, 'direct')", EXTERNAL, "direct", packs=False),
    _method(
        "onecopy direct, inline", "session(inline, 'direct'): aligned once per machine", INLINE,
        "direct", packs=False, prepares=True,
    ),
    _method("onecopy direct, ort", "session(ort, 'direct')", ORT, "direct", packs=False),
    _method("onecopy packed", "session(inline, 'prepacked')", INLINE, "prepacked", prepares=True),
    _method("onecopy auto", "session(inline, 'auto')", INLINE, "auto", prepares=True),
)  # fmt: skip


def _prepare(path: Path) -> None:
    """Build the file that a method opens, once per machine."""
    _ours("prepacked", path, wait=True)


_OTHER = 16  # extent of symbolic axes other than the batch
_NAMES = {"float": "float32", "double": "float64"}  # types of ONNX that numpy names otherwise


def _inputs_of(session: Any, batch: int) -> dict[str, Any]:
    """Return synthetic inputs for a model: random row numbers, small random floats, and zeros for other types."""
    random = np.random.default_rng(0)
    first = next((e for one in session.get_inputs() for e in one.shape if not isinstance(e, int)), None)
    inputs: dict[str, Any] = {}
    for one in session.get_inputs():
        name = one.type.removeprefix("tensor(").removesuffix(")")
        try:
            dtype = np.dtype(_NAMES.get(name, name))
        except TypeError as error:
            raise RuntimeError(f"the model's input {one.name!r} has the unsupported type {one.type}") from error
        shape = [e if isinstance(e, int) else batch if e == first else _OTHER for e in one.shape]
        values = random.standard_normal(shape) * 0.1 if dtype.kind == "f" else np.zeros(shape)
        inputs[one.name] = values.astype(dtype)
    if "ids" in inputs:
        inputs["ids"] = np.random.default_rng(batch).integers(0, 32768, inputs["ids"].shape)
    return inputs


def steps(
    method: str = EMPTY,
    folder: str = "",
    batches: tuple[int, ...] = (1, 64),
    runs: int = 20,
    threads: int = 1,
) -> Steps:
    """Open the model in a folder, run each batch once, and keep the session. Then time runs of all batches in turn."""
    module("onnxruntime")  # before the clock starts
    assert module("onecopy").onnxruntime.session  # imported with its module
    gc.collect()
    yield "ready", {}
    if method == EMPTY:
        yield "opened", {"create_ns": 0, "first_ns": 0, "sums": []}
        yield "ran", {"times": []}
        return
    chosen = named(METHODS, method)
    path = Path(folder) / chosen.file
    settings = {"intra_op_num_threads": threads} if threads else {}
    options = _options(chosen.entries, **settings) if chosen.entries or settings else None
    start = perf_counter_ns()
    session = chosen.open(path, options)
    created, first, sums = perf_counter_ns(), 0, []
    if chosen.mode:
        _expect_mode(session, chosen.mode)
    given = [_inputs_of(session, batch) for batch in batches]
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
    """The scenario's options. Each number of `processes` is a case. Memory is measured after one run of each batch."""

    file: str | None = option(None, "Your own .onnx file, instead of synthetic models.", kind="existing", is_path=True)
    models: tuple[str, ...] = option(tuple(MODELS), "Synthetic model to measure.", "--model", choices=tuple(MODELS))
    ways: tuple[str, ...] = option(NAMES, "Method to measure.", "--way", choices=NAMES)
    processes: tuple[int, ...] = option((1, 4), "Number of processes that open the model at the same time.")
    batches: tuple[int, ...] = option((1, 64), "Size of the first dynamic axis of the inputs.", "--batch")
    runs: int = option(20, "Number of timed runs of each batch.")
    threads: int = option(1, "Number of threads of a session; 0: ONNX Runtime decides.", at_least=0)


def plan(setup: Setup, options: Options) -> Plan:
    """Plan a run for each method and case. Raise ModuleNotFoundError if ``onnx`` or ``onnxruntime`` is missing."""
    require(NEEDS, NAME)
    chosen: list[Method | Row] = [method for method in METHODS if method.name in options.ways]
    chosen.append(Row(EMPTY, "imports everything, opens nothing"))
    names = [Path(options.file).stem] if options.file else list(options.models)
    file = os.path.realpath(options.file) if options.file else None
    data: dict[str, int] = {}
    trials, absent = [], []
    for at, name in enumerate(names):
        setup.say(f"writing {name}", at, len(names))
        folder = setup.place / name
        folder.mkdir()
        try:
            call_once(options.timeout, write, name, folder, file)
        except SampleError as error:
            shutil.rmtree(folder)
            absent.append(Absent(name, error.reason))
            continue
        data[name] = size = (folder / INLINE).stat().st_size
        wanted = functools.cache(partial(_sums_of, folder, options))
        for count, method in itertools.product(options.processes, chosen):
            case, needs = (name, counted(count, "process", "processes")), HEAPS * count * size
            take = partial(_take, method, folder, count, wanted, options)
            trials.append(Trial(method.name, case, 0.0 if method.name == EMPTY else needs, take))
    return Plan(chosen, trials, data, absent)


def _sums_of(folder: Path, options: Options, packs: bool) -> list[str]:
    """Return the expected checksums of outputs by batch: those of ONNX Runtime alone, with or without packing."""
    arguments = _arguments_of("external" if packs else "external, not packed", folder, options)
    with start_workers(__name__, 1, options.timeout, **arguments) as workers:
        sums: list[str] = workers.step("opened")[0]["sums"]
        return sums


def _arguments_of(name: str, folder: Path, options: Options) -> dict[str, Any]:
    several = {"batches": options.batches, "runs": options.runs, "threads": options.threads}
    return {"method": name, "folder": str(folder), **several}


def _take(
    method: Method | Row,
    folder: Path,
    count: int,
    wanted: Callable[[bool], list[str]],
    options: Options,
    attempt: Attempt,
) -> Measured:
    """Take a sample of a method, or of processes that open nothing."""
    attempt.begin()
    arguments, expected = _arguments_of(method.name, folder, options), []
    if isinstance(method, Method):
        if method.prepares:
            call_once(options.timeout, _prepare, folder / method.file)
        expected = wanted(method.packs)
    with start_workers(__name__, count, options.timeout, **arguments) as workers:
        peak = Peak(workers.family)
        opened = workers.step("opened", peak.poll)
        if any(message["sums"] != expected for message in opened):
            raise SampleError("wrong data", "the outputs differ from those of ONNX Runtime alone")
        held = totals_of(workers.pids)
        numbers = {name: statistics.median(each[name] for each in opened) for name in ("create_ns", "first_ns")}
        numbers |= {"pss": held["pss"], "uss": held["private"], "anonymous": held["anonymous"]}
        if count == 1:
            (ran,) = workers.step("ran")
            for batch, times in zip(options.batches, ran["times"], strict=False):
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
    """Yield a table for each case, with run times if any were measured."""
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
    threads = record.options["threads"]
    return f"{files}, {counted(threads, 'thread') if threads else 'the default number of threads'} per session"


SCENARIO = Scenario(
    NAME,
    """Measure ONNX Runtime sessions opened in several ways: creation time, memory of all processes, and run time.

    Models are synthetic (an embedding with matrix products of 768 MB, convolutions of 94 MB, the first one again with
    8-bit weights), or your own. Each is written as .onnx with internal and external weights, as .ort, and with packed
    weights. Needs onnx and onnxruntime, and 6 GB of disk. Outputs are compared with those of ONNX Runtime alone, bit by
    bit. """,
    Options(),
    plan,
    _described,
    _tables,
    draw=by_case(DRAWN),
)
