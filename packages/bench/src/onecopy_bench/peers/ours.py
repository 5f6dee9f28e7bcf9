"""onecopy itself: copied, mapped, mapped and warmed."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from onecopy_bench.files.configurations import ONECOPY, Configuration, Job, Notes, Opened, items, module, views
from onecopy_bench.peers.tensors import bytes_of


def open_file(job: Job, *, mode: str = "map", warm: bool = False, verify: bool = False) -> Opened:
    """Open a file with onecopy; `warm` populates the mapping before the touches, `verify` compares its checksums."""
    onecopy = module("onecopy")
    if job.kind == "safetensors":
        file = onecopy.open(job.path, mode=mode)
        arrays = items(file, job)
    else:
        file = onecopy.Mapping(job.path, mode=mode)
        arrays = views(np.frombuffer(file.view(), np.uint8), job)

    def populate() -> Notes:
        return report_notes(file.warm(verify=True) if verify else onecopy.warm(file))

    return Opened(arrays, keep=file, warm=populate if warm else None)


def open_load_into(job: Job, *, warm: bool) -> Opened:
    """Return a torch module on the meta device the file's weights, mapped."""
    onecopy = module("onecopy")
    with onecopy.open(job.path) as file:
        empty = module_like(list(file), [file.entry(name).shape for name in file])
    report = onecopy.torch.load_into(empty, job.path, unsafe_shared=True, warm=warm)
    tensors = empty.state_dict()
    waits = (lambda: report_notes(report.warming.wait())) if warm else None
    return Opened(bytes_of(tensors, job), keep=(empty, tensors), warm=waits)


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


def _into(name: str, detail: str, *, warm: bool) -> Configuration:
    return Configuration(
        name,
        detail,
        partial(open_load_into, warm=warm),
        modules=("torch", *ONECOPY),
        optional=("onecopy.integrations.torch", "ml_dtypes"),
        kinds=("safetensors",),
        by_request=True,  # to a module it is what `map` is to arrays
    )


ROWS = (
    Configuration("copy", "open(mode='copy')", partial(open_file, mode="copy"), private_share=1.0),
    Configuration("map", "open()", open_file),
    Configuration("map+warm", "open(), .warm()", partial(open_file, warm=True)),
    # By request, because files of other tools have no checksums.
    Configuration(
        "map+verify", "open(), .warm(verify=True)", partial(open_file, warm=True, verify=True),
        kinds=("safetensors",), by_request=True,
    ),
    _into("load_into", "torch.load_into(module)", warm=False),
    _into("load_into+warm", "load_into(module, warm=True)", warm=True),
)  # fmt: skip
