"""Files on a file system in user space whose server is good, slow, fails, gives too little, hangs or dies."""

import contextlib
import errno
import functools
import inspect
import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.children import call_in_child, talking
from tests.support.fuse_disk import UNLIMITED, fuse_disk
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
from tests.support.refusals import os_error
from tests.support.shards import INDEX
from tests.support.waiting import until

import onecopy as oc
from onecopy.files.page_cache import residency
from onecopy.run.holder import Holder

RECLAIMED = MIB // 4  # bytes that the kernel may take back meanwhile


def on_fuse(**options: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test of (path, faults, fixtures and parameters) in a child that has the disk, which `options` describe."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(tmp_path: Path, **named: Any) -> None:
            skip_without_fuse(tmp_path / "fuse")
            call_on_fuse(tmp_path / "fuse", functools.partial(test, **named), **options)

        _, _, *others = inspect.signature(test).parameters.values()
        own = [inspect.Parameter("tmp_path", inspect.Parameter.POSITIONAL_OR_KEYWORD), *others]
        run.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
        return run

    return decorate


# --- a good server ----------------------------------------------------------------------------------------------------


@on_fuse()
def test_a_file_of_a_server_is_held_under_a_name_and_leaves_the_page_cache(path, faults):
    name = f"fuse-{os.getpid()}"
    with Holder(names={name: path}, pin=0) as hold:
        assert [change.what for change in hold.refresh() + hold.refresh()] == ["held"]
        with oc.open(f"hold:{name}") as file, oc.Mapping(path) as source:
            assert wrong_bytes(file) == 0
            cached = residency(source).cached
            assert cached is None or cached < MIB


READS = {
    "copies": ("oc.open(path, mode='copy')", "sum(int(file[name].view('uint8').sum()) for name in file)"),
    "slices": (
        "oc.open(path)",
        "file.warm([(name, part) for name in file]) and sum(int(file[name][part].sum()) for name in file)",
    ),
    "touches": ("oc.open(path)", "sum(int(file[name].sum()) for name in own)"),
}
"""How a rank opens the file, and the sum of what it reads: all of it, slices of all, or two arrays of its own."""
RANK = """
import sys
import onecopy as oc
path, rank = sys.argv[1], int(sys.argv[2])
own, part = ["a" + str(2 * rank), "a" + str(2 * rank + 1)], slice(rank * 2**18, (rank + 1) * 2**18)
print("ready", flush=True)
input()
with {} as file:
    print({})
"""


@pytest.mark.parametrize("way", READS)
@on_fuse()
def test_ranks_that_read_side_by_side_read_each_byte_once(path, faults, way):
    oc.evict(path)
    faults.bytes, faults.seconds = 0, 0.002
    with contextlib.ExitStack() as ended:
        ranks = [ended.enter_context(talking(RANK.format(*READS[way]), path, rank)) for rank in range(4)]
        assert [rank.stdout.readline() for rank in ranks] == ["ready\n"] * 4  # imported what they need
        for rank in ranks:
            print(file=rank.stdin, flush=True)
        sums = [int(rank.communicate()[0]) for rank in ranks]
    whole = sum(int(array.sum()) for array in ARRAYS.values())
    assert sums == [whole] * 4 if way == "copies" else sum(sums) == whole
    assert faults.bytes <= 1.05 * len(saved_model()) + RECLAIMED


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("name", ["new.safetensors", NAME])
def test_save_is_refused_and_changes_nothing(tmp_path, read_only, name):
    def work(path, _):
        target = path.with_name(name)
        assert error_of(lambda: oc.save(target, {"a": np.zeros(1000)})) == (OSError, errno.EROFS, str(target))
        assert [entry.name for entry in path.parent.iterdir()] == [NAME]
        assert path.read_bytes() == saved_model()

    skip_without_fuse(tmp_path / "fuse")
    call_on_fuse(tmp_path / "fuse", work, read_only=read_only)


@on_fuse(direct_io=True)
def test_without_shared_mappings_a_copy_is_right_and_a_mapping_is_refused(path, faults):
    """Direct I/O: the kernel refuses MAP_SHARED, and a READ may give less than was requested."""
    faults.at_once = 10_001
    for call in (oc.open, oc.warm):
        assert error_of(lambda call=call: call(path)) == (OSError, errno.ENODEV, str(path))
    faults.reads = 0
    with oc.open(path, mode="copy") as file:
        assert wrong_bytes(file) == 0
    assert faults.reads > 8 * MIB // 10_001


def test_auto_copies_a_file_but_not_a_model_that_is_larger_than_memory(tmp_path):
    skip_without_fuse(tmp_path / "fuse")
    (files := tmp_path / "files").mkdir()
    (files / NAME).write_bytes(saved_model())
    np.lib.format.open_memmap(files / "a.npy", "w+", "u1", (1 << 42,))  # a hole: no bytes on the disk
    (files / INDEX).write_text('{"weight_map": {"array": "a.npy"}}')

    def modes() -> list[str]:
        with fuse_disk(tmp_path / "fuse", files):
            return [oc.open(tmp_path / "fuse" / name, "auto").mode for name in (NAME, INDEX)]

    assert call_in_child(modes) == ["copy", "map"]


@on_fuse()
def test_warming_reports_what_a_slow_server_gave(path, faults, mechanism):
    size = len(saved_model())
    oc.evict(path)
    faults.reads, faults.bytes, faults.seconds = 0, 0, 0.01
    report, served = oc.warm(path, mechanism=mechanism), faults.bytes
    assert (report.complete, report.mechanism, report.file_system) == (True, mechanism, "fuse")
    assert (report.cached_before, report.filled) == (0, size)
    assert size - RECLAIMED <= report.cached_after <= size <= served <= size + RECLAIMED
    assert report.seconds >= 0.01 * faults.reads / faults.most_in_flight
    assert report.latency > 0.01
    assert report.gib_per_s == pytest.approx(size / (1 << 30) / report.seconds)
    with oc.open(path) as file:
        assert wrong_bytes(file) == 0
    assert faults.bytes - served <= RECLAIMED  # nothing else was left to be read


# --- one that fails ---------------------------------------------------------------------------------------------------

BAD = 5 * MIB, 5 * MIB + 1  # in a4 or a5, wherever the header ends


@on_fuse()
def test_a_failed_read_under_the_guard_is_zeros_and_data_lost(path, faults):
    oc.files.guard()
    lose_a_file()
    faults.fail(*BAD)
    with oc.open(path) as file:
        offset = BAD[0] - file.entry("a4").offset
        name, at = ("a4", offset) if offset < MIB else ("a5", offset - MIB)
        assert (file["a0"] == ARRAYS["a0"]).all()
        assert file[name][at] == 0
        for call in (oc.files.check, lambda: file["a0"], file.verify, file.warm, lambda: file.entries):
            assert error_of(call) == lost(str(path))
        with pytest.raises(oc.DataLost) as raised:
            oc.files.check()
        assert "truncated" not in str(raised.value)


def lose_a_file():
    """Read a mapping of a truncated file, and close it: what is said of it must not be said of the next file."""
    with tempfile.NamedTemporaryFile() as local:
        local.truncate(MIB)
        mapping = oc.Mapping(local.name)
        os.truncate(local.name, 0)
        assert mapping.view()[0] == 0
        with pytest.raises(oc.DataLost, match="truncated"):
            mapping.view()
        mapping.close()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errno.EIO, oc.DataLost),
        (errno.ETIMEDOUT, TimeoutError),
        (errno.EACCES, PermissionError),
        (errno.ESTALE, OSError),
    ],
)
@on_fuse()
def test_a_failed_read_of_a_copy_is_an_error_with_its_number_and_path(path, faults, error, kind):
    faults.fail(*BAD, error)
    assert error_of(lambda: oc.open(path, mode="copy")) == (kind, error, str(path))
    faults.fail(0, 0)
    for options in ({"mode": "copy"}, {"private": True}, {"warm": True, "verify": True}):
        with oc.open(path, **options) as file:
            assert wrong_bytes(file) == 0  # nothing of the failure is kept


@on_fuse()
def test_warming_and_verifying_report_a_failed_read(path, faults, mechanism):
    faults.fail(*BAD)
    with oc.open(path) as file:
        for call in (
            lambda: file.warm(mechanism=mechanism),
            lambda: file.warm(mechanism=mechanism, verify=True),
            file.verify,
        ):
            assert error_of(call) == lost(str(path))
        faults.fail(0, 0)
        assert file.warm(mechanism=mechanism, verify=True).complete
        assert wrong_bytes(file) == 0


# --- one that gives too little ----------------------------------------------------------------------------------------

WAYS = {
    "touch": oc.open,
    "copy": lambda path: oc.open(path, mode="copy"),
    "private": lambda path: oc.open(path, private=True),
    "warm": lambda path: oc.open(path, warm=True),
    "verify": lambda path: oc.open(path, verify=True),
}
CUTS = [5 * MIB, 5 * MIB + 1234, len(saved_model()) - 100]


def touch(open_it: Callable[[Path], oc.ArrayFile], path: Path) -> int:
    """Open a file and touch all of it; return how many bytes are wrong without an error."""
    with open_it(path) as file:
        wrong = wrong_bytes(file)
        oc.files.check()
        return wrong


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", CUTS)
@on_fuse(seconds_valid=3600)
def test_a_file_that_was_truncated_before_it_was_opened(path, faults, way, size):
    """The kernel believes the old size; a short answer is the end of the file for it."""
    oc.files.guard()
    path.stat()
    faults.size = size
    assert path.stat().st_size == len(saved_model())
    with os_error(errno.EIO, path, str(path)):
        touch(WAYS[way], path)


@pytest.mark.parametrize("at_once", [10_000, 64 << 10])
@on_fuse()
def test_warming_finds_answers_that_are_short_in_the_middle_of_a_file(path, faults, populates, at_once):
    """Such answers break FUSE's rules: the kernel puts zeros in place of the rest, and takes the file for shorter."""
    if not populates:
        pytest.skip("madvise(MADV_POPULATE_READ) is refused")
    faults.at_once = at_once
    with oc.open(path) as file:
        assert error_of(file.warm) == error_of(lambda: file.warm(verify=True)) == lost(str(path))
    faults.at_once = UNLIMITED
    oc.evict(path)
    assert touch(WAYS["verify"], path) == 0


# --- one that hangs or dies -------------------------------------------------------------------------------------------


@on_fuse()
def test_a_server_that_hangs_and_dies(path, faults):
    with oc.open(path) as file:
        oc.evict(file)
        faults.seconds = 3600
        job = file.warm(wait=False)
        with pytest.raises(TimeoutError):
            job.wait(timeout=0.2)
        assert not job.done
        faults.kill_server()
        waited = error_of(job.wait)
        assert waited == error_of(job.wait)
        assert waited[2] == str(path)
        assert error_of(lambda: oc.open(path)) == (OSError, errno.ENOTCONN, str(path))


CALLS = {
    "warm": "file.warm()",
    "job": "file.warm(wait=False).wait()",
    "verify": "file.verify()",
    "copy": "oc.open(path, mode='copy')",
    "snapshot": "oc.open(path, mode='snapshot')",
}
ENDED = {"warm", "job", "verify"}
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
@on_fuse()
def test_a_call_does_not_wait_for_ever_for_a_server_that_hangs(path, faults, call, ends):
    environment = {**os.environ, "ONECOPY_READ_TIMEOUT": "0.3" if ends == "timeout" else "1000"}
    environment["ONECOPY_CACHE"] = str(Path(path).parent.with_name("cache"))
    with talking(HANGING.format(call=CALLS[call]), path, env=environment) as child:
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
        assert child.wait(timeout=60) == 0
    assert line == (f"TimeoutError {path}\n" if ends == "timeout" else "KeyboardInterrupt None\n")
