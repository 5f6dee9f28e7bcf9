"""The child of a sample of `bench models`: a fresh process that opens a model one way, runs it, and holds it."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from onecopy_bench.engine.child import Steps
from onecopy_bench.engine.ways import named
from onecopy_bench.scenarios.models.ways import EMPTY, WAYS, Way


@dataclass(frozen=True, slots=True)
class Errand:
    """What a worker has to do.

    Attributes
    ----------
    way, folder
        How to open which model; "empty": not at all.
    batches, runs
        How many runs of each batch; the first batch comes first when memory is measured.
    threads
        Of the session.
    inputs
        An .npz of inputs; none: they are made up.
    packs_too
        Whether to prepare what the way needs once per machine, and leave.
    """

    way: str
    folder: str
    batches: tuple[int, ...] = (1, 64)
    runs: int = 20
    threads: int = 1
    inputs: str | None = None
    packs_too: bool = False


def options_of(way: Way, threads: int) -> Any:
    """Return the options of a session."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    for name, value in way.entries.items():
        options.add_session_config_entry(name, value)
    return options


def inputs_of(session: Any, batch: int, given: str | None) -> dict[str, Any]:
    """Return inputs: those of a file; else random rows of the embedding, random numbers elsewhere."""
    import numpy as np

    if given is not None:
        with np.load(given) as file:
            return dict(file)

    from onecopy_bench.scenarios.models.made_inputs import made_up

    inputs = made_up(session, batch)
    if inputs is None:
        raise RuntimeError("the model's inputs cannot be made up")
    if "ids" in inputs:
        inputs["ids"] = np.random.default_rng(batch).integers(0, 32768, inputs["ids"].shape)
    return inputs


def opened(errand: Errand) -> tuple[Any, dict[str, Any]]:
    """Open the model, run each batch once, and return the session and what that took and gave."""
    way = named(WAYS, errand.way)
    options = options_of(way, errand.threads)
    path = Path(errand.folder) / way.file
    start = perf_counter_ns()
    session = way.open(path, options)
    created = perf_counter_ns()
    sums = []
    first = 0
    for batch in errand.batches:
        inputs = inputs_of(session, batch, errand.inputs)
        before = perf_counter_ns()
        outputs = session.run(None, inputs)
        first = first or perf_counter_ns() - before
        sums.append(blake2b(b"".join(output.tobytes() for output in outputs), digest_size=8).hexdigest())
    return session, {"create_ns": created - start, "first_ns": first, "sums": sums}


def times_of(session: Any, errand: Errand) -> list[list[int]]:
    """Run every batch again and again, by turns."""
    inputs = [inputs_of(session, batch, errand.inputs) for batch in errand.batches]
    times: list[list[int]] = [[] for _ in inputs]
    for _ in range(errand.runs):
        for given, into in zip(inputs, times, strict=True):
            start = perf_counter_ns()
            session.run(None, given)
            into.append(perf_counter_ns() - start)
    return times


def play(errand: Errand) -> Steps:
    """Open the model, and hold it; then run it again and again."""
    import numpy as np
    import onnxruntime

    import onecopy.integrations.onnxruntime  # noqa: F401 - before the clock starts, as the others' imports

    del np, onnxruntime
    gc.collect()
    yield "ready", {}
    if errand.packs_too:
        way = named(WAYS, errand.way)
        if way.prepare is not None:
            way.prepare(Path(errand.folder) / way.file)
        yield "opened", {}
        return
    if errand.way == EMPTY:
        yield "opened", {"create_ns": 0, "first_ns": 0, "sums": []}
        yield "ran", {"times": []}
        return
    session, found = opened(errand)
    yield "opened", found
    yield "ran", {"times": times_of(session, errand)}
