"""The store on disks that are full, and where /dev/shm has the 64 MB of a container."""

import contextlib
import errno
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.support.small_disks import DISKS, blocks_used
from tests.support.store_processes import Recipe, is_right, suffixes
from tests.support.writing import MIB

import onecopy as oc
import onecopy.store

pytestmark = pytest.mark.processes


def too_much(path: Path) -> None:
    oc.save(path, {"a": np.zeros(100 * MIB, np.uint8)})


def too_much_in_pieces(path: Path) -> None:
    with path.open("wb") as file:
        for _ in range(100):
            file.write(bytes(MIB))


@pytest.mark.parametrize("kind", DISKS)
@pytest.mark.parametrize("build", [too_much, too_much_in_pieces])
@pytest.mark.parametrize("where", ["here", "fork"])
def test_a_full_disk_is_reported_and_nothing_is_left(small_disk, in_child, tmp_path, kind, build, where):
    def fill() -> tuple[OSError, list[str], int, bool]:
        try:
            folder = small_disk(kind)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"{kind}: {error}")
        store = oc.Store(folder / "store")
        used = blocks_used(folder)
        try:
            store.with_options(where=where).get_or_build("k", build)
        except OSError as error:
            left, more = suffixes(store), blocks_used(folder) - used
            fits = kind == "few inodes" or is_right(store.get_or_build("k", Recipe("k", tmp_path / "log")))
            return error, left, more, fits
        raise AssertionError("there was space")

    error, left, more, fits = in_child(fill)
    assert error.errno == errno.ENOSPC
    assert (left, more) == ([], 0)
    assert fits


def test_a_disk_without_a_free_block_is_reported(small_disk, in_child):
    def fill() -> tuple[OSError, list[str]]:
        folder = small_disk("tmpfs")
        store = oc.Store(folder / "store")
        with contextlib.suppress(OSError), (folder / "ballast").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        assert os.statvfs(folder).f_bfree == 0
        try:
            store.get_or_build("k", lambda path: path.write_bytes(b"x"))
        except OSError as error:
            return error, suffixes(store)
        raise AssertionError("there was space")

    error, left = in_child(fill)
    assert (error.errno, left) == (errno.ENOSPC, [])


def test_a_description_that_finds_no_room_takes_its_artefact_along(small_disk, in_child):
    def fill() -> tuple[OSError, list[str]]:
        folder = small_disk("few inodes")  # itself, the claim, the artefact, and none for the description
        folder.chmod(0o700)
        store = oc.Store(folder, where="here")
        made: list[bool] = []
        try:
            store.get_or_build("k", lambda path: made.append(path.write_bytes(b"x") == 1))
        except OSError as error:
            assert made == [True]
            return error, suffixes(store)
        raise AssertionError("there was space")

    error, left = in_child(fill)
    assert (error.errno, left) == (errno.ENOSPC, [])
