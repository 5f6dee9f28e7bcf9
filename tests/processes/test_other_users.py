"""A reader who does not own the file: the kernel refuses cachestat and makes mincore lie; we must not pass that on."""

import ctypes
import errno
import os
import resource
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import onecopy as oc
from onecopy.residency import residency

pytestmark = pytest.mark.processes

MIB = 1 << 20
SIZE = 16 * MIB


@pytest.fixture
def name(cold_file, nobody) -> str:
    """Make a cold file that everybody may read; it is in the current folder."""
    path = cold_file(SIZE, "model.bin")
    path.chmod(0o644)
    return path.name


def warm_by_reading(name: str) -> tuple[int | None, int | None]:
    report = oc.warm(name, mechanism="read")
    return report.cached_before, report.cached_after


def evict(name: str) -> tuple[int | None, str]:
    report = oc.evict(name)
    return report.cached_after, report.reason


def facts(told: oc.residency.Residency) -> tuple[str, int | None, int | None, int | None]:
    return told.source, told.cached, told.mapped, told.dirty


def told_the_truth(in_child, nobody: int, path: Path, cached) -> bool:
    """Tell whether who asks is told what is cached; looked at again where the kernel took a page in between."""
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


@pytest.mark.parametrize("mapped", [0, 1, SIZE // 4096])
@pytest.mark.parametrize("cached_share", [0, 0.5, 1])
def test_residency_is_never_more_than_the_truth_and_says_where_it_is_from(
    name, nobody, in_child, cached, tmp_path, mapped, cached_share
):
    with open(name, "rb", buffering=0) as file:  # noqa: PTH123
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        file.read(int(SIZE * cached_share))

    def look():
        mapping = oc.Mapping(name)
        view = mapping.view()
        sum(view[at * 4096] for at in range(mapped))
        return facts(residency(mapping))

    source, told, in_tables, dirty = in_child(look, uid=nobody)
    assert source in {"pagemap", "unknown"}
    if source == "pagemap":
        assert told == in_tables
        assert mapped * 4096 <= told <= cached(tmp_path / name)
    else:
        assert told is None
    assert dirty is None


def test_the_owner_who_is_not_root_is_told_the_truth(name, nobody, in_child, tmp_path, cached):
    os.chown(name, nobody, nobody)
    assert told_the_truth(in_child, nobody, tmp_path / name, cached)


def test_who_may_write_the_file_is_told_the_truth(name, nobody, in_child, tmp_path, cached):
    (tmp_path / name).chmod(0o666)
    assert told_the_truth(in_child, nobody, tmp_path / name, cached)


@pytest.mark.parametrize("mechanism", ["auto", "populate", "read"])
def test_warming_works_all_the_same(name, nobody, in_child, tmp_path, cached, mechanism):
    assert cached(tmp_path / name) == 0
    assert in_child(lambda: oc.warm(name, mechanism=mechanism).complete, uid=nobody)
    assert cached(tmp_path / name) == SIZE


def test_copying_works_all_the_same(name, nobody, in_child, tmp_path):
    assert in_child(lambda: bytes(oc.Mapping(name, mode="copy").view()), uid=nobody) == (tmp_path / name).read_bytes()


def test_a_warm_report_does_not_claim_too_little_to_be_cached(name, nobody, in_child, tmp_path):
    (tmp_path / name).read_bytes()
    before, after = in_child(warm_by_reading, name, uid=nobody)
    assert before in {SIZE, None}
    assert after in {SIZE, None}


def test_an_evict_report_does_not_claim_success_that_it_cannot_see(name, nobody, in_child, tmp_path, cached):
    with oc.Mapping(name) as holder:
        sum(holder.view()[::4096])
        after, reason = in_child(evict, name, uid=nobody)
        assert cached(tmp_path / name) == SIZE
    assert after in {SIZE, None}
    assert "nothing of it is cached" not in reason


@pytest.fixture
def his_folder(nobody) -> Iterator[Path]:
    """Make a folder of the other user where he can walk, unlike `tmp_path`."""
    with tempfile.TemporaryDirectory(prefix="onecopy-tests-") as folder:
        os.chown(folder, nobody, nobody)
        yield Path(folder)


def test_another_user_saves_into_a_folder_of_his_own(nobody, in_child, his_folder):
    path = his_folder / "model"
    in_child(lambda: oc.save(path, {"a": np.arange(3)}), uid=nobody)
    assert (path.stat().st_uid, stat.S_IMODE(path.stat().st_mode)) == (nobody, 0o666 & ~current_umask())
    assert oc.open(path)["a"].tolist() == [0, 1, 2]
    assert list(his_folder.iterdir()) == [path]


def test_a_relative_path_is_saved_to_where_the_way_from_the_root_is_closed(nobody, in_child, tmp_path):
    (tmp_path / "his").mkdir()
    os.chown(tmp_path / "his", nobody, nobody)
    in_child(lambda: Path("his/model").write_bytes(b"so it goes with open"), uid=nobody)
    in_child(lambda: oc.save("his/model", {"a": np.arange(3)}), uid=nobody)


def current_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_where_no_threads_may_be_made_a_copy_is_read_by_the_one_there_is(name, nobody, in_child, tmp_path):
    def copy_it() -> bytes:
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
        return bytes(oc.Mapping(name, mode="copy", threads=4).view())

    assert in_child(copy_it, uid=nobody) == (tmp_path / name).read_bytes()


def test_where_no_threads_may_be_made_warming_works_or_is_an_os_error(name, nobody, in_child):
    def warm() -> bool:
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
        try:
            return oc.warm(name, threads=4).complete
        except OSError as error:
            return error.errno == errno.EAGAIN

    assert in_child(warm, uid=nobody)
