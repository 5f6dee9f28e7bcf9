"""`bench structs`: rows and tables from a made-up record, and small runs of the C++ program where it is built."""

import json
from dataclasses import replace

import pytest

from onecopy_bench.journal import Journal
from onecopy_bench.passes.limits import Unavailable
from onecopy_bench.record import Case, Entry, File, Memory, Reading, Record, Sample
from onecopy_bench.scenarios import structs as scenario
from onecopy_bench.structs import nested, program, tables

MB = 1_000_000
EMPTY = Memory(2 * MB, MB, MB, 0, 0)


def reading(ms: float, *, pss: int = 0, anonymous: int = 0, checksum: int | None = 7, **notes) -> Reading:
    held = Memory(EMPTY.pss + pss * MB, EMPTY.anonymous + anonymous * MB, 0, 0, 0)
    ns = int(ms * MB)
    return Reading(ns, None, 10 * ns, checksum, 5, 3, 1.0, 0, EMPTY, held, {"max_rss": 9 * MB, **notes})


def sample(name: str, number: int, case: Case, *readings: Reading, **more) -> Sample:
    return Sample(name, number, case.processes, "ok", cache=case.cache, cached_before=0, readings=readings, **more)


def samples_of_a_round(number: int) -> list[Sample]:
    """Make copy take 100 ms and map 1, times the round; four of map share 100 MB."""
    cold, warm, four = Case(1, "cold"), Case(1, "warm"), Case(4, "warm")
    factor = number + 1
    found = []
    for mode, ms, private in (("map", 1, 0), ("copy", 100, 100)):
        notes = {"first_ns": ms * 2 * MB, "few_ns": ms * 3 * MB, "again_ns": ms * 4 * MB * factor, "answered": 1000}
        one = reading(ms * factor, anonymous=private, **notes)
        found += [sample(mode, number, case, one) for case in (cold, warm)]
        found.append(sample(mode, number, four, *[reading(ms, pss=private or 25, **notes)] * 4))
        found.append(sample(f"{mode}-fresh", number, warm, reading(ms * 5, checksum=None)))
    return found


@pytest.fixture
def measured() -> scenario.Measured:
    options = scenario.Options(rounds=3, threads=(1,))
    record = Record(
        scenario="structs",
        created="2026-01-01T00:00:00+00:00",
        machine={},
        options=scenario.settings(options),
        file=File("index.oc", "struct", 100 * MB, 100 * MB, 1, 7),
        entries=tuple(Entry(name, "as called", "row", True) for name in ("map", "map-fresh", "copy", "copy-fresh")),
        samples=tuple(s for number in range(3) for s in samples_of_a_round(number)),
    )
    values = tuple(nested.Nested(1_000_000, n * 30 * MB, 20 * MB, 24 * MB, 24 * MB) for n in (1, 1, 2))
    return scenario.Measured(record, options, 8_000_000, 1000, None, values, {10_000: 90, 1_000_000: 90})


def table(measured: scenario.Measured, title: str) -> dict[str, tuple[str, ...]]:
    (found,) = [each for each in tables.tables_of(measured) if each.title.startswith(title)]
    return {row[0]: row[1:] for row in found.rows}


def test_times_are_medians_with_their_extremes(measured):
    cold = table(measured, "cold, 1 thread: ms")
    assert cold["map"] == ("2\n(1-3)", "2", "3", "20\n(10-30)", "8\n(4-12)")
    assert cold["copy"][0] == "200\n(100-300)"


def test_memory_is_above_an_empty_process_and_of_all_processes_together(measured):
    memory = table(measured, "Memory")
    assert memory["map"] == ("0", "9", "100", "1", "50")
    assert memory["copy"][2:4] == ("400", "4")


def test_nested_values_are_held_against_plain_records(measured):
    (cells,) = table(measured, "Nested").values()
    assert cells == ("30\n(30-60)", "20", "1.5\n(1.5-3)", "24", "90 and 90")


def test_the_sentences_are_ratios_of_the_same_round(measured):
    said = tables.sentences_of(measured)
    assert said[0] == "From a warm cache, map opens 100 times as fast as copy."
    assert said[-1].startswith("3 rounds: a published number needs")
    assert not any("NOT cold" in sentence for sentence in said)


def test_what_went_wrong_is_said(measured):
    samples = tuple(
        replace(s, state="crashed", reason="out of memory", readings=()) if s.configuration == "copy" else s
        for s in measured.record.samples
    )
    late = sample("map", 9, Case(1, "cold"), reading(1, checksum=None, answered=17))
    record = replace(measured.record, samples=(*samples, replace(late, cached_before=4 * MB)))
    broken = replace(measured, record=record)
    assert table(broken, "cold")["copy"][0] == "crashed"
    said = tables.sentences_of(broken)
    assert "copy: crashed: out of memory" in said
    assert "Stopped after 30 s, before all answers: map." in said
    assert "NOT cold: up to 4.0 MB of a file were still cached." in said


def test_the_record_holds_samples_tables_and_no_folder(measured):
    plain = json.loads(tables.to_json(measured))
    assert len(plain["samples"]) == 24
    assert plain["structs"]["system_calls"] == {"10000": 90, "1000000": 90}
    assert plain["tables"][0]["title"].startswith("cold")
    assert "| copy | 200<br>(100-300) |" in tables.to_markdown(measured)


def test_a_missing_program_says_how_it_is_built(tmp_path):
    with pytest.raises(FileNotFoundError, match="--target bench_structs"):
        program.find(tmp_path / "bench_structs")


@pytest.fixture
def files(bench_structs, tmp_path):
    return program.build(bench_structs, tmp_path / "files", size=4 * MB, questions=2000)


SMALL = scenario.Options(rounds=1, threads=(1, 2), processes=2, fresh=2, nested=1000, idle_wait=0.0)


@pytest.mark.processes
@pytest.mark.slow
def test_every_way_to_open_gives_the_same_answers(bench_structs, files):
    assert files.bytes >= 4 * MB
    measured = scenario.run(bench_structs, files, SMALL)
    assert [(s.configuration, s.reason) for s in measured.record.samples if s.state != "ok"] == []
    names = {entry.name for entry in measured.record.entries}
    assert {"map", "map-2", "map-fresh", "warm", "copy", "s.mmap", "s.load", "fread", "read", "none"} <= names
    asked = [r for s in measured.record.samples for r in s.readings if "answered" in r.notes]
    assert {r.checksum for r in asked} == {files.checksum}
    assert {r.notes["answered"] for r in asked} == {2000}
    assert measured.nested[0].count == 1000
    shared = tables.values(measured, "map", "warm", 2, lambda s: float(len(s.readings)))
    assert shared == {0: 2.0}


@pytest.mark.processes
def test_a_run_goes_on_where_it_was_killed_and_takes_the_modes_it_is_told(bench_structs, files, tmp_path):
    options = replace(SMALL, modes=("map", "s.load"), threads=(1,), processes=1, fresh=0, nested=0)
    first = scenario.run(bench_structs, files, options, journal=Journal(tmp_path / "samples")).record
    assert {s.configuration for s in first.samples} == {"map", "s.load"}
    lines = (tmp_path / "samples").read_text().splitlines(keepends=True)
    (tmp_path / "samples").write_text("".join(lines[:3]))
    again = Journal(tmp_path / "samples", resume=True)
    second = scenario.run(bench_structs, files, options, journal=again).record
    assert second.samples[:2] == first.samples[:2]
    assert len(second.samples) == len(first.samples) == 4
    with pytest.raises(ValueError, match="another run: options was"):
        scenario.run(bench_structs, files, SMALL, journal=again)


@pytest.mark.processes
def test_an_answer_that_is_wrong_is_no_time(bench_structs, files):
    row = next(row for row in files.rows() if row.mode == "map")
    configuration = program.configuration(bench_structs, files, row, threads=1, limit_s=30)
    turn = scenario.Turn(configuration, Case(1, "warm"), files.job(row), files.checksum ^ 1)
    found = scenario.take(turn, 0, SMALL, scenario.Patience(0), None, None)
    assert (found.state, found.readings) == ("wrong data", found.readings)
    with (files.folder / "questions").open("r+b") as questions:  # the sum of the first thousand answers
        questions.write(bytes(8))
    found = scenario.take(turn, 0, SMALL, scenario.Patience(0), None, None)
    assert found.state == "failed"
    assert "the answers sum to" in found.reason


@pytest.mark.processes
@pytest.mark.slow
def test_a_copy_does_not_fit_into_half_of_the_file(bench_structs, tmp_path):
    files = program.build(bench_structs, tmp_path / "files", size=60 * MB, questions=2000)
    options = replace(SMALL, threads=(1,), memory_share=0.5, limit_s=1)
    try:
        measured = scenario.run(bench_structs, files, options)
    except Unavailable as reason:
        pytest.skip(f"no control group: {reason}")
    states = {s.configuration: (s.state, s.reason) for s in measured.record.samples}
    assert states["map"] == ("ok", "")
    assert states["copy"][0] == "crashed"
    assert "out of memory at the limit of" in states["copy"][1]
    assert measured.memory_bytes == round(files.bytes / 2)


def test_a_program_that_fails_says_why(bench_structs, tmp_path):
    with pytest.raises(RuntimeError, match="cannot open"):
        program.build(bench_structs, tmp_path, size=MB, genome=str(tmp_path / "none.fa"))
