"""`onecopy hold NAME=FILE` with real processes: restarts, rolls under load, kills, other users, PID namespaces."""

import contextlib
import errno
import fcntl
import json
import os
import pickle
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.children import become, call_in_child, forked, talking
from tests.support.holders import COMMAND, holder
from tests.support.kernel import needs_memory_files
from tests.support.memory_group import group_or_skip
from tests.support.places import reached_by_all
from tests.support.refusals import os_error
from tests.support.same_answers import run_shared
from tests.support.waiting import until

import onecopy as oc
from onecopy.memory import proc
from onecopy.run.holder import Holder

pytestmark = needs_memory_files
MIB = 1 << 20
NAME = f"test-{os.getpid()}"
HELD = f"hold:{NAME}"
WORKERS = 3
HOLDS = Path(oc.Store(place="memory").folder, "holds")


def save(path: Path, version: float, nbytes: int = 4 * MIB) -> None:
    """Replace a file by one whose numbers are all `version`, in one step."""
    oc.save(path, {"w": np.full(nbytes // 4, version, np.float32)})


def version_of(file: oc.ArrayFile) -> float:
    """Return the version of a file; its numbers must all be equal."""
    numbers = file["w"]
    assert numbers[0] == numbers[-1] == numbers[len(numbers) // 2]
    return float(numbers[0])


def is_held(version: float) -> bool:
    with contextlib.suppress(OSError), oc.open(HELD) as file:
        return version_of(file) == version
    return False


@contextlib.contextmanager
def held(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a process that holds a file until the block ends; give it when it holds version 1."""
    with holder(f"{NAME}={path}") as process:
        until(lambda: is_held(1), "version 1")
        yield process


@pytest.fixture(autouse=True)
def no_names_left() -> Iterator[None]:
    """Remove what killed holders left: a link that leads nowhere and an empty file."""
    yield
    for left in HOLDS.glob(f"*{NAME}*"):
        left.unlink()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    save(path, 1)
    return path


@pytest.fixture
def hold(path: Path) -> Iterator[Holder]:
    """Give a holder of this process that has read the file."""
    with Holder(names={NAME: path}, pin=0) as hold:
        hold.refresh()
        yield hold


def test_a_name_is_opened_by_all_calls_and_survives_the_file(path: Path) -> None:
    with held(path) as process, oc.open(HELD) as file:
        again = pickle.loads(pickle.dumps(file))
        assert version_of(again) == 1
        assert (file.changed(), file.mode) == (False, "map")
        assert oc.open(HELD, mode="copy")["w"][0] == 1
        assert np.shares_memory(file["w"], file["w"])
        path.unlink()
        until(lambda: "kept" in process.stdout.readline(), "the report")  # type: ignore[union-attr]
        assert is_held(1)
        with pytest.raises(ValueError, match="read-only"):
            file["w"][0] = 2
        with pytest.raises(PermissionError):
            os.truncate(file.path, 0)  # it is sealed


def expect_refusal(path: Path, holder: str, name: str = NAME) -> None:
    with os_error(errno.EBUSY, match=f"{holder} holds this name"):
        Holder(names={name: path}).close()


def test_a_second_holder_of_a_name_is_refused_with_the_process_id(path: Path) -> None:
    with held(path) as first:
        with holder(f"{NAME}={path}") as second:
            _, said = second.communicate(timeout=60)
            assert (second.returncode, said) == (1, f"onecopy: {HELD}: process {first.pid} holds this name\n")
        expect_refusal(path, f"process {first.pid}")
        assert is_held(1)
    with held(path):
        pass  # what was killed does not keep the name


def test_a_name_survives_the_removal_of_the_users_files_in_memory(path: Path, hold: Holder) -> None:
    """systemd-logind removes them when the last session of a user ends, unless RemoveIPC=no."""
    shutil.rmtree(oc.Store(place="memory").folder)
    expect_refusal(path, "another process")
    assert hold.refresh() == []
    assert is_held(1)
    expect_refusal(path, f"process {os.getpid()}")
    hold.close()
    with pytest.raises(FileNotFoundError):
        oc.open(HELD)
    assert (list(HOLDS.iterdir()), HOLDS.stat().st_mode & 0o777) == ([], 0o700)


def test_a_link_that_was_removed_alone_is_made_again_and_need_not_be_there_at_the_end(hold: Holder) -> None:
    Path(oc.open(HELD).path).unlink()
    assert hold.refresh() == []
    assert is_held(1)
    shutil.rmtree(oc.Store(place="memory").folder)


def test_a_holder_removes_no_link_and_no_lock_of_another_one(hold: Holder) -> None:
    for name in (NAME, f".{NAME}"):
        (HOLDS / name).unlink()
        (HOLDS / name).symlink_to("/proc/self/fd/0")  # as another holder, in another network, would
    hold.close()
    assert sorted(one.name for one in HOLDS.iterdir()) == [f".{NAME}", NAME]


def test_a_lock_that_another_process_keeps_is_respected(path: Path, monkeypatch: Any) -> None:
    Holder(names={NAME: path}, pin=0).close()
    with (HOLDS / f".{NAME}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        expect_refusal(path, "another process")
        monkeypatch.setattr(time, "sleep", lambda _: fcntl.flock(lock, fcntl.LOCK_UN))  # as by a process that sweeps
        with Holder(names={NAME: path}, pin=0) as hold:
            assert [change.what for change in hold.refresh()] == ["held"]


def test_names_that_look_like_files_of_other_names_have_one_holder_each(path: Path, hold: Holder) -> None:
    longer = f"{NAME}.{os.getpid()}"
    with Holder(names={longer: path}, pin=0) as other:
        other.refresh()
        for name in (longer, NAME):
            expect_refusal(path, f"process {os.getpid()}", name)
            oc.open(f"hold:{name}").close()


@pytest.mark.parametrize("by", ["holder", "prune"])
def test_what_a_killed_holder_left_is_removed_by_the_next_one_and_by_prune(path: Path, by: str) -> None:
    with held(path) as process, Holder(names={f"{NAME}-living": path}, pin=0):
        process.kill()
        process.wait()
        if by == "prune":
            oc.Store(place="memory").prune()
        else:
            Holder(names={f"{NAME}-next": path}, pin=0).close()
        names = {one.name for one in HOLDS.iterdir() if NAME in one.name}
        assert names == {f"{NAME}-living", f".{NAME}-living"}


def test_errors_say_why_nothing_is_held(path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no process holds this name"):
        oc.open(HELD)
    with held(path) as process:
        process.kill()
        process.wait()
        with pytest.raises(FileNotFoundError, match=f"process {process.pid}, which held this name, has ended"):
            oc.open(HELD)
    save(path, 1)
    with Holder(names={NAME: path}, max_bytes=1) as hold:
        (change,) = hold.refresh()
        assert change.what == "lost"
        assert "4.20 MB" in change.reason
        assert "1 B of the budget" in change.reason
        with pytest.raises(BlockingIOError, match=f"process {os.getpid()} has not read the file yet"):
            oc.open(HELD)
    with pytest.raises(ValueError, match="invalid name"):
        oc.open("hold:../x")


def test_an_ended_holder_whose_number_was_used_again_is_noticed(hold: Holder) -> None:
    link = Path(oc.open(HELD).path)
    right = link.readlink()
    other = os.memfd_create("onecopy-hold:other")
    for wrong in ("/proc/self/fd/0", f"/proc/{os.getpid()}/fd/{other}"):
        link.unlink()
        link.symlink_to(wrong)
        with pytest.raises(FileNotFoundError, match="has ended"):
            oc.open(HELD)
    os.close(other)
    link.unlink()
    link.symlink_to(right)
    assert is_held(1)


def test_a_forked_child_that_closes_a_holder_takes_no_name_from_its_parent(hold: Holder) -> None:
    call_in_child(hold.close)
    assert is_held(1)


def test_a_file_with_a_writer_is_not_held_and_the_reason_is_reported(path: Path) -> None:
    with Holder(names={NAME: path}, pin=0) as hold:
        with path.open("r+b"):
            (change,) = hold.refresh()
            assert (change.what, change.generation) == ("lost", 0)
            assert "open for writing" in change.reason
            assert hold.refresh() == []
        (change,) = hold.refresh()
        assert (change.what, change.generation) == ("held", 1)


SERVE = f"""
    import contextlib, sys
    import numpy as np
    import onecopy as oc
    model = oc.open({HELD!r})
    for _ in sys.stdin:
        if model.changed():
            with contextlib.suppress(OSError):
                model = oc.open({HELD!r})
        print(*np.unique(model["w"][::1024]), flush=True)
"""
"""Answers each line with the numbers of the model; follows the newest generation, and keeps the last one without it."""


def request(worker: subprocess.Popen[str]) -> float:
    print(file=worker.stdin, flush=True)
    return float(worker.stdout.readline())  # ValueError: of two versions, or none


def mapped_generations(pids: list[int]) -> set[int]:
    regions = (region for pid in pids for region in proc.maps(pid))
    return {region.inode for region in regions if f"onecopy-hold:{NAME}" in region.path}


def file_memory(group: Path) -> int:
    """Return the bytes of page cache and shared memory of a group, of version 2 or 1."""
    stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    return int(stat["file" if "file" in stat else "cache"])


def test_a_roll_under_load_fails_no_request_and_needs_two_copies(tmp_path: Path) -> None:
    path, copy = tmp_path / "model.safetensors", 256 * MIB
    save(path, 1, copy)
    with contextlib.ExitStack() as ended:
        group = ended.enter_context(group_or_skip(2 * copy + 64 * MIB + (WORKERS + 1) * 80 * MIB))
        entered = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", *COMMAND]
        command = [*entered, f"{NAME}={path}", "--max-bytes", "300MiB"]
        process = ended.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
        ended.callback(process.kill)
        until(lambda: is_held(1), "version 1")
        workers = [ended.enter_context(talking(SERVE)) for _ in range(WORKERS)]
        for worker in workers:
            (group / "cgroup.procs").write_text(str(worker.pid))
        assert {request(worker) for worker in workers} == {1}
        before = mapped_generations([process.pid])
        path.rename(tmp_path / "old")
        save(tmp_path / "new", 2, copy)  # by this process, which is not in the group
        (tmp_path / "new").rename(path)
        peaks = list[int]()

        def all_have_rolled() -> bool:
            seen = {request(worker) for worker in workers}
            peaks.append(file_memory(group))
            return seen == {2.0}

        until(all_have_rolled, "version 2")
        assert len(peaks) > 2
        assert copy < max(peaks) <= 2 * copy + 64 * MIB
        workers[0].kill()
        workers[0].wait()
        workers[0] = ended.enter_context(talking(SERVE))
        assert request(workers[0]) == 2
        pids = [process.pid, *(worker.pid for worker in workers)]
        assert len(mapped_generations(pids)) == 1
        assert not mapped_generations(pids) & before
        until(lambda: file_memory(group) <= copy + 64 * MIB, "version 1 to leave memory")
        process.kill()
        process.wait()
        assert [request(worker) for worker in workers] == [2] * WORKERS  # they keep what they map
        for worker in workers:
            worker.kill()
            worker.wait()
        until(lambda: file_memory(group) <= 64 * MIB, "version 2 to leave memory")


def test_another_file_becomes_the_generation_when_two_looks_have_found_it(path: Path, hold: Holder) -> None:
    for version in (2, 3):  # the second one before a look has found the first one twice
        save(path, version)
        assert hold.refresh() == []
        assert is_held(1)
    assert hold.refresh()[0].what == "replaced"
    assert is_held(3)


OWNER = 1_700_000_000 + os.getpid() * 2 % 100_000_000
OTHER = OWNER + 1


@pytest.fixture
def owned(path: Path, tmp_path: Path) -> Iterator[Path]:
    """Give a file of `OWNER`, who alone can see at once whether a process writes to it."""
    if os.geteuid() != 0:
        pytest.skip("only root can become two other users")
    os.chown(path, OWNER, OWNER)
    with reached_by_all(tmp_path):
        yield path
    for one in (f"/dev/shm/onecopy-{OWNER}", f"/dev/shm/onecopy-{OWNER}-1"):
        shutil.rmtree(one, ignore_errors=True)


def hold_as_owner(path: Path) -> None:
    become(OWNER)
    hold = Holder(names={NAME: path})
    hold.refresh()
    time.sleep(60)


def opened(at: str = HELD) -> str:
    try:
        return str(version_of(oc.open(at)))
    except OSError as error:
        return f"{type(error).__name__}: {error.strerror}"


def is_held_by_owner() -> bool:
    return call_in_child(opened, uid=OWNER) == "1.0"


def test_readers_find_a_name_after_another_user_released_the_folder_that_it_took(owned: Path) -> None:
    taken = Path(f"/dev/shm/onecopy-{OWNER}")

    def take() -> None:
        become(OTHER)
        taken.mkdir()
        name = socket.socket(socket.AF_UNIX)
        name.bind(f"\0onecopy-hold-{OWNER}-{NAME}")
        name.listen()
        time.sleep(60)

    with forked(take):
        until(taken.exists, "the folder of the other user")
        with forked(lambda: hold_as_owner(owned)):
            until(is_held_by_owner, "version 1")
            call_in_child(taken.rmdir, uid=OTHER)
            assert is_held_by_owner()


def test_only_the_user_of_a_holder_opens_its_name(owned: Path) -> None:
    with forked(lambda: hold_as_owner(owned)) as pid:
        until(is_held_by_owner, "version 1")
        assert "no process holds this name" in call_in_child(opened, uid=OTHER)
        assert "no process holds this name" in opened()  # root has names of its own
        generation = next(str(fd) for fd in Path(f"/proc/{pid}/fd").iterdir() if NAME in str(fd.readlink()))
        assert call_in_child(opened, generation, uid=OTHER).startswith("PermissionError")
        # A link of root that leads to what another user holds is not followed, although root may open it.
        with Holder(names={NAME: owned}) as hold:
            hold.refresh()
            link = Path(oc.open(HELD).path)
            link.unlink()
            link.symlink_to(generation)
            assert "has ended" in opened()


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare")
def test_a_process_in_another_pid_namespace_gets_an_error_and_cannot_take_the_name(path: Path) -> None:
    inside = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c"]
    program = f"""
import onecopy as oc
from onecopy.run.holder import Holder
for call in (lambda: oc.open({HELD!r}), lambda: Holder(names={{ {NAME!r}: {str(path)!r} }})):
    try:
        call()
        print("opened")
    except OSError as error:
        print(error.strerror)
"""
    with held(path) as process:
        done = subprocess.run([*inside, program], capture_output=True, text=True, check=False, timeout=60)
        if done.returncode:
            pytest.skip(f"unshare: {done.stderr.strip()}")
        first, second = done.stdout.splitlines()
        assert first.startswith(f"process {process.pid}, which held this name, has ended")
        assert "PID namespace" in first
        assert second == f"process {process.pid} holds this name"


def test_an_unmodified_program_maps_what_is_held_by_its_path(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(1 << 20))
    program = """
import sys, numpy as np
from onecopy.memory import proc
array = np.load(sys.argv[1])
print(int(array[-1]), any("onecopy-hold" in region.path for region in proc.maps("self")))
"""
    with holder(f"{NAME}={tmp_path / 'a.npy'}") as process:
        assert json.loads(process.stdout.readline())["generation"] == 1
        assert run_shared(program, oc.open(HELD).path) == f"{(1 << 20) - 1} True\n"
