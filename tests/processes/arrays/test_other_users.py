"""A reader who does not own the file: the kernel refuses cachestat and makes mincore lie; we must not pass that on."""

import ctypes
import errno
import mmap
import os
import resource
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from tests.support.page_cache import forget, nearly

import onecopy as oc
import onecopy.files.page_cache
from onecopy.files.page_cache import residency

pytestmark = pytest.mark.processes

MIB = 1 << 20
SIZE = 16 * MIB
LARGE = 128 * MIB


@pytest.fixture
def name(cold_file, nobody) -> str:
    """Make a cold file that every user may read; it is in the current folder."""
    path = cold_file(SIZE, "model.bin")
    path.chmod(0o644)
    return path.name


class Warmed(NamedTuple):
    """A report of `oc.warm`, which cannot be pickled itself."""

    complete: bool
    filled: int
    cached_before: int | None
    cached_after: int | None


class Evicted(NamedTuple):
    """A report of `oc.evict`, which cannot be pickled itself."""

    cached_before: int | None
    cached_after: int | None
    reason: str


def warm(name: str, **options) -> Warmed:
    report = oc.warm(name, **options)
    return Warmed(report.complete, report.filled, report.cached_before, report.cached_after)


def evict(name: str) -> Evicted:
    report = oc.evict(name)
    return Evicted(report.cached_before, report.cached_after, report.reason)


def facts(told: onecopy.files.page_cache.Residency) -> tuple[str, int | None, int | None, int | None]:
    return told.source, told.cached, told.mapped, told.dirty


def told_the_truth(in_child, nobody: int, path: Path, cached) -> bool:
    """Return whether the caller gets the cached pages; sampled again if the kernel evicted a page in between."""
    for _ in range(5):
        path.read_bytes()
        before = cached(path)
        source, told, _, _ = in_child(lambda: facts(residency(oc.Mapping(path.name))), uid=nobody)
        if before == cached(path) == SIZE:
            return source in {"cachestat", "mincore"} and told == SIZE
    raise AssertionError("the file does not stay in memory")


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

    source, told, in_tables, dirty = in_child(look, uid=nobody)
    assert (source, told, dirty) == ("unknown", None, None)
    assert in_tables is None or in_tables >= mapped * mmap.PAGESIZE


def test_the_owner_who_is_not_root_gets_the_truth(name, nobody, in_child, tmp_path, cached):
    os.chown(name, nobody, nobody)
    assert told_the_truth(in_child, nobody, tmp_path / name, cached)


def test_a_user_who_may_write_the_file_gets_the_truth(name, nobody, in_child, tmp_path, cached):
    (tmp_path / name).chmod(0o666)
    assert told_the_truth(in_child, nobody, tmp_path / name, cached)


@pytest.mark.parametrize("mechanism", ["auto", "populate", "read"])
def test_warming_works_all_the_same(name, nobody, in_child, tmp_path, cached, mechanism):
    assert cached(tmp_path / name) == 0
    assert in_child(lambda: warm(name, mechanism=mechanism), uid=nobody).complete
    assert cached(tmp_path / name) == SIZE


def test_copying_works_all_the_same(name, nobody, in_child, tmp_path):
    assert in_child(lambda: bytes(oc.Mapping(name, mode="copy").view()), uid=nobody) == (tmp_path / name).read_bytes()


@pytest.mark.parametrize("mechanism", ["auto", "populate", "read"])
def test_a_warm_report_does_not_claim_too_little_to_be_cached(name, nobody, in_child, tmp_path, cached, mechanism):
    path = tmp_path / name
    path.read_bytes()
    report = in_child(lambda: warm(name, mechanism=mechanism), uid=nobody)
    assert cached(path) == SIZE
    assert report.complete
    assert report.cached_before is None  # nothing was mapped yet, and the kernel counts only what a process maps
    assert report.cached_after is None or report.cached_after == nearly(SIZE)
    os.chown(path, nobody, nobody)  # the owner's report has the numbers
    report = in_child(lambda: warm(name, mechanism=mechanism), uid=nobody)
    assert (report.complete, report.cached_before, report.cached_after) == (True, nearly(SIZE), nearly(SIZE))


def test_a_warm_report_does_not_claim_half_of_a_file_to_be_all(name, nobody, in_child, tmp_path, cached):
    path = tmp_path / name
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        file.read(SIZE // 2)
    assert cached(path) == SIZE // 2
    report = in_child(lambda: warm(name, mechanism="read"), uid=nobody)
    assert report.cached_before is None
    assert report.filled == cached(path) == SIZE


def test_an_evict_report_does_not_claim_success_that_it_cannot_see(name, nobody, in_child, tmp_path, cached):
    path = tmp_path / name
    with oc.Mapping(name) as holder:
        sum(holder.view()[::4096])
        report = in_child(evict, name, uid=nobody)
        assert cached(path) == SIZE
        assert (report.cached_before, report.cached_after) == (None, None)
        assert report.reason == "the kernel does not report what is cached"
        os.chown(path, nobody, nobody)  # the owner's report has the numbers
        report = in_child(evict, name, uid=nobody)
        assert cached(path) == SIZE
        assert (report.cached_before, report.cached_after) == (nearly(SIZE), nearly(SIZE))
        assert "mapped by another process" in report.reason
    report = in_child(evict, name, uid=nobody)
    assert cached(path) == report.cached_after == 0
    assert "nothing of it is cached" in report.reason


def permissions_of_new_files() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def check_saved(path: Path, owner: int) -> None:
    """Check a file that another user saved as {"a": [0, 1, 2]}: its content, its owner, and that it is alone."""
    facts = path.stat()
    assert (facts.st_uid, stat.S_IMODE(facts.st_mode)) == (owner, permissions_of_new_files())
    with oc.open(path, verify=True) as file:
        assert {name: array.tolist() for name, array in file.items()} == {"a": [0, 1, 2]}
    assert list(path.parent.iterdir()) == [path]


@pytest.fixture
def reachable_folder(nobody) -> Iterator[Path]:
    """Make a folder of the other user which that user can reach by an absolute path, unlike `tmp_path`."""
    with tempfile.TemporaryDirectory(prefix="onecopy-tests-") as folder:
        os.chown(folder, nobody, nobody)
        yield Path(folder)


def test_another_user_saves_into_a_folder_of_his_own(nobody, in_child, reachable_folder):
    path = reachable_folder / "model"
    in_child(lambda: oc.save(path, {"a": np.arange(3)}), uid=nobody)
    check_saved(path, nobody)


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
    check_saved(folder / "model", nobody)
    assert (folder / "model").stat().st_size == size


def forbid_threads() -> None:
    """Forbid this process, which is not root's, to start threads; check that Python cannot start one."""
    resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
    with pytest.raises(RuntimeError, match="can't start new thread"):
        threading.Thread(target=bool).start()


def test_where_no_threads_may_be_made_a_copy_is_read_by_the_one_there_is(name, nobody, in_child, tmp_path):
    def copy() -> bytes:
        forbid_threads()
        return bytes(oc.Mapping(name, mode="copy", threads=4).view())

    assert in_child(copy, uid=nobody) == (tmp_path / name).read_bytes()


@pytest.mark.parametrize("mechanism", ["auto", "populate", "read"])
def test_where_no_threads_may_be_made_warming_is_done_by_the_one_there_is(
    cold_file, nobody, in_child, cached, mechanism
):
    path = cold_file(LARGE, "large.bin")
    path.chmod(0o644)

    def threads() -> int:
        return oc.warm(path.name, threads=4, mechanism=mechanism).threads

    def warm_alone() -> Warmed:
        forbid_threads()
        return warm(path.name, threads=4, mechanism=mechanism)

    assert in_child(threads, uid=nobody) == 4  # large enough for threads to be wanted
    forget(path)
    assert cached(path) == 0
    report = in_child(warm_alone, uid=nobody)
    assert (report.complete, report.filled) == (True, LARGE)
    assert cached(path) > LARGE * 3 // 4  # where cachestat is refused, evictions since then are unknown
