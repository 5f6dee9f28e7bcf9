"""Inputs of a model, generated from the shapes in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import onnxruntime
    from numpy.typing import NDArray

_OTHER = 16  # extent of symbolic axes other than the batch

_TYPES = {
    "tensor(bool)": "?",
    "tensor(double)": "f8",
    "tensor(float)": "f4",
    "tensor(float16)": "f2",
    "tensor(int16)": "i2",
    "tensor(int32)": "i4",
    "tensor(int64)": "i8",
    "tensor(int8)": "i1",
    "tensor(uint16)": "u2",
    "tensor(uint32)": "u4",
    "tensor(uint64)": "u8",
    "tensor(uint8)": "u1",
}


def made_up(session: onnxruntime.InferenceSession, batch: int) -> dict[str, NDArray[Any]] | None:
    """Return inputs for a session: small random floats, or zeros for other types; None for types without arrays."""
    random = np.random.default_rng(0)
    first = next((e for one in session.get_inputs() for e in one.shape if not isinstance(e, int)), None)
    inputs: dict[str, NDArray[Any]] = {}
    for one in session.get_inputs():
        if one.type not in _TYPES:
            return None
        shape = [e if isinstance(e, int) else batch if e == first else _OTHER for e in one.shape]
        dtype = np.dtype(_TYPES[one.type])
        values = random.standard_normal(shape) * 0.1 if dtype.kind == "f" else np.zeros(shape)
        inputs[one.name] = values.astype(dtype)
    return inputs
