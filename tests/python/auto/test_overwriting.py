"""Files that a program has mapped and then writes: the file has what was written, the mapped data is as before."""

import signal
import stat
import subprocess
import sys

import numpy as np
import pytest
from tests.support.children import run_python
from tests.support.places import ROOT

BEGIN = """
import os, pathlib, sys, warnings
import numpy as np
import onecopy.auto
path = pathlib.Path(sys.argv[1])
array = np.load(path)
assert onecopy.auto.calls(), "the file is not mapped"
before = array.copy()
"""

END = """
assert (array == before).all()
"""

WRITES = {
    "save": ("np.save(path, array[:3])", "np.load(path).shape == (3,)"),
    "copy": ("__import__('shutil').copyfile(sys.executable, path)", "path.read_bytes()[:4] == b'\\x7fELF'"),
    "empty": ("path.open('w').close()", "path.stat().st_size == 0"),
    "in place": (
        "with path.open('r+b') as file: file.seek(-8, 2); file.write(np.float64(7).tobytes())",
        "np.load(path)[-1] == 7 and np.load(path)[-2] == before[-2]",
    ),
    "append": ("with path.open('ab') as file: file.write(b'more')", "path.read_bytes().endswith(b'more')"),
    "truncate": ("os.truncate(path, 100)", "path.stat().st_size == 100"),
    "descriptor": (
        "with os.fdopen(os.open(path, os.O_RDWR | os.O_TRUNC), 'wb') as file: file.write(b'x')",
        "path.read_bytes() == b'x'",
    ),
    "link": (
        "os.symlink(path, f'{path}.link'); pathlib.Path(f'{path}.link').write_bytes(b'x')",
        "path.read_bytes() == b'x' and os.path.islink(f'{path}.link')",
    ),
}


@pytest.fixture
def npy(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.arange(300_000.0))
    path.chmod(0o640)
    return path


@pytest.mark.parametrize("name", WRITES)
def test_what_is_mapped_stays_as_it_was(npy, name):
    write, written = WRITES[name]
    run_python(BEGIN + write + END + f"assert {written}", npy)
    assert stat.S_IMODE(npy.stat().st_mode) == 0o640
    assert {each.name for each in npy.parent.iterdir()} <= {"a.npy", "a.npy.link"}, "a temporary file is left"


def test_other_files_are_written_in_place(tmp_path, npy):
    other = tmp_path / "other"
    other.write_bytes(b"a")
    inode = other.stat().st_ino
    run_python(BEGIN + "pathlib.Path(sys.argv[2]).write_bytes(b'b')" + END, npy, other)
    assert (other.stat().st_ino, other.read_bytes()) == (inode, b"b")


def test_reading_does_not_replace_a_file(npy):
    inode = npy.stat().st_ino
    run_python(BEGIN + "path.read_bytes(); os.open(path, os.O_RDONLY)" + END, npy)
    assert npy.stat().st_ino == inode


def test_a_file_that_cannot_be_replaced_is_a_warning(npy):
    code = """
def refuse(*_):
    raise OSError(30, "Read-only file system")
pathlib.Path.replace = refuse
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    path.open("r+b").close()
assert "written in place while it is mapped" in str(caught[0].message) and "Read-only" in str(caught[0].message)
"""
    run_python(BEGIN + code, npy)
    assert [each.name for each in npy.parent.iterdir()] == ["a.npy"]


KILLED = """
import shutil, signal
shutil.copyfileobj = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
path.open("r+b")
"""


@pytest.mark.parametrize("nameless", [True, False])
def test_a_process_that_is_killed_while_it_replaces_a_file_leaves_the_old_one(npy, nameless):
    before = npy.read_bytes()
    refused = "" if nameless else "from tests.support.seccomp import refuse; refuse('O_TMPFILE')\n"
    done = subprocess.run([sys.executable, "-c", BEGIN + refused + KILLED, npy], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert npy.read_bytes() == before
    left = [each.name for each in npy.parent.iterdir() if each != npy]
    assert len(left) == (0 if nameless else 1)
    run_python(BEGIN + "path.open('r+b').close()" + END, npy)  # the next writer removes it
    assert [each.name for each in npy.parent.iterdir()] == ["a.npy"]


def test_what_another_process_of_the_same_run_has_mapped_is_protected_too(npy, onecopy_process):
    code = BEGIN + "import subprocess; subprocess.run([sys.executable, '-c', sys.argv[2], path], check=True)" + END
    writer = "import sys; open(sys.argv[1], 'wb').close()"
    done = onecopy_process("run", "--", sys.executable, "-c", code, npy, writer)
    assert done.returncode == 0, done.stderr
    assert npy.stat().st_size == 0
