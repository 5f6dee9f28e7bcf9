"""Places that a benchmark makes do what they say, and nothing of them is left; the state of the cache is proven."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.fuse_disk import built_program

from onecopy.memory import cgroup
from onecopy_bench import places, system
from onecopy_bench.places import Unavailable


@pytest.fixture
def enter():
    """Enter the context of a place, or skip with the reason why it cannot be made; all are left at the end."""
    with contextlib.ExitStack() as stack:

        def make(context):
            try:
                return stack.enter_context(context)
            except Unavailable as reason:
                pytest.skip(str(reason))

        make.stack = stack
        yield make


def test_a_loop_disk_reads_ahead_as_told_and_leaves_nothing(enter, tmp_path):
    mount = enter(places.loop_disk(tmp_path, 8 << 20, 192 << 10))
    device = mount.stat().st_dev
    assert system.read_ahead(device) == 192 << 10
    assert list(tmp_path.iterdir()) == []  # the image has no name any more
    (tmp_path / "source").write_bytes(bytes(range(256)) * 20_000)
    places.copy(tmp_path / "source", mount / "copied", 5_000_000)
    assert (mount / "copied").read_bytes() == (bytes(range(256)) * 20_000)[:5_000_000]
    enter.stack.close()
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
            spot = places.spot_of("fuse", tmp_path / "source", stack)
        except Unavailable as reason:
            pytest.skip(str(reason))
        assert (spot.name, spot.size) == ("fuse", 1 << 20)
        system.evict(spot.path)
        start = time.monotonic()
        assert spot.path.read_bytes() == (tmp_path / "source").read_bytes()
        assert time.monotonic() - start >= places.FUSE_DELAY_S
        held = spot.path.open("rb")  # it is unmounted, whatever still holds a file
    held.close()
    assert not spot.path.parent.exists()


def test_a_process_that_takes_more_than_its_group_may_is_killed_and_counted(enter):
    folder = enter(places.group(places.memory_limit(40 << 20)))
    take = (
        f"import os; open({str(folder / 'cgroup.procs')!r}, 'w').write('0');"
        "os.write(1, b'in'); x = bytearray(os.urandom(1 << 20) * 200)"
    )
    before = cgroup.kills(folder)
    done = subprocess.run([sys.executable, "-c", take], capture_output=True, check=False, timeout=100)
    assert done.stdout == b"in"
    assert done.returncode == -9
    assert cgroup.kills(folder) == before + 1


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
    assert places.parent_of({1: "memory", 2: "memory"}, root=root) == (1, root / "sys/fs/cgroup/memory/a/b")


def test_groups_of_version_2_are_made_below_the_nearest_that_hands_down_the_controller(tmp_path):
    root = tree(tmp_path, V2, "0::/a/b\n", "sys/fs/cgroup", "sys/fs/cgroup/a")
    assert places.parent_of({1: "memory", 2: "memory"}, root=root) == (2, root / "sys/fs/cgroup/a")


@pytest.fixture
def file(tmp_path):
    kind = subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True, text=True, check=True)
    if kind.stdout.strip() in {"tmpfs", "ramfs"}:
        pytest.skip("a file in memory cannot be evicted")
    path = tmp_path / "file"
    path.write_bytes(os.urandom(3 * 2**20 + 5))
    return path


def test_a_file_that_was_just_written_is_evicted_to_the_last_page(file):
    assert system.cached_bytes(file) == 3 * 2**20 + 5
    assert system.evict(file) == 0
    assert system.cached_bytes(file) == 0


def test_filling_brings_the_whole_file_back(file):
    system.evict(file)
    assert system.fill(file) == 3 * 2**20 + 5
