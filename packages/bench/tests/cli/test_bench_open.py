"""`onecopy bench open` as a user runs it: in a process of its own."""

import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
from tests.support.children import children_of, is_alive
from tests.support.screens import widest_of_tables
from tests.support.waiting import until

import onecopy as oc
from onecopy_bench.engine.record import read

pytestmark = pytest.mark.processes
PROGRESS = re.compile(r"onecopy: (?:preparing|writing the tensors as .*|.*: \d+ %)$")


def without_progress(err: str) -> str:
    """Return what was written to stderr without the lines that a run of more than 30 s prints about its progress."""
    return "".join(line for line in err.splitlines(keepends=True) if not PROGRESS.match(line))


def only(*rows: str) -> list[str]:
    """Return the options that select rows."""
    return [word for row in rows for word in ("--only", row)]


@pytest.mark.slow
def test_a_benchmark_prints_its_tables_and_writes_its_record(onecopy_process, model, tmp_path):
    out = tmp_path / "record.jsonl"
    rows = only("copy", "map", "map+warm", "numpy.memmap")
    arguments = ("bench", "open", model, *rows, "-n", "2", "--cold", "--iterations", "1", "--idle-wait", "0")
    done = onecopy_process(*arguments, "--json", out)
    assert (done.returncode, without_progress(done.stderr)) == (0, "")
    assert done.stdout.startswith("open model.safetensors: ")
    for word in ("copy", "map+warm", "numpy.memmap", "O_DIRECT", "First touch", "2 processes hold"):
        assert word in done.stdout
    assert widest_of_tables(done.stdout) <= 80
    (record,) = read(out)
    assert {sample.state for sample in record.samples} == {"ok"}
    assert str(tmp_path) not in out.read_text()


def test_a_timeout_of_all_children_is_a_table_and_not_an_end(onecopy_process, model):
    done = onecopy_process("bench", "open", model, "-n", "1", "--iterations", "1", "--timeout", "0.001")
    assert done.returncode == 0
    assert "map: timeout (warm, 1)" in done.stdout


def test_ctrl_c_ends_a_benchmark_with_its_children(model):
    command = [sys.executable, "-m", "onecopy", "bench", "open", str(model), "--idle-wait", "1000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        until(lambda: children_of(process.pid), "a child")
        children = children_of(process.pid)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "\nonecopy: interrupted\n")
    until(lambda: not any(map(is_alive, children)), "the end of the children")


@pytest.mark.slow
def test_a_brief_benchmark_ends_with_what_it_says(onecopy_process, model):
    rows = only("map", "copy", "numpy.memmap")
    done = onecopy_process("bench", "open", model, *rows, "-n", "2", "--rounds", "1", "--idle-wait", "0", "--brief")
    assert (done.returncode, without_progress(done.stderr)) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[-1].startswith("2 processes hold")
    assert {line.split()[0] for line in lines[3:-2]} >= {"map", "copy", "numpy.memmap"}
    assert max(map(len, lines[:-2])) <= 80
    assert "O_DIRECT" not in done.stdout


def test_a_damaged_file_is_refused(onecopy_process, tmp_path):
    path = tmp_path / "cut.safetensors"
    oc.save(path, {"w": np.ones(100_000)})
    os.truncate(path, 500_000)
    assert onecopy_process("bench", "open", path).stderr.startswith(f"onecopy: {path}: 'w': bytes")
