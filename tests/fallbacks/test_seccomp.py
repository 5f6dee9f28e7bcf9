"""The filter refuses what it names, and nothing else: without this, the fallbacks' tests would prove nothing."""

import errno
import mmap
import os
import platform
import re
import shutil
import subprocess
import threading
from collections.abc import Callable

import pytest
from tests.support.seccomp import NUMBERS, refuse


def error_of(call: Callable[[], object]) -> int:
    try:
        call()
    except OSError as error:
        return error.errno
    return 0


def advise(advice: int) -> None:
    with mmap.mmap(-1, mmap.PAGESIZE) as memory:
        memory.madvise(advice)


def open_with(flags: int) -> None:
    os.close(os.open(".", flags))


CASES = {
    "memfd_create": (lambda: os.close(os.memfd_create("probe")), errno.ENOSYS),
    "MADV_POPULATE_READ": (lambda: advise(22), errno.EINVAL),
    "MADV_COLLAPSE": (lambda: advise(25), errno.EINVAL),
    "MADV_HUGEPAGE": (lambda: advise(mmap.MADV_HUGEPAGE), errno.EINVAL),
    "O_TMPFILE": (lambda: open_with(os.O_TMPFILE | os.O_RDWR), errno.EOPNOTSUPP),
}
"""What to refuse, a call of that kind, and the answer of a kernel without it."""


@pytest.mark.parametrize("name", CASES)
def test_what_is_named_is_refused_and_what_stands_beside_it_is_not(name, in_child, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, answer = CASES[name]

    def ask(error: int | None = None) -> list[int]:
        refuse(name, error=error)
        return [error_of(one) for one in (call, lambda: advise(mmap.MADV_NORMAL), lambda: open_with(os.O_DIRECTORY))]

    assert in_child(ask) == [answer, 0, 0]
    assert in_child(ask, errno.EPERM) == [errno.EPERM, 0, 0]


def test_threads_are_refused_and_processes_are_not(in_child):
    def ask() -> int:
        refuse("threads")
        with pytest.raises(RuntimeError):
            threading.Thread(target=lambda: None).start()
        return os.waitstatus_to_exitcode(os.system("exit 7"))

    assert in_child(ask) == 7


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
