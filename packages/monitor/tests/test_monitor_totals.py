"""The total of a group of real processes beside what walks through all page tables say: a sum of PSS."""

import os
import resource
import signal
import time

import pytest
from tests.support.children import children_of
from tests.support.kernel import needs_memory_files
from tests.support.page_cache import nearly
from tests.support.waiting import until
from tests.support.watched import MAP, TOUCH_ALL, Watched

from onecopy.memory import proc
from onecopy_monitor import COLUMNS, Sampler, Snapshot, sample_of

pytestmark = pytest.mark.processes

MIB = 1 << 20
FORKED = """
    import os, signal, sys
    data = [bytearray(4096) for _ in range(int(sys.argv[1]) << 8)]
    children = []
    for _ in range(int(sys.argv[2])):
        ours, theirs = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            while os.read(theirs[0], 1):
                for one in data[: len(data) // 3]:
                    one[0] = 1
                os.write(ours[1], b".")
        children.append((ours[0], theirs[1]))
"""
WRITE = """
    for answer, order in children:
        os.write(order, b".")
        os.read(answer, 1)
"""


def walked(pids: list[int]) -> dict[str, int]:
    """Add up what walks say, now."""
    found = [proc.rollup(pid) for pid in pids]
    names = ("rss", "pss", "pss_anon", "pss_file", "pss_shmem")
    return {name: sum(getattr(one, name) or 0 for one in found) for name in names}


def settled(sampler: Sampler) -> Snapshot:
    """Sample until the page tables of every process have been walked."""
    since = time.time()
    snapshots: list[Snapshot] = []

    def walked_since() -> bool:
        snapshots[:] = [sampler.sample()]
        return all(one.walk is not None and one.walk.at >= since for one in snapshots[0].processes if one.rss)

    until(walked_since, "the walk of every process")
    return snapshots[0]


def test_eight_processes_that_map_one_file_hold_it_once(cold_file, needs_cachestat):
    path = cold_file(128 * MIB)
    with Watched(MAP + TOUCH_ALL, path, count=8) as group, Sampler(group.pids) as sampler:
        totals = (snapshot := sampler.sample()).totals
        truth = walked(group.pids)
        (file,) = [one for one in sampler.sample().files if one.path == str(path)]
    for column in ("page_tables", "swap", "real", "sum_of_rss"):
        parts = sum(one.row[COLUMNS.index(column)] for one in sample_of(snapshot).processes)
        assert parts == pytest.approx(getattr(totals, column), abs=8), column
    assert totals.page_tables > 8 * 4096
    assert file.once == 128 * MIB
    assert len(file.pids) == 8
    assert file.saves == pytest.approx(7 * 128 * MIB, rel=0.01)
    assert totals.file_clean + totals.file_dirty == pytest.approx(truth["pss_file"], rel=0.01)
    assert totals.real == pytest.approx(truth["pss"], rel=0.01)
    assert totals.sum_of_rss == pytest.approx(truth["rss"], rel=0.01)
    assert totals.sum_of_rss > 8 * 128 * MIB
    assert totals.basis == "files"


def test_cached_pages_that_nobody_maps_do_not_count(cold_file, needs_cachestat):
    path = cold_file(64 * MIB)
    path.read_bytes()
    with Watched(MAP + "    touch(memory, 0, 1 << 20)\n", path, count=3) as group, Sampler(group.pids) as sampler:
        snapshot = sampler.sample()
        truth = walked(group.pids)
        (file,) = [one for one in snapshot.files if one.path == str(path)]
    assert file.cached == nearly(64 * MIB)
    assert file.once <= sum(one.file for one in snapshot.processes)
    assert snapshot.totals.real == pytest.approx(truth["pss"], rel=0.02)


def test_a_forked_tree_is_counted_by_walks_while_it_copies_what_it_shares():
    with Watched(FORKED, 64, 7, after=WRITE) as group, Sampler(group.pids, children=True, budget=0.5) as sampler:
        before = settled(sampler)
        pids = [one.pid for one in before.processes]
        truth = walked(pids)
        group.go_on()
        after = settled(sampler)
        truth_after = walked(pids)
    assert len(pids) == 8
    assert before.totals.basis == "walks"
    assert before.totals.walked_s is not None
    assert before.totals.real == pytest.approx(truth["pss"], rel=0.02)
    assert before.totals.sum_of_rss > 4 * before.totals.real
    assert truth_after["pss"] - truth["pss"] > 100 * MIB
    assert after.totals.real == pytest.approx(truth_after["pss"], rel=0.02)


@needs_memory_files
def test_the_total_keeps_up_while_a_file_and_a_memory_file_are_being_mapped_in(cold_file, needs_cachestat):
    """What was cached and not mapped in at the last walk must not be missing, nor counted, for ever after."""
    path = cold_file(64 * MIB)
    path.read_bytes()
    code = """
    import os
    fd = os.memfd_create("filled")
    os.truncate(fd, 32 << 20)
    written = mmap.mmap(fd, 32 << 20)
    done = 0
    """
    after = """
    touch(memory, done * (8 << 20), (done + 1) * (8 << 20))
    for at in range(done * (4 << 20), (done + 1) * (4 << 20), 4096):
        written[at] = 1
    done += 1
    """
    with Watched(MAP + code, path, count=3, after=after) as group, Sampler(group.pids, budget=0.02) as sampler:

        def follows() -> bool:
            return sampler.sample().totals.real == pytest.approx(walked(group.pids)["pss"], rel=0.1)

        for _ in range(8):
            group.go_on()
            # On a busy machine the budget delays the next walk: the total follows, a little later. The kernel may evict
            # pages meanwhile, so each sample has a truth of its own.
            until(follows, "the total")


def test_a_refreshed_sample_finds_what_was_mapped_a_moment_ago(cold_file):
    path = cold_file(16 * MIB)
    with Watched("import sys", path, after=MAP + TOUCH_ALL) as group, Sampler(group.pids) as sampler:
        sampler.sample()
        group.go_on()
        assert str(path) not in [one.path for one in sampler.sample().files]
        assert str(path) in [one.path for one in sampler.sample(refresh=True).files]


def test_exact_is_a_walk_of_all_processes_at_each_sample(cold_file):
    path = cold_file(16 * MIB)
    with Watched(MAP + TOUCH_ALL, path, count=3) as group, Sampler(group.pids, exact=True) as sampler:
        totals = sampler.sample().totals
        truth = walked(group.pids)
    assert totals.basis == "exact"
    assert totals.real == pytest.approx(truth["pss"], rel=0.005)


@needs_memory_files
@pytest.mark.parametrize("private", [False, True])
def test_memory_files_count_once_as_shmem(private):
    """Torch shares tensors through /dev/shm, this library through memory files: they have a path, and are memory."""
    code = """
        import mmap, os, sys
        fd = os.memfd_create("tensor")
        os.truncate(fd, 32 << 20)
        memory = mmap.mmap(fd, 32 << 20)
        for at in range(0, len(memory), 4096):
            memory[at] = 1
        children = []
        for _ in range(3):
            if os.fork() == 0:
                touch(memory)
                os.write(2, b"")
                import time
                time.sleep(100)
    """
    with Watched(code) as group, Sampler(group.pids, children=True, files=not private) as sampler:
        (parent,) = group.pids

        def all_have_touched_it() -> bool:
            return [proc.status(pid).rss_shmem for pid in (parent, *children_of(parent))] == [32 * MIB] * 4

        until(all_have_touched_it, "all four to have touched everything")
        snapshot = settled(sampler)
        truth = walked([one.pid for one in snapshot.processes])
        for one in snapshot.processes[1:]:
            os.kill(one.pid, signal.SIGKILL)
    assert snapshot.totals.shmem == pytest.approx(truth["pss_shmem"], rel=0.02)
    assert snapshot.totals.shmem == pytest.approx(32 * MIB, rel=0.05)
    if not private:
        (file,) = [one for one in snapshot.files if one.kind == "shmem"]
        assert "tensor" in file.path


def test_dirty_pages_of_a_file_are_reported(tmp_path, needs_cachestat):
    path = tmp_path / "written.bin"
    path.write_bytes(bytes(16 * MIB))
    code = """
        import mmap, os, sys
        file = open(sys.argv[1], "r+b")
        os.fsync(file.fileno())
        memory = mmap.mmap(file.fileno(), 0)
        for at in range(0, 8 << 20, 4096):
            memory[at] = 1
    """
    with Watched(code, path) as group, Sampler(group.pids) as sampler:
        snapshot = sampler.sample()
    assert 8 * MIB <= snapshot.totals.file_dirty <= 9 * MIB
    (process,) = sample_of(snapshot).processes
    assert process.row[COLUMNS.index("file_dirty")] == snapshot.totals.file_dirty


# --- those who go, and those who come ---------------------------------------------------------------------------------


def test_processes_that_are_killed_leave_the_group():
    with Watched("", count=3) as group, Sampler(group.pids) as sampler:
        assert len(sampler.sample().processes) == 3
        group.kill(1)
        snapshot = sampler.sample()
        assert [one.pid for one in snapshot.processes] == sorted(group.pids[:1] + group.pids[2:])
        assert snapshot.ended == (group.pids[1],)
        group.kill(0, 2)
        snapshot = sampler.sample()
    assert snapshot.processes == ()
    assert snapshot.totals.real == 0


def test_zombies_hold_nothing():
    with (
        Watched("import os\nif os.fork() == 0: os._exit(0)") as group,
        Sampler(group.pids, children=True, exact=True) as sampler,
    ):
        until(lambda: "Z" in [one.state for one in sampler.sample().processes], "a zombie")
        snapshot = sampler.sample()
    (zombie,) = [one for one in snapshot.processes if one.state == "Z"]
    assert snapshot.totals.basis == "exact"
    assert (zombie.rss, zombie.share, zombie.parent) == (0, 0, group.pids[0])


def test_children_of_one_that_ended_stay_in_the_group():
    code = """
        import os, signal, time
        if os.fork() == 0:
            if os.fork() == 0:
                time.sleep(100)
            time.sleep(100)
    """
    with Watched(code) as group, Sampler(group.pids, children=True) as sampler:
        until(lambda: len(sampler.sample().processes) == 3, "a child and its child")
        child, grandchild = [one.pid for one in sampler.sample().processes if one.pid not in group.pids]
        try:
            os.kill(child, signal.SIGKILL)
            until(lambda: proc.stat(grandchild).ppid != child, "the grandchild to be an orphan")
            assert grandchild in [one.pid for one in sampler.sample().processes if one.state != "Z"]
        finally:
            os.kill(grandchild, signal.SIGKILL)


def test_a_number_that_is_used_again_is_another_process(monkeypatch):
    with Watched("", count=2) as group, Sampler(group.pids[:1]) as sampler:
        group.kill(0)
        told = proc.stat  # as if the second one had the number of the first
        monkeypatch.setattr(proc, "stat", lambda _: told(group.pids[1]))
        assert sampler.sample().processes == ()


def test_processes_that_cannot_be_opened_for_want_of_descriptors_are_reported():
    with Watched("", count=6) as group:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        null = os.open(os.devnull, os.O_RDONLY)
        # The lowest free numbers are given out: below the highest of these none is free, whatever other tests opened.
        taken = [os.dup(null) for _ in range(20)]
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (taken[-1] + 1, limit[1]))
            for _ in range(4):
                os.close(taken.pop())
            with Sampler(group.pids, files=False) as sampler:
                snapshot = sampler.sample()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)
            for descriptor in (null, *taken):
                os.close(descriptor)
    assert 1 <= len(snapshot.processes) <= 4
    assert any("too many open files in this process" in note for note in snapshot.totals.notes)


def test_a_group_of_names_grows(tmp_path):
    mark = f"mark-{os.getpid()}-{tmp_path.name}"
    with Watched("", mark) as one, Sampler(regex=mark) as sampler:
        assert [process.pid for process in sampler.sample().processes] == one.pids
        with Watched("", mark) as other:
            both = {*one.pids, *other.pids}
            until(lambda: {process.pid for process in sampler.sample().processes} == both, "the new one to be found")


# --- whose it is ------------------------------------------------------------------------------------------------------


def test_a_process_of_another_user_is_sampled_as_far_as_permitted(nobody, in_child):
    def look() -> tuple[str, int, tuple[str, ...]]:
        with Sampler([group.pids[0]]) as sampler:
            snapshot = sampler.sample()
            return snapshot.processes[0].unknown, snapshot.processes[0].anonymous, snapshot.totals.notes

    with Watched("") as group:
        unknown, anonymous, notes = in_child(look, uid=nobody)
    assert unknown == "belongs to another user"
    assert anonymous > MIB
    assert notes[0] == "the page tables of 1 of 1 process were not walked: their shares are estimated"
