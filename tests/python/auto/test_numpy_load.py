"""`numpy.load` and `safetensors.numpy.load_file` with `onecopy.auto`: what they return, and what is shared."""

import os
import zipfile

import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.support.children import run_python

LARGE = (700, 300)
"""Shape of arrays of more than 1 MiB, in float64."""

BEGIN = """
import io, os, pathlib, sys
import numpy as np
original = np.load
import onecopy.auto
path = pathlib.Path(sys.argv[1])
def shared():
    return [call.shared for call in onecopy.auto.calls()]
def reasons():
    return [call.reason for call in onecopy.auto.calls()]
def same(one, other):
    assert type(one) is type(other)
    assert (one.dtype, one.shape) == (other.dtype, other.shape)
    assert one.strides == other.strides or not one.size
    assert one.flags.writeable and one.tobytes() == other.tobytes()
"""


def run(path, code):
    return run_python(BEGIN + code, path)


@pytest.fixture
def npy(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.arange(np.prod(LARGE), dtype=float).reshape(LARGE))
    return path


ARRAYS = {
    "float64": np.arange(np.prod(LARGE), dtype=float).reshape(LARGE),
    "fortran": np.asfortranarray(np.arange(np.prod(LARGE), dtype=">i8").reshape(LARGE)),
    "structured": np.zeros(100_000, [("a", "f8"), ("b", "u1"), ("c", "S7")]),
    "texts": np.array([f"text {i}" for i in range(50_000)]),
    "booleans": np.ones((3, 1 << 20), bool),
}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("given", ["path", "str(path)", "path.open('rb')"])
def test_what_is_returned_is_equal_and_shared(tmp_path, name, given):
    path = tmp_path / "a.npy"
    np.save(path, ARRAYS[name])
    run(path, f"same(np.load({given}), original(path)); assert shared() == [{ARRAYS[name].nbytes}]")


def test_a_file_object_ends_up_behind_each_array(tmp_path):
    path = tmp_path / "two.npy"
    with path.open("wb") as file:
        for name in ("float64", "booleans"):
            np.save(file, ARRAYS[name])
        file.write(b"end")
    run(
        path,
        """
with path.open("rb") as file, path.open("rb") as plain:
    same(np.load(file), original(plain))
    same(np.load(file), original(plain))
    assert file.read() == b"end"
assert len(shared()) == 2
""",
    )


def test_writes_are_private(npy):
    run(npy, "a = np.load(path); a[:] = 7; assert original(path)[1, 1] == 301 and np.load(path)[1, 1] == 301")


def save_npz(path):
    with path.open("wb") as file:
        np.savez(file, a=ARRAYS["float64"])


OTHERS = {
    "small": lambda path: np.save(path, np.zeros(10)),
    "npz": save_npz,
    "objects": lambda path: np.save(path, np.array([{"a": i} for i in range(200_000)], dtype=object)),
    "pickle": lambda path: path.write_bytes(b"\x80\x04N." + bytes(1 << 20)),
    "damaged": lambda path: path.write_bytes(b"\x93NUMPY\x01\x00\xff\xff{" + bytes(2 << 20)),
    "truncated": lambda path: (np.save(path, ARRAYS["float64"]), os.truncate(path, (1 << 20) + 5)),
    "empty": lambda path: path.write_bytes(b""),
}


@pytest.mark.parametrize("allow", [False, True])
@pytest.mark.parametrize("name", OTHERS)
def test_what_cannot_be_mapped_is_read_as_without_the_module(tmp_path, name, allow):
    path = tmp_path / "a.npy"
    OTHERS[name](path)
    run(
        path,
        f"""
def result(load):
    try:
        found = load(path, allow_pickle={allow})
        if not hasattr(found, "files"):
            return repr(found)
        with found:
            return found["a"].tobytes()
    except Exception as error:
        return repr(error)
assert result(np.load) == result(original), (result(np.load), result(original))
assert not any(shared())
""",
    )


def test_a_missing_file_is_the_error_of_numpy(tmp_path):
    run(
        tmp_path / "none.npy",
        """
try:
    np.load(path)
except FileNotFoundError as error:
    assert error.filename == str(path)
else:
    raise AssertionError
""",
    )


def test_other_arguments_and_streams_are_left_to_numpy(npy):
    run(
        npy,
        """
assert isinstance(np.load(path, mmap_mode="r"), np.memmap)
assert isinstance(np.load(path, "r"), np.memmap)
same(np.load(io.BytesIO(path.read_bytes())), original(path))
assert shared() == []
""",
    )


def place_of(path, name):
    """Return where the data of a member of an archive begins in the file."""
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        file.seek(archive.getinfo(name).header_offset + 26)
        return file.tell() + 4 + sum(int.from_bytes(file.read(2), "little") for _ in "12")


@pytest.fixture
def npz(tmp_path):
    """An npz file with aligned and other arrays."""
    path = tmp_path / "a.npz"
    large = ARRAYS["float64"]
    np.savez(path, **{f"{'x' * n}": large for n in range(1, 9)}, bytes=ARRAYS["booleans"], small=np.zeros(3))
    return path


def test_arrays_of_npz_files_are_shared_where_they_are_aligned(npz):
    names = ["x" * n for n in range(1, 9)]
    aligned = [name for name in names if place_of(npz, f"{name}.npy") % 8 == 0]
    assert 0 < len(aligned) < len(names)
    total = len(aligned) * ARRAYS["float64"].nbytes + ARRAYS["booleans"].nbytes
    run(
        npz,
        f"""
with np.load(path) as found, original(path) as plain:
    assert type(found) is type(plain) and found.files == plain.files
    for name in plain.files:
        same(found[name], plain[name])
    same(found["bytes.npy"], plain["bytes"])
    assert max(shared()) == {total}
    assert [reason for reason in reasons() if reason] == ["not aligned in the file"]
    first, second = found["bytes"], found["bytes"]
    first[:] = False
    assert second.all() and plain["bytes"].all() and found["bytes"].all()
    try:
        found["none"]
    except KeyError as error:
        assert str(error) == "'none is not a file in the archive'"
assert not first.any() and second.all()
for load in (np.load, original):
    closed = load(path)
    closed.close()
    try:
        closed["bytes"]
    except AttributeError:
        continue
    raise AssertionError
with path.open("rb") as file:
    same(np.load(file)["bytes"], original(path)["bytes"])
""",
    )


def test_names_of_10_characters_align_the_arrays_of_an_npz_file(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, **{f"array_{i:04}": ARRAYS["float64"] for i in range(4)})
    run(
        path,
        f"""
with np.load(path) as found:
    arrays = [found[name] for name in found]
assert max(shared()) == 4 * {ARRAYS["float64"].nbytes}
""",
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("damage", ["a byte of the data", "the local header", "the length", "compressed", "replaced"])
def test_damaged_and_other_npz_files_are_read_as_without_the_module(npz, damage):
    begin = place_of(npz, "bytes.npy")
    raw = bytearray(npz.read_bytes())
    if damage == "a byte of the data":
        raw[begin + 5000] ^= 1
    elif damage == "the local header":
        raw[raw.rfind(b"PK\3\4", 0, begin)] ^= 1
    elif damage == "the length":
        at = raw.index(b"'shape': (3, 1048576)", begin)
        raw[at : at + 21] = b"'shape': (9, 1048576)"
    if damage == "compressed":
        np.savez_compressed(npz, bytes=ARRAYS["booleans"])
    else:
        npz.write_bytes(raw)
    run(
        npz,
        f"""
import shutil
def result(load):
    with load(path) as found:
        if {damage == "replaced"}:
            shutil.copy(path, f"{{path}}.new")
            np.savez(f"{{path}}.new", bytes=np.zeros(1 << 21, bool))
            os.replace(f"{{path}}.new.npz", path)
        try:
            return found["bytes"].tobytes()
        except Exception as error:
            return repr(error)
assert result(np.load) == result(original) or {damage == "replaced"}
assert not any(shared())
""",
    )


def test_files_of_safetensors_are_mapped(tmp_path):
    path = tmp_path / "a.safetensors"
    save_file({"b": ARRAYS["float64"], "a": np.arange(5, dtype="i2"), "empty": np.zeros((0, 3))}, path)
    run(
        path,
        """
import safetensors.numpy
from safetensors.numpy import load_file
found, plain = load_file(path), dict(safetensors.safe_open.__wrapped__(path, "np").get_tensors())
assert set(found) == set(plain)
for name in plain:
    same(found[name], plain[name])
found["b"][:] = 0
assert load_file(str(path))["b"][1, 1] == 301
assert len(shared()) == 1 and shared()[0] > 1 << 20
""",
    )


def test_damaged_files_of_safetensors_are_its_errors(tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(b"\xff" * (2 << 20))
    run(
        path,
        """
from safetensors import SafetensorError
from safetensors.numpy import load_file
try:
    load_file(path)
except SafetensorError:
    assert shared() == []
else:
    raise AssertionError
""",
    )
