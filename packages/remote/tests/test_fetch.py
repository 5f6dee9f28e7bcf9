"""A file behind a URL is fetched once, whole or not at all, and continued after faults."""

import errno
import json
import logging
import os

import pytest
from tests.support.object_server import Fault

import onecopy as oc
from onecopy.store import Store
from onecopy.store.pieces import PartialFile
from onecopy_remote import fetch, origin, transfer

MIB = 1 << 20
CONTENT = os.urandom(MIB + 12345)


def states(store: Store) -> list[str]:
    return [artefact.state for artefact in store.ls()]


def test_a_file_is_fetched_once_and_has_its_name(objects, store, small_pieces):
    url = objects.put("models/some%20words.bin".replace("%20", " "), CONTENT).replace(" ", "%20")
    path = fetch(url, store=store)
    assert path.name == "some words.bin"
    assert path.read_bytes() == CONTENT
    assert len(objects.data_requests) == -(-len(CONTENT) // small_pieces)
    assert {one.condition for one in objects.data_requests} == {objects.tag_of("models/some words.bin")}
    assert objects.served == len(CONTENT) + 1  # and the byte that brings the version
    assert fetch(url, store=store) == path
    assert len(objects.data_requests) == -(-len(CONTENT) // small_pieces)
    assert states(store) == ["ready"]


@pytest.mark.parametrize(("size", "durable"), [(0, None), (1, False), (2, True)])
def test_tiny_files_are_fetched_and_flushed_if_the_store_asks_for_it(objects, store, size, durable):
    given = store.folder if durable is None else store.with_options(durable=durable)
    assert fetch(objects.put("x", CONTENT[:size]), store=given).read_bytes() == CONTENT[:size]
    (about,) = store.folder.glob("*.about")
    assert ("\nboot " in about.read_text()) != bool(durable)


def test_a_changed_object_is_fetched_anew_and_the_old_path_keeps_its_content(objects, store):
    old = fetch(objects.put("x.bin", b"old"), store=store)
    new = fetch(objects.put("x.bin", b"new"), store=store)
    assert (old.read_bytes(), new.read_bytes(), old.name, new.name) == (b"old", b"new", "x.bin", "x.bin")


def test_signed_urls_of_one_object_are_one_file_and_their_query_is_never_kept(objects, store, caplog):
    url = objects.put("x.bin", CONTENT)
    first = fetch(f"{url}?sv=2024&sig=s3cret&id=1", store=store)
    assert fetch(f"{url}?id=1&sv=2024&se=2026&sig=other-s3cret", store=store) == first
    assert fetch(f"{url}?id=2&sv=2024&sig=s3cret", store=store) != first
    assert {one.query for one in objects.requests} > {"sv=2024&sig=s3cret&id=1"}
    kept = "".join(artefact.key for artefact in store.ls()) + "".join(map(str, store.folder.rglob("*")))
    with pytest.raises(FileNotFoundError) as raised:
        fetch(f"http://me:s3cret@{objects.url[7:]}/missing?sig=s3cret", store=store)
    assert str(raised.value) == f"[Errno 2] the server answered 404 Not Found: '{objects.url}/missing'"
    assert "s3cret" not in kept + caplog.text
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__


@pytest.mark.parametrize("announced", [True, False])
def test_a_connection_that_ends_early_is_continued_where_it_ended(objects, store, small_pieces, announced):
    url = objects.put("x", CONTENT)
    objects.faults.extend([Fault(cut=1000, announced=announced), Fault(), Fault(cut=0, announced=announced)])
    assert fetch(url, store=store, connections=2).read_bytes() == CONTENT
    if announced:
        assert any(one.begin is not None and one.begin % small_pieces == 1000 for one in objects.data_requests)
        assert objects.served == len(CONTENT) + 1


def test_a_server_that_is_busy_for_a_while_is_asked_again(objects, store):
    url = objects.put("x", CONTENT)
    objects.faults.extend([Fault(503), Fault(429), Fault(500)])
    assert fetch(url, store=store).read_bytes() == CONTENT


def test_an_object_that_changes_while_it_is_fetched_is_an_error(objects, store, small_pieces):
    url = objects.put("x", CONTENT)

    def replace(_):
        if len(objects.data_requests) == 5:
            objects.put("x", CONTENT[::-1])

    objects.on_data = replace
    with pytest.raises(oc.errors.FileChanged, match="the object changed while it was fetched") as raised:
        fetch(url, store=store)
    assert raised.value.filename == url
    objects.on_data = None
    assert fetch(url, store=store).read_bytes() == CONTENT[::-1]


def test_a_server_without_ranges_is_read_in_one(objects, store, small_pieces):
    objects.ranges = False
    content = CONTENT * 3
    url = objects.put("x", content)
    objects.faults.extend([Fault(), Fault(cut=2_500_000), Fault(), Fault(cut=2_500_000, stall=0.3)])
    counted = []
    path = fetch(url, store=store, connections=1, progress=lambda *one: counted.append(one))
    assert path.read_bytes() == content
    assert max(counted) == counted[-1] == (len(content), len(content))


def test_progress_ends_at_the_total_and_its_exception_ends_the_fetch(objects, store, small_pieces):
    url = objects.put("x", CONTENT)

    def stop(done, total):
        raise InterruptedError(f"{total}")

    with pytest.raises(InterruptedError, match=str(len(CONTENT))):
        fetch(url, store=store, progress=stop)
    seen = []
    fetch(url, store=store, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert sorted(seen) == seen


def test_a_long_fetch_is_announced_without_its_query(objects, store, small_pieces, monkeypatch, caplog):
    monkeypatch.setattr("onecopy_remote.fetching._FIRST_LINE_S", 0.0)
    with caplog.at_level(logging.WARNING, "onecopy"):
        fetch(objects.put("x", CONTENT) + "?sig=s3cret", store=store)
    assert "fetching: " in caplog.text
    assert "s3cret" not in caplog.text
    caplog.clear()
    fetch(objects.put("y", CONTENT), store=store.with_options(on_wait=None))
    assert caplog.text == ""


def test_pieces_of_an_earlier_boot_are_compared_with_their_checksums(objects, store, small_pieces, monkeypatch):
    monkeypatch.setattr(transfer, "_TRIES", 1)
    url = objects.put("x", CONTENT)
    objects.faults.extend([Fault()] * 4 + [Fault(403)])
    with pytest.raises(PermissionError):
        fetch(url, store=store, connections=1)
    (partial,) = store.folder.glob("*.partial")
    listed = partial.with_suffix(".pieces")
    key, _, entries = listed.read_bytes().split(b"\n", 2)
    listed.write_bytes(b"\n".join([key, b"another boot", entries]))
    with partial.open("r+b") as file:  # as after a power cut: a piece that did not reach the disk
        file.seek(small_pieces)
        file.write(bytes(small_pieces))
    objects.served = 0
    assert fetch(url, store=store).read_bytes() == CONTENT
    assert objects.served == len(CONTENT) - 3 * small_pieces + 1


def test_a_partial_file_of_others_is_refused(tmp_path):
    (tmp_path / "0.partial").symlink_to("/etc/passwd")
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)) as raised:
        PartialFile(tmp_path / "0.oc", "key", 10)
    assert raised.value.errno == errno.ELOOP


def test_partial_files_are_listed_and_pruned_by_age_and_size(objects, store, small_pieces, monkeypatch):
    monkeypatch.setattr(transfer, "_TRIES", 1)
    url = objects.put("x", CONTENT)
    objects.faults.extend([Fault(), Fault(403)])
    with pytest.raises(PermissionError):
        fetch(url, store=store, connections=1)
    assert states(store) == ["partial"]
    assert store.prune().removed == []
    assert [one.state for one in store.prune(max_age=3600).removed] == []
    assert [one.state for one in store.prune(max_bytes=0).removed] == ["partial"]
    assert {path.name for path in store.folder.iterdir()} <= {"views"}


def test_pruning_removes_the_links_to_what_it_removed(objects, store):
    path = fetch(objects.put("x", CONTENT), store=store)
    kept = fetch(objects.put("y", CONTENT), store=store)
    key = next(artefact.key for artefact in store.ls() if "/x," in artefact.key)
    store.prune(keys=[key])
    assert not path.is_symlink()
    assert not path.parent.exists()
    assert kept.read_bytes() == CONTENT


@pytest.mark.parametrize(
    "url",
    ["/etc/passwd", "ftp://host/x", "s3://", "file://other/etc/passwd", "http://[::1]:9/x\n", "http://[::1]:9/\x1f"],
)
def test_what_is_no_url_of_an_object_is_refused(store, url):
    with pytest.raises(ValueError, match="URL"):
        fetch(url, store=store)


def test_a_server_that_is_not_there_is_a_connection_error(store, monkeypatch):
    monkeypatch.setattr("onecopy_remote.origin._RETRIES", 0)
    with pytest.raises(ConnectionError, match="Connection refused") as raised:
        fetch("http://127.0.0.1:9/x?sig=1", store=store)
    assert raised.value.filename == "http://127.0.0.1:9/x"


def test_the_limit_of_the_store_removes_no_shard_of_a_model_that_is_being_fetched(objects, store):
    shards = [f"{name}.safetensors" for name in "abc"]
    for shard in shards:
        objects.put(f"model/{shard}", CONTENT)
    index = objects.put(
        "model/m.safetensors.index.json", json.dumps({"weight_map": {name[0]: name for name in shards}}).encode()
    )
    path = fetch(index, store=store.with_options(max_bytes=len(CONTENT) + 1))
    assert [path.with_name(shard).read_bytes() == CONTENT for shard in shards] == [True] * 3


@pytest.mark.parametrize("in_parts", [True, False])
@pytest.mark.parametrize(("nbytes", "kind", "word"), [(1, ConnectionError, "fewer"), (4 * MIB, OSError, "more")])
def test_an_answer_of_another_length_is_an_error_that_names_the_url(
    objects, store, monkeypatch, in_parts, nbytes, kind, word
):
    """The client checks lengths itself for HTTP; other stores may not."""

    async def chunks(_origin, _version, part=None, *, slow=False):
        if part is not None and not in_parts:
            raise NotImplementedError
        if word == "more" or part is None or part[0] == 0:  # fewer: only the first part is sent
            yield bytes(nbytes)

    monkeypatch.setattr(origin.Origin, "chunks", chunks)
    monkeypatch.setattr(transfer, "_FIRST_PAUSE_S", 0.001)
    url = objects.put("x.bin", CONTENT)
    with pytest.raises(kind, match=f"the server sent {word} bytes than ") as raised:
        fetch(url, store=store)
    assert raised.value.filename == url
    assert raised.value.errno == (errno.ECONNABORTED if word == "fewer" else errno.EPROTO)
