"""Warming beside other work: progress, ends, and threads. No test asserts a time; the slow file is 4 GiB of holes."""

import json
import os
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.safetensors_files import file_of
from tests.support.turns import turns_of_another_thread
from tests.support.waiting import until

import onecopy as oc
from onecopy import _core
from onecopy.files.page_cache import WarmReport, residency
from onecopy.memory import proc

MIB = 1 << 20
SLOWLY = {"threads": 1, "mechanism": "read", "huge": False}


def is_mapped(path: Path) -> bool:
    return bool(proc.regions_of(os.getpid(), path))


# --- jobs -------------------------------------------------------------------------------------------------------------


def test_a_job_ends_with_the_report_that_warm_would_have_given(cold_file, cached):
    path = cold_file(8 * MIB)
    job = oc.warm(path, wait=False)
    report = job.wait()
    assert isinstance(report, WarmReport)
    assert report.complete
    assert report.filled == cached(path) == 8 * MIB
    assert job.done
    assert job.progress == (8 * MIB, 8 * MIB)
    assert job.wait(timeout=0).filled == report.filled  # as often as you like
    assert repr(job) == f"<onecopy.WarmJob {8 * MIB} of {8 * MIB} bytes, done>"


def test_files_that_are_given_as_a_list_are_warmed_and_evicted_as_one(cold_file, cached):
    paths = [cold_file(3 * MIB, "a"), cold_file(5 * MIB, "b"), cold_file(MIB, "c")]
    with oc.Mapping(paths[2]) as opened:
        report = oc.warm([paths[0], str(paths[1]), opened])
    assert report.complete
    assert report.bytes == sum(map(cached, paths)) == 9 * MIB
    assert oc.residency(paths).cached == oc.evict(paths).bytes == 9 * MIB
    for wrong, error in (((paths, [(0, 1)]), TypeError), (([paths[0], 5],), TypeError), (([paths[0], "no"],), OSError)):
        with pytest.raises(error, match=r"several files|5|No such file"):
            oc.warm(*wrong)


@pytest.fixture
def slow_job(slow_file):
    """Give a job that has begun to read; it is cancelled at the end."""
    job = oc.warm(slow_file, wait=False, **SLOWLY)
    until(lambda: job.progress[0], "the job to begin")
    yield job
    job.cancel()


def test_a_cancelled_job_reports_what_was_done(slow_job, slow_file, cached):
    names = [(task / "comm").read_text() for task in Path("/proc/self/task").iterdir()]
    assert "onecopy-warm\n" in names
    slow_job.cancel()
    report = slow_job.wait()
    assert not report.complete
    assert "cancelled" in report.reason
    assert 0 < report.filled < report.bytes == 4 << 30
    assert report.filled <= cached(slow_file) < 4 << 30
    assert slow_job.progress[0] == report.filled


def nice_values() -> set[int]:
    """Nice values of the threads that warm."""
    threads = [task for task in Path("/proc/self/task").iterdir() if (task / "comm").read_text() == "onecopy-warm\n"]
    return {os.getpriority(os.PRIO_PROCESS, int(task.name)) for task in threads}


def test_threads_have_a_lower_priority_only_while_the_program_does_other_work(slow_job, slow_file):
    own, seen = os.getpriority(os.PRIO_PROCESS, 0), []
    until(lambda: slow_job.progress[0])
    assert nice_values() == {own + 5}
    slow_job.cancel()
    slow_job.wait()

    def look(done: int, total: int) -> None:
        if 0 < done < total:
            seen.append(nice_values())
            raise Enough

    with pytest.raises(Enough):
        oc.warm(slow_file, progress=look, **SLOWLY)
    assert seen == [{own}]
    assert os.getpriority(os.PRIO_PROCESS, 0) == own


def test_waiting_with_a_timeout_leaves_the_job_running(slow_job):
    for timeout in (0.01, 0):
        with pytest.raises(TimeoutError, match=", and is still running"):
            slow_job.wait(timeout=timeout)
    assert slow_job._core.wait_for(float("nan")) is None
    assert not slow_job.done
    before = slow_job.progress[0]
    until(lambda: slow_job.progress[0] > before, "the job to go on")


def test_a_job_that_is_dropped_stops(slow_file, cached):
    jobs = [oc.warm(slow_file, wait=False, **SLOWLY)]
    until(lambda: jobs[0].progress[0], "the job to begin")
    jobs.clear()
    check_stopped(slow_file, cached)
    assert not is_mapped(slow_file)


def check_stopped(path: Path, cached: Callable[[Path], int]) -> None:
    after = cached(path)
    assert 0 < after < 4 << 30
    time.sleep(0.1)
    assert cached(path) <= after + 8 * MIB  # what the kernel reads ahead still arrives; a job would read far more


def test_a_job_keeps_the_memory_when_the_file_is_closed(slow_file):
    with oc.Mapping(slow_file) as mapping:
        job = oc.warm(mapping, wait=False, **SLOWLY)
    assert is_mapped(slow_file)
    job.cancel()
    job.wait()
    del job
    assert not is_mapped(slow_file)


# --- progress ------------------------------------------------------------------------------------------------------


def test_progress_rises_to_the_total(slow_file):
    calls: list[tuple[int, int]] = []
    with oc.Mapping(slow_file) as mapping:
        oc.warm(mapping, [(0, 512 * MIB)], progress=lambda done, total: calls.append((done, total)), **SLOWLY)
    assert {total for _, total in calls} == {512 * MIB}
    assert calls == sorted(calls)
    assert calls[0][0] < calls[-1][0] == 512 * MIB


def test_progress_begins_with_what_was_in_memory(cold_file):
    with oc.Mapping(cold_file(16 * MIB)) as mapping:
        oc.warm(mapping, [(0, 8 * MIB)])
        for _ in range(2):
            calls: list[tuple[int, int]] = []
            oc.warm(mapping, progress=lambda done, total, calls=calls: calls.append((done, total)))
            assert calls[-1] == (16 * MIB, 16 * MIB)


class Enough(BaseException):
    pass


# TimeoutError too, which wait itself raises without cancelling.
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, Enough, TimeoutError])
def test_raising_in_on_progress_cancels_and_nothing_more_is_read(slow_file, cached, error):
    def give_up(done: int, total: int) -> None:
        if done:
            raise error("enough")

    job = oc.warm(slow_file, wait=False, **SLOWLY)
    with pytest.raises(error, match="enough"):
        job.wait(progress=give_up)
    assert not job.wait().complete
    check_stopped(slow_file, cached)
    with pytest.raises(error, match="enough"):
        oc.warm(slow_file, progress=give_up, **SLOWLY)


def test_a_slow_on_progress_does_not_stretch_the_timeout(slow_job):
    calls: list[int] = []

    def slow(done: int, total: int) -> None:
        calls.append(done)
        time.sleep(0.1)

    with pytest.raises(TimeoutError):
        slow_job.wait(timeout=0.2, progress=slow)
    assert len(calls) <= 3  # one at the start, and two fill the time


# --- threads ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [1e9, 9.3e9, 1e300, float("inf")])
def test_a_wait_without_an_end_ends_with_the_job(slow_file, seconds):
    with oc.Mapping(slow_file) as mapping:
        job = oc.warm(mapping, [(0, 512 * MIB)], wait=False, **SLOWLY)
    report = job._core.wait_for(seconds)
    assert report.filled == report.bytes == 512 * MIB  # not `complete`: a busy machine drops pages meanwhile


def test_a_job_on_no_mapping_is_refused():
    with pytest.raises(TypeError):
        _core.start_warm([(None, [], None)], threads=1, huge=None, budget=None, mechanism="read", in_order=False)


def test_the_judge_of_the_next_tests_sees_a_call_that_keeps_the_gil():
    assert turns_of_another_thread(lambda: sum(range(3_000_000))) == 0
    assert turns_of_another_thread(lambda: time.sleep(1)) > 20


def copied(path: Path) -> None:
    oc.Mapping(path, 0, 256 * MIB, mode="copy", threads=1).close()


def read(path: Path, mechanism: str) -> None:
    with oc.Mapping(path) as mapping:
        oc.warm(mapping, [(0, 256 * MIB)], **(SLOWLY | {"mechanism": mechanism}))


LONG_CALLS: dict[str, Callable[[Path], object]] = {
    "populated": lambda path: read(path, "populate"),
    "read": lambda path: read(path, "read"),
    "copied": copied,
}


@pytest.mark.parametrize("call", LONG_CALLS)
def test_other_threads_run_while_a_file_is_read(slow_file, call):
    assert turns_of_another_thread(lambda: LONG_CALLS[call](slow_file)) > 20


def test_other_threads_run_while_a_long_header_is_read(tmp_path):
    path = tmp_path / "many.safetensors"
    one = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    header = json.dumps({f"layers.{number}.weight": one for number in range(100_000)}).encode()
    path.write_bytes(file_of(header))
    assert turns_of_another_thread(lambda: oc.open(path)) > 20


def test_other_threads_run_while_a_file_is_evicted(slow_file):
    with oc.Mapping(slow_file) as mapping:
        oc.warm(mapping, [(0, 512 * MIB)], huge=False)
        assert turns_of_another_thread(lambda: oc.evict(mapping)) > 20


def test_other_threads_run_while_a_running_job_is_dropped(slow_file):
    for _ in range(5):  # on a busy machine the other thread may not come to its turn in so short a time
        jobs = [oc.warm(slow_file, wait=False, **SLOWLY)]
        until(lambda jobs=jobs: jobs[0].progress[0], "the job to begin")
        if turns_of_another_thread(jobs.clear) > 0:
            return
        oc.evict(slow_file)
    raise AssertionError("it had no turn in five tries")


OPERATIONS: list[Callable[[oc.Mapping, int, int], object]] = [
    lambda file, at, length: oc.warm(file, [(at, length)]),
    lambda file, at, length: oc.warm(file, [(at, length)], wait=False),
    lambda file, at, length: oc.evict(file, [(at, length)]),
    lambda file, *_: residency(file),
    lambda file, at, _: oc.files.pin(file, [(at, 4096)]),
    lambda file, *_: oc.files.unpin(file),
    lambda file, *_: file.changed(),
    lambda file, *_: repr(file),
]


def test_any_thread_may_do_anything_to_one_file_at_once(cold_file):
    path = cold_file(8 * MIB)
    content = path.read_bytes()
    file = oc.Mapping(path)
    started = threading.Barrier(4)

    def hammer(seed: int) -> None:
        chance = random.Random(seed)
        started.wait()
        for turn in range(100_000):
            at = chance.randrange(0, 7 * MIB)
            assert bytes(file.view(at, 4096)) == content[at : at + 4096]
            chance.choice(OPERATIONS)(file, at, chance.randrange(1, MIB))
            if seed == 0 and turn == 100:
                file.close()

    with ThreadPoolExecutor(4) as pool:
        ends = [pool.submit(hammer, seed).exception for seed in range(4)]
    assert [str(end()) for end in ends] == [f"the file is closed: {path}"] * 4
    assert not is_mapped(path)
    assert path.read_bytes() == content
