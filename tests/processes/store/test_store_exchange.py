"""Another user exchanges the folder of a store for another one, again and again: no file of that user is used.

A user that may write the folder above can do that at any moment (renameat2 with RENAME_EXCHANGE), between any two
system calls of onecopy. The other folder has an artefact of the same key with a valid description, which is a pickle
that runs a command.
"""

import ctypes
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.children import become, call_in_child, forked
from tests.support.places import reached_by_all
from tests.support.rounds import rounds

import onecopy as oc
import onecopy.records
from onecopy import _core
from onecopy_records import row_files, rows, types

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become two other users"),
]

OWNER = 1_600_000_000 + os.getpid() * 2 % 100_000_000
ATTACKER = OWNER + 1
SECONDS = rounds(3, 10)
KEY, GOOD = "annotations", [{"n": i} for i in range(3)]
AT_FDCWD, RENAME_EXCHANGE = -100, 2


class Command:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self.mark}",)


def save_pickles(path: Path, mark: Path) -> None:
    """Write records as `share(codec="pickle")` does, of an object that runs a command."""
    builder = _core.RecordBuilder(str(path.parent), "list", {types.CODEC: "pickle"})
    row_files.fill(builder, [Command(mark)], types.plain_or_pickle, None)
    builder.save(str(path))


def exchange(one: Path, other: Path) -> None:
    """Exchange two names, until this process is killed, with pauses after which they have changed their places.

    Without them, the other process might never find its own folder on a busy machine.
    """
    libc = ctypes.CDLL(None)
    names = (AT_FDCWD, bytes(one), AT_FDCWD, bytes(other), RENAME_EXCHANGE)
    while True:
        for _ in range(1001):
            libc.renameat2(*names)
        time.sleep(0.01)


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Path]:
    """Give a folder that every user may write, with the folder of the attacker in it."""
    team = tmp_path / "team"
    team.mkdir()
    team.chmod(0o777)
    with reached_by_all(tmp_path):
        yield team


def plant(folder: Path, mark: Path, keys: list[str]) -> None:
    for key in keys:
        oc.Store(folder).get_or_build(key, lambda path: save_pickles(path, mark))
    for path in (folder, *folder.iterdir()):
        os.chown(path, ATTACKER, ATTACKER)
        path.chmod(0o755)


def attack(seconds: float, attempt: Callable[[], object], good: object) -> list[object]:
    """Try for some seconds, until ten attempts were good and ten refused (None); return what was neither."""
    counts, foreign, end = Counter[bool](), list[object](), time.monotonic() + seconds
    while time.monotonic() < end or min(counts[True], counts[False]) < 10:
        found = attempt()
        if found is None or found == good:
            counts[found is not None] += 1
        else:
            foreign.append(found)
    return foreign


def share(folder: Path, codec: Any) -> object:
    try:
        with oc.share(GOOD, KEY, codec=codec, store=folder) as rows:
            return list(rows)
    except (OSError, oc.FormatError):
        return None


def test_what_is_planted_would_run_in_a_folder_of_ours(team: Path, tmp_path: Path) -> None:
    """Without this, the other tests could pass because nothing is dangerous."""
    mark = team / "mark"
    save_pickles(tmp_path / "x.oc", mark)
    repr(list(rows.attach(str(tmp_path / "x.oc"), oc.Mapping(tmp_path / "x.oc").identity, None, trusted=True)))
    assert mark.exists()


@pytest.mark.parametrize("umask", [0o000, 0o022])
@pytest.mark.parametrize("codec", ["records", "pickle"])
def test_nothing_of_another_user_is_unpickled_or_served(team: Path, codec: str, umask: int) -> None:
    store, planted, mark = team / "store", team / "planted", team / "mark"
    store.mkdir(0o700)
    os.chown(store, OWNER, OWNER)
    assert call_in_child(share, store, codec, uid=OWNER) == GOOD
    plant(planted, mark, call_in_child(lambda: [one.key for one in oc.Store(store).ls()], uid=OWNER))

    def shared_again_and_again() -> list[object]:
        os.umask(umask)
        return attack(SECONDS, lambda: share(store, codec), GOOD)

    with forked(lambda: (become(ATTACKER), exchange(store, planted))):
        foreign = call_in_child(shared_again_and_again, uid=OWNER, seconds=int(SECONDS) + 600)
    assert not mark.exists()
    assert foreign == []
