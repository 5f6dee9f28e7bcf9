"""The server of `onecopy run` in this process."""

import os
from collections.abc import Iterator
from threading import Thread
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from onecopy.runs.keeper import Keeper


@pytest.fixture
def keeper(monkeypatch: pytest.MonkeyPatch) -> Iterator["Keeper"]:
    """Give a keeper that answers this process; it is stopped at the end."""
    from onecopy import protocol
    from onecopy.runs.keeper import Keeper
    from onecopy.variables import KEEPER

    listening, server = protocol.listen()
    calls = os.memfd_create("onecopy-run")
    made = Keeper(listening, server, calls)
    monkeypatch.setenv(KEEPER, server)
    thread = Thread(target=made.serve)
    thread.start()
    yield made
    made.stop()
    thread.join()
    os.close(calls)
