"""`onecopy explain` of processes that run one program: what they could hold once, and what `onecopy run` shares."""

import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from tests.support.children import fork, status_of
from tests.support.kernel import needs_memory_files
from tests.support.watched import Watched

import onecopy as oc
from onecopy.memory import Cause, explaining, proc
from onecopy.run.report import causes_of_run

MIB = 1 << 20
HOLD = """
    import mmap, sys
    import numpy
    copy = bytearray(40 << 20)
    for at in range(0, len(copy), 4096):
        copy[at] = 1
    file = open(sys.argv[1], "rb")
    memory = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
"""
FORK = HOLD + "    import os, signal\n    others = [os.fork() or signal.pause() for _ in range(2)]\n"
LOAD = """
import os, sys
import numpy as np
arrays = [np.load(path) for path in sys.argv[1:] if path.endswith("npy")]
archives = [np.load(path)["a"] for path in sys.argv[1:] if path.endswith("npz")]
if os.fork() == 0:
    if "FREE" in os.environ:
        arrays.clear()
    os.write(1, f"{os.getpid()}\\n".encode())
    os.read(0, 1)  # until the parent of all ends
    os._exit(0)
os.read(0, 1)
os.wait()
"""


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Have processes count that a test can afford."""
    monkeypatch.setattr(explaining, "MIN_PRIVATE", 32 * MIB)


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "weights.safetensors"
    path.write_bytes(bytes(MIB))
    return path


def of(pid: int, code: str) -> list[Cause]:
    return [one for one in oc.explain(pid).causes if one.code == code]


def test_processes_of_one_program_that_hold_as_much_each_are_named(data):
    with Watched(HOLD, data, count=3) as group:
        found = [of(pid, "copies") for pid in group.pids]
        held = sum(proc.rollup(pid).anonymous for pid in group.pids)
    for (cause,) in found:
        assert not cause.bad, "/proc does not show that they are copies"
        assert cause.bytes == pytest.approx(held * 2 / 3, rel=0.05)  # 40 MiB, the interpreter and numpy
        assert cause.bytes > 2 * 40 * MIB
        assert cause.text.startswith("3 processes run this program, have loaded numpy, and use ")
        assert "weights.safetensors open or mapped in 3 of them" in cause.text
        assert "If they loaded the same files, `onecopy run -- COMMAND` could share them" in cause.text


def test_one_process_and_processes_of_other_programs_are_not_named(data):
    with Watched(HOLD, data) as one, Watched(f"{HOLD}    another = touch(memory)\n", data), Watched("import numpy"):
        others = [one for one in of(one.pids[0], "copies") if "3 processes" in one.text]
        assert others == []
    with Watched(HOLD, data) as one, Watched("x = (1)\n" + "import numpy\n"):
        assert of(one.pids[0], "copies") == []


def test_memory_that_a_fork_shares_is_no_copy(data):
    with Watched(FORK, data) as group:
        assert of(group.pids[0], "copies") == []


def test_processes_that_use_onecopy_are_not_named(data):
    with Watched(f"    import onecopy\n    onecopy.Mapping\n{HOLD}", data, count=2) as group:
        assert of(group.pids[0], "copies") == []


@contextmanager
def run(*paths, command=(sys.executable, "-m", "onecopy", "run", "--"), **environment):
    """Start a program that loads files and forks; give the process, and the PIDs of the program and of its child."""
    process = subprocess.Popen(
        [*command, sys.executable, "-c", LOAD, *map(str, paths)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )
    try:
        child = int(process.stdout.readline())
        with open(f"/proc/{child}/stat") as file:  # noqa: PTH123
            program = int(file.read().rpartition(")")[2].split()[1])
        yield process, program, child
    finally:
        process.communicate()


@pytest.fixture
def files(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(1 << 18))
    np.savez(tmp_path / "b.npz", a=np.zeros(1 << 18))
    return tmp_path / "a.npy", tmp_path / "b.npz"


@needs_memory_files
def test_what_a_process_of_onecopy_run_shares_and_what_not(files, onecopy_process):
    with run(*files) as (_, program, child):
        own, inherited = (causes_of_run(pid) for pid in (program, child))
        printed = onecopy_process("explain", str(program), "--interval", "0").stdout
        assert of(program, "copies") == []
    shared = Cause("run", "shared by `onecopy run`: a.npy, 2.10 MB, by 1 process: numpy.load", 1 << 21)
    assert own[0].text.startswith(f"{shared.text}; a snapshot in memory, charged to /")
    assert replace(own[0], text=shared.text) == shared
    assert own[1].text.startswith("not shared by `onecopy run`: b.npz, 2.10 MB, by 1 process: numpy.load: not aligned")
    assert inherited == [own[0]], "it maps the file of its parent"
    assert f"- {own[0].text}" in printed.splitlines()


@needs_memory_files
def test_a_process_that_loaded_nothing_and_one_without_onecopy_run():
    with run() as (_, program, _):
        (cause,) = causes_of_run(program)
    assert cause.text.startswith("it was started by `onecopy run`, but has loaded no files")
    with run(command=()) as (process, _, _):
        assert causes_of_run(process.pid) == []


@needs_memory_files
def test_what_a_child_does_not_map_any_more_it_does_not_share(files):
    with run(files[0], FREE="1") as (_, program, child):
        assert [one.bytes for pid in (program, child) for one in causes_of_run(pid)] == [1 << 21, 0]


@needs_memory_files
def test_after_onecopy_run_was_killed_its_calls_cannot_be_read(files):
    with run(*files) as (process, program, _):
        process.kill()
        process.wait()
        (cause,) = causes_of_run(program)
    assert "cannot be read" in cause.text


@pytest.mark.parametrize("kind", ["fifo", "file", "descriptor", "nothing", "text"])
def test_another_file_in_the_place_of_that_of_onecopy_run_is_not_opened(tmp_path, kind):
    """The environment of a process is not trusted: opening a FIFO would wait for ever."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    opened = os.open(fifo, os.O_RDWR)
    path = {
        "fifo": str(fifo),
        "file": "/etc/passwd",
        "descriptor": f"/proc/{os.getpid()}/fd/{opened}",
        "nothing": "",
        "text": "/proc/1/fd/9/../../../etc/passwd\x1b[2J",
    }[kind]
    with run(command=(), ONECOPY_RUN=path) as (process, _, _):
        (cause,) = causes_of_run(process.pid)
    os.close(opened)
    assert "cannot be read" in cause.text
    assert "\x1b" not in cause.text


def test_a_process_that_has_ended_has_no_causes():
    pid = fork(lambda: True)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert causes_of_run(pid) == []
    assert status_of(pid) == 0
