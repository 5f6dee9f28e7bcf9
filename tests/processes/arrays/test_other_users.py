"""A reader who does not own the file: the kernel refuses cachestat and makes mincore lie; we must not pass that on."""

import ctypes
import errno
import mmap
import os
from pathlib import Path

import numpy as np
import pytest
from tests.support.children import facts
from tests.support.page_cache import nearly

import onecopy as oc
from onecopy.files.page_cache import residency

MIB = 1 << 20
SIZE = 16 * MIB


@pytest.fixture
def name(cold_file, nobody) -> str:
    """Make a cold file that every user may read; it is in the current folder."""
    path = cold_file(SIZE, "model.bin")
    path.chmod(0o644)
    return path.name


def warm(name: str, **options):
    return facts(oc.warm(name, **options))


def test_the_kernel_refuses_cachestat_here(name, nobody, in_child):
    """Without this the other tests would prove nothing."""

    def ask() -> int:
        libc = ctypes.CDLL(None, use_errno=True)
        answer, whole = (ctypes.c_uint64 * 5)(), (ctypes.c_uint64 * 2)(0, 0)
        failed = libc.syscall(451, os.open(name, os.O_RDONLY), whole, answer, 0)
        return ctypes.get_errno() if failed else 0

    assert in_child(ask, uid=nobody) in {errno.EPERM, errno.ENOSYS}


@pytest.mark.parametrize("mapped", [0, 1, SIZE // mmap.PAGESIZE])
@pytest.mark.parametrize("cached_share", [0, 0.5, 1])
def test_residency_is_unknown_where_the_kernel_does_not_answer(name, nobody, in_child, mapped, cached_share):
    with open(name, "rb", buffering=0) as file:  # noqa: PTH123
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        file.read(int(SIZE * cached_share))

    def look():
        mapping = oc.Mapping(name)
        view = mapping.view()
        sum(view[at * mmap.PAGESIZE] for at in range(mapped))
        return facts(residency(mapping))

    told = in_child(look, uid=nobody)
    assert (told.source, told.cached, told.dirty) == ("unknown", None, None)
    assert told.mapped is None or told.mapped >= mapped * mmap.PAGESIZE


@pytest.mark.parametrize("right", ["owner", "writer"])
def test_a_user_who_owns_the_file_or_may_write_it_gets_the_truth(name, nobody, in_child, tmp_path, cached, right):
    path = tmp_path / name
    os.chown(name, nobody, nobody) if right == "owner" else path.chmod(0o666)
    for _ in range(5):  # the kernel may evict a page in between
        path.read_bytes()
        before = cached(path)
        told = in_child(lambda: facts(residency(oc.Mapping(name))), uid=nobody)
        if before == cached(path) == SIZE:
            break
    else:
        raise AssertionError("the file does not stay in memory")
    assert told.source in {"cachestat", "mincore"}
    assert told.cached == nearly(SIZE)


@pytest.mark.parametrize("mechanism", ["auto", "populate", "read"])
def test_a_warm_report_claims_neither_too_little_nor_too_much_to_be_cached(
    name, nobody, in_child, tmp_path, cached, mechanism
):
    path = tmp_path / name
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        file.read(SIZE // 2)
    assert cached(path) == SIZE // 2
    for filled in (SIZE, None):  # what is there already is unknown, and so is what is filled later
        report = in_child(lambda: warm(name, mechanism=mechanism), uid=nobody)
        assert (report.cached_before, report.complete) == (None, True)
        assert cached(path) == SIZE
        assert filled is None or report.filled == filled
        assert report.cached_after is None or report.cached_after == nearly(SIZE)
    os.chown(path, nobody, nobody)  # the owner's report has the numbers
    report = in_child(lambda: warm(name, mechanism=mechanism), uid=nobody)
    assert (report.complete, report.cached_before, report.cached_after) == (True, nearly(SIZE), nearly(SIZE))


def test_an_evict_report_does_not_claim_success_that_it_cannot_see(name, nobody, in_child, tmp_path, cached):
    path = tmp_path / name
    with oc.Mapping(name) as holder:
        sum(holder.view()[::4096])
        report = in_child(lambda: facts(oc.evict(name)), uid=nobody)
        assert cached(path) == SIZE
        assert (report.cached_before, report.cached_after) == (None, None)
        assert report.reason == "the kernel does not report how much is cached"
        os.chown(path, nobody, nobody)  # the owner's report has the numbers
        report = in_child(lambda: facts(oc.evict(name)), uid=nobody)
        assert cached(path) == SIZE
        assert (report.cached_before, report.cached_after) == (nearly(SIZE), nearly(SIZE))
        assert "mapped by another process" in report.reason
    report = in_child(lambda: facts(oc.evict(name)), uid=nobody)
    assert cached(path) == report.cached_after == 0
    assert "nothing is cached any more" in report.reason


def test_a_relative_path_is_saved_to_where_the_way_from_the_root_is_closed(nobody, in_child, tmp_path):
    folder = tmp_path / "theirs"
    folder.mkdir()
    os.chown(folder, nobody, nobody)

    def save() -> tuple[int | None, int]:
        with pytest.raises(PermissionError):
            folder.stat()
        with pytest.raises(PermissionError) as refused:
            oc.save(folder / "model", {"a": np.arange(3)})
        path = Path("theirs/model")
        path.write_bytes(b"any writer succeeds here")
        before = path.stat().st_ino
        oc.save(path, {"a": np.arange(3)})
        assert path.stat().st_ino != before
        return refused.value.errno, path.stat().st_size

    error, size = in_child(save, uid=nobody)
    assert error == errno.EACCES
    (saved,) = folder.iterdir()
    assert (saved.stat().st_uid, saved.stat().st_size) == (nobody, size)
    assert oc.open(saved, verify=True)["a"].tolist() == [0, 1, 2]
