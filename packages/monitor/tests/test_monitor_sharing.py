"""The assertion that workers share: with workers of all start methods, honest and others."""

import concurrent.futures
import multiprocessing
import os
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest
from tests.support.shards import write_set

import onecopy as oc
from onecopy_monitor import assert_shared

pytestmark = pytest.mark.processes

MB = 1_000_000
START_METHODS = ["fork", "spawn", "forkserver"]


class Held:
    """What a worker holds, so that it stays."""

    value: object = None


def serve(connection: Connection, data: oc.ArrayFile) -> None:
    """Run a worker that runs commands on its own handle of the data."""
    while (order := connection.recv()) != "end":
        array = data["weights"]
        if order == "copy":
            Held.value = array.copy()
        elif order == "write":
            array[:] = 1
            Held.value = array
        elif order == "forget":
            del array
            data.close()
        else:
            Held.value = float(array.sum())
        connection.send("done")


Workers = tuple[list[int], Callable[[int, str], None]]


@pytest.fixture
def workers() -> Iterator[Callable[..., Workers]]:
    """Start workers that have the data; give their ids, and what sends one of them an order."""
    started: list[tuple[multiprocessing.process.BaseProcess, Connection]] = []

    def start(data: oc.ArrayFile, method: str = "fork", count: int = 3) -> Workers:
        context = multiprocessing.get_context(method)
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(theirs, data), daemon=True)
            process.start()
            started.append((process, ours))

        def tell(number: int, order: str) -> None:
            started[number][1].send(order)
            assert started[number][1].poll(60)
            assert started[number][1].recv() == "done"

        for number in range(count):
            tell(number, "read")
        return [process.pid for process, _ in started if process.pid], tell

    yield start
    for process, connection in started:
        connection.send("end")
        process.join(60)
        assert process.exitcode == 0


@pytest.fixture
def model(tmp_path: Path) -> Iterator[oc.ArrayFile]:
    oc.save(tmp_path / "model", {"weights": np.ones(40 * MB // 8)})
    with oc.open(tmp_path / "model") as file:
        yield file


@pytest.mark.parametrize("method", START_METHODS)
def test_workers_that_map_one_file_share_it(workers, model, method):
    pids, tell = workers(model, method)
    before = assert_shared(model, pids)
    assert [worker.mapped >= 40 * MB for worker in before.workers] == [True] * 3
    assert before.pss <= before.bytes
    tell(1, "read")
    after = assert_shared(model, pids, since=before)
    assert [worker.pid for worker in after.workers] == pids
    assert abs(after.growth(after.workers[1])) < 2 * MB
    assert "held by 3 processes" in str(after)
    assert all(str(pid) in str(after) for pid in pids)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_copy_that_a_worker_makes_is_seen(workers, model, method):
    pids, tell = workers(model, method)
    before = assert_shared(model, pids)
    tell(1, "copy")
    assert_shared(model, pids, since=before)  # little, and allowed
    with pytest.raises(AssertionError, match=rf"process {pids[1]} has grown by 40\.\d MB"):
        assert_shared(model, pids, since=before, allowance="4MiB")
    assert_shared(model, pids, since=before, allowance="45MB")
    assert_shared(model, [pids[0], pids[2]], since=before, allowance="4MiB")


def test_pages_that_a_worker_writes_are_seen(workers, tmp_path, model):
    pids, tell = workers(oc.open(tmp_path / "model", private=True))
    assert_shared(model, pids)
    tell(2, "write")
    with pytest.raises(AssertionError, match=rf"process {pids[2]} has 40\.0 MB of private pages"):
        assert_shared(model, pids)


def test_a_worker_that_does_not_map_the_file_as_it_was_opened_is_seen(workers, tmp_path, model):
    pids, tell = workers(model)
    tell(0, "forget")
    oc.save(tmp_path / "replaced", {"weights": np.ones(3)})
    (tmp_path / "replaced").replace(tmp_path / "model")
    assert assert_shared(model, pids[1:]).bytes > 40 * MB  # the file that was opened
    with pytest.raises(AssertionError, match=rf"process {pids[0]} does not map the files"):
        assert_shared(model, pids)
    with pytest.raises(AssertionError, match="does not map the files"):
        assert_shared(oc.open(tmp_path / "model", "copy"), os.getpid())


def touch(data: oc.ArrayFile) -> float:
    return float(data["weights"].sum())


def test_pools_give_their_processes(model):
    context = multiprocessing.get_context("fork")
    with context.Pool(2) as pool:
        pool.map(touch, [model] * 8)
        # A pool's workers open the file again for each task and let it go; what they inherited is still there.
        assert len(assert_shared(model, pool).workers) == 2
    with concurrent.futures.ProcessPoolExecutor(1, context) as executor:
        executor.submit(touch, model).result()
        assert len(assert_shared(model, executor).workers) == 1


@pytest.mark.parametrize(
    "rows",
    [["name"] * 10_000, {"a": 1, "b": 2}, [{"id": i} for i in range(10_000)]],
    ids=["list", "dict", "table"],
)
def test_records_give_their_file_even_without_a_name(rows):
    shared = oc.share(rows)
    other = oc.share(["another"] * 10_000)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(len, [shared] * 4)
        seen = assert_shared(shared, pool)
    assert seen.bytes != assert_shared(other, os.getpid()).bytes
    assert seen.paths == (shared.path,)


def test_what_is_no_file_and_what_is_no_process_are_errors(model):
    with pytest.raises(TypeError, match="this list has no shared files"):
        assert_shared(["a"], os.getpid())
    with pytest.raises(ValueError, match="no processes"):
        assert_shared(model, [])
    with pytest.raises(ProcessLookupError):
        assert_shared(model, 2**22 + 1)
    with pytest.raises(ValueError, match="is not a size"):
        assert_shared(model, os.getpid(), allowance="much")


def test_one_copy_is_proven_over_all_shards(tmp_path):
    model = oc.open(write_set(tmp_path))
    assert assert_shared(model, [os.getpid()]).paths == tuple(file.path for file in model.files)
