"""The verbs over real files, as a user runs them: in a process of their own."""

import json
import mmap
import os
import subprocess
import sys

import numpy as np
import pytest
from tests.support.page_cache import forget, pages_in_cache
from tests.support.programs import NEEDS_BENCH
from tests.support.safetensors_files import write_safetensors

import onecopy as oc

pytestmark = pytest.mark.processes


def test_ls_shows_every_array_with_size_and_share(onecopy_process, model):
    done = onecopy_process("ls", model)
    assert (done.returncode, done.stderr) == (0, "")
    heading, titles, *rows, summary = done.stdout.splitlines()
    assert heading == f"{model}: safetensors"
    assert titles.split() == ["name", "dtype", "shape", "size", "align", "resident"]
    assert [row.split()[0] for row in rows] == ["layer.0.weight", "layer.1.weight", "bias"]
    assert rows[1].split()[1:5] == ["U8", "70000", "70.0", "kB"]
    assert rows[0].endswith("100 %")
    assert summary.startswith("3 arrays, 75.0 kB, aligned to ")
    assert "100 % resident" in summary


def test_looking_does_not_warm(onecopy_process, tmp_path):
    path = write_safetensors(tmp_path / "big.safetensors", {"big": bytes(64_000_000)})
    forget(path)
    facts = json.loads(onecopy_process("ls", path, "--json").stdout)
    assert facts["arrays"][0]["cached"] < 32_000_000  # the header is read, and what is read ahead with it


def test_ls_sorts_matches_names_and_reports_the_truth_in_json(onecopy_command, model):
    first, second, bias = "layer.0.weight", "layer.1.weight", "bias"
    orders = {"offset": [first, second, bias], "name": [bias, first, second], "size": [second, first, bias]}
    for order, names in orders.items():
        facts = json.loads(onecopy_command("ls", model, "--json", "--sort", order).stdout)
        assert [array["name"] for array in facts["arrays"]] == names
    found = facts["arrays"][-1]
    assert model.read_bytes()[found["offset"] : found["offset"] + found["nbytes"]] == b"12345678"
    assert (found["dtype"], found["shape"], found["offset"] % found["alignment"]) == ("U8", [8], 0)
    done = onecopy_command("ls", model, "--names", "layer.*")
    assert "bias" not in done.stdout
    assert done.stdout.splitlines()[-1].startswith("2 of 3 arrays, 75.0 kB")


def test_ls_of_an_empty_array_divides_by_nothing(onecopy_command, tmp_path):
    path = write_safetensors(tmp_path / "model.safetensors", {"empty": b"", "full": b"12345678"})
    done = onecopy_command("ls", path)
    assert done.returncode == 0
    assert done.stdout.splitlines()[2].split()[0] == "empty"


def test_a_reader_that_leaves_early_hears_nothing_more(tmp_path):
    path = write_safetensors(tmp_path / "many.safetensors", {f"tensor.{i}": b"" for i in range(5000)} | {"x": b"1"})
    command = f"{sys.executable} -m onecopy ls {path} | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.split()[-1] == "141"


@pytest.mark.parametrize("verb", [["ls"], ["warm"], ["evict"], pytest.param(["bench", "open"], marks=NEEDS_BENCH)])
def test_a_missing_file_is_one_line_with_its_name(onecopy_command, tmp_path, verb):
    done = onecopy_command(*verb, tmp_path / "nothing\x1b[2J")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"onecopy: {tmp_path}/nothing\\x1b[2J: ")
    assert done.stderr.endswith("No such file or directory\n")
    assert done.stderr.count("\n") == 1


def test_warm_fills_the_cache_and_reports(onecopy_process, model):
    forget(model)
    done = onecopy_process("warm", model)
    assert (done.returncode, done.stderr) == (0, "")
    assert 0 not in pages_in_cache(model)
    assert "now 100 %" in done.stdout.replace("\n", " ")
    assert "GiB/s" in done.stdout
    forget(model)
    report = json.loads(onecopy_process("warm", model, "--json", "--threads", "2").stdout)
    size = model.stat().st_size  # the header is read, and what is read ahead with it
    assert report["cached_before"] < size <= report["cached_after"]
    assert report["complete"] is True
    assert isinstance(report["mechanism"], str)


@pytest.fixture
def pair(tmp_path):
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.write_bytes(os.urandom(1_048_576))
        forget(path)
    return paths


def test_warm_takes_several_files_and_one_budget_for_all_that_is_not_in_memory(onecopy_command, pair, tmp_path):
    reports = json.loads(onecopy_command("warm", *pair, "--max-bytes", "1.5MiB", "--json").stdout)
    assert [report["file"] for report in reports] == [str(path) for path in pair]
    assert [report["filled"] for report in reports] == [1_048_576, 524_288]
    kept = oc.Mapping(pair[0])
    oc.files.pin(kept)  # some kernels drop untouched pages within seconds
    forget(pair[1])
    reports = json.loads(onecopy_command("warm", *pair, "--max-bytes", "1MiB", "--json").stdout)
    assert [report["filled"] for report in reports] == [0, 1_048_576]
    told = [line for line in onecopy_command("warm", *pair).stdout.splitlines() if line.startswith(str(tmp_path))]
    assert told[0] == f"{pair[0]}: 1.05 MB, nothing to do."
    assert told[1].startswith(f"{pair[1]}: ")
    assert "now 100 %" in told[1] or told[1].endswith("nothing to do.")


def test_warm_takes_names_of_arrays(onecopy_command, model):
    done = onecopy_command("warm", model, "--names", "layer.*", "--json")
    assert 75_000 <= json.loads(done.stdout)["bytes"] < 75_000 + 3 * mmap.PAGESIZE
    done = onecopy_command("warm", model, "--names", "nothing*")
    assert (done.returncode, done.stdout) == (1, "")
    assert "none of the 3 arrays of " in done.stderr
    assert "matches 'nothing*'" in done.stderr


def test_evict_reports_per_file(onecopy_command, model, tmp_path):
    other = tmp_path / "other"
    other.write_bytes(bytes(10_000))
    done = onecopy_command("evict", model, other)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("now 0 %") == 2
    assert 1 not in pages_in_cache(model)
    reports = json.loads(onecopy_command("evict", model, other, "--json").stdout)
    assert [report["file"] for report in reports] == [str(model), str(other)]
    assert all(report["cached_after"] == 0 for report in reports)


def test_a_damaged_file_is_warmed_as_bytes_with_a_warning(onecopy_process, tmp_path):
    path = tmp_path / "cut.safetensors"
    oc.save(path, {"w": np.ones(100_000)})
    os.truncate(path, 500_000)
    done = onecopy_process("warm", path)
    assert done.returncode == 0
    assert "the file is truncated, or its header is wrong; the file is mapped as bytes" in done.stderr
