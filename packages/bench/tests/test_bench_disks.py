"""Benchmarks whose files do not fit on the disk."""

import errno
import functools
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.writing import MIB

from onecopy_bench.scenarios.monitor import scenario as monitor
from onecopy_bench.scenarios.start import scenario as start

pytestmark = pytest.mark.processes


@pytest.fixture(params=["tmpfs", "ext4"])
def disk(request, small_disk) -> Callable[[], Path]:
    """Give a function that mounts a disk of 8 MiB for the calling child and returns its folder."""
    return functools.partial(small_disk, request.param)


def test_a_file_that_does_not_fit_is_told_by_its_name(disk, in_child):
    def measure():
        folder = disk()
        try:
            monitor.run(folder, replace(monitor.Options(), size=32 * MIB, rounds=1))
        except OSError as error:
            return error.errno, error.filename, str(folder)
        return None

    number, name, folder = in_child(measure)
    assert (number, name) == (errno.ENOSPC, os.path.join(folder, "mapped.bin"))  # noqa: PTH118


def test_a_disk_that_is_nearly_full_gets_no_file_that_is_cut(disk, in_child):
    """What is left takes a part of a block: that is no success."""

    def measure():
        folder = disk()
        free = os.statvfs(folder)
        size = (free.f_bavail * free.f_frsize // 2 // 4096) * 4096
        start.write(folder / "half", size)
        whole = (folder / "half").stat().st_size == size
        try:
            start.write(folder / "more", size + MIB)
        except OSError as error:
            return whole, error.errno, error.filename
        return whole, 0, ""

    whole, number, name = in_child(measure)
    assert whole
    assert number == errno.ENOSPC
    assert name.endswith("more")
