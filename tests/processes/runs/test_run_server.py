"""The server of `onecopy run` among strangers, and processes that stop, flood it or write nonsense: none is held up."""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
from tests.support.children import CHILD_SECONDS, become, call_in_child, children_of, fork, forked, status_of
from tests.support.fuse_disk import fuse_disk
from tests.support.fuse_models import skip_without_fuse
from tests.support.run_server import connection, maker_of, request, stranger
from tests.support.same_answers import run_reported
from tests.support.waiting import until

from onecopy.base.run_constants import KEEPER
from onecopy.run import call_log, snapshot_server as keeping
from onecopy.store import protocol
from onecopy.store.protocol import GET_REMOTE, MAKE, WAIT
from onecopy.store.snapshots import NoSnapshot, take

MIB = 1 << 20
LOAD = "import numpy, sys; print(numpy.load(sys.argv[1]).sum(), flush=True)"
LOADED = f"{float(1 << 18)}\n"


@pytest.fixture
def npy(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.ones(1 << 18))
    return path


def is_shared(path):
    with take(str(path)) as one, take(str(path)) as two:
        return one.place == "memory" and os.fstat(one.descriptor).st_ino == os.fstat(two.descriptor).st_ino


# --- strangers and floods ---------------------------------------------------------------------------------------------


def test_idle_connections_of_another_user_hold_up_nobody(keeper, npy, nobody, in_child):
    address = "\0" + os.environ[KEEPER].split()[0]

    def hold(seconds):
        held, end = [], time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(BlockingIOError):
                held.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                held[-1].setblocking(False)
                held[-1].connect(address)
            if len(held) > 900:
                held.clear()
        return True

    with forked(lambda: os.setuid(nobody) or hold(30)):
        until(lambda: keeper._clients)
        assert all(is_shared(npy) for _ in range(5))


@pytest.mark.parametrize("owner", [4321, 65534])
def test_the_server_of_an_ordinary_user_serves_that_user_and_root_alone(owner, nobody, monkeypatch):
    monkeypatch.setattr(protocol, "ANSWER_S", CHILD_SECONDS)
    listening, server = protocol.listen()

    def serve():
        os.setuid(owner)
        keeping.SnapshotServer(listening, server, os.memfd_create("calls")).serve()

    def is_served(user):  # though it knows the key
        become(user, 12345)  # a group that says nothing
        with contextlib.suppress(ConnectionResetError):
            protocol.connected(server).close()
            return True
        return False

    with forked(serve):
        assert [user for user in (0, 4321, nobody, 1000) if call_in_child(is_served, user)] == [0, owner]
    os.close(listening)


def false_server(answer, monkeypatch):
    """Fork a process in the place of the server, which answers one connection once it has received the key."""
    listening, server = protocol.listen()
    monkeypatch.setenv(KEEPER, server)

    def serve():
        made, _ = socket.socket(fileno=listening).accept()
        with made:
            made.recv(64)
            return answer(made, server.split()[2].encode())

    pid = fork(serve)
    os.close(listening)
    return pid


def test_a_stranger_at_the_address_of_a_server_gets_no_file(npy, monkeypatch):
    def pretend(made, _):
        made.send(b"0" * 32)  # another proof
        return not any(socket.recv_fds(made, 64, 1)[:2])

    stranger = false_server(pretend, monkeypatch)
    with pytest.raises(NoSnapshot, match="closed the connection"):
        take(str(npy))
    assert status_of(stranger) == 0


@pytest.mark.parametrize(("is_silent", "reason"), [(True, "did not answer"), (False, "has ended")])
def test_a_server_that_ends_or_stops_after_its_proof_is_not_waited_for(npy, monkeypatch, is_silent, reason):
    monkeypatch.setattr(protocol, "PAUSE_S", 1)

    def answer(made, proof):
        made.send(proof)
        return bool(made.recv(64)) and (not is_silent or made.recv(64) == b"")

    answering = false_server(answer, monkeypatch)
    with pytest.raises(NoSnapshot, match=reason):
        take(str(npy))
    assert status_of(answering) == 0
    with pytest.raises(NoSnapshot, match="Connection refused"):
        take(str(npy))


def test_a_process_has_a_limited_number_of_connections_and_others_have_theirs(keeper, npy, monkeypatch, in_child):
    monkeypatch.setattr(keeping, "MAX_OF_PROCESS", 4)
    held = [connection() for _ in range(4)]
    with pytest.raises(NoSnapshot):
        take(str(npy))
    assert in_child(lambda: is_shared(npy))
    for each in held:
        each.close()
    until(lambda: not keeper._clients)
    assert is_shared(npy)


def test_a_connection_that_sends_nothing_is_closed_in_time(keeper, monkeypatch):
    monkeypatch.setattr(protocol, "ANSWER_S", 0)
    with stranger() as made:
        assert made.recv(16) == b""


def test_a_process_that_waits_for_a_long_copy_keeps_its_connection(keeper, npy):
    with maker_of(npy), connection() as waiting:
        request(waiting, npy)
        assert waiting.recv(16) == WAIT
        for client in tuple(keeper._clients):
            client.deadline = 0.0  # long ago: they have asked for something
        assert [waiting.recv(16) for _ in range(3)] == [WAIT] * 3
    assert is_shared(npy)


def test_no_request_makes_the_server_pause_and_no_program_inherits_what_it_sends(keeper, npy, monkeypatch):
    pauses = list[float]()
    clock = SimpleNamespace(monotonic=time.monotonic, monotonic_ns=time.monotonic_ns, sleep=pauses.append)
    monkeypatch.setattr(keeping, "time", clock)  # it sleeps after an error that it does not expect
    assert is_shared(npy)
    with connection() as made:
        made.send(protocol.LOG)
        reply, descriptor = protocol.receive(made)
    assert reply.startswith(protocol.HAVE)
    assert not os.get_inheritable(descriptor)
    os.close(descriptor)
    with connection() as made:
        request(made, npy, b"nonsense")
        assert made.recv(16) == b""
    assert is_shared(npy)
    assert pauses == []


def test_a_process_that_reads_no_answer_holds_up_nobody(keeper, npy, monkeypatch):
    monkeypatch.setattr(keeping, "_TICK_S", 0.0)
    with maker_of(npy) as maker, connection() as deaf:
        request(deaf, npy)
        until(lambda: len(keeper._clients) == 1)  # its answers have filled the socket
        maker.close()
        assert is_shared(npy)


# --- processes and servers that are stopped ---------------------------------------------------------------------------


def test_a_server_of_files_that_does_not_answer_holds_up_nobody(keeper, npy, tmp_path, in_child):
    skip_without_fuse(tmp_path / "probe")

    def ask():
        path = tmp_path / "fuse/x.npy"
        with fuse_disk(path.parent, {path.name: npy.read_bytes()}, seconds_valid=600) as disk, connection() as made:
            path.read_bytes()
            with path.open("rb") as opened:
                disk.server.send_signal(signal.SIGSTOP)
                socket.send_fds(made, [b"%s 0" % GET_REMOTE], [opened.fileno()])
                reply = made.recv(16)
                disk.kill_server()
                return reply

    assert in_child(ask) == MAKE


def fork_maker(path, work):
    """Fork a process that makes a snapshot, and calls `work` instead of going on."""

    def make():
        with maker_of(path):
            work()
            return True

    return fork(make)


def test_a_maker_that_is_stopped_is_replaced(keeper, npy, monkeypatch):
    monkeypatch.setattr(keeping, "STALLED_S", 0.3)
    maker = fork_maker(npy, lambda: os.kill(os.getpid(), signal.SIGSTOP))
    os.waitid(os.P_PID, maker, os.WSTOPPED)
    with connection() as made:
        request(made, npy)
        assert made.recv(16) == WAIT
    assert is_shared(npy)
    os.kill(maker, signal.SIGCONT)
    assert status_of(maker) == 0
    assert is_shared(npy)


def test_a_maker_whose_process_cannot_be_seen_is_replaced(keeper, npy, monkeypatch, in_child):
    monkeypatch.setattr(keeping, "STALLED_S", 0.3)
    ours, of_child = socket.socketpair()

    def leave_a_connection():
        with maker_of(npy) as made:
            socket.send_fds(of_child, [b"."], [made.fileno()])

    with ours, of_child:
        in_child(leave_a_connection)
        _, (maker,), *_ = socket.recv_fds(ours, 16, 1)
        with socket.socket(fileno=maker):
            assert is_shared(npy)


def test_a_maker_at_work_is_not_replaced(keeper, npy, monkeypatch):
    monkeypatch.setattr(keeping, "STALLED_S", 0.3)

    def compute():
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            pass

    maker = fork_maker(npy, compute)
    until(lambda: keeper.kept)
    with connection() as made:
        request(made, npy)
        replies = [made.recv(16)]
        while replies[-1] == WAIT:
            replies.append(made.recv(16))
    assert replies.count(WAIT) >= 4
    assert replies[-1] == MAKE  # it has ended
    assert status_of(maker) == 0


def test_a_server_that_is_stopped_holds_up_no_process_and_the_report_says_so(npy, tmp_path):
    code = f"{LOAD}\nsys.stdin.readline(); print(numpy.load(sys.argv[1]).sum(), flush=True); sys.stdin.readline()"
    report = tmp_path / "report.json"
    run = [sys.executable, "-m", "onecopy", "run", "-q", "--report", str(report), "--"]
    command = [*run, sys.executable, "-c", f"input();{code}", str(npy)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        until(lambda: children_of(server.pid))
        server.send_signal(signal.SIGSTOP)
        print(file=server.stdin, flush=True)
        assert server.stdout.readline() == LOADED
        server.send_signal(signal.SIGCONT)
        print("\n", file=server.stdin, flush=True)
        assert server.stdout.readline() == LOADED
    (found,) = json.loads(report.read_text())["copied"]
    assert "did not answer within 1 s" in found["reason"]


def test_a_server_that_did_not_answer_is_not_asked_again_until_that_is_wanted(monkeypatch):
    monkeypatch.setattr(protocol, "_silent", {})
    listening, server = protocol.listen()
    with socket.socket(fileno=listening) as silent:
        for asks in (True, False, True):
            if asks:
                protocol.ask_again()
            with pytest.raises(TimeoutError, match="did not answer within 1 s"):
                protocol.connected(server)
            assert bool(select.select([silent], [], [], 0)[0]) == asks
            if asks:
                silent.accept()[0].close()


# --- what processes write ---------------------------------------------------------------------------------------------

LINES = [
    '{"private": {"x": Infinity}, "pid": 1}',
    '{"private": {"x": 1}, "pid": 1e999}',
    "[" * 100_000,
    "\xff\0\x1b[2J",
    "x" * (2 << 20),
    '{"private": {"x": 1%s}, "pid": 1}' % ("0" * 4000),
    '{"function": "f", "path": "\\ud800", "shared": 5, "copied": 0, "reason": "", "pid": -5}',
    '{"mapped": [1], "path": {}}',
]


def test_no_line_that_a_process_writes_ends_the_server_or_the_report(npy, tmp_path):
    code = f"""
import os, sys, time
from onecopy.run import call_log
descriptor, _ = call_log._run_file(os.environ["ONECOPY_RUN"])
for line in open(sys.argv[2], "rb"):
    os.write(descriptor, line)
time.sleep(0.6)
{LOAD}
"""
    (tmp_path / "lines").write_bytes(b"".join(line.encode("latin-1") + b"\n" for line in LINES))
    printed, report = run_reported(sys.executable, "-c", code, npy, tmp_path / "lines", folder=tmp_path)
    assert printed == LOADED
    assert str(npy) in {one["path"] for one in report["shared"]}


def test_a_process_reports_at_its_end_what_it_has_written_to(npy, tmp_path):
    code = "import numpy, sys; array = numpy.load(sys.argv[1]); again = numpy.load(sys.argv[1]); array[:1 << 17] = 7"
    _, report = run_reported(sys.executable, "-c", code, npy, folder=tmp_path)
    (found,) = report["shared"]
    assert MIB <= found["private"] < 2 * MIB


def test_a_fork_sends_none_of_the_lines_that_its_parent_could_not_send(keeper, monkeypatch, in_child):
    monkeypatch.setenv(call_log.RUN, os.environ[KEEPER])
    monkeypatch.setattr(call_log, "_unsent", [])
    monkeypatch.setattr(call_log, "_exits", {os.getpid()})
    with monkeypatch.context() as silent:
        silent.setattr(protocol, "_silent", {os.environ[KEEPER]: time.monotonic() + 60})
        assert call_log.append({"line": "first"}) == 0
    child = in_child(lambda: call_log.append({"line": "of the child"}))
    assert call_log.append({"line": "last"}) == os.getpid()
    found = [(line["line"], line["pid"]) for line in call_log.parse_lines(call_log.read_run(os.environ[KEEPER]))]
    assert found == [("of the child", child), ("first", os.getpid()), ("last", os.getpid())]


# --- namespaces and limits --------------------------------------------------------------------------------------------

NAMESPACES = [["-U"], ["-pf"], ["-m"], ["-U", "-r", "-p", "-f", "-m", "--mount-proc"]]


@pytest.mark.parametrize("options", NAMESPACES, ids=" ".join)
def test_processes_in_namespaces_of_their_own_share_and_are_reported(options, npy, tmp_path):
    if subprocess.run(["unshare", *options, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no namespaces")
    twice = " && ".join(2 * [f"unshare {' '.join(options)} {sys.executable} -c '{LOAD}' {npy}"])
    printed, report = run_reported("sh", "-c", twice, folder=tmp_path)
    assert printed == 2 * LOADED
    (found,) = report["shared"]
    assert (found["path"], found["bytes"], len(found["pids"])) == (str(npy), 1 << 21, 2)
    assert report["saved"] == 1 << 21
    assert not report["copied"]


def test_more_files_than_the_server_may_open_are_read_as_always(tmp_path):
    code = """
import sys, numpy as np
arrays = [np.fromfile(f"{sys.argv[1]}/{n}", np.uint8) for n in range(60)]
print([int(array[7]) for array in arrays] == list(range(60)))
"""
    for number in range(60):
        (tmp_path / str(number)).write_bytes(bytes([number]) * (MIB + 1))
    printed, report = run_reported(
        sys.executable, "-c", code, tmp_path, folder=tmp_path, before=("sh", "-c", 'ulimit -n 64; exec "$@"', "sh")
    )
    assert printed == "True\n"
    assert len(report["shared"]) == 32
    assert {one["reason"] for one in report["copied"]} == {"onecopy run keeps too many snapshots"}
