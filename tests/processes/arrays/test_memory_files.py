"""Files that exist in memory only, sealed, as another program would share them: opened through a descriptor."""

import fcntl
import multiprocessing
import os
import pickle
import signal
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest

import onecopy as oc

WEIGHTS = np.random.default_rng(1).standard_normal((1000, 300))
SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL


def sealed_copy(path: Path) -> int:
    """Put the bytes of a file into a sealed memory file; give its descriptor."""
    fd = os.memfd_create("shared", os.MFD_ALLOW_SEALING)
    with open(fd, "wb", closefd=False) as file:
        file.write(path.read_bytes())
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    return fd


@pytest.fixture
def shared(tmp_path: Path, memfd: int) -> Iterator[int]:
    """Give the descriptor of saved arrays that are in memory only."""
    oc.save(tmp_path / "arrays", {"weights": WEIGHTS, "bias": np.arange(7)}, metadata={"step": "12"})
    fd = sealed_copy(tmp_path / "arrays")
    (tmp_path / "arrays").unlink()
    yield fd
    os.close(fd)


def test_the_arrays_of_a_sealed_memory_file_are_shown_by_its_path(shared):
    with oc.open(f"/proc/self/fd/{shared}", warm=True, verify=True) as file:
        assert list(file) == ["weights", "bias"]
        assert np.array_equal(file["weights"], WEIGHTS)
        assert (file.metadata, file.kind) == ({"format": "pt", "step": "12"}, "arrays")
        assert not file["weights"].flags.writeable
        assert not file.changed()


def look(connection: Connection, path: str) -> None:
    """In a child: open, report it, and sample on request."""
    with oc.open(path) as file:
        connection.send(file.identity)
        connection.recv()
        connection.send(bool(np.array_equal(file["weights"], WEIGHTS)))


def create(connection: Connection, path: Path) -> None:
    """In a child: share a memory file until killed."""
    connection.send(sealed_copy(path))
    connection.recv()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_another_process_opens_it_by_the_path_of_its_owner_which_may_die(tmp_path, memfd, method):
    oc.save(tmp_path / "arrays", {"weights": WEIGHTS})
    context = multiprocessing.get_context(method)
    owner_end, owner_side = context.Pipe()
    reader_end, reader_side = context.Pipe()
    owner = context.Process(target=create, args=(owner_side, tmp_path / "arrays"), daemon=True)
    owner.start()
    fd = owner_end.recv()
    reader = context.Process(target=look, args=(reader_side, f"/proc/{owner.pid}/fd/{fd}"), daemon=True)
    reader.start()
    assert reader_end.recv()
    os.kill(owner.pid, signal.SIGKILL)
    owner.join(60)
    assert owner.exitcode == -signal.SIGKILL
    reader_end.send("now")
    assert reader_end.recv() is True
    reader.join(60)
    assert reader.exitcode == 0


def test_a_handle_whose_number_means_another_file_elsewhere_is_an_error_there(shared, tmp_path, in_child):
    with oc.open(f"/proc/self/fd/{shared}") as file:
        handle = pickle.dumps(file)
    oc.save(tmp_path / "other", {"weights": np.arange(3)})

    def attach() -> None:
        with (tmp_path / "other").open("rb") as other:
            os.dup2(other.fileno(), shared)
            pickle.loads(handle)

    with pytest.raises(oc.errors.FileChanged, match="a different file"):
        in_child(attach)
