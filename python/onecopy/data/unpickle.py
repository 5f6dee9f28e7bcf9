"""Functions that pickles in object files call to create arrays and tensors that use buffers. Never rename them.

Nothing is copied: the array or tensor refers to its buffer, which keeps the file mapped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def array(buffer: Any, dtype: np.dtype[Any], shape: tuple[int, ...], order: Literal["C", "F"]) -> NDArray[Any]:
    """Create a NumPy array that uses a buffer."""
    import numpy as np

    return np.frombuffer(buffer, np.uint8).view(dtype).reshape(shape, order=order)


def storage(buffer: Any) -> Any:
    """Create a torch storage that uses a writable buffer."""
    import torch

    return torch.frombuffer(buffer, dtype=torch.uint8).untyped_storage() if len(buffer) else torch.UntypedStorage(0)


def tensor(
    storage: Any, dtype: str, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], requires_grad: bool
) -> Any:
    """Create a torch tensor that uses a storage. `offset` and `strides` count elements."""
    import torch

    made = torch.empty(0, dtype=getattr(torch, dtype)).set_(storage, offset, shape, strides)
    return made.requires_grad_(requires_grad)


def parameter(data: Any, requires_grad: bool) -> Any:
    """Create a torch parameter that uses a tensor's memory."""
    import torch

    return torch.nn.Parameter(data, requires_grad)


def polars_frame(table: Any) -> Any:
    """Create a polars frame that uses the buffers of an Arrow table."""
    import polars as pl

    return pl.from_arrow(table)


def polars_series(table: Any) -> Any:
    """Create a polars series that uses the buffers of an Arrow table's only column."""
    return polars_frame(table).to_series()


OPTIONS_OF_SPACY_VECTORS = ("name", "mode", "minn", "maxn", "hash_count", "hash_seed", "bow", "eow", "attr")


def spacy_vectors(strings: Any, data: NDArray[Any], key2row: dict[int, int], options: dict[str, Any]) -> Any:
    """Create a spaCy vector table that uses an array."""
    from spacy.vectors import Vectors

    made = Vectors(strings=strings, data=data, **options)
    made.key2row.update(key2row)
    return made
