"""A recorded benchmark."""

import pytest
from packages.bench.tests.support import WHEN, made

from onecopy_bench.engine.record import Record, Row, Sample
from onecopy_bench.scenarios.open import Options

EMPTY = 15_000_000


def process(scale: float, memory: int) -> dict:
    times = {"open_ns": int(1.23456e9 * scale), "resident_ns": int(9.876543e9 * scale), "checksum": 5}
    counted = {"minor_faults": 1, "major_faults": 1, "read_bytes": 1, "file_pmd_mapped": 0, "anon_huge": 0, "notes": {}}
    held = {"empty_pss": EMPTY, "empty_anonymous": EMPTY, "pss": EMPTY + memory, "anonymous": EMPTY + memory}
    return times | counted | held


def sample(name: str, number: int, scale: float, memory: int, n: int) -> Sample:
    processes = tuple(process(scale * (1 + number / 10), memory) for _ in range(n))
    numbers = {"cached_before": 0, "disk_bytes": 0, "peak_anonymous": n * (EMPTY + memory)}
    case = ("cold", str(n)) if n > 1 else ()
    return Sample(name, case, number, "ok", "", WHEN, 0.99, numbers, (), processes)


@pytest.fixture
def record() -> Record:
    """A slow and big run whose numbers need all the width that a table has."""
    rows = {
        "copy": (1.0, 12_345_678_901),
        "map": (0.001, 3_086_419_725),
        "map+warm": (0.0001, 3_086_419_725),
        "safetensors.numpy": (1.5, 24_691_357_802),
        "numpy.memmap": (0.0015, 3_086_419_725),
        "empty": (1e-9, 0),
    }
    ceilings = {f"o_direct-{kind}-{n}": (0.01, 0) for kind in ("fresh", "reused") for n in (1, 2, 4, 8)}
    samples = [
        sample(name, number, scale, memory, 4 if name in rows else 1)
        for number in range(3)
        for name, (scale, memory) in {**rows, **ceilings}.items()
    ]
    slow = process(0, 0) | {"resident_ns": 10**12, "notes": {"bytes": 2**30}}
    samples.append(Sample("first-touch-4k", (), 0, started=WHEN, numbers={"peak_anonymous": 0}, processes=(slow,)))
    samples.append(Sample("first-touch-huge", (), 0, "timeout", "too late"))
    roles = dict.fromkeys(rows, "row") | dict.fromkeys(ceilings, "ceiling")
    roles |= {"first-touch-4k": "control", "first-touch-huge": "control"}
    details = {"copy": "open(mode='copy')", "safetensors.numpy": "load_file (copies)"}
    every = [Row(n, details.get(n, "as called"), role=role, uses_cache=role == "row") for n, role in roles.items()]
    data = {"file": "model.safetensors", "kind": "safetensors", "size": 12_345_678_901, "data_bytes": 12_345_670_000}
    options = Options(processes=(4,), caches=("cold",), rounds=3)
    return made("open", samples, every, options=options, data={**data, "pieces": 999, "checksum": 5})
