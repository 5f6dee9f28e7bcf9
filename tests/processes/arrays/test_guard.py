"""The guard: a page that fails under a view is zeros and an error, and every other fault is what it was."""

import errno
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from tests.support.children import fork, in_a_child, status_of

import onecopy as oc

MIB = 1 << 20
SIZE = 8 * MIB
LEFT = 5 * MIB + 1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "data.bin"
    path.write_bytes(b"\xff" * SIZE)
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    oc.save(path, {"first": np.full(MIB, 255, np.uint8), "last": np.full(SIZE, 255, np.uint8)})
    return path


def lose(path: Path, **options) -> tuple[oc.Mapping, memoryview]:
    oc.files.guard()
    mapping = oc.Mapping(path, **options)
    view = mapping.view()
    os.truncate(path, LEFT)
    return mapping, view


def facts(error: oc.DataLost) -> tuple[int | None, str, int | None]:
    return error.errno, str(error.filename), error.offset


def raised_by(call) -> tuple[int | None, str, int | None] | None:
    try:
        call()
    except oc.DataLost as error:
        return facts(error)
    return None


@in_a_child
def test_lost_bytes_are_zeros_and_the_next_call_reports(path):
    mapping, view = lose(path)
    assert (view[LEFT - 1], view[LEFT], view[7 * MIB], view[SIZE - 1]) == (255, 0, 0, 0)
    calls = [mapping.view, lambda: oc.warm(mapping), lambda: oc.residency(mapping), oc.files.check, oc.files.check]
    assert [raised_by(call) for call in calls] == [(errno.EIO, str(path), LEFT)] * 5
    assert "data.bin" in repr(mapping)
    assert mapping.changed()


@in_a_child
def test_arrays_tell_too(model):
    oc.files.guard()
    file = oc.open(model)
    last = file["last"]
    assert last.sum(dtype=np.int64) == 255 * SIZE
    os.truncate(model, 2 * MIB)
    assert 0 < last.sum(dtype=np.int64) < 255 * SIZE
    calls = [lambda: file["first"], file.verify, file.warm, lambda: file.entries, oc.files.check]
    assert [raised_by(call) for call in calls] == [(errno.EIO, str(model), 2 * MIB)] * 5
    file.close()


@in_a_child
def test_a_shorter_file_is_found_before_it_is_touched_unless_what_is_mapped_is_left(path):
    part = oc.Mapping(path, offset=MIB, length=MIB)
    whole = oc.Mapping(path)
    os.truncate(path, LEFT)
    assert raised_by(oc.files.check) == (errno.EIO, str(path), LEFT)
    whole.close()
    assert raised_by(oc.files.check) is None
    assert bytes(part.view()) == b"\xff" * MIB


@in_a_child
def test_parts_at_odd_offsets_and_private_pages(path):
    oc.files.guard()
    part = oc.Mapping(path, offset=LEFT - 10_001, length=20_000)
    private = oc.Mapping(path, private=True)
    view, mine = part.view(), private.view()
    mine[0] = 1
    os.truncate(path, LEFT - 5000)
    assert (view[0], view[19_999], mine[0], mine[SIZE - 1]) == (255, 0, 1, 0)
    mine[SIZE - 1] = 7  # still private and writable
    assert mine[SIZE - 1] == 7
    assert raised_by(part.view) == raised_by(private.view) == (errno.EIO, str(path), LEFT - 5000)


@in_a_child
def test_forked_children_are_guarded_and_tell_by_themselves(path):
    mapping, view = lose(path)
    assert status_of(fork(lambda: view[SIZE - 1] == 0 and raised_by(mapping.view))) == 0
    assert mapping.view()[0] == 255  # nothing was lost here


SCRIPT = """
    import ctypes, faulthandler, mmap, os, signal, sys
    import onecopy as oc
    path = sys.argv[1]
    {setup}
    mapping = oc.Mapping(path)
    view = mapping.view()
    os.truncate(path, 0)
    print(view[1 << 20], view[5 << 20], flush=True)
    try:
        mapping.view()
    except oc.DataLost as error:
        print("raised", error.offset, flush=True)
    {after}
"""


def run(path: Path, setup: str, after: str = "") -> subprocess.CompletedProcess[str]:
    code = textwrap.dedent(SCRIPT).format(setup=setup, after=after)
    return subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, timeout=60, check=False)


ELSEWHERE = """
with open(path, "wb") as file: file.truncate(1 << 20)
with open(path, "rb") as file: other = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
os.truncate(path, 0)
other[5000]
"""
SENT = "os.kill(os.getpid(), signal.SIGBUS)"
GUARD, FAULTS = "oc.files.guard()", "faulthandler.enable()"
PYTHON = f"signal.signal(signal.SIGBUS, lambda *_: print('sent', flush=True)); {GUARD}"
IGNORED = f"signal.signal(signal.SIGBUS, signal.SIG_IGN); {GUARD}"
CASES = [
    (GUARD, "", False),
    (f"{FAULTS}; {GUARD}", "", False),
    (f"{GUARD}; {FAULTS}", "", True),
    (f"{GUARD}; {FAULTS}; {GUARD}", "", False),
    (PYTHON, "", False),
    (GUARD, ELSEWHERE, False),
    (f"{FAULTS}; {GUARD}", ELSEWHERE, True),
    (f"{GUARD}; {FAULTS}", ELSEWHERE, True),
    (f"{GUARD}; {FAULTS}; {GUARD}", ELSEWHERE, True),
    (GUARD, SENT, False),
    (f"{FAULTS}; {GUARD}", SENT, True),
    (PYTHON, SENT, False),
    (IGNORED, SENT, False),
    (IGNORED, ELSEWHERE, False),
]
"""What is set up before a page is lost, what happens afterwards, and whether faulthandler reports a bus error."""


@pytest.mark.parametrize(("setup", "after", "reports"), CASES)
def test_a_lost_page_is_zeros_and_every_other_fault_or_signal_is_what_it_was_beside_any_handler(
    path, setup, after, reports
):
    done = run(path, setup, after)
    lives_on = not after or (after == SENT and setup in (PYTHON, IGNORED))
    assert done.returncode == (0 if lives_on else -signal.SIGBUS)
    assert done.stdout == "0 0\nraised 0\n" + "sent\n" * (after == SENT and setup is PYTHON)
    assert ("Bus error" in done.stderr) == reports


def test_without_the_guard_a_lost_page_kills(path):
    assert run(path, "pass").returncode == -signal.SIGBUS


def test_mappings_that_were_closed_leave_no_memory_behind(path, python):
    code = """
    import sys
    import onecopy as oc

    def pages_after(count):
        for _ in range(count):
            oc.Mapping(sys.argv[1]).close()
        return int(open("/proc/self/statm", "rb", 0).read().split()[5])  # data

    oc.files.guard()
    print(-pages_after(1000) + pages_after(30_000))
    """
    assert int(python(code, path)) < 100
