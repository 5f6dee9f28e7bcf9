"""Bars of the newest record of 8 workers, in the colours of the reader's scheme."""

import json
from pathlib import Path

from onecopy_bench import two_schemes

RESULTS = Path(__file__).parents[2] / "packages/bench/results"
WORKERS = max(RESULTS.glob("*/*-eight-workers.json"), key=lambda path: path.name)


def eight_workers() -> bytes:
    """Draw the memory of 8 workers with the same checkpoint, before and under `onecopy run`."""
    return two_schemes.workers(json.loads(WORKERS.read_text())).encode()
