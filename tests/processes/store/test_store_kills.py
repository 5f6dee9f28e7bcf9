"""Builders killed at any moment, also while their forked children live: those who wait take over, nothing is left.

50 rounds of each kind; with ONECOPY_TORTURE=1, 1,000.
"""

import os
import random
import select
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.children import call_in_child, descriptors, fork, is_alive, killed_at_the_end, status_of
from tests.support.rounds import rounds
from tests.support.seccomp import refuse
from tests.support.store_processes import Recipe, builds, is_right, suffixes
from tests.support.waiting import PATIENCE, until

import onecopy as oc

ROUNDS = rounds(50)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60 + 3 * ROUNDS)]


@pytest.fixture
def store(tmp_path: Path) -> oc.Store:
    return oc.Store(tmp_path / "store")


class Leader:
    """A process that builds, and forks a child meanwhile that lives on; says when, and what the child holds."""

    def __init__(self, store: oc.Store, key: str, log: Path, where: str) -> None:
        self.said, say = os.pipe()

        def live_on() -> None:
            child = os.fork()
            if child == 0:
                os.setsid()
                held = sum(name.endswith(".claim") for name in descriptors())
                os.write(say, b"%d %d\n" % (os.getpid(), held))
                signal.pause()
                os._exit(0)
            while not os.path.exists(f"/proc/{child}"):  # noqa: PTH110
                pass

        def build() -> bool:
            return is_right(store.with_options(where=where).get_or_build(key, Recipe(key, log, before=live_on)))

        self.pid = fork(build)
        os.close(say)

    def child(self) -> list[int]:
        """Return the number of the child that lives, if it came to that; it holds no claim."""
        with os.fdopen(self.said, "rb") as pipe:
            text = pipe.readline()  # or its end, when all are dead who could write
        if not text:
            return []
        pid, held = map(int, text.split())
        assert held == 0
        return [pid]


Moment = Callable[[Leader, str], object]


def one_round(store: oc.Store, key: str, log: Path, where: str, moment: Moment) -> str:
    """Kill a builder at some moment; two that wait must get what is right. Tell how it went."""
    before = len(builds(log))
    leader = Leader(store, key, log, where)
    waiters = [
        fork(lambda: is_right(store.with_options(on_wait=None).get_or_build(key, Recipe(key, log)))) for _ in range(2)
    ]
    moment(leader, key)
    os.kill(leader.pid, signal.SIGKILL)
    killed = status_of(leader.pid) != 0
    lives = leader.child()
    with killed_at_the_end(lives):
        assert [status_of(pid) for pid in waiters] == [0, 0]
        assert all(is_alive(pid) for pid in lives)
    made = len(builds(log)) - before
    assert 1 <= made <= (2 if killed else 1)  # one, of a builder that was killed before it began to build
    return "took over" if made == 2 else "was done"


@pytest.mark.parametrize("unnamed", [True, False])
@pytest.mark.parametrize("where", ["here", "fork"])
def test_a_builder_killed_at_any_moment_is_replaced(store, tmp_path, where, unnamed):
    def torture() -> Counter[str]:
        if not unnamed:
            refuse("O_TMPFILE")  # here to stay: therefore in a child
        log = tmp_path / "log"
        start = time.perf_counter()
        undisturbed = Leader(store, "undisturbed", log, where)
        assert status_of(undisturbed.pid) == 0
        whole = time.perf_counter() - start
        with killed_at_the_end(undisturbed.child()):
            pass
        dice, seen = random.Random(ROUNDS), Counter[str]()
        moments: list[Moment] = [
            lambda leader, _: select.select([leader.said], [], [], PATIENCE),  # or at its end, if another one built
            lambda _, key: until(lambda: store.find(key)),
            *3 * [lambda *_: time.sleep(dice.uniform(0, 1.2 * whole))],
        ]
        for number in range(ROUNDS):
            # Which moments are hit by chance depends on the machine; each kind is to be among them.
            moment, key = moments[number % 5], f"round-{number}"
            store.prune(everything=True)
            seen[one_round(store, key, log, where, moment)] += 1
            assert is_right(store.with_options(timeout=0).get_or_build(key, Recipe(key, log)))  # and sweeps
            if where == "fork":
                # A child that had linked its file when its parent was killed dies a moment later than the next sweeps.
                until(lambda: store.prune() and suffixes(store) == [".about", ".oc"])
            assert suffixes(store) == [".about", ".oc"]
        return seen

    seen = call_in_child(torture, seconds=600)
    assert seen["took over"] > 0
    assert seen["was done"] > 0


@pytest.mark.parametrize("text", [b"", b"nonsense", b"1 2 3\n" * 1000, bytes(100), b"9" * 64])
def test_a_claim_with_invalid_contents_does_not_block(store, tmp_path, text):
    claim = store.path("k").with_suffix(".claim")
    claim.write_bytes(text)
    assert store.ls()[0].state == "stale claim"
    assert store.with_options(timeout=0).get_or_build("k", Recipe("k", tmp_path / "log")).built
    assert not claim.exists()


def test_the_child_that_builds_dies_with_its_parent(store, tmp_path):
    said, say = os.pipe()

    def endless() -> None:
        os.write(say, b"%d\n" % os.getpid())
        signal.pause()

    leader = fork(
        lambda: store.with_options(where="fork").get_or_build("k", Recipe("k", tmp_path / "log", before=endless))
    )
    child = int(os.read(said, 20))
    assert child != leader
    os.kill(leader, signal.SIGKILL)
    status_of(leader)
    until(lambda: not is_alive(child))
    os.close(said)
    os.close(say)
    assert store.with_options(timeout=0).get_or_build("k", Recipe("k", tmp_path / "log")).built
