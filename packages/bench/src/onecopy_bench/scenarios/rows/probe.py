"""The child of a sample of `bench records`: a fresh process that makes rows ready and times one statement."""

from __future__ import annotations

import gc
import importlib
import time
from dataclasses import dataclass
from pathlib import Path
from timeit import Timer
from typing import Any

from onecopy_bench.engine.child import Steps
from onecopy_bench.scenarios.rows.data import Source

STRETCH = 4096


@dataclass(frozen=True, slots=True)
class Errand:
    """What a probe has to do: a way to answer a case; how many random items, how often, in which order."""

    case: str
    way: str
    source: Source
    folder: str
    draws: int
    repeats: int
    seed: int


def measure(errand: Errand, rows: Any) -> dict[str, Any]:
    """Judge every answer once, then time the statement over all of them, again and again."""
    from onecopy_bench.scenarios.rows import ways

    case, way = ways.case_named(errand.case), ways.way_named(errand.case, errand.way)
    count = errand.source.count
    positions = ways.draw(errand.source, errand.draws, errand.seed)
    asked = ways.subjects(case, positions, count, arrays=way.arrays)
    answers: list[Any] = []
    names = {**way.peer.names(rows), "asked": asked, "keep": answers.append}
    Timer(f"for i in asked: keep({way.statement})", globals=names).timeit(1)
    answer = ways.judged(case, way, answers, positions, count)
    answers.clear()
    timer = Timer(f"for i in asked: {way.statement}", globals=names)
    ns = [1e9 * seconds / len(positions) for seconds in timer.repeat(errand.repeats, 1)]
    if case.whole and way.peer.keeps:
        for at in range(0, count, STRETCH):  # a list of all that is asked would be counted too
            stretch = ways.subjects(case, range(at, min(at + STRETCH, count)), count)
            Timer(f"for i in asked: {way.statement}", globals={**names, "asked": stretch}).timeit(1)
    return {"ns": ns, "answer": answer}


def play(errand: Errand) -> Steps:
    """Make the rows ready, and then time the statement."""
    from onecopy_bench.scenarios.rows import ways
    from onecopy_bench.scenarios.rows.peers import nbytes_of

    peer = ways.way_named(errand.case, errand.way).peer
    for name in peer.needs:
        importlib.import_module(name)
    gc.collect()
    yield "ready", {}
    start = time.perf_counter_ns()
    rows = peer.ready(errand.source, Path(errand.folder))
    yield "opened", {"open_ns": time.perf_counter_ns() - start, "nbytes": nbytes_of(rows)}
    yield "measured", measure(errand, rows)
