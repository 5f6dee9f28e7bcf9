"""Files and stand-in children: nothing here needs the compiled core."""

import json
import os
import random
import struct
import sys
from pathlib import Path

import pytest

from onecopy.bench import touch
from onecopy.bench.configurations import Configuration, Job, Opened
from onecopy.bench.layout import read_layout
from onecopy.bench.record import Options
from onecopy.bench.runner import Plan

READY = """
import json, os, signal, sys, time
name, path, parent = sys.argv[1:]
table = json.loads(sys.stdin.readline())
def say(**message):
    print(json.dumps(message), flush=True)
def resident(**more):
    say(phase="resident", open_ns=1_000_000, resident_ns=2_000_000, **more)
def go():
    say(phase="ready")
    assert sys.stdin.readline() == "load\\n"
"""


def write_safetensors(path: Path, tensors: dict[str, bytes]) -> Path:
    """Write uint8 tensors with the lines of the format's README."""
    table, offset = {}, 0
    for name, data in tensors.items():
        table[name] = {"dtype": "U8", "shape": [len(data)], "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    header = json.dumps(table).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"".join(tensors.values()))
    return path


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

    def make(body: str, **settings) -> Configuration:
        command = (sys.executable, "-S", "-c", READY + body)
        return Configuration("stand-in", "a few lines", lambda _: Opened(None), command=command, **settings)

    return make


@pytest.fixture
def plan_of(job: Job, model: Path):
    """Make a plan around some configurations."""

    def make(*configurations: Configuration, **options) -> Plan:
        settings = {"processes": 2, "iterations": 1, "timeout": 20.0, "idle_wait": 0.0} | options
        checksum = touch.of_file(model, read_layout(model))
        return Plan(configurations, job, checksum, Options(**settings))

    return make


def is_alive(pid: int) -> bool:
    """Tell whether a process runs: a zombie does not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


@pytest.fixture
def alive():
    return is_alive
