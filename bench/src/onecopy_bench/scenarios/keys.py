"""The scenario `keys`: how long it takes to learn what is in a file of many arrays.

A tool that looks at a checkpoint (a listing, a shard planner, a server that picks layers) opens it and asks for the
names; no data is read. Each sample is a fresh process that does so `REPEATS` times in a row, so that
the cost of the first call (code that is loaded on first use) does not drown that of a small file. The file is made for
the run: arrays of 64 bytes, names as transformers have them.
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from onecopy_bench.peers import KEYS
from onecopy_bench.scenarios import open as open_scenario

if TYPE_CHECKING:
    from collections.abc import Callable

    from onecopy_bench.record import Options, Record
    from onecopy_bench.runner import Progress

NAME = "keys"


def run(count: int, options: Options, watch: Callable[[Progress], None] = lambda _: None) -> Record:
    """Measure how long opening a file of `count` arrays and listing their names takes; one process a sample."""
    import onecopy

    array = np.zeros(16, np.float32)
    with tempfile.TemporaryDirectory(prefix="onecopy-bench-") as folder:
        path = Path(folder, f"{count}-arrays.safetensors")
        names = (f"model.layers.{i // 8}.mlp.experts.{i % 8}.weight" for i in range(count))
        onecopy.save(path, dict.fromkeys(names, array))
        options = dataclasses.replace(options, processes=(1,), ceilings="none")
        chosen = tuple(row for row in KEYS if row.is_installed())
        record = open_scenario.run(path, options, watch, configurations=chosen)
    return dataclasses.replace(record, scenario=NAME)
