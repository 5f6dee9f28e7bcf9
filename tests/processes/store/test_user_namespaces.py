"""Users in a user namespace: the kernel shows each user without an id there as the overflow id, 65534.

A process may have that id itself, in a rootless container with `USER 65534`. It must neither take the files and
processes of all other users for its own, nor lose its own.
"""

import ctypes
import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.children import call_in_child
from tests.support.places import reached_by_all

import onecopy as oc
from onecopy import _core
from onecopy.run import held_names

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")

VICTIM = 1_900_000_000 + os.getpid() * 2 % 100_000_000
ATTACKER = VICTIM + 1
NOBODY = 65534
KEY = "model v1"
NEW_USERS = 0x10000000  # CLONE_NEWUSER


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    with reached_by_all(tmp_path):
        yield shared


def in_namespace(user: int, id_there: int, function: Callable[..., Any], *arguments: object) -> Any:
    """Call a function as a user, in a namespace in which it has an id, and no other user has one."""

    def call() -> Any:
        libc = ctypes.CDLL(None, use_errno=True)
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        libc.prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: /proc/self belongs to this user
        if libc.unshare(NEW_USERS) != 0:
            pytest.skip(f"no user namespace: {os.strerror(ctypes.get_errno())}")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/gid_map").write_text(f"{id_there} {user} 1")
        Path("/proc/self/uid_map").write_text(f"{id_there} {user} 1")
        assert os.geteuid() == id_there
        return function(*arguments)

    return call_in_child(call)


def plant(shared: Path) -> None:
    """Build as the attacker, and give the folder the name that the victim has in its namespace."""
    oc.Store(shared, trust=["root"]).get_or_build(KEY, lambda path: oc.save_object(path, ["planted"]))
    own = shared / str(os.geteuid())
    own.chmod(0o755)
    for path in own.iterdir():
        path.chmod(0o644)
    own.rename(shared / str(NOBODY))


def loaded(store: oc.Store) -> Any:
    artefact = store.get_or_build(KEY, lambda path: oc.save_object(path, ["good"]))
    return oc.load_object(artefact.path, trusted=True), artefact.built


@pytest.mark.parametrize("id_there", [NOBODY, 0, 1000])
def test_what_another_user_planted_is_not_taken_for_ones_own(shared: Path, id_there: int) -> None:
    call_in_child(plant, shared, uid=ATTACKER)

    def use() -> Any:
        store = oc.Store(shared, trust=[NOBODY])
        return loaded(store), store.folder.name

    os.chown(shared, VICTIM, VICTIM)  # root is unknown in the namespace
    name = f"{NOBODY}-1" if id_there == NOBODY else str(id_there)
    assert in_namespace(VICTIM, id_there, use) == ((["good"], True), name)


def test_a_user_with_the_id_of_all_unknown_ones_uses_its_own_files(shared: Path, tmp_path: Path) -> None:
    def use() -> Any:
        folder = shared / "private"
        first = loaded(oc.Store(folder))
        (folder / "saved").write_bytes(b"x")
        return first, loaded(oc.Store(folder)), _core.owner_at(str(folder / "saved")), _core.owner_at(str(tmp_path))

    assert in_namespace(VICTIM, NOBODY, use) == ((["good"], True), (["good"], False), NOBODY, None)


@pytest.mark.parametrize("trust", [None, [NOBODY]])
def test_the_folder_of_an_unknown_user_is_refused_by_what_it_is(shared: Path, trust: Any) -> None:
    def use() -> None:
        with pytest.raises(PermissionError, match=r"it belongs to a user .* id in this user namesp"):
            oc.Store(shared, trust=trust)

    in_namespace(VICTIM, NOBODY, use)


def test_a_link_of_an_unknown_user_is_followed_only_to_what_every_user_can_read(shared: Path) -> None:
    oc.save(shared / "weights.safetensors", {"w": np.zeros(3)})
    (shared / "private.safetensors").write_bytes((shared / "weights.safetensors").read_bytes())
    os.chown(shared / "private.safetensors", VICTIM, VICTIM)
    (shared / "private.safetensors").chmod(0o600)
    (shared / "weights.safetensors").chmod(0o644)
    for name in ("weights", "private"):
        model = shared / f"model-{name}"
        model.mkdir()
        (model / "part.safetensors").symlink_to(shared / f"{name}.safetensors")
        os.chown(model / "part.safetensors", ATTACKER, ATTACKER, follow_symlinks=False)
        index = {"metadata": {}, "weight_map": {"w": "part.safetensors"}}
        (model / "model.safetensors.index.json").write_text(json.dumps(index))

    def use(name: str) -> str:
        try:
            with oc.open(shared / f"model-{name}") as file:
                return str(list(file))
        except oc.FormatError as error:
            return str(error)

    assert in_namespace(VICTIM, NOBODY, use, "weights") == "['w']"
    assert "is a symbolic link of user 65534, who cannot read" in in_namespace(VICTIM, NOBODY, use, "private")


def test_a_process_of_an_unknown_user_is_not_of_this_one(tmp_path: Path) -> None:
    address = f"\0onecopy-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        assert held_names.user_at(address) == 0
        assert in_namespace(VICTIM, NOBODY, held_names.user_at, address) is None
        assert in_namespace(VICTIM, 1000, held_names.user_at, address) is None
        assert call_in_child(held_names.user_at, address, uid=NOBODY) == 0


def test_only_an_id_that_may_be_anybodys_is_unknown() -> None:
    assert (_core.known_user(NOBODY), _core.known_user(0)) == (NOBODY, 0)
    assert call_in_child(_core.known_user, NOBODY, uid=NOBODY) == NOBODY
    assert in_namespace(VICTIM, NOBODY, lambda: (_core.known_user(NOBODY), _core.known_user(0))) == (None, 0)
