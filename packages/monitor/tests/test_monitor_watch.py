"""Watching real processes: their memory is reported, also if they end, fork or have hostile names."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.support.children import fork, killed_at_the_end, status_of
from tests.support.waiting import until
from tests.support.watched import Watched

import onecopy as oc
import onecopy_monitor
from onecopy_monitor import memory_of, memory_table

pytestmark = pytest.mark.processes

MB = 1_000_000
HOLD = "import sys, time; block = bytearray({}); print('ready', flush=True); time.sleep(100)"


@pytest.fixture
def holder():
    """Start processes that hold so many bytes."""
    started = []

    def start(size: int) -> subprocess.Popen[str]:
        child = subprocess.Popen([sys.executable, "-c", HOLD.format(size)], stdout=subprocess.PIPE, text=True)
        started.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        return child

    yield start
    for child in started:
        child.kill()
        child.wait()
        child.stdout.close()


def test_memory_of_the_block_is_seen_and_that_before_it_is_not():
    before = bytearray(60 * MB)
    with onecopy_monitor.watch(interval=0.01) as watched:
        block = bytearray(80 * MB)
    assert 80 * MB <= watched.peak.anonymous.grown < 110 * MB
    assert watched.peak.anonymous.bytes > watched.peak.anonymous.grown + len(before)
    assert watched.peak.anonymous.processes[0].pid == os.getpid()
    assert len(block) == 80 * MB
    assert watched.series.samples == len(watched.series.total) >= 2
    assert watched.cost.failed == 0


def test_children_count_and_a_killed_one_is_remembered(holder):
    with onecopy_monitor.watch(interval=0.01) as watched:
        child = holder(50 * MB)
        until(lambda: watched.peak.anonymous.grown > 50 * MB)
        child.send_signal(signal.SIGKILL)
        child.wait()
        until(lambda: child.pid not in [one.pid for one in watched.last.processes])
    gone = next(one for one in watched.series.processes if one.pid == child.pid)
    assert gone.last < watched.series.seconds
    assert max(gone.curve.numbers("anonymous")) > 50 * MB
    assert f"({child.pid})" in str(complaint(watched, anonymous="40 MB"))


def complaint(watched: onecopy_monitor.Watch, **limits) -> AssertionError:
    with pytest.raises(AssertionError) as raised:
        watched.assert_peak(**limits)
    return raised.value


def test_children_do_not_count_unless_requested(holder):
    with onecopy_monitor.watch(children=False, interval=0.01) as watched:
        holder(80 * MB)
    watched.assert_peak(anonymous=20 * MB)
    assert "reached" in str(complaint(watched, anonymous=20 * MB, grown=False))  # an absolute limit


def test_mapped_files_are_no_anonymous_memory_and_count_once(python, tmp_path):
    """In an interpreter of its own: only the largest files are named, and those of libraries count too."""
    path = tmp_path / "big.bin"
    path.write_bytes(bytes(64 * MB))
    code = """
        import sys, onecopy as oc, onecopy_monitor
        from tests.support.waiting import until

        path = sys.argv[1]
        with onecopy_monitor.watch(interval=0.05) as watched, oc.Mapping(path) as mapping:
            view = mapping.view()
            sum(view[:: 1 << 12])
            until(lambda: any(one.path == path and one.once > 60e6 for one in watched.last.files), "the mapped pages")
            block = bytearray(b"x") * 8_000_000  # so that the peak comes after the file is known
            looks = watched.series.samples
            until(lambda: watched.series.samples > looks + 1, "the peak")
        watched.assert_peak(anonymous="16 MB", file_dirty="65 MB")
        try:
            watched.assert_peak(real="1 MB", anonymous="1 GB")
        except AssertionError as error:
            print(error)
        print(watched.table())
    """
    message, _, table = python(code, path).partition("\n")
    assert message.startswith("the deduplicated total grew by ")
    assert "but the limit is 1.00 MB" in message
    assert str(path) in message
    assert str(path) in table


def test_a_watch_draws_what_it_saw_so_far_and_at_the_end(tmp_path):
    with onecopy_monitor.watch(interval=0.01) as watched:
        time.sleep(0.05)
        watched.plot(tmp_path / "so_far.html")
    watched.plot(str(tmp_path / "all.svg"), title="a <block>")
    assert "a &lt;block&gt;" in (tmp_path / "all.svg").read_text()
    assert "deduplicated total" in (tmp_path / "so_far.html").read_text()
    with pytest.raises(FileNotFoundError) as raised:
        watched.plot(tmp_path / "no/x.svg")
    assert raised.value.filename == str(tmp_path / "no/x.svg")


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({}, "requires at least one of the limits"),
        ({"anonymous": "much"}, "anonymous: 'much' is not a size"),
        ({"real": -1}, "negative"),
    ],
)
def test_a_limit_that_is_none_is_an_error(limits, message):
    with onecopy_monitor.watch() as watched:
        pass
    with pytest.raises(ValueError, match=message):
        watched.assert_peak(**limits)


def test_what_the_block_raises_comes_out_and_the_thread_ends():
    with pytest.raises(KeyError, match="mine"), onecopy_monitor.watch() as watched:
        raise KeyError("mine")
    assert watched.peak.real.bytes > 0
    assert "onecopy watch" not in [thread.name for thread in threading.enumerate()]


def test_a_watch_begins_once():
    watched = onecopy_monitor.watch()
    with pytest.raises(ValueError, match="no sample has been taken"):
        _ = watched.last
    with watched, pytest.raises(RuntimeError, match="only once"):
        watched.__enter__()
    with pytest.raises(RuntimeError, match="only once"):
        watched.__enter__()
    watched.close()


@pytest.mark.parametrize("interval", [0, -1, 0.0009, float("nan")])
def test_a_rate_out_of_range_is_an_error(interval):
    with pytest.raises(ValueError, match="interval must be"):
        onecopy_monitor.watch(interval=interval)


def test_a_watched_process_that_ends_does_not_end_the_watch_and_cannot_be_watched_again(holder):
    child = holder(MB)
    with onecopy_monitor.watch([child.pid], interval=0.01) as watched:
        child.kill()
        child.wait()
        until(lambda: not watched.last.processes)
    assert watched.cost.failed == 0
    assert watched.series.total.numbers("real")[-1] == 0
    assert memory_table([child.pid]) == f"{child.pid}: has ended"
    assert f"{child.pid}: has ended" in memory_table([os.getpid(), child.pid])
    with pytest.raises(ProcessLookupError, match=str(child.pid)):
        onecopy_monitor.watch([child.pid])


def test_a_forked_child_has_a_watch_that_does_nothing(in_child):
    with onecopy_monitor.watch(interval=0.005) as watched:
        for _ in range(20):  # some forks come in the middle of a look

            def inside() -> tuple[int, bool]:
                looks = watched.series.samples
                time.sleep(0.01)
                table = watched.table()
                watched.close()
                return watched.series.samples - looks, "anonymous" in table

            assert in_child(inside) == (0, True)
        looks = watched.series.samples
        until(lambda: watched.series.samples > looks)


def test_samples_that_fail_are_reported_and_end_nothing(monkeypatch):
    with onecopy_monitor.watch(interval=0.01, budget=1.0) as watched:
        monkeypatch.setattr(watched._sampler, "sample", lambda **_: Path("/no/\x1bsuch").stat())
        until(lambda: watched.cost.failed > 1)
    assert "samples failed: FileNotFoundError" in watched.table()
    assert "\x1b" not in watched.table()


def test_reading_while_the_thread_writes_is_whole(tmp_path):
    with onecopy_monitor.watch(interval=0.001, budget=1.0) as watched:
        for turn in range(200):
            assert watched.peak.real.bytes > 0
            assert "deduplicated total" in watched.table()
            if turn % 100 == 0:  # a picture takes a hundred times as long as a table
                watched.plot(tmp_path / "x.svg")


def test_a_table_of_processes_has_children_a_total_and_what_is_shared(tmp_path, holder):
    children = [holder(20 * MB) for _ in range(2)]
    lines = memory_table([os.getpid()], children=True).splitlines()
    assert lines[0].split() == ["time", "PID", "rss", "pss", "uss", "shared", "shared_file", "name"]
    cells = {line.split()[1]: line.split() for line in lines[1:-2]}
    assert {str(child.pid) for child in children} <= set(cells)
    assert float(cells[str(children[0].pid)][4]) > 20.0
    total = cells["all"]
    assert total[2].endswith("*")
    assert float(total[3]) == pytest.approx(sum(float(row[3]) for pid, row in cells.items() if pid != "all"), abs=1)
    assert float(lines[-1].split()[-2]) < float(total[2][:-1])


def test_memory_files_are_shared_but_no_shared_file(memfd):
    os.truncate(memfd, 16 * MB)
    with oc.Mapping(f"/proc/self/fd/{memfd}") as mapping:
        sum(mapping.view()[:: 1 << 12])
        pid = fork(lambda: [sum(mapping.view()[:: 1 << 12]), time.sleep(100)])
        with killed_at_the_end([pid]):
            until(lambda: memory_of(pid).shared > 16 * MB)
            mine = memory_of(os.getpid())
        status_of(pid)
    assert mine.shared - mine.shared_file >= 16 * MB


def test_a_process_named_to_break_terminals_breaks_none():
    with Watched("open('/proc/self/comm', 'w').write('\\x1b[2J\\n<b>')") as group:
        with onecopy_monitor.watch(group.pids, interval=0.01) as watched:
            pass
        text = watched.table() + memory_table(group.pids)
    assert "\x1b" not in text
    assert r"\x1b[2J\n<b>" in text


def test_watching_loads_no_numpy_and_delays_no_end_of_a_program(python):
    code = """
        import sys, onecopy_monitor
        with onecopy_monitor.watch() as watched:
            pass
        print(watched.peak.real.bytes > 0, "numpy" in sys.modules)
        onecopy_monitor.watch().__enter__()
    """
    assert python(code).split() == ["True", "False"]
