"""Write the golden files of arrays with onecopy, and what is in them: python -m tests.golden.arrays.make [folder].

Run with the version of onecopy that README.md names. The expectations (*.json, one for each file) are made from the
values below by numpy alone: onecopy is not asked what it wrote. No test runs this module as a program.
"""

import contextlib
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

HERE = Path(__file__).parent

OTHER_TYPES = {
    "BF16": ml_dtypes.bfloat16, "F8_E5M2": ml_dtypes.float8_e5m2, "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu, "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
}  # fmt: skip
TYPES = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "I16": "<i2", "U16": "<u2", "F16": "<f2", "I32": "<i4", "U32": "<u4",
    "F32": "<f4", "C64": "<c8", "F64": "<f8", "I64": "<i8", "U64": "<u8",
} | OTHER_TYPES  # fmt: skip
"""What safetensors calls each type that `onecopy.save` can write, and numpy's or ml_dtypes' type."""


class Golden(NamedTuple):
    """One golden file: its arrays by name, and how they are written."""

    arrays: dict[str, np.ndarray]
    metadata: Mapping[str, str] = MappingProxyType({})
    align: int | None = None
    checksum: bool = True
    writer: str = "save"
    """"save": `onecopy.save`. "image": `onecopy.images.open` of a TIFF file, which uses `Scratch.save`."""
    image: dict[str, Any] | None = None
    """What the metadata of an image say, apart from the versions of the codec."""


def every_type() -> dict[str, np.ndarray]:
    """Return an array of each type, with the bytes 0, 1, 2, ... and, of booleans, zeros and ones."""
    raw = np.arange(48, dtype=np.uint8)
    return {name: (raw % 2 if name == "BOOL" else raw).view(dtype).copy() for name, dtype in TYPES.items()}


def extremes() -> dict[str, np.ndarray]:
    """Return arrays with the first and last number of each integer type, and the special floats, NaN payloads too."""
    found = {}
    for name, dtype in TYPES.items():
        if name not in OTHER_TYPES and np.dtype(dtype).kind in "iu":
            facts = np.iinfo(dtype)
            found[name] = np.array([facts.min, 0, 1, facts.max], dtype)
    found["F64"] = np.array(
        [0, 1 << 63, 0x7FF0 << 48, 0xFFF0 << 48, 0x7FF8 << 48, 0xFFF8_0000_0000_0001, 0x7FF0_0000_0000_0001, 1], "u8"
    ).view("f8")
    found["F32"] = np.array([0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0x7F800001, 1], "u4").view(
        "f4"
    )
    found["F16"] = np.arange(0x7BF0, 0x7C10, dtype="u2").view("f2")
    return found


def shapes() -> dict[str, np.ndarray]:
    """Return arrays that are empty, have no axes or many, or are not in C order in memory."""
    grid = np.arange(24, dtype="<i4").reshape(2, 3, 4)
    return {
        "scalar": np.array(-2.5),
        "numpy scalar": np.int16(-7),
        "no rows": np.zeros((0, 3), "<f4"),
        "no columns": np.zeros((3, 0, 2), "<u8"),
        "one": np.ones((1, 1, 1, 1), "u1"),
        "grid": grid,
        "Fortran order": np.asfortranarray(grid),
        "reversed": grid[::-1, :, ::-2],
        "broadcast": np.broadcast_to(np.arange(3, dtype="<u2"), (4, 3)),
        "big-endian": np.array([1, -2, 300], ">i4"),
    }


def odd_names() -> dict[str, np.ndarray]:
    """Return arrays whose names are not ASCII, need escapes in JSON, or mean something elsewhere."""
    names = [
        "", "a", "A", "käse", "重み.0", "\U0001d518", "e\u0301", "é", "sp ace", 'q"', "back\\slash", "tab\tnl\n\x01",
        "a.b/c", "../up", "__metadata", "#hash", "\x7f\u2028", "n" * 300,
    ]  # fmt: skip
    return {name: np.array([number], "<u2") for number, name in enumerate(names)}


ODD_METADATA = {"": "empty key", "käse": "重み", 'quo"te': "back\\slash\n\x01", "empty": "", "long": "x" * 1000}
PICTURE = (np.arange(12 * 10 * 3) % 251).astype("u1").reshape(12, 10, 3)
GOLDEN = {
    "types.safetensors": Golden(every_type()),
    "extremes.safetensors": Golden(extremes()),
    "shapes.safetensors": Golden(shapes()),
    "names.safetensors": Golden(odd_names(), ODD_METADATA),
    "nothing.safetensors": Golden({}),
    "unchecked.safetensors": Golden(every_type() | {"empty": np.zeros(0, "u1")}, checksum=False),
    "align64.oc": Golden(shapes(), align=64),
    "align512_unchecked.oc": Golden(
        {name: every_type()[name] for name in ("BOOL", "BF16", "F64")},
        {"format": "np", "step": "12"},
        align=512,
        checksum=False,
    ),
    "align8192.oc": Golden({"a": np.arange(5, dtype="<f8")}, align=8192),
    "image.oc": Golden(
        {"data": PICTURE}, writer="image", image={"level": 1, "levels": [[24, 20, 3], [12, 10, 3]], "axes": "YXS"}
    ),
}
"""The files by their names."""


def save(path: Path, golden: Golden) -> None:
    """Write a file of `GOLDEN`."""
    import onecopy as oc

    if golden.writer == "save":
        oc.save(path, golden.arrays, golden.metadata, golden.align, checksum=golden.checksum)
    else:
        save_image(path, *golden.arrays.values())


def save_image(path: Path, pixels: np.ndarray) -> None:
    """Write what the store keeps of the second level of a compressed TIFF file whose path is cells.tif."""
    import tifffile

    import onecopy as oc

    path = path.absolute()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        source = Path("cells.tif")  # the metadata have the path as it was given
        with tifffile.TiffWriter(source) as writer:
            options: dict[str, Any] = {"photometric": "rgb", "compression": "zlib", "metadata": None}
            writer.write(np.repeat(np.repeat(pixels, 2, 0), 2, 1), subifds=1, **options)
            writer.write(pixels, subfiletype=1, **options)
        with oc.images.open(source, 1, store="store") as image:
            assert image.artefact is not None
            path.write_bytes(image.artefact.path.read_bytes())


def expectation(golden: Golden) -> dict[str, Any]:
    """Return what a file holds, as JSON has it; made from the values."""
    arrays = []
    for name, array in golden.arrays.items():
        little = np.asarray(array).astype(np.asarray(array).dtype.newbyteorder("<"))
        kind = next(type_ for type_, dtype in TYPES.items() if np.dtype(dtype) == little.dtype)
        raw = np.ascontiguousarray(little).tobytes().hex()
        arrays.append({"name": name, "dtype": kind, "shape": list(little.shape), "bytes": raw})
    return {
        "metadata": {"format": "pt", **golden.metadata},
        "image": golden.image,
        "align": golden.align,
        "checksum": golden.checksum,
        "arrays": arrays,
    }


def main(folder: Path) -> None:
    """Write everything."""
    for name, golden in GOLDEN.items():
        save(folder / name, golden)
        facts = expectation(golden)
        lines = ",\n".join(json.dumps(array) for array in facts.pop("arrays"))
        (folder / f"{name}.json").write_text(f'{json.dumps(facts)[:-1]}, "arrays": [\n{lines}\n]}}\n')
        print(name, (folder / name).stat().st_size, "bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
