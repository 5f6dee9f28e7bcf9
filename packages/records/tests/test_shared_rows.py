"""One copy of the rows, however the processes came to be: forked, spawned, started from elsewhere, killed meanwhile."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from packages.records.tests import shared_rows
from tests.support.children import fork, run_python, status_of
from tests.support.small_disks import blocks_used

import onecopy as oc
from onecopy.errors import NotEnoughMemory

pytestmark = pytest.mark.timeout(180)

MIB = 2**20


@pytest.fixture(scope="module")
def expected() -> str:
    return shared_rows.digest(shared_rows.rows())


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
    with pytest.raises(FileNotFoundError, match=f"process {owner}"):
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
