"""Who fetches which pieces of a file when nodes fetch together, and what is not believed of another node."""

import base64
import hashlib
import os
import random
import time
from types import SimpleNamespace

import pytest
from hypothesis import given, settings, strategies as st

from onecopy.store.pieces import Ranges
from onecopy_remote import fetch, fetching, torchrun, transfer
from onecopy_remote.nodes import Partners
from onecopy_remote.ray_nodes import Directory

CONTENT = os.urandom((1 << 20) + 12345)


def digests(content: bytes) -> dict[str, dict[str, str]]:
    """Return the headers by which servers report a hash of a content."""
    sha256, md5 = hashlib.sha256(content), hashlib.md5(content, usedforsecurity=False)
    return {
        "RFC 9530": {"Repr-Digest": f"sha-256=:{base64.b64encode(sha256.digest()).decode()}:"},
        "Google Cloud": {"x-goog-hash": f"crc32c=AAAAAA==,md5={base64.b64encode(md5.digest()).decode()}"},
        "Hugging Face": {"X-Linked-ETag": f'"{sha256.hexdigest()}"', "X-Linked-Size": str(len(content))},
    }


class Wrong(Partners):
    """Nodes of which one sends other bytes than the origin has."""

    has_nodes = True

    def exchange(self, _key, file, *_, **__):
        file.write(0, bytes([CONTENT[0] ^ 1]) + CONTENT[1:1000])


def failed(*_, **__):
    raise ConnectionError


@pytest.mark.parametrize("name", ["RFC 9530", "Google Cloud", "Hugging Face"])
def test_wrong_bytes_of_a_node_are_refused_where_the_origin_reports_a_hash(objects, store, monkeypatch, caplog, name):
    url = objects.put("x", CONTENT)
    objects.headers["x"] = digests(CONTENT)[name]
    if name == "Hugging Face":  # it redirects to where the object is, and reports the hash before that
        objects.redirects["resolve/x"], objects.headers = url, {"resolve/x": objects.headers["x"]}
        url = f"{objects.url}/resolve/x"
    monkeypatch.setattr(fetching, "partners_of", lambda *_: Wrong())
    assert fetch(url, store=store, nodes="ray").read_bytes() == CONTENT
    assert f"x: the {'md5' if name == 'Google Cloud' else 'sha256'} differs from that of the origin" in caplog.text


def test_wrong_bytes_that_an_earlier_call_has_left_are_refused_too(objects, store, monkeypatch, caplog):
    url = objects.put("x", CONTENT)
    objects.headers["x"] = digests(CONTENT)["RFC 9530"]
    with monkeypatch.context() as failing:
        failing.setattr(fetching, "partners_of", lambda *_: Wrong())
        failing.setattr(fetching, "transfer", failed)
        with pytest.raises(ConnectionError):
            fetch(url, store=store, nodes="ray")
    assert fetch(url, store=store).read_bytes() == CONTENT
    assert "x: the sha256 differs from that of the origin" in caplog.text


@pytest.mark.parametrize("nodes", ["slurm", ["10.0.0.1", "10.0.0.2"]])
def test_other_words_name_no_nodes(objects, store, nodes):
    with pytest.raises(ValueError, match="nodes must be 'ray' or 'torchrun', not "):
        fetch(objects.put("x", CONTENT), store=store, nodes=nodes)


def test_a_process_that_torchrun_did_not_start_is_told(objects, store):
    pytest.importorskip("torch", reason="torch is not installed")
    with pytest.raises(RuntimeError, match=r"not started by torchrun \(GROUP_RANK is not set\)"):
        fetch(objects.put("x", CONTENT), store=store, nodes="torchrun")


def held(pieces: list[tuple[int, int]]) -> st.SearchStrategy[list[tuple[int, int]]]:
    return st.lists(st.sampled_from(pieces), unique=True)


@settings(deadline=None)
@given(st.data())
def test_every_piece_has_one_node_that_brings_it_and_has_it_if_any_does(data):
    size = data.draw(st.integers(1, 5 * transfer.PIECE))
    block = data.draw(st.sampled_from([0, transfer.PIECE // 8]))
    pieces = [*transfer.pieces_of([(0, size)], block)]
    assert list(Ranges(pieces)) == [(0, size)]
    assert len(pieces) == -(-size // (block or transfer.PIECE))
    have = {rank: Ranges(data.draw(held(pieces))) for rank in range(data.draw(st.integers(1, 5)))}
    found = torchrun.assigned(pieces, have)
    assert list(found) == pieces
    for piece, rank in found.items():
        having = {one for one, ranges in have.items() if not any(ranges.missing(*piece))}
        assert rank in (having or have)


def test_what_a_process_was_given_is_fetched_by_another_node_when_it_is_not_heard_of(monkeypatch):
    directory, now = Directory(), [time.monotonic()]
    monkeypatch.setattr("onecopy_remote.ray_nodes.time", SimpleNamespace(monotonic=lambda: now[0]))

    def given(name):
        return directory.to_fetch(transfer.PIECE, ["a", "b"], "key", name, name, "", [])

    assert given("a") == [(0, transfer.PIECE)]
    for passed, found in ((20, []), (20, []), (31, [(0, transfer.PIECE)])):
        now[0] += passed
        assert given("b") == found
        directory.beat("key", "a")


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_nodes_of_a_cluster_fetch_each_piece_once_and_end_with_all(data):
    """Nodes ask the directory in any order; each has at first what earlier calls have left, and one may end."""
    size = data.draw(st.integers(1, 40 * transfer.PIECE))
    pieces = [*transfer.pieces_of([(0, size)])]
    names = [f"node {number}" for number in range(data.draw(st.integers(1, 4)))]
    have = {name: Ranges(data.draw(held(pieces))) for name in names}
    at_first = Ranges(piece for ranges in have.values() for piece in ranges)
    ended = data.draw(st.sampled_from([None, *names[1:]]))
    rng = random.Random(data.draw(st.integers(0, 1000)))
    directory, alive, fetched, given_to = Directory(), list(names), [], {name: [] for name in names}
    for name in names:
        directory.note("key", name, name, "", list(have[name]))
    for step in range(10_000):
        if step == 5 and ended:
            alive.remove(ended)
            given_to.pop(ended)
        lacking = [name for name in alive if any(have[name].missing(0, size))]
        if not lacking:
            break
        name = rng.choice(lacking)
        noted = ("key", name, name, "", list(have[name]))
        if rng.random() < 0.5 and given_to[name]:  # what was given arrives
            for piece in given_to[name]:
                have[name].add(*piece)
                fetched.append(piece)
            given_to[name] = []
            directory.note("key", name, name, "", list(have[name]))
        elif rng.random() < 0.5 and not given_to[name]:
            given_to[name] = directory.to_fetch(size, alive, *noted)
        else:
            for piece, source, path, _ in directory.to_receive(size, alive, *noted):
                assert source in alive
                assert source == path != name
                assert not any(have[source].missing(*piece))
                have[name].add(*piece)
    assert all(not any(have[name].missing(0, size)) for name in alive)
    assert len(fetched) == len(set(fetched)) or ended
    assert ended or not any(any(at_first.missing(*piece)) is False for piece in fetched)
