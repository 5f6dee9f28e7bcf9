"""What a container has left, and the readers under it: recorded and hand-made machines, and the one we run on."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from onecopy.cli import command_line
from onecopy.memory import cgroup, container, proc

MIB = 2**20
FIXTURES = Path(__file__).parent / "fixtures" / "proc"
V1, V2 = FIXTURES / "linux_6_18_v1", FIXTURES / "linux_5_15_v2"
PARSERS = {
    "mountinfo": cgroup.parse_mountinfo,
    "cgroup": cgroup.parse_membership,
    "memory limit": cgroup.parse_limit,
    "memory.stat": cgroup.parse_memory_stat,
    "pressure": cgroup.parse_pressure,
    "kills": cgroup.parse_kills,
}
V1_UNLIMITED = "9223372036854771712"
UNLIMITED = {"stat": "anon 1\nfile 2\n", "max": "max\n", "current": "3\n"}
V1_MOUNT = "35 31 0:32 {root} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
V2_MOUNT = "30 23 0:26 {root} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup rw,nsdelegate\n"
STALL = "some avg10=1.25 avg60=10.00 avg300=0.50 total=3000000\nfull avg10=0.00 avg60=2.50 avg300=0.00 total=1000000\n"


def machine(root: Path, files: dict[str, str]) -> Path:
    """Write a file system of hand-made files below `root`."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def pod(root: Path, group: dict[str, str], parent: dict[str, str] | None = None) -> Path:
    """Write a v2 machine: process 7 is in ``/pod/app``."""
    files = {"proc/7/cgroup": "0::/pod/app\n", "proc/self/mountinfo": V2_MOUNT.format(root="/")}
    files |= {f"sys/fs/cgroup/pod/app/{name}": text for name, text in group.items()}
    return machine(root, files | {f"sys/fs/cgroup/pod/{name}": text for name, text in (parent or {}).items()})


def stat(**numbers: int) -> str:
    return "".join(f"{name} {number}\n" for name, number in ({"anon": 0, "file": 0} | numbers).items())


def v1_group(place: str, limit: str, hierarchical: str) -> dict[str, str]:
    place = f"sys/fs/cgroup/memory{place}"
    return {
        f"{place}/memory.limit_in_bytes": f"{limit}\n",
        f"{place}/memory.usage_in_bytes": "5000\n",
        f"{place}/memory.stat": f"cache 1\nrss 2\nhierarchical_memory_limit {hierarchical}\n",
    }


# --- groups ---------------------------------------------------------------------------------------------------


def test_the_group_of_a_hybrid_machine_is_that_of_v1():
    group = container(100, root=V1)
    place = V1 / "sys/fs/cgroup/memory/jobs/worker"
    assert (group.version, group.directory, group.limit, group.limited_by, group.left) == (
        1,
        str(place),
        None,
        None,
        None,
    )
    assert group.usage == int((place / "memory.usage_in_bytes").read_text()) > 0
    assert group.peak == int((place / "memory.max_usage_in_bytes").read_text()) >= group.usage
    assert group.kernel == int((place / "memory.kmem.usage_in_bytes").read_text())
    lines = dict(line.split() for line in (place / "memory.stat").read_text().splitlines())
    assert (group.anonymous, group.shmem) == (int(lines["total_rss"]), int(lines["total_shmem"]))
    assert group.file_dirty == int(lines["total_dirty"]) + int(lines["total_writeback"])
    assert group.file_clean + group.file_dirty + group.shmem == int(lines["total_cache"])
    assert group.working_set == group.usage - int(lines["total_inactive_file"])
    assert group.refaults == int(lines["total_workingset_refault_file"]) * os.sysconf("SC_PAGE_SIZE")
    assert group.pressure_of == "machine"


def test_the_limit_of_v2_is_that_of_the_tightest_ancestor():
    group = container(100, root=V2)
    place = V2 / "sys/fs/cgroup/user.slice/user-1000.slice"
    assert (group.version, group.directory) == (2, str(place / "session-2.scope"))
    assert (group.limit, group.limited_by) == (4 << 30, str(place))
    assert (group.usage, group.peak) == (2612000000, None)  # memory.peak is of Linux 5.19
    lines = dict(line.split() for line in (Path(group.directory) / "memory.stat").read_text().splitlines())
    kernel = sum(int(lines[name]) for name in ("kernel_stack", "pagetables", "percpu", "sock", "slab"))
    assert (group.anonymous, group.shmem, group.kernel) == (1503238553, 64 * MIB, kernel)
    assert (group.file_clean, group.file_dirty) == (int(lines["file"]) - 64 * MIB - 3 * MIB, 3 * MIB)
    assert group.unreclaimable == group.anonymous + 64 * MIB + kernel - int(lines["slab_reclaimable"])
    assert group.working_set == 2612000000 - 768 * MIB
    assert group.refaults == 34567 * os.sysconf("SC_PAGE_SIZE")


MACHINES = {
    "the root of v2 has no usage of its own": (
        "0::/\n",
        V2_MOUNT.format(root="/"),
        {"sys/fs/cgroup/memory.stat": "anon 1\nfile 2\nkernel 3\n"},
        {"directory": "sys/fs/cgroup", "limit": None, "usage": None, "peak": None, "kernel": 3},
    ),
    "a v1 container sees its own group at the mount point": (
        "9:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n0::/\n",
        V1_MOUNT.format(root="/docker/abc"),
        v1_group("", "1048576", "1048576"),
        {"directory": "sys/fs/cgroup/memory", "limited_by": "sys/fs/cgroup/memory", "limit": MIB},
    ),
    "v1 knows a limit above what is mounted": (
        "4:memory:/pod/abc\n",
        V1_MOUNT.format(root="/pod/abc"),
        v1_group("", V1_UNLIMITED, "4096"),
        {"limit": 4096, "limited_by": None},
    ),
    "v1 without hierarchy is not bound by its parent": (
        "4:memory:/parent/child\n",
        V1_MOUNT.format(root="/"),
        v1_group("/parent", "4096", "4096") | v1_group("/parent/child", "8192", "8192"),
        {"limit": 8192, "limited_by": "sys/fs/cgroup/memory/parent/child"},
    ),
    "a group without the memory controller is charged to the one above": (
        "0::/a/b (deleted)\n",
        V2_MOUNT.format(root="/"),
        {f"sys/fs/cgroup/a/memory.{name}": text for name, text in UNLIMITED.items()},
        {"directory": "sys/fs/cgroup/a", "limit": None, "usage": 3},
    ),
}


@pytest.mark.parametrize("machine_of", MACHINES)
def test_the_group_of_a_process_is_found_and_its_limit(tmp_path, machine_of):
    membership, mounts, files, expected = MACHINES[machine_of]
    root = machine(tmp_path, {"proc/7/cgroup": membership, "proc/self/mountinfo": mounts, **files})
    group = container(7, root=root)
    for name in ("directory", "limited_by"):
        if expected.get(name):
            expected = {**expected, name: str(root / expected[name])}
    assert {name: getattr(group, name) for name in expected} == expected


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
    assert container(7, root=machine(tmp_path, files)) is None


def test_the_group_of_a_vanished_process_is_not_found():
    with pytest.raises(ProcessLookupError, match="process 999 "):
        container(999, root=V1)


def test_older_kernels_count_the_refaults_of_files_and_v1_the_groups_below():
    assert cgroup.parse_memory_stat("anon 1\nfile 2\nworkingset_refault 3\n")["workingset_refault_file"] == 3
    stat = cgroup.parse_memory_stat("rss 1\ncache 2\ndirty 3\ntotal_rss 4\ntotal_cache 5\ntotal_dirty 6\n")
    assert stat == {"anon": 4, "file": 5, "file_dirty": 6}


def test_every_unlimited_number_of_v1_is_none():
    for page in (4096, 16384, 65536):
        assert cgroup.parse_limit(f"{(2**63 - 1) // page * page}\n") is None
    assert cgroup.parse_limit("0\n") == 0


def test_mount_points_are_read_with_spaces_and_tabs():
    mount = cgroup.parse_mountinfo((V2 / "proc/self/mountinfo").read_text())[-1]
    assert (mount.mount_point, mount.source) == ("/mnt/with space\ttab", "me@host:/a b")
    assert (mount.device, mount.fs_type, mount.root) == (os.makedev(0, 38), "fuse.sshfs", "/")
    assert mount.options == ("rw", "user_id=0")


# --- what is left ---------------------------------------------------------------------------------------------


def test_what_is_left_counts_everybody_under_the_limit(tmp_path):
    """The limit is the pod's, and a neighbour takes most of it."""
    root = pod(
        tmp_path,
        {
            "memory.stat": stat(anon=100 * MIB, file=400 * MIB, inactive_file=300 * MIB),
            "memory.current": f"{500 * MIB}",
        },
        {
            "memory.stat": stat(anon=700 * MIB, kernel=50 * MIB),
            "memory.max": f"{1000 * MIB}",
            "memory.current": f"{750 * MIB}",
        },
    )
    found = container(7, root=root)
    assert found.unreclaimable == 100 * MIB
    assert found.left == 250 * MIB
    assert "75 % of it is used" in str(found)


def test_nothing_is_left_where_more_is_held_than_the_limit(tmp_path):
    """The limit was lowered below what is held, which cannot be dropped."""
    group = {"memory.stat": stat(anon=150 * MIB), "memory.current": f"{150 * MIB}", "memory.max": f"{100 * MIB}"}
    found = container(7, root=pod(tmp_path, group))
    assert (found.held, found.limit, found.left) == (150 * MIB, 100 * MIB, 0)


def test_clean_cache_up_to_the_limit_is_no_reason_to_worry(tmp_path):
    """Ten gigabytes of a mapped file in a container of one: usage stands at the limit, and no process is killed."""
    group = {
        "memory.stat": stat(anon=99 * MIB, file=900 * MIB, inactive_file=100 * MIB, active_file=800 * MIB, kernel=MIB),
        "memory.current": f"{1000 * MIB}",
        "memory.max": f"{1000 * MIB}",
    }
    found = container(7, root=pod(tmp_path, group))
    assert found.working_set == 900 * MIB
    assert found.left == 900 * MIB
    text = str(found)
    assert "Kubernetes and docker stats show 944 MB" in text
    assert "839 MB of it are active file pages, which can be dropped too" in text


def test_kills_and_pressure_are_reported(tmp_path):
    group = {"memory.stat": stat(anon=1), "memory.pressure": STALL, "memory.events": "max 3\noom 2\noom_kill 2\n"}
    found = container(7, root=pod(tmp_path, group))
    assert (found.kills, found.pressure_of) == (2, "group")
    assert found.pressure.some == cgroup.Stall(0.0125, 0.1, 0.005, 3.0)
    assert "killed 2 processes in this group" in str(found)
    assert re.search(r"tasks of this group .* 10\.0 % .* all of them .* 2\.50 %", str(found))


def test_v1_counts_kills_in_another_file(tmp_path):
    (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n")
    assert cgroup.kills(tmp_path) == 5
    assert cgroup.kills(tmp_path / "none") is None


def test_the_verb_reports_by_its_status_that_little_is_left(tmp_path, monkeypatch, capsys):
    group = {"memory.stat": stat(anon=95 * MIB), "memory.max": f"{100 * MIB}", "memory.current": f"{96 * MIB}"}
    found = container(7, root=pod(tmp_path, group))
    monkeypatch.setattr("onecopy.cli.container.container", lambda _: found)
    assert command_line.run(["container", "7"]) == 3
    out = capsys.readouterr().out
    assert "(cgroup v2)" in out
    assert "96 % of it is used" in out


# --- hostile text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PARSERS)
@given(text=st.text())
def test_any_text_is_read_or_refused(kind, text):
    try:
        PARSERS[kind](text)
    except ValueError as error:
        assert str(error).startswith(kind)  # noqa: PT017


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("mountinfo", "36 35 98:0 / /mnt rw ext4 /dev/sda rw\n"),
        ("mountinfo", "36 35 99999999999:0 / /mnt rw - ext4 /dev/sda rw\n"),
        ("cgroup", "memory\n"),
        ("cgroup", "x:memory:/\n"),
        ("memory limit", "-1\n"),
        ("memory limit", "\n"),
        ("memory.stat", "anon 1\nfile two\n"),
        ("memory.stat", "anon 1\n"),
        ("pressure", ""),
        ("pressure", "some\n"),
        ("pressure", STALL.replace("1.25", "x")),
        ("pressure", STALL.replace("full", "most")),
        ("pressure", STALL[: STALL.index("full")]),
        ("kills", "oom_kill x\n"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(kind, text):
    with pytest.raises(ValueError, match=f"{kind}: (cannot parse line|the line for)"):
        PARSERS[kind](text)


@given(st.dictionaries(st.sampled_from(["cpu", "memory", "pids", "name=systemd"]), st.text(), min_size=1))
def test_any_membership_is_read_back(groups):
    groups = {name: "/" + path.replace("\n", "") for name, path in groups.items()}
    text = "".join(f"{i}:{name}:{path}\n" for i, (name, path) in enumerate(groups.items()))
    assert cgroup.parse_membership(text) == groups


# --- live -------------------------------------------------------------------------------------------------


def test_our_own_group_holds_at_least_what_we_were_charged():
    if container() is None:
        pytest.skip("no memory control group can be seen from here")
    block = bytearray(os.urandom(1)) * (32 * MIB)
    here = container()
    assert Path(here.directory).is_dir()
    assert here.unreclaimable >= here.anonymous >= len(block)
    assert here.limit is None or here.limit >= here.anonymous
    assert proc.status(os.getpid()).rss_anon >= len(block)


def test_a_group_with_a_limit_of_its_own():
    """Live, where we may make a group: what is touched moves from what is left."""
    own = container()
    if own is None or own.version != 1 or os.geteuid() != 0:
        pytest.skip("only root can make a group, and here only of v1")
    place = Path(own.directory) / f"onecopy-test-{os.getpid()}"
    try:
        place.mkdir()
    except OSError as error:
        pytest.skip(f"no group can be made: {error}")
    try:
        (place / "memory.limit_in_bytes").write_text(str(256 * MIB))
        code = (
            f"open({str(place / 'cgroup.procs')!r}, 'w').write('0')\n"
            "from onecopy.memory import container\n"
            "before = container()\nheld = b'x' * (64 << 20)\nafter = container()\n"
            "print(before.limit, before.left - after.left, after.directory, len(held))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
        limit, taken, directory, _ = done.stdout.split()
        assert int(limit) == 256 * MIB
        assert int(taken) == pytest.approx(64 * MIB, rel=0.1)
        assert directory == str(place)
    finally:
        place.rmdir()
