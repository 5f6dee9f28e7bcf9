"""`safe_open`, and functions that the modules for NumPy and torch share."""

from __future__ import annotations

import errno
import json
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

from onecopy import arrays
from onecopy.arrays import saving
from onecopy.arrays.entries import PACKED, TYPES, is_raw, nbytes_of
from onecopy.base.text import path_text
from onecopy.errors import FormatError, Kind, retyped
from onecopy.files.mapping import Closeable

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping

    from onecopy.arrays import ArrayFile, Entry
    from onecopy.files.mapping import Mode

__all__ = ["SafetensorError", "safe_open"]

FRAMEWORKS = {"pt": "pt", "torch": "pt", "pytorch": "pt", "np": "np", "numpy": "np"}
"""Short names of frameworks, by all accepted names."""
_MODES: dict[str, Mode] = {"mmap": "map", "pread": "copy"}
"""The mode of `onecopy.open` for each backend."""


class SafetensorError(FormatError):
    """A file is not a valid safetensors file, or an argument cannot be used with it.

    This is not the exception of the same name in the package ``safetensors``: import it from the package whose
    functions you call. It is a subclass of `onecopy.FormatError`, and so of ValueError.
    """


SafetensorError.__module__ = "onecopy.safetensors"  # what users import and read in a traceback


class safe_open(Closeable):  # noqa: N801 - the name of the class in safetensors
    """An open safetensors file that returns arrays or tensors by name, as views of a copy-on-write mapping.

    Parameters
    ----------
    filename
        Path of the file, or a URL, which is fetched once per machine, as with `onecopy.open`.
    framework
        "pt", "torch" or "pytorch": torch tensors. "np" or "numpy": NumPy arrays.
    device
        The device of tensors: its name, an integer for an accelerator, or a ``torch.device``. None: the CPU. Tensors on
        another device are complete copies. NumPy supports only the CPU.
    backend
        "mmap": the file is mapped. "pread": the whole file is read into private memory when it is opened, so that later
        accesses cannot fail, for example on a network file system.

    Raises
    ------
    SafetensorError
        The file is not a valid safetensors file, or an argument is unknown.
    OSError
        FileNotFoundError, PermissionError, IsADirectoryError, ... with ``filename`` and ``errno``.

    Examples
    --------
    >>> import numpy as np, tempfile, pathlib
    >>> from onecopy.safetensors import safe_open
    >>> from onecopy.safetensors.numpy import save_file
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.safetensors")
    >>> save_file({"weight": np.arange(8.0).reshape(4, 2)}, path)
    >>> with safe_open(path, framework="np") as file:
    ...     print(file.keys(), file.get_slice("weight")[1:3, 0])
    ['weight'] [2. 4.]
    """

    def __init__(
        self, filename: str | os.PathLike[str], framework: str, device: Any = "cpu", *, backend: str = "mmap"
    ) -> None:
        for name, given, known in (("framework", framework, FRAMEWORKS), ("backend", backend, _MODES)):
            if given not in known:
                raise SafetensorError(f"{name} must be one of {', '.join(map(repr, known))}, not {given!r}")
        self._device = "cpu" if device is None else device
        self._is_numpy = FRAMEWORKS[framework] == "np"
        if self._is_numpy and self._device != "cpu":
            raise SafetensorError(f"device must be 'cpu' for numpy, not {device!r}")
        private = str(self._device).partition(":")[0] == "cpu"
        self._opened: ArrayFile | None = _open(filename, _MODES[backend], private=private)

    def keys(self) -> list[str]:
        """Return the names of the arrays in the file, sorted."""
        return sorted(self._file)

    def offset_keys(self) -> list[str]:
        """Return the names of the arrays in the order in which they are stored."""
        return [entry.name for entry in sorted(self._file.entries, key=lambda one: (one.offset, one.nbytes))]

    def metadata(self) -> dict[str, str] | None:
        """Return the file's metadata, without onecopy's own entry, or None if there is no metadata."""
        return self._file.metadata or None

    def get_tensor(self, name: str) -> Any:
        """Return an array or tensor without reading it. Raise SafetensorError if there is no array with that name."""
        return self._get([name])[name]

    def get_tensors(self) -> dict[str, Any]:
        """Return all arrays or tensors by name, in the order in which they are stored, without reading their data."""
        return self._get(self.offset_keys())

    def get_slice(self, name: str) -> Slice:
        """Return an array whose parts are read when indexed. Raise SafetensorError if there is no such array."""
        entry = self._entry(name)
        whole = self._array(entry) if self._is_numpy else _tensors(self._file, [entry], "cpu")[name]
        return Slice(entry, whole, "cpu" if self._is_numpy else self._device)

    def close(self) -> None:
        """Close the file; arrays and tensors stay valid. Further calls do nothing."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    @property
    def _file(self) -> ArrayFile:
        if self._opened is None:
            raise SafetensorError("the file is closed")
        return self._opened

    def _entry(self, name: str) -> Entry:
        try:
            return self._file.entry(name)
        except KeyError:
            if not isinstance(name, str):
                raise TypeError(f"the name of an array must be a str, not {name!r}") from None
            raise SafetensorError(
                f"there is no array named {name!r}: keys() lists the names", path=self._file.path
            ) from None

    def _get(self, names: list[str]) -> dict[str, Any]:
        entries = [self._entry(name) for name in names]
        if self._is_numpy:
            return {entry.name: self._array(entry) for entry in entries}
        return _tensors(self._file, entries, self._device)

    def _array(self, entry: Entry) -> Any:
        if is_raw(entry.dtype):
            raise SafetensorError(
                f"{entry.name!r}: numpy has no dtype for {entry.dtype} elements", Kind.UNSUPPORTED, path=self._file.path
            )
        array = self._file[entry.name]
        return array if array.flags.aligned else array.copy()


class Slice:
    """An array in an open file, which returns parts of itself when indexed. `safe_open.get_slice` returns it.

    It keeps the file mapped, even after the file is closed.
    """

    def __init__(self, entry: Entry, whole: Any, device: Any) -> None:
        self._entry, self._whole, self._device = entry, whole, device

    def get_shape(self) -> list[int]:
        """Return the shape of the whole array."""
        return list(self._entry.shape)

    def get_dtype(self) -> str:
        """Return the name of the element type in the file: "F32", "BF16", ..."""
        return self._entry.dtype

    def __getitem__(self, index: Any) -> Any:
        """Return a part, indexed as in NumPy or torch. It is a view if the index consists of integers and slices.

        For F4, an index counts elements, and the part consists of pairs. Raise SafetensorError if an index would divide
        a pair, or, with NumPy, is out of range; torch raises an IndexError.
        """
        if hasattr(self._whole, "untyped_storage"):
            part = self._whole[self._in_pairs(index)]
            return part if self._device == "cpu" else part.to(self._device)
        import numpy as np

        try:
            return np.asarray(self._whole[index])  # an array also for a single element
        except IndexError as error:
            raise SafetensorError(f"{self._entry.name!r} has the shape {self._entry.shape}: {error}") from None

    def _in_pairs(self, index: Any) -> Any:
        """Convert an index of F4 elements to an index of pairs. Raise SafetensorError if it divides a pair."""
        parts = index if isinstance(index, tuple) else (index,)
        axes = sum(part is not None and part is not Ellipsis for part in parts)
        is_from_the_end = any(part is Ellipsis for part in parts[:-1])
        if self._entry.dtype != "F4" or not (axes == len(self._entry.shape) or is_from_the_end):
            return index
        last = parts[-1].indices(self._entry.shape[-1]) if isinstance(parts[-1], slice) else (1, 1, 1)
        if last[0] % 2 or last[1] % 2 or last[2] != 1:
            raise SafetensorError(
                f"{self._entry.name!r}: F4 stores the last axis in pairs: {parts[-1]!r} must be a slice with even "
                "bounds and no step",
                Kind.UNSUPPORTED,
            )
        return (*parts[:-1], slice(last[0] // 2, last[1] // 2))


def _open(filename: str | os.PathLike[str], mode: Mode, *, private: bool) -> ArrayFile:
    """Open a safetensors file, with writable pages if `private`. Raise SafetensorError for other formats."""
    path = path_text(filename)
    try:
        file = arrays.open_arrays(path, mode, private=private)
    except FormatError as error:
        raise retyped(error, SafetensorError, str(error)) from error
    except OSError as error:
        if error.errno == errno.ENODATA:
            raise SafetensorError("not a safetensors file: it is empty", Kind.NOT_THIS_FORMAT, path=path) from error
        raise
    if file.container == "safetensors":
        return file
    file.close()
    raise SafetensorError(
        f"expected a safetensors file, found the format {file.container}: use onecopy.open",
        Kind.NOT_THIS_FORMAT,
        path=path,
    )


def _tensors(file: ArrayFile, entries: list[Entry], device: Any) -> dict[str, Any]:
    """Return tensors in a file's mapping, or on a device. As in torch, items of F4 consist of two elements."""
    from onecopy.frameworks.torch._load import dtype_in_torch, expect_torch, tensors_in  # here: it loads numpy

    expect_torch()
    for entry in entries:
        if dtype_in_torch(entry.dtype, entry.shape) is None:
            reason = f"torch has no dtype for {entry.dtype} elements of the shape {list(entry.shape)}"
            raise SafetensorError(f"{entry.name!r}: {reason}", Kind.UNSUPPORTED, path=file.path)
    return tensors_in(file, [entry.name for entry in entries], device=device)[0]


def loaded(load_file: Callable[..., dict[str, Any]], data: bytes) -> dict[str, Any]:
    """Return the result of `load_file` for a file that consists of these bytes, in private memory."""
    with NamedTemporaryFile(suffix=".safetensors") as file:
        file.write(data)
        file.flush()
        return load_file(file.name, backend="pread")


_RANKS = {name: rank for rank, name in enumerate(["BOOL", *PACKED, *list(TYPES)[1:]])}
"""The ranks of element types. safetensors sorts arrays by rank, with the highest first."""


def write(path: str | os.PathLike[str], values: Mapping[str, Any], metadata: Mapping[str, str] | None) -> None:
    """Write arrays or CPU tensors with `onecopy.save`. Raise SafetensorError if the format cannot store them."""
    _described(values)
    try:
        saving.save(path, values, metadata)
    except FormatError as error:
        raise retyped(error, SafetensorError, f"{path_text(path)}: {error}") from error


def serialized(values: Mapping[str, Any], metadata: Mapping[str, str] | None) -> bytes:
    """Return the bytes that safetensors writes for arrays or CPU tensors."""
    specs = sorted(_described(values), key=lambda spec: (-_RANKS[spec[1]], spec[0]))
    saving.check_texts([name for name, _, _ in specs], metadata)
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    end = 0
    for name, dtype, shape in specs:
        begin, end = end, end + nbytes_of(dtype, shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    data: Iterator[Any] = (chunk for name, _, _ in specs for chunk in saving.chunks(name, values[name]))
    return b"".join([len(text).to_bytes(8, "little"), text, *data])


def _described(values: Mapping[str, Any]) -> list[saving.Spec]:
    if "__metadata__" in values:
        raise SafetensorError("the name '__metadata__' is reserved by the format", Kind.UNSUPPORTED)
    try:
        return [saving.describe(name, value) for name, value in values.items()]
    except TypeError as error:
        raise SafetensorError(str(error)) from None
