"""Default folders that another user made first: anyone can guess /var/tmp/onecopy-UID and /dev/shm/onecopy-UID.

The library uses another folder, says so, and neither writes into the one that is not its own nor reads from it.
Everything under the default folders runs in a child process of an unused user ID, without HOME; the folders are
removed afterwards.
"""

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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

VICTIM = 1_700_000_000 + os.getpid() * 2 % 100_000_000
"""The user whose default folders are squatted; one of this test session alone."""
SQUATTER = VICTIM + 1
FOLDERS = {"disk": Path(f"/var/tmp/onecopy-{VICTIM}"), "memory": Path(f"/dev/shm/onecopy-{VICTIM}")}
ELSEWHERE = Path(f"/var/tmp/onecopy-tests-{VICTIM}")
"""Where a symbolic link in the place of a default folder leads to."""
KEY, POISON, GOOD = "numbers", [6, 6, 6], [1, 2, 3]


def in_victim(call: Callable[..., Any], *arguments: Any) -> Any:
    return call_in_child(call, *arguments, uid=VICTIM, seconds=30)


def give(path: Path, owner: int, mode: int) -> None:
    for one in path.rglob("*") if path.is_dir() else ():
        os.chown(one, owner, owner)
        one.chmod(0o666)
    os.chown(path, owner, owner)
    path.chmod(mode)


def plant(folder: Path) -> None:
    """Make a store with an artefact that the library would serve if the folder were the victim's."""
    folder.mkdir(0o700)
    os.chown(folder, VICTIM, VICTIM)
    in_victim(lambda: oc.Store(folder).get_or_build(KEY, lambda path: onecopy.records.save(path, POISON)) and None)


def folder_of(owner: int, mode: int) -> Callable[[Path], object]:
    """Return what makes a folder of a user, with a good artefact of `KEY` whose rows are `POISON`."""
    return lambda path: (plant(path), give(path, owner, mode))


def link_to(make: Callable[[Path], object]) -> Callable[[Path], object]:
    """Return what makes a symbolic link of the other user to `ELSEWHERE`, and what is there."""

    def make_link(path: Path) -> None:
        make(ELSEWHERE)
        path.symlink_to(ELSEWHERE)
        os.chown(path, SQUATTER, SQUATTER, follow_symlinks=False)

    return make_link


OTHERS, LINK = f"belongs to user {SQUATTER}, but this process runs as user {VICTIM}", "symbolic link"
SQUATS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a folder that cannot be entered": (folder_of(SQUATTER, 0o700), OTHERS),
    "a folder of mode 1777": (folder_of(SQUATTER, 0o1777), OTHERS),
    "a folder of root": (folder_of(0, 0o777), "belongs to user 0"),
    "an own folder that others may enter": (folder_of(VICTIM, 0o777), "other users have access to it (mode 0777)"),
    "a link to another user's folder": (link_to(folder_of(SQUATTER, 0o777)), LINK),
    "a link to an own folder": (link_to(folder_of(VICTIM, 0o700)), LINK),
    "a link to nothing": (link_to(lambda _: None), LINK),
    "a plain file": (lambda path: (path.touch(), give(path, SQUATTER, 0o666)), "it is not a folder"),
    "a FIFO": (lambda path: (os.mkfifo(path), give(path, SQUATTER, 0o666)), "it is not a folder"),
}
"""What another user put in the place of a default folder, and what the library says of it."""


def facts_of(*paths: Path) -> dict[str, tuple[int, ...]]:
    """Return what writing would change, of some paths and of what is in them; links are not followed."""
    there = [path for path in paths if path.is_symlink() or path.exists()]
    inside = [one for path in there if path.is_dir() and not path.is_symlink() for one in path.iterdir()]
    facts = {str(one): one.lstat() for one in there + inside}
    return {name: (one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns) for name, one in facts.items()}


def share(place: Any, data: Any = GOOD, **options: Any) -> list[int]:
    with oc.share(data, KEY, store=oc.Store(place=place, **options)) as rows:
        return list(rows)


def build(place: Any) -> list[int]:
    store = oc.Store(place=place, on_wait=None)
    with oc.open_records(store.get_or_build(KEY, lambda path: onecopy.records.save(path, GOOD)).path) as rows:
        return list(rows)


def find(place: Any) -> Path | None:
    found = oc.Store(place=place).find(KEY)
    return None if found is None else found.path


def use_all(place: str) -> list[object]:
    """Do everything that uses a default folder; return what it found before anything of its own was there."""
    store = oc.Store(place=place)
    found = [*store.ls(), *store.prune(everything=True).removed]
    found += [one for one in (find(place),) if one is not None]
    assert build(place) == share(place) == share(place, lambda: GOOD, where="fork") == GOOD
    if place == "disk":
        with oc.open("plain.safetensors", align=8192) as file:
            assert file["b"].tolist() == list(range(5))
    return found


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Do everything once in folders of root, since `VICTIM` may not read modules that are not imported yet."""
    folder, mine = tmp_path_factory.mktemp("own"), onecopy.store.default_folder("memory")[0]
    before = mine.exists()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("ONECOPY_CACHE", str(folder / "store"))
        save_plain()
        for place in ("disk", "memory"):
            use_all(place)
            nameless(place)
    if not before:
        remove(mine)


def save_plain() -> None:
    oc.save("plain.safetensors", {"a": np.zeros(3, "u1"), "b": np.arange(5)})


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@pytest.fixture(autouse=True)
def _free_folders(imported: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let `VICTIM` have no home; its default folders are removed before and after the test."""
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "XDG_CACHE_HOME", "ONECOPY_CACHE"):
        monkeypatch.delenv(name, raising=False)
    save_plain()

    def remove_all() -> None:
        for folder in (*FOLDERS.values(), ELSEWHERE):
            for path in folder.parent.glob(f"{folder.name}*"):
                remove(path)

    remove_all()
    yield
    remove_all()


# --- the tests -------------------------------------------------------------------------------------------------------

each_place = pytest.mark.parametrize("place", FOLDERS)


@each_place
def test_without_a_squatter_the_default_folder_is_made_and_used(place: str) -> None:
    """Without this, the other tests could pass because everything fails."""
    assert in_victim(use_all, place) == []
    facts = FOLDERS[place].stat()
    assert (facts.st_uid, facts.st_mode & 0o7777) == (VICTIM, 0o700)
    expected = (FOLDERS[place], "there is no home folder") if place == "disk" else (FOLDERS[place],)
    assert in_victim(onecopy.store.default_folder, place)[: len(expected)] == expected


@pytest.mark.parametrize("home", ["/nonexistent", "/", "/root", "/dev/null", "."])
def test_a_home_folder_that_cannot_be_written_is_none(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in containers that run as a user without an entry in /etc/passwd."""
    monkeypatch.setenv("HOME", home)
    assert in_victim(share, "disk") == GOOD
    assert FOLDERS["disk"].stat().st_uid == VICTIM


def test_a_home_folder_that_can_be_written_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(ELSEWHERE))
    ELSEWHERE.mkdir(0o700)
    os.chown(ELSEWHERE, VICTIM, VICTIM)
    for _ in range(2):
        assert in_victim(share, "disk") == GOOD
    assert (ELSEWHERE / ".cache/onecopy").stat().st_uid == VICTIM
    assert not FOLDERS["disk"].exists()


@pytest.mark.parametrize("variable", ["ONECOPY_CACHE", "XDG_CACHE_HOME"])
def test_a_folder_that_cannot_be_made_names_the_variable_that_sets_another(variable, monkeypatch):
    monkeypatch.setenv(variable, "/root/none")
    with pytest.raises(OSError, match="set ONECOPY_CACHE to a folder to which this user may write"):
        in_victim(share, "disk")


@each_place
def test_what_was_planted_would_be_served_to_its_owner(place: str) -> None:
    """The planted artefact is a good one: only its folder's owner, mode or kind is wrong."""
    plant(FOLDERS[place])
    assert in_victim(share, place) == POISON


def reasons(place: Any) -> tuple[str, str, list[str]]:
    """Return the reasons that a store and the default folder give, and what is logged, of several stores."""
    logged: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("onecopy").addHandler(handler)
    told, _ = oc.Store(place=place).reason, oc.Store(place=place)
    return told, onecopy.store.default_folder(place)[1], logged


def nameless(place: Any) -> tuple[list[int], str]:
    """Share without a key; return the rows and the path of the file that they are in."""
    with oc.share(GOOD, store=oc.Store(place=place)) as rows:
        return list(rows), str(Path(rows.path).readlink())


@pytest.mark.parametrize("kind", SQUATS)
@each_place
def test_a_squatted_folder_is_left_alone_and_another_one_is_used(place: str, kind: str) -> None:
    folder, (make, reason) = FOLDERS[place], SQUATS[kind]
    second = folder.with_name(f"{folder.name}-1")
    make(folder)
    before = facts_of(folder, ELSEWHERE)
    assert in_victim(use_all, place) == []  # what is there is not read
    assert in_victim(find, place).parent == second  # all processes of a user use the same folder
    assert (second.stat().st_uid, second.stat().st_mode & 0o7777) == (VICTIM, 0o700)
    told, default, (line,) = in_victim(reasons, place)
    assert told == default
    assert f"; not {folder}: " in told
    assert reason in told
    assert str(second) in line
    assert reason in line
    rows, path = in_victim(nameless, place)
    assert rows == GOOD
    nowhere = ("/memfd:", "/dev/shm/#", "/dev/shm/.onecopy-")  # the fallbacks have no name either
    assert path.startswith((f"{second}/", *nowhere) if place == "disk" else nowhere)
    assert facts_of(folder, ELSEWHERE) == before


@each_place
def test_who_squats_all_names_is_refused(place: str) -> None:
    folder = FOLDERS[place]
    for one in [folder, *(folder.with_name(f"{folder.name}-{i}") for i in range(1, 16))]:
        one.mkdir(0o700)
        os.chown(one, SQUATTER, SQUATTER)
    with pytest.raises(OSError, match=OTHERS) as raised:
        in_victim(build, place)
    assert raised.value.filename == str(folder)
