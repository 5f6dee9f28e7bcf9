"""Files on a file system in user space: what works there, what is refused, and a server that is slow."""

import errno
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.fuse_models import (
    ARRAYS,
    MIB,
    NAME,
    call_on_fuse,
    error_of,
    facts,
    saved_model,
    skip_without_fuse,
    wrong_bytes,
)
from tests.support.waiting import until

import onecopy as oc
from onecopy.files.page_cache import residency
from onecopy.run.holder import Holder

pytestmark = pytest.mark.processes

RECLAIMED = MIB // 4  # bytes that the kernel may take back meanwhile
STEP = 4 * MIB  # what one thread warms before it checks whether it was cancelled


@pytest.fixture
def on_fuse(tmp_path: Path) -> Callable[..., Any]:
    """Give a function (work, **options of fuse_disk) that calls work(path, faults) in a child that has the disk."""
    skip_without_fuse(tmp_path / "fuse")
    return partial(call_on_fuse, tmp_path / "fuse")


# --- a good server ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"mode": "copy"}, {"private": True}, {"warm": True, "verify": True}])
def test_arrays_are_those_that_were_saved(on_fuse, options):
    def work(path, faults):
        with oc.open(path, **options) as file:
            return wrong_bytes(file), faults.bytes

    wrong, served = on_fuse(work)
    assert wrong == 0
    assert served >= 8 * MIB


def test_auto_mode_takes_a_snapshot_and_names_the_file_system(on_fuse, tmp_path, monkeypatch):
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / "store"))

    def work(path, faults):
        with oc.open(path, mode="auto") as file:
            before = faults.reads
            return file.mode, file.mode_reason, wrong_bytes(file), faults.reads - before

    mode, reason, wrong, later_reads = on_fuse(work)
    assert (mode, wrong, later_reads) == ("snapshot", 0, 0)
    assert "on fuse" in reason
    assert reason.endswith("a snapshot in the store")


def test_a_file_of_a_server_is_held_under_a_name_and_leaves_the_page_cache(on_fuse):
    name = f"fuse-{os.getpid()}"

    def work(path, faults):
        with Holder(names={name: path}, pin=0) as hold:
            first, again = hold.refresh(), hold.refresh()
            with oc.open(f"hold:{name}") as file, oc.Mapping(path) as source:
                return [change.what for change in first + again], wrong_bytes(file), residency(source).cached

    changes, wrong, cached = on_fuse(work)
    assert (changes, wrong) == (["held"], 0)
    assert cached is None or cached < MIB


COPIES = """
with oc.open(path, mode="copy") as file:
    print(sum(int(file[name].view("uint8").sum()) for name in file))
"""
WARMS = """
with oc.open(path) as file:
    file.warm([f"a{2 * rank}", f"a{2 * rank + 1}"])
    print(sum(int(file[f"a{i}"].sum()) for i in (2 * rank, 2 * rank + 1)))
"""
SLICES = """
with oc.open(path) as file:
    part = slice(rank * 2**18, (rank + 1) * 2**18)
    file.warm([(name, part) for name in file])
    print(sum(int(file[name][part].sum()) for name in file))
"""
TOUCHES = """
with oc.open(path) as file:
    print(sum(int(file[f"a{i}"].sum()) for i in (2 * rank, 2 * rank + 1)))
"""


def side_by_side(code: str, path: Path) -> list[subprocess.Popen[str]]:
    """Start four ranks that have imported what they need, and let them run `code` at once."""
    head = "import sys\nimport onecopy as oc\npath, rank = sys.argv[1], int(sys.argv[2])\n"
    head += "print('ready', flush=True)\ninput()"
    command = [sys.executable, "-c", head + code, path]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    ranks = [subprocess.Popen([*command, str(rank)], **pipes, text=True) for rank in range(4)]
    assert [rank.stdout.readline() for rank in ranks] == ["ready\n"] * 4
    for rank in ranks:
        rank.stdin.write("\n")
        rank.stdin.flush()
    return ranks


@pytest.mark.parametrize("code", [COPIES, WARMS, SLICES, TOUCHES], ids=["copies", "arrays", "slices", "touches"])
def test_ranks_that_read_side_by_side_read_each_byte_once(on_fuse, code):
    def work(path, faults):
        oc.evict(path)
        faults.bytes, faults.seconds = 0, 0.002
        ranks = side_by_side(code, path)
        said = [rank.communicate()[0] for rank in ranks]
        return said, faults.bytes, [rank.returncode for rank in ranks]

    said, served, codes = on_fuse(work)
    assert codes == [0] * 4
    whole = sum(int(array.sum()) for array in ARRAYS.values())
    sums = list(map(int, said))
    assert sums == [whole] * 4 if code == COPIES else sum(sums) == whole
    assert served <= 1.05 * len(saved_model()) + RECLAIMED


def test_residency_and_evict_report_the_page_cache(on_fuse):
    def work(path, _):
        oc.evict(path)
        before = residency(path)
        oc.warm(path, [(0, MIB)], huge=False)
        part = residency(path, [(0, MIB)])
        oc.warm(path)
        return [facts(report) for report in (before, part, oc.evict(path), residency(path))]

    before, part, evicted, after = on_fuse(work)
    assert (before.bytes, before.cached) == (len(saved_model()), 0)
    assert MIB - RECLAIMED <= part.cached <= MIB
    assert len(saved_model()) - RECLAIMED <= evicted.cached_before <= len(saved_model())
    assert evicted.cached_after == 0
    assert after.cached == 0


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("name", ["new.safetensors", NAME])
def test_save_is_refused_and_changes_nothing(on_fuse, read_only, name):
    def work(path, _):
        error = error_of(lambda: oc.save(path.with_name(name), {"a": np.zeros(1000)}))
        return (
            error,
            str(path.with_name(name)),
            [entry.name for entry in path.parent.iterdir()],
            path.read_bytes() == saved_model(),
        )

    error, target, names, same = on_fuse(work, read_only=read_only)
    assert error == (OSError, errno.EROFS, target)
    assert (names, same) == ([NAME], True)


def test_without_shared_mappings_a_copy_is_right_and_a_mapping_is_refused(on_fuse):
    """Direct I/O: the kernel refuses MAP_SHARED, and a READ may give less than was requested."""

    def work(path, faults):
        faults.at_once = 10_001
        refused = [error_of(lambda: oc.open(path)), error_of(lambda: oc.warm(path))]
        faults.reads = 0
        with oc.open(path, mode="copy") as file:
            return refused, str(path), wrong_bytes(file), faults.reads

    refused, path, wrong, reads = on_fuse(work, direct_io=True)
    assert refused == [(OSError, errno.ENODEV, path)] * 2
    assert wrong == 0
    assert reads > 8 * MIB // 10_001


# --- a slow one -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["populate", "read"])
def test_warming_reports_what_a_slow_server_gave(on_fuse, populates, mechanism):
    if mechanism == "populate" and not populates:
        pytest.skip("madvise(MADV_POPULATE_READ) is refused")

    def work(path, faults):
        oc.evict(path)
        faults.reads, faults.bytes, faults.seconds = 0, 0, 0.01
        report = oc.warm(path, mechanism=mechanism)
        reads, served, at_once = faults.reads, faults.bytes, faults.most_in_flight
        with oc.open(path) as file:
            wrong = wrong_bytes(file)
        return facts(report), reads, served, at_once, faults.bytes, wrong

    report, reads, served, at_once, served_later, wrong = on_fuse(work)
    size = len(saved_model())
    assert wrong == 0
    assert (report.cached_before, report.filled) == (0, size)
    assert size <= served <= size + RECLAIMED
    assert (report.complete, report.mechanism) == (True, mechanism)
    assert size - RECLAIMED <= report.cached_after <= size
    assert served_later - served <= RECLAIMED  # nothing else was left to be read
    assert report.seconds >= 0.01 * reads / at_once
    assert (report.file_system, report.latency > 0.01) == ("fuse", True)
    assert report.gib_per_s == pytest.approx(size / (1 << 30) / report.seconds)


INTERRUPTED = """
    import sys
    import onecopy as oc
    print("begun", flush=True)
    try:
        oc.warm(sys.argv[1], huge=False)
        print("not interrupted", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""
INTERRUPTED_JOB = """
    import sys
    import onecopy as oc
    job = oc.warm(sys.argv[1], huge=False, wait=False)
    try:
        print("begun", flush=True)
        job.wait()
        print("not interrupted", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        report = job.wait()
        assert not report.complete and "cancelled" in report.reason, report
"""


@pytest.mark.parametrize("code", [INTERRUPTED, INTERRUPTED_JOB])
def test_ctrl_c_does_not_wait_for_the_server(on_fuse, code):
    def work(path, faults):
        oc.evict(path)
        faults.reads, faults.bytes, faults.seconds = 0, 0, 0.2
        command = [sys.executable, "-W", "error", "-c", textwrap.dedent(code), path]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout.readline() == "begun\n"
            until(lambda: faults.reads > 0, "the first read")
            child.send_signal(signal.SIGINT)
            line = child.stdout.readline()
            served = faults.bytes
            faults.seconds = 0.0
            status = child.wait(timeout=60)
        return line, served, status

    line, at_interrupt, status = on_fuse(work)
    assert (line, status) == ("interrupted\n", 0)
    assert at_interrupt < STEP  # reported while the server was still busy with the first step


COPY = """
    import sys
    import onecopy as oc
    print("begun", flush=True)
    try:
        oc.open(sys.argv[1], mode="copy", threads=1)
        print("not interrupted", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


def test_ctrl_c_stops_a_copy(on_fuse):
    def work(path, faults):
        faults.seconds = 0.02
        command = [sys.executable, "-W", "error", "-c", textwrap.dedent(COPY), path]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout.readline() == "begun\n"
            until(lambda: faults.reads > 1, "the first reads")
            child.send_signal(signal.SIGINT)
            lines = child.communicate(timeout=60)[0]
        return lines, faults.bytes

    lines, served = on_fuse(work)
    assert lines == "interrupted\n"
    assert served < len(saved_model())
