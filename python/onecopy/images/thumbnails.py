"""A small picture of an image of any size: means of blocks, read from top to bottom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["thumbnail"]

_BAND = 16 << 20
"""Bytes that are averaged at once, as 32-bit floats."""


def thumbnail(array: NDArray[Any], longest: int = 1024, *, stretch: bool = True) -> NDArray[Any]:
    """Return an image of 8-bit elements in which each pixel is the mean of a block.

    Parameters
    ----------
    array
        (y, x) or (y, x, s): numbers of any type; an `Image` will do. Of four samples, all are kept; other numbers of
        samples than 1, 3 and 4 become their mean.
    longest
        Pixels of the longer side, at most.
    stretch
        Spread what lies between the 0.1 and the 99.9 percentile over 0 to 255; images of 8 bits stay as they are
        unless this is asked for by 16 bits or floats. False: the type's own range.

    Raises
    ------
    ValueError
        It has neither two nor three axes, or no pixels.

    Examples
    --------
    >>> import numpy as np, onecopy as oc
    >>> oc.images.thumbnail(np.arange(16, dtype=np.uint8).reshape(4, 4), longest=2)
    array([[ 2,  4],
           [10, 12]], dtype=uint8)
    """
    import numpy as np

    shape: tuple[int, ...] = array.shape
    if len(shape) not in (2, 3) or 0 in shape:
        raise ValueError(f"an image has the axes (y, x) or (y, x, s), and pixels; this has shape {shape}")
    if longest < 1:
        raise ValueError(f"longest must be at least 1, but is {longest}")
    step = -(-max(shape[:2]) // longest)
    rows = -(-shape[0] // step)
    columns = np.arange(0, shape[1], step)
    widths = np.diff(np.append(columns, shape[1]))
    small = np.empty((rows, len(columns), *shape[2:]), np.float32)
    at_once = max(1, _BAND // (4 * step * shape[1] * (shape[2] if len(shape) == 3 else 1)))
    for first in range(0, rows, at_once):
        band = np.asarray(array[first * step : (first + at_once) * step])
        starts = np.arange(0, len(band), step)
        sums = np.add.reduceat(np.add.reduceat(band, starts, axis=0, dtype=np.float32), columns, axis=1)
        counts = np.diff(np.append(starts, len(band)))[:, None] * widths
        small[first : first + len(starts)] = sums / (counts if sums.ndim == 2 else counts[..., None])
    if small.ndim == 3 and small.shape[2] not in (3, 4):
        small = small.mean(axis=2)
    return _to_bytes(small, array.dtype, stretch)


def _to_bytes(small: NDArray[Any], dtype: Any, stretch: bool) -> NDArray[Any]:
    """Bring means into 0 to 255."""
    import numpy as np

    if dtype == np.uint8:
        return small.clip(0, 255).astype(np.uint8)
    if dtype.kind == "b":
        return (small * 255).astype(np.uint8)
    finite = small[np.isfinite(small)]
    if stretch and finite.size:
        low, high = np.percentile(finite, [0.1, 99.9])
    elif dtype.kind in "iu":
        low, high = float(np.iinfo(dtype).min), float(np.iinfo(dtype).max)
    else:
        low, high = 0.0, 1.0
    scaled = (small - low) * (255 / (high - low) if high > low else 0)
    picture: NDArray[Any] = np.nan_to_num(scaled, nan=0).clip(0, 255).astype(np.uint8)
    return picture
