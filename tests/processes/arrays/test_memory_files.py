"""Files that exist in memory only, sealed, as another program would share them: opened through a descriptor."""

import fcntl
import os
import pickle
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.support.children import forked

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


def test_another_process_opens_it_by_the_path_of_its_owner_which_may_die(tmp_path, memfd):
    oc.save(tmp_path / "arrays", {"weights": WEIGHTS})
    told, tell = os.pipe()

    def own() -> None:
        os.write(tell, b"%d" % sealed_copy(tmp_path / "arrays"))
        signal.pause()

    with forked(own) as owner:
        file = oc.open(f"/proc/{owner}/fd/{int(os.read(told, 20))}")
    with file:  # the owner has been killed
        assert np.array_equal(file["weights"], WEIGHTS)
    os.close(told)
    os.close(tell)


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
