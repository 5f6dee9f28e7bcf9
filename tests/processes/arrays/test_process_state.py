"""What belongs to the whole process, and may change at any time: environment, interpreters, the GIL, signals."""

import platform
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from tests.support.children import CHILD_SECONDS
from tests.support.places import ROOT

import onecopy as oc


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "arrays"
    oc.save(path, {"a": np.arange(1 << 16)})
    return path


def test_only_one_file_reads_the_environment():
    unsafe = re.compile(r"\b(getenv|umask|strtod|setlocale|localeconv|strerror|temp_directory_path)\(")
    sources = [path for folder in ("src", "include", "bindings") for path in (ROOT / folder).rglob("*.[ch]pp")]
    users = {path.name for path in sources if unsafe.search(re.sub(r"//.*", "", path.read_text()))}
    assert users == {"environment.cpp"}


def test_files_are_closed_by_threads_of_their_own_after_a_sub_interpreter_has_existed(python, path):
    code = """
        import sys
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        import onecopy as oc
        interpreters.destroy(interpreters.create())
        file = oc.open(sys.argv[1])
        job = file.warm(wait=False)  # its thread drops the last share of the file
        file.close()
        del file
        print(job.wait().complete)
    """
    assert python(code, path) == "True\n"


SLOW_CALLS = """
#define _GNU_SOURCE
#include <sys/vfs.h>
#include <dlfcn.h>
#include <unistd.h>
#define SLOW(name, type) int name(int fd, struct type* facts) { \\
    static int (*next)(int, struct type*); \\
    if (!next) next = dlsym(RTLD_NEXT, #name); \\
    usleep(300000); \\
    return next(fd, facts); }
SLOW(fstatfs, statfs)
SLOW(fstatfs64, statfs64)
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.unsanitized
def test_other_threads_run_while_a_file_system_does_not_answer(tmp_path, path):
    (tmp_path / "slow.c").write_text(SLOW_CALLS)
    library = tmp_path / "slow.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "slow.c", "-ldl"], check=True)
    code = """if True:
        import os, sys
        from tests.support.turns import turns_of_another_thread
        from onecopy import _core
        fd = os.open(sys.argv[1], os.O_RDONLY)
        for name, call in {
            "is_remote": lambda: _core.is_remote(fd),
            "why_not_identified": lambda: _core.why_not_identified(fd),
            "default_folder": lambda: _core.default_folder(memory=False),
            "is_in_memory": lambda: _core.is_in_memory("/tmp"),
        }.items():
            print(name, turns_of_another_thread(call) > 5)
    """
    done = subprocess.run(
        [sys.executable, "-c", code, path],
        env={"LD_PRELOAD": str(library), "HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=CHILD_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [line.split()[1] for line in done.stdout.splitlines()] == ["True"] * 4, done.stdout


@pytest.mark.skipif(platform.machine() != "x86_64", reason="sends the signal by the number of a system call of x86-64")
def test_an_access_that_is_not_aligned_does_not_lose_a_page(python, path):
    code = """
        import ctypes, os, signal, struct, sys, threading
        import onecopy as oc
        file = oc.open(sys.argv[1])
        array = file["a"]
        oc.files.guard()
        BUS_ADRALN = 1
        info = bytearray(128)  # as the kernel fills it
        struct.pack_into("iii", info, 0, signal.SIGBUS, 0, BUS_ADRALN)
        struct.pack_into("Q", info, 16, array.ctypes.data + 4)
        sent = (ctypes.c_char * 128).from_buffer(info)
        rt_tgsigqueueinfo = 297
        libc = ctypes.CDLL(None)
        assert libc.syscall(rt_tgsigqueueinfo, os.getpid(), threading.get_native_id(), int(signal.SIGBUS), sent) == 0
        print(array[7], array[-1])
        oc.files.check()
    """
    assert python(code, path) == "7 65535\n"
