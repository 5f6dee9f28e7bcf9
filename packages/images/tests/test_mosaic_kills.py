"""Processes that are killed while they stitch images: no partial image and no other file stays.

30 rounds of killing; with ONECOPY_TORTURE=1, 500.
"""

import os
import random
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.children import fork, status_of
from tests.support.images import noise, read_back
from tests.support.rounds import rounds
from tests.support.seccomp import refuse
from tests.support.writing import KILL, RENAMES

import onecopy as oc

pytest.importorskip("tifffile")
pytest.importorskip("imagecodecs")

ROUNDS = rounds(30, 500)

pytestmark = pytest.mark.processes


class Stitching:
    """Four tiles, and a file or folder that they are stitched into."""

    POSITIONS = ((0, 0), (0, 900), (1400, 0), (1400, 900))

    def __init__(self, path: Path, max_resident: str | None) -> None:
        self.path, self.max_resident = path, max_resident
        self.tiles = [noise((1500, 1000)) + number for number in range(4)]
        self.expected = np.zeros((2900, 1900), np.uint16)
        for tile, (y, x) in zip(self.tiles, self.POSITIONS, strict=True):
            self.expected[y : y + 1500, x : x + 1000] = tile

    def write(self, **options: Any) -> bool:
        oc.images.mosaic(
            self.tiles, self.POSITIONS, self.path, tile=(256, 256), max_resident=self.max_resident, **options
        ).close()
        return True

    def stop_at_the_first_tile(self, announce: Callable[[], object]) -> bool:
        return self.write(progress=lambda *_: announce())

    def die_before_it_is_in_place(self, announce: Callable[[], object]) -> bool:
        refuse(*RENAMES, error=KILL)
        announce()
        return self.write()

    def stop_with_the_whole(self, announce: Callable[[], object]) -> bool:
        self.write()
        announce()
        return True

    def is_right(self) -> bool:
        return np.array_equal(read_back(self.path), self.expected)

    def names(self) -> set[str]:
        """List the folder; besides the output there may be hidden files only."""
        names = {path.name for path in self.path.parent.iterdir()}
        assert all(re.match(r"\.onecopy-|\.a\.\S+\.onecopy-", name) for name in names - {self.path.name}), names
        return names


def status_after(work: Callable[[Callable[[], object]], bool], delay: float | None, *, is_killed: bool) -> int:
    """Kill a forked process at the moment of `work` that it announces, or after a delay; return its status."""
    reading, writing = os.pipe()

    def announce() -> None:
        os.write(writing, b".")
        if is_killed:
            signal.pause()

    pid = fork(lambda: work(announce))
    os.close(writing)
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        announced = pipe.read(1) == b"." if delay is None else not time.sleep(delay)
        if is_killed:
            os.kill(pid, signal.SIGKILL)
        status = status_of(pid)
    assert announced, f"the process ended with status {status} before the moment came"
    return status


# An output, and how much of the canvas may be in memory.
OUTPUTS = [("a.oc", None), ("a.oc", "8 MiB"), ("a.ome.tif", None), ("a.zarr", "8 MiB")]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "max_resident"), OUTPUTS)
def test_whoever_is_killed_while_stitching_leaves_nothing_that_the_next_does_not_remove(
    needs_unnamed_files, tmp_path, name, max_resident
):
    pytest.importorskip("zarr")  # it starts threads that stay: only children use it
    (tmp_path / "out").mkdir()
    stitching, rng, killed = Stitching(tmp_path / "out" / name, max_resident), random.Random(2), Counter[str]()
    start = time.perf_counter()
    assert status_of(fork(stitching.write)) == 0
    seconds = time.perf_counter() - start
    moments = {
        "at the first tile": stitching.stop_at_the_first_tile,
        "before it is in place": stitching.die_before_it_is_in_place,
        "with the whole": stitching.stop_with_the_whole,
        "at any moment": stitching.stop_with_the_whole,
    }
    for number in range(max(ROUNDS // 3, 2 * len(moments))):
        moment = list(moments)[number % len(moments)]
        subprocess.run(["rm", "-rf", stitching.path], check=True)
        before = stitching.names()
        delay = rng.uniform(0, seconds) if moment == "at any moment" else None
        dies = moment == "before it is in place"
        assert status_after(moments[moment], delay, is_killed=not dies) == -(signal.SIGSYS if dies else signal.SIGKILL)
        left = stitching.names()
        if moment == "at the first tile":
            assert name not in left
            assert len(left - before) <= name.endswith(".tif")  # whose space is reserved beside it
        elif moment == "before it is in place":
            assert left - before
            assert name not in left
        elif moment == "with the whole":
            assert left == {name}
        assert name not in left or status_of(fork(stitching.is_right)) == 0
        killed[moment] += 1
    assert killed.keys() == moments.keys()
    assert status_of(fork(lambda: stitching.write(overwrite=True))) == 0
    assert stitching.names() == {name}
    assert status_of(fork(stitching.is_right)) == 0
