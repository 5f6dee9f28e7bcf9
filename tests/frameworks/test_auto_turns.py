"""Which processes of `onecopy run` wait for each other while they construct models and memory is scarce."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes

TRAINS = """
import pathlib, sys, time, torch
import onecopy.auto
model = torch.nn.Linear(4096, 4096)  # 64 MiB, never loaded
pathlib.Path(sys.argv[1], "constructed").touch()
kept = []
while not pathlib.Path(sys.argv[1], "done").exists():
    kept.append(bytes(1 << 20))
    time.sleep(0.1)
"""
COPIES = """
import pathlib, sys, time, torch
from onecopy.run import load_gate
model = torch.nn.Linear(4096, 4096)
with load_gate.copying():
    pathlib.Path(sys.argv[1], "constructed").touch()
    time.sleep(load_gate.IDLE_SECONDS + 2)  # a slow disk
    pathlib.Path(sys.argv[1], "copied").touch()
load_gate.finished()
"""
CONSTRUCTS = """
import pathlib, sys, time, torch
from onecopy.run import load_gate
while not pathlib.Path(sys.argv[1], "constructed").exists():
    time.sleep(0.05)
load_gate._left = lambda: 1  # memory is scarce
torch.nn.Linear(4096, 4096)
pathlib.Path(sys.argv[1], "done").touch()
print("constructed after waiting" if load_gate._builder.waited else "constructed")
print("after the copy" if pathlib.Path(sys.argv[1], "copied").exists() else "")
"""
BOTH = """
import subprocess, sys
first = subprocess.Popen([sys.executable, "-c", sys.argv[2], sys.argv[1]])
second = subprocess.run([*sys.argv[4:], sys.executable, "-c", sys.argv[3], sys.argv[1]], timeout=60)
first.wait(60)
"""


def constructed(onecopy_process, *words):
    done = onecopy_process("run", "-q", "--", sys.executable, "-c", BOTH, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("first", "more"), [(TRAINS, ""), (COPIES, "after the copy")], ids=["trains", "copies"])
def test_a_process_is_waited_for_while_it_copies_and_not_while_it_trains(torch, tmp_path, onecopy_process, first, more):
    printed = constructed(onecopy_process, tmp_path, first, CONSTRUCTS)
    assert printed == f"constructed after waiting\n{more}\n"


@pytest.mark.slow
def test_no_process_is_waited_for_that_another_pid_namespace_has(torch, tmp_path, onecopy_process):
    if subprocess.run(["unshare", "-pf", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no namespaces")
    assert constructed(onecopy_process, tmp_path, TRAINS, CONSTRUCTS, "unshare", "-pf") == "constructed\n\n"
