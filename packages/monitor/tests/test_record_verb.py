"""`onecopy record` with real commands: it does not disturb the command, and loses no samples."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.waiting import until
from tests.support.watched import Watched

from onecopy_monitor import read_recording

pytestmark = pytest.mark.processes

MB = 1_000_000


def recorder(path: Path, *words: object, **options: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "onecopy", "record", "--interval", "20ms", "-o", path, *words]
    return subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def run(path: Path, *words: object, **options: object) -> tuple[int, str, str]:
    with recorder(path, *words, **options) as child:
        out, err = child.communicate(timeout=60)
    return child.returncode, out, err


def python(code: str) -> list[str]:
    return ["--", sys.executable, "-u", "-c", code]


def test_what_a_command_and_its_child_hold_is_recorded(tmp_path):
    code = """
import subprocess, sys, time
block = bytearray(60_000_000)
print("mine")
subprocess.run([sys.executable, "-c", "import time; block = bytearray(40_000_000); time.sleep(0.4)"])
sys.exit(3)
"""
    path = tmp_path / "run.jsonl"
    status, out, err = run(path, *python(code))
    assert (status, out) == (3, "mine\n")
    assert "deduplicated total" in err
    assert f"in {path}" in err
    recording = read_recording(path)
    assert 100 * MB < recording.series.peak.anonymous.bytes < 150 * MB
    assert len(recording.series.processes) == 2
    assert recording.command[-2:] == ("-c", code)
    assert recording.end.exit == 3
    assert recording.end.max_rss > 60 * MB
    assert recording.end.looks == recording.series.samples == len(recording.series.total)
    assert not recording.cut


def test_quiet_is_quiet_and_the_terminal_is_the_commands(tmp_path):
    assert run(tmp_path / "x", "-q", *python("import sys; print('err', file=sys.stderr)")) == (0, "", "err\n")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_command_that_a_signal_killed_gives_the_status_of_a_shell(tmp_path, number):
    code = (
        f"import os, signal; signal.signal({number:d}, 0) if {number:d} != 9 else 0; os.kill(os.getpid(), {number:d})"
    )
    assert run(tmp_path / "x", "-q", *python(code))[0] == 128 + number
    assert read_recording(tmp_path / "x").end.exit == -number


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_signals_are_handed_on_and_the_command_decides(tmp_path, number):
    code = f"""
import signal, sys, time
def end(*_): print("got it"); sys.exit(5)
signal.signal({int(number)}, end)
print("ready")
time.sleep(100)
"""
    with recorder(tmp_path / "x", "-q", *python(code)) as child:
        assert child.stdout.readline() == "ready\n"
        child.send_signal(number)
        assert child.communicate(timeout=60)[0] == "got it\n"
    assert child.returncode == 5
    assert read_recording(tmp_path / "x").end.exit == 5


def test_the_command_has_the_signals_blocked_and_ignored_that_it_would_have_without_us(tmp_path):
    bare = ["grep", "-E", "SigBlk|SigIgn", "/proc/self/status"]
    without = subprocess.run(bare, capture_output=True, text=True, check=True).stdout  # nohup may ignore some
    lines = run(tmp_path / "x", "-q", "--", *bare)[1].splitlines()
    assert [masks_of(line) for line in lines] == [masks_of(line) for line in without.splitlines()]


def masks_of(line: str) -> int:
    return int(line.split()[1], 16) & ~(0b11 << 31)  # 32 and 33 are the C library's own


def test_a_killed_recorder_leaves_what_it_saw(tmp_path):
    path = tmp_path / "x"
    with recorder(path, "-q", *python("import os, time; print(os.getpid()); time.sleep(100)")) as child:
        pid = int(child.stdout.readline())
        until(lambda: path.exists() and path.read_bytes().count(b'"at":') >= 5, "five samples")
        child.kill()
        os.kill(pid, signal.SIGKILL)
    recording = read_recording(path)
    assert len(recording.series.total) >= 5
    assert recording.end is None


def test_a_file_that_is_there_stays_unless_forced(tmp_path):
    path = tmp_path / "x"
    path.write_text("precious")
    status, out, err = run(path, *python("print('ran')"))
    assert (status, out) == (1, "")
    assert f"{path} exists: " in err
    assert "--force" in err
    assert path.read_text() == "precious"
    assert run(path, "-q", "--force", *python("print('ran')"))[:2] == (0, "ran\n")
    assert read_recording(path).end.exit == 0


@pytest.mark.parametrize(
    ("what", "status"),
    [(("--", "no-such-command"), 127), (("--", "/etc/passwd"), 126), (("--pid", 2**22 + 1), 1)],
)
@pytest.mark.parametrize("is_there", [False, True])
def test_what_cannot_be_recorded_is_named_and_leaves_no_file_or_the_one_that_was_there(
    tmp_path, what, status, is_there
):
    path = tmp_path / "x"
    if is_there:
        path.write_text("precious")
    found, _, err = run(path, "--force", *what)
    assert found == status
    assert str(what[1]) in err
    assert [one.read_text() for one in tmp_path.iterdir()] == ["precious"] * is_there


def test_a_folder_that_is_not_there_is_named_before_the_command_runs(tmp_path):
    status, out, err = run(tmp_path / "no/x", *python("print('ran')"))
    assert (status, out) == (1, "")
    assert f"{tmp_path}/no/x: No such file or directory" in err


@pytest.mark.parametrize("words", [[], ["--pid", "1", "--", "true"]])
def test_either_a_command_or_processes(onecopy_command, tmp_path, words):
    done = onecopy_command("record", "-o", tmp_path / "x", *words)
    assert done.returncode == 2
    assert "either a command to run or --pid" in done.stderr


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_a_process_that_runs_already_is_recorded_until_it_ends_or_ctrl_c(tmp_path, is_interrupted):
    path = tmp_path / "x"
    with Watched("block = bytearray(30_000_000)") as group:
        (other,) = group.children
        with recorder(path, "--pid", other.pid) as child:
            until(lambda: path.exists() and b'"at"' in path.read_bytes(), "the first sample")
            (child.send_signal(signal.SIGINT) if is_interrupted else other.kill())
            _, err = child.communicate(timeout=60)
        assert child.returncode == 0
        assert (other.poll() is None) == is_interrupted
    assert "deduplicated total" in err
    recording = read_recording(path)
    assert recording.series.peak.anonymous.bytes > 30 * MB
    assert recording.end.exit is None
    assert recording.command == (f"--pid {other.pid}",)


@pytest.mark.slow
def test_a_disk_that_fills_up_ends_the_recording_and_not_the_command(small_disk, tmp_path, in_child):
    def on_a_full_disk() -> tuple[int, str, str, bytes]:
        folder = small_disk("tmpfs")
        (folder / "ballast").write_bytes(bytes(8 * 1024 * 1024 - 3 * 4096))
        code = "import time; time.sleep(2.0); print('went on')"
        found = run(folder / "x", "--interval", "1ms", "--budget", "100", "-q", *python(code))
        return *found, (folder / "x").read_bytes()

    status, out, err, text = in_child(on_a_full_disk)
    assert (status, out) == (1, "went on\n")
    assert f"{tmp_path}/disk/x: No space left on device" in err
    (tmp_path / "copy").write_bytes(text)
    recording = read_recording(tmp_path / "copy")
    assert recording.end is None
    assert len(recording.series.total) > 10


def test_every_line_is_json_and_names_are_escaped(tmp_path):
    code = "open('/proc/self/comm', 'w').write('a\\x1b[2J<b>'); import time; time.sleep(1)"
    assert "\x1b" not in run(tmp_path / "x", *python(code))[2]
    text = (tmp_path / "x").read_text()
    assert "\x1b" not in text
    assert all(isinstance(json.loads(line), dict) for line in text.splitlines())
    assert read_recording(tmp_path / "x").series.processes[0].name == "a\x1b[2J<b>"
