"""The directory that forms groups of nodes, in this process: who waits for whom, and what ends a group."""

import asyncio

import pytest

ray = pytest.importorskip("ray", reason="ray is not installed")

from onecopy.remote import ray_directory  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def passed_on(key, path, identity):
    """Is what a node is asked for; it is called on that node alone."""


class Invited:
    """Stands for `ray.remote`: what nodes are asked to pass on, and when the work of each ends."""

    def __init__(self):
        self.asked, self.works = [], []

    def __call__(self, **_):
        return lambda work: self if work is passed_on else None

    def remote(self, key, path, identity):
        self.asked.append((key, path, identity))
        self.works.append(asyncio.get_running_loop().create_future())
        return self.works[-1]


@pytest.fixture
def invited(monkeypatch) -> Invited:
    """Give the invitations to nodes of a cluster of a, b and c, whose groups form at once and are lost soon."""
    found = Invited()
    monkeypatch.setattr(
        ray, "nodes", lambda: [{"NodeID": one, "Alive": one != "dead"} for one in ("a", "b", "c", "dead")]
    )
    monkeypatch.setattr(ray, "remote", found)
    monkeypatch.setattr(ray_directory, "NodeAffinitySchedulingStrategy", lambda node, soft: (node, soft))
    for name in ("WINDOW_S", "INVITED_S", "BEAT_S"):
        monkeypatch.setattr(ray_directory, name, 0.05)
    monkeypatch.setattr(ray_directory, "LOST_S", 2.0)
    return found


def run(work) -> object:
    return asyncio.run(asyncio.wait_for(work(ray_directory.DirectoryActor(passed_on)), 30))


async def join(directory, *nodes: str, patient: bool = False) -> list[tuple[int, int, int]]:
    return await asyncio.gather(*(directory.join("key", node, f"/{node}", patient) for node in nodes))


def test_nodes_that_come_together_are_a_group_and_the_next_waits_for_its_end(invited):
    async def work(directory):
        assert await join(directory, "a", "b") == [(0, 0, 2), (0, 1, 2)]
        third = asyncio.create_task(directory.join("key", "c", "/c", True))
        for rank in range(2):
            assert not third.done()
            await directory.leave("key", 0, rank, complete=True)
        assert await directory.paths("key") == {"a": "/a", "b": "/b"}
        await asyncio.sleep(0.2)
        assert [path for _, path, _ in invited.asked] == ["/a", "/b"]  # by the group of c
        assert await join(directory, "a", "b") == [(1, 1, 3), (1, 2, 3)]
        assert await third == (1, 0, 3)

    run(work)


def test_a_node_that_does_not_come_is_waited_for_a_while(invited):
    async def work(directory):
        await directory.note("key", "b", "/b", "identity")
        await directory.note("key", "dead", "/dead", None)
        assert await join(directory, "a") == [(0, 0, 1)]
        assert invited.asked == [("key", "/b", "identity")]

    run(work)


@pytest.mark.parametrize("end", ["done", "lost", "forgotten"])
def test_a_node_that_alone_has_the_file_is_waited_for_until_its_work_ends(invited, end):
    async def work(directory):
        await directory.note("key", "b", "/b", "identity")
        joined = asyncio.create_task(join(directory, "a", patient=True))
        await asyncio.sleep(0.3)  # six times what others are waited for
        assert not joined.done()
        if end == "done":
            invited.works[0].set_result(None)
        elif end == "lost":
            invited.works[0].set_exception(ray.exceptions.NodeDiedError("b"))
        else:
            await directory.forget("key", "b")
            assert await directory.paths("key") == {}
        assert await joined == [(0, 0, 1)]

    run(work)


def test_values_are_gathered_and_pieces_are_handed_on(invited):
    async def work(directory):
        await join(directory, "a", "b", "c")
        gathered = await asyncio.gather(*(directory.gather(0, 0, rank, bytes([rank])) for rank in (2, 0, 1)))
        assert gathered == [[b"\0", b"\1", b"\2"]] * 3
        offered = asyncio.create_task(directory.offer(0, 7, ["reference"], 2))
        assert await asyncio.gather(directory.take(0, 7), directory.take(0, 7)) == [["reference"]] * 2
        await directory.taken(0, 7)
        assert not offered.done()
        await directory.taken(0, 7)
        await offered

    run(work)


@pytest.mark.parametrize("how", ["gives up", "is silent"])
def test_a_member_that_is_lost_ends_the_waiting_of_the_others(invited, how):
    async def work(directory):
        await join(directory, "a", "b")
        waiting = asyncio.create_task(directory.take(0, 3))
        if how == "gives up":
            await directory.leave("key", 0, 1, complete=False)
        else:
            until = asyncio.get_running_loop().time() + 20
            while not waiting.done() and asyncio.get_running_loop().time() < until:
                await directory.beat(0, 0)
                await asyncio.sleep(0.01)
        with pytest.raises(ray_directory.LostError, match=f"node b {'gave up' if how == 'gives up' else how}"):
            await waiting
        with pytest.raises(ray_directory.LostError):
            await directory.gather(0, 0, 0, b"")
        await directory.leave("key", 0, 0, complete=True)
        assert await directory.paths("key") == {"a": "/a"}
        invited.asked.clear()
        assert (await join(directory, "b"))[0][:2] == (1, 0)  # the next group
        with pytest.raises(ray_directory.LostError, match="the group has ended"):
            await directory.take(0, 3)
        await directory.leave("key", 0, 0, complete=True)  # too late, and no error
        await directory.beat(0, 0)

    run(work)
