"""Runs of one user that were started separately hold one copy; nobody else gets it, or can give them wrong bytes."""

import contextlib
import fcntl
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.children import fork
from tests.support.waiting import until

import onecopy as oc
from onecopy.store import protocol, servers
from onecopy.store.snapshots import take

pytestmark = pytest.mark.processes
NBYTES = 8 << 20
PROGRAM = """
import os, sys, numpy as np
array = np.load(sys.argv[1])
address = array.__array_interface__["data"][0]
for line in open("/proc/self/maps"):
    begin, end = (int(part, 16) for part in line.split()[0].split("-"))
    if begin <= address < end:
        print(array.sum(), line.split()[4], line.split()[5], flush=True)
sys.stdin.readline()
"""


class Run:
    """One `onecopy run` of a program that loads a file, prints its sum and the inode of its memory, and waits."""

    def __init__(self, path: Path, *options: str, before: tuple[str, ...] = (), **environment: str) -> None:
        command = [*before, sys.executable, "-m", "onecopy", "run", *options, "--", sys.executable, "-c", PROGRAM, path]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=os.environ | environment,
        )  # fmt: skip

    def loaded(self) -> tuple[float, int, str]:
        total, inode, path = self.process.stdout.readline().split()
        return float(total), int(inode), path

    def end(self) -> str:
        return self.process.communicate("\n", timeout=100)[1]


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "x.npy"
    np.save(path, np.random.default_rng(0).random(NBYTES // 8))
    return path


@pytest.fixture
def run(file: Path) -> Iterator[Callable[..., Run]]:
    """Give a function that starts a run; all end with the test, whatever became of their servers."""
    with contextlib.ExitStack() as runs:

        def start(*options: str, of: Path = file, **more: Any) -> Run:
            made = Run(of, *options, **more)
            runs.callback(made.process.communicate)  # closes stdin, at which the program ends
            runs.callback(made.process.kill)
            return made

        yield start


def sockets() -> list[str]:
    folder = oc.Store().folder / servers.FOLDER
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@pytest.mark.parametrize("count", [4, *3 * [pytest.param(10, marks=pytest.mark.slow)]])
def test_runs_that_start_together_hold_one_copy(run, file, count):
    runs = [run() for _ in range(count)]
    loaded = {one.loaded() for one in runs}
    ((total, _, place),) = loaded
    assert total == np.load(file).sum()
    assert place.startswith("/memfd:onecopy")
    assert "other runs of this user map the same copy" in runs[0].end()


@pytest.mark.slow
def test_a_copy_outlives_the_server_that_made_it_and_all_sockets_their_servers(run):
    first, second = run(), None
    loaded = first.loaded()
    second = run()
    assert second.loaded() == loaded
    first.process.kill()
    third = run()
    assert third.loaded() == loaded
    for one in (second, third):
        one.process.kill()
        one.process.wait()
    assert len(sockets()) == 2  # of `second` and `third`: the kernel does not remove sockets
    oc.Store().prune()
    assert sockets() == []
    last = run()
    assert last.loaded()[1] != loaded[1]
    assert len(sockets()) == 1
    last.end()
    assert sockets() == []


def test_a_server_that_is_stopped_is_not_waited_for(run):
    stopped = run()
    total, inode, _ = stopped.loaded()
    stopped.process.send_signal(signal.SIGSTOP)
    again, other, place = run().loaded()
    assert again == total
    assert (other != inode, place.startswith("/memfd:onecopy")) == (True, True)


def test_all_programs_of_a_user_use_the_copy_of_a_server_until_the_contents_change(run, file):
    before = run().loaded()
    with take(str(file)) as taken, oc.open(file, mode="snapshot") as array:  # without a run
        assert (taken.place, os.fstat(taken.descriptor).st_ino) == ("memory", before[1])
        assert array.mode_reason == "a snapshot in the memory of onecopy run"
    assert not run("--keep").loaded()[2].startswith("/memfd:")  # but for those that keep their copies in the store
    np.save(file, np.ones(NBYTES // 8))
    after = run().loaded()
    assert (after[0], after[1] != before[1]) == (NBYTES // 8, True)


NAMESPACES = ("unshare", "--mount", "--pid", "--fork", "--ipc", "--net", "--uts", "--mount-proc")


def test_containers_with_a_shared_volume_hold_one_copy(run, tmp_path):
    if subprocess.run([*NAMESPACES, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no namespaces can be made here")
    volume = {"ONECOPY_CACHE": str(tmp_path / "volume")}
    runs = [run(before=NAMESPACES, **volume) for _ in range(3)]
    assert len({one.loaded() for one in runs}) == 1


STRANGER = """
import socket, sys
import onecopy as oc
from onecopy.store import protocol, servers
servers.is_same_user = lambda _: True
print(oc.open(sys.argv[1], mode="snapshot").mode_reason, flush=True)
listening = socket.socket(fileno=servers.Address(oc.Store().folder).listening)
print("listening", flush=True)
print(protocol.receive(listening.accept()[0]), flush=True)
"""


def test_a_process_of_another_user_namespace_gets_nothing_and_is_not_asked(run, file):
    """Though it looks for no namespace itself: the server sends it nothing, and no process sends it a file."""
    run().loaded()
    command = ["unshare", "--user", "--map-root-user", sys.executable, "-c", STRANGER, file]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as stranger:
        if not (reason := stranger.stdout.readline()):
            pytest.skip(f"no user namespace can be made here: {stranger.communicate()[1]}")
        assert reason == "a snapshot in the store\n"
        assert stranger.stdout.readline() == "listening\n"
        np.save(file, np.ones(NBYTES // 8))
        assert run().loaded()[0] == NBYTES // 8
        stranger.kill()
        received = stranger.communicate()[0]
        assert "get" not in received
        assert "ask" not in received


def test_a_process_of_another_user_gets_nothing(run, file, nobody, in_child):
    run().loaded()
    folder = oc.Store().folder / servers.FOLDER
    (name,) = sockets()

    def ask() -> bytes:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger, Path(file.name).open("rb") as opened:
            stranger.connect(f"{folder}/{name}")
            with contextlib.suppress(BrokenPipeError):
                socket.send_fds(stranger, [b"get 0"], [opened.fileno()])
            with contextlib.suppress(ConnectionResetError):
                return stranger.recv(100)
            return b""

    with pytest.raises(PermissionError):
        in_child(ask, uid=nobody)
    for parent in (folder, *folder.parents[:-1]):  # as if an administrator had opened all folders
        parent.chmod(parent.stat().st_mode | 0o005)
    (folder / name).chmod(0o777)
    assert in_child(ask) != b""
    assert in_child(ask, uid=nobody) == b""


@contextlib.contextmanager
def false_server(answer: Callable[[socket.socket, int], None]) -> Iterator[list[bytes]]:
    """Serve as a process of the same user, with a function that answers a question about a file."""
    address, asked = servers.Address(oc.Store().folder), list[bytes]()
    listening = socket.socket(fileno=address.listening)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = listening.accept()[0]
                with connection, contextlib.suppress(OSError):
                    message, file = protocol.receive(connection)
                    asked.append(message)
                    try:
                        answer(connection, file)
                    finally:
                        if file >= 0:
                            os.close(file)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield asked
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()
        listening.close()
        address.close()


def send_memory(connection: socket.socket, content: bytes, seals: int) -> None:
    with os.fdopen(os.memfd_create("onecopy:x", os.MFD_ALLOW_SEALING), "wb", buffering=0) as memory:
        memory.write(content)
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, seals)
        protocol.send(connection, protocol.HAVE, memory.fileno())


SEALED = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
ANSWERS = {
    "silence": lambda connection, _: connection.recv(1),
    "an end": lambda *_: None,
    "noise": lambda connection, _: connection.send(b"\xff" * 60),
    "memory that may change": lambda connection, file: send_memory(connection, os.pread(file, 1 << 30, 0), 0),
    "memory of another size": lambda connection, _: send_memory(connection, b"x", SEALED),
    "a file": lambda connection, file: protocol.send(connection, protocol.HAVE, file),
    "no memory": lambda connection, _: protocol.send(connection, protocol.HAVE),
    "waits, then silence": lambda connection, _: (protocol.send(connection, protocol.WAIT), connection.recv(1)),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_server_that_answers_wrongly_changes_nothing(run, file, answer, monkeypatch):
    monkeypatch.setattr(protocol, "PAUSE_S", 0.2)
    with false_server(ANSWERS[answer]) as asked:
        with take(str(file)) as taken:
            assert taken.place == "store"
            assert os.pread(taken.descriptor, taken.nbytes, 0) == file.read_bytes()
        total, _, place = run().loaded()
    assert total == np.load(file).sum()
    assert place.startswith("/memfd:onecopy")
    assert [message.split()[0] for message in asked if message] == [protocol.GET, protocol.ASK]


def test_a_server_that_never_has_a_copy_is_not_waited_for(file, monkeypatch):
    monkeypatch.setattr(protocol, "PAUSE_S", 0.2)

    def wait(connection: socket.socket, _: int) -> None:
        while True:  # until the connection is closed
            protocol.send(connection, protocol.WAIT)
            time.sleep(0.01)

    with false_server(wait), take(str(file)) as taken:
        assert taken.place == "store"


def test_a_server_survives_what_any_process_of_its_user_sends(run, file):
    loaded = run().loaded()
    (name,) = sockets()
    path = f"{oc.Store().folder}/{servers.FOLDER}/{name}"
    messages = (b"x", protocol.GET, b"ask", b"ask x y", b"ask 0 y", b"get " + b"9" * 60, protocol.LOG, protocol.SHORT)
    for message, place, is_sent in itertools.product(messages, ("/dev/null", "/proc/self/maps"), (True, False)):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client, contextlib.suppress(OSError):
            client.connect(path)
            with open(place, "rb") as sent:  # noqa: PTH123
                protocol.send(client, message, sent.fileno() if is_sent else -1)
            client.settimeout(0.05)
            client.recv(100)
    flood = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(200)]
    for client in flood:
        client.setblocking(False)
        client.connect(path)
    assert run().loaded() == loaded
    for client in flood:
        client.close()


def test_a_run_that_cannot_find_others_says_why(run, tmp_path):
    (tmp_path / "cache").mkdir(mode=0o755)
    alone = run()
    assert alone.loaded()[2].startswith("/memfd:")
    assert "not shared with other runs of this user: [Errno 13] use as a store: other users have access" in alone.end()


def test_a_descriptor_that_does_not_permit_reading_gets_nothing(run, file):
    run().loaded()
    for request, flags in itertools.product((b"get 0", b"ask 0 x"), (os.O_PATH, os.O_WRONLY)):
        _, connection = servers.connected() or pytest.fail("no server")
        with contextlib.closing(connection):
            descriptor = os.open(file, flags)
            protocol.send(connection, request, descriptor)
            os.close(descriptor)
            protocol.limit(connection, 5)
            assert protocol.receive(connection) == (b"", -1)


def test_no_server_is_asked_through_a_link_or_in_a_folder_that_others_may_write(run, file, tmp_path):
    with false_server(lambda *_: None) as asked:
        (name,) = sockets()
        folder = oc.Store().folder / servers.FOLDER
        (folder / name).rename(tmp_path / name)
        (folder / "0").symlink_to(tmp_path / name)
        assert run().loaded()[0] == np.load(file).sum()
        (tmp_path / name).rename(folder / name)
        folder.chmod(0o720)  # the group could put a socket of its own there
        assert run().loaded()[0] == np.load(file).sum()
    assert asked == []


def test_of_two_servers_that_look_for_a_copy_at_the_same_time_only_the_later_one_waits(run, file):
    found = threading.Event()

    def wait(connection: socket.socket, _: int) -> None:
        while not found.wait(0.3):
            protocol.send(connection, protocol.WAIT)

    with false_server(wait) as asked:
        others = sockets()
        looking = run()
        until(lambda: asked)
        (name,) = set(sockets()) - set(others)
        for began, reply in (b"0-earlier", protocol.NONE), (b"9-later", protocol.WAIT):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other, file.open("rb") as opened:
                other.connect(f"{oc.Store().folder}/{servers.FOLDER}/{name}")
                socket.send_fds(other, [b"ask 0 " + began], [opened.fileno()])
                assert other.recv(100) == reply
        found.set()
        assert looking.loaded()[0] == np.load(file).sum()


@pytest.mark.slow
def test_a_process_that_is_stopped_while_it_makes_a_copy_blocks_no_other_run(run, file, tmp_path):
    other = tmp_path / "other.npy"
    np.save(other, np.zeros(NBYTES // 8))
    run(of=other).loaded()

    def make() -> None:
        _, connection = servers.connected() or pytest.fail("no server")
        with contextlib.closing(connection), file.open("rb") as opened:
            protocol.limit(connection, 5)
            protocol.send(connection, b"get 0", opened.fileno())
            while (answer := protocol.receive(connection)[0]) == protocol.WAIT:
                pass
            assert answer == protocol.MAKE
            os.kill(os.getpid(), signal.SIGSTOP)

    maker = fork(make)
    os.waitpid(maker, os.WUNTRACED)
    try:
        assert run().loaded()[0] == np.load(file).sum()
    finally:
        os.kill(maker, signal.SIGKILL)
        os.waitpid(maker, 0)


@pytest.mark.slow
def test_a_process_that_waits_for_a_copy_of_another_run_is_not_replaced(tmp_path):
    large = tmp_path / "large.npy"  # it waits for 5 s and the time of a slow copy
    np.save(large, np.ones(NBYTES))

    def keep_waiting(connection: socket.socket, _: int) -> None:
        for _ in range(24):
            protocol.send(connection, protocol.WAIT)
            time.sleep(0.3)

    code = "import os, sys, numpy as np; child = os.fork(); "
    code += "os.write(1, b'%d\\n' % np.load(sys.argv[1]).sum()); child and os.wait()"
    command = [sys.executable, "-m", "onecopy", "run", "--", sys.executable, "-c", code, large]
    with false_server(keep_waiting) as asked:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(NBYTES)] * 2
    assert [message.split()[0] for message in asked] == [protocol.ASK]
    assert "2 x 67.1 MB   large.npy: numpy.load; a snapshot in memory" in done.stderr


@pytest.mark.parametrize("how", ["--map", "ONECOPY_MAP"])
def test_files_of_folders_that_nobody_changes_are_mapped_themselves(run, file, tmp_path, how):
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    mapped = run("--map", str(link)) if how == "--map" else run(ONECOPY_MAP=f"/none:{link}")
    _, inode, place = mapped.loaded()
    assert (inode, place) == (file.stat().st_ino, str(file))
    assert "8.39 MB   x.npy: numpy.load; the file itself" in mapped.end()
    assert run(ONECOPY_MAP=str(tmp_path)[:-1]).loaded()[2].startswith("/memfd:")
