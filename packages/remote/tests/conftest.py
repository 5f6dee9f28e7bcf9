"""Tests of URLs, in a run of their own: obstore keeps threads, and a process that has them cannot be forked."""

from collections.abc import Iterator

import pytest
from ray_nodes import RayNodes

from onecopy.store import Store
from onecopy_remote import transfer


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


@pytest.fixture
def ray_nodes(tmp_path) -> Iterator[RayNodes]:
    """Give a cluster of two nodes, for a test that changes it."""
    pytest.importorskip("ray", reason="ray is not installed")
    with RayNodes(tmp_path, 2) as cluster:
        yield cluster


@pytest.fixture(scope="class")
def shared_ray_nodes(tmp_path_factory) -> Iterator[RayNodes]:
    """Give a cluster of two nodes to the tests of a class, because starting one takes longer than a test."""
    pytest.importorskip("ray", reason="ray is not installed")
    with RayNodes(tmp_path_factory.mktemp("cluster"), 2) as cluster:
        yield cluster
