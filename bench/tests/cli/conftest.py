"""A recorded benchmark."""

import pytest

from onecopy_bench.record import Entry, File, Memory, Options, Reading, Record, Sample


def reading(scale: float, memory: int) -> Reading:
    empty = Memory(18_000_000, 15_000_000, 15_000_000, 0, 0)
    held = Memory(18_000_000 + memory, 15_000_000 + memory, 15_000_000 + memory, 0, 0)
    return Reading(int(1.23456e9 * scale), None, int(9.876543e9 * scale), 5, 1, 1, 1.0, 1, empty, held, {})


def sample(name: str, number: int, scale: float, memory: int, n: int, **more) -> Sample:
    readings = tuple(reading(scale * (1 + number / 10), memory) for _ in range(n))
    peak = sum(r.held.anonymous for r in readings)
    cache = "cold" if n > 1 else None
    return Sample(name, number, n, "ok", "", cache, "2026-01-01T00:00:00+00:00", 0.99, 0, 0, 0, peak, readings, **more)


@pytest.fixture
def record() -> Record:
    """A slow and big run whose numbers need all the room that a table has."""
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
    slow = Reading(0, None, 10**12, None, 1, 1, 1.0, 1, Memory(1, 1, 1, 0, 0), Memory(1, 1, 1, 0, 0), {"bytes": 2**30})
    samples.append(Sample("first-touch-4k", 0, 1, "ok", started="2026-01-01", readings=(slow,)))
    samples.append(Sample("first-touch-huge", 0, 1, "timeout", "too late"))
    roles = dict.fromkeys(rows, "row") | dict.fromkeys(ceilings, "ceiling")
    roles |= {"first-touch-4k": "control", "first-touch-huge": "control"}
    details = {"copy": "open(mode='copy')", "safetensors.numpy": "load_file (copies)"}
    return Record(
        scenario="open",
        created="2026-01-01T00:00:00+00:00",
        machine={},
        options=Options(processes=(4,), caches=("cold",), iterations=3),
        file=File("model.safetensors", "safetensors", 12_345_678_901, 12_345_670_000, 999, 5),
        entries=tuple(Entry(n, details.get(n, "as called"), role, role == "row") for n, role in roles.items()),
        samples=tuple(samples),
    )
