"""Default folders that another user made first: anyone can guess /var/tmp/onecopy-UID and /dev/shm/onecopy-UID.

The library uses another folder, says so, and neither writes into the one that is not its own nor reads from it.
Everything under the default folders runs in a child process of an unused user ID, without HOME; the folders are
removed afterwards.
"""

import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.support.children import call_in_child

import onecopy as oc
import onecopy.records
import onecopy.store

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become two other users"),
    pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no /dev/shm"),
]

SECONDS = 30
"""A child that takes longer hangs."""
VICTIM = 1_700_000_000 + os.getpid() * 2 % 100_000_000
"""The user whose default folders are squatted; one of this test session alone."""
SQUATTER = VICTIM + 1
DISK, MEMORY = Path(f"/var/tmp/onecopy-{VICTIM}"), Path(f"/dev/shm/onecopy-{VICTIM}")
ELSEWHERE = Path(f"/var/tmp/onecopy-tests-{VICTIM}")
"""Where a symbolic link in the place of a default folder leads to."""
KEY, POISON, GOOD = "numbers", [6, 6, 6], [1, 2, 3]


class Squat(NamedTuple):
    """What another user put in the place of a default folder, and what the library says of it."""

    make: Callable[[Path], object]
    reason: str


def give(path: Path, owner: int, mode: int) -> None:
    """Give a file or folder, and all that is in it, to a user."""
    inside = path.rglob("*") if path.is_dir() else ()
    for one in inside:
        os.chown(one, owner, owner)
        one.chmod(0o666)
    os.chown(path, owner, owner, follow_symlinks=False)
    path.chmod(mode)


def folder_of_another(mode: int, owner: int = SQUATTER) -> Callable[[Path], object]:
    """Return what makes a folder with a good artefact of `KEY`, whose rows are `POISON`, belong to another user."""
    return lambda path: (plant(path), give(path, owner, mode))


def plant(folder: Path) -> None:
    """Make a store with an artefact that the library would serve if the folder were the victim's."""
    folder.mkdir(0o700)
    os.chown(folder, VICTIM, VICTIM)

    def build() -> None:
        oc.Store(folder).get_or_build(KEY, lambda path: onecopy.records.save(path, POISON))

    call_in_child(build, uid=VICTIM, seconds=SECONDS)


def link_to(mode: int, owner: int) -> Callable[[Path], object]:
    """Return what makes a symbolic link of the other user to a folder with a good artefact."""

    def make(path: Path) -> None:
        plant(ELSEWHERE)
        give(ELSEWHERE, owner, mode)
        path.symlink_to(ELSEWHERE)
        os.chown(path, SQUATTER, SQUATTER, follow_symlinks=False)

    return make


def dangling_link(path: Path) -> None:
    path.symlink_to(ELSEWHERE)
    os.chown(path, SQUATTER, SQUATTER, follow_symlinks=False)


def plain_file(path: Path) -> None:
    path.write_bytes(b"not a folder")
    give(path, SQUATTER, 0o666)


def fifo(path: Path) -> None:
    os.mkfifo(path)
    give(path, SQUATTER, 0o666)


OTHERS, LINK = f"belongs to user {SQUATTER}, but this process runs as user {VICTIM}", "symbolic link"
SQUATS = {
    "a folder that cannot be entered": Squat(folder_of_another(0o700), OTHERS),
    "a folder that can be read": Squat(folder_of_another(0o755), OTHERS),
    "a folder of mode 0777": Squat(folder_of_another(0o777), OTHERS),
    "a folder of mode 1777": Squat(folder_of_another(0o1777), OTHERS),
    "a folder of the group": Squat(folder_of_another(0o2770), OTHERS),
    "a folder of root": Squat(folder_of_another(0o777, 0), "belongs to user 0"),
    "an own folder that others may enter": Squat(
        folder_of_another(0o777, VICTIM), "other users have access to it (mode 0777)"
    ),
    "a link to another user's folder": Squat(link_to(0o777, SQUATTER), LINK),
    "a link to an own folder": Squat(link_to(0o700, VICTIM), LINK),
    "a link to nothing": Squat(dangling_link, LINK),
    "a plain file": Squat(plain_file, "it is not a folder"),
    "a FIFO": Squat(fifo, "it is not a folder"),
}


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def names_in(folder: Path) -> list[Path]:
    """List a folder without being noticed: its time of the last access stays."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOATIME)
    try:
        return [folder / name for name in sorted(os.listdir(descriptor))]  # noqa: PTH208 - by descriptor
    finally:
        os.close(descriptor)


def found_at(*paths: Path) -> list[Path]:
    """Return those of some paths that are there, and what is in them; links are not followed."""
    there = [path for path in paths if path.is_symlink() or path.exists()]
    return there + [one for path in there if path.is_dir() and not path.is_symlink() for one in names_in(path)]


def facts_of(*paths: Path) -> dict[str, tuple[int, ...]]:
    """Return what reading and writing would change, of some paths and of what is in them."""
    found = {}
    for one in found_at(*paths):
        facts = one.lstat()
        read = 0 if one.is_symlink() else facts.st_atime_ns  # is_dir() follows a link, which counts as reading it
        found[str(one)] = (facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, read)
    return found


def with_old_access_times(*paths: Path) -> None:
    """Set access times before those of the last writes, so that file systems with relatime record the next read."""
    hour_ago = time.time() - 3600
    for one in found_at(*paths):
        if not one.is_symlink():
            os.utime(one, (hour_ago, one.stat().st_mtime))


def save_good(path: Path) -> None:
    onecopy.records.save(path, GOOD)


def rows_at(path: Path) -> list[int]:
    with oc.open_records(path) as rows:
        return list(rows)


def share(place: Any, data: Any = GOOD, **options: Any) -> list[int]:
    with oc.share(data, KEY, store=oc.Store(place=place, **options)) as rows:
        return list(rows)


def open_aligned(_: Any) -> object:
    with oc.open("plain.safetensors", align=8192) as file:
        return file["b"].tolist()


WAYS: dict[str, Callable[[Any], Any]] = {
    "get_or_build": lambda place: rows_at(oc.Store(place=place, on_wait=None).get_or_build(KEY, save_good).path),
    "find": lambda place: oc.Store(place=place).find(KEY),
    "ls": lambda place: oc.Store(place=place).ls(),
    "prune": lambda place: oc.Store(place=place).prune(everything=True),
    "share": share,
    "share a function": lambda place: share(place, lambda: GOOD, where="fork"),
}
CALLS = [(place, way) for place in ("disk", "memory") for way in WAYS.values()] + [("disk", open_aligned)]
"""What a program does with a store, where."""
IDS = [f"{place}-{way}" for place in ("disk", "memory") for way in WAYS] + ["disk-open aligned"]


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Do everything once in folders of root, since `VICTIM` may not read modules that are not imported yet."""
    folder, mine = tmp_path_factory.mktemp("own"), onecopy.store.default_folder("memory")[0]
    before = mine.exists()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("ONECOPY_CACHE", str(folder / "store"))
        save_plain()
        for place, call in CALLS:
            call(place)
        for place in ("memory", "disk"):
            nameless(place)
    if not before:
        remove(mine)


def save_plain() -> None:
    oc.save("plain.safetensors", {"a": np.zeros(3, "u1"), "b": np.arange(5)})


@pytest.fixture
def folders(imported: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Path]]:
    """Give the default folders of `VICTIM` by place, free to be squatted; they are removed however the test ends."""
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "XDG_CACHE_HOME", "ONECOPY_CACHE"):
        monkeypatch.delenv(name, raising=False)
    save_plain()

    def remove_all() -> None:
        for path in (DISK, MEMORY, ELSEWHERE):
            remove(path)
        for place in (DISK, MEMORY):
            for path in place.parent.glob(f"{place.name}-*"):
                remove(path)

    remove_all()
    try:
        yield {"disk": DISK, "memory": MEMORY}
    finally:
        remove_all()


def in_victim(call: Callable[..., Any], *arguments: Any) -> Any:
    return call_in_child(call, *arguments, uid=VICTIM, seconds=SECONDS)


def failure_of(call: Callable[..., Any], *arguments: Any) -> OSError:
    """Call in a child of `VICTIM` what has to raise OSError, and return the error."""
    with pytest.raises(OSError) as raised:  # noqa: PT011 - its text is compared by the caller
        in_victim(call, *arguments)
    return raised.value


# --- the tests -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("place", "call"), CALLS, ids=IDS)
def test_without_a_squatter_the_default_folder_is_made_and_used(folders, place, call) -> None:
    """Without this, the other tests could pass because everything fails."""
    in_victim(call, place)
    facts = folders[place].stat()
    assert (facts.st_uid, facts.st_mode & 0o7777) == (VICTIM, 0o700)


@pytest.mark.parametrize("home", ["/nonexistent", "/", "/root", "/dev/null", "."])
def test_a_home_folder_that_cannot_be_written_is_none(folders, home, monkeypatch) -> None:
    """As in containers that run as a user without an entry in /etc/passwd."""
    monkeypatch.setenv("HOME", home)
    assert in_victim(share, "disk") == GOOD
    assert folders["disk"].stat().st_uid == VICTIM


def test_a_home_folder_that_can_be_written_is_used(folders, monkeypatch) -> None:
    home = ELSEWHERE
    monkeypatch.setenv("HOME", str(home))
    home.mkdir(0o700)
    os.chown(home, VICTIM, VICTIM)
    for _ in range(2):
        assert in_victim(share, "disk") == GOOD
    assert (home / ".cache/onecopy").stat().st_uid == VICTIM
    assert not folders["disk"].exists()


def test_a_folder_that_cannot_be_made_names_the_variable_that_sets_another(folders, monkeypatch) -> None:
    for variable in ("ONECOPY_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, "/root/none")
        assert "set ONECOPY_CACHE to a folder to which this user may write" in str(failure_of(share, "disk"))
        monkeypatch.delenv(variable)


@pytest.mark.parametrize("place", ["disk", "memory"])
def test_what_was_planted_would_be_served_to_its_owner(folders, place) -> None:
    """The planted artefact is a good one: only its folder's owner, mode or kind is wrong."""
    plant(folders[place])
    assert in_victim(share, place) == POISON


def list_folder(place: Any) -> list[Path]:
    return list(onecopy.store.default_folder(place)[0].iterdir())


@pytest.mark.parametrize("call", [list_folder, WAYS["find"], share, WAYS["get_or_build"]])
def test_reading_and_writing_would_be_seen(folders, call) -> None:
    folder = folders["disk"]
    if os.statvfs(folder.parent).f_flag & os.ST_NOATIME:
        pytest.skip(f"{folder.parent} records no times of access")
    plant(folder)
    with_old_access_times(folder)
    before = facts_of(folder)
    assert len(before) > 2
    assert facts_of(folder) == before
    in_victim(call, "disk")
    assert facts_of(folder) != before


def second(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}-1")


@pytest.mark.parametrize("kind", SQUATS)
@pytest.mark.parametrize(("place", "call"), CALLS, ids=IDS)
def test_a_squatted_folder_is_left_alone_and_another_one_is_used(folders, place, call, kind) -> None:
    folder = folders[place]
    SQUATS[kind].make(folder)
    with_old_access_times(folder, ELSEWHERE)
    before = facts_of(folder, ELSEWHERE)
    in_victim(call, place)
    facts = second(folder).stat()
    assert (facts.st_uid, facts.st_mode & 0o7777) == (VICTIM, 0o700)
    assert facts_of(folder, ELSEWHERE) == before


@pytest.mark.parametrize("place", ["disk", "memory"])
def test_all_processes_of_a_user_find_the_folder_that_is_used_instead(folders, place) -> None:
    SQUATS["a folder of mode 0777"].make(folders[place])
    assert in_victim(share, place) == GOOD
    assert in_victim(find_path, place).parent == second(folders[place])


def find_path(place: Any) -> Path:
    found = oc.Store(place=place).find(KEY)
    assert found is not None
    return found.path


def reasons(place: Any) -> tuple[str, str, list[str]]:
    """Return the reasons that a store and the default folder give, and what is logged, of several stores."""
    logged: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("onecopy").addHandler(handler)
    told, _ = oc.Store(place=place).reason, oc.Store(place=place)
    return told, onecopy.store.default_folder(place)[1], logged


@pytest.mark.parametrize("kind", SQUATS)
@pytest.mark.parametrize("place", ["disk", "memory"])
def test_the_reason_for_another_folder_is_reported(folders, place, kind) -> None:
    folder = folders[place]
    SQUATS[kind].make(folder)
    told, default, logged = in_victim(reasons, place)
    assert told == default
    assert f"; not {folder}: " in told
    assert SQUATS[kind].reason in told
    (line,) = logged
    assert str(second(folder)) in line
    assert SQUATS[kind].reason in line


@pytest.mark.parametrize("place", ["disk", "memory"])
def test_who_squats_all_names_is_refused(folders, place) -> None:
    folder = folders[place]
    names = [folder, *(folder.with_name(f"{folder.name}-{i}") for i in range(1, 16))]
    for one in names:
        one.mkdir(0o700)
        os.chown(one, SQUATTER, SQUATTER)
    error = failure_of(WAYS["get_or_build"], place)
    assert (error.filename, error.strerror) == (str(folder), f"use as a store: it {OTHERS}")


def nameless(place: Any) -> tuple[list[int], str]:
    """Share without a key; return the rows and the path of the file that they are in."""
    with oc.share(GOOD, store=oc.Store(place=place)) as rows:
        return list(rows), str(Path(rows.path).readlink())


@pytest.mark.parametrize("kind", SQUATS)
def test_nameless_data_in_memory_needs_no_default_folder(folders, kind) -> None:
    for place in folders:
        if not ELSEWHERE.exists():
            SQUATS[kind].make(folders[place])
    rows, path = in_victim(nameless, "memory")
    assert rows == GOOD
    assert path.startswith(("/memfd:", "/dev/shm/#", "/dev/shm/.onecopy-"))  # the fallbacks have no name either


@pytest.mark.parametrize("kind", SQUATS)
def test_nameless_data_on_disk_does_not_go_into_another_users_folder(folders, kind) -> None:
    SQUATS[kind].make(folders["disk"])
    rows, path = in_victim(nameless, "disk")
    assert rows == GOOD
    assert not path.startswith((f"{folders['disk']}/", f"{ELSEWHERE}/"))


def test_the_default_folder_of_a_user_without_a_home_is_the_one_that_is_squatted(folders) -> None:
    assert in_victim(onecopy.store.default_folder) == (folders["disk"], "there is no home folder")
    assert in_victim(onecopy.store.default_folder, "memory")[0] == folders["memory"]
