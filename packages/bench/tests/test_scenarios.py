"""Every scenario as a command, at a small size; what is wrong is no result; and what records say in sentences."""

import importlib.util
import shutil

import numpy as np
import pytest
from packages.bench.tests.support import widest_of_tables

import onecopy as oc
from onecopy_bench import start
from onecopy_bench.cli import SCENARIOS
from onecopy_bench.record import Record, read

QUICK = ("--rounds", "1", "--idle-wait", "0")
ROWS = ("--rival", "list", "--rival", "LMDB", "--workers", "1", "--ranks", "1", "--no-torch")
WAYS = {
    "images": ("numpy", "onecopy", "onecopy, capped"),
    "models": ("inline", "external, not packed", "ort", "saved packed", "onecopy packed", "onecopy direct"),
}
SMOKE = {
    "open": ("MODEL", "-n", "1", "-n", "2", "--cold", "--warm", "--only", "map", "--only", "copy"),
    "structs": ("--program", "STRUCTS", "--size", "1MB", "--questions", "1500"),
    "share": ("--rows", "200", "--start", "fork", *ROWS),
    "images": ("numpy", "onecopy", "onecopy, capped"),
    "models": ("inline", "external, not packed", "ort", "saved packed", "onecopy packed", "onecopy direct"),
}
SMOKE = {
    "open": ("MODEL", "-n", "1", "-n", "2", "--cold", "--warm", "--only", "map", "--only", "copy"),
    "structs": ("--program", "STRUCTS", "--size", "1MB", "--questions", "1500"),
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
WIDE = {"share", "models", "images", "structs"}
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
    out = ["--json", "r.jsonl", "-o", "r.md", *(["-o", "r.svg"] if SCENARIOS[name].draw else [])]
    words = words_of(name)
    done = onecopy_process("bench", name, *QUICK, *out, *words, cwd=place, env={"COLUMNS": "80"}, timeout=300)
    assert done.returncode == 0, done.stderr
    (record,) = read(place / "r.jsonl")
    if record.absent and not record.samples:
        pytest.skip(record.absent[0].reason)
    assert {sample.state for sample in record.samples} == {"ok"}, record.samples
    assert {sample.row for sample in record.samples} == {row.name for row in record.rows}
    assert record.seconds is not None
    assert str(tmp_path) not in (place / "r.jsonl").read_text()
    assert name in WIDE or widest_of_tables(done.stdout) <= 80
    page = (place / "r.md").read_text()
    assert page.startswith(f"# {name}")
    assert "1 round; a published number needs" in page
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
    assert numbers["list", ("fork", "1")]["build_peak_anonymous"] > 0


CHECKS = {"run": held_once, "nodes": sent_once_to_each, "start": cold, "share": kept_is_found}


# --- what is wrong is no result ---------------------------------------------------------------------------------------

SMALL = {"rounds": 1, "idle_wait": 0.0, "timeout": 60.0}


def wrong(run: Record) -> set[str]:
    return {sample.state for sample in run.samples}


@pytest.mark.processes
def test_other_bytes_than_the_file_has_are_wrong_data(tmp_path, monkeypatch):
    judged = start.checksum_of_file
    monkeypatch.setattr(start, "checksum_of_file", lambda *arguments: judged(*arguments) + 1)
    options = start.Options(**SMALL, size=300_000, work_s=0.01, places=("disk",), ways=("warm early",))
    assert wrong(start.SCENARIO.run(tmp_path, options)) == {"wrong data"}
