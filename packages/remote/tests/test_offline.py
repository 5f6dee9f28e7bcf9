"""With ONECOPY_OFFLINE=1, URLs open the newest complete copies in the store, and no server receives a request."""

import json
import logging
import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.support import shards
from tests.support.object_server import Fault, serving

import onecopy as oc
from onecopy import records
from onecopy.store import Store, location
from onecopy_remote import fetch, fetching, transfer
from onecopy_remote.origin import Origin

pytestmark = pytest.mark.usefixtures("own_store")


@pytest.fixture(autouse=True)
def not_warned_yet() -> None:
    fetching._warn_once.cache_clear()


@pytest.fixture
def offline(monkeypatch, objects):
    """Give a function that goes offline; after the test, the server must have received no further request."""
    asked = []

    def start() -> None:
        monkeypatch.setenv("ONECOPY_OFFLINE", "1")
        asked.append(len(objects.requests))

    yield start
    assert asked, "the test did not go offline"
    assert asked[-1] == len(objects.requests)


@pytest.fixture
def online(monkeypatch):
    return lambda: monkeypatch.delenv("ONECOPY_OFFLINE")


def put_set(folder: Path, objects) -> str:
    folder.mkdir(exist_ok=True)
    shards.write_set(folder)
    for path in folder.iterdir():
        objects.put(path.name, path.read_bytes())
    return f"{objects.url}/{shards.INDEX}"


@pytest.mark.parametrize("value", ["1", "on", "ON", "Yes", "TRUE", "true"])
def test_values_that_huggingface_hub_accepts_forbid_requests(value, objects, monkeypatch):
    monkeypatch.setenv("ONECOPY_OFFLINE", value)
    with pytest.raises(FileNotFoundError, match="ONECOPY_OFFLINE forbids requests"):
        fetch(objects.put("x", b"x"))
    assert objects.requests == []


@pytest.mark.parametrize("value", ["", "0", "off", "no", "2"])
def test_other_values_allow_requests(value, objects, monkeypatch):
    monkeypatch.setenv("ONECOPY_OFFLINE", value)
    assert fetch(objects.put("x", b"x")).read_bytes() == b"x"


def test_a_fetched_file_is_found_and_its_version_is_reported_once(objects, offline, caplog):
    url = objects.put("m.bin", b"first")
    tag = objects.tag_of("m.bin")
    path = fetch(f"{url}?sv=1&sig=s3cret")
    objects.put("m.bin", b"second")
    offline()
    with caplog.at_level(logging.WARNING, "onecopy"):
        assert fetch(f"{url}?sv=2&sig=other") == path
        assert fetch(url) == path
    assert path.read_bytes() == b"first"
    (record,) = caplog.records
    when = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
    assert re.fullmatch(rf"onecopy: offline: {url}: etag {tag}, 5 bytes, fetched {when}", record.getMessage())


def test_the_newest_version_is_found_and_another_url_is_not(objects, offline, own_store):
    url = objects.put("m.bin", b"old")
    fetch(url)
    fetch(objects.put("m.bin", b"newer"))
    fetch(f"{url}?id=1")
    fetch(objects.put("m.bin.txt", b"another"))
    (latest,) = [one.key for one in own_store.ls() if one.bytes == 5 and "query" not in one.key]
    offline()
    assert fetch(url).read_bytes() == b"newer"
    own_store.prune(keys=[latest])
    assert fetch(url).read_bytes() == b"old"
    for other in (f"{url}?id=2", f"{objects.url}/m.bi", f"{objects.url}/"):
        with pytest.raises(FileNotFoundError):
            fetch(other)


def test_what_is_not_there_is_an_error_that_names_the_url_and_what_to_do(objects, offline):
    url = objects.put("m.bin", b"x")
    offline()
    with pytest.raises(FileNotFoundError) as raised:
        oc.open(f"{url}?sig=s3cret")
    assert raised.value.filename == url
    assert "run `onecopy fetch` while online" in raised.value.strerror


def test_a_partly_fetched_file_is_not_there(objects, offline, own_store, small_pieces, monkeypatch):
    monkeypatch.setattr(transfer, "_TRIES", 1)
    url = objects.put("m.bin", os.urandom(1 << 20))
    objects.faults.extend([Fault(), Fault(403)])
    with pytest.raises(PermissionError):
        fetch(url, connections=1)
    assert [one.state for one in own_store.ls()] == ["partial"]
    offline()
    with pytest.raises(FileNotFoundError, match="no complete copy"):
        fetch(url)


def test_a_file_that_a_restart_may_have_damaged_is_not_there_and_a_flushed_one_is(objects, offline, own_store):
    urls = [objects.put("unflushed", b"1"), objects.put("flushed", b"2")]
    fetch(urls[0])
    fetch(urls[1], store=Store())
    boots = [re.search("^boot ", one.path.with_suffix(".about").read_text(), re.MULTILINE) for one in own_store.ls()]
    assert sum(boot is not None for boot in boots) == 1
    for about in own_store.folder.glob("*.about"):
        about.write_text(re.sub("(?<=\nboot )(.*?) .*", r"\1 another", about.read_text()))
    offline()
    assert fetch(urls[1]).read_bytes() == b"2"


def test_an_index_opens_with_the_shards_that_were_fetched_with_it(objects, offline, online, tmp_path):
    url = put_set(tmp_path / "out", objects)
    fetch(url)
    offline()
    with oc.open(url) as file:
        assert all(np.array_equal(file[name], shards.ARRAYS[name]) for name in shards.ARRAYS)
    online()
    # The fetch of a new version fails at a shard: neither it nor a mixture opens, whether the index has changed or not.
    refused = shards.shard_of(2)
    for name in (shards.shard_of(1), refused):
        with oc.open(tmp_path / "out" / name) as file:
            oc.save(tmp_path / name, {key: array * 0 for key, array in file.items()})
        objects.put(name, (tmp_path / name).read_bytes())
    objects.on_data = lambda request: objects.faults.append(Fault(403)) if request.path == refused else None
    for more in (b"", b" "):
        objects.contents[shards.INDEX] += more
        with pytest.raises(PermissionError):
            fetch(url)
        offline()
        with oc.open(url) as file:
            assert all(np.array_equal(file[name], shards.ARRAYS[name]) for name in shards.ARRAYS)
        online()
    objects.on_data = None
    fetch(url)
    offline()
    with oc.open(url) as file:
        assert [file[name].any() for name in shards.ARRAYS] == [True, True, False, False, False, False]


def test_a_shard_is_found_that_was_fetched_with_its_index(objects, offline, tmp_path):
    fetch(put_set(tmp_path / "out", objects))
    offline()
    assert fetch(f"{objects.url}/{shards.shard_of(1)}").name == shards.shard_of(1)


def test_some_arrays_are_selected_from_complete_files(objects, offline, tmp_path):
    url = put_set(tmp_path / "out", objects)
    names = list(shards.ARRAYS)
    part = oc.open(url, names=names[:1])
    offline()
    with pytest.raises(FileNotFoundError, match="no complete copy"):
        oc.open(url, names=names[:1])
    copy = pickle.loads(pickle.dumps(part))  # its versions are known, and its bytes are there
    assert np.array_equal(copy[names[0]], shards.ARRAYS[names[0]])


def test_some_arrays_of_a_complete_set_are_selected(objects, offline, tmp_path):
    url = put_set(tmp_path / "out", objects)
    fetch(url)
    name = next(iter(shards.ARRAYS))
    offline()
    with oc.open(url, names=[name]) as file:
        assert list(file) == [name]
        assert np.array_equal(file[name], shards.ARRAYS[name])


def test_a_folder_has_the_files_of_the_last_call_that_fetched_as_many_kinds(
    objects, offline, online, monkeypatch, tmp_path
):
    async def names(self) -> list[str]:
        objects.requests.append(self.shown)
        return sorted(objects.contents)

    monkeypatch.setattr(Origin, "names", names)
    url = f"{objects.url}/"
    oc.save(tmp_path / "m", {"a": np.ones(3)})
    for name, content in {"config.json": b"1", "old.safetensors": b"x", "notes": b"n"}.items():
        objects.put(name, content)
    fetch(url)
    objects.contents.pop("old.safetensors")
    objects.put("model.safetensors", (tmp_path / "m").read_bytes())
    fetch(url)
    objects.put("config.json", b"2")
    fetch(url, names=["*.json"])
    offline()
    with oc.open(url) as file:
        assert (list(file), Path(file.path).name) == (["a"], "model.safetensors")
    assert len([*fetch(url, names=["*.json", "*.safetensors"]).iterdir()]) == 3
    assert (fetch(url, names=["*.json"]) / "config.json").read_bytes() == b"2"
    with pytest.raises(FileNotFoundError):
        fetch(url, names=["*.bin"])
    online()
    objects.contents.pop("model.safetensors")
    objects.put("old.safetensors", b"x")
    objects.put("config.json", b"1")
    fetch(url)  # nothing new, but it is the newest copy now
    offline()
    assert "old.safetensors" in {path.name for path in fetch(url).iterdir()}


def test_records_images_and_files_to_hold_are_found(objects, offline, tmp_path):
    records.save(tmp_path / "names.oc", ["Ada", "Grace"])
    url = objects.put("names.oc", (tmp_path / "names.oc").read_bytes())
    fetch(url)
    tifffile = pytest.importorskip("tifffile")
    tifffile.imwrite(tmp_path / "x.tif", np.arange(600, dtype=np.uint8).reshape(20, 30))
    image = objects.put("x.tif", (tmp_path / "x.tif").read_bytes())
    fetch(image)
    offline()
    assert list(oc.open_records(url, oc.records.List)) == ["Ada", "Grace"]
    assert oc.images.open(image).array.shape == (20, 30)
    (path,) = location.files_of(url)
    assert Path(path).read_bytes() == (tmp_path / "names.oc").read_bytes()


@pytest.mark.parametrize("nodes", ["torchrun", "ray"])
def test_nodes_exchange_nothing(nodes, objects, offline):
    url = objects.put("m.bin", b"x")
    fetch(url)
    offline()
    assert fetch(url, nodes=nodes).read_bytes() == b"x"  # this process belongs to no job


def test_without_a_network_a_file_opens_whose_server_is_gone(tmp_path, own_store):
    with serving() as objects:
        oc.save(tmp_path / "m.safetensors", {"a": np.arange(3)})
        url = objects.put("m.safetensors", (tmp_path / "m.safetensors").read_bytes())
        fetch(url)
    code = f"import onecopy as oc; print(oc.open({url!r})['a'])"
    isolated = ["unshare", "--net", "--user", "--map-root-user"]
    if not shutil.which("unshare") or subprocess.run([*isolated, "true"], check=False).returncode:
        isolated = []
    environment = os.environ | {"ONECOPY_OFFLINE": "1"}
    command = [*isolated, sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "[0 1 2]\n"
    assert done.stderr.startswith(f"onecopy: offline: {url}: etag ")


def test_the_verb_flushes_and_says_offline_which_version_it_found(objects, offline, onecopy_command, own_store):
    url = objects.put("m.bin", b"content")
    path = onecopy_command("fetch", url).stdout
    (fetched,) = own_store.ls()
    assert fetched.reason == "ready"  # not: until the machine restarts
    offline()
    command = [sys.executable, "-m", "onecopy", "fetch", url]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == path
    assert f"offline: {url}: etag {objects.tag_of('m.bin')}, 7 bytes, fetched 20" in done.stderr
    assert json.loads(onecopy_command("fetch", "--json", url).stdout)[0]["path"] == path.strip()
    failed = onecopy_command("fetch", f"{url}2")
    assert failed.returncode == 1
    assert failed.stderr.startswith(f"onecopy: {url}2: ONECOPY_OFFLINE forbids requests")
