"""Scratch arrays on a disk that is slower than who writes to them."""

import numpy as np
import pytest
from tests.support.memory_group import NoMemoryGroupError, slow_writing
from tests.support.writing import MIB

import onecopy as oc

CAP = 2 * MIB
ROWS = 6


def test_who_writes_faster_than_the_disk_waits_and_keeps_to_the_cap(reserving, small_disk, in_child):
    def write() -> tuple[int, int, bool] | str:
        folder = small_disk("ext4")
        try:
            with slow_writing(folder.stat().st_dev, 4 * MIB) as enter:
                enter()
                peak = over = 0
                with oc.scratch((ROWS, MIB), "u1", folder, max_resident=CAP) as ours:
                    for row in range(ROWS):
                        ours.write(row, np.full(MIB, row + 1, np.uint8))
                        memory = ours.memory()
                        peak, over = max(peak, memory.resident or 0), max(over, memory.over or 0)
                    ours.flush()
                    same = all((ours.array[row] == row + 1).all() for row in range(ROWS))
                return peak, over, bool(same)
        except NoMemoryGroupError as reason:
            return str(reason)

    found = in_child(write)
    if isinstance(found, str):
        pytest.skip(found)
    peak, over, same = found
    assert same
    assert 0 < peak <= CAP * 5 // 4
    assert over <= CAP // 4
