"""Times of a run with and without prepacked weights, on inputs generated from the shapes in the model.

Both sessions alternate, so that each round compares two runs under the same load. If the rounds disagree, the machine
was busy, and the times are discarded.
"""

from __future__ import annotations

from statistics import median
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from onecopy.integrations.onnxruntime._report import Latency

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnxruntime
    from numpy.typing import NDArray

BATCHES = (1, 8, 64)
_RUNS = 5
_AT_MOST = 3.0  # seconds for all batches
_AGREES = 0.1  # relative spread of rounds above which the times are discarded
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


def measured(prepacked: onnxruntime.InferenceSession, direct: onnxruntime.InferenceSession) -> list[Latency]:
    """Return the times by batch size; fewer batches if they take too long.

    A model without symbolic axes has one batch size, 1. Exceptions of ONNX Runtime pass through.
    """
    found: list[Latency] = []
    end = monotonic() + _AT_MOST
    for batch in BATCHES:
        inputs = made_up(prepacked, batch)
        if inputs is None or (found and batch > 1 and not has_batch(prepacked)):
            break
        for session in (prepacked, direct):
            session.run(None, inputs)
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(_RUNS):
            for session, into in zip((prepacked, direct), times, strict=True):
                start = perf_counter()
                session.run(None, inputs)
                into.append((perf_counter() - start) * 1e3)
            if monotonic() > end:
                break
        if len(times[0]) > 1:
            found.append(judged(batch, *times))
        if monotonic() > end:
            break
    return found


def judged(batch: int, prepacked: Sequence[float], direct: Sequence[float]) -> Latency:
    """Return medians and spread of the rounds; None if the rounds disagree.

    With four rounds or more, the lowest and the highest cost are ignored.

    >>> judged(8, [2.0, 2.0, 2.0, 2.0, 90.0], [2.5, 2.75, 3.0, 2.5, 2.5])
    Latency(batch=8, prepacked=2.0, direct=2.5, spread=0.0625)
    >>> judged(8, [2.0, 9.0, 2.1, 7.0, 2.0], [2.4, 2.5, 9.6, 2.4, 8.4])
    Latency(batch=8, prepacked=None, direct=None, spread=None)
    """
    costs = sorted(after / before - 1 for before, after in zip(prepacked, direct, strict=True))
    most = costs[1:-1] if len(costs) > 3 else costs
    spread = (most[-1] - most[0]) / 2
    if spread > _AGREES * max(1.0, 1 + median(costs)):
        return Latency(batch, None, None)
    return Latency(batch, median(prepacked), median(direct), spread)


def has_batch(session: onnxruntime.InferenceSession) -> bool:
    """Return whether an input has a symbolic axis."""
    return any(not isinstance(extent, int) for one in session.get_inputs() for extent in one.shape)


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
