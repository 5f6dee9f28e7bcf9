"""Processes killed while they write scratch arrays, or while these get a name: nothing is left, and no space is lost.

200 rounds; with ONECOPY_TORTURE=1, 1,000.
"""

import os
import random
import signal
import time
from pathlib import Path

import pytest
from tests.support.small_disks import mount
from tests.support.writing import HIDDEN, MIB

import onecopy as oc

ROUNDS = 1000 if os.environ.get("ONECOPY_TORTURE") == "1" else 200

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(300)]
# Children that are stopped at a random moment of these; longer than any of them takes.
LONGEST = 0.04  # seconds


def write_for_ever(folder: Path) -> None:
    while True:
        with oc.scratch((4, MIB), "u1", folder, max_resident="1 MiB") as ours:
            for row in range(4):
                ours.write(row, row + 1)
            ours.array[0] = 9
            ours.release(slice(0, 2))
            ours.flush()
            ours.seal().array.sum()


def save_for_ever(folder: Path) -> None:
    for number in range(1, 1 << 20):
        with oc.scratch((2, MIB), "u1", folder) as ours:
            ours.write(None, number % 256)
            ours.save(folder / "saved")


def killed_at_any_moment(work, folder: Path, seed: int) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            work(folder)
        finally:
            os._exit(1)
    time.sleep(random.Random(seed).uniform(0, LONGEST))
    os.kill(pid, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


def names_of(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"lost+found"}


def free_of(folder: Path, wanted: int) -> int:
    """Return the free blocks of a disk; the kernel may take a moment to count those of the dead."""
    end = time.monotonic() + 10
    while (free := os.statvfs(folder).f_bfree) != wanted and time.monotonic() < end:
        time.sleep(0.01)
    return free


@pytest.fixture
def disk(reserving, small_disk, tmp_path) -> Path:
    return tmp_path / "disk"


def test_a_process_that_is_killed_while_it_writes_leaves_nothing(disk, in_child):
    def rounds() -> int:
        signal.alarm(250)
        mount("ext4", disk)
        oc.scratch(1, "u1", disk).close()
        before = os.statvfs(disk).f_bfree
        for seed in range(ROUNDS):
            killed_at_any_moment(write_for_ever, disk, seed)
            assert free_of(disk, before) == before
            assert names_of(disk) == set()
        return ROUNDS

    assert in_child(rounds) == ROUNDS


def test_a_process_that_is_killed_while_it_saves_leaves_a_whole_file_or_none(disk, in_child):
    def rounds() -> None:
        signal.alarm(250)
        mount("ext4", disk)
        for seed in range(ROUNDS // 4):
            (disk / "saved").unlink(missing_ok=True)
            killed_at_any_moment(save_for_ever, disk, seed)
            hidden = names_of(disk) - {"saved"}
            assert len(hidden) <= 1
            assert all(HIDDEN.fullmatch(name) for name in hidden)
            if (disk / "saved").exists():
                with oc.open(disk / "saved", verify=True) as file:
                    assert len(set(file["data"][:, 0])) == 1
        with oc.scratch((2, MIB), "u1", disk) as ours:
            ours.save(disk / "saved")
        assert names_of(disk) == {"saved"}  # what the last one left is swept

    in_child(rounds)
