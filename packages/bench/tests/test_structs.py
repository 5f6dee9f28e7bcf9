"""`bench structs`: rows and tables from a made-up record, and small runs of the C++ program where it is built."""

from dataclasses import replace

import pytest
from packages.bench.tests.support import made, taken

from onecopy_bench.engine import rounds
from onecopy_bench.engine.machine.limits import Unavailable
from onecopy_bench.engine.record import Log, Record, Row, Sample
from onecopy_bench.files.sampling import turn
from onecopy_bench.scenarios import structs as scenario
from onecopy_bench.scenarios.structs import SCENARIO, program, tables

MB = 1_000_000


def process(ms: float, *, pss: int = 0, anonymous: int = 0, checksum: int | None = 7, **notes) -> dict:
    ns = int(ms * MB)
    found = {"open_ns": ns, "resident_ns": 10 * ns, "major_faults": 3, "notes": {"max_rss": 9 * MB, **notes}}
    found |= {"empty_pss": 2 * MB, "empty_anonymous": MB, "pss": (2 + pss) * MB, "anonymous": (1 + anonymous) * MB}
    return found if checksum is None else {**found, "checksum": checksum}


def sample(name: str, number: int, case: tuple[str, str], *processes: dict, cached: int = 0) -> Sample:
    return replace(taken(name, case, number, cached_before=cached), processes=processes)


def samples_of_a_round(number: int) -> list[Sample]:
    """Make copy take 100 ms and map 1, times the round; four of map share 100 MB."""
    factor, found = number + 1, []
    for mode, ms, private in (("map", 1, 0), ("copy", 100, 100)):
        notes = {"first_ns": ms * 2 * MB, "few_ns": ms * 3 * MB, "again_ns": ms * 4 * MB * factor, "answered": 1000}
        one = process(ms * factor, anonymous=private, **notes)
        found += [sample(mode, number, (cache, "1"), one) for cache in ("cold", "warm")]
        found.append(sample(mode, number, ("warm", "4"), *[process(ms, pss=private or 25, **notes)] * 4))
        found.append(sample(f"{mode}-fresh", number, ("warm", "1"), process(ms * 5, checksum=None)))
    nested = {"open_ns": (1, 1, 2)[number] * 30 * MB, "records_ns": 20 * MB, "private_bytes": 24 * MB}
    return [*found, taken("nested", ("nested",), number, count=1_000_000, **nested)]


@pytest.fixture
def measured() -> Record:
    options = scenario.Options(rounds=3, threads=(1,))
    samples = [one for number in range(3) for one in samples_of_a_round(number)]
    rows = [Row(name, "as called") for name in ("map", "map-fresh", "copy", "copy-fresh", "nested")]
    data = {"size": 100 * MB, "kmers": 8_000_000, "questions": 1000, "checksum": 7, "memory_bytes": None}
    data |= {"system_calls": {"10000": 90, "1000000": 90}}
    return made("structs", samples, rows, options=options, data=data)


def table(measured: Record, title: str) -> dict[str, tuple[str, ...]]:
    (found,) = [each for each in SCENARIO.tables(measured) if each.title.startswith(title)]
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
    (cells,) = table(measured, "Nested values; system calls for 10,000 and 1,000,000: 90 and 90").values()
    assert cells == ("1000000", "30\n(30-60)", "20", "1.5\n(1.5-3)", "24")


def test_the_sentences_are_ratios_of_the_same_round(measured):
    said = SCENARIO.sentences(measured)
    assert said[0] == "From a warm cache, map opens 100 times as fast as copy."
    assert said[-1].startswith("3 rounds: a published number needs")
    assert not any("NOT cold" in sentence for sentence in said)


def test_what_went_wrong_is_said(measured):
    samples = tuple(
        replace(s, state="crashed", reason="out of memory", processes=()) if s.row == "copy" else s
        for s in measured.samples
    )
    late = sample("map", 2, ("cold", "1"), process(1, checksum=None, answered=17), cached=4 * MB)
    broken = replace(measured, samples=(*samples, late))
    assert table(broken, "cold")["copy"][0] == "crashed"
    said = SCENARIO.sentences(broken)
    assert "copy: crashed: out of memory" in said
    assert "Stopped after 30 s, before all answers: map." in said
    assert "NOT cold: up to 4.0 MB of a file were still cached." in said


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
    record = scenario.run(bench_structs, files, SMALL)
    assert [(s.row, s.reason) for s in record.samples if s.state != "ok"] == []
    names = {row.name for row in record.rows}
    assert {"map", "map-2", "map-fresh", "warm", "copy", "s.mmap", "s.load", "fread", "read", "none"} <= names
    asked = [each for s in record.samples for each in s.processes if "answered" in each.get("notes", {})]
    assert {each["checksum"] for each in asked} == {files.checksum}
    assert {each["notes"]["answered"] for each in asked} == {2000}
    (nested,) = record.of("nested", ("nested",))
    assert nested.numbers["count"] == 1000
    shared = tables.values(record, "map", "warm", 2, lambda s: float(len(s.processes)))
    assert shared == {0: 2.0}


@pytest.mark.processes
def test_a_run_goes_on_where_it_was_killed_and_takes_the_modes_it_is_told(bench_structs, files, tmp_path):
    path = tmp_path / "samples"
    options = replace(SMALL, modes=("map", "s.load"), threads=(1,), processes=1, fresh=0, nested=0)
    first = scenario.run(bench_structs, files, options, log=Log(path))
    assert {s.row for s in first.samples} == {"map", "s.load"}
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:3]))
    second = scenario.run(bench_structs, files, options, log=Log(path, resume=True))
    assert second.samples[:2] == first.samples[:2]
    assert len(second.samples) == len(first.samples) == 4
    with pytest.raises(ValueError, match="another run: options was"):
        scenario.run(bench_structs, files, SMALL, log=Log(path, resume=True))


@pytest.mark.processes
def test_an_answer_that_is_wrong_is_no_time(bench_structs, files):
    row = next(row for row in files.rows() if row.mode == "map")
    entry = program.configuration(bench_structs, files, row, threads=1, limit_s=30)
    one = turn(entry, files.job(row), files.checksum ^ 1, SMALL, case=("warm", "1"), state="warm")
    assert rounds.take(one, 0, SMALL).state == "wrong data"
    with (files.folder / "questions").open("r+b") as questions:  # the sum of the first thousand answers
        questions.write(bytes(8))
    found = rounds.take(one, 0, SMALL)
    assert found.state == "failed"
    assert "the answers sum to" in found.reason


@pytest.mark.processes
@pytest.mark.slow
def test_a_copy_does_not_fit_into_half_of_the_file(bench_structs, tmp_path):
    files = program.build(bench_structs, tmp_path / "files", size=60 * MB, questions=2000)
    options = replace(SMALL, threads=(1,), memory_share=0.5, limit_s=1)
    try:
        record = scenario.run(bench_structs, files, options)
    except Unavailable as reason:
        pytest.skip(f"no control group: {reason}")
    states = {s.row: (s.state, s.reason) for s in record.samples}
    assert states["map"] == ("ok", "")
    assert states["copy"][0] == "crashed"
    assert "out of memory at the limit of" in states["copy"][1]
    assert record.data["memory_bytes"] == round(files.bytes / 2)
