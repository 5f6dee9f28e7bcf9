"""The store as Python sees it: one process, one folder. What processes do to each other is in tests/processes."""

import contextlib
import copy
import errno
import os
import pickle
import signal
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from tests.support.children import run_python
from tests.support.kernel import is_root
from tests.support.waiting import until

import onecopy as oc
import onecopy.store
from onecopy import _core
from onecopy.store import Waiting, announce


def never(path: Path) -> None:
    raise AssertionError(f"built again: {path}")


def text(content: str):
    return lambda path: path.write_text(content)


@contextlib.contextmanager
def builder(store: oc.Store, key: str = "k"):
    """Build in a thread that is done when the block is."""
    begun, release = threading.Event(), threading.Event()

    def build(path: Path) -> None:
        onecopy.store.report_progress(12_345_678)
        begun.set()
        release.wait()
        path.write_text("x")

    thread = threading.Thread(target=store.get_or_build, args=(key, build))
    thread.start()
    begun.wait()
    yield release
    release.set()
    thread.join()


def names(store: oc.Store) -> list[str]:
    return sorted(path.suffix for path in store.folder.iterdir())


# --- building and attaching -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["here", "fork"])
def test_the_first_call_builds_in_this_process_unless_a_fork_is_requested_and_the_second_attaches(store, where):
    first = store.with_options(where=where).get_or_build("k", lambda path: oc.save(path, {"a": np.array(os.getpid())}))
    second = store.with_options(where=where).get_or_build("k", never)
    assert (first.built, second.built) == (True, False)
    assert (first.path, first.bytes, first.key) == (second.path, second.bytes, "k")
    assert first.reason.startswith("built here in ")
    assert second.reason == "found from an earlier build"
    assert (oc.open(second.path)["a"] == os.getpid()) == (where == "here")
    assert names(store) == [".about", ".oc"]


@pytest.mark.parametrize("key", ["", "a", "a\0b c\nd", "ключ", "\udce4 not UTF-8", "k" * 100_000])
def test_any_text_is_a_key(store, key):
    assert store.get_or_build(key, text("x")).key == store.find(key).key == key
    assert [artefact.key for artefact in store.ls()] == [key]


@pytest.mark.parametrize("where", ["here", "fork"])
def test_what_a_build_raises_is_passed_on_and_not_remembered(store, where):
    def fail(path: Path) -> None:
        path.write_text("half")
        raise KeyError("no such record", 17)

    for _ in range(2):
        with pytest.raises(KeyError) as raised:
            store.with_options(where=where).get_or_build("k", fail)
        assert raised.value.args == ("no such record", 17)
        assert list(store.folder.iterdir()) == []
    assert store.with_options(where=where).get_or_build("k", text("x")).built


def test_what_is_raised_in_a_child_has_its_traceback_or_is_named_if_it_cannot_travel(store):
    def deep_inside(path: Path) -> None:
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong") as raised:
        store.with_options(where="fork").get_or_build("k", deep_inside)
    assert "in deep_inside" in raised.value.__notes__[0]

    def fail(path: Path) -> None:
        raise StrangeError(1, 2)

    with pytest.raises(RuntimeError, match=r"test_store\.StrangeError: 1, not 2"):
        store.with_options(where="fork").get_or_build("k", fail)


class StrangeError(Exception):
    """Cannot be read again by pickle: it wants two arguments, and remembers one."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one}, not {two}")


def test_a_process_with_threads_and_warnings_as_errors_builds_in_a_child_and_prints_once(tmp_path):
    code = """
    import sys, threading, onecopy as oc
    ended = threading.Event()
    threading.Thread(target=ended.wait).start()
    sys.stdout = open(1, "w", closefd=False)  # with a buffer, whatever the environment says
    print("before", end=" ")
    store = oc.Store(sys.argv[1], where="fork")
    try:
        store.get_or_build("k", lambda path: print("built", end=" ") or path.write_text("x"))
    finally:
        ended.set()
    print("after", end="")
    """
    assert run_python(code, tmp_path / "store") == "before built after"


def test_ctrl_c_is_not_blocked_after_a_fork_that_fails(store, monkeypatch):
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    monkeypatch.setattr("os.fork", Mock(side_effect=BlockingIOError(errno.EAGAIN, "refused")))
    with pytest.raises(BlockingIOError):
        store.with_options(where="fork").get_or_build("k", text("x"))
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
    assert list(store.folder.iterdir()) == []


def test_a_child_that_is_killed_or_exits_and_a_build_that_makes_no_file_are_reported(store):
    with pytest.raises(ChildProcessError, match="was killed by SIGKILL"):
        store.with_options(where="fork").get_or_build("k", lambda _: os.kill(os.getpid(), 9))
    with pytest.raises(ChildProcessError, match="exited with status 3"):
        store.with_options(where="fork").get_or_build("k", lambda _: os._exit(3))
    assert list(store.folder.iterdir()) == []
    with pytest.raises(FileNotFoundError, match="the build function returned without creating this file") as raised:
        store.get_or_build("k", lambda _: None)
    assert raised.value.filename == str(store.path("k"))


@pytest.mark.parametrize("where", ["here", "fork"])
def test_a_recursive_build_is_an_error(store, where, tmp_path):
    (tmp_path / "above").symlink_to(store.folder.parent)
    for same in (store, oc.Store(tmp_path / "above" / store.folder.name)):
        with pytest.raises(OSError, match="recursive build of key") as raised:
            store.with_options(where=where).get_or_build("k", lambda _, same=same: same.get_or_build("k", text("x")))
        assert raised.value.errno == errno.EDEADLK
    assert list(store.folder.iterdir()) == []


def test_a_build_may_ask_for_others(store):
    inside = store.with_options(where="fork")
    made = inside.get_or_build(
        "outer", lambda path: path.write_bytes(2 * inside.get_or_build("k", text("x")).read_bytes())
    )
    assert made.path.read_text() == "xx"


@pytest.mark.parametrize(("value", "error"), [("0.2", TimeoutError), ("nonsense", ValueError)])
def test_the_usual_timeout_is_in_the_environment(store, monkeypatch, value, error):
    with builder(store.with_options(timeout=60)):
        monkeypatch.setenv("ONECOPY_TIMEOUT", value)
        with pytest.raises(error, match=str(os.getpid()) if value == "0.2" else "ONECOPY_TIMEOUT"):
            store.with_options(on_wait=None).get_or_build("k", never)


@pytest.mark.parametrize("place", ["disk", "memory"])
def test_copies_of_a_store_are_of_the_same_folder_and_know_whether_it_is_the_default_one(tmp_path, monkeypatch, place):
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / "cache"))
    default = oc.Store(place=place)
    monkeypatch.setattr(_core, "default_folder", lambda **_: pytest.fail("the default folder was determined"))
    for store in (default, oc.Store(tmp_path / "mine")):
        for other in (store.with_options(where="fork"), pickle.loads(pickle.dumps(store)), copy.copy(store)):
            assert (other.folder, other.place, other.is_default) == (store.folder, store.place, store.is_default)
        assert store.with_options(where="fork").where == "fork"
        assert store.where == "here"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"where": "there"}, "where must be 'here' or 'fork', not 'there'"),
        ({"place": "ram"}, "place must be 'disk' or 'memory', not 'ram'"),
        ({"timeout": -0.1}, "timeout must not be negative: -0.1"),
        ({"timeout": float("nan")}, "timeout"),
    ],
)
def test_wrong_options_are_reported(tmp_path, wrong, message):
    with pytest.raises(ValueError, match=message):
        oc.Store(tmp_path / "mine", **wrong)


# --- waiting ----------------------------------------------------------------------------------------------------------


def test_who_waits_sees_who_builds_and_how_far_it_is(store):
    seen: list[Waiting] = []
    with builder(store) as release:

        def look(waiting: Waiting) -> None:
            seen.append(waiting)
            release.set()

        artefact = store.with_options(on_wait=look).get_or_build("k", never)
    assert not artefact.built
    assert artefact.waited > 0
    assert artefact.reason.endswith(f"for process {os.getpid()}, which built it")
    assert (seen[0].key, seen[0].pid, seen[0].bytes) == ("k", os.getpid(), 12_345_678)
    assert abs(seen[0].since - time.time()) < 100


TOO_LONG = TimeoutError(f"process {os.getpid()} is still building it")
ENOUGH = LookupError("enough")


@pytest.mark.parametrize(
    ("options", "error"),
    [({"timeout": 0}, TOO_LONG), ({"timeout": 0.01}, TOO_LONG), ({"on_wait": Mock(side_effect=ENOUGH)}, ENOUGH)],
)
def test_patience_and_what_on_wait_raises_end_the_wait(store, options, error):
    with builder(store), pytest.raises(type(error), match=str(error)):
        store.with_options(**options).get_or_build("k", never)
    assert store.find("k")


def test_a_builder_that_raises_is_followed_by_one_that_waited(store):
    begun, waiting = threading.Event(), list[Waiting]()

    def fail(path: Path) -> None:
        begun.set()
        until(lambda: waiting, "another thread to wait")
        raise ValueError("no")

    with ThreadPoolExecutor(1) as pool:
        failed = pool.submit(store.get_or_build, "k", fail)
        begun.wait()
        artefact = store.with_options(on_wait=waiting.append).get_or_build("k", text("x"))
    assert artefact.built
    assert "which ended without building it" in artefact.reason
    assert isinstance(failed.exception(), ValueError)


def test_the_usual_word_comes_after_two_seconds_and_then_every_five(caplog):
    say = announce()
    for tenth in range(130):
        say(Waiting("k", 17 if tenth else 0, 0.0, 5_000_000 if tenth > 50 else 0, tenth / 10))
    assert caplog.messages == [
        "onecopy: process 17 is building 'k'; waited 2 s",
        "onecopy: process 17 is building 'k', 5.0 MB so far; waited 7 s",
        "onecopy: process 17 is building 'k', 5.0 MB so far; waited 12 s",
    ]


def test_what_is_being_built_is_listed_with_its_progress_and_kept(store):
    with builder(store):
        (artefact,) = store.ls()
        assert (artefact.state, artefact.key, artefact.bytes) == ("building", "k", 12_345_678)
        assert artefact.reason == f"process {os.getpid()} is building it"
        assert store.prune(everything=True).removed == []
    assert store.find("k")


# --- what stands in the way -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701, 0o777, 0o1777])
def test_a_folder_that_others_may_enter_is_refused(tmp_path, mode):
    (tmp_path / "store").mkdir()
    (tmp_path / "store").chmod(mode)
    with pytest.raises(PermissionError, match=f"other users have access to it \\(mode 0{mode:o}\\)") as raised:
        oc.Store(tmp_path / "store")
    assert raised.value.filename == str(tmp_path / "store")


def test_a_folder_of_another_user_is_refused(tmp_path, nobody):
    (tmp_path / "store").mkdir(mode=0o700)
    os.chown(tmp_path / "store", nobody, nobody)
    with pytest.raises(PermissionError, match=rf"user {nobody} .*this process runs as user {os.geteuid()}"):
        oc.Store(tmp_path / "store")


def test_a_link_is_no_folder(tmp_path, store):
    (tmp_path / "link").symlink_to(store.folder)
    for path in ("link", "link/", "link/."):
        with pytest.raises(OSError, match="it is a symbolic link"):
            oc.Store(f"{tmp_path}/{path}")
    (tmp_path / "above").symlink_to(tmp_path)  # but the way there may lead over one
    assert oc.Store(tmp_path / "above" / "store").place == store.place


def test_new_folders_are_private_and_those_above_are_made(tmp_path):
    mask = os.umask(0)
    store = oc.Store(tmp_path / "a" / "b" / "store")
    os.umask(mask)
    for folder in (store.folder, *store.folder.parents[:2]):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_that_is_removed_is_made_again(store):
    store.folder.rmdir()
    assert store.find("k") is None
    assert store.ls() == []
    assert store.get_or_build("k", text("x")).built


PLACES = {
    "a folder": (lambda path: path.mkdir(), IsADirectoryError),
    "a link": (lambda path: path.symlink_to("/etc/passwd"), OSError),
    "a FIFO": (os.mkfifo, FileExistsError),
    "a file of another user": (lambda path: (path.touch(), os.chown(path, 65534, 65534)), PermissionError),
}


@pytest.mark.parametrize("suffix", [".oc", ".about", ".claim"])
@pytest.mark.parametrize("kind", PLACES)
def test_what_is_no_file_of_ours_is_reported_and_stays(store, kind, suffix):
    make, error = PLACES[kind]
    if kind.endswith("another user") and not is_root():
        pytest.skip("only root can give a file away")
    if suffix == ".oc":
        store.get_or_build("k", text("x")).path.unlink()
    path = store.path("k").with_suffix(suffix)
    make(path)
    before = path.lstat()
    with pytest.raises(error) as raised:
        store.get_or_build("k", never)
    assert raised.value.filename == str(path)
    assert [artefact.path for artefact in store.ls() if artefact.state == "foreign"] == [path]
    store.prune(everything=True)
    assert path.lstat() == before


@pytest.mark.parametrize(
    "damage", [lambda text: text[:40], lambda text: text[:-1], lambda _: b"{}", lambda text: text + b"\n"]
)
def test_a_damaged_description_is_reported_and_prune_removes_it(store, damage):
    about = store.get_or_build("k", text("x")).path.with_suffix(".about")
    about.write_bytes(damage(about.read_bytes()))
    for ask in (lambda: store.find("k"), lambda: store.get_or_build("k", never)):
        with pytest.raises(oc.FormatError, match=rf"{about}.*not the description of an artefact"):
            ask()
    assert [artefact.state for artefact in store.ls()] == ["damaged"]
    assert len(store.prune().removed) == 1
    assert store.get_or_build("k", text("x")).built


def test_two_keys_with_one_digest_are_reported(store):
    about = store.get_or_build("one key", text("x")).path.with_suffix(".about")
    about.rename(store.path("another").with_suffix(".about"))
    with pytest.raises(oc.FormatError, match="the key 'one key', which has the same digest as 'another'"):
        store.get_or_build("another", never)


@pytest.mark.parametrize("change", [lambda path: os.truncate(path, 1), os.utime, lambda path: path.write_text("other")])
def test_what_was_changed_since_it_was_built_is_built_again(store, change):
    path = store.get_or_build("k", text("content")).path
    change(path)
    assert store.find("k") is None
    assert [artefact.state for artefact in store.ls()] == ["leftover"]
    assert store.get_or_build("k", text("content")).built
    assert path.read_text() == "content"
