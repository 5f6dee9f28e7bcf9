"""Saving to full disks, to folders and names that will not do, to places that change, and while system calls fail.

The error names the call and the file, the old file stays, and nothing else is left.
"""

import errno
import functools
import gc
import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.support.children import in_a_child
from tests.support.refusals import os_error
from tests.support.seccomp import refuse
from tests.support.writing import HIDDEN, KILL, MIB, NEW, OLD, RENAMES, Late, names_in, save_without

import onecopy as oc
from onecopy import _core


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "folder" / "model"
    path.parent.mkdir()
    oc.save(path, OLD)
    return path


@pytest.fixture(params=[True, False])
def unnamed(request) -> bool:
    return bool(request.param)


@pytest.fixture(params=["tmpfs", "ext4", "few inodes"])
def disk(request, small_disk) -> Callable[[], Path]:
    return functools.partial(small_disk, request.param)


@pytest.mark.parametrize("reserved", [True, False])
@in_a_child
def test_a_full_disk_is_reported_and_the_old_file_stays(disk, unnamed, reserved):
    folder = disk()
    path = folder / "model"
    oc.save(path, OLD)
    before, has_inodes = path.read_bytes(), os.statvfs(folder).f_ffree > 1 or not os.statvfs(folder).f_files
    (folder / "ballast").write_bytes(bytes(3 * MIB if has_inodes else 0))
    free = os.statvfs(folder).f_bfree
    with os_error(errno.ENOSPC, path, "No space left"):
        save_without(unnamed, path, *(() if reserved else ("fallocate",)))
    assert set(names_in(folder)) - {"lost+found"} == {"ballast", "model"}
    assert (path.read_bytes(), os.statvfs(folder).f_bfree) == (before, free)


@in_a_child
def test_a_read_only_disk_is_reported(disk):
    folder = disk()
    oc.save(folder / "model", OLD)
    subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
    with os_error(errno.EROFS, match="Read-only"):
        oc.save(folder / "model", NEW)
    assert names_in(folder)[-1] == "model"
    assert list(oc.open(folder / "model")) == list(OLD)


@in_a_child
def test_a_link_to_another_disk_is_written_there(disk, path, unnamed):
    folder = disk()
    path.unlink()
    path.symlink_to(folder / "model")
    if not unnamed:
        refuse("O_TMPFILE")
    oc.save(path, {"a": np.arange(10)})
    assert list(oc.open(folder / "model")) == ["a"]
    assert path.is_symlink()
    assert [name for name in names_in(folder) if name != "lost+found"] == names_in(path.parent) == ["model"]


def test_links_of_the_user_and_of_root_are_followed_and_those_of_others_are_not(tmp_path, nobody, in_child):
    other = 12345
    tmp_path.chmod(0o777)
    for owner in (0, nobody, other):
        Path(f"{owner}").symlink_to(f"file of {owner}")
        os.chown(f"{owner}", owner, owner, follow_symlinks=False)
    for owner in (0, nobody):
        in_child(oc.save, f"{owner}", NEW, uid=nobody)
    with os_error(errno.EACCES, match=f"it is a symbolic link of user {other}"):
        in_child(oc.save, f"{other}", NEW, uid=nobody)
    assert names_in(tmp_path) == sorted([*map(str, (0, nobody, other)), "file of 0", f"file of {nobody}"])


PLACES = {
    "a folder": (Path.mkdir, errno.EISDIR),
    "a link to a folder": (lambda path: path.symlink_to("."), errno.EISDIR),
    "a link into nowhere": (lambda path: path.symlink_to("no/where"), errno.ENOENT),
    "a loop of links": (lambda path: path.symlink_to("model"), errno.ELOOP),
    "a FIFO": (os.mkfifo, errno.EEXIST),
    "a device": (lambda path: path.symlink_to("/dev/null"), errno.EEXIST),
}


@pytest.mark.parametrize("kind", PLACES)
def test_what_cannot_be_replaced_is_reported_and_stays(path, kind):
    make, number = PLACES[kind]
    path.unlink()
    make(path)
    before = path.lstat()
    with pytest.raises(OSError, match="save: ") as raised:
        oc.save(path, NEW)
    assert raised.value.errno == number
    assert number != errno.EEXIST or "a FIFO, socket or device, which cannot be replaced" in str(raised.value)
    assert raised.value.filename.startswith((str(path.parent), "/dev/null"))  # where a link leads to
    assert path.lstat() == before
    assert names_in(path.parent) == ["model"]


def test_names_of_255_bytes_have_room_and_longer_ones_are_reported(tmp_path, in_child, unnamed):
    for name in ("n" * 255, "é" * 127 + "n"):
        in_child(lambda name=name: save_without(unnamed, tmp_path / name))
        assert list(oc.open(tmp_path / name)) == list(NEW)
        with os_error(errno.ENAMETOOLONG, tmp_path / (name + "n"), f"save: {os.strerror(errno.ENAMETOOLONG)}"):
            in_child(lambda name=name: save_without(unnamed, tmp_path / (name + "n")))
    assert len(names_in(tmp_path)) == 2


def test_a_folder_that_may_not_be_written_is_a_permission_error_and_need_not_be_read(path, nobody, in_child):
    path.chmod(0o666)  # which does not help
    for mode in (0o555, 0o000, 0o644):
        path.parent.chmod(mode)
        with os_error(errno.EACCES, "folder/model"):
            in_child(oc.save, "folder/model", NEW, uid=nobody)
    assert list(oc.open(path)) == list(OLD)
    path.parent.chmod(0o333)
    in_child(oc.save, "folder/model", NEW, uid=nobody)
    assert list(oc.open(path)) == list(NEW)
    assert names_in(path.parent) == ["model"]


def test_a_file_of_another_user_in_a_shared_folder_stays(path, nobody, in_child, unnamed):
    path.parent.chmod(0o1777)  # as /tmp: every user may write, and replace their own files
    with pytest.raises(PermissionError) as raised:
        in_child(lambda: save_without(unnamed, Path("folder/model")), uid=nobody)
    assert (raised.value.strerror, raised.value.filename) == ("save: Operation not permitted", "folder/model")
    assert list(oc.open(path)) == list(OLD)
    assert names_in(path.parent) == ["model"]


@in_a_child
def test_without_proc_a_file_is_saved_all_the_same(path, small_disk):
    """A file without a name gets one through /proc: where there is none, it has a hidden one from the start."""
    small_disk("tmpfs", Path("/proc"))
    os.umask(0o027)
    during: list[str] = []
    oc.save(path, Late(lambda: during.extend(names_in(path.parent))))
    assert len([name for name in during if HIDDEN.fullmatch(name)]) == 1
    assert names_in(path.parent) == ["model"]
    assert list(oc.open(path)) == list(NEW)
    assert path.stat().st_mode & 0o777 == 0o600  # only /proc reports the umask without changing it for all threads


@in_a_child
def test_a_hidden_file_is_its_owners_alone_until_it_is_finished(path):
    modes: list[int] = []
    refuse("O_TMPFILE")
    os.umask(0o027)
    hidden = lambda: [one for one in path.parent.iterdir() if HIDDEN.fullmatch(one.name)]  # noqa: E731
    oc.save(path, Late(lambda: modes.extend(one.stat().st_mode & 0o777 for one in hidden())))
    assert modes == [0o600]
    assert path.stat().st_mode & 0o777 == 0o640


@in_a_child
def test_a_forked_child_that_lets_go_of_a_writer_leaves_its_parents_file(path):
    refuse("O_TMPFILE")
    writer = _core.make_writer(str(path), [("a", "U8", [3])], metadata={}, align=None, checksum=False, durable=True)
    pid = os.fork()
    if pid == 0:
        del writer
        gc.collect()
        os._exit(0)
    os.waitpid(pid, 0)
    writer.write(b"abc")
    writer.commit()
    assert oc.open(path)["a"].tobytes() == b"abc"
    assert names_in(path.parent) == ["model"]


def save_meanwhile(unnamed: bool, path: Path, action: Callable[[], object]) -> None:
    if not unnamed:
        refuse("O_TMPFILE")
    oc.save(path, Late(action))


CHANGES = {
    "removed": (lambda path: shutil.rmtree(path.parent), errno.ENOENT, []),
    "moved": (lambda path: path.parent.rename(path.parent.with_name("moved")), errno.ENOENT, ["model"]),
    "replaced": (  # the file must not appear in a folder that was not checked
        lambda path: (path.parent.rename(path.parent.with_name("moved")), path.parent.mkdir()),
        errno.ESTALE,
        ["model"],
    ),
    "no longer a file": (lambda path: (path.unlink(), path.mkdir()), errno.EISDIR, []),
}
"""What becomes of the folder or the target meanwhile, the error, and the files that are left anywhere."""


@pytest.mark.parametrize("kind", CHANGES)
def test_a_place_that_goes_away_meanwhile_is_reported(path, in_child, unnamed_files, unnamed, kind):
    if unnamed and not unnamed_files:
        pytest.skip("there are no unnamed files here")
    change, number, left = CHANGES[kind]
    with os_error(number, path, "save"):
        in_child(save_meanwhile, unnamed, path, lambda: change(path))
    assert [name for _, _, names in os.walk(path.parent.parent) for name in names] == left


@pytest.mark.parametrize(
    "action",
    [
        lambda path: oc.save(path, {"other": np.arange(3)}),
        Path.unlink,
        lambda path: path.write_bytes(b"something else"),
        lambda path: path.chmod(0),
    ],
)
def test_a_target_that_is_replaced_meanwhile_is_replaced_again(path, in_child, unnamed, action):
    in_child(save_meanwhile, unnamed, path, lambda: action(path))
    assert list(oc.open(path)) == list(NEW)
    assert names_in(path.parent) == ["model"]


# --- system calls that fail or kill ----------------------------------------------------------------------------------

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
    with os_error(BROKEN, path, "flush folder of"):
        in_child(lambda: save_without(unnamed, path, "open the folder", error=BROKEN))
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
    with os_error(errno.EFBIG, path, "write: File too large"):
        save_without(unnamed, path, "fallocate")
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
