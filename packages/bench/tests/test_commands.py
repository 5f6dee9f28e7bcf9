"""Commands: options, errors, files, interrupts, tables at 80 and 200 columns."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from packages.bench.tests.support import committed, made, taken, text_of
from tests.support.children import children_of, is_alive
from tests.support.waiting import until

from onecopy.cli import command_line
from onecopy_bench.record import Row


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["open", "f", "-n", "1,2"], "'1,2' is not a valid integer range"),
        (["open", "f", "-n", "0"], "0 is not in the range x>=1"),
        (["open", "f", "--only", "nothing"], "unknown row 'nothing'; choose from copy, map"),
        (["open", "f", "--resume"], "--resume requires --json OUT"),
        (["start", "--json", "/no/such/folder/x"], "the parent of '/no/such/folder/x' does not exist"),
        (["start", "--place", "fast"], "'fast' is not one of 'disk', '128K', 'fuse'"),
        (["share", "--rival", "none"], "'none' is not one of"),
        (["stories", "-o", "page.pdf"], "'page.pdf' must end in .md, .svg or .png"),
        (["report"], "Missing argument 'RECORD...'"),
        (["report", "r", "-o", "x.pdf"], "'x.pdf' must end in .md, .svg or .png"),
        (["run", "-o", "x.svg", "--", "true"], "'run' records cannot be drawn as a picture"),
        (["run"], "Missing argument '-- COMMAND...'"),
        (["run", "--ready", "", "--", "true"], "the text must not be empty"),
        (["run", "--", "no-such-program"], "program 'no-such-program' not found"),
        (["run", "--baseline", "no-such-program", "--", "true"], "program 'no-such-program' not found"),
        (["run", "--baseline", "'open", "--", "true"], "No closing quotation"),
        (["run", "--evict", "/no/such/file", "--", "true"], "'/no/such/file' does not exist"),
        (["run", "--json", "/no/such/folder/x", "--", "true"], "the parent of '/no/such/folder/x' does not exist"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_status_2(capsys, arguments, words):
    assert command_line.run(["bench", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert words in err


def test_a_report_goes_to_stdout_or_into_files_that_belong_together(tmp_path, capsys):
    path = committed("open-4-128k")[0]
    assert command_line.run(["bench", "report", str(path), str(path)]) == 0
    page = capsys.readouterr().out
    assert page.count("# open: ") == 2
    assert page.count("**Cold, 4 processes: the slowest process**") == 2
    files = [tmp_path / name for name in ("r.md", "r.svg", "r.png")]
    assert command_line.run(["bench", "report", str(path), *(f"-o{file}" for file in files)]) == 0
    assert "](r.svg)" in files[0].read_text()
    assert all(file.stat().st_size for file in files)
    assert command_line.run(["bench", "report", str(path), str(path), f"-o{files[1]}"]) == 2
    assert "a picture shows one record, not 2" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "words"), [("[]", "record in format"), ("{", "Expecting"), (None, "No such file")])
def test_a_file_that_is_no_record_is_told_by_its_name(tmp_path, capsys, text, words):
    file = tmp_path / "x.jsonl"
    if text is not None:
        file.write_text(text)
    assert command_line.run(["bench", "report", str(file)]) == 1
    err = capsys.readouterr().err
    assert str(file) in err
    assert words in err


def test_a_record_of_a_scenario_that_is_gone_is_refused_by_its_name(tmp_path, capsys):
    (tmp_path / "r.jsonl").write_text(text_of(made("gone", [taken("a", ("case",), total_ns=2e6)], [Row("a")])))
    assert command_line.run(["bench", "report", str(tmp_path / "r.jsonl")]) == 1
    assert "this version does not support records of scenario 'gone'" in capsys.readouterr().err


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_ended_leaves_no_disk_and_no_process(tmp_path, number):
    if os.geteuid() != 0:
        pytest.skip("disks need root")
    words = ["start", "--size", "2MB", "--work-s", "100", "--place", "128K", "--folder", str(tmp_path)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-m", "onecopy", "bench", *words], env=environment, **pipes) as process:
        mounts = Path("/proc/self/mountinfo")
        until(
            lambda: process.poll() is not None or (str(tmp_path) in mounts.read_text() and children_of(process.pid)),
            "a disk and a child",
            seconds=100,
        )
        if process.poll() is not None:
            pytest.skip(f"no loop device here: {process.communicate()[1].decode()}")
        children = children_of(process.pid)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said.strip()) == (130, b"onecopy: interrupted")
    until(lambda: not any(map(is_alive, children)), "the end of the children")
    assert str(tmp_path) not in mounts.read_text()
    assert list(tmp_path.iterdir()) == []
