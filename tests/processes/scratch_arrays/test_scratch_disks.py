"""Scratch arrays on disks that are full, become full, fail, are slow, are memory, or cannot reserve."""

import contextlib
import errno
import functools
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.children import ChildKilledError, in_a_child
from tests.support.memory_group import NoMemoryGroupError, slow_writing
from tests.support.refusals import os_error
from tests.support.seccomp import refuse
from tests.support.writing import MIB, names_in

import onecopy as oc


@pytest.fixture(params=["tmpfs", "ext4"])
def disk(request, reserving, small_disk) -> Callable[[], Path]:
    return functools.partial(small_disk, request.param)


def fill(folder: Path) -> None:
    """Leave no block to anybody: root's own among them."""
    with (folder / "ballast").open("wb", buffering=0) as file:
        for size in (MIB, 4096):
            with contextlib.suppress(OSError):  # full
                while True:
                    file.write(bytes(size))
        os.fsync(file.fileno())


@pytest.mark.parametrize("unnamed", [True, False])
@in_a_child
def test_a_full_disk_is_reported_at_creation_with_what_is_needed_and_free(disk, unnamed):
    folder = disk()
    if not unnamed:
        refuse("O_TMPFILE")
    before = os.statvfs(folder)
    free = (before.f_bfree if os.geteuid() == 0 else before.f_bavail) * before.f_frsize
    needed = 20 * MIB + max(8192, mmap.PAGESIZE)
    with os_error(errno.ENOSPC, folder, f"{needed} bytes are needed, but only {free} are free"):
        oc.scratch((20, MIB), "u1", folder, anywhere=True)
    assert (set(names_in(folder)) - {"lost+found"}, os.statvfs(folder).f_bfree) == (set(), before.f_bfree)


@pytest.mark.parametrize(
    "call",
    [
        lambda folder: oc.scratch((20, MIB), "u1", folder, anywhere=True),
        lambda folder: oc.save(folder / "file", {"a": np.zeros(20 * MIB, np.uint8)}),
    ],
    ids=["scratch", "save"],
)
@in_a_child
def test_what_is_larger_than_the_disk_reserves_nothing(disk, call):
    """A reservation that fails halfway fills the disk for other programs meanwhile: the call must not be made."""
    folder = disk()
    refuse("fallocate", error=errno.EBADF)
    with os_error(errno.ENOSPC, match="free"):
        call(folder)


@in_a_child
def test_a_disk_that_others_fill_later_does_no_harm(disk):
    folder = disk()
    with oc.scratch((4, MIB), "u1", folder, anywhere=True) as ours:
        fill(folder)
        ours.array[:2] = 7
        ours.write(slice(2, 4), 7)
        ours.flush()
        ours.release()
        assert (ours.array == 7).all()
        assert set(names_in(folder)) - {"lost+found"} == {"ballast"}


def test_a_sparse_array_on_a_full_disk_is_an_error_of_write_and_ends_a_process_that_writes_memory(disk, in_child):
    def sparse() -> Any:
        return oc.scratch((20, MIB), "u1", disk(), anywhere=True, reserve=False)

    def write() -> None:
        with sparse() as ours:
            ours.write(None, 7)
            ours.flush()

    with os_error(errno.ENOSPC, match=r"write|flush"):
        in_child(write)
    with pytest.raises(ChildKilledError, match="SIGBUS"):
        in_child(lambda: sparse().array.fill(7))


def test_memory_is_no_disk_and_is_refused_by_name(reserving, monkeypatch):
    monkeypatch.setenv("ONECOPY_SCRATCH", "/dev/shm")
    with pytest.raises(OSError, match="it is on tmpfs"):
        oc.scratch(3, "u1")
    with pytest.raises(
        OSError, match=r"it is on tmpfs, which is in memory instead of on disk: choose .* allow any file system"
    ) as told:
        oc.scratch(3, "u1", "/dev/shm")
    assert told.value.errno == errno.EOPNOTSUPP
    assert told.value.filename == "/dev/shm"
    with oc.scratch(3, "u1", "/dev/shm", anywhere=True) as ours:
        ours.array[:] = 5
        assert "has no disk" in ours.release().reason
        assert ours.array.tolist() == [5, 5, 5]


PASSED_OVER = {
    "/dev/shm": "/var/tmp, because of /dev/shm: it is on tmpfs, which is in memory instead of on disk",
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


@in_a_child
def test_a_file_system_that_cannot_reserve_is_refused_unless_reserve_is_false(tmp_path):
    refuse("fallocate", error=errno.EOPNOTSUPP)
    with oc.scratch((3, 4), "u1", tmp_path, reserve=False) as ours:
        ours.write(None, 3)
        assert (ours.array == 3).all()
    with pytest.raises(OSError, match="cannot reserve space: choose another folder, or do not reserve"):
        oc.scratch(3, "u1", tmp_path)
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@in_a_child
def test_bytes_that_did_not_reach_the_disk_are_reported_from_then_on(reserving, error):
    ours = oc.scratch((16, MIB), "u1", reserving, max_resident="4 MiB")
    ours.write(slice(0, 2), 1)
    refuse("sync_file_range", error=error)
    assert ours.release(0).reason.startswith("it stays in memory, because it could not be written to the disk")
    for call in (lambda: ours.write(None, 1), ours.flush, ours.seal):
        with os_error(error, match="an earlier writeback by the kernel failed, and bytes were lost"):
            call()


def test_who_writes_faster_than_the_disk_waits_and_keeps_to_the_cap(reserving, small_disk, in_child):
    cap, rows = 2 * MIB, 6

    def write() -> tuple[int, int]:
        folder = small_disk("ext4")
        with slow_writing(folder.stat().st_dev, 4 * MIB) as enter:
            enter()
            peak = over = 0
            with oc.scratch((rows, MIB), "u1", folder, max_resident=cap) as ours:
                for row in range(rows):
                    ours.write(row, np.full(MIB, row + 1, np.uint8))
                    memory = ours.memory()
                    peak, over = max(peak, memory.resident or 0), max(over, memory.over or 0)
                ours.flush()
                assert all((ours.array[row] == row + 1).all() for row in range(rows))
            return peak, over

    try:
        peak, over = in_child(write)
    except NoMemoryGroupError as error:
        pytest.skip(str(error))
    assert 0 < peak <= cap * 5 // 4
    assert over <= cap // 4
