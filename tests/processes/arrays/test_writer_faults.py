"""Saving while a system call fails: the error names it and the file, the old file stays, and nothing else is left."""

import errno
import os
import resource
import signal
from pathlib import Path

import pytest
from tests.support.children import in_a_child
from tests.support.seccomp import refuse
from tests.support.writing import HIDDEN, KILL, MIB, NEW, OLD, RENAMES, Late, names_in, save_without

import onecopy as oc

NO_SPACE, BROKEN = errno.ENOSPC, errno.EIO
FAULTS = [
    ("fallocate", NO_SPACE, "reserve space for"),
    ("fallocate", BROKEN, "reserve space for"),
    ("write the first piece", NO_SPACE, "write"),
    ("write the last piece", BROKEN, "write"),
    ("write the header", BROKEN, "write"),
    ("fsync", BROKEN, "flush"),
    ("rename", NO_SPACE, "save"),
    ("rename", errno.EXDEV, "save"),
]
WITH_NAME = [("open a new file", NO_SPACE, "save"), ("open a new file", errno.EACCES, "save")]
WITHOUT_NAME = [
    ("O_TMPFILE", errno.EACCES, "save"),
    ("linkat", NO_SPACE, "save"),
    ("linkat", errno.EPERM, "save"),
]
CASES = [(True, *fault) for fault in FAULTS + WITHOUT_NAME] + [(False, *fault) for fault in FAULTS + WITH_NAME]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    oc.save(path, OLD)
    return path


@pytest.fixture(params=[True, False])
def unnamed(request) -> bool:
    return bool(request.param)


@pytest.mark.parametrize(("unnamed", "call", "error", "operation"), CASES)
@pytest.mark.parametrize("exists", [True, False])
def test_a_call_that_fails_is_reported_and_the_old_file_stays(
    path, in_child, unnamed_files, unnamed, call, error, operation, exists
):
    if unnamed and not unnamed_files:
        pytest.skip("there are no unnamed files here")
    before = path.read_bytes()
    if not exists:
        path.unlink()
    calls = RENAMES if call == "rename" else (call,)
    with pytest.raises(OSError, match=operation) as raised:
        in_child(lambda: save_without(unnamed, path, *calls, error=error))
    assert raised.value.errno == error
    assert raised.value.strerror == f"{operation}: {os.strerror(error)}"
    assert raised.value.filename == str(path)
    assert names_in(path.parent) == (["model"] if exists else [])
    assert not exists or path.read_bytes() == before


def test_a_folder_that_cannot_be_flushed_is_reported_and_the_new_file_is_in_place(path, in_child, unnamed):
    with pytest.raises(OSError, match="flush folder of") as raised:
        in_child(lambda: save_without(unnamed, path, "open the folder", error=BROKEN))
    assert (raised.value.errno, raised.value.filename) == (BROKEN, str(path))
    assert names_in(path.parent) == ["model"]
    assert list(oc.open(path)) == list(NEW)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("sync_file_range", BROKEN),
        ("sync_file_range", errno.ENOSYS),
        ("flock", errno.ENOLCK),
        ("fallocate", errno.EOPNOTSUPP),
        ("fallocate", errno.ENOSYS),
        ("open the folder", errno.EACCES),
        ("open the folder", errno.EINVAL),
    ],
)
def test_what_can_be_done_without_is_done_without(path, in_child, unnamed, call, error):
    in_child(lambda: save_without(unnamed, path, call, error=error))
    assert names_in(path.parent) == ["model"]
    assert (oc.open(path)["new"] == NEW["new"]).all()


@pytest.mark.parametrize("limit", [4095, MIB, 16 * MIB, 17 * MIB + 5])
@in_a_child
def test_a_write_that_is_cut_short_by_a_limit_leaves_nothing(path, unnamed, limit):
    before = path.read_bytes()
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    with pytest.raises(OSError, match="write: File too large") as raised:
        save_without(unnamed, path, "fallocate")
    assert (raised.value.errno, raised.value.filename) == (errno.EFBIG, str(path))
    assert path.read_bytes() == before
    assert names_in(path.parent) == ["model"]


DEATHS = {
    "before the file exists": (True, ("O_TMPFILE",), 0),
    "before space is reserved": (True, ("fallocate",), 0),
    "in the middle": (True, ("write the last piece",), 0),
    "before the header": (True, ("write the header",), 0),
    "while flushing": (True, ("fsync",), 0),
    "before it has a name": (True, ("linkat",), 0),
    "between name and rename": (True, RENAMES, 1),
    "before space is reserved, with a name": (False, ("fallocate",), 1),
    "in the middle, with a name": (False, ("write the last piece",), 1),
    "between name and rename, with a name": (False, RENAMES, 1),
}


@pytest.mark.parametrize("moment", DEATHS)
@pytest.mark.parametrize("next_unnamed", [True, False])
def test_dying_at_a_call_leaves_the_old_file_and_at_most_one_hidden_one_that_the_next_save_sweeps(
    path, in_child, unnamed_files, moment, next_unnamed
):
    unnamed, calls, left = DEATHS[moment]
    if unnamed and not unnamed_files:
        pytest.skip("there are no unnamed files here")
    before = path.read_bytes()
    oc.save(path.with_name("other"), OLD)  # whose hidden files are its own
    for _ in range(2):  # the second finds what the first left
        with pytest.raises(Exception, match="SIGSYS"):
            in_child(lambda: save_without(unnamed, path, *calls, error=KILL))
        assert path.read_bytes() == before
        hidden = [name for name in names_in(path.parent) if HIDDEN.fullmatch(name)]
        assert len(hidden) == left
        assert set(names_in(path.parent)) == {"model", "other", *hidden}
    oc.save(path.with_name("other"), OLD)
    assert set(hidden) < set(names_in(path.parent))
    in_child(lambda: save_without(next_unnamed, path))
    assert names_in(path.parent) == ["model", "other"]
    assert list(oc.open(path)) == list(NEW)


def test_dying_after_the_rename_leaves_the_new_file_and_nothing_else(path, in_child):
    with pytest.raises(Exception, match="SIGSYS"):
        in_child(lambda: oc.save(path, Late(lambda: refuse("open the folder", error=KILL))))
    assert names_in(path.parent) == ["model"]
    assert (oc.open(path)["new"] == NEW["new"]).all()


@in_a_child
def test_what_is_not_durable_waits_for_no_disk(path):
    refuse("fsync", error=BROKEN)
    with pytest.raises(OSError, match="flush"):
        oc.save(path, NEW)
    with oc.open(path) as file:
        assert sorted(file) == sorted(OLD)
    oc.save(path, NEW, durable=False)
    with oc.open(path, verify=True) as file:
        assert sorted(file) == sorted(NEW)
    assert names_in(path.parent) == ["model"]
