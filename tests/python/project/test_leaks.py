"""The check after each test finds what a test leaves, and nothing where it leaves nothing."""

import os
import re
import subprocess
import sys

import pytest
from tests.support.places import ROOT

LEFT = {
    "descriptors": "kept.append(os.open(tmp_path, os.O_RDONLY))",
    "mappings": "kept.append(oc.Mapping(path))",
    "threads": "kept.append(threading.Thread(target=time.sleep, args=(5,))); kept[-1].start()",
    "children": "kept.append(subprocess.Popen(['sleep', '20']))",
    "orphans": "subprocess.run(['sh', '-c', 'setsid sleep 20 &'], check=True, stdout=subprocess.DEVNULL)",
    "zombies": "kept.append(subprocess.Popen(['true']))",
    "files in memory": "Path('/dev/shm/left').touch()",
    "files of the store": "oc.Store().get_or_build('left', lambda path: path.write_bytes(b'left'))",
    "hooks": "kept.append(type('Finder', (), {'__module__': 'onecopy.auto.x'})()); sys.meta_path.append(kept[-1])",
    "nothing": "oc.Mapping(path); subprocess.run(['sh', '-c', 'true &'], check=True)",
}
KINDS = {"orphans": "children", "zombies": "children", "files in memory": "files", "files of the store": "files"}
HEAD = """
import os, subprocess, sys, threading, time
from pathlib import Path
import onecopy as oc
from tests.support import leaks
leaks.PATIENCE = 0.3
kept = []
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Return what the check says of each, by name, from a session of its own."""
    folder = tmp_path_factory.mktemp("leaks")
    tests = "".join(
        f"def test_{number}(tmp_path):\n    path = tmp_path / 'x'\n    path.write_bytes(b'x' * 5000)\n    {code}\n"
        for number, code in enumerate(LEFT.values())
    )
    (folder / "test_left.py").write_text(HEAD + tests)
    command = [sys.executable, "-m", "pytest", "-q", "-rE", "-c", os.devnull, f"--rootdir={folder}", "test_left.py"]
    for plugin in ("tests.support.isolation", "tests.support.leaks", "no:cacheprovider"):
        command += ["-p", plugin]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    pids = re.findall(r"children: (\d+) ", done.stdout)
    subprocess.run(["kill", "-9", *pids], stderr=subprocess.DEVNULL, check=False)
    assert f"{len(LEFT)} passed" in done.stdout, done.stdout
    lines = re.findall(
        r"^E +Failed: left behind: (.*)$|^_+ ERROR at teardown of test_(\d+) _+$", done.stdout, re.MULTILINE
    )
    return {list(LEFT)[int(number)]: text for (_, number), (text, _) in zip(lines[::2], lines[1::2], strict=True)}


@pytest.mark.parametrize("name", LEFT)
def test_what_a_test_leaves_fails_it(found, name):
    if name == "orphans" and os.geteuid() != 0:
        pytest.skip("only root has a mount namespace of its own, by which its processes are found")
    assert name == "nothing" or f"; {KINDS.get(name, name)}: " in f"; {found[name]}"
    assert "nothing" not in found
