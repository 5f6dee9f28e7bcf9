"""Programs of any kind: started together, measured with their children, ended whatever they do."""

import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from packages.bench.tests.support import read_back
from tests.support.waiting import until

from onecopy_bench import run as programs, runs
from onecopy_bench.copies import VARIABLE, numbered
from onecopy_bench.record import Record, Sample
from onecopy_bench.run import Options, spreads_of
from onecopy_bench.runs import Trial

pytestmark = pytest.mark.processes

READY = "import os, sys, time, signal; print('it is ready', flush=True); time.sleep(1000)"


def program(code: str) -> list[str]:
    return [sys.executable, "-S", "-c", code]


def take(code: str, **options) -> Sample:
    settings = Options(**({"ready": "is ready", "hold_ms": 100.0, "timeout": 20.0} | options))
    return runs.take_sample(Trial("command", (), 0.0, programs.measuring(program(code), settings)), 0, settings)


def marked() -> list[int]:
    """List the living processes that have the number of a copy in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and f"{VARIABLE}=".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.fixture(autouse=True)
def nothing_is_left():
    before = set(marked())
    yield
    assert set(marked()) <= before


def test_all_copies_are_measured_while_they_hold():
    sample = take("data = b'x' * 30_000_000\n" + READY, processes=3)
    assert (sample.state, sample.reason, sample.numbers["killed"]) == ("ok", "", 0)
    assert len(sample.processes) == 3
    for held in sample.processes:
        assert held["ready_ns"] > 0
        assert held["processes"] == 1
        assert held["anonymous"] >= 30_000_000
        assert held["page_tables"] > 0
        assert held["minor_faults"] > 0
    assert sample.numbers["peak_anonymous"] >= 90_000_000


def test_a_daemon_with_a_session_of_its_own_belongs_to_its_copy_and_is_ended(alive, tmp_path):
    daemon = f"""
import os, time
if not os.fork():
    os.setsid()
    if not os.fork():
        open({str(tmp_path / "pid")!r}, "w").write(str(os.getpid()))
        time.sleep(1000)
    os._exit(0)
os.wait()
time.sleep(0.3)
"""
    sample = take(daemon + READY)
    assert [each["processes"] for each in sample.processes] == [2]
    assert not alive(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize(
    ("code", "state", "reason"),
    [
        ("raise ValueError('no port')", "failed", "copy 0: exit status 1 before it was ready"),
        ("pass", "failed", "copy 0: exit status 0 before it was ready"),
        ("import os; os.kill(os.getpid(), 9)", "crashed", "copy 0: SIGKILL before it was ready"),
        ("import time; print('is ready', flush=True); time.sleep(0.3)", "failed", "copy 0: exit status 0 after it"),
    ],
)
def test_an_early_death_is_told(code, state, reason):
    sample = take(code, hold_ms=5000.0)
    assert (sample.state, sample.reason[: len(reason)]) == (state, reason)


def test_without_a_marker_a_copy_is_ready_when_it_has_ended_well():
    sample = take("x = 1", ready=None, processes=2)
    assert (sample.state, [set(each) for each in sample.processes]) == ("ok", [{"ready_ns"}] * 2)
    assert take("import sys; sys.exit(4)", ready=None).reason == "copy 0: exit status 4 before it was ready"


def test_each_copy_has_its_number_in_its_arguments(tmp_path):
    code = f"import sys; open({str(tmp_path)!r} + sys.argv[1], 'w').write(repr(sys.argv[2:]))"
    settings = Options(processes=2, timeout=20.0)
    measure = programs.measuring([*program(code), "/{i}", '{"i": 1}', "{j}"], settings)
    sample = runs.take_sample(Trial("command", (), 0.0, measure), 0, settings)
    assert sample.state == "ok"
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys("01", "['{\"i\": 1}', '{j}']")
    assert numbered(["{{i}}", "{i}{i}"], 7) == ["{7}", "77"]


def test_a_killed_parent_takes_its_copies_with_it(alive):
    code = f"""
import time
from onecopy_bench.processes import start_workers
arguments = dict(command={program(READY)!r}, ready="is ready", hold_s=0.1, limit_s=20.0)
with start_workers("onecopy_bench.copies", 2, 30.0, ["{VARIABLE}=0"], **arguments) as workers:
    workers.step("running")
    print(*workers.family(), flush=True)
    time.sleep(1000)
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pids = [int(word) for word in parent.stdout.readline().split()]
    parent.stdout.close()
    assert len(pids) == 4
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    until(lambda: not any(map(alive, pids)), "the end of all", seconds=20)


def test_the_baseline_runs_in_the_same_rounds_and_is_compared_with_by_round(tmp_path):
    options = Options(ready="is ready", rounds=2, hold_ms=50.0, timeout=20.0)
    command = tuple(program("data = b'x' * 40_000_000\n" + READY))
    record = programs.SCENARIO.run(tmp_path, replace(options, command=command, baseline=shlex.join(program(READY))))
    assert sorted((s.row, s.round) for s in record.samples) == [
        (name, n) for name in ("baseline", "command") for n in (0, 1)
    ]
    spreads = spreads_of(record, "PSS, MB")
    assert spreads["difference"].median == pytest.approx(40, abs=1)
    assert spreads["ratio"].median > 1.5
    assert spreads_of(record, "swap, MB")["ratio"] is None
    assert read_back(record) == record


@pytest.mark.parametrize(
    ("sums", "said"),
    [
        ({"command": [1, 1], "baseline": [1, 1]}, "equal"),
        ({"command": [1, 1], "baseline": [1, 1], "rewritten": [1, 2]}, "DIFFER: rewritten"),
        ({"command": [2, 2], "baseline": [1, 1], "rewritten": [3, 3]}, "DIFFER: command, rewritten"),
        ({"command": [1, 2], "baseline": [1, 2]}, "DIFFER: command, baseline"),
        ({"command": [1], "rewritten": [1]}, "equal"),
        ({"command": [1], "rewritten": [2]}, "DIFFER: command, rewritten"),
        ({}, "DIFFER"),
    ],
)
def test_results_are_equal_only_if_all_rows_and_rounds_have_the_same(sums, said):
    case = ("numpy",)
    samples = [Sample(row, case, 0, numbers={"checksum": float(one)}) for row, found in sums.items() for one in found]
    failed = Sample("command", case, 0, state="failed")
    record = Record("run", "", "", {}, {}, {}, (), samples=(failed, *samples))
    assert list(programs._findings(record)) == [f"numpy: results {said}."]
