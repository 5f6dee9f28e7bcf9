"""Files of arrays that onecopy 0.1.0 wrote: every later version opens them and gives the same arrays, bit for bit.

The expectations beside the files were made from the values by numpy, not read back by onecopy. What today's writer
writes is not compared with the files: the format may gain fields.
"""

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.support.places import GOLDEN
from tests.support.rows import same

import onecopy as oc

FOLDER = GOLDEN / "arrays"
FILES = sorted(path.name.removesuffix(".json") for path in FOLDER.glob("*.json"))
NUMPY = {
    "BOOL": np.dtype("?"), "U8": np.dtype("u1"), "I8": np.dtype("i1"), "I16": np.dtype("<i2"), "U16": np.dtype("<u2"),
    "F16": np.dtype("<f2"), "I32": np.dtype("<i4"), "U32": np.dtype("<u4"), "F32": np.dtype("<f4"),
    "C64": np.dtype("<c8"), "F64": np.dtype("<f8"), "I64": np.dtype("<i8"), "U64": np.dtype("<u8"),
    "BF16": np.dtype(ml_dtypes.bfloat16), "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn), "F8_E8M0": np.dtype(ml_dtypes.float8_e8m0fnu),
    "F8_E4M3FNUZ": np.dtype(ml_dtypes.float8_e4m3fnuz), "F8_E5M2FNUZ": np.dtype(ml_dtypes.float8_e5m2fnuz),
}  # fmt: skip
"""The type of the array that `onecopy.open` gives for each type of the file; written out, so that it cannot drift."""


def expected_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return found


def array_of(one: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(bytes.fromhex(one["bytes"]), NUMPY[one["dtype"]]).reshape(one["shape"])


def has_checksums_of_data(expected: dict[str, Any]) -> bool:
    return expected["checksum"] and any(one["bytes"] for one in expected["arrays"])


def check(path: Path, expected: dict[str, Any], mode: str) -> None:
    """Open a file and compare everything with the expectation."""
    with oc.open(path, mode) as file:
        assert file.kind == "arrays"
        if expected["checksum"]:
            assert file.verify().bytes >= sum(len(one["bytes"]) // 2 for one in expected["arrays"])
        else:
            with pytest.raises(oc.errors.NoChecksum, match="checksum"):
                file.verify()
        assert list(file) == [one["name"] for one in expected["arrays"]]
        metadata = file.metadata
        if expected["image"]:
            about = json.loads(metadata.pop("image"))
            assert {key: about[key] for key in expected["image"]} == expected["image"]
            assert metadata.pop("source") == "cells.tif"
        assert metadata == expected["metadata"]
        for one in expected["arrays"]:
            entry, array = file.entry(one["name"]), file[one["name"]]
            assert (entry.dtype, list(entry.shape)) == (one["dtype"], one["shape"])
            assert same(array, array_of(one)), one["name"]
            assert not array.flags.writeable
            if expected["align"]:
                assert entry.offset % expected["align"] == 0


@pytest.mark.parametrize("mode", ["map", "copy"])
@pytest.mark.parametrize("name", FILES)
def test_a_golden_file_gives_exactly_the_arrays_that_were_written_and_verifies(name: str, mode: str) -> None:
    check(FOLDER / name, expected_of(name), mode)


@pytest.mark.parametrize("name", [name for name in FILES if has_checksums_of_data(expected_of(name))])
def test_a_damaged_golden_file_does_not_verify(name: str, tmp_path: Path) -> None:
    """The checksums of the old file are compared with its bytes, and not merely accepted."""
    with oc.open(FOLDER / name) as file:
        at = next(entry.offset for entry in file.entries if entry.nbytes)
    content = bytearray((FOLDER / name).read_bytes())
    content[at] ^= 1
    (tmp_path / name).write_bytes(content)
    with oc.open(tmp_path / name) as file, pytest.raises(oc.ChecksumError):
        file.verify()


def test_the_golden_image_opens_as_an_image() -> None:
    expected = expected_of("image.oc")
    with oc.images.open(FOLDER / "image.oc", 1) as image:
        assert same(image.array, array_of(expected["arrays"][0]))
        assert (image.level, image.axes) == (1, "YXS")
        assert [list(level) for level in image.levels] == expected["image"]["levels"]


def test_no_golden_file_lacks_its_expectation_and_its_maker_and_they_hold_every_element_type() -> None:
    from tests.golden.arrays import make

    files = {path.name for path in FOLDER.iterdir() if path.suffix in {".oc", ".safetensors"}}
    assert files == set(FILES) == set(make.GOLDEN)
    assert len(files) >= 10
    assert {one["dtype"] for name in FILES for one in expected_of(name)["arrays"]} == set(NUMPY)


@pytest.mark.parametrize("name", FILES)
def test_the_values_of_the_maker_are_those_of_the_expectation(name: str, tmp_path: Path) -> None:
    """Today's writer and reader agree with the expectation, so the maker has not drifted away from the files."""
    from tests.golden.arrays import make

    golden = make.GOLDEN[name]
    if golden.writer == "image":
        pytest.importorskip("tifffile")
        pytest.importorskip("imagecodecs")
    assert make.expectation(golden) == expected_of(name)
    make.save(tmp_path / name, golden)
    check(tmp_path / name, expected_of(name), "map")
