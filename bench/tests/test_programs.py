"""Programs of any kind: started together, measured with their children, ended whatever they do."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.waiting import until

from onecopy_bench.programs import copies, measure, says
from onecopy_bench.programs.copies import Copies, numbered
from onecopy_bench.programs.record import RunOptions, RunSample, from_json, to_json
from onecopy_bench.programs.trees import MARK, Totals, Trees, total

pytestmark = pytest.mark.processes

READY = "import os, sys, time, signal; print('it is ready', flush=True); time.sleep(1000)"


def program(code: str) -> list[str]:
    return [sys.executable, "-S", "-c", code]


def take(code: str, **options) -> RunSample:
    settings = {"ready": "is ready", "hold_ms": 100.0, "timeout": 20.0} | options
    return measure.take(program(code), RunSample("command", 0, "ok"), RunOptions(**settings))


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
    assert (sample.state, sample.reason, sample.killed) == ("ok", "", 0)
    assert len(sample.ready_ns) == len(sample.held) == 3
    assert all(time > 0 for time in sample.ready_ns)
    for held in sample.held:
        assert held.processes == 1
        assert held.anonymous >= 30_000_000
        assert held.page_tables > 0
        assert held.minor_faults > 0
    assert sample.peak_anonymous >= 90_000_000


def test_memory_that_was_given_back_is_in_the_peak_only():
    sample = take("data = b'x' * 60_000_000; import time; time.sleep(0.6); del data\n" + READY)
    assert sample.peak_anonymous >= 60_000_000
    assert sample.held[0].anonymous < 60_000_000


def test_children_belong_to_their_copy():
    fork = "import os\nif not os.fork(): data = b'y' * 20_000_000; import time; time.sleep(1000)\nimport time\n"
    sample = take(fork + "time.sleep(0.3)\n" + READY, processes=2)
    assert [held.processes for held in sample.held] == [2, 2]
    assert all(held.anonymous >= 20_000_000 for held in sample.held)


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
    assert [held.processes for held in sample.held] == [2]
    (pid,) = [int(line.split()[1]) for line in said if line.startswith("daemon")]
    assert not alive(pid)


def test_the_marker_is_heard_on_stderr_and_across_pieces():
    code = "import sys, time\nfor c in 'it is ready': sys.stderr.write(c); sys.stderr.flush(); time.sleep(0.01)\n"
    assert take(code + "time.sleep(1000)").state == "ok"


def test_a_program_that_talks_without_end_is_read_without_end():
    code = "import sys, time\nprint('is ready', flush=True)\nwhile True: sys.stdout.write('x' * 10_000 + '\\n')"
    assert take(code, hold_ms=300.0).state == "ok"


def test_a_server_that_never_gets_ready_is_a_timeout_with_its_last_lines():
    sample = take("import time; print('loading'); print('still loading', flush=True); time.sleep(1000)", timeout=0.7)
    assert (sample.state, sample.reason) == ("timeout", "1 of 1 copies were not ready within 0.7 s")
    assert sample.said == ("loading", "still loading")


def test_silence_is_told_with_its_usual_cause(monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    sample = take("import time; print('is ready'); time.sleep(1000)", timeout=0.7)  # kept back in the pipe's buffer
    assert sample.state == "timeout"
    assert "they said nothing" in sample.reason
    assert "python -u" in sample.reason


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


def test_the_last_lines_of_the_dead_are_kept():
    assert take("raise ValueError('no port')").said[-1] == "ValueError: no port"


def test_what_ignores_sigterm_is_killed_and_told(monkeypatch):
    monkeypatch.setattr(copies, "GRACE_S", 0.5)
    sample = take("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + READY)
    assert (sample.state, sample.killed) == ("ok", 1)


def test_without_a_marker_a_copy_is_ready_when_it_has_ended_well():
    sample = take("x = 1", ready=None, processes=2)
    assert (sample.state, len(sample.ready_ns), sample.held) == ("ok", 2, ())
    assert take("import sys; sys.exit(4)", ready=None).reason == "copy 0: exit status 4 before it was ready"


def test_a_copy_has_settled_when_its_memory_stands_still():
    code = (
        "import time\nheld = []\nfor _ in range(10): held.append(b'x' * 5_000_000); time.sleep(0.1)\ntime.sleep(1000)"
    )
    sample = take(code, ready=None, settle=0.5)
    assert sample.state == "ok"
    assert sample.held[0].anonymous >= 50_000_000
    assert sample.ready_ns[0] >= 800_000_000  # nothing settles before it has stopped growing


def test_signals_that_python_ignores_are_not_handed_on():
    # SIGPIPE and SIGXFSZ; what else is ignored was so before Python came.
    script = "m=$(sed -n 's/SigIgn:.//p' /proc/self/status); echo mask $((0x$m & 0x1001000)); exec sleep 1000"
    sample = measure.take(
        ["sh", "-c", script],
        RunSample("command", 0, "ok"),
        RunOptions(ready="mask 0", timeout=5.0, hold_ms=0.0),
    )
    assert (sample.state, sample.said) == ("ok", ())


def test_each_copy_has_its_number_in_its_arguments():
    code = "import sys, time; print(f'is ready {sys.argv[1:]}', flush=True); time.sleep(1000)"
    command = [*program(code), "--port=80{i}", '{"i": 1}', "{j}"]
    with Copies(command, RunOptions(processes=2, ready="is ready")) as crew:
        crew.start()
        crew.wait_until_ready()
        lines = [copy.last_lines() for copy in crew.copies]
    assert lines == [
        ("is ready ['--port=800', '{\"i\": 1}', '{j}']",),
        ("is ready ['--port=801', '{\"i\": 1}', '{j}']",),
    ]
    assert numbered(["{{i}}", "{i}{i}"], 7) == ["{7}", "77"]


def test_a_program_that_is_no_program_is_a_failure_with_the_reason():
    sample = measure.take(["/etc/passwd"], RunSample("command", 0, "ok"), RunOptions(ready="x", timeout=5.0))
    assert sample.state == "failed"
    assert "PermissionError" in sample.said[-1]


def test_an_interrupt_ends_everything(alive):
    pids = []

    def interrupted():
        with Copies(program(READY), RunOptions(ready="is ready", processes=2)) as crew:
            pids.extend(copy.process.pid for copy in crew.copies)
            crew.start()
            crew.wait_until_ready()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(pids) == 2
    assert not any(map(alive, pids))


def test_copies_that_were_never_started_are_ended_too(alive):
    with Copies(program(READY), RunOptions(ready="is ready", processes=2)) as crew:
        pids = [copy.process.pid for copy in crew.copies]
    assert not any(map(alive, pids))


def test_a_killed_parent_takes_its_copies_with_it(alive):
    code = f"""
import time
from onecopy_bench.programs.copies import Copies
from onecopy_bench.programs.record import RunOptions
with Copies({program(READY)!r}, RunOptions(ready="is ready", processes=2)) as crew:
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
    record = measure.run(
        program(f"open({str(path)!r}, 'rb').read(); " + READY),
        options=RunOptions(ready="is ready", evict=(str(path),), rounds=2, hold_ms=0.0, timeout=20.0),
    )
    assert [sample.cached_before for sample in record.samples] == [0, 0]
    assert record.options.evict == ("file",)
    assert str(tmp_path) not in json.dumps(to_json(record)).replace(str(path), "")


def test_the_baseline_runs_in_the_same_rounds_and_is_compared_with_by_round():
    seen = []
    record = measure.run(
        program("data = b'x' * 40_000_000\n" + READY),
        program(READY),
        RunOptions(ready="is ready", rounds=2, hold_ms=50.0, timeout=20.0),
        seen.append,
    )
    assert sorted((s.role, s.round) for s in record.samples) == [
        ("baseline", 0),
        ("baseline", 1),
        ("command", 0),
        ("command", 1),
    ]
    assert [progress.done for progress in seen] == [0, 1, 2, 3, 4]
    measures = {measure.name: measure for measure in says.measures_of(record)}
    pss = measures["PSS, MB"]
    assert pss.difference is not None
    assert pss.difference.median == pytest.approx(40, abs=1)
    assert pss.ratio is not None
    assert pss.ratio.median > 1.5
    assert measures["swap, MB"].ratio is None
    assert from_json(to_json(record, measures=[])) == record


def test_a_round_with_a_failure_is_compared_with_nothing():
    good = Totals(processes=1, pss=4_000_000)
    record = measure.RunRecord("", {}, RunOptions(rounds=2), ("a",), ("b",), ())
    samples = tuple(
        RunSample(role, number, "ok", ready_ns=(10**9, 3 * 10**9), held=(good, good))
        for role, number in (("command", 0), ("baseline", 0), ("command", 1))
    )
    failed = RunSample("baseline", 1, "timeout", "late", ("last",), killed=1)
    record = measure.replace(record, samples=(*samples, failed))
    measures = {measure.name: measure for measure in says.measures_of(record)}
    assert measures["PSS, MB"].command == says.Spread(8, 8, 8)
    assert measures["ready, median copy, s"].command == says.Spread(2, 2, 2)
    assert measures["ready, slowest copy, s"].ratio == says.Spread(1, 1, 1)
    notes = says.notes_of(record)
    assert "baseline, round 2: timeout (late). Last lines: last" in notes
    assert "1 processes did not end on SIGTERM and were killed." in notes


def test_what_is_unknown_of_one_process_is_unknown_of_all():
    assert total([Totals(pss=1, file=2), Totals(pss=3, file=None)]) == Totals(pss=4, file=None)
    assert total([]) == Totals()


def test_nobody_else_belongs_to_a_copy():
    with Copies(program(READY), RunOptions(ready="is ready")) as crew:
        crew.start()
        crew.wait_until_ready()
        strangers = Trees([copy.process.pid for copy in crew.copies], ["none"]).members()
    assert strangers == [[crew.copies[0].process.pid]]
    assert Trees([], []).members() == []


@pytest.mark.parametrize("text", ["[]", "{}", '{"format": "onecopy-bench-run 1"}'])
def test_another_file_is_not_taken_for_a_record(text):
    with pytest.raises(ValueError, match="record of the format"):
        from_json(text)
