"""Nodes of a Ray cluster fetch a file once from the origin, and pass it on; handles open the copy of each node."""

import hashlib
import os
import pickle
import time
from pathlib import Path

import numpy as np
import pytest
from ray_nodes import fetched, names_of, opened
from tests.support.waiting import until

import onecopy as oc
from onecopy_remote import fetch

ray = pytest.importorskip("ray", reason="ray is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
CONTENT = os.urandom((24 << 20) + 12345)
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class TestNodesThatStay:
    """Tests that leave the cluster as it is."""

    def test_the_origin_sends_a_file_once_to_all_nodes(self, objects, shared_ray_nodes):
        url = objects.put("model.bin", CONTENT)
        found = ray.get([shared_ray_nodes.on(number, fetched, url) for number in (0, 0, 1, 1)])
        assert found == [DIGEST] * 4
        assert objects.served == len(CONTENT) + 4  # each process asks for the version: a byte

    def test_a_handle_opens_the_copy_of_each_node(self, objects, shared_ray_nodes, tmp_path):
        path = tmp_path / "model.safetensors"
        oc.save(path, {"weight": np.arange(1 << 20, dtype=np.float64)})
        url = objects.put("model.safetensors", path.read_bytes())
        handle = oc.ray.share(url)
        assert len(pickle.dumps(handle)) < 400
        assert handle.nodes() == []
        assert handle.placement() == "DEFAULT"
        objects.put("model.safetensors", b"another version")
        assert handle.nodes() == []
        objects.put("model.safetensors", path.read_bytes())
        before = objects.served
        found = ray.get([shared_ray_nodes.on(number, opened, handle) for number in (0, 0, 1, 1)])
        assert {number for _, number in found} == {7.0}
        assert len({Path(path).parent for path, _ in found}) == 2
        assert objects.served - before == path.stat().st_size  # of two pieces
        assert handle.nodes() == sorted(node.node_id for node in shared_ray_nodes.nodes)
        assert handle.placement().node_id in handle.nodes()

    @pytest.mark.usefixtures("own_store")
    def test_offline_the_nodes_receive_the_copy_of_this_node(self, objects, shared_ray_nodes, tmp_path, monkeypatch):
        path = tmp_path / "offline.safetensors"
        oc.save(path, {"weight": np.arange(1 << 20, dtype=np.float64)})
        url = objects.put("offline.safetensors", path.read_bytes())
        fetch(url)
        monkeypatch.setenv("ONECOPY_OFFLINE", "1")
        asked = len(objects.requests)
        handle = oc.ray.share(url)
        assert ray.get(shared_ray_nodes.on(1, opened, handle))[1] == 7.0
        assert len(objects.requests) == asked

    def test_a_sharded_model_of_a_node_is_received_whole(self, shared_ray_nodes, tmp_path):
        from tests.support.shards import write_set

        index = write_set(tmp_path)
        handle = oc.ray.share(index)
        assert ray.get(shared_ray_nodes.on(1, names_of, handle)) == sorted(oc.open(index))


@pytest.mark.nightly
def test_a_node_that_comes_later_receives_the_file(objects, ray_nodes):
    url = objects.put("model.bin", CONTENT)
    assert ray.get(ray_nodes.on(0, fetched, url)) == DIGEST
    ray_nodes.add()
    assert ray.get([ray_nodes.on(number, fetched, url) for number in (1, 2)]) == [DIGEST] * 2
    assert objects.served == len(CONTENT) + 3


@pytest.mark.nightly
def test_a_node_that_is_lost_is_done_without(objects, ray_nodes):
    url = objects.put("model.bin", CONTENT)
    objects.on_data = lambda _: time.sleep(0.05)
    tasks = [ray_nodes.on(number, fetched, url) for number in (0, 1)]
    until(lambda: objects.served > len(CONTENT) // 3, "a third of the file", seconds=60)
    ray_nodes.kill(1)
    assert ray.get(tasks[0], timeout=100) == DIGEST
    assert objects.served < 2 * len(CONTENT)
    with pytest.raises(ray.exceptions.RayError):
        ray.get(tasks[1])


@pytest.mark.nightly
def test_a_file_of_a_node_is_received_by_the_others(ray_nodes, tmp_path):
    path = tmp_path / "model.safetensors"
    oc.save(path, {"weight": np.arange(1 << 20, dtype=np.float64)})
    handle = oc.ray.share(path)
    assert handle.path() == path
    assert repr(handle) == f"<onecopy.ray.Handle of {path}>"
    [(copy, number)] = ray.get([ray_nodes.on(1, opened, handle)])
    assert number == 7.0
    assert Path(copy).name == "model.safetensors"
    assert Path(copy).read_bytes() == path.read_bytes()
    assert handle.prefetch() == [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    path.write_bytes(b"")  # the node has another file now; those that received the shared one keep it
    assert ray.get(ray_nodes.on(1, opened, handle)) == (copy, 7.0)
    ray_nodes.kill(1)
    with pytest.raises(FileNotFoundError, match="no node of the cluster has this file"):
        ray.get(ray_nodes.on(0, opened, handle))


def test_without_a_cluster_the_error_says_so(objects):
    with pytest.raises(RuntimeError, match=r"Ray cluster: call ray\.init\(\) first"):
        oc.ray.share("model.safetensors")
    with pytest.raises(RuntimeError, match=r"Ray cluster"):
        fetched(objects.put("model.bin", b"content"))
