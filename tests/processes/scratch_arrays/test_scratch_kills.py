"""Processes killed while they write scratch arrays, or while these get a name: nothing is left, and no space is lost.

200 rounds; with ONECOPY_TORTURE=1, 1,000.
"""

import contextlib
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.children import fork, status_of
from tests.support.rounds import rounds
from tests.support.seccomp import refuse
from tests.support.small_disks import mount
from tests.support.waiting import until
from tests.support.writing import HIDDEN, KILL, MIB, RENAMES, names_in

import onecopy as oc
import onecopy.arrays.scratch

ROUNDS = rounds(200)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SECONDS = 250
"""How long all rounds of a test may take."""
LONGEST = 0.02
"""Seconds that a step is repeated before the kill, at most; one repetition takes a few milliseconds."""


def scratch(folder: Path) -> oc.arrays.scratch.Scratch:
    return oc.scratch((3, MIB), "u1", folder, max_resident="1 MiB")  # two have room on the disk


def seal_another(folder: Path) -> None:
    with scratch(folder) as other:
        other.write(0, 1)
        assert other.seal().array.sum() == MIB


STEPS: dict[str, Callable[[Any, Path], object]] = {
    "create": lambda _, folder: scratch(folder).close(),
    "write": lambda ours, _: [ours.write(row, row + 1) for row in range(3)],
    "write through the mapping": lambda ours, _: ours.array.__iadd__(1),
    "release": lambda ours, _: (ours.write(0, 1), ours.release(slice(0, 2))),
    "flush": lambda ours, _: (ours.write(0, 1), ours.flush()),
    "seal": lambda _, folder: seal_another(folder),
}


class Worker:
    """A forked process that runs `work`, which is given a function that reports a unit of work; `done` counts them."""

    def __init__(self, work: Callable[[Callable[[], object]], object]) -> None:
        self._reports = multiprocessing.get_context("fork").Value("Q", 0)
        self.pid = fork(lambda: work(self._report))

    def _report(self) -> None:
        self._reports.value += 1

    @property
    def done(self) -> int:
        return int(self._reports.value)

    def kill(self) -> int:
        os.kill(self.pid, signal.SIGKILL)
        return status_of(self.pid)


def repeat(step: str, folder: Path) -> Worker:
    def work(report: Callable[[], object]) -> None:
        with scratch(folder) as ours:
            while True:
                STEPS[step](ours, folder)
                report()

    return Worker(work)


def names_of(folder: Path) -> set[str]:
    return set(names_in(folder)) - {"lost+found"}


def free_of(folder: Path, wanted: int) -> int:
    """Return the free blocks of a disk; the kernel may count those of a killed process a moment later."""
    with contextlib.suppress(AssertionError):
        until(lambda: os.statvfs(folder).f_bfree == wanted, seconds=10)
    return os.statvfs(folder).f_bfree


@pytest.fixture
def disk(reserving, small_disk, tmp_path) -> Path:
    return tmp_path / "disk"


def test_a_process_that_is_killed_in_any_step_of_writing_leaves_nothing(disk, in_child):
    def rounds() -> Counter[str]:
        mount("ext4", disk)
        oc.scratch(1, "u1", disk).close()
        before, dice, killed = os.statvfs(disk).f_bfree, random.Random(ROUNDS), Counter[str]()
        for number in range(ROUNDS):
            step = list(STEPS)[number % len(STEPS)]
            worker = repeat(step, disk)
            until(lambda: worker.done)  # noqa: B023
            time.sleep(dice.uniform(0, LONGEST))  # any moment of the step will do
            held = before - os.statvfs(disk).f_bfree
            assert worker.kill() == -signal.SIGKILL
            assert held > 0  # there was something to lose
            assert free_of(disk, before) == before
            assert names_of(disk) == set()
            killed[step] += 1
        return killed

    killed = in_child(rounds, seconds=SECONDS)
    assert killed.keys() == STEPS.keys()


# The system call that kills the process, and what the kill leaves: files of hidden names.
CALLS = {"before the file has a name": (("linkat",), 0), "before the name is the target's": (RENAMES, 1)}
# Where the kill comes: in which call, after how many files that were saved.
MOMENTS = [(call, saved) for call in (*CALLS, "at any moment") for saved in (0, 1)]


def save_for_ever(folder: Path, moment: str, saved: int) -> Worker:
    """Save files one over the other, each full of its number; the kernel kills the process in the call of `moment`."""

    def work(report: Callable[[], object]) -> None:
        for number in range(1, 256):
            if moment in CALLS and number == saved + 1:
                refuse(*CALLS[moment][0], error=KILL)
            with oc.scratch((2, MIB), "u1", folder) as ours:
                ours.write(None, number)
                ours.save(folder / "saved")
            report()

    return Worker(work)


def saved_in(folder: Path) -> int:
    """Return the number of the file that is in place, each byte of which has been looked at; 0: there is none."""
    if not (folder / "saved").exists():
        return 0
    with oc.open(folder / "saved", verify=True) as file:
        number = int(file["data"][0, 0])
        assert number > 0
        assert (file["data"] == number).all()
    return number


def test_a_process_that_is_killed_while_it_saves_leaves_a_whole_file_or_none(disk, in_child):
    def rounds() -> Counter[tuple[str, int]]:
        mount("ext4", disk)
        oc.scratch(1, "u1", disk).close()
        before, dice, killed = os.statvfs(disk).f_bfree, random.Random(ROUNDS), Counter[tuple[str, int]]()
        for number in range(ROUNDS // 4):
            moment, saved = MOMENTS[number % len(MOMENTS)]
            (disk / "saved").unlink(missing_ok=True)
            assert len(names_of(disk)) <= 1  # of the last round
            worker = save_for_ever(disk, moment, saved)
            if moment in CALLS:
                assert (status_of(worker.pid), worker.done) == (-signal.SIGSYS, saved)
                assert saved_in(disk) == saved
                assert len(names_of(disk) - {"saved"}) == CALLS[moment][1]  # what the last round left was swept
            else:
                until(lambda: worker.done >= saved)  # noqa: B023
                time.sleep(dice.uniform(0, LONGEST))
                assert worker.kill() == -signal.SIGKILL
                assert worker.done <= saved_in(disk) <= worker.done + 1  # in place, and not reported yet
            hidden = names_of(disk) - {"saved"}
            assert len(hidden) <= 1
            assert all(HIDDEN.fullmatch(name) for name in hidden)
            killed[moment, min(saved_in(disk), 1)] += 1
        with oc.scratch((2, MIB), "u1", disk) as ours:
            ours.save(disk / "saved")
        assert names_of(disk) == {"saved"}  # what the last one left is swept
        (disk / "saved").unlink()
        assert free_of(disk, before) == before
        return killed

    killed = in_child(rounds, seconds=SECONDS)
    for moment in [(call, saved) for call in CALLS for saved in (0, 1)] + [("at any moment", 1)]:
        assert killed[moment] >= ROUNDS // 4 // len(MOMENTS)
