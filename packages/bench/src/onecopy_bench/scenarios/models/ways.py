"""Ways to open a model, one entry each: what ONNX Runtime offers by hand, and the rungs of onecopy."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onecopy_bench.scenarios.models.generated import EXTERNAL, INLINE, ORT, PACKED

_PACKING_OFF = {"session.disable_prepacking": "1"}
_MAPPED = {"session.use_memory_mapped_ort_model": "1"}
_IN_PLACE = {"session.use_ort_model_bytes_for_initializers": "1"}


@dataclass(frozen=True, slots=True)
class Way:
    """One way to open one file of a model's folder.

    Attributes
    ----------
    name, detail
        The row's name, and what it does in a few more words.
    file
        Which file of the folder.
    open
        Called with the file and SessionOptions; returns the session.
    entries
        Set in the options before.
    ours
        Whether it is onecopy's.
    packs
        Whether kernels use packed weights: outputs are equal among those that do, and among those that do not.
    prepare
        Called once per machine, before anything is measured.
    """

    name: str
    detail: str
    file: str
    open: Callable[[Path, Any], Any]
    entries: dict[str, str] = field(default_factory=dict)
    ours: bool = False
    packs: bool = True
    prepare: Callable[[Path], object] | None = None


def _plain(path: Path, options: Any) -> Any:
    import onnxruntime

    return onnxruntime.InferenceSession(path, options)


def _given(method: str) -> Callable[[Path, Any], Any]:
    """Return what gives weights of the external data to a session, as arrays of a memmap."""

    def open_it(path: Path, options: Any) -> Any:
        import numpy as np
        import onnxruntime

        import onecopy as oc
        from onecopy import _core

        with oc.Mapping(path) as mapping:
            tensors: Any = _core.parse_onnx(mapping.core)["tensors"]
        file = np.memmap(path.parent / "external.bin", mode="r")
        names, values = [], []
        for name, _, _, shape, storage, offset, nbytes, _, _ in tensors:
            if storage == "external" and nbytes % 4 == 0:
                array = np.frombuffer(file, np.float32, nbytes // 4, offset).reshape(shape)
                names.append(name)
                values.append(onnxruntime.OrtValue.ortvalue_from_numpy(array))
        if method == "add_initializer":
            for name, value in zip(names, values, strict=True):
                options.add_initializer(name, value)
        else:
            options.add_external_initializers(names, values)
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


WAYS: tuple[Way, ...] = (
    Way("inline", ".onnx with its weights inside, as it is", INLINE, _plain),
    Way("external", "external data, as it is", EXTERNAL, _plain),
    Way("external, not packed", "disable_prepacking", EXTERNAL, _plain, _PACKING_OFF, packs=False),
    Way("ort", ".ort, as it is", ORT, _plain),
    Way("ort, mapped", "use_memory_mapped_ort_model", ORT, _plain, _MAPPED),
    Way("ort, mapped, bytes", "and use_ort_model_bytes_for_initializers", ORT, _plain, _MAPPED | _IN_PLACE),
    Way(
        "ort, mapped, bytes, not packed",
        "and disable_prepacking",
        ORT,
        _plain,
        _MAPPED | _IN_PLACE | _PACKING_OFF,
        packs=False,
    ),
    Way("add_initializer", "OrtValues of a memmap", EXTERNAL, _given("add_initializer")),
    Way(
        "add_initializer, not packed",
        "and disable_prepacking",
        EXTERNAL,
        _given("add_initializer"),
        _PACKING_OFF,
        packs=False,
    ),
    Way("add_external_initializers", "OrtValues of a memmap", EXTERNAL, _given("add_external_initializers")),
    Way("files in memory", "add_external_initializers_from_files_in_memory", EXTERNAL, _files_in_memory),
    Way("saved packed", "an optimised model with packed weights, saved and opened by hand", PACKED, _plain),
    Way("onecopy read", "session(inline, 'read')", INLINE, _ours("read"), ours=True),
    Way("onecopy map", "session(inline, 'map')", INLINE, _ours("map"), ours=True),
    Way(
        "onecopy direct",
        "session(external, 'direct')",
        EXTERNAL,
        _ours("direct"),
        ours=True,
        packs=False,
    ),
    Way(
        "onecopy direct, inline",
        "session(inline, 'direct'): aligned once per machine",
        INLINE,
        _ours("direct"),
        ours=True,
        packs=False,
        prepare=_prepacked_by_us,
    ),
    Way("onecopy direct, ort", "session(ort, 'direct')", ORT, _ours("direct"), ours=True, packs=False),
    Way(
        "onecopy packed",
        "session(inline, 'prepacked')",
        INLINE,
        _ours("prepacked"),
        ours=True,
        prepare=_prepacked_by_us,
    ),
    Way("onecopy auto", "session(inline, 'auto')", INLINE, _ours("auto"), ours=True, prepare=_prepacked_by_us),
)
"""In the order of the tables."""

EMPTY = "empty"
"""The row of a process that has imported everything and opened nothing."""
