"""Places that a benchmark makes do what they say, and nothing of them is left; the state of the cache is proven."""

import contextlib
import os
import subprocess
import time
from pathlib import Path

import pytest
from tests.support.fuse_disk import built_program

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
    places.copy(tmp_path / "source", mount / "copied")
    assert (mount / "copied").read_bytes() == bytes(range(256)) * 20_000
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
        assert (spot.name, spot.path.stat().st_size) == ("fuse", 1 << 20)
        system.evict(spot.path)
        start = time.monotonic()
        assert spot.path.read_bytes() == (tmp_path / "source").read_bytes()
        assert time.monotonic() - start >= places.FUSE_DELAY_S
        held = spot.path.open("rb")  # it is unmounted, whatever still holds a file
    held.close()
    assert not spot.path.parent.exists()


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
