"""Saves killed at any moment, and writers of one file that race: the target is one of the files, bit for bit.

250 kills in all; with ONECOPY_TORTURE=1, 1,000.
"""

import os
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from tests.support.children import fork, status_of
from tests.support.rounds import rounds
from tests.support.seccomp import refuse
from tests.support.writing import HIDDEN, MIB, names_in

import onecopy as oc

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SMALL, LARGE = 100_000, 34 * MIB  # bytes: one write; three


def version(number: int, size: int) -> dict[str, np.ndarray]:
    """Return arrays that differ in every byte of the data, and in number, from those of other versions."""
    return {f"{number}.{part}": np.full(size // (number + 1), number + 1, np.uint8) for part in range(number + 1)}


def start_save(path: Path, arrays: dict[str, np.ndarray], unnamed: bool) -> int:
    """Save in a forked process; return its PID after its start."""
    begun, begin = os.pipe()

    def save() -> bool:
        if not unnamed:
            refuse("O_TMPFILE")
        os.write(begin, b".")
        oc.save(path, arrays)
        return True

    pid = fork(save)
    os.close(begin)
    os.read(begun, 1)
    os.close(begun)
    return pid


class Target:
    """A target, two versions of it as an undisturbed writer makes them, and the seconds that this takes."""

    def __init__(self, folder: Path, size: int, unnamed: bool) -> None:
        self.path = folder / "target" / "model"
        self.path.parent.mkdir()
        self.versions = [version(number, size) for number in range(2)]
        self.whole = []
        for number, arrays in enumerate(self.versions):
            oc.save(folder / str(number), arrays)
            self.whole.append((folder / str(number)).read_bytes())
        shutil.copy(folder / "0", self.path)
        pid = start_save(self.path, self.versions[0], unnamed)
        start = time.perf_counter()
        assert status_of(pid) == 0
        self.seconds = time.perf_counter() - start

    def there(self) -> int:
        """Return which version stands there: both readers, every byte."""
        number = self.whole.index(self.path.read_bytes())  # ValueError: a third thing
        theirs = safetensors.numpy.load_file(self.path)
        with oc.open(self.path) as file:
            file.verify()
            for name, array in self.versions[number].items():
                assert np.array_equal(file[name], array)
                assert np.array_equal(theirs[name], array)
        return number

    def leftovers(self) -> list[str]:
        names = names_in(self.path.parent)
        names.remove(self.path.name)
        assert all(HIDDEN.fullmatch(name) for name in names)
        return names


@pytest.fixture(params=["a disk", "memory"])
def folder(request, tmp_path) -> Iterator[Path]:
    """Give a folder on the disk of the tests, or one in memory, where flushing takes no time."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if request.param == "memory" else tmp_path) as name:
        yield Path(name)


@pytest.mark.parametrize("unnamed", [True, False])
@pytest.mark.parametrize(("size", "kills"), [(SMALL, rounds(50, 220)), (LARGE, rounds(12, 30))])
def test_a_save_killed_at_any_moment_leaves_the_old_file_or_the_new_one(folder, size, unnamed, kills):
    target = Target(folder, size, unnamed)
    dice = random.Random(size)
    now, seen = target.there(), Counter[str]()
    wanted = ("old", "new") if unnamed else ("old", "new", "left")
    for number in range(40 * kills):
        if number >= kills and all(seen[outcome] for outcome in wanted):
            break
        pid = start_save(target.path, target.versions[1 - now], unnamed)
        time.sleep(dice.uniform(0, 1.2 * target.seconds) if number % 3 else 0)
        os.kill(pid, signal.SIGKILL)
        killed = status_of(pid) != 0
        after = target.there()
        assert killed or after != now  # what went well is in place
        seen["new" if after != now else "old"] += 1
        now = after
        leftovers = target.leftovers()
        assert len(leftovers) <= 1  # the next save has swept the one before
        seen["left"] += len(leftovers)
    assert all(seen[outcome] for outcome in wanted), seen  # on a busy machine, most kills come too late
    oc.save(target.path, target.versions[0])
    assert target.leftovers() == []


@pytest.mark.parametrize(("unnamed", "count"), [(True, 2), (False, 2), (False, 8)])
def test_of_writers_that_race_one_wins_and_nothing_is_left(folder, unnamed, count):
    target = Target(folder, SMALL, unnamed)
    seen = Counter[int]()
    for number in range(rounds(50, 100)):
        order = [(number + place) % 2 for place in range(count)]
        pids = [start_save(target.path, target.versions[which], unnamed) for which in order]
        assert [status_of(pid) for pid in pids] == [0] * count
        seen[target.there()] += 1
        assert target.leftovers() == []
    assert len(seen) == 2
