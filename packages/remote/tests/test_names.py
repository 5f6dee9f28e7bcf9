"""Of some arrays behind a URL, only their bytes are fetched; later calls add to them."""

import os
import pickle

import numpy as np
import pytest
from tests.support import shards

import onecopy as oc
from onecopy.store import Store
from onecopy.store.pieces import Ranges
from onecopy_remote.fetching import merged

ARRAYS = {f"layer.{i}": np.random.default_rng(i).random((100, 500), np.float32) for i in range(20)}
SIZE = ARRAYS["layer.0"].nbytes

pytestmark = pytest.mark.usefixtures("own_store")


@pytest.fixture
def url(tmp_path, objects):
    oc.save(tmp_path / "m.safetensors", ARRAYS)
    return objects.put("m.safetensors", (tmp_path / "m.safetensors").read_bytes())


@pytest.fixture
def index(tmp_path, objects):
    (tmp_path / "out").mkdir()
    shards.write_set(tmp_path / "out")
    for path in (tmp_path / "out").iterdir():
        objects.put(path.name, path.read_bytes())
    return f"{objects.url}/{shards.INDEX}"


def states() -> list[str]:
    return [artefact.state for artefact in Store().ls()]


def test_only_the_header_and_the_bytes_of_the_arrays_are_fetched(url, objects):
    with oc.open(url, names=["layer.17", "layer.3"]) as file:
        assert list(file) == ["layer.17", "layer.3"]
        for name in file:
            assert np.array_equal(file[name], ARRAYS[name])
            assert not file[name].flags.writeable
        assert file.nbytes == 2 * SIZE
        assert "layer.4" not in file
        with pytest.raises(KeyError):
            file["layer.4"]
    assert objects.served <= 2 * SIZE + (256 << 10) + 1
    assert states() == ["partial"]


def test_a_later_call_adds_what_is_missing_until_the_file_is_whole(url, objects):
    first = oc.open(url, names=["layer.10", "layer.11"])
    served = objects.served
    with oc.open(url, names=["layer.11", "layer.12"]) as file:
        assert np.array_equal(file["layer.12"], ARRAYS["layer.12"])
    assert objects.served == served + SIZE + 1
    with oc.open(url, names=ARRAYS) as file:
        assert all(np.array_equal(file[name], ARRAYS[name]) for name in ARRAYS)
    size = len(objects.contents["m.safetensors"])
    with oc.open(url) as file:
        file.verify()
    assert objects.served <= size + 4
    assert states() == ["ready"]
    assert np.array_equal(first["layer.10"], ARRAYS["layer.10"])
    served = objects.served
    with oc.open(url, names=["layer.0"]) as file:
        assert list(file) == ["layer.0"]
    assert objects.served == served + 1


def test_rows_are_arrays_of_these_rows(url, objects):
    with oc.open(url, names=[("layer.19", slice(50, 75)), ("layer.18", slice(None, None))]) as file:
        part = file["layer.19"]
        assert np.array_equal(part, ARRAYS["layer.19"][50:75])
        assert file.entry("layer.19").shape == (25, 500)
        assert np.array_equal(file.shard("layer.19", 1, 5), ARRAYS["layer.19"][55:60])
        assert file.warm([("layer.19", slice(5, 6))]).bytes <= 2 * 4096
    assert objects.served <= SIZE // 4 + SIZE + (256 << 10) + 1


@pytest.mark.parametrize(
    ("names", "error", "words"),
    [
        (["layer.3", "absent"], KeyError, "absent"),
        ("layer.3", TypeError, "names must be a list"),
        (["layer.3", "layer.3"], ValueError, "twice"),
        ([("layer.3", slice(0, 10, 2))], ValueError, "step 1"),
        ([("layer.3", 3)], TypeError, "a slice"),
    ],
)
@pytest.mark.parametrize("is_remote", [True, False])
def test_wrong_names_are_errors(url, tmp_path, names, error, words, is_remote):
    with pytest.raises(error, match=words):
        oc.open(url if is_remote else tmp_path / "m.safetensors", names=names)


def test_verify_fetches_whole_blocks_and_is_refused_where_they_are_not_there(url, objects):
    with (
        oc.open(url, names=["layer.5"]) as file,
        pytest.raises(oc.errors.NoChecksum, match="open the URL with verify=True"),
    ):
        file.verify()
    with oc.open(url, names=["layer.5"], verify=True) as file:
        assert file.verify().bytes >= SIZE
    content = bytearray(objects.contents["m.safetensors"])
    content[-1] ^= 1
    objects.put("m.safetensors", bytes(content))
    with oc.open(url, names=["layer.19"]):
        pass
    with pytest.raises(oc.ChecksumError):
        oc.open(url, names=["layer.19"], verify=True)


def test_it_is_pickled_as_the_version_that_was_opened(url, objects, monkeypatch, tmp_path):
    file = oc.open(url, names=["layer.1"])
    pickled = pickle.dumps(file)
    objects.put("m.safetensors", objects.contents["m.safetensors"][:-1] + b"x")
    requests = len(objects.requests)
    with pickle.loads(pickled) as again:  # parts of the opened version, although the server has another one
        assert np.array_equal(again["layer.1"], ARRAYS["layer.1"])
    assert len(objects.requests) == requests
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / "another node"))
    with pytest.raises(oc.errors.FileChanged):
        pickle.loads(pickled)


def test_a_pickled_selection_of_an_index_has_the_versions_of_its_shards(index, objects):
    with oc.open(index, names=["layer.0"]) as file:
        pickled = pickle.dumps(file)
    for name, content in list(objects.contents.items()):
        objects.put(name, content + b" ")
    with pickle.loads(pickled) as again:
        assert np.array_equal(again["layer.0"], shards.ARRAYS["layer.0"])


def test_only_shards_that_have_the_names_are_fetched(index, objects):
    with oc.open(index, names=["layer.4", "layer.0"]) as file:
        assert np.array_equal(file["layer.4"], shards.ARRAYS["layer.4"])
        assert np.array_equal(file["layer.0"], shards.ARRAYS["layer.0"])
        assert len(file.files) == 2
    assert {one.path for one in objects.requests} == {shards.INDEX, shards.shard_of(0), shards.shard_of(2)}
    with pytest.raises(KeyError, match="absent"):
        oc.open(index, names=["absent"])


def test_a_damaged_list_of_pieces_leaves_what_is_mapped(url, tmp_path):
    file = oc.open(url, names=["layer.3"])
    view = file["layer.3"]
    (listed,) = (tmp_path / "cache").glob("*.pieces")
    with listed.open("r+b") as pieces:
        pieces.write(b"X")
    with oc.open(url, names=["layer.5"]) as other:
        assert np.array_equal(other["layer.5"], ARRAYS["layer.5"])
    assert np.array_equal(view, ARRAYS["layer.3"])


def test_another_format_is_fetched_whole(tmp_path, objects):
    np.savez(tmp_path / "x.npz", a=np.arange(5), b=np.ones(3))
    with oc.open(objects.put("x.npz", (tmp_path / "x.npz").read_bytes()), names=["b"]) as file:
        assert list(file) == ["b"]
        assert np.array_equal(file["b"], np.ones(3))
    assert states() == ["ready"]


def test_some_arrays_have_what_their_file_has(tmp_path):
    path = tmp_path / "m.safetensors"
    oc.save(path, ARRAYS, metadata={"step": "12"})
    whole, some = oc.open(path), oc.open(path, "copy", names=["layer.2", ("layer.1", slice(3, 5))])
    for what in ("path", "identity", "metadata", "container", "kind"):
        assert getattr(some, what) == getattr(whole, what)
    assert (some.mode, some.mode_reason, some.views) == ("copy", "as requested", 0)
    assert [entry.name for entry in some.entries] == list(some) == ["layer.2", "layer.1"]
    assert some.path_of("layer.1") == str(path)
    assert [file.path for file in some.files] == [str(path)]
    assert repr(some) == f"<onecopy.ArrayFile {str(path)!r} 2 selected arrays, 204 kB, copy>"
    view = some["layer.1"]
    assert (view.base is not None, some.views) == (True, 1)
    assert np.array_equal(pickle.loads(pickle.dumps(some))["layer.1"], view)
    assert not some.changed()
    path.unlink()
    assert some.changed()
    some.close()
    assert some.closed
    assert repr(some) == f"<onecopy.ArrayFile {str(path)!r} closed>"
    assert np.array_equal(view, ARRAYS["layer.1"][3:5])


def test_of_parts_further_parts_are_warmed_and_verified(tmp_path):
    oc.save(tmp_path / "m.safetensors", {"scalar": np.float32(3), "rows": ARRAYS["layer.0"]})
    with oc.open(tmp_path / "m.safetensors", names=["scalar", ("rows", slice(10, 90))]) as file:
        assert file.warm(["scalar"]).bytes <= 4096
        assert file.warm([("rows", slice(0, 1))]).bytes <= 2 * 4096
        assert file.verify(["rows"]).bytes > 0


def test_of_an_array_in_fortran_order_no_rows_are_selected(tmp_path):
    np.save(tmp_path / "x.npy", np.asfortranarray(ARRAYS["layer.0"]))
    with oc.open(tmp_path / "x.npy") as file:
        (name,) = file
    with oc.open(tmp_path / "x.npy", names=[name]) as file:
        assert np.array_equal(file[name], ARRAYS["layer.0"])
    with (
        oc.open(tmp_path / "x.npy", names=[(name, slice(3, 5))]) as file,
        pytest.raises(ValueError, match="not in C order"),
    ):
        file[name]


@pytest.mark.parametrize(
    ("name", "words"),
    [("scalar", "cannot select rows of an array without axes"), ("packed", "rows of packed elements")],
)
def test_what_has_no_rows_of_whole_bytes_is_refused(write_tensors, objects, name, words):
    path = write_tensors({"scalar": ("F32", [], b"0000"), "packed": ("F4", [4, 2], b"0000")})
    for place in (path, objects.put("m.safetensors", path.read_bytes())):
        with pytest.raises(ValueError, match=words):
            oc.open(place, names=[(name, slice(0, 1))])
        with oc.open(place, names=[name]) as file:
            assert file.entry(name).nbytes == 4


def test_where_a_shard_is_missing_no_other_stays_open(index, objects):
    del objects.contents[shards.shard_of(2)]
    with pytest.raises(FileNotFoundError, match=shards.shard_of(2)):
        oc.open(index, names=["layer.0", "layer.4"])


@pytest.mark.parametrize("content", [b"x", b"\xff" * 100, (10**9).to_bytes(8, "little") + os.urandom(100)])
def test_files_that_are_no_safetensors_are_errors_of_their_format(objects, content):
    with pytest.raises(oc.FormatError):
        oc.open(objects.put("x.bin", content), names=["b"])


def test_gaps_between_ranges_that_are_joined_add_2_percent_together():
    wanted = [(start, start + 1000) for start in range(0, 103_000, 1030)]
    joined = Ranges(merged(wanted))
    assert not any(list(joined.missing(start, stop)) for start, stop in wanted)
    assert 101_900 < joined.size <= 102_000
