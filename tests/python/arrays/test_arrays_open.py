"""Opening files of named arrays; written with the format's own README (`write_tensors`) or the safetensors package."""

import errno
import os
import pickle
import random
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import assume, given, strategies as st
from tests.python.arrays.test_golden_arrays import NUMPY as DTYPES
from tests.support.safetensors_files import file_of

import onecopy as oc
from onecopy.arrays import Entry
from onecopy.memory import proc

PACKED = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}  # bits
names = st.text(max_size=30)


def random_bytes(size: int) -> bytes:
    return random.Random(size).randbytes(size)


# --- element types ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (2, 4), (0,), (3, 0, 2), (2, 1, 3)])
@pytest.mark.parametrize("shift", [0, 1])  # of the data: other writers align nothing
def test_every_element_type_opens_as_the_array_that_numpy_makes_of_the_bytes(write_tensors, name, shape, shift):
    dtype = DTYPES[name]
    data = random_bytes(dtype.itemsize * int(np.prod(shape)))
    if name == "BOOL":
        data = bytes(byte & 1 for byte in data)
    file = oc.open(write_tensors({"first": ("U8", [shift], bytes(shift)), "x": (name, list(shape), data)}))
    array = file["x"]
    assert (array.dtype, array.shape, array.tobytes()) == (dtype, shape, data)
    assert array.size == 0 or array.ctypes.data % 2**21 == file.entry("x").offset
    assert not array.flags.writeable
    numbers = np.frombuffer(data, dtype).reshape(shape)
    assert np.array_equal(array.astype(np.complex128), numbers.astype(np.complex128), equal_nan=True)


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("shape", [(8,), (4, 2), (0, 3), (2, 2, 4)])
def test_packed_elements_come_as_bytes_and_say_what_they_are(write_tensors, name, shape):
    data = random_bytes(PACKED[name] * int(np.prod(shape)) // 8)
    file = oc.open(write_tensors({"x": (name, list(shape), data)}))
    array, entry = file["x"], file.entry("x")
    assert (array.dtype, array.shape, array.tobytes()) == (np.uint8, (len(data),), data)
    assert (array.dtype.metadata["onecopy"], entry.dtype, entry.shape) == (name, name, shape)


# --- files of the safetensors package ---------------------------------------------------------------------------------


@pytest.mark.parametrize("metadata", [b"null", b" null ", b"nul", b"nulls", b'{"a":null}'])
def test_metadata_that_is_null_opens_where_the_safetensors_package_opens_it(path, metadata):
    path.write_bytes(
        file_of(b'{"__metadata__":%s,"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}' % metadata, b"1234")
    )
    if metadata.strip() == b"null":
        assert list(oc.open(path)) == list(safetensors.numpy.load_file(path)) == ["a"]
        return
    for open_file in (oc.open, safetensors.numpy.load_file):
        with pytest.raises((oc.FormatError, safetensors.SafetensorError)):
            open_file(path)


@given(name=names, other=names)
def test_a_name_is_found_and_another_is_not(write_tensors, name, other):
    assume("__metadata__" != name != other)  # of the format itself
    file = oc.open(write_tensors({name: ("U8", [1], b"x")}))
    assert list(file) == [name]
    assert (name in file, other in file, "\ud800" in file, 5 in file) == (True, False, False, False)
    assert file.entries == (file.entry(name),) == (Entry(name, "U8", (1,), 4096, 1),)
    assert file.get(other) is None
    for ask in (file.__getitem__, file.entry):
        with pytest.raises(KeyError) as raised:
            ask(other)
        assert raised.value.args == (other,)
        assert raised.value.__notes__ == [f"{file.path} has 1 array: {name!r}"]


def test_a_file_is_a_mapping_but_equal_only_to_itself(model):
    file, other = oc.open(model), oc.open(model)
    assert isinstance(file, Mapping)
    assert list(file.keys()) == ["w", "b"]
    assert [array.nbytes for array in file.values()] == [96, 16]
    assert len({file, file, other}) == 2
    assert (file.path, file.mode, file.mode_reason) == (str(model), "map", "as requested")


# --- views ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def model(write_tensors):
    numbers = np.arange(24, dtype=np.float32)
    return write_tensors({"w": ("F32", [6, 4], numbers.tobytes()), "b": ("F32", [4], numbers[:4].tobytes())})


@pytest.mark.parametrize("mode", ["map", "copy"])
def test_arrays_are_read_only_and_cannot_be_made_writeable(model, mode):
    array = oc.open(model, mode)["w"]
    for one in (array, array[1:], array.T, array.view(np.uint8)):
        assert not one.flags.writeable
        with pytest.raises(ValueError, match="WRITEABLE"):
            one.setflags(write=True)


def test_private_arrays_of_a_file_that_is_larger_than_memory(tmp_path):
    if Path("/proc/sys/vm/overcommit_memory").read_text().strip() == "2":
        pytest.skip("the kernel is configured to overcommit nothing")
    size = 3 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    path = tmp_path / "large.safetensors"
    path.write_bytes(file_of(b'{"a":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (size, size)))
    os.truncate(path, path.stat().st_size + size)  # a hole: no bytes on the disk
    with oc.open(path, private=True) as file:
        array = file["a"]
        array[size // 2] = 7
        assert int(array[size // 2 - 5 : size // 2 + 5].sum()) == 7
        del array


def test_private_arrays_are_writable_and_the_file_stays(model):
    before = model.read_bytes()
    with oc.open(model, private=True) as mine, oc.open(model) as shared:
        mine["w"][1] = 99
        assert mine["w"][1, 0] == 99
        assert shared["w"][1, 0] == 4
    assert model.read_bytes() == before


def test_an_array_keeps_the_memory_after_close_until_the_last_one_is_gone(model):
    with oc.open(model) as file:
        rows, other = file["w"][2:4], file["b"]
    assert (file.closed, file.views) == (True, 2)
    del other
    assert (file.views, rows.tolist()) == (1, [[8, 9, 10, 11], [12, 13, 14, 15]])
    del rows
    assert (file.views, proc.regions_of(os.getpid(), model)) == (0, [])


def test_a_closed_file_reports_it_and_still_has_a_repr(model):
    file = oc.open(model)
    assert repr(file) == f"<onecopy.ArrayFile {str(model)!r} 2 arrays, 112 B, map>"
    file.close()
    file.close()
    assert repr(file) == f"<onecopy.ArrayFile {str(model)!r} closed>"
    properties = [lambda name=name: getattr(file, name) for name in ("entries", "metadata", "nbytes", "identity")]
    asked = [lambda: file["w"], lambda: "w" in file, lambda: file.entry("w"), lambda: pickle.dumps(file), *properties]
    for use in (*asked, file.changed, file.warm, file.evict, file.residency, file.pin):
        with pytest.raises(ValueError, match=f"the file is closed: {model}"):
            use()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("options", [{}, {"mode": "copy"}, {"private": True}])
def test_a_pickle_is_a_small_handle_of_this_file_alone(model, protocol, options):
    file = oc.open(model, **options)
    text = pickle.dumps(file, protocol)
    assert len(text) < 600 + len(str(model))
    again = pickle.loads(text)
    assert again["w"].tobytes() == file["w"].tobytes()
    assert again["w"].flags.writeable == options.get("private", False)
    assert (again.identity, again.mode) == (file.identity, file.mode)
    model.with_suffix(".other").write_bytes(model.read_bytes())
    model.with_suffix(".other").replace(model)
    with pytest.raises(oc.errors.FileChanged) as raised:
        pickle.loads(text)
    assert (raised.value.errno, raised.value.filename) == (errno.ESTALE, str(model))


# --- shards -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("axis", "ranks"), [(0, 1), (0, 2), (0, 3), (0, 6), (1, 2), (1, 4), (-1, 2), (-2, 3)])
def test_shards_are_views_that_make_up_the_array(model, axis, ranks):
    file = oc.open(model)
    parts = [file.shard("w", rank, ranks, axis=axis) for rank in range(ranks)]
    assert len({part.shape for part in parts}) == 1
    assert np.array_equal(np.concatenate(parts, axis), file["w"])
    assert all(np.shares_memory(part, file["w"]) and not part.flags.writeable for part in parts)


SHARDS = {
    ValueError: [("w", 0, 4, 0), ("w", 2, 2, 0), ("w", -1, 2, 0), ("w", 0, 0, 0), ("w", 0, -2, 0), ("p", 0, 2, 0)]
}
SHARDS |= {IndexError: [("w", 0, 2, 2)], KeyError: [("missing", 0, 2, 0)]}


@pytest.mark.parametrize("error", SHARDS)
def test_a_shard_that_cannot_be_is_an_error(write_tensors, error):
    file = oc.open(write_tensors({"w": ("F32", [6, 4], bytes(96)), "p": ("F4", [3, 4], bytes(6))}))
    for name, rank, ranks, axis in SHARDS[error]:
        with pytest.raises(error):
            file.shard(name, rank, ranks, axis=axis)


def test_auto_maps_local_files_and_gives_the_reason(model):
    with oc.open(model, "auto") as file:
        assert file.mode == "map"
        assert file.mode_reason.startswith("mapped, because")
        assert pickle.loads(pickle.dumps(file)).mode == "map"
    with pytest.raises(FileNotFoundError):
        oc.open(model.with_name("none"), "auto")
    if not Path("/dev/shm").is_dir():
        pytest.skip("no /dev/shm here")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        assert "tmpfs" in oc.open(shutil.copy(model, folder), "auto").mode_reason
