"""`onecopy run`: exit statuses, signals, the report, and what remains when processes are killed."""

import json
import signal
import subprocess
import sys

import numpy as np
import pytest
from tests.support.children import CHILD_SECONDS, run_python
from tests.support.waiting import until

import onecopy as oc
from onecopy.cli import main

LOAD = "import numpy, sys; a = numpy.load(sys.argv[1]); print(a.sum(), flush=True)"


@pytest.fixture
def npy(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.ones(1 << 18))
    return path


@pytest.fixture
def started(npy):
    """Give a function that starts `onecopy run` with a Python program, which has printed a line when it returns."""
    running = []

    def start(code, *options):
        command = [sys.executable, "-m", "onecopy", "run", *options, "--", sys.executable, "-c", code, str(npy)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        running.append(process)
        return process, process.stdout.readline()

    yield start
    for process in running:
        process.terminate()  # forwarded to the program
        process.communicate(timeout=CHILD_SECONDS)


def test_little_is_imported_before_the_command_is_started():
    code = """
    import os, sys, onecopy  # an editable installation loads more for its finder
    before = set(sys.modules)
    def spawn(*_, **__):
        print(*set(sys.modules) - before, flush=True)
        os._exit(0)
    os.posix_spawnp = spawn
    from onecopy.cli import main
    main(["run", "--report", "no.json", "--keep", "--", "true"])
    """
    names = ("cli", "cli.child", "cli.runner", "store", "store.protocol", "base.run_constants")
    ours = {f"onecopy.{name}" for name in names}
    loaded = set(run_python(code).split())
    assert loaded - {"__future__"} == ours | {"_socket", "_struct", "errno", "select", "struct"}


def test_a_run_inside_another_one_has_its_own_options(onecopy_process, npy, tmp_path, monkeypatch):
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / "cache"))
    inner = (sys.executable, "-m", "onecopy", "run", "--keep", "--", sys.executable, "-c", LOAD, npy)
    assert onecopy_process("run", "--", *inner).returncode == 0
    (kept,) = oc.Store().ls()
    assert kept.key.startswith("snapshot ")


@pytest.mark.parametrize(("code", "status"), [("", 0), ("exit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 137)])
def test_the_exit_status_is_that_of_the_command(onecopy_process, code, status):
    assert onecopy_process("run", "--", sys.executable, "-c", code).returncode == status


def test_a_command_that_is_missing(onecopy_process):
    done = onecopy_process("run", "--", "no-such-command")
    assert (done.returncode, done.stderr) == (127, "onecopy: no-such-command: No such file or directory\n")
    done = onecopy_process("run", "-q")
    assert (done.returncode, "Missing argument" in done.stderr) == (2, True)


def test_the_report_names_file_processes_and_bytes(onecopy_process, npy, tmp_path):
    twice = f"{sys.executable} -c '{LOAD}' {npy} && exec {sys.executable} -c '{LOAD}' {npy}"
    done = onecopy_process("run", "--report", tmp_path / "report.json", "--", "sh", "-c", twice)
    assert done.returncode == 0
    assert done.stdout == "262144.0\n262144.0\n"
    first, second = done.stderr.splitlines()
    assert first == "onecopy: 2 processes hold 2.10 MB of 1 file in one copy: 4.19 MB -> 2.10 MB"
    assert second.startswith("   2 x 2.10 MB   a.npy: numpy.load; a snapshot in memory, charged to /")
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["saved"] == report["shared"][0]["bytes"] == 1 << 21
    assert report["shared"][0]["path"] == str(npy)


def test_a_file_that_is_mapped_itself_is_not_said_to_be_kept_in_the_store(onecopy_process, npy):
    done = onecopy_process("run", "--map", npy.parent, "--", sys.executable, "-c", LOAD, npy)
    assert "       2.10 MB   a.npy: numpy.load; the file itself" in done.stderr.splitlines()
    assert "kept in the store" not in done.stderr
    assert "other runs" not in done.stderr


def test_calls_of_a_killed_process_are_reported_unless_quiet_is_requested(onecopy_process, npy):
    command = ("--", sys.executable, "-c", LOAD + "; import os; os.kill(os.getpid(), 9)", npy)
    assert "2.10 MB   a.npy: numpy.load" in onecopy_process("run", *command).stderr
    assert onecopy_process("run", "-q", *command).stderr == ""


def test_signals_reach_the_command(started):
    code = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
print("ready", flush=True)
while True:  # not signal.pause: it would wait forever if the signal came before it
    time.sleep(0.01)
"""
    process, _ = started(code)
    process.send_signal(signal.SIGTERM)
    assert process.wait(CHILD_SECONDS) == 5


def test_a_signal_asks_for_the_report_of_living_processes(started):
    process, _ = started(LOAD + "; import signal; signal.pause()")
    process.send_signal(signal.SIGUSR2)
    assert process.stderr.readline() == "onecopy: 1 process holds 2.10 MB of 1 file\n"
    assert process.poll() is None


def test_the_command_outlives_a_killed_run(started, tmp_path):
    done = tmp_path / "done"
    code = f"""
import os, sys, time, numpy
parent = os.getppid()
print(os.getpid(), flush=True)
while os.getppid() == parent:
    time.sleep(0.01)
numpy.load(sys.argv[1])
import onecopy.auto
open({str(done)!r}, "w").write(str(len(onecopy.auto.calls())))
"""
    process, _ = started(code)
    process.kill()
    process.wait(CHILD_SECONDS)
    until(done.exists)
    until(lambda: done.read_text() == "1")


def test_a_file_that_is_not_of_a_run_is_not_written(npy, tmp_path, monkeypatch):
    other = tmp_path / "precious"
    other.write_text("data")
    monkeypatch.setenv("ONECOPY_RUN", str(other))
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / "store"))
    run_python("import onecopy.auto; " + LOAD + "; assert onecopy.auto.calls()", npy)
    assert other.read_text() == "data"


def test_a_system_without_memory_files_is_refused_in_one_line(monkeypatch, capsys):
    monkeypatch.delattr("os.memfd_create")
    assert main(["run", "--", "true"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "needs memfd_create" in line
