"""What a run takes with prepacked weights and without, on inputs that are made up from what the model says of them.

Both take turns, so that each round compares two runs of one moment. Rounds that contradict each other say that the
machine was busy with something else, and nothing of the model: their numbers are not kept.
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
_AT_MOST = 3.0  # seconds for all batches together
_AGREES = 0.1  # of a run, either way: rounds that differ by more do not tell a cost of 0 to a third
_OTHER = 16  # extent of axes without a number that are not the batch

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
    """Return what runs took, by turns; fewer batches where they take too long.

    A model whose inputs have no axis without a number has one batch size, 1. Raises what a kernel raises.
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
    """Return the medians of rounds, and how far these are apart; None where they contradict each other.

    Of four rounds and more the two outermost do not count: one interruption is no contradiction.

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
    """Return whether some axis has no number."""
    return any(not isinstance(extent, int) for one in session.get_inputs() for extent in one.shape)


def made_up(session: onnxruntime.InferenceSession, batch: int) -> dict[str, NDArray[Any]] | None:
    """Return inputs for a session: zeros, and of floats small random numbers; None where a type has no array."""
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
