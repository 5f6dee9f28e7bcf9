"""The safetensors package: its mapping, its reader, and its NumPy face."""

from __future__ import annotations

from functools import partial

from onecopy_bench.files.configurations import Configuration, Job, Opened, items, module
from onecopy_bench.peers.ours import REPEATS
from onecopy_bench.peers.torch import bytes_of


def open_torch(job: Job, *, backend: str) -> Opened:
    """Load into torch tensors: views of a private mapping ("mmap"), or read into private memory ("pread")."""
    tensors = module("safetensors.torch").load_file(job.path, backend=backend)
    return Opened(bytes_of(tensors, job), keep=tensors)


def open_numpy(job: Job) -> Opened:
    """Load into NumPy arrays: each tensor is copied out of the mapping."""
    arrays = module("safetensors.numpy").load_file(job.path)
    return Opened(items(arrays, job), keep=arrays)


def list_names(job: Job) -> Opened:
    """Open the file and list the names of its arrays, `REPEATS` times."""
    safe_open = module("safetensors").safe_open
    for _ in range(REPEATS):
        with safe_open(job.path, framework="numpy") as file:
            names = file.keys()
    return Opened(None, keep=names)


def _torch(name: str, backend: str, private_share: float) -> Configuration:
    return Configuration(
        name,
        f"load_file ({backend})",
        partial(open_torch, backend=backend),
        modules=("torch", "safetensors.torch"),
        kinds=("safetensors",),
        private_share=private_share,
    )


ROWS = (
    _torch("safetensors.torch", "mmap", 0.0),
    _torch("safetensors.pread", "pread", 1.0),
    Configuration(
        "safetensors.numpy",
        "load_file (copies)",
        open_numpy,
        modules=("safetensors.numpy",),
        kinds=("safetensors",),
        private_share=2.0,
    ),
)
KEYS = Configuration("keys-safetensors", "safe_open(), keys()", list_names, modules=("safetensors.numpy",))
