"""What children do wrong becomes a row, and no child outlives its parent."""

import signal
import subprocess
import sys

import pytest
from tests.support.waiting import until

from onecopy_bench.files.layout import checksum_of_file, read_layout

GOOD = "go(); resident(checksum=None); sys.stdin.readline()"

pytestmark = pytest.mark.processes


def test_a_good_child_is_measured_while_it_holds(take, stand_in):
    sample = take(stand_in(GOOD))
    assert (sample.state, sample.reason) == ("ok", "")
    assert len(sample.processes) == 2
    for reading in sample.processes:
        assert (reading["open_ns"], reading["resident_ns"]) == (1_000_000, 2_000_000)
        assert reading["pss"] > 0
        assert reading["empty_anonymous"] > 0


def test_a_child_that_hangs_is_a_timeout(take, stand_in):
    sample = take(stand_in("go(); time.sleep(1000)"), timeout=0.5)
    assert sample.state == "timeout"
    assert sample.reason == "2 of 2 processes did not report 'resident' within 0.5 s"


def test_a_child_that_crashes_is_a_row_with_the_signal(take, stand_in):
    sample = take(stand_in("go(); print('last words', file=sys.stderr); os.kill(os.getpid(), 11)"))
    assert sample.state == "crashed"
    assert sample.reason == "SIGSEGV before it reported 'resident': last words"


@pytest.mark.parametrize(
    "body",
    [
        "go(); print('Loading weights: 100%', flush=True); time.sleep(9)",
        "go(); print('[' * 100_000, flush=True); time.sleep(9)",
        "go(); sys.stdout.buffer.write(bytes(range(128, 256)) + b'\\n'); sys.stdout.flush(); time.sleep(9)",
        "go(); sys.stdout.write('x' * 3_000_000); sys.stdout.flush(); time.sleep(9)",
        "go(); say(phase='resident'); time.sleep(9)",
        "go(); say(phase='resident', open_ns='soon', resident_ns=1); time.sleep(9)",
        "sys.exit(0)",
        "go(); sys.stdin.close(); os.close(1); time.sleep(9)",
    ],
)
def test_odd_output_is_a_row(take, stand_in, body):
    sample = take(stand_in(body), timeout=5.0)
    assert sample.state == "odd output"
    assert sample.reason
    assert len(sample.reason) < 500


def test_other_data_than_the_files_is_a_row(take, stand_in, model):
    checksum = checksum_of_file(model, read_layout(model))
    right = f"go(); resident(checksum={checksum}); sys.stdin.readline()"
    wrong = "go(); resident(checksum=12345); sys.stdin.readline()"
    sample = take(stand_in(right))
    assert (sample.state, sample.reason) == ("ok", "")
    sample = take(stand_in(wrong))
    assert sample.state == "wrong data"
    assert sample.reason.endswith(f"differ: 0x3039 and {checksum:#x}")


def test_what_a_child_says_is_cleaned_of_folders(take, stand_in, job, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", "/home/jane")
    body = "go(); sys.exit('cannot open ' + path + ' of /home/jane/x')"
    reason = take(stand_in(body)).reason
    assert str(tmp_path) not in reason
    assert "jane" not in reason
    assert "model.safetensors" in reason


def test_children_of_a_failed_sample_are_gone_with_their_own_children(take, stand_in, tmp_path, alive):
    body = f"""
import subprocess
nap = subprocess.Popen(["sleep", "1000"])
open({str(tmp_path)!r} + f"/pid-{{os.getpid()}}", "w").write(str(nap.pid))
go(); time.sleep(1000)"""
    assert take(stand_in(body), timeout=2.0).state == "timeout"
    files = list(tmp_path.glob("pid-*"))
    assert len(files) == 2
    pids = [int(file.name[4:]) for file in files] + [int(file.read_text()) for file in files]
    # what was killed together with its parent is gone when init has seen to it
    until(lambda: not any(map(alive, pids)), "the end of all", seconds=30)


def test_a_killed_parent_leaves_no_children(model, alive):
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(model)], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    parent.stdout.close()
    assert len(pids) == 3
    assert all(map(alive, pids))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    until(lambda: not any(map(alive, pids)), "the end of all", seconds=20)


PARENT = """
import sys, time
from onecopy_bench.processes import start_workers

with start_workers("onecopy_bench.start", 3, 60, method="none", path=sys.argv[1], piece=1) as workers:
    print(*workers.pids, flush=True)
    time.sleep(1000)
"""


MEASURED = ("files.trials", "images", "models", "nodes", "programs", "rows.share", "start")


@pytest.mark.parametrize("module", MEASURED)
def test_a_measured_process_does_not_import_the_command_line(module):
    code = f"import sys, onecopy_bench.{module}; print(*{{'click', 'rich', 'matplotlib'}} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split() == []
