"""Programs of any kind: started together, measured with their children, ended whatever they do."""

import os
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from packages.bench.tests.support import made, read_back, taken
from tests.support.waiting import until

from onecopy_bench.engine import rounds
from onecopy_bench.engine.record import Row, Sample
from onecopy_bench.engine.rounds import Turn
from onecopy_bench.engine.tables import Spread
from onecopy_bench.scenarios import run as programs
from onecopy_bench.scenarios.run import MARK, Copies, Options, numbered, spreads_of

pytestmark = pytest.mark.processes

READY = "import os, sys, time, signal; print('it is ready', flush=True); time.sleep(1000)"


def program(code: str) -> list[str]:
    return [sys.executable, "-S", "-c", code]


def taken_of(command: list[str], **options) -> Sample:
    settings = Options(**({"ready": "is ready", "hold_ms": 100.0, "timeout": 20.0} | options))
    return rounds.take(Turn("command", (), 0.0, programs.sample(command, settings)), 0, settings)


def take(code: str, **options) -> Sample:
    return taken_of(program(code), **options)


def held_by(sample: Sample, name: str) -> list[int]:
    return [each[name] for each in sample.processes]


def marked() -> list[int]:
    """List the living processes that carry the mark of a copy."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and f"{MARK}=".encode() in (entry / "environ").read_bytes():
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


def test_a_daemon_with_a_session_of_its_own_belongs_to_its_copy_and_is_ended(alive):
    daemon = """
import os, time
if not os.fork():
    os.setsid()
    if not os.fork():
        print("daemon", os.getpid(), flush=True)
        time.sleep(1000)
    os._exit(0)
os.wait()
time.sleep(0.3)
"""
    said = []
    plain = Copies.close

    def listening(self):
        said.extend(line for copy in self.copies for line in copy.last_lines())
        plain(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Copies, "close", listening)
        sample = take(daemon + READY)
    assert held_by(sample, "processes") == [2]
    (pid,) = [int(line.split()[1]) for line in said if line.startswith("daemon")]
    assert not alive(pid)


def test_a_server_that_never_gets_ready_is_a_timeout_with_its_last_lines():
    sample = take("import time; print('loading'); print('still loading', flush=True); time.sleep(1000)", timeout=0.7)
    words = "1 of 1 copies were not ready within 0.7 s; last lines: loading | still loading"
    assert (sample.state, sample.reason) == ("timeout", words)


@pytest.mark.parametrize(
    ("code", "state", "reason"),
    [
        ("raise ValueError('no port')", "failed", "copy 0: exit status 1 before it was ready"),
        ("pass", "failed", "copy 0: exit status 0 before it was ready"),
        ("import os; os.kill(os.getpid(), 9)", "crashed", "copy 0: SIGKILL before it was ready"),
        ("import time; print('is ready', flush=True); time.sleep(0.3)", "failed", "copy 0: exit status 0 while it"),
    ],
)
def test_an_early_death_is_told(code, state, reason):
    sample = take(code, hold_ms=5000.0)
    assert (sample.state, sample.reason[: len(reason)]) == (state, reason)


def test_what_ignores_sigterm_is_killed_and_told(monkeypatch):
    monkeypatch.setattr(programs, "GRACE_S", 0.5)
    sample = take("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + READY)
    assert (sample.state, sample.numbers["killed"]) == ("ok", 1)


def test_without_a_marker_a_copy_is_ready_when_it_has_ended_well():
    sample = take("x = 1", ready=None, processes=2)
    assert (sample.state, [set(each) for each in sample.processes]) == ("ok", [{"ready_ns"}] * 2)
    assert take("import sys; sys.exit(4)", ready=None).reason == "copy 0: exit status 4 before it was ready"


def test_each_copy_has_its_number_in_its_arguments():
    code = "import sys, time; print(f'is ready {sys.argv[1:]}', flush=True); time.sleep(1000)"
    command = [*program(code), "--port=80{i}", '{"i": 1}', "{j}"]
    with Copies(command, Options(processes=2, ready="is ready")) as crew:
        crew.start()
        crew.wait_until_ready()
        lines = [copy.last_lines() for copy in crew.copies]
    assert lines == [
        ("is ready ['--port=800', '{\"i\": 1}', '{j}']",),
        ("is ready ['--port=801', '{\"i\": 1}', '{j}']",),
    ]
    assert numbered(["{{i}}", "{i}{i}"], 7) == ["{7}", "77"]


def test_a_killed_parent_takes_its_copies_with_it(alive):
    code = f"""
import time
from onecopy_bench.scenarios.run import Options
from onecopy_bench.scenarios.run import Copies
with Copies({program(READY)!r}, Options(ready="is ready", processes=2)) as crew:
    crew.start(); crew.wait_until_ready()
    print(*(copy.process.pid for copy in crew.copies), flush=True)
    time.sleep(1000)
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pids = [int(word) for word in parent.stdout.readline().split()]
    parent.stdout.close()
    assert len(pids) == 2
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    until(lambda: not any(map(alive, pids)), "the end of all", seconds=20)


def test_an_evicted_file_is_cold_before_every_start(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(os.urandom(3 << 20))
    command = program(f"open({str(path)!r}, 'rb').read(); " + READY)
    options = Options(ready="is ready", evict=(str(path),), rounds=2, hold_ms=0.0, timeout=20.0)
    record = programs.run(tmp_path, replace(options, command=tuple(command)))
    assert [sample.numbers["cached_before"] for sample in record.samples] == [0, 0]
    assert record.options["evict"] == ["file"]


def test_the_baseline_runs_in_the_same_rounds_and_is_compared_with_by_round(tmp_path):
    options = Options(ready="is ready", rounds=2, hold_ms=50.0, timeout=20.0)
    command = tuple(program("data = b'x' * 40_000_000\n" + READY))
    record = programs.run(tmp_path, replace(options, command=command, baseline=shlex.join(program(READY))))
    assert sorted((s.row, s.round) for s in record.samples) == [
        (name, n) for name in ("baseline", "command") for n in (0, 1)
    ]
    spreads = spreads_of(record, "PSS, MB")
    assert spreads["difference"].median == pytest.approx(40, abs=1)
    assert spreads["ratio"].median > 1.5
    assert spreads_of(record, "swap, MB")["ratio"] is None
    assert read_back(record) == record


def test_a_round_with_a_failure_is_compared_with_nothing():
    held = tuple({"ready_ns": seconds * 10**9, "processes": 1, "pss": 4_000_000} for seconds in (1, 3))
    samples = [
        replace(taken(row, (), number, peak_anonymous=0.0, killed=0.0), processes=held)
        for row, number in (("command", 0), ("baseline", 0), ("command", 1))
    ]
    late = Sample("baseline", (), 1, "timeout", "late; last lines: last")
    rows, data = [Row("command"), Row("baseline")], {"command": ["a"], "baseline": ["b"]}
    record = made("run", [*samples, late], rows, options=Options(rounds=2), data=data)
    assert spreads_of(record, "PSS, MB")["command"] == Spread(8, 8, 8)
    assert spreads_of(record, "ready, median copy, s")["command"] == Spread(2, 2, 2)
    assert spreads_of(record, "ready, slowest copy, s")["ratio"] == Spread(1, 1, 1)
    killed = replace(record, samples=(replace(samples[0], numbers={"killed": 1.0}), *record.samples[1:]))
    notes = programs.SCENARIO.sentences(killed)
    assert "baseline: timeout: late; last lines: last." in notes
    assert "1 processes did not end on SIGTERM and were killed." in notes
