"""What `bench open` compares: onecopy, and loaders of torch tensors and arrays, a function and a line of `ROWS` each.

Each loads what a job names, keeps it, and yields every piece as an array of bytes in the order of the job; the touch
and the checksum are the same code for all. Packages are imported by name in the processes, where they are installed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from onecopy_bench.engine.child import module
from onecopy_bench.files.loaders import (
    ONECOPY,
    Job,
    Loader,
    Location,
    Notes,
    Opened,
    Twin,
    items,
    open_nothing,
    views,
)

Tensors = Mapping[str, Any]


def bytes_of(tensors: Tensors, job: Job) -> Callable[[], Iterable[Location]]:
    """Return the pieces of a job out of torch tensors, as bytes and without a copy."""
    torch = module("torch")

    def arrays() -> Iterable[Location]:
        for piece in job.pieces:
            yield piece.name, tensors[piece.name].detach().reshape(-1).view(torch.uint8).numpy()

    return arrays


def _open_tensors(job: Job, *, load: Callable[[Job], Tensors]) -> Opened:
    tensors = load(job)
    return Opened(bytes_of(tensors, job), keep=tensors)


def _calling(name: str, function: str, **options: Any) -> Callable[[Job], Tensors]:
    """Return what loads a file by one function of a module."""
    return partial(_call, name, function, options)


def _call(name: str, function: str, options: dict[str, Any], job: Job) -> Tensors:
    tensors: Tensors = getattr(module(name), function)(job.path, **options)
    return tensors


def _open_numpy(job: Job) -> Opened:
    """Load into NumPy arrays: each tensor is copied out of the mapping."""
    arrays = module("safetensors.numpy").load_file(job.path)
    return Opened(items(arrays, job), keep=arrays)


def _write_pt(source: str, target: str) -> None:
    module("torch").save(module("safetensors.torch").load_file(source), target)


def _load_runai(job: Job, *, concurrency: int | None = None) -> Tensors:
    """Stream the whole file by several threads; the tensors are views of the private buffers of the streamer."""
    if concurrency is not None:
        os.environ["RUNAI_STREAMER_CONCURRENCY"] = str(concurrency)
    with module("runai_model_streamer").SafetensorsStreamer() as streamer:
        streamer.stream_file(job.path)
        return dict(streamer.get_tensors())


def _open_fastsafetensors(job: Job) -> Opened:
    """Copy the file to the "device" cpu, into one private buffer, without GPUDirect; tensors are views of it."""
    package = module("fastsafetensors")
    loader = package.SafeTensorsFileLoader(package.SingleGroup(), "cpu", nogds=True)
    loader.add_filenames({0: [job.path]})
    buffer = loader.copy_files_to_device()
    tensors = {piece.name: buffer.get_tensor(piece.name) for piece in job.pieces}
    return Opened(bytes_of(tensors, job), keep=(loader, buffer, tensors))


def _write_tensorizer(source: str, target: str) -> None:
    serializer = module("tensorizer").TensorSerializer(target)
    serializer.write_state_dict(module("safetensors.torch").load_file(source))
    serializer.close()


def _open_memmap(job: Job) -> Opened:
    """Map the file with NumPy; the pages come with the touches. Where tensors lie is known: no header is read."""
    mapping = np.memmap(job.path, np.uint8, mode="r")
    return Opened(views(np.asarray(mapping), job), keep=mapping)


def _open_fromfile(job: Job) -> Opened:
    data = np.fromfile(job.path, np.uint8)
    return Opened(views(data, job), keep=data)


def open_file(
    job: Job, *, mode: str = "map", warm: bool = False, verify: bool = False, part: bool = False, **options: Any
) -> Opened:
    """Open a file with onecopy; `warm` populates the mapping before the touches, or the `part` of it that is touched.

    `verify` compares its checksums as well.
    """
    onecopy = module("onecopy")
    if job.kind == "safetensors":
        file = onecopy.open(job.path, mode=mode)
        arrays = items(file, job)
    else:
        file = onecopy.Mapping(job.path, mode=mode)
        arrays = views(np.frombuffer(file.view(), np.uint8), job)
    ranges = [(piece.offset, piece.nbytes) for piece in job.pieces] if part else None

    def populate() -> Notes:
        return _notes_of(file.warm(verify=True) if verify else onecopy.warm(file, ranges, **options))

    return Opened(arrays, keep=file, warm=populate if warm else None)


def _open_load_into(job: Job, *, warm: bool) -> Opened:
    """Return a torch module on the meta device the file's weights, mapped."""
    onecopy = module("onecopy")
    with onecopy.open(job.path) as file:
        empty = _module_like({name: file.entry(name).shape for name in file})
    report = onecopy.torch.load_into(empty, job.path, unsafe_shared=True, warm=warm)
    tensors = empty.state_dict()
    waits = (lambda: _notes_of(report.warming.wait())) if warm else None
    return Opened(bytes_of(tensors, job), keep=(empty, tensors), warm=waits)


def _module_like(shapes: Mapping[str, tuple[int, ...]]) -> Any:
    """Return a module on the meta device that has parameters of these names and shapes."""
    nn = module("torch").nn
    root = nn.Module()
    for name, shape in shapes.items():
        *path, last = name.split(".")
        place = root
        for part in path:
            if part not in place._modules:
                place.add_module(part, nn.Module())
            place = place._modules[part]
        place.register_parameter(last, nn.Parameter(module("torch").empty(shape, device="meta"), requires_grad=False))
    return root


def _notes_of(report: object) -> Notes:
    """Return the plain facts of a report: every public attribute that is a number, a word or None."""
    facts = {name: getattr(report, name) for name in dir(report) if not name.startswith("_")}
    return {name: fact for name, fact in facts.items() if isinstance(fact, bool | int | float | str | None)}


def _tensors(name: str, detail: str, load: Callable[[Job], Tensors], needs: Iterable[str], **more: Any) -> Loader:
    settings: dict[str, Any] = {"kinds": ONE, "private": 1.0, "needs": ("torch", *needs)} | more
    return Loader(name, detail, open=partial(_open_tensors, load=load), **settings)


def _ours(name: str, detail: str, private: float = 0.0, **settings: Any) -> Loader:
    return Loader(name, detail, open=partial(open_file, **settings), private=private)


def _into(name: str, detail: str, *, warm: bool) -> Loader:
    return Loader(
        name, detail, open=partial(_open_load_into, warm=warm), needs=("torch", *ONECOPY), kinds=ONE,
        optional=("onecopy.frameworks.torch", "ml_dtypes"),
        by_request=True,  # to a module it is what `map` is to arrays
    )  # fmt: skip


ONE: tuple[Any, ...] = ("safetensors",)
SAFETENSORS, RUNAI = ("safetensors.torch",), ("runai_model_streamer", "runai_model_streamer.libstreamer")
PT, TENSORIZER = Twin(".pt", _write_pt), Twin(".tensors", _write_tensorizer)
LAZY = ("ml_dtypes", "torch.utils.serialization.config")
"""What torch.load would import on the clock."""

ROWS = (
    _ours("copy", "open(mode='copy')", 1.0, mode="copy"),
    _ours("map", "open()"),
    _ours("map+warm", "open(), .warm()", warm=True),
    # By request, because files of other tools have no checksums.
    Loader(
        "map+verify", "open(), .warm(verify=True)", open=partial(open_file, warm=True, verify=True), kinds=ONE,
        by_request=True,
    ),
    _into("load_into", "torch.load_into(module)", warm=False),
    _into("load_into+warm", "load_into(module, warm=True)", warm=True),
    _tensors(
        "safetensors.torch", "load_file (mmap)", _calling("safetensors.torch", "load_file", backend="mmap"),
        SAFETENSORS, private=0.0,
    ),
    _tensors(
        "safetensors.pread", "load_file (pread)", _calling("safetensors.torch", "load_file", backend="pread"),
        SAFETENSORS,
    ),
    Loader(
        "safetensors.numpy", "load_file (copies)", open=_open_numpy, needs=("safetensors.numpy",), kinds=ONE,
        private=2.0,
    ),
    _tensors(
        "torch.load mmap", "load(mmap=True)", _calling("torch", "load", mmap=True, weights_only=True), SAFETENSORS,
        optional=LAZY, twin=PT, private=0.0,
    ),
    _tensors(
        "torch.load", "load(mmap=False)", _calling("torch", "load", mmap=False, weights_only=True), SAFETENSORS,
        optional=LAZY, twin=PT,
    ),
    _tensors("runai", "stream_file, default threads", _load_runai, RUNAI),
    _tensors("runai-16", "stream_file, 16 threads", partial(_load_runai, concurrency=16), RUNAI),
    Loader(
        "fastsafetensors", "nogds=True, cpu", open=_open_fastsafetensors, needs=("torch", "fastsafetensors"),
        optional=("ml_dtypes", "fastsafetensors.frameworks._torch"), kinds=ONE, private=1.0,
    ),
    *(
        _tensors(
            f"tensorizer-{readers}", f"num_readers={readers}, cpu",
            _calling("tensorizer", "TensorDeserializer", device="cpu", num_readers=readers),
            (*SAFETENSORS, "tensorizer"), twin=TENSORIZER,
        )
        for readers in (1, 4)
    ),
    Loader("numpy.memmap", "plain touch", open=_open_memmap, needs=("numpy", "mmap")),
    Loader("numpy.fromfile", "one read", open=_open_fromfile, needs=("numpy",), private=1.0),
    Loader("empty", "imports only", open=open_nothing, uses_cache=False),
)  # fmt: skip
"""The first row is what the others are relative to."""
