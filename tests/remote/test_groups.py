"""Nodes that fetch together, each a thread of this process: who is asked for what, and what a node that lies can do."""

import base64
import contextlib
import hashlib
import logging
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import PATIENCE, until

from onecopy.remote import boards, fetch, groups
from onecopy.remote.boards import Board, JobNodes
from onecopy.remote.channels import Channel, Listener, NodeLostError
from onecopy.remote.groups import SAMPLE, Group
from onecopy.remote.origin import Origin, versions_of
from onecopy.remote.pieces import PartialFile
from onecopy.store import Store

CONTENT = os.urandom((1 << 20) + 12345)
PIECES = 17
SECRET = b"a secret of sixteen bytes or more"


class Cluster:
    """Nodes with a store each and a board in this process."""

    def __init__(self, folder: Path, size: int = 2) -> None:
        self.folder, self.size = folder, size
        self.texts = boards.Texts()
        self.pool = ThreadPoolExecutor(8)

    def nodes(self, rank: int, secret: bytes = SECRET) -> JobNodes:
        """Return the nodes as one of them sees them."""
        return JobNodes(Board(self.texts.swap, "job", secret), rank, self.size, "127.0.0.1", self.store(rank))

    def store(self, rank: int) -> Store:
        return Store(self.folder / f"node-{rank}")

    def begin(self, rank: int, url: str) -> Any:
        """Begin to fetch on a node; return the future of its path."""
        return self.pool.submit(fetch, url, store=self.store(rank), nodes=["a", "b"])


@pytest.fixture
def cluster(tmp_path, monkeypatch, small_pieces) -> Iterator[Cluster]:
    found = Cluster(tmp_path)

    def nodes(_: Any, store: Store) -> JobNodes:
        return found.nodes(int(store.folder.name.rpartition("-")[2]))

    monkeypatch.setattr(groups, "nodes_of", nodes)
    yield found
    found.pool.shutdown()


def serve_instead(cluster: Cluster, url: str, content: bytes, partial: Any = None) -> Any:
    """Take part as node 1, which knows the secret, with a file of other content."""
    [version] = versions_of([Origin(url)])
    path = cluster.folder / "other"
    path.write_bytes(content)
    group = Group(cluster.nodes(1), Origin(url).key(version), path, partial)

    def serve() -> None:
        try:
            group.join()
            group.finish()
        finally:
            group.close()

    return cluster.pool.submit(serve)


def test_the_origin_sends_once_and_a_sample_of_each_piece(cluster, objects):
    url = objects.put("x", CONTENT)
    paths = [one.result(PATIENCE) for one in [cluster.begin(0, url), cluster.begin(1, url)]]
    assert [path.read_bytes() for path in paths] == [CONTENT] * 2
    assert objects.served == len(CONTENT) + 2 + PIECES * SAMPLE


def test_a_node_that_sends_other_bytes_is_done_without(cluster, objects, caplog):
    url = objects.put("x", CONTENT)
    liar = serve_instead(cluster, url, bytes(len(CONTENT)))
    assert cluster.begin(0, url).result(PATIENCE).read_bytes() == CONTENT
    assert "it sent other bytes than the origin has; what is missing comes from the origin" in caplog.text
    liar.result(PATIENCE)


def test_all_that_a_node_sent_is_fetched_again_when_it_is_found_to_lie(cluster, objects, monkeypatch):
    monkeypatch.setattr(groups, "WINDOW", 1)
    url = objects.put("x", CONTENT)
    other = bytearray(CONTENT)
    other[-1000:] = bytes(1000)  # in the last piece, which is shorter than two samples
    other[100] ^= 1  # in the first one, where a sample hardly finds it
    monkeypatch.setattr(groups.secrets, "randbelow", lambda number: number - 1)
    liar = serve_instead(cluster, url, bytes(other))
    assert cluster.begin(0, url).result(PATIENCE).read_bytes() == CONTENT
    liar.result(PATIENCE)


def digests(content: bytes) -> dict[str, dict[str, str]]:
    """Return headers by which origins report the hash of an object."""
    sha256, md5 = hashlib.sha256(content), hashlib.md5(content)
    return {
        "RFC 9530": {"Repr-Digest": f"sha-512=:AA==:, sha-256=:{base64.b64encode(sha256.digest()).decode()}:"},
        "Google Cloud": {"x-goog-hash": f"crc32c=AAAAAA==,md5={base64.b64encode(md5.digest()).decode()}"},
        "Hugging Face": {"X-Linked-ETag": f'"{sha256.hexdigest()}"'},
    }


@pytest.mark.parametrize("name", ["RFC 9530", "Google Cloud", "Hugging Face"])
def test_a_byte_that_no_sample_finds_is_refused_where_the_origin_reports_a_hash(
    cluster, objects, monkeypatch, caplog, name
):
    url = objects.put("x", CONTENT)
    objects.headers["x"] = digests(CONTENT)[name]
    if name == "Hugging Face":  # it redirects to where the object is, and reports the hash before that
        objects.redirects["resolve/x"], objects.headers = url, {"resolve/x": objects.headers["x"]}
        url = f"{objects.url}/resolve/x"
    monkeypatch.setattr(groups.secrets, "randbelow", lambda number: number - 1)
    liar = serve_instead(cluster, url, bytes([CONTENT[0] ^ 1]) + CONTENT[1:])
    path = cluster.begin(0, url).result(PATIENCE)
    assert path.read_bytes() == CONTENT
    assert f"x: the {'md5' if name == 'Google Cloud' else 'sha256'} is not that of the origin" in caplog.text
    liar.result(PATIENCE)


def test_what_an_earlier_call_received_of_a_node_is_compared_too(cluster, objects, monkeypatch, caplog):
    url = objects.put("x", CONTENT)
    monkeypatch.setattr(groups.secrets, "randbelow", lambda number: number - 1)
    liar = serve_instead(cluster, url, bytes([CONTENT[0] ^ 1]) + CONTENT[1:])
    with monkeypatch.context() as broken:
        broken.setattr(PartialFile, "publish", fail)
        with pytest.raises(OSError, match="no space"):
            cluster.begin(0, url).result(PATIENCE)
    liar.result(PATIENCE)
    objects.headers["x"] = digests(CONTENT)["RFC 9530"]
    assert fetch(url, store=cluster.store(0)).read_bytes() == CONTENT
    assert "the sha256 is not that of the origin" in caplog.text


def fail(*_: object) -> None:
    raise OSError("no space")


def test_nodes_that_send_what_the_origin_has_are_believed(cluster, objects, caplog):
    url = objects.put("x", CONTENT)
    objects.headers["x"] = digests(CONTENT)["RFC 9530"]
    paths = [one.result(PATIENCE) for one in [cluster.begin(0, url), cluster.begin(1, url)]]
    assert [path.read_bytes() for path in paths] == [CONTENT] * 2
    assert objects.served == len(CONTENT) + 2 + PIECES * SAMPLE
    assert "origin" not in caplog.text


def test_a_node_that_promises_and_does_not_send_is_done_without(cluster, objects, monkeypatch, caplog):
    monkeypatch.setattr(boards, "JOIN_S", 2.0)
    monkeypatch.setattr(groups, "_BEAT_S", 0.1)

    class Promise:
        have = groups.Ranges()

        def wait(self, _start: int, _stop: int, timeout: float) -> bool:
            return threading.Event().wait(timeout)

    url = objects.put("x", CONTENT)
    promise = serve_instead(cluster, url, CONTENT, Promise())
    assert cluster.begin(0, url).result(PATIENCE).read_bytes() == CONTENT
    assert "it does not send what it should fetch" in caplog.text
    assert promise.exception(PATIENCE) is None


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("x", id="text"),
        pytest.param({"formed": True, "members": [[1, 2]]}, id="too few fields"),
        pytest.param({"formed": True, "members": [[1, [], "80", None]]}, id="other types"),
        pytest.param({"formed": True, "members": [["node", "127.0.0.1", 1, True]]}, id="a closed port"),
        pytest.param({"formed": True, "members": [["node", "127.0.0.1", 1 << 40, True]]}, id="no port"),
    ],
)
def test_a_board_with_anything_on_it_costs_no_fetch(cluster, objects, monkeypatch, value):
    monkeypatch.setattr(boards, "JOIN_S", 0.5)
    url = objects.put("x", CONTENT)
    [version] = versions_of([Origin(url)])
    board = cluster.nodes(1).board
    board.update(board.name("group", Origin(url).key(version)), lambda _: value)
    assert cluster.begin(0, url).result(PATIENCE).read_bytes() == CONTENT


@pytest.mark.parametrize("formed", [True, False])
def test_a_node_that_has_the_file_does_not_trust_a_group_whose_nodes_ended(cluster, objects, caplog, formed):
    """Start a job again whose node 1 was killed while it fetched, or while it waited for the others."""
    url = objects.put("x", CONTENT)
    fetch(url, store=cluster.store(0))
    board = cluster.nodes(0).board
    name = board.name("group", Origin(url).key(versions_of([Origin(url)])[0]))
    killed = {"formed": formed, "members": [[cluster.nodes(1).node, "127.0.0.1", 1, False]]}
    board.update(name, lambda _: killed)
    before = objects.served
    first = cluster.begin(0, url)
    until(lambda: first.done() or board.get(name) != killed)
    paths = [one.result(PATIENCE) for one in [first, cluster.begin(1, url)]]
    assert [path.read_bytes() for path in paths] == [CONTENT] * 2
    assert objects.served - before == 2 + PIECES * SAMPLE
    assert "lost" not in caplog.text


def test_texts_of_another_secret_are_none(cluster):
    ours, others = cluster.nodes(0).board, cluster.nodes(0, b"another secret of theirs").board
    name = ours.name("group", "key")
    assert others.name("group", "key") != name
    others.update(name, lambda _: ["theirs"])
    assert ours.get(name) is None
    assert ours.update(name, lambda now: [now, "ours"]) == [None, "ours"]
    assert "key" not in str(cluster.texts._texts)
    cluster.texts._texts[ours.name("another")] = cluster.texts._texts[name]  # a text of another name
    assert ours.get(ours.name("another")) is None


def test_a_node_that_comes_while_others_are_at_work_is_given_what_they_have(cluster, objects):
    cluster.size = 2
    url = objects.put("x", CONTENT)
    go_on = threading.Event()
    objects.on_data = lambda one: go_on.wait(PATIENCE) if one.begin == 0 and one.end > SAMPLE else None
    first = [cluster.begin(rank, url) for rank in range(2)]
    until(lambda: objects.served > len(CONTENT) // 4)
    last = cluster.begin(2, url)
    until(lambda: (cluster.folder / "node-2").exists() and list((cluster.folder / "node-2").glob("*.pieces")))
    go_on.set()
    assert [one.result(PATIENCE).read_bytes() for one in [*first, last]] == [CONTENT] * 3
    assert objects.served == len(CONTENT) + 3 + 2 * PIECES * SAMPLE


def test_an_interrupt_while_other_nodes_are_waited_for_ends_the_fetch(cluster, objects):
    url = objects.put("x", CONTENT)

    def stop(done, total):
        raise InterruptedError

    with pytest.raises(InterruptedError):
        fetch(url, store=cluster.store(0), nodes=["a", "b"], progress=stop)


def test_an_interrupt_while_the_board_is_waited_for_ends_the_fetch(objects, store, monkeypatch):
    monkeypatch.setattr(boards, "JOIN_S", 2.0)
    tried = []

    def never(*_: Any) -> Channel:
        tried.append(True)
        raise NodeLostError("it has not begun")

    def stop(done, total):
        if tried:
            raise InterruptedError

    monkeypatch.setenv("ONECOPY_NODES_SECRET", SECRET.decode())
    monkeypatch.setattr(Channel, "to", never)
    with pytest.raises(InterruptedError):
        fetch(objects.put("x", CONTENT), store=store, nodes=["203.0.113.1", "127.0.0.1"], progress=stop)
    until(lambda: not [one for one in threading.enumerate() if one.name == "onecopy-step"])
    assert objects.served <= 1


@pytest.fixture
def listener() -> Iterator[Listener]:
    """Give a listener that returns each message."""

    def echo(channel: Channel) -> None:
        while True:
            channel.send(channel.receive(100))

    found = Listener("127.0.0.1", 0, SECRET, echo)
    yield found
    found.close()


def test_a_port_is_of_one_address(listener):
    assert listener.socket.getsockname() == ("127.0.0.1", listener.port)


def test_an_end_with_another_secret_is_refused(listener):
    with pytest.raises(NodeLostError, match="does not know the secret: set ONECOPY_NODES_SECRET"):
        Channel.to("127.0.0.1", listener.port, b"another secret of theirs")
    channel = Channel.to("127.0.0.1", listener.port, SECRET)
    channel.send(b"message")
    assert channel.receive(100) == b"message"
    channel.close()


def test_what_does_not_prove_itself_learns_nothing(listener):
    with socket.create_connection(("127.0.0.1", listener.port), PATIENCE) as connection:
        assert len(connection.recv(100)) == 32  # a random number
        connection.sendall(bytes(64))
        assert connection.recv(100) == b""


@pytest.mark.parametrize("change", ["flip", "repeat", "drop"])
def test_a_message_that_was_changed_on_its_way_is_not_accepted(listener, change):
    """Stand between both ends, which prove themselves to each other, and change the second message of three."""
    between = socket.create_server(("127.0.0.1", 0))

    def relay() -> None:
        client, _ = between.accept()
        with client, socket.create_connection(("127.0.0.1", listener.port)) as server:
            client.sendall(exactly(server, 32))
            server.sendall(exactly(client, 64))
            client.sendall(exactly(server, 32))
            messages = [exactly(client, 47) for _ in range(3)]
            if change == "flip":
                messages[1] = messages[1][:-1] + b"X"
            elif change == "repeat":
                messages[1] = messages[0]
            else:
                del messages[1]
            server.sendall(b"".join(messages))
            with contextlib.suppress(ConnectionResetError):
                while data := server.recv(1000):
                    client.sendall(data)

    thread = threading.Thread(target=relay)
    thread.start()
    channel = Channel.to("127.0.0.1", between.getsockname()[1], SECRET)
    for text in (b"first..", b"second.", b"third.."):
        channel.send(text)
    answers = []

    def receive() -> None:
        while True:
            answers.append(channel.receive(100))

    with pytest.raises(NodeLostError):
        receive()
    assert answers in ([], [b"first.."])
    channel.close()
    thread.join()
    between.close()


def exactly(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        found += connection.recv(count - len(found))
    return found


def test_the_secret_of_a_user_is_made_once_and_is_the_users_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("ONECOPY_NODES_SECRET", raising=False)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: boards.secret_of_user(), range(8)))
    assert len(set(found)) == 1
    assert len(found[0]) == 64
    [path] = (tmp_path / "onecopy").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    with pytest.raises(RuntimeError, match=r"set ONECOPY_NODES_SECRET .*: it is not this user's alone"):
        boards.secret_of_user()
    monkeypatch.setenv("ONECOPY_NODES_SECRET", "short")
    with pytest.raises(RuntimeError, match="at least 16 characters"):
        boards.secret_of_user()
    monkeypatch.setenv("ONECOPY_NODES_SECRET", "a text of the job")
    assert boards.secret_of_user() == b"a text of the job"


def test_a_board_at_a_port_of_another_user_is_left(objects, store, monkeypatch, caplog):
    others = Listener("127.0.0.1", 0, b"another secret of theirs", lambda _: None)
    monkeypatch.setenv("ONECOPY_NODES_SECRET", SECRET.decode())
    url = objects.put("x", CONTENT)
    with caplog.at_level(logging.WARNING):
        nodes = [f"127.0.0.1:{others.port}", "203.0.113.1"]
        assert fetch(url, store=store, nodes=nodes).read_bytes() == CONTENT
    assert "does not know the secret" in caplog.text
    others.close()
