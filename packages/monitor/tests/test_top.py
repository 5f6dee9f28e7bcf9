"""`onecopy top` as a process: what it prints once and shows live, and names that would like to repaint the screen."""

import csv
import json
import os
import pty
import re
import select
import signal
import sys
import time
from dataclasses import replace

import pytest
from tests.support.children import killed_at_the_end
from tests.support.watched import MAP, TOUCH_ALL, Watched

from onecopy.memory import proc
from onecopy_monitor import Sampler
from onecopy_monitor.cli import top_screen

pytestmark = pytest.mark.processes

MIB = 1 << 20
EVIL = "a\x1b[2J[bold]<b>\n"


@pytest.fixture
def top(onecopy_command):
    """Give a function that runs the verb, and returns what it prints."""

    def run(*arguments: object, status: int = 0, columns: int = 80) -> str:
        done = onecopy_command("top", *arguments, columns=columns)
        assert done.returncode == status, done.stderr
        return done.stdout if status == 0 else done.stderr

    return run


def test_once_prints_the_total_the_processes_and_the_files_and_json_has_them_in_bytes(cold_file, top):
    path = cold_file(32 * MIB, "weights.bin")
    with Watched(MAP + TOUCH_ALL, path, count=3) as group:
        text = top("--once", *group.pids, columns=140)
        facts = json.loads(top("--json", *group.pids))
        truth = sum(proc.rollup(pid).pss for pid in group.pids)
    assert text.startswith("3 processes")
    assert re.search(r"REAL [\d.]+ MB   \(sum of RSS: 1\d\d MB\)", text)
    assert all(re.search(rf"^ *{pid} ", text, re.MULTILINE) for pid in group.pids)
    line = next(line for line in text.splitlines() if "weights.bin" in line)
    assert "33.6 MB  ██████████ 100 %" in line
    assert line.endswith("3, saves 67.1 MB")
    assert facts["total"]["real"] == pytest.approx(truth, rel=0.02)
    assert facts["total"]["sum_of_rss"] > facts["total"]["real"] + 60 * MIB
    assert [one["pid"] for one in facts["processes"]] == sorted(group.pids)
    assert facts["files"][0]["cached"] == 32 * MIB


def test_csv_has_a_line_for_each(cold_file, top):
    with Watched(MAP + TOUCH_ALL, cold_file(8 * MIB, "evil\nname.bin"), count=2) as group:
        texts = [top(f"--csv={table}", *group.pids) for table in ("processes", "files", "total")]
    processes, files, (total,) = (list(csv.DictReader(text.splitlines())) for text in texts)
    assert {int(row["pid"]) for row in processes} == set(group.pids)
    assert all(int(row["share"]) > 0 for row in processes)
    assert [int(row["once"]) for row in files if row["path"].endswith(r"evil\nname.bin")] == [8 * MIB]
    assert int(total["real"]) > 8 * MIB


def test_processes_are_found_by_name_tree_and_file(cold_file, tmp_path, top):
    path = cold_file(8192)
    mark = f"mark-{tmp_path.name}-{os.getpid()}"
    forks = "    import os\n    if os.fork() == 0:\n        import time; time.sleep(100)"
    with Watched(MAP + forks, path, mark) as group:
        (pid,) = group.pids
        ways = (("--regex", mark), ("--file", path), ("--tree", pid), (pid,))
        found = [{one["pid"] for one in json.loads(top("--json", *way))["processes"]} for way in ways]
        text = top("--once", "--tree", pid)
    both = found[2]
    assert len(both) == 2
    assert found == [both, both, both, {pid}]
    child = (both - {pid}).pop()
    assert re.search(rf"^ *{pid}  python", text, re.MULTILINE)
    assert re.search(rf"^ *{child}    python", text, re.MULTILINE), "a child stands below its parent, indented"


@pytest.fixture
def snapshot():
    with Sampler([os.getpid()]) as sampler:
        return sampler.sample()


def test_live_rates_and_trends_are_those_of_each_process_and_a_number_that_is_used_again_has_none(snapshot):
    view, seen, one = top_screen.View(), [], replace(snapshot.processes[0], pid=11, share=8)
    busy = replace(one, minor_faults=one.minor_faults + 10, major_faults=one.major_faults + 4, cpu_s=one.cpu_s + 1.0)
    idle = replace(one, pid=12, share=5)
    larger, other = replace(busy, share=16), replace(idle, started=idle.started + 1)
    for at, processes in enumerate([(one, idle), (busy, idle), (larger, other)]):
        look = replace(snapshot, time=snapshot.time + 2 * at, processes=processes)
        view.history.add(look)
        lines = [str(line).split() for line in top_screen.lines_of(look, view, 140, 2.0)]
        seen.append([cells[-5:] for cells in lines if cells[:1] in (["11"], ["12"])])
    assert seen[1] == [["5.00", "2.00", "50", "%", "██"], ["0", "0", "0", "%", "██"]]
    assert seen[2][0] == ["0", "0", "0", "%", "▅▅█"]
    assert seen[2][1][-1] == "█"
    assert "%" not in seen[0][0] + seen[0][1] + seen[2][1]


@pytest.mark.parametrize(
    ("basis", "words"), [("files", ""), ("walks", "   forked memory measured 3 s ago"), ("exact", "   exact")]
)
def test_the_total_shows_how_it_was_found(snapshot, basis, words):
    look = replace(snapshot, totals=replace(snapshot.totals, basis=basis, walked_s=3.2))
    assert str(top_screen.lines_of(look, top_screen.View(), 140, None)[1]).endswith(f" MB){words}")


@pytest.mark.parametrize("sort", top_screen.ORDERS)
def test_processes_are_in_the_order_asked_for(snapshot, sort):
    first, view = snapshot.processes[0], top_screen.View(sort)
    more = {"faults": {"major_faults": 10**6}, "cpu": {"cpu_s": 10**6}}.get(sort, {sort: 10**15})
    for at, one in enumerate([first, replace(first, **more)]):
        processes = one, replace(first, pid=first.pid - 1)
        view.history.add(replace(snapshot, time=snapshot.time + at, processes=processes))
    assert view.ordered(processes)[0][1] is processes[sort == "pid"]


def test_a_control_group_is_a_group(top):
    with Watched("") as group:
        membership = proc.process_text(group.pids[0], "cgroup")
        mine = membership.split("\n")[0].split(":", 2)[2]
        pids = {one["pid"] for one in json.loads(top("--json", "--cgroup", mine))["processes"]}
        none = json.loads(top("--json", "--cgroup", "/there/is/none"))
    assert set(group.pids) <= pids
    assert none["processes"] == []
    assert none["total"]["real"] == 0


def test_names_cannot_repaint_the_screen(cold_file, top):
    code = f"open('/proc/self/comm', 'w').write({EVIL[:15]!r})\n" + (MAP + TOUCH_ALL).replace("\n    ", "\n")
    with Watched(code, cold_file(8 * MIB, f"{EVIL.strip()}.bin".replace("/", "")), count=1) as group:
        text = top("--once", *group.pids, columns=200)
    assert "\x1b" not in text
    assert r"a\x1b[2J[bold]" in text


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (["--once", 2**22 + 1], 1, f"no process {2**22 + 1}"),
        (["--regex", "("], 1, "is not a regular expression"),
        (["--file", "/nothing/there"], 1, "No such file"),
        (["--interval", "soon"], 2, "'--interval'"),
    ],
)
def test_what_is_wrong_is_reported_in_a_line(top, options, status, words):
    assert words in top(*options, status=status)


@pytest.mark.parametrize("end", ["q", "ctrl-c"])
def test_live_it_takes_keys_and_gives_the_terminal_back(end):
    with Watched("", count=2) as group:
        pid, terminal = pty.fork()
        if pid == 0:
            os.environ.update(COLUMNS="100", LINES="24", TERM="xterm")
            command = [sys.executable, "-m", "onecopy", "top", "--interval", "0.2", *map(str, group.pids)]
            os.execv(sys.executable, command)
        with killed_at_the_end([pid]):
            for typed, wanted in (("", "2 processes"), ("c", "q quit"), ("t", "SHARE"), ("t", "PID")):
                os.write(terminal, typed.encode())
                assert wanted in _read_until(terminal, wanted)
            if end == "q":
                os.write(terminal, b"q")
            else:
                os.kill(pid, signal.SIGINT)
            assert "\x1b[?1049l" in _read_until(terminal, "\x1b[?1049l")
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        os.close(terminal)


def _read_until(terminal: int, wanted: str, seconds: float = 20) -> str:
    text, end = "", time.monotonic() + seconds
    while wanted not in text and time.monotonic() < end:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                text += os.read(terminal, 1 << 16).decode("utf-8", "replace")
            except OSError:  # the other end is closed
                break
    return text
