"""The ways to open a model, what ONNX Runtime offers by hand and the rungs of onecopy; and the process that runs it."""

from __future__ import annotations

import gc
import mmap
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np

from onecopy_bench.engine import ways
from onecopy_bench.engine.child import Steps
from onecopy_bench.engine.ways import named
from onecopy_bench.workers.models_written import EXTERNAL, INLINE, ORT, PACKED, write

_PACKING_OFF = {"session.disable_prepacking": "1"}
_MAPPED = {"session.use_memory_mapped_ort_model": "1"}
_IN_PLACE = _MAPPED | {"session.use_ort_model_bytes_for_initializers": "1"}
EMPTY = "empty"
"""The row of a process that has imported everything and opened nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way(ways.Way):
    """One way to open one file of a model's folder.

    Attributes
    ----------
    file
        Which file of the folder.
    open
        Called with the file and SessionOptions; returns the session.
    entries
        Set in the options before.
    packs
        Whether kernels use packed weights: outputs are equal among those that do, and among those that do not.
    prepare
        Called once per machine, before anything is measured.
    """

    file: str
    open: Callable[[Path, Any], Any]
    entries: dict[str, str] = field(default_factory=dict)
    packs: bool = True
    prepare: Callable[[Path], object] | None = None


def _plain(path: Path, options: Any) -> Any:
    import onnxruntime

    return onnxruntime.InferenceSession(path, options)


def _given(method: str) -> Callable[[Path, Any], Any]:
    """Return what gives weights of the external data to a session, as arrays of a memmap."""

    def open_it(path: Path, options: Any) -> Any:
        import onnxruntime

        import onecopy as oc
        from onecopy import _core

        with oc.Mapping(path) as mapping:
            tensors: Any = _core.parse_onnx(mapping.core)["tensors"]
        file = np.memmap(path.parent / "external.bin", mode="r")
        values = {}
        for name, _, _, shape, storage, offset, nbytes, _, _ in tensors:
            if storage == "external" and nbytes % 4 == 0:
                array = np.frombuffer(file, np.float32, nbytes // 4, offset).reshape(shape)
                values[name] = onnxruntime.OrtValue.ortvalue_from_numpy(array)
        if method == "add_initializer":
            for name, value in values.items():
                options.add_initializer(name, value)
        else:
            options.add_external_initializers(list(values), list(values.values()))
        session = onnxruntime.InferenceSession(path, options)
        session.bench_holds = values
        return session

    return open_it


def _files_in_memory(path: Path, options: Any) -> Any:
    import onnxruntime

    with (path.parent / "external.bin").open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    options.add_external_initializers_from_files_in_memory(["external.bin"], [mapped], [len(mapped)])
    session = onnxruntime.InferenceSession(path, options)
    session.bench_holds = mapped
    return session


def _ours(mode: str) -> Callable[[Path, Any], Any]:
    def open_it(path: Path, options: Any) -> Any:
        import onecopy as oc

        session = oc.onnxruntime.session(path, mode, sess_options=options, store=path.parent / "store")  # type: ignore[arg-type]
        # Where no kernel packs anything, what was saved once per machine is opened as "direct".
        wanted = {"auto": ("prepacked", "read", "direct"), "prepacked": ("prepacked", "direct")}.get(mode, (mode,))
        if session.onecopy.mode not in wanted:
            raise RuntimeError(f"it is {session.onecopy.mode}: {session.onecopy.reason}")
        return session

    return open_it


def _prepacked_by_us(path: Path) -> object:
    import onecopy as oc

    return oc.onnxruntime.session(path, "prepacked", wait=True, store=path.parent / "store")


def _way(name: str, detail: str, file: str, open: Callable[[Path, Any], Any] = _plain, **more: Any) -> Way:  # noqa: A002
    return Way(name, detail, file=file, open=open, ours=name.startswith("onecopy"), **more)


_OFF: dict[str, Any] = {"packs": False, "entries": _PACKING_OFF}
_UNPACKED: dict[str, Any] = {"packs": False}
_ONCE: dict[str, Any] = {"prepare": _prepacked_by_us}

WAYS = (
    _way("inline", ".onnx with its weights inside, as it is", INLINE),
    _way("external", "external data, as it is", EXTERNAL),
    _way("external, not packed", "disable_prepacking", EXTERNAL, **_OFF),
    _way("ort", ".ort, as it is", ORT),
    _way("ort, mapped", "use_memory_mapped_ort_model", ORT, entries=_MAPPED),
    _way("ort, mapped, bytes", "and use_ort_model_bytes_for_initializers", ORT, entries=_IN_PLACE),
    _way(
        "ort, mapped, bytes, not packed", "and disable_prepacking", ORT, entries=_IN_PLACE | _PACKING_OFF, **_UNPACKED
    ),
    _way("add_initializer", "OrtValues of a memmap", EXTERNAL, _given("add_initializer")),
    _way("add_initializer, not packed", "and disable_prepacking", EXTERNAL, _given("add_initializer"), **_OFF),
    _way("add_external_initializers", "OrtValues of a memmap", EXTERNAL, _given("add_external_initializers")),
    _way("files in memory", "add_external_initializers_from_files_in_memory", EXTERNAL, _files_in_memory),
    _way("saved packed", "an optimised model with packed weights, saved and opened by hand", PACKED),
    _way("onecopy read", "session(inline, 'read')", INLINE, _ours("read")),
    _way("onecopy map", "session(inline, 'map')", INLINE, _ours("map")),
    _way("onecopy direct", "session(external, 'direct')", EXTERNAL, _ours("direct"), **_UNPACKED),
    _way(
        "onecopy direct, inline", "session(inline, 'direct'): aligned once per machine", INLINE, _ours("direct"),
        **_UNPACKED, **_ONCE,
    ),
    _way("onecopy direct, ort", "session(ort, 'direct')", ORT, _ours("direct"), **_UNPACKED),
    _way("onecopy packed", "session(inline, 'prepacked')", INLINE, _ours("prepacked"), **_ONCE),
    _way("onecopy auto", "session(inline, 'auto')", INLINE, _ours("auto"), **_ONCE),
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
    import onnxruntime

    options = onnxruntime.SessionOptions()
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
    import onnxruntime  # noqa: F401 - before the clock starts

    import onecopy.integrations.onnxruntime  # noqa: F401

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
