"""Commands: options, errors, files, interrupts, tables at 80 and 200 columns."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from packages.bench.tests.support import made, taken, text_of
from tests.support.children import children_of, is_alive
from tests.support.screens import widest_of_tables
from tests.support.waiting import until

from onecopy.cli import command_line
from onecopy_bench.engine.record import Log, Row, read

READY = "import time; print('it is ready', flush=True); time.sleep(1000)"
QUICK = ("--only", "map", "--only", "empty", "--brief", "--rounds", "1", "--idle-wait", "0")


@pytest.fixture
def record(record_of):
    return record_of()


@pytest.fixture
def path(record, tmp_path):
    file = tmp_path / "record.jsonl"
    file.write_text(text_of(record))
    return file


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["open", "f", "-n", "1,x"], "'1,x' is not a number of processes such as 4, or several such as 1,2,4,8"),
        (["open", "f", "-n", "0"], "'0' is not a number of processes"),
        (["open", "f", "--only", "nothing"], "no row 'nothing'; there are copy, map"),
        (["open", "f", "--resume"], "--resume needs --json OUT"),
        (["open", "f", "--order", "odd"], "'odd' is not one of"),
        (["keys", "--json", "/no/such/folder/x"], "no folder for '/no/such/folder/x'"),
        (["warm", "f", "--place", "fast"], "'fast' is not a size such as 500MB or 2GiB, nor one of disk, slow, tight"),
        (["warm", "f", "--place", "1000"], "'1000' is not a multiple of 1 KiB"),
        (["crossover", "f", "--share", "0"], "0.0 is not in the range 0<x<=100"),
        (["share", "--rival", "none"], "'none' is not one of"),
        (["models", "--inputs", __file__], "--inputs are those of a --file"),
        (["stories", "-o", "page.pdf"], "'page.pdf' must end in .md, .html or .svg"),
        (["stories", "--from", __file__, "--json", "x.jsonl"], "--from measures nothing"),
        (["report"], "Missing argument 'RECORD...'"),
        (["report", "r", "-o", "x.pdf"], "'x.pdf' must end in .md, .svg or .png"),
        (["run"], "Missing argument '-- COMMAND...'"),
        (["run", "--ready", "", "--", "true"], "an empty text is never said"),
        (["run", "--", "no-such-program"], "no program 'no-such-program'"),
        (["run", "--baseline", "no-such-program", "--", "true"], "no program 'no-such-program'"),
        (["run", "--baseline", "'open", "--", "true"], "No closing quotation"),
        (["run", "--evict", "/no/such/file", "--", "true"], "'/no/such/file' does not exist"),
        (["run", "--json", "/no/such/folder/x", "--", "true"], "no folder for '/no/such/folder/x'"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_status_2(capsys, arguments, words):
    assert command_line.run(["bench", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert words in err


@pytest.mark.processes
@pytest.mark.slow
def test_a_run_can_be_resumed_and_another_one_cannot(onecopy_process, model, tmp_path):
    out = tmp_path / "r.jsonl"
    done = onecopy_process("bench", "open", model, "-n", "1", *QUICK, "--json", out)
    assert done.returncode == 0
    (record,) = read(out)
    log = Log(out)
    log.begin(record)
    for sample in record.samples[:2]:
        log.add(sample)
    other = onecopy_process("bench", "open", model, "-n", "2", *QUICK, "--json", out, "--resume")
    assert (other.returncode, "is of another run: options was" in " ".join(other.stderr.split())) == (1, True)
    done = onecopy_process("bench", "open", model, "-n", "1", *QUICK, "--json", out, "--resume")
    assert (done.returncode, done.stderr) == (0, "")
    (again,) = read(out)
    assert again.samples[:2] == record.samples[:2]
    assert len(again.samples) == len(record.samples)


def test_a_report_goes_to_stdout_or_into_files_that_belong_together(path, tmp_path, capsys):
    assert command_line.run(["bench", "report", str(path), str(path)]) == 0
    page = capsys.readouterr().out
    assert page.count("# open model.safetensors: 91.0 MB") == 2
    assert page.count("**Cold, 4 processes: the slowest process**") == 2
    files = [tmp_path / name for name in ("r.md", "r.svg", "r.png")]
    assert command_line.run(["bench", "report", str(path), *(f"-o{file}" for file in files)]) == 0
    assert "](r.svg)" in files[0].read_text()
    assert all(file.stat().st_size for file in files)
    assert command_line.run(["bench", "report", str(path), str(path), f"-o{files[1]}"]) == 2
    assert "a picture is of one record, not of 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "words"), [("[]", "record of the format"), ("{", "Expecting"), (None, "No such file")]
)
def test_a_file_that_is_no_record_is_told_by_its_name(tmp_path, capsys, text, words):
    file = tmp_path / "x.jsonl"
    if text is not None:
        file.write_text(text)
    assert command_line.run(["bench", "report", str(file)]) == 1
    err = capsys.readouterr().err
    assert str(file) in err
    assert words in err


def test_a_record_of_any_scenario_has_a_report(record, tmp_path, capsys):
    file = tmp_path / "keys.jsonl"
    file.write_text(text_of(replace(record, scenario="keys")))
    assert command_line.run(["bench", "report", str(file)]) == 0
    assert "# keys: 103 arrays" in capsys.readouterr().out
    assert command_line.run(["bench", "report", str(file), "-o", str(tmp_path / "a.svg")]) == 2
    assert "there is no picture of 'keys'" in capsys.readouterr().err
    file.write_text(text_of(replace(record, scenario="stories")))
    assert command_line.run(["bench", "report", str(file)]) == 1
    assert "see `onecopy bench stories --from`" in capsys.readouterr().err


def test_a_record_of_a_scenario_that_is_gone_shows_every_number(tmp_path, capsys):
    gone = made("gone", [taken("a", ("case",), total_ns=2e6, share=0.5)], [Row("a")])
    (tmp_path / "r.jsonl").write_text(text_of(gone))
    assert command_line.run(["bench", "report", str(tmp_path / "r.jsonl")]) == 0
    page = capsys.readouterr().out
    assert "# gone: 1 round" in page
    assert "| a | 2 | 0.5 |" in page


@pytest.mark.processes
@pytest.mark.parametrize("columns", ["80", "200"])
def test_a_program_is_measured_beside_its_baseline(onecopy_process, tmp_path, columns):
    out = tmp_path / "r.jsonl"
    baseline = f'{sys.executable} -c "{READY}"'
    arguments = ("-n", "2", "--ready", "is ready", "--hold-ms", "50", "--rounds", "1", "--baseline", baseline)
    command = ("--json", out, "--", sys.executable, "-c", READY, "{i}")
    done = onecopy_process("bench", "run", *arguments, *command, env={"COLUMNS": columns})
    assert (done.returncode, done.stderr) == (0, "")
    for word in ("ready, slowest copy, s", "PSS, MB", "page tables, MB", "baseline", "ratio"):
        assert word in done.stdout
    assert widest_of_tables(done.stdout) <= int(columns)
    (record,) = read(out)
    assert {sample.state for sample in record.samples} == {"ok"}
    assert {len(sample.processes) for sample in record.samples} == {2}
    assert record.data["command"][-1] == "{i}"


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_ended_leaves_no_disk_no_group_and_no_process(tmp_path, number):
    if os.geteuid() != 0:
        pytest.skip("disks and groups need root")
    big = tmp_path / "big.bin"
    big.write_bytes(os.urandom(2_000_000))
    command = [sys.executable, "-m", "onecopy", "bench", "crossover", str(big), "--place", "slow", "--place", "tight"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=os.environ | {"TMPDIR": str(tmp_path)}, **pipes) as process:
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
    assert list(tmp_path.iterdir()) == [big]
    assert not list(Path("/sys/fs/cgroup").rglob(f"onecopy-bench-{process.pid}-*"))
