"""`save_object`: write any Python object that can be pickled, with its buffers as arrays that can be mapped."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from onecopy.objects.layout import BUFFERS, METADATA, MIN_BYTES, PICKLE, SMALL, SMALL_ALIGNMENT, About

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from onecopy.objects.pickling import Part

__all__ = ["python_version", "save_object"]


def save_object(
    path: str | os.PathLike[str],
    value: object,
    *,
    durable: bool = True,
    progress: Callable[[int, int], object] | None = None,
) -> None:
    """Write an object to a file from which `load_object` maps its arrays.

    The file is a valid safetensors file, written complete or not at all, with checksums, as by `onecopy.save`. These
    are arrays of the file, at multiples of 64 bytes: numpy arrays, CPU tensors of torch, and all buffers that classes
    pass on with pickle protocol 5 (pandas, SciPy, scikit-learn, Arrow). They are named after their paths in the object,
    "coef_" or "layers.0.weight", and arrays of Fortran order appear transposed. Everything else is a pickle in the
    array "object.pickle": also arrays of Python objects, subclasses of arrays other than `numpy.memmap`, and what other
    classes pickle as bytes.

    Parameters
    ----------
    path
        Path of the file; an existing file is replaced.
    value
        Any object that can be pickled. Its classes must be importable where it is loaded.
    durable, progress
        As for `onecopy.save`.

    Raises
    ------
    OSError, ValueError
        As for `onecopy.save`.
    Exception
        The object cannot be pickled; the exception of its class, usually pickle.PicklingError or TypeError.

    Examples
    --------
    >>> import numpy as np, onecopy as oc, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.oc")
    >>> oc.save_object(path, {"weights": np.zeros((1000, 8)), "labels": ["cat", "dog"]})
    >>> oc.open(path)["weights"].shape
    (1000, 8)
    >>> oc.load_object(path, trusted=True)["labels"]
    ['cat', 'dog']
    """
    import numpy as np

    from onecopy.arrays import save
    from onecopy.objects.pickling import pickled

    done = pickled(value)
    arrays, rows, small = _placed(done.parts)
    kind = type(value)
    about = About(f"{kind.__module__}.{kind.__qualname__}", list(arrays), python_version(), done.packages)
    own = {
        PICKLE: np.frombuffer(done.pickle, np.uint8),
        BUFFERS: np.array(rows, np.int64).reshape(-1, 4),
        SMALL: np.frombuffer(small, np.uint8),
    }
    save(path, own | arrays, {METADATA: about.to_json()}, 64, durable=durable, progress=progress)


def python_version() -> str:
    """Return the version of Python as it is recorded: "3.11"."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _placed(parts: list[Part]) -> tuple[dict[str, Any], list[tuple[int, int, int, int]], bytearray]:
    """Return the arrays that hold one buffer each, the rows of "object.buffers", and "object.small"."""
    from onecopy.objects.naming import Names

    arrays: dict[str, Any] = {}
    rows, small, names = [], bytearray(), Names((PICKLE, BUFFERS, SMALL))
    for part in parts:
        nbytes = part.raw.nbytes
        if nbytes >= MIN_BYTES:
            arrays[names.unique(part.name)] = part.content
            rows.append((len(arrays), 0, nbytes, int(part.is_tensor)))
        else:
            small += bytes(-len(small) % SMALL_ALIGNMENT)
            rows.append((0, len(small), nbytes, int(part.is_tensor)))
            small += part.raw
    return arrays, rows, small
