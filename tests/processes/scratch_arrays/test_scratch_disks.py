"""Scratch arrays on disks that are full, become full, fail, are memory, or cannot reserve."""

import errno
import functools
import mmap
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.support.seccomp import refuse
from tests.support.writing import MIB

import onecopy as oc

pytestmark = pytest.mark.processes


@pytest.fixture(params=["tmpfs", "ext4"])
def disk(request, reserving, small_disk) -> Callable[[], Path]:
    """Give a function that mounts a disk of 8 MiB for the calling child and returns its folder."""
    return functools.partial(small_disk, request.param)


def names_of(folder: Path) -> set[str]:
    return set(os.listdir(folder)) - {"lost+found"}  # noqa: PTH208


def fill(folder: Path) -> None:
    """Leave no block to anybody: root's own among them."""
    with (folder / "ballast").open("wb", buffering=0) as file:
        try:
            for size in (MIB, 4096):
                while True:
                    try:
                        file.write(bytes(size))
                    except OSError:  # full
                        break
        finally:
            os.fsync(file.fileno())


@pytest.mark.parametrize("unnamed", [True, False])
def test_a_full_disk_is_reported_at_creation_with_what_is_needed_and_free(disk, in_child, unnamed):
    def make() -> tuple[OSError, set[str], int, int]:
        folder = disk()
        if not unnamed:
            refuse("O_TMPFILE")
        before = os.statvfs(folder)
        try:
            oc.scratch((20, MIB), "u1", folder, anywhere=True)
        except OSError as error:
            free = (before.f_bfree if os.geteuid() == 0 else before.f_bavail) * before.f_frsize
            return error, names_of(folder), free, os.statvfs(folder).f_bfree - before.f_bfree
        raise AssertionError("there was space for 20 MiB")

    error, names, free, difference = in_child(make)
    assert error.errno == errno.ENOSPC
    assert error.filename.endswith("/disk")
    head = max(8192, mmap.PAGESIZE)
    assert f"it needs {20 * MIB + head} bytes, and {free} are free" in error.strerror
    assert (names, difference) == (set(), 0)


@pytest.mark.parametrize("call", ["scratch", "save"])
def test_what_is_larger_than_the_disk_reserves_nothing(disk, in_child, call):
    """A reservation that fails halfway fills the disk for other programs meanwhile: the call must not be made."""

    def make() -> OSError:
        folder = disk()
        refuse("fallocate", error=errno.EBADF)
        try:
            if call == "scratch":
                oc.scratch((20, MIB), "u1", folder, anywhere=True)
            else:
                oc.save(folder / "file", {"a": np.zeros(20 * MIB, np.uint8)})
        except OSError as error:
            return error
        raise AssertionError("there was space for 20 MiB")

    assert in_child(make).errno == errno.ENOSPC


def test_a_disk_that_others_fill_later_does_no_harm(disk, in_child):
    def write() -> tuple[int, bool]:
        folder = disk()
        with oc.scratch((4, MIB), "u1", folder, anywhere=True) as ours:
            fill(folder)
            ours.array[:2] = 7
            ours.write(slice(2, 4), 7)
            ours.flush()
            ours.release()
            return int((ours.array == 7).sum()), names_of(folder) == {"ballast"}

    assert in_child(write) == (4 * MIB, True)


def test_a_sparse_array_on_a_disk_that_is_full_is_an_error_where_write_is_used(disk, in_child):
    def write() -> tuple[int | None, str]:
        folder = disk()
        with oc.scratch((20, MIB), "u1", folder, anywhere=True, reserve=False) as ours:
            try:
                ours.write(None, 7)
                ours.flush()
            except OSError as error:
                return error.errno, str(error.strerror)
        raise AssertionError("there was space for 20 MiB")

    number, text = in_child(write)
    assert number == errno.ENOSPC
    assert text.startswith(("write", "flush"))


def test_a_sparse_array_on_a_disk_that_is_full_ends_the_process_where_memory_is_written(disk, in_child):
    def write() -> None:
        oc.scratch((20, MIB), "u1", disk(), anywhere=True, reserve=False).array[:] = 7

    with pytest.raises(Exception, match=r"^SIGBUS$"):
        in_child(write)


def test_memory_is_no_disk_and_is_refused_by_name(reserving):
    with pytest.raises(
        OSError, match=r"it is on tmpfs, which is memory and no disk: choose .* allow any file system"
    ) as told:
        oc.scratch(3, "u1", "/dev/shm")
    assert told.value.errno == errno.EOPNOTSUPP
    assert told.value.filename == "/dev/shm"
    with oc.scratch(3, "u1", "/dev/shm", anywhere=True) as ours:
        ours.array[:] = 5
        assert "no disk" in ours.release().reason
        assert ours.array.tolist() == [5, 5, 5]


PASSED_OVER = {
    "/dev/shm": "/var/tmp, because of /dev/shm: it is on tmpfs, which is memory and no disk",
    "/missing": "/var/tmp, because there is no folder for temporary files",
}


@pytest.mark.parametrize("temporary", PASSED_OVER)
def test_a_folder_for_temporary_files_is_passed_over_where_it_is_memory_or_missing(python, temporary):
    code = """
    import os, sys
    os.environ |= {"TMPDIR": sys.argv[1], "ONECOPY_SCRATCH": ""}
    import onecopy as oc
    print(oc.scratch(3, "u1", reserve=False).reason)
    """
    assert python(code, temporary) == f"{PASSED_OVER[temporary]}\n"


def test_a_file_system_that_cannot_reserve_is_refused_unless_reserve_is_false(tmp_path, in_child):
    def make() -> str:
        refuse("fallocate", error=errno.EOPNOTSUPP)
        with oc.scratch((3, 4), "u1", tmp_path, reserve=False) as ours:
            ours.write(None, 3)
            assert (ours.array == 3).all()
        try:
            oc.scratch(3, "u1", tmp_path)
        except OSError as error:
            return str(error)
        raise AssertionError("it was reserved")

    assert "cannot reserve space: choose another folder, or do not reserve" in in_child(make)
    assert names_of(tmp_path) == set()


def test_bytes_that_did_not_reach_the_disk_are_reported_from_then_on(reserving, in_child):
    def write() -> list[tuple[int | None, str]]:
        ours = oc.scratch((16, MIB), "u1", reserving, max_resident="4 MiB")
        ours.write(slice(0, 2), 1)
        refuse("sync_file_range", error=errno.EIO)
        reason = ours.release(0).reason
        told: list[tuple[int | None, str]] = [(0, reason)]
        for call in (lambda: ours.write(None, 1), ours.flush, ours.seal):
            try:
                call()
            except OSError as error:
                told.append((error.errno, error.strerror or ""))
        return told

    told = in_child(write)
    assert [number for number, _ in told] == [0, errno.EIO, errno.EIO, errno.EIO]
    assert told[0][1].startswith("it could not be written to the disk")
    assert all("bytes could not be written to the disk before" in text for _, text in told[1:])
