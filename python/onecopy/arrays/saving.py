"""`save`, and what people hand to it as contiguous little-endian bytes: numpy arrays, DLPack tensors, buffers.

Part of `onecopy.arrays`, which re-exports `save`. numpy is imported where it is used, because opening needs none.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from onecopy import _core
from onecopy.arguments import non_negative, path_text
from onecopy.arrays import dtypes

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from onecopy.arrays.file import Entry

CHUNK = 16 << 20  # bytes; what is not contiguous is copied this much at a time

Spec = tuple[str, str, tuple[int, ...]]
"""(name, dtype as in the file, shape)"""


def save(
    path: str | os.PathLike[str],
    arrays: Mapping[str, Any],
    metadata: Mapping[str, str] | None = None,
    align: int | None = None,
    *,
    checksum: bool = True,
    durable: bool = True,
    progress: Callable[[int, int], object] | None = None,
) -> None:
    """Write arrays to a safetensors file that is laid out for mapping.

    The file appears whole or not at all: it is written beside the target, flushed to the disk, and put in its place by
    a rename. Readers of an older file keep it. Its mode follows the umask; a symbolic link in the target's place is
    followed. Peak memory does not grow with the data (at most 16 MiB are held).

    Parameters
    ----------
    path
        The target.
    arrays
        Names to arrays: numpy arrays (also of ml_dtypes), CPU tensors of any framework (DLPack), anything with the
        buffer protocol. Each is asked for twice: once for its type and shape, once for its data. An open `ArrayFile`
        will do.
    metadata
        Text for text; "format" is "pt" unless you give another, because some readers ask for it.
    align
        Bytes, a power of two from 64 to 2 MiB: every array starts on it, and gaps are filled with arrays named "#0",
        "#1", ... that onecopy hides and other readers show. None: no fillers; arrays whose size is a multiple of 64
        start on 64, the others on their item size.
    checksum
        Store CRC-32C checksums of every 2 MiB and of the header.
    durable
        Wait until the disk has it all. False: every process sees the whole file at once, but a power cut or a crash of
        the system within the next minute may leave it empty or with zeros in it; the file that it replaced is lost
        then, too. For what can be made again. Takes as long as other tools take, which do not wait.
    progress
        Called after every 16 MiB, and after each array, with (bytes done, bytes in total); raising in it stops the
        work, and the target stays as it was.

    Raises
    ------
    OSError
        No folder, no permission, no space (known before anything is written, where the file system can reserve).
    FormatError, TypeError, ValueError
        A name twice or reserved; an element type that safetensors does not have; a path that ends as another format's
        do (".npy", ".pt", ".gguf"), where whoever opens it would be misled.

    Examples
    --------
    >>> import numpy as np, onecopy as oc, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.safetensors")
    >>> oc.save(path, {"weight": np.zeros((2, 3), np.float32), "step": np.int64(7)})
    >>> oc.open(path)["step"].item()
    7
    """
    _check_target(path_text(path), arrays)
    names = list(arrays)
    _check_texts(names, metadata)
    align = None if align is None else non_negative("align", align)
    specs = [describe(name, arrays[name]) for name in names]
    writer = _core.make_writer(path_text(path), specs, dict(metadata or {}), align, checksum, durable)
    done, total = 0, sum(prod(shape) * dtypes.item_size(dtype) for _, dtype, shape in specs)
    for number in writer.order:
        spec = specs[number]
        value = arrays[names[number]]
        if describe(names[number], value) != spec:
            raise ValueError(f"{names[number]!r} changed its type or shape while it was being saved")
        for chunk in chunks(names[number], value):
            for piece in [chunk] if progress is None else _pieces(chunk):
                writer.write(piece)
                done += len(piece)
                if progress is not None:
                    progress(done, total)
    writer.commit()


def not_savable(entries: Iterable[Entry]) -> dict[str, str]:
    """Return the arrays that `save` cannot write, and their types: quantised, packed, text, complex of 16 bytes, ..."""
    return {entry.name: entry.dtype for entry in entries if not dtypes.in_safetensors(entry.dtype)}


OTHERS = (
    ".npy",
    ".npz",
    ".pt",
    ".pth",
    ".gguf",
    ".onnx",
    ".ort",
    ".pkl",
    ".h5",
    ".hdf5",
    ".parquet",
    ".arrow",
    ".zarr",
)
"""Names under which other programs, and their users, expect another format."""


def _check_target(path: str, arrays: object) -> None:
    """Raise for a name that promises another format, and for what is no dict of arrays."""
    if path.lower().endswith(OTHERS):
        raise ValueError(f"{path}: save writes safetensors files, whatever their name: call it .safetensors, or .oc")
    if not hasattr(arrays, "keys"):
        raise TypeError(
            f"save takes a dict of names to arrays, not a {type(arrays).__name__}: save(path, {{'name': x}})"
        )


def _check_texts(names: list[str], metadata: Mapping[str, str] | None) -> None:
    """Raise TypeError for a name, or a key or value of the metadata, that is no text."""
    for what, text in [("a name", name) for name in names] + [
        ("metadata", t) for kv in (metadata or {}).items() for t in kv
    ]:
        if not isinstance(text, str):
            raise TypeError(f"{what} must be text, not {text!r}")


def describe(name: str, value: Any) -> Spec:
    """Return name, element type and shape; TypeError for what safetensors does not have."""
    dtype, array = _as_array(name, value)
    if dtype in dtypes.PACKED:
        raise TypeError(f"{name!r}: packed {dtype} arrays have lost their shape and cannot be saved again")
    return name, dtype, array.shape


def chunks(name: str, value: Any) -> Iterator[NDArray[np.uint8]]:
    """Yield the value's bytes in C order, little-endian; what is contiguous already is not copied."""
    _, array = _as_array(name, value)
    yield from _chunks(array)


def _pieces(chunk: NDArray[np.uint8]) -> Iterator[NDArray[np.uint8]]:
    for start in range(0, len(chunk), CHUNK):
        yield chunk[start : start + CHUNK]


def _chunks(array: NDArray[Any]) -> Iterator[NDArray[np.uint8]]:
    import numpy as np

    little = array.dtype.newbyteorder("<")
    if array.size == 0:
        return
    if array.flags.c_contiguous and array.dtype == little:
        yield array.reshape(-1).view(np.uint8)
    elif array.nbytes <= CHUNK:
        yield np.ascontiguousarray(array, little).reshape(-1).view(np.uint8)
    else:
        rows = max(1, CHUNK * len(array) // array.nbytes)
        for start in range(0, len(array), rows):
            # One row that is still too large is cut along its own first axis.
            yield from _chunks(array[start] if rows == 1 else array[start : start + rows])


def _as_array(name: str, value: Any) -> tuple[str, NDArray[Any]]:
    import numpy as np

    if isinstance(value, np.ndarray | np.generic):
        return _of_numpy(name, np.asarray(value))
    if hasattr(value, "__dlpack__"):
        return _of_dlpack(name, value)
    try:
        return _of_numpy(name, np.asarray(memoryview(value)))
    except (TypeError, ValueError):
        raise TypeError(
            f"{name!r} is a {type(value).__name__}: neither a numpy array, nor a DLPack tensor, nor a buffer"
        ) from None


def _of_numpy(name: str, array: NDArray[Any]) -> tuple[str, NDArray[Any]]:
    dtype = dtypes.of_numpy(array.dtype)
    if dtype is None:
        raise TypeError(f"{name!r}: safetensors has no element type for numpy's {array.dtype}")
    return dtype, array


def _of_dlpack(name: str, value: Any) -> tuple[str, NDArray[Any]]:
    import numpy as np

    try:
        memory, first, code, bits, shape, strides = _core.import_dlpack(
            value.detach() if hasattr(value, "detach") else value
        )
    except (TypeError, RuntimeError, BufferError, ValueError) as error:
        raise TypeError(
            f"{name!r}: {type(value).__name__} cannot be read in place ({error}); is it on a GPU?"
        ) from error
    dtype = dtypes.of_dlpack(code, bits)
    if dtype is None:
        raise TypeError(f"{name!r}: safetensors has no element type for DLPack's type code {code} of {bits} bits")
    item = bits // 8
    # Bytes are all that is needed: an unsigned type of the same size says where they lie.
    array = np.ndarray(shape, f"<V{item}" if item > 8 else f"<u{item}", memory, first, [item * s for s in strides])
    return dtype, array
