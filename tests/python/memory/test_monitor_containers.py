"""What a container has left: recorded machines of cgroup v1 and v2, and a group with a limit where we may make one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecopy.cli import command_line
from onecopy.memory import cgroup, container, pressure

MIB = 1 << 20
FIXTURES = Path(__file__).parent / "fixtures" / "proc"
V1, V2 = FIXTURES / "linux_6_18_v1", FIXTURES / "linux_5_15_v2"
STALL = "some avg10=1.25 avg60=10.00 avg300=0.50 total=3000000\nfull avg10=0.00 avg60=2.50 avg300=0.00 total=1000000\n"


def machine(root: Path, group: dict[str, str], parent: dict[str, str] | None = None) -> Path:
    """Write a v2 machine: process 7 is in ``/pod/app``."""
    files = {"proc/7/cgroup": "0::/pod/app\n"}
    files["proc/self/mountinfo"] = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup rw,nsdelegate\n"
    files |= {f"sys/fs/cgroup/pod/app/{name}": text for name, text in group.items()}
    files |= {f"sys/fs/cgroup/pod/{name}": text for name, text in (parent or {}).items()}
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def stat(**numbers: int) -> str:
    return "".join(f"{name} {number}\n" for name, number in ({"anon": 0, "file": 0} | numbers).items())


def test_v2_is_measured():
    found = container(100, root=V2)
    assert found is not None
    lines = dict(line.split() for line in (Path(found.directory) / "memory.stat").read_text().splitlines())
    kernel = sum(int(lines[name]) for name in ("kernel_stack", "pagetables", "percpu", "sock", "slab"))
    assert (found.version, found.limit) == (2, 4 << 30)
    assert (found.anonymous, found.shmem, found.kernel) == (int(lines["anon"]), 64 * MIB, kernel)
    assert found.file_clean == int(lines["file"]) - 64 * MIB - MIB
    assert found.file_dirty == MIB
    assert found.unreclaimable == int(lines["anon"]) + 64 * MIB + kernel - int(lines["slab_reclaimable"])
    assert found.working_set == 2612000000 - int(lines["inactive_file"])
    assert found.refaults == 34567 * os.sysconf("SC_PAGE_SIZE")


def test_v1_is_measured():
    found = container(100, root=V1)
    assert found is not None
    lines = dict(line.split() for line in (Path(found.directory) / "memory.stat").read_text().splitlines())
    assert (found.version, found.limit, found.left) == (1, None, None)
    assert (found.anonymous, found.shmem) == (int(lines["total_rss"]), int(lines["total_shmem"]))
    assert found.working_set == found.usage - int(lines["total_inactive_file"])
    assert found.pressure_of == "machine"


def test_what_is_left_counts_everybody_under_the_limit(tmp_path):
    """The limit is the pod's, and a neighbour takes most of it."""
    root = machine(
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
    assert found is not None
    assert found.unreclaimable == 100 * MIB
    assert found.left == 250 * MIB
    assert "75 % of it is used" in str(found)


def test_clean_cache_up_to_the_limit_is_no_reason_to_worry(tmp_path):
    """Ten gigabytes of a mapped file in a container of one: usage stands at the limit, and no process is killed."""
    group = {
        "memory.stat": stat(anon=99 * MIB, file=900 * MIB, inactive_file=100 * MIB, active_file=800 * MIB, kernel=MIB),
        "memory.current": f"{1000 * MIB}",
        "memory.max": f"{1000 * MIB}",
    }
    found = container(7, root=machine(tmp_path, group))
    assert found is not None
    assert found.working_set == 900 * MIB
    assert found.left == 900 * MIB
    text = str(found)
    assert "Kubernetes and docker stats show 944 MB" in text
    assert "839 MB of it are active file pages, which can be dropped too" in text


def test_kills_and_pressure_are_reported(tmp_path):
    group = {"memory.stat": stat(anon=1), "memory.pressure": STALL, "memory.events": "max 3\noom 2\noom_kill 2\n"}
    found = container(7, root=machine(tmp_path, group))
    assert found is not None
    assert (found.kills, found.pressure_of) == (2, "group")
    assert found.pressure.some == pressure.Stall(0.0125, 0.1, 0.005, 3.0)
    assert "killed 2 processes of this group" in str(found)
    assert "tasks of this group waited for memory 10.0 % of the time, and all tasks at once 2.50 %" in str(found)


def test_v1_counts_kills_in_another_file(tmp_path):
    (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n")
    assert pressure.kills(tmp_path) == 5
    assert pressure.kills(tmp_path / "none") is None


@pytest.mark.parametrize(
    "text", ["", "some\n", STALL.replace("1.25", "x"), STALL.replace("full", "most"), STALL[: STALL.index("full")]]
)
def test_what_is_no_pressure_is_refused(text):
    with pytest.raises(ValueError, match="pressure"):
        pressure.parse_pressure(text)


@given(st.text())
def test_any_text_is_read_or_refused(text):
    for parse in (pressure.parse_pressure, pressure.parse_kills):
        try:
            parse(text)
        except ValueError as error:
            assert str(error).startswith(("pressure", "kills"))  # noqa: PT017


def test_the_verb_reports_by_its_status_that_little_is_left(tmp_path, monkeypatch, capsys):
    group = {"memory.stat": stat(anon=95 * MIB), "memory.max": f"{100 * MIB}", "memory.current": f"{96 * MIB}"}
    found = container(7, root=machine(tmp_path, group))
    monkeypatch.setattr("onecopy.cli.container.container", lambda _: found)
    assert command_line.run(["container", "7"]) == 3
    out = capsys.readouterr().out
    assert "(cgroup v2)" in out
    assert "96 % of it is used" in out


def test_here():
    here = container()
    if here is None:
        pytest.skip("no memory control group can be seen from here")
    assert here.anonymous > 0
    assert here.unreclaimable >= here.anonymous


def test_a_group_with_a_limit_of_its_own():
    """Live, where we may make a group: what is touched moves from what is left."""
    own = cgroup.memory_group(os.getpid())
    if own is None or own.version != 1 or os.geteuid() != 0:
        pytest.skip("only root can make a group, and here only of v1")
    place = own.directory / f"onecopy-test-{os.getpid()}"
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
