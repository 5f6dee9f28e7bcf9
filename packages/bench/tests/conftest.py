"""Files and stand-in children: nothing here needs the compiled core."""

import random
import sys
from pathlib import Path

import pytest
from tests.support.children import is_alive
from tests.support.safetensors_files import write_safetensors

from onecopy_bench import runs
from onecopy_bench.files.layout import checksum_of_file, read_layout
from onecopy_bench.files.loaders import Job, Loader
from onecopy_bench.files.opening import Options
from onecopy_bench.files.trials import trial_of
from onecopy_bench.record import Sample

READY = """
import json, os, signal, sys, time
name, path, parent = sys.argv[1:]
arguments = sys.stdin.readline()
def say(**message):
    print(json.dumps(message), flush=True)
def resident(**more):
    say(phase="resident", open_ns=1_000_000, resident_ns=2_000_000, **more)
def go():
    say(phase="ready")
    assert sys.stdin.readline() == "go\\n"
"""


@pytest.fixture
def tensors() -> dict[str, bytes]:
    chance = random.Random(1)
    lengths = {"a": 1, "empty": 0, "page": 4096, "odd": 12_289, "big": 3_000_001}
    return {name: chance.randbytes(length) for name, length in lengths.items()}


@pytest.fixture
def model(tmp_path: Path, tensors: dict[str, bytes]) -> Path:
    return write_safetensors(tmp_path / "model.safetensors", tensors)


@pytest.fixture
def job(model: Path) -> Job:
    layout = read_layout(model)
    return Job(str(model), layout.kind, layout.size, layout.pieces)


@pytest.fixture
def stand_in():
    """Make a configuration whose child is a few lines of Python."""

    def make(body: str, **settings) -> Loader:
        command = (sys.executable, "-S", "-c", READY + body)
        return Loader("stand-in", "a few lines", command=command, **settings)

    return make


@pytest.fixture
def take(job: Job, model: Path):
    """Take one sample of a configuration, in two processes from a warm cache by default."""

    def make(entry: Loader, *, processes=2, state="warm", at: Job | None = None, **options) -> Sample:
        settings = Options(**{"timeout": 20.0, "idle_wait": 0.0} | options)
        own = at or job
        checksum = checksum_of_file(own.path, read_layout(own.path))
        case = (state, str(processes))
        one = trial_of(entry, own, checksum, settings, case=case, state=state, processes=processes)
        return runs.take_sample(one, 0, settings, hidden=[str(model.parent)])

    return make


@pytest.fixture
def alive():
    return is_alive
