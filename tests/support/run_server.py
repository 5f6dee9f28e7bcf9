"""The server of `onecopy run` in this process."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from onecopy.run.snapshot_server import SnapshotServer


@pytest.fixture
def keeper(monkeypatch: pytest.MonkeyPatch) -> Iterator["SnapshotServer"]:
    """Give a keeper that answers this process; it is stopped at the end."""
    from onecopy.base.run_constants import KEEPER
    from onecopy.run.snapshot_server import SnapshotServer
    from onecopy.store import protocol

    listening, server = protocol.listen()
    calls = os.memfd_create("onecopy-run")
    made = SnapshotServer(listening, server, calls, joins=False)
    monkeypatch.setenv(KEEPER, server)
    thread = Thread(target=made.serve)
    thread.start()
    yield made
    made.stop()
    thread.join()
    os.close(calls)


def connection() -> socket.socket:
    """Return a connection to the server that has proved to belong to the run."""
    from onecopy.base.run_constants import KEEPER
    from onecopy.store import protocol

    return socket.socket(fileno=protocol.connected(os.environ[KEEPER]).detach())


def stranger() -> socket.socket:
    """Return a connection to the server that has sent nothing."""
    from onecopy.base.run_constants import KEEPER

    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.connect("\0" + os.environ[KEEPER].split()[0])
    return made


def request(made: socket.socket, path: Path, message: bytes = b"get 0") -> None:
    """Request the snapshot of a file."""
    with path.open("rb") as opened:
        socket.send_fds(made, [message], [opened.fileno()])


@contextmanager
def maker_of(path: Path) -> Iterator[socket.socket]:
    """Give a connection of which the server has requested that its process makes the snapshot of a file."""
    with connection() as made:
        request(made, path)
        assert made.recv(16) == b"make"
        yield made
