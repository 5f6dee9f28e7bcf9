"""The filter refuses what it names, and nothing else: without this, the fallbacks' tests would prove nothing."""

import ctypes
import errno
import mmap
import os
import platform
import re
import shutil
import subprocess
import threading

import pytest
from tests.support.seccomp import NUMBERS, PARTIAL, assemble, refuse


def madvise(advice: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    with mmap.mmap(-1, mmap.PAGESIZE) as memory:
        at = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
        return ctypes.get_errno() if libc.madvise(at, ctypes.c_size_t(mmap.PAGESIZE), advice) else 0


def open_with(flags: int) -> int:
    try:
        os.close(os.open(".", flags))
    except OSError as error:
        return error.errno
    return 0


def memfd() -> int:
    try:
        os.close(os.memfd_create("probe"))
    except OSError as error:
        return error.errno
    return 0


# What to refuse; a call of that kind; the answer; a call beside it, which must go on working.
CASES = {
    "memfd_create": (memfd, errno.ENOSYS, lambda: madvise(mmap.MADV_NORMAL)),
    "MADV_POPULATE_READ": (lambda: madvise(22), errno.EINVAL, lambda: madvise(mmap.MADV_NORMAL)),
    "MADV_COLLAPSE": (lambda: madvise(25), errno.EINVAL, lambda: madvise(mmap.MADV_NORMAL)),
    "MADV_HUGEPAGE": (lambda: madvise(mmap.MADV_HUGEPAGE), errno.EINVAL, lambda: madvise(mmap.MADV_NORMAL)),
    "O_TMPFILE": (lambda: open_with(os.O_TMPFILE | os.O_RDWR), errno.EOPNOTSUPP, lambda: open_with(os.O_DIRECTORY)),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_named_is_refused_and_what_stands_beside_it_is_not(name, in_child, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, answer, beside = CASES[name]

    def ask() -> tuple[int, int]:
        refuse(name)
        return call(), beside()

    assert in_child(ask) == (answer, 0)


def test_the_error_can_be_chosen(in_child):
    def ask() -> int:
        refuse("memfd_create", error=errno.EPERM)
        return memfd()

    assert in_child(ask) == errno.EPERM


def test_threads_are_refused_and_processes_are_not(in_child):
    def ask() -> tuple[bool, int]:
        refuse("threads")
        try:
            threading.Thread(target=lambda: None).start()
        except RuntimeError:
            return True, os.waitstatus_to_exitcode(os.system("exit 7"))
        return False, 0

    assert in_child(ask) == (True, 7)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_name_makes_a_program_of_whole_instructions_that_ends_by_allowing(machine):
    program = assemble((*NUMBERS, *PARTIAL), None, machine)
    assert len(program) % 8 == 0
    assert len(program) // 8 < 4096  # the kernel's limit
    assert program[-8:] == bytes.fromhex("060000000000ff7f")


@pytest.mark.parametrize(("column", "header"), [(0, "asm/unistd_64.h"), (1, "asm-generic/unistd.h")])
def test_the_numbers_are_those_of_the_kernels_headers(column, header):
    compiler = shutil.which("cc")
    if compiler is None or (column == 0 and platform.machine() != "x86_64"):
        pytest.skip("needs a C compiler, and for x86_64 its own headers")
    source = f"#include <{header}>\n"
    done = subprocess.run([compiler, "-E", "-dM", "-"], input=source, capture_output=True, text=True, check=True)
    known = {call: int(number) for call, number in re.findall(r"#define __NR_(\w+) (\d+)", done.stdout)}
    wanted = {call for call, numbers in NUMBERS.items() if numbers[column] is not None}
    shared = known.keys() & wanted
    assert len(shared) >= len(wanted) - 4  # older headers lack the newest, the generic ones some
    assert {call: NUMBERS[call][column] for call in shared} == {call: known[call] for call in shared}


def test_an_unknown_name_is_a_key_error_and_nothing_is_refused():
    with pytest.raises(KeyError, match="magic"):
        refuse("magic")
