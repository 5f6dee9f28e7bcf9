"""The declared state of the page cache, proven by the kernel."""

import os
import subprocess

import pytest

from onecopy_bench.engine.machine import cache


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


def test_a_file_that_changes_has_another_identity(file):
    before = cache.identity(file)
    os.utime(file, ns=(1, 1))
    assert cache.identity(file) != before
