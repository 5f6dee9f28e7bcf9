"""What identifies a process and a run of the kernel; the identity of files: tests/python/store/test_identity.py."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from onecopy.files.identity import boot_identity
from onecopy_records.sharing import start_of

RENAMED = """
import ctypes, os, sys
assert ctypes.CDLL(None).prctl(15, os.fsencode(sys.argv[1]), 0, 0, 0) == 0
print("renamed", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("name", ["python", "a) S 1 (b", ") 1 2", "((", "\udcff"])
def test_a_process_has_its_start_time_whatever_its_name(name):
    command = [sys.executable, "-c", RENAMED, name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "renamed\n"
        began = psutil.Process(process.pid).create_time() - psutil.boot_time()
        ticks = int(start_of(process.pid)) / 100
        process.communicate()
    assert abs(ticks - began) < 1
    assert start_of(process.pid) == ""


def test_a_run_of_the_kernel_has_the_identity_that_the_kernel_gives_it(monkeypatch):
    assert boot_identity() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()

    def refuse(*_, **__):
        raise PermissionError

    monkeypatch.setattr("builtins.open", refuse)
    assert (boot_identity(), start_of(1)) == ("", "")
