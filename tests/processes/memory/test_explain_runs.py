"""What `onecopy explain` says of processes of `onecopy run`: what they share, and what not."""

import os
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest
from tests.support.children import fork, status_of
from tests.support.kernel import needs_memory_files

from onecopy.run.report import causes_of_run

pytestmark = needs_memory_files
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


def test_what_a_process_of_onecopy_run_shares_and_what_not(files, onecopy_process):
    with run(*files) as (process, program, child):
        own, inherited, both = (causes_of_run(pids) for pids in ([program], [child], [program, child]))
        printed = onecopy_process("explain", *map(str, (process.pid, program, child)), "--details").stdout
        alone = onecopy_process("explain", str(program)).stdout
    assert "one copy for all processes, held by onecopy: a.npy" in alone, "also without the process that holds it"
    text = "shared by `onecopy run`: a.npy: numpy.load; a snapshot in memory, charged to /"
    assert own[0].text.startswith(text)
    assert (own[0].code, own[0].bytes) == ("run", 1 << 21)
    assert own[1].text.startswith("not shared by `onecopy run`: b.npz: numpy.load: not aligned")
    assert inherited == [own[0]], "it maps the file of its parent"
    assert both[0] == own[0], "one copy"
    assert "one copy for all processes, held by onecopy: " in printed
    assert f"   {both[0].text}\n" in printed


def test_processes_that_loaded_nothing_or_have_ended_or_no_onecopy_run_have_no_causes():
    with run() as (_, program, _):
        assert causes_of_run([program]) == []
    with run(command=()) as (process, _, _):
        assert causes_of_run([process.pid]) == []
    pid = fork(lambda: True)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert causes_of_run([pid]) == []
    assert status_of(pid) == 0


def test_what_a_child_does_not_map_any_more_it_does_not_share(files):
    with run(files[0], FREE="1") as (_, program, child):
        assert [one.bytes for one in causes_of_run([program])] == [1 << 21]
        assert causes_of_run([child]) == []


def test_after_onecopy_run_was_killed_its_calls_cannot_be_read(files):
    with run(*files) as (process, program, _):
        process.kill()
        process.wait()
        (cause,) = causes_of_run([program])
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
        (cause,) = causes_of_run([process.pid])
    os.close(opened)
    assert "cannot be read" in cause.text
    assert "\x1b" not in cause.text
