"""Arrays one after another through a window of memory."""

import os

import numpy as np
import pytest
from tests.support.waiting import until

import onecopy as oc
from onecopy.arrays import ArrayFile
from onecopy.cli.convert import convert
from onecopy.files import page_cache

MIB = 1 << 20
WINDOW = 8 * MIB
SLACK = 64 * MIB
"""What the kernel reads ahead of what it is asked for."""


@pytest.fixture(scope="module")
def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    small = {f"small {i}": rng.integers(0, 255, 100 * i, np.uint8) for i in range(50)}
    large = {f"large {i}": rng.integers(0, 255, (37, 1 << 18), np.uint8) for i in range(10)}
    return {"scalar": np.array(7.0), **small, **large, "end": np.arange(10)}


@pytest.fixture
def file(arrays, tmp_path):
    oc.save(tmp_path / "arrays.safetensors", arrays)
    with oc.open(tmp_path / "arrays.safetensors") as opened:
        opened.evict()
        yield opened


def whole(parts):
    """Put the parts of each array together, in the order in which they came."""
    found, ends = {}, {}
    for name, rows, array in parts:
        assert not array.flags.writeable
        assert array.ndim == 0 or len(array) == rows.stop - rows.start
        assert ends.get(name, rows.start) == rows.start
        ends[name] = rows.stop
        found.setdefault(name, []).append(array)
    return {name: parts[0] if len(parts) == 1 else np.concatenate(parts) for name, parts in found.items()}


@pytest.mark.parametrize("window", [WINDOW, "20 MiB", "1 GiB"])
def test_every_byte_comes_once_in_the_order_of_the_file_and_stays_valid(file, arrays, window):
    found = whole(file.stream(window=window))
    assert list(found) == sorted(arrays, key=lambda name: file.entry(name).offset)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array, strict=True)


def test_names_come_in_their_order_and_rows_as_they_were_asked_for(file, arrays):
    asked = ["end", ("large 3", slice(5, 30)), "scalar", ("large 0", slice(36, None))]
    found = whole(file.stream(asked, order="names", window=WINDOW))
    assert list(found) == ["end", "large 3", "scalar", "large 0"]
    np.testing.assert_array_equal(found["large 3"], arrays["large 3"][5:30], strict=True)
    np.testing.assert_array_equal(found["large 0"], arrays["large 0"][36:], strict=True)


def test_the_page_cache_has_no_more_than_the_window_and_nothing_afterwards(file):
    peak = max(file.residency().cached for _ in file.stream(window=WINDOW))
    assert 0 < peak <= WINDOW + SLACK < file.nbytes
    assert file.residency().cached <= 4 * MIB


def test_what_was_in_memory_stays_there(file):
    file.warm()
    before = file.residency().cached
    for _, _, array in file.stream(window=WINDOW):
        array.sum()  # the kernel may drop what is not used
    assert file.residency().cached >= before - 4 * MIB


def test_a_stream_that_is_not_read_to_its_end_releases_what_it_has_read(file):
    stream = file.stream(window=WINDOW)
    name, _, array = next(stream)
    stream.close()
    assert file.residency().cached <= SLACK
    np.testing.assert_array_equal(array, file[name])


def test_a_caller_that_takes_its_time_finds_the_window_filled(file):
    stream = file.stream(window=WINDOW)
    next(stream)
    until(lambda: file.residency().cached >= WINDOW * 3 // 4, "the chunks ahead to be read")
    assert file.residency().cached <= WINDOW + SLACK
    stream.close()


@pytest.fixture
def little_memory(monkeypatch):
    """Let the package believe that it may use 16 MiB."""
    monkeypatch.setattr(page_cache, "available_memory", lambda: 16 * MIB)


@pytest.mark.usefixtures("little_memory")
def test_no_more_than_half_of_the_available_memory_is_used(file):
    parts = file.stream(window="1 GiB")
    assert max(part.array.nbytes for part in parts) <= 2 * MIB


def test_a_file_that_is_larger_than_memory_is_saved_through_a_window(file, tmp_path, monkeypatch):
    stream, seen = ArrayFile.stream, []
    monkeypatch.setattr(ArrayFile, "stream", lambda *a, **k: seen.append(a) or stream(*a, **k))
    for name, memory in ("plain", 1 << 40), ("streamed", 16 * MIB):
        monkeypatch.setattr(page_cache, "available_memory", lambda memory=memory: memory)
        oc.save(tmp_path / name, file, {"key": "value"}, 4096)
        assert bool(seen) is (name == "streamed")
    assert (tmp_path / "streamed").read_bytes() == (tmp_path / "plain").read_bytes()
    with oc.open(tmp_path / "streamed") as saved:
        saved.verify()


@pytest.mark.usefixtures("little_memory")
def test_packed_elements_are_converted_through_a_window_and_come_whole(tmp_path, write_tensors):
    content = np.random.default_rng(2).bytes(8192 * 1088)
    source, target = os.fspath(write_tensors({"packed": ("F4", [8192, 2176], content)})), os.fspath(tmp_path / "x.oc")
    convert(source, target, pattern="*", unknown="bytes", skip=False, drop_tied=False, align=None)
    with oc.open(target) as file:
        assert file["packed"].tobytes() == content


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"names": ["missing"]}, KeyError),
        ({"order": "size"}, ValueError),
        ({"window": 1000}, ValueError),
        ({"names": [("large 0", slice(0, 8, 2))]}, ValueError),
    ],
)
def test_what_cannot_be_streamed_is_an_error_when_the_first_part_is_asked_for(file, options, error):
    with pytest.raises(error):
        next(iter(file.stream(**options)))


def test_a_row_that_does_not_fit_is_a_part_by_itself(tmp_path):
    wide = np.arange(6 * MIB, dtype=np.uint32).reshape(2, 3 * MIB)
    oc.save(tmp_path / "x", {"narrow": np.zeros(5), "wide": wide})
    with oc.open(tmp_path / "x") as file:
        file.evict()
        parts = list(file.stream(["wide", "narrow"], order="names", window=WINDOW))
        assert [part.rows for part in parts] == [slice(0, 1), slice(1, 2), slice(0, 5)]
        np.testing.assert_array_equal(np.concatenate([part.array for part in parts[:2]]), wide)


def test_an_array_that_has_no_contiguous_rows_comes_whole(tmp_path):
    columns = np.asfortranarray(np.arange(MIB, dtype=np.int32).reshape(1024, 1024))
    np.save(tmp_path / "x.npy", columns)
    with oc.open(tmp_path / "x.npy") as file:
        assert [part.rows for part in file.stream(window=WINDOW)] == [slice(0, 1024)]
        (part,) = file.stream(window=WINDOW)
        np.testing.assert_array_equal(part.array, columns)
