"""Element types: what safetensors calls them, and what numpy, ml_dtypes and DLPack do. One table, read both ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np


class Type(NamedTuple):
    """One element type."""

    name: str
    """In the file."""
    numpy: str | None
    """numpy's own, little-endian; None: numpy has none."""
    ml_dtypes: str | None
    """The name in ml_dtypes, for those that numpy lacks."""
    dlpack: tuple[int, int]
    """DLPack's (type code, bits)."""


TYPES = (
    Type("BOOL", "?", None, (6, 8)),
    Type("U8", "u1", None, (1, 8)),
    Type("I8", "i1", None, (0, 8)),
    Type("F8_E5M2", None, "float8_e5m2", (12, 8)),
    Type("F8_E4M3", None, "float8_e4m3fn", (10, 8)),
    Type("F8_E8M0", None, "float8_e8m0fnu", (14, 8)),
    Type("F8_E4M3FNUZ", None, "float8_e4m3fnuz", (11, 8)),
    Type("F8_E5M2FNUZ", None, "float8_e5m2fnuz", (13, 8)),
    Type("I16", "<i2", None, (0, 16)),
    Type("U16", "<u2", None, (1, 16)),
    Type("F16", "<f2", None, (2, 16)),
    Type("BF16", None, "bfloat16", (4, 16)),
    Type("I32", "<i4", None, (0, 32)),
    Type("U32", "<u4", None, (1, 32)),
    Type("F32", "<f4", None, (2, 32)),
    Type("C64", "<c8", None, (5, 64)),
    Type("F64", "<f8", None, (2, 64)),
    Type("I64", "<i8", None, (0, 64)),
    Type("U64", "<u8", None, (1, 64)),
)
PACKED = ("F4", "F6_E2M3", "F6_E3M2")
"""Elements smaller than a byte: given as raw bytes."""

_NUMPY_ORDERS = tuple("<>|=")  # what numpy's own spelling of a type begins with

_BY_NAME = {one.name: one for one in TYPES}
_BY_NUMPY = {one.numpy.lstrip("<"): one.name for one in TYPES if one.numpy}
_BY_ML_DTYPES = {one.ml_dtypes: one.name for one in TYPES if one.ml_dtypes}
_BY_DLPACK = {one.dlpack: one.name for one in TYPES}


def is_raw(name: str) -> bool:
    """Return whether elements of this type are given as bytes: packed ones, and types that one format alone has."""
    return name not in _BY_NAME and name[:1] not in _NUMPY_ORDERS


def to_numpy(name: str) -> np.dtype[Any]:
    """Return the dtype for a type of the file.

    Types that numpy lacks (BF16, F8) come from ml_dtypes. Elements smaller than a byte, and types that only one format
    has, are bytes with the type's name in ``dtype.metadata["onecopy"]``. A type in numpy's own spelling ("<U5"), of a
    file that numpy wrote, is that dtype.
    """
    import numpy as np

    if name[:1] in _NUMPY_ORDERS:
        return np.dtype(name)
    if is_raw(name):
        return np.dtype("u1", metadata={"onecopy": name})
    one = _BY_NAME[name]
    if one.numpy is not None:
        return np.dtype(one.numpy)
    import ml_dtypes

    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, str(one.ml_dtypes)))
    return found


def of_numpy(dtype: np.dtype[Any]) -> str | None:
    """Return the file's name for a dtype of any byte order; None where safetensors has none."""
    marked: Any = dtype.metadata
    if marked and "onecopy" in marked:
        return str(marked["onecopy"])
    if dtype.name in _BY_ML_DTYPES:
        return _BY_ML_DTYPES[dtype.name]
    return _BY_NUMPY.get("?" if dtype.kind == "b" else f"{dtype.kind}{dtype.itemsize}")


def in_safetensors(name: str) -> bool:
    """Return whether `save` can write elements of a type that a file of any format calls so.

    Examples
    --------
    >>> [name for name in ("F32", ">f4", "<U5", "Q4_K", "INT4", "COMPLEX128", "F4") if in_safetensors(name)]
    ['F32', '>f4']
    """
    return not is_raw(name) and of_numpy(to_numpy(name)) is not None


def item_size(name: str) -> int:
    """Return the bytes of one element of a type that safetensors has; packed ones have none."""
    return _BY_NAME[name].dlpack[1] // 8


def of_dlpack(code: int, bits: int) -> str | None:
    """Return the file's name for a DLPack type; None where safetensors has none."""
    return _BY_DLPACK.get((code, bits))
