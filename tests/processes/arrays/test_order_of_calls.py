"""Huge pages are requested before anything is read: seen in the order of system calls, which strace records."""

import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import onecopy as oc

MIB = 1 << 20
HUGE_PAGE = 2 * MIB
READS = "pread64,preadv,preadv2,readahead,fadvise64,process_vm_readv"
BEGIN, END = 190_000, 190_001  # no open descriptors: closing them marks the log
MADVISE = re.compile(r"\d+ +madvise\((0x\w+), (\d+), (\w+)")
PREAD = re.compile(r"\d+ +pread64\(\d+<(.*)>, (?:.*, (\d+), (\d+)\) = )?")  # where it ends, unless interrupted
OTHER = re.compile(rf"\d+ +({READS.replace(',', '|')})\(")


class Seen(NamedTuple):
    """Requests for huge pages of a mapping, each an offset and a length, and the number of reads of its file."""

    before: list[tuple[int, int]]
    """Those before the first read."""
    later: list[tuple[int, int]]
    reads: int
    nbytes: int

    def covers(self, offset: int, length: int) -> bool:
        """Return whether huge pages of a range were requested before the first read."""
        return any(begin <= offset and offset + length <= begin + size for begin, size in self.before)


@pytest.fixture(scope="module")
def strace(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Give the path of strace; skip where there is none, or where it may trace nothing."""
    found = shutil.which("strace")
    if found is None:
        pytest.skip("strace is not installed (Debian: apt-get install strace)")
    log = tmp_path_factory.mktemp("strace") / "log"
    done = subprocess.run([found, "-o", log, "true"], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        pytest.skip(f"strace may not trace here: {done.stderr.strip()}")
    return found


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    arrays = {"a": np.ones(32 * MIB, np.uint8), "b": np.ones(24 * MIB, np.uint8)}
    oc.save(path, arrays, align=HUGE_PAGE)
    return path


SCRIPT = """
import os, sys
import numpy, onecopy as oc

path = sys.argv[1]
oc.evict(path)

def mark(number):
    try:
        os.close(number)
    except OSError:
        pass

{before}
mark({begin})
{code}
mark({end})
print(opened.core.address, opened.core.nbytes)
"""


def trace(strace: str, path: Path, code: str, before: str = "", header: int = 0) -> Seen:
    """Run `code`, after `before`, with an evicted file; one of the two sets `opened`. Return what `code` has called.

    A call that other calls interrupt is there from its beginning. Reads of other files are left out, of the first
    `header` bytes, and up to three of 4 KiB past the page cache: how long the disk takes to answer.
    """
    file = path.with_name("log")
    script = SCRIPT.format(before=before, code=code, begin=BEGIN, end=END)
    options = ["-f", "-y", "-s", "0", "-e", "signal=none", "-e", f"trace=madvise,close,{READS}"]
    command = [strace, *options, "-o", file, sys.executable, "-c", textwrap.dedent(script), path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    address, length = map(int, done.stdout.split())
    lines = file.read_text().splitlines()
    first, last = (next(i for i, line in enumerate(lines) if f" close({mark}" in line) for mark in (BEGIN, END))
    requests: tuple[list[tuple[int, int]], list[tuple[int, int]]] = [], []
    probes = reads = 0
    for line in lines[first:last]:
        if advice := MADVISE.match(line):
            begin, size = int(advice[1], 16) - address, int(advice[2])
            if advice[3] == "MADV_HUGEPAGE":
                requests[reads > 0].append((begin, size))
            elif advice[3] in ("MADV_POPULATE_READ", "MADV_WILLNEED"):
                reads += begin < length and begin + size > 0
        elif read := PREAD.match(line):
            if probes < 3 and read[2] == "4096":
                probes += 1
            else:
                reads += read[1] == str(path) and (read[2] is None or int(read[2]) + int(read[3]) > header)
        elif OTHER.match(line):
            reads += 1
    return Seen(*requests, reads, length)


OPENED = "opened = oc.Mapping(path)"
ARRAYS = "opened = oc.open(path)"
WARMINGS = {
    "populate": (OPENED, "oc.warm(opened, huge=True, mechanism='populate')"),
    "read": (OPENED, "oc.warm(opened, huge=True, mechanism='read')"),
    "one thread": (OPENED, "oc.warm(opened, huge=True, threads=1)"),
    "job": (OPENED, "oc.warm(opened, huge=True, wait=False).wait()"),
    "verify": (ARRAYS, "opened.warm(huge=True, verify=True)"),
    # `open` reads the header, and then `warm` requests huge pages.
    "open": ("", "opened = oc.open(path, warm=True)"),
    "open and verify": ("", "opened = oc.open(path, warm=True, verify=True)"),
    "copy": ("", "opened = oc.Mapping(path, mode='copy')"),
}


@pytest.mark.parametrize("kind", WARMINGS)
def test_huge_pages_are_requested_before_anything_is_read(strace, model, kind):
    before, code = WARMINGS[kind]
    seen = trace(strace, model, code, before, header=HUGE_PAGE if "oc.open" in code else 0)
    assert seen.covers(0, seen.nbytes), seen
    assert seen.reads > 0


def test_each_range_gets_its_huge_pages_before_it_is_read_and_none_if_none_are_wanted(strace, model, mechanism):
    ranges = [(4 * MIB, 2 * MIB), (9 * MIB + 5, 12 * MIB), (40 * MIB, 16 * MIB)]
    seen = trace(strace, model, f"oc.warm(opened, {ranges}, huge=True, mechanism={mechanism!r})", OPENED)
    inside = [(offset + -offset % HUGE_PAGE, length - length % HUGE_PAGE - 2 * MIB) for offset, length in ranges]
    assert all(seen.covers(offset, max(length, 0)) for offset, length in inside), seen
    assert (seen.later, seen.reads > 0) == ([], True)
    seen = trace(strace, model, f"oc.warm(opened, huge=False, mechanism={mechanism!r})", OPENED)
    assert (seen.before, seen.later, seen.reads > 0) == ([], [], True)


def test_a_durable_artefact_is_on_the_disk_before_its_description_is(strace, tmp_path):
    """After a power cut, a description without the data would stand for zeros."""
    program = textwrap.dedent(
        """
        import sys
        import onecopy as oc
        store = oc.Store(sys.argv[1])
        store.get_or_build("k", lambda path: path.write_bytes(b"x" * 100_000))  # without a flush
        """
    )
    log = tmp_path / "log"
    command = [strace, "-f", "-y", "-e", "trace=fsync,fdatasync,renameat,renameat2,linkat", "-o", log, sys.executable]
    subprocess.run([*command, "-c", program, tmp_path / "store"], check=True, timeout=60)
    calls = log.read_text().splitlines()
    flushed = next(i for i, call in enumerate(calls) if "fsync(" in call and ".oc>" in call)
    named = next(i for i, call in enumerate(calls) if "renameat" in call and '.about"' in call)
    assert flushed < named
    assert any("fsync(" in call and call.endswith("= 0") and "store>" in call for call in calls[named:])
