"""Every scenario as a command, at a small size; what is wrong is no result; and what records say in sentences."""

import importlib.util
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from packages.bench.tests.support import WHEN, made
from tests.support.places import ROOT
from tests.support.screens import widest_of_tables
from tools import job_start

import onecopy as oc
from onecopy_bench.cli import SCENARIOS
from onecopy_bench.engine.machine import disks
from onecopy_bench.engine.machine.limits import Unavailable
from onecopy_bench.engine.record import Record, Row, Sample, read
from onecopy_bench.engine.scenario import filled
from onecopy_bench.scenarios import images, passes, records, share, start
from onecopy_bench.workers import rows as data

MB = 1_000_000
QUICK = ("--rounds", "1", "--idle-wait", "0")
ROWS = ("--rival", "list", "--rival", "LMDB", "--workers", "1", "--ranks", "1", "--no-torch", "--allocator", "glibc")
WAYS = {
    "images": ("numpy", "onecopy", "onecopy, capped"),
    "models": ("inline", "external, not packed", "ort", "saved packed", "onecopy packed", "onecopy direct"),
}
SMOKE = {
    "open": ("MODEL", "-n", "1,2", "--cold", "--warm", "--only", "map", "--only", "copy"),
    "keys": ("--arrays", "100"),
    "warm": ("BIG",),
    "crossover": ("BIG", "--place", "disk", "--place", "tight", "--order", "file", "--share", "20", "--share", "100",
                  "--method", "copy", "--method", "part", "--passes", "2"),
    "structs": ("--program", "STRUCTS", "--size", "1MB", "--questions", "1500", "--nested", "100", "--fresh", "1"),
    "share": ("--rows", "200", "--start", "fork", *ROWS),
    "records": ("--case", "scalar", "--case", "batch columns", "--case", "key", "--case", "import", "--case", "shuffle",
                "--rows", "300", "--keys", "300", "--imported", "300", "--shuffle", "600", "--draws", "100",
                "--repeats", "2"),
    "images": ("--file", "TIFF", "--count", "2", "--columns", "2", "--limit", "900MB", "--input", "compressed"),
    "models": ("--file", "ONNX", "--processes", "1", "--processes", "2", "--runs", "2", "--batch", "1"),
    "start": ("--size", "3MB", "--work-s", "0.01", "--piece", "1MB"),
    "nodes": ("--size", "8MB", "--processes", "2", "--nodes", "2", "--link", "1", "--way", "onecopy"),
    "run": ("--program", "numpy", "--size", "20MB", "--requests", "3", "-n", "2"),
}  # fmt: skip
WIDE = {"share", "records", "models", "images"}
"""Scenarios whose tables have too many columns for a terminal of 80."""
NEEDS = {"images": ("tifffile", "imagecodecs"), "models": ("onnx", "onnxruntime")}


@pytest.fixture
def words_of(tmp_path, request):
    """Give the words of a command with the files that it is about."""
    folder = tmp_path / "given"
    folder.mkdir()

    def file(word: str) -> str:
        if word == "MODEL":
            oc.save(folder / "model.safetensors", {"a": np.ones(100_000), "b": np.zeros(5000, np.float32)})
            return str(folder / "model.safetensors")
        if word == "BIG":
            (folder / "big.bin").write_bytes(os.urandom(24 * MB))
            return str(folder / "big.bin")
        if word == "ONNX":
            from tests.support.onnx_models import save_inline

            return str(save_inline(folder / "words.onnx", aligned=False, rows=40_000))
        if word == "TIFF":
            import tifffile

            tifffile.imwrite(folder / "x.tif", np.zeros((300, 200, 3), np.uint8), tile=(64, 64), photometric="rgb")
            return str(folder / "x.tif")
        return str(request.getfixturevalue("bench_structs")) if word == "STRUCTS" else word

    ways = {name: [word for way in chosen for word in ("--way", way)] for name, chosen in WAYS.items()}
    return lambda name: (*map(file, SMOKE[name]), *ways.get(name, ()))


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_prints_tables_and_writes_its_record_a_page_and_a_picture(onecopy_process, words_of, tmp_path, name):
    if lacks := [module for module in NEEDS.get(name, ()) if importlib.util.find_spec(module) is None]:
        pytest.skip(f"not installed: {', '.join(lacks)}")
    if name == "nodes" and shutil.which("nginx") is None:
        pytest.skip("nginx is not installed")
    place = tmp_path / "place"
    place.mkdir()
    out = ["--json", "r.jsonl", "--markdown", "r.md", *(["--plot", "r.svg"] if SCENARIOS[name].draw else [])]
    words = words_of(name)
    done = onecopy_process("bench", name, *QUICK, *out, *words, cwd=place, env={"COLUMNS": "80"}, timeout=300)
    assert done.returncode == 0, done.stderr
    (record,) = read(place / "r.jsonl")
    if record.absent and not record.samples:
        pytest.skip(record.absent[0].reason)
    refused = {("copy", "failed")} if name == "crossover" else set()  # NotEnoughMemory: half of the file is the limit
    assert {(s.row, s.state) for s in record.samples if s.state != "ok"} <= refused, record.samples
    assert {sample.row for sample in record.samples} == {row.name.partition(": ")[2] or row.name for row in record.rows}
    assert record.seconds is not None
    assert str(tmp_path) not in (place / "r.jsonl").read_text()
    assert name in WIDE or widest_of_tables(done.stdout) <= 80
    page = (place / "r.md").read_text()
    assert page.startswith(f"# {name}")
    assert "1 round: a published number needs" in page
    left = {path.name for path in place.iterdir()}  # the data are gone
    assert left == {"r.jsonl", "r.md", *(["r.svg"] if SCENARIOS[name].draw else [])}
    check = CHECKS.get(name)
    if check is not None:
        check(record)


def held_once(record: Record) -> None:
    held = {(s.case[0], s.row): s.numbers["held_share"] for s in record.samples}
    assert held["numpy", "command"] < 1.5 < held["numpy", "baseline"]
    assert len({s.numbers["checksum"] for s in record.samples}) == 1


def sent_once_to_each(record: Record) -> None:
    assert record.samples[0].numbers["origin_share"] == pytest.approx(2, abs=0.001)


def cold(record: Record) -> None:
    assert {s.numbers["cached_before"] for s in record.samples if "cached_before" in s.numbers} == {0}


def kept_is_found(record: Record) -> None:
    numbers = {(s.row, s.case): s.numbers for s in record.samples}
    assert numbers["LMDB", ("fork", "1")]["second_rows_read"] == 200
    assert "second_pss" not in numbers["list", ("fork", "1")]
    assert numbers["list", ("heap", "glibc")]["build_peak_anonymous"] > 0


CHECKS = {
    "run": held_once, "nodes": sent_once_to_each, "start": cold, "warm": cold, "crossover": cold, "share": kept_is_found
}  # fmt: skip


# --- what is wrong is no result ---------------------------------------------------------------------------------------

SMALL = {"rounds": 1, "idle_wait": 0.0, "timeout": 60.0}


def wrong(run: Record) -> set[str]:
    return {sample.state for sample in run.samples}


@pytest.mark.processes
def test_other_bytes_than_the_file_has_are_wrong_data(tmp_path, monkeypatch):
    judged = start.touch.of_file
    monkeypatch.setattr(start.touch, "of_file", lambda *arguments: judged(*arguments) + 1)
    options = start.Options(**SMALL, size=300_000, work_s=0.01, places=("disk",), ways=("warm early",))
    assert wrong(start.run(tmp_path, options)) == {"wrong data"}


@pytest.mark.processes
def test_a_file_that_does_not_get_cold_is_no_result(tmp_path, monkeypatch):
    monkeypatch.setattr(start.cache, "evict", lambda _: 0)
    options = start.Options(**SMALL, size=300_000, work_s=0.01, places=("disk",), ways=("none",))
    ((state, reason),) = [(s.state, s.reason) for s in start.run(tmp_path, options).samples]
    assert (state, reason) == ("failed", "300000 bytes of the file stay in memory: it is not cold")


@pytest.mark.processes
def test_another_canvas_is_wrong_data(tmp_path, monkeypatch):
    tifffile = pytest.importorskip("tifffile")
    pytest.importorskip("imagecodecs")
    tifffile.imwrite(tmp_path / "x.tif", np.zeros((300, 200, 3), np.uint8), photometric="rgb")
    (tmp_path / "place").mkdir()
    monkeypatch.setattr(images, "expected", lambda *_: 1)
    options = images.Options(**SMALL, file=str(tmp_path / "x.tif"), count=1, ways=("numpy",), syncs=(False,), limit=0)
    assert wrong(images.run(tmp_path / "place", options)) == {"wrong data"}


@pytest.mark.processes
def test_a_wrong_answer_is_wrong_data(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "right_answer", lambda *_: 1)
    run = records.run(tmp_path, records.Options(**SMALL, cases=("shuffle",), shuffle=(600,), draws=50, repeats=1))
    assert wrong(run) == {"wrong data"}


@pytest.mark.processes
def test_wrong_rows_are_wrong_data(tmp_path):
    written = data.write(tmp_path, "coco", data.rows_of("coco", 300))
    sums = written.sums()
    np.save(data.sums_path(written.path), sums + np.arange(len(sums), dtype=np.uint64))
    options = share.Options(
        **SMALL, rivals=("list",), starts=("fork",), ranks=(1,), workers=1, torch=False, allocators=()
    )
    assert wrong(share.measure(written, tmp_path, options)) == {"wrong data"}


def test_without_any_place_there_is_a_reason(tmp_path, monkeypatch):
    def refuse(*_):
        raise Unavailable("a loop device needs root")

    (tmp_path / "f").write_bytes(b"x" * 10_000)
    monkeypatch.setattr(disks, "loop_disk", refuse)
    with pytest.raises(Unavailable, match="slow: a loop device needs root"):
        passes.run(tmp_path, passes.Crossover(file=str(tmp_path / "f"), places=("slow",)), name="crossover")


@pytest.mark.processes
def test_a_disk_that_is_nearly_full_gets_no_file_that_is_cut(small_disk, in_child):
    """What is left takes a part of a block: that is no success."""

    def measure():
        folder = small_disk("ext4")
        try:
            start.write(folder / "more", 64 * MB)
        except OSError as error:
            return error.errno, error.filename
        return 0, ""

    number, name = in_child(measure)
    assert (number, Path(name).name) == (28, "more")


# --- crossover: who wins ----------------------------------------------------------------------------------------------


def taken(method: str, ms: tuple[float, ...], number: int = 0, **more) -> Sample:
    notes = {"passes_ns": [round(value * 1e6) for value in ms], "cut_short": False}
    memory = {"pss": 50 * MB, "anonymous": 0, "empty_pss": 0, "empty_anonymous": 0}
    process = {"open_ns": 0, "resident_ns": 1, "read_bytes": 12_345_678, "notes": notes, **memory}
    good = {"started": WHEN, "idle_share": 0.99, "numbers": {"cached_before": 0}, "processes": (process,)}
    return Sample(method, ("disk", "shuffled", "0.5"), number, **(good | more))


def record_of(*samples: Sample) -> Record:
    place = {"name": "disk", "detail": "where the file is", "size": 100 * MB, "read_ahead_bytes": 128 << 10}
    place |= {"device_bytes_per_s": None, "memory_bytes": None}
    options = passes.Crossover(passes=2, shares=(0.5,), orders=("shuffled",))
    rows = [Row(name, "as called") for name in ("copy", "map", "warm", "small")]
    facts = {"file": "f", "size": 100 * MB, "places": [place]}
    return made("crossover", samples, rows, options=options, data=facts)


def test_the_fastest_median_wins_within_five_percent_is_a_tie_and_the_next_is_behind():
    times = {"map": (10, 11, 90), "warm": (11.5, 11.5, 11.5), "small": (11.6, 11.6, 11.6), "copy": (22, 22, 22)}
    samples = [taken(name, (ms, 2 * ms), n) for name, each in times.items() for n, ms in enumerate(each)]
    first, second = passes.verdicts_of(record_of(*samples))
    assert (first.winners, first.ratio("small"), first.copy_ratio) == (("map", "warm"), pytest.approx(11.6 / 11), 2.0)
    assert passes.winner_text(first) == "map = warm\n11 ms\nsmall +5 %\ncopy +100 %"
    assert second.times["map"].median == 22


def test_a_method_that_was_killed_does_not_win_and_the_notes_say_why():
    lost = taken("copy", (), state="crashed", reason="killed by the kernel: out of memory at 1 MB", processes=())
    record = record_of(taken("map", (10.0, 20.0)), lost)
    (verdict, _) = passes.verdicts_of(record)
    assert (verdict.winners, verdict.lost) == (("map",), {"copy": "killed"})
    assert "copy: crashed (disk, shuffled, 0.5): killed by the kernel: out of memory at 1 MB." in "\n".join(
        SCENARIOS["crossover"].sentences(record)
    )
    held, read_tables = list(SCENARIOS["crossover"].tables(record))[1:]
    assert {("copy", "killed"), ("map", "0 / 50"), ("warm", "-")} <= set(held.rows)
    assert {("copy", "killed"), ("map", "12.3"), ("warm", "-")} <= set(read_tables.rows)


def test_a_sampler_has_an_index_for_every_draw_of_every_repeat():
    options, source = records.Options(draws=10_000, repeats=2), data.Source("", "strings", 3000, 0)
    shuffle, row = (records.QUESTIONS[name] for name in ("shuffle", "row"))
    assert records.draws_of(shuffle, source, options) == 1000
    assert records.draws_of(row, source, options) == 3000


@pytest.mark.parametrize("page", ["", "<a>", "<b><a>", 2 * "<a><b>"])
def test_a_page_without_its_marks_is_refused(page):
    with pytest.raises(ValueError, match="the page needs one"):
        filled(page, "block", "<a>", "<b>")


# --- the calculation of docs/explanation/scale.md ---------------------------------------------------------------------


def test_the_calculation_agrees_with_what_was_measured():
    """The bytes, and the times where links are the limit and not the two CPUs of that machine."""
    ways, compared = {"onecopy": job_start.EACH_NODE, "onecopy, peers": job_start.TOGETHER}, 0
    for path in (ROOT / "packages/bench/results").glob("*/*-nodes.jsonl"):
        record = read(path)[0]
        for case in record.cases():
            count, link = int(case[0].split()[0]), float(case[1].split()[0]) * 1e9
            job = job_start.Job(count, record.options["processes"], record.data["bytes"], link, origin=1e12)
            for row, way in ways.items():
                if (spread := record.spread(row, case, "ready_ns")) is not None:
                    compared += 1
                    if count * link <= 2e9:
                        assert spread.median / 1e9 == pytest.approx(job_start.seconds(way, job), rel=0.1)
                    sent = record.spread(row, case, "origin_bytes")
                    assert sent.median == pytest.approx(job_start.origin_bytes(way, job), rel=0.01)
    assert compared > 0


def test_the_page_has_the_numbers_of_the_calculation():
    page = Path(ROOT, "docs/explanation/scale.md").read_text()
    rows = re.findall(r"^\| [\d,]+ \| (?:each process|onecopy).*$", page, re.MULTILINE)
    assert rows == job_start.lines()
