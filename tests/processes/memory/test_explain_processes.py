"""`why` of real processes that hold what it should find, and what the verb makes of it."""

import contextlib
import json
import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.kernel import needs_memory_files
from tests.support.watched import MAP, TOUCH_ALL, Watched

import onecopy as oc
from onecopy.memory import Cause, Explanation
from onecopy.memory.proc import children_of

MIB = 1 << 20
FORK = """
    import os
    data = [bytearray(4096) for _ in range(40 << 8)]
    order, theirs = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        while os.read(order[0], 1):
            for one in data[: len(data) // 2]:
                one[0] = 1
            os.write(theirs[1], b".")
"""
WRITE = """
    os.write(order[1], b".")
    os.read(theirs[0], 1)
"""


def only(explained: Explanation, code: str, name: str = "") -> Cause:
    (found,) = [one for one in explained.causes if one.code == code and name in one.text]
    return found


def test_a_mapped_file_is_clean_cache_of_a_lone_reader_and_of_several(cold_file):
    path = cold_file(32 * MIB, "weights.bin")
    with Watched(MAP + TOUCH_ALL, path) as one:
        alone = oc.explain(one.pids[0])
        with Watched(MAP + TOUCH_ALL, path, count=3):
            shared = oc.explain(one.pids[0])
    for explained, words in ((alone, "Only this process maps it now"), (shared, "About 4 processes share it")):
        cause = only(explained, "cache", "weights.bin")
        assert cause.bytes == 32 * MIB
        assert words in cause.text
        assert not cause.bad
        assert explained.own < explained.rss - 32 * MIB
        assert not explained.bad


def test_what_was_written_to_in_a_private_mapping_is_wrong(cold_file):
    path = cold_file(32 * MIB, "weights.bin")
    code = """
        import mmap, sys
        file = open(sys.argv[1], "rb")
        memory = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        for at in range(0, 8 << 20, 4096):
            memory[at] = 1
    """
    with Watched(code, path) as group:
        cause = only(oc.explain(group.pids[0]), "written")
    assert cause.bad
    assert cause.bytes == pytest.approx(8 * MIB, rel=0.01)


def test_a_forked_worker_that_copies_what_it_inherited(cold_file):
    with Watched(FORK, after=WRITE) as group:
        (parent,) = group.pids
        (child,) = children_of(parent)
        before = only(oc.explain(child), "forked")
        group.go_on()
        after = only(oc.explain(child), "forked")
        above = only(oc.explain(parent), "forked")
    assert not before.bad
    assert before.bytes < 4 * MIB
    assert after.bad
    assert after.bytes == pytest.approx(20 * MIB, rel=0.15)
    assert f"inherited from process {parent}" in after.text
    assert "its 1 child " in above.text


def test_this_process_knows_what_its_allocator_keeps(python):
    text = python("""
        import onecopy as oc
        held = [bytearray(5000) for _ in range(20000)]
        del held[1::2]
        kept = [one for one in oc.explain().causes if one.code == "kept"]
        print(sum(one.bytes for one in kept), kept[0].text)
    """)
    if "does not report" in text:
        pytest.skip("this C library does not tell what is free")
    assert int(text.split()[0]) > 40 * MIB


def test_growth_is_found_by_looking_twice():
    code = """
        import threading, time
        held = []
        def grow():
            while True:
                held.append(bytearray(1 << 18))
                time.sleep(0.02)
        threading.Thread(target=grow, daemon=True).start()
    """
    with Watched(code) as group:
        explained = oc.explain(group.pids[0], interval=0.5)
        assert not [one for one in oc.explain(group.pids[0]).causes if one.code == "growing"]
    assert only(explained, "growing").bad
    assert explained.causes[0].bad, "what is wrong comes first"


@needs_memory_files
def test_a_file_in_memory_is_the_own_memory_of_the_only_process_that_maps_it():
    code = """
        import mmap, os
        descriptor = os.memfd_create("numbers")
        os.ftruncate(descriptor, 64 << 20)
        memory = mmap.mmap(descriptor, 64 << 20)
        touch(memory)
    """
    with Watched(code) as group:
        (process,) = group.pids
        alone = oc.explain(process)
        assert alone.own > 64 * MIB
        assert "; only this process maps " in only(alone, "shmem", "numbers").text
        with open_memory(process, "numbers") as memory:
            assert sum(memory[at] for at in range(0, len(memory), 4096)) == 0
            shared = oc.explain(process)
        assert shared.own < 32 * MIB
        assert "only this process" not in only(shared, "shmem", "numbers").text


@needs_memory_files
def test_pages_that_a_process_has_copied_from_a_file_in_memory_are_its_own_once():
    code = """
        import mmap, os
        descriptor = os.memfd_create("numbers")
        os.ftruncate(descriptor, 64 << 20)
        memory = mmap.mmap(descriptor, 64 << 20, access=mmap.ACCESS_COPY)
        for at in range(0, len(memory), 4096):
            memory[at] = 1
    """
    with Watched(code) as group:
        assert 64 * MIB < oc.explain(group.pids[0]).own < 120 * MIB


@contextlib.contextmanager
def open_memory(process: int, name: str) -> Iterator[mmap.mmap]:
    """Map a memory file of another process."""
    path, *_ = [one for one in Path(f"/proc/{process}/fd").iterdir() if f"memfd:{name}" in str(one.readlink())]
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as memory:
        yield memory


def test_what_is_its_own_after_the_wait_is_reported():
    """Shared with a child before, and its own when the child has ended: both numbers are of one moment."""
    code = """
        import os, signal
        held = bytearray(b"x") * (64 << 20)
        child = os.fork()
        if child == 0:
            signal.pause()
    """
    with Watched(code, after="os.kill(child, signal.SIGKILL), os.waitpid(child, 0)") as group:
        (pid,) = group.pids
        assert oc.explain(pid).own < 32 * MIB
        with ThreadPoolExecutor(1) as pool:
            explained = pool.submit(oc.explain, pid, interval=2.5)
            group.go_on()
            assert explained.result().own > 64 * MIB


def test_ended_processes_and_processes_of_another_user_are_errors(nobody, in_child):
    with Watched("") as group:
        with pytest.raises(PermissionError, match="belongs to another user"):
            in_child(oc.explain, group.pids[0], uid=nobody)
        pid = group.pids[0]
    with pytest.raises(ProcessLookupError):
        oc.explain(pid)


def verb(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "onecopy", "explain", "--interval", "0", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.slow
def test_the_verb_reports_by_its_status_that_something_is_wrong(cold_file):
    path = cold_file(16 * MIB)
    with Watched(MAP + TOUCH_ALL, path) as group, Watched(FORK, after=WRITE) as forked:
        pid = group.pids[0]
        good = verb(pid)
        assert good.returncode == 0, good.stdout
        assert good.stdout.startswith(f"process {pid} (python")
        assert verb(pid, "--fail-on", "cache").returncode == 3
        assert verb(pid, "--fail-on", "swap,growing").returncode == 0
        assert verb(pid, "--fail-on", "everything").returncode == 2
        forked.go_on()
        (child,) = children_of(forked.pids[0])
        bad = verb(child, "--json")
        assert bad.returncode == 3
        (facts,) = json.loads(bad.stdout)
        assert facts["causes"][0]["code"] == "forked"
        os.kill(child, signal.SIGKILL)
    assert verb(pid).returncode == 1
    assert verb(pid).stderr.startswith(f"onecopy: /proc/{pid}/")
