"""tensorizer: its own container, read into private memory by one or several readers."""

from __future__ import annotations

from functools import partial

from onecopy_bench.files.configurations import Configuration, Job, Opened, Twin, module
from onecopy_bench.peers.torch import bytes_of


def write(source: str, target: str) -> None:
    """Serialise the tensors of a safetensors file."""
    serializer = module("tensorizer").TensorSerializer(target)
    serializer.write_state_dict(module("safetensors.torch").load_file(source))
    serializer.close()


def open_deserializer(job: Job, *, readers: int) -> Opened:
    """Load every tensor of the twin."""
    tensors = module("tensorizer").TensorDeserializer(job.path, device="cpu", num_readers=readers)
    return Opened(bytes_of(tensors, job), keep=tensors)


def _row(readers: int) -> Configuration:
    return Configuration(
        f"tensorizer-{readers}",
        f"num_readers={readers}, cpu",
        partial(open_deserializer, readers=readers),
        modules=("torch", "safetensors.torch", "tensorizer"),
        kinds=("safetensors",),
        twin=Twin(".tensors", write),
        private_share=1.0,
    )


ROWS = (_row(1), _row(4))
