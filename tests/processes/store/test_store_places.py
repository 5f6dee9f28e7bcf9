"""The store on disks that are full, and where /dev/shm has the 64 MB of a container."""

import contextlib
import errno
import os
from pathlib import Path

import numpy as np
import pytest
from tests.support.children import in_a_child
from tests.support.refusals import os_error
from tests.support.small_disks import DISKS, blocks_used
from tests.support.store_processes import Recipe, is_right, suffixes
from tests.support.writing import MIB

import onecopy as oc
import onecopy.store


def too_much(path: Path) -> None:
    oc.save(path, {"a": np.zeros(100 * MIB, np.uint8)})


def too_much_in_pieces(path: Path) -> None:
    with path.open("wb") as file:
        for _ in range(100):
            file.write(bytes(MIB))


@pytest.mark.parametrize("kind", DISKS)
@pytest.mark.parametrize("build", [too_much, too_much_in_pieces])
@pytest.mark.parametrize("where", ["here", "fork"])
@in_a_child
def test_a_full_disk_is_reported_and_nothing_is_left(small_disk, tmp_path, kind, build, where):
    folder = small_disk(kind)
    store = oc.Store(folder / "store")
    used = blocks_used(folder)
    with os_error(errno.ENOSPC, match=r"space|free"):
        store.with_options(where=where).get_or_build("k", build)
    assert (suffixes(store), blocks_used(folder)) == ([], used)
    assert kind == "few inodes" or is_right(store.get_or_build("k", Recipe("k", tmp_path / "log")))


@in_a_child
def test_a_disk_without_a_free_block_is_reported(small_disk):
    folder = small_disk("tmpfs")
    store = oc.Store(folder / "store")
    with contextlib.suppress(OSError), (folder / "ballast").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    assert os.statvfs(folder).f_bfree == 0
    with pytest.raises(OSError, match="No space left") as raised:
        store.get_or_build("k", lambda path: path.write_bytes(b"x"))
    assert (raised.value.errno, suffixes(store)) == (errno.ENOSPC, [])


@in_a_child
def test_a_description_that_finds_no_room_takes_its_artefact_along(small_disk):
    folder = small_disk("few inodes")  # itself, the claim, the artefact, and none for the description
    folder.chmod(0o700)
    store, made = oc.Store(folder, where="here"), []
    with pytest.raises(OSError, match="No space left") as raised:
        store.get_or_build("k", lambda path: made.append(path.write_bytes(b"x") == 1))
    assert (made, raised.value.errno, suffixes(store)) == ([True], errno.ENOSPC, [])
