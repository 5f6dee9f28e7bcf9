"""Tests of URLs, in a run of their own: obstore keeps threads, and a process that has them cannot be forked."""

import pytest

from onecopy.remote import transfer
from onecopy.store import Store


@pytest.fixture(scope="session", autouse=True)
def obstore() -> None:
    """Start the threads that obstore keeps."""
    module = pytest.importorskip("obstore", reason="obstore is not installed")
    module.put(module.store.MemoryStore(), "x", b"")


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def own_store(tmp_path, monkeypatch) -> Store:
    """Give the default store of this test."""
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / "cache"))
    return Store()


@pytest.fixture
def small_pieces(monkeypatch) -> int:
    """Requests of 64 KiB, so that small objects take many."""
    monkeypatch.setattr(transfer, "PIECE", 1 << 16)
    return 1 << 16


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch) -> None:
    monkeypatch.setattr(transfer, "_FIRST_PAUSE_S", 0.01)
