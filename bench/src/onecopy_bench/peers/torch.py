"""torch.load, mapped and read, of a file that torch.save has written; and torch tensors as bytes, for all peers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from onecopy_bench.files.configurations import Configuration, Job, Named, Opened, Twin, module


def bytes_of(tensors: Mapping[str, Any], job: Job) -> Callable[[], Iterable[Named]]:
    """Return the pieces of a job out of torch tensors, as bytes and without a copy."""
    torch = module("torch")

    def arrays() -> Iterable[Named]:
        for piece in job.pieces:
            yield piece.name, tensors[piece.name].detach().reshape(-1).view(torch.uint8).numpy()

    return arrays


def write(source: str, target: str) -> None:
    """Write the tensors of a safetensors file with torch.save."""
    module("torch").save(module("safetensors.torch").load_file(source), target)


def open_pt(job: Job, *, mmap: bool) -> Opened:
    """Load the twin: lazily out of a private mapping, or into private memory."""
    tensors = module("torch").load(job.path, mmap=mmap, weights_only=True)
    return Opened(bytes_of(tensors, job), keep=tensors)


def _load(name: str, mmap: bool) -> Configuration:
    return Configuration(
        name,
        f"load(mmap={mmap})",
        partial(open_pt, mmap=mmap),
        modules=("torch", "safetensors.torch"),
        optional=("ml_dtypes", "torch.utils.serialization.config"),
        kinds=("safetensors",),
        twin=Twin(".pt", write),
        private_share=0.0 if mmap else 1.0,
    )


ROWS = (_load("torch.load mmap", mmap=True), _load("torch.load", mmap=False))
