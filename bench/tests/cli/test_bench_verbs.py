"""`onecopy bench open`, `report` and `run` as commands: options, errors, files, tables at 80 and 200 columns."""

import json
import sys

import pytest
from tests.support.screens import widest_of_tables

from onecopy.cli import command_line
from onecopy_bench.programs.record import from_json as run_from_json
from onecopy_bench.record import from_json, to_json

READY = "import time; print('it is ready', flush=True); time.sleep(1000)"
QUICK = ("--only", "map", "--only", "empty", "--ceilings", "none", "--rounds", "1", "--idle-wait", "0")


@pytest.fixture
def path(record, tmp_path):
    file = tmp_path / "record.json"
    file.write_text(to_json(record))
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
        (["report"], "Missing argument 'RECORD...'"),
        (["report", "r", "-o", "x.pdf"], "'x.pdf' is none of .md, .svg and .png"),
        (["run"], "Missing argument '-- COMMAND...'"),
        (["run", "--ready", "a", "--settle", "1", "--", "true"], "--ready and --settle exclude each other"),
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


@pytest.mark.parametrize("verb", ["open", "keys", "report", "run"])
def test_help_of_every_verb_is_status_0(capsys, verb):
    assert command_line.run(["bench", verb, "--help"]) == 0
    assert f"Usage: onecopy bench {verb}" in capsys.readouterr().out


@pytest.mark.processes
@pytest.mark.slow
def test_several_cases_come_from_one_call(onecopy_process, model, tmp_path):
    out = tmp_path / "r.json"
    done = onecopy_process("bench", "open", model, "-n", "1,2", "-n", "2", "--cold", "--warm", *QUICK, "--json", out)
    assert (done.returncode, done.stderr) == (0, "")
    record = from_json(out.read_text())
    assert [str(case.case) for case in record.cases()] == [
        "cold, 1 process",
        "cold, 2 processes",
        "warm, 1 process",
        "warm, 2 processes",
    ]
    assert {entry.name for entry in record.entries} == {"map", "empty", "first-touch-4k", "first-touch-huge"}
    assert all(sample.state == "ok" for sample in record.samples)
    assert len(json.loads(out.read_text())["tables"]) == 4
    assert done.stdout.count("open model.safetensors") == 4
    assert not (tmp_path / "r.json.samples").exists()


@pytest.mark.processes
@pytest.mark.slow
def test_a_run_can_be_resumed_and_another_one_cannot(onecopy_process, model, tmp_path):
    out, journal = tmp_path / "r.json", tmp_path / "r.json.samples"
    done = onecopy_process("bench", "open", model, "-n", "1", *QUICK, "--json", out)
    assert done.returncode == 0
    record = from_json(out.read_text())
    from onecopy_bench.journal import Journal

    kept = Journal(journal)
    kept.begin(record)
    for sample in record.samples[:2]:
        kept.add(sample)
    other = onecopy_process("bench", "open", model, "-n", "2", *QUICK, "--json", out, "--resume")
    assert (other.returncode, "tells of another run: options was" in other.stderr) == (1, True)
    done = onecopy_process("bench", "open", model, "-n", "1", *QUICK, "--json", out, "--resume")
    assert (done.returncode, done.stderr) == (0, "")
    again = from_json(out.read_text())
    assert again.samples[:2] == record.samples[:2]
    assert len(again.samples) == len(record.samples)
    assert not journal.exists()


@pytest.mark.processes
def test_the_order_can_be_shuffled(onecopy_process, model):
    done = onecopy_process("bench", "open", model, "-n", "1", *QUICK, "--order", "shuffled")
    assert (done.returncode, ", shuffled" in done.stdout) == (0, True)


def test_a_report_goes_to_stdout_or_into_files_that_belong_together(path, tmp_path, capsys):
    assert command_line.run(["bench", "report", str(path)]) == 0
    page = capsys.readouterr().out
    assert page.startswith("# How files open\n")
    assert "### Cold, 4 processes" in page
    pytest.importorskip("matplotlib")
    files = [tmp_path / name for name in ("r.md", "r.svg", "r.png")]
    assert command_line.run(["bench", "report", str(path), *(f"-o{file}" for file in files)]) == 0
    assert "](r.svg)" in files[0].read_text()
    assert all(file.stat().st_size for file in files)


def test_a_report_can_be_of_one_case_and_carries_its_notes(path, tmp_path, capsys):
    assert command_line.run(["bench", "report", str(path), "--case", "cold, 4"]) == 0
    assert command_line.run(["bench", "report", str(path), "--case", "warm,4"]) == 2
    assert "no case 'warm,4'; there are cold,4" in capsys.readouterr().err
    notes = tmp_path / "notes.toml"
    notes.write_text("no toml")
    assert command_line.run(["bench", "report", str(path), "--notes", str(notes)]) == 1
    assert str(notes) in capsys.readouterr().err
    notes.write_text('"cold, 4 processes, numpy.memmap" = "why"')
    assert command_line.run(["bench", "report", str(path), "--notes", str(notes)]) == 0


@pytest.mark.parametrize(
    ("text", "words"), [("[]", "not a record of the format"), ("{", "Expecting"), (None, "No such file")]
)
def test_a_file_that_is_no_record_is_told_by_its_name(tmp_path, capsys, text, words):
    file = tmp_path / "x.json"
    if text is not None:
        file.write_text(text)
    assert command_line.run(["bench", "report", str(file)]) == 1
    err = capsys.readouterr().err
    assert str(file) in err
    assert words in err


def test_a_record_of_another_scenario_is_refused(record, tmp_path, capsys):
    from dataclasses import replace

    file = tmp_path / "keys.json"
    file.write_text(to_json(replace(record, scenario="keys")))
    assert command_line.run(["bench", "report", str(file)]) == 1
    assert "the scenario 'keys', not of 'open'" in capsys.readouterr().err


def test_without_matplotlib_a_picture_is_refused_with_the_cure(path, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert command_line.run(["bench", "report", str(path), "-o", str(tmp_path / "a.png")]) == 1
    assert "pip install 'onecopy-bench[plots]'" in capsys.readouterr().err


@pytest.mark.processes
@pytest.mark.parametrize("columns", ["80", "200"])
def test_a_program_is_measured_beside_its_baseline(onecopy_process, tmp_path, columns):
    out = tmp_path / "r.json"
    baseline = f'{sys.executable} -c "{READY}"'
    arguments = ("-n", "2", "--ready", "is ready", "--hold-ms", "50", "--rounds", "1", "--baseline", baseline)
    command = ("--json", out, "--", sys.executable, "-c", READY, "{i}")
    done = onecopy_process("bench", "run", *arguments, *command, env={"COLUMNS": columns})
    assert (done.returncode, done.stderr) == (0, "")
    for word in ("ready, slowest copy, s", "PSS, MB", "page tables, MB", "baseline", "ratio"):
        assert word in done.stdout
    assert widest_of_tables(done.stdout) <= int(columns)
    record = run_from_json(out.read_text())
    assert {sample.state for sample in record.samples} == {"ok"}
    assert {len(sample.held) for sample in record.samples} == {2}
    assert record.command[-1] == "{i}"


@pytest.mark.processes
def test_a_program_that_never_gets_ready_is_status_1_with_what_it_said(onecopy_process):
    code = "import time; print('waiting for godot', flush=True); time.sleep(1000)"
    done = onecopy_process(
        "bench", "run", "--ready", "x", "--timeout", "0.5", "--rounds", "1", "--", sys.executable, "-c", code
    )
    assert done.returncode == 1
    assert "timeout (1 of 1 copies were not ready within 0.5 s)" in done.stdout.replace("\n", " ")
    assert "waiting for godot" in done.stdout


@pytest.mark.processes
def test_a_run_can_be_json_alone(onecopy_process):
    done = onecopy_process("bench", "run", "--rounds", "1", "--json", "-", "--", "true")
    assert run_from_json(done.stdout).samples[0].state == "ok"
