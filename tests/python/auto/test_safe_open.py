"""`safetensors.safe_open(framework="np")` with `onecopy.auto`: what it returns, and what is shared."""

import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.support.children import run_python
from tests.support.safetensors_files import bytes_of

BEGIN = """
import os, sys
import numpy as np
import safetensors
original = safetensors.safe_open
import onecopy.auto
from safetensors import safe_open
path = sys.argv[1]
def calls():
    return [(call.shared, call.reason) for call in onecopy.auto.calls() if call.function == "safetensors.safe_open"]
def same(one, other):
    assert type(one) is type(other) is np.ndarray
    assert (one.dtype, one.shape) == (other.dtype, other.shape)
    assert one.strides == other.strides or not one.size
    assert one.flags.writeable and one.flags.aligned and one.tobytes() == other.tobytes()
def is_mapped(array):
    from onecopy.memory.addresses import Regions
    region = Regions().at(array.ctypes.data)
    return region is not None and region.path == path
"""


def run(path, code):
    return run_python(BEGIN + code, path)


ROWS = np.arange(600_000.0).reshape(300, 2000)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "a.safetensors"
    small = {"i": np.arange(5, dtype="i2"), "empty": np.zeros((0, 3)), "0-d": np.array(3.5)}
    save_file({"w": ROWS, "v": ROWS[:9], **small}, path, metadata={"step": "7"})
    return path


def test_arrays_are_those_of_safetensors_and_shared(path):
    run(
        path,
        f"""
with safe_open(path, "np") as found, original(path, "np") as plain:
    assert isinstance(found, safe_open) and isinstance(plain, safe_open) and not isinstance(1, safe_open)
    assert (found.keys(), found.offset_keys(), found.metadata()) == (
        plain.keys(), plain.offset_keys(), plain.metadata())
    for name in plain.keys():
        same(found.get_tensor(name), plain.get_tensor(name))
    arrays = safe_open(filename=path, framework="numpy").get_tensors()
    assert list(arrays) == list(plain.get_tensors()) and is_mapped(arrays["w"])
assert calls()[-1] == ({ROWS.nbytes + ROWS[:9].nbytes + 10 + 8}, ""), calls()
assert safe_open.__doc__ == original.__doc__ and safe_open | None
""",
    )


def test_each_call_returns_an_array_of_its_own(path):
    run(
        path,
        """
with safe_open(path, "np") as file:
    one, two = file.get_tensor("w"), file.get_tensor("w")
    part = file.get_slice("w")[:2]
    one[:] = -1
    assert is_mapped(one) and not is_mapped(two) and not is_mapped(part)
    assert two[1, 1] == 2001 == part[1, 1]
    rows = file.get_slice("v")
    parts = [rows[0:2], rows[2:4], rows[1:3], rows[0:9]]
    assert [is_mapped(part) for part in parts] == [True, True, False, False]
    parts[0][:] = parts[1][:] = 0
    assert parts[2][1, 1] == 4001 and parts[3][0, 1] == 1
assert one[0, 0] == -1
assert any(reason == "requested before" for _, reason in calls()), calls()
""",
    )


MAPPED = ["[:]", "[()]", "[2:4]", "[5]", "[-1]", "[3, 4]", "[3, 4:9]"]
COPIED = "[:, :2] [-3:] [:900] [900] [::2] [::-1] [5:2] [300:] [...] [...,0] [[]] [[1,2]] [True] [None] ['a'] [0,0,0]"


def test_slices_are_those_of_safetensors(path):
    run(
        path,
        f"""
mapped = {MAPPED}
for index in [*mapped, *{COPIED!r}.replace(", ", ",").split(), "[np.int64(3)]", "[np.int64(2):]", "[0:0]"]:
    with safe_open(path, "np") as found, original(path, "np") as plain:
        results = []
        for file in (found, plain):
            part = file.get_slice("w")
            assert part.get_shape() == [300, 2000] and part.get_dtype() == "F64"
            try:
                results.append(eval("part" + index))
            except BaseException as error:
                results.append(repr(error))
        if isinstance(results[1], str):
            assert results[0] == results[1] and index not in mapped, (index, results)
        else:
            same(*results)
            assert is_mapped(results[0]) == (index in mapped), index
""",
    )


def test_errors_are_those_of_safetensors(path):
    run(
        path,
        """
def result(call):
    try:
        return call()
    except BaseException as error:
        return repr(error)
def closed(cls):
    with cls(path, "np") as file:
        pass
    return [result(call) for call in (file.keys, lambda: file.get_tensor("w"), lambda: file.get_slice("w"))]
def missing(cls):
    file = cls(path, "np")
    return [result(lambda: getattr(file, call)(name)) for call in ("get_tensor", "get_slice") for name in ("none", 3)]
for cls in (safe_open, original):
    assert "closed" in closed(cls)[1]
assert closed(safe_open) == closed(original) and missing(safe_open) == missing(original)
for args in ((), (path,), (3, "np"), (path, "x"), (path + "x", "np"), (path, "np", "cuda"), (path, 3), ("/tmp", "np")):
    assert result(lambda: safe_open(*args)) == result(lambda: original(*args)), args
os.truncate(path, 2 << 20)
assert result(lambda: safe_open(path, "np")) == result(lambda: original(path, "np"))
assert not any(shared for shared, _ in calls())
""",
    )


def test_what_cannot_be_mapped_is_copied_with_the_reason(tmp_path):
    path = tmp_path / "a.safetensors"
    large = bytes(2 << 20)
    path.write_bytes(
        bytes_of({"b": ("U8", [1], b"x"), "w": ("F64", [1 << 18], large), "h": ("BF16", [1 << 20], large)})
    )
    run(
        path,
        """
import ml_dtypes
with safe_open(path, "np") as found, original(path, "np") as plain:
    for name in plain.keys():
        same(found.get_tensor(name), plain.get_tensor(name))
    found.get_slice("w")[:, ]
assert calls() == [(0, "has a dtype that numpy does not have"), (0, "not aligned in the file")], calls()
""",
    )


def test_other_backends_and_small_files_are_left_to_safetensors(path, tmp_path):
    save_file({"a": np.zeros(9)}, tmp_path / "small.safetensors")
    run(
        path,
        """
assert type(safe_open(path, "np", backend="pread")) is original
assert type(safe_open(os.path.dirname(path) + "/small.safetensors", "np")) is original
assert calls() == []
""",
    )


def test_a_file_that_is_replaced_while_it_is_opened_is_left_to_safetensors(path):
    run(
        path,
        """
from onecopy.auto import _safetensors
from safetensors.numpy import save_file
def opened(*args):
    save_file({"w": np.ones((300, 2000))}, path)
    return original(*args)
file = _safetensors._opened(opened, (path, "np"), {})
assert type(file) is original and file.get_tensor("w")[0, 0] == 1
""",
    )


def test_a_mapped_file_that_the_program_saves_to_is_replaced(path):
    run(
        path,
        """
with safe_open(path, "np") as file:
    weights = file.get_tensor("w")
with open(path, "wb") as new:
    new.write(b"x")
assert weights[2, 2] == 4002
""",
    )
