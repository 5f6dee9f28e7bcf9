"""Files and stand-in children: nothing here needs the compiled core."""

import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from packages.bench.tests.support import WHEN, made
from tests.support.children import is_alive
from tests.support.safetensors_files import write_safetensors

from onecopy_bench.engine import rounds
from onecopy_bench.engine.record import Record, Row, Sample
from onecopy_bench.files import touch
from onecopy_bench.files.layout import read_layout
from onecopy_bench.files.loaders import Job, Loader, open_nothing
from onecopy_bench.files.sampling import turn
from onecopy_bench.scenarios.open import Options

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

    def make(body: str, **settings) -> Loader:
        command = (sys.executable, "-S", "-c", READY + body)
        return Loader("stand-in", "a few lines", open=open_nothing, command=command, **settings)

    return make


@pytest.fixture
def take(job: Job, model: Path):
    """Take one sample of a configuration, in two processes from a warm cache by default."""

    def make(entry: Loader, *, processes=2, state="warm", at: Job | None = None, **options) -> Sample:
        settings = Options(**{"timeout": 20.0, "idle_wait": 0.0} | options)
        own = at or job
        checksum = touch.of_file(own.path, read_layout(own.path))
        case = (state, str(processes))
        one = turn(entry, own, checksum, settings, case=case, state=state, processes=processes)
        return rounds.take(one, 0, settings, hidden=[str(model.parent)])

    return make


@pytest.fixture
def alive():
    return is_alive


def process_of(ms: float, pss: float, anonymous: float, **more) -> dict:
    """Make what is known of one process, in ms and MB above an empty one of 5 and 4 MB."""
    found = {
        "open_ns": int(ms * 1e5),
        "warm_ns": int(ms * 8e5),
        "resident_ns": int(ms * 1e6),
        "checksum": 77,
        "minor_faults": 10,
        "major_faults": 1,
        "cpu_ms": 1.0,
        "read_bytes": 4096,
        "empty_pss": 5_000_000,
        "empty_anonymous": 4_000_000,
        "pss": int((5 + pss) * 1e6),
        "anonymous": int((4 + anonymous) * 1e6),
        "file_pmd_mapped": 0,
        "anon_huge": 0,
        "notes": {"bytes": 91_000_000},
    } | more
    return {name: value for name, value in found.items() if value is not None}


def sample_of(name: str, number: int, case: tuple[str, ...], ms: float, pss: float, anonymous: float, **more) -> Sample:
    """Make a good sample; the last of its processes is the slowest, and memory is of all together."""
    n = int(case[1]) if case else 1
    if name != "map+warm":
        more["warm_ns"] = None
    processes = tuple(process_of(ms * (i + 1) / n, pss / n, anonymous / n, **more) for i in range(n))
    numbers = {"cached_before": 0, "peak_anonymous": int((anonymous + 4 * n) * 1e6)}
    return Sample(name, case, number, started=WHEN, idle_share=0.99, numbers=numbers, processes=processes)


ROLES = {
    **dict.fromkeys(("copy", "map", "map+warm", "numpy.memmap", "empty"), "row"),
    **dict.fromkeys(("o_direct-fresh-1", "o_direct-fresh-4", "o_direct-reused-4"), "ceiling"),
    **dict.fromkeys(("first-touch-4k", "first-touch-huge"), "control"),
}


@pytest.fixture
def record_of():
    """Make a record of 91 MB and n processes in which everything goes as hoped, or as given."""

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
        samples = [
            sample_of(name, number, (cache, str(n)) if ROLES[name] == "row" else (), **values)
            for number in range(rounds)
            for name, values in loaded.items()
        ]
        chosen = Options(**{"processes": (n,), "rounds": rounds, "caches": (cache,)} | options)
        file = {"file": "model.safetensors", "kind": "safetensors", "size": 91_000_000}
        data = file | {"data_bytes": 90_990_000, "pieces": 103, "checksum": 77}
        rows = [Row(name, "as called", role=role, uses_cache=role == "row") for name, role in ROLES.items()]
        machine = {"kernel": "Linux 6.18", "read_ahead_bytes": None}
        return made("open", samples, rows, options=chosen, data=data, machine=machine)

    return make


@pytest.fixture
def change():
    """Change some samples of a record; `numbers` and what is reported of processes are changed one by one."""

    def make(record: Record, condition, *, numbers=None, processes=None, **changes) -> Record:
        def changed(sample: Sample) -> Sample:
            if not condition(sample):
                return sample
            known = {k: v for k, v in {**sample.numbers, **(numbers or {})}.items() if v is not None}
            each = tuple({**one, **(processes or {})} for one in sample.processes)
            return replace(sample, **{"numbers": known, "processes": each} | changes)

        return replace(record, samples=tuple(map(changed, record.samples)))

    return make
