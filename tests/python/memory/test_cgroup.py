"""What a container has left, and the readers under it: recorded and hand-made machines, and the one we run on."""

import os
import re
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from onecopy.memory import cgroup, container, proc, selection
from onecopy.memory.cgroup import Container

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


def pod(root: Path, group: dict[str, str], parent: dict[str, str] | None = None) -> Container:
    """Measure process 7, which is in ``/pod/app`` of a v2 machine. Names are those of files without "memory."."""
    files = {"proc/7/cgroup": "0::/pod/app\n", "proc/self/mountinfo": V2_MOUNT.format(root="/")}
    for place, texts in (("app/", group), ("", parent or {})):
        files |= {f"sys/fs/cgroup/pod/{place}memory.{name}": text for name, text in texts.items()}
    found = container(7, root=machine(root, files))
    assert found is not None
    return found


def numbers(**given: int) -> dict[str, str]:
    """Return the texts of a group's files: `max` and `current` in bytes, and the lines of ``memory.stat``."""
    texts = {name: str(given.pop(name)) for name in ("max", "current") if name in given}
    lines = {"anon": 0, "file": 0} | given
    return texts | {"stat": "".join(f"{name} {number}\n" for name, number in lines.items())}


def v1_group(place: str, limit: str, hierarchical: str) -> dict[str, str]:
    place = f"sys/fs/cgroup/memory{place}"
    return {
        f"{place}/memory.limit_in_bytes": f"{limit}\n",
        f"{place}/memory.usage_in_bytes": "5000\n",
        f"{place}/memory.stat": f"cache 1\nrss 2\nhierarchical_memory_limit {hierarchical}\n",
    }


# --- groups ---------------------------------------------------------------------------------------------------


def test_the_group_of_a_hybrid_machine_is_that_of_v1():
    group, place = container(100, root=V1), V1 / "sys/fs/cgroup/memory/jobs/worker"
    assert (group.version, group.directory, group.pressure_of) == (1, str(place), "machine")
    assert (group.limit, group.limited_by, group.left) == (None, None, None)
    names = {"usage": "usage", "peak": "max_usage", "kernel": "kmem.usage"}
    for name, file in names.items():
        assert getattr(group, name) == int((place / f"memory.{file}_in_bytes").read_text())
    assert group.peak >= group.usage > 0
    lines = {name: int(number) for name, number in map(str.split, (place / "memory.stat").read_text().splitlines())}
    assert (group.anonymous, group.shmem) == (lines["total_rss"], lines["total_shmem"])
    assert group.file_dirty == lines["total_dirty"] + lines["total_writeback"]
    assert group.file_clean + group.file_dirty + group.shmem == lines["total_cache"]
    assert group.working_set == group.usage - lines["total_inactive_file"]
    assert group.refaults == lines["total_workingset_refault_file"] * os.sysconf("SC_PAGE_SIZE")


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


UNSEEN = {
    "nothing is mounted": ("0::/a\n", ""),
    "no membership": ("", V2_MOUNT.format(root="/")),
    "another container's": ("4:memory:/docker/other\n", V1_MOUNT.format(root="/docker/abc")),
    "outside our name space": ("0::/../sibling\n", V2_MOUNT.format(root="/")),
    "mounted, but the other version": ("0::/a\n", V1_MOUNT.format(root="/")),
    "another file system": ("4:memory:/a\n", "9 9 0:9 / /sys/fs/cgroup/memory rw - other none rw,memory\n"),
}


@pytest.mark.parametrize("case", UNSEEN)
def test_a_group_that_cannot_be_seen_is_none(tmp_path, case):
    membership, mounts = UNSEEN[case]
    files = {"proc/7/cgroup": membership, "proc/self/mountinfo": mounts}
    for place in ("cgroup", "sibling", "cgroup/memory"):
        files[f"sys/fs/{place}/memory.stat"] = "anon 1\nfile 2\n"
    assert container(7, root=machine(tmp_path, files)) is None
    with pytest.raises(ProcessLookupError, match="process 999 "):
        container(999, root=tmp_path)


def test_numbers_are_read_as_the_kernel_writes_them():
    for page in (4096, 16384, 65536):
        assert cgroup.parse_limit(f"{(2**63 - 1) // page * page}\n") is None
    assert cgroup.parse_limit("0\n") == 0
    assert cgroup.parse_memory_stat("anon 1\nfile 2\nworkingset_refault 3\n")["workingset_refault_file"] == 3
    found = cgroup.parse_memory_stat("rss 1\ncache 2\ndirty 3\ntotal_rss 4\ntotal_cache 5\ntotal_dirty 6\n")
    assert found == {"anon": 4, "file": 5, "file_dirty": 6}
    mount = cgroup.parse_mountinfo((V2 / "proc/self/mountinfo").read_text())[-1]
    expected = (os.makedev(0, 38), "/", "/mnt/with space\ttab", "fuse.sshfs", "me@host:/a b", ("rw", "user_id=0"))
    assert mount == cgroup.Mount(*expected)


# --- what is left ---------------------------------------------------------------------------------------------


def test_what_is_left_counts_everybody_under_the_limit(tmp_path):
    """The limit is the pod's, and a neighbour takes most of it."""
    group = numbers(anon=100 * MIB, file=400 * MIB, inactive_file=300 * MIB, current=500 * MIB)
    found = pod(tmp_path, group, numbers(anon=700 * MIB, kernel=50 * MIB, max=1000 * MIB, current=750 * MIB))
    assert (found.unreclaimable, found.left) == (100 * MIB, 250 * MIB)
    assert "75 % of it is used" in str(found)


def test_nothing_is_left_where_more_is_held_than_the_limit(tmp_path):
    """The limit was lowered below what is held, which cannot be dropped."""
    found = pod(tmp_path, numbers(anon=150 * MIB, current=150 * MIB, max=100 * MIB))
    assert (found.held, found.limit, found.left) == (150 * MIB, 100 * MIB, 0)


def test_clean_cache_up_to_the_limit_is_no_reason_to_worry(tmp_path):
    """Ten gigabytes of a mapped file in a container of one: usage stands at the limit, and no process is killed."""
    cache = {"file": 900 * MIB, "inactive_file": 100 * MIB, "active_file": 800 * MIB}
    found = pod(tmp_path, numbers(anon=99 * MIB, kernel=MIB, **cache, current=1000 * MIB, max=1000 * MIB))
    assert (found.working_set, found.left) == (900 * MIB, 900 * MIB)
    assert "Kubernetes and docker stats show 944 MB" in str(found)
    assert "839 MB of it are active file pages, which can be dropped too" in str(found)


def test_kills_and_pressure_are_reported(tmp_path):
    events = {"pressure": STALL, "events": "max 3\noom 2\noom_kill 2\n"}
    found = pod(tmp_path, numbers(anon=1) | events)
    assert (found.kills, found.pressure_of) == (2, "group")
    assert found.pressure.some == cgroup.Stall(0.0125, 0.1, 0.005, 3.0)
    assert "killed 2 processes in this group" in str(found)
    assert re.search(r"tasks of this group .* 10\.0 % .* all of them .* 2\.50 %", str(found))
    (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n")  # of v1
    assert (cgroup.kills(tmp_path), cgroup.kills(tmp_path / "none")) == (5, None)


def test_the_verb_reports_by_its_status_that_little_is_left(tmp_path, monkeypatch, onecopy_command):
    found = pod(tmp_path, numbers(anon=95 * MIB, max=100 * MIB, current=96 * MIB))
    monkeypatch.setattr("onecopy.cli.container.container", {7: found}.get)
    done = onecopy_command("container", 7)
    assert done.returncode == 3
    assert "(cgroup v2)" in done.stdout
    assert "96 % of it is used" in done.stdout
    assert "is not visible" in onecopy_command("container").stderr  # the group of another process


# --- hostile text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PARSERS)
@given(text=st.text())
def test_any_text_is_read_or_refused(kind, text):
    try:
        PARSERS[kind](text)
    except ValueError as error:
        assert str(error).startswith(kind)  # noqa: PT017


UNREADABLE = {
    "mountinfo": ["36 35 98:0 / /mnt rw ext4 /dev/sda rw\n", "36 35 99999999999:0 / /mnt rw - ext4 /dev/sda rw\n"],
    "cgroup": ["memory\n", "x:memory:/\n"],
    "memory limit": ["-1\n", "\n"],
    "memory.stat": ["anon 1\nfile two\n", "anon 1\n"],
    "pressure": ["", "some\n", STALL.replace("1.25", "x"), STALL.replace("full", "most"), STALL[: STALL.index("full")]],
    "kills": ["oom_kill x\n"],
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_a_line_that_cannot_be_read_is_named(kind):
    for text in UNREADABLE[kind]:
        with pytest.raises(ValueError, match=f"{kind}: (cannot parse line|the line for)"):
            PARSERS[kind](text)


@given(st.dictionaries(st.sampled_from(["cpu", "memory", "pids", "name=systemd"]), st.text(), min_size=1))
def test_any_membership_is_read_back(groups):
    groups = {name: "/" + path.replace("\n", "") for name, path in groups.items()}
    text = "".join(f"{i}:{name}:{path}\n" for i, (name, path) in enumerate(groups.items()))
    assert cgroup.parse_membership(text) == groups


# --- live -------------------------------------------------------------------------------------------------


def test_a_group_with_a_limit_of_its_own(python):
    """Live, where we may make a group: what is touched moves from what is left."""
    own = container()
    if own is None or own.version != 1 or os.geteuid() != 0:
        pytest.skip("only root can make a group, and here only of v1")
    place = Path(own.directory) / f"onecopy-test-{os.getpid()}"
    try:
        place.mkdir()
    except OSError as error:
        pytest.skip(f"no group can be made: {error}")
    code = """
    import sys
    with open(sys.argv[1] + "/cgroup.procs", "w") as file:
        file.write("0")
    from onecopy.memory import container
    before = container()
    held = b"x" * (64 << 20)
    after = container()
    print(before.limit, before.left - after.left, after.directory)
    """
    try:
        (place / "memory.limit_in_bytes").write_text(str(256 * MIB))
        limit, taken, directory = python(code, place).split()
        assert (int(limit), directory) == (256 * MIB, str(place))
        assert int(taken) == pytest.approx(64 * MIB, rel=0.1)
    finally:
        place.rmdir()


@pytest.mark.parametrize(
    ("group", "is_in"), [("/jobs", True), ("jobs/7/", True), ("/", True), ("/job", False), ("/7", False)]
)
def test_a_process_is_in_its_group_and_in_those_above_it(monkeypatch, group, is_in):
    monkeypatch.setattr(proc, "process_text", lambda *_: "0::/jobs/7\n")
    assert selection.in_group(1, group) == is_in
