"""Some arrays of a cold file cost what they hold: the device does not read what lies between them."""

import os
from pathlib import Path

import numpy as np
import pytest
from tests.support.page_cache import nearly

import onecopy as oc
from onecopy.memory import proc

disks = pytest.importorskip("onecopy_bench.places", reason="onecopy-bench is not installed")

KIB, MIB = 1 << 10, 1 << 20
NOISE = MIB  # what is counted beside the file: this process's own code, where the kernel had dropped it


def read_bytes() -> int:
    """Tell the bytes that this process has made a disk read so far."""
    return proc.io(os.getpid()).read_bytes


def cold_arrays(folder: Path, nbytes: int, count: int) -> Path:
    path = folder / "model.safetensors"
    chance = np.random.default_rng(3)
    oc.save(path, {f"{n:05}": chance.integers(0, 256, nbytes, np.uint8) for n in range(count)})
    before = read_bytes()
    if oc.evict(path).cached_after:
        pytest.skip(f"the file system of {folder} keeps its files in memory")
    path.read_bytes()
    if read_bytes() - before < nbytes * count:
        pytest.skip("the kernel does not count what is read here")
    oc.evict(path)
    return path


@pytest.fixture(params=[None, 128 * KIB, 8 * MIB], ids=["device", "128K", "8M"])
def folder(request, tmp_path):
    """Give a folder on a disk that reads so far ahead."""
    if request.param is None:
        yield tmp_path
        return
    try:
        with disks.loop_disk(tmp_path, 64 * MIB, request.param) as disk:
            yield disk
    except disks.Unavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("huge", [None, False])
@pytest.mark.parametrize("nbytes", [64 * KIB, MIB])
def test_every_eighth_array_is_read_and_nothing_else(folder, nbytes, huge):
    path = cold_arrays(folder, nbytes, 48 * MIB // nbytes)
    with oc.open(path) as file:
        names = list(file)[7::8]  # not the first: reading the header has read ahead into it
        asked = nbytes * len(names)
        before = read_bytes()
        report = file.warm(names, huge=huge)
        read = read_bytes() - before
        assert report.complete
        assert report.bytes >= asked
        assert report.cached_after == nearly(report.bytes)
        assert "without surrounding pages" in report.reason
        assert 0.9 * asked <= read <= 1.1 * asked + NOISE
        file.pin(names)  # a busy kernel takes idle pages back before they are touched
        before = read_bytes()
        held = [bytes(file[name]) for name in names]
        assert read_bytes() - before <= NOISE  # touching them reads no more
        content = path.read_bytes()
        assert held == [content[(at := file.entry(name).offset) : at + nbytes] for name in names]


def test_of_what_follows_an_array_of_many_huge_pages_two_windows_of_read_ahead_are_read_at_most(folder):
    path = cold_arrays(folder, 16 * MIB, 3)
    with oc.open(path) as file:
        before = read_bytes()
        report = file.warm(["00001"])
        assert report.complete
        # 4 MiB with small windows, or where threads share them; 16 MiB where one thread reads with windows of 8 MiB.
        assert read_bytes() - before <= 16 * MIB + 2 * 8 * MIB + NOISE


@pytest.mark.parametrize(("part", "huge"), [(slice(3, None), None), (slice(None, None, 8), True)])
def test_what_lies_together_or_is_requested_in_huge_pages_is_read_ahead(tmp_path, part, huge):
    with oc.open(cold_arrays(tmp_path, MIB, 16)) as file:
        report = file.warm(list(file)[part], huge=huge)
        assert report.complete
        assert "without surrounding pages" not in report.reason


def test_a_budget_and_a_check_go_with_it(tmp_path):
    with oc.open(cold_arrays(tmp_path, MIB, 32)) as file:
        report = file.warm(list(file)[::8], max_bytes=MIB + MIB // 2)
        assert not report.complete
        assert report.filled <= MIB + MIB // 2
        assert file.warm(list(file)[::8], verify=True).verified >= 4 * MIB
