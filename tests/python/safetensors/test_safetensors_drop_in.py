"""`onecopy.safetensors` and its functions for numpy, beside those of safetensors."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from tests.support import hostile_files
from tests.support.refusals import refusal
from tests.support.safetensors_files import bytes_of

import onecopy as oc
from onecopy.arrays.entries import TYPES, to_numpy
from onecopy.memory.proc import Regions
from onecopy.safetensors import SafetensorError, safe_open
from onecopy.safetensors.numpy import load, load_file, save, save_file

WIDE = np.arange(30.0).reshape(10, 3)
ALL = {name: np.arange(1, 7).reshape(2, 3).astype(to_numpy(name)) for name in TYPES}
OTHERS = {"empty": np.zeros((0, 3), "f4"), "0-d": np.array(5, "i2"), "big": np.arange(3, dtype=">i4")}


@pytest.fixture
def wide(path) -> Path:
    safetensors.numpy.save_file({"w": WIDE}, path)
    return path


def check_same(found, expected):
    assert set(found) == set(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype.newbyteorder("<"), name
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.astype(array.dtype.newbyteorder("<")).tobytes()
        assert found[name].flags.writeable
        assert found[name].flags.aligned


@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_what_either_writes_the_other_reads_in_all_dtypes(path, backend):
    arrays = ALL | OTHERS
    safetensors.numpy.save_file(arrays, path, metadata={"step": "7"})
    check_same(load_file(path, backend=backend), arrays)
    save_file(arrays, path, metadata={"step": "7"})
    check_same(load_file(str(path), backend=backend), arrays)
    with safetensors.safe_open(path, "np") as theirs:
        known = {name: theirs.get_tensor(name) for name in arrays if not name.startswith("F8")}
        assert theirs.metadata() is not None
        assert theirs.metadata()["step"] == "7"
    check_same(known, {name: arrays[name] for name in known})


def test_the_bytes_of_save_are_those_of_safetensors():
    arrays = ALL | OTHERS | {'"é\x01/\x7f\U0001f600': np.zeros(1, "u1")}
    for metadata in (None, {"format": "é\n"}, {}):
        assert save(arrays, metadata) == safetensors.numpy.save(arrays, metadata)
    assert save({}) == safetensors.numpy.save({})
    check_same(load(save(ALL)), ALL)
    check_same(load(safetensors.numpy.save(OTHERS)), OTHERS)


@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_arrays_are_views_of_one_mapping_or_of_a_copy_and_writes_are_private(wide, backend):
    before = wide.read_bytes()
    found = load_file(wide, backend=backend)["w"]
    region = Regions().at(found.ctypes.data)
    if backend == "mmap":
        assert (region.path, region.perms) == (str(wide), "rw-p")
    else:
        assert region is None or not region.inode
    found[:] = 7
    assert wide.read_bytes() == before
    if backend == "pread":
        os.truncate(wide, 0)
    assert (found == 7).all()


def test_an_array_that_is_not_aligned_in_the_file_is_copied(path):
    path.write_bytes(bytes_of({"a": ("U8", [1], b"x"), "w": ("F64", [3], np.arange(3.0).tobytes())}))
    found = load_file(path)["w"]
    assert found.flags.aligned
    assert found.tolist() == [0, 1, 2]


def test_names_and_metadata_are_those_of_safetensors(path):
    arrays = {"b": np.zeros(2, "u1"), "a": np.zeros(3, "u2"), "c": np.zeros(1, "f8")}
    for metadata in (None, {"format": "pt", "x": "y"}):
        safetensors.numpy.save_file(arrays, path, metadata=metadata)
        with safe_open(path, "np") as ours, safetensors.safe_open(path, "np") as theirs:
            assert ours.keys() == theirs.keys() == ["a", "b", "c"]
            assert ours.offset_keys() == theirs.offset_keys() == ["c", "a", "b"]
            assert ours.metadata() == theirs.metadata() == metadata
            assert list(ours.get_tensors()) == list(theirs.get_tensors())
    save_file({"a": WIDE}, path, metadata={"x": "y"})
    with safe_open(path, "np") as file:
        assert file.metadata() == {"x": "y", "format": "pt"}  # which `save_file` adds, and nothing else that is shown


INDICES = [
    np.s_[:],
    np.s_[()],
    np.s_[:2],
    np.s_[:, :2],
    np.s_[0, :2],
    np.s_[2:, -1],
    np.s_[[]],
    np.s_[::2],
    np.s_[3, 1],
]


@pytest.mark.parametrize("index", [*INDICES, np.s_[..., 0]], ids=repr)
def test_slices_are_those_of_safetensors(wide, index):
    with safe_open(wide, "np") as ours, safetensors.safe_open(wide, "np") as theirs:
        mine = ours.get_slice("w")
        assert (mine.get_shape(), mine.get_dtype()) == ([10, 3], "F64")
        found, expected = mine[index], theirs.get_slice("w")[index]
    assert type(found) is type(expected) is np.ndarray
    assert found.shape == expected.shape
    assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    "index", [np.s_[-3:], np.s_[:20], np.s_[::-1], np.s_[5:2], np.s_[[0, 1]], np.s_[:, None]], ids=repr
)
def test_slices_that_safetensors_refuses_are_those_of_numpy(wide, index):
    with safe_open(wide, "np") as file, safetensors.safe_open(wide, "np") as theirs:
        assert np.array_equal(file.get_slice("w")[index], WIDE[index])
        with pytest.raises(Exception, match=r".") as refused:
            theirs.get_slice("w")[index]
        assert isinstance(refused.value, (safetensors.SafetensorError, OverflowError, SystemError))


@pytest.mark.parametrize("index", [np.s_[10], np.s_[2:, -6], np.s_[0, 0, 0]], ids=repr)
def test_an_index_out_of_range_is_an_error_of_safetensors(wide, index):
    for opened, error in ((safe_open, SafetensorError), (safetensors.safe_open, safetensors.SafetensorError)):
        with opened(wide, "np") as file, pytest.raises(error):
            file.get_slice("w")[index]


def test_results_of_one_open_file_are_views_of_one_memory_which_outlives_it_and_each_load_has_its_own(wide):
    with safe_open(wide, "np") as file:
        first, part = file.get_tensor("w"), file.get_slice("w")[2:4]
    other = load_file(wide)["w"]
    part[:] = -1
    assert first[2].tolist() == [-1, -1, -1]
    assert np.array_equal(other, WIDE)
    for call in (file.keys, file.metadata, file.get_tensors, lambda: file.get_tensor("w")):
        with pytest.raises(SafetensorError, match="closed"):
            call()
    file.close()


def test_unknown_names_and_arguments_are_errors_of_safetensors(wide):
    for module, error in (("onecopy.safetensors", SafetensorError), ("safetensors", safetensors.SafetensorError)):
        cls = sys.modules[module].safe_open
        for given in ({"framework": "x"}, {"framework": "np", "device": "cuda"}, {"framework": "np", "backend": "x"}):
            with pytest.raises(error):
                cls(wide, **given)
        with cls(wide, "np", None) as file:
            for call in (file.get_tensor, file.get_slice):
                with pytest.raises(error, match="none"):
                    call("none")
                with pytest.raises(TypeError):
                    call(3)
        with pytest.raises(TypeError):
            cls(3, "np")
    with pytest.raises(SafetensorError, match=r"framework must be one of 'pt', .*, not 'jax'"):
        safe_open(wide, "jax")


STRICTER = {"a space first", "nested 65 deep", "a later version of ours", "the last version of all"}
STRICTER |= {kind for kind in hostile_files.REFUSED if kind.startswith(("a struct ", "a kind that we"))}
"""Files that safetensors reads all the same: damaged files of onecopy, and headers that begin with a space."""


@pytest.mark.parametrize("kind", hostile_files.REFUSED)
@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_hostile_files_are_refused_with_a_reason(path, kind, backend):
    hostile = hostile_files.REFUSED[kind]
    path.write_bytes(hostile.make())
    with pytest.raises(SafetensorError) as raised:
        load_file(path, backend=backend)
    assert (refusal(raised.value), raised.value.path) == (hostile.refusal, str(path))
    if kind not in STRICTER:
        with pytest.raises(safetensors.SafetensorError):
            safetensors.numpy.load_file(path)


def test_files_of_other_formats_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", WIDE)
    (tmp_path / "empty.safetensors").touch()
    for name, reason in (("a.npy", "npy"), ("empty.safetensors", "it is empty")):
        with pytest.raises(SafetensorError, match=reason) as raised:
            load_file(tmp_path / name)
        assert str(raised.value).startswith(str(tmp_path / name))
    for data, reason in ((b"abc", "has 3$"), (b"", "empty")):
        with pytest.raises(SafetensorError, match=reason):
            load(data)


def test_errors_of_the_system_keep_their_class_and_others_are_those_of_onecopy(tmp_path):
    for name, error in (("none", FileNotFoundError), (".", IsADirectoryError), ("none/a", FileNotFoundError)):
        with pytest.raises(error) as raised:
            load_file(tmp_path / name)
        assert raised.value.filename == str(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        save_file({"a": WIDE}, tmp_path / "none/a.safetensors")
    assert issubclass(SafetensorError, oc.FormatError)
    assert SafetensorError.__module__ == "onecopy.safetensors"


@pytest.mark.parametrize(("dtype", "shape", "nbytes"), [("F4", [2, 4], 4), ("F6_E2M3", [4], 3)])
def test_packed_types_are_refused_and_the_other_arrays_are_read(path, dtype, shape, nbytes):
    path.write_bytes(bytes_of({"p": (dtype, shape, bytes(nbytes)), "a": ("U8", [1], b"x")}))
    with pytest.raises(SafetensorError, match=f"'p': numpy has no dtype for {dtype}"):
        load_file(path)
    with safe_open(path, "np") as file:
        assert file.get_tensor("a").tolist() == [ord("x")]


@pytest.mark.parametrize("array", [np.zeros(2, "c16"), np.array(["text"]), np.array([{}]), [1, 2]], ids=repr)
@pytest.mark.parametrize("write", [save_file, lambda arrays, _: save(arrays)])
def test_what_the_format_cannot_hold_is_refused_and_the_file_stays(wide, array, write):
    before = wide.read_bytes()
    with pytest.raises(SafetensorError, match="'bad'"):
        write({"bad": array}, wide)
    for metadata in ({"a": 1}, {1: "a"}):
        with pytest.raises(TypeError):
            save_file({"a": WIDE}, wide, metadata)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            save({"a": WIDE}, metadata)  # type: ignore[arg-type]
    with pytest.raises(SafetensorError, match="__metadata__"):
        write({"__metadata__": WIDE}, wide)
    with pytest.raises(SafetensorError, match=r"model\.safetensors: the metadata key 'onecopy' is reserved"):
        save_file({"a": WIDE}, wide, {"onecopy": "x"})
    assert wide.read_bytes() == before


def test_a_strided_array_is_written_in_its_order_where_safetensors_writes_other_bytes(path):
    part = {"w": WIDE[:, 1:]}
    save_file(part, path)
    for found in (load_file(path), load(save(part))):
        assert np.array_equal(found["w"], part["w"])
    safetensors.numpy.save_file(part, path)
    assert not np.array_equal(safetensors.numpy.load_file(path)["w"], part["w"])


def test_the_package_safetensors_need_not_be_installed_and_nothing_is_imported_early(python, tmp_path):
    code = """
    import sys
    import onecopy
    assert "onecopy.safetensors" not in sys.modules
    sys.modules["safetensors"] = None
    import onecopy.safetensors.numpy as drop_in, onecopy.safetensors.torch
    assert not {"numpy", "torch"} & set(sys.modules)
    import numpy as np
    drop_in.save_file({"w": np.ones(3)}, sys.argv[1])
    assert drop_in.load_file(sys.argv[1])["w"].tolist() == [1, 1, 1]
    assert drop_in.load(drop_in.save({"w": np.ones(3)}))["w"].sum() == 3
    assert "torch" not in sys.modules
    """
    python(code, tmp_path / "a.safetensors")
