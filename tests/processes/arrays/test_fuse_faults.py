"""Files on a file system in user space whose server fails, gives too little, hangs or dies."""

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

import pytest
from tests.support.fuse_disk import UNLIMITED
from tests.support.fuse_models import (
    ARRAYS,
    MIB,
    NAME,
    call_on_fuse,
    error_of,
    lost,
    saved_model,
    skip_without_fuse,
    wrong_bytes,
)
from tests.support.waiting import until

import onecopy as oc
from onecopy.files.page_cache import residency

pytestmark = pytest.mark.processes


@pytest.fixture
def on_fuse(tmp_path: Path) -> Callable[..., Any]:
    """Give a function (work, **options of fuse_disk) that calls work(path, faults) in a child that has the disk."""
    skip_without_fuse(tmp_path / "fuse")
    return partial(call_on_fuse, tmp_path / "fuse")


# --- one that fails ---------------------------------------------------------------------------------------------------

BAD = 5 * MIB, 5 * MIB + 1  # in a4 or a5, wherever the header ends


def test_a_failed_read_under_the_guard_is_zeros_and_data_lost(on_fuse):
    def work(path, faults):
        oc.files.guard()
        faults.fail(*BAD)
        with oc.open(path) as file:
            offset = BAD[0] - file.entry("a4").offset
            name, at = ("a4", offset) if offset < MIB else ("a5", offset - MIB)
            good, bad = file["a0"].copy(), int(file[name][at])
            calls = [oc.files.check, lambda: file["a0"], file.verify, file.warm, lambda: file.entries]
            return bool((good == ARRAYS["a0"]).all()), bad, [error_of(call) for call in calls], str(path)

    good, bad, errors, path = on_fuse(work)
    assert (good, bad) == (True, 0)
    assert errors == [lost(path)] * 5


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errno.EIO, oc.DataLost),
        (errno.ETIMEDOUT, TimeoutError),
        (errno.EACCES, PermissionError),
        (errno.ESTALE, OSError),
    ],
)
def test_a_failed_read_of_a_copy_is_an_error_with_its_number_and_path(on_fuse, error, kind):
    def work(path, faults):
        faults.fail(*BAD, error)
        found = error_of(lambda: oc.open(path, mode="copy"))
        faults.fail(0, 0)
        with oc.open(path, mode="copy") as file:
            return found, str(path), wrong_bytes(file)

    found, path, wrong = on_fuse(work)
    assert found == (kind, error, path)
    assert wrong == 0  # nothing of the failure is kept


@pytest.mark.parametrize("mechanism", ["populate", "read"])
def test_warming_and_verifying_report_a_failed_read(on_fuse, populates, mechanism):
    if mechanism == "populate" and not populates:
        pytest.skip("madvise(MADV_POPULATE_READ) is refused")

    def work(path, faults):
        faults.fail(*BAD)
        with oc.open(path) as file:
            errors = [
                error_of(lambda: file.warm(mechanism=mechanism)),
                error_of(lambda: file.warm(mechanism=mechanism, verify=True)),
                error_of(file.verify),
            ]
            faults.fail(0, 0)
            report = file.warm(mechanism=mechanism, verify=True)
            return errors, str(path), report.complete, wrong_bytes(file)

    errors, path, complete, wrong = on_fuse(work)
    assert errors == [lost(path)] * 3
    assert complete
    assert wrong == 0


# --- one that gives too little ----------------------------------------------------------------------------------------

WAYS = {
    "touch": oc.open,
    "copy": lambda path: oc.open(path, mode="copy"),
    "private": lambda path: oc.open(path, private=True),
    "warm": lambda path: oc.open(path, warm=True),
    "verify": lambda path: oc.open(path, verify=True),
}
CUTS = [5 * MIB, 5 * MIB + 1234, len(saved_model()) - 100]


def read_by(open_it: Callable[[Path], oc.ArrayFile], path: Path) -> tuple[int, str | None]:
    """Open a file and touch all of it; return how many bytes are wrong without an error, and the error."""
    try:
        with open_it(path) as file:
            wrong = wrong_bytes(file)
            oc.files.check()
            return wrong, None
    except (oc.FormatError, oc.ChecksumError) as error:
        return 0, str(error)
    except OSError as error:
        return 0, f"{error.errno} {error.filename}"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", CUTS)
def test_a_file_that_was_truncated_before_it_was_opened(on_fuse, way, size):
    """The kernel believes the old size; a short answer is the end of the file for it."""

    def work(path, faults):
        oc.files.guard()
        path.stat()
        faults.size = size
        assert path.stat().st_size == len(saved_model())
        return *read_by(WAYS[way], path), str(path)

    _, error, path = on_fuse(work, seconds_valid=3600)
    assert error == f"{errno.EIO} {path}"


@pytest.mark.parametrize("size", CUTS)
def test_a_file_that_was_truncated_while_it_was_open(on_fuse, size):
    def work(path, faults):
        oc.files.guard()
        file, copy = oc.open(path), oc.open(path, mode="copy")
        before = file.changed()
        faults.size = size
        changed = file.changed()
        calls = [oc.files.check, file.warm, lambda: residency(file), lambda: oc.evict(file)]
        errors = [error_of(call) for call in calls]
        for mode in ("map", "copy"):
            with pytest.raises(oc.FormatError, match=NAME):
                oc.open(path, mode)
        wrong = wrong_bytes(copy)
        file.close()
        return before, changed, errors, str(path), wrong

    before, changed, errors, path, wrong_in_copy = on_fuse(work)
    assert (before, changed) == (False, True)
    assert errors == [lost(path)] * 4
    assert wrong_in_copy == 0


@pytest.mark.parametrize("at_once", [10_000, 64 << 10])
def test_warming_finds_answers_that_are_short_in_the_middle_of_a_file(on_fuse, populates, at_once):
    """Such answers break FUSE's rules: the kernel puts zeros in place of the rest, and takes the file for shorter."""
    if not populates:
        pytest.skip("madvise(MADV_POPULATE_READ) is refused")

    def work(path, faults):
        faults.at_once = at_once
        with oc.open(path) as file:
            errors = error_of(file.warm), error_of(lambda: file.warm(verify=True))
        faults.at_once = UNLIMITED
        oc.evict(path)
        return errors, str(path), read_by(WAYS["verify"], path)

    errors, path, later = on_fuse(work)
    assert errors == (lost(path), lost(path))
    assert later == (0, None)


# --- one that hangs or dies -------------------------------------------------------------------------------------------


def test_a_server_that_hangs_and_dies(on_fuse):
    def work(path, faults):
        with oc.open(path) as file:
            oc.evict(file)
            faults.seconds = 3600
            job = file.warm(wait=False)
            with pytest.raises(TimeoutError):
                job.wait(timeout=0.2)
            waiting = job.done
            faults.kill_server()
            return waiting, error_of(job.wait), error_of(job.wait), error_of(lambda: oc.open(path)), str(path)

    waiting, waited, again, opened, path = on_fuse(work)
    assert not waiting
    assert waited is not None
    assert waited == again
    assert waited[2] == path
    assert opened == (OSError, errno.ENOTCONN, path)


CALLS = {
    "warm": "file.warm()",
    "verify": "file.verify()",
    "copy": "oc.open(path, mode='copy')",
    "snapshot": "oc.open(path, mode='snapshot')",
}
ENDED = {"warm", "verify"}
"""The process ends while the server hangs. The others may have faults that the kernel lets wait for the answer."""
HANGING = """
    import sys, time
    import onecopy as oc
    path = sys.argv[1]
    file = oc.open(path)
    print("begun", flush=True)
    sys.stdin.readline()
    try:
        {call}
    except (TimeoutError, KeyboardInterrupt) as error:
        print(type(error).__name__, getattr(error, "filename", None), flush=True)
"""


@pytest.mark.parametrize("ends", ["timeout", "ctrl-c"])
@pytest.mark.parametrize("call", CALLS)
def test_a_call_does_not_wait_for_ever_for_a_server_that_hangs(on_fuse, call, ends):
    def work(path, faults):
        command = [sys.executable, "-W", "error", "-c", textwrap.dedent(HANGING.format(call=CALLS[call])), path]
        environment = {**os.environ, "ONECOPY_READ_TIMEOUT": "0.3" if ends == "timeout" else "1000"}
        environment["ONECOPY_CACHE"] = str(Path(path).parent.with_name("cache"))
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(command, text=True, env=environment, **pipes) as child:
            assert child.stdout.readline() == "begun\n"
            oc.evict(path)
            faults.hangs = 1
            print(file=child.stdin, flush=True)
            until(lambda: faults.in_flight > 0, "the first read")
            if ends == "ctrl-c":
                child.send_signal(signal.SIGINT)
            line = child.stdout.readline()
            if call in ENDED:
                child.wait(timeout=30)  # with threads that still wait
            faults.hangs = 0
            status = child.wait(timeout=60)
        return line, status, str(path)

    line, status, path = on_fuse(work)
    assert (line, status) == (f"TimeoutError {path}\n" if ends == "timeout" else "KeyboardInterrupt None\n", 0)


def test_a_server_that_dies_under_a_guarded_view(on_fuse):
    def work(path, faults):
        oc.files.guard()
        with oc.open(path) as file:
            oc.evict(file)
            array = file["a7"]
            faults.kill_server()
            value = int(array[MIB // 2])
            return value, error_of(oc.files.check), error_of(lambda: file["a7"]), str(path)

    value, *errors, path = on_fuse(work, seconds_valid=3600)
    assert value == 0
    assert errors == [lost(path)] * 2
