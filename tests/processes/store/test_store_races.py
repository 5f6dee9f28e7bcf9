"""Processes that ask for one key at once: one builds, all have it, nothing is left."""

import contextlib
import fcntl
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.children import children_of, descriptors, fork, is_alive, status_of
from tests.support.seccomp import refuse
from tests.support.store_processes import Recipe, builds, has_content, is_right, suffixes
from tests.support.waiting import PATIENCE, until

import onecopy as oc


@pytest.fixture
def store(tmp_path: Path) -> oc.Store:
    return oc.Store(tmp_path / "store")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


gate = multiprocessing.get_context("fork").Event


def ask(store: oc.Store, recipe: Recipe, **options) -> bool:
    before = descriptors()
    right = is_right(store.with_options(on_wait=None, **options).get_or_build(recipe.key, recipe))
    return right and descriptors() == before


@pytest.mark.parametrize("locks", [True, False])
@pytest.mark.parametrize("where", ["here", "fork"])
def test_of_eight_processes_that_race_exactly_one_builds(store, log, where, locks):
    go = gate()

    def race() -> bool:
        if not locks:
            refuse("F_OFD_SETLK")
        go.wait()  # until all are there
        return all(ask(store, Recipe(key, log), where=where) for key in "abc")

    pids = [fork(race) for _ in range(8)]
    go.set()
    assert [status_of(pid) for pid in pids] == [0] * 8
    assert builds(log) == ["a", "b", "c"]
    assert suffixes(store) == [".about"] * 3 + [".oc"] * 3


@contextlib.contextmanager
def repeated(work: Callable[[], object]) -> Iterator[None]:
    is_done = gate()

    def until_the_parent_is_done() -> bool:
        while not is_done.is_set():
            work()
        return True

    child = fork(until_the_parent_is_done)
    try:
        yield
    finally:
        is_done.set()
        assert status_of(child) == 0


def test_attaching_and_pruning_are_right_while_other_processes_list_and_prune(store):
    keys = [f"key-{number:02}" for number in range(20)]
    for key in keys:
        store.get_or_build(key, lambda path: path.write_bytes(b"x" * 4096))
    with repeated(store.ls), repeated(lambda: store.prune(max_bytes=0, dry_run=True)):
        for _ in range(300):
            report = store.prune(max_bytes=18 * 4096, dry_run=True)
            assert [artefact.key for artefact in report.removed] == keys[:2]  # the least recently used
    with repeated(lambda: (store.prune(max_bytes=0, dry_run=True), store.ls())):
        for key in keys * 300:
            assert store.find(key) is not None
            oc.Mapping(store.path(key)).close()


def test_eight_processes_that_build_at_once_leave_the_most_recently_used(tmp_path, log):
    """Each builds a file of its own; the limit is that of eight, so that only what was there before is removed."""
    store = oc.Store(tmp_path / "limited", max_bytes=8 * 4096)
    for number in range(8):
        store.get_or_build(f"old-{number}", lambda path: path.write_bytes(b"x" * 4096))
    for turn in range(5):
        own = {f"{turn}-{number}" for number in range(8)}
        builders = [
            fork(lambda key=key: store.get_or_build(key, lambda path: path.write_bytes(b"y" * 4096))) for key in own
        ]
        assert [status_of(pid) for pid in builders] == [0] * 8
        assert {artefact.key for artefact in store.ls()} == own


@pytest.mark.slow
def test_a_prune_waits_only_a_while_for_one_that_was_stopped(store):
    store.get_or_build("k", lambda path: path.write_bytes(b"x"))
    folder = os.open(store.folder, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    assert [artefact.key for artefact in store.prune(max_bytes=0).removed] == ["k"]
    os.close(folder)


def test_a_file_with_a_lease_of_another_process_is_opened_when_it_ends_whatever_signals_arrive(tmp_path):
    path, taken = tmp_path / "leased", gate()
    path.write_bytes(b"content")

    def lease() -> bool:
        """Take a lease; give it back when the kernel reports that another process opens the file."""
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGIO])
        with path.open("rb") as file:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            taken.set()
            signal.sigwait([signal.SIGIO])
            time.sleep(0.05)
        return True

    def open_under_fire() -> bool:
        signal.signal(signal.SIGALRM, lambda *_: None)  # without SA_RESTART: it interrupts system calls
        signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
        return bytes(oc.Mapping(path).view()) == b"content"

    leasing = fork(lease)
    assert taken.wait(PATIENCE)
    assert [status_of(pid) for pid in (fork(open_under_fire), leasing)] == [0, 0]


@contextlib.contextmanager
def building(store: oc.Store, log: Path) -> Iterator[None]:
    """Build "k" in another process, which ends when the block does; it alone is to build."""
    go = gate()
    builder = fork(lambda: ask(store, Recipe("k", log, before=go.wait)))
    until(lambda: builds(log) == ["k"])
    try:
        yield
    finally:
        go.set()
        assert status_of(builder) == 0
    assert builds(log) == ["k"]


def test_a_fork_while_a_thread_waits_leaves_the_wait_and_the_child_alone(store, log):
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(ask(store, Recipe("k", log))))
    with building(store, log):
        thread.start()
        time.sleep(0.02)  # in the midst of it, most likely
        children = [fork(lambda: ask(store, Recipe("k", log))) for _ in range(3)]
    assert [status_of(pid) for pid in children] == [0] * 3
    thread.join()
    assert answers == [True]
    assert suffixes(store) == [".about", ".oc"]


def test_a_child_that_is_forked_while_another_thread_builds_waits_like_anybody(store, log):
    release = threading.Event()
    thread = threading.Thread(target=lambda: ask(store, Recipe("k", log, before=release.wait)))
    thread.start()
    until(lambda: builds(log) == ["k"])
    child = fork(
        lambda: not [name for name in descriptors() if name.endswith(".claim")] and ask(store, Recipe("k", log))
    )
    release.set()
    thread.join()
    assert status_of(child) == 0
    assert builds(log) == ["k"]


def test_a_child_that_comes_back_out_of_a_build_is_reported_and_breaks_nothing(store, log):
    pids: list[int] = []

    def forks() -> None:
        pids.append(os.fork())

    mine = os.getpid()
    try:
        artefact = store.with_options(where="here").get_or_build("k", Recipe("k", log, before=forks))
    except ChildProcessError:
        os._exit(0 if os.getpid() != mine else 1)
    finally:
        if os.getpid() != mine:
            os._exit(3)
    assert status_of(pids[0]) == 0
    # The file of the child may have taken its place, and have been removed because it is not what was described.
    assert has_content(store.find("k") or artefact, "k")


@pytest.mark.parametrize("to", ["the process", "the group"])
@pytest.mark.parametrize("where", ["here", "fork"])
def test_ctrl_c_to_the_builder_leaves_nothing_and_the_next_one_builds(store, log, where, to):
    said, say = os.pipe()

    def endless() -> None:
        os.write(say, b"%d\n" % os.getpid())
        while True:
            time.sleep(0.01)

    def build() -> bool:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return ask(store, Recipe("k", log, before=endless), where=where)
        except KeyboardInterrupt:
            assert children_of(os.getpid()) == []  # also if this process lives on
            raise

    leader = fork(build)
    builder = int(os.read(said, 20))
    assert (builder == leader) == (where == "here")
    waiter = fork(lambda: ask(store, Recipe("k", log)))
    (os.kill if to == "the process" else os.killpg)(leader, signal.SIGINT)
    assert status_of(leader) == 130
    assert not is_alive(builder)
    assert status_of(waiter) == 0
    os.close(said)
    os.close(say)
    assert builds(log) == ["k", "k"]
    assert suffixes(store) == [".about", ".oc"]


def test_ctrl_c_to_one_that_waits_ends_the_wait_and_nothing_else(store, log):
    waits = gate()

    def wait() -> bool:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        store.with_options(on_wait=lambda _: waits.set()).get_or_build("k", Recipe("k", log))
        return True

    with building(store, log):
        waiter = fork(wait)
        assert waits.wait(PATIENCE)
        os.kill(waiter, signal.SIGINT)
        assert status_of(waiter) == 130
