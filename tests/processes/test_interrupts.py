"""Ctrl-C and fork while a file is being warmed."""

import errno
import gc
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import onecopy as oc

pytestmark = [
    pytest.mark.processes,
    # Python 3.12 and later warn of what is tested here: a fork while a thread runs.
    pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning"),
]

MIB = 1 << 20
SLOWLY = {"threads": 1, "mechanism": "read", "huge": False}

WARM = """
    import sys
    import onecopy as oc
    def say(done, total):
        if done:
            print("begun", flush=True)
    try:
        oc.warm(sys.argv[1], threads=1, mechanism="read", huge=False, on_progress=say)
        print("not interrupted")
    except KeyboardInterrupt:
        print("interrupted")
"""
WARM_AS_JOB = """
    import sys
    import onecopy as oc
    def say(done, total):
        if done:
            print("begun", flush=True)
    job = oc.warm(sys.argv[1], threads=1, mechanism="read", huge=False, wait=False)
    try:
        job.wait(on_progress=say)
        print("not interrupted")
    except KeyboardInterrupt:
        report = job.wait()
        print("interrupted" if "cancelled" in report.reason and not report.complete else report.reason)
"""


@pytest.mark.parametrize("code", [WARM, WARM_AS_JOB])
def test_ctrl_c_stops_a_warm(slow_file, cached, code):
    command = [sys.executable, "-c", textwrap.dedent(code), slow_file]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "begun\n"
        child.send_signal(signal.SIGINT)
        told = child.communicate(timeout=60)[0].split()
    assert told[-1] == "interrupted"
    assert child.returncode == 0
    assert 0 < cached(slow_file) < slow_file.stat().st_size


def begun_job(path, ranges=None) -> oc.WarmJob:
    with oc.Mapping(path) as mapping:
        job = oc.warm(mapping, ranges, wait=False, **SLOWLY)
    while job.progress[0] == 0:
        time.sleep(0.001)
    return job


def test_a_forked_child_can_warm_while_a_job_of_the_parent_runs(slow_file, cold_file, in_child):
    path = cold_file(16 * MIB)
    job = begun_job(slow_file)
    assert in_child(lambda: (oc.warm(path).complete, oc.warm(path, wait=False, threads=2).wait().complete)) == (
        True,
        True,
    )
    job.cancel()
    job.wait()


def test_waiting_in_a_forked_child_for_a_job_of_the_parent_is_an_error(slow_file, in_child):
    job = begun_job(slow_file)
    for wait in (job.wait, lambda: job.wait(timeout=5), lambda: job.done):
        with pytest.raises(ChildProcessError) as raised:
            in_child(wait)
        assert (raised.value.errno, raised.value.filename) == (errno.ECHILD, str(slow_file))
    job.cancel()
    assert not job.wait().complete


def test_a_job_of_the_parent_has_a_repr_in_a_forked_child(slow_file, in_child):
    job = begun_job(slow_file)
    assert "WarmJob" in in_child(lambda: repr(job))


def test_a_forked_child_drops_a_job_of_the_parent_without_touching_it(slow_file, in_child):
    jobs = [begun_job(slow_file, [(0, 512 * MIB)])]

    def drop() -> str:
        jobs.clear()
        gc.collect()
        return "alive"

    assert in_child(drop) == "alive"
    assert jobs[0].wait().complete


def test_a_forked_child_reads_what_the_parent_mapped_after_the_parent_closed(cold_file):
    path = cold_file(MIB)
    content = path.read_bytes()
    mapping = oc.Mapping(path)
    views = [mapping.view()]
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(read_end, 1)  # when the parent has closed
        os._exit(0 if bytes(views[0]) == content else 1)
    views.clear()
    mapping.close()
    os.write(write_end, b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(read_end)
    os.close(write_end)
