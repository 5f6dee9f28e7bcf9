"""The readers of what is around a process: recorded and hand-made machines, and the one we run on."""

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecopy.memory import cgroup, proc

MIB = 2**20
FIXTURES = Path(__file__).parent / "fixtures" / "proc"
V1 = FIXTURES / "linux_6_18_v1"
V2 = FIXTURES / "linux_5_15_v2"
PARSERS = [
    cgroup.parse_mountinfo,
    cgroup.parse_membership,
    cgroup.parse_limit,
    cgroup.parse_memory_stat,
    cgroup.parse_meminfo,
    cgroup.parse_block_stat,
]
V1_UNLIMITED = "9223372036854771712"
V1_MOUNT = "35 31 0:32 {root} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
V2_MOUNT = "30 23 0:26 {root} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup rw,nsdelegate\n"


def machine(root: Path, files: dict[str, str]) -> Path:
    """Write a file system of hand-made files below `root`."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def v1_group(place: str, limit: str, hierarchical: str) -> dict[str, str]:
    place = f"sys/fs/cgroup/memory{place}"
    return {
        f"{place}/memory.limit_in_bytes": f"{limit}\n",
        f"{place}/memory.usage_in_bytes": "5000\n",
        f"{place}/memory.stat": f"cache 1\nrss 2\nhierarchical_memory_limit {hierarchical}\n",
    }


# --- cgroups ----------------------------------------------------------------------------------------------


def test_the_group_of_a_hybrid_machine_is_that_of_v1():
    group = cgroup.memory_group(100, root=V1)
    place = V1 / "sys/fs/cgroup/memory/jobs/worker"
    assert (group.version, group.directory, group.limit, group.limited_by) == (1, place, None, None)
    assert group.usage == int((place / "memory.usage_in_bytes").read_text()) > 0
    assert group.peak == int((place / "memory.max_usage_in_bytes").read_text()) >= group.usage
    assert group.stat.kernel == int((place / "memory.kmem.usage_in_bytes").read_text())
    lines = dict(line.split() for line in (place / "memory.stat").read_text().splitlines())
    assert group.stat.anon == int(lines["total_rss"])
    assert group.stat.file == int(lines["total_cache"])
    assert group.stat.file_dirty == int(lines["total_dirty"])
    assert group.stat.workingset_refault_file == int(lines["total_workingset_refault_file"])


def test_the_limit_of_v2_is_that_of_the_tightest_ancestor():
    group = cgroup.memory_group(100, root=V2)
    place = V2 / "sys/fs/cgroup/user.slice/user-1000.slice"
    assert (group.version, group.directory) == (2, place / "session-2.scope")
    assert (group.limit, group.limited_by) == (4 * 2**30, place)
    assert (group.usage, group.peak) == (2612000000, None)  # memory.peak is of Linux 5.19
    assert (group.stat.anon, group.stat.kernel, group.stat.shmem) == (1503238553, None, 64 * MIB)
    assert (group.stat.inactive_file, group.stat.workingset_refault_file) == (768 * MIB, 34567)


def test_the_root_of_v2_has_no_usage_of_its_own(tmp_path):
    files = {
        "proc/7/cgroup": "0::/\n",
        "proc/self/mountinfo": V2_MOUNT.format(root="/"),
        "sys/fs/cgroup/memory.stat": "anon 1\nfile 2\nkernel 3\n",
    }
    group = cgroup.memory_group(7, root=machine(tmp_path, files))
    assert (group.limit, group.usage, group.peak, group.stat.kernel) == (None, None, None, 3)


def test_a_v1_container_sees_its_own_group_at_the_mount_point(tmp_path):
    files = {
        "proc/7/cgroup": "9:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n0::/\n",
        "proc/self/mountinfo": V1_MOUNT.format(root="/docker/abc"),
        **v1_group("", "1048576", "1048576"),
    }
    group = cgroup.memory_group(7, root=machine(tmp_path, files))
    assert (group.directory, group.limit) == (tmp_path / "sys/fs/cgroup/memory", MIB)
    assert group.limited_by == group.directory


def test_v1_knows_a_limit_above_what_is_mounted(tmp_path):
    files = {
        "proc/7/cgroup": "4:memory:/pod/abc\n",
        "proc/self/mountinfo": V1_MOUNT.format(root="/pod/abc"),
        **v1_group("", V1_UNLIMITED, "4096"),
    }
    group = cgroup.memory_group(7, root=machine(tmp_path, files))
    assert (group.limit, group.limited_by) == (4096, None)


def test_v1_without_hierarchy_is_not_bound_by_its_parent(tmp_path):
    files = {
        "proc/7/cgroup": "4:memory:/parent/child\n",
        "proc/self/mountinfo": V1_MOUNT.format(root="/"),
        **v1_group("/parent", "4096", "4096"),
        **v1_group("/parent/child", "8192", "8192"),
    }
    group = cgroup.memory_group(7, root=machine(tmp_path, files))
    assert (group.limit, group.limited_by) == (8192, group.directory)


def test_a_group_without_the_memory_controller_is_charged_to_the_one_above(tmp_path):
    files = {
        "proc/7/cgroup": "0::/a/b (deleted)\n",
        "proc/self/mountinfo": V2_MOUNT.format(root="/"),
        "sys/fs/cgroup/a/memory.stat": "anon 1\nfile 2\n",
        "sys/fs/cgroup/a/memory.max": "max\n",
        "sys/fs/cgroup/a/memory.current": "3\n",
    }
    group = cgroup.memory_group(7, root=machine(tmp_path, files))
    assert (group.directory, group.limit, group.usage) == (tmp_path / "sys/fs/cgroup/a", None, 3)


@pytest.mark.parametrize(
    ("membership", "mounts"),
    [
        ("0::/a\n", ""),  # nothing mounted
        ("", V2_MOUNT.format(root="/")),  # no membership
        ("4:memory:/docker/other\n", V1_MOUNT.format(root="/docker/abc")),  # another container's
        ("0::/../sibling\n", V2_MOUNT.format(root="/")),  # outside our name space
        ("0::/a\n", V1_MOUNT.format(root="/")),  # mounted, but the other version
        ("4:memory:/a\n", "9 9 0:9 / /sys/fs/cgroup/memory rw - other none rw,memory\n"),
    ],
)
def test_a_group_that_cannot_be_seen_is_none(tmp_path, membership, mounts):
    files = {
        "proc/7/cgroup": membership,
        "proc/self/mountinfo": mounts,
        "sys/fs/cgroup/memory.stat": "anon 1\nfile 2\n",
        "sys/fs/sibling/memory.stat": "anon 1\nfile 2\n",
        "sys/fs/cgroup/memory/memory.stat": "rss 1\ncache 2\n",
    }
    assert cgroup.memory_group(7, root=machine(tmp_path, files)) is None


def test_the_group_of_a_vanished_process_is_not_found():
    with pytest.raises(ProcessLookupError, match="process 999 "):
        cgroup.memory_group(999, root=V1)


def test_refaults_before_linux_5_9_were_those_of_files():
    stat = cgroup.parse_memory_stat("anon 1\nfile 2\nworkingset_refault 3\n")
    assert (stat.workingset_refault_file, stat.workingset_refault_anon) == (3, None)


def test_v1_counts_the_groups_below():
    stat = cgroup.parse_memory_stat("rss 1\ncache 2\ndirty 3\ntotal_rss 4\ntotal_cache 5\ntotal_dirty 6\n")
    assert (stat.anon, stat.file, stat.file_dirty) == (4, 5, 6)


def test_every_unlimited_number_of_v1_is_none():
    for page in (4096, 16384, 65536):
        assert cgroup.parse_limit(f"{(2**63 - 1) // page * page}\n") is None
    assert cgroup.parse_limit("0\n") == 0


def test_mount_points_are_read_with_spaces_and_tabs():
    mount = cgroup.parse_mountinfo((V2 / "proc/self/mountinfo").read_text())[-1]
    assert (mount.mount_point, mount.source) == ("/mnt/with space\ttab", "me@host:/a b")
    assert (mount.device, mount.fs_type, mount.root) == (os.makedev(0, 38), "fuse.sshfs", "/")
    assert mount.options == ("rw", "user_id=0")


# --- machine and disk -------------------------------------------------------------------------------------


def test_meminfo_is_read_in_bytes():
    memory = cgroup.meminfo(root=V2)
    assert (memory.mem_total, memory.mem_available) == (16303428 * 1024, 11310524 * 1024)
    assert (memory.sreclaimable, memory.swap_free) == (702128 * 1024, 2041340 * 1024)
    old = (V2 / "proc/meminfo").read_text().replace("MemAvailable:   11310524 kB\n", "")
    assert cgroup.parse_meminfo(old).mem_available is None


def test_a_partition_takes_the_read_ahead_of_its_disk(tmp_path):
    disk = machine(
        tmp_path,
        {
            "sys/devices/sda/queue/read_ahead_kb": "128\n",
            "sys/devices/sda/sda1/stat": (V1 / "sys/block/254_0/stat").read_text(),
            "sys/class/bdi/0:52/read_ahead_kb": "15360\n",
        },
    )
    links = tmp_path / "sys/dev/block"
    links.mkdir(parents=True)
    (links / "8:0").symlink_to("../../devices/sda")
    (links / "8:1").symlink_to("../../devices/sda/sda1")
    assert cgroup.read_ahead(os.makedev(8, 0), root=disk) == 128 * 1024
    assert cgroup.read_ahead(os.makedev(8, 1), root=disk) == 128 * 1024
    assert cgroup.read_ahead(os.makedev(0, 52), root=disk) == 15 * MIB  # a network file system
    assert cgroup.read_ahead(os.makedev(9, 9), root=disk) is None
    sectors = int((V1 / "sys/block/254_0/stat").read_text().split()[2])
    assert cgroup.block_stat(os.makedev(8, 1), root=disk).bytes_read == sectors * 512
    assert cgroup.block_stat(os.makedev(0, 52), root=disk) is None


# --- hostile text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("parse", PARSERS)
@given(text=st.text())
def test_any_text_is_read_or_refused(parse, text):
    with contextlib.suppress(ValueError):
        parse(text)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (cgroup.parse_mountinfo, "36 35 98:0 / /mnt rw ext4 /dev/sda rw\n"),
        (cgroup.parse_mountinfo, "36 35 99999999999:0 / /mnt rw - ext4 /dev/sda rw\n"),
        (cgroup.parse_membership, "memory\n"),
        (cgroup.parse_membership, "x:memory:/\n"),
        (cgroup.parse_limit, "-1\n"),
        (cgroup.parse_limit, "\n"),
        (cgroup.parse_memory_stat, "anon 1\nfile two\n"),
        (cgroup.parse_memory_stat, "anon 1\n"),
        (cgroup.parse_meminfo, "MemTotal: lots\n"),
        (cgroup.parse_block_stat, "1 2 3\n"),
        (cgroup.parse_block_stat, "1 2 3 4 5 6 7 8 9 10 x\n"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(parse, text):
    with pytest.raises(ValueError, match="line"):
        parse(text)


@given(st.dictionaries(st.sampled_from(["cpu", "memory", "pids", "name=systemd"]), st.text(), min_size=1))
def test_any_membership_is_read_back(groups):
    groups = {name: "/" + path.replace("\n", "") for name, path in groups.items()}
    text = "".join(f"{i}:{name}:{path}\n" for i, (name, path) in enumerate(groups.items()))
    assert cgroup.parse_membership(text) == groups


# --- live -------------------------------------------------------------------------------------------------


def test_the_memory_of_the_machine_is_that_of_sysconf():
    memory = cgroup.meminfo()
    assert memory.mem_total == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert memory.mem_free <= memory.mem_total


def test_our_own_group_holds_at_least_what_we_were_charged():
    group = cgroup.memory_group(os.getpid())
    if group is None:
        pytest.skip("no memory cgroup is visible here")
    block = bytearray(os.urandom(1)) * (32 * MIB)
    again = cgroup.memory_group(os.getpid())
    assert again.directory.is_dir()
    assert again.stat.anon >= len(block)
    assert again.limit is None or again.limit >= again.stat.anon
    assert proc.status(os.getpid()).rss_anon >= len(block)


def test_a_cold_read_is_seen_by_the_disk_and_a_warm_one_is_not(tmp_path):
    path = tmp_path / "cold.bin"
    path.write_bytes(os.urandom(8 * MIB))
    device = path.stat().st_dev
    if cgroup.block_stat(device) is None:
        pytest.skip("the temporary folder is on no disk")
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        before, own = cgroup.block_stat(device).bytes_read, proc.io(os.getpid()).read_bytes
        assert len(os.pread(file.fileno(), 8 * MIB, 0)) == 8 * MIB
        assert cgroup.block_stat(device).bytes_read - before >= 8 * MIB  # others may read too
        cold = proc.io(os.getpid()).read_bytes
        assert cold - own >= 8 * MIB
        os.pread(file.fileno(), 8 * MIB, 0)
        # The process may read a page of a library meanwhile, and the kernel may drop a few of the file's.
        assert proc.io(os.getpid()).read_bytes - cold < MIB


def test_memory_without_a_disk_has_no_block_device():
    if not Path("/dev/shm").is_dir():
        pytest.skip("no tmpfs")
    assert cgroup.block_stat(Path("/dev/shm").stat().st_dev) is None
