"""What a record of `bench warm` says, and one real run of it."""

import os
from dataclasses import replace

import pytest

from onecopy_bench.passes import ablation, series
from onecopy_bench.passes.limits import Unavailable
from onecopy_bench.passes.mechanisms import MECHANISMS
from onecopy_bench.passes.series import Entry, Options, Place, Series, Taken
from onecopy_bench.scenarios import warm

MB = 1_000_000


def taken(method: str, number: int, ms: float, **more) -> Taken:
    first = round(ms * 1e6)
    settings = {
        "order": "file",
        "share": 1.0,
        "state": "ok",
        "started": "2026-01-01",
        "idle_share": 0.99,
        "cached_before": 0,
        "passes_ns": (first, first + 5 * 10**6),
        "open_ns": first // 2,
        "minor_faults": 10,
        "major_faults": 2,
        "cpu_ms": 7.0,
        "read_bytes": 100 * MB,
        "huge": 50 * MB,
    }
    return Taken(place="disk", method=method, round=number, **(settings | more))


@pytest.fixture
def record() -> Series:
    samples = [
        *(taken("touch", i, ms) for i, ms in enumerate((90, 100, 130))),
        *(taken("onecopy.warm", i, ms) for i, ms in enumerate((103, 104, 90))),
        taken("random", 0, 0, passes_ns=(), cut_short=True, notes={"touched": 41 * MB}),
        taken("huge+touch", 0, 0, state="failed", reason="madvise(14): Invalid argument", passes_ns=()),
        taken("o_direct-reused-8", 0, 0, open_ns=80 * 10**6, passes_ns=()),
        taken("first-touch-4k", 0, 0, open_ns=0, warm_ns=10**9, passes_ns=(), notes={"bytes": 10**9}),
    ]
    names = {"o_direct-reused-8": "ceiling", "first-touch-4k": "control"}
    entries = [
        Entry(n, "as called", names.get(n, "row"), n not in names) for n in dict.fromkeys(s.method for s in samples)
    ]
    place = Place("disk", "where the file is", 100 * MB, 8 << 20)
    return Series("warm", "2026", {}, "f.bin", 100 * MB, Options(), (place,), {}, tuple(entries), tuple(samples))


def cells(record: Series) -> dict[str, tuple[str, ...]]:
    (table,) = ablation.tables_of(record)
    return {row[0]: row[1:] for row in table.rows}


def test_a_row_has_medians_extremes_and_counters(record):
    assert cells(record)["touch"] == ("100\n(90-130)", "5\n(5-5)", "10", "2", "50", "100", "7")


def test_a_mechanism_that_was_cut_short_or_refused_says_so_in_place_of_a_time(record):
    assert cells(record)["random"][0] == "cut short\nat 41 %"
    assert cells(record)["huge+touch"][:2] == ("failed", "-")
    assert "disk, huge+touch: failed, 1 of 1 samples: madvise(14): Invalid argument." in ablation.sentences_of(record)


def test_reading_into_a_reused_buffer_is_done_when_it_has_opened_and_holds_nothing(record):
    first, second, _, _, huge, *_ = cells(record)["o_direct-reused-8"]
    assert (first, second, huge) == ("80\n(80-80)", "-", "-")


def test_controls_are_no_rows(record):
    assert "first-touch-4k" not in cells(record)


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (80, "onecopy.warm is the fastest, 80 ms."),
        (104, "onecopy.warm, 104 ms, is within 5 % of the fastest, touch, 100 ms."),
        (130, "onecopy.warm, 130 ms, is 30 % behind the fastest, touch, 100 ms."),
    ],
)
def test_the_sentence_says_how_warm_stands(record, ms, words):
    others = tuple(s for s in record.samples if s.method != "onecopy.warm")
    assert f"disk, file: {words}" in ablation.sentences_of(
        replace(record, samples=(*others, taken("onecopy.warm", 0, ms)))
    )


def test_the_limits_of_a_record_are_told(record):
    said = " ".join(ablation.sentences_of(record))
    assert "disk: where the file is, 100.0 MB, read-ahead 8192 KiB; O_DIRECT reads 1250 MB/s." in said
    assert "First touch of fresh anonymous memory: 1.0 (1.0-1.0) GB/s 4k. Below 3 GB/s, time ratios" in said
    assert "Cold: the kernel counted 0 cached bytes of the file before each of 8 samples." in said
    assert "3 rounds: a published number needs 7." in said


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cached_before": 4096}, "NOT cold: up to 0.0 MB were cached before 1 of 8 samples."),
        ({"cached_before": None}, "Nobody knows what was cached before 1 of 8 samples."),
        ({"idle_share": 0.5}, "1 of 10 samples were taken on a machine that was not known to be 93% idle"),
    ],
)
def test_a_run_that_was_not_as_declared_says_so(record, change, words):
    first, *rest = record.samples
    assert words in " ".join(series.notes_of(replace(record, samples=(replace(first, **change), *rest))))


def test_fast_fresh_memory_lifts_the_warning(record):
    *rest, control = record.samples
    fast = replace(record, samples=(*rest, replace(control, warm_ns=10**8)))
    assert series.times_transfer(fast)
    assert "do not transfer" not in " ".join(series.notes_of(fast))


def test_a_record_reads_back_as_it_was_written(record):
    assert series.from_json(series.to_json(record, anything=1)) == record


@pytest.mark.parametrize("text", ["[]", '{"format": "onecopy-bench 1"}', '{"format": "onecopy-passes 1"}'])
def test_other_texts_are_no_records(text):
    with pytest.raises(ValueError, match="record of the format"):
        series.from_json(text)


@pytest.mark.processes
@pytest.mark.slow
def test_every_mechanism_is_taken_at_the_read_ahead_that_was_asked_for(cold_file):
    path = cold_file(3_000_000)
    ahead = 128 << 10 if os.geteuid() == 0 else None
    try:
        found = warm.run(path, Options(rounds=1, idle_wait=0), (ahead,))
    except Unavailable as reason:
        pytest.skip(str(reason))
    (place,) = found.places
    assert ahead in (None, place.read_ahead_bytes)
    assert {entry.name for entry in MECHANISMS} < {sample.method for sample in found.samples}
    assert {s.reason for s in found.samples if s.state != "ok"} == set()
    assert {s.cached_before for s in found.samples if s.method == "touch"} == {0}
    (table,) = ablation.tables_of(found)
    assert [row[0] for row in table.rows][: len(MECHANISMS)] == [entry.name for entry in MECHANISMS]
