"""What a record of `bench warm` says, and one real run of it."""

import os
from dataclasses import replace

import pytest
from packages.bench.tests.support import WHEN, made

from onecopy_bench.engine.machine.limits import Unavailable
from onecopy_bench.engine.record import Record, Row, Sample
from onecopy_bench.scenarios.passes import warm
from onecopy_bench.scenarios.passes.cells import Options
from onecopy_bench.scenarios.passes.mechanisms import MECHANISMS
from onecopy_bench.scenarios.passes.notes import notes_of
from onecopy_bench.scenarios.passes.warm import SCENARIO

MB = 1_000_000


def taken(method: str, number: int, ms: float, *, notes=None, **more) -> Sample:
    first = round(ms * 1e6)
    process = {
        "open_ns": first // 2,
        "resident_ns": first,
        "minor_faults": 10,
        "major_faults": 2,
        "cpu_ms": 7.0,
        "read_bytes": 100 * MB,
        "file_pmd_mapped": 50 * MB,
        "anon_huge": 0,
        "notes": {"passes_ns": [first, first + 5 * 10**6], "cut_short": False, **(notes or {})},
    } | more
    numbers = {"cached_before": 0}
    return Sample(method, ("disk", "file", "1"), number, "ok", "", WHEN, 0.99, numbers, (), (process,))


@pytest.fixture
def record() -> Record:
    samples = [
        *(taken("touch", i, ms) for i, ms in enumerate((90, 100, 130))),
        *(taken("onecopy.warm", i, ms) for i, ms in enumerate((103, 104, 90))),
        taken("random", 0, 0, notes={"passes_ns": [], "cut_short": True, "touched": 41 * MB}),
        Sample("huge+touch", ("disk", "file", "1"), 0, "failed", "madvise(14): Invalid argument", WHEN, 0.99),
        taken("o_direct-reused-8", 0, 0, open_ns=80 * 10**6, notes={"passes_ns": []}),
        taken("first-touch-4k", 0, 0, open_ns=0, resident_ns=10**9, notes={"passes_ns": [], "bytes": 10**9}),
    ]
    roles = {"o_direct-reused-8": "ceiling", "first-touch-4k": "control"}
    rows = [Row(n, role=roles.get(n, "row"), uses_cache=n not in roles) for n in dict.fromkeys(s.row for s in samples)]
    place = {"name": "disk", "detail": "where the file is", "size": 100 * MB, "read_ahead_bytes": 8 << 20}
    places = [place | {"device_bytes_per_s": None, "memory_bytes": None}]
    data = {"file": "f.bin", "size": 100 * MB, "places": places}
    return made("warm", samples, rows, options=Options(), data=data)


def cells(record: Record) -> dict[str, tuple[str, ...]]:
    (table,) = SCENARIO.tables(record)
    return {row[0]: row[1:] for row in table.rows}


def test_a_row_has_medians_extremes_and_counters(record):
    assert cells(record)["touch"] == ("100\n(90-130)", "5\n(5-5)", "10", "2", "50", "100", "7")


def test_a_mechanism_that_was_cut_short_or_refused_says_so_in_place_of_a_time(record):
    assert cells(record)["random"][0] == "cut short\nat 41 %"
    assert cells(record)["huge+touch"][:2] == ("failed", "-")
    assert "huge+touch: failed (disk, file, 1): madvise(14): Invalid argument." in SCENARIO.sentences(record)


def test_reading_into_a_reused_buffer_is_done_when_it_has_opened_and_holds_nothing(record):
    first, second, _, _, huge, *_ = cells(record)["o_direct-reused-8"]
    assert (first, second, huge) == ("80\n(80-80)", "-", "-")


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (80, "onecopy.warm is the fastest, 80 ms."),
        (104, "onecopy.warm, 104 ms, is within 5 % of the fastest, touch, 100 ms."),
        (130, "onecopy.warm, 130 ms, is 30 % behind the fastest, touch, 100 ms."),
    ],
)
def test_the_sentence_says_how_warm_stands(record, ms, words):
    others = tuple(s for s in record.samples if s.row != "onecopy.warm")
    assert f"disk, file: {words}" in SCENARIO.sentences(
        replace(record, samples=(*others, taken("onecopy.warm", 0, ms)))
    )


def test_the_limits_of_a_record_are_told(record):
    said = " ".join(SCENARIO.sentences(record))
    assert "disk: where the file is, 100.0 MB, read-ahead 8192 KiB; O_DIRECT reads 1250 MB/s." in said
    assert (
        "First touch of fresh anonymous memory: 1.0 (1.0-1.0) GB/s for first-touch-4k. Below 3 GB/s, times of copies"
        in said
    )
    assert "Cold: the kernel counted 0 cached bytes of the file before each of 7 samples." in said
    assert "3 rounds: a published number needs 7." in said


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cached_before": 4096}, "NOT cold: up to 0.0 MB were cached before 1 of 7 samples."),
        ({"cached_before": None}, "It is unknown what was cached before 1 of 7 samples."),
        ({"idle_share": 0.5}, "1 of 10 samples were not known to be taken on an idle machine"),
    ],
)
def test_a_run_that_was_not_as_declared_says_so(record, change, words):
    first, *rest = record.samples
    if "cached_before" in change:
        change = {"numbers": {name: value for name, value in change.items() if value is not None}}
    assert words in " ".join(notes_of(replace(record, samples=(replace(first, **change), *rest))))


@pytest.mark.processes
@pytest.mark.slow
def test_every_mechanism_is_taken_at_the_read_ahead_that_was_asked_for(cold_file):
    path = cold_file(3_000_000)
    ahead = 128 << 10 if os.geteuid() == 0 else None
    try:
        found = warm.run(path, Options(rounds=1, idle_wait=0), (ahead,))
    except Unavailable as reason:
        pytest.skip(str(reason))
    (place,) = found.data["places"]
    assert ahead in (None, place["read_ahead_bytes"])
    assert {entry.name for entry in MECHANISMS} < {sample.row for sample in found.samples}
    assert {s.reason for s in found.samples if s.state != "ok"} == set()
    assert {s.numbers["cached_before"] for s in found.samples if s.row == "touch"} == {0}
    (table,) = SCENARIO.tables(found)
    assert [row[0] for row in table.rows][: len(MECHANISMS)] == [entry.name for entry in MECHANISMS]
