"""Ctrl-C and fork while a file is being warmed."""

import errno
import os
import signal
import socket
import time

import pytest
from tests.support.children import forked, talking
from tests.support.refusals import os_error
from tests.support.waiting import until

import onecopy as oc

MIB = 1 << 20

WARM = """
    import sys
    import onecopy as oc
    def say(done, total):
        if done:
            print("begun", flush=True)
    options = {"threads": 1, "mechanism": "read", "huge": False}
    job = oc.warm(sys.argv[1], **options, wait=False) if sys.argv[2] == "job" else None
    try:
        job.wait(progress=say) if job else oc.warm(sys.argv[1], **options, progress=say)
        print("not interrupted")
    except KeyboardInterrupt:
        report = job.wait() if job else None
        print("interrupted" if not job or "cancelled" in report.reason and not report.complete else report.reason)
"""


@pytest.mark.parametrize("how", ["call", "job"])
def test_ctrl_c_stops_a_warm(slow_file, cached, how):
    with talking(WARM, slow_file, how) as child:
        assert child.stdout.readline() == "begun\n"
        child.send_signal(signal.SIGINT)
        assert child.communicate(timeout=60)[0].split()[-1] == "interrupted"
    assert child.returncode == 0
    assert 0 < cached(slow_file) < slow_file.stat().st_size


def test_a_forked_child_can_warm_and_not_wait_for_a_job_of_the_parent(slow_file, cold_file, in_child):
    path = cold_file(16 * MIB)
    job = oc.warm(slow_file, wait=False, threads=1, mechanism="read", huge=False)
    while job.progress[0] == 0:
        time.sleep(0.001)
    assert in_child(lambda: (oc.warm(path).complete, oc.warm(path, wait=False, threads=2).wait().complete)) == (
        True,
        True,
    )
    for wait in (job.wait, lambda: job.wait(timeout=5), lambda: job.done):
        with os_error(errno.ECHILD, slow_file):
            in_child(wait)
    assert "WarmJob" in in_child(lambda: repr(job))
    assert not job.done
    job.cancel()
    assert not job.wait().complete


LONG_CALLS = """
    import os, pickle, signal, sys, time
    import numpy as np, onecopy as oc
    from onecopy import _core
    path, what = sys.argv[1], sys.argv[2]
    many = 3_000_000
    if what == "save":
        big = {"a": np.ones(600 << 20, np.uint8)}
    if what == "copy":
        open(path, "wb").close()
        os.truncate(path, 3 << 30)  # holes
        oc.Mapping(path, mode="copy").close()  # the time of the next is that of the page cache
    if what in ("take", "batch"):
        rows = oc.share({"n": i, "text": "x" * 40} for i in range(300_000))
        places = np.random.default_rng(1).integers(0, len(rows), many)
    if what == "index":
        builders = [_core.RecordBuilder(os.path.dirname(path), "dict", {}) for _ in range(2)]
        for builder in builders:
            builder.extend(((f"key-{i}", i) for i in range(1_000_000)), lambda value: None)
    if what == "arrow":
        text = oc.share({"text": "x" * 2000} for _ in range(300_000))
    if what == "value":
        one = oc.share([[True] * 20_000_000])
    calls = {
        "save": lambda: oc.save(path, big),
        "copy": lambda: oc.Mapping(path, mode="copy", threads=1).close(),
        "take": lambda: rows.take(places),
        "batch": lambda: rows.__getitems__(places),
        "value": lambda: one[0],
        "index": lambda: builders.pop().save(path),
        "arrow": lambda: pickle.loads(pickle.dumps(text)).__arrow_c_stream__(),
    }
    call = calls[what]
    begun = time.process_time()
    call()
    whole = time.process_time() - begun
    # By the kernel, after a tenth of the CPU time: what holds the GIL lets no other thread of this process run.
    signal.signal(signal.SIGPROF, signal.default_int_handler)
    begun = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, whole / 10)
    try:
        call()
        print("not interrupted")
    except KeyboardInterrupt:
        print((time.process_time() - begun) / whole)
"""


@pytest.mark.parametrize(
    "what", ["save", pytest.param("copy", marks=pytest.mark.slow), "take", "batch", "value", "index", "arrow"]
)
def test_ctrl_c_ends_a_long_call_long_before_its_end(python, tmp_path, what):
    """In CPU time of the same process, so that other work on the machine has no effect."""
    assert float(python(LONG_CALLS, tmp_path / "file", what)) < 0.6


@pytest.mark.slow
def test_a_process_that_waits_for_another_one_to_warm_sees_that_bytes_arrive(cold_file):
    path = cold_file(48 * MIB)
    facts = path.stat()
    code = """
    import sys
    import onecopy as oc
    report = oc.warm(sys.argv[1], wait=False).wait()
    print(report.complete, (report.cached_before or 0) < report.bytes)
    """
    environment = {**os.environ, "ONECOPY_READ_TIMEOUT": "1"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as claim, path.open("rb", buffering=0) as file:
        claim.bind(f"\0onecopy warms {facts.st_dev} {facts.st_ino}")  # what the process has that warms the file
        claim.listen()
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        with talking(code, path, env=environment) as other:
            for _ in range(192):
                file.read(MIB // 4)
                time.sleep(0.02)  # the other process waits 50 ms for the first bytes
            claim.close()
            assert other.communicate(timeout=60)[0] == "True True\n"


def test_a_child_that_is_forked_while_a_file_is_warmed_does_not_keep_its_name(slow_file):
    facts = slow_file.stat()

    def is_taken() -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
            try:
                one.bind(f"\0onecopy warms {facts.st_dev} {facts.st_ino}")
            except OSError:
                return True
            return False

    job = oc.warm(slow_file, wait=False, threads=1, huge=False)
    until(is_taken)
    with forked(signal.pause):
        job.cancel()
        job.wait()
        assert not is_taken()
