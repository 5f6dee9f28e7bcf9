"""The server of `onecopy run` in this process."""

import os
from collections.abc import Iterator
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
