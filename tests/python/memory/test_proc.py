"""The readers of /proc, on recorded and on live processes, each judged by something simpler than itself."""

import contextlib
import ctypes
import mmap
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from tests.support.waiting import until

from onecopy.memory import proc

MIB = 2**20
FIXTURES = Path(__file__).parent / "fixtures" / "proc"
NOW = FIXTURES / "linux_6_18_v1" / "proc"
OLD = FIXTURES / "linux_4_18" / "proc"
READERS = [proc.rollup, proc.maps, proc.smaps, proc.status, proc.stat, proc.io]
PARSERS = [
    proc.parse_rollup,
    proc.parse_maps,
    proc.parse_smaps,
    proc.parse_status,
    proc.parse_stat,
    proc.parse_io,
]
KINDS = ["smaps_rollup", "maps", "smaps", "status", "stat", "io"]
FORMATS = list(zip(KINDS, PARSERS, strict=True))


class Child:
    """A Python process that runs one line of code for each call of `run`, and then waits."""

    def __init__(self) -> None:
        loop = "import os, mmap, sys, time\nfor line in sys.stdin: exec(line); print('done', flush=True)"
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-c", loop], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self.process.pid
        self.run("pass")

    def run(self, code: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(code + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def map_file(self, path: Path) -> None:
        self.run(f"f = open({str(path)!r}, 'rb'); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ); len(m[:])")


@pytest.fixture
def children() -> Iterator[list[Child]]:
    pair = [Child(), Child()]
    yield pair
    for child in pair:
        child.process.kill()
        child.process.communicate()


@pytest.fixture
def child(children: list[Child]) -> Child:
    return children[0]


def recorded(kind: str, pid: int = 100, root: Path = NOW) -> str:
    return proc.process_text(pid, kind, root=root)


def numbers_by_hand(text: str) -> dict[str, int]:
    return {line.split(":")[0]: int(line.split()[1]) * 1024 for line in text.split("\n") if line.endswith(" kB")}


# --- recorded ---------------------------------------------------------------------------------------------


def test_a_rollup_has_every_number_of_the_recorded_text_in_bytes():
    memory = proc.rollup(100, root=NOW)
    expected = numbers_by_hand(recorded("smaps_rollup"))
    assert memory.rss == expected["Rss"] > 0
    assert memory.pss == expected["Pss"]
    assert memory.anonymous == expected["Anonymous"] > MIB
    assert memory.uss == expected["Private_Clean"] + expected["Private_Dirty"]
    assert (memory.pss_anon, memory.pss_file) == (expected["Pss_Anon"], expected["Pss_File"])
    assert memory.pss_shmem == expected["Pss_Shmem"] == 16384
    assert memory.pss_dirty == expected["Pss_Dirty"]


def test_a_rollup_of_an_older_kernel_has_none_for_missing_lines():
    memory = proc.rollup(100, root=OLD)
    assert (memory.pss_anon, memory.pss_file, memory.pss_shmem, memory.pss_dirty) == (None,) * 4
    assert memory.file_pmd_mapped == 0
    assert (memory.swap, memory.swap_pss, memory.locked) == (128 * 1024, 64 * 1024, 12 * 1024)
    assert memory.anon_huge_pages == 2 * MIB


def test_the_regions_of_smaps_add_up_to_the_rollup_and_are_those_of_maps():
    regions = proc.smaps(100, root=NOW)
    total = proc.rollup(100, root=NOW)
    for name in ("rss", "anonymous", "private_clean", "private_dirty", "shared_clean", "referenced"):
        assert sum(getattr(region.memory, name) for region in regions) == getattr(total, name)
    # Each region's share is rounded down to a kB.
    assert total.pss - len(regions) * 1024 <= sum(r.memory.pss for r in regions) <= total.pss
    places = [(r.start, r.end, r.perms, r.offset, r.dev, r.inode, r.path) for r in proc.smaps(100, root=NOW)]
    assert [(r.start, r.end, r.perms, r.offset, r.dev, r.inode, r.path) for r in proc.maps(100, root=NOW)] == places


def test_paths_are_read_with_spaces_newlines_and_the_mark_of_deletion():
    by_path = {region.path: region for region in proc.maps(100, root=NOW)}
    assert not by_path["/tmp/proc fixture/with space.bin"].deleted
    assert by_path["/tmp/proc fixture/new\nline.bin"].perms == "rw-s"
    assert by_path["/tmp/proc fixture/gone.bin"].deleted
    assert by_path["/memfd:weights"].deleted
    assert by_path["[heap]"].inode == by_path[""].dev == 0
    assert by_path["/tmp/proc fixture/gone.bin"].dev == os.makedev(0xFE, 0)


def test_a_region_of_an_older_kernel_keeps_its_flags_if_it_has_any():
    code, vsyscall = proc.smaps(100, root=OLD)
    assert code.vm_flags == ("rd", "ex", "mr", "mw", "me", "dw", "sd")
    assert (code.dev, code.inode, code.memory.pss) == (os.makedev(8, 1), 1308167, 2048)
    assert vsyscall.start == 0xFFFFFFFFFF600000
    text = recorded("smaps", root=OLD).replace("VmFlags: rd ex \n", "").removesuffix("\n")
    assert [region.vm_flags for region in proc.parse_smaps(text)][1] == ()


def test_a_status_is_read_in_bytes():
    status, expected = proc.status(100, root=NOW), numbers_by_hand(recorded("status"))
    assert status.vm_rss == expected["VmRSS"]
    assert (status.vm_hwm, status.vm_peak) == (expected["VmHWM"], expected["VmPeak"])
    assert status.vm_rss == status.rss_anon + status.rss_file + status.rss_shmem
    assert (status.vm_pte, status.vm_swap, status.vm_lck) == (expected["VmPTE"], 0, 0)
    assert (status.threads, status.uid, status.state) == (1, 0, "S")


def test_a_zombie_owns_nothing_and_its_peaks_are_lost():
    zombie = proc.status(101, root=NOW)
    assert (zombie.state, zombie.vm_rss, zombie.rss_anon, zombie.vm_pte) == ("Z", 0, 0, 0)
    assert (zombie.vm_hwm, zombie.vm_peak) == (None, None)
    assert proc.stat(101, root=NOW).state == "Z"
    for reader in (proc.maps, proc.smaps):
        with pytest.raises(ProcessLookupError, match="process 101"):
            reader(101, root=NOW)


def test_a_status_before_linux_4_5_does_not_know_the_parts_of_its_memory():
    text = "\n".join(line for line in recorded("status").split("\n") if not line.startswith("Rss"))
    status = proc.parse_status(text)
    assert status.vm_rss > 0
    assert (status.rss_anon, status.rss_file, status.rss_shmem) == (None, None, None)


def test_io_is_read_and_a_stat_although_its_name_resembles_fields():
    stat = proc.stat(100, root=NOW)
    assert (stat.comm, stat.state, stat.num_threads) == ("a) S 1 (\nb", "S", 1)
    words = recorded("stat").rsplit(")", 1)[1].split()
    assert (stat.minflt, stat.starttime) == (int(words[7]), int(words[19]) / 100)
    lines = dict(line.split(": ") for line in recorded("io").splitlines())
    io = proc.io(100, root=NOW)
    assert (io.rchar, io.wchar) == (int(lines["rchar"]), int(lines["wchar"]))
    assert io.cancelled_write_bytes == int(lines["cancelled_write_bytes"])


def test_a_file_that_the_kernel_lacks_is_not_a_vanished_process():
    with pytest.raises(FileNotFoundError):
        proc.io(100, root=OLD)
    with pytest.raises(ProcessLookupError, match="process 999"):
        proc.io(999, root=OLD)


# --- hostile text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "parse"), FORMATS)
def test_an_unreadable_line_is_named_with_its_file(kind, parse):
    text = recorded(kind)
    bad = text.replace("Rss:  ", "Rss: x").replace("VmRSS:\t  ", "VmRSS:\tx").replace("rchar: ", "rchar: -")
    bad = bad.replace("r--p", "r--?").replace(" S 7", " S x7")
    assert bad != text
    with pytest.raises(ValueError, match=rf"^{kind}: .*\bline\b"):
        parse(bad)


@pytest.mark.parametrize(("kind", "name"), [("smaps_rollup", "Pss:"), ("status", "PPid"), ("io", "wchar")])
def test_a_line_that_is_missing_is_named(kind, name):
    text = "\n".join(line for line in recorded(kind).split("\n") if not line.startswith(name))
    with pytest.raises(ValueError, match=f"^{kind}: the line for '{name.lower().strip(':')}' is missing"):
        PARSERS[KINDS.index(kind)](text)


def test_numbers_of_a_newer_kernel_are_skipped():
    text = recorded("smaps_rollup")
    assert proc.parse_rollup(text + "Future_Kind:      12 kB\nFuture_Count:     3\n") == proc.parse_rollup(text)


@pytest.mark.parametrize("parse", PARSERS)
@given(text=st.text())
def test_any_text_is_read_or_refused(parse, text):
    with contextlib.suppress(ValueError):
        parse(text)


@pytest.mark.parametrize(("kind", "parse"), FORMATS)
@given(data=st.data())
def test_a_damaged_recording_is_read_or_refused(kind, parse, data):
    text = recorded(kind)[:3000]
    at = data.draw(st.integers(0, len(text)))
    cut = data.draw(st.integers(0, 40))
    with contextlib.suppress(ValueError):
        parse(text[:at] + data.draw(st.text(max_size=20)) + text[at + cut :])


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=15))
def test_any_name_of_a_process_is_read_back_from_stat(name):
    fields = " ".join(str(number) for number in range(4, 53))  # as proc(5) counts them
    assert proc.parse_stat(f"7 ({name}) R {fields}\n") == proc.Stat(7, name, "R", 4, 10, 12, 0.14, 0.15, 20, 0.22)


PATHS = st.text(st.characters(codec="utf-8", exclude_characters="\0\\"), min_size=1, max_size=60)


@given(path=PATHS.map(lambda name: "/" + name), inode=st.integers(1, 2**64 - 1), deleted=st.booleans())
def test_any_path_is_read_back_from_maps(path, inode, deleted):
    shown = path.replace("\n", r"\012") + " (deleted)" * deleted
    [region] = proc.parse_maps(f"1000-3000 r--s 00002000 103:0a {inode}      {shown}\n")
    assert (region.path, region.inode) == (path, inode) or path.endswith(" (deleted)")
    assert (region.start, region.end, region.offset) == (4096, 12288, 8192)
    assert region.dev == os.makedev(259, 10)


@given(st.lists(st.integers(0, 2**54), min_size=19, max_size=19))
def test_any_rollup_is_read_back(numbers):
    names = [line.split(":")[0] for line in recorded("smaps_rollup").split("\n")[1:20]]
    text = "".join(f"{name}: {number:8} kB\n" for name, number in zip(names, numbers, strict=True))
    known = dict(zip(names, numbers, strict=True)) | {"Swap": 1, "SwapPss": 2, "Locked": 3}
    memory = proc.parse_rollup(text + "Swap: 1 kB\nSwapPss: 2 kB\nLocked: 3 kB\n")
    assert memory.private_hugetlb == known["Private_Hugetlb"] * 1024
    assert memory.uss == (known["Private_Clean"] + known["Private_Dirty"]) * 1024
    assert (memory.swap, memory.locked) == (1024, 3072)


# --- live -------------------------------------------------------------------------------------------------


def test_64_mib_of_anonymous_memory_are_seen_as_such(child):
    before, status = proc.rollup(child.pid), proc.status(child.pid)
    child.run("m = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); m[:] = bytes([1]) * len(m)")
    after, now = proc.rollup(child.pid), proc.status(child.pid)
    for name in ("anonymous", "rss", "pss", "uss", "private_dirty", "pss_anon"):
        assert getattr(after, name) - getattr(before, name) == pytest.approx(64 * MIB, abs=MIB), name
    assert now.rss_anon - status.rss_anon == pytest.approx(64 * MIB, abs=MIB)
    assert now.vm_hwm >= 64 * MIB + status.vm_rss
    assert proc.stat(child.pid).minflt > 0


def test_a_file_mapped_by_two_processes_is_private_to_neither(children, tmp_path):
    path = tmp_path / "shared.bin"
    path.write_bytes(b"x" * (16 * MIB))
    os.sync()
    first, second = children
    first.map_file(path)
    alone = sum(region.memory.uss for region in proc.regions_of(first.pid, path))
    second.map_file(path)
    shares = [proc.regions_of(child.pid, path) for child in children]
    assert alone == 16 * MIB
    for [region] in shares:
        assert (region.memory.rss, region.memory.pss, region.memory.uss) == (16 * MIB, 8 * MIB, 0)


def test_regions_of_distinguishes_a_file_from_the_one_that_replaced_it(child, tmp_path):
    path, other = tmp_path / os.fsdecode(b"a b\nc\xff"), tmp_path / "other"
    size = 2 * mmap.PAGESIZE
    path.write_bytes(b"x" * size)
    other.write_bytes(b"y" * size)
    child.map_file(path)
    [region] = proc.regions_of(child.pid, path)
    assert (region.path, region.inode, region.end - region.start) == (str(path), path.stat().st_ino, size)
    assert proc.regions_of(child.pid, other) == []
    os.link(path, tmp_path / "second name")
    assert proc.regions_of(child.pid, tmp_path / "second name") == [region]
    other.replace(path)
    assert proc.regions_of(child.pid, path) == []
    with pytest.raises(FileNotFoundError):
        proc.regions_of(child.pid, other)


def test_an_inode_number_alone_does_not_make_it_the_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x")
    found = path.stat()
    entry = recorded("smaps", root=OLD).replace("08:01 1308167", f"00:fe {found.st_ino}")
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "smaps").write_text(entry)
    assert proc.regions_of(7, path, root=tmp_path) == []
    (tmp_path / "7" / "smaps").write_text(entry.replace("/opt/app/serve", f"{path} (deleted)"))
    assert proc.regions_of(7, path, root=tmp_path) == []
    (tmp_path / "7" / "smaps").write_text(entry.replace("/opt/app/serve", str(path)))
    assert len(proc.regions_of(7, path, root=tmp_path)) == 1  # as btrfs and overlayfs show it


def test_a_memfd_is_found_through_its_descriptor(memfd):
    os.ftruncate(memfd, 65536)
    with mmap.mmap(memfd, 65536) as shared:
        shared[:16384] = b"y" * 16384
        [region] = proc.regions_of(os.getpid(), f"/proc/self/fd/{memfd}")
    assert (region.path, region.deleted, region.memory.rss) == ("/memfd:scratch", True, 16384)


def test_a_stopped_process_has_as_much_in_its_regions_as_in_its_rollup(child):
    os.kill(child.pid, signal.SIGSTOP)
    until(lambda: proc.status(child.pid).state == "T", "the child to stop")
    total, regions = proc.rollup(child.pid), proc.smaps(child.pid)
    assert sum(region.memory.rss for region in regions) == total.rss
    assert sum(region.memory.anonymous for region in regions) == total.anonymous
    assert [region.start for region in proc.maps(child.pid)] == [region.start for region in regions]
    assert proc.status(child.pid).state == "T"


@pytest.mark.parametrize("reader", READERS)
def test_a_process_that_was_killed_is_not_found(reader, child):
    child.process.kill()
    child.process.wait()
    with pytest.raises(ProcessLookupError, match=f"process {child.pid} "):
        reader(child.pid)


def test_a_live_zombie_has_a_status_but_no_memory(child):
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert (proc.stat(child.pid).state, proc.status(child.pid).vm_rss) == ("Z", 0)
    for reader in (proc.rollup, proc.maps, proc.smaps):
        with pytest.raises(ProcessLookupError, match=f"process {child.pid} "):
            reader(child.pid)


def test_a_live_name_with_parentheses_and_newline_is_read_back(child):
    name = ") R 1 (\n\\x) S"
    child.run(f"open('/proc/self/comm', 'w').write({name!r})")
    stat, status = proc.stat(child.pid), proc.status(child.pid)
    assert (stat.comm, stat.pid, stat.ppid) == (name, child.pid, os.getpid())
    assert (status.pid, status.ppid, status.uid) == (child.pid, os.getpid(), os.getuid())


def test_cpu_time_and_faults_agree_with_getrusage():
    stop = time.process_time() + 0.05
    while time.process_time() < stop:
        pass
    stat, usage = proc.stat(os.getpid()), resource.getrusage(resource.RUSAGE_SELF)
    assert stat.utime + stat.stime == pytest.approx(usage.ru_utime + usage.ru_stime, abs=0.05)
    assert stat.minflt == pytest.approx(usage.ru_minflt, abs=100)
    assert stat.majflt <= usage.ru_majflt


def test_bytes_written_are_counted(child, tmp_path):
    before = proc.io(child.pid)
    child.run(f"f = open({str(tmp_path / 'out')!r}, 'wb', buffering=0); f.write(bytes(4 << 20))")
    assert proc.io(child.pid).wchar - before.wchar == pytest.approx(4 * MIB, abs=4096)


@pytest.mark.skipif(os.geteuid() != 0, reason="must be able to change the user")
def test_the_process_of_another_user_is_refused(child):
    code = (
        "import os, sys; sys.path[0:0] = [sys.argv[1]]; from onecopy.memory import proc\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "for read in (proc.rollup, proc.smaps, proc.maps, proc.io):\n"
        "    try: read(int(sys.argv[2])); print('read')\n"
        "    except PermissionError as error: print(error.strerror)"
    )
    command = [sys.executable, "-c", code, str(Path(proc.__file__).parents[2]), str(child.pid)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines() == [f"process {child.pid} belongs to another user"] * 4


@pytest.mark.parametrize("written", [[], [0], [3], [1, 3], [0, 1, 2, 3]])
@pytest.mark.parametrize("inside", [0, 1, 100])
def test_private_pages_are_counted_from_the_first_to_the_last(tmp_path, written, inside):
    path = tmp_path / "data"
    path.write_bytes(bytes(4 * mmap.PAGESIZE))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped, proc.Pages() as pages:
        address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        for page in written:
            mapped[page * mmap.PAGESIZE + 7] = 1
        nbytes = len(mapped) - 2 * inside
        assert pages.private_bytes(address + inside, nbytes) == min(len(written) * mmap.PAGESIZE, nbytes)
        first = mmap.PAGESIZE - inside  # up to the second page, which is not counted
        assert pages.private_bytes(address + inside, first) == (min(mmap.PAGESIZE, first) if 0 in written else 0)
