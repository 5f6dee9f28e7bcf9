"""A store that users of a machine share: real users, what they may read, and what an attacker exchanges or plants."""

import multiprocessing
import os
import pickle
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.processes.store.test_store_exchange import attack, exchange, save_pickles
from tests.support.children import become, call_in_child, forked
from tests.support.places import reached_by_all
from tests.support.rounds import rounds
from tests.support.waiting import PATIENCE

import onecopy as oc

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")

BUILDER = 1_800_000_000 + os.getpid() * 4 % 100_000_000
READER, ATTACKER, STRANGER = BUILDER + 1, BUILDER + 2, BUILDER + 3
GROUP = BUILDER
KEY, GOOD = "annotations", b"of the builder"


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    """Give a folder as an administrator makes it: `install -d -m 3775 -g GROUP`."""
    shared = tmp_path / "shared"
    shared.mkdir()
    os.chown(shared, 0, GROUP)
    shared.chmod(0o3775)
    with reached_by_all(tmp_path):
        yield shared
    shared.chmod(0o700)


def as_user(user: int, function, *arguments, seconds: int = 100):
    def call():
        become(user, GROUP)
        os.umask(0o022)
        return function(*arguments)

    return call_in_child(call, seconds=seconds)


def build(folder: Path, content: bytes = GOOD, trust: tuple[int, ...] = ()) -> bool:
    return oc.Store(folder, trust=trust).get_or_build(KEY, lambda path: path.write_bytes(content)).built


def find(folder: Path, trust: tuple[int, ...] = ()) -> bytes | str | None:
    try:
        found = oc.Store(folder, trust=trust).find(KEY)
        return None if found is None else found.read_bytes()
    except OSError as error:
        return f"{type(error).__name__}: {error.strerror}"


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o027, 0o007])
def test_what_a_named_user_built_is_found_and_not_built_again_whatever_the_umask(shared: Path, umask: int) -> None:
    assert as_user(BUILDER, lambda: (os.umask(umask), build(shared))[1]) is True
    assert (shared / str(BUILDER)).stat().st_mode & 0o7777 == 0o2750
    assert as_user(READER, find, shared, (BUILDER,)) == GOOD
    assert as_user(READER, build, shared, b"of the reader", (BUILDER,)) is False
    assert list((shared / str(READER)).iterdir()) == []


def test_what_other_users_built_is_not_used(shared: Path) -> None:
    store = pickle.loads(pickle.dumps(oc.Store(shared, trust=[BUILDER, 0])))
    assert (store.folder, store.trust, store.with_options(timeout=1).trust) == (shared / "0", (BUILDER,), (BUILDER,))
    as_user(BUILDER, build, shared)
    assert as_user(READER, find, shared) is None
    assert as_user(READER, find, shared, (STRANGER,)) is None
    assert as_user(READER, build, shared, b"of the reader", (STRANGER,)) is True
    assert as_user(READER, find, shared, (BUILDER,)) == b"of the reader"  # its own comes first


def test_the_artefacts_of_a_user_are_read_only_for_the_others(shared: Path) -> None:
    as_user(BUILDER, build, shared)
    folder = shared / str(BUILDER)
    assert folder.stat().st_mode & 0o777 == 0o750
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o640}
    (artefact,) = folder.glob("*.oc")
    forbidden = (folder / "x").touch, lambda: folder.rename(shared / "x"), folder.rmdir, lambda: artefact.open("r+b")
    for call in forbidden:
        with pytest.raises(PermissionError):
            as_user(READER, call)
    with pytest.raises(PermissionError):
        call_in_child(lambda: list(folder.iterdir()), uid=STRANGER)  # who is not in the group


def test_a_folder_that_is_shared_is_refused_without_trust(shared: Path) -> None:
    as_user(BUILDER, build, shared)
    own = shared / str(BUILDER)
    for user, path, reason in (
        (BUILDER, own, r"other users have access to it \(mode 02750\)"),
        (READER, own, f"it belongs to user {BUILDER}"),
        (BUILDER, shared, r"it belongs to user 0 \(root\)"),
    ):
        with pytest.raises(PermissionError, match=reason):
            as_user(user, oc.Store, path)


def test_folders_in_which_others_could_exchange_something_are_refused(shared: Path, tmp_path: Path) -> None:
    shared.chmod(0o2775)
    assert "chmod +t" in as_user(READER, find, shared, (BUILDER,))
    shared.chmod(0o3775)
    os.chown(shared, ATTACKER, GROUP)
    assert f"it belongs to user {ATTACKER}, who is not trusted" in as_user(READER, find, shared, (BUILDER,))
    assert as_user(READER, find, shared, (ATTACKER,)) is None
    os.chown(shared, 0, GROUP)
    link = tmp_path / "link"
    link.symlink_to(shared)
    assert as_user(READER, find, link, (BUILDER,)).startswith("NotADirectoryError")
    assert as_user(READER, find, tmp_path / "missing").startswith("FileNotFoundError")
    with pytest.raises(ValueError, match="missing-user"):
        oc.Store(shared, trust=["missing-user"])
    with pytest.raises(TypeError, match="a list, not one user"):
        oc.Store(shared, trust="root")
    with pytest.raises(ValueError, match="trust requires a folder"):
        oc.Store(trust=["root"])


def plant(folder: Path, name: int, owner: int, mode: int = 0o755) -> None:
    """Make a folder of a user, with a valid artefact of the attacker in it."""
    place = folder / str(name)
    oc.Store(place).get_or_build(KEY, lambda path: path.write_bytes(b"planted"))
    for path in (place, *place.iterdir()):
        os.chown(path, owner, GROUP)
        path.chmod(mode)


def test_what_is_planted_under_the_name_of_a_named_user_is_not_used(shared: Path) -> None:
    plant(shared, BUILDER, ATTACKER)
    assert as_user(READER, find, shared, (BUILDER,)) is None
    assert as_user(BUILDER, find, shared) is None
    plant(shared, STRANGER, STRANGER, 0o777)  # of that user, but every user may write it
    assert as_user(READER, find, shared, (STRANGER,)) is None
    (shared / str(ATTACKER)).symlink_to(shared / str(BUILDER))
    assert as_user(READER, find, shared, (ATTACKER,)) is None


def test_a_user_whose_name_was_taken_by_another_one_builds_under_the_next_name(shared: Path) -> None:
    as_user(ATTACKER, (shared / str(BUILDER)).mkdir)

    assert as_user(BUILDER, build, shared) is True
    assert len(list((shared / f"{BUILDER}-1").glob("*.oc"))) == 1
    reason = as_user(BUILDER, lambda: oc.Store(shared, trust=[]).reason)
    assert f"another user has taken the name {shared / str(BUILDER)}" in reason
    assert as_user(READER, find, shared, (BUILDER,)) == GOOD
    as_user(ATTACKER, (shared / str(BUILDER)).rmdir)
    assert as_user(BUILDER, find, shared) == GOOD  # the name stays
    assert as_user(READER, find, shared, (BUILDER,)) == GOOD


def test_a_folder_of_the_user_that_others_may_write_is_refused_and_no_other_name_is_taken(shared: Path) -> None:
    place = shared / str(BUILDER)
    plant(shared, BUILDER, BUILDER, 0o777)
    assert "chmod go-w prevents that" in as_user(BUILDER, find, shared)
    assert list(shared.iterdir()) == [place]


def test_a_file_of_a_named_user_that_others_may_write_or_have_linked_is_not_used(shared: Path) -> None:
    as_user(BUILDER, build, shared)
    (artefact,) = (shared / str(BUILDER)).glob("*.oc")
    artefact.chmod(0o666)
    assert as_user(READER, find, shared, (BUILDER,)) is None
    artefact.chmod(0o640)
    assert as_user(READER, find, shared, (BUILDER,)) == GOOD
    os.link(artefact, shared / "second")
    assert as_user(READER, find, shared, (BUILDER,)) is None


def test_an_artefact_that_another_user_has_open_is_not_pruned_by_size(shared: Path) -> None:
    as_user(BUILDER, build, shared)
    opened = multiprocessing.get_context("fork").Event()

    def use() -> None:
        become(READER, GROUP)
        found = oc.Store(shared, trust=[BUILDER]).find(KEY)
        assert found is not None
        opened.set()
        time.sleep(60)

    with forked(use):
        assert opened.wait(PATIENCE)
        assert as_user(BUILDER, lambda: len(oc.Store(shared, trust=[]).prune(max_bytes=0).kept)) == 1
    assert as_user(BUILDER, lambda: len(oc.Store(shared, trust=[]).prune(max_bytes=0).removed)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("by", ["planted", "link"])
def test_nothing_of_an_attacker_who_exchanges_folders_and_links_is_served(shared, tmp_path, by):
    """The attacker owns the folder above, and exchanges the shared folder and, by links, the folder of the builder."""
    as_user(BUILDER, build, shared)
    mark, planted, link = tmp_path / "mark", tmp_path / "planted", tmp_path / "link"
    planted.mkdir()
    oc.Store(planted / str(BUILDER)).get_or_build(KEY, lambda path: save_pickles(path, mark))
    for path in (planted, planted / str(BUILDER), *(planted / str(BUILDER)).iterdir()):
        os.chown(path, ATTACKER, ATTACKER)
        path.chmod(0o755)
    link.symlink_to(planted)
    os.chown(tmp_path, ATTACKER, ATTACKER)
    seconds = rounds(3, 10)

    def search() -> object:
        found = find(shared, (BUILDER,))
        return None if isinstance(found, str) else found

    with forked(lambda: (become(ATTACKER), exchange(shared, tmp_path / by))):
        foreign = as_user(READER, attack, seconds, search, GOOD, seconds=int(seconds) + 600)
    assert foreign == []
    assert not mark.exists()
    os.chown(tmp_path, 0, 0)
