"""Write the golden .npy and .npz files, and what numpy says is in them: python make.py."""

import sys
import zipfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from lines import line, refused

HERE = Path(__file__).parent
OURS = {
    "|b1": "BOOL", "|i1": "I8", "|u1": "U8", "<i2": "I16", "<u2": "U16", "<i4": "I32", "<u4": "U32", "<i8": "I64",
    "<u8": "U64", "<f2": "F16", "<f4": "F32", "<f8": "F64", "<c8": "C64",
}  # fmt: skip

ARRAYS = {
    "c_order": np.arange(6, dtype="f4").reshape(2, 3),
    "fortran": np.asfortranarray(np.arange(24, dtype="i2").reshape(2, 3, 4)),
    "fortran_flat": np.asfortranarray(np.arange(3, dtype="u8").reshape(1, 3, 1)),
    "scalar": np.array(2.5),
    "empty": np.zeros((0, 3), "f2"),
    "booleans": np.array([True, False]),
    "complex64": np.arange(2, dtype="c8"),
    "complex128": np.arange(2, dtype="c16"),
    "big_endian": np.arange(3, dtype=">f4"),
    "words": np.array(["a", "bcd"]),
    "bytes": np.array([b"a", b"bcd"]),
    "dates": np.array(["2026-11-20", "NaT"], "M8[ns]"),
    "spans": np.array([1, 2], "m8[25s]"),
    "void": np.frombuffer(b"abcdef", "V3"),
    "slice": np.arange(12, dtype="i4").reshape(3, 4)[:, ::2],
}


def strides(array: np.ndarray) -> tuple[int, ...]:
    """Return them in elements where the file says that the first axis runs fastest, and it is not all the same."""
    fastest_first = array.flags.f_contiguous and not array.flags.c_contiguous
    return tuple(one // array.itemsize for one in array.strides) if fastest_first else ()


def expected(file: str, name: str, array: np.ndarray) -> str:
    """Return the line of one array."""
    kind = OURS.get(array.dtype.str, array.dtype.str)
    return line(file, name, kind, array.shape, strides(array), array.tobytes())


def main() -> None:
    """Write everything."""
    said = []
    for name, array in ARRAYS.items():
        np.save(HERE / f"{name}.npy", array)
        said.append(expected(f"{name}.npy", "array", np.load(HERE / f"{name}.npy")))
    for version in (2, 3):
        with Path(HERE / f"version{version}.npy").open("wb") as file:
            np.lib.format.write_array(file, ARRAYS["fortran"], version=(version, 0))
        said.append(expected(f"version{version}.npy", "array", ARRAYS["fortran"]))
    np.save(HERE / "objects.npy", np.array([{}, None], object), allow_pickle=True)
    said.append(refused("objects.npy", "contains Python objects, which could only be read by unpickling"))
    np.save(HERE / "structured.npy", np.zeros(2, [("a", "f4"), ("b", "i8")]))
    said.append(refused("structured.npy", "has a structured type, which is not supported"))

    some = {name: ARRAYS[name] for name in ("c_order", "fortran", "scalar", "words", "empty")} | {"a/b": np.arange(3)}
    np.savez(HERE / "some.npz", **some)
    said += [expected("some.npz", name, array) for name, array in some.items()]
    np.savez_compressed(HERE / "compressed.npz", **some)
    said.append(refused("compressed.npz", "write them with numpy.savez instead of savez_compressed"))
    np.savez(HERE / "mixed.npz", w=ARRAYS["c_order"], objects=np.array([{}], object))
    with zipfile.ZipFile(HERE / "mixed.npz", "a") as archive:
        archive.write(HERE / "fortran.npy", "packed.npy", compress_type=zipfile.ZIP_DEFLATED)
        archive.writestr("notes.txt", "hello")
    said.append(expected("mixed.npz", "w", ARRAYS["c_order"]))
    (HERE / "expected.txt").write_text("\n".join(said) + "\n")


if __name__ == "__main__":
    main()
