"""`onecopy hold` as a service has it: evicted behind its back, replaced, truncated, ended, killed."""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.waiting import until

import onecopy as oc
from onecopy.files.mapping import Mapping
from onecopy.memory import proc

pytestmark = pytest.mark.processes

MIB = 1 << 20


class Holder:
    """A process that holds files; its changes are read one by one."""

    def __init__(self, arguments: list[object]) -> None:
        command = [sys.executable, "-m", "onecopy", "hold", "--interval", "0.05s", "--json"]
        self.process = subprocess.Popen(
            [*command, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def change(self) -> dict:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def end(self, number: signal.Signals) -> tuple[int, str]:
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said


@contextlib.contextmanager
def holder(*arguments: object) -> Iterator[Holder]:
    held = Holder([*arguments])
    try:
        yield held
    finally:
        held.process.kill()
        held.process.communicate()


def evict_from_elsewhere(*arguments: object) -> dict:
    command = [sys.executable, "-m", "onecopy", "evict", "--json", *map(str, arguments)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)[0]


def page_out(pid: int, path: Path) -> int:
    """Ask the kernel to reclaim what a process maps of a file, as it does when memory is short; return the bytes."""
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = os.pidfd_open(pid)
    (region,) = [region for region in proc.maps(pid) if region.path == str(path)]
    vector = (ctypes.c_uint64 * 2)(region.start, region.end - region.start)
    done = libc.syscall(440, pidfd, vector, ctypes.c_ulong(1), 21, 0)  # process_madvise, MADV_PAGEOUT
    error = ctypes.get_errno()
    os.close(pidfd)
    if done < 0:
        pytest.skip(f"process_madvise: {os.strerror(error)}")
    return done


def test_what_another_process_evicts_comes_back(cold_file, cached_now):
    path = cold_file(8 * MIB)
    with contextlib.ExitStack() as stack:
        with Mapping(path) as mapping:
            if oc.files.pin(mapping).pinned < 8 * MIB:
                pytest.skip("this process may not lock so much")
            held = stack.enter_context(holder(path, "--pin", "0"))
            first = held.change()
        # The holder has filled nothing: what it fills is in its page tables, and other processes cannot evict that.
        assert (first["what"], first["filled"]) == ("held", 0)
        assert evict_from_elsewhere(path)["cached_after"] in {0, 8 * MIB}  # the next look may come first
        until(lambda: cached_now(path) == 8 * MIB, "the file in the page cache again")
        told = held.change()
        assert (told["what"], told["path"]) == ("warmed", str(path))
        assert 0 < told["filled"] <= 8 * MIB


def test_what_the_kernel_reclaims_comes_back(cold_file, cached_now):
    path = cold_file(8 * MIB)
    with holder(path, "--pin", "0", "--interval", "1s") as held:
        assert held.change()["filled"] == 8 * MIB
        page_out(held.process.pid, path)
        if cached_now(path) == 8 * MIB:
            pytest.skip("this kernel reclaims nothing when asked to")
        told = held.change()
        assert told["what"] == "warmed"
        assert told["resident"] == cached_now(path) == 8 * MIB


def test_what_is_locked_cannot_be_evicted_and_a_kill_lets_go_of_it(cold_file, cached_now):
    path = cold_file(8 * MIB)
    with holder(path, "--pin", "64KiB") as held:
        if held.change()["locked"] != 65536:
            pytest.skip("this process may lock nothing")
        assert proc.status(held.process.pid).vm_lck == 65536
        assert evict_from_elsewhere(path)["cached_after"] >= 65536
        held.process.kill()
        held.process.wait()
        assert evict_from_elsewhere(path)["cached_after"] == 0  # no process holds it any more


def test_errors_are_lines_on_stderr(cold_file):
    path = cold_file(MIB)
    command = [
        sys.executable,
        "-m",
        "onecopy",
        "hold",
        str(path),
        "--interval",
        "0.05s",
        "--max-bytes",
        "1GB",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(f"{path}: held: 1.05 MB of 1.05 MB in memory")
        path.unlink()
        assert process.stderr.readline() == (
            f"onecopy: {path}: No such file or directory; released until it stops changing\n"
        )
        process.terminate()
        assert process.wait(60) == 0


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_it_ends_at_signals(cold_file, number, status):
    path = cold_file(MIB)
    with holder(path) as held:
        held.change()
        ended, said = held.end(number)
        assert (ended, said.strip()) == (status, "onecopy: interrupted" if status else "")


def test_it_ends_in_the_middle_of_its_first_look(slow_file):
    with holder(slow_file, "--pin", "0", "--threads", "1", "--no-huge", "--max-bytes", "4GiB") as held:
        until(lambda: any(region.path == str(slow_file) for region in proc.maps(held.process.pid)), "the mapping")
        assert held.end(signal.SIGTERM)[0] == 0
