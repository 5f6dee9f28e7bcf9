"""The readers of /proc, on recorded and on live processes, each judged by something simpler than itself."""

import contextlib
import ctypes
import dataclasses
import mmap
import os
import re
import resource
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from tests.support.children import run_python, talking

from onecopy.memory import proc

MIB = 2**20
FIXTURES = Path(__file__).parent / "fixtures" / "proc"
NOW = FIXTURES / "linux_6_18_v1" / "proc"
OLD = FIXTURES / "linux_4_18" / "proc"


FORMATS = {
    "smaps_rollup": (proc.rollup, proc.parse_rollup),
    "maps": (proc.maps, proc.parse_maps),
    "smaps": (proc.smaps, proc.parse_smaps),
    "status": (proc.status, proc.parse_status),
    "stat": (proc.stat, proc.parse_stat),
    "io": (proc.io, proc.parse_io),
}


class Child:
    """A Python process that runs one line of code for each call of `run`, and then waits."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process, self.pid = process, process.pid
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
    loop = "import os, mmap, sys, time\nfor line in sys.stdin: exec(line); print('done', flush=True)"
    with talking(loop) as first, talking(loop) as second:
        yield [Child(first), Child(second)]


@pytest.fixture
def child(children: list[Child]) -> Child:
    return children[0]


def recorded(kind: str, pid: int = 100, root: Path = NOW) -> str:
    return proc.process_text(pid, kind, root=root)


def numbers_by_hand(text: str) -> dict[str, int]:
    """Return the numbers of a text in bytes, by their names in snake_case."""
    lines = [line.split() for line in text.split("\n") if re.fullmatch(r"\w+:\s+\d+( kB)?", line)]
    units = [1024 if words[-1] == "kB" else 1 for words in lines]
    names = [re.sub(r"(?<=[a-z])_?(?=[A-Z])", "_", words[0][:-1]).lower() for words in lines]
    return {name: int(words[1]) * unit for name, words, unit in zip(names, lines, units, strict=True)}


# --- recorded ---------------------------------------------------------------------------------------------


def check_numbers(found: object, expected: dict[str, int], least: int) -> None:
    names = [name for name in expected if hasattr(found, name)]
    assert len(names) >= least
    assert {name: getattr(found, name) for name in names} == {name: expected[name] for name in names}


def test_a_rollup_has_every_number_of_the_recorded_text_in_bytes():
    memory, expected = proc.rollup(100, root=NOW), numbers_by_hand(recorded("smaps_rollup"))
    check_numbers(memory, expected, 19)
    assert memory.rss > memory.anonymous > MIB
    assert memory.uss == expected["private_clean"] + expected["private_dirty"]
    text = recorded("smaps_rollup") + "Future_Kind:      12 kB\nFuture_Count:     3\n"
    assert proc.parse_rollup(text) == memory


def test_a_rollup_of_an_older_kernel_has_none_for_missing_lines():
    memory = proc.rollup(100, root=OLD)
    assert (memory.pss_anon, memory.pss_file, memory.pss_shmem, memory.pss_dirty) == (None,) * 4
    assert memory.file_pmd_mapped == 0
    check_numbers(memory, numbers_by_hand(recorded("smaps_rollup", root=OLD)), 14)


def test_the_regions_of_smaps_add_up_to_the_rollup_and_are_those_of_maps():
    regions, total = proc.smaps(100, root=NOW), proc.rollup(100, root=NOW)
    for name in ("rss", "anonymous", "private_clean", "private_dirty", "shared_clean", "referenced"):
        assert sum(getattr(region.memory, name) for region in regions) == getattr(total, name)
    # Each region's share is rounded down to a kB.
    assert total.pss - len(regions) * 1024 <= sum(r.memory.pss for r in regions) <= total.pss
    names = [field.name for field in dataclasses.fields(proc.Region)]
    places = [[getattr(region, name) for name in names] for region in regions]
    assert [[getattr(region, name) for name in names] for region in proc.maps(100, root=NOW)] == places


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
    status = proc.status(100, root=NOW)
    check_numbers(status, numbers_by_hand(recorded("status")), 12)
    assert status.vm_rss == status.rss_anon + status.rss_file + status.rss_shmem > 0
    assert (status.threads, status.uid, status.state) == (1, 0, "S")
    text = "\n".join(line for line in recorded("status").split("\n") if not line.startswith("Rss"))
    old = proc.parse_status(text)  # before Linux 4.5
    assert (old.vm_rss, old.rss_anon, old.rss_file, old.rss_shmem) == (status.vm_rss, None, None, None)


def test_a_zombie_owns_nothing_and_its_peaks_are_lost():
    zombie = proc.status(101, root=NOW)
    assert (zombie.state, zombie.vm_rss, zombie.rss_anon, zombie.vm_pte) == ("Z", 0, 0, 0)
    assert (zombie.vm_hwm, zombie.vm_peak, proc.stat(101, root=NOW).state) == (None, None, "Z")
    missing = [(proc.maps, 101, NOW), (proc.smaps, 101, NOW), (proc.io, 999, OLD)]
    for reader, pid, root in missing:
        with pytest.raises(ProcessLookupError, match=f"process {pid}"):
            reader(pid, root=root)
    with pytest.raises(FileNotFoundError):  # the kernel lacks the file
        proc.io(100, root=OLD)


def test_io_is_read_and_a_stat_although_its_name_resembles_fields():
    stat = proc.stat(100, root=NOW)
    assert (stat.comm, stat.state, stat.num_threads) == ("a) S 1 (\nb", "S", 1)
    words = recorded("stat").rsplit(")", 1)[1].split()
    assert (stat.minflt, stat.starttime) == (int(words[7]), int(words[19]) / 100)
    check_numbers(proc.io(100, root=NOW), numbers_by_hand(recorded("io")), 5)


# --- hostile text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FORMATS)
def test_an_unreadable_line_is_named_with_its_file(kind):
    text = recorded(kind)
    bad = text.replace("Rss:  ", "Rss: x").replace("VmRSS:\t  ", "VmRSS:\tx").replace("rchar: ", "rchar: -")
    bad = bad.replace("r--p", "r--?").replace(" S 7", " S x7")
    assert bad != text
    with pytest.raises(ValueError, match=rf"^{kind}: .*\bline\b"):
        FORMATS[kind][1](bad)


@pytest.mark.parametrize(("kind", "name"), [("smaps_rollup", "Pss:"), ("status", "PPid"), ("io", "wchar")])
def test_a_line_that_is_missing_is_named(kind, name):
    text = "\n".join(line for line in recorded(kind).split("\n") if not line.startswith(name))
    with pytest.raises(ValueError, match=f"^{kind}: the line for '{name.lower().strip(':')}' is missing"):
        FORMATS[kind][1](text)


@pytest.mark.parametrize("kind", FORMATS)
@given(data=st.data())
def test_any_text_and_any_damaged_recording_is_read_or_refused(kind, data):
    text = recorded(kind)[:3000]
    at = data.draw(st.integers(0, len(text)))
    cut = data.draw(st.integers(0, 40) | st.just(len(text)))
    with contextlib.suppress(ValueError):
        FORMATS[kind][1](text[:at] + data.draw(st.text(max_size=20)) + text[at + cut :])


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


@given(st.data())
def test_any_rollup_is_read_back(data):
    names = re.findall(r"^(\w+):", recorded("smaps_rollup"), re.MULTILINE)
    text = "".join(f"{name}: {data.draw(st.integers(0, 2**54)):8} kB\n" for name in names)
    check_numbers(proc.parse_rollup(text), numbers_by_hand(text), 19)


# --- live -------------------------------------------------------------------------------------------------


def test_64_mib_of_anonymous_memory_and_bytes_written_are_seen_as_such(child, tmp_path):
    before, status, io = (read(child.pid) for read in (proc.rollup, proc.status, proc.io))
    child.run("m = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); m[:] = bytes([1]) * len(m)")
    child.run(f"f = open({str(tmp_path / 'out')!r}, 'wb', buffering=0); f.write(m[: 4 << 20])")
    after, now = proc.rollup(child.pid), proc.status(child.pid)
    for name in ("anonymous", "rss", "pss", "uss", "private_dirty", "pss_anon"):
        assert getattr(after, name) - getattr(before, name) == pytest.approx(64 * MIB, abs=6 * MIB), name
    assert now.rss_anon - status.rss_anon == pytest.approx(64 * MIB, abs=6 * MIB)
    assert now.vm_hwm >= 64 * MIB + status.vm_rss
    assert proc.stat(child.pid).minflt > 0
    assert proc.io(child.pid).wchar - io.wchar == pytest.approx(4 * MIB, abs=4096)


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
    entry = recorded("smaps", root=OLD).replace("08:01 1308167", f"00:fe {path.stat().st_ino}")
    (tmp_path / "7").mkdir()
    for shown, found in (("/opt/app/serve", 0), (f"{path} (deleted)", 0), (str(path), 1)):  # as btrfs and overlayfs do
        (tmp_path / "7" / "smaps").write_text(entry.replace("/opt/app/serve", shown))
        assert len(proc.regions_of(7, path, root=tmp_path)) == found


def test_a_memfd_is_found_through_its_descriptor(memfd):
    os.ftruncate(memfd, 65536)
    with mmap.mmap(memfd, 65536) as shared:
        shared[:16384] = b"y" * 16384
        [region] = proc.regions_of(os.getpid(), f"/proc/self/fd/{memfd}")
    assert (region.path, region.deleted, region.memory.rss) == ("/memfd:scratch", True, 16384)


def test_a_process_that_was_killed_is_a_zombie_without_memory_and_then_not_found(child):
    child.process.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert (proc.stat(child.pid).state, proc.status(child.pid).vm_rss) == ("Z", 0)
    for reaped in (False, True):
        for kind, (read, _) in FORMATS.items():
            if reaped or kind in ("smaps_rollup", "maps", "smaps"):
                with pytest.raises(ProcessLookupError, match=f"process {child.pid} "):
                    read(child.pid)
        child.process.wait()


def test_the_numbers_of_this_process_its_cpu_time_and_its_faults_are_those_of_the_system():
    stop = time.process_time() + 0.05
    while time.process_time() < stop:
        pass
    stat, usage = proc.stat(os.getpid()), resource.getrusage(resource.RUSAGE_SELF)
    assert stat.utime + stat.stime == pytest.approx(usage.ru_utime + usage.ru_stime, abs=0.05)
    assert stat.minflt == pytest.approx(usage.ru_minflt, abs=100)
    assert stat.majflt <= usage.ru_majflt
    status = proc.status(os.getpid())
    assert (stat.pid, stat.ppid) == (status.pid, status.ppid) == (os.getpid(), os.getppid())
    assert status.uid == os.getuid()


@pytest.mark.skipif(os.geteuid() != 0, reason="must be able to change the user")
def test_the_process_of_another_user_is_refused(child):
    code = """
    import os, sys
    sys.path[0:0] = [sys.argv[1]]
    from onecopy.memory import proc
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
    for read in (proc.rollup, proc.smaps, proc.maps, proc.io):
        try:
            read(int(sys.argv[2]))
        except PermissionError as error:
            print(error.strerror)
    """
    said = run_python(code, Path(proc.__file__).parents[2], child.pid)
    assert said.splitlines() == [f"process {child.pid} belongs to another user"] * 4


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
