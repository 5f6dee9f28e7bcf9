"""runai-model-streamer: threads that read a file into private buffers, tensors handed out as they come."""

from __future__ import annotations

import os
from functools import partial

from onecopy_bench.files.configurations import Configuration, Job, Opened, module
from onecopy_bench.peers.torch import bytes_of


def open_streamer(job: Job, *, concurrency: int | None) -> Opened:
    """Stream the whole file and keep the tensors, which are views of the streamer's buffers."""
    if concurrency is not None:
        os.environ["RUNAI_STREAMER_CONCURRENCY"] = str(concurrency)
    with module("runai_model_streamer").SafetensorsStreamer() as streamer:
        streamer.stream_file(job.path)
        tensors = dict(streamer.get_tensors())
    return Opened(bytes_of(tensors, job), keep=tensors)


def _row(name: str, concurrency: int | None) -> Configuration:
    return Configuration(
        name,
        f"stream_file, {'default' if concurrency is None else concurrency} threads",
        partial(open_streamer, concurrency=concurrency),
        modules=("torch", "runai_model_streamer", "runai_model_streamer.libstreamer"),
        kinds=("safetensors",),
        private_share=1.0,
    )


ROWS = (_row("runai", None), _row("runai-16", 16))
