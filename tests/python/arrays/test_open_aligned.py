"""`oc.open(path, align=...)`: the file as it is where it is aligned, else a copy that is made once per machine."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.support.places import GOLDEN

import onecopy as oc
import onecopy.records
from onecopy import arrays


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def odd(write_tensors):
    """A file of another writer: the second array begins 8 bytes behind a multiple of 4096."""
    data = np.arange(300, dtype=np.float32)
    tensors = {"step": ("I64", [1], bytes(8)), "w": ("F32", [300], data.tobytes()), "b": ("BF16", [2], b"abcd")}
    return write_tensors(tensors, {"by": "them"})


def aligned(file: oc.ArrayFile, align: int) -> bool:
    return all(array.__array_interface__["data"][0] % align == 0 for array in file.values())


def test_a_file_of_eight_byte_alignment_becomes_an_aligned_copy(odd, cache):
    assert oc.open(odd).entry("w").offset % 64 == 8
    assert not cache.exists()
    with oc.open(odd, align=64, warm=True, verify=True) as file:
        assert file.residency().share == 1
        assert aligned(file, 64)
        assert list(file) == ["step", "w", "b"]
        assert np.array_equal(file["w"], np.arange(300))
        assert file["b"].tobytes() == b"abcd"
        assert file.metadata["by"] == "them"
        assert file.path.startswith(str(cache))
        assert file.mode_reason.endswith(f"an aligned copy, because 2 of 3 arrays of {odd} are not aligned to 64 bytes")


def test_what_is_aligned_is_opened_as_it_is(tmp_path, cache):
    path = tmp_path / "ours.safetensors"
    oc.save(path, {"a": np.zeros(3, np.uint8), "b": np.ones(64)})
    with oc.open(path, align=64) as file:
        assert (file.path, file.mode_reason) == (str(path), "as requested; every array is aligned to 64 bytes")
    assert not cache.exists()
    with oc.open(path, align=4096) as file:
        assert aligned(file, 4096)


def test_the_copy_is_made_once_and_anew_when_the_file_changes(odd, write_tensors):
    first = oc.open(odd, align=64).path
    inode = Path(first).stat().st_ino
    again = oc.open(odd, "copy", align=64)
    assert (again.path, Path(again.path).stat().st_ino, again.mode) == (first, inode, "copy")
    assert oc.open(odd, align=128).path != first
    write_tensors({"step": ("I64", [1], bytes(8)), "w": ("F32", [3], b"\1" * 12)})
    with oc.open(odd, align=64, private=True) as changed:
        assert changed.path != first
        assert changed["w"].tobytes() == b"\1" * 12
        changed["w"][0] = 5
    assert oc.open(odd, align=64)["w"].tobytes() == b"\1" * 12


def test_a_set_is_copied_into_one_file_and_anew_when_a_shard_changes(odd, tmp_path, write_tensors):
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"w": odd.name, "step": odd.name}}))
    with oc.open(index, align=64) as file:
        assert list(file) == ["w", "step"]
        assert isinstance(file, oc.ArrayFile)
        before = file.path
    write_tensors({"step": ("I64", [1], bytes(8)), "w": ("F32", [3], b"\1" * 12)})
    with oc.open(index, align=64) as file:
        assert file.path != before
        assert file["w"].tobytes() == b"\1" * 12


@pytest.mark.parametrize("in_shards", [False, True])
def test_a_file_that_is_replaced_meanwhile_is_reported(odd, tmp_path, monkeypatch, in_shards):
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"w": odd.name}}))
    save = arrays.save

    def replace(target, file, **options):
        save(target, file, **options)
        shutil.copy(odd, tmp_path / "new")
        (tmp_path / "new").replace(odd)

    monkeypatch.setattr(arrays, "save", replace)
    with pytest.raises(oc.errors.FileChanged) as error:
        oc.open(index if in_shards else odd, align=64)
    assert error.value.filename == str(index if in_shards else odd)
    assert [one.state for one in oc.Store().ls() if one.state == "ready"] == []


def test_a_type_that_safetensors_has_not_and_records_are_not_moved(tmp_path):
    with pytest.raises(oc.FormatError, match=r"small\.onnx.*'i4', which is INT4"):
        oc.open(GOLDEN / "onnx" / "small.onnx", align=64)
    onecopy.records.save(tmp_path / "rows.oc", ["a", "b"])
    for align in (64, 4096):
        with pytest.raises(oc.FormatError, match=r"rows\.oc.*records"):
            oc.open(tmp_path / "rows.oc", align=align)


@pytest.mark.parametrize("align", [0, -8, 3, 96, 4 << 20])
def test_an_alignment_is_a_power_of_two(odd, align):
    with pytest.raises(ValueError, match="power of two"):
        oc.open(odd, align=align)
