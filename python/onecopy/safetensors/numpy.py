"""The functions of ``safetensors.numpy``: arrays in copy-on-write mappings of safetensors files.

BF16 and F8 use dtypes from ml_dtypes. NumPy has no packed types (F4, F6), so loading them raises SafetensorError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onecopy.safetensors.files import loaded, safe_open, serialized, write

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

__all__ = ["load", "load_file", "save", "save_file"]


def load_file(filename: str | os.PathLike[str], *, backend: str = "mmap") -> dict[str, NDArray[Any]]:
    """Return all arrays in a file by name, in the order in which they are stored, without reading their data.

    The arrays are writable: a written page becomes private to the process, and the file never changes. An array that is
    not aligned in the file is copied.

    Parameters
    ----------
    filename
        Path of a safetensors file.
    backend
        "mmap": views of a mapping. "pread": the file is read into private memory.

    Raises
    ------
    SafetensorError
        The file is not a valid safetensors file, or contains a packed type.
    OSError
        The file cannot be opened.

    Examples
    --------
    >>> import numpy as np, tempfile, pathlib
    >>> from onecopy.safetensors.numpy import load_file, save_file
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.safetensors")
    >>> save_file({"weight": np.arange(3.0)}, path)
    >>> load_file(path)["weight"]
    array([0., 1., 2.])
    """
    with safe_open(filename, "np", backend=backend) as file:
        return file.get_tensors()


def save_file(
    tensor_dict: dict[str, NDArray[Any]], filename: str | os.PathLike[str], metadata: dict[str, str] | None = None
) -> None:
    """Write arrays of any byte order and layout to a safetensors file that is laid out for mapping.

    The file appears complete or not at all. Processes that have a replaced file open still see its old contents.

    Parameters
    ----------
    tensor_dict
        Arrays by name; dtypes from ml_dtypes are supported.
    filename
        Path of the file; an existing file is replaced.
    metadata
        Text keys and values to store. "format" is set to "pt" if it is missing.

    Raises
    ------
    SafetensorError
        safetensors lacks the element type, or a name is reserved.
    TypeError
        A name, or a metadata key or value, is not a str.
    OSError
        The folder does not exist, permission is denied, or the disk is full.

    Examples
    --------
    >>> import numpy as np, tempfile, pathlib
    >>> from onecopy.safetensors.numpy import save_file
    >>> save_file({"weight": np.zeros((2, 3), np.float32)}, pathlib.Path(tempfile.mkdtemp(), "model.safetensors"))
    """
    write(filename, tensor_dict, metadata)


def load(data: bytes) -> dict[str, NDArray[Any]]:
    """Return all arrays in the bytes of a safetensors file, in private memory.

    The bytes pass through a temporary file. Raises the same errors as `load_file`.

    Examples
    --------
    >>> import numpy as np
    >>> from onecopy.safetensors.numpy import load, save
    >>> load(save({"weight": np.arange(3.0)}))["weight"]
    array([0., 1., 2.])
    """
    return loaded(load_file, data)


def save(tensor_dict: dict[str, NDArray[Any]], metadata: dict[str, str] | None = None) -> bytes:
    """Return arrays as the bytes of a safetensors file, identical to the result of ``safetensors.numpy.save``.

    Raises the same errors as `save_file`.

    Examples
    --------
    >>> import numpy as np
    >>> from onecopy.safetensors.numpy import save
    >>> len(save({"weight": np.arange(3.0)}))
    96
    """
    return serialized(tensor_dict, metadata)
