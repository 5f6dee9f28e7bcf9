"""What is in a store, what is taken out of it, under which keys things are found, and where stores are."""

import contextlib
import errno
import io
import mmap
import os
import pickle
import shutil
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.children import fork, status_of
from tests.support.seccomp import refuse

import onecopy as oc
from onecopy.errors import NotEnoughMemory
from onecopy.store import choose_place
from onecopy_remote import views


def text(content: str):
    return lambda path: path.write_text(content)


# --- list and prune ---------------------------------------------------------------------------------------------------


def use_at(store: oc.Store, key: str, when: float) -> None:
    os.utime(store.path(key).with_suffix(".about"), (when, when))


def test_artefacts_are_listed_by_their_last_use(store, tmp_path):
    source = tmp_path / "source"
    source.write_text("x")
    for key, size, when in (("a", 10, 300), ("b", 20, 100), ("c", 30, 200)):
        store.get_or_build(key, text("x" * size), source=source if key == "b" else None)
        use_at(store, key, when)
    listed = [(each.key, each.bytes, each.last_used, each.source_present) for each in store.ls()]
    assert listed == [("a", 10, 300.0, None), ("c", 30, 200.0, None), ("b", 20, 100.0, True)]
    source.write_text("xy")
    assert store.ls()[2].source_present is False
    found = store.find("b")
    assert found.last_used > 300
    assert found.read_bytes() == store.ls()[0].read_bytes() == b"x" * 20
    found.path.unlink()
    assert found.read_bytes() == b"x" * 20


def test_prune_removes_what_is_requested(store, tmp_path):
    def removed(**options: Any) -> set[str]:
        return {artefact.key for artefact in store.prune(**options).removed}

    source = tmp_path / "source"
    source.write_text("x")
    for key, age in (("a", 10), ("b", 2000), ("c", 3000), ("d", 4000)):
        store.get_or_build(key, text("x" * 100), source=source if key == "a" else None)
        use_at(store, key, time.time() - age)
    assert (removed(), removed(max_age=0, dry_run=True)) == (set(), {"a", "b", "c", "d"})
    assert (removed(max_age=2500, dry_run=True), removed(max_age=3500)) == ({"c", "d"}, {"d"})
    assert (removed(max_bytes=250), removed(missing_source=True)) == ({"c"}, set())
    source.unlink()
    assert removed(missing_source=True) == {"a"}
    report = store.prune(keys=["b", "never heard of"])
    assert ([artefact.key for artefact in report.removed], report.bytes) == (["b"], 100)
    assert list(store.folder.iterdir()) == []


def test_prune_removes_links_that_lead_nowhere_unless_it_is_a_dry_run(store):
    gone, kept = (store.folder / "views" / name / "link" for name in "01")
    for link, target in ((gone, "none.oc"), (kept, store.get_or_build("key", text("x")).path)):
        link.parent.mkdir(parents=True)
        link.symlink_to(store.folder / target)
    store.prune(dry_run=True)
    assert gone.is_symlink()
    store.prune()
    assert (gone.parent.exists(), kept.read_text()) == (False, "x")


# --- keys and places --------------------------------------------------------------------------------------------------


def test_a_file_key_is_of_the_real_path_and_the_version(tmp_path):
    path = tmp_path / "source"
    path.write_text("1")
    assert len({oc.file_key(path), oc.file_key(path, "2"), oc.file_key(str(path), "3")}) == 3
    (tmp_path / "link").symlink_to(path)
    assert oc.file_key(tmp_path / "link") == oc.file_key(path) == oc.file_key(os.fsencode(path).decode())
    (tmp_path / "name").hardlink_to(path)
    assert oc.file_key(tmp_path / "name") != oc.file_key(path)
    with pytest.raises(FileNotFoundError):
        oc.file_key(tmp_path / "nothing")


def test_the_environment_sets_the_folder_of_the_store(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("ONECOPY_CACHE", raising=False)
    assert oc.Store().folder == tmp_path / "cache" / "onecopy"
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / "mine"))
    assert oc.Store().folder == tmp_path / "mine"
    assert oc.Store().reason == "$ONECOPY_CACHE"
    monkeypatch.delenv("ONECOPY_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert oc.Store().folder == tmp_path / ".cache" / "onecopy"


def test_a_store_in_memory_is_of_this_user():
    folder = Path(f"/dev/shm/onecopy-{os.geteuid()}")
    if not folder.parent.is_dir():
        pytest.skip("there is no /dev/shm here")
    was_there = folder.exists()
    store = oc.Store(place="memory")
    assert (store.folder, store.place) == (folder, "memory")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    if not was_there:
        folder.rmdir()


def test_small_things_fit_and_huge_ones_fit_nowhere(tmp_path, monkeypatch):
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path))
    assert [choose_place(1)[0], choose_place(1, "disk")[0]] == ["disk", "disk"]
    for wanted, code in (("auto", errno.ENOSPC), ("disk", errno.ENOSPC), ("memory", errno.ENOMEM)):
        with pytest.raises(OSError, match=rf"not enough (space|memory) for {1 << 60} bytes") as raised:
            choose_place(1 << 60, wanted)
        assert raised.value.errno == code
    monkeypatch.setattr("onecopy._core.available_memory", lambda: (100 << 20, "the control group /jobs/7"))
    with pytest.raises(
        NotEnoughMemory, match=f"{90 << 20} bytes: the control group /jobs/7 has {100 << 20} bytes available"
    ):
        choose_place(90 << 20, "memory")


def test_what_fits_on_no_disk_goes_into_memory_only_if_any_place_will_do(monkeypatch):
    monkeypatch.setattr("onecopy.store.store.free_on", lambda folder: (1 << 30) * folder.is_relative_to("/dev/shm"))
    assert choose_place(1000)[0] == "memory"
    with pytest.raises(OSError, match="not enough space"):
        choose_place(1000, "disk")


@pytest.mark.parametrize("max_bytes", ["unlimited", "25%"])
def test_the_next_build_of_any_key_removes_what_a_killed_builder_left(tmp_path, max_bytes):
    store = oc.Store(tmp_path / "store", max_bytes=max_bytes)

    def half(path: Path) -> None:
        path.write_bytes(bytes(1000))
        os.kill(os.getpid(), signal.SIGKILL)

    assert status_of(fork(lambda: store.get_or_build("killed", half))) == -signal.SIGKILL
    assert {path.suffix for path in store.folder.iterdir()} == {".claim", ".oc"}
    store.get_or_build("next", text("x"))
    assert [(artefact.key, artefact.state) for artefact in store.ls()] == [("next", "ready")]


# --- the size of a store ----------------------------------------------------------------------------------------------


def ready(store: oc.Store) -> set[str]:
    return {artefact.key for artefact in store.ls() if artefact.state == "ready"}


def test_a_build_removes_the_least_recently_used_of_a_store_that_is_too_large(tmp_path, caplog):
    store = oc.Store(tmp_path / "limited", max_bytes=2500)
    for key, age, left in (("a", 300, "a"), ("b", 100, "ab"), ("c", 200, "bc"), ("d", 0, "bd")):
        with caplog.at_level("INFO", "onecopy"):
            store.get_or_build(key, text("x" * 1000))
        use_at(store, key, time.time() - age)
        assert ready(store) == set(left)
    assert caplog.text.count("removed 1.00 kB") == 2
    assert store.get_or_build("b", text("not built")).built is False  # attaching removes nothing


def attached_by_a_child(store: oc.Store) -> object:
    """Attach, fork a child that keeps the open file, and give up the own one."""
    artefact = store.find("used")
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        os.close(write_end)
        os.read(read_end, 1)
        os._exit(0)
    os.close(read_end)
    del artefact
    return contextlib.closing(os.fdopen(write_end, "wb"))


def mapped_and_closed(store: oc.Store) -> object:
    """Map the artefact with a descriptor that is closed at once: the mapping keeps the open file."""
    artefact = store.find("used")
    return mmap.mmap(artefact.handle.fileno(), 0, prot=mmap.PROT_READ)


WAYS_TO_USE: dict[str, Callable[[oc.Store], object]] = {
    "attached": lambda store: store.find("used"),
    "mapped": mapped_and_closed,
    "by its path": lambda store: oc.Mapping(store.path("used")),
    "as arrays": lambda store: oc.open(store.path("used")),
    "by a view": lambda store: oc.Mapping(views.link(views.view(store.folder, "0" * 32), "m.bin", store.path("used"))),
    "by a child": attached_by_a_child,
}


@pytest.mark.parametrize("way", WAYS_TO_USE)
def test_what_a_process_uses_is_not_removed_for_its_size(tmp_path, way):
    store, npy = oc.Store(tmp_path / "limited", max_bytes=1500), io.BytesIO()
    np.save(npy, np.zeros(872, np.uint8))
    store.get_or_build("used", lambda path: path.write_bytes(npy.getvalue()))
    in_use = WAYS_TO_USE[way](store)
    use_at(store, "used", time.time() - 1000)
    store.get_or_build("new", text("y" * 1000))
    assert ready(store) == {"used", "new"}
    assert "a process has it open" in {kept.reason for kept in store.prune(max_bytes=0).kept}
    if way == "by a child":
        with in_use:
            pass
        os.wait()
    del in_use
    store.get_or_build("newer", text("z" * 1000))
    assert ready(store) == {"newer"}


def test_what_stays_because_it_is_used_is_made_up_for_by_others(tmp_path):
    store = oc.Store(tmp_path / "limited")
    for age, key in enumerate(("new", "old", "used")):
        store.get_or_build(key, text("x" * 1000))
        use_at(store, key, time.time() - 1000 * age)
    with oc.Mapping(store.path("used")):
        assert {artefact.key for artefact in store.prune(max_bytes=2500).removed} == {"old"}
        assert {artefact.key for artefact in store.prune(max_bytes=1500).removed} == {"new"}
    assert ready(store) == {"used"}


@pytest.mark.parametrize("locks", ["not taken", "refused"])
def test_what_is_mapped_without_a_lock_is_removed_and_stays_readable(tmp_path, in_child, locks):
    """A program that maps the file by its path takes no lock, and some systems have none."""

    def build() -> tuple[set[str], bytes]:
        if locks == "refused":
            refuse("F_OFD_SETLK")
        store = oc.Store(tmp_path / "limited", max_bytes=1500)
        path = store.get_or_build("used", text("x" * 1000)).path
        mapping = np.memmap(path, mode="r") if locks == "not taken" else oc.Mapping(path).view()
        use_at(store, "used", time.time() - 1000)
        store.get_or_build("new", text("y" * 1000))
        return ready(store), bytes(mapping[:3])

    assert in_child(build) == ({"new"}, b"xxx")


def test_the_order_of_use_is_exact_within_a_millisecond(store):
    keys = [f"key-{number}" for number in range(20)]
    for key in keys:
        store.get_or_build(key, text("x"))
    for key in reversed(keys):
        store.find(key)
    assert [artefact.key for artefact in store.ls()] == keys


def test_the_limit_is_a_size_a_share_of_the_file_system_or_none(tmp_path, monkeypatch):
    capacity = shutil.disk_usage(tmp_path).total
    store = oc.Store(tmp_path / "store")
    for given, expected in ((None, capacity / 4), ("3 GiB", 3 << 30), (7, 7), ("10%", capacity / 10)):
        assert oc.Store(store.folder, max_bytes=given).max_bytes == pytest.approx(expected, rel=0.01)
    monkeypatch.setenv("ONECOPY_MAX_BYTES", "5 MB")
    assert store.max_bytes == 5_000_000
    assert oc.Store(store.folder, max_bytes="unlimited").max_bytes is None
    assert pickle.loads(pickle.dumps(oc.Store(store.folder, max_bytes=8))).max_bytes == 8
    for wrong in ("much", "0%", "101%", -1, "nan%"):
        with pytest.raises(ValueError, match="max_bytes must be a size such as"):
            oc.Store(store.folder, max_bytes=wrong)
    monkeypatch.setenv("ONECOPY_MAX_BYTES", "much")
    with pytest.raises(ValueError, match="ONECOPY_MAX_BYTES must be a size"):
        store.get_or_build("k", text("x"))
    assert store.ls() == []
