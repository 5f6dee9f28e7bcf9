"""Places that a benchmark makes do what they say, and nothing of them is left; the state of the cache is proven."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.fuse_disk import built_program

from onecopy_bench.engine import machine
from onecopy_bench.engine.machine import cache, disks, limits
from onecopy_bench.engine.machine.limits import Unavailable


@pytest.fixture
def loop_disk(tmp_path):
    """Make loop disks, or skip with the reason why not."""

    def make(size=8 << 20, read_ahead=128 << 10):
        context = disks.loop_disk(tmp_path, size, read_ahead)
        try:
            mount = context.__enter__()
        except Unavailable as reason:
            pytest.skip(str(reason))
        return mount, lambda: context.__exit__(None, None, None)

    return make


@pytest.fixture
def group():
    """Make control groups, or skip with the reason why not; all are removed at the end."""
    made = []

    def make(limit):
        context = limits.group(limit)
        try:
            folder = context.__enter__()
        except Unavailable as reason:
            pytest.skip(str(reason))
        made.append((context, folder))
        return folder

    yield make
    for context, folder in made:
        context.__exit__(None, None, None)
        assert not folder.exists()


def test_a_loop_disk_reads_ahead_as_told_and_leaves_nothing(loop_disk, tmp_path):
    mount, close = loop_disk(read_ahead=192 << 10)
    device = mount.stat().st_dev
    try:
        assert machine.read_ahead(device) == 192 << 10
        assert list(tmp_path.iterdir()) == []  # the image has no name any more
        (tmp_path / "source").write_bytes(bytes(range(256)) * 20_000)
        disks.copy(tmp_path / "source", mount / "copied", 5_000_000)
        assert (mount / "copied").read_bytes() == (bytes(range(256)) * 20_000)[:5_000_000]
    finally:
        close()
    assert not mount.exists()
    assert not Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/loop/backing_file").exists()


def test_files_behind_fuse_are_answered_late_and_nothing_is_left(tmp_path):
    try:
        built_program()
    except OSError as reason:
        pytest.skip(str(reason))
    (tmp_path / "source").write_bytes(bytes(range(256)) * 4096)
    with contextlib.ExitStack() as stack:
        try:
            spot = disks.behind_fuse(tmp_path / "source", stack)
        except Unavailable as reason:
            pytest.skip(str(reason))
        assert (spot.name, spot.size) == (disks.FUSE, 1 << 20)
        cache.evict(spot.path)
        start = time.monotonic()
        assert spot.path.read_bytes() == (tmp_path / "source").read_bytes()
        assert time.monotonic() - start >= disks.FUSE_DELAY_S
        held = spot.path.open("rb")  # it is unmounted, whatever still holds a file
    held.close()
    assert not spot.path.parent.exists()


def test_a_process_that_takes_more_than_its_group_may_is_killed_and_counted(group):
    folder = group(limits.memory(40 << 20))
    take = (
        f"import os; open({str(folder / 'cgroup.procs')!r}, 'w').write('0');"
        "os.write(1, b'in'); x = bytearray(os.urandom(1 << 20) * 200)"
    )
    before = limits.out_of_memory_kills(folder)
    done = subprocess.run([sys.executable, "-c", take], capture_output=True, check=False, timeout=100)
    assert done.stdout == b"in"
    assert done.returncode == -9
    assert limits.out_of_memory_kills(folder) == before + 1


V2 = "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
V1 = "31 20 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"


def tree(root: Path, mountinfo: str, membership: str, *handing_down: str) -> Path:
    """Make what `parent_of` reads."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text(mountinfo)
    (root / "proc/self/cgroup").write_text(membership)
    for folder in ("sys/fs/cgroup/a/b", "sys/fs/cgroup/memory/a/b"):
        (root / folder).mkdir(parents=True)
    for folder in handing_down:
        (root / folder / "cgroup.subtree_control").write_text("cpu memory\n")
    return root


def test_groups_of_version_1_are_made_below_our_own(tmp_path):
    root = tree(tmp_path, V2 + V1, "4:memory:/a/b\n0::/\n")
    assert limits.parent_of({1: "memory", 2: "memory"}, root=root) == (1, root / "sys/fs/cgroup/memory/a/b")


def test_groups_of_version_2_are_made_below_the_nearest_that_hands_down_the_controller(tmp_path):
    root = tree(tmp_path, V2, "0::/a/b\n", "sys/fs/cgroup", "sys/fs/cgroup/a")
    assert limits.parent_of({1: "memory", 2: "memory"}, root=root) == (2, root / "sys/fs/cgroup/a")


def test_a_refused_limit_removes_the_group(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "parent_of", lambda _: (1, tmp_path))
    with (
        pytest.raises(Unavailable, match=r"no-such-folder/limit does not take '1'"),
        limits.group(limits.Limit({1: "memory", 2: "memory"}, {1: (("no-such-folder/limit", "1"),), 2: ()})),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_partition_has_the_read_ahead_and_the_counters_of_its_disk(tmp_path):
    for name, text in {
        "sys/devices/sda/queue/read_ahead_kb": "128\n",
        "sys/devices/sda/sda1/stat": "    3 0 8 1 2 0 16 1 0 1 1\n",
        "sys/class/bdi/0:52/read_ahead_kb": "15360\n",
        "sys/dev/block/none": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    links = tmp_path / "sys/dev/block"
    (links / "8:0").symlink_to("../../devices/sda")
    (links / "8:1").symlink_to("../../devices/sda/sda1")
    network = os.makedev(0, 52)
    assert [machine.read_ahead(os.makedev(8, minor), root=tmp_path) for minor in (0, 1, 9)] == [131072, 131072, None]
    assert machine.read_ahead(network, root=tmp_path) == 15 << 20
    assert machine.disk_counters(os.makedev(8, 1), root=tmp_path) == (4096, 8192)
    assert machine.disk_counters(network, root=tmp_path) is None


def test_a_cold_read_is_counted_by_the_disk(tmp_path):
    path = tmp_path / "cold.bin"
    path.write_bytes(os.urandom(8 << 20))
    device = path.stat().st_dev
    if machine.disk_counters(device) is None:
        pytest.skip("the temporary folder is on no disk")
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        before = machine.disk_counters(device)[0]
        assert len(os.pread(file.fileno(), 8 << 20, 0)) == 8 << 20
        assert machine.disk_counters(device)[0] - before >= 8 << 20  # others may read too


@pytest.fixture
def file(tmp_path):
    kind = subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True, text=True, check=True)
    if kind.stdout.strip() in {"tmpfs", "ramfs"}:
        pytest.skip("a file in memory cannot be evicted")
    path = tmp_path / "file"
    path.write_bytes(os.urandom(3 * 2**20 + 5))
    return path


def test_a_file_that_was_just_written_is_evicted_to_the_last_page(file):
    assert cache.ask(file) == 3 * 2**20 + 5
    assert cache.evict(file) == 0
    assert cache.ask(file) == 0


def test_filling_brings_the_whole_file_back(file):
    cache.evict(file)
    assert cache.fill(file) == 3 * 2**20 + 5


def test_pages_that_somebody_maps_stay_and_are_counted(file):
    import mmap

    cache.evict(file)
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as mapping:
        assert mapping[2**20] >= 0
        left = cache.evict(file)
    assert left is not None
    assert left >= 4096


def test_of_an_empty_file_nothing_is_cached(tmp_path):
    (tmp_path / "empty").touch()
    assert (cache.evict(tmp_path / "empty"), cache.fill(tmp_path / "empty")) == (0, 0)


def test_a_file_that_changes_has_another_identity(file):
    before = cache.identity(file)
    os.utime(file, ns=(1, 1))
    assert cache.identity(file) != before
