"""`save`, and the conversion of NumPy arrays, DLPack tensors and buffers to contiguous little-endian bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from onecopy import _core
from onecopy.arrays.entries import BY_DLPACK, PACKED, READ_SUFFIXES, in_safetensors, nbytes_of, of_numpy, of_torch
from onecopy.arrays.streaming import is_larger_than_memory
from onecopy.base.tensor_values import expect_memory, is_tensor, resolved
from onecopy.base.text import non_negative, path_text

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from onecopy.arrays.entries import Entry

CHUNK = 16 << 20  # bytes that are copied at a time

Spec = tuple[str, str, tuple[int, ...]]
"""(name, element type in the file, shape)."""


class VerifyReport(NamedTuple):
    """The result of a successful `ArrayFile.verify`; damaged bytes raise `onecopy.ChecksumError` instead."""

    bytes: int
    """Number of bytes compared, in whole blocks."""
    seconds: float
    """Duration in seconds."""
    gib_per_s: float
    """Speed in units of 2**30 bytes per second."""
    threads: int
    """Number of threads."""


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

    The file appears complete or not at all: `save` writes a temporary file in the same folder, flushes it to disk and
    renames it. Processes that have the replaced file open still see its old contents. The permissions follow the umask;
    a symbolic link at `path` is followed. At most 16 MiB are copied at a time, whatever the size of the arrays.

    Parameters
    ----------
    path
        Path of the file; an existing file is replaced.
    arrays
        A mapping from names to NumPy arrays (including dtypes of ml_dtypes), CPU tensors of any framework (DLPack), or
        objects with the buffer protocol. If a flag conjugates, negates or zeroes a torch tensor, the resulting values
        are written. Each value is looked up twice: first for its type and shape, then for its data. An `ArrayFile`
        larger than half of the available memory is read with `ArrayFile.stream`, and its pages are evicted.
    metadata
        Text keys and values to store. "format" is set to "pt" if it is missing, because some readers require it.
    align
        Alignment of every array in bytes, a power of two from 64 to 2 MiB. Gaps are filled with arrays named "#0",
        "#1", ... that onecopy hides and other readers show. None: no fillers; arrays whose size is a multiple of 64
        bytes are aligned to 64 bytes, other arrays to their item size.
    checksum
        Whether to store CRC-32C checksums for every 2 MiB and for the header.
    durable
        Whether to wait until the file is on disk. False: all processes see the complete file immediately, but if a
        power failure or a system crash occurs within the next minute, the file may be empty or contain zeros, and the
        file that it replaced is lost. Use False for data that can be rebuilt; most other tools do not wait either.
    progress
        Called after every 16 MiB, and after each array, with (bytes done, bytes in total). If it raises an exception,
        `save` stops and passes the exception on, and the target does not change.

    Raises
    ------
    OSError
        The folder does not exist, permission is denied, or the disk is full. If the file system can reserve space, a
        full disk is detected before anything is written.
    FormatError, TypeError, ValueError
        A name is reserved or duplicate, safetensors lacks the element type, a value is not one block of memory (sparse,
        quantised, nested and meta tensors, masked arrays), or the path has another format's suffix (".npy", ".pt",
        ".gguf").

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
    check_texts(names, metadata)
    align = None if align is None else non_negative("align", align)
    specs = [describe(name, arrays[name]) for name in names]
    writer = _core.make_writer(
        path_text(path), specs, metadata=dict(metadata or {}), align=align, checksum=checksum, durable=durable
    )
    done, total = 0, sum(nbytes_of(dtype, shape) for _, dtype, shape in specs)
    for name, value in _in_order(arrays, [specs[number] for number in writer.order], total):
        for chunk in chunks(name, value):
            for piece in [chunk] if progress is None else _pieces(chunk):
                writer.write(piece)
                done += len(piece)
                if progress is not None:
                    progress(done, total)
    writer.commit()


def _in_order(arrays: Mapping[str, Any], specs: list[Spec], total: int) -> Iterator[tuple[str, Any]]:
    """Yield the values to write. If they come from an open file that is larger than memory, yield arrays in parts."""
    if hasattr(arrays, "stream") and is_larger_than_memory(total):
        for name, _, part in arrays.stream([name for name, *_ in specs], order="names"):
            yield name, part
        return
    for spec in specs:
        value = arrays[spec[0]]
        if describe(spec[0], value) != spec:
            raise ValueError(f"{spec[0]!r}: its type or shape changed while it was being saved")
        yield spec[0], value


def not_savable(entries: Iterable[Entry]) -> dict[str, str]:
    """Return the names and types of the arrays that `save` cannot write, such as packed, quantised and text arrays."""
    return {entry.name: entry.dtype for entry in entries if not in_safetensors(entry.dtype)}


_OTHER_SUFFIXES = (*READ_SUFFIXES, ".pkl", ".h5", ".hdf5", ".parquet", ".arrow", ".zarr")
"""Suffixes of other formats, which `save` does not accept."""


def _check_target(path: str, arrays: object) -> None:
    """Raise ValueError if `path` has another format's suffix, and TypeError if `arrays` is not a mapping."""
    if path.lower().endswith(_OTHER_SUFFIXES):
        raise ValueError(f"{path}: wrong suffix: save writes safetensors files; use .safetensors or .oc")
    if not hasattr(arrays, "keys"):
        raise TypeError(
            f"arrays must be a dict from names to arrays, not a {type(arrays).__name__}: save(path, {{'name': x}})"
        )


def check_texts(names: list[str], metadata: Mapping[str, str] | None) -> None:
    """Raise TypeError if a name, or a metadata key or value, is not a string."""
    texts = [text for item in (metadata or {}).items() for text in item]
    for what, found in (("a name", names), ("metadata", texts)):
        for text in found:
            if not isinstance(text, str):
                raise TypeError(f"{what} must be a string, not {text!r}")


def describe(name: str, value: Any) -> Spec:
    """Return a value's name, element type and shape. Raise TypeError if safetensors cannot store the value."""
    if is_tensor(value):
        return _spec_of_tensor(name, value)
    dtype, array = _as_array(name, value)
    if dtype in PACKED:
        raise TypeError(f"{name!r}: cannot save packed {dtype} elements: they are bytes without the original shape")
    return name, dtype, array.shape


def _spec_of_tensor(name: str, tensor: Any) -> Spec:
    try:
        expect_memory(tensor)
    except (TypeError, ValueError) as error:  # torch raises ValueError for a parameter without a shape
        raise TypeError(f"{name!r}: {error}") from None
    dtype, shape = of_torch(tensor.dtype), tuple(tensor.shape)
    if dtype is None or (dtype in PACKED and not shape):
        raise TypeError(f"{name!r}: safetensors has no element type for {tensor.dtype} of shape {list(shape)}")
    return name, dtype, (*shape[:-1], 2 * shape[-1]) if dtype in PACKED else shape  # torch counts pairs


def chunks(name: str, value: Any) -> Iterator[NDArray[np.uint8]]:
    """Yield a value's little-endian bytes in C order. Contiguous values are not copied, unless `is_lazy` is true."""
    if is_tensor(value):
        import torch

        tensor = resolved(value)  # viewed as integers, because numpy lacks some types of torch
        array = tensor.view(getattr(torch, {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}[tensor.itemsize])).numpy()
    else:
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
    if array.nbytes <= CHUNK or (array.flags.c_contiguous and array.dtype == little):
        yield np.ascontiguousarray(array, little).reshape(-1).view(np.uint8)
    else:
        rows = max(1, CHUNK * len(array) // array.nbytes)
        for start in range(0, len(array), rows):
            # Splits a row that is too large along its first axis.
            yield from _chunks(array[start] if rows == 1 else array[start : start + rows])


def _as_array(name: str, value: Any) -> tuple[str, NDArray[Any]]:
    import numpy as np

    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name!r}: cannot save a masked array: save the result of filled() and the mask")
    if isinstance(value, np.ndarray | np.generic):
        return _of_numpy(name, np.asarray(value))
    if hasattr(value, "__dlpack__"):
        return _of_dlpack(name, value)
    try:
        return _of_numpy(name, np.asarray(memoryview(value)))
    except (TypeError, ValueError):
        raise TypeError(
            f"{name!r}: a {type(value).__name__} is not a numpy array, a DLPack tensor or a buffer"
        ) from None


def _of_numpy(name: str, array: NDArray[Any]) -> tuple[str, NDArray[Any]]:
    dtype = of_numpy(array.dtype)
    if dtype is None:
        raise TypeError(f"{name!r}: safetensors has no element type for the numpy dtype {array.dtype}")
    return dtype, array


def _of_dlpack(name: str, value: Any) -> tuple[str, NDArray[Any]]:
    import numpy as np

    try:
        memory, first, code, bits, shape, strides = _core.import_dlpack(
            value.detach() if hasattr(value, "detach") else value
        )
    except (TypeError, RuntimeError, BufferError, ValueError) as error:
        reason = _why_not_in_place(value) if isinstance(error, TypeError) else error
        raise TypeError(f"{name!r}: cannot read a {type(value).__name__} in place: {reason}") from error
    dtype = BY_DLPACK.get((code, bits))
    if dtype is None:
        raise TypeError(f"{name!r}: safetensors has no element type for DLPack type code {code} with {bits} bits")
    item = bits // 8
    # Any dtype of the same size has the same layout.
    array = np.ndarray(shape, f"<V{item}" if item > 8 else f"<u{item}", memory, first, [item * s for s in strides])
    return dtype, array


def _why_not_in_place(value: Any) -> object:
    """Return why the compiled module cannot import a DLPack tensor: its device, or an error from its framework."""
    try:
        device, _ = value.__dlpack_device__()
        value.__dlpack__()
    except Exception as error:  # frameworks raise various errors
        return error
    return f"it is on a device of DLPack type {device}, and only CPU tensors can be saved"
