"""One copy of the rows, however the processes came to be: forked, spawned, started from elsewhere, killed meanwhile."""

from __future__ import annotations

import errno
import gc
import json
import multiprocessing
import os
import pickle
import resource
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.support import shared_rows
from tests.support.children import descriptors, fork, run_python, status_of
from tests.support.places import ROOT
from tests.support.small_disks import blocks_used
from tests.support.waiting import until

import onecopy as oc
from onecopy.errors import NotEnoughMemory

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

MIB = 2**20


@pytest.fixture(scope="module")
def expected() -> str:
    return shared_rows.digest(shared_rows.rows())


def ranks(count: int, folder: Path, log: Path) -> list[subprocess.Popen[str]]:
    program = f"from tests.support import shared_rows; shared_rows.rank({str(folder)!r}, {str(log)!r})"
    return [
        subprocess.Popen(
            [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize(
    ("method", "key"), [("fork", None), ("spawn", None), ("spawn", "rows"), ("forkserver", "rows")]
)
@pytest.mark.slow
def test_workers_read_the_same_rows_and_hold_no_copy(method, key, expected, tmp_path):
    data = oc.share(shared_rows.rows, key, store=tmp_path / "cache")
    shared_rows.digest(data)  # what is mapped by one process alone counts as its own
    context: Any = multiprocessing.get_context(method)
    queue = context.Queue()
    workers = [context.Process(target=shared_rows.answer, args=(data, queue)) for _ in range(3)]
    for worker in workers:
        worker.start()
    answers = [queue.get(timeout=120) for _ in workers]
    for worker in workers:
        worker.join()
    assert [found for found, _ in answers] == [expected] * 3
    assert max(grown for _, grown in answers) < MIB < data.nbytes / 3


def test_threads_read_the_same_rows(expected):
    data = oc.share(shared_rows.rows)
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(shared_rows.digest, [data] * 4)) == {expected}


def test_threads_that_share_at_once_build_once(tmp_path):
    log = tmp_path / "log"
    with ThreadPoolExecutor(4) as pool:
        shared = list(
            pool.map(lambda _: oc.share(lambda: shared_rows.slow_rows(log, 0.2), "k", store=tmp_path / "c"), range(4))
        )
    assert len(log.read_text().split()) == 1
    assert len({data.path for data in shared}) == 1


@pytest.mark.slow
def test_ranks_that_know_nothing_of_each_other_build_once(expected, tmp_path):
    running = ranks(4, tmp_path / "cache", tmp_path / "log")
    told = [json.loads(process.communicate(timeout=120)[0]) for process in running]
    assert {answer["digest"] for answer in told} == {expected}
    assert sum(answer["built"] for answer in told) == 1
    assert len((tmp_path / "log").read_text().split()) == 1
    again = json.loads(ranks(1, tmp_path / "cache", tmp_path / "log")[0].communicate(timeout=120)[0])
    assert (again["built"], again["digest"]) == (False, expected)


def test_a_rank_that_is_killed_while_it_builds_is_replaced(expected, tmp_path):
    log = tmp_path / "log"
    running = ranks(3, tmp_path / "cache", log)
    until(lambda: log.exists() and log.read_text().endswith("\n"))
    builder = int(log.read_text().split()[0])  # the rank itself, or the child it builds in
    os.kill(builder, signal.SIGKILL)
    answers = [process.communicate(timeout=120)[0] for process in running]
    digests = [json.loads(answer)["digest"] for answer in answers if answer]
    assert digests.count(expected) == len(digests) >= 2
    left = sorted(path.suffix for path in (tmp_path / "cache").iterdir())
    assert ".claim" not in left
    assert len([suffix for suffix in left if suffix != ".about"]) == 1


def test_a_nameless_share_needs_its_owner_only_until_it_is_attached(expected):
    reader, writer = os.pipe()
    stop, go = os.pipe()

    def own() -> bool:
        data = oc.share(shared_rows.rows)
        os.write(writer, pickle.dumps(data))
        os.read(stop, 1)
        return True

    owner = fork(own)
    handle = os.read(reader, 4096)
    data = pickle.loads(handle)
    os.kill(owner, signal.SIGKILL)
    status_of(owner)
    assert shared_rows.digest(data) == expected
    with pytest.raises(FileNotFoundError, match=f"pid {owner}"):
        pickle.loads(handle)
    assert shared_rows.digest(pickle.loads(pickle.dumps(data))) == expected  # it can be handed on from here
    os.close(go)


def test_a_fork_during_a_warm_reads_on(expected, tmp_path):
    data = oc.share(shared_rows.rows, "k", store=tmp_path / "cache")
    data.evict()
    job = data.warm(wait=False)
    child = fork(lambda: shared_rows.digest(data) == expected)
    assert shared_rows.digest(data) == expected
    assert status_of(child) == 0
    job.wait()


def test_ctrl_c_ends_a_build_and_leaves_nothing(tmp_path):
    before = descriptors()

    def endless() -> Any:
        i = 0
        while True:
            yield {"i": i}
            i += 1
            if i == 5000:
                os.kill(os.getpid(), signal.SIGINT)

    for key in (None, "k"):
        with pytest.raises(KeyboardInterrupt):
            oc.share(endless, key, store=oc.Store(tmp_path / "cache", where="here"))
    assert descriptors() == before
    assert not [path for path in (tmp_path / "cache").iterdir() if path.suffix != ".claim"]


def test_a_build_that_fails_in_a_child_reports_it_here():
    def load() -> Any:
        raise LookupError("no such split")

    with pytest.raises(LookupError, match="no such split") as raised:
        oc.share(load, store=oc.Store(where="fork"))
    assert any("Raised in process" in note for note in raised.value.__notes__)

    def kill() -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(ChildProcessError, match="SIGKILL"):
        oc.share(kill, store=oc.Store(where="fork"))


@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
def test_a_full_disk_is_an_error_and_leaves_nothing(kind, small_disk):

    def fill() -> bool:
        folder = small_disk(kind)
        before = descriptors()
        with pytest.raises(OSError, match=rf"\[Errno {errno.ENOSPC}\].*{folder}"):
            oc.share(({"x": os.urandom(1000)} for _ in range(100_000)), "k", store=folder / "cache")
        gc.collect()  # the error's frames
        assert descriptors() == before
        assert [path for path in (folder / "cache").iterdir() if path.suffix not in (".claim",)] == []
        small: Any = oc.share([1, 2], "small", store=folder / "cache")
        return bool(small == [1, 2])

    assert status_of(fork(fill)) == 0


def written_bytes() -> int:
    """Return the bytes that this process has caused to be written to disks; writes to memory do not count."""
    return int(dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())["write_bytes"])


@pytest.mark.slow
@pytest.mark.parametrize("where", ["here", "fork"])
def test_what_is_to_be_in_memory_never_reaches_a_disk(tmp_path, small_disk, monkeypatch, where):
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / "disk" / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "disk"))

    def share() -> bool:
        small_disk("64 MiB", Path("/dev/shm"))
        disk = small_disk("64 MiB")  # of its own: others write to the one of tmp_path meanwhile
        memory = oc.Store(place="memory", where=where)
        before, blocks = written_bytes(), blocks_used(disk)
        small = oc.share([b"x" * MIB] * 10, "small", store=memory)
        assert small.path.startswith("/dev/shm/"), small.path
        with pytest.raises(NotEnoughMemory, match=r"the file system of /dev/shm/onecopy-.* bytes free") as raised:
            oc.share((os.urandom(MIB) for _ in range(70)), "large", store=memory)
        assert isinstance(raised.value, MemoryError)
        nameless = oc.share((os.urandom(MIB) for _ in range(70)), store=memory)  # a memfd is not in /dev/shm
        assert len(nameless) == 70
        assert not (disk / "cache").exists()
        assert blocks_used(disk) == blocks
        return written_bytes() - before < 10 * MIB

    assert status_of(fork(share)) == 0


def test_few_descriptors_are_enough_for_many_keys(tmp_path):
    def share() -> bool:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        for i in range(200):
            with oc.share([i], f"key {i}", store=tmp_path / "cache") as data:
                assert data[0] == i
        held = [oc.share([i], f"key {i}", store=tmp_path / "cache") for i in range(30)]
        with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
            held += [oc.share([i]) for i in range(100)]
        return all(data[0] == i for i, data in enumerate(held))

    assert status_of(fork(share)) == 0


@pytest.mark.parametrize("noticed", [True, False])
def test_a_damaged_artefact_is_built_anew_or_named(noticed, tmp_path):
    path = Path(oc.share(["a", "b"], "k", store=tmp_path / "cache").path)
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(20)
        file.write(b"\0\0\0")
    if noticed:  # another process wrote to it
        again = oc.share(["a", "b"], "k", store=tmp_path / "cache")
        assert again == ["a", "b"]
        assert again.report is not None
        assert again.report.built
        return
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # the disk did
    with pytest.raises(oc.FormatError, match=path.name):
        oc.share(["a", "b"], "k", store=tmp_path / "cache")


def test_two_jobs_of_one_key_do_not_read_each_others_pickles(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    first = oc.share([threading.Lock], "k", codec="pickle", store=tmp_path / "c")
    same = oc.share([threading.Lock], "k", codec="pickle", store=tmp_path / "c")
    assert same.report is not None
    assert not same.report.built
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    other = oc.share([threading.Event], "k", codec="pickle", store=tmp_path / "c")
    assert (first[0], same[0], other[0]) == (threading.Lock, threading.Lock, threading.Event)


def keys_in(folder: Path) -> list[str]:
    return sorted(artefact.key.rpartition(", ")[2] for artefact in oc.Store(folder).ls())


def test_pickles_of_jobs_that_are_gone_go_when_the_next_ones_are_written(tmp_path, monkeypatch):
    folder = tmp_path / "store"
    code = """
        import os, sys, threading
        import onecopy as oc
        os.setsid()
        oc.share([threading.Lock], "k", codec="pickle", store=sys.argv[1])
    """
    run_python(code, folder)
    (left,) = keys_in(folder)
    assert left.startswith("pickled by job session ")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    with oc.share([threading.Lock], "k", codec="pickle", store=folder):
        assert keys_in(folder) == ["pickled by job SLURM_JOB_ID 7"]
    week_ago = time.time() - 8 * 24 * 3600
    for about in folder.glob("*.about"):
        os.utime(about, (week_ago, week_ago))
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    with oc.share([threading.Lock], "k", codec="pickle", store=folder):
        assert keys_in(folder) == ["pickled by job SLURM_JOB_ID 8"]
    with oc.share(["a"], "k", store=folder):
        assert len(keys_in(folder)) == 2


def test_what_is_in_memory_and_on_disk_is_mapped_from_memory(tmp_path, monkeypatch):
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / "cache"))
    memory, key = oc.Store(place="memory"), f"k {tmp_path}"
    for store in (memory, oc.Store()):
        oc.share(["a"], key, store=store).close()
    with oc.share(["a"], key, store=memory) as rows:
        assert (rows.report.place, rows.report.built) == ("memory", False)
    memory.prune(keys=[rows.report.key])


def test_what_is_pruned_before_it_is_opened_is_built_again(tmp_path, monkeypatch):
    get_or_build, pruned = oc.Store.get_or_build, []

    def and_prune(self, key, *arguments, **options):
        found = get_or_build(self, key, *arguments, **options)
        if not pruned:
            pruned.extend(self.prune(everything=True).removed)
        return found

    monkeypatch.setattr(oc.Store, "get_or_build", and_prune)
    assert oc.share(lambda: ["a"], "k", store=tmp_path / "cache") == ["a"]
    assert len(pruned) == 1
