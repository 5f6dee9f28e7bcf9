"""Files and stand-in children: nothing here needs the compiled core."""

import random
import sys
from pathlib import Path

import pytest
from tests.support.children import is_alive
from tests.support.safetensors_files import write_safetensors

from onecopy_bench import touch
from onecopy_bench.configurations import Configuration, Job, Opened
from onecopy_bench.layout import read_layout
from onecopy_bench.record import Entry, File, Memory, Options, Reading, Record, Sample
from onecopy_bench.runner import Plan

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
        settings = {"processes": (2,), "iterations": 1, "timeout": 20.0, "idle_wait": 0.0} | options
        checksum = touch.of_file(model, read_layout(model))
        return Plan(configurations, job, checksum, Options(**settings))

    return make


@pytest.fixture
def alive():
    return is_alive


def memory(pss: float, anonymous: float) -> Memory:
    """Make the memory of a process, in MB."""
    return Memory(int(pss * 1e6), int(anonymous * 1e6), int(anonymous * 1e6), 0, 0)


def sample_of(
    name: str, number: int, *, cache: str | None = None, ms: float, pss: float, anonymous: float, n: int, **more
) -> Sample:
    """Make a good sample of n processes; the last of them is the slowest, and memory is of all together."""
    readings = tuple(
        Reading(
            open_ns=int(ms * 1e5 * (i + 1) / n),
            warm_ns=int(ms * 8e5 * (i + 1) / n) if name == "map+warm" else None,
            resident_ns=int(ms * 1e6 * (i + 1) / n),
            checksum=more.get("checksum", 77),
            minor_faults=10,
            major_faults=1,
            cpu_ms=1.0,
            read_bytes=4096,
            empty=memory(5, 4),
            held=memory(5 + pss / n, 4 + anonymous / n),
            notes=more.get("notes", {}),
        )
        for i in range(n)
    )
    return Sample(
        configuration=name,
        round=number,
        processes=n,
        state="ok",
        cache=cache,
        started="2026-01-01T00:00:00.000+00:00",
        idle_share=more.get("idle_share", 0.99),
        cached_before=more.get("cached_before", 0),
        peak_anonymous=int((anonymous + 4 * n) * 1e6),
        readings=readings,
    )


ENTRIES = (
    ("copy", "row"),
    ("map", "row"),
    ("map+warm", "row"),
    ("numpy.memmap", "row"),
    ("empty", "row"),
    ("o_direct-fresh-1", "ceiling"),
    ("o_direct-fresh-4", "ceiling"),
    ("o_direct-reused-4", "ceiling"),
    ("first-touch-4k", "control"),
    ("first-touch-huge", "control"),
)


@pytest.fixture
def record_of():
    """Make a record of 91 MB and n processes in which everything goes as hoped, or as told."""

    def make(n=4, rounds=7, touch_ms=10.0, pss=92.0, cache="cold", **options) -> Record:
        loaded = {
            "copy": {"ms": 400.0, "pss": 91.0 * n, "anonymous": 91.0 * n},
            "map": {"ms": 41.0, "pss": pss, "anonymous": 0.5},
            "map+warm": {"ms": 40.0, "pss": pss, "anonymous": 0.5},
            "numpy.memmap": {"ms": 50.0, "pss": 91.0, "anonymous": 0.0},
            "empty": {"ms": 0.001, "pss": 0.0, "anonymous": 0.0, "checksum": None},
            "o_direct-fresh-1": {"ms": 60.0, "pss": 91.0, "anonymous": 91.0},
            "o_direct-fresh-4": {"ms": 38.0, "pss": 91.0, "anonymous": 91.0},
            "o_direct-reused-4": {"ms": 30.0, "pss": 0.0, "anonymous": 0.0, "checksum": None},
            "first-touch-4k": {"ms": touch_ms, "pss": 91.0, "anonymous": 91.0, "checksum": None},
            "first-touch-huge": {"ms": 9.0, "pss": 91.0, "anonymous": 91.0, "checksum": None},
        }
        roles = dict(ENTRIES)
        samples = [
            sample_of(
                name,
                number,
                n=n if roles[name] == "row" else 1,
                cache=cache if roles[name] == "row" else None,
                notes={"bytes": 91_000_000},
                **values,
            )
            for number in range(rounds)
            for name, values in loaded.items()
        ]
        return Record(
            scenario="open",
            created="2026-01-01T00:00:00+00:00",
            machine={"kernel": "Linux 6.18", "read_ahead_bytes": None},
            options=Options(**{"processes": (n,), "iterations": rounds, "caches": (cache,)} | options),
            file=File("model.safetensors", "safetensors", 91_000_000, 90_990_000, 103, 77),
            entries=tuple(Entry(name, "as called", role, role == "row") for name, role in ENTRIES),
            samples=tuple(samples),
        )

    return make
