"""Peers that load torch tensors: safetensors, torch.load, runai-model-streamer, fastsafetensors, tensorizer.

Each is a function from a job to its tensors by name, the call that is measured, and a line of `ROWS`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from onecopy_bench.files.configurations import Configuration, Job, Named, Opened, Twin, items, module

Tensors = Mapping[str, Any]


def bytes_of(tensors: Tensors, job: Job) -> Callable[[], Iterable[Named]]:
    """Return the pieces of a job out of torch tensors, as bytes and without a copy."""
    torch = module("torch")

    def arrays() -> Iterable[Named]:
        for piece in job.pieces:
            yield piece.name, tensors[piece.name].detach().reshape(-1).view(torch.uint8).numpy()

    return arrays


def open_tensors(job: Job, *, load: Callable[[Job], Tensors]) -> Opened:
    """Load tensors and keep them."""
    tensors = load(job)
    return Opened(bytes_of(tensors, job), keep=tensors)


def load_safetensors(job: Job, *, backend: str) -> Tensors:
    """Load views of a private mapping ("mmap"), or read into private memory ("pread")."""
    tensors: Tensors = module("safetensors.torch").load_file(job.path, backend=backend)
    return tensors


def open_numpy(job: Job) -> Opened:
    """Load into NumPy arrays: each tensor is copied out of the mapping."""
    arrays = module("safetensors.numpy").load_file(job.path)
    return Opened(items(arrays, job), keep=arrays)


def load_pt(job: Job, *, mmap: bool) -> Tensors:
    """Load a file of torch.save: lazily out of a private mapping, or into private memory."""
    tensors: Tensors = module("torch").load(job.path, mmap=mmap, weights_only=True)
    return tensors


def write_pt(source: str, target: str) -> None:
    """Write the tensors of a safetensors file with torch.save."""
    module("torch").save(module("safetensors.torch").load_file(source), target)


def load_runai(job: Job, *, concurrency: int | None = None) -> Tensors:
    """Stream the whole file by several threads; the tensors are views of the private buffers of the streamer."""
    if concurrency is not None:
        os.environ["RUNAI_STREAMER_CONCURRENCY"] = str(concurrency)
    with module("runai_model_streamer").SafetensorsStreamer() as streamer:
        streamer.stream_file(job.path)
        return dict(streamer.get_tensors())


def open_fastsafetensors(job: Job) -> Opened:
    """Copy the file to the "device" cpu, into one private buffer, without GPUDirect; tensors are views of it."""
    peer = module("fastsafetensors")
    loader = peer.SafeTensorsFileLoader(peer.SingleGroup(), "cpu", nogds=True)
    loader.add_filenames({0: [job.path]})
    buffer = loader.copy_files_to_device()
    tensors = {piece.name: buffer.get_tensor(piece.name) for piece in job.pieces}
    return Opened(bytes_of(tensors, job), keep=(loader, buffer, tensors))


def load_tensorizer(job: Job, *, readers: int) -> Tensors:
    """Load every tensor of its own container into private memory, by one or several readers."""
    tensors: Tensors = module("tensorizer").TensorDeserializer(job.path, device="cpu", num_readers=readers)
    return tensors


def write_tensorizer(source: str, target: str) -> None:
    """Serialise the tensors of a safetensors file."""
    serializer = module("tensorizer").TensorSerializer(target)
    serializer.write_state_dict(module("safetensors.torch").load_file(source))
    serializer.close()


def _row(name: str, detail: str, load: Callable[[Job], Tensors], modules: Iterable[str], **more: Any) -> Configuration:
    settings: dict[str, Any] = {"kinds": ("safetensors",), "private_share": 1.0, "modules": ("torch", *modules)} | more
    return Configuration(name, detail, partial(open_tensors, load=load), **settings)


SAFETENSORS, RUNAI = ("safetensors.torch",), ("runai_model_streamer", "runai_model_streamer.libstreamer")
PT, TENSORIZER = Twin(".pt", write_pt), Twin(".tensors", write_tensorizer)
LAZY = ("ml_dtypes", "torch.utils.serialization.config")
"""What torch.load would import on the clock."""

ROWS = (
    _row(
        "safetensors.torch", "load_file (mmap)", partial(load_safetensors, backend="mmap"), SAFETENSORS,
        private_share=0.0,
    ),
    _row("safetensors.pread", "load_file (pread)", partial(load_safetensors, backend="pread"), SAFETENSORS),
    Configuration(
        "safetensors.numpy", "load_file (copies)", open_numpy,
        modules=("safetensors.numpy",), kinds=("safetensors",), private_share=2.0,
    ),
    _row(
        "torch.load mmap", "load(mmap=True)", partial(load_pt, mmap=True), SAFETENSORS,
        optional=LAZY, twin=PT, private_share=0.0,
    ),
    _row("torch.load", "load(mmap=False)", partial(load_pt, mmap=False), SAFETENSORS, optional=LAZY, twin=PT),
    _row("runai", "stream_file, default threads", load_runai, RUNAI),
    _row("runai-16", "stream_file, 16 threads", partial(load_runai, concurrency=16), RUNAI),
    Configuration(
        "fastsafetensors", "nogds=True, cpu", open_fastsafetensors,
        modules=("torch", "fastsafetensors"), optional=("ml_dtypes", "fastsafetensors.frameworks._torch"),
        kinds=("safetensors",), private_share=1.0,
    ),
    *(
        _row(
            f"tensorizer-{readers}", f"num_readers={readers}, cpu", partial(load_tensorizer, readers=readers),
            (*SAFETENSORS, "tensorizer"), twin=TENSORIZER,
        )
        for readers in (1, 4)
    ),
)  # fmt: skip
