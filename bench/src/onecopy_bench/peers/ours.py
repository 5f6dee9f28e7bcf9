"""onecopy itself: copied, mapped, mapped and warmed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from onecopy_bench.files.configurations import Configuration, Job, Named, Notes, Opened, items, module, views
from onecopy_bench.peers import torch

REPEATS = 20
"""How often `bench keys` lists a file in one process, so that the first call does not drown the others."""


def _open(job: Job, mode: str) -> tuple[Any, Callable[[], Iterable[Named]]]:
    onecopy = module("onecopy")
    if job.kind == "safetensors":
        file = onecopy.open(job.path, mode=mode)
        return file, items(file, job)
    mapping = onecopy.Mapping(job.path, mode=mode)
    return mapping, views(np.frombuffer(mapping.view(), np.uint8), job)


def open_copy(job: Job) -> Opened:
    """Read the file into private memory with onecopy: what a loader without a mapping costs."""
    file, arrays = _open(job, "copy")
    return Opened(arrays, keep=file)


def open_map(job: Job) -> Opened:
    """Map the file and touch nothing: the pages come with the touches."""
    file, arrays = _open(job, "map")
    return Opened(arrays, keep=file)


def open_map_warm(job: Job) -> Opened:
    """Map the file, then have onecopy populate the mapping before the touches."""
    file, arrays = _open(job, "map")
    return Opened(arrays, keep=file, warm=lambda: report_notes(module("onecopy").warm(file)))


def open_map_verify(job: Job) -> Opened:
    """Map the file, then populate it and compare it with its checksums in the same pass."""
    file, arrays = _open(job, "map")
    return Opened(arrays, keep=file, warm=lambda: report_notes(file.warm(verify=True)))


def open_load_into(job: Job, *, warm: bool) -> Opened:
    """Return a torch module on the meta device the file's weights, mapped."""
    onecopy = module("onecopy")
    with onecopy.open(job.path) as file:
        empty = module_like(list(file), [file.entry(name).shape for name in file])
    report = onecopy.torch.load_into(empty, job.path, unsafe_shared=True, warm=warm)
    tensors = empty.state_dict()
    waits = (lambda: report_notes(report.warming.wait())) if warm else None
    return Opened(torch.bytes_of(tensors, job), keep=(empty, tensors), warm=waits)


def module_like(names: list[str], shapes: list[tuple[int, ...]]) -> Any:
    """Return a module on the meta device that has parameters of these names and shapes."""
    nn = module("torch").nn
    root = nn.Module()
    for name, shape in zip(names, shapes, strict=True):
        *path, last = name.split(".")
        place = root
        for part in path:
            if part not in place._modules:
                place.add_module(part, nn.Module())
            place = place._modules[part]
        place.register_parameter(last, nn.Parameter(module("torch").empty(shape, device="meta"), requires_grad=False))
    return root


def report_notes(report: object) -> Notes:
    """Return the plain facts of a report: every public attribute that is a number, a word or None."""
    facts = {name: getattr(report, name) for name in dir(report) if not name.startswith("_")}
    return {name: fact for name, fact in facts.items() if isinstance(fact, bool | int | float | str | None)}


def list_names(job: Job) -> Opened:
    """Open the file and list the names of its arrays, `REPEATS` times."""
    onecopy = module("onecopy")
    for _ in range(REPEATS):
        with onecopy.open(job.path) as file:
            names = list(file.keys())
    return Opened(None, keep=names)


def _into(name: str, detail: str, *, warm: bool) -> Configuration:
    return Configuration(
        name,
        detail,
        partial(open_load_into, warm=warm),
        modules=("torch",),
        optional=("onecopy.integrations.torch", "ml_dtypes"),
        kinds=("safetensors",),
        by_request=True,  # to a module it is what `map` is to arrays
    )


ROWS = (
    Configuration("copy", "open(mode='copy')", open_copy, private_share=1.0),
    Configuration("map", "open()", open_map),
    Configuration("map+warm", "open(), .warm()", open_map_warm),
    # By request, because files of other tools have no checksums.
    Configuration("map+verify", "open(), .warm(verify=True)", open_map_verify, kinds=("safetensors",), by_request=True),
    _into("load_into", "torch.load_into(module)", warm=False),
    _into("load_into+warm", "load_into(module, warm=True)", warm=True),
)
KEYS = Configuration("keys-onecopy", "open(), list(keys())", list_names)
