"""Models of every kind that onecopy opens sessions of, and what ONNX Runtime says of them alone."""

import os
from pathlib import Path

import numpy as np

from onecopy.memory import proc

PREPACKING_OFF = "session.disable_prepacking"
KINDS = ["aligned", "not aligned", "external", "ort"]
MODES = ["read", "direct", "prepacked", "auto"]


def make(kind: str, folder: Path) -> Path:
    from tests.support.onnx_models import save_external, save_inline, save_ort

    if kind == "external":
        return save_external(folder / "model.onnx")
    if kind == "ort":
        return save_ort(folder / "model.ort")
    return save_inline(folder / "model.onnx", aligned=kind == "aligned")


def answer(path: Path, **entries: str) -> np.ndarray:
    """Ask ONNX Runtime alone."""
    import onnxruntime
    from tests.support.onnx_models import IDS

    options = onnxruntime.SessionOptions()
    for name, value in entries.items():
        options.add_session_config_entry(name, value)
    return onnxruntime.InferenceSession(path, options).run(None, {"ids": IDS})[0]


def is_mapped(path: Path) -> bool:
    return any(region.path == str(path) for region in proc.maps(os.getpid()))


def from_store(store: Path) -> list[Path]:
    return sorted(path for path in store.iterdir() if path.suffix == ".oc" and path.stat().st_size > 1000)
