"""Scratch arrays on a disk that is slower than who writes to them."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.writing import MIB

import onecopy as oc

limits = pytest.importorskip("onecopy_bench.places", reason="onecopy-bench is not installed")

pytestmark = pytest.mark.processes

CAP = 2 * MIB
ROWS = 6


def slow_writing(device: int, bytes_per_s: int) -> Any:
    """Limit how fast a disk is written to."""
    disk = f"{os.major(device)}:{os.minor(device)}"
    return limits.Limit(
        {1: "blkio", 2: "io"},
        {
            1: (("blkio.throttle.write_bps_device", f"{disk} {bytes_per_s}"),),
            2: (("io.max", f"{disk} wbps={bytes_per_s}"),),
        },
    )


def test_who_writes_faster_than_the_disk_waits_and_keeps_to_the_cap(reserving, small_disk, in_child):
    def write() -> tuple[int, int, bool] | str:
        folder = small_disk("ext4")
        try:
            with limits.group(slow_writing(folder.stat().st_dev, 4 * MIB)) as limited:
                Path(limited, "cgroup.procs").write_text(str(os.getpid()))
                peak = over = 0
                with oc.scratch((ROWS, MIB), "u1", folder, max_resident=CAP) as ours:
                    for row in range(ROWS):
                        ours.write(row, np.full(MIB, row + 1, np.uint8))
                        memory = ours.memory()
                        peak, over = max(peak, memory.resident or 0), max(over, memory.over or 0)
                    ours.flush()
                    same = all((ours.array[row] == row + 1).all() for row in range(ROWS))
                Path(limited.parent, "cgroup.procs").write_text(str(os.getpid()))  # so that the group can be removed
                return peak, over, bool(same)
        except limits.Unavailable as reason:
            return str(reason)

    found = in_child(write)
    if isinstance(found, str):
        pytest.skip(found)
    peak, over, same = found
    assert same
    assert 0 < peak <= CAP * 5 // 4
    assert over <= CAP // 4
