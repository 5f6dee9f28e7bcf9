"""fastsafetensors without GPUDirect: the whole file into one private buffer, tensors as views of it."""

from __future__ import annotations

from onecopy_bench.files.configurations import Configuration, Job, Opened, module
from onecopy_bench.peers.torch import bytes_of


def open_loader(job: Job) -> Opened:
    """Copy the file to the "device" cpu and take every tensor."""
    peer = module("fastsafetensors")
    loader = peer.SafeTensorsFileLoader(peer.SingleGroup(), "cpu", nogds=True)
    loader.add_filenames({0: [job.path]})
    buffer = loader.copy_files_to_device()
    tensors = {piece.name: buffer.get_tensor(piece.name) for piece in job.pieces}
    return Opened(bytes_of(tensors, job), keep=(loader, buffer, tensors))


ROWS = (
    Configuration(
        "fastsafetensors",
        "nogds=True, cpu",
        open_loader,
        modules=("torch", "fastsafetensors"),
        optional=("ml_dtypes", "fastsafetensors.frameworks._torch"),
        kinds=("safetensors",),
        private_share=1.0,
    ),
)
