"""The snapshots of `onecopy run`: built once, whichever process dies, trusted within one user, gone with the run."""

import contextlib
import fcntl
import mmap
import os
import socket
import time
from pathlib import Path

import numpy as np
import pytest
from tests.support.children import talking
from tests.support.run_server import connection, maker_of, request, stranger
from tests.support.waiting import until

from onecopy import _core
from onecopy.base.run_constants import KEEPER
from onecopy.run import snapshot_server as keeping
from onecopy.store import snapshots
from onecopy.store.protocol import GET, MADE, MAKE, WAIT
from onecopy.store.snapshots import NoSnapshot, take

MIB = 1 << 20


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "x.bin"
    path.write_bytes(os.urandom(2 * MIB))
    return path


def contents(taken):
    with taken:
        return os.pread(taken.descriptor, taken.nbytes, 0)


def inode_of(path):
    with take(str(path)) as taken:
        return os.fstat(taken.descriptor).st_ino


def test_the_same_contents_are_one_memory_and_other_contents_another(keeper, file):
    before = file.read_bytes()
    with take(str(file)) as one, take(str(file)) as two:
        assert one.place == two.place == "memory"
        assert os.fstat(one.descriptor).st_ino == os.fstat(two.descriptor).st_ino
        facts = file.stat()
        with file.open("r+b") as writer:
            writer.write(b"new")
        os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))
        assert contents(take(str(file))) == b"new" + before[3:]
        assert contents(one) == before


def test_a_file_has_no_snapshot_while_a_process_may_write_to_it(keeper, file):
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 0) as mapped:
        opened.close()
        mapped[0:1] = b"a"
        with pytest.raises(NoSnapshot, match="open for writing"):
            take(str(file))
        mapped[0:1] = b"b"
    assert contents(take(str(file)))[:1] == b"b"


@pytest.mark.parametrize("pause", [0.0, 0.06])
def test_a_file_that_is_written_all_the_time_gives_whole_contents_or_none(keeper, file, pause):
    code = """
import sys, time
while True:
    for c in b"ab":
        with open(sys.argv[1], "r+b", 0) as file:
            file.write(bytes([c]) * (2 << 20))
        time.sleep(float(sys.argv[2]))
"""
    tries = []
    file.write_bytes(bytes(2 * MIB))  # begins as no write of the program does

    def is_enough():
        tries.append(False)
        with contextlib.suppress(NoSnapshot):
            found = contents(take(str(file)))
            assert found in (b"a" * len(found), b"b" * len(found))
            tries[-1] = True
        return sum(tries) >= 20 or (not pause and len(tries) >= 60)

    with talking(code, file, pause):
        until(lambda: file.read_bytes()[:1] in (b"a", b"b"))
        until(is_enough)
    time.sleep(0.05)
    assert contents(take(str(file))) == file.read_bytes()


def test_a_builder_that_dies_is_followed_by_the_next_that_waits(keeper, file):
    with maker_of(file) as first, connection() as second:
        request(second, file)
        assert second.recv(16) == WAIT
        first.close()
        until(lambda: second.recv(16) == MAKE)
    assert contents(take(str(file))) == file.read_bytes()


def sealed(data, seals=fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE):
    memory = os.memfd_create("onecopy:forged", os.MFD_ALLOW_SEALING)
    os.write(memory, data)
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, seals)
    return memory


def send_made(made, memory):
    socket.send_fds(made, [MADE], [memory])
    os.close(memory)


FORGED = {
    "not sealed": lambda size: sealed(bytes(size), 0),
    "not sealed against writes": lambda size: sealed(bytes(size), fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW),
    "of another size": lambda size: sealed(bytes(size - 1)),
    "a pipe": lambda _: os.pipe()[0],
}


@pytest.mark.parametrize("name", FORGED)
def test_memory_that_is_not_a_sealed_copy_is_refused(keeper, file, name):
    with maker_of(file) as made:
        send_made(made, FORGED[name](2 * MIB))
        assert made.recv(16) == b""
    assert contents(take(str(file))) == file.read_bytes()


def test_what_a_maker_sends_after_another_one_changes_nothing(keeper, file, monkeypatch):
    monkeypatch.setattr(keeping, "STALLED_S", 0.0)
    monkeypatch.setattr(keeping, "_progress_of", lambda _: "")
    with maker_of(file) as late:
        inode = inode_of(file)
        send_made(late, sealed(bytes(2 * MIB)))
        assert late.recv(16) == b""
        assert inode_of(file) == inode


def test_a_request_that_is_none_ends_its_connection_only(keeper, file):
    for message in (GET, b"%s x" % GET, b"%s 0 0" % GET, b"get0x", b"got 0"):
        with connection() as made:
            request(made, file, message)
            assert made.recv(16) == b""
    with connection() as made:
        made.send(b"get 0")  # without a file
        assert made.recv(16) == b""
    with connection() as made:
        request(made, Path("/dev/null"))
        assert made.recv(16) in (b"", MAKE)
    with maker_of(file) as made:
        request(made, file)
        assert made.recv(16) == b""
    for message in (b"x", b"get 0", b"get wrong", b"made", b"log", b"\xff" * 60):
        with stranger() as made:  # who does not know the key
            request(made, file, message)
            assert made.recv(16) == b""
    with maker_of(file):
        pass


def test_a_process_of_another_user_gets_what_its_own_user_made(keeper, file, nobody, in_child):
    file.chmod(0o644)
    inode = inode_of(file)

    def poison():
        with maker_of(Path(file.name)) as made:
            send_made(made, sealed(bytes(2 * MIB)))

    in_child(poison, uid=nobody)
    assert inode_of(file) == inode
    assert contents(take(str(file))) == file.read_bytes()


def test_what_no_process_maps_is_released_when_there_is_much(keeper, tmp_path, monkeypatch):
    monkeypatch.setattr(keeping, "MAX_KEPT", 3)
    paths = [tmp_path / f"{i}.npy" for i in range(8)]
    for path in paths:
        np.save(path, np.arange(1 << 18))
    with take(str(paths[0])) as held:
        array = _core.owned_array(held.descriptor, 128, (5,), np.dtype(np.int64))
        inode = os.fstat(held.descriptor).st_ino
    for path in paths[1:]:
        take(str(path)).close()
    assert keeper.kept <= 4
    assert inode_of(paths[0]) == inode
    assert array.tolist() == [0, 1, 2, 3, 4]
    array.resize(6, refcheck=False)  # onto the heap
    assert array.tolist() == [0, 1, 2, 3, 4, 0]


def test_what_was_used_last_is_released_last(keeper, tmp_path, monkeypatch):
    monkeypatch.setattr(keeping, "MAX_KEPT", 3)
    a, b, c, d = paths = [tmp_path / name for name in "abcd"]
    for path in paths:
        path.write_bytes(os.urandom(MIB))
    first, second, third = map(inode_of, (a, b, c))
    assert inode_of(a) == first
    inode_of(d)  # releases one
    assert (inode_of(a), inode_of(c)) == (first, third)
    assert inode_of(b) != second


def test_what_was_sent_to_a_process_that_has_not_opened_it_yet_is_kept(keeper, file, tmp_path, monkeypatch):
    monkeypatch.setattr(keeping, "MAX_KEPT", 0)
    (tmp_path / "other").write_bytes(bytes(2 * MIB))
    take(str(file)).close()
    with connection() as made:
        request(made, file)
        _, (sent,), *_ = socket.recv_fds(made, 16, 1)
        take(str(tmp_path / "other")).close()
        assert inode_of(file) == os.fstat(sent).st_ino
        os.close(sent)


def test_snapshots_of_files_that_changed_are_released(keeper, file):
    for i in range(5):
        file.write_bytes(bytes([i]) * 2 * MIB)
        take(str(file)).close()
    assert keeper.kept == 1


@pytest.mark.parametrize("place", ["memory", "store"])
def test_snapshots_of_one_file_that_begin_with_other_zeros_are_others(keeper, file, monkeypatch, tmp_path, place):
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / "store"))
    if place == "store":
        monkeypatch.delenv(KEEPER)
    inodes = {}
    for lead in (0, 24, 56, 24, 0):
        with take(str(file), lead) as taken:
            assert (taken.place, taken.lead, taken.nbytes) == (place, lead, 2 * MIB)
            assert os.pread(taken.descriptor, 3 * MIB, 0) == bytes(lead) + file.read_bytes()
            assert inodes.setdefault(lead, os.fstat(taken.descriptor).st_ino) == os.fstat(taken.descriptor).st_ino
    assert len(set(inodes.values())) == 3


def test_without_memory_the_store_has_the_snapshot(keeper, file, monkeypatch, tmp_path):
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / "store"))
    monkeypatch.setattr(snapshots._core, "available_memory", lambda: (MIB, "the test"))
    with take(str(file)) as taken:
        assert taken.place == "store"
        assert contents(taken) == file.read_bytes()


@pytest.mark.parametrize(("error", "raised"), [(PermissionError, NoSnapshot), (TimeoutError, TimeoutError)])
def test_what_the_system_refuses_is_no_snapshot_and_what_times_out_does_so(keeper, file, monkeypatch, error, raised):
    def refuse(*_, **__):
        raise error(1, "refused")

    monkeypatch.setattr(snapshots._core, "take_snapshot", refuse)
    with pytest.raises(raised, match="refused") as found:
        take(str(file))
    assert raised is NoSnapshot or found.value.filename == str(file)
